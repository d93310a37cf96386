use std::time::Duration;

use super::{Lane, hold};
use crate::config::{DLQ, TIERS, delays, jobs, marks};
use crate::plan::{Deck, Drawn, ServerFault, Topics};
use crate::servers::{BROKERS, Servers};

/// Harms brokers, topics and the registry, one after the other, until the lane ends.
pub(crate) fn harm_servers(
    lane: &Lane,
    mut servers: Servers,
    mut deck: Deck<ServerFault>,
) -> Result<Servers, String> {
    while lane.goes_on() {
        let drawn = deck.draw();
        harm(lane, &mut servers, &drawn)?;
        hold(drawn.gap);
    }
    Ok(servers)
}

fn harm(lane: &Lane, servers: &mut Servers, drawn: &Drawn<ServerFault>) -> Result<(), String> {
    let (time, broker) = (drawn.hold, (drawn.luck % BROKERS as u64) as usize);
    let journal = &lane.journal;
    match drawn.fault {
        ServerFault::KillBroker => {
            journal.fault("broker killed", &format!("broker {broker} is killed for {time:?}"), || {
                servers.kafka.kill_broker(broker);
                hold(time);
                servers.kafka.start_broker(broker);
            });
        }
        ServerFault::StopBroker => {
            journal.fault("broker stopped", &format!("broker {broker} is stopped for {time:?}"), || {
                servers.kafka.stop_broker(broker);
                hold(time);
                servers.kafka.start_broker(broker);
            });
        }
        ServerFault::FreezeBroker => {
            journal.fault("broker frozen", &format!("broker {broker} is frozen for {time:?}"), || {
                servers.kafka.pause_broker(broker);
                hold(time);
                servers.kafka.resume_broker(broker);
            });
        }
        ServerFault::RegistryOutage => {
            journal.fault("registry down", &format!("the registry is killed for {time:?}"), || {
                servers.registry.stop();
                hold(time);
                servers.registry.start_again();
            });
            return Ok(());
        }
        ServerFault::Unwritable(topics) => unwritable(lane, servers, topics, (broker, time))?,
    }
    servers.wait_whole()
}

/// Writes need all replicas, of which one is away: nobody can write to these topics, and to all others everybody can.
fn unwritable(
    lane: &Lane,
    servers: &mut Servers,
    topics: Topics,
    (broker, time): (usize, Duration),
) -> Result<(), String> {
    let (name, topics) = match topics {
        Topics::DeadLetters => ("DLQ unwritable", vec![DLQ.to_owned()]),
        Topics::Delays => ("delay topics unwritable", delays()),
        Topics::Marks => ("changelogs unwritable", TIERS.map(marks).into()),
        Topics::Jobs => ("job topics unwritable", TIERS.map(jobs).into()),
    };
    servers.demand_replicas(&topics, BROKERS)?;
    lane.journal.fault(name, &format!("{name}, with broker {broker} away, for {time:?}"), || {
        servers.kafka.kill_broker(broker);
        hold(time);
        servers.kafka.start_broker(broker);
    });
    servers.wait_whole()?;
    servers.demand_replicas(&topics, BROKERS - 1)
}

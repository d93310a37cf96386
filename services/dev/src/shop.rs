//! The shop, played until it has published what it was to publish and all of it came to an end.

use std::time::{Duration, Instant};

use tidegate_service::wiring;

use crate::demo::endpoint::{Endpoint, Pace};
use crate::demo::producer::{self, Producer, Repeats};
use crate::demo::{self};
use crate::error::DevError;
use crate::leave::{Leave, Until, Wish};
use crate::servers::{Servers, Source, config};
use crate::session::{Folder, Session, Way, register_schemas};
use crate::sum::Sum;
use crate::view::{Show, columns, is_live, say, tell};
use crate::{End, Load};

/// For how long nothing may come to an end while there is something left. The longest wait of the ladder is 16 s.
const PATIENCE: Duration = Duration::from_secs(60);
const NOTHING_PUBLISHED: &str = "Ended before anything was published.";

pub(crate) async fn run(load: Load, show: Show) -> Result<End, DevError> {
    // First: whoever ends it in its first moment leaves no folder behind.
    let leave = Leave::on_signals()?;
    let (began, mut folder) = (Instant::now(), Folder::new()?);
    let result = play(load, (show, began), &mut folder, leave).await;
    folder.end(result.as_ref().is_err_and(|error| !matches!(error, DevError::Unread)));
    result
}

async fn play(
    load: Load,
    (show, began): (Show, Instant),
    folder: &mut Folder,
    leave: Leave,
) -> Result<End, DevError> {
    let servers = Servers::start().await?;
    let endpoint = Endpoint::start(Pace::Brisk).await?;
    let text = demo::config(&endpoint.url());
    let config = config(Source::Text(&text), &servers.addresses(), &folder.state())?;
    folder.init_logs(&config, is_live(show), began)?;
    servers.create_topics(&config)?;
    let ids = register_schemas(&config).await?;
    let until = if load.records.is_some() { Until::ItsEnd } else { Until::Asked };
    if let Some(end) = leave.before_it_begins(until) {
        tell(NOTHING_PUBLISHED)?;
        return Ok(end);
    }
    let mut session = Session::begin(&config, leave.clone(), show, began)?;
    let ready = session.until_ready().await;
    if !matches!(ready, Ok(true)) {
        session.end_after(ready).await?;
        tell(NOTHING_PUBLISHED)?;
        return Ok(leave.end(until));
    }
    let load = producer::Load { rate: load.rate, records: load.records, repeats: Repeats::Some };
    let producer = Producer::start(&wiring::kafka(&config), ids, load)?;
    let watched = watch(&mut session, &producer, &endpoint, load).await;
    let took = began.elapsed();
    let (watched, stopped, page) = session.end_after(watched).await?;
    let mut sum = Sum::of(&page, &producer.published(), |class| endpoint.totals(class));
    sum.is_final = watched == Way::InOrder;
    say(&format!("\n{}", sum.told(columns())))?;
    match (watched, sum.problem()) {
        (Way::AtOnce, _) => {
            tell("Ended at once: not everything that was published has come to its end.")?;
            Ok(End::Interrupted { code: leave.code_at_once() })
        }
        (Way::InOrder, Some(problem)) => Err(DevError::WrongSum(problem)),
        (Way::InOrder, None) => {
            let total = producer.total();
            tell(&format!("Every one of {total} records is accounted for, as the endpoint saw it too."))?;
            tell(&format!("It took {:.1} s.", took.as_secs_f64()))?;
            match (load.records.filter(|&all| total < all), stopped) {
                (Some(all), _) => {
                    tell(&format!("Ended before all of {all} were published."))?;
                    Ok(leave.end(Until::ItsEnd))
                }
                (None, Way::AtOnce) => Ok(End::Interrupted { code: leave.code_at_once() }),
                (None, Way::InOrder) => Ok(End::InOrder),
            }
        }
    }
}

/// Shows what happens until everything has come to its end, or somebody wants to leave at once.
async fn watch(
    session: &mut Session,
    producer: &Producer,
    endpoint: &Endpoint,
    load: producer::Load,
) -> Result<Way, DevError> {
    let (mut last, mut last_change) = (0, Instant::now());
    loop {
        let ended = producer.has_ended()?;
        let sum = Sum::of(&session.page(), &producer.published(), |class| endpoint.totals(class));
        let settled = sum.settled();
        producer.settled(settled);
        session.look(&state(producer, ended, load), Some(producer.total()))?;
        if settled != last {
            (last, last_change) = (settled, Instant::now());
        }
        if ended && settled >= producer.total() {
            return Ok(Way::InOrder);
        }
        if last_change.elapsed() > PATIENCE {
            let left = format!("{settled} of {} records did", producer.total());
            return Err(DevError::Unfinished { within: PATIENCE, left });
        }
        let wakes = if session.leave.now() == Wish::Stay { Wish::Leave } else { Wish::Now };
        match session.tick(wakes).await {
            Wish::Stay => {}
            Wish::Leave => producer.stop(),
            Wish::Now => return Ok(Way::AtOnce),
        }
    }
}

fn state(producer: &Producer, ended: bool, load: producer::Load) -> String {
    if ended {
        "finishing what was published".to_owned()
    } else if producer.is_held_back() {
        format!("publishing waits: {} records are open", producer::MOST_OPEN)
    } else {
        format!("publishing {} a second", load.rate)
    }
}

use super::{Lane, hold};
use crate::endpoint::Endpoint;
use crate::plan::{Deck, Drawn, EndpointFault};

/// Lets the endpoint misbehave, until the lane ends.
pub(crate) fn harm_endpoint(lane: &Lane, mut endpoint: Endpoint, mut deck: Deck<EndpointFault>) -> Endpoint {
    while lane.goes_on() {
        let Drawn { fault, hold: time, gap, .. } = deck.draw();
        let (name, what) = match fault {
            EndpointFault::Slow => ("endpoint slow", "the endpoint answers slowly"),
            EndpointFault::Failing => ("endpoint failing", "the endpoint answers 500 mostly"),
            EndpointFault::Overloaded => ("endpoint overloaded", "the endpoint answers 429 mostly"),
            EndpointFault::Hanging => ("endpoint hanging", "some calls of the endpoint are never answered"),
            EndpointFault::Down => ("endpoint down", "the endpoint cuts and refuses connections"),
        };
        lane.journal.fault(name, &format!("{what} for {time:?}"), || {
            endpoint.misbehave(Some(fault));
            hold(time);
            endpoint.misbehave(None);
        });
        hold(gap);
    }
    endpoint
}

//! The progress of a run as server-sent events: the same markup as on the page, whenever it changed, for as long as whoever watches may
//! see it.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use tokio::sync::OwnedSemaphorePermit;

use crate::Console;
use crate::failure::{Answer, Failure};
use crate::gate::Asker;
use crate::inbox::Run;
use crate::pages;

/// How often the index is asked, and whether whoever watches is still logged in.
const EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn events(State(console): State<Console>, asker: Asker, Path(id): Path<String>) -> Answer {
    let seat = console.watchers().try_acquire_owned();
    let seat = seat.map_err(|_| {
        Failure::unavailable("Too many pages watch runs already: reload this one to see how it goes on.")
    })?;
    // One that is not there is told by a status, before anything is streamed.
    pages::runs::find(&console, &asker, id.clone()).await?;
    let watch = Watch { console, asker, id, sent: None, is_over: false, _seat: seat };
    Ok(Sse::new(watch.stream()).keep_alive(KeepAlive::default()).into_response())
}

struct Watch {
    console: Console,
    asker: Asker,
    id: String,
    sent: Option<Run>,
    is_over: bool,
    _seat: OwnedSemaphorePermit,
}

impl Watch {
    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, Self::next)
    }

    /// Sessions end. What else people are known by lasts as long as the console.
    fn may_go_on(&self) -> bool {
        let has_session = |cookie| self.console.access().has_session(cookie, Instant::now());
        self.asker.session().is_none_or(has_session)
    }

    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        if self.is_over {
            return None;
        }
        loop {
            if !self.may_go_on() {
                self.is_over = true;
                return Some((Ok(Event::default().event("logged-out").data("the session ended")), self));
            }
            // Where it can't be told now, the page asks again by itself.
            let run = pages::runs::find(&self.console, &self.asker, self.id.clone()).await.ok()?;
            if self.sent.as_ref() != Some(&run) {
                self.is_over = run.rests();
                // In an event's data, a carriage return would end the line.
                let markup = pages::progress(&run, &self.asker).into_string().replace('\r', " ");
                let event = Event::default().event("progress").data(markup);
                self.sent = Some(run);
                return Some((Ok(event), self));
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}

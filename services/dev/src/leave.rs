//! The wish to leave: Ctrl-C, a signal, or the key q. The first one asks for an end in order, the second for one at once.

use std::ffi::c_int;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::End;

/// How urgent the wish is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// To stay.
    #[default]
    Stay,
    /// To end what has begun, and leave.
    Leave,
    /// To leave at once.
    Now,
}

/// What expressed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// A key that the view names.
    Key,
    /// A signal; Ctrl-C is one too where a view reads the keys.
    Signal(c_int),
    /// A terminal that can't be drawn on any more since it is closed. Its SIGHUP is the same wish, whichever comes first.
    ClosedTerminal,
}

const HANGUP: By = By::Signal(SignalKind::hangup().as_raw_value());
/// What Ctrl-C means where it does not come as a signal.
pub(crate) const INTERRUPT: By = By::Signal(SignalKind::interrupt().as_raw_value());

#[derive(Debug, Clone, Copy, Default)]
struct Wishes {
    wish: Wish,
    /// What expressed it last.
    last: Option<By>,
    /// Whether the terminal was found closed, and its SIGHUP has not come.
    awaits_hangup: bool,
}

impl Wishes {
    fn add(&mut self, by: By) {
        match by {
            By::ClosedTerminal if self.last == Some(HANGUP) => return,
            HANGUP if self.awaits_hangup => {
                self.awaits_hangup = false;
                return;
            }
            By::ClosedTerminal => (self.awaits_hangup, self.last) = (true, Some(HANGUP)),
            by => self.last = Some(by),
        }
        self.wish = match self.wish {
            Wish::Stay => Wish::Leave,
            Wish::Leave | Wish::Now => Wish::Now,
        };
    }
}

/// Who wants to leave. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leave(Arc<watch::Sender<Wishes>>);

/// Whether a run has an end of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// It has, and has not come to it: what ends it before is an interruption.
    ItsEnd,
    /// It goes on until somebody ends it, or has come to its end: who ends it does what is expected.
    Asked,
}

impl Leave {
    /// A wish that SIGINT, SIGTERM and SIGHUP express too.
    ///
    /// # Errors
    /// When the system lets nobody listen to signals.
    pub(crate) fn on_signals() -> std::io::Result<Self> {
        let leave = Self::default();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let (mut signals, leave) = (signal(kind)?, leave.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    leave.wish(By::Signal(kind.as_raw_value()));
                }
            });
        }
        Ok(leave)
    }

    /// Expresses it, once more.
    pub(crate) fn wish(&self, by: By) {
        self.0.send_modify(|wishes| wishes.add(by));
    }

    pub(crate) fn now(&self) -> Wish {
        self.0.borrow().wish
    }

    /// The exit code of a process that a signal ended before it had come to its own end; none where no signal asked for it.
    pub(crate) fn code_of_signal(&self) -> Option<u8> {
        match self.0.borrow().last? {
            By::Signal(number) => Some(u8::try_from(128 + number).unwrap_or(u8::MAX)),
            By::Key | By::ClosedTerminal => None,
        }
    }

    /// The exit code of an end at once: what a key asked for is as if Ctrl-C had.
    pub(crate) fn code_at_once(&self) -> u8 {
        self.code_of_signal().unwrap_or(INTERRUPTED)
    }

    /// How a run ends that nobody has to wait for any more.
    pub(crate) fn end(&self, until: Until) -> End {
        match (self.now(), until, self.code_of_signal()) {
            (Wish::Now, _, _) => End::Interrupted { code: self.code_at_once() },
            (Wish::Leave, Until::ItsEnd, Some(code)) => End::Interrupted { code },
            _ => End::InOrder,
        }
    }

    /// The end of a run of which nothing has begun yet, if somebody wants to leave.
    pub(crate) fn before_it_begins(&self, until: Until) -> Option<End> {
        (self.now() != Wish::Stay).then(|| self.end(until))
    }

    /// Returns once the wish is at least this urgent.
    pub(crate) async fn wait_for(&self, at_least: Wish) {
        let mut wishes = self.0.subscribe();
        // It can't fail: `self` holds the sender for as long as this waits.
        drop(wishes.wait_for(|wishes| wishes.wish >= at_least).await);
    }
}

const INTERRUPTED: u8 = 130;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_wish_is_for_an_end_at_once() {
        let leave = Leave::default();
        assert_eq!(leave.now(), Wish::Stay);
        leave.wish(By::Key);
        leave.wait_for(Wish::Leave).await;
        assert_eq!((leave.now(), leave.code_of_signal()), (Wish::Leave, None));
        leave.clone().wish(INTERRUPT);
        leave.wait_for(Wish::Now).await;
        leave.wish(By::Key);
        assert_eq!((leave.now(), leave.code_at_once()), (Wish::Now, 130));
    }

    #[test]
    fn a_terminal_that_is_closed_is_one_wish_whether_drawing_or_its_signal_finds_it_first() {
        for order in [[By::ClosedTerminal, HANGUP], [HANGUP, By::ClosedTerminal]] {
            let leave = Leave::default();
            order.into_iter().for_each(|by| leave.wish(by));
            assert_eq!((leave.now(), leave.code_of_signal()), (Wish::Leave, Some(129)), "{order:?}");
            // One that somebody sends besides is another one.
            leave.wish(HANGUP);
            assert_eq!(leave.now(), Wish::Now, "{order:?}");
        }
    }

    #[test]
    fn the_last_signal_gives_the_exit_code() {
        let leave = Leave::default();
        leave.wish(INTERRUPT);
        assert_eq!(leave.code_of_signal(), Some(130));
        leave.wish(By::Signal(SignalKind::terminate().as_raw_value()));
        assert_eq!((leave.code_of_signal(), leave.code_at_once()), (Some(143), 143));
    }

    #[test]
    fn a_signal_interrupts_what_has_an_end_of_its_own_and_ends_what_has_none() {
        let leave = Leave::default();
        assert_eq!(leave.before_it_begins(Until::ItsEnd), None);
        leave.wish(INTERRUPT);
        assert_eq!(leave.end(Until::ItsEnd), End::Interrupted { code: 130 });
        assert_eq!(leave.before_it_begins(Until::Asked), Some(End::InOrder));
        leave.wish(INTERRUPT);
        assert_eq!(leave.end(Until::Asked), End::Interrupted { code: 130 });
        let leave = Leave::default();
        leave.wish(By::Key);
        assert_eq!(leave.end(Until::ItsEnd), End::InOrder);
    }
}

//! The live view: it takes the terminal, and gives it back at every end.

use std::io::{self, stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::layout;
use crate::leave::Leave;
use crate::snapshot::Snapshot;

/// Whether the terminal is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// How often the thread that reads keys looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// The live view; dropping it gives the terminal back.
pub(crate) struct Live {
    /// Never dropped: where the terminal is gone, it would write to standard error that it can't show the cursor, and panic where
    /// that is the same terminal.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<io::Stdout>>>,
    stop: Arc<AtomicBool>,
}

impl Live {
    pub(super) fn begin(leave: &Leave) -> io::Result<Self> {
        tell_panics();
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::Release);
        let stop = Arc::new(AtomicBool::new(false));
        let opened = execute!(stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())))
            .map(ManuallyDrop::new)
            .and_then(|mut terminal| terminal.hide_cursor().map(|()| terminal));
        let keys = read_keys(stop.clone(), leave.clone());
        match (opened, keys) {
            (Ok(terminal), Ok(())) => Ok(Self { terminal, stop }),
            (Err(error), _) | (_, Err(error)) => {
                stop.store(true, Ordering::Release);
                give_back();
                Err(error)
            }
        }
    }

    pub(super) fn show(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.terminal.draw(|frame| layout::draw(snapshot, frame.area(), frame.buffer_mut())).map(drop)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The thread that reads keys is not waited for: where the terminal is gone, its reading never ends.
        self.stop.store(true, Ordering::Release);
        give_back();
    }
}

/// Makes the terminal again what it was. Once: whoever comes first.
fn give_back() {
    if TAKEN.swap(false, Ordering::AcqRel) {
        // Nothing is left to do where the terminal itself is gone.
        drop(execute!(stdout(), LeaveAlternateScreen, crossterm::cursor::Show));
        drop(disable_raw_mode());
    }
}

/// A panic of the thread that shows things must not be written to a screen that is about to go; one of another thread, which the process
/// survives, must not be written over the view: the log has it.
fn tell_panics() {
    static ONCE: Once = Once::new();
    let viewer = thread::current().id();
    ONCE.call_once(|| {
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == viewer {
                give_back();
            }
            if TAKEN.load(Ordering::Acquire) {
                tracing::error!(panic = %info, "a thread panicked");
            } else {
                default(info);
            }
        }));
    });
}

fn read_keys(stop: Arc<AtomicBool>, leave: Leave) -> io::Result<()> {
    let read = move || {
        while !stop.load(Ordering::Acquire) {
            match event::poll(LOOK).and_then(|ready| if ready { event::read().map(Some) } else { Ok(None) }) {
                Ok(Some(Event::Key(key))) if means_leave(&key) => leave.wish(),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "keys can't be read any more; signals still work");
                    return;
                }
            }
        }
    };
    thread::Builder::new().name("keys".to_owned()).spawn(read).map(drop)
}

fn means_leave(key: &KeyEvent) -> bool {
    let is_control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && (is_control_c || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_control_c_mean_to_leave() {
        let key = |code, modifiers| KeyEvent::new(code, modifiers);
        assert!(means_leave(&key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(means_leave(&key(KeyCode::Esc, KeyModifiers::NONE)));
        assert!(means_leave(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!means_leave(&key(KeyCode::Char('c'), KeyModifiers::NONE)));
        assert!(!means_leave(&key(KeyCode::Char('x'), KeyModifiers::CONTROL)));
    }
}

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
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::{SIZE_OF_OLD, layout, size};
use crate::leave::{By, INTERRUPT, Leave};
use crate::snapshot::Snapshot;

/// Whether the terminal is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// How often the thread that reads keys looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// The live view; dropping it gives the terminal back.
pub(crate) struct Live {
    /// Never dropped: where the terminal is gone, it would write to standard error that it can't show the cursor, and panic where
    /// that is the same terminal.
    terminal: ManuallyDrop<Screen>,
    /// Whether the terminal has a size, which the screen follows.
    is_sized: bool,
    stop: Arc<AtomicBool>,
}

type Screen = Terminal<CrosstermBackend<io::Stdout>>;

/// The whole terminal, whatever its size becomes; of one that has none, what all of them had once.
fn screen(is_sized: bool) -> io::Result<Screen> {
    let (width, height) = SIZE_OF_OLD;
    let viewport =
        if is_sized { Viewport::Fullscreen } else { Viewport::Fixed(Rect::new(0, 0, width, height)) };
    Terminal::with_options(CrosstermBackend::new(stdout()), TerminalOptions { viewport })
}

impl Live {
    pub(super) fn begin(leave: &Leave) -> io::Result<Self> {
        tell_panics();
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::Release);
        let (stop, is_sized) = (Arc::new(AtomicBool::new(false)), size().is_some());
        let opened = execute!(stdout(), EnterAlternateScreen)
            .and_then(|()| screen(is_sized))
            .map(ManuallyDrop::new)
            .and_then(|mut terminal| terminal.hide_cursor().map(|()| terminal));
        let keys = read_keys(stop.clone(), leave.clone());
        match (opened, keys) {
            (Ok(terminal), Ok(())) => Ok(Self { terminal, is_sized, stop }),
            (Err(error), _) | (_, Err(error)) => {
                stop.store(true, Ordering::Release);
                give_back();
                Err(error)
            }
        }
    }

    pub(super) fn show(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let is_sized = size().is_some();
        if is_sized != self.is_sized {
            (self.terminal, self.is_sized) = (ManuallyDrop::new(screen(is_sized)?), is_sized);
            self.terminal.clear()?;
        }
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
                Ok(Some(Event::Key(key))) => meant(&key).into_iter().for_each(|by| leave.wish(by)),
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

/// Whether a key means to leave, and how. Ctrl-C is the signal that it would be without this view.
fn meant(key: &KeyEvent) -> Option<By> {
    match key.code {
        _ if key.kind != KeyEventKind::Press => None,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(INTERRUPT),
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(By::Key),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_control_c_mean_to_leave() {
        let key = |code, modifiers| KeyEvent::new(code, modifiers);
        assert_eq!(meant(&key(KeyCode::Char('q'), KeyModifiers::NONE)), Some(By::Key));
        assert_eq!(meant(&key(KeyCode::Esc, KeyModifiers::NONE)), Some(By::Key));
        assert_eq!(meant(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(INTERRUPT));
        assert_eq!(meant(&key(KeyCode::Char('c'), KeyModifiers::NONE)), None);
        assert_eq!(meant(&key(KeyCode::Char('x'), KeyModifiers::CONTROL)), None);
    }
}

//! What a process answers when it ends.

use std::process::{self, Termination};

/// How a tidegate command ended. A second signal during a stop ends the process with 130 (SIGINT) or 143 (SIGTERM).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// The command did what was asked; a service stopped on request and lost nothing.
    Ok = 0,
    /// It failed at run time: a server, a disk, a deadline. Trying again may help.
    Failed = 1,
    /// The command line or the configuration is wrong. Trying again won't help.
    Usage = 2,
    /// The command worked, and its answer is no: not found, not as it should be (`topics check`).
    NotOk = 3,
}

impl From<ExitCode> for process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

impl Termination for ExitCode {
    fn report(self) -> process::ExitCode {
        self.into()
    }
}

//! What the commands tell, on standard output and on standard error.

use std::io::{self, ErrorKind, Write};

use tidegate_bootstrap::ExitCode as Code;

/// Prints to standard output.
pub(crate) fn print(text: &str) {
    // It ends the process itself where that can't be done.
    drop(writeln!(Output, "{text}").and_then(|()| Output.flush()));
}

/// Standard output of which every byte counts: where it can't be written, the process ends. A closed pipe (`| head`) is somebody who has
/// read enough, and a quiet end; anything else is a failure, since what was asked for is not there.
#[derive(Debug)]
pub(crate) struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).or_else(unless_interrupted)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().or_else(unless_interrupted)
    }
}

/// A call that a signal has interrupted is made again by whoever called.
fn unless_interrupted<T>(error: io::Error) -> io::Result<T> {
    if error.kind() == ErrorKind::Interrupted { Err(error) } else { end_without(&error) }
}

/// Ends the process that can't write to standard output.
pub(crate) fn end_without(error: &io::Error) -> ! {
    if error.kind() == ErrorKind::BrokenPipe {
        tidegate_kafka::end_process(Code::Ok as u8);
    }
    print_error(&format!(
        "standard output can't be written to: {error}; what was asked for is not all there"
    ));
    tidegate_kafka::end_process(Code::Failed as u8)
}

/// Tells why the command is about to end with another code than 0.
pub(crate) fn print_error(text: &str) {
    write_error(&format!("error: {text}"));
}

/// Tells on standard error what no program should have to tell from the output.
pub(crate) fn print_note(text: &str) {
    write_error(&format!("note: {text}"));
}

/// A terminal that was closed takes no last words, and is no reason to panic.
fn write_error(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

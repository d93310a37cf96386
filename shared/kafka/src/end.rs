//! The end of a process that has librdkafka and RocksDB in it.
#![allow(unsafe_code, reason = "the call takes a number and does not return")]

use std::io::Write;

/// Ends the process at once with this code, after what was printed is flushed. Runs no destructor of static objects.
///
/// A call that waits for a broker that does not answer can't be cancelled, and RocksDB works in threads of its own. A usual exit takes
/// the static objects of the C and C++ libraries apart under such threads, and what they touch then aborts the process
/// (SIGABRT, 134) although all that counts had ended well. Call it when nothing is left to do.
pub fn end_process(code: u8) -> ! {
    // A closed pipe can't be told of any more.
    drop(std::io::stdout().flush());
    drop(std::io::stderr().flush());
    // SAFETY: `_exit` has no precondition and does not return.
    unsafe { libc::_exit(i32::from(code)) }
}

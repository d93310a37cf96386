//! Delay topics: what waits in them, for how long, and where it goes then.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod stops;
mod waits;

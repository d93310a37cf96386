//! Delay topics: what waits in them, for how long, and where it goes then.

mod stops;
mod waits;

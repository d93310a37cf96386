//! Processes and brokers that die, stop, come and go; offsets with gaps; local state that is lost; and what operators see of it.

mod broker;
mod gaps;
mod local;
mod observed;
mod stops;
mod topics;

//! The console over an inbox in memory: a real server, real requests.

mod access;
mod api;
mod changes;
mod escaping;
mod fake;
mod load;
mod pages;
mod site;

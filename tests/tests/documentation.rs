//! README and docs against the code: commands, examples, tables, links, and the book itself.

#[path = "documentation/blocks.rs"]
mod blocks;
#[path = "documentation/book.rs"]
mod book;
#[path = "documentation/metrics.rs"]
mod metrics;
#[path = "documentation/settings.rs"]
mod settings;
#[path = "documentation/table.rs"]
mod table;

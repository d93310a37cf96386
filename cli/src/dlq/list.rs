//! `tidegate dlq list`.

use clap::Args;
use tidegate_bootstrap::{Config, ExitCode};
use tidegate_operator::{ListQuery, Order, Row};

use super::filter::FilterArgs;
use super::opened::Opened;
use super::{Common, text};
use crate::{Answer, print, print_note};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate dlq list --class charge --since 2h\n  tidegate dlq list --kind malformed --limit 20\n  tidegate dlq list --json --limit 1000000 | jq -r .job.key"
)]
pub(crate) struct List {
    #[command(flatten)]
    filter: FilterArgs,
    /// At most this many; how many there are is told on standard error then
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// The oldest first
    #[arg(long)]
    oldest: bool,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(config: Config, list: &List) -> Answer {
    let filter = list.filter.filter()?;
    let opened = Opened::open(config, list.common.index.as_deref(), list.filter.needed())?;
    let order = if list.oldest { Order::OldestFirst } else { Order::NewestFirst };
    let mut query = ListQuery { filter, order, after: None, limit: None };
    if !list.common.json {
        print(&format!(
            "{:<16} {:<10} {:<13} {:<11} {:<16} {:<16} {:<32} MESSAGE",
            "ITEM", "RECORD", "STATE", "KIND", "CODE", "CLASS", "SOURCE"
        ));
    }
    let mut listed = 0;
    let rest = loop {
        let left = list.limit - listed;
        // One page more than what is wanted tells whether there is more.
        query.limit = Some(left.clamp(1, 1000));
        let page = opened.inbox.list(&query)?;
        for row in page.items.iter().take(left) {
            print(&if list.common.json { serde_json::to_string(row)? } else { line(row) });
            listed += 1;
        }
        let rest = Rest { total: page.total, more: page.next.is_some() || page.items.len() > left };
        query.after = page.next;
        if listed >= list.limit || query.after.is_none() {
            break rest;
        }
    };
    rest.tell(listed, list.common.json);
    Ok(ExitCode::Ok)
}

/// What a list leaves out.
struct Rest {
    total: Option<u64>,
    more: bool,
}

impl Rest {
    fn tell(&self, listed: usize, json: bool) {
        match self.total {
            Some(total) if total > listed as u64 => {
                print_note(&format!("listed {listed} of {total}: `--limit {total}` lists all"));
            }
            None if self.more => print_note(&format!("listed {listed}, and there are more: raise `--limit`")),
            _ if listed == 0 && !json => print("nothing is dead-lettered here"),
            _ => {}
        }
    }
}

fn line(row: &Row) -> String {
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    let source = format!("{}/{}/{}", row.source.topic, row.source.partition, row.source.offset);
    text::plain(&format!(
        "{:<16} {:<10} {:<13} {:<11} {:<16} {:<16} {:<32} {}",
        row.item.to_string(),
        row.record,
        row.state,
        name(&row.error.kind),
        row.error.code,
        name(&row.job.class),
        source,
        text::line(&row.error.message, 120),
    ))
}

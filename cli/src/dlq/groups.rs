//! `tidegate dlq groups`.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use tidegate_bootstrap::{Config, ExitCode, counted};
use tidegate_operator::{By, Group, GroupQuery, Sort};

use super::filter::FilterArgs;
use super::opened::Opened;
use super::{Common, text};
use crate::{Answer, print, print_note};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate dlq groups --state open --state failed-again\n  tidegate dlq groups --by class --since 1d\n  tidegate dlq groups --json | jq .groups[0].states"
)]
pub(crate) struct Groups {
    #[command(flatten)]
    filter: FilterArgs,
    /// What to group by
    #[arg(long, value_enum, default_value = "fingerprint")]
    by: ByArg,
    /// Which groups come first: those with the most items that wait for a decision, that failed last, or that are largest
    #[arg(long, value_enum, default_value = "waiting")]
    sort: SortArg,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ByArg {
    Fingerprint,
    Class,
    Tier,
    Kind,
    Schema,
    Handler,
    Source,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SortArg {
    Waiting,
    Latest,
    Items,
}

pub(crate) fn run(config: Config, groups: &Groups) -> Answer {
    let filter = groups.filter.filter()?;
    let opened = Opened::open(config, groups.common.index.as_deref(), groups.filter.needed())?;
    let by = match groups.by {
        ByArg::Fingerprint => By::Fingerprint,
        ByArg::Class => By::Class,
        ByArg::Tier => By::Tier,
        ByArg::Kind => By::Kind,
        ByArg::Schema => By::Schema,
        ByArg::Handler => By::Handler,
        ByArg::Source => By::Source,
    };
    let sort = match groups.sort {
        SortArg::Waiting => Sort::Waiting,
        SortArg::Latest => Sort::Latest,
        SortArg::Items => Sort::Items,
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    let query = GroupQuery { filter, by, sort, skip: 0, limit: Some(groups.limit), now };
    let page = opened.inbox.groups(&query)?;
    if groups.common.json {
        print(&serde_json::to_string_pretty(&page)?);
        return Ok(ExitCode::Ok);
    }
    if page.total == 0 {
        print("nothing is dead-lettered here");
        return Ok(ExitCode::Ok);
    }
    page.groups.iter().for_each(show);
    if page.total > page.groups.len() {
        print_note(&format!(
            "{} groups of {}: `--limit {}` shows all",
            page.groups.len(),
            page.total,
            page.total
        ));
    }
    Ok(ExitCode::Ok)
}

fn show(group: &Group) {
    let state = group.state.map_or(String::new(), |state| format!("  {state}"));
    let waiting =
        if group.waiting == group.items { String::new() } else { format!(", {} waiting", group.waiting) };
    let late = match group.late {
        0 => String::new(),
        late => format!(", {late} failed again after the end"),
    };
    let items = counted(group.items, "item", "items");
    let causes = counted(group.causes as u64, "cause", "causes");
    print(&text::plain(&format!(
        "{}{state}  {items}{waiting}{late}, {causes}, since {}, last {}",
        group.key,
        text::time(group.since()),
        text::time(group.last_dead_at)
    )));
    let facts = [&group.kinds, &group.codes, &group.classes, &group.sources];
    let facts: Vec<String> =
        facts.iter().filter(|names| !names.is_empty()).map(|names| names.join(",")).collect();
    print(&text::plain(&format!("    {}  [{}]", facts.join("  "), text::sparkline(&group.sparkline))));
    if !group.message.is_empty() {
        print(&format!("    {}", text::line(&group.message, 160)));
    }
}

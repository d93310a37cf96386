//! Where groups stand, against the rule of the domain.

use proptest::prelude::*;
use rusqlite::{Connection, params};
use tidegate_domain::UnixMillis;
use tidegate_domain::inbox::{GroupState, Life, group_state};

use super::{Group, MOST_STEPS};
use crate::query::{Handlers, View};

/// Where the group stands that has these lives, each of one of three causes, and these items that wait since then.
fn stands(connection: &Connection, ended: &[(i64, i64)], waiting: &[i64]) -> GroupState {
    connection.execute_batch("DELETE FROM lives").unwrap();
    for (item, (failed_at, ended_at)) in (0_i64..).zip(ended) {
        let sql = "INSERT INTO lives (cause, failed_at, item, ended_at) VALUES (?1, ?2, ?3, ?4)";
        connection.execute(sql, params![1 + item % 3, failed_at, item, ended_at]).unwrap();
    }
    let waiting_since = waiting.iter().min().copied();
    let group = Group { members: vec![1, 2, 3], waiting_since, ..Group::default() };
    View { connection, handlers: &Handlers::default() }.state_of(&group).unwrap()
}

fn expected(ended: &[(i64, i64)], waiting: &[i64]) -> GroupState {
    let life = |failed_at: i64, ended_at: Option<i64>| Life {
        failed_at: UnixMillis(failed_at),
        ended_at: ended_at.map(UnixMillis),
    };
    let ended = ended.iter().map(|(failed_at, ended_at)| life(*failed_at, Some(*ended_at)));
    group_state(ended.chain(waiting.iter().map(|failed_at| life(*failed_at, None))))
}

fn empty() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(include_str!("../../index/tables.sql")).unwrap();
    connection
}

#[test]
fn a_group_stands_where_the_domain_says() {
    let connection = empty();
    let life = (0..60_i64, 0..15_i64).prop_map(|(from, length)| (from, from + length));
    let ended = proptest::collection::vec(life, 0..20);
    proptest!(|(ended in ended, waiting in proptest::collection::vec(0..70_i64, 0..3))| {
        prop_assert_eq!(stands(&connection, &ended, &waiting), expected(&ended, &waiting));
    });
}

#[test]
fn a_regression_is_seen_behind_as_many_lives_as_it_is_gone_back_and_no_further() {
    // Each begins before the last one ended, but for the second one.
    let chain = |lives: i64| {
        let later = (0..lives).map(|n| (100 + n * 10, 115 + n * 10));
        std::iter::once((0, 50)).chain(later).collect::<Vec<_>>()
    };
    let open_since = |lives: i64| 100 + lives * 10;
    let connection = empty();
    let stands = |lives: i64| stands(&connection, &chain(lives), &[open_since(lives)]);
    let most = MOST_STEPS as i64 - 1;
    assert_eq!(stands(most), GroupState::Regressed);
    assert_eq!(stands(most + 1), GroupState::Open);
}

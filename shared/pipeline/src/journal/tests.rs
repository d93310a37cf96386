use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tidegate_domain::Partition;
use tidegate_domain::inbox::Answer;

use super::*;

fn id(text: &str) -> ItemId {
    text.parse().unwrap()
}

fn ordered(text: &str, seen: Option<i64>, round: u32) -> Ordered {
    Ordered { id: id(text), seen: seen.map(Offset), round: Round(round), edited: None }
}

fn actions(order: Order, items: Vec<Ordered>) -> Actions {
    Actions {
        run: RunId(0xab),
        by: "ada".to_owned(),
        at: UnixMillis(1_764_432_000_000),
        chunk: 2,
        order,
        reason: Some("the shop is back".to_owned()),
        items,
    }
}

/// The entry is written so, and so read again.
fn check(entry: Entry, json: &str) {
    assert_eq!(String::from_utf8(entry.write()).unwrap(), json);
    assert_eq!(Entry::read(Some(json.as_bytes())), Ok(entry));
}

#[test]
fn orders_are_written_as_they_stand_here() {
    let mut items = vec![ordered("shop/3/12/charge", None, 1), ordered("shop/3/13/", Some(0), 4)];
    items[1].edited = Some(vec![0, 1, 255]);
    check(
        Entry::Actions(actions(Order::Replay { forced: true }, items)),
        r#"{"v":1,"kind":"actions","run":"00000000000000ab","by":"ada","at":1764432000000,"do":"replay","forced":true,"chunk":2,"reason":"the shop is back","items":[{"id":"shop/3/12/charge","seen":-1,"round":1},{"id":"shop/3/13/","seen":0,"round":4,"value":"AAH/"}]}"#,
    );
    check(
        Entry::Actions(actions(Order::Discard, vec![ordered("shop/3/12/charge", Some(7), 0)])),
        r#"{"v":1,"kind":"actions","run":"00000000000000ab","by":"ada","at":1764432000000,"do":"discard","chunk":2,"reason":"the shop is back","items":[{"id":"shop/3/12/charge","seen":7}]}"#,
    );
}

#[test]
fn runs_are_written_as_they_stand_here() {
    let run = |step| Entry::Run(RunEntry { run: RunId(0xab), by: "ada".to_owned(), at: UnixMillis(7), step });
    let plan = RunPlan {
        order: Order::Replay { forced: false },
        total: 4812,
        chunks: 1,
        selection: "group 38f905dd99d28bba".to_owned(),
        rate: Some(200.0),
        ramp: Some(RampLimits::CANARY),
    };
    check(
        run(RunStep::Begin(plan)),
        r#"{"v":1,"kind":"run","run":"00000000000000ab","by":"ada","at":7,"do":"begin","plan":{"do":"replay","total":4812,"chunks":1,"selection":"group 38f905dd99d28bba","rate":200.0,"ramp":{"first":1,"factor":5,"cap":10000,"failures":0.1,"timeout":120000}}}"#,
    );
    let named = [
        (RunStep::Pause, "pause"),
        (RunStep::Resume, "resume"),
        (RunStep::Close, "close"),
        (RunStep::Finish, "finish"),
    ];
    for (step, name) in named {
        check(
            run(step),
            &format!(r#"{{"v":1,"kind":"run","run":"00000000000000ab","by":"ada","at":7,"do":"{name}"}}"#),
        );
    }
    check(
        run(RunStep::Stop { why: "1 of 1".to_owned() }),
        r#"{"v":1,"kind":"run","run":"00000000000000ab","by":"ada","at":7,"do":"stop","why":"1 of 1"}"#,
    );
    check(
        run(RunStep::Climb { until: 31 }),
        r#"{"v":1,"kind":"run","run":"00000000000000ab","by":"ada","at":7,"do":"climb","until":31}"#,
    );
}

#[test]
fn outcomes_and_audits_are_written_as_they_stand_here() {
    let outcome = |answer| Outcome { round: Round(2), answer };
    let entry =
        OutcomeEntry::new(id("shop/3/12/charge"), outcome(Answer::Resolved), UnixMillis(7), "w".to_owned());
    let failure = Failure::permanent("http-422", "order 7 is refused");
    check(
        Entry::Outcome(OutcomeEntry {
            outcome: outcome(Answer::FailedAgain),
            error: Some(ErrorEntry::of(&failure)),
            ..entry.clone()
        }),
        &format!(
            r#"{{"v":1,"kind":"outcome","id":"shop/3/12/charge","round":2,"what":"failed-again","at":7,"worker":"w","error":{{"kind":"permanent","code":"http-422","message":"order 7 is refused","fingerprint":"{}"}}}}"#,
            failure.fingerprint()
        ),
    );
    check(
        Entry::Outcome(OutcomeEntry {
            outcome: outcome(Answer::WaitingUntil(UnixMillis(99))),
            ..entry.clone()
        }),
        r#"{"v":1,"kind":"outcome","id":"shop/3/12/charge","round":2,"what":"waiting","until":99,"at":7,"worker":"w"}"#,
    );
    let parked = ParkedEntry { class: "charge".to_owned(), since: UnixMillis(5), probe: Some(UnixMillis(9)) };
    let waits = OutcomeEntry {
        outcome: outcome(Answer::WaitingUntil(UnixMillis(99))),
        parked: Some(parked.clone()),
        ..entry.clone()
    };
    check(
        Entry::Outcome(waits.clone()),
        r#"{"v":1,"kind":"outcome","id":"shop/3/12/charge","round":2,"what":"waiting","until":99,"at":7,"worker":"w","parked":{"class":"charge","since":5,"probe":9}}"#,
    );
    let probed = OutcomeEntry { parked: Some(ParkedEntry { probe: None, ..parked }), ..waits };
    assert_eq!(Entry::read(Some(&Entry::Outcome(probed.clone()).write())), Ok(Entry::Outcome(probed)));
    for answer in [Answer::Resolved, Answer::AlreadyDone, Answer::Superseded, Answer::Coalesced] {
        let entry = Entry::Outcome(OutcomeEntry { outcome: outcome(answer), ..entry.clone() });
        assert_eq!(Entry::read(Some(&entry.write())), Ok(entry));
    }
    check(
        Entry::Audit(Audit {
            by: "ada".to_owned(),
            at: UnixMillis(7),
            what: "reveal".to_owned(),
            id: Some(id("shop/3/12/charge")),
            detail: Some("card".to_owned()),
        }),
        r#"{"v":1,"kind":"audit","by":"ada","at":7,"what":"reveal","id":"shop/3/12/charge","detail":"card"}"#,
    );
}

#[test]
fn an_order_is_folded_for_each_of_its_items() {
    let mut items = vec![ordered("a/0/1/c", None, 1), ordered("a/0/2/c", Some(5), 3)];
    items[1].edited = Some(vec![1]);
    let actions = actions(Order::Replay { forced: false }, items);
    let entries: Vec<_> = actions.entries().map(|(item, entry)| (item.id.to_string(), entry)).collect();
    let action = |seen, round, edited| inbox::Entry::Action {
        seen,
        run: RunId(0xab),
        action: Action::Replay { round: Round(round), forced: false, edited },
    };
    assert_eq!(
        entries,
        [
            ("a/0/1/c".to_owned(), action(None, 1, false)),
            ("a/0/2/c".to_owned(), action(Some(Offset(5)), 3, true))
        ]
    );
}

#[test]
fn later_versions_and_unknown_kinds_are_told_and_unknown_fields_passed_over() {
    let read = |json: &str| Entry::read(Some(json.as_bytes()));
    assert_eq!(read(r#"{"v":2,"kind":"outcome","id":7}"#), Err(Unread::Version(2)));
    assert_eq!(read(r#"{"v":1,"kind":"vote","x":[]}"#), Err(Unread::Kind("vote".to_owned())));
    let more = r#"{"new":{"a":1},"v":1,"kind":"audit","by":"a\u0064a","at":7,"what":"reveal","mood":"good"}"#;
    assert!(matches!(read(more), Ok(Entry::Audit(Audit { by, .. })) if by == "ada"));
}

#[test]
fn what_is_of_no_form_is_passed_over_with_a_reason_and_as_a_whole() {
    let outcome = r#"{"v":1,"kind":"outcome","id":"a/0/1/c","round":1,"what":"resolved","at":7}"#;
    assert!(Entry::read(Some(outcome.as_bytes())).is_ok());
    let wrong = [
        "",
        "null",
        "[]",
        "{}",
        r#"{"v":1}"#,
        r#"{"v":"1","kind":"audit"}"#,
        &outcome.replace("a/0/1/c", "a/0/c"),
        &outcome.replace("\"round\":1", "\"round\":0"),
        &outcome.replace("\"round\":1", "\"round\":-1"),
        &outcome.replace("resolved", "fine"),
        &outcome.replace("resolved", "waiting"),
        r#"{"v":1,"kind":"run","run":"00000000000000ab","by":"a","at":1,"do":"begin"}"#,
        r#"{"v":1,"kind":"run","run":"xx","by":"a","at":1,"do":"pause"}"#,
        r#"{"v":1,"kind":"run","run":"00000000000000ab","by":"a","at":1,"do":"jump"}"#,
    ];
    for json in wrong {
        assert!(matches!(Entry::read(Some(json.as_bytes())), Err(Unread::Garbage(_))), "{json}");
    }
    assert!(matches!(Entry::read(None), Err(Unread::Garbage(_))));
    let order = |order: &str, reason: &str, item: &str| {
        let head = r#"{"v":1,"kind":"actions","run":"00000000000000ab","by":"a","at":1"#;
        let json = format!(r#"{head},"do":"{order}"{reason},"items":[{item}]}}"#);
        Entry::read(Some(json.as_bytes()))
    };
    let item = r#"{"id":"a/0/1/c","seen":-1,"round":1}"#;
    assert!(order("replay", "", item).is_ok());
    assert!(order("discard", r#","reason":"known""#, item).is_ok());
    for (what, reason, item) in [
        ("jump", "", item),
        ("discard", "", item),
        ("discard", r#","reason":" ""#, item),
        ("replay", "", r#"{"id":"a/0/1/c","seen":-1}"#),
        ("replay", "", r#"{"id":"a/0/1/c","seen":-1,"round":0}"#),
        ("replay", "", r#"{"id":"a/0/1/c","round":1}"#),
        ("replay", "", r#"{"id":"a/0/1/c","seen":-1,"round":1,"value":"no base64"}"#),
    ] {
        assert!(matches!(order(what, reason, item), Err(Unread::Garbage(_))), "{what} {reason} {item}");
    }
}

#[test]
fn a_long_message_is_cut_and_keeps_the_fingerprint_of_the_whole() {
    let failure = Failure::transient("t", "é".repeat(MESSAGE_BUDGET));
    let error = ErrorEntry::of(&failure);
    assert!(error.message.len() <= MESSAGE_BUDGET && error.message.ends_with('…'));
    assert_eq!(error.fingerprint, failure.fingerprint().to_string());
}

#[test]
fn a_run_is_cut_into_chunks_that_fit_into_a_record() {
    let items: Vec<_> = (0..12_000).map(|n| ordered(&format!("shop/0/{n}/charge"), None, 1)).collect();
    let by_count: Vec<_> = chunks(items.clone(), usize::MAX).iter().map(Vec::len).collect();
    assert_eq!(by_count, [5000, 5000, 2000]);
    let most = 100_000;
    let by_bytes = chunks(items.clone(), most);
    assert!(by_bytes.len() > 3);
    for chunk in &by_bytes {
        let written = Entry::Actions(actions(Order::Replay { forced: false }, chunk.clone())).write().len();
        assert!(written < most + 500, "{written} bytes");
    }
    assert_eq!(by_bytes.concat(), items);
    let mut large = ordered("shop/0/1/charge", None, 1);
    large.edited = Some(vec![7; 1 << 20]);
    assert_eq!(chunks(vec![large.clone(), items[0].clone()], most), [vec![large], vec![items[0].clone()]]);
    assert!(chunks(Vec::new(), most).is_empty());
}

fn any_item() -> impl Strategy<Value = ItemId> {
    ("[a-z0-9._-]{1,20}", 0..50_i32, 0..i64::MAX, option::of("[a-z0-9-]{1,10}")).prop_map(
        |(topic, partition, offset, class)| ItemId {
            topic: tidegate_domain::Topic::new(topic),
            partition: Partition(partition),
            offset: Offset(offset),
            class: class.map(Into::into),
        },
    )
}

proptest! {
    #[test]
    fn any_order_is_read_as_it_was_written(
        run in any::<u64>(),
        by in "\\PC{0,20}",
        reason in "\\PC{0,20}",
        items in vec((any_item(), option::of(0..i64::MAX), 1..u32::MAX, option::of(vec(any::<u8>(), 0..40))), 0..20),
    ) {
        let items = items.into_iter().map(|(id, seen, round, edited)| {
            Ordered { id, seen: seen.map(Offset), round: Round(round), edited }
        });
        let reason = Some(reason).filter(|reason| !reason.trim().is_empty());
        let order = Order::Replay { forced: run % 2 == 0 };
        let entry = Entry::Actions(Actions {
            run: RunId(run), by, at: UnixMillis(1), chunk: 0, order, reason, items: items.collect(),
        });
        prop_assert_eq!(Entry::read(Some(&entry.write())), Ok(entry));
    }

    #[test]
    fn garbage_never_panics(bytes in vec(any::<u8>(), 0..200), at in any::<usize>(), with in any::<u8>()) {
        let read = Entry::read(Some(&bytes));
        prop_assert!(read.is_err());
        // Also not one that is nearly an entry.
        let mut json = br#"{"v":1,"kind":"actions","run":"00000000000000ab","by":"ada","at":1,"do":"replay","items":[{"id":"a/0/1/c","seen":-1,"round":1}]}"#.to_vec();
        let place = at % json.len();
        json[place] = with;
        if let Err(error) = Entry::read(Some(&json)) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

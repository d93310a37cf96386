use super::*;

fn carriers(inboxes: &[Inbox; 2]) -> [Carrier<'_>; 2] {
    [0, 1].map(|who| Carrier { reader: &inboxes[who], course: None, published: BTreeSet::new() })
}

fn read_all(world: &mut World, who: usize) {
    let World { log, readers, .. } = world;
    readers[who].read_to(log, log.len());
}

/// A world in which all is ordered.
fn ordered(limits: RampLimits) -> (World, [Inbox; 2]) {
    let mut world = World::new(limits);
    (0..CHUNKS).for_each(|_| world.add_chunk());
    let inboxes = [world.readers[0].inbox.clone(), world.readers[1].inbox.clone()];
    (world, inboxes)
}

/// So often, the carrier reads everything and does its turn.
fn goes_on(world: &mut World, who: usize, carriers: &mut [Carrier<'_>; 2], turns: usize) {
    for _ in 0..turns {
        read_all(world, who);
        turn(world, who, &mut carriers[who], false);
    }
}

#[test]
fn a_second_carrier_that_sees_half_of_the_orders_waits_for_the_others() {
    let mut world = World::new(RampLimits::ALL_AT_ONCE);
    let inboxes = [world.readers[0].inbox.clone(), world.readers[1].inbox.clone()];
    let mut carriers = carriers(&inboxes);
    for chunk in 0..CHUNKS {
        for _ in 0..10 {
            read_all(&mut world, 1);
            assert_eq!(turn(&mut world, 1, &mut carriers[1], false), None);
        }
        assert_eq!(world.log.len(), 1 + chunk as usize, "it appends nothing before all orders are there");
        world.add_chunk();
    }
    comes_to_its_end(&mut world, &mut carriers);
    assert_eq!(world.published.len(), ITEMS);
}

#[test]
fn a_run_whose_author_died_while_ordering_is_closed_and_what_comes_later_does_not_count() {
    let mut world = World::new(RampLimits::ALL_AT_ONCE);
    let inboxes = [world.readers[0].inbox.clone(), world.readers[1].inbox.clone()];
    let mut carriers = carriers(&inboxes);
    world.add_chunk();
    read_all(&mut world, 0);
    turn(&mut world, 0, &mut carriers[0], false);
    world.now = world.now.after(SILENCE);
    turn(&mut world, 0, &mut carriers[0], false);
    world.add_chunk();
    comes_to_its_end(&mut world, &mut carriers);
    assert_eq!(world.published.len(), CHUNK);
    let run = world.observer.run().unwrap();
    assert_eq!((run.accepted, run.refused, run.passed), (CHUNK as u64, CHUNK as u64, CHUNK as u64));
    assert_eq!(world.observer.item(CHUNK).state, State::Open);
}

#[test]
fn of_two_carriers_the_one_who_climbed_publishes_and_the_other_only_when_nothing_comes_of_it() {
    let (mut world, inboxes) = ordered(RampLimits { first: 4, ..RampLimits::CANARY });
    let mut carriers = carriers(&inboxes);
    goes_on(&mut world, 0, &mut carriers, 6);
    goes_on(&mut world, 1, &mut carriers, 6);
    assert_eq!((world.published.len(), world.copies.len()), (4, 4), "each once");
    // The first one is gone, and so is what it published.
    (carriers[0].course, world.copies) = (None, Vec::new());
    world.now = world.now.after(GRACE);
    turn(&mut world, 1, &mut carriers[1], false);
    assert_eq!(world.copies.len(), 3, "the second one takes it over");
    world.works(0, Some(Answer::Resolved));
    goes_on(&mut world, 1, &mut carriers, 6);
    assert_eq!((world.published.len(), world.copies.len()), (4, 3), "and goes on, whatever comes of it");
}

#[test]
fn what_is_seen_behind_others_when_it_would_be_missed_is_waited_for() {
    let timeout = Duration::from_secs(60);
    let (mut world, inboxes) = ordered(RampLimits { timeout, ..RampLimits::CANARY });
    let mut carriers = carriers(&inboxes);
    goes_on(&mut world, 0, &mut carriers, 4);
    assert_eq!(world.published.len(), 1);
    let published_at = world.now;
    let after = |seconds| published_at.after(Duration::from_secs(seconds));
    let course = carriers[0].course.as_mut().unwrap();
    assert!(matches!(course.doubt(after(29), None).unwrap(), Doubt::None));
    assert!(matches!(course.doubt(after(31), None).unwrap(), Doubt::Soon));
    assert!(
        matches!(course.doubt(after(31), Some(after(10))).unwrap(), Doubt::Soon),
        "workers may have died since"
    );
    assert!(matches!(course.doubt(after(59), Some(after(31))).unwrap(), Doubt::None));
    let Doubt::Now(numbers, items) = course.doubt(after(60), Some(after(31))).unwrap() else {
        panic!("it is missed now");
    };
    assert_eq!((&numbers[..], &items[..]), (&[0][..], &[of(0)][..]));
    let seen = Seen { queued: vec![0], behind: Some("behind others".to_owned()), stuck: None };
    course.seen(&numbers, seen, after(60));
    let progress = course.progress();
    assert_eq!((progress.waiting, progress.waits_for.as_deref()), (1, Some("behind others")));
    world.now = after(119);
    turn(&mut world, 0, &mut carriers[0], false);
    read_all(&mut world, 0);
    assert_eq!(world.observer.run().unwrap().status, RunStatus::Running);
    world.now = after(120);
    let course = carriers[0].course.as_mut().unwrap();
    let stuck =
        Seen { stuck: Some("behind others, where nobody gets further".to_owned()), ..Seen::default() };
    course.seen(&[0], stuck, after(120));
    turn(&mut world, 0, &mut carriers[0], false);
    let course = carriers[0].course.as_mut().unwrap();
    assert!(matches!(course.doubt(after(120), None).unwrap(), Doubt::None), "it has decided");
    let run = world.observer.run().unwrap();
    assert_eq!(run.status, RunStatus::Stopped);
    let why = run.why.unwrap();
    assert!(why.ends_with("; not read yet, behind others, where nobody gets further"), "{why}");
}

#[test]
fn one_look_is_enough_for_all_that_would_be_missed_soon() {
    let timeout = Duration::from_secs(60);
    let (mut world, inboxes) = ordered(RampLimits { timeout, ..RampLimits::ALL_AT_ONCE });
    let mut carriers = carriers(&inboxes);
    let begun = world.now;
    for _ in 0..20 {
        read_all(&mut world, 0);
        turn(&mut world, 0, &mut carriers[0], false);
        // The rate is low: the last ones go seconds after the first.
        world.now = world.now.after(Duration::from_secs(1));
    }
    assert_eq!(world.published.len(), ITEMS);
    let missed_at = begun.after(timeout).after(Duration::from_secs(20));
    let course = carriers[0].course.as_mut().unwrap();
    let Doubt::Now(numbers, _) = course.doubt(missed_at, None).unwrap() else { panic!("some are missed") };
    assert_eq!(numbers.len(), ITEMS);
    let seen = Seen { queued: (0..ITEMS).collect(), ..Seen::default() };
    course.seen(&numbers, seen, missed_at);
    let a_moment_later = missed_at.after(Duration::from_millis(50));
    assert!(matches!(course.doubt(a_moment_later, Some(missed_at)).unwrap(), Doubt::None));
    assert_eq!(course.progress().waiting, ITEMS);
}

#[test]
fn an_item_that_somebody_else_reopens_holds_nothing_up_and_is_published_no_more() {
    let (mut world, inboxes) = ordered(RampLimits { first: 4, ..RampLimits::CANARY });
    let mut carriers = carriers(&inboxes);
    goes_on(&mut world, 0, &mut carriers, 12);
    assert_eq!(world.published.len(), 4, "the first step");
    // One that is published, and one that is not.
    world.order(OTHER, Order::Reopen, 0, &[1, 6]);
    // Nothing is ever heard of the first one.
    world.copies.retain(|(item, _)| *item != 1);
    while !world.copies.is_empty() {
        world.works(0, Some(Answer::Resolved));
    }
    goes_on(&mut world, 0, &mut carriers, 12);
    let published: Vec<usize> = world.published.iter().map(|(item, _)| *item).collect();
    assert_eq!(published, [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]);
    assert_eq!(world.observer.item(6).state, State::Open);
}

#[test]
fn a_carrier_whose_index_another_process_brings_up_gives_an_item_up_once() {
    let (mut world, inboxes) = ordered(RampLimits { first: 1, ..RampLimits::CANARY });
    let mut carriers = carriers(&inboxes);
    // It climbs, and then finds that it can't publish.
    for _ in 0..2 {
        read_all(&mut world, 0);
        turn(&mut world, 0, &mut carriers[0], true);
    }
    let appended = world.log.len();
    assert!(matches!(world.log.last(), Some(Entry::Actions(actions)) if actions.order == Order::Reopen));
    for _ in 0..5 {
        turn(&mut world, 0, &mut carriers[0], true);
    }
    assert_eq!(world.log.len(), appended, "it waits until the index has it");
    read_all(&mut world, 0);
    turn(&mut world, 0, &mut carriers[0], false);
    let last = world.log.last().cloned();
    assert!(
        matches!(last, Some(Entry::Run(RunEntry { step: RunStep::Climb { .. }, .. }))),
        "it goes on: {last:?}"
    );
}

#[test]
fn a_stop_lets_go_of_what_was_not_published_and_a_resumption_takes_only_that_back() {
    let (mut world, inboxes) = ordered(RampLimits { first: 2, ..RampLimits::CANARY });
    let mut carriers = carriers(&inboxes);
    goes_on(&mut world, 0, &mut carriers, 4);
    world.works(0, Some(Answer::FailedAgain));
    goes_on(&mut world, 0, &mut carriers, 3);
    assert_eq!(world.observer.run().unwrap().status, RunStatus::Stopped);
    let states: Vec<State> = (0..ITEMS).map(|item| world.observer.item(item).state).collect();
    assert_eq!((states[0], states[1]), (State::FailedAgain, State::Replaying), "these were published");
    assert!(states[2..].iter().all(|state| *state == State::Open), "{states:?}");
    world.order(OTHER, Order::Replay { forced: false }, 0, &[5]);
    world.order(OTHER, Order::Discard, 0, &[6]);
    world.step(RunStep::Resume);
    comes_to_its_end(&mut world, &mut carriers);
    let published: BTreeSet<usize> = world.published.iter().map(|(item, _)| *item).collect();
    assert!(!published.contains(&5) && !published.contains(&6), "{published:?}");
    assert_eq!(published.len(), ITEMS - 2);
    assert_eq!(world.observer.item(6).state, State::Discarded);
}

#[test]
fn a_run_into_a_parked_class_holds_for_whoever_carries_it_out_and_once_stopped_is_sent_again() {
    let limits = RampLimits { first: 4, timeout: Duration::from_secs(60), ..RampLimits::CANARY };
    let (mut world, inboxes) = ordered(limits);
    let mut carriers = carriers(&inboxes);
    let mut turns = |world: &mut World, who: usize, passes: u64| {
        world.now = world.now.after(Duration::from_secs(passes));
        for _ in 0..6 {
            read_all(world, who);
            turn(world, who, &mut carriers[who], false);
        }
        let status = world.observer.run().unwrap().status;
        (status, carriers[who].course.as_ref().map(|course| course.progress()))
    };
    assert_eq!(turns(&mut world, 0, 0).1.unwrap().outstanding, 4);
    world.parks(Duration::from_secs(120));
    let (status, progress) = turns(&mut world, 0, 170);
    let progress = progress.unwrap();
    assert_eq!((status, progress.waiting, world.copies.len()), (RunStatus::Running, 4, 4));
    let told = progress.waits_for.unwrap();
    assert!(told.starts_with("class charge is parked since 2025-"), "{told}");
    // It is said again; the first carrier is gone, and the other one holds by what the journal says.
    world.parks(Duration::from_secs(240));
    let (status, progress) = turns(&mut world, 1, 200);
    let other = progress.unwrap();
    assert_eq!((status, other.waiting, other.waits_for.is_some()), (RunStatus::Running, 4, true));
    assert_eq!(world.copies.len(), 4, "what is with a worker is not sent again");
    // Whoever has heard all of it stops a time-out after the last word was over.
    assert_eq!(turns(&mut world, 0, 0).0, RunStatus::Running);
    assert_eq!(turns(&mut world, 0, 99).0, RunStatus::Running);
    assert_eq!(turns(&mut world, 0, 1).0, RunStatus::Stopped);
    let why = world.observer.run().unwrap().why.unwrap();
    assert!(
        why.starts_with("4 outcomes of step 1 did not come in time, and what their workers said last"),
        "{why}"
    );
    // Nobody knows where they are, so whoever resumes it has them published again.
    world.copies.clear();
    world.step(RunStep::Resume);
    assert_eq!(turns(&mut world, 0, 0).1.unwrap().outstanding, 4);
    assert_eq!(world.copies.len(), 4);
    comes_to_its_end(&mut world, &mut carriers);
    assert_eq!(world.observer.run().unwrap().passed, ITEMS as u64);
}

#[test]
fn a_run_into_a_parked_class_goes_on_when_its_outcomes_come() {
    let (mut world, inboxes) = ordered(RampLimits { first: 4, ..RampLimits::CANARY });
    let mut carriers = carriers(&inboxes);
    for seconds in [600, 600, 600] {
        for _ in 0..6 {
            read_all(&mut world, 0);
            turn(&mut world, 0, &mut carriers[0], false);
        }
        world.parks(Duration::from_secs(seconds));
        world.now = world.now.after(Duration::from_secs(seconds));
    }
    assert_eq!((world.observer.run().unwrap().status, world.published.len()), (RunStatus::Running, 4));
    comes_to_its_end(&mut world, &mut carriers);
    let run = world.observer.run().unwrap();
    assert_eq!((world.published.len(), run.passed, run.why), (ITEMS, ITEMS as u64, None));
}

use super::*;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;
const START: i64 = 1_764_400_000_000;
const RETENTION: Retention = Retention(Duration::from_secs(24 * 3600));

/// A partition with an append a minute.
struct World {
    time: BrokerTime,
    here: Instant,
    /// What a right clock shows, since the start.
    passed: i64,
    /// When each mark was appended by a right clock, and what it is stored with.
    stored: Vec<(i64, UnixMillis)>,
}

impl World {
    fn new() -> Self {
        Self { time: BrokerTime::new(RETENTION), here: Instant::now(), passed: 0, stored: Vec::new() }
    }

    /// Time passes while somebody watches.
    fn pass(&mut self, millis: i64) {
        self.passed += millis;
        self.here += Duration::from_millis(millis.unsigned_abs());
    }

    /// An append while the broker's clock is wrong by so much. No mark may be forgotten before its time.
    fn append(&mut self, wrong_by: i64) {
        let now = self.time.advance(UnixMillis(START + self.passed + wrong_by), self.here);
        self.stored.push((self.passed, now));
        self.check();
    }

    fn check(&self) {
        for &(appended, at) in &self.stored {
            let age = self.passed - appended;
            assert!(
                age > DAY - DAY / 8 || !RETENTION.is_over(at, self.time.now()),
                "forgotten after {age} ms"
            );
        }
    }

    fn append_for(&mut self, millis: i64, wrong_by: i64) {
        for _minute in 0..millis / 60_000 {
            self.pass(60_000);
            self.append(wrong_by);
        }
    }

    /// How far the partition's time is behind a right clock.
    fn behind(&self) -> i64 {
        START + self.passed - self.time.now().0
    }

    fn remembered(&self) -> usize {
        self.stored.iter().filter(|(_, at)| !RETENTION.is_over(*at, self.time.now())).count()
    }

    /// The process starts again, after a while that nobody watched.
    fn restart(&mut self, down: i64) {
        self.passed += down;
        let left = self.time.now();
        self.time = BrokerTime::new(RETENTION);
        self.time.resume(left, self.here);
    }
}

#[test]
fn nothing_is_expired_before_any_append_was_seen() {
    let time = BrokerTime::new(Retention(Duration::from_secs(8)));
    let retention = time.retention;
    let here = Instant::now();
    assert!(!retention.is_over(UnixMillis(0), time.now()));
    assert_eq!(time.advance(UnixMillis(50_000), here), UnixMillis(50_000));
    assert_eq!(time.advance(UnixMillis(51_000), here), UnixMillis(51_000));
    assert_eq!(time.advance(UnixMillis(50_500), here), UnixMillis(51_000), "it never goes back");
    assert!(!retention.is_over(UnixMillis(43_000), time.now()));
    assert!(retention.is_over(UnixMillis(42_999), time.now()));
}

#[test]
fn marks_are_forgotten_on_time_while_clocks_are_right() {
    let mut world = World::new();
    world.append_for(3 * DAY, 0);
    assert_eq!((world.behind(), world.remembered()), (0, 24 * 60 + 1));
    // A quiet day that was watched, then a short restart.
    world.pass(DAY);
    world.append(0);
    assert_eq!(world.behind(), 0);
    world.restart(2 * HOUR);
    world.append(0);
    assert_eq!(world.behind(), 0);
}

#[test]
fn one_record_of_a_wild_time_moves_nothing() {
    for wild in [YEAR, 4 * HOUR, -YEAR, -4 * HOUR, -HOUR] {
        let mut world = World::new();
        world.append_for(DAY, 0);
        world.append(wild);
        assert_eq!(world.behind(), 0, "{wild}");
        world.append_for(2 * HOUR, 0);
        assert_eq!(world.behind(), 0, "{wild}");
    }
}

#[test]
fn a_clock_that_jumps_a_year_forgets_nothing_and_keeps_nothing_longer_however_long_it_stays_there() {
    for jump in [YEAR, -YEAR] {
        for length in [60_000, HOUR, 23 * HOUR, 3 * DAY] {
            let mut world = World::new();
            world.append_for(2 * DAY, 0);
            for wrong_by in [jump, 0] {
                world.append_for(length, wrong_by);
                assert_eq!((world.behind(), world.remembered()), (0, 24 * 60 + 1), "{jump}, {length}");
            }
        }
    }
}

/// Each process gives the wrong clock no more than the time that passes in it.
#[test]
fn restarts_in_a_jump_forget_nothing() {
    let mut world = World::new();
    world.append_for(DAY, 0);
    for _restart in 0..50 {
        world.restart(60_000);
        world.append_for(10 * 60_000, YEAR);
    }
    assert_eq!(world.behind(), 50 * 60_000, "the pauses");
    world.append_for(HOUR, 0);
    assert_eq!(world.behind(), 0);
}

/// An hour is no jump: it could be a pause. It costs an hour of the retention, and once.
#[test]
fn a_clock_that_is_wrong_by_an_hour_again_and_again_costs_an_hour() {
    let mut world = World::new();
    for _day in 0..20 {
        world.append_for(3 * HOUR, 0);
        world.append_for(3 * HOUR, HOUR);
        assert!(world.behind() >= -HOUR);
    }
}

#[test]
fn after_a_long_pause_that_nobody_watched_marks_are_remembered_longer_by_that_pause() {
    let mut world = World::new();
    world.append_for(DAY, 0);
    world.restart(5 * DAY);
    world.append_for(5 * DAY, 0);
    assert_eq!((world.behind(), world.remembered()), (5 * DAY, 24 * 60 + 1));
}

/// Restoring reads days in a second.
#[test]
fn history_that_is_read_faster_than_it_was_written_is_followed_past_a_wild_record() {
    let mut world = World::new();
    for minute in 0..3 * 24 * 60 {
        world.passed = minute * 60_000;
        world.append(if minute == 2_000 { YEAR } else { 0 });
    }
    assert_eq!((world.behind(), world.remembered()), (0, 24 * 60 + 1));
}

#[test]
fn the_compaction_filter_keeps_reserved_keys_and_what_it_cannot_read() {
    let retention = Retention(Duration::from_secs(1));
    let mut filter = ForgetBefore { retention, now: UnixMillis(10_000) };
    let mut check = |key: &[u8], value: &[u8], removed| {
        assert_eq!(matches!(filter.filter(6, key, value), CompactionDecision::Remove), removed);
    };
    let old = entry::encode_time(UnixMillis(8_999));
    check(&[7; 16], &old, true);
    check(&[7; 16], &entry::encode_time(UnixMillis(9_000)), false);
    check(entry::NEWEST_KEY, &old, false);
    check(&[7; 16], &old[1..], false);
    check(&[], &[], false);
}

use proptest::prelude::*;
use tidegate_domain::mark::{DoneAt, Phase, Step};
use tidegate_domain::{Hop, JobHash, PayloadHash, Round};

use super::*;

fn any_stored() -> impl Strategy<Value = Stored> {
    let done = prop::option::of(
        (0..5_u32, 0..5_u32).prop_map(|(round, hop)| DoneAt { round: Round(round), hop: Hop(hop) }),
    );
    let phase = prop::sample::select(vec![Phase::Scheduled, Phase::Tried, Phase::Started, Phase::Dead]);
    let step =
        prop::option::of((0..5_u32, 0..5_u32, phase, 0..3_u32, any::<[u32; 2]>(), any::<u32>()).prop_map(
            |(round, hop, phase, n, [job, payload], written_at)| Step {
                round: Round(round),
                hop: Hop(hop),
                phase,
                n,
                job: JobHash(job),
                payload: PayloadHash(payload),
                written_at: UnixMillis(i64::from(written_at)),
            },
        ));
    (done, step, 0..LAST_TIME)
        .prop_map(|(done, step, at)| Stored { mark: Mark { done, step }, at: UnixMillis(at) })
}

fn encoded(stored: &Stored) -> Vec<u8> {
    let mut out = Vec::new();
    stored.encode(&mut out);
    out
}

fn join(values: &[Vec<u8>]) -> Vec<u8> {
    join_all(values.iter().map(Vec::as_slice)).unwrap()
}

proptest! {
    #[test]
    fn what_is_stored_is_read_back(stored in any_stored()) {
        let bytes = encoded(&stored);
        prop_assert_eq!(Stored::decode(&bytes), Ok(stored));
        prop_assert_eq!(append_time(&bytes), Some(stored.at));
    }

    #[test]
    fn joined_in_any_order_and_grouping_the_result_is_one(
        stored in prop::collection::vec(any_stored(), 1..8),
        split in 0..8_usize,
    ) {
        let values: Vec<_> = stored.iter().map(encoded).collect();
        let all = join(&values);
        let mut reversed = values.clone();
        reversed.reverse();
        prop_assert_eq!(&join(&reversed), &all);
        let (left, right) = values.split_at(split.clamp(1, values.len()));
        let mut grouped = vec![join(left)];
        grouped.extend_from_slice(right);
        grouped.push(values[0].clone());
        prop_assert_eq!(&join(&grouped), &all, "repeated ones change nothing");
        let expected = stored.iter().copied().reduce(Stored::join).unwrap();
        prop_assert_eq!(Stored::decode(&all), Ok(expected));
    }

    #[test]
    fn an_unreadable_operand_costs_no_readable_one(
        stored in prop::collection::vec(any_stored(), 0..4),
        broken in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), 0..4_usize), 1..4),
    ) {
        let mut values: Vec<_> = stored.iter().map(encoded).collect();
        for (bytes, place) in &broken {
            if Stored::decode(bytes).is_err() {
                values.insert((*place).min(values.len()), bytes.clone());
            }
        }
        prop_assume!(!values.is_empty());
        let joined = Stored::decode(&join(&values)).ok();
        prop_assert_eq!(joined, stored.iter().copied().reduce(Stored::join));
    }
}

#[test]
fn times_outside_the_range_are_stored_as_the_nearest_inside() {
    let check = |at, stored| {
        assert_eq!(decode_time(&encode_time(UnixMillis(at))), Some(UnixMillis(stored)));
    };
    check(-1, 0);
    check(0, 0);
    check(1_764_400_000_000, 1_764_400_000_000);
    check(i64::MAX, LAST_TIME);
    assert_eq!(decode_time(&[1; 5]), None);
}

/// Stored by this version; a later one must read it.
#[test]
fn the_stored_form_is_pinned() {
    let step = Step {
        round: Round(1),
        hop: Hop(2),
        phase: Phase::Dead,
        n: 3,
        job: JobHash(0x0102_0304),
        payload: PayloadHash(0x0506_0708),
        written_at: UnixMillis(300),
    };
    let bytes = encoded(&Stored { mark: Mark::done(step), at: UnixMillis(0x0a0b_0c0d_0e0f) });
    let expected = [3, 1, 2, 1, 2, 3, 3, 1, 2, 3, 4, 5, 6, 7, 8, 0xac, 2, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f];
    assert_eq!(bytes, expected);
    assert_eq!(encode_position(CommitPosition(258)), [0, 0, 0, 0, 0, 0, 1, 2]);
}

#[test]
fn the_last_record_of_a_copy_is_read_back_and_one_that_is_cut_off_is_unreadable() {
    for last in [None, Some(LastRecord { offset: Offset(7), fingerprint: u64::MAX })] {
        assert_eq!(decode_last(&encode_last(last)), Some(last));
    }
    for length in [1, 8, 15, 17] {
        assert_eq!(decode_last(&vec![0; length]), None, "{length} bytes");
    }
}

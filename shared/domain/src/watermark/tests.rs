use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// All that a watermark must know, without any thought of cost.
#[derive(Default)]
struct Naive {
    delivered: Vec<i64>,
    settled: std::collections::BTreeSet<i64>,
}

impl Naive {
    fn deliver(&mut self, offset: i64) -> bool {
        let in_order = self.delivered.last().is_none_or(|&last| offset > last);
        if in_order {
            self.delivered.push(offset);
        }
        in_order
    }

    fn settle(&mut self, offset: i64) -> bool {
        self.delivered.contains(&offset) && self.settled.insert(offset)
    }

    fn position(&self) -> Option<i64> {
        let unsettled = self.delivered.iter().find(|offset| !self.settled.contains(offset));
        unsettled.copied().or(self.delivered.last().map(|last| last + 1))
    }
}

#[derive(Clone, Debug)]
enum Call {
    Deliver { gap: i64 },
    SettleDelivered(prop::sample::Index),
    SettleAny(i64),
    DeliverAgain(prop::sample::Index),
    Revoke,
}

fn calls() -> impl Strategy<Value = Call> {
    prop_oneof![
        8 => prop_oneof![3 => Just(0_i64), 2 => 1..5_i64, 1 => 0..1_i64 << 40].prop_map(|gap| Call::Deliver { gap }),
        10 => any::<prop::sample::Index>().prop_map(Call::SettleDelivered),
        2 => (-2..60_i64).prop_map(Call::SettleAny),
        1 => any::<prop::sample::Index>().prop_map(Call::DeliverAgain),
        1 => Just(Call::Revoke),
    ]
}

fn check(
    watermark: &mut PartitionWatermark,
    naive: &mut Naive,
    call: &Call,
    first: i64,
) -> Result<(), TestCaseError> {
    match call {
        Call::Deliver { gap } => {
            let offset = naive.delivered.last().map_or(first, |last| last + 1) + gap;
            prop_assert_eq!(watermark.deliver(Offset(offset)), Ok(()));
            prop_assert!(naive.deliver(offset));
        }
        Call::DeliverAgain(index) if !naive.delivered.is_empty() => {
            let (offset, last) =
                (Offset(*index.get(&naive.delivered)), Offset(*naive.delivered.last().unwrap()));
            prop_assert_eq!(watermark.deliver(offset), Err(WatermarkError::OutOfOrder { offset, last }));
            prop_assert!(!naive.deliver(offset.0));
        }
        Call::SettleDelivered(index) if !naive.delivered.is_empty() => {
            let offset = *index.get(&naive.delivered);
            let expected =
                if naive.settle(offset) { Ok(()) } else { Err(WatermarkError::SettledTwice(Offset(offset))) };
            prop_assert_eq!(watermark.settle(Offset(offset)), expected);
        }
        Call::SettleAny(offset) => {
            prop_assert_eq!(watermark.settle(Offset(*offset)).is_ok(), naive.settle(*offset))
        }
        Call::Revoke => (*watermark, *naive) = Default::default(),
        Call::DeliverAgain(_) | Call::SettleDelivered(_) => {}
    }
    Ok(())
}

proptest! {
    #[test]
    fn whatever_is_called_in_whatever_order_the_position_is_that_of_the_naive_model(
        first in 0..40_i64,
        schedule in vec(calls(), 1..120),
    ) {
        let (mut watermark, mut naive) = (PartitionWatermark::default(), Naive::default());
        let mut before = None;
        for call in &schedule {
            check(&mut watermark, &mut naive, call, first)?;
            let position = watermark.commit_position().map(|position| position.0);
            prop_assert_eq!(position, naive.position());
            prop_assert!(naive.delivered.iter().all(|o| naive.settled.contains(o) || position.unwrap() <= *o));
            before = before.filter(|_| !matches!(call, Call::Revoke));
            prop_assert!(position >= before, "the position moved back");
            before = position;
            prop_assert_eq!(watermark.unsettled(), naive.delivered.len() - naive.settled.len());
            prop_assert!(watermark.held() >= watermark.unsettled());
            prop_assert_eq!(watermark.last_delivered().map(|offset| offset.0), naive.delivered.last().copied());
        }
    }
}

fn delivered(offsets: &[i64]) -> PartitionWatermark {
    let mut watermark = PartitionWatermark::default();
    for &offset in offsets {
        watermark.deliver(Offset(offset)).unwrap();
    }
    watermark
}

#[test]
fn before_the_first_delivery_there_is_nothing_to_commit() {
    assert_eq!(PartitionWatermark::default().commit_position(), None);
}

#[test]
fn the_offset_that_is_settled_first_does_not_become_the_base() {
    let mut watermark = delivered(&[100, 101, 102]);
    watermark.settle(Offset(102)).unwrap();
    watermark.settle(Offset(101)).unwrap();
    assert_eq!(watermark.commit_position(), Some(CommitPosition(100)));
    assert_eq!((watermark.unsettled(), watermark.held()), (1, 3));
    watermark.settle(Offset(100)).unwrap();
    assert_eq!(watermark.commit_position(), Some(CommitPosition(103)));
    assert_eq!((watermark.unsettled(), watermark.held()), (0, 0));
}

#[test]
fn a_gap_of_a_million_million_offsets_costs_nothing() {
    let far = 1 << 40;
    let mut watermark = delivered(&[0, far, far + 1, 2 * far]);
    assert_eq!(watermark.held(), 4);
    assert!(watermark.window.capacity() < 64);
    watermark.settle(Offset(0)).unwrap();
    assert_eq!(watermark.commit_position(), Some(CommitPosition(far)));
    watermark.settle(Offset(2 * far)).unwrap();
    watermark.settle(Offset(far)).unwrap();
    watermark.settle(Offset(far + 1)).unwrap();
    assert_eq!(watermark.commit_position(), Some(CommitPosition(2 * far + 1)));
}

#[test]
fn a_result_of_an_older_assignment_is_told_from_one_that_comes_twice() {
    let mut watermark = delivered(&[50, 52, 53]);
    assert_eq!(watermark.settle(Offset(7)), Err(WatermarkError::NotDelivered(Offset(7))));
    assert_eq!(watermark.settle(Offset(51)), Err(WatermarkError::NotDelivered(Offset(51))));
    assert_eq!(watermark.settle(Offset(54)), Err(WatermarkError::NotDelivered(Offset(54))));
    watermark.settle(Offset(50)).unwrap();
    assert_eq!(watermark.settle(Offset(50)), Err(WatermarkError::SettledTwice(Offset(50))));
    watermark.settle(Offset(53)).unwrap();
    assert_eq!(watermark.settle(Offset(53)), Err(WatermarkError::SettledTwice(Offset(53))));
    watermark.settle(Offset(52)).unwrap();
    assert_eq!(watermark.settle(Offset(49)), Err(WatermarkError::NotDelivered(Offset(49))));
    assert_eq!(watermark.settle(Offset(99)), Err(WatermarkError::NotDelivered(Offset(99))));
    assert_eq!(watermark.commit_position(), Some(CommitPosition(54)));
}

#[test]
fn the_last_offset_there_is_does_not_overflow() {
    let mut watermark = delivered(&[i64::MIN, i64::MAX]);
    watermark.settle(Offset(i64::MAX)).unwrap();
    assert_eq!(watermark.settle(Offset(0)), Err(WatermarkError::NotDelivered(Offset(0))));
    watermark.settle(Offset(i64::MIN)).unwrap();
    assert_eq!(watermark.commit_position(), Some(CommitPosition(i64::MAX)));
}

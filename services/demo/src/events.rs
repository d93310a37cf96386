//! What is published, in order: events of all classes in turn, every tenth of a class twice, and now and then bytes that are no
//! event.

use crate::classes::{CLASSES, DemoClass};

/// One record to publish.
#[derive(Debug, Clone, Copy)]
pub struct Planned {
    /// Its class.
    pub class: &'static DemoClass,
    /// What it holds.
    pub content: Content,
}

/// What a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The class's event of this number.
    Event(u64),
    /// Bytes that are no Avro.
    Garbage,
}

/// The records that so many different events make: repeats and garbage come on top.
pub fn planned(events: u64) -> impl Iterator<Item = Planned> {
    (0..events).flat_map(|index| {
        let (class, number) = class_of(index);
        let event = Planned { class, content: Content::Event(number) };
        let repeats = if number % 10 == 0 { 2 } else { 1 };
        let garbage = (number % 100 == 50).then_some(Planned { class, content: Content::Garbage });
        std::iter::repeat_n(event, repeats).chain(garbage)
    })
}

/// The class of the event at this place, and its number within the class.
fn class_of(index: u64) -> (&'static DemoClass, u64) {
    static ALL: &[DemoClass] = &CLASSES;
    let round: u64 = ALL.iter().map(|class| class.share).sum();
    let mut place = index % round;
    for class in ALL {
        if place < class.share {
            return (class, index / round * class.share + place);
        }
        place -= class.share;
    }
    unreachable!("the place is less than the sum of the shares")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_class_gets_its_share_each_event_once_and_every_tenth_twice() {
        let records: Vec<Planned> = planned(700).collect();
        for class in &CLASSES {
            let of_class: Vec<Content> =
                records.iter().filter(|r| r.class.name == class.name).map(|r| r.content).collect();
            let numbers: Vec<u64> = of_class
                .iter()
                .filter_map(|content| match content {
                    Content::Event(number) => Some(*number),
                    Content::Garbage => None,
                })
                .collect();
            let count = 100 * class.share;
            assert_eq!(numbers.iter().copied().collect::<BTreeSet<_>>(), (0..count).collect());
            assert_eq!(numbers.len() as u64, count + count / 10, "{}", class.name);
            assert_eq!((of_class.len() - numbers.len()) as u64, class.share);
        }
    }
}

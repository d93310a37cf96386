//! What is in hand, by a key that is never used twice: an answer that comes after its asker left finds nothing.

use std::ops::{Index, IndexMut};

use slab::Slab;

use crate::ports::Ticket;

/// Names one item of a [`Keyed`], for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

/// Places are used again; the serial number above the place is not.
const PLACE_BITS: u32 = 24;
const NO_PLACE: u64 = (1 << PLACE_BITS) - 1;

impl Key {
    fn place(self) -> usize {
        (self.0 & NO_PLACE) as usize
    }

    /// The ticket of what is done for this item.
    pub fn ticket(self) -> Ticket {
        Ticket(self.0)
    }

    /// The item that a ticket was made for.
    pub fn of(Ticket(ticket): Ticket) -> Self {
        Self(ticket)
    }
}

/// A slab whose keys are never used twice.
#[derive(Debug)]
pub struct Keyed<T> {
    items: Slab<(Key, T)>,
    serial: u64,
}

impl<T> Default for Keyed<T> {
    fn default() -> Self {
        Self { items: Slab::new(), serial: 0 }
    }
}

impl<T> Keyed<T> {
    /// Adds an item.
    pub fn insert(&mut self, item: T) -> Key {
        self.serial += 1;
        let entry = self.items.vacant_entry();
        let key = Key((self.serial << PLACE_BITS) | entry.key() as u64);
        entry.insert((key, item));
        key
    }

    /// A ticket that belongs to no item.
    pub fn free_ticket(&mut self) -> Ticket {
        self.serial += 1;
        Ticket((self.serial << PLACE_BITS) | NO_PLACE)
    }

    /// The item, if it is still here.
    pub fn get(&self, key: Key) -> Option<&T> {
        self.items.get(key.place()).filter(|(k, _)| *k == key).map(|(_, item)| item)
    }

    /// The item, if it is still here.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.items.get_mut(key.place()).filter(|(k, _)| *k == key).map(|(_, item)| item)
    }

    /// Takes the item out, if it is still here.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        Some(self.items.remove(key.place()).1)
    }

    /// Keeps the items that `stays` says yes to.
    pub fn retain(&mut self, mut stays: impl FnMut(&T) -> bool) {
        self.items.retain(|_, (_, item)| stays(item));
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.items.iter().map(|(_, (key, item))| (*key, item))
    }

    /// How many items are in hand.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl<T> Index<Key> for Keyed<T> {
    type Output = T;

    /// For keys that the caller got in the same turn: nothing can have removed them.
    fn index(&self, key: Key) -> &T {
        &self.items[key.place()].1
    }
}

impl<T> IndexMut<Key> for Keyed<T> {
    fn index_mut(&mut self, key: Key) -> &mut T {
        &mut self.items[key.place()].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_never_finds_a_new_item() {
        let mut keyed = Keyed::default();
        let a = keyed.insert('a');
        assert_eq!(keyed.remove(a), Some('a'));
        let b = keyed.insert('b');
        assert_eq!((a.place(), keyed.get(a), keyed.get(b)), (b.place(), None, Some(&'b')));
        assert_eq!(keyed.get(Key::of(keyed.serial_ticket())), None);
    }

    impl<T> Keyed<T> {
        fn serial_ticket(&self) -> Ticket {
            Ticket((self.serial << PLACE_BITS) | NO_PLACE)
        }
    }
}

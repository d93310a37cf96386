//! Who has a partition open, as its changelog tells it: that is how a new owner knows that the one before it died.

/// Names a process for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenerId(pub [u8; 16]);

/// The last one that opened a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opener {
    /// Which process.
    pub id: OpenerId,
    /// How many records it may have in hand at most.
    pub window: u32,
    /// It let go of the partition in order, or alive.
    pub closed: bool,
    /// How many records the ones before it had in hand when they died; 0: the one before it let go.
    pub suspects: u32,
}

impl Opener {
    /// What is known after `id` opened the partition, which `before` had opened last.
    #[must_use]
    pub fn opened(before: Option<Self>, id: OpenerId, window: u32) -> Self {
        let suspects = match before {
            // The same process, alive: what it knew of the one before it still holds.
            Some(before) if before.id == id => before.suspects,
            Some(before) if !before.closed => before.window.max(before.suspects),
            _ => 0,
        };
        Self { id, window, closed: false, suspects }
    }

    /// What is known after `id` let go. One that was followed by another already changes nothing.
    #[must_use]
    pub fn closed(before: Option<Self>, id: OpenerId) -> Option<Self> {
        before
            .map(|before| if before.id == id { Self { closed: true, suspects: 0, ..before } } else { before })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: OpenerId = OpenerId([1; 16]);
    const B: OpenerId = OpenerId([2; 16]);
    const C: OpenerId = OpenerId([3; 16]);

    #[test]
    fn the_first_one_and_one_after_a_clean_close_suspect_nothing() {
        let a = Opener::opened(None, A, 100);
        assert_eq!(a.suspects, 0);
        let closed = Opener::closed(Some(a), A);
        assert_eq!(Opener::opened(closed, B, 50).suspects, 0);
        assert_eq!(Opener::opened(closed, A, 50).suspects, 0, "away and back");
    }

    #[test]
    fn one_after_a_death_suspects_the_window_of_the_dead() {
        let a = Opener::opened(None, A, 100);
        let b = Opener::opened(Some(a), B, 50);
        assert_eq!(b.suspects, 100);
        // Dead before it came to the rest of them.
        assert_eq!(Opener::opened(Some(b), C, 10).suspects, 100);
        let closed = Opener::closed(Some(b), B);
        assert_eq!(Opener::opened(closed, C, 10).suspects, 0);
    }

    #[test]
    fn a_process_that_opens_twice_is_no_death_and_forgets_none() {
        let a = Opener::opened(None, A, 100);
        assert_eq!(Opener::opened(Some(a), A, 100).suspects, 0);
        let b = Opener::opened(Some(a), B, 50);
        assert_eq!(Opener::opened(Some(b), B, 50).suspects, 100, "the answer to its first was lost");
    }

    #[test]
    fn a_late_close_of_a_deposed_owner_changes_nothing() {
        let b = Opener::opened(Some(Opener::opened(None, A, 100)), B, 50);
        assert_eq!(Opener::closed(Some(b), A), Some(b));
        assert_eq!(Opener::closed(None, A), None);
    }
}

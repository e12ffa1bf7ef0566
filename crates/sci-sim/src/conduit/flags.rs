//! The flags of a receiver: a ready flag (MRF) per slot, and one exist flag (MEF) that says "look at them".
//!
//! A sender stores its data, then the ready flag, then the exist flag. The receiver looks at the exist flag alone;
//! when it is set, it clears it *first* and then looks for ready flags. Whatever becomes ready during or after the
//! search sets the exist flag again; were it cleared afterwards, that would be lost.
//!
//! The search is generic over how flags are accessed, so that the very code that runs can be checked with loom.

/// The flags of a rank, as its own processor accesses them.
pub(super) trait OwnFlags {
    /// Clears the exist flag, in one step with looking at it; what was stored before it is seen by what follows.
    fn clear_exist(&self);

    /// Eight ready flags at once, from the one of that number on: where to look, not yet what is there.
    fn glance(&self, word: usize) -> u64;

    /// A ready flag; what was stored before it is seen by what follows.
    fn ready(&self, at: usize) -> u8;

    /// The same, and clears it.
    fn take_ready(&self, at: usize) -> u8;
}

/// When a search clears the exist flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clear {
    /// Before it looks for ready flags.
    First,
    /// Afterwards: wrong, and here to show it.
    After,
}

/// Looks for ready flags in so many words of eight, and tells each that is new, by its place and value. `seen` has
/// the values that were told before, a word of them for each word of flags; without any (an empty slice) flags are
/// cleared when they are told.
///
/// Clearing is for flags without numbers: their senders store the next one only after the message has been
/// answered. Flags with numbers differ from the one before, and are never cleared.
#[inline]
pub(super) fn search<F: OwnFlags>(
    flags: &F,
    words: usize,
    seen: &mut [u64],
    clear: Clear,
    mut tell: impl FnMut(usize, u8),
) {
    if clear == Clear::First {
        flags.clear_exist();
    }
    for word in 0..words {
        let mut fresh = flags.glance(word) ^ seen.get(word).copied().unwrap_or(0);
        while fresh != 0 {
            let byte = fresh.trailing_zeros() / 8;
            let (at, mask) = (8 * word + byte as usize, 0xff << (8 * byte));
            fresh &= !mask;
            let value = match seen.get_mut(word) {
                Some(seen) => {
                    let value = flags.ready(at);
                    *seen = *seen & !mask | u64::from(value) << (8 * byte);
                    value
                }
                None => flags.take_ready(at),
            };
            tell(at, value);
        }
    }
    if clear == Clear::After {
        flags.clear_exist();
    }
}

#[cfg(all(test, not(am_loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Model {
        ready: [Cell<u8>; 16],
        exist: Cell<bool>,
    }

    impl OwnFlags for Model {
        fn clear_exist(&self) {
            self.exist.set(false);
        }

        fn glance(&self, word: usize) -> u64 {
            u64::from_le_bytes(std::array::from_fn(|byte| self.ready[8 * word + byte].get()))
        }

        fn ready(&self, at: usize) -> u8 {
            self.ready[at].get()
        }

        fn take_ready(&self, at: usize) -> u8 {
            self.ready[at].take()
        }
    }

    impl Model {
        fn new(ready: &[(usize, u8)]) -> Self {
            let model = Self { ready: Default::default(), exist: Cell::new(true) };
            ready.iter().for_each(|(at, value)| model.ready[*at].set(*value));
            model
        }

        fn told(&self, seen: &mut [u64]) -> Vec<(usize, u8)> {
            let mut told = Vec::new();
            search(self, 2, seen, Clear::First, |at, value| told.push((at, value)));
            assert!(!self.exist.get());
            told
        }
    }

    #[test]
    fn flags_are_told_once_by_place_and_value() {
        let model = Model::new(&[(1, 10), (8, 11), (15, 13)]);
        assert_eq!(model.told(&mut []), [(1, 10), (8, 11), (15, 13)]);
        assert_eq!(model.told(&mut []), []);
    }

    #[test]
    fn numbered_flags_are_told_when_they_change() {
        let (model, mut seen) = (Model::new(&[(1, 0x1a)]), [0; 2]);
        assert_eq!(model.told(&mut seen), [(1, 0x1a)]);
        assert_eq!(model.told(&mut seen), []);
        model.ready[0].set(0x1b);
        model.ready[1].set(0x2a);
        assert_eq!(model.told(&mut seen), [(0, 0x1b), (1, 0x2a)]);
    }
}

//! Message location status: which of a rank's slots at its peers are taken.
//!
//! One flag per peer and request slot, at the sender. It is set when a request is sent and cleared only when the
//! reply has come (or the control flag that stands for none), so that the slot, and the reply slot that belongs to
//! it, are free by then: the sender is the only one who writes there, and needs to ask nobody.

/// The most request slots of a pair.
pub(super) const MOST_SLOTS: u32 = 32;

/// The table of a rank.
#[derive(Debug)]
pub(super) struct Locations {
    /// A bit per request slot, set while it is taken.
    taken: Vec<u32>,
    /// Request slots of a pair.
    slots: u32,
    /// Taken slots over all peers.
    outstanding: u32,
}

/// A peer answered a request that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotTaken;

impl Locations {
    pub(super) fn new(peers: u32, slots: u32) -> Self {
        assert!((1..=MOST_SLOTS).contains(&slots), "the configuration has checked the number of slots");
        Self { taken: vec![0; peers as usize], slots, outstanding: 0 }
    }

    /// Takes the lowest free request slot at a peer.
    #[inline]
    pub(super) fn take(&mut self, peer: u32) -> Option<u32> {
        let taken = &mut self.taken[peer as usize];
        let slot = taken.trailing_ones();
        if slot >= self.slots {
            return None;
        }
        *taken |= 1 << slot;
        self.outstanding += 1;
        Some(slot)
    }

    /// Frees a slot.
    ///
    /// # Errors
    /// [`NotTaken`] if it is free already.
    #[inline]
    pub(super) fn free(&mut self, peer: u32, slot: u32) -> Result<(), NotTaken> {
        if slot >= self.slots || self.taken[peer as usize] & 1 << slot == 0 {
            return Err(NotTaken);
        }
        self.taken[peer as usize] &= !(1 << slot);
        self.outstanding -= 1;
        Ok(())
    }

    /// Whether a slot is taken.
    #[inline]
    pub(super) fn is_taken(&self, peer: u32, slot: u32) -> bool {
        slot < self.slots && self.taken[peer as usize] & 1 << slot != 0
    }

    /// Free slots at a peer.
    pub(super) fn available(&self, peer: u32) -> u32 {
        self.slots - self.taken[peer as usize].count_ones()
    }

    /// Peers that a request is outstanding at, in order.
    pub(super) fn busy(&self) -> impl Iterator<Item = u32> + '_ {
        let taken = self.taken.iter().enumerate().filter(|(_, taken)| **taken != 0);
        taken.take(self.outstanding as usize).map(|(peer, _)| peer as u32)
    }

    /// Taken slots over all peers.
    #[cfg(test)]
    fn outstanding(&self) -> u32 {
        self.outstanding
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pair_has_two_requests_outstanding_at_most() {
        let mut table = Locations::new(3, 2);
        assert_eq!([table.take(1), table.take(1), table.take(1)], [Some(0), Some(1), None]);
        assert_eq!((table.take(2), table.available(1), table.available(2)), (Some(0), 0, 1));
        assert_eq!(table.busy().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(table.free(1, 0), Ok(()));
        assert_eq!((table.free(1, 0), table.free(1, 2)), (Err(NotTaken), Err(NotTaken)));
        assert_eq!((table.take(1), table.outstanding()), (Some(0), 3));
    }

    proptest! {
        #[test]
        fn slots_are_taken_once(
            slots in 1..=MOST_SLOTS, steps in prop::collection::vec((any::<bool>(), 0..MOST_SLOTS), 0..200)
        ) {
            let (mut table, mut model) = (Locations::new(1, slots), std::collections::BTreeSet::new());
            for (take, slot) in steps {
                if take {
                    let taken = table.take(0);
                    prop_assert_eq!(taken.is_some(), model.len() < slots as usize);
                    prop_assert!(taken.is_none_or(|slot| slot < slots && model.insert(slot)));
                } else {
                    prop_assert_eq!(table.free(0, slot).is_ok(), model.remove(&slot));
                }
                prop_assert_eq!(table.outstanding() as usize, model.len());
            }
        }
    }
}

//! Which slots that take several messages are the program's again: a provider says that it is done with one, and
//! some say so while messages that lie before the last are still under way.

/// What is known of a slot since it was last offered.
#[derive(Clone, Copy, Debug, Default)]
struct Fill {
    /// Bytes of messages that have come, and where the last of them ends.
    filled: usize,
    end: usize,
    /// The provider puts no further message there.
    released: bool,
    /// A message has failed, and nothing has come since; a message has failed at all.
    doubtful: bool,
    failed: bool,
}

/// Slots that take several messages.
#[derive(Debug)]
pub(super) struct Fills {
    slots: Vec<Fill>,
    /// Messages lie one behind the other, without gaps.
    packed: bool,
}

/// Whether a provider puts messages of a slot one behind the other. Of those that leave gaps, none is known that
/// says it is done with a slot while messages are under way into it.
pub(super) fn packs(provider: &str) -> bool {
    provider.split(';').any(|part| matches!(part, "ofi_rxm" | "ofi_rxd" | "tcp" | "net"))
}

impl Fills {
    pub(super) fn new(slots: u32, packed: bool) -> Self {
        Self { slots: vec![Fill::default(); slots as usize], packed }
    }

    /// The slot is on offer anew.
    pub(super) fn offer(&mut self, slot: u32) {
        self.slots[slot as usize] = Fill::default();
    }

    /// A message has come.
    pub(super) fn arrive(&mut self, slot: u32, at: usize, len: usize) {
        let fill = &mut self.slots[slot as usize];
        fill.filled += len;
        fill.end = fill.end.max(at + len);
        fill.doubtful = false;
    }

    /// The provider says that it is done with the slot.
    pub(super) fn release(&mut self, slot: u32) {
        self.slots[slot as usize].released = true;
    }

    /// Whether nothing is written to the slot any more. Where messages lie without gaps, those that are under way
    /// show as bytes that have not come, unless one has failed: nobody says how long that was.
    pub(super) fn is_over(&self, slot: u32) -> bool {
        let Fill { filled, end, released, failed, .. } = self.slots[slot as usize];
        released && (!self.packed || failed || filled >= end)
    }

    /// A message has failed. Slots are filled in turn, so once all have failed and nothing has come since, none
    /// goes on: whether one does.
    pub(super) fn fail(&mut self, slot: u32) -> bool {
        let fill = &mut self.slots[slot as usize];
        (fill.doubtful, fill.failed) = (true, true);
        self.slots.iter().any(|fill| !fill.doubtful)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_over_when_all_before_its_end_has_come() {
        let mut fills = Fills::new(2, true);
        fills.arrive(1, 0, 10);
        assert!(!fills.is_over(1));
        fills.arrive(1, 30, 5);
        fills.release(1);
        assert!(!fills.is_over(1), "20 bytes are under way");
        fills.arrive(1, 10, 20);
        assert!(fills.is_over(1) && !fills.is_over(0));
        fills.offer(1);
        assert!(!fills.is_over(1));
        // Released apart, before anything has come.
        fills.release(1);
        assert!(fills.is_over(1));
    }

    #[test]
    fn gaps_and_failures_are_no_messages() {
        let mut fills = Fills::new(1, false);
        fills.arrive(0, 64, 10);
        fills.release(0);
        assert!(fills.is_over(0));
        let mut fills = Fills::new(2, true);
        fills.arrive(0, 64, 10);
        fills.release(0);
        assert!(fills.fail(0) && fills.is_over(0));
        assert!(!fills.fail(1));
        fills.arrive(0, 80, 1);
        assert!(fills.fail(1));
    }

    #[test]
    fn providers_that_pack() {
        for (provider, expected) in
            [("tcp;ofi_rxm", true), ("verbs;ofi_rxm", true), ("udp;ofi_rxd", true), ("tcp", true), ("opx", false)]
        {
            assert_eq!(packs(provider), expected, "{provider}");
        }
    }
}

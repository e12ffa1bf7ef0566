//! When credits that no frame takes along travel by themselves.

/// Polls after which credits are sent even though nobody seems to need them.
const POLLS: u32 = 16;

/// The peers that credits are owed to. Whether a peer is listed already is noted in what the conduit keeps of it,
/// so that nothing is searched.
#[derive(Clone, Debug, Default)]
pub struct CreditFlush {
    /// Peers that credits are owed to, each once, the last first.
    pub due: Vec<u32>,
    /// Those of them that may be waiting for their credits. May name a peer more than once.
    pub urgent: Vec<u32>,
    polls: u32,
}

impl CreditFlush {
    /// Lists a peer, unless it is `listed`. Allocates where the list was never as long before.
    pub fn list(&mut self, peer: u32, listed: &mut bool) {
        if !std::mem::replace(listed, true) {
            self.due.push(peer);
        }
    }

    /// Counts a poll; whether everything is to be sent now.
    pub fn count_poll(&mut self) -> bool {
        if self.due.is_empty() {
            return false;
        }
        self.polls += 1;
        self.polls >= POLLS
    }

    /// Lets the next poll send everything.
    pub fn hasten(&mut self) {
        self.polls = POLLS;
    }

    /// Everything was sent: polls count anew.
    pub fn was_sent(&mut self) {
        self.polls = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_wait_for_sixteen_polls_unless_somebody_hurries() {
        let (mut credit, mut listed) = (CreditFlush::default(), false);
        assert!((0..100).all(|_| !credit.count_poll()), "nothing is owed");
        credit.list(3, &mut listed);
        credit.list(3, &mut listed);
        assert_eq!((credit.due.as_slice(), listed), ([3].as_slice(), true));
        assert_eq!((0..16).position(|_| credit.count_poll()), Some(15));
        credit.was_sent();
        assert!(!credit.count_poll());
        credit.hasten();
        assert!(credit.count_poll());
    }
}

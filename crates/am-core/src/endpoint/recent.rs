//! Which handlers the latest requests went to, and where: all that a stall report needs to be recorded per
//! message.

use crate::address::Peer;
use crate::transport::{ReplyBound, RequestHeader};

const KEPT: usize = 64;

/// The latest requests that permit a reply.
#[derive(Debug)]
pub(super) struct Recent {
    /// Peer and handler of each.
    latest: [(u32, u8); KEPT],
    /// How many there have been.
    count: u64,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self { latest: [(0, 0); KEPT], count: 0 }
    }

    /// Records a request that is about to be sent, if it permits a reply.
    #[inline]
    pub(super) fn note(&mut self, to: Peer, head: RequestHeader) {
        if head.reply != ReplyBound::None {
            self.latest[self.count as usize % KEPT] = (to.0, head.handler);
            self.count += 1;
        }
    }

    /// Takes the latest note back: the request was refused.
    pub(super) fn take_back(&mut self, reply: ReplyBound) {
        self.count -= u64::from(reply != ReplyBound::None);
    }

    /// Makes the note valid that was taken back last: the request was accepted after all, before any other was
    /// noted.
    pub(super) fn restore(&mut self, reply: ReplyBound) {
        self.count += u64::from(reply != ReplyBound::None);
    }

    /// How many requests that permit a reply have been sent.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The handlers of the latest requests to a peer, each once, from the latest on (allocates).
    pub(super) fn handlers(&self, to: Peer) -> Vec<u8> {
        let mut handlers = Vec::new();
        for back in 1..=self.count.min(KEPT as u64) {
            let (peer, handler) = self.latest[(self.count - back) as usize % KEPT];
            if peer == to.0 && !handlers.contains(&handler) {
                handlers.push(handler);
            }
        }
        handlers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_are_found_by_peer() {
        let mut recent = Recent::new();
        let note = |recent: &mut Recent, to, handler| {
            recent.note(Peer(to), RequestHeader { handler, reply: ReplyBound::UpTo(0) });
            recent.note(Peer(to), RequestHeader { handler: 200, reply: ReplyBound::None });
        };
        assert_eq!(recent.handlers(Peer(0)), []);
        for handler in [7, 8, 9, 8] {
            note(&mut recent, 1, handler);
        }
        assert_eq!((recent.count(), recent.handlers(Peer(0))), (4, vec![]));
        assert_eq!(recent.handlers(Peer(1)), [8, 9, 7]);
        recent.take_back(ReplyBound::None);
        recent.take_back(ReplyBound::UpTo(9));
        assert_eq!((recent.count(), recent.handlers(Peer(1))), (3, vec![9, 8, 7]));
        recent.restore(ReplyBound::UpTo(9));
        assert_eq!((recent.count(), recent.handlers(Peer(1))), (4, vec![8, 9, 7]));
        for _ in 0..62 {
            note(&mut recent, 2, 1);
        }
        assert_eq!(recent.handlers(Peer(1)), [8, 9]);
    }
}

//! What is known of a peer, and of a peer in a communicator.

use super::Failure;
use super::advance::Item;
use super::control::{Credit, Envelope, Offer};
use am_core::LossCause;
use am_core::slab::Key;
use std::collections::VecDeque;

/// A peer, whatever the communicator.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(super) rank: u32,
    /// What this rank has put into the peer's memory for unexpected messages.
    pub(super) sent: Credit,
    /// What the peer has reported to have taken out of it.
    pub(super) returned: Credit,
    /// Messages that wait for room there.
    pub(super) backlog: VecDeque<Key>,
    /// What the peer has put into this rank's memory for unexpected messages.
    pub(super) received: Credit,
    /// What this rank has taken of them out of its memory.
    pub(super) consumed: Credit,
    /// How much of that the peer knows.
    pub(super) reported: Credit,
    /// Whether the peer has to be told, by a message of its own if need be.
    pub(super) due: bool,
    /// Whether the peer may soon wait for room.
    pub(super) short: bool,
    /// What is to be sent to the peer, in order.
    pub(super) queue: VecDeque<Item>,
    pub(super) is_ready: bool,
    /// Receives that are advertised to the peer, those included whose retirement it has not answered.
    pub(super) adverts: u32,
    /// Receives that the peer has advertised.
    pub(super) advertised: u32,
    /// Answers to revocations and retirements of the peer that are queued.
    pub(super) answers: u32,
    /// Communicators that the peer has named and this rank has not made yet.
    pub(super) unopened: u32,
    /// Whether memory of the peer's process can be read, once that is known.
    pub(super) readable: Option<bool>,
    /// Whether it sees this rank's segment as memory, and may say that it has copied something there.
    pub(super) maps: bool,
    /// Whether it has said that it sees this rank's.
    pub(super) copies: bool,
    /// How the peer ended.
    pub(super) gone: Option<Failure>,
}

impl Peer {
    pub(super) fn new(rank: u32) -> Self {
        Self {
            rank,
            sent: Credit::default(),
            returned: Credit::default(),
            backlog: VecDeque::new(),
            received: Credit::default(),
            consumed: Credit::default(),
            reported: Credit::default(),
            due: false,
            short: false,
            queue: VecDeque::new(),
            is_ready: false,
            adverts: 0,
            advertised: 0,
            answers: 0,
            unopened: 0,
            readable: None,
            maps: false,
            copies: false,
            gone: None,
        }
    }

    /// Whether the peer broke the protocol.
    #[inline]
    pub(super) fn is_faulty(&self) -> bool {
        self.gone == Some(Failure::Gone(Some(LossCause::Faulty)))
    }
}

/// What came before its turn.
#[derive(Debug)]
pub(super) enum OutOfOrder {
    Eager(Vec<u8>),
    Offered(Offer, u64),
    Written(Key, u64),
}

/// A receive that a peer has advertised to this rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advert {
    pub(super) tag: u32,
    /// Messages with the tag that come before the one for it.
    pub(super) before: u32,
    pub(super) receive: Key,
    pub(super) capacity: u64,
    pub(super) offset: u64,
    pub(super) stays: bool,
}

/// A message that this rank has sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    pub(super) sequence: u32,
    pub(super) tag: u32,
    /// If it was announced.
    pub(super) send: Option<Key>,
}

/// The latest messages to a peer, by their numbers: as many as there are places.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// A power of two of them, or none.
    places: Vec<Logged>,
    /// The latest that are there.
    len: u32,
}

impl Log {
    /// Adds the next message; at least `least` are there afterwards, if so many were.
    #[inline(always)]
    pub(super) fn push(&mut self, sent: Logged, least: u32) {
        if least as usize >= self.places.len() {
            self.grow(sent, least);
        }
        let mask = self.places.len() - 1;
        self.places[sent.sequence as usize & mask] = sent;
        self.len = least + 1;
    }

    #[cold]
    fn grow(&mut self, unused: Logged, least: u32) {
        let mut places = vec![unused; (least as usize + 1).next_power_of_two().max(16)];
        let (mask, kept) = (places.len() - 1, self.len.min(self.places.len() as u32));
        for back in 1..=kept {
            let sequence = unused.sequence.wrapping_sub(back);
            places[sequence as usize & mask] = self.places[sequence as usize & (self.places.len() - 1)];
        }
        self.places = places;
    }

    /// The messages from a number on, of those that are there; `next` is the number of the next one.
    pub(super) fn since(&self, from: u32, next: u32) -> impl Iterator<Item = &Logged> + Clone {
        let count = next.wrapping_sub(from).min(self.len);
        let mask = self.places.len().wrapping_sub(1);
        (0..count).rev().filter_map(move |back| {
            // There are fewer where the messages that the peer may not have seen went in other communicators.
            let (number, sent) = (next.wrapping_sub(back + 1), &self.places);
            let sent = &sent[number as usize & mask];
            (sent.sequence == number).then_some(sent)
        })
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
}

/// A peer in a communicator.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(super) peer: u32,
    /// The number of the next message to the peer.
    pub(super) next: u32,
    /// The number of the next message of the peer.
    pub(super) expected: u32,
    /// What came before its turn.
    pub(super) out_of_order: Vec<(Envelope, OutOfOrder)>,
    /// The latest messages to the peer: all that it may not have seen.
    pub(super) log: Log,
    /// What the peer has advertised.
    pub(super) adverts: Vec<Advert>,
    /// The receive that is being revoked.
    pub(super) revoking: Option<Key>,
    /// Receives to be revoked next.
    pub(super) cancels: VecDeque<Key>,
}

impl Pair {
    pub(super) fn new(peer: u32) -> Self {
        Self {
            peer,
            next: 0,
            expected: 0,
            out_of_order: Vec::new(),
            log: Log::default(),
            adverts: Vec::new(),
            revoking: None,
            cancels: VecDeque::new(),
        }
    }

    /// The advertised receive that the next message with a tag is for; those behind it come one message sooner.
    pub(super) fn take_advert(&mut self, tag: u32) -> Option<Advert> {
        let mut found = None;
        self.adverts.retain_mut(|advert| {
            if advert.tag != tag {
                return true;
            }
            if advert.before == 0 {
                found = Some(*advert);
                return false;
            }
            advert.before -= 1;
            true
        });
        found
    }
}

/// A communicator.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Receives with wildcards that have met no message.
    pub(super) wildcards: u32,
    /// Receives that may be advertised when there are none.
    pub(super) deferred: Vec<Key>,
    pub(super) freed: bool,
    /// The members in ascending order, once this rank has made the communicator.
    pub(super) members: Option<Vec<u32>>,
    /// Collective operations that this rank has begun.
    pub(super) operations: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log holds no message that was never sent, however many its peer may not have seen in all.
    #[test]
    fn logs_hold_what_was_sent() {
        let mut log = Log::default();
        for sequence in 0..3 {
            log.push(Logged { sequence, tag: 1, send: None }, 7 + sequence);
            let all: Vec<u32> = log.since(0u32.wrapping_sub(5), sequence + 1).map(|sent| sent.sequence).collect();
            assert_eq!(all, (0..=sequence).collect::<Vec<_>>());
        }
        assert_eq!(log.since(1, 3).count(), 2);
    }
}

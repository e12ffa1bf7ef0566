//! The order of a pair: requests, and replies, carry numbers, and a message that is found before its turn waits in
//! its slot.
//!
//! A sender fills whichever slot is free, and a search for messages goes by slots, so it may find what was sent
//! later first. Each side of a pair numbers what it sends, requests and replies by themselves. The receiver hands
//! over the message of the next number; what is found before that stays where it lies, in the slot that its sender
//! may not fill again before it has been answered. So nothing is copied, and no more waits than there are slots.

use super::header::Number;
use super::work::Found;
use am_core::Lane;

/// The numbers of a pair, by lane.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// Of the next message to the peer.
    sent: [Number; 2],
    /// Of the message from the peer whose turn is next.
    due: [Number; 2],
}

/// Whether it is a message's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    /// Others of its sender come first.
    Later,
    /// Its number is one that cannot be.
    Never,
}

/// What a rank knows of the order towards and from its peers.
#[derive(Debug)]
pub(super) struct Turns {
    pairs: Vec<Pair>,
    /// Messages of a lane that a pair can have under way.
    slots: u32,
    /// Messages that were found before their turn.
    waiting: Vec<Found>,
}

impl Turns {
    pub(super) fn new(peers: u32, slots: u32) -> Self {
        let room = 2 * slots as usize;
        Self { pairs: vec![Pair::default(); peers as usize], slots, waiting: Vec::with_capacity(room) }
    }

    /// The number of the next message to a peer.
    pub(super) fn next_number(&self, to: u32, lane: Lane) -> Number {
        self.pairs[to as usize].sent[lane as usize]
    }

    /// Notes that a message of that number is under way to a peer.
    pub(super) fn sent(&mut self, to: u32, lane: Lane) {
        let next = &mut self.pairs[to as usize].sent[lane as usize];
        *next = next.next();
    }

    /// Whether it is a message's turn.
    #[inline]
    pub(super) fn turn(&self, from: u32, lane: Lane, number: Number) -> Turn {
        match number.since(self.pairs[from as usize].due[lane as usize]) {
            0 => Turn::Now,
            early if early < self.slots => Turn::Later,
            _ => Turn::Never,
        }
    }

    /// Keeps a message until it is its turn.
    pub(super) fn wait(&mut self, found: Found) {
        self.waiting.push(found);
    }

    /// Notes that the message whose turn it was is handed over; returns the one behind it, if that waits.
    /// `number_of` tells the lane and the number of a message that waits.
    pub(super) fn advance(
        &mut self,
        from: u32,
        lane: Lane,
        number_of: impl Fn(&Found) -> (Lane, Number),
    ) -> Option<Found> {
        let due = &mut self.pairs[from as usize].due[lane as usize];
        *due = due.next();
        let next = (lane, *due);
        let at = self.waiting.iter().position(|found| found.from == from && number_of(found) == next)?;
        Some(self.waiting.swap_remove(at))
    }

    /// Forgets what waits of a peer that broke the protocol.
    pub(super) fn forget(&mut self, of: u32) {
        self.waiting.retain(|found| found.from != of);
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::Ready;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Two slots or more, filled as they become free and found in any order: messages are handed over in the
        /// order of their numbers, across the end of the numbers, and each lane by itself.
        #[test]
        fn messages_take_their_turns(
            slots in 1..=32u32,
            picks in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 200..600)
        ) {
            let (mut sender, mut receiver) = (Turns::new(1, slots), Turns::new(1, slots));
            // What each slot holds: the number of its message, and its place in the order of sending.
            let mut there: Vec<Option<(Number, u32)>> = vec![None; slots as usize];
            let (mut sent, mut handed, mut found): (u32, u32, Vec<u32>) = (0, 0, Vec::new());
            for (send, pick) in picks {
                let free: Vec<usize> = (0..slots as usize).filter(|slot| there[*slot].is_none()).collect();
                if send && !free.is_empty() {
                    let slot = *pick.get(&free);
                    there[slot] = Some((sender.next_number(0, Lane::Request), sent));
                    sender.sent(0, Lane::Request);
                    (sent, found) = (sent + 1, [found, vec![slot as u32]].concat());
                } else if !found.is_empty() {
                    let slot = found.swap_remove(pick.index(found.len()));
                    let mut next = Some(Found { from: 0, slot, ready: Ready::Short });
                    while let Some(message) = next.take() {
                        let (number, place) = there[message.slot as usize].expect("a message that was found is there");
                        match receiver.turn(0, Lane::Request, number) {
                            Turn::Never => prop_assert!(false, "{number:?} is a number that cannot be"),
                            Turn::Later => receiver.wait(message),
                            Turn::Now => {
                                prop_assert_eq!(place, handed);
                                handed += 1;
                                let number =
                                    |found: &Found| (Lane::Request, there[found.slot as usize].unwrap().0);
                                next = receiver.advance(0, Lane::Request, number);
                                there[message.slot as usize] = None;
                            }
                        }
                    }
                }
                prop_assert!(receiver.waiting.len() < slots as usize);
            }
            prop_assert_eq!(receiver.turn(0, Lane::Reply, Number::default()), Turn::Now);
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_noticed() {
        let (mut sender, receiver) = (Turns::new(1, 2), Turns::new(1, 2));
        let mut number = || {
            sender.sent(0, Lane::Reply);
            sender.next_number(0, Lane::Reply)
        };
        let turns = [number(), number(), number()].map(|number| receiver.turn(0, Lane::Reply, number));
        assert_eq!(turns, [Turn::Later, Turn::Never, Turn::Never]);
    }
}

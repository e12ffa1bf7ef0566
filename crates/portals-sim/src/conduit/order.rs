//! The order of a pair's requests where the receiver may refuse them and they are sent again.
//!
//! Every request has the next number of its pair. The receiver takes the number that it expects and no other: one
//! that comes out of turn, because an earlier one was refused, is dropped, and its sender told so. A sender sends
//! again exactly what was refused or dropped, in order, and nothing new before that. So every request is handled
//! once and in order, without a buffer for those that came early.

use super::codec::MOST_LENGTH;
use am_core::{Instant, Span};
use std::collections::VecDeque;

/// How often a pause doubles.
const DOUBLINGS: u32 = 8;

/// One pair's state, for both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    next_out: u32,
    next_in: u32,
    /// Numbers and chunks of requests to be sent again, in order.
    refused: VecDeque<(u32, u32)>,
    /// Refusals in a row.
    failures: u32,
    /// Nothing is sent again before.
    not_before: Instant,
}

/// `one` before `other`, both within a window of each other.
fn precedes(one: u32, other: u32) -> bool {
    (other.wrapping_sub(one) & MOST_LENGTH) < MOST_LENGTH / 2 && one != other
}

impl Order {
    /// The number of a new request.
    pub(super) fn number(&mut self) -> u32 {
        let number = self.next_out;
        self.next_out = (number + 1) & MOST_LENGTH;
        number
    }

    /// Whether new requests have to wait.
    pub(super) fn is_stalled(&self) -> bool {
        !self.refused.is_empty()
    }

    /// A request was refused at a time: it is to be sent again after a pause, which grows while nothing succeeds.
    pub(super) fn refuse(&mut self, number: u32, chunk: u32, now: Instant, pause: Span) {
        // Rule 8 of the sheet: what was refused is sent again, in its order.
        let place = self.refused.iter().position(|(other, _)| precedes(number, *other));
        self.refused.insert(place.unwrap_or(self.refused.len()), (number, chunk));
        self.not_before = self.not_before.max(now + Span(pause.0 << self.failures.min(DOUBLINGS)));
        self.failures += 1;
    }

    /// A request was taken.
    pub(super) fn succeed(&mut self) {
        self.failures = 0;
    }

    /// When something is to be sent again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.is_stalled().then_some(self.not_before)
    }

    /// The next request to be sent again: its number and chunk.
    pub(super) fn again(&mut self, now: Instant) -> Option<(u32, u32)> {
        if self.not_before > now { None } else { self.refused.pop_front() }
    }

    /// Whether an arriving request's turn has come; if so, it has passed.
    pub(super) fn takes(&mut self, number: u32) -> bool {
        // Rule 8 of the sheet: a request out of turn is not taken, so that the order is kept and none is handled
        // twice.
        let expected = number == self.next_in;
        if expected {
            self.next_in = (number + 1) & MOST_LENGTH;
        }
        expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A wire that keeps order and a receiver that refuses at will: everything is taken once and in order.
        #[test]
        fn refused_requests_are_taken_once_in_order(
            choices in prop::collection::vec((any::<bool>(), 0u8..3), 1..400), start in 0u32..=MOST_LENGTH
        ) {
            let (mut sender, mut receiver) = (Order::default(), Order::default());
            (sender.next_out, receiver.next_in) = (start, start);
            let (mut wire, mut taken, mut sent) = (VecDeque::new(), Vec::new(), 0u32);
            let mut now = Instant::default();
            let mut refusing = choices.clone().into_iter().map(|(refuse, _)| refuse);
            let mut step = |action: u8, refuse: bool, sender: &mut Order, sent: &mut u32| {
                now = now + Span(1_000_000);
                match action {
                    0 if !sender.is_stalled() && *sent < 1000 => {
                        wire.push_back((sender.number(), *sent));
                        *sent += 1;
                    }
                    1 => {
                        if let Some(message) = sender.again(now) {
                            wire.push_back(message);
                        }
                    }
                    _ => {
                        if let Some((number, message)) = wire.pop_front() {
                            if !refuse && receiver.takes(number) {
                                taken.push(message);
                                sender.succeed();
                            } else {
                                sender.refuse(number, message, now, Span(1));
                            }
                        }
                    }
                }
                taken.len()
            };
            for (_, action) in &choices {
                let refuse = refusing.next().unwrap_or(false);
                step(*action, refuse, &mut sender, &mut sent);
            }
            let mut most = 0;
            for round in 0..20_000 {
                most = step(1 + (round % 2) as u8, false, &mut sender, &mut sent);
                if most == sent as usize {
                    break;
                }
            }
            prop_assert_eq!(most, sent as usize);
            prop_assert!(taken.windows(2).all(|two| two[0] + 1 == two[1]), "{:?}", taken);
        }
    }
}

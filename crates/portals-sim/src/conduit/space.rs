//! How large request receive buffers must be so that credits alone keep them from overflowing.
//!
//! The interface fills the buffers in order, one message behind the other, and unlinks one as soon as it has less
//! room left than the largest message. A buffer is linked again, behind the others, when everything in it has been
//! handled. Messages are handled in the order of arrival, so there is at most one buffer that is partly handled,
//! the oldest; whatever is not handled yet must fit the others. Each of them holds at least its size less the
//! largest message. Besides, a handler returns its request's credits with its reply, while the request still lies
//! in its buffer: room for one message more.

use super::config::Testing;

/// Sizes of the receive space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    /// Number of buffers.
    pub(super) buffers: u32,
    /// Size of each in bytes.
    pub(super) bytes: u64,
}

impl Space {
    /// The smallest buffers that hold what `credits` credits may bring.
    pub(super) fn needed(buffers: u32, credits: u64, credit_bytes: u32, largest: u32, testing: &Testing) -> Self {
        let contents = credits * u64::from(credit_bytes);
        if testing.exact_space {
            // All buffers empty and handled, no message across a border: just what the credits are worth, once.
            return Self { buffers, bytes: contents.div_ceil(u64::from(buffers)) };
        }
        let others = u64::from(buffers) - 1;
        Self { buffers, bytes: (contents + u64::from(largest)).div_ceil(others) + u64::from(largest) }
    }

    /// Bytes of all buffers.
    pub(super) const fn total(&self) -> u64 {
        self.buffers as u64 * self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// The buffers as the interface and the conduit use them.
    struct Model {
        space: Space,
        largest: u64,
        /// Buffers that are linked: bytes used of each, oldest first; and those unlinked whose contents wait.
        linked: VecDeque<(u32, u64)>,
        /// Arrived messages in order: buffer, length; `None` is the news that a buffer was unlinked.
        events: VecDeque<(u32, Option<u64>)>,
    }

    impl Model {
        fn new(space: Space, largest: u64) -> Self {
            let linked = (0..space.buffers).map(|buffer| (buffer, 0)).collect();
            Self { space, largest, linked, events: VecDeque::new() }
        }

        /// Whether a message found room.
        fn arrive(&mut self, len: u64) -> bool {
            let Some((buffer, used)) = self.linked.front_mut() else { return false };
            *used += len;
            assert!(*used <= self.space.bytes);
            let (buffer, left) = (*buffer, self.space.bytes - *used);
            self.events.push_back((buffer, Some(len)));
            if left < self.largest {
                self.linked.pop_front();
                self.events.push_back((buffer, None));
            }
            true
        }

        /// Handles the oldest message; returns its length.
        fn handle(&mut self) -> Option<u64> {
            loop {
                match self.events.pop_front()? {
                    (buffer, None) => self.linked.push_back((buffer, 0)),
                    (_, Some(len)) => return Some(len),
                }
            }
        }
    }

    /// Plays arrivals within the credits and handlings; says whether everything found room. A handler's credits
    /// return before the news behind its message are looked at.
    fn play(space: Space, credits: u64, unit: u64, largest: u64, steps: &[(u64, bool)]) -> bool {
        let mut model = Model::new(space, largest);
        let mut held = credits;
        for (len, handle) in steps {
            let cost = len.div_ceil(unit).max(1);
            if *handle {
                held += model.handle().map_or(0, |len| len.div_ceil(unit).max(1));
            } else if cost <= held {
                held -= cost;
                if !model.arrive(*len) {
                    return false;
                }
            }
        }
        true
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn no_schedule_within_the_credits_overflows(
            buffers in 2u32..5, credits in 4u64..24,
            steps in prop::collection::vec((0u64..=64, any::<bool>()), 1..300)
        ) {
            let space = Space::needed(buffers, credits, 16, 64, &Testing::default());
            prop_assert!(play(space, credits, 16, 64, &steps));
        }
    }

    /// The formula is hardly larger than it must be: without room for the message that is being handled, and with
    /// two credits' worth less, some schedule overflows.
    #[test]
    fn a_smaller_space_overflows_on_some_schedule() {
        for buffers in 2..5 {
            let (credits, unit, largest) = (32u64, 16u64, 64u64);
            let space = Space::needed(buffers, credits, unit as u32, largest as u32, &Testing::default());
            let small = Space { bytes: space.bytes - largest - 2 * unit, ..space };
            // Handle all but the last message of the first buffer; then everything that credits allow arrives.
            let whole = small.bytes / unit;
            let mut steps = Vec::new();
            for _ in 0..whole {
                steps.extend([(unit, false), (0, true)]);
            }
            steps.extend(vec![(unit, false); credits as usize + 4]);
            let overflows = (0..whole).any(|skip| {
                let steps: Vec<_> = steps.iter().skip(2 * skip as usize).copied().collect();
                !play(small, credits, unit, largest, &steps)
            });
            assert!(overflows, "{buffers} buffers of {} bytes", small.bytes);
        }
    }
}

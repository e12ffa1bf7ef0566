//! Bounce buffers: registered memory that the payloads of Long messages are put from, in a ring.
//!
//! The interface reads the source of a put after the call, so the conduit keeps a copy until the requester
//! notification tells that it has been read. Blocks are taken in order and may come back in any order.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Block {
    at: u32,
    len: u32,
    read: bool,
}

/// Which parts of the ring are in use.
#[derive(Debug)]
pub(super) struct Bounce {
    size: u32,
    /// Blocks in the order of taking.
    blocks: VecDeque<Block>,
}

impl Bounce {
    pub(super) fn new(size: u32) -> Self {
        Self { size, blocks: VecDeque::new() }
    }

    /// Takes a block of some bytes, which are fewer than the ring has; `None` while there is no room.
    pub(super) fn take(&mut self, len: u32) -> Option<u32> {
        let (Some(first), Some(last)) = (self.blocks.front(), self.blocks.back()) else {
            if len > self.size {
                return None;
            }
            self.blocks.push_back(Block { at: 0, len, read: false });
            return Some(0);
        };
        let (begin, end) = (first.at, last.at + last.len);
        let at = if end > begin && self.size - end >= len {
            end
        } else if end > begin {
            // From the start again, as far as the oldest block.
            if begin < len {
                return None;
            }
            0
        } else if begin - end >= len {
            end
        } else {
            return None;
        };
        self.blocks.push_back(Block { at, len, read: false });
        Some(at)
    }

    /// The interface has read the block at an offset. Returns whether there is such a block.
    pub(super) fn give(&mut self, at: u32) -> bool {
        let found = self.blocks.iter_mut().find(|block| block.at == at && !block.read);
        let known = found.map(|block| block.read = true).is_some();
        while self.blocks.front().is_some_and(|block| block.read) {
            self.blocks.pop_front();
        }
        known
    }

    /// Blocks that have not come back.
    pub(super) fn outstanding(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Blocks in use never overlap, and an empty ring gives whatever fits.
        #[test]
        fn blocks_never_overlap(
            steps in prop::collection::vec((1u32..=100, any::<prop::sample::Index>(), any::<bool>()), 1..300)
        ) {
            let mut bounce = Bounce::new(100);
            let mut used: Vec<(u32, u32)> = Vec::new();
            for (len, which, give) in steps {
                if give && !used.is_empty() {
                    let (at, _) = used.swap_remove(which.index(used.len()));
                    prop_assert!(bounce.give(at));
                } else if let Some(at) = bounce.take(len) {
                    prop_assert!(at + len <= 100);
                    prop_assert!(used.iter().all(|(other, size)| at + len <= *other || other + size <= at), "{at} {len} in {used:?}");
                    used.push((at, len));
                } else {
                    prop_assert!(!used.is_empty());
                }
                prop_assert!(bounce.outstanding() >= used.len());
                prop_assert!(!used.is_empty() || bounce.outstanding() == 0);
            }
            prop_assert!(!bounce.give(1000));
        }
    }
}

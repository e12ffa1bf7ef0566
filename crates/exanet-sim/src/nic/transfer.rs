//! Transfers: how they are cut into blocks, and how a receiver knows that the last byte has come. State machines
//! without a clock.
//!
//! A transfer is cut into blocks of 64 cells, and each block is a unit of its own: it is answered, and sent
//! again, by itself. Cells and blocks come in any order, on whatever ways; so the receiver counts, per block the
//! cells and per transfer the blocks, and only a transfer of which nothing is missing is notified.

use super::errors::{Fault, Progress};
use super::sequence::WINDOW;

/// Cells of a block: one word of marks.
pub(crate) const BLOCK_CELLS: u32 = 64;

/// A word that is written to memory of the destination's process after the last byte of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    /// Its address, a multiple of 8.
    pub at: u64,
    /// What is written there.
    pub value: u64,
}

/// Names a transfer of a process until its end has been polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The transfers of a process that have not been polled to their end.
#[derive(Debug)]
pub(crate) struct Transfers {
    slots: Vec<(u32, Option<Progress>)>,
    free: Vec<u32>,
    most: u32,
    live: u32,
    ended: u32,
}

impl Transfers {
    pub(crate) fn new(most: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), most, live: 0, ended: 0 }
    }

    pub(crate) const fn live(&self) -> u32 {
        self.live
    }

    /// Transfers whose end was not polled.
    pub(crate) const fn ended(&self) -> u32 {
        self.ended
    }

    pub(crate) fn begin(&mut self) -> Option<TransferId> {
        if self.live == self.most {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        self.live += 1;
        let (generation, progress) = &mut self.slots[slot as usize];
        *progress = Some(Progress::Pending);
        Some(TransferId { slot, generation: *generation })
    }

    /// Ends a transfer, if it has not ended before. Returns whether it had not.
    pub(crate) fn end(&mut self, id: TransferId, how: Result<(), Fault>) -> bool {
        match self.slots.get_mut(id.slot as usize) {
            Some((generation, progress @ Some(Progress::Pending))) if *generation == id.generation => {
                *progress = Some(how.map_or_else(Progress::Fault, |()| Progress::Done));
                self.ended += 1;
                true
            }
            _ => false,
        }
    }

    /// Whether a transfer has not ended.
    pub(crate) fn is_pending(&self, id: TransferId) -> bool {
        let slot = self.slots.get(id.slot as usize);
        slot.is_some_and(|(generation, progress)| {
            *generation == id.generation && *progress == Some(Progress::Pending)
        })
    }

    /// How far a transfer is; an end is told once.
    pub(crate) fn poll(&mut self, id: TransferId) -> Option<Progress> {
        let (generation, slot) = self.slots.get_mut(id.slot as usize)?;
        let progress = slot.filter(|_| *generation == id.generation)?;
        if progress != Progress::Pending {
            *slot = None;
            *generation = generation.wrapping_add(1);
            self.free.push(id.slot);
            self.live -= 1;
            self.ended -= 1;
        }
        Some(progress)
    }
}

/// How bytes are cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Bytes of a cell.
    pub(crate) cell: u32,
    /// Cells that travel as one packet of the simulation.
    pub(crate) grain: u32,
}

impl Cut {
    pub(crate) const fn block(&self) -> u64 {
        self.cell as u64 * BLOCK_CELLS as u64
    }

    /// Bytes of a block of a transfer.
    pub(crate) fn block_len(&self, len: u64, block: u64) -> u32 {
        (len - block * self.block()).min(self.block()) as u32
    }

    /// Marks of a block that has all its cells.
    pub(crate) fn complete(&self, block_len: u32) -> u64 {
        u64::MAX >> (BLOCK_CELLS - block_len.div_ceil(self.cell).clamp(1, BLOCK_CELLS))
    }

    /// Marks of the cells of some bytes of a block, which begin with a cell.
    pub(crate) fn marks(&self, first: u32, bytes: u32) -> u64 {
        self.complete(bytes) << first
    }
}

/// The blocks and transfers from one node of which something has come, but not all.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Numbers of blocks, and the cells that are there.
    blocks: Vec<(u32, u64)>,
    /// Numbers of transfers, and the blocks that are there.
    transfers: Vec<(u32, u64)>,
}

impl Arrivals {
    /// Whether nothing of a block has come.
    pub(crate) fn is_new(&self, block: u32) -> bool {
        self.blocks.iter().all(|(number, _)| *number != block)
    }

    /// Marks cells of a block; whether it is complete.
    pub(crate) fn mark(&mut self, block: u32, cells: u64, complete: u64) -> bool {
        let index = self.blocks.iter().position(|(number, _)| *number == block).unwrap_or_else(|| {
            // A sender that has this block under way has ended those a window before it.
            self.blocks.retain(|(number, _)| (block.wrapping_sub(*number) as i32) < WINDOW as i32);
            self.blocks.push((block, 0));
            self.blocks.len() - 1
        });
        let marks = &mut self.blocks[index].1;
        *marks |= cells;
        if *marks != complete {
            return false;
        }
        self.blocks.swap_remove(index);
        true
    }

    /// A block was refused for good.
    pub(crate) fn drop_block(&mut self, block: u32) {
        self.blocks.retain(|(number, _)| *number != block);
    }

    /// A block of a transfer is complete; whether the transfer is. The sender has ended all transfers before
    /// `floor`.
    pub(crate) fn block_done(&mut self, transfer: u32, blocks: u64, floor: u32) -> bool {
        if blocks == 1 {
            return true;
        }
        // What was given up will not be completed.
        self.transfers.retain(|(number, _)| number.wrapping_sub(floor) as i32 >= 0);
        let index = self.transfers.iter().position(|(number, _)| *number == transfer).unwrap_or_else(|| {
            self.transfers.push((transfer, 0));
            self.transfers.len() - 1
        });
        self.transfers[index].1 += 1;
        if self.transfers[index].1 != blocks {
            return false;
        }
        self.transfers.swap_remove(index);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CUT: Cut = Cut { cell: 256, grain: 4 };

    #[test]
    fn blocks_are_complete_with_all_their_cells() {
        assert_eq!((CUT.block(), CUT.block_len(40_000, 2), CUT.block_len(16_384, 0)), (16_384, 7232, 16_384));
        assert_eq!([1, 256, 257, 16_384].map(|len| CUT.complete(len)), [1, 1, 3, u64::MAX]);
        assert_eq!((CUT.marks(4, 1024), CUT.marks(63, 1)), (0xf0, 1 << 63));
    }

    #[test]
    fn ends_are_told_once() {
        let mut transfers = Transfers::new(2);
        let (one, two) = (transfers.begin().unwrap(), transfers.begin().unwrap());
        assert_eq!((transfers.begin(), transfers.poll(one)), (None, Some(Progress::Pending)));
        assert!(transfers.end(one, Ok(())) && !transfers.end(one, Err(Fault::Source)));
        assert_eq!([transfers.poll(one), transfers.poll(one)], [Some(Progress::Done), None]);
        let three = transfers.begin().unwrap();
        assert_eq!((three.slot, transfers.poll(one), transfers.live()), (one.slot, None, 2));
        assert!(transfers.end(two, Err(Fault::Destination)));
        assert_eq!(transfers.poll(two), Some(Progress::Fault(Fault::Destination)));
    }

    /// What is left of blocks that their senders gave up does not pile up.
    #[test]
    fn blocks_that_were_given_up_are_forgotten() {
        let mut arrivals = Arrivals { blocks: vec![(u32::MAX - 3, 1)], ..Arrivals::default() };
        for number in 0..10 * WINDOW {
            assert!(!arrivals.mark(number, 1, 0b11));
        }
        assert_eq!(arrivals.blocks.len(), WINDOW as usize);
    }

    proptest! {
        /// Cells in any order, some of them twice: a transfer is complete with the last cell that was missing.
        #[test]
        fn a_transfer_is_complete_with_its_last_missing_cell(
            len in 1u64..60_000, order in prop::collection::vec(any::<prop::sample::Index>(), 1..2000)
        ) {
            let blocks = len.div_ceil(CUT.block());
            let mut pieces: Vec<(u64, u32, u32)> = (0..blocks).flat_map(|block| {
                let bytes = CUT.block_len(len, block);
                let step = CUT.cell * CUT.grain;
                (0..bytes).step_by(step as usize).map(move |at| (block, at / CUT.cell, step.min(bytes - at)))
            }).collect();
            let (mut arrivals, mut complete) = (Arrivals::default(), false);
            let mut done = vec![false; blocks as usize];
            for index in order {
                prop_assert_eq!(complete, pieces.is_empty());
                if pieces.is_empty() {
                    break;
                }
                let at = index.index(pieces.len());
                // Some come twice.
                let (block, first, bytes) = if at % 3 == 0 { pieces[at] } else { pieces.swap_remove(at) };
                let marks = CUT.complete(CUT.block_len(len, block));
                if !done[block as usize] && arrivals.mark(block as u32, CUT.marks(first, bytes), marks) {
                    done[block as usize] = true;
                    pieces.retain(|(other, ..)| *other != block);
                    complete = arrivals.block_done(9, blocks, 9);
                }
            }
            prop_assert!(arrivals.blocks.len() as u64 <= blocks && arrivals.transfers.len() <= 1);
        }
    }
}

//! Registered memory of a rank that goes round: what a rendezvous reads from and writes to.

use crate::nic::HostMemory;
use crate::nic::rma::{Access, Nla, Region, Rma, RmaError};

/// A block of registered memory.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) memory: HostMemory,
    pub(super) region: Region,
    pub(super) nla: Nla,
    class: usize,
}

/// The blocks of a rank, by powers of two.
#[derive(Debug, Default)]
pub(super) struct Pinned {
    spare: Vec<Vec<Block>>,
}

/// The smallest block is a page.
const SMALLEST: usize = 12;

/// Where data lands piece by piece that has no block of its own, as a power of two: 16 KB, four pages.
pub(super) const LANDING: usize = 14;

impl Block {
    /// Registers new memory of a size that is a power of two.
    pub(super) fn register(rma: &Rma<'_>, class: usize) -> Result<Self, RmaError> {
        let memory = HostMemory::new(1 << class);
        let region = rma.register(&memory, 0, 1 << class, Access::ReadWrite)?;
        let nla = rma.nla(region, 0)?;
        Ok(Self { memory, region, nla, class })
    }
}

impl Pinned {
    /// A block of at least `bytes` bytes. Registers new memory where no spare block fits.
    pub(super) fn take(&mut self, rma: &Rma<'_>, bytes: usize) -> Result<Block, RmaError> {
        let class = (bytes.max(1).next_power_of_two().trailing_zeros() as usize).max(SMALLEST);
        if let Some(block) = self.spare.get_mut(class).and_then(Vec::pop) {
            return Ok(block);
        }
        Block::register(rma, class).or_else(|error| {
            // Blocks of other sizes may be spare.
            if self.release(rma) { Block::register(rma, class) } else { Err(error) }
        })
    }

    /// Ends the registration of all spare blocks; returns whether there were any.
    pub(super) fn release(&mut self, rma: &Rma<'_>) -> bool {
        let spare = self.spare.iter_mut().flat_map(|blocks| blocks.drain(..));
        spare.map(|block| rma.unregister(block.region)).filter(Result::is_ok).count() != 0
    }

    /// Gives a block back.
    pub(super) fn give(&mut self, block: Block) {
        if self.spare.len() <= block.class {
            self.spare.resize_with(block.class + 1, Vec::new);
        }
        self.spare[block.class].push(block);
    }
}

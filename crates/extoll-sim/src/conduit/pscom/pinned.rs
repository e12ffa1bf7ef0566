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

impl Pinned {
    /// A block of at least `bytes` bytes. Registers new memory where no spare block fits.
    pub(super) fn take(&mut self, rma: &Rma<'_>, bytes: usize) -> Result<Block, RmaError> {
        let class = (bytes.max(1).next_power_of_two().trailing_zeros() as usize).max(SMALLEST);
        if let Some(block) = self.spare.get_mut(class).and_then(Vec::pop) {
            return Ok(block);
        }
        let memory = HostMemory::new(1 << class);
        let region = rma.register(&memory, 0, 1 << class, Access::ReadWrite)?;
        let nla = rma.nla(region, 0)?;
        Ok(Block { memory, region, nla, class })
    }

    /// Gives a block back.
    pub(super) fn give(&mut self, block: Block) {
        if self.spare.len() <= block.class {
            self.spare.resize_with(block.class + 1, Vec::new);
        }
        self.spare[block.class].push(block);
    }
}

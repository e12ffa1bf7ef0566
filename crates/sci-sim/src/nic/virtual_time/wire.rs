//! What adapters of the simulated machine send each other, and themselves.

use super::HostMemory;
use crate::nic::code::Code;
use crate::nic::kinds::{LINE, SegmentId};

/// What a packet carries; opaque to everyone but the adapters.
#[derive(Clone, Debug)]
pub struct Wire(pub(super) Body);

#[derive(Clone, Debug)]
pub(super) enum Body {
    /// A posted line of stores.
    Line { address: u64, serial: u32, line: Line },
    /// What became of it.
    Answer { serial: u32, verdict: Verdict },
    /// A part of a DMA transfer.
    Chunk { queue: u32, generation: u32, address: u64, source: HostMemory, at: usize, len: usize },
    /// What became of it.
    ChunkAnswer { queue: u32, generation: u32, verdict: Verdict },
    /// To itself: the DMA engine's next part.
    Step { queue: u32, generation: u32 },
    /// A question that a rank waits for.
    Ask { serial: u32, ask: Ask },
    /// Its answer.
    Reply { serial: u32, result: Reply },
    /// An interrupt.
    Trigger { number: u32 },
}

/// The stores of a line: the bytes whose bits are set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) mask: u64,
    pub(super) bytes: [u8; LINE],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Taken,
    /// It came spoilt.
    Spoilt,
    /// There is nothing at that address.
    Nowhere,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Probe,
    Connect { id: SegmentId, key: u32 },
    Disconnect { base: u64, key: u32 },
    FindInterrupt { number: u32 },
    Read { address: u64, len: u8 },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Done,
    Refused(Code),
    Connected { base: u64, size: usize },
    Read([u8; LINE]),
}

impl Line {
    /// Writes the bytes to memory from offset `at` on.
    pub(super) fn write(&self, memory: &HostMemory, at: usize) {
        use am_core::segment::Memory;
        let mut rest = self.mask;
        while rest != 0 {
            let begin = rest.trailing_zeros() as usize;
            let len = (rest >> begin).trailing_ones() as usize;
            memory.store(at + begin, &self.bytes[begin..begin + len]);
            rest &= !ones(begin, len);
        }
    }
}

/// Bits `begin` to `begin + len`, within 64.
pub(super) const fn ones(begin: usize, len: usize) -> u64 {
    (if len >= 64 { u64::MAX } else { (1 << len) - 1 }) << begin
}

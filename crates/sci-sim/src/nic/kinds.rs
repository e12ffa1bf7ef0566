//! Numbers, states, events and flags of the SISCI interface.

use super::code::Code;
use std::fmt;
use std::ops::BitOr;

/// An SCI node: 16 bits, so 65,536 nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// The number of a segment, unique on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {:#x}", self.0)
    }
}

/// A global address: 16 bits of node and 48 bits of offset in that node's 256 TB.
///
/// ```
/// use sci_sim::nic::{Code, NodeId, RemoteAddress};
///
/// let address = RemoteAddress::new(NodeId(8), 0x1234)?;
/// assert_eq!((address.node(), address.offset()), (NodeId(8), 0x1234));
/// assert_eq!(address.bits(), 0x0008_0000_0000_1234);
/// assert_eq!(RemoteAddress::new(NodeId(8), 1 << 48), Err(Code::OutOfRange));
/// # Ok::<(), Code>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemoteAddress(u64);

impl RemoteAddress {
    /// Bits of the offset.
    pub const OFFSET_BITS: u32 = 48;

    /// An address.
    ///
    /// # Errors
    /// [`Code::OutOfRange`] if the offset has more than 48 bits.
    pub const fn new(node: NodeId, offset: u64) -> Result<Self, Code> {
        if offset >> Self::OFFSET_BITS != 0 {
            return Err(Code::OutOfRange);
        }
        Ok(Self((node.0 as u64) << Self::OFFSET_BITS | offset))
    }

    /// The node.
    pub const fn node(self) -> NodeId {
        NodeId((self.0 >> Self::OFFSET_BITS) as u16)
    }

    /// The offset in bytes in the node's address space.
    pub const fn offset(self) -> u64 {
        self.0 & ((1 << Self::OFFSET_BITS) - 1)
    }

    /// The 64 bits that travel.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// What a sequence of stores came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "stores that were not checked may not have landed"]
pub enum SequenceStatus {
    /// All stores since the start have landed.
    Ok,
    /// Some have not, for a passing reason: store everything once more, at once.
    Retriable,
    /// Some have not, for a lasting reason: call `start_sequence` until it says `Ok`, then store everything once
    /// more.
    NotRetriable,
    /// Some have not, and the driver does not know yet how bad it is: as `NotRetriable`.
    Pending,
}

/// The states of a DMA queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DmaState {
    /// Empty.
    Idle,
    /// It has transfers, not yet posted.
    Gather,
    /// Its transfers are under way.
    Posted,
    /// All data have landed.
    Done,
    /// It was aborted; data may have landed in part.
    Aborted,
    /// A transfer failed; data may have landed in part.
    Error,
}

/// What can happen to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentReason {
    /// A node has connected to this local segment.
    Connect,
    /// A node has disconnected from this local segment.
    Disconnect,
    /// The way to the other node is broken for the moment.
    NotOperational,
    /// The way to the other node works again.
    Operational,
    /// The other node, or the segment, is gone for good.
    Lost,
}

/// Which segment a callback is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallbackSegment {
    /// A segment of this node.
    Local(SegmentId),
    /// A segment of another node that this one is connected to.
    Remote(NodeId, SegmentId),
}

/// A segment callback, as [`Sisci::next_callback`](super::Sisci::next_callback) hands them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Callback {
    /// The segment.
    pub segment: CallbackSegment,
    /// The other node.
    pub node: NodeId,
    /// What happened.
    pub reason: SegmentReason,
}

/// Options of calls. Each call refuses those that it does not know with [`Code::IllegalFlag`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// For `create_segment` and `connect_segment`: what happens to the segment is kept for
    /// [`Sisci::next_callback`](super::Sisci::next_callback).
    pub const USE_CALLBACK: Self = Self(1);
    /// For `memcpy`: check the transfer, and repeat it as long as that can help.
    pub const ERROR_CHECK: Self = Self(1 << 1);
    /// For `check_sequence`: don't wait for the stores still under way; look at those that have been answered.
    pub const NO_STORE_BARRIER: Self = Self(1 << 2);
    /// For `check_sequence`: leave the last line in the processor's write-combining buffer.
    pub const NO_FLUSH: Self = Self(1 << 3);

    /// The flags of a word; unknown ones stay, for the call to refuse.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Whether all of these are given.
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Refuses flags that are not among those a call knows.
    pub(crate) const fn only(self, known: Self) -> Result<(), Code> {
        if self.0 & !known.0 == 0 { Ok(()) } else { Err(Code::IllegalFlag) }
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The sizes of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest segment in bytes (1 MB without the large-area patch).
    pub segment_bytes: usize,
    /// Lines that may be outstanding at once; 1 where a store has landed when the call returns.
    pub outstanding: u32,
    /// Offsets and sizes of DMA transfers are multiples of so many bytes.
    pub dma_alignment: usize,
}

/// Bytes of a line: what one store transaction carries at most.
pub const LINE: usize = 64;

/// Alignment of sizes and offsets of segments, maps and `memcpy`, in bytes.
pub const ALIGNMENT: usize = 4;

/// Alignment of offsets of local maps in bytes: local memory is seen in words of 8.
pub const MAP_ALIGNMENT: usize = 8;

/// Checks a range against what holds it: alignment of the offset, then of the size, then the range. Sizes are
/// multiples of 4 at least, or of the alignment if that is more than 8.
pub(crate) fn inside(offset: usize, size: usize, whole: usize, alignment: usize) -> Result<(), Code> {
    let size_alignment = if alignment == MAP_ALIGNMENT { ALIGNMENT } else { alignment };
    if !offset.is_multiple_of(alignment) {
        return Err(Code::OffsetAlignment);
    }
    if size == 0 || !size.is_multiple_of(size_alignment) {
        return Err(Code::SizeAlignment);
    }
    if offset.checked_add(size).is_none_or(|end| end > whole) {
        return Err(Code::OutOfRange);
    }
    Ok(())
}

/// What an interface has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Lines stored to other nodes.
    pub lines: u64,
    /// Lines read from other nodes, each of which the processor waits for. None of them on a fast path.
    pub remote_reads: u64,
    /// Lines that did not land, or whose answer did not come.
    pub failed_lines: u64,
    /// DMA transfers done.
    pub dma_transfers: u64,
    /// Connections made to segments.
    pub connections: u64,
}

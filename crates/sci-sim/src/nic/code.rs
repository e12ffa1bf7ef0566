//! SISCI's result codes, and what a refused call gives back.

use std::fmt;
use thiserror::Error;

/// Why a call did not do what it was asked for. The names are those of the public SISCI header without their
/// prefix (`SCI_ERR_`); the first fifteen are those that the project's sheet lists, the others stand in the same
/// header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Error)]
#[non_exhaustive]
pub enum Code {
    /// `BUSY`: the object is in use, or in a state that does not allow the call.
    #[error("BUSY: the object is in use")]
    Busy,
    /// `ILLEGAL_FLAG`: a flag that this call does not know.
    #[error("ILLEGAL_FLAG: this call does not know that flag")]
    IllegalFlag,
    /// `NOSPC`: no memory, no table entry, or a segment beyond the largest size.
    #[error("NOSPC: out of memory, of table entries, or beyond the largest segment")]
    NoSpace,
    /// `SEGMENT_NOT_PREPARED`: the segment must be prepared first.
    #[error("SEGMENT_NOT_PREPARED: the segment has not been prepared")]
    SegmentNotPrepared,
    /// `SEGMENTID_USED`: the node has a segment (or an interrupt) of that number.
    #[error("SEGMENTID_USED: the node has another of that number")]
    SegmentIdUsed,
    /// `NO_SUCH_SEGMENT`: the node has no segment (or interrupt) of that number.
    #[error("NO_SUCH_SEGMENT: the node has none of that number")]
    NoSuchSegment,
    /// `CONNECTION_REFUSED`: the segment is not available.
    #[error("CONNECTION_REFUSED: the segment is not available")]
    ConnectionRefused,
    /// `TIMEOUT`: it did not happen in the time given.
    #[error("TIMEOUT: it did not happen in time")]
    Timeout,
    /// `NO_LINK_ACCESS`: this node's own link is down.
    #[error("NO_LINK_ACCESS: this node's link is down")]
    NoLinkAccess,
    /// `NO_REMOTE_LINK_ACCESS`: a link further on, or the remote node, is down.
    #[error("NO_REMOTE_LINK_ACCESS: a link on the way or the remote node is down")]
    NoRemoteLinkAccess,
    /// `OUT_OF_RANGE`: the range does not lie inside the segment, the map or the address space.
    #[error("OUT_OF_RANGE: the range is outside")]
    OutOfRange,
    /// `SIZE_ALIGNMENT`: the size is no multiple of what the call wants.
    #[error("SIZE_ALIGNMENT: the size is not aligned")]
    SizeAlignment,
    /// `OFFSET_ALIGNMENT`: the offset is no multiple of what the call wants.
    #[error("OFFSET_ALIGNMENT: the offset is not aligned")]
    OffsetAlignment,
    /// `TRANSFER_FAILED`: data may have landed partly or not at all.
    #[error("TRANSFER_FAILED: the data may have landed in part")]
    TransferFailed,
    /// `CANCELLED`: somebody ended it.
    #[error("CANCELLED: the operation was ended")]
    Cancelled,
    /// `NO_SUCH_NODEID`: the machine has no such node.
    #[error("NO_SUCH_NODEID: the machine has no such node")]
    NoSuchNodeId,
    /// `ILLEGAL_OPERATION`: nothing that the object's state allows.
    #[error("ILLEGAL_OPERATION: the object's state does not allow that")]
    IllegalOperation,
    /// `SYSTEM`: the operating system refused; see the implementation for its own words.
    #[error("SYSTEM: the operating system refused")]
    System,
}

impl Code {
    /// All codes.
    pub const ALL: [Self; 18] = [
        Self::Busy,
        Self::IllegalFlag,
        Self::NoSpace,
        Self::SegmentNotPrepared,
        Self::SegmentIdUsed,
        Self::NoSuchSegment,
        Self::ConnectionRefused,
        Self::Timeout,
        Self::NoLinkAccess,
        Self::NoRemoteLinkAccess,
        Self::OutOfRange,
        Self::SizeAlignment,
        Self::OffsetAlignment,
        Self::TransferFailed,
        Self::Cancelled,
        Self::NoSuchNodeId,
        Self::IllegalOperation,
        Self::System,
    ];
}

/// A call that would have consumed an object was refused; the object is as before.
///
/// `?` turns it into its [`Code`] and lets the object go: it stays in use until the library ends.
pub struct RefusedObject<T> {
    /// Why.
    pub code: Code,
    /// The object.
    pub object: T,
}

impl<T> fmt::Debug for RefusedObject<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedObject").field("code", &self.code).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for RefusedObject<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)
    }
}

impl<T> std::error::Error for RefusedObject<T> {}

impl<T> From<RefusedObject<T>> for Code {
    fn from(refused: RefusedObject<T>) -> Self {
        refused.code
    }
}

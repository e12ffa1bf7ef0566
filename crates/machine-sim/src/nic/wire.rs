//! What interfaces tell each other.

use am_core::one_sided::Atomic;
use am_core::{Instant, PeerStatus};
use fabric_sim::bytes::PooledBytes;

/// A message that has arrived.
#[derive(Clone, Debug)]
pub struct Message {
    /// The rank that sent it.
    pub from: u32,
    /// Two words that travel with it.
    pub immediate: [u64; 2],
    /// Its bytes; none if they were placed in memory.
    pub data: PooledBytes,
    /// Its length in bytes, for what it costs.
    pub(crate) size: u64,
}

/// One thing that an interface tells another one, however many packets it takes.
#[derive(Clone, Debug)]
pub(crate) enum Content<D = PooledBytes> {
    /// A message; with a place its bytes go to memory, all but the first so many.
    Message {
        immediate: [u64; 2],
        data: D,
        place: Option<Place>,
        called: Instant,
    },
    /// A long message wants to come.
    Announce,
    /// It may.
    Clear,
    /// Write, and then add one to a counter.
    Put {
        at: u64,
        data: D,
        signal: Option<u64>,
        id: u64,
    },
    Get {
        at: u64,
        len: u64,
        id: u64,
    },
    Atomic {
        at: u64,
        atomic: Atomic,
        id: u64,
    },
    /// An operation is done.
    Done {
        id: u64,
        value: u64,
        data: Option<D>,
        refused: bool,
    },
    /// The rank that calls leaves the job, behind what it called for before.
    Leave(PeerStatus),
}

/// Where the bytes of a message go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The offset in the receiver's memory.
    pub(crate) at: u64,
    /// Bytes at the beginning that are the receiver's program's.
    pub(crate) after: usize,
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub(crate) enum PacketBody<D = PooledBytes> {
    /// Bytes of something whose last packet carries it.
    Part,
    /// Something of so many bytes, or the last of it.
    Whole(Content<D>, u64),
    /// All packets before this one have arrived.
    Acknowledged,
}

/// A packet's place in the stream of a pair, and what it carries.
#[derive(Clone, Debug)]
pub struct NumberedPacket<D = PooledBytes> {
    pub(crate) turn: u32,
    pub(crate) contents: PacketBody<D>,
}

impl<D> NumberedPacket<D> {
    /// The same with its bytes in another form.
    pub(crate) fn map<E>(self, bytes: impl FnOnce(D) -> E) -> NumberedPacket<E> {
        let contents = match self.contents {
            PacketBody::Part => PacketBody::Part,
            PacketBody::Whole(content, size) => PacketBody::Whole(content.map(bytes), size),
            PacketBody::Acknowledged => PacketBody::Acknowledged,
        };
        NumberedPacket { turn: self.turn, contents }
    }
}

impl<D> Content<D> {
    fn map<E>(self, bytes: impl FnOnce(D) -> E) -> Content<E> {
        match self {
            Self::Message { immediate, data, place, called } => {
                Content::Message { immediate, data: bytes(data), place, called }
            }
            Self::Announce => Content::Announce,
            Self::Clear => Content::Clear,
            Self::Put { at, data, signal, id } => Content::Put { at, data: bytes(data), signal, id },
            Self::Get { at, len, id } => Content::Get { at, len, id },
            Self::Atomic { at, atomic, id } => Content::Atomic { at, atomic, id },
            Self::Done { id, value, data, refused } => Content::Done { id, value, data: data.map(bytes), refused },
            Self::Leave(status) => Content::Leave(status),
        }
    }
}

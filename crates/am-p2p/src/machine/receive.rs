//! A receive: what it asks for, and what has come for it.

use super::chains::Selector;
use super::control::{Envelope, KIND};
use super::place::{MakePlace, Place};
use super::staging::Block;
use super::{BYTES, Failure};
use am_core::Payload;
use am_core::slab::Key;
use am_core::transport::Lent;
use am_core::zerocopy::IntoBytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has met no message.
    Posted,
    /// Its message is being written or read.
    Moving,
    /// Its message is here; the sender is asked to retire the advertisement.
    Retiring,
    /// Over.
    Done,
    /// Over, without a message.
    Cancelled,
}

/// A message that is read: what of it has been asked for, and how many requests are under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) send: Key,
    pub(super) asked: u64,
    pub(super) under_way: u32,
}

/// Bytes of a message that needs no buffer of its own at most.
pub(super) const SHORT_MESSAGE: usize = 32;

/// The bytes of a message that needs no buffer, as they lie in memory. They come and go as words: bytes that are
/// written one by one and read together keep the processor waiting.
pub(super) type Short = [u64; SHORT_MESSAGE / 8];

/// Copies the first bytes of a short message, as many as there is room for.
#[inline(always)]
pub(super) fn copy_short(short: &Short, out: &mut [u8]) {
    if let Ok(word) = <&mut [u8; 8]>::try_from(&mut *out) {
        *word = short[0].to_ne_bytes();
    } else {
        out.copy_from_slice(&short.as_bytes()[..out.len()]);
    }
}

/// The bytes of a short message.
#[inline(always)]
pub(super) fn short_of(payload: &Payload<'_>) -> Short {
    let mut words = [0; SHORT_MESSAGE / 8];
    payload.copy_to(words.as_mut_bytes());
    words
}

/// A receive.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(super) selector: Selector,
    pub(super) kind: u32,
    pub(super) capacity: u64,
    pub(super) order: u64,
    pub(super) stage: Stage,
    /// Its message.
    pub(super) from: u32,
    pub(super) tag: u32,
    pub(super) sent_kind: u32,
    pub(super) len: u64,
    pub(super) bytes: Bytes,
    pub(super) advertised: bool,
    pub(super) cancelling: bool,
    pub(super) wanted: bool,
    pub(super) failure: Option<Failure>,
    /// What only long messages have: apart, so that what is made for each receive is little.
    pub(super) far: Option<Box<Transfer>>,
}

/// The bytes of a message that are not elsewhere.
#[derive(Debug)]
pub(super) enum Bytes {
    /// Of one that needs no buffer.
    Short(Short),
    Buffer(Vec<u8>),
}

impl Bytes {
    /// The buffer.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        if let Self::Short(_) = self {
            *self = Self::Buffer(Vec::new());
        }
        match self {
            Self::Buffer(bytes) => bytes,
            Self::Short(_) => unreachable!("it was replaced"),
        }
    }
}

/// How a long message comes.
#[derive(Debug, Default)]
pub(super) struct Transfer {
    /// Bytes of it that have come.
    pub(super) arrived: u64,
    /// Whether the length is known and the end has been reported.
    pub(super) ended: bool,
    pub(super) staged: Option<Block>,
    pub(super) reading: Option<Reading>,
    /// What the message is called at its sender, and where it lies, while it may be read there.
    pub(super) lent: Option<(Key, Lent)>,
    /// Memory that it is read into while no call waits for it that has some, and what makes this.
    pub(super) place: Option<Box<dyn Place>>,
    pub(super) make: Option<MakePlace>,
}

impl Receive {
    /// How its message comes.
    pub(super) fn transfer(&mut self) -> &mut Transfer {
        self.far.get_or_insert_default()
    }

    /// Of how its message comes, where it is long.
    #[inline]
    fn far<R>(&self, of: impl FnOnce(&Transfer) -> Option<R>) -> Option<R> {
        self.far.as_deref().and_then(of)
    }

    pub(super) fn arrived(&self) -> u64 {
        self.far(|far| Some(far.arrived)).unwrap_or(0)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.ended)
    }

    pub(super) fn staged(&self) -> Option<Block> {
        self.far(|far| far.staged)
    }

    pub(super) fn reading(&self) -> Option<Reading> {
        self.far(|far| far.reading)
    }

    pub(super) fn lent(&self) -> Option<(Key, Lent)> {
        self.far(|far| far.lent)
    }

    pub(super) fn has_place(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.place.is_some())
    }

    /// The memory of the segment that its message was to be written to, which it has no more.
    #[inline]
    pub(super) fn take_staged(&mut self) -> Option<Block> {
        self.far.as_mut()?.staged.take()
    }

    pub(super) fn take_lent(&mut self) -> Option<(Key, Lent)> {
        self.far.as_mut()?.lent.take()
    }

    /// Takes a message's envelope, and notes why it cannot be received if so.
    #[inline]
    pub(super) fn take(&mut self, from: u32, envelope: &Envelope, len: u64) {
        let kind = envelope.kind & KIND;
        (self.from, self.tag, self.len, self.sent_kind) = (from, envelope.tag, len, kind);
        if self.failure.is_some() {
            return;
        }
        if self.kind != BYTES && self.kind != kind {
            self.failure = Some(Failure::WrongType(kind));
        } else if len > self.capacity {
            self.failure = Some(Failure::Truncated);
        }
    }

    pub(super) fn info(&self) -> MessageInfo {
        MessageInfo { from: self.from, tag: self.tag, len: self.len, kind: self.sent_kind }
    }

    pub(super) fn is_over(&self) -> bool {
        match self.stage {
            Stage::Done | Stage::Cancelled => true,
            // Its communicator was freed.
            Stage::Posted | Stage::Moving | Stage::Retiring => self.failure == Some(Failure::Freed),
        }
    }
}

/// An envelope: who sent it, with which tag, how long it is, and the type of its elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageInfo {
    pub(crate) from: u32,
    pub(crate) tag: u32,
    pub(crate) len: u64,
    pub(crate) kind: u32,
}

/// A receive that is over.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) info: MessageInfo,
    pub(crate) cancelled: bool,
    pub(crate) failure: Option<Failure>,
    /// The bytes, unless they are in the segment, or were read into memory of their own.
    pub(crate) bytes: Vec<u8>,
    pub(crate) staged: Option<Block>,
    pub(crate) place: Option<Box<dyn Place>>,
}

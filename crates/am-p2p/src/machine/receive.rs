//! A receive: what it asks for, and what has come for it.

use super::chains::Selector;
use super::control::{Envelope, KIND, Source};
use super::place::{MakePlace, Place};
use super::staging::Block;
use super::{BYTES, Failure};
use am_core::Payload;
use am_core::slab::Key;
use am_core::zerocopy::IntoBytes;
use std::any::Any;
use std::fmt;

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
pub(super) fn copy_short(short: &[u64], out: &mut [u8]) {
    if let Ok(word) = <&mut [u8; 8]>::try_from(&mut *out) {
        *word = short[0].to_ne_bytes();
    } else {
        out.copy_from_slice(&short.as_bytes()[..out.len()]);
    }
}

/// The bytes of an eager message, as they come.
pub(super) trait Arriving {
    /// Whether there are never more than [`WORD`].
    const FITS_WORD: bool;

    fn len(&self) -> usize;

    /// Stores the first bytes, as many as there is room for; those behind them may change, too.
    fn store(&self, short: &mut [u64]);

    /// Copies the first bytes, as many as both have.
    fn copy_to(&self, out: &mut [u8]);
}

impl Arriving for Payload<'_> {
    const FITS_WORD: bool = false;

    #[inline(always)]
    fn len(&self) -> usize {
        Payload::len(self)
    }

    #[inline(always)]
    fn store(&self, short: &mut [u64]) {
        Payload::copy_to(self, short.as_mut_bytes());
    }

    #[inline(always)]
    fn copy_to(&self, out: &mut [u8]) {
        Payload::copy_to(self, out);
    }
}

/// The most bytes of a message that goes as arguments.
pub(crate) const WORD: usize = 8;

/// The bytes of a message that goes as arguments: at most [`WORD`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) bits: u64,
    len: u32,
}

impl Word {
    /// As it has come; `None` if there cannot be so many bytes.
    #[inline(always)]
    pub(crate) fn new(bits: u64, len: u32) -> Option<Self> {
        (len as usize <= WORD).then_some(Self { bits, len })
    }

    /// The bytes of a message, unless they are too many.
    #[inline(always)]
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        if let Ok(all) = bytes.try_into() {
            return Some(Self { bits: u64::from_le_bytes(all), len: WORD as u32 });
        }
        let few = || bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        (bytes.len() < WORD).then(|| Self { bits: few(), len: bytes.len() as u32 })
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> u32 {
        self.len
    }
}

impl Arriving for Word {
    const FITS_WORD: bool = true;

    #[inline(always)]
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline(always)]
    fn store(&self, short: &mut [u64]) {
        short[0] = self.bits.to_le();
    }

    fn copy_to(&self, out: &mut [u8]) {
        let count = out.len().min(Arriving::len(self));
        out[..count].copy_from_slice(&self.bits.to_le_bytes()[..count]);
    }
}

/// The bytes of a short message.
#[inline(always)]
pub(super) fn short_of(payload: &Payload<'_>) -> Short {
    let mut words = [0; SHORT_MESSAGE / 8];
    Arriving::store(payload, &mut words);
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
    /// Whether it has met its message.
    pub(super) met: bool,
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

/// Whoever owns memory that a message is sent from or received to, for as long as that goes on.
pub(crate) struct Keep {
    _owner: Box<dyn Any + std::marker::Send>,
}

impl Keep {
    /// Keeps an owner until this is dropped. Allocates.
    pub(crate) fn new(owner: impl Any + std::marker::Send) -> Self {
        Self { _owner: Box::new(owner) }
    }
}

impl fmt::Debug for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keep")
    }
}

/// How a long message comes.
#[derive(Debug, Default)]
pub(super) struct Transfer {
    /// Bytes of it that have come.
    pub(super) arrived: u64,
    /// Whether the length is known and the end has been reported.
    pub(super) ended: bool,
    /// Where its sender may write it.
    pub(super) staged: Option<Block>,
    /// Where the caller has memory of the segment for it, and that memory's owner if the caller does not wait.
    pub(super) own: Option<u64>,
    pub(super) keep: Option<Keep>,
    pub(super) reading: Option<Reading>,
    /// Whether it is found out how long the message takes to be written and copied out.
    pub(super) timed: bool,
    /// What the message is called at its sender, and where it lies, while it may be read there.
    pub(super) lent: Option<(Key, Source)>,
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

    pub(super) fn lent(&self) -> Option<(Key, Source)> {
        self.far(|far| far.lent)
    }

    pub(super) fn has_place(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.place.is_some())
    }

    /// Whether its message goes to memory of the segment that its caller has.
    pub(super) fn has_own(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.own.is_some())
    }

    /// That memory, for a message of some bytes.
    pub(super) fn own(&self, len: u64) -> Option<Block> {
        self.far(|far| far.own).map(|offset| Block { offset, len })
    }

    /// The memory of the segment that its message was to be written to, which it has no more: to be given back,
    /// and not the caller's own.
    #[inline]
    pub(super) fn take_staged(&mut self) -> Option<Block> {
        let far = self.far.as_mut()?;
        far.staged.take().filter(|_| far.own.is_none())
    }

    pub(super) fn take_lent(&mut self) -> Option<(Key, Source)> {
        self.far.as_mut()?.lent.take()
    }

    /// Takes a message's envelope, and notes why it cannot be received if so.
    #[inline]
    pub(super) fn take(&mut self, from: u32, envelope: &Envelope, len: u64) {
        let kind = envelope.kind & KIND;
        (self.from, self.tag, self.len, self.sent_kind, self.met) = (from, envelope.tag, len, kind, true);
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
    /// Whether it has met a message, so that the length is known.
    pub(crate) met: bool,
    pub(crate) cancelled: bool,
    pub(crate) failure: Option<Failure>,
    /// The bytes, unless they are in the segment, or were read into memory of their own.
    pub(crate) bytes: Vec<u8>,
    pub(crate) staged: Option<Block>,
    pub(crate) place: Option<Box<dyn Place>>,
    /// Whether they are where the caller has memory of the segment for them.
    pub(crate) landed: bool,
    /// Whether it is found out how long they take to be written and copied out.
    pub(crate) timed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_go_as_a_word() {
        let all: Vec<u8> = (1..=WORD as u8 + 1).collect();
        for len in 0..=WORD {
            let word = Word::of(&all[..len]).expect("they are few");
            assert_eq!(Word::new(word.bits, len as u32), Some(word));
            let (mut out, mut short) = ([0; WORD], [0]);
            word.copy_to(&mut out);
            word.store(&mut short);
            assert_eq!((&out[..len], &short.as_bytes()[..len]), (&all[..len], &all[..len]));
        }
        assert_eq!((Word::of(&all), Word::new(0, WORD as u32 + 1)), (None, None));
    }
}

//! The receive of a blocking call while no other one is posted: it has a place of its own, so that an eager
//! message finds it without a table. Whatever is not such a message makes it a posted receive like any other.

use super::chains::{ANY, Selector};
use super::control::{Envelope, KIND};
use super::receive::{Arriving, MessageInfo, SHORT_MESSAGE, Short, copy_short};
use super::{BYTES, Failure, Machine};
use am_core::slab::Key;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none.
    #[default]
    Unused,
    /// It has met no message.
    Waiting,
    /// Its message is here.
    Arrived,
    /// It has been posted under this key.
    Posted(Key),
}

/// The receive.
#[derive(Debug, Default)]
pub(super) struct Direct {
    stage: Stage,
    context: u32,
    source: u32,
    tag: u32,
    kind: u32,
    capacity: u64,
    info: MessageInfo,
    failure: Option<Failure>,
    /// The bytes of its message if they are few, with others behind them, or else.
    short: Short,
    bytes: Vec<u8>,
}

/// What a blocking call finds when it looks at its receive.
#[derive(Debug)]
pub(crate) enum Found {
    /// No message has come.
    Nothing,
    /// A message, of which the bytes were copied out unless it failed.
    Message(MessageInfo, Option<Failure>),
    /// It is posted under this key.
    Posted(Key),
}

impl Direct {
    /// Whether it is waiting.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.stage == Stage::Waiting
    }

    /// Whether it is waiting for such a message.
    #[inline]
    pub(super) fn waits_for(&self, from: u32, envelope: &Envelope) -> bool {
        self.stage == Stage::Waiting
            && self.context == envelope.context
            && (self.source == from || self.source == ANY)
            && (self.tag == envelope.tag || self.tag == ANY)
    }

    /// Takes the eager message that it waits for.
    #[inline(always)]
    pub(super) fn fill<C: Arriving>(&mut self, from: u32, envelope: &Envelope, content: &C) {
        let (len, kind) = (content.len(), envelope.kind & KIND);
        self.info = MessageInfo { from, tag: envelope.tag, len: len as u64, kind };
        self.stage = Stage::Arrived;
        let wrong = self.kind != kind && self.kind != BYTES;
        if wrong || len as u64 > self.capacity {
            self.failure = Some(if wrong { Failure::WrongType(kind) } else { Failure::Truncated });
        } else if C::FITS_WORD || len <= SHORT_MESSAGE {
            self.failure = None;
            content.store(&mut self.short);
        } else {
            self.failure = None;
            self.bytes.resize(len, 0);
            content.copy_to(&mut self.bytes);
        }
    }
}

impl Machine {
    /// Begins the receive of a blocking call, if no other one is posted, no message waits, and there is nothing to
    /// advertise. It is looked at by [`Machine::take_direct`], and ended by that or by [`Machine::post_direct`].
    #[inline]
    pub(crate) fn begin_direct(&mut self, selector: Selector, kind: u32, capacity: u64) -> bool {
        self.end_direct();
        let posted = !self.posted.is_empty() || !self.line.is_empty();
        let over = self.endings != 0 && self.unmatchable(selector).is_some();
        let alone = !posted && self.stored.is_empty() && !over;
        if !alone || capacity > self.eager {
            return false;
        }
        let Selector { context, source, tag } = selector;
        let direct = &mut self.direct;
        (direct.stage, direct.context, direct.source, direct.tag) = (Stage::Waiting, context, source, tag);
        (direct.kind, direct.capacity) = (kind, capacity);
        #[cfg(test)]
        self.history.push(super::model::Event::Posted(DIRECT, selector));
        true
    }

    /// The blocking call is over. If it has unwound, its receive goes.
    #[inline]
    pub(crate) fn end_direct(&mut self) {
        if self.direct.stage != Stage::Unused {
            self.abandon_direct();
        }
    }

    #[cold]
    fn abandon_direct(&mut self) {
        if let Stage::Posted(key) = std::mem::take(&mut self.direct.stage) {
            self.drop_receive(key);
        }
    }

    /// Looks at the receive, which is over if its message is here; `out` has room for all that it takes.
    #[inline(always)]
    pub(crate) fn take_direct(&mut self, out: &mut [u8]) -> Found {
        let direct = &mut self.direct;
        match direct.stage {
            Stage::Arrived => {
                direct.stage = Stage::Unused;
                let (info, failure) = (direct.info, direct.failure);
                if failure.is_none() {
                    let len = info.len as usize;
                    match &mut out[..len] {
                        out if len <= SHORT_MESSAGE => copy_short(&direct.short, out),
                        out => out.copy_from_slice(&direct.bytes[..len]),
                    }
                }
                Found::Message(info, failure)
            }
            Stage::Posted(key) => {
                direct.stage = Stage::Unused;
                Found::Posted(key)
            }
            Stage::Waiting | Stage::Unused => Found::Nothing,
        }
    }

    /// Makes the receive a posted one like others, if it is still waiting.
    #[cold]
    pub(crate) fn post_direct(&mut self) {
        if self.direct.stage != Stage::Waiting {
            return;
        }
        let Direct { context, source, tag, kind, capacity, .. } = self.direct;
        let selector = Selector { context, source, tag };
        // Messages that have come meanwhile are for other receives.
        let key = self.new_receive(selector, kind, capacity);
        self.link(key, selector);
        self.direct.stage = Stage::Posted(key);
        #[cfg(test)]
        self.name_direct(key);
    }
}

/// What the history calls the latest receive that has no key yet.
#[cfg(test)]
pub(super) const DIRECT: Key = Key::from_u64(u64::MAX);

#[cfg(test)]
impl Machine {
    /// Gives the latest receive without a key one, in the history.
    pub(super) fn name_direct(&mut self, key: Key) {
        let unnamed = |event: &&mut super::model::Event| matches!(event, super::model::Event::Posted(DIRECT, _));
        if let Some(super::model::Event::Posted(name, _)) = self.history.iter_mut().rev().find(unnamed) {
            *name = key;
        }
    }
}

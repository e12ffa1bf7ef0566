//! Receives that are over, and what they have brought.

use super::Machine;
use super::chains::Selector;
use super::receive::{Bytes, Keep, MessageInfo, Receive, Stage, Taken, copy_short};
use super::staging::Block;
use am_core::slab::Key;
use am_core::zerocopy::IntoBytes;

impl Machine {
    /// Whether a receive is over.
    #[inline]
    pub(crate) fn is_received(&self, key: Key) -> bool {
        let over = || self.receives.get(self.posted_of(key)).is_none_or(Receive::is_over);
        self.is_over_in_line(key).unwrap_or_else(over)
    }

    /// Where a message is being written to, and how many bytes of it from its beginning on are there. Not where
    /// parts may come in another order, or the message is not received.
    pub(crate) fn arrived(&self, key: Key) -> Option<(Block, u64)> {
        let receive = self.receives.get(self.posted_of(key));
        let receive = receive.filter(|receive| self.ordered && receive.reading().is_none())?;
        let well = receive.stage == Stage::Moving && receive.failure.is_none();
        Some((receive.staged().filter(|_| well)?, receive.arrived()))
    }

    /// Whom a receive waits for: the rank, and whether it has met a message.
    pub(crate) fn waits_for(&self, key: Key) -> Option<(Selector, u32, bool)> {
        if self.is_over_in_line(key).is_some() {
            return self.selector_in_line(key).map(|selector| (selector, selector.source, false));
        }
        let receive = self.receives.get(self.posted_of(key))?;
        let met = matches!(receive.stage, Stage::Moving | Stage::Retiring);
        Some((receive.selector, receive.from, met))
    }

    /// Whether a receive has met no message and may still do so.
    pub(crate) fn is_unmet(&self, key: Key) -> bool {
        !self.is_received(key) && self.waits_for(key).is_some_and(|(_, _, met)| !met)
    }

    /// Copies out the message of a receive that is over and well, if the entry has its bytes; it goes.
    /// `None`, and nothing has changed, otherwise.
    #[inline(always)]
    pub(crate) fn take_copied(&mut self, key: Key, out: &mut [u8]) -> Option<MessageInfo> {
        match self.take_short(key, out) {
            None => self.take_posted(key, out),
            taken => taken,
        }
    }

    /// The same, of a receive that is not in the line.
    #[inline(never)]
    fn take_posted(&mut self, name: Key, out: &mut [u8]) -> Option<MessageInfo> {
        let key = self.posted_of(name);
        let receive = self.receives.get_mut(key)?;
        let elsewhere = receive.staged().is_some() || receive.has_place();
        if receive.stage != Stage::Done || receive.failure.is_some() || elsewhere {
            return None;
        }
        let (info, len) = (receive.info(), receive.len as usize);
        match &mut receive.bytes {
            Bytes::Short(short) => copy_short(short, out.get_mut(..len)?),
            Bytes::Buffer(bytes) => {
                out.get_mut(..len)?.copy_from_slice(bytes.get(..len)?);
                let bytes = std::mem::take(bytes);
                self.recycle(bytes);
            }
        }
        self.receives.discard(key);
        self.leave_line(name);
        Some(info)
    }

    /// What a receive that is over has brought; its entry goes. The caller gives back what it holds.
    pub(crate) fn take_received(&mut self, key: Key) -> Option<Taken> {
        if self.is_over_in_line(key).is_some() {
            return self.take_from_line(key);
        }
        let name = key;
        let key = self.posted_of(name);
        if !self.is_received(key) {
            return None;
        }
        self.leave_line(name);
        let receive = self.receives.get_mut(key).filter(|receive| receive.is_over())?;
        let info = receive.info();
        if !matches!(receive.stage, Stage::Done | Stage::Cancelled) {
            // Its sender has not been heard yet, and may write where it was told to.
            receive.wanted = false;
            let failure = receive.failure;
            return Some(Taken {
                info,
                met: receive.met,
                cancelled: false,
                failure,
                bytes: Vec::new(),
                staged: None,
                place: None,
                landed: false,
                timed: false,
            });
        }
        let mut receive = self.receives.remove(key)?;
        let (cancelled, met) = (receive.stage == Stage::Cancelled && receive.failure.is_none(), receive.met);
        let landed = receive.has_own() && receive.staged().is_some();
        let (failure, staged) = (receive.failure, receive.take_staged());
        let (place, timed) = receive.far.map_or((None, false), |far| (far.place, far.timed));
        let well = failure.is_none() && !cancelled;
        if timed && !well {
            self.note_written(None);
        }
        let bytes = match receive.bytes {
            Bytes::Buffer(bytes) => bytes,
            Bytes::Short(short) => {
                let mut bytes = self.buffer();
                bytes.extend_from_slice(&short.as_bytes()[..info.len as usize]);
                bytes
            }
        };
        Some(Taken { info, met, cancelled, failure, bytes, staged, place, landed, timed: timed && well })
    }

    /// Keeps the memory that a receive's message goes to, if it is under way, since nobody waits for it any more.
    pub(crate) fn keep_receive(&mut self, key: Key, keep: Keep) {
        if let Some(receive) = self.receives.get_mut(self.posted_of(key)) {
            receive.transfer().keep = Some(keep);
        }
        self.drop_receive(key);
    }
}

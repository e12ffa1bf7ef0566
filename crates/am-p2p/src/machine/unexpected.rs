//! Messages that nobody has asked for yet: kept, looked at, set aside, let go.

use super::Machine;
use super::chains::Selector;
use super::control::{Control, Envelope, KIND, Offer};
use super::receive::{Bytes, MessageInfo};
use super::sending::units;
use am_core::slab::Key;

/// What came before anybody asked for it.
#[derive(Debug)]
pub(super) enum Content {
    Here(Vec<u8>),
    Offered(Offer),
}

/// A message that has met no receive.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub(super) from: u32,
    pub(super) envelope: Envelope,
    pub(super) len: u64,
    pub(super) content: Content,
}

impl Machine {
    /// Keeps a message that nobody has asked for.
    pub(super) fn store(&mut self, from: u32, envelope: Envelope, len: u64, content: Content) {
        let key = self.stored.insert(Unexpected { from, envelope, len, content });
        for selector in (Selector { context: envelope.context, source: from, tag: envelope.tag }).matching() {
            self.unexpected.push(selector, key);
        }
    }

    /// Takes a message from those that can be asked for.
    pub(super) fn withdraw(&mut self, key: Key) {
        let Some(waiting) = self.stored.get(key) else { return };
        let Envelope { context, tag, .. } = waiting.envelope;
        for selector in (Selector { context, source: waiting.from, tag }).matching() {
            self.unexpected.remove(selector, key);
        }
    }

    /// A receive meets a message that was there before.
    pub(super) fn match_stored(&mut self, key: Key, waiting: Key) {
        let Some(Unexpected { from, envelope, len, content }) = self.stored.remove(waiting) else { return };
        self.counts.unexpected += 1;
        let peer = self.peer(from);
        match content {
            Content::Here(bytes) => {
                self.counts.received_by.eager += 1;
                if self.match_envelope(key, from, &envelope, len) {
                    self.receive_mut(key).bytes = Bytes::Buffer(bytes);
                } else {
                    self.recycle(bytes);
                }
                self.consume(peer, units(len));
                self.finish(key);
            }
            Content::Offered(offer) => self.start_transfer(key, peer, from, &envelope, (offer, len), false),
        }
    }

    /// The first message that a receive would get, without taking it.
    pub(crate) fn probe(&self, selector: Selector) -> Option<MessageInfo> {
        self.unexpected.first(selector).and_then(|key| self.info(key))
    }

    /// A message that was set aside, or is there.
    pub(crate) fn info(&self, key: Key) -> Option<MessageInfo> {
        let Unexpected { from, envelope, len, .. } = self.stored.get(key)?;
        Some(MessageInfo { from: *from, tag: envelope.tag, len: *len, kind: envelope.kind & KIND })
    }

    /// Sets the first message aside that a receive would get.
    pub(crate) fn set_aside(&mut self, selector: Selector) -> Option<Key> {
        let key = self.unexpected.first(selector)?;
        self.withdraw(key);
        #[cfg(test)]
        self.history.push(super::model::Event::SetAside(key, selector));
        Some(key)
    }

    /// Receives a message that was set aside. `None` if its sender was lost before it could be fetched.
    /// `own` is where the caller has memory of the segment for it.
    pub(crate) fn receive_aside(
        &mut self,
        message: Key,
        kind: u32,
        capacity: u64,
        own: Option<u64>,
    ) -> Option<Key> {
        let Unexpected { from, envelope, .. } = self.stored.get(message)?;
        let selector = Selector { context: envelope.context, source: *from, tag: envelope.tag };
        let key = self.new_receive(selector, kind, capacity);
        if own.is_some() {
            self.receive_mut(key).transfer().own = own;
        }
        self.match_stored(key, message);
        Some(key)
    }

    /// Lets a message go that was set aside.
    pub(crate) fn drop_aside(&mut self, message: Key) {
        self.discard_stored(message, false);
    }

    /// Lets a message go that can be asked for no more, since its communicator was freed or since it was set
    /// aside.
    pub(super) fn discard_stored(&mut self, message: Key, freed: bool) {
        let Some(Unexpected { from, len, content, .. }) = self.stored.remove(message) else { return };
        let peer = self.peer(from);
        match content {
            Content::Here(bytes) => {
                self.recycle(bytes);
                self.consume(peer, units(len));
            }
            Content::Offered(Offer { send, .. }) => {
                self.consume(peer, 1);
                self.queue_control(peer, Control::Refuse { send, freed });
            }
        }
    }

    pub(super) fn is_freed(&self, context: u32) -> bool {
        self.context_of.get(&context).is_some_and(|index| self.contexts[*index as usize].freed)
    }
}

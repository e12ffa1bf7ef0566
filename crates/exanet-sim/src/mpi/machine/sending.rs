//! Messages on their way out.

use super::{Action, Faulty, Machine, MpiError, Protocol, Stream};
use crate::mpi::packet::{Control, Kind, Place};
use am_core::slab::Key;

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Send {
    pub(super) stream: Stream,
    index: u32,
    source: u64,
    len: u64,
    pub(super) done: Option<Result<(), MpiError>>,
}

impl Machine {
    /// Sends a message, whose bytes are needed at once if it is eager.
    pub(crate) fn send(&mut self, stream: Stream, source: u64, len: u64, bytes: impl FnOnce() -> Vec<u8>) -> Key {
        let mut send = Send { stream, index: 0, source, len, done: None };
        if self.lost.contains(&stream.peer) {
            send.done = Some(Err(MpiError::Lost { rank: stream.peer }));
            return self.sends.insert(send);
        }
        let next = self.sent.entry(stream).or_default();
        let index = *next;
        (send.index, *next) = (index, next.wrapping_add(1));
        if len <= self.config.eager.into() {
            // Without numbers, nobody would know that this has used the advertisement up: its receiver says so.
            if self.config.protocol != Protocol::ReceiverInitiated {
                let retired = self.adverts.remove(&(stream, index)).is_some();
                self.counts.retired_by_number += u64::from(retired);
            }
            let place = Place { len, ..Place::default() };
            let control = Control { place, ..Self::about(&stream, index, Kind::Eager) };
            self.packet(stream.peer, control, bytes());
            send.done = Some(Ok(()));
            return self.sends.insert(send);
        }
        let advert = self.adverts.remove(&(stream, index)).filter(|(_, place)| len <= place.len);
        let key = self.sends.insert(send);
        if let Some((receive, place)) = advert {
            self.counts.advertised += 1;
            self.write(key, receive, place);
            return key;
        }
        self.announced.insert((stream, index), key);
        let place = Place { at: source, len, ..Place::default() };
        let control = Control { send: key, place, ..Self::about(&stream, index, Kind::Rts) };
        self.packet(stream.peer, control, Vec::new());
        key
    }

    /// Writes a message to its place.
    pub(super) fn write(&mut self, send: Key, receive: Key, place: Place) {
        let Some(&Send { stream, source, len, .. }) = self.sends.get(send) else { return };
        self.counts.writes += 1;
        self.actions.push_back(Action::Write { send, to: stream.peer, source, place, len });
        if !self.elides() {
            let place = Place { len, ..Place::default() };
            self.packet(stream.peer, Control { receive, place, ..Control::new(Kind::Fin) }, Vec::new());
        }
    }

    /// A receiver wants a message that was announced, or does not.
    pub(super) fn cleared(
        &mut self,
        from: u32,
        send: Key,
        receive: Key,
        place: Place,
        refused: bool,
    ) -> Result<(), Faulty> {
        let Some(found) = self.sends.get_mut(send) else { return Ok(()) };
        let name = (found.stream, found.index);
        if from != found.stream.peer || !refused && place.len < found.len || self.announced.remove(&name).is_none()
        {
            return Err(Faulty);
        }
        if refused {
            found.done = Some(Ok(()));
        } else {
            self.write(send, receive, place);
        }
        Ok(())
    }

    /// A receive is advertised.
    pub(super) fn advertised(&mut self, stream: Stream, index: u32, receive: Key, place: Place) {
        let next = self.sent.get(&stream).copied().unwrap_or_default();
        if index.wrapping_sub(next) as i32 >= 0 {
            self.adverts.insert((stream, index), (receive, place));
            return;
        }
        match self.announced.get(&(stream, index)).copied() {
            // The advertisement has crossed the announcement, which nobody answers. A message that is too long for
            // the receive is refused instead.
            Some(send) if self.sends.get(send).is_some_and(|send| send.len <= place.len) => {
                self.announced.remove(&(stream, index));
                self.counts.crossed += 1;
                self.write(send, receive, place);
            }
            Some(_) => {}
            None if self.config.protocol == Protocol::ReceiverInitiated => {
                self.adverts.insert((stream, index), (receive, place));
            }
            // It went eagerly.
            None => self.counts.retired_by_number += 1,
        }
    }

    /// The interface has written a message.
    pub(crate) fn written(&mut self, send: Key) {
        if let Some(send) = self.sends.get_mut(send) {
            send.done = Some(Ok(()));
        }
    }

    /// The receiver has read a message.
    pub(super) fn was_read(&mut self, from: u32, send: Key) {
        let Some(found) = self.sends.get_mut(send).filter(|send| send.stream.peer == from) else { return };
        found.done = Some(Ok(()));
        let name = (found.stream, found.index);
        self.announced.remove(&name);
    }
}

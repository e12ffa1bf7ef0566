//! A reserved request whose payload is written to a buffer of the conduit.

use am_core::transport::{Buffer, PayloadWriter, RequestHeader, Slot, Transport};
use am_core::{Peer, Words};

/// Buffers of frames and replies that go round.
#[derive(Clone, Debug, Default)]
pub struct SpareBuffers(Vec<Vec<u8>>);

impl SpareBuffers {
    /// A buffer of `len` bytes, all zero. Allocates if there is none, or the last one that came back was never as
    /// large.
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.0.pop().unwrap_or_default();
        buffer.clear();
        buffer.resize(len, 0);
        buffer
    }

    /// Keeps a buffer for the next.
    pub fn give(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() != 0 {
            self.0.push(buffer);
        }
    }
}

/// A transport whose reserved Medium requests are staged in buffers that go round. Called by [`StagedSlot`] alone.
pub trait StagedRequests: Transport {
    /// Sends a request that has its room. A peer that has gone meanwhile does not get what was accepted.
    fn post(&mut self, to: Peer, header: RequestHeader, room: Self::Room, args: &Words, payload: &[u8]);

    /// Gives back the room of a request that is not sent.
    fn withdraw(&mut self, to: Peer, room: Self::Room);

    /// The buffers that are free.
    fn spare(&mut self) -> &mut SpareBuffers;
}

/// A reserved Medium request. Dropped without a commit it gives its room back.
#[derive(Debug)]
pub struct StagedSlot<'t, T: StagedRequests> {
    transport: &'t mut T,
    to: Peer,
    header: RequestHeader,
    args: Words,
    payload: Vec<u8>,
    /// What it took; gone once it is sent.
    room: Option<T::Room>,
}

impl<'t, T: StagedRequests> StagedSlot<'t, T> {
    /// A request of `len` bytes, all zero, that has its room. Allocates if no spare buffer is as large.
    pub fn new(
        transport: &'t mut T,
        to: Peer,
        header: RequestHeader,
        args: &Words,
        len: usize,
        room: T::Room,
    ) -> Self {
        let payload = transport.spare().take(len);
        Self { transport, to, header, args: *args, payload, room: Some(room) }
    }
}

impl<T: StagedRequests> PayloadWriter for StagedSlot<'_, T> {
    fn len(&self) -> usize {
        self.payload.len()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        Buffer(&mut self.payload).write(at, bytes);
    }
}

impl<T: StagedRequests> Slot for StagedSlot<'_, T> {
    fn commit(mut self) {
        if let Some(room) = self.room.take() {
            self.transport.post(self.to, self.header, room, &self.args, &self.payload);
        }
    }
}

impl<T: StagedRequests> Drop for StagedSlot<'_, T> {
    fn drop(&mut self) {
        if let Some(room) = self.room.take() {
            self.transport.withdraw(self.to, room);
        }
        self.transport.spare().give(std::mem::take(&mut self.payload));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_clean() {
        let mut spare = SpareBuffers::default();
        let mut buffer = spare.take(4);
        buffer.copy_from_slice(b"abcd");
        let place = buffer.as_ptr();
        spare.give(buffer);
        spare.give(Vec::new());
        let again = spare.take(3);
        assert_eq!((again.as_ptr(), again.as_slice()), (place, [0; 3].as_slice()));
        assert!(spare.take(0).is_empty());
    }
}

//! Messages under way from memory of the segment and into it, which they own.

use super::{Bytes, SegmentMemory};
use crate::communicator::{Communicator, Status};
use crate::error::MessageError;
use crate::kind::ElementType;
use crate::layer::{DroppedHandle, Messages};
use crate::machine::{ANY, Keep, Selector};
use crate::request::{Pending, SendRequest, check, over, sealed, serve_for};
use am_core::slab::Key;
use am_core::{Endpoint, HasLayer, Rank, Transport};
use std::fmt;

/// A message that is being sent from memory of the segment. It owns the memory: dropped, the message goes on, and
/// the memory with it until that is over.
#[must_use = "whether a message was sent is known by waiting for it"]
pub struct SegmentSend<A: Send + 'static> {
    pub(super) request: SendRequest,
    pub(super) memory: Option<A>,
}

impl<A: Send + 'static> fmt::Debug for SegmentSend<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SegmentSend").field(&self.request).finish()
    }
}

impl<A: Send + 'static> Drop for SegmentSend<A> {
    fn drop(&mut self) {
        if let (Some((key, dropped)), Some(memory)) = (self.request.under_way.take(), self.memory.take()) {
            dropped.push(DroppedHandle::Placed(key, Keep::new(memory)));
        }
    }
}

impl<A: Send + 'static> sealed::Sealed for SegmentSend<A> {
    fn over(&self, messages: &Messages) -> bool {
        self.request.over(messages)
    }

    fn is_unmet(&self, _: &Messages) -> bool {
        false
    }

    fn layer(&self) -> u64 {
        self.request.layer()
    }

    fn peer(&self) -> Option<Rank> {
        self.request.peer()
    }

    fn communicator(&self) -> Option<&Communicator> {
        None
    }
}

impl<A: Send + 'static> Pending for SegmentSend<A> {}

impl<A: Send + 'static> SegmentSend<A> {
    /// Waits until the message has been sent, as [`SendRequest::wait`] does; the memory. Blocks.
    ///
    /// # Errors
    /// As [`SendRequest::wait`]. The memory goes then, once the message is over.
    pub fn wait<T: Transport, S: HasLayer<Messages>>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<A, MessageError> {
        self.request.wait_sent(endpoint)?;
        Ok(self.take())
    }

    /// Serves what has arrived; what the message has come to, or the request if it is still under way. Does not
    /// block.
    ///
    /// # Errors
    /// The request, while the message is under way.
    pub fn test<T: Transport, S: HasLayer<Messages>>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Result<A, MessageError>, Self> {
        match self.request.test_sent(endpoint) {
            None => Err(self),
            Some(sent) => Ok(sent.map(|()| self.take())),
        }
    }

    fn take(&mut self) -> A {
        self.memory.take().expect("a request has its memory until it is over")
    }
}

/// A message that is to be received to memory of the segment. It owns the memory: dropped, the receive is
/// cancelled, or its message let go, and the memory goes once nothing is written to it any more.
#[must_use = "a message is received by waiting for it"]
pub struct SegmentReceive<A: Send + 'static> {
    key: Option<Key>,
    communicator: Communicator,
    selector: Selector,
    pub(super) bytes: Bytes,
    memory: Option<A>,
}

impl<A: Send + 'static> fmt::Debug for SegmentReceive<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SegmentReceive").field(&self.selector).finish()
    }
}

impl<A: Send + 'static> Drop for SegmentReceive<A> {
    fn drop(&mut self) {
        if let (Some(key), Some(memory)) = (self.key.take(), self.memory.take()) {
            let dropped = &self.communicator.shared.dropped;
            dropped.push(DroppedHandle::Landing(key, Keep::new(memory)));
        }
    }
}

impl<A: Send + 'static> sealed::Sealed for SegmentReceive<A> {
    fn over(&self, messages: &Messages) -> bool {
        self.key.is_none_or(|key| messages.machine.is_received(key))
    }

    fn is_unmet(&self, messages: &Messages) -> bool {
        self.key.is_some_and(|key| messages.machine.is_unmet(key))
    }

    fn layer(&self) -> u64 {
        self.communicator.shared.layer
    }

    fn peer(&self) -> Option<Rank> {
        (self.selector.source != ANY).then_some(Rank(self.selector.source))
    }

    fn communicator(&self) -> Option<&Communicator> {
        Some(&self.communicator)
    }
}

impl<A: Send + 'static> Pending for SegmentReceive<A> {}

impl<A: SegmentMemory + Send + 'static> SegmentReceive<A> {
    pub(crate) fn made(communicator: Communicator, selector: Selector, key: Key, bytes: Bytes, memory: A) -> Self {
        Self { key: Some(key), communicator, selector, bytes, memory: Some(memory) }
    }

    pub(super) fn key(&self) -> Key {
        self.key.expect("a request has its receive until it is waited for")
    }

    /// Waits for the message; the memory, which has it, and what is known of it. Blocks.
    ///
    /// # Errors
    /// As [`ReceiveRequest::wait`](crate::ReceiveRequest::wait). The memory goes then, once nothing is written to
    /// it any more.
    pub fn wait<T: Transport, S: HasLayer<Messages>>(
        self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(A, Status), MessageError> {
        self.wait_from(endpoint, 0)
    }

    /// The same, of a message of which the first bytes have been copied.
    pub(super) fn wait_from<T: Transport, S: HasLayer<Messages>>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
        mut read: u64,
    ) -> Result<(A, Status), MessageError> {
        check(endpoint, self.communicator.shared.layer)?;
        let (key, bytes, expected) = (self.key(), self.bytes, ElementType::of::<A::Value>());
        let communicator = &self.communicator;
        let taken =
            communicator.finish_receive(endpoint, self.selector, key, (expected, bytes.len), |endpoint| {
                Communicator::copy_segment(endpoint, key, bytes, &mut read)
            })?;
        self.key = None;
        if !taken.landed && read < taken.info.len {
            // It came with its envelope, or for other receives' sake through memory of its own.
            let here = taken.place.as_ref().map_or(&taken.bytes[..], |place| place.bytes());
            endpoint.segment().write(bytes.at, here).expect("it was checked");
        }
        let status = communicator.status(taken.info);
        communicator.give_back(endpoint, taken);
        let memory = self.memory.take().expect("a request has its memory until it is over");
        Ok((memory, status))
    }

    /// Serves what has arrived; what the receive has come to, or the request if it is still under way. Does not
    /// block.
    ///
    /// # Errors
    /// The request, while the message is under way.
    pub fn test<T: Transport, S: HasLayer<Messages>>(
        self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Result<(A, Status), MessageError>, Self> {
        if let Err(error) = check(endpoint, self.communicator.shared.layer) {
            return Ok(Err(error));
        }
        serve_for(endpoint, &[&self]);
        if over(endpoint, &self, true) { Ok(self.wait(endpoint)) } else { Err(self) }
    }

    /// Cancels the receive if it has met no message, and gives back the memory; the request if it has, which is
    /// waited for then. Blocks as [`ReceiveRequest::cancel`](crate::ReceiveRequest::cancel) does.
    ///
    /// # Errors
    /// As [`ReceiveRequest::cancel`](crate::ReceiveRequest::cancel).
    pub fn cancel<T: Transport, S: HasLayer<Messages>>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Result<A, Self>, MessageError> {
        check(endpoint, self.communicator.shared.layer)?;
        let key = self.key();
        if !crate::request::cancel(endpoint, key, self.selector)? {
            return Ok(Err(self));
        }
        self.key = None;
        Ok(Ok(self.memory.take().expect("a request has its memory until it is over")))
    }
}

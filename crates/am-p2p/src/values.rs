//! Values of any type that serde knows, of any size.

use crate::communicator::{Communicator, Source, Status, Tag};
use crate::error::{AskedTag, MessageError};
use crate::kind::ElementType;
use crate::layer::Messages;
use crate::machine::Mode;
use crate::messages::Outgoing;
use crate::probe::Message;
use crate::request::{Pending, ReceiveRequest, SendRequest, sealed};
use am_core::{Endpoint, HasLayer, Rank, Transport};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;

/// A value that is to be received. Dropped, the receive is cancelled, or its message let go.
#[must_use = "a value is received by waiting for it"]
pub struct ValueReceive<V> {
    request: ReceiveRequest<u8>,
    of: PhantomData<fn() -> V>,
}

impl<V> fmt::Debug for ValueReceive<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ValueReceive").field(&self.request).finish()
    }
}

impl<V> sealed::Sealed for ValueReceive<V> {
    fn over(&self, messages: &Messages) -> bool {
        self.request.over(messages)
    }

    fn is_unmet(&self, messages: &Messages) -> bool {
        self.request.is_unmet(messages)
    }

    fn layer(&self) -> u64 {
        self.request.layer()
    }

    fn peer(&self) -> Option<Rank> {
        self.request.peer()
    }

    fn communicator(&self) -> Option<&Communicator> {
        self.request.communicator()
    }
}

impl<V> Pending for ValueReceive<V> {}

impl<V: DeserializeOwned> ValueReceive<V> {
    fn new(request: ReceiveRequest<u8>) -> Self {
        Self { request, of: PhantomData }
    }

    /// Waits for the value. Blocks; allocates.
    ///
    /// # Errors
    /// As [`Communicator::receive_value`]; [`MessageError::Cancelled`]. After a time-out the receive is cancelled.
    pub fn wait<T: Transport, S: HasLayer<Messages>>(
        self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(V, Status), MessageError> {
        let communicator = self.request.handle().clone();
        let (bytes, status) = self.request.wait(endpoint)?;
        communicator.value(&bytes, status)
    }

    /// Serves what has arrived; what the receive has come to, or the request if it is still under way. Does not
    /// block.
    ///
    /// # Errors
    /// The request, while the message is under way.
    pub fn test<T: Transport, S: HasLayer<Messages>>(
        self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Result<(V, Status), MessageError>, Self> {
        let communicator = self.request.handle().clone();
        match self.request.test(endpoint) {
            Ok(received) => Ok(received.and_then(|(bytes, status)| communicator.value(&bytes, status))),
            Err(request) => Err(Self::new(request)),
        }
    }

    /// Cancels the receive as [`ReceiveRequest::cancel`] does: gives back the request if it has met a message.
    ///
    /// # Errors
    /// As [`ReceiveRequest::cancel`].
    pub fn cancel<T: Transport, S: HasLayer<Messages>>(
        self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Option<Self>, MessageError> {
        Ok(self.request.cancel(endpoint)?.map(Self::new))
    }
}

impl Message {
    /// Receives the message's value. Blocks while its bytes come; allocates.
    ///
    /// # Errors
    /// As [`Communicator::receive_value`].
    pub fn receive_value<T: Transport, S: HasLayer<Messages>, V: DeserializeOwned>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(V, Status), MessageError> {
        let kind = ElementType::serialized();
        let (key, selector) = self.begin(endpoint, kind, u64::MAX, None)?;
        let request = ReceiveRequest::of_kind(self.communicator().clone(), selector, key, (kind, u64::MAX));
        ValueReceive::new(request).wait(endpoint)
    }
}

impl Communicator {
    fn serialized<T: Transport, S: HasLayer<Messages>, V: Serialize + ?Sized>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        value: &V,
    ) -> Result<(Outgoing, Vec<u8>), MessageError> {
        let outgoing = self.outgoing(endpoint, (to, tag), ElementType::serialized(), Mode::Standard)?;
        let (rank, tag) = (outgoing.to, AskedTag(Some(tag)));
        let bytes = postcard::to_stdvec(value).map_err(|source| MessageError::Serialize { rank, tag, source })?;
        Ok((outgoing, bytes))
    }

    /// The value of bytes that have come.
    fn value<V: DeserializeOwned>(&self, bytes: &[u8], status: Status) -> Result<(V, Status), MessageError> {
        let (rank, tag, len) =
            (self.member(status.source_rank(), status.tag())?, AskedTag(Some(status.tag())), status.bytes());
        let value = postcard::take_from_bytes(bytes);
        let (value, rest) = value.map_err(|source| MessageError::Value { rank, tag, bytes: len, source })?;
        if !rest.is_empty() {
            return Err(MessageError::LongerValue { rank, tag, bytes: len, used: len - rest.len() as u64 });
        }
        Ok((value, status))
    }

    /// Sends a value. Blocks as [`send`](Self::send) does; allocates.
    ///
    /// # Errors
    /// As [`send`](Self::send); a value that cannot be turned into bytes.
    pub fn send_value<T: Transport, S: HasLayer<Messages>, V: Serialize + ?Sized>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        value: &V,
    ) -> Result<(), MessageError> {
        let (outgoing, bytes) = self.serialized(endpoint, to, tag, value)?;
        Self::send_bytes(endpoint, outgoing, &bytes)
    }

    /// Begins to send a value. Does not block; allocates.
    ///
    /// # Errors
    /// As [`immediate_send`](Self::immediate_send); a value that cannot be turned into bytes.
    pub fn immediate_send_value<T: Transport, S: HasLayer<Messages>, V: Serialize + ?Sized>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        value: &V,
    ) -> Result<SendRequest, MessageError> {
        let (outgoing, bytes) = self.serialized(endpoint, to, tag, value)?;
        let begun = Self::begin(endpoint, outgoing, &bytes, false)?;
        Ok(SendRequest::new(endpoint, begun, outgoing, bytes.len() as u64))
    }

    /// Receives a value that [`send_value`](Self::send_value) has sent. Blocks; allocates.
    ///
    /// # Errors
    /// As [`receive_into`](Self::receive_into); [`MessageError::Value`] for bytes that are no value of the type,
    /// and [`MessageError::LongerValue`] for more bytes than one takes. A message does not tell its value's type:
    /// one of another type whose bytes are those of a value of this type is taken for that.
    pub fn receive_value<T: Transport, S: HasLayer<Messages>, V: DeserializeOwned>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<(V, Status), MessageError> {
        self.immediate_receive_value(endpoint, source, tag)?.wait(endpoint)
    }

    /// Begins to receive a value. Does not block; allocates.
    ///
    /// # Errors
    /// As [`immediate_receive`](Self::immediate_receive).
    pub fn immediate_receive_value<T: Transport, S: HasLayer<Messages>, V: DeserializeOwned>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<ValueReceive<V>, MessageError> {
        let (kind, selector) = (ElementType::serialized(), self.selector(source.into(), tag.into())?);
        let key = self.post(endpoint, selector, kind, u64::MAX)?;
        Ok(ValueReceive::new(ReceiveRequest::of_kind(self.clone(), selector, key, (kind, u64::MAX))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::{ANY_SOURCE, ANY_TAG};
    use crate::request::{wait_all, wait_any};
    use crate::tests::everywhere;

    fn text(salt: u32, len: u32) -> Vec<String> {
        (0..len).map(|number| format!("{}", number * salt)).collect()
    }

    /// Values short and long are under way in both directions at once, and waited for with others.
    #[test]
    fn requests_bring_values() {
        everywhere(2, |endpoint, world| {
            let (me, other) = (world.rank(), 1 - world.rank());
            let receives = [1, 2].map(|tag| {
                world.immediate_receive_value::<_, _, Vec<String>>(endpoint, other, tag).expect("it is a member")
            });
            let never = world.immediate_receive_value::<_, _, u8>(endpoint, ANY_SOURCE, 9).unwrap();
            let mut sends = Vec::new();
            // The second one is longer than what goes eagerly.
            for (tag, len) in [(2, 5000), (1, 3)] {
                sends.push(world.immediate_send_value(endpoint, other, tag, &text(me + 1, len)).unwrap());
            }
            let pending: Vec<&dyn Pending> = receives.iter().map(|receive| receive as &dyn Pending).collect();
            assert!(wait_any(endpoint, &pending).unwrap().is_some());
            wait_all(endpoint, &pending).unwrap();
            let [short, long] = receives;
            assert_eq!(short.test(endpoint).expect("it is over").unwrap().0, text(other + 1, 3));
            let (value, status) = long.wait(endpoint).unwrap();
            assert_eq!((value, status.tag(), status.source_rank()), (text(other + 1, 5000), 2, other));
            let never = never.test(endpoint).expect_err("nothing was sent");
            assert!(never.cancel(endpoint).unwrap().is_none());
            sends.into_iter().for_each(|send| send.wait(endpoint).unwrap());
            // One that is not of the type, and one that was set aside.
            let sent = world.immediate_send_value(endpoint, other, 3, "x").unwrap();
            let error = world.immediate_receive_value::<_, _, u64>(endpoint, other, 3).unwrap().wait(endpoint);
            assert!(matches!(error, Err(MessageError::LongerValue { bytes: 2, used: 1, .. })), "{error:?}");
            sent.wait(endpoint).unwrap();
            let send = world.immediate_send_value(endpoint, other, 4, &text(me + 1, 4000)).unwrap();
            let message = world.matched_probe(endpoint, ANY_SOURCE, ANY_TAG).unwrap();
            let (value, status) = message.receive_value::<_, _, Vec<String>>(endpoint).unwrap();
            assert_eq!((value, status.tag()), (text(other + 1, 4000), 4));
            send.wait(endpoint).unwrap();
            // Values are no slices, and slices no values.
            let sent = world.immediate_send(endpoint, other, 5, &[1u8]).unwrap();
            let error = world.immediate_receive_value::<_, _, u8>(endpoint, other, 5).unwrap().wait(endpoint);
            assert!(matches!(error, Err(MessageError::WrongType { .. })), "{error:?}");
            sent.wait(endpoint).unwrap();
        });
    }
}

//! Values of any type that serde knows, of any size.

use crate::communicator::{Communicator, Source, Status, Tag};
use crate::error::{AskedTag, MessageError};
use crate::kind::ElementType;
use crate::layer::Messages;
use crate::machine::Mode;
use am_core::{Endpoint, HasLayer, Transport};
use serde::Serialize;
use serde::de::DeserializeOwned;

impl Communicator {
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
        let outgoing = self.outgoing(endpoint, (to, tag), ElementType::serialized(), Mode::Standard)?;
        let (rank, told) = (outgoing.to, AskedTag(Some(tag)));
        let bytes = postcard::to_stdvec(value);
        let bytes = bytes.map_err(|source| MessageError::Serialize { rank, tag: told, source })?;
        Self::send_bytes(endpoint, outgoing, &bytes)
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
        let (kind, selector) = (ElementType::serialized(), self.selector(source.into(), tag.into())?);
        let key = self.post(endpoint, selector, kind, u64::MAX)?;
        let received = self.finish_values::<_, _, u8>(endpoint, selector, key, (kind, u64::MAX));
        let (bytes, status) =
            received.inspect_err(|_| endpoint.layer_mut::<Messages>().machine.drop_receive(key))?;
        let (rank, tag, len) =
            (self.member(status.source_rank(), status.tag())?, AskedTag(Some(status.tag())), status.bytes());
        let value = postcard::take_from_bytes(&bytes);
        let (value, rest) = value.map_err(|source| MessageError::Value { rank, tag, bytes: len, source })?;
        if !rest.is_empty() {
            return Err(MessageError::LongerValue { rank, tag, bytes: len, used: len - rest.len() as u64 });
        }
        Ok((value, status))
    }
}

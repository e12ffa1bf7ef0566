//! Persistent requests: messages that are sent or received over and over.

use crate::communicator::{Communicator, Source, Status, Tag};
use crate::error::MessageError;
use crate::request::{ReceiveRequest, SendRequest};
use am_core::{Endpoint, HasLayer, Transport};
use am_pgas::pointer::Element;

/// A message that is sent over and over. It owns its values, which can be changed between two sends.
#[derive(Debug)]
pub struct PersistentSend<V> {
    communicator: Communicator,
    to: u32,
    tag: i32,
    /// What is sent.
    pub values: Vec<V>,
    request: Option<SendRequest>,
}

/// A message that is received over and over.
#[derive(Debug)]
pub struct PersistentReceive<V> {
    communicator: Communicator,
    source: Source,
    tag: Tag,
    /// What was received last.
    pub values: Vec<V>,
    request: Option<ReceiveRequest<V>>,
}

impl Communicator {
    /// A message for a member that [`PersistentSend::start`] sends.
    ///
    /// # Errors
    /// A member or tag that there is not.
    pub fn send_init<V: Element>(
        &self,
        to: u32,
        tag: i32,
        values: Vec<V>,
    ) -> Result<PersistentSend<V>, MessageError> {
        self.member(to)?;
        Self::tag(tag)?;
        Ok(PersistentSend { communicator: self.clone(), to, tag, values, request: None })
    }

    /// A message of at most as many values as given that [`PersistentReceive::start`] begins to receive.
    ///
    /// # Errors
    /// A member or tag that there is not.
    pub fn receive_init<V: Element>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        values: Vec<V>,
    ) -> Result<PersistentReceive<V>, MessageError> {
        let (source, tag) = (source.into(), tag.into());
        self.selector(source, tag)?;
        Ok(PersistentReceive { communicator: self.clone(), source, tag, values, request: None })
    }
}

impl<V: Element> PersistentSend<V> {
    /// Begins to send the values, after the send before is over. Blocks only for that.
    ///
    /// # Errors
    /// As [`Communicator::immediate_send`], and [`SendRequest::wait`] of the send before.
    pub fn start<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), MessageError> {
        self.wait(endpoint)?;
        self.request = Some(self.communicator.immediate_send(endpoint, self.to, self.tag, &self.values)?);
        Ok(())
    }

    /// Waits until the values have been sent that were last, if any were. Blocks.
    ///
    /// # Errors
    /// As [`SendRequest::wait`].
    pub fn wait<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), MessageError> {
        self.request.take().map_or(Ok(()), |request| request.wait(endpoint))
    }
}

impl<V: Element> PersistentReceive<V> {
    /// Begins to receive; nothing if that has begun.
    ///
    /// # Errors
    /// As [`Communicator::immediate_receive`].
    pub fn start<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), MessageError> {
        if self.request.is_none() {
            let most = self.values.len();
            self.request = Some(self.communicator.immediate_receive(endpoint, self.source, self.tag, most)?);
        }
        Ok(())
    }

    /// Waits for the message that was begun to be received; `None` if none was. Blocks; allocates as
    /// [`ReceiveRequest::wait_into`] does.
    ///
    /// # Errors
    /// As [`ReceiveRequest::wait_into`].
    pub fn wait<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Option<Status>, MessageError> {
        let Some(request) = self.request.take() else { return Ok(None) };
        request.wait_into(endpoint, &mut self.values).map(Some)
    }
}

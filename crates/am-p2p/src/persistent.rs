//! Persistent requests: messages that are sent or received over and over.

use crate::communicator::{Communicator, Source, Status, Tag};
use crate::error::MessageError;
use crate::request::{Pending, ReceiveRequest, SendRequest, test_all};
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

    /// Whether the values have been sent that were last. Does not block.
    ///
    /// # Errors
    /// As [`SendRequest::wait`].
    pub fn test<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<bool, MessageError> {
        let Some(request) = self.request.take() else { return Ok(true) };
        match request.test(endpoint) {
            Ok(sent) => sent.map(|()| true),
            Err(again) => {
                self.request = Some(again);
                Ok(false)
            }
        }
    }

    /// The send that was begun, for [`wait_any`](crate::request::wait_any) and the like.
    pub fn request(&self) -> Option<&dyn Pending> {
        self.request.as_ref().map(|request| request as &dyn Pending)
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
    /// As [`ReceiveRequest::wait_into`]; the receive is over, also after a time-out.
    pub fn wait<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Option<Status>, MessageError> {
        let Some(request) = self.request.take() else { return Ok(None) };
        request.wait_into(endpoint, &mut self.values).map(Some)
    }

    /// What has come since the receive was begun; `None` if nothing has, or none was begun. Does not block.
    ///
    /// # Errors
    /// As [`ReceiveRequest::wait_into`].
    pub fn test<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Option<Status>, MessageError> {
        let Some(request) = &self.request else { return Ok(None) };
        if test_all(endpoint, &[request])? { self.wait(endpoint) } else { Ok(None) }
    }

    /// Cancels the receive that was begun, if it has met no message: whether it is cancelled. If it is not, it is
    /// to be waited for. Blocks as [`ReceiveRequest::cancel`] does.
    ///
    /// # Errors
    /// As [`ReceiveRequest::cancel`].
    pub fn cancel<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<bool, MessageError> {
        let Some(request) = self.request.take() else { return Ok(true) };
        self.request = request.cancel(endpoint)?;
        Ok(self.request.is_none())
    }

    /// The receive that was begun, for [`wait_any`](crate::request::wait_any) and the like.
    pub fn request(&self) -> Option<&dyn Pending> {
        self.request.as_ref().map(|request| request as &dyn Pending)
    }
}

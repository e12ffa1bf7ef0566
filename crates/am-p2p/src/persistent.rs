//! Persistent requests: messages that are sent or received over and over.

use crate::communicator::{Communicator, Source, Status, Tag};
use crate::error::MessageError;
use crate::request::{Pending, ReceiveRequest, SendRequest, test_all};
use crate::segment::{SegmentMemory, SegmentReceive, SegmentSend, place};
use am_core::{Endpoint, HasLayer, Transport};
use am_pgas::pointer::Element;
use std::sync::Arc;

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
        self.member(to, tag)?;
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

/// A message that is sent over and over from memory of the segment.
#[derive(Debug)]
pub struct PersistentSegmentSend<A: Send + Sync + 'static> {
    communicator: Communicator,
    to: u32,
    tag: i32,
    memory: Arc<A>,
    request: Option<SegmentSend<Arc<A>>>,
}

/// A message that is received over and over to memory of the segment.
#[derive(Debug)]
pub struct PersistentSegmentReceive<A: Send + Sync + 'static> {
    communicator: Communicator,
    source: Source,
    tag: Tag,
    memory: Arc<A>,
    request: Option<SegmentReceive<Arc<A>>>,
}

impl Communicator {
    /// A message for a member that [`PersistentSegmentSend::start`] sends from memory of this rank's segment.
    /// Allocates.
    ///
    /// # Errors
    /// A member or tag that there is not; memory that is not in this rank's segment.
    pub fn send_segment_init<T: Transport, S, A: SegmentMemory + Send + Sync + 'static>(
        &self,
        endpoint: &Endpoint<T, S>,
        to: u32,
        tag: i32,
        memory: A,
    ) -> Result<PersistentSegmentSend<A>, MessageError> {
        self.member(to, tag)?;
        Self::tag(tag)?;
        place(endpoint, &memory)?;
        Ok(PersistentSegmentSend { communicator: self.clone(), to, tag, memory: Arc::new(memory), request: None })
    }

    /// A message that [`PersistentSegmentReceive::start`] begins to receive to memory of this rank's segment.
    /// Allocates.
    ///
    /// # Errors
    /// A member or tag that there is not; memory that is not in this rank's segment.
    pub fn receive_segment_init<T: Transport, S, A: SegmentMemory + Send + Sync + 'static>(
        &self,
        endpoint: &Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        memory: A,
    ) -> Result<PersistentSegmentReceive<A>, MessageError> {
        let (source, tag) = (source.into(), tag.into());
        self.selector(source, tag)?;
        place(endpoint, &memory)?;
        let (communicator, memory) = (self.clone(), Arc::new(memory));
        Ok(PersistentSegmentReceive { communicator, source, tag, memory, request: None })
    }
}

impl<A: SegmentMemory + Send + Sync + 'static> PersistentSegmentSend<A> {
    /// The memory, whose values are to stay as they are between [`start`](Self::start) and the end of the message.
    pub fn memory(&self) -> &A {
        &self.memory
    }

    /// Sends the values as they are now, after waiting for those that were sent before.
    ///
    /// # Errors
    /// As [`Communicator::immediate_send_segment`], and [`SegmentSend::wait`] of the send before.
    pub fn start<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), MessageError> {
        self.wait(endpoint)?;
        let memory = Arc::clone(&self.memory);
        self.request = Some(self.communicator.immediate_send_segment(endpoint, self.to, self.tag, memory)?);
        Ok(())
    }

    /// Waits until the values have been sent that were last, if any were. Blocks.
    ///
    /// # Errors
    /// As [`SegmentSend::wait`].
    pub fn wait<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), MessageError> {
        self.request.take().map_or(Ok(()), |request| request.wait(endpoint).map(drop))
    }

    /// Whether the values have been sent that were last. Does not block.
    ///
    /// # Errors
    /// As [`SegmentSend::wait`].
    pub fn test<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<bool, MessageError> {
        let Some(request) = self.request.take() else { return Ok(true) };
        match request.test(endpoint) {
            Ok(sent) => sent.map(|_| true),
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

impl<A: SegmentMemory + Send + Sync + 'static> PersistentSegmentReceive<A> {
    /// The memory, which changes between [`start`](Self::start) and the end of the message.
    pub fn memory(&self) -> &A {
        &self.memory
    }

    /// Begins to receive; nothing if that has begun.
    ///
    /// # Errors
    /// As [`Communicator::immediate_receive_segment`]; [`MessageError::Landing`] while the message of a wait that
    /// failed may still be written to the memory.
    pub fn start<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), MessageError> {
        if self.request.is_none() {
            endpoint.layer_mut::<crate::Messages>().process_dropped();
            if Arc::strong_count(&self.memory) > 1 {
                return Err(MessageError::landing(self.tag));
            }
            let memory = Arc::clone(&self.memory);
            let receive = self.communicator.immediate_receive_segment(endpoint, self.source, self.tag, memory)?;
            self.request = Some(receive);
        }
        Ok(())
    }

    /// Waits for the message that was begun to be received; `None` if none was. Blocks.
    ///
    /// # Errors
    /// As [`SegmentReceive::wait`]; the receive is over, also after a time-out. A message that was under way then
    /// may still be written to the memory, and [`start`](Self::start) fails until it is over.
    pub fn wait<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Option<Status>, MessageError> {
        let Some(request) = self.request.take() else { return Ok(None) };
        request.wait(endpoint).map(|(_, status)| Some(status))
    }

    /// What has come since the receive was begun; `None` if nothing has, or none was begun. Does not block.
    ///
    /// # Errors
    /// As [`SegmentReceive::wait`].
    pub fn test<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Option<Status>, MessageError> {
        let Some(request) = self.request.take() else { return Ok(None) };
        match request.test(endpoint) {
            Ok(received) => received.map(|(_, status)| Some(status)),
            Err(again) => {
                self.request = Some(again);
                Ok(None)
            }
        }
    }

    /// Cancels the receive that was begun, if it has met no message: whether it is cancelled. If it is not, it is
    /// to be waited for. Blocks as [`SegmentReceive::cancel`] does.
    ///
    /// # Errors
    /// As [`SegmentReceive::cancel`].
    pub fn cancel<T: Transport, S: HasLayer<crate::Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<bool, MessageError> {
        let Some(request) = self.request.take() else { return Ok(true) };
        self.request = request.cancel(endpoint)?.err();
        Ok(self.request.is_none())
    }

    /// The receive that was begun, for [`wait_any`](crate::request::wait_any) and the like.
    pub fn request(&self) -> Option<&dyn Pending> {
        self.request.as_ref().map(|request| request as &dyn Pending)
    }
}

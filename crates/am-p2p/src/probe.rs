//! Probes: looking at a message before receiving it.

use crate::communicator::{Communicator, Source, Status, Tag};
use crate::error::{AskedBytes, MessageError};
use crate::kind::ElementType;
use crate::layer::{self, Awaited, DroppedHandle, Messages};
use crate::machine::{ANY, Selector};
use crate::request::ReceiveRequest;
use crate::segment::{self, SegmentMemory, SegmentReceive};
use am_core::slab::Key;
use am_core::zerocopy::IntoBytes;
use am_core::{Endpoint, HasLayer, Rank, Transport, WaitError};
use am_pgas::pointer::Element;
use std::fmt;

/// A message that a matched probe has set aside for whoever holds this. Dropped, the message is let go.
#[must_use = "a message that was set aside is received through this alone"]
pub struct Message {
    key: Option<Key>,
    communicator: Communicator,
    status: Status,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Message").field(&self.status).finish()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.communicator.shared.dropped.push(DroppedHandle::Aside(key));
        }
    }
}

impl Message {
    /// What is known of the message.
    pub fn status(&self) -> Status {
        self.status
    }

    #[cfg(feature = "serde")]
    pub(crate) fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// Begins to receive the message; the receive, and what selects its like.
    pub(crate) fn begin<T: Transport, S: HasLayer<Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
        kind: ElementType,
        capacity: u64,
        own: Option<u64>,
    ) -> Result<(Key, Selector), MessageError> {
        self.communicator.check_endpoint(endpoint)?;
        let tag = self.status.tag as u32;
        let source = self.communicator.member(self.status.source, self.status.tag)?.0;
        let selector = Selector { context: self.communicator.shared.context, source, tag };
        let aside = self.key.take().expect("a message is received once");
        if endpoint.layer_unscheduled::<Messages>().machine.is_long(self.status.bytes) {
            Communicator::choose_copies(endpoint);
        }
        let machine = &mut endpoint.layer_mut::<Messages>().machine;
        match machine.receive_aside(aside, kind.number(), capacity, own) {
            Some(key) => Ok((key, selector)),
            None => Err(machine.why_gone(source, tag, AskedBytes::Are(self.status.bytes))),
        }
    }

    /// Begins to receive the message, of at most `most` values. Does not block.
    ///
    /// # Errors
    /// As [`Communicator::immediate_receive`]; a sender that is lost or has left, of a message whose bytes had not
    /// come.
    pub fn immediate_receive<T: Transport, S: HasLayer<Messages>, V: Element>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
        most: usize,
    ) -> Result<ReceiveRequest<V>, MessageError> {
        let capacity = (most as u64).saturating_mul(size_of::<V>() as u64);
        let (key, selector) = self.begin(endpoint, ElementType::of::<V>(), capacity, None)?;
        Ok(ReceiveRequest::new(self.communicator.clone(), selector, key, capacity))
    }

    /// Receives the message. Blocks while its bytes come; allocates.
    ///
    /// # Errors
    /// As [`Communicator::receive_vec`].
    pub fn receive_vec<T: Transport, S: HasLayer<Messages>, V: Element>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(Vec<V>, Status), MessageError> {
        let kind = ElementType::of::<V>();
        let (key, selector) = self.begin(endpoint, kind, u64::MAX, None)?;
        let values = self.communicator.finish_values(endpoint, selector, key, (kind, u64::MAX));
        values.inspect_err(|_| endpoint.layer_mut::<Messages>().machine.drop_receive(key))
    }

    /// Receives the message into a slice. Blocks while its bytes come.
    ///
    /// # Errors
    /// As [`Communicator::receive_into`].
    pub fn receive_into<T: Transport, S: HasLayer<Messages>, V: Element>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
        values: &mut [V],
    ) -> Result<Status, MessageError> {
        let (kind, out) = (ElementType::of::<V>(), values.as_mut_bytes());
        let (key, selector) = self.begin(endpoint, kind, out.len() as u64, None)?;
        self.communicator.finish_into(endpoint, selector, key, kind, out, 0)
    }
}

impl Message {
    /// Receives the message to memory in this rank's segment. Blocks while its bytes come.
    ///
    /// # Errors
    /// As [`Communicator::receive_segment`]; where the memory is not right, the message is let go.
    pub fn receive_segment<T: Transport, S: HasLayer<Messages>, A: SegmentMemory + Send + 'static>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
        memory: A,
    ) -> Result<(A, Status), MessageError> {
        let (kind, bytes) = (ElementType::of::<A::Value>(), segment::place(endpoint, &memory)?);
        let (key, selector) = self.begin(endpoint, kind, bytes.len, Some(bytes.at))?;
        SegmentReceive::made(self.communicator.clone(), selector, key, bytes, memory).wait(endpoint)
    }
}

impl Communicator {
    /// Looks for a message, for as long as it takes where `block` is set.
    fn look<T: Transport, S: HasLayer<Messages>, R>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        selector: Selector,
        block: bool,
        mut found: impl FnMut(&mut Messages) -> Option<R>,
    ) -> Result<Option<R>, MessageError> {
        self.check_endpoint(endpoint)?;
        let ranks = self.shared.team.ranks();
        let one = Awaited::One(Rank(selector.source));
        let awaited = if selector.source == ANY { Awaited::Any(ranks) } else { one };
        if !block {
            layer::serve(endpoint, awaited)?;
            let found = found(endpoint.layer_unscheduled::<Messages>());
            return if found.is_some() { Ok(found) } else { self.can_come(endpoint, selector).map(|()| None) };
        }
        let mut known = None;
        let found = layer::wait(endpoint, awaited, |endpoint| {
            if let Some(result) = found(endpoint.layer_unscheduled::<Messages>()) {
                return Ok(Some(result));
            }
            let now = Some((endpoint.losses(), endpoint.idles()));
            if std::mem::replace(&mut known, now) == now {
                return Ok(None);
            }
            self.can_come(endpoint, selector)?;
            self.cannot_come(endpoint, selector, AskedBytes::Any).map_or(Ok(None), Err)
        });
        let found = found.map_err(|mut error| {
            if let MessageError::Wait(WaitError::TimedOut(report)) = &mut error {
                report.waiting_for = format!("a message {selector} to probe; {}", report.waiting_for);
            }
            error
        })?;
        Ok(Some(found))
    }

    /// Whether a message can still come that a receive would get, or why not.
    fn can_come<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        selector: Selector,
    ) -> Result<(), MessageError> {
        if selector.source == ANY {
            return self.no_sender_left(endpoint, selector, AskedBytes::Any).map_or(Ok(()), Err);
        }
        let machine = &mut endpoint.layer_unscheduled::<Messages>().machine;
        let Selector { context, source, tag } = selector;
        if machine.is_closed(context) {
            return Err(MessageError::freed(source, tag, AskedBytes::Any));
        }
        let gone = machine.gone(source).is_some();
        if gone { Err(machine.why_gone(source, tag, AskedBytes::Any)) } else { Ok(()) }
    }

    /// Waits for a message that a receive from this source with this tag would get, without receiving it. Blocks.
    ///
    /// # Errors
    /// As [`receive_into`](Self::receive_into).
    pub fn probe<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status, MessageError> {
        let selector = self.selector(source.into(), tag.into())?;
        let found = self.look(endpoint, selector, true, |layer| layer.machine.probe(selector))?;
        Ok(self.status(found.expect("it was waited for")))
    }

    /// The message that a receive would get, if it has come. Does not block.
    ///
    /// # Errors
    /// A member or tag that there is not; a source that is lost or has left, of which no such message has come;
    /// what [`Endpoint::poll`] fails with.
    pub fn immediate_probe<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Status>, MessageError> {
        let selector = self.selector(source.into(), tag.into())?;
        let found = self.look(endpoint, selector, false, |layer| layer.machine.probe(selector))?;
        Ok(found.map(|info| self.status(info)))
    }

    /// Waits for a message and sets it aside, so that no other receive gets it. Blocks.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn matched_probe<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Message, MessageError> {
        let selector = self.selector(source.into(), tag.into())?;
        let found = self.look(endpoint, selector, true, |layer| layer.machine.set_aside(selector))?;
        Ok(self.message(endpoint, found.expect("it was waited for")))
    }

    /// Sets the message aside that a receive would get, if it has come. Does not block.
    ///
    /// # Errors
    /// As [`immediate_probe`](Self::immediate_probe).
    pub fn immediate_matched_probe<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Message>, MessageError> {
        let selector = self.selector(source.into(), tag.into())?;
        let found = self.look(endpoint, selector, false, |layer| layer.machine.set_aside(selector))?;
        Ok(found.map(|key| self.message(endpoint, key)))
    }

    fn message<T: Transport, S: HasLayer<Messages>>(&self, endpoint: &mut Endpoint<T, S>, key: Key) -> Message {
        let layer = endpoint.layer_unscheduled::<Messages>();
        let info = layer.machine.info(key).expect("it was just set aside");
        let status = self.status(info);
        Message { key: Some(key), communicator: self.clone(), status }
    }
}

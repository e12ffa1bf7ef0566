//! Requests: messages under way, waited for and asked about, alone and together.

use crate::communicator::{Communicator, Status};
use crate::error::{AskedBytes, AskedTag, MessageError};
use crate::kind::ElementType;
use crate::layer::{self, Awaited, Dropped, DroppedHandle, Messages};
use crate::machine::{ANY, MessageInfo, Selector};
use crate::messages::{Begun, Outgoing, SPINS};
use am_core::slab::Key;
use am_core::zerocopy::IntoBytes;
use am_core::{Endpoint, HasLayer, Rank, Transport};
use am_pgas::pointer::Element;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

pub(crate) mod sealed {
    use super::Messages;

    pub trait Sealed {
        /// Whether waiting for it returns at once.
        fn over(&self, messages: &Messages) -> bool;
        /// Whether it is a receive that has met no message.
        fn is_unmet(&self, messages: &Messages) -> bool;
        fn layer(&self) -> u64;
        /// Whom it waits for; `None` for any member.
        fn peer(&self) -> Option<am_core::Rank>;
        fn communicator(&self) -> Option<&super::Communicator>;
    }
}

/// A message under way: what [`wait_any`] and the like take.
pub trait Pending: sealed::Sealed {}

/// A message that is being sent. It owns its bytes: dropped, the message goes on by itself.
#[must_use = "whether a message was sent is known by waiting for it"]
pub struct SendRequest {
    /// The message while it is under way, and where the request goes if it is dropped meanwhile.
    pub(crate) under_way: Option<(Key, Arc<Dropped>)>,
    outgoing: Outgoing,
    len: u64,
    layer: u64,
}

impl fmt::Debug for SendRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tag = self.outgoing.envelope.tag;
        f.debug_struct("SendRequest").field("to", &self.outgoing.to).field("tag", &tag).finish_non_exhaustive()
    }
}

impl Drop for SendRequest {
    fn drop(&mut self) {
        if let Some((key, dropped)) = self.under_way.take() {
            dropped.push(DroppedHandle::Send(key));
        }
    }
}

impl sealed::Sealed for SendRequest {
    fn over(&self, messages: &Messages) -> bool {
        self.under_way.as_ref().is_none_or(|(key, _)| messages.machine.is_sent(*key))
    }

    fn is_unmet(&self, _: &Messages) -> bool {
        false
    }

    fn layer(&self) -> u64 {
        self.layer
    }

    fn peer(&self) -> Option<Rank> {
        Some(self.outgoing.to)
    }

    fn communicator(&self) -> Option<&Communicator> {
        None
    }
}

impl Pending for SendRequest {}

impl SendRequest {
    pub(crate) fn new<T: Transport, S: HasLayer<Messages>>(
        endpoint: &mut Endpoint<T, S>,
        begun: Begun,
        outgoing: Outgoing,
        len: u64,
    ) -> Self {
        let layer = endpoint.layer_unscheduled::<Messages>();
        let under_way = match begun {
            Begun::Sent => None,
            // What it sends, it owns.
            Begun::UnderWay(key, _) => Some((key, Arc::clone(&layer.dropped))),
        };
        Self { under_way, outgoing, len, layer: layer.id }
    }

    pub(crate) fn outcome<T: Transport, S: HasLayer<Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Option<Result<(), MessageError>> {
        let Some((key, _)) = &self.under_way else { return Some(Ok(())) };
        let sent = endpoint.layer_unscheduled::<Messages>().machine.take_sent(*key)?;
        self.under_way = None;
        let Outgoing { to, envelope, .. } = self.outgoing;
        let info = MessageInfo { from: to.0, tag: envelope.tag, len: self.len, kind: envelope.kind };
        Some(sent.map_err(|failure| MessageError::of(failure, (info, true), envelope.kind, 0)))
    }

    /// Waits until the message has been sent: its bytes have left, or of a synchronous send have met their
    /// receive. Blocks.
    ///
    /// # Errors
    /// A lost receiver; a freed communicator; a time-out, after which the message goes on by itself.
    pub fn wait<T: Transport, S: HasLayer<Messages>>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), MessageError> {
        self.wait_sent(endpoint)
    }

    pub(crate) fn wait_sent<T: Transport, S: HasLayer<Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), MessageError> {
        check(endpoint, self.layer)?;
        let to = self.outgoing.to;
        layer::wait(endpoint, Awaited::One(to), |endpoint| Ok(self.outcome(endpoint)))?
    }

    /// What the message has come to, after serving what has arrived; `None` while it is under way.
    pub(crate) fn test_sent<T: Transport, S: HasLayer<Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Option<Result<(), MessageError>> {
        if let Err(error) = check(endpoint, self.layer) {
            return Some(Err(error));
        }
        serve_for(endpoint, &[self]);
        self.outcome(endpoint)
    }

    /// Serves what has arrived; what the message has come to, or the request if it is still under way. Does not
    /// block.
    ///
    /// # Errors
    /// The request, while the message is under way.
    pub fn test<T: Transport, S: HasLayer<Messages>>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Result<(), MessageError>, Self> {
        self.test_sent(endpoint).ok_or(self)
    }
}

/// A message that is to be received. It owns its buffer: dropped, the receive is cancelled, or its message let go.
#[must_use = "a message is received by waiting for it"]
pub struct ReceiveRequest<V> {
    key: Option<Key>,
    /// There until the request is over.
    communicator: Option<Communicator>,
    selector: Selector,
    kind: ElementType,
    capacity: u64,
    of: PhantomData<fn() -> V>,
}

impl<V> fmt::Debug for ReceiveRequest<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReceiveRequest").field(&self.selector).finish()
    }
}

impl<V> Drop for ReceiveRequest<V> {
    #[inline]
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.handle().shared.dropped.push(DroppedHandle::Receive(key));
        }
    }
}

impl<V> sealed::Sealed for ReceiveRequest<V> {
    fn over(&self, messages: &Messages) -> bool {
        self.key.is_none_or(|key| messages.machine.is_received(key))
    }

    fn is_unmet(&self, messages: &Messages) -> bool {
        self.key.is_some_and(|key| messages.machine.is_unmet(key))
    }

    fn layer(&self) -> u64 {
        self.handle().shared.layer
    }

    fn peer(&self) -> Option<Rank> {
        (self.selector.source != ANY).then_some(Rank(self.selector.source))
    }

    fn communicator(&self) -> Option<&Communicator> {
        Some(self.handle())
    }
}

impl<V> Pending for ReceiveRequest<V> {}

impl<V> ReceiveRequest<V> {
    #[inline(always)]
    pub(crate) fn handle(&self) -> &Communicator {
        self.communicator.as_ref().expect("a request has its communicator until it is over")
    }
}

impl<V: Element> ReceiveRequest<V> {
    #[inline(always)]
    pub(crate) fn new(communicator: Communicator, selector: Selector, key: Key, capacity: u64) -> Self {
        Self::of_kind(communicator, selector, key, (ElementType::of::<V>(), capacity))
    }

    /// A receive of elements that its message tells by another name.
    #[inline(always)]
    pub(crate) fn of_kind(
        communicator: Communicator,
        selector: Selector,
        key: Key,
        (kind, capacity): (ElementType, u64),
    ) -> Self {
        Self { key: Some(key), communicator: Some(communicator), selector, kind, capacity, of: PhantomData }
    }

    fn key(&self) -> Key {
        self.key.expect("a request has its receive until it is waited for")
    }

    /// Waits for the message. Blocks; allocates the values' vector.
    ///
    /// # Errors
    /// As [`Communicator::receive_vec`]; [`MessageError::Cancelled`]. After a time-out the receive is cancelled.
    pub fn wait<T: Transport, S: HasLayer<Messages>>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(Vec<V>, Status), MessageError> {
        check(endpoint, self.handle().shared.layer)?;
        let expected = (self.kind, self.capacity);
        let (communicator, key) = (self.handle(), self.key());
        let values = communicator.finish_values(endpoint, self.selector, key, expected);
        // A receive that is not over goes with this.
        let machine = &mut endpoint.layer_unscheduled::<Messages>().machine;
        self.key = self.key.filter(|key| machine.waits_for(*key).is_some());
        values
    }

    /// As [`wait`](Self::wait), into a slice as long as was asked for at least. Does not allocate where the
    /// message comes eagerly and buffers have been used before; a long one may take memory until it is copied out.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); [`MessageError::Truncated`] for a slice that is shorter than the message, which is
    /// lost then.
    #[inline]
    pub fn wait_into<T: Transport, S: HasLayer<Messages>>(
        self,
        endpoint: &mut Endpoint<T, S>,
        values: &mut [V],
    ) -> Result<Status, MessageError> {
        check(endpoint, self.handle().shared.layer)?;
        let out = values.as_mut_bytes();
        // Where the message is here, nothing is left to drop.
        let mut request = ManuallyDrop::new(self);
        match request.take_copied(endpoint, out) {
            Some(status) => Ok(status),
            None => ManuallyDrop::into_inner(request).look_for(endpoint, out),
        }
    }

    /// The message, if it is here, few bytes, and well.
    #[inline(always)]
    fn take_copied<T: Transport, S: HasLayer<Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
        out: &mut [u8],
    ) -> Option<Status> {
        let layer = endpoint.layer_unscheduled::<Messages>();
        let info = layer.machine.take_copied(self.key(), out)?;
        self.key = None;
        let status = self.handle().status(info);
        layer.take_back(self.communicator.take());
        Some(status)
    }

    /// Waits for a message that has not come, is long, or cannot be received; at first by looks at the network
    /// alone.
    #[inline(never)]
    fn look_for<T: Transport, S: HasLayer<Messages>>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
        out: &mut [u8],
    ) -> Result<Status, MessageError> {
        let (key, long) = (self.key(), endpoint.layer_unscheduled::<Messages>().machine.is_long(self.capacity));
        let looks = if !long && endpoint.transport().spins() { SPINS } else { 0 };
        for _ in 0..looks {
            if endpoint.layer_unscheduled::<Messages>().machine.is_received(key) {
                break;
            }
            if let Err(error) = endpoint.poll_through() {
                endpoint.defer_error(error);
                break;
            }
            if let Some(status) = self.take_copied(endpoint, out) {
                return Ok(status);
            }
        }
        let expected = (self.kind, self.capacity);
        let (communicator, mut read) = (self.handle(), 0);
        let taken = communicator.finish_receive(endpoint, self.selector, key, expected, |endpoint| {
            Communicator::read_lent(endpoint, key, out, &mut read)
        })?;
        self.key = None;
        if taken.info.len > out.len() as u64 {
            let MessageInfo { from, tag, len: bytes, .. } = taken.info;
            let (rank, tag, capacity) = (Rank(from), AskedTag::of(tag), out.len() as u64);
            self.handle().give_back(endpoint, taken);
            return Err(MessageError::Truncated { rank, tag, bytes, capacity });
        }
        Ok(self.handle().copy_out(endpoint, taken, out, read))
    }

    /// Serves what has arrived; what the receive has come to, or the request if it is still under way. Does not
    /// block.
    ///
    /// # Errors
    /// The request, while the message is under way.
    pub fn test<T: Transport, S: HasLayer<Messages>>(
        self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Result<(Vec<V>, Status), MessageError>, Self> {
        if let Err(error) = check(endpoint, self.handle().shared.layer) {
            return Ok(Err(error));
        }
        serve_for(endpoint, &[&self]);
        if over(endpoint, &self, true) { Ok(self.wait(endpoint)) } else { Err(self) }
    }

    /// Asks for the receive to be cancelled; waiting tells whether it is, by [`MessageError::Cancelled`]. Does not
    /// block.
    pub(crate) fn begin_cancel<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), MessageError> {
        check(endpoint, self.handle().shared.layer)?;
        endpoint.layer_mut::<Messages>().machine.cancel(self.key());
        Ok(())
    }

    /// Cancels the receive if it has met no message: gives back the request if it has, which is waited for then.
    /// Blocks where the sender may be writing to the receive already, until it says whether it is.
    ///
    /// # Errors
    /// A time-out; the receive goes then once it is known whether it is cancelled.
    pub fn cancel<T: Transport, S: HasLayer<Messages>>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Option<Self>, MessageError> {
        check(endpoint, self.handle().shared.layer)?;
        if !cancel(endpoint, self.key(), self.selector)? {
            return Ok(Some(self));
        }
        self.key = None;
        Ok(None)
    }
}

/// Cancels a receive, which goes; false, and it stays, if it has met a message.
pub(crate) fn cancel<T: Transport, S: HasLayer<Messages>>(
    endpoint: &mut Endpoint<T, S>,
    key: Key,
    selector: Selector,
) -> Result<bool, MessageError> {
    endpoint.layer_mut::<Messages>().machine.cancel(key);
    if selector.source != ANY {
        layer::wait(endpoint, Awaited::One(Rank(selector.source)), |endpoint| {
            Ok((!endpoint.layer_unscheduled::<Messages>().machine.is_cancelling(key)).then_some(()))
        })?;
    }
    let layer = endpoint.layer_unscheduled::<Messages>();
    if !layer.machine.is_cancelled(key) {
        return Ok(false);
    }
    layer.machine.drop_receive(key);
    Ok(true)
}

pub(crate) fn check<T: Transport, S: HasLayer<Messages>>(
    endpoint: &mut Endpoint<T, S>,
    layer: u64,
) -> Result<(), MessageError> {
    if endpoint.layer_unscheduled::<Messages>().id == layer { Ok(()) } else { Err(MessageError::Foreign) }
}

/// Whether waiting for a request returns at once; where `look` is set, also since nobody is left who could send
/// it.
pub(crate) fn over<T: Transport, S: HasLayer<Messages>>(
    endpoint: &mut Endpoint<T, S>,
    request: &dyn Pending,
    look: bool,
) -> bool {
    let layer = endpoint.layer_unscheduled::<Messages>();
    if request.over(layer) {
        return true;
    }
    if !look || request.peer().is_some() || !request.is_unmet(layer) {
        return false;
    }
    request.communicator().is_some_and(|communicator| {
        let any = Selector { context: communicator.shared.context, source: ANY, tag: ANY };
        communicator.no_sender_left(endpoint, any, AskedBytes::Any).is_some()
    })
}

/// Whether a request is a receive whose message cannot come before others are received, so that waiting for it
/// fails at once.
fn is_starved<T: Transport, S: HasLayer<Messages>>(endpoint: &mut Endpoint<T, S>, request: &dyn Pending) -> bool {
    let unmet = request.is_unmet(endpoint.layer_unscheduled::<Messages>());
    let Some(communicator) = request.communicator().filter(|_| unmet) else { return false };
    let source = request.peer().map_or(ANY, |peer| peer.0);
    let selector = Selector { context: communicator.shared.context, source, tag: ANY };
    communicator.cannot_come(endpoint, selector, AskedBytes::Any).is_some()
}

/// Whom requests wait for. Allocates.
fn awaited(requests: &[&dyn Pending]) -> Vec<Rank> {
    let mut ranks: Vec<Rank> = requests.iter().filter_map(|request| request.peer()).collect();
    for request in requests.iter().filter(|request| request.peer().is_none()) {
        let members = request.communicator().map_or(&[][..], |communicator| communicator.shared.team.ranks());
        ranks.extend_from_slice(members);
    }
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Serves what has arrived, once, for some requests. What handlers and layers fail with is left for the program's
/// next poll.
pub(crate) fn serve_for<T: Transport, S: HasLayer<Messages>>(
    endpoint: &mut Endpoint<T, S>,
    requests: &[&dyn Pending],
) {
    let served = match requests {
        [request] if request.peer().is_some() => {
            layer::serve(endpoint, Awaited::One(request.peer().expect("it was just there")))
        }
        [request] => {
            let members = request.communicator().map_or(&[][..], |communicator| communicator.shared.team.ranks());
            layer::serve(endpoint, Awaited::Any(members))
        }
        requests => layer::serve(endpoint, Awaited::Any(&awaited(requests))),
    };
    if let Err(error) = served {
        endpoint.defer_error(error);
    }
}

/// Which of some requests waiting returns at once for, after serving what has arrived. Does not block.
///
/// # Errors
/// A request of another endpoint; what [`Endpoint::poll`] fails with.
pub fn test_some<T: Transport, S: HasLayer<Messages>>(
    endpoint: &mut Endpoint<T, S>,
    requests: &[&dyn Pending],
) -> Result<Vec<usize>, MessageError> {
    requests.iter().try_for_each(|request| check(endpoint, request.layer()))?;
    layer::serve(endpoint, Awaited::Any(&awaited(requests)))?;
    Ok((0..requests.len()).filter(|index| over(endpoint, requests[*index], true)).collect())
}

/// The first of some requests that waiting returns at once for, if there is one; see [`test_some`].
///
/// # Errors
/// As [`test_some`].
pub fn test_any<T: Transport, S: HasLayer<Messages>>(
    endpoint: &mut Endpoint<T, S>,
    requests: &[&dyn Pending],
) -> Result<Option<usize>, MessageError> {
    Ok(test_some(endpoint, requests)?.first().copied())
}

/// Whether waiting returns at once for all of some requests; see [`test_some`].
///
/// # Errors
/// As [`test_some`].
pub fn test_all<T: Transport, S: HasLayer<Messages>>(
    endpoint: &mut Endpoint<T, S>,
    requests: &[&dyn Pending],
) -> Result<bool, MessageError> {
    Ok(test_some(endpoint, requests)?.len() == requests.len())
}

/// Waits until waiting returns at once for one of some requests, and says which; `None` of none. Blocks.
///
/// Where each of the requests is a receive whose message cannot come before others are received, it is the first
/// of them: waiting for it fails with [`MessageError::Exhausted`]. Requests that are only tested stay under way.
///
/// # Errors
/// A request of another endpoint; a time-out.
pub fn wait_any<T: Transport, S: HasLayer<Messages>>(
    endpoint: &mut Endpoint<T, S>,
    requests: &[&dyn Pending],
) -> Result<Option<usize>, MessageError> {
    if requests.is_empty() {
        return Ok(None);
    }
    requests.iter().try_for_each(|request| check(endpoint, request.layer()))?;
    let (all, mut known) = (awaited(requests), None);
    layer::wait(endpoint, Awaited::Any(&all), |endpoint| {
        let now = Some((endpoint.losses(), endpoint.idles()));
        let look = std::mem::replace(&mut known, now) != now;
        let over = (0..requests.len()).find(|index| over(endpoint, requests[*index], look));
        // Nothing that arrives changes this, but for a loss.
        let stuck = look && over.is_none() && requests.iter().all(|request| is_starved(endpoint, *request));
        Ok(over.or_else(|| stuck.then_some(0)).map(Some))
    })
}

/// Waits until waiting returns at once for some of the requests, and says for which. Blocks; allocates.
///
/// # Errors
/// As [`wait_any`].
pub fn wait_some<T: Transport, S: HasLayer<Messages>>(
    endpoint: &mut Endpoint<T, S>,
    requests: &[&dyn Pending],
) -> Result<Vec<usize>, MessageError> {
    let first = wait_any(endpoint, requests)?;
    let mut all: Vec<usize> = (0..requests.len()).filter(|index| over(endpoint, requests[*index], true)).collect();
    if all.is_empty() {
        all.extend(first);
    }
    Ok(all)
}

/// Waits until waiting returns at once for all of the requests. Blocks; allocates.
///
/// # Errors
/// As [`wait_any`].
pub fn wait_all<T: Transport, S: HasLayer<Messages>>(
    endpoint: &mut Endpoint<T, S>,
    requests: &[&dyn Pending],
) -> Result<(), MessageError> {
    for request in requests {
        wait_any(endpoint, &[*request])?;
    }
    Ok(())
}

//! The shape of rsmpi's point-to-point communication, for programs and people that come from there.
//!
//! A [`Universe`] owns the endpoint, so that calls need nothing but a process:
//! `world.process_at_rank(1).send(&x)`. Calls panic where MPI would end the job, with the error of this crate as
//! the message: what fails on a rank ends that rank, and its peers learn of it. Programs that go on after losses
//! use [`Communicator`].
//!
//! # rsmpi -> here
//!
//! | rsmpi | in this module | with an endpoint |
//! |---|---|---|
//! | `mpi::initialize()` | `active_messages::mpi::initialize()`, or [`Universe::new`] | `Endpoint::attach` |
//! | `universe.world()` | [`Universe::world`] | [`Communicator::world`](crate::Communicator::world) |
//! | `world.rank()`, `size()`, `barrier()` | the same | `rank`, `size`, `team().barrier` |
//! | `duplicate`, `split_by_color`, `split_by_color_with_key`, `split_by_subgroup_collective` | the first three | `duplicate`, `split`, `group` |
//! | `process_at_rank`, `any_process`, `this_process` | the same | a position, [`ANY_SOURCE`] |
//! | `send`, `send_with_tag`, `synchronous_send` | the same; tag 0 by default | `send`, `synchronous_send` |
//! | `buffered_send`, `ready_send` | `send` | `send` |
//! | `receive`, `receive_vec`, `receive_into`, `.._with_tag` | the same; any tag by default | the same |
//! | `immediate_send`, `immediate_synchronous_send`, `.._with_tag` | the same | the same; the request owns its bytes |
//! | `immediate_ready_send`, `.._with_tag` | the same, without `unsafe` | `immediate_send` |
//! | `immediate_receive_into`, `immediate_receive` and its `get`, `r#try`, `.._with_tag` | the same; where `==` alone tells the type, name it | `immediate_receive` |
//! | `request::scope`, `WaitGuard`, `CancelGuard` | the same | not needed: requests own their buffers |
//! | `wait`, `test`, `wait_any` | the same, with an `Option<Status>`: a send has none | `wait`, `test`, [`wait_any`](crate::request::wait_any), `wait_some`, `wait_all` |
//! | `cancel` | the same; a send goes on | [`ReceiveRequest::cancel`](crate::ReceiveRequest::cancel) |
//! | `probe`, `immediate_probe`, `matched_probe`, `immediate_matched_probe`, `.._with_tag` | the same | the same, with tags |
//! | `matched_receive_vec`, `matched_receive_into`, `immediate_matched_receive_into` | the same | [`Message`](crate::Message) |
//! | `send_receive`, `send_receive_into`, `send_receive_replace_into`, `.._with_tags` | in [`point_to_point`] | the same, with tags |
//! | memory of `MPI_Alloc_mem` and of windows | not there: use what stands to the right | [`segment`](crate::segment): `send_segment`, `receive_segment` |
//! | `Equivalence`, `Buffer`, user datatypes | [`Buffer`]: plain values and slices | sections; values of serde |
//! | `status.source_rank()`, `tag()`, `count()` | `i32` | the same |

pub mod point_to_point;
pub mod request;
#[cfg(test)]
mod tests;

use crate::communicator::{ANY_SOURCE, ANY_TAG, Communicator, Source, Status as Found, Tag as Asked};
use crate::error::MessageError;
use crate::layer::Messages;
use am_core::{Endpoint, HasLayer, Transport};
use am_pgas::allocator::SegmentAllocator;
use am_pgas::collectives::Collectives;
use am_pgas::pointer::Element;
use std::cell::{RefCell, RefMut};
use std::fmt;

/// A position in a communicator.
pub type Rank = i32;
/// A tag.
pub type Tag = i32;

/// What `use mpi::traits::*` brings.
pub mod traits {
    pub use super::{Buffer, BufferMut, Destination, Origin as Source};
}

/// Values that are sent: one, or a slice.
pub trait Buffer {
    /// Their type.
    type Item: Element;
    /// The values.
    fn values(&self) -> &[Self::Item];
}

/// Values that are received: one, or a slice.
pub trait BufferMut: Buffer {
    /// The values.
    fn values_mut(&mut self) -> &mut [Self::Item];
}

impl<V: Element> Buffer for V {
    type Item = V;

    fn values(&self) -> &[V] {
        std::slice::from_ref(self)
    }
}

impl<V: Element> BufferMut for V {
    fn values_mut(&mut self) -> &mut [V] {
        std::slice::from_mut(self)
    }
}

impl<V: Element> Buffer for [V] {
    type Item = V;

    fn values(&self) -> &[V] {
        self
    }
}

impl<V: Element> BufferMut for [V] {
    fn values_mut(&mut self) -> &mut [V] {
        self
    }
}

/// What is known of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(Found);

impl Status {
    /// The sender's rank in the communicator.
    pub fn source_rank(&self) -> Rank {
        self.0.source_rank() as Rank
    }

    /// The message's tag.
    pub fn tag(&self) -> Tag {
        self.0.tag()
    }

    /// Values of a type that the message holds.
    pub fn count<V: Element>(&self) -> usize {
        self.0.count::<V>()
    }
}

/// States that can be those of a universe.
pub trait State: HasLayer<Messages> + HasLayer<Collectives> + HasLayer<SegmentAllocator> {}

impl<S: HasLayer<Messages> + HasLayer<Collectives> + HasLayer<SegmentAllocator>> State for S {}

/// The endpoint of a rank, for all communicators.
pub struct Universe<T: Transport, S: State> {
    /// Taken when the universe ends.
    endpoint: RefCell<Option<Endpoint<T, S>>>,
    world: Communicator,
}

impl<T: Transport, S: State> fmt::Debug for Universe<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Universe").field("world", &self.world).finish_non_exhaustive()
    }
}

#[cold]
fn end(error: &MessageError) -> ! {
    panic!("{error}")
}

/// The result of a call, which has to be well.
fn well<R>(result: Result<R, MessageError>) -> R {
    result.unwrap_or_else(|error| end(&error))
}

impl<T: Transport, S: State> Universe<T, S> {
    /// Takes an endpoint. Collective; blocks.
    ///
    /// # Errors
    /// As [`Communicator::world`].
    pub fn new(mut endpoint: Endpoint<T, S>) -> Result<Self, MessageError> {
        let world = Communicator::world(&mut endpoint)?;
        Ok(Self { endpoint: RefCell::new(Some(endpoint)), world })
    }

    /// The communicator of all ranks.
    pub fn world(&self) -> SimpleCommunicator<'_, T, S> {
        SimpleCommunicator { universe: self, communicator: self.world.clone() }
    }

    fn endpoint(&self) -> RefMut<'_, Endpoint<T, S>> {
        RefMut::map(self.endpoint.borrow_mut(), |endpoint| endpoint.as_mut().expect("the universe has not ended"))
    }

    /// Ends the universe as [`Endpoint::finish`] does, which dropping it does, too, without telling errors.
    ///
    /// # Errors
    /// As [`Endpoint::finish`].
    pub fn finalize(self) -> Result<(), MessageError> {
        let endpoint = self.endpoint.borrow_mut().take().expect("the universe has not ended");
        Ok(endpoint.finish().map(drop)?)
    }
}

impl<T: Transport, S: State> Drop for Universe<T, S> {
    fn drop(&mut self) {
        if let Some(endpoint) = self.endpoint.get_mut().take()
            && !std::thread::panicking()
        {
            // Losses are told by the calls that they matter to.
            let _ = endpoint.finish();
        }
    }
}

/// A communicator of a universe.
#[derive(Debug)]
pub struct SimpleCommunicator<'u, T: Transport, S: State> {
    universe: &'u Universe<T, S>,
    communicator: Communicator,
}

impl<'u, T: Transport, S: State> SimpleCommunicator<'u, T, S> {
    fn with(&self, communicator: Communicator) -> Self {
        Self { universe: self.universe, communicator }
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        self.communicator.rank() as Rank
    }

    /// Number of processes.
    pub fn size(&self) -> Rank {
        self.communicator.size() as Rank
    }

    /// Waits for all processes.
    ///
    /// # Panics
    /// If one of them is lost.
    pub fn barrier(&self) {
        well(self.communicator.team().barrier(&mut self.universe.endpoint()).map_err(MessageError::from));
    }

    /// A copy. Collective.
    ///
    /// # Panics
    /// If a process is lost.
    pub fn duplicate(&self) -> Self {
        self.with(well(self.communicator.duplicate(&mut self.universe.endpoint())))
    }

    /// The processes that give the same colour, if this one gives any. Collective.
    ///
    /// # Panics
    /// If a process is lost.
    pub fn split_by_color(&self, color: Option<u32>) -> Option<Self> {
        self.split_by_color_with_key(color, 0)
    }

    /// The same; processes are in the order of their keys. Collective.
    ///
    /// # Panics
    /// If a process is lost.
    pub fn split_by_color_with_key(&self, color: Option<u32>, key: i32) -> Option<Self> {
        let split = well(self.communicator.split(&mut self.universe.endpoint(), color, key));
        split.map(|communicator| self.with(communicator))
    }

    /// The process with a rank.
    ///
    /// # Panics
    /// If there is none.
    pub fn process_at_rank(&self, rank: Rank) -> Process<'_, T, S> {
        let size = self.size();
        assert!((0..size).contains(&rank), "no rank {rank} in a communicator of {size}");
        Process { of: self, source: Source::Member(rank as u32) }
    }

    /// Any process, as a source.
    pub fn any_process(&self) -> Process<'_, T, S> {
        Process { of: self, source: ANY_SOURCE }
    }

    /// This process.
    pub fn this_process(&self) -> Process<'_, T, S> {
        self.process_at_rank(self.rank())
    }
}

/// A process of a communicator, or any.
#[derive(Debug)]
pub struct Process<'c, T: Transport, S: State> {
    of: &'c SimpleCommunicator<'c, T, S>,
    source: Source,
}

mod sealed {
    pub trait Sealed {}

    impl<T: super::Transport, S: super::State> Sealed for super::Process<'_, T, S> {}
}

/// What messages go to.
pub trait Destination: sealed::Sealed {
    /// Sends with tag 0.
    fn send<B: Buffer + ?Sized>(&self, buffer: &B) {
        self.send_with_tag(buffer, 0);
    }

    /// Sends.
    fn send_with_tag<B: Buffer + ?Sized>(&self, buffer: &B, tag: Tag);

    /// Sends with tag 0, until the message has met its receive.
    fn synchronous_send<B: Buffer + ?Sized>(&self, buffer: &B) {
        self.synchronous_send_with_tag(buffer, 0);
    }

    /// Sends, until the message has met its receive.
    fn synchronous_send_with_tag<B: Buffer + ?Sized>(&self, buffer: &B, tag: Tag);
}

/// What messages come from.
pub trait Origin: sealed::Sealed {
    /// Receives one value with any tag.
    fn receive<V: Element>(&self) -> (V, Status);

    /// Receives one value.
    fn receive_with_tag<V: Element>(&self, tag: Tag) -> (V, Status);

    /// Receives values with any tag.
    fn receive_vec<V: Element>(&self) -> (Vec<V>, Status);

    /// Receives values.
    fn receive_vec_with_tag<V: Element>(&self, tag: Tag) -> (Vec<V>, Status);

    /// Receives into a buffer, with any tag.
    fn receive_into<B: BufferMut + ?Sized>(&self, buffer: &mut B) -> Status;

    /// Receives into a buffer.
    fn receive_into_with_tag<B: BufferMut + ?Sized>(&self, buffer: &mut B, tag: Tag) -> Status;

    /// Waits for a message with any tag, without receiving it.
    fn probe(&self) -> Status;

    /// Waits for a message, without receiving it.
    fn probe_with_tag(&self, tag: Tag) -> Status;

    /// The message that a receive with any tag would get, if it has come.
    fn immediate_probe(&self) -> Option<Status>;

    /// The message that a receive would get, if it has come.
    fn immediate_probe_with_tag(&self, tag: Tag) -> Option<Status>;
}

impl<'c, T: Transport, S: State> Process<'c, T, S> {
    fn endpoint(&self) -> RefMut<'_, Endpoint<T, S>> {
        self.of.universe.endpoint()
    }

    fn team(&self) -> &Communicator {
        &self.of.communicator
    }

    fn member(&self) -> u32 {
        match self.source {
            Source::Member(member) => member,
            Source::Any => panic!("messages are sent to one process, not to any"),
        }
    }

    /// The process's rank.
    ///
    /// # Panics
    /// For any process.
    pub fn rank(&self) -> Rank {
        self.member() as Rank
    }

    fn vec<V: Element>(&self, tag: Asked) -> (Vec<V>, Status) {
        let (values, found) = well(self.team().receive_vec(&mut self.endpoint(), self.source, tag));
        (values, Status(found))
    }

    fn into<B: BufferMut + ?Sized>(&self, buffer: &mut B, tag: Asked) -> Status {
        let found = self.team().receive_into(&mut self.endpoint(), self.source, tag, buffer.values_mut());
        Status(well(found))
    }

    fn look(&self, tag: Asked) -> Status {
        Status(well(self.team().probe(&mut self.endpoint(), self.source, tag)))
    }

    fn look_now(&self, tag: Asked) -> Option<Status> {
        well(self.team().immediate_probe(&mut self.endpoint(), self.source, tag)).map(Status)
    }

    fn aside(&self, tag: Asked) -> (Message<'c, T, S>, Status) {
        let message = well(self.team().matched_probe(&mut self.endpoint(), self.source, tag));
        self.message(message)
    }

    fn aside_now(&self, tag: Asked) -> Option<(Message<'c, T, S>, Status)> {
        let message = well(self.team().immediate_matched_probe(&mut self.endpoint(), self.source, tag));
        message.map(|message| self.message(message))
    }

    /// Sets a message with any tag aside, once there is one.
    ///
    /// # Panics
    /// If a process is lost.
    pub fn matched_probe(&self) -> (Message<'c, T, S>, Status) {
        self.aside(ANY_TAG)
    }

    /// Sets a message aside, once there is one.
    ///
    /// # Panics
    /// If a process is lost.
    pub fn matched_probe_with_tag(&self, tag: Tag) -> (Message<'c, T, S>, Status) {
        self.aside(tag.into())
    }

    /// Sets a message with any tag aside, if one has come.
    ///
    /// # Panics
    /// If a process is lost.
    pub fn immediate_matched_probe(&self) -> Option<(Message<'c, T, S>, Status)> {
        self.aside_now(ANY_TAG)
    }

    /// Sets a message aside, if one has come.
    ///
    /// # Panics
    /// If a process is lost.
    pub fn immediate_matched_probe_with_tag(&self, tag: Tag) -> Option<(Message<'c, T, S>, Status)> {
        self.aside_now(tag.into())
    }

    fn message(&self, message: crate::Message) -> (Message<'c, T, S>, Status) {
        let status = Status(message.status());
        (Message { message, universe: self.of.universe }, status)
    }

    /// Begins to send with tag 0.
    ///
    /// # Panics
    /// For any process.
    pub fn immediate_send<'a, B: Buffer + ?Sized>(
        &self,
        scope: &request::LocalScope<'a>,
        buffer: &'a B,
    ) -> request::Request<'a, T, S>
    where
        'c: 'a,
    {
        self.immediate_send_with_tag(scope, buffer, 0)
    }

    /// Begins to send.
    ///
    /// # Panics
    /// For any process.
    pub fn immediate_send_with_tag<'a, B: Buffer + ?Sized>(
        &self,
        _: &request::LocalScope<'a>,
        buffer: &'a B,
        tag: Tag,
    ) -> request::Request<'a, T, S>
    where
        'c: 'a,
    {
        let sent = self.team().immediate_send(&mut self.endpoint(), self.member(), tag, buffer.values());
        request::Request::sending(self.of.universe, well(sent))
    }

    /// Begins to send with tag 0. The receive may be posted or not: it is the same as
    /// [`immediate_send`](Self::immediate_send), and as safe.
    ///
    /// # Panics
    /// For any process.
    pub fn immediate_ready_send<'a, B: Buffer + ?Sized>(
        &self,
        scope: &request::LocalScope<'a>,
        buffer: &'a B,
    ) -> request::Request<'a, T, S>
    where
        'c: 'a,
    {
        self.immediate_ready_send_with_tag(scope, buffer, 0)
    }

    /// Begins to send; see [`immediate_ready_send`](Self::immediate_ready_send).
    ///
    /// # Panics
    /// For any process.
    pub fn immediate_ready_send_with_tag<'a, B: Buffer + ?Sized>(
        &self,
        scope: &request::LocalScope<'a>,
        buffer: &'a B,
        tag: Tag,
    ) -> request::Request<'a, T, S>
    where
        'c: 'a,
    {
        self.immediate_send_with_tag(scope, buffer, tag)
    }

    /// Begins to send with tag 0; over when the message has met its receive.
    ///
    /// # Panics
    /// For any process.
    pub fn immediate_synchronous_send<'a, B: Buffer + ?Sized>(
        &self,
        scope: &request::LocalScope<'a>,
        buffer: &'a B,
    ) -> request::Request<'a, T, S>
    where
        'c: 'a,
    {
        self.immediate_synchronous_send_with_tag(scope, buffer, 0)
    }

    /// Begins to send; over when the message has met its receive.
    ///
    /// # Panics
    /// For any process.
    pub fn immediate_synchronous_send_with_tag<'a, B: Buffer + ?Sized>(
        &self,
        _: &request::LocalScope<'a>,
        buffer: &'a B,
        tag: Tag,
    ) -> request::Request<'a, T, S>
    where
        'c: 'a,
    {
        let (team, to) = (self.team(), self.member());
        let sent = team.immediate_synchronous_send(&mut self.endpoint(), to, tag, buffer.values());
        request::Request::sending(self.of.universe, well(sent))
    }

    fn begin_into<'a, B: BufferMut + ?Sized>(&self, buffer: &'a mut B, tag: Asked) -> request::Request<'a, T, S>
    where
        'c: 'a,
    {
        let values = buffer.values_mut();
        let receive = self.team().immediate_receive(&mut self.endpoint(), self.source, tag, values.len());
        request::Request::receiving(self.of.universe, well(receive), values)
    }

    fn begin_one<V: Element>(&self, tag: Asked) -> request::ReceiveFuture<'c, V, T, S> {
        let receive = self.team().immediate_receive(&mut self.endpoint(), self.source, tag, 1);
        request::ReceiveFuture::new(self.of.universe, self.team().clone(), well(receive))
    }

    /// Begins to receive a message with any tag into a buffer, which is filled when the request is waited for.
    ///
    /// # Panics
    /// If the communicator was freed.
    pub fn immediate_receive_into<'a, B: BufferMut + ?Sized>(
        &self,
        _: &request::LocalScope<'a>,
        buffer: &'a mut B,
    ) -> request::Request<'a, T, S>
    where
        'c: 'a,
    {
        self.begin_into(buffer, ANY_TAG)
    }

    /// Begins to receive into a buffer, which is filled when the request is waited for.
    ///
    /// # Panics
    /// If the communicator was freed.
    pub fn immediate_receive_into_with_tag<'a, B: BufferMut + ?Sized>(
        &self,
        _: &request::LocalScope<'a>,
        buffer: &'a mut B,
        tag: Tag,
    ) -> request::Request<'a, T, S>
    where
        'c: 'a,
    {
        self.begin_into(buffer, tag.into())
    }

    /// Begins to receive one value with any tag.
    ///
    /// # Panics
    /// If the communicator was freed.
    pub fn immediate_receive<V: Element>(&self) -> request::ReceiveFuture<'c, V, T, S> {
        self.begin_one(ANY_TAG)
    }

    /// Begins to receive one value.
    ///
    /// # Panics
    /// If the communicator was freed.
    pub fn immediate_receive_with_tag<V: Element>(&self, tag: Tag) -> request::ReceiveFuture<'c, V, T, S> {
        self.begin_one(tag.into())
    }
}

impl<T: Transport, S: State> Destination for Process<'_, T, S> {
    fn send_with_tag<B: Buffer + ?Sized>(&self, buffer: &B, tag: Tag) {
        well(self.team().send(&mut self.endpoint(), self.member(), tag, buffer.values()));
    }

    fn synchronous_send_with_tag<B: Buffer + ?Sized>(&self, buffer: &B, tag: Tag) {
        well(self.team().synchronous_send(&mut self.endpoint(), self.member(), tag, buffer.values()));
    }
}

impl<T: Transport, S: State> Origin for Process<'_, T, S> {
    fn receive<V: Element>(&self) -> (V, Status) {
        let (value, found) = well(self.team().receive(&mut self.endpoint(), self.source, ANY_TAG));
        (value, Status(found))
    }

    fn receive_with_tag<V: Element>(&self, tag: Tag) -> (V, Status) {
        let (value, found) = well(self.team().receive(&mut self.endpoint(), self.source, tag));
        (value, Status(found))
    }

    fn receive_vec<V: Element>(&self) -> (Vec<V>, Status) {
        self.vec(ANY_TAG)
    }

    fn receive_vec_with_tag<V: Element>(&self, tag: Tag) -> (Vec<V>, Status) {
        self.vec(tag.into())
    }

    fn receive_into<B: BufferMut + ?Sized>(&self, buffer: &mut B) -> Status {
        self.into(buffer, ANY_TAG)
    }

    fn receive_into_with_tag<B: BufferMut + ?Sized>(&self, buffer: &mut B, tag: Tag) -> Status {
        self.into(buffer, tag.into())
    }

    fn probe(&self) -> Status {
        self.look(ANY_TAG)
    }

    fn probe_with_tag(&self, tag: Tag) -> Status {
        self.look(tag.into())
    }

    fn immediate_probe(&self) -> Option<Status> {
        self.look_now(ANY_TAG)
    }

    fn immediate_probe_with_tag(&self, tag: Tag) -> Option<Status> {
        self.look_now(tag.into())
    }
}

/// A message that was set aside.
#[derive(Debug)]
pub struct Message<'u, T: Transport, S: State> {
    message: crate::Message,
    universe: &'u Universe<T, S>,
}

impl<'u, T: Transport, S: State> Message<'u, T, S> {
    /// Receives the message.
    ///
    /// # Panics
    /// If its sender is lost.
    pub fn matched_receive_vec<V: Element>(self) -> (Vec<V>, Status) {
        let (values, found) = well(self.message.receive_vec(&mut self.universe.endpoint()));
        (values, Status(found))
    }

    /// Receives the message into a buffer.
    ///
    /// # Panics
    /// If its sender is lost, or the buffer is too short.
    pub fn matched_receive_into<B: BufferMut + ?Sized>(self, buffer: &mut B) -> Status {
        Status(well(self.message.receive_into(&mut self.universe.endpoint(), buffer.values_mut())))
    }

    /// Begins to receive the message into a buffer, which is filled when the request is waited for.
    ///
    /// # Panics
    /// If its sender is lost.
    pub fn immediate_matched_receive_into<'a, B: BufferMut + ?Sized>(
        self,
        _: &request::LocalScope<'a>,
        buffer: &'a mut B,
    ) -> request::Request<'a, T, S>
    where
        'u: 'a,
    {
        let values = buffer.values_mut();
        let receive = self.message.immediate_receive(&mut self.universe.endpoint(), values.len());
        request::Request::receiving(self.universe, well(receive), values)
    }
}

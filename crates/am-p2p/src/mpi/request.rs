//! Requests in the shape of rsmpi.

use super::{State, Status, Universe, well};
use crate::MessageError;
use crate::communicator::{Communicator, Status as Found};
use crate::request::{Pending, ReceiveRequest, SendRequest};
use am_core::{Endpoint, Transport};
use am_pgas::pointer::Element;
use std::fmt;
use std::marker::PhantomData;

/// Buffers of requests live as long as this.
#[derive(Debug)]
pub struct LocalScope<'a>(PhantomData<fn(&'a ()) -> &'a ()>);

/// Calls a function with a scope for requests.
pub fn scope<'a, R>(work: impl FnOnce(&LocalScope<'a>) -> R) -> R {
    work(&LocalScope(PhantomData))
}

/// What a receive does with its message: it is there, it can be waited for, or it is cancelled.
trait Receiving<T: Transport, S: State> {
    fn pending(&self) -> &dyn Pending;
    fn wait(self: Box<Self>, endpoint: &mut Endpoint<T, S>) -> Result<Found, MessageError>;
    fn cancel(&self, endpoint: &mut Endpoint<T, S>) -> Result<(), MessageError>;
}

struct Into<'a, V> {
    request: ReceiveRequest<V>,
    values: &'a mut [V],
}

impl<T: Transport, S: State, V: Element> Receiving<T, S> for Into<'_, V> {
    fn pending(&self) -> &dyn Pending {
        &self.request
    }

    fn wait(self: Box<Self>, endpoint: &mut Endpoint<T, S>) -> Result<Found, MessageError> {
        self.request.wait_into(endpoint, self.values)
    }

    fn cancel(&self, endpoint: &mut Endpoint<T, S>) -> Result<(), MessageError> {
        self.request.begin_cancel(endpoint)
    }
}

enum Kind<'a, T: Transport, S: State> {
    Send(SendRequest),
    Receive(Box<dyn Receiving<T, S> + 'a>),
}

/// A message under way. Dropped, a send goes on by itself, and a receive is cancelled.
#[must_use = "a request is over when it has been waited for"]
pub struct Request<'a, T: Transport, S: State> {
    universe: &'a Universe<T, S>,
    kind: Kind<'a, T, S>,
}

impl<T: Transport, S: State> fmt::Debug for Request<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("sends", &matches!(self.kind, Kind::Send(_))).finish()
    }
}

impl<'a, T: Transport, S: State> Request<'a, T, S> {
    pub(super) fn sending(universe: &'a Universe<T, S>, request: SendRequest) -> Self {
        Self { universe, kind: Kind::Send(request) }
    }

    pub(super) fn receiving<V: Element>(
        universe: &'a Universe<T, S>,
        request: ReceiveRequest<V>,
        values: &'a mut [V],
    ) -> Self {
        Self { universe, kind: Kind::Receive(Box::new(Into { request, values })) }
    }

    fn pending(&self) -> &dyn Pending {
        match &self.kind {
            Kind::Send(request) => request,
            Kind::Receive(receive) => receive.pending(),
        }
    }

    /// Waits until the request is over; of a receive, what is known of the message, if it was not cancelled.
    ///
    /// # Panics
    /// If the peer is lost, or the message does not fit.
    pub fn wait(self) -> Option<Status> {
        let mut endpoint = self.universe.endpoint();
        match self.kind {
            Kind::Send(request) => {
                well(request.wait(&mut endpoint));
                None
            }
            Kind::Receive(receive) => match receive.wait(&mut endpoint) {
                Err(MessageError::Cancelled { .. }) => None,
                found => Some(Status(well(found))),
            },
        }
    }

    /// Waits without its status.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn wait_without_status(self) {
        self.wait();
    }

    /// What waiting returns if the request is over; otherwise the request.
    ///
    /// # Errors
    /// The request, if it is under way.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn test(self) -> Result<Option<Status>, Self> {
        let over = well(crate::request::test_all(&mut self.universe.endpoint(), &[self.pending()]));
        if over { Ok(self.wait()) } else { Err(self) }
    }

    /// Asks for a receive to be cancelled, which it is unless it has met a message; a send goes on. Waiting tells
    /// how it ends.
    ///
    /// # Panics
    /// If the endpoint fails.
    pub fn cancel(&self) {
        if let Kind::Receive(receive) = &self.kind {
            well(receive.cancel(&mut self.universe.endpoint()));
        }
    }
}

/// A value that is being received. Dropped, the receive is cancelled.
#[must_use = "a value is received by asking for it"]
pub struct ReceiveFuture<'u, V, T: Transport, S: State> {
    universe: &'u Universe<T, S>,
    communicator: Communicator,
    request: ReceiveRequest<V>,
}

impl<V, T: Transport, S: State> fmt::Debug for ReceiveFuture<'_, V, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReceiveFuture").field(&self.request).finish()
    }
}

impl<'u, V: Element, T: Transport, S: State> ReceiveFuture<'u, V, T, S> {
    pub(super) fn new(
        universe: &'u Universe<T, S>,
        communicator: Communicator,
        request: ReceiveRequest<V>,
    ) -> Self {
        Self { universe, communicator, request }
    }

    /// Waits for the value.
    ///
    /// # Panics
    /// If the sender is lost, or the message is no value.
    pub fn get(self) -> (V, Status) {
        let mut value = [V::new_zeroed()];
        let found = well(self.request.wait_into(&mut self.universe.endpoint(), &mut value));
        if found.count::<V>() != 1 {
            well(Err(self.communicator.too_short(&found, size_of::<V>() as u64)))
        }
        (value[0], Status(found))
    }

    /// The value if it has come; otherwise the request for it.
    ///
    /// # Errors
    /// The request, while no value has come.
    ///
    /// # Panics
    /// As [`get`](Self::get).
    pub fn r#try(self) -> Result<(V, Status), Self> {
        let over = well(crate::request::test_all(&mut self.universe.endpoint(), &[&self.request]));
        if over { Ok(self.get()) } else { Err(self) }
    }
}

/// Waits for a request when dropped.
#[derive(Debug)]
pub struct WaitGuard<'a, T: Transport, S: State>(Option<Request<'a, T, S>>);

impl<'a, T: Transport, S: State> From<Request<'a, T, S>> for WaitGuard<'a, T, S> {
    fn from(request: Request<'a, T, S>) -> Self {
        Self(Some(request))
    }
}

impl<T: Transport, S: State> Drop for WaitGuard<'_, T, S> {
    fn drop(&mut self) {
        if let Some(request) = self.0.take()
            && !std::thread::panicking()
        {
            request.wait();
        }
    }
}

/// Cancels a request when dropped, and waits for it.
#[derive(Debug)]
pub struct CancelGuard<'a, T: Transport, S: State>(Option<Request<'a, T, S>>);

impl<'a, T: Transport, S: State> From<Request<'a, T, S>> for CancelGuard<'a, T, S> {
    fn from(request: Request<'a, T, S>) -> Self {
        Self(Some(request))
    }
}

impl<T: Transport, S: State> Drop for CancelGuard<'_, T, S> {
    fn drop(&mut self) {
        if let Some(request) = self.0.take()
            && !std::thread::panicking()
        {
            request.cancel();
            request.wait();
        }
    }
}

/// Waits for one of some requests, which is taken out: its place and status. `None` without requests.
///
/// # Panics
/// If a peer is lost, or a message does not fit.
pub fn wait_any<T: Transport, S: State>(requests: &mut Vec<Request<'_, T, S>>) -> Option<(usize, Option<Status>)> {
    let universe = requests.first()?.universe;
    let pending: Vec<&dyn Pending> = requests.iter().map(Request::pending).collect();
    let index = well(crate::request::wait_any(&mut universe.endpoint(), &pending))?;
    Some((index, requests.remove(index).wait()))
}

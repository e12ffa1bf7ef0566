//! An endpoint before it is attached: its transport's limits are known, its handlers are not yet.

use super::{Endpoint, Member};
use crate::address::{Address, Destination, Rank, Shape};
use crate::error::AttachError;
use crate::handlers::Handlers;
use crate::stall;
use crate::time::Span;
use crate::transport::{Category, Lane, Limits, Transport};
use std::fmt;

/// A transport about to become an [`Endpoint`]; [`Endpoint::builder`] makes it. What it tells can decide which
/// handlers are registered, and with which reply bounds.
///
/// Dropping it is leaving the job, as dropping an endpoint is.
///
/// ```
/// use am_core::{Endpoint, Handlers, loopback};
///
/// let joining = Endpoint::builder(loopback::single());
/// let largest = joining.limits(joining.address()).expect("this endpoint is part of its job").medium_reply;
/// let mut handlers = Handlers::<()>::new();
/// handlers.request_bounded("read", largest as u32, |_, _, (), _| ())?;
/// let endpoint = joining.timeout(am_core::Span::from_secs(10)).attach(handlers, ())?;
/// # endpoint.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "an endpoint takes part once it is attached"]
pub struct Joining<T: Transport> {
    transport: Member<T>,
    timeout: Option<Span>,
}

impl<T: Transport> Endpoint<T, ()> {
    /// A transport about to become an endpoint, of whatever state.
    pub fn builder(transport: T) -> Joining<T> {
        Joining { transport: Member::new(transport), timeout: stall::default_timeout() }
    }
}

impl<T: Transport> fmt::Debug for Joining<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joining").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl<T: Transport> Joining<T> {
    /// The endpoint's address.
    pub fn address(&self) -> Address {
        self.shape().address(self.transport.local_peer())
    }

    /// The shape of the job.
    pub fn shape(&self) -> Shape {
        self.transport.shape()
    }

    /// The limits towards a peer, or `None` outside the job.
    pub fn limits(&self, to: impl Destination) -> Option<&Limits> {
        self.shape().peer(to.address()).map(|peer| self.transport.limits(peer))
    }

    /// The largest payload towards every peer of the job.
    pub fn max_payload(&self, category: Category, lane: Lane, arguments: usize) -> u64 {
        let peers = (0..self.shape().peers()).map(crate::Peer);
        let limits = peers.map(|peer| self.transport.limits(peer).max_payload(category, lane, arguments));
        limits.min().unwrap_or(0)
    }

    /// Size in bytes of this rank's own segment. Those of others are known once the endpoint is attached.
    pub fn segment_len(&self) -> u64 {
        let Address { rank: Rank(rank), .. } = self.address();
        self.transport.segment_len(Rank(rank))
    }

    /// The transport, for what only it can do.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Limits how long attaching and every later wait may take; see [`Endpoint::set_timeout`]. Without this the
    /// limit is [`stall::default_timeout`], initially none.
    pub fn timeout(self, timeout: impl Into<Option<Span>>) -> Self {
        Self { timeout: timeout.into(), ..self }
    }

    /// Joins the job: compares handler tables with all other endpoints and returns when all have arrived.
    /// Collective; blocks and allocates.
    ///
    /// # Errors
    /// As [`Endpoint::attach`], and a time-out.
    pub fn attach<S>(self, handlers: Handlers<S>, state: S) -> Result<Endpoint<T, S>, AttachError> {
        Endpoint::join(self.transport, handlers, state, self.timeout)
    }
}

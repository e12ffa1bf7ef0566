//! Point-to-point messages as MPI has them: blocking and non-blocking, matched by tag and rank, wildcards
//! included.

use super::config::{Plugin, PscomConfig};
use super::engine::{Arrival, Engine, LinkError, Offer};
use super::header::Envelope;
use super::matching::{Matching, Selector};
use crate::nic::Nic;
use am_core::transport::Departure;
use am_core::{Instant, PeerStatus, Span};
use fabric_sim::WaitFor;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// The longest message in bytes: what one get can fetch.
pub const MAX_MESSAGE: usize = crate::nic::rma::MAX_SIZE as usize;

/// Why a call of a [`Messenger`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PscomError {
    /// There is no such rank.
    #[error("rank {rank} is outside the job of {ranks} ranks")]
    NoSuchRank {
        /// The rank asked for.
        rank: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The message is longer than any may be.
    #[error("a message of {bytes} bytes exceeds the limit of {limit} bytes")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The longest that is allowed.
        limit: usize,
    },
    /// The rank that would have to send has ended.
    #[error("rank {rank} has ended and sent no such message")]
    Gone {
        /// The rank.
        rank: u32,
    },
    /// The connection to a rank broke.
    #[error("the connection to rank {rank} broke: {error}")]
    Broken {
        /// The rank.
        rank: u32,
        /// Why.
        error: LinkError,
    },
}

/// A message that is being sent.
#[derive(Debug)]
#[must_use = "whether a message has been sent is known by waiting for it"]
pub struct SendRequest(u64);

/// A message that is awaited.
#[derive(Debug)]
#[must_use = "a message is received by waiting for it"]
pub struct ReceiveRequest {
    number: u64,
    source: Option<u32>,
}

/// A message that has been received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub source: u32,
    /// Its tag.
    pub tag: u32,
    /// Its data.
    pub data: Vec<u8>,
}

/// A message that nobody has asked for yet.
enum Waiting {
    Here(Vec<u8>),
    Offered(Offer),
}

/// The communicator of all messages.
const CONTEXT: u32 = 0;

/// A rank's end of point-to-point communication. Dropped, it first sends what it has taken over.
///
/// ```
/// use extoll_sim::ExtollConfig;
/// use extoll_sim::conduit::pscom::{Messenger, Plugin, PscomConfig};
///
/// let report = extoll_sim::run(&ExtollConfig::pair(), |nic| {
///     let mut messenger = Messenger::new(&nic, &PscomConfig::with(Plugin::Rma));
///     if nic.rank() == 0 {
///         messenger.send(1, 7, b"hello").unwrap();
///         return Vec::new();
///     }
///     let received = messenger.receive(None, Some(7)).unwrap();
///     assert_eq!((received.source, messenger.plugin(0)), (0, Some(Plugin::Rma)));
///     received.data
/// })?;
/// assert_eq!(report.results[1].as_deref(), Some(&b"hello"[..]));
/// # Ok::<(), fabric_sim::RunError>(())
/// ```
pub struct Messenger<'a> {
    engine: Engine<'a>,
    matching: Matching<u64, (u32, Waiting)>,
    numbers: u64,
    received: BTreeMap<u64, Received>,
    sent: BTreeSet<u64>,
    broken: BTreeMap<u32, LinkError>,
    departed: bool,
}

impl std::fmt::Debug for Messenger<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Messenger").field("rank", &self.rank()).finish_non_exhaustive()
    }
}

impl<'a> Messenger<'a> {
    /// A rank's messenger. The configuration must be the same on all ranks; see [`PscomConfig::check`].
    ///
    /// # Panics
    /// If the rank has opened its ports already.
    pub fn new(nic: &Nic<'a>, config: &PscomConfig) -> Self {
        Self {
            engine: Engine::new(nic, config, MAX_MESSAGE as u32, true),
            matching: Matching::default(),
            numbers: 0,
            received: BTreeMap::new(),
            sent: BTreeSet::new(),
            broken: BTreeMap::new(),
            departed: false,
        }
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.engine.nic().rank()
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.engine.nic().ranks()
    }

    /// This rank's time.
    pub fn now(&self) -> Instant {
        self.engine.nic().now()
    }

    /// Lets time pass in which the processor computes.
    pub fn charge(&self, cost: Span) {
        self.engine.nic().charge(cost);
    }

    /// The plugin that carries the connection to a rank; `None` where there is no connection, or none is needed.
    pub fn plugin(&self, to: u32) -> Option<Plugin> {
        self.engine.plugin(to)
    }

    /// All connections with their plugins, in the order in which they were made.
    pub fn connections(&self) -> Vec<(u32, Plugin)> {
        self.engine.connections().collect()
    }

    /// How many connections each plugin carries, and how many had to do without the ring that they were to have.
    pub fn plugin_counts(&self) -> super::PluginCounts {
        self.engine.counts()
    }

    /// Messages that have come and that nobody has asked for.
    pub fn unexpected(&self) -> usize {
        self.matching.unexpected()
    }

    /// Begins to send a message. Copies the data; does not block.
    ///
    /// # Errors
    /// [`PscomError::NoSuchRank`], [`PscomError::TooLong`].
    pub fn isend(&mut self, to: u32, tag: u32, data: &[u8]) -> Result<SendRequest, PscomError> {
        self.check_rank(to)?;
        if data.len() > MAX_MESSAGE {
            return Err(PscomError::TooLong { bytes: data.len(), limit: MAX_MESSAGE });
        }
        let mut body = self.engine.pool().take();
        body.extend_from_slice(data);
        let envelope = Envelope { context: CONTEXT, tag, source: self.rank() };
        Ok(SendRequest(self.engine.send(to, envelope, body)))
    }

    /// Asks for a message from a rank, or any, with a tag, or any. Does not block.
    ///
    /// # Errors
    /// [`PscomError::NoSuchRank`].
    pub fn irecv(&mut self, source: Option<u32>, tag: Option<u32>) -> Result<ReceiveRequest, PscomError> {
        source.map_or(Ok(()), |source| self.check_rank(source))?;
        self.numbers += 1;
        let number = self.numbers;
        let selector = Selector { context: CONTEXT, tag, source };
        if let Some((envelope, number, (from, waiting))) = self.matching.post(selector, number) {
            self.matched(number, from, envelope, waiting);
        }
        Ok(ReceiveRequest { number, source })
    }

    /// Whether a message has been sent, so that nothing of it is here any more. Makes progress.
    pub fn test_send(&mut self, request: SendRequest) -> Result<(), SendRequest> {
        self.progress();
        if self.sent.remove(&request.0) { Ok(()) } else { Err(request) }
    }

    /// The message, if it has come; otherwise the request, to ask again. Makes progress.
    ///
    /// # Errors
    /// The request, while the message has not come.
    pub fn test_receive(&mut self, request: ReceiveRequest) -> Result<Received, ReceiveRequest> {
        self.progress();
        self.received.remove(&request.number).ok_or(request)
    }

    /// Waits until a message has been sent: copied to the interface, or fetched by its receiver. Messages to ranks
    /// that have ended count as sent.
    ///
    /// # Errors
    /// [`PscomError::Broken`] if a connection broke.
    pub fn wait_send(&mut self, request: SendRequest) -> Result<(), PscomError> {
        loop {
            self.deliver();
            if self.sent.remove(&request.0) {
                return Ok(());
            }
            self.wait_step(WaitFor::Named("a message to be sent"), |_| Ok(()))?;
        }
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// [`PscomError::Gone`] if nobody is left who could send it; [`PscomError::Broken`] if a connection broke.
    pub fn wait_receive(&mut self, request: ReceiveRequest) -> Result<Received, PscomError> {
        let ReceiveRequest { number, source } = request;
        let wanted = source.map_or(WaitFor::Arrival, WaitFor::From);
        loop {
            self.deliver();
            if let Some(received) = self.received.remove(&number) {
                return Ok(received);
            }
            self.wait_step(wanted, |messenger| messenger.somebody_could_send(source))?;
        }
    }

    /// Sends a message and waits until it has been sent.
    ///
    /// # Errors
    /// As [`Messenger::isend`] and [`Messenger::wait_send`].
    pub fn send(&mut self, to: u32, tag: u32, data: &[u8]) -> Result<(), PscomError> {
        let request = self.isend(to, tag, data)?;
        self.wait_send(request)
    }

    /// Waits for a message from a rank, or any, with a tag, or any.
    ///
    /// # Errors
    /// As [`Messenger::irecv`] and [`Messenger::wait_receive`].
    pub fn receive(&mut self, source: Option<u32>, tag: Option<u32>) -> Result<Received, PscomError> {
        let request = self.irecv(source, tag)?;
        self.wait_receive(request)
    }

    /// Sends one message and receives another at the same time.
    ///
    /// # Errors
    /// As [`Messenger::send`] and [`Messenger::receive`].
    pub fn send_receive(
        &mut self,
        (to, send_tag): (u32, u32),
        data: &[u8],
        (source, receive_tag): (Option<u32>, Option<u32>),
    ) -> Result<Received, PscomError> {
        let receive = self.irecv(source, receive_tag)?;
        let send = self.isend(to, send_tag, data)?;
        self.wait_send(send)?;
        self.wait_receive(receive)
    }

    /// Makes progress as far as there is something to do; does not wait.
    pub fn progress(&mut self) {
        self.engine.step();
        self.deliver();
    }

    /// Sends everything and leaves.
    pub fn finish(mut self) {
        self.depart(Departure::Finished);
    }

    fn check_rank(&self, rank: u32) -> Result<(), PscomError> {
        let ranks = self.ranks();
        if rank < ranks { Ok(()) } else { Err(PscomError::NoSuchRank { rank, ranks }) }
    }

    fn wait_step(
        &mut self,
        wanted: WaitFor,
        check: impl FnOnce(&Self) -> Result<(), PscomError>,
    ) -> Result<(), PscomError> {
        if self.engine.step() {
            return Ok(());
        }
        if let Some((&rank, &error)) = self.broken.first_key_value() {
            return Err(PscomError::Broken { rank, error });
        }
        check(self)?;
        self.engine.forget_departed();
        self.engine.idle(None, wanted);
        Ok(())
    }

    /// Takes what the engine brings.
    fn deliver(&mut self) {
        while let Some(arrival) = self.engine.next_arrival() {
            match arrival {
                Arrival::Message { from, envelope, body } => self.arrive(from, envelope, Waiting::Here(body)),
                Arrival::Offer { from, envelope, offer } => self.arrive(from, envelope, Waiting::Offered(offer)),
                Arrival::Fetched { from, envelope, ticket, body } => {
                    self.received.insert(ticket, Received { source: from, tag: envelope.tag, data: body });
                }
                Arrival::Broken { peer, error } => {
                    self.broken.insert(peer, error);
                }
            }
        }
        while let Some(ticket) = self.engine.next_sent() {
            self.sent.insert(ticket);
        }
    }

    fn arrive(&mut self, from: u32, envelope: Envelope, waiting: Waiting) {
        if let Some((number, (from, waiting))) = self.matching.arrive(envelope, (from, waiting)) {
            self.matched(number, from, envelope, waiting);
        }
    }

    fn matched(&mut self, number: u64, from: u32, envelope: Envelope, waiting: Waiting) {
        match waiting {
            Waiting::Here(data) => {
                self.received.insert(number, Received { source: from, tag: envelope.tag, data });
            }
            Waiting::Offered(offer) => self.engine.fetch(from, envelope, offer, number),
        }
    }

    fn somebody_could_send(&self, source: Option<u32>) -> Result<(), PscomError> {
        let context = self.engine.nic().context();
        let ended = |rank: u32| context.known_status(rank) != PeerStatus::Active;
        match source {
            Some(rank) if ended(rank) => Err(PscomError::Gone { rank }),
            Some(_) => Ok(()),
            None => match (0..self.ranks()).filter(|rank| *rank != self.rank()).all(ended) {
                true => {
                    Err(PscomError::Gone { rank: self.ranks() - 1 - u32::from(self.rank() + 1 == self.ranks()) })
                }
                false => Ok(()),
            },
        }
    }

    fn depart(&mut self, how: Departure) {
        if !std::mem::replace(&mut self.departed, true) {
            self.engine.leave(how);
        }
    }
}

impl Drop for Messenger<'_> {
    fn drop(&mut self) {
        self.depart(if std::thread::panicking() { Departure::Panicked } else { Departure::Finished });
    }
}

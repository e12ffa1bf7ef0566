//! [`Pscom`]: active messages over two-sided messages.
//!
//! Every frame is a message of its own, with the headers, matching envelope and software cost of one; requests,
//! replies and Long payloads alike, which the receiver's processor copies to the segment. Frames of a pair are
//! handled in their order. Flow control is a static partition (`account`): what is under way between two ranks is
//! bounded, so that the queues on both sides are, and a reply always has its place.

use super::account::{Account, AccountError};
use super::config::{AmConfig, PscomConfig};
use super::engine::{Arrival as Incoming, Engine};
use super::frame::{ENDED_AT, Frame, Kind};
use super::header::Envelope;
use super::reply_path::ConduitReplyPath;
use crate::nic::{HostMemory, Nic};
use am_core::transport::{
    Arrival, Body, Buffer, Category, CreditSnapshot, Departure, FaultyPeers, Limits, LossCause, Membership,
    PayloadWriter, PeerStatus, Refused, ReplyBound, RequestHeader, Resource, Sink, Slot, Transport, WaitReason,
    Waiting,
};
use am_core::{Instant, Payload, Peer, Rank, Segment, Shape, Span, Words};
use fabric_sim::{Processors, Report, RunError};
use std::collections::VecDeque;
use std::sync::Arc;

/// The communicator of active messages.
const CONTEXT: u32 = 1;

/// Steps of the engine in one poll that find no frame to deliver: a large message takes more.
const STEPS: usize = 1024;

/// What a rank takes of the system's memory: at 4096 ranks with 0 and 6 partners 69.8 and 81.5 KiB each, at 16,384
/// with 6 83.2.
pub const MEMORY: fabric_sim::RankMemory =
    fabric_sim::RankMemory { rank: 71_400, partner: 2_000, other: 0, twice: 4_600 };

/// Runs a program with active messages over pscom on every rank of a machine.
///
/// ```
/// use am_core::{Address, Endpoint, Handlers, Payload, Rank};
/// use extoll_sim::{ExtollConfig, conduit::pscom::{self, PscomConfig}};
///
/// let report = pscom::run(&extoll_sim::cluster(64), &PscomConfig::default(), |transport| {
///     let mut handlers = Handlers::<u32>::new();
///     let add = handlers.one_way("add", |sum: &mut u32, _: Address, number: u32, _: Payload<'_>| *sum += number);
///     let add = add.unwrap();
///     let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
///     endpoint.request(Rank(0), add, endpoint.rank().0).unwrap();
///     endpoint.finish().unwrap()
/// })?;
/// assert_eq!(report.results[0], Some(63 * 64 / 2));
/// # Ok::<(), fabric_sim::RunError>(())
/// ```
///
/// # Errors
/// As [`run`](crate::run()); [`RunError::Config`] also for a [`PscomConfig`] that is not possible.
pub fn run<R, F>(machine: &crate::ExtollConfig, pscom: &PscomConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Pscom<'_>) -> R + 'static,
{
    check(machine, pscom)?;
    let pscom = pscom.clone();
    crate::run(machine, move |nic| program(Pscom::new(&nic, &pscom)))
}

/// [`run`] in two halves, on one processor or on two: the same on both, but not the order of events of [`run`];
/// see [`Sim::run_halves`](fabric_sim::Sim::run_halves).
///
/// # Errors
/// As [`run`], and what [`Sim::run_halves`](fabric_sim::Sim::run_halves) refuses.
pub fn run_halves<R, F>(
    machine: &crate::ExtollConfig,
    pscom: &PscomConfig,
    processors: Processors,
    program: F,
) -> Result<Report<R>, RunError>
where
    R: Send + 'static,
    F: Fn(Pscom<'_>) -> R + Send + Sync + 'static,
{
    check(machine, pscom)?;
    MEMORY.in_halves().check(machine.ranks)?;
    let program = Arc::new(program);
    machine.run_halves(processors, || {
        let (program, pscom) = (Arc::clone(&program), pscom.clone());
        move |nic: crate::Nic<'_>| program(Pscom::new(&nic, &pscom))
    })
}

fn check(machine: &crate::ExtollConfig, pscom: &PscomConfig) -> Result<(), RunError> {
    // A machine that cannot be is refused in its own words, before what the conduit needs of it.
    machine.check()?;
    pscom.check_on(machine)?;
    Ok(MEMORY.check(machine.ranks)?)
}

/// A frame that has come.
struct Delivery {
    from: u32,
    frame: Frame,
    /// Where in the body the payload begins.
    at: usize,
    body: Vec<u8>,
}

/// A message whose turn has not come: one before it is being fetched, or it is itself.
enum Held {
    Here(Vec<u8>),
    Fetching(u64),
}

/// What is kept of a peer once there was something to or from it.
#[derive(Default)]
pub(super) struct PeerState {
    pub(super) account: Account,
    /// Whether the peer is in the list of those that have to handle something.
    outstanding: bool,
    held: VecDeque<Held>,
}

/// The transport of a rank.
pub struct Pscom<'a> {
    pub(super) engine: Engine<'a>,
    config: AmConfig,
    limits: Limits,
    segment: Segment<HostMemory>,
    /// By the engine's numbers of connections.
    peers: Vec<PeerState>,
    inbox: VecDeque<Delivery>,
    /// Connections over which requests went that may not have been handled.
    outstanding_peers: Vec<u32>,
    faulty: FaultyPeers,
    bare_given: u64,
    fetches: u64,
    /// Whether room has come since the last refusal, or a peer may be asked again: a wait goes on.
    room: bool,
    /// Whether the last poll ended for want of steps, so that more can be done at once and nobody will say so.
    cut_short: bool,
    departed: bool,
}

impl std::fmt::Debug for Pscom<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pscom").field("rank", &self.engine.nic().rank()).finish_non_exhaustive()
    }
}

impl<'a> Pscom<'a> {
    /// A rank's transport. The configuration must be the same on all ranks; see [`PscomConfig::check`].
    ///
    /// # Panics
    /// If the rank has opened its ports already.
    pub fn new(nic: &Nic<'a>, config: &PscomConfig) -> Self {
        let am = config.am;
        let medium = am.medium as usize;
        let limits = Limits::uniform(medium, am.long.into());
        let bytes = am.segment as usize;
        Self {
            engine: Engine::new(nic, config, Frame::LARGEST + am.long.max(am.medium), false),
            config: am,
            limits,
            segment: Segment::new(HostMemory::new(bytes), bytes),
            peers: Vec::new(),
            inbox: VecDeque::new(),
            outstanding_peers: Vec::new(),
            faulty: FaultyPeers::new(),
            bare_given: 0,
            fetches: 0,
            room: false,
            cut_short: false,
            departed: false,
        }
    }

    /// The plugin that carries the connection to a rank; `None` where there is no connection, or none is needed.
    pub fn plugin(&self, to: Rank) -> Option<super::Plugin> {
        self.engine.plugin(to.0)
    }

    /// The peers that have been talked to, with their plugins, in the order in which the connections were made.
    pub fn connections(&self) -> Vec<(Rank, super::Plugin)> {
        self.engine.connections().map(|(rank, plugin)| (Rank(rank), plugin)).collect()
    }

    /// How many connections each plugin carries, and how many had to do without the ring that they were to have.
    pub fn plugin_counts(&self) -> super::PluginCounts {
        self.engine.counts()
    }

    /// What is kept of a peer. Opens the connection on first use.
    pub(super) fn peer(&mut self, rank: u32) -> &mut PeerState {
        let number = self.number(rank);
        &mut self.peers[number]
    }

    /// The place of a peer in the list. Opens the connection on first use.
    fn number(&mut self, rank: u32) -> usize {
        let number = self.engine.connection(rank) as usize;
        if self.peers.len() <= number {
            self.peers.resize_with(number + 1, PeerState::default);
        }
        number
    }

    fn known(&self, rank: u32) -> Option<&PeerState> {
        self.peers.get(self.engine.known(rank)? as usize)
    }

    /// What is known of a peer as of the last look at the machine.
    pub(super) fn last_status(&self, rank: u32) -> PeerStatus {
        self.faulty.status(Peer(rank), || self.engine.nic().context().known_status(rank))
    }

    /// Fails if a peer is gone.
    fn check(&self, peer: Peer) -> Result<(), Refused> {
        self.last_status(peer.0).active().map_err(Refused::Gone)
    }

    /// Takes room for a request.
    fn admit(&mut self, to: Peer, reply: ReplyBound) -> Result<(), Refused> {
        self.check(to)?;
        let reply = reply != ReplyBound::None;
        if self.book(to.0, reply).is_ok() {
            return Ok(());
        }
        // Taking in, without delivering, may bring the counts that are missing; a refusal takes time in any case.
        self.advance();
        self.check(to)?;
        let booked = self.book(to.0, reply);
        self.room &= booked.is_ok();
        booked.map_err(Refused::Busy)
    }

    /// Takes room for a request, if there is any.
    fn book(&mut self, to: u32, reply: bool) -> Result<(), Resource> {
        let (limits, number) = (self.config.partition(), self.number(to));
        let peer = &mut self.peers[number];
        peer.account.admit(limits, reply)?;
        if !std::mem::replace(&mut peer.outstanding, true) {
            self.outstanding_peers.push(number as u32);
        }
        Ok(())
    }

    /// Begins the body of a frame to a peer; what the peer is told is filled in by [`Pscom::dispatch`].
    pub(super) fn compose(&mut self, kind: Kind, handler: u8, args: &Words, offset: u64) -> Vec<u8> {
        let mut body = self.engine.pool().take();
        Frame { kind, handler, args: *args, ended: Default::default(), offset }.write(&mut body);
        body
    }

    /// Sends a frame, and with it what there is to tell.
    pub(super) fn dispatch(&mut self, to: u32, mut body: Vec<u8>) {
        let ended = self.peer(to).account.take_due();
        body[ENDED_AT..ENDED_AT + 2].copy_from_slice(&ended.handled.to_le_bytes());
        body[ENDED_AT + 2..ENDED_AT + 4].copy_from_slice(&ended.bare.to_le_bytes());
        let envelope = Envelope { context: CONTEXT, tag: 0, source: self.engine.nic().rank() };
        self.engine.send(to, envelope, body);
    }

    /// Sends a frame that has nothing but its kind and what is told.
    fn send_bare(&mut self, to: u32, kind: Kind) {
        let body = self.compose(kind, 0, &Words::EMPTY, 0);
        self.dispatch(to, body);
    }

    /// Tells a peer what must not wait.
    pub(super) fn tell_if_due(&mut self, to: u32) {
        let limits = self.config.partition();
        if self.peer(to).account.must_tell(limits) {
            self.send_bare(to, Kind::Tell);
        }
    }

    pub(super) fn count_bare(&mut self) {
        self.bare_given += 1;
    }

    /// Lets the engine take a step and takes in what it brings. Returns whether it did anything.
    fn advance(&mut self) -> bool {
        let moved = self.engine.step();
        while let Some(incoming) = self.engine.next_arrival() {
            match incoming {
                Incoming::Message { from, envelope, body } if envelope.context == CONTEXT => {
                    let held = &mut self.peer(from).held;
                    if held.is_empty() {
                        self.take(from, body);
                    } else {
                        held.push_back(Held::Here(body));
                    }
                }
                Incoming::Offer { from, envelope, offer } if envelope.context == CONTEXT => {
                    self.fetches += 1;
                    let ticket = self.fetches;
                    self.peer(from).held.push_back(Held::Fetching(ticket));
                    self.engine.fetch(from, envelope, offer, ticket);
                }
                Incoming::Fetched { from, ticket, body, .. } => self.fetched(from, ticket, body),
                Incoming::Message { from, .. } | Incoming::Offer { from, .. } => {
                    self.lose(from, LossCause::Faulty)
                }
                Incoming::Broken { peer, error } => {
                    self.lose(peer, if error.is_silence() { LossCause::Silent } else { LossCause::Faulty });
                }
            }
        }
        moved
    }

    /// The data of a message that was held has come; whatever is in order now can go on.
    fn fetched(&mut self, from: u32, ticket: u64, body: Vec<u8>) {
        let held = &mut self.peer(from).held;
        let place = held.iter_mut().find(|held| matches!(held, Held::Fetching(other) if *other == ticket));
        if let Some(place) = place {
            *place = Held::Here(body);
        }
        loop {
            let held = &mut self.peer(from).held;
            match held.pop_front() {
                Some(Held::Here(body)) => self.take(from, body),
                Some(fetching) => return held.push_front(fetching),
                None => return,
            }
        }
    }

    /// Reads a frame and takes what it tells; whatever needs a handler joins the inbox.
    fn take(&mut self, from: u32, body: Vec<u8>) {
        let limits = self.config.partition();
        let Ok((frame, at)) = Frame::read(&body) else { return self.lose(from, LossCause::Faulty) };
        let account = &mut self.peer(from).account;
        let takes_room = matches!(frame.kind, Kind::Request(..) | Kind::Control);
        let acknowledged = account.acknowledge(frame.ended);
        let entered = if takes_room { account.enter(limits) } else { Ok(()) };
        match (acknowledged, entered) {
            (Ok(news), Ok(())) => self.room |= news,
            _ => return self.lose(from, LossCause::Faulty),
        }
        match frame.kind {
            Kind::Tell => self.engine.pool().give(body),
            Kind::Answer => {
                self.peer(from).account.answered();
                // The answer may be older than the last requests: whoever waits for these asks again.
                self.room = true;
                self.engine.pool().give(body);
            }
            _ => self.inbox.push_back(Delivery { from, frame, at, body }),
        }
    }

    /// A peer broke the protocol: it counts as lost.
    #[cold]
    fn lose(&mut self, rank: u32, cause: LossCause) {
        if self.faulty.insert(Peer(rank), cause) {
            self.peer(rank).held.clear();
            self.engine.abandon(rank);
        }
    }

    /// Hands a frame to the sink. Returns whether there was anything for it.
    fn deliver<S: Sink>(&mut self, delivery: Delivery, sink: &mut S) -> bool {
        let Delivery { from, frame, at, body } = delivery;
        let segment = self.segment.clone();
        let mut payload = Payload::own(&body[at..]);
        let category = match frame.kind {
            Kind::Ask => {
                self.send_bare(from, Kind::Answer);
                self.engine.pool().give(body);
                return false;
            }
            Kind::Request(category, _) | Kind::Reply(category) => category,
            Kind::Control | Kind::Tell | Kind::Answer => Category::Medium,
        };
        if category == Category::Long {
            let placed = segment.write(frame.offset, &body[at..]);
            match placed.and_then(|()| segment.view(frame.offset, body.len() - at)) {
                Ok(view) => payload = view,
                Err(_) => {
                    self.lose(from, LossCause::Faulty);
                    return false;
                }
            }
        }
        let arrival = Arrival::new(Peer(from), category, frame.handler, &frame.args, payload);
        match frame.kind {
            Kind::Request(_, bound) => {
                // Dropped even if the handler unwinds: then the request counts as handled, and a credit goes back.
                let mut path = ConduitReplyPath::of_request(self, from, bound);
                sink.request(arrival, &mut path);
            }
            Kind::Reply(_) => {
                if let Err(AccountError::Handled { .. } | AccountError::Replies { .. }) =
                    self.peer(from).account.replied()
                {
                    self.lose(from, LossCause::Faulty);
                    return false;
                }
                self.room = true;
                sink.reply(arrival);
            }
            _ => {
                self.peer(from).account.handled();
                sink.control(Peer(from), &frame.args, payload);
                self.tell_if_due(from);
            }
        }
        self.engine.pool().give(body);
        true
    }
}

/// A reserved Medium request.
#[derive(Debug)]
pub struct PscomSlot<'s, 'a> {
    transport: &'s mut Pscom<'a>,
    to: u32,
    reply: bool,
    /// The frame and its payload; taken by the commit.
    body: Vec<u8>,
    at: usize,
    committed: bool,
}

impl PayloadWriter for PscomSlot<'_, '_> {
    fn len(&self) -> usize {
        self.body.len() - self.at
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        Buffer(&mut self.body[self.at..]).write(at, bytes);
    }
}

impl Slot for PscomSlot<'_, '_> {
    fn commit(mut self) {
        self.committed = true;
        let body = std::mem::take(&mut self.body);
        self.transport.dispatch(self.to, body);
    }
}

impl Drop for PscomSlot<'_, '_> {
    fn drop(&mut self) {
        if !self.committed {
            self.transport.peer(self.to).account.withdraw(self.reply);
            self.transport.engine.pool().give(std::mem::take(&mut self.body));
        }
    }
}

impl<'a> Membership for Pscom<'a> {
    fn local_peer(&self) -> Peer {
        Peer(self.engine.nic().rank())
    }

    fn shape(&self) -> Shape {
        Shape::new(self.engine.nic().ranks())
    }

    fn losses(&self) -> u32 {
        let context = self.engine.nic().context();
        self.faulty.losses(context.losses(), |peer| context.known_status(peer.0))
    }

    fn status(&self, peer: Peer) -> PeerStatus {
        self.engine.nic().sync();
        self.last_status(peer.0)
    }

    fn depart(&mut self, how: Departure) {
        if !std::mem::replace(&mut self.departed, true) {
            self.engine.leave(how);
        }
    }
}

impl<'a> Waiting for Pscom<'a> {
    fn idle(&mut self, until: Option<Instant>, reason: WaitReason) {
        if self.cut_short || !self.inbox.is_empty() || std::mem::take(&mut self.room) {
            return;
        }
        self.engine.idle(until, reason.into());
    }

    fn now(&self) -> Instant {
        self.engine.nic().now()
    }

    fn charge(&mut self, cost: Span) {
        self.engine.nic().charge(cost);
    }
}

impl<'a> Transport for Pscom<'a> {
    fabric_sim::transport_items!();

    type Room = ();
    type Slot<'s>
        = PscomSlot<'s, 'a>
    where
        Self: 's;

    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        self.admit(to, head.reply)?;
        let (payload, at) = body.parts();
        let mut frame = self.compose(Kind::Request(body.category(), head.reply), head.handler, args, at);
        frame.extend_from_slice(payload);
        self.dispatch(to.0, frame);
        Ok(())
    }

    fn reserve(&mut self, to: Peer, head: RequestHeader, _: &Words, _: usize) -> Result<(), Refused> {
        self.admit(to, head.reply)
    }

    fn slot(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize, (): ()) -> PscomSlot<'_, 'a> {
        let mut body = self.compose(Kind::Request(Category::Medium, head.reply), head.handler, args, 0);
        let at = body.len();
        body.resize(at + len, 0);
        let reply = head.reply != ReplyBound::None;
        PscomSlot { transport: self, to: to.0, reply, body, at, committed: false }
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        self.admit(to, ReplyBound::None)?;
        let mut body = self.compose(Kind::Control, 0, args, 0);
        body.extend_from_slice(payload);
        self.dispatch(to.0, body);
        Ok(())
    }

    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let mut done = 0;
        self.cut_short = false;
        for _ in 0..STEPS {
            while done < budget
                && let Some(delivery) = self.inbox.pop_front()
            {
                done += usize::from(self.deliver(delivery, sink));
            }
            if done != 0 || budget == 0 || !self.advance() {
                return done;
            }
        }
        self.cut_short = true;
        0
    }

    fn polls_per_sweep(&self) -> u32 {
        if self.cut_short { u32::MAX } else { 1 }
    }

    fn flush(&mut self) {
        while self.engine.unsent() != 0 && self.engine.send_more() {}
    }

    fn is_quiescent(&mut self) -> bool {
        let mut index = 0;
        while let Some(number) = self.outstanding_peers.get(index).copied() {
            let (peer, rank) = (&mut self.peers[number as usize], self.engine.rank_of(number));
            let context = self.engine.nic().context();
            if peer.account.is_quiet()
                || self.faulty.contains(Peer(rank))
                || context.known_status(rank) != PeerStatus::Active
            {
                peer.outstanding = false;
                self.outstanding_peers.swap_remove(index);
                continue;
            }
            index += 1;
            if peer.account.ask() {
                self.send_bare(rank, Kind::Ask);
            }
        }
        self.outstanding_peers.is_empty()
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        let account = self.known(peer.0).map(|peer| peer.account).unwrap_or_default();
        let (requests, replies) = account.room(self.config.partition());
        let medium = u64::from(self.config.medium);
        CreditSnapshot::default()
            .requests(requests.into(), u64::from(requests) * medium)
            .replies(replies.into(), u64::from(replies) * medium)
    }
}

impl Drop for Pscom<'_> {
    fn drop(&mut self) {
        // Reached without a departure by a rank that never attached.
        self.depart(Departure::of_drop());
    }
}

//! The conduit as a [`Transport`]: its state, and what the core asks of it.

use super::codec::{Form, Kind};
use super::config::{ConduitConfig, FlowControl, Sizes};
use super::departures::Departures;
use super::joins::FrameHeader;
use super::native::EndedOperation;
use super::one_sided::{Direct, OneSided, Operation, Operations};
use super::p3::Memories;
use super::peers::{Ledger, Peers, Report};
use super::receive::ReadyReply;
use super::registered::{Registered, Staging};
use super::reply_path::ConduitReplyPath;
use super::send::{Admitted, Again, Outgoing, Purpose};
use super::send_slots::{FOR_CONTROL, FOR_REPLY, Pieces, SendSlots};
use super::wire::Wire;
use crate::nic::{HostMemory, Nic};
use am_core::segment::Memory;
use am_core::transport::{
    Body, CreditSnapshot, Departure, Membership, NativeOneSided, PayloadWriter, Refused, ReplyBound,
    RequestHeader, Sink, Slot, Transport, WaitReason, Waiting,
};
use am_core::{Instant, Limits, LossCause, Peer, PeerStatus, Segment, Shape, Span, Words};
use fabric_sim::WaitFor;
use fabric_sim::conduit::{Presence, SpareBuffers};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

/// How long a rank that leaves waits for requests that their receivers may refuse.
const LINGER: Span = Span::from_millis(100);

/// What all ranks of a job have in common.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) config: ConduitConfig,
    pub(super) sizes: Sizes,
    /// What an operation costs the processor above the interface.
    pub(super) overhead: Span,
    pub(super) femtos_per_byte: u64,
    pub(super) pin: Span,
    pub(super) pause: Span,
    /// From the arrival of a message until its event is in its queue, at most.
    pub(super) lag: Span,
}

impl Shared {
    /// The cost of copying bytes.
    pub(super) fn copying(&self, bytes: usize) -> Span {
        Span(self.femtos_per_byte * bytes as u64 / 1000)
    }
}

/// A chunk of the send buffer that is in use: as little as can be, because thousands of ranks have hundreds of
/// them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunk {
    /// Whom its request went to.
    pub(super) to: u32,
    pub(super) busy: bool,
    /// The interface has read the request.
    pub(super) left: bool,
    /// The reply has come, or never will.
    pub(super) replied: bool,
    /// The reply was delivered, if there is one.
    pub(super) delivered: bool,
    /// The payload of a Long reply has come.
    pub(super) placed: bool,
}

/// One rank's transport. It lives in the rank's coroutine and cannot leave it.
///
/// After the first messages nothing is allocated but the state of peers that were never met before and staging
/// memory for longer payloads than ever. Replies and revocations wait for nothing but the interface. See the
/// [module](super) for how messages travel.
pub struct Conduit<'a> {
    pub(super) nic: Nic<'a>,
    pub(super) wire: Wire<'a>,
    pub(super) shared: Rc<Shared>,
    pub(super) presence: Presence,
    limits: Limits,
    pub(super) segment: Segment<HostMemory>,
    pub(super) memories: Memories,
    pub(super) pieces: Pieces,
    pub(super) chunks: Vec<Chunk>,
    /// Headers of Long replies, by the chunk, that wait for their payloads.
    pub(super) headed: Vec<(usize, ReadyReply)>,
    /// By the chunk, requests that may have to be sent again (Portals 4).
    pub(super) again: Vec<Option<Again>>,
    /// Reply slots in use, in a ring: the interface sends in order.
    pub(super) slots_begun: u64,
    pub(super) slots_left: u64,
    pub(super) send_slots: SendSlots,
    pub(super) staging: Staging,
    /// Buffers of replies in the making.
    pub(super) spare: SpareBuffers,
    pub(super) direct: Rc<RefCell<Direct>>,
    pub(super) peers: Peers,
    pub(super) ledger: Ledger,
    /// One-sided operations of the core that are over, until it is told.
    pub(super) completed: VecDeque<EndedOperation>,
    /// Departures and faulty peers whose operations were ended.
    pub(super) swept_natives: (u32, usize),
    /// Replies, and Long requests, that are complete and were not delivered yet.
    pub(super) ready: VecDeque<ReadyReply>,
    pub(super) joined: VecDeque<(u32, FrameHeader)>,
    /// Requests that were not replied to.
    pub(super) outstanding: u32,
    /// Peers whose requests are to be sent again.
    pub(super) stalled: Vec<u32>,
    /// The receiver is disabled until its queue is empty.
    pub(super) disabled: bool,
    pub(super) disabled_times: u64,
    pub(super) resent: u64,
    pub(super) bare_given: u64,
    pub(super) revoked: u64,
    pub(super) dropped: u64,
    /// Losses that the ledger knows of.
    pub(super) settled_losses: u32,
    /// Departures and faulty peers whose requests have been forgotten.
    pub(super) swept: (u32, usize),
    departures: RefCell<Departures>,
}

impl<'a> Conduit<'a> {
    /// Sets up a rank's descriptors and queues, and waits until all others have.
    ///
    /// # Panics
    /// If the interface is open already, or has no room.
    pub(super) fn new(nic: Nic<'a>, shared: Rc<Shared>) -> Self {
        let Shared { config, sizes, .. } = &*shared;
        let (me, ranks) = (nic.rank(), nic.ranks());
        let portals_4 = config.flow == FlowControl::Disable;
        let memories = Memories {
            segment: HostMemory::new(config.segment as usize),
            requests: HostMemory::new((config.send_chunks * config.chunk) as usize),
            replies: HostMemory::new((config.reply_slots * config.chunk) as usize),
            inbox: HostMemory::new(sizes.space.total() as usize),
            results: HostMemory::new(if portals_4 { 16 * config.operations as usize } else { 0 }),
        };
        let queues = [sizes.safe_events, sizes.am_events];
        let wire = Wire::new(portals_4, &nic, &memories, sizes.space, config.chunk, queues);
        nic.launched();
        let direct = Direct {
            operations: Operations::new(config.operations),
            registered: Registered::new(config.firehose_slots, config.firehose_pages, shared.pin),
        };
        let segment = Segment::new(memories.segment.clone(), memories.segment.len());
        let medium = sizes.medium as usize;
        Self {
            presence: Presence::new(me, ranks),
            limits: Limits::uniform(medium, 1 << 30).with_default_reply(config.default_reply as usize),
            segment,
            memories,
            pieces: Pieces::new(config.send_chunks),
            chunks: Vec::new(),
            headed: Vec::new(),
            again: Vec::new(),
            slots_begun: 0,
            slots_left: 0,
            send_slots: SendSlots::new(sizes.send_slots, if config.testing.unreserved { 0 } else { FOR_REPLY }),
            staging: Staging::new(config.staging),
            direct: Rc::new(RefCell::new(direct)),
            peers: Peers::new(ranks, config, sizes),
            ledger: Ledger::new(me, config, sizes),
            completed: VecDeque::new(),
            swept_natives: (0, 0),
            ready: VecDeque::new(),
            joined: VecDeque::new(),
            outstanding: 0,
            stalled: Vec::new(),
            disabled: false,
            disabled_times: 0,
            resent: 0,
            spare: SpareBuffers::default(),
            bare_given: 0,
            revoked: 0,
            dropped: 0,
            settled_losses: 0,
            swept: (0, 0),
            departures: RefCell::new(Departures::new(shared.lag)),
            nic,
            wire,
            shared,
        }
    }

    /// The rank's interface, for raw use beside the conduit, which owns two of its portal table entries.
    pub fn nic(&self) -> &Nic<'a> {
        &self.nic
    }

    /// Puts and gets directly on segments.
    pub fn one_sided(&self) -> OneSided<'a> {
        self.nic.forbid_lookahead();
        OneSided {
            nic: self.nic.clone(),
            wire: self.wire.clone(),
            direct: Rc::clone(&self.direct),
            shared: Rc::clone(&self.shared),
        }
    }

    /// Waits for a put or get without letting handlers run.
    pub fn wait_direct(&mut self, operation: Operation) {
        let handle = self.one_sided();
        while !handle.is_done(operation) {
            // One by one: a look that finds nothing costs as much as one that does.
            if self.harvest(1) == 0 {
                self.wire.idle_safe("a put or get");
            }
        }
        self.nic.charge(self.shared.overhead);
    }

    /// How flow control does at this rank.
    pub fn counters(&self) -> ConduitCounters {
        let registered = self.direct.borrow().registered.counters();
        let banked = if let Ledger::Bank(bank) = &self.ledger { bank.banked() } else { 0 };
        let peers = self.peers.known().iter().count() as u64;
        ConduitCounters {
            revocations: self.revoked,
            banked,
            peers,
            disabled: self.disabled_times,
            resent: self.resent,
            registered: [registered.hits, registered.misses, registered.evictions],
        }
    }

    /// The books of this rank's receive space, for a message.
    pub fn ledger(&self) -> impl fmt::Display + '_ {
        self.report()
    }

    pub(super) fn report(&self) -> Report<'_> {
        self.ledger.report(&self.peers)
    }

    /// The sum of all loans and the bank, which is the total, and the total; `None` without a bank. For tests.
    #[doc(hidden)]
    pub fn balance(&self) -> Option<(u64, u64)> {
        let Ledger::Bank(bank) = &self.ledger else { return None };
        let lent =
            (0..self.presence.ranks).map(|peer| u64::from(bank.loan(Peer(peer)).map_or(0, |loan| loan.loan)));
        Some((lent.sum::<u64>() + u64::from(bank.banked()), bank.config().total.into()))
    }

    /// What a peer holds of this rank's credits or what travels between them, as this rank knows it. For tests.
    #[doc(hidden)]
    pub fn away(&self, peer: u32) -> Option<u32> {
        let Ledger::Bank(bank) = &self.ledger else { return None };
        let loan = bank.loan(Peer(peer))?;
        Some(loan.loan - loan.inside - loan.owed - loan.granted)
    }

    /// Credits that this rank has at a peer: those that it can spend, and those that it has spent. For tests.
    #[doc(hidden)]
    pub fn holds(&self, peer: u32) -> Option<(u32, u32)> {
        match self.peers.known().get(peer).map(|state| &state.right) {
            Some(super::peers::Right::Loan(borrower)) => Some((borrower.available(), borrower.outstanding())),
            Some(_) => None,
            None => Some((self.peers.initial(), 0)),
        }
    }

    /// What counts of a peer's status now; see [`Departures`].
    pub(super) fn counting_status(&self, peer: u32) -> PeerStatus {
        match self.known_status(peer) {
            faulty @ PeerStatus::Lost(LossCause::Faulty) => faulty,
            known => {
                let losses = self.nic.context().losses();
                self.departures.borrow_mut().status(peer, known, losses, self.nic.now())
            }
        }
    }

    /// Notes that a peer broke the protocol.
    #[cold]
    pub(super) fn lose(&mut self, of: u32) {
        if self.presence.faulty.insert(Peer(of), LossCause::Faulty) {
            self.presence.fresh = true;
        }
    }

    /// Panics if a message found no room, which credits should have prevented.
    pub(super) fn check_overflow(&mut self) {
        let dropped = self.wire.dropped();
        if dropped > self.dropped {
            let (new, me) = (dropped - self.dropped, self.presence.me);
            panic!(
                "{new} messages found no receive buffer at rank {me}, although they had credits\n{}",
                self.report()
            );
        }
    }

    /// Whether a request that is under way may still be handled.
    fn is_waited_for(&self) -> bool {
        let waits =
            |chunk: &Chunk| chunk.busy && !chunk.replied && self.known_status(chunk.to) == PeerStatus::Active;
        self.chunks.iter().any(waits)
    }

    /// Stays until the last requests have been handled, or for so long that nobody will: what their receivers
    /// refuse has to be sent again.
    fn linger(&mut self) {
        let limit = self.nic.now() + LINGER;
        while self.is_waited_for() && self.nic.now() < limit && !std::thread::panicking() {
            self.work();
            if self.harvest(usize::MAX) == 0 {
                self.wire.idle(self.until(Some(limit)), WaitFor::Named("its last messages to be taken"));
            }
        }
    }

    /// The longest to wait, since something may have to be sent again, or a departure comes to count.
    fn until(&self, until: Option<Instant>) -> Option<Instant> {
        let due = |peer: &u32| self.peers.known().get(*peer)?.order.as_ref()?.due();
        let departures = self.departures.borrow().next(self.nic.now());
        self.stalled.iter().filter_map(due).chain(until).chain(departures).min()
    }

    /// Waits for the interface, without letting handlers run. Returns whether it may have changed something: while
    /// it unwinds, a rank cannot wait.
    pub(super) fn await_interface(&mut self, wanted: &'static str) -> bool {
        if self.harvest(usize::MAX) == 0 {
            if std::thread::panicking() {
                return false;
            }
            self.presence.fresh = true;
            self.wire.idle_safe(wanted);
        }
        true
    }
}

/// What flow control has done at a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConduitCounters {
    /// Revocations sent.
    pub revocations: u64,
    /// Credits in the bank now.
    pub banked: u32,
    /// Peers that there is a state for.
    pub peers: u64,
    /// How often this rank's receiver was disabled (Portals 4).
    pub disabled: u64,
    /// Requests that this rank has sent again (Portals 4).
    pub resent: u64,
    /// Hits, misses and evictions of the registration cache.
    pub registered: [u64; 3],
}

pub(super) const fn kind_of(reply: ReplyBound) -> Kind {
    match reply {
        ReplyBound::None => Kind::OneWay,
        ReplyBound::UpTo(_) => Kind::Request,
    }
}

/// A reserved Medium request: a chunk of the send buffer.
#[derive(Debug)]
pub struct ConduitSlot<'t, 'a> {
    transport: &'t mut Conduit<'a>,
    to: u32,
    head: RequestHeader,
    args: Words,
    len: usize,
    /// What it took; gone once it is sent.
    admitted: Option<Admitted>,
}

impl PayloadWriter for ConduitSlot<'_, '_> {
    fn len(&self) -> usize {
        self.len
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len, "{} bytes at {at} fit the {} of the message", bytes.len(), self.len);
        let Some(admitted) = &self.admitted else { return };
        let begin = admitted.chunk as usize + 4 * self.args.len();
        self.transport.memories.requests.write(begin + at, bytes);
    }
}

impl Slot for ConduitSlot<'_, '_> {
    fn commit(mut self) {
        let Some(admitted) = self.admitted.take() else { return };
        let frame = Outgoing {
            kind: kind_of(self.head.reply),
            form: Form::Medium,
            handler: self.head.handler,
            args: &self.args,
            payload: &[],
            at: 0,
        };
        self.transport.nic.charge(self.transport.shared.copying(self.len));
        self.transport.launch(self.to, admitted, &frame, self.len);
    }
}

impl Drop for ConduitSlot<'_, '_> {
    fn drop(&mut self) {
        if let Some(admitted) = self.admitted.take() {
            self.transport.withdraw(self.to, admitted);
        }
    }
}

impl<'a> Membership for Conduit<'a> {
    fn local_peer(&self) -> Peer {
        Peer(self.presence.me)
    }

    fn shape(&self) -> Shape {
        Shape::new(self.presence.ranks)
    }

    fn losses(&self) -> u32 {
        let losses = self.departures.borrow_mut().losses(self.nic.context().losses(), self.nic.now());
        self.presence.faulty.losses(losses, |peer| self.nic.context().known_status(peer.0))
    }

    fn status(&self, peer: Peer) -> PeerStatus {
        // Lets everything happen that has happened by now.
        self.nic.sync();
        self.counting_status(peer.0)
    }

    fn depart(&mut self, how: Departure) {
        if self.shared.config.flow == FlowControl::Disable {
            self.linger();
        }
        self.presence.departed = true;
        self.nic.context().depart(how.status());
    }
}

impl<'a> Waiting for Conduit<'a> {
    fn idle(&mut self, until: Option<Instant>, reason: WaitReason) {
        self.check_overflow();
        if !std::mem::take(&mut self.presence.fresh) {
            self.wire.idle(self.until(until), reason.into());
        }
    }

    fn now(&self) -> Instant {
        self.nic.now()
    }

    fn charge(&mut self, cost: Span) {
        self.nic.charge(cost);
    }
}

impl<'a> Transport for Conduit<'a> {
    fabric_sim::transport_items!();

    type Room = Admitted;
    type Slot<'t>
        = ConduitSlot<'t, 'a>
    where
        Self: 't;

    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        let (form, payload, at) = self.form_of(args, body);
        self.send_frame(
            to,
            &Outgoing { kind: kind_of(head.reply), form, handler: head.handler, args, payload, at },
        )
    }

    fn reserve(&mut self, to: Peer, _: RequestHeader, args: &Words, len: usize) -> Result<Admitted, Refused> {
        self.admit(to, 4 * args.len() + len, Purpose::Request)
    }

    fn slot(
        &mut self,
        to: Peer,
        head: RequestHeader,
        args: &Words,
        len: usize,
        room: Admitted,
    ) -> ConduitSlot<'_, 'a> {
        // What another peer was sent from here must not reach this one.
        let begin = room.chunk as usize + 4 * args.len();
        for at in (0..len).step_by(ZEROS.len()) {
            self.memories.requests.write(begin + at, &ZEROS[..ZEROS.len().min(len - at)]);
        }
        ConduitSlot { to: to.0, head, args: *args, len, admitted: Some(room), transport: self }
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        let (kind, form) = (Kind::Control, Form::Medium);
        self.send_frame(to, &Outgoing { kind, form, handler: 0, args, payload, at: 0 })
    }

    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        self.serve(budget, sink)
    }

    fn flush(&mut self) {}

    fn is_quiescent(&mut self) -> bool {
        let natives = self.natives_under_way();
        if self.outstanding != 0 || natives {
            self.harvest(usize::MAX);
        }
        if natives && self.natives_under_way() {
            return false;
        }
        if self.outstanding == 0 {
            return true;
        }
        !self.is_waited_for()
    }

    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        Some((self, to))
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        let credits = self.peers.known().get(peer.0).map_or(self.peers.initial(), |state| state.right.available());
        let credits = if self.shared.config.flow == FlowControl::Disable { u32::MAX } else { credits };
        let under_way = self.peers.known().get(peer.0).map_or(0, |state| state.under_way);
        let frames = self.send_slots.for_requests().min(self.pieces.left()).saturating_sub(FOR_CONTROL);
        let frames = frames.min(self.shared.sizes.most_per_peer.saturating_sub(under_way));
        let reply = u64::from(self.shared.sizes.medium) * u64::from(frames);
        CreditSnapshot::default()
            .requests(
                credits.min(frames).into(),
                u64::from(credits.min(frames.saturating_mul(15))) * u64::from(self.shared.config.credit_bytes),
            )
            .replies(frames.into(), reply)
    }
}

const ZEROS: [u8; 256] = [0; 256];

fabric_sim::presence!(Conduit);

/// The bytes of a buffer as a payload's source: written to memory that the interface reads.
pub(super) fn write_args(memory: &HostMemory, at: usize, args: &Words) -> usize {
    let len = 4 * args.len();
    memory.store(at, &args.to_le_bytes()[..len]);
    len
}

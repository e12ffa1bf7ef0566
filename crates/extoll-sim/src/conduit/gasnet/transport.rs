//! The transport: what a rank keeps, and the contract's calls.

use super::GasnetConfig;
use super::assembly::Buffers;
use super::config::Costs;
use super::header::{HEADER, Kind, PLACE, Place};
use super::joins::FrameHeader;
use super::layout::{Implementation, Layout};
use super::native::Natives;
use super::peers::{PeerState, Peers};
use super::reply_path::ConduitReplyPath;
use super::rooms::Rooms;
use super::send::{Admitted, BounceBuffers};
use crate::nic::rma::{Access, Nla, Region, Rma};
use crate::nic::velo::Velo;
use crate::nic::{HostMemory, Nic};
use am_core::transport::{
    Body, Buffer, CreditSnapshot, Departure, FaultyPeers, Membership, NativeOneSided, PayloadWriter, PendingKey,
    Refused, ReplyBound, ReplyPath, RequestHeader, Sink, Slot, Transport, WaitReason, Waiting,
};
use am_core::{Category, Instant, Lane, Limits, Peer, PeerStatus, Rank, Segment, Shape, Span, Words};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

/// Polls after which credits are sent even though nobody seems to need them.
const CREDIT_FLUSH_POLLS: u32 = 16;

/// What all ranks of a job have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: GasnetConfig,
    pub(super) rooms: Rooms,
    pub(super) costs: Costs,
    /// Where each rank's segment is, once it has registered it: what a job's launcher tells everyone.
    pub(super) segments: RefCell<Vec<Option<Nla>>>,
}

/// One rank's transport. It lives in the rank's coroutine and cannot leave it.
///
/// After the first messages nothing is allocated but the buffers of peers and frames that were never there before.
/// A request that was accepted may wait, inside the call, until the interface has taken all of its packets and, if
/// it is a Long one, read its payload; that needs the network, never the peer's program. Reading the segment
/// passes no time and lets nothing happen: only polling, idling, sending and asking for a status do.
pub struct Gasnet<'a> {
    pub(super) nic: Nic<'a>,
    pub(super) velo: Velo<'a>,
    pub(super) rma: Rma<'a>,
    pub(super) shared: Rc<Shared>,
    pub(super) layout: Layout,
    pub(super) me: u32,
    ranks: u32,
    limits: Limits,
    pub(super) segment: Segment<HostMemory>,
    /// The segment as registered memory.
    pub(super) region: Region,
    pub(super) peers: Peers,
    pub(super) buffers: Buffers,
    pub(super) bounce: Option<BounceBuffers>,
    pub(super) natives: Natives,
    /// What has become complete by a payload and was not yet delivered.
    pub(super) ready: VecDeque<Ready>,
    /// Messages that wait for their turn, over all peers.
    pub(super) held: usize,
    /// Long headers whose data has not been noticed.
    pub(super) open_joins: usize,
    /// Peers that credits are owed to, and those that may be waiting for them.
    pub(super) pending_credit: Vec<u32>,
    pub(super) urgent_credit: Vec<u32>,
    pub(super) polls_before_flush: u32,
    /// Request slots of requests under way, over all peers.
    pub(super) unhandled: u64,
    /// A peer that had not handled everything when the rank last asked.
    last_busy_peer: u32,
    pub(super) bare_given: u64,
    /// The reply bound that was last asked for, and the slots that it takes.
    pub(super) usual: (u32, u32),
    pub(super) faulty: FaultyPeers,
    /// Something that lets a wait end has come since the last idling, without any message for the sink.
    pub(super) fresh: bool,
    departed: bool,
}

impl fmt::Debug for Gasnet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gasnet").field("rank", &self.me).field("ranks", &self.ranks).finish_non_exhaustive()
    }
}

/// What a payload has made ready for delivery.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ready {
    /// A Long message, where order is not kept.
    Long(u32, FrameHeader),
    /// The first messages of a peer's line.
    Line(u32, Lane),
}

/// A frame to be sent.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'f> {
    pub(super) kind: Kind,
    pub(super) handler: u8,
    pub(super) reserve: u16,
    pub(super) args: &'f Words,
    pub(super) payload: &'f [u8],
    pub(super) place: Place,
}

impl<'a> Gasnet<'a> {
    /// Opens the units of a rank's interface and registers its segment.
    ///
    /// # Panics
    /// If the units are open already, or have no room; [`run`](super::run) checks that they have.
    pub(super) fn new(nic: Nic<'a>, shared: Rc<Shared>) -> Self {
        let (velo, rma) = (nic.velo(), nic.rma());
        let GasnetConfig { segment: size, default_reply, .. } = shared.config;
        let (me, ranks, rooms) = (nic.rank(), nic.ranks(), shared.rooms);
        let opened = velo.open().map(drop).map_err(|error| error.to_string());
        opened
            .and_then(|()| rma.open().map(drop).map_err(|error| error.to_string()))
            .unwrap_or_else(|error| panic!("the units of rank {me} are free for it: {error}"));
        let memory = HostMemory::new(size as usize);
        let region = rma.register(&memory, 0, size, Access::ReadWrite);
        let region = region.expect("the translation table has room for every rank's segment");
        let base = rma.nla(region, 0).expect("a region begins with its first byte");
        shared.segments.borrow_mut()[me as usize] = Some(base);
        Self {
            layout: shared.config.layout(),
            usual: (0, shared.config.layout().reserve(0)),
            me,
            ranks,
            limits: Limits::uniform(rooms.medium_request, 1 << 32)
                .with_medium_reply(rooms.medium_reply)
                .with_default_reply(default_reply as usize)
                .with_order(shared.config.ordered),
            segment: Segment::new(memory, size as usize),
            region,
            peers: Peers::new(ranks, rooms),
            buffers: Buffers::default(),
            bounce: None,
            natives: Natives::default(),
            ready: VecDeque::new(),
            held: 0,
            open_joins: 0,
            pending_credit: Vec::new(),
            urgent_credit: Vec::new(),
            polls_before_flush: 0,
            unhandled: 0,
            last_busy_peer: 0,
            bare_given: 0,
            faulty: FaultyPeers::new(),
            fresh: false,
            departed: false,
            nic,
            velo,
            rma,
            shared,
        }
    }

    /// The rank's interface, for raw use beside the conduit. The conduit owns VELO's mailbox; commands to the RMA
    /// unit must not ask for completer notifications of puts, which are taken for those of Long messages, and not
    /// for any of locks and gets.
    pub fn nic(&self) -> &Nic<'a> {
        &self.nic
    }

    /// The address of a byte of a rank's segment, for puts and gets of one's own; `None` outside the segment, and
    /// until that rank has registered it, which it has when [`Endpoint::attach`](am_core::Endpoint::attach)
    /// returns.
    pub fn nla(&self, rank: Rank, offset: u64) -> Option<Nla> {
        let base = self.shared.segments.borrow().get(rank.0 as usize).copied().flatten()?;
        (offset < self.segment_size()).then_some(Nla(base.0 + offset))
    }

    /// Which implementation of active messages this is.
    #[inline]
    pub fn implementation(&self) -> Implementation {
        self.layout.implementation
    }

    pub(super) fn segment_of(&self, rank: u32) -> Option<Nla> {
        self.shared.segments.borrow()[rank as usize]
    }

    pub(super) fn segment_size(&self) -> u64 {
        self.shared.config.segment
    }

    /// The largest Medium reply that fits some slots.
    pub(super) fn bound_of(&self, slots: u32) -> usize {
        self.layout.payload_of(slots).min(self.limits.medium_reply)
    }

    /// What is known of a peer without letting anything happen.
    #[inline]
    pub(super) fn known_status(&self, peer: u32) -> PeerStatus {
        self.faulty.status(Peer(peer), || self.nic.context().known_status(peer))
    }

    /// Bytes of a frame over VELO: before its payload, and of its payload.
    fn bytes(&self, kind: Kind, args: &Words, payload: usize) -> (usize, usize) {
        let place = if kind.is_long() { PLACE } else { 0 };
        (HEADER + place + 4 * args.len(), if kind.is_long() { 0 } else { payload })
    }
}

fn kind(category: Category, reply: ReplyBound) -> Kind {
    match reply {
        ReplyBound::None => Kind::OneWay(category),
        ReplyBound::UpTo(_) => Kind::Request(category),
    }
}

/// A reserved Medium request.
#[derive(Debug)]
pub struct GasnetSlot<'t, 'a> {
    transport: &'t mut Gasnet<'a>,
    to: Peer,
    head: RequestHeader,
    args: Words,
    payload: Vec<u8>,
    /// What it took; gone once it is sent.
    admitted: Option<Admitted>,
}

impl PayloadWriter for GasnetSlot<'_, '_> {
    fn len(&self) -> usize {
        self.payload.len()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        Buffer(&mut self.payload).write(at, bytes);
    }
}

impl Slot for GasnetSlot<'_, '_> {
    fn commit(mut self) {
        let Some(admitted) = self.admitted.take() else { return };
        let kind = kind(Category::Medium, self.head.reply);
        let reserve = admitted.reserve as u16;
        let (args, handler) = (&self.args, self.head.handler);
        let frame = Outgoing { kind, handler, reserve, args, payload: &self.payload, place: Place::default() };
        // A peer that has gone in the meantime does not get what was accepted, as always.
        let _ = self.transport.insist(self.to.0, &frame);
    }
}

impl Drop for GasnetSlot<'_, '_> {
    fn drop(&mut self) {
        if let Some(admitted) = self.admitted.take() {
            self.transport.withdraw(self.to.0, admitted);
        }
        self.transport.buffers.give(std::mem::take(&mut self.payload));
    }
}

impl<'a> Membership for Gasnet<'a> {
    fn local_peer(&self) -> Peer {
        Peer(self.me)
    }

    fn shape(&self) -> Shape {
        Shape::new(self.ranks)
    }

    fn losses(&self) -> u32 {
        let context = self.nic.context();
        self.faulty.losses(context.losses(), |peer| context.known_status(peer.0))
    }

    fn status(&self, peer: Peer) -> PeerStatus {
        // Lets everything happen that has happened by now.
        self.nic.sync();
        self.known_status(peer.0)
    }

    fn depart(&mut self, how: Departure) {
        self.pay_all();
        self.departed = true;
        self.nic.context().depart(how.status());
    }
}

impl<'a> Waiting for Gasnet<'a> {
    fn idle(&mut self, until: Option<Instant>, reason: WaitReason) {
        self.pay_all();
        if !std::mem::take(&mut self.fresh) {
            self.nic.idle(until, reason);
        }
    }

    fn now(&self) -> Instant {
        self.nic.now()
    }

    fn charge(&mut self, cost: Span) {
        self.nic.charge(cost);
    }
}

impl<'a> Transport for Gasnet<'a> {
    type Memory = HostMemory;
    type Room = Admitted;
    type Slot<'t>
        = GasnetSlot<'t, 'a>
    where
        Self: 't;

    fn limits(&self, _: Peer) -> &Limits {
        &self.limits
    }

    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        let (payload, at) = body.parts();
        let kind = kind(body.category(), head.reply);
        let place = Place { offset: at, len: payload.len() as u64 };
        let admitted = self.admit(to, kind, head.reply, self.bytes(kind, args, payload.len()))?;
        let reserve = admitted.reserve as u16;
        self.request(to, admitted, &Outgoing { kind, handler: head.handler, reserve, args, payload, place })
    }

    fn reserve(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize) -> Result<Admitted, Refused> {
        let kind = kind(Category::Medium, head.reply);
        self.admit(to, kind, head.reply, self.bytes(kind, args, len))
    }

    fn slot(
        &mut self,
        to: Peer,
        head: RequestHeader,
        args: &Words,
        len: usize,
        room: Admitted,
    ) -> GasnetSlot<'_, 'a> {
        let mut payload = self.buffers.take();
        payload.resize(len, 0);
        GasnetSlot { to, head, args: *args, payload, admitted: Some(room), transport: self }
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        let kind = Kind::Control;
        let admitted = self.admit(to, kind, ReplyBound::None, self.bytes(kind, args, payload.len()))?;
        let (reserve, place) = (admitted.reserve as u16, Place::default());
        self.request(to, admitted, &Outgoing { kind, handler: 0, reserve, args, payload, place })
    }

    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let done = self.serve(budget, sink);
        if !self.pending_credit.is_empty() {
            self.polls_before_flush += 1;
            if self.polls_before_flush >= CREDIT_FLUSH_POLLS {
                self.pay_all();
            }
        }
        self.pay_urgent();
        done
    }

    fn reply_detached<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        reply(&mut ConduitReplyPath::of_key(self, key))
    }

    fn flush(&mut self) {
        self.pay_all();
    }

    fn is_quiescent(&mut self) -> bool {
        if self.unhandled != 0 {
            let waits = |peer, state: &PeerState| {
                state.requests.outstanding() != 0 && self.known_status(peer) == PeerStatus::Active
            };
            // Whoever was waited for the last time is looked at first, then who comes after: with many peers all
            // of them take long.
            let last =
                self.peers.known().get(self.last_busy_peer).is_some_and(|state| waits(self.last_busy_peer, state));
            let found =
                if last { Some(self.last_busy_peer) } else { self.peers.known().next(self.last_busy_peer, waits) };
            if let Some(peer) = found {
                self.last_busy_peer = peer;
                return false;
            }
        }
        let waits = |peer| self.known_status(peer) == PeerStatus::Active;
        !self.replies_wait() && !self.natives.wait_for(waits)
    }

    fn segment(&self) -> &Segment<HostMemory> {
        &self.segment
    }

    fn segment_len(&self, _: Rank) -> u64 {
        self.segment_size()
    }

    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        Some((self, to))
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        let rooms = &self.shared.rooms;
        let (requests, answers) =
            self.peers.known().get(peer.0).map_or((rooms.requests, rooms.answers), |state| {
                (state.requests.available(), state.answers.available())
            });
        // As frames: Short requests with an argument, and replies of the default bound.
        let (frame, reply) = (self.layout.slots(HEADER + 4, 0), self.layout.reserve(self.limits.default_reply));
        CreditSnapshot::default()
            .requests((requests / frame).into(), self.layout.payload_of(requests) as u64)
            .replies((answers / reply).into(), self.layout.payload_of(answers.saturating_sub(1)) as u64)
    }

    fn bare_credits(&self) -> u64 {
        self.bare_given
    }
}

impl Drop for Gasnet<'_> {
    fn drop(&mut self) {
        // Reached without a departure by a rank that never attached.
        if !self.departed {
            self.depart(Departure::of_drop());
        }
    }
}

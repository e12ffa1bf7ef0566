//! The transport: what a rank keeps, and the contract's calls.

use super::GasnetConfig;
use super::assembly::Buffers;
use super::config::Costs;
use super::header::{HEADER, Kind, LONG_TARGET, LongTarget};
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
    Body, CreditSnapshot, NativeOneSided, Refused, ReplyBound, RequestHeader, Sink, Transport, WaitReason,
};
use am_core::{Category, Instant, Lane, Limits, Peer, PeerStatus, Rank, Segment, Span, Words};
use fabric_sim::conduit::{CreditFlush, Presence, SpareBuffers, StagedRequests, StagedSlot};
use std::collections::VecDeque;
use std::rc::Rc;

/// What all ranks of a job have in common.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) config: GasnetConfig,
    pub(super) rooms: Rooms,
    pub(super) costs: Costs,
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
    pub(super) presence: Presence,
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
    pub(super) credit: CreditFlush,
    /// Request slots of requests under way, over all peers.
    pub(super) unhandled: u64,
    /// A peer that had not handled everything when the rank last asked.
    last_busy_peer: u32,
    pub(super) bare_given: u64,
    /// The reply bound that was last asked for, and the slots that it takes.
    pub(super) usual: (u32, u32),
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
    pub(super) place: LongTarget,
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
        // The others' endpoints, rank by rank, whoever tells them.
        nic.charge(Span(shared.costs.exchange.0.saturating_mul(u64::from(ranks - 1))));
        let memory = HostMemory::new(size as usize);
        let region = rma.register(&memory, 0, size, Access::ReadWrite);
        let region = region.expect("the translation table has room for every rank's segment");
        let base = rma.nla(region, 0).expect("a region begins with its first byte");
        // What a job's launcher tells everyone.
        nic.context().announce(base.0);
        Self {
            layout: shared.config.layout(),
            usual: (0, shared.config.layout().reserve(0)),
            presence: Presence::new(me, ranks),
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
            credit: CreditFlush::default(),
            unhandled: 0,
            last_busy_peer: 0,
            bare_given: 0,
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
        let base = self.segment_of(rank.0)?;
        (offset < self.segment_size()).then_some(Nla(base.0 + offset))
    }

    /// Which implementation of active messages this is.
    #[inline]
    pub fn implementation(&self) -> Implementation {
        self.layout.implementation
    }

    pub(super) fn segment_of(&self, rank: u32) -> Option<Nla> {
        self.nic.context().announced(rank).map(Nla)
    }

    pub(super) fn segment_size(&self) -> u64 {
        self.shared.config.segment
    }

    /// The largest Medium reply that fits some slots.
    pub(super) fn bound_of(&self, slots: u32) -> usize {
        self.layout.payload_of(slots).min(self.limits.medium_reply)
    }

    /// Bytes of a frame over VELO: before its payload, and of its payload.
    fn bytes(&self, kind: Kind, args: &Words, payload: usize) -> (usize, usize) {
        let place = if kind.is_long() { LONG_TARGET } else { 0 };
        (HEADER + place + 4 * args.len(), if kind.is_long() { 0 } else { payload })
    }

    fn leave(&mut self, status: PeerStatus) {
        self.nic.context().depart(status);
    }

    fn rest(&mut self, until: Option<Instant>, reason: WaitReason) {
        if !self.presence.is_fresh(self.nic.context(), reason) {
            self.nic.idle(until, reason);
        }
    }
}

fabric_sim::presence!(Gasnet);
fabric_sim::membership!(Gasnet);

impl StagedRequests for Gasnet<'_> {
    fn post(&mut self, to: Peer, header: RequestHeader, room: Admitted, args: &Words, payload: &[u8]) {
        let (kind, handler) = (Kind::of_request(Category::Medium, header.reply), header.handler);
        let (reserve, place) = (room.reserve as u16, LongTarget::default());
        let _ = self.insist(to.0, &Outgoing { kind, handler, reserve, args, payload, place });
    }

    fn withdraw(&mut self, to: Peer, room: Admitted) {
        self.withdraw_room(to.0, room);
    }

    fn spare(&mut self) -> &mut SpareBuffers {
        &mut self.buffers.spare
    }
}

impl<'a> Transport for Gasnet<'a> {
    fabric_sim::transport_items!();

    type Room = Admitted;
    type Slot<'t>
        = StagedSlot<'t, Self>
    where
        Self: 't;

    fn send(&mut self, to: Peer, header: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        let (payload, at) = body.parts();
        let kind = Kind::of_request(body.category(), header.reply);
        let place = LongTarget { offset: at, len: payload.len() as u64 };
        let admitted = self.admit(to, kind, header.reply, self.bytes(kind, args, payload.len()))?;
        let reserve = admitted.reserve as u16;
        self.request(to, admitted, &Outgoing { kind, handler: header.handler, reserve, args, payload, place })
    }

    fn reserve(&mut self, to: Peer, header: RequestHeader, args: &Words, len: usize) -> Result<Admitted, Refused> {
        let kind = Kind::of_request(Category::Medium, header.reply);
        self.admit(to, kind, header.reply, self.bytes(kind, args, len))
    }

    fn slot(
        &mut self,
        to: Peer,
        header: RequestHeader,
        args: &Words,
        len: usize,
        room: Admitted,
    ) -> StagedSlot<'_, Self> {
        StagedSlot::new(self, to, header, args, len, room)
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        let kind = Kind::Control;
        let admitted = self.admit(to, kind, ReplyBound::None, self.bytes(kind, args, payload.len()))?;
        let (reserve, place) = (admitted.reserve as u16, LongTarget::default());
        self.request(to, admitted, &Outgoing { kind, handler: 0, reserve, args, payload, place })
    }

    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let done = self.serve(budget, sink);
        if self.credit.count_poll() {
            self.pay_all();
        }
        self.pay_urgent();
        done
    }

    fn flush(&mut self) {
        self.pay_all();
    }

    fn is_quiescent(&mut self) -> bool {
        self.presence.ask_quiet(self.nic.context());
        if self.unhandled != 0 {
            let waits = |peer, state: &PeerState| {
                state.requests.outstanding() != 0 && self.known_status(peer) == PeerStatus::Active
            };
            if let Some(peer) = self.peers.known().at_or_after(self.last_busy_peer, waits) {
                self.last_busy_peer = peer;
                return false;
            }
        }
        let waits = |peer| self.known_status(peer) == PeerStatus::Active;
        !self.replies_wait() && !self.natives.wait_for(waits)
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
}

//! The transport: what a rank keeps, and the contract's calls.

use super::config::{ConduitConfig, Costs, Sizes, notes};
use super::peers::{PeerState, Peers};
use super::reply_path::ConduitReplyPath;
use super::send::{Admitted, Outgoing};
use super::stages::{Stage, Stages};
use crate::delivery::{LossNotices, Refusals};
use crate::nic::{Access, HostMemory, Nic};
use am_core::transport::{
    Body, CreditSnapshot, NativeOneSided, OperationFault, Refused, ReplyBound, RequestHeader, Sink, Ticket,
    Transport, WaitReason,
};
use am_core::{Category, Instant, Limits, Peer, PeerStatus, Rank, Segment, Span, Words};
use fabric_sim::conduit::{CreditFlush, Kind, Presence, SpareBuffers, StagedRequests, StagedSlot};
use std::collections::VecDeque;
use std::rc::Rc;

/// Where every process has its segment, its receive buffers, the words that notify writes, and its stages: the
/// same addresses everywhere, so that nobody has to tell them.
pub(super) const SEGMENT_AT: u64 = 1 << 40;
pub(super) const BUFFERS_AT: u64 = 2 << 40;
pub(super) const NOTES_AT: u64 = 3 << 40;
pub(super) const STAGES_AT: u64 = 4 << 40;

/// What all ranks of a job have in common.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) config: ConduitConfig,
    pub(super) sizes: Sizes,
    pub(super) costs: Costs,
    /// The first wait for a full mailbox.
    pub(super) retry_wait: Span,
}

/// One rank's transport. It lives in the rank's coroutine and cannot leave it.
///
/// After the first messages nothing is allocated but the buffers of peers and frames that were never there
/// before. A request that was accepted may wait, inside the call, until the interface has taken all of its
/// packets and its payload, and if that is longer than a stage, until all of it but the last part has arrived;
/// that needs the network, never the peer's program. Reading the segment passes no time and lets nothing happen:
/// only polling, idling, sending and asking for a status do.
pub struct Conduit<'a> {
    pub(super) nic: Nic<'a>,
    pub(super) shared: Rc<Shared>,
    pub(super) presence: Presence,
    limits: Limits,
    pub(super) segment: Segment<HostMemory>,
    /// Receive buffers, and the words that tell which of them were written.
    pub(super) buffers: HostMemory,
    pub(super) notes: HostMemory,
    pub(super) stages: Stages,
    pub(super) peers: Peers,
    /// Peers with frames that were not delivered.
    pub(super) waiting: VecDeque<u32>,
    /// Operations of the core that are over.
    pub(super) completed: VecDeque<EndedOperation>,
    /// When packets that were refused are sent again.
    pub(super) refusals: Refusals,
    /// Buffers of frames and replies, kept for the next.
    pub(super) spare: SpareBuffers,
    pub(super) credit: CreditFlush,
    /// Requests under way, over all peers.
    pub(super) unhandled: u64,
    /// This rank's slots of replies that it has sent to itself and that have not come.
    pub(super) own_replies: u32,
    /// A peer that had not handled everything when the rank last asked.
    last_busy_peer: u32,
    pub(super) bare_given: u64,
    /// How many had departed or were faulty when operations on them were ended.
    pub(super) swept: (u32, usize),
    /// Peers that are lost for this rank alone and are to be told.
    pub(super) loss_notices: LossNotices,
}

/// The end of an operation that the core was not told of yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedOperation {
    pub(super) ticket: Ticket,
    /// The stage that has what a get brings, and how many bytes that is.
    pub(super) brought: Option<(Stage, usize)>,
    pub(super) outcome: Result<(), OperationFault>,
}

impl<'a> Conduit<'a> {
    /// Opens a rank's context and maps its memory.
    ///
    /// # Panics
    /// If the rank has mapped memory at the conduit's addresses.
    pub(super) fn new(nic: Nic<'a>, shared: Rc<Shared>) -> Self {
        let (me, ranks, sizes) = (nic.rank(), nic.ranks(), shared.sizes);
        let ConduitConfig { segment, default_reply, .. } = shared.config;
        nic.open();
        let map = |at: u64, len: u64| {
            let memory = HostMemory::new(len as usize);
            let mapped = nic.map(at, &memory, Access::ReadWrite, shared.config.paging());
            mapped.expect("the conduit's addresses are its own");
            memory
        };
        let memory = map(SEGMENT_AT, segment);
        let (buffers, words) = (map(BUFFERS_AT, sizes.buffers(ranks)), map(NOTES_AT, notes(ranks)));
        // Its context is open and its memory mapped: what a job's launcher tells everyone.
        nic.context().announce(0);
        Self {
            presence: Presence::new(me, ranks),
            limits: Limits::uniform(sizes.medium as usize, 1 << 32).with_default_reply(default_reply as usize),
            segment: Segment::new(memory, segment as usize),
            buffers,
            notes: words,
            stages: Stages::new(&shared.config),
            peers: Peers::new(ranks, sizes),
            waiting: VecDeque::new(),
            completed: VecDeque::new(),
            refusals: Refusals::new(shared.retry_wait),
            spare: SpareBuffers::default(),
            credit: CreditFlush::default(),
            unhandled: 0,
            own_replies: 0,
            last_busy_peer: 0,
            bare_given: 0,
            swept: (0, 0),
            loss_notices: LossNotices::default(),
            nic,
            shared,
        }
    }

    /// The rank's interface, for raw use beside the conduit. The conduit owns the mailbox, and the addresses from
    /// 2^40 on.
    pub fn nic(&self) -> &Nic<'a> {
        &self.nic
    }

    pub(super) fn segment_size(&self) -> u64 {
        self.shared.config.segment
    }

    fn leave(&mut self, status: PeerStatus) {
        self.nic.depart(status);
    }

    fn rest(&mut self, until: Option<Instant>, reason: WaitReason) {
        let fresh = self.presence.is_fresh(self.nic.context(), reason);
        if !fresh && !self.has_deliverable() {
            self.nic.idle(self.refusals.until(until), reason);
        }
    }
}

fabric_sim::presence!(Conduit);
fabric_sim::membership!(Conduit);

impl StagedRequests for Conduit<'_> {
    fn post(&mut self, to: Peer, header: RequestHeader, slots: Admitted, args: &Words, payload: &[u8]) {
        let (kind, handler) = (Kind::of_request(Category::Medium, header.reply), header.handler);
        let _ = self.insist(to.0, &Outgoing { kind, handler, slots, args, payload, offset: 0 });
    }

    fn withdraw(&mut self, to: Peer, slots: Admitted) {
        self.withdraw_slots(to.0, slots);
    }

    fn spare(&mut self) -> &mut SpareBuffers {
        &mut self.spare
    }
}

impl<'a> Transport for Conduit<'a> {
    fabric_sim::transport_items!();

    type Room = Admitted;
    type Slot<'t>
        = StagedSlot<'t, Self>
    where
        Self: 't;

    fn send(&mut self, to: Peer, header: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        let (payload, offset) = body.parts();
        let kind = Kind::of_request(body.category(), header.reply);
        let slots = self.admit(to, kind, header.reply, payload.len())?;
        self.request(to, &Outgoing { kind, handler: header.handler, slots, args, payload, offset })
    }

    fn reserve(&mut self, to: Peer, header: RequestHeader, _: &Words, len: usize) -> Result<Admitted, Refused> {
        self.admit(to, Kind::of_request(Category::Medium, header.reply), header.reply, len)
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
        let slots = self.admit(to, kind, ReplyBound::None, payload.len())?;
        self.request(to, &Outgoing { kind, handler: 0, slots, args, payload, offset: 0 })
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
        if self.own_replies != 0 || self.natives_under_way() {
            return false;
        }
        if self.unhandled != 0 {
            let requests = self.shared.sizes.request_slots();
            let waits = |peer: u32, state: &PeerState| {
                state.slots.in_use() & requests != 0 && self.known_status(peer) == PeerStatus::Active
            };
            if let Some(peer) = self.peers.known().at_or_after(self.last_busy_peer, waits) {
                self.last_busy_peer = peer;
                return false;
            }
        }
        !self.replies_wait()
    }

    fn remote_segment(&self, _: Rank) -> Option<&Segment<HostMemory>> {
        None
    }

    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        Some((self, to))
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        let sizes = self.shared.sizes;
        let (requests, replies) =
            self.peers.known().get(peer.0).map_or((sizes.requests, sizes.replies), |state| {
                (state.slots.free(sizes.request_slots()), state.replies.free(u32::MAX))
            });
        let bytes = |slots: u32| u64::from(slots) * u64::from(sizes.medium);
        let snapshot = CreditSnapshot::default().requests(requests.into(), bytes(requests));
        snapshot.replies(replies.into(), bytes(replies))
    }
}

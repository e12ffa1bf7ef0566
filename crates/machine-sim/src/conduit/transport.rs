//! The transport: what a rank keeps, and the contract's calls.

use super::config::ConduitConfig;
use super::native::Natives;
use super::peers::{PeerState, Peers};
use super::reply_path::ConduitReplyPath;
use super::send::{Admitted, Outgoing};
use crate::model::Native;
use crate::nic::Nic;
use am_core::transport::{
    Body, CreditSnapshot, NativeOneSided, Refused, ReplyBound, RequestHeader, Sink, Transport, WaitReason,
};
use am_core::{Category, Instant, Limits, Peer, PeerStatus, Segment, Span, Words};
use fabric_sim::HostMemory;
use fabric_sim::conduit::{CreditFlush, Kind, Presence, SpareBuffers, StagedRequests, StagedSlot};
use std::rc::Rc;

/// What all ranks of a job have in common.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) config: ConduitConfig,
    pub(super) native: Native,
    pub(super) compose: Span,
    pub(super) dispatch: Span,
}

/// One rank's transport. It lives in the rank's coroutine and cannot leave it.
///
/// After the first messages nothing is allocated but the state of peers that were never there before. Calls do not
/// block: the interface takes what room there is for. Reading the segment passes no time and lets nothing happen:
/// only polling, idling and asking for a status do.
pub struct Conduit<'a> {
    pub(super) nic: Nic<'a>,
    pub(super) shared: Rc<Shared>,
    pub(super) presence: Presence,
    limits: Limits,
    pub(super) segment: Segment<HostMemory>,
    pub(super) peers: Peers,
    pub(super) natives: Natives,
    /// Buffers of reserved requests and replies, kept for the next.
    pub(super) spare: SpareBuffers,
    pub(super) credit: CreditFlush,
    /// Requests under way, over all peers.
    pub(super) unhandled: u64,
    /// Replies that this rank has sent to itself and that have not come.
    pub(super) own_replies: u32,
    /// A peer that had not handled everything when the rank last asked.
    last_busy_peer: u32,
    pub(super) bare_given: u64,
}

impl<'a> Conduit<'a> {
    /// Registers a rank's memory.
    pub(super) fn new(nic: Nic<'a>, shared: Rc<Shared>) -> Self {
        let (me, ranks) = (nic.rank(), nic.ranks());
        let ConduitConfig { medium, segment, default_reply, .. } = shared.config;
        let memory = HostMemory::new(segment as usize);
        nic.register(&memory);
        // Rank by rank, whoever tells the addresses.
        nic.charge_exchange();
        // Its memory is registered: what a job's launcher tells everyone.
        nic.context().announce(0);
        Self {
            presence: Presence::new(me, ranks),
            limits: Limits::uniform(medium as usize, 1 << 32).with_default_reply(default_reply as usize),
            segment: Segment::new(memory, segment as usize),
            peers: Peers::new(ranks),
            natives: Natives::default(),
            spare: SpareBuffers::default(),
            credit: CreditFlush::default(),
            unhandled: 0,
            own_replies: 0,
            last_busy_peer: 0,
            bare_given: 0,
            nic,
            shared,
        }
    }

    /// The rank's interface, for raw use beside the conduit, which takes its messages and the ends of its
    /// operations.
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
        if !fresh && !self.nic.has_news() && !self.natives.has_ended() {
            self.nic.idle(until, reason);
        }
    }
}

fabric_sim::presence!(Conduit);
fabric_sim::membership!(Conduit);

impl StagedRequests for Conduit<'_> {
    fn post(&mut self, to: Peer, header: RequestHeader, _: Admitted, args: &Words, payload: &[u8]) {
        let (kind, handler) = (Kind::of_request(Category::Medium, header.reply), header.handler);
        self.transmit(to.0, &Outgoing { kind, handler, args, payload, offset: 0 });
    }

    fn withdraw(&mut self, to: Peer, admitted: Admitted) {
        let peer = self.peers.of(to.0);
        peer.unhandled -= 1;
        peer.expected -= u32::from(admitted.reply);
        self.unhandled -= 1;
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
        self.admit(to, kind, header.reply, payload.len())?;
        self.transmit(to.0, &Outgoing { kind, handler: header.handler, args, payload, offset });
        Ok(())
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
        self.admit(to, Kind::Control, ReplyBound::None, payload.len())?;
        self.transmit(to.0, &Outgoing { kind: Kind::Control, handler: 0, args, payload, offset: 0 });
        Ok(())
    }

    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let done = self.serve(budget, sink);
        if self.credit.count_poll() {
            self.pay_all();
        }
        done
    }

    fn flush(&mut self) {
        self.pay_all();
    }

    fn is_quiescent(&mut self) -> bool {
        self.presence.ask_quiet(self.nic.context());
        if self.natives_under_way() || self.own_replies != 0 {
            return false;
        }
        if self.unhandled == 0 {
            return true;
        }
        let waits = |peer: u32, state: &PeerState| {
            state.unhandled + state.controls != 0 && self.known_status(peer) == PeerStatus::Active
        };
        let found = self.peers.at_or_after(self.last_busy_peer, waits);
        self.last_busy_peer = found.unwrap_or(self.last_busy_peer);
        found.is_none()
    }

    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        let Native { put, get, atomics, .. } = self.shared.native;
        (put || get || atomics).then_some((self, to))
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        let ConduitConfig { medium, requests, replies, .. } = self.shared.config;
        let state = self.peers.known(peer.0).copied().unwrap_or_default();
        let bytes = |frames: u32| u64::from(frames) * u64::from(medium);
        let requests = requests.saturating_sub(state.unhandled);
        let replies = replies - state.expected;
        let snapshot = CreditSnapshot::default().requests(requests.into(), bytes(requests));
        snapshot.replies(replies.into(), bytes(replies))
    }
}

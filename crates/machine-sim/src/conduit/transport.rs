//! The transport: what a rank keeps, and the contract's calls.

use super::config::ConduitConfig;
use super::frame::Kind;
use super::native::Natives;
use super::peers::Peers;
use super::reply_path::ConduitReplyPath;
use super::send::{Admitted, Outgoing};
use crate::model::Native;
use crate::nic::Nic;
use am_core::transport::{
    Body, Buffer, CreditSnapshot, Departure, FaultyPeers, Membership, NativeOneSided, PayloadWriter, PendingKey,
    Refused, ReplyBound, ReplyPath, RequestHeader, Sink, Slot, Transport, WaitReason, Waiting,
};
use am_core::{Category, Instant, Limits, Peer, PeerStatus, Rank, Segment, Shape, Span, Words};
use fabric_sim::HostMemory;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// Polls after which credits are sent even though nobody seems to need them.
const CREDIT_FLUSH_POLLS: u32 = 16;

/// What all ranks of a job have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: ConduitConfig,
    pub(super) native: Native,
    pub(super) compose: Span,
    pub(super) dispatch: Span,
    /// Which ranks have registered their memory: what a job's launcher tells everyone.
    pub(super) ready: RefCell<Vec<bool>>,
}

/// One rank's transport. It lives in the rank's coroutine and cannot leave it.
///
/// After the first messages nothing is allocated but the state of peers that were never there before. Calls do not block: the
/// interface takes what room there is for. Reading the segment passes no time and lets nothing happen: only polling, idling and
/// asking for a status do.
pub struct Conduit<'a> {
    pub(super) nic: Nic<'a>,
    pub(super) shared: Rc<Shared>,
    pub(super) me: u32,
    ranks: u32,
    limits: Limits,
    pub(super) segment: Segment<HostMemory>,
    pub(super) peers: Peers,
    pub(super) natives: Natives,
    /// Buffers of reserved requests and replies, kept for the next.
    pub(super) spare: Vec<Vec<u8>>,
    /// Peers that credits are owed to.
    pub(super) pending_credit: Vec<u32>,
    pub(super) polls_before_flush: u32,
    /// Requests under way, over all peers.
    pub(super) unhandled: u64,
    /// Replies that this rank has sent to itself and that have not come.
    pub(super) own_replies: u32,
    /// How many had departed when the rank last asked whether everything was handled.
    quiet_departures: u32,
    /// A peer that had not handled everything when the rank last asked.
    last_busy_peer: u32,
    pub(super) bare_given: u64,
    pub(super) faulty: FaultyPeers,
    /// Something that lets a wait end has come since the last idling, without any message for the sink.
    pub(super) fresh: bool,
    departed: bool,
}

impl fmt::Debug for Conduit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conduit").field("rank", &self.me).field("ranks", &self.ranks).finish_non_exhaustive()
    }
}

impl<'a> Conduit<'a> {
    /// Registers a rank's memory.
    pub(super) fn new(nic: Nic<'a>, shared: Rc<Shared>) -> Self {
        let (me, ranks) = (nic.rank(), nic.ranks());
        let ConduitConfig { medium, segment, default_reply, .. } = shared.config;
        let memory = HostMemory::new(segment as usize);
        nic.register(&memory);
        shared.ready.borrow_mut()[me as usize] = true;
        Self {
            me,
            ranks,
            limits: Limits::uniform(medium as usize, 1 << 32).with_default_reply(default_reply as usize),
            segment: Segment::new(memory, segment as usize),
            peers: Peers::new(ranks),
            natives: Natives::default(),
            spare: Vec::new(),
            pending_credit: Vec::new(),
            polls_before_flush: 0,
            unhandled: 0,
            own_replies: 0,
            quiet_departures: 0,
            last_busy_peer: 0,
            bare_given: 0,
            faulty: FaultyPeers::new(),
            fresh: false,
            departed: false,
            nic,
            shared,
        }
    }

    /// The rank's interface, for raw use beside the conduit, which takes its messages and the ends of its operations.
    pub fn nic(&self) -> &Nic<'a> {
        &self.nic
    }

    pub(super) fn segment_size(&self) -> u64 {
        self.shared.config.segment
    }

    /// What is known of a peer without letting anything happen.
    #[inline]
    pub(super) fn known_status(&self, peer: u32) -> PeerStatus {
        self.faulty.status(Peer(peer), || self.nic.context().known_status(peer))
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
pub struct ConduitSlot<'t, 'a> {
    transport: &'t mut Conduit<'a>,
    to: Peer,
    header: RequestHeader,
    args: Words,
    payload: Vec<u8>,
    /// What it took; gone once it is sent.
    admitted: Option<Admitted>,
}

impl PayloadWriter for ConduitSlot<'_, '_> {
    fn len(&self) -> usize {
        self.payload.len()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        Buffer(&mut self.payload).write(at, bytes);
    }
}

impl Slot for ConduitSlot<'_, '_> {
    fn commit(mut self) {
        if self.admitted.take().is_none() {
            return;
        }
        let (kind, handler) = (kind(Category::Medium, self.header.reply), self.header.handler);
        let frame = Outgoing { kind, handler, args: &self.args, payload: &self.payload, offset: 0 };
        self.transport.transmit(self.to.0, &frame);
    }
}

impl Drop for ConduitSlot<'_, '_> {
    fn drop(&mut self) {
        if let Some(admitted) = self.admitted.take() {
            self.transport.withdraw(self.to.0, admitted);
        }
        self.transport.spare.push(std::mem::take(&mut self.payload));
    }
}

impl<'a> Membership for Conduit<'a> {
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
        self.nic.context().sync();
        self.known_status(peer.0)
    }

    fn depart(&mut self, how: Departure) {
        self.pay_all();
        self.departed = true;
        self.nic.depart(how.status());
    }
}

impl<'a> Waiting for Conduit<'a> {
    fn idle(&mut self, until: Option<Instant>, reason: WaitReason) {
        self.pay_all();
        if reason == WaitReason::Handling {
            // The end of a rank that comes between the question whether all is quiet and the idling wakes nobody.
            self.nic.context().sync();
            self.fresh |= self.nic.context().departures() != self.quiet_departures;
        }
        if !std::mem::take(&mut self.fresh) && !self.nic.has_news() && !self.natives.has_told() {
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

impl<'a> Transport for Conduit<'a> {
    type Memory = HostMemory;
    type Room = Admitted;
    type Slot<'t>
        = ConduitSlot<'t, 'a>
    where
        Self: 't;

    fn limits(&self, _: Peer) -> &Limits {
        &self.limits
    }

    fn send(&mut self, to: Peer, header: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        let (payload, offset) = body.parts();
        let kind = kind(body.category(), header.reply);
        self.admit(to, kind, header.reply, payload.len())?;
        self.transmit(to.0, &Outgoing { kind, handler: header.handler, args, payload, offset });
        Ok(())
    }

    fn reserve(&mut self, to: Peer, header: RequestHeader, _: &Words, len: usize) -> Result<Admitted, Refused> {
        self.admit(to, kind(Category::Medium, header.reply), header.reply, len)
    }

    fn slot(
        &mut self,
        to: Peer,
        header: RequestHeader,
        args: &Words,
        len: usize,
        room: Admitted,
    ) -> ConduitSlot<'_, 'a> {
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        payload.resize(len, 0);
        ConduitSlot { to, header, args: *args, payload, admitted: Some(room), transport: self }
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        self.admit(to, Kind::Control, ReplyBound::None, payload.len())?;
        self.transmit(to.0, &Outgoing { kind: Kind::Control, handler: 0, args, payload, offset: 0 });
        Ok(())
    }

    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let done = self.serve(budget, sink);
        if !self.pending_credit.is_empty() {
            self.polls_before_flush += 1;
            if self.polls_before_flush >= CREDIT_FLUSH_POLLS {
                self.pay_all();
            }
        }
        done
    }

    fn reply_detached<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        reply(&mut ConduitReplyPath::of_key(self, key))
    }

    fn flush(&mut self) {
        self.pay_all();
    }

    fn is_quiescent(&mut self) -> bool {
        self.quiet_departures = self.nic.context().departures();
        if self.natives_under_way() || self.own_replies != 0 {
            return false;
        }
        if self.unhandled == 0 {
            return true;
        }
        // Whoever was waited for the last time is looked at first: with many peers all of them take long.
        let waits = |peer: u32, state: &super::peers::PeerState| {
            state.unhandled + state.controls != 0 && self.known_status(peer) == PeerStatus::Active
        };
        let last = self.last_busy_peer;
        if self.peers.known(last).is_some_and(|state| waits(last, state)) {
            return false;
        }
        match self.peers.next(last, waits) {
            Some(peer) => self.last_busy_peer = peer,
            None => return true,
        }
        false
    }

    fn segment(&self) -> &Segment<HostMemory> {
        &self.segment
    }

    fn segment_len(&self, _: Rank) -> u64 {
        self.segment_size()
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

    fn bare_credits(&self) -> u64 {
        self.bare_given
    }
}

impl Drop for Conduit<'_> {
    fn drop(&mut self) {
        // Reached without a departure by a rank that never attached.
        if !self.departed {
            self.depart(Departure::of_drop());
        }
    }
}

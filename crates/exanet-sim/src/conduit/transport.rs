//! The transport: what a rank keeps, and the contract's calls.

use super::config::{ConduitConfig, Costs, Sizes, notes};
use super::frame::Kind;
use super::peers::Peers;
use super::reply_path::ConduitReplyPath;
use super::send::{Admitted, Outgoing};
use super::stages::{Stage, Stages};
use crate::delivery::{Farewells, Refusals};
use crate::nic::{Access, HostMemory, Nic};
use am_core::transport::{
    Body, Buffer, CreditSnapshot, Departure, FaultyPeers, Membership, NativeOneSided, OperationFault,
    PayloadWriter, PendingKey, Refused, ReplyBound, ReplyPath, RequestHeader, Sink, Slot, Ticket, Transport,
    WaitReason, Waiting,
};
use am_core::{Category, Instant, Limits, Peer, PeerStatus, Rank, Segment, Shape, Span, Words};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

/// Where every process has its segment, its receive buffers, the words that notify writes, and its stages: the
/// same addresses everywhere, so that nobody has to tell them.
pub(super) const SEGMENT_AT: u64 = 1 << 40;
pub(super) const BUFFERS_AT: u64 = 2 << 40;
pub(super) const NOTES_AT: u64 = 3 << 40;
pub(super) const STAGES_AT: u64 = 4 << 40;

/// Polls after which credits are sent even though nobody seems to need them.
const CREDIT_FLUSH_POLLS: u32 = 16;

/// What all ranks of a job have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: ConduitConfig,
    pub(super) sizes: Sizes,
    pub(super) costs: Costs,
    /// The first wait for a full mailbox.
    pub(super) retry_wait: Span,
    /// Which ranks have opened their contexts and mapped their memory: what a job's launcher tells everyone.
    pub(super) ready: RefCell<Vec<bool>>,
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
    pub(super) me: u32,
    ranks: u32,
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
    pub(super) completed: VecDeque<Told>,
    /// When packets that were refused are sent again.
    pub(super) refusals: Refusals,
    /// Buffers of frames and replies, kept for the next.
    pub(super) spare: Vec<Vec<u8>>,
    /// Peers that credits are owed to, and those that may be waiting for them.
    pub(super) pending_credit: Vec<u32>,
    pub(super) urgent_credit: Vec<u32>,
    pub(super) polls_before_flush: u32,
    /// Requests under way, over all peers.
    pub(super) unhandled: u64,
    /// This rank's slots of replies that it has sent to itself and that have not come.
    pub(super) own_replies: u32,
    /// How many had departed when the rank last asked whether everything was handled.
    quiet_departures: u32,
    /// A peer that had not handled everything when the rank last asked.
    last_busy_peer: u32,
    pub(super) bare_given: u64,
    /// How many had departed or were faulty when operations on them were ended.
    pub(super) swept: (u32, usize),
    /// Peers that are lost for this rank alone, and those of them that are to be told.
    pub(super) faulty: FaultyPeers,
    pub(super) farewells: Farewells,
    /// Something that lets a wait end has come since the last idling, without any message for the sink.
    pub(super) fresh: bool,
    departed: bool,
}

/// The end of an operation that the core was not told of yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) ticket: Ticket,
    /// The stage that has what a get brings, and how many bytes that is.
    pub(super) brought: Option<(Stage, usize)>,
    pub(super) outcome: Result<(), OperationFault>,
}

impl fmt::Debug for Conduit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conduit").field("rank", &self.me).field("ranks", &self.ranks).finish_non_exhaustive()
    }
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
        shared.ready.borrow_mut()[me as usize] = true;
        Self {
            me,
            ranks,
            limits: Limits::uniform(sizes.medium as usize, 1 << 32).with_default_reply(default_reply as usize),
            segment: Segment::new(memory, segment as usize),
            buffers,
            notes: words,
            stages: Stages::new(&shared.config),
            peers: Peers::new(ranks, sizes),
            waiting: VecDeque::new(),
            completed: VecDeque::new(),
            refusals: Refusals::new(shared.retry_wait),
            spare: Vec::new(),
            pending_credit: Vec::new(),
            urgent_credit: Vec::new(),
            polls_before_flush: 0,
            unhandled: 0,
            own_replies: 0,
            quiet_departures: 0,
            last_busy_peer: 0,
            bare_given: 0,
            swept: (0, 0),
            faulty: FaultyPeers::new(),
            farewells: Farewells::default(),
            fresh: false,
            departed: false,
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
    head: RequestHeader,
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
        let Some(slots) = self.admitted.take() else { return };
        let (kind, handler) = (kind(Category::Medium, self.head.reply), self.head.handler);
        let frame = Outgoing { kind, handler, slots, args: &self.args, payload: &self.payload, offset: 0 };
        // A peer that has gone in the meantime does not get what was accepted, as always.
        let _ = self.transport.insist(self.to.0, &frame);
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
        self.nic.sync();
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
            self.nic.sync();
            self.fresh |= self.nic.context().departures() != self.quiet_departures;
        }
        if !std::mem::take(&mut self.fresh) && !self.has_deliverable() {
            self.nic.idle(self.refusals.until(until), reason);
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

    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        let (payload, offset) = body.parts();
        let kind = kind(body.category(), head.reply);
        let slots = self.admit(to, kind, head.reply, payload.len())?;
        self.request(to, &Outgoing { kind, handler: head.handler, slots, args, payload, offset })
    }

    fn reserve(&mut self, to: Peer, head: RequestHeader, _: &Words, len: usize) -> Result<Admitted, Refused> {
        self.admit(to, kind(Category::Medium, head.reply), head.reply, len)
    }

    fn slot(
        &mut self,
        to: Peer,
        head: RequestHeader,
        args: &Words,
        len: usize,
        room: Admitted,
    ) -> ConduitSlot<'_, 'a> {
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        payload.resize(len, 0);
        ConduitSlot { to, head, args: *args, payload, admitted: Some(room), transport: self }
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        let kind = Kind::Control;
        let slots = self.admit(to, kind, ReplyBound::None, payload.len())?;
        self.request(to, &Outgoing { kind, handler: 0, slots, args, payload, offset: 0 })
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
        self.quiet_departures = self.nic.context().departures();
        if self.own_replies != 0 || self.natives_under_way() {
            return false;
        }
        if self.unhandled != 0 {
            let requests = self.shared.sizes.request_slots();
            let waits = |peer: u32| {
                let busy = |state: &super::peers::PeerState| state.slots.in_use() & requests != 0;
                self.peers.known(peer).is_some_and(busy) && self.known_status(peer) == PeerStatus::Active
            };
            // Whoever was waited for the last time is looked at first: with many peers all of them take long.
            let last = Some(self.last_busy_peer).filter(|peer| waits(*peer));
            let found = last.or_else(|| self.peers.all().map(|(peer, _)| peer).find(|peer| waits(*peer)));
            if let Some(peer) = found {
                self.last_busy_peer = peer;
                return false;
            }
        }
        !self.replies_wait()
    }

    fn segment(&self) -> &Segment<HostMemory> {
        &self.segment
    }

    fn segment_len(&self, _: Rank) -> u64 {
        self.segment_size()
    }

    fn remote_segment(&self, _: Rank) -> Option<&Segment<HostMemory>> {
        None
    }

    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        Some((self, to))
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        let sizes = self.shared.sizes;
        let (requests, replies) = self.peers.known(peer.0).map_or((sizes.requests, sizes.replies), |state| {
            (state.slots.free(sizes.request_slots()), state.replies.free(u32::MAX))
        });
        let bytes = |slots: u32| u64::from(slots) * u64::from(sizes.medium);
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

//! The transport: what a rank keeps, and the contract's calls.

use super::config::{ConduitConfig, Costs, FlagStores, Mutation};
use super::header::{Header, Kind, Number};
use super::layout::Layout;
use super::net::{Net, OpenError};
use super::reply_path::{ConduitReplyPath, Owed};
use super::send::Outgoing;
use super::status::Locations;
use super::turns::Turns;
use super::work::WorkQueue;
use crate::model::ConduitParameters;
use crate::nic::{NodeId, Sisci};
use am_core::transport::{
    Body, Buffer, CreditSnapshot, Departure, FaultyPeers, Membership, NativeOneSided, PayloadWriter, PendingKey,
    Refused, ReplyBound, ReplyPath, RequestHeader, Sink, Slot, Transport, WaitReason, Waiting,
};
use am_core::{Category, Instant, Limits, Peer, PeerStatus, Rank, Segment, Shape, Span, Words};
use std::cell::Cell;
use std::fmt;

/// What the conduit has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Transfers that were repeated at once, since the interface said so.
    pub retries: u64,
    /// Transfers that were begun anew after the way to the peer had been interrupted.
    pub restarts: u64,
    /// Searches for ready flags although the exist flag was not set.
    pub full_scans: u64,
    /// Reads of other nodes' memory.
    pub remote_reads: u64,
}

/// One rank's transport.
///
/// After the first messages nothing is allocated but what the interface needs for payload segments that were never
/// used before. A request that was accepted may wait, inside the call, until its stores have arrived; that needs
/// the network, never the peer's program.
pub struct Conduit<N: Sisci> {
    pub(super) net: Net<N>,
    pub(super) config: ConduitConfig,
    pub(super) costs: Costs,
    pub(super) layout: Layout,
    pub(super) me: u32,
    pub(super) ranks: u32,
    limits: Limits,
    pub(super) segment: Segment<N::Memory>,
    /// Message location status: which request slots at the peers are taken.
    pub(super) locations: Locations,
    /// The number in the last flag of each slot of each peer.
    pub(super) sent: Vec<u8>,
    /// The number in the last flag that each slot here has had.
    pub(super) expected: Vec<u8>,
    /// The ready flags as last seen, where they are numbered.
    pub(super) seen: Vec<u64>,
    pub(super) queue: WorkQueue,
    /// The order of messages, where it is kept.
    pub(super) turns: Turns,
    /// A reply's Medium payload, or that of a claimed request.
    pub(super) staged: Vec<u8>,
    /// Header and payload side by side, for transfers of both.
    pub(super) whole: Vec<u8>,
    pub(super) bare_given: u64,
    /// Answers that handlers have left behind by unwinding.
    pub(super) owed: Vec<Owed>,
    pub(super) faulty: FaultyPeers,
    /// Something that lets a wait end has come since the last idling, without any message for the sink.
    pub(super) fresh: bool,
    /// Polls in a row that found the exist flag unset.
    pub(super) empty_polls: u32,
    /// Since the last announcement nobody has looked whether there is more than was announced.
    pub(super) unsure: bool,
    /// So much time has passed since then that whatever was under way has arrived.
    pub(super) settled: bool,
    /// A peer is known to have gone: what it sent before has arrived, and is looked for whether it was announced
    /// or not.
    pub(super) last_look: Cell<bool>,
    pub(super) counts: Counts,
    departed: bool,
}

impl<N: Sisci> fmt::Debug for Conduit<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conduit").field("rank", &self.me).field("ranks", &self.ranks).finish_non_exhaustive()
    }
}

impl<N: Sisci> Conduit<N> {
    /// Opens the conduit of the rank that this node is in the job: exports its segments, then imports those of its
    /// peers. Waits for peers that have not exported theirs yet, for as long as the configuration says.
    ///
    /// # Errors
    /// [`OpenError`]: an impossible configuration, a node outside the job, a segment that cannot be exported or
    /// imported.
    pub fn open(
        nic: N,
        nodes: &[NodeId],
        config: &ConduitConfig,
        costs: &ConduitParameters,
    ) -> Result<Self, OpenError> {
        let layout = config.compile(nodes.len() as u32)?;
        let net = Net::open(nic, nodes.to_vec(), layout, config)?;
        let (me, ranks, slots) = (net.rank(), layout.ranks, layout.slots());
        let segment = Segment::new(net.payload_memory().clone(), config.segment as usize);
        let all = (ranks * slots) as usize;
        let numbered = config.flags == FlagStores::Numbered;
        Ok(Self {
            layout,
            me,
            ranks,
            limits: Limits::uniform(layout.medium(), config.segment).with_order(config.ordered),
            segment,
            locations: Locations::new(ranks, layout.requests),
            sent: vec![0; all],
            expected: vec![0; all],
            seen: if numbered { vec![0; layout.ready_words()] } else { Vec::new() },
            queue: WorkQueue::new(all),
            turns: Turns::new(ranks, layout.requests),
            staged: vec![0; layout.medium()],
            whole: vec![0; layout.slot],
            bare_given: 0,
            owed: Vec::new(),
            faulty: FaultyPeers::new(),
            fresh: false,
            empty_polls: 0,
            unsure: false,
            settled: false,
            last_look: Cell::new(false),
            counts: Counts::default(),
            departed: false,
            config: config.clone(),
            costs: Costs::new(costs),
            net,
        })
    }

    /// The interface, for raw use beside the conduit. Segments below `(rank << 16) + ranks + 4` are the conduit's.
    pub fn nic(&self) -> &N {
        &self.net.nic
    }

    /// What the conduit and its interface have counted so far.
    pub fn counts(&self) -> Counts {
        Counts { remote_reads: self.net.nic.counters().remote_reads, ..self.counts }
    }

    #[inline]
    pub(super) fn mutation(&self, wanted: Mutation) -> bool {
        self.config.mutation == Some(wanted)
    }

    /// What is known of a peer without letting anything happen.
    #[inline]
    pub(super) fn known_status(&self, peer: u32) -> PeerStatus {
        self.faulty.status(Peer(peer), || self.net.status(peer))
    }

    fn send_request(
        &mut self,
        to: Peer,
        category: Category,
        head: RequestHeader,
        args: &Words,
        payload: &[u8],
        place: u64,
    ) -> Result<(), Refused> {
        let slot = self.admit(to)?;
        let header = Header {
            kind: kind(category, head.reply),
            handler: head.handler,
            payload: payload.len() as u32,
            place,
            number: Number::default(),
        };
        self.request(to, slot, &Outgoing { header, args, payload })
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
pub struct ConduitSlot<'t, N: Sisci> {
    conduit: &'t mut Conduit<N>,
    to: Peer,
    head: RequestHeader,
    args: Words,
    len: usize,
    /// The slot that it took; gone once it is sent.
    slot: Option<u32>,
}

impl<N: Sisci> PayloadWriter for ConduitSlot<'_, N> {
    fn len(&self) -> usize {
        self.len
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        Buffer(&mut self.conduit.staged[..self.len]).write(at, bytes);
    }
}

impl<N: Sisci> Slot for ConduitSlot<'_, N> {
    fn commit(mut self) {
        let Some(slot) = self.slot.take() else { return };
        let kind = kind(Category::Medium, self.head.reply);
        let header = Header {
            kind,
            handler: self.head.handler,
            payload: self.len as u32,
            place: 0,
            number: Number::default(),
        };
        let staged = std::mem::take(&mut self.conduit.staged);
        let frame = Outgoing { header, args: &self.args, payload: &staged[..self.len] };
        // A peer that has gone in the meantime does not get what was accepted, as always.
        let _ = self.conduit.request(self.to, slot, &frame);
        self.conduit.staged = staged;
    }
}

impl<N: Sisci> Drop for ConduitSlot<'_, N> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.conduit.withdraw(self.to.0, slot);
        }
    }
}

impl<N: Sisci> Membership for Conduit<N> {
    fn local_peer(&self) -> Peer {
        Peer(self.me)
    }

    fn shape(&self) -> Shape {
        Shape::new(self.ranks)
    }

    fn losses(&self) -> u32 {
        self.faulty.losses(self.net.nic.losses(), |peer| self.net.status(peer.0))
    }

    fn status(&self, peer: Peer) -> PeerStatus {
        // Lets everything happen that has happened by now.
        self.net.nic.sync();
        let status = self.known_status(peer.0);
        if status != PeerStatus::Active {
            self.last_look.set(true);
        }
        status
    }

    fn depart(&mut self, how: Departure) {
        self.pay();
        self.departed = true;
        self.net.nic.depart(how.status());
    }
}

impl<N: Sisci> Waiting for Conduit<N> {
    fn idle(&mut self, until: Option<Instant>, reason: WaitReason) {
        self.pay();
        if std::mem::take(&mut self.fresh) || !self.queue.is_empty() {
            return;
        }
        // The published code polls without end, and so finds what was not announced; a rank that sleeps has to
        // wake for that.
        let unsure = self.unsure || self.config.flags == FlagStores::Unchecked;
        if !unsure || self.config.full_scan_polls == 0 {
            return self.net.nic.idle(until, reason);
        }
        let wake_at = self.net.now() + Span((self.config.full_scan_sleep_ns * 1e3) as u64);
        self.net.nic.idle(Some(until.map_or(wake_at, |until| until.min(wake_at))), reason);
        if self.net.now() >= wake_at {
            // The next poll is a full scan.
            self.empty_polls = self.config.full_scan_polls;
            self.settled = true;
        }
    }

    fn now(&self) -> Instant {
        self.net.now()
    }

    fn charge(&mut self, cost: Span) {
        self.net.charge(cost);
    }
}

impl<N: Sisci> Transport for Conduit<N> {
    type Memory = N::Memory;
    type Room = u32;
    type Slot<'t>
        = ConduitSlot<'t, N>
    where
        Self: 't;

    fn limits(&self, _: Peer) -> &Limits {
        &self.limits
    }

    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        let (payload, at) = body.parts();
        self.send_request(to, body.category(), head, args, payload, at)
    }

    fn reserve(&mut self, to: Peer, _: RequestHeader, _: &Words, _: usize) -> Result<u32, Refused> {
        self.admit(to)
    }

    fn slot(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize, slot: u32) -> ConduitSlot<'_, N> {
        // What is not written must not be what another peer was sent.
        self.staged[..len].fill(0);
        ConduitSlot { to, head, args: *args, len, slot: Some(slot), conduit: self }
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        let slot = self.admit(to)?;
        let header = Header {
            kind: Kind::Core,
            handler: 0,
            payload: payload.len() as u32,
            place: 0,
            number: Number::default(),
        };
        self.request(to, slot, &Outgoing { header, args, payload })
    }

    #[inline]
    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        self.serve(budget, sink)
    }

    fn reply_detached<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        reply(&mut ConduitReplyPath::of_key(self, key))
    }

    fn flush(&mut self) {
        self.pay();
        self.net.nic.flush();
    }

    fn is_quiescent(&mut self) -> bool {
        self.pay();
        let unhandled = self.locations.busy().any(|peer| self.known_status(peer) == PeerStatus::Active);
        !unhandled
    }

    fn segment(&self) -> &Segment<N::Memory> {
        &self.segment
    }

    fn segment_len(&self, _: Rank) -> u64 {
        self.config.segment
    }

    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        Some((self, to))
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        let free = u64::from(self.locations.available(peer.0));
        let bytes = free * self.layout.medium() as u64;
        CreditSnapshot::default().requests(free, bytes).replies(free, bytes)
    }

    fn bare_credits(&self) -> u64 {
        self.bare_given
    }
}

impl<N: Sisci> Drop for Conduit<N> {
    fn drop(&mut self) {
        // Reached without a departure by a rank that never attached.
        if !self.departed {
            self.depart(Departure::of_drop());
        }
    }
}

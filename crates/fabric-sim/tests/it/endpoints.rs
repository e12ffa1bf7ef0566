//! Endpoints of the core on the bare fabric: a transport for one-way Short messages and barriers, and 16,384 ranks
//! that attach, meet and finish with it.

use am_core::segment::Segment;
use am_core::transport::{
    Arrival, Body, CreditSnapshot, Departure, Membership, NullReplyPath, Refused, ReplyBound, ReplyPath,
    RequestHeader, Resource, Sink, Slot, Waiting,
};
use am_core::{
    Category, Endpoint, Handlers, Instant, Limits, Payload, PayloadWriter, Peer, PeerStatus, Rank, Span,
    Transport, WaitReason, Words,
};
use fabric_sim::{Config, Context, LinkParameters, Mailbox, Report, RunError, Sim};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What packets carry: a handler (none: a message between cores) and its arguments.
type Frame = (Option<u8>, Words);
type Fabric<'a> = Context<'a, Mailbox<Frame>>;

/// One-way Short messages and messages between cores, with room for everything; nothing else is ever accepted.
struct OneWay<'a> {
    context: Fabric<'a>,
    limits: Limits,
    segment: Segment<Arc<[AtomicU64]>>,
    departed: bool,
}

impl<'a> OneWay<'a> {
    fn new(context: Fabric<'a>) -> Self {
        let limits = Limits::uniform(0, 0);
        Self { context, limits, segment: Segment::new(Arc::from([]), 0), departed: false }
    }

    fn launch(&mut self, to: Peer, handler: Option<u8>, args: &Words) -> Result<(), Refused> {
        let status = self.context.known_status(to.0);
        if status != PeerStatus::Active {
            return Err(Refused::Gone(status));
        }
        self.context.send(to.0, 4 * args.len() as u32, (handler, *args));
        Ok(())
    }
}

/// A claim that nobody can have.
enum Nothing {}

impl PayloadWriter for Nothing {
    fn len(&self) -> usize {
        match *self {}
    }

    fn write(&mut self, _: usize, _: &[u8]) {
        match *self {}
    }
}

impl Slot for Nothing {
    fn commit(self) {
        match self {}
    }
}

impl Membership for OneWay<'_> {
    fn local_peer(&self) -> Peer {
        Peer(self.context.rank())
    }

    fn shape(&self) -> am_core::Shape {
        am_core::Shape::new(self.context.ranks())
    }

    fn losses(&self) -> u32 {
        self.context.losses()
    }

    fn status(&self, peer: Peer) -> PeerStatus {
        self.context.known_status(peer.0)
    }

    fn depart(&mut self, how: Departure) {
        if !std::mem::replace(&mut self.departed, true) {
            self.context.depart(how.status());
        }
    }
}

impl Waiting for OneWay<'_> {
    fn idle(&mut self, until: Option<Instant>, reason: WaitReason) {
        self.context.idle(until, reason);
    }

    fn now(&self) -> Instant {
        self.context.now()
    }

    fn charge(&mut self, cost: Span) {
        self.context.charge(cost);
    }
}

impl Transport for OneWay<'_> {
    type Memory = Arc<[AtomicU64]>;
    type Room = Nothing;
    type Slot<'b>
        = Nothing
    where
        Self: 'b;

    fn limits(&self, _: Peer) -> &Limits {
        &self.limits
    }

    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        match (head.reply, body) {
            (ReplyBound::None, Body::None) => self.launch(to, Some(head.handler), args),
            (ReplyBound::None, _) => Err(Refused::Busy(Resource::RequestBytes)),
            (ReplyBound::UpTo(_), _) => Err(Refused::Busy(Resource::ReplyFrames)),
        }
    }

    fn reserve(&mut self, _: Peer, _: RequestHeader, _: &Words, _: usize) -> Result<Nothing, Refused> {
        Err(Refused::Busy(Resource::RequestBytes))
    }

    fn slot(&mut self, _: Peer, _: RequestHeader, _: &Words, _: usize, room: Nothing) -> Nothing {
        room
    }

    fn control(&mut self, to: Peer, args: &Words, _: &[u8]) -> Result<(), Refused> {
        self.launch(to, None, args)
    }

    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        for polled in 0..budget {
            let Some(packet) = self.context.receive() else { return polled };
            let (from, (handler, args)) = (Peer(packet.from), packet.body);
            let payload = Payload::own(&[]);
            match handler {
                None => sink.control(from, &args, payload),
                Some(handler) => {
                    let arrival = Arrival::new(from, Category::Short, handler, &args, payload);
                    sink.request(arrival, &mut NullReplyPath::one_way(from));
                }
            }
        }
        budget
    }

    fn reply_detached<R>(
        &mut self,
        key: am_core::transport::PendingKey,
        reply: impl FnOnce(&mut dyn ReplyPath) -> R,
    ) -> R {
        reply(&mut NullReplyPath::one_way(key.to))
    }

    fn flush(&mut self) {}

    fn is_quiescent(&mut self) -> bool {
        true
    }

    fn segment(&self) -> &Segment<Self::Memory> {
        &self.segment
    }

    fn segment_len(&self, _: Rank) -> u64 {
        0
    }

    fn credits(&self, _: Peer) -> CreditSnapshot {
        CreditSnapshot::default().requests(u64::MAX, 0)
    }

    fn bare_credits(&self) -> u64 {
        0
    }
}

/// All ranks send their number to their neighbour, meet, and finish; the result is what came and when this rank
/// ended.
fn meet(ranks: u32) -> Result<Report<(u32, Instant)>, RunError> {
    let mut config = Config::new(ranks);
    config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 300.0 };
    Sim::run(&config, |context: Fabric<'_>| {
        let clock = context.clone();
        let mut handlers = Handlers::<u32>::new();
        let note = handlers.one_way("note", |seen: &mut u32, _, number: u32, _| *seen = number).unwrap();
        let mut endpoint = Endpoint::attach(OneWay::new(context), handlers, u32::MAX).unwrap();
        let to = Rank((endpoint.rank().0 + 1) % endpoint.ranks());
        endpoint.request(to, note, endpoint.rank().0).unwrap();
        endpoint.wait_until(|seen| *seen != u32::MAX).unwrap();
        endpoint.barrier().unwrap();
        (endpoint.finish().unwrap(), clock.now())
    })
}

fn check(report: &Report<(u32, Instant)>, ranks: u32) {
    let seen = report.results.iter().map(|result| result.expect("everyone ends").0);
    assert!(seen.eq((0..ranks).map(|rank| (rank + ranks - 1) % ranks)));
    // Ends in order wake nobody: what happens is in proportion to messages, not to pairs of ranks.
    let per_rank = report.events / u64::from(ranks);
    assert!(per_rank < 600, "{per_rank} events per rank");
}

#[test]
fn endpoints_attach_meet_and_finish_in_virtual_time() {
    for ranks in [1, 2, 3, 64] {
        check(&meet(ranks).unwrap(), ranks);
    }
    assert_eq!(meet(7).unwrap().hash, meet(7).unwrap().hash);
}

#[test]
fn so_do_4096_of_them() {
    let _alone = crate::alone();
    check(&meet(4096).unwrap(), 4096);
}

#[test]
#[ignore = "takes seconds"]
fn full_so_do_16384_of_them_in_little_memory() {
    let _alone = crate::alone();
    check(&meet(16_384).unwrap(), 16_384);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    if let Some(kib) = peak.and_then(|peak| peak.trim().trim_end_matches("kB").trim().parse::<u64>().ok()) {
        assert!(kib < 2 << 20, "{kib} KiB of memory at most so far");
    }
}

//! One peer takes all that it can get of what the peers share, and another one still gets its part.

use super::{DATAGRAM, INSIDER, SEGMENT, VICTIM, config};
use crate::proto::Machine;
use crate::proto::bytes::Writer;
use crate::proto::config::{Config, Protection, Secrets};
use crate::proto::message::{MAX_HEADER, cost_of, room_of};
use crate::proto::wire::{Credit, Frame, HEADER, Header, Leave, TAG};
use crate::sim::{self, SplitMix64};
use am_core::arguments::Words;
use am_core::transport::{
    Arrival, Body, Departure, LossCause, PeerStatus, ReplyBound, ReplyPath, RequestHeader, Sink,
};
use am_core::{Instant, Payload, Peer, Shape, Span};

const HONEST: Peer = Peer(2);
const MEDIUM: u32 = 1024;
/// What a request to this handler gets is a Long reply of this many bytes.
const LONG: u8 = 2;
const LONG_LEN: usize = 1500;

/// Replies with as much as the requester permits; counts what came from whom.
#[derive(Default)]
struct Generous {
    requests: [u64; 3],
    replies: [u64; 3],
}

impl Sink for Generous {
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        self.requests[arrival.from.index()] += 1;
        let len = path.bound();
        if arrival.handler == LONG {
            path.send(0, &Words::EMPTY, Body::Place(&[4; LONG_LEN], 0)).unwrap();
        } else if len > 0 {
            path.send(0, &Words::EMPTY, Body::Copy(&vec![3; len])).unwrap();
        }
    }

    fn reply(&mut self, arrival: Arrival<'_>) {
        self.replies[arrival.from.index()] += 1;
    }

    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
}

/// The victim, one that takes, and one that follows the rules.
struct Trio {
    random: SplitMix64,
    now: Instant,
    machines: [Machine; 3],
    sinks: [Generous; 3],
    /// Nothing of what the victim sends reaches the insider, who so acknowledges nothing.
    deaf: bool,
}

impl Trio {
    fn new(seed: u64) -> Self {
        let machines = [VICTIM, INSIDER, HONEST].map(|me| {
            let mut config = config(me, seed, Protection::Encrypted);
            config.medium = MEDIUM;
            config.reply_budget = 2400 + (seed % 5 * 1200) as u32;
            sim::machine(config, SEGMENT).unwrap().0
        });
        let mut trio =
            Self { random: SplitMix64(seed), now: Instant(0), machines, sinks: Default::default(), deaf: false };
        for peer in [INSIDER, HONEST] {
            trio.machines[peer.index()].connect(trio.now, VICTIM);
        }
        trio.run(|trio| [INSIDER, HONEST].iter().all(|peer| trio.machines[0].is_connected(*peer)));
        trio
    }

    /// Lets everybody do what there is to do, for as long as it takes.
    fn run(&mut self, done: impl Fn(&Self) -> bool) -> bool {
        let mut buffer = vec![0; DATAGRAM];
        for _ in 0..300 {
            for from in 0..3 {
                while let Some((to, len)) = self.machines[from].transmit(self.now, &mut buffer) {
                    if !(self.deaf && to == INSIDER) {
                        let _ = self.machines[to.index()].handle(self.now, &mut buffer[..len]);
                    }
                }
            }
            for (machine, sink) in self.machines.iter_mut().zip(&mut self.sinks) {
                machine.poll(self.now, 7, sink);
            }
            if done(self) {
                return true;
            }
            self.now = self.now + Span::from_millis(1);
            self.machines.iter_mut().for_each(|machine| machine.tick(self.now));
        }
        false
    }

    /// Sends a frame in the insider's name.
    fn say(&mut self, frame: &Frame<'_>) {
        let mut datagram = vec![0; DATAGRAM];
        let mut writer = Writer::new(&mut datagram[HEADER..DATAGRAM - TAG]);
        frame.encode(&mut writer).unwrap();
        let body = writer.len();
        let session = self.machines[INSIDER.index()].slots[VICTIM.index()].session.as_deref_mut().unwrap();
        let (number, epoch) = (session.recovery.next_number(), session.seal.epoch);
        let length = (HEADER + body + TAG) as u16;
        let header = Header { mode: Protection::Encrypted as u8, epoch, sender: INSIDER.0, number, length };
        datagram[..HEADER].copy_from_slice(&header.encode());
        let len = session.seal.seal(Protection::Encrypted, number, &mut datagram, HEADER + body);
        session.recovery.on_sent(self.now, len, None);
        self.machines[0].handle(self.now, &mut datagram[..len]).unwrap();
    }

    /// The insider forgets what it has set aside for replies, and that its window has an end.
    fn unbind(&mut self) {
        let granted = self.machines[0].session(INSIDER).unwrap().granted.limit;
        let Machine { slots, shared, .. } = &mut self.machines[INSIDER.index()];
        let session = slots[VICTIM.index()].session.as_deref_mut().unwrap();
        shared.set_aside -= std::mem::take(&mut session.set_aside);
        session.told.limit = granted;
    }

    /// Whether the honest one gets a message of the largest size through, and its largest reply back.
    fn serves_the_honest(&mut self) -> bool {
        let (head, sent) = (RequestHeader::new(1, ReplyBound::UpTo(MEDIUM)), self.sinks[2].replies[0]);
        let payload = [9; MEDIUM as usize];
        let honest = &mut self.machines[HONEST.index()];
        honest.request(self.now, VICTIM, head, &Words::EMPTY, Some(&payload)).unwrap();
        self.run(|trio| trio.sinks[2].replies[0] > sent)
    }
}

#[test]
fn unacknowledged_replies_starve_nobody() {
    let mut most = 0;
    for seed in 0..40 {
        let mut trio = Trio::new(seed);
        trio.deaf = true;
        let budget = u64::from(trio.machines[0].config().reply_budget);
        for _ in 0..30 {
            let near = [0, 1, MEDIUM / 2, MEDIUM - 1, MEDIUM];
            let bound = near[trio.random.below(5) as usize];
            let head = RequestHeader::new(1, ReplyBound::UpTo(bound));
            trio.unbind();
            let insider = &mut trio.machines[INSIDER.index()];
            let _ = insider.request(trio.now, VICTIM, head, &Words::EMPTY, None);
            trio.run(|trio| trio.random.0 & 1 == 0 || trio.now.0 % 3 == 0);
            let victim = &trio.machines[0];
            let queued = victim.session(INSIDER).unwrap().traffic.out[1].queued();
            let largest = cost_of(room_of(ReplyBound::UpTo(MEDIUM)));
            assert!(queued <= (budget / 2).max(largest), "{queued} of {budget} bytes");
            most = most.max(queued);
        }
        assert!(trio.serves_the_honest(), "seed {seed}");
        assert_eq!(trio.machines[0].status(INSIDER), PeerStatus::Active);
    }
    assert!(most > 2000, "the insider has taken {most} bytes");
}

#[test]
fn unacknowledged_long_replies_are_bounded() {
    let mut trio = Trio::new(1);
    trio.deaf = true;
    let head = RequestHeader::new(LONG, ReplyBound::UpTo(0));
    let limit = u64::from(trio.machines[0].config().bulk_queue) + LONG_LEN as u64;
    for _ in 0..30 {
        trio.unbind();
        let _ = trio.machines[INSIDER.index()].request(trio.now, VICTIM, head, &Words::EMPTY, None);
        trio.run(|trio| trio.now.0 % 3 == 0);
        let queued = trio.machines[0].session(INSIDER).unwrap().traffic.bulk_out[1].bytes.queued();
        assert!(queued < limit, "{queued} bytes");
    }
    assert!(trio.sinks[0].requests[1] > 2 && trio.serves_the_honest());
}

#[test]
fn unused_loans_starve_nobody() {
    for seed in 0..40 {
        let mut trio = Trio::new(seed);
        let message = u64::from(MEDIUM) + MAX_HEADER as u64;
        let (base, lendable) = (trio.machines[0].shared.base, trio.machines[0].shared.lendable);
        assert!(base < message && lendable >= 2 * message);
        for _ in 0..4 {
            let near = [1 << 61, base, lendable, base + lendable, base + lendable / 2, 4096, message];
            let wanted = near[trio.random.below(7) as usize] + trio.random.below(3) - 1;
            trio.say(&Frame::Want(wanted));
            assert!(trio.serves_the_honest(), "seed {seed}: the insider wanted {wanted}");
            let loan = trio.machines[0].session(INSIDER).unwrap().loan;
            assert!(loan <= (lendable / 2).max(message), "{loan} of {lendable} bytes");
        }
    }
}

/// What was set aside for the replies of a peer, queued for it and lent to it serves others from the moment at
/// which it has left, and what it says afterwards takes nothing back.
#[test]
fn who_has_left_holds_nothing() {
    for seed in 0..40 {
        let mut trio = Trio::new(seed);
        trio.deaf = true;
        let lendable = trio.machines[0].shared.lendable;
        trio.say(&Frame::Want(lendable));
        let head = RequestHeader::new(1, ReplyBound::UpTo(MEDIUM));
        let victim = &mut trio.machines[0];
        let mut requests = 0;
        while victim.request(trio.now, INSIDER, head, &Words::EMPTY, Some(&[5; 100])).is_ok() {
            requests += 1;
        }
        assert!(
            requests > 0 && victim.shared.lent > 0 && victim.credits(INSIDER).reply_bytes < 2 * u64::from(MEDIUM)
        );
        trio.say(&Frame::Leave(Leave { how: Departure::Left as u8, ..Leave::default() }));
        trio.machines[0].poll(trio.now, 7, &mut trio.sinks[0]);
        let victim = &mut trio.machines[0];
        assert_eq!(victim.status(INSIDER), PeerStatus::Lost(LossCause::Left));
        let shared = &victim.shared;
        assert_eq!((shared.queued, shared.set_aside, shared.lent, shared.borrowers), ([0; 2], 0, 0, 0));
        let whole = u64::from(victim.config().reply_budget.min(victim.config().reply_window));
        assert_eq!(victim.credits(HONEST).reply_bytes, whole);
        victim.request(trio.now, HONEST, head, &Words::EMPTY, None).unwrap();
        // Late words: a credit for one request, another wish, more than was ever set aside.
        let bytes = cost_of(room_of(ReplyBound::UpTo(MEDIUM)));
        trio.say(&Frame::Credit(Credit { bare: 1, bare_bytes: bytes, ..Credit::default() }));
        trio.say(&Frame::Want(lendable + 1000));
        let held = &trio.machines[0].shared;
        assert_eq!((held.set_aside, held.lent, held.borrowers), (bytes, 0, 0));
        assert!(trio.serves_the_honest(), "seed {seed}");
        // Requests that come after the farewell are nobody's.
        let before = trio.sinks[0].requests[1];
        trio.unbind();
        trio.machines[INSIDER.index()].request(trio.now, VICTIM, head, &Words::EMPTY, None).unwrap();
        assert!(!trio.run(|trio| trio.sinks[0].requests[1] > before), "seed {seed}");
        assert!(trio.serves_the_honest(), "seed {seed}");
        assert_eq!(trio.machines[0].status(INSIDER), PeerStatus::Lost(LossCause::Left));
        let Machine { slots, shared, .. } = &mut trio.machines[0];
        let before = shared.queued;
        slots[INSIDER.index()].end(shared, PeerStatus::Lost(LossCause::Left));
        assert_eq!(shared.queued, before, "nothing comes back twice");
    }
}

/// With default settings, in a job whose largest messages need loans, eleven peers that borrow all they get and
/// never send leave room for a twelfth; each takes no more than its part.
#[test]
fn hoarders_leave_room_for_others() {
    let ranks = 512;
    let settings = |me: u32| {
        let secrets = Secrets { job: vec![5; 32], incarnation: [me as u8; 32] };
        Config::new(Shape::new(ranks), Peer(me), secrets)
    };
    let mut machines: Vec<Machine> = (0..14).map(|me| sim::machine(settings(me), 64).unwrap().0).collect();
    let now = Instant(0);
    let mut buffer = vec![0; DATAGRAM];
    for peer in 1..14 {
        machines[peer].connect(now, VICTIM);
        for _ in 0..8 {
            for (from, to) in [(peer, 0), (0, peer)] {
                while let Some((at, len)) = machines[from].transmit(now, &mut buffer) {
                    assert_eq!(at.index(), to);
                    let _ = machines[to].handle(now, &mut buffer[..len]);
                }
            }
        }
        assert!(machines[0].is_connected(Peer(peer as u32)));
    }
    let (lendable, message) = (machines[0].shared.lendable, machines[0].shared.config.largest_message());
    assert!(machines[0].shared.base < message, "the largest messages need loans");
    let mut loans = Vec::new();
    for peer in 1..14 {
        let Machine { slots, shared, .. } = &mut machines[0];
        let session = slots[peer].session.as_deref_mut().unwrap();
        session.wanted = 1 << 61;
        session.lend(shared, now);
        loans.push(session.loan);
    }
    let lasting = loans.iter().take_while(|loan| **loan >= message).count();
    assert_eq!(lasting, 12, "{loans:?} of {lendable}");
    for (place, loan) in (1..).zip(&loans) {
        assert!(*loan <= (lendable / (place * (place + 1))).max(message), "{loans:?} of {lendable}");
    }
}

/// What a peer had borrowed serves the next in the line when the peer ends, not when something else happens later.
#[test]
fn the_line_moves_when_a_borrower_ends() {
    for faulty in [false, true] {
        let mut trio = Trio::new(1);
        let message = u64::from(MEDIUM) + MAX_HEADER as u64;
        // Room for the loan of one.
        trio.machines[0].shared.lendable = message;
        trio.say(&Frame::Want(1 << 40));
        assert!(trio.machines[0].shared.lent > 0);
        let head = RequestHeader::new(1, ReplyBound::None);
        let honest = &mut trio.machines[HONEST.index()];
        honest.request(trio.now, VICTIM, head, &Words::EMPTY, Some(&[9; MEDIUM as usize])).unwrap();
        assert!(trio.run(|trio| trio.machines[0].shared.waiting == [HONEST.0]), "it stands in the line");
        let granted = |trio: &Trio| trio.machines[0].session(HONEST).unwrap().granted.limit;
        let before = granted(&trio);
        match faulty {
            false => trio.machines[0].declare(trio.now, INSIDER, PeerStatus::Lost(LossCause::Died)),
            true => trio.say(&Frame::Credit(Credit { requests: 1 << 40, ..Credit::default() })),
        }
        assert!(trio.machines[0].session(INSIDER).is_none());
        assert!(trio.machines[0].shared.waiting.is_empty() && granted(&trio) > before, "faulty: {faulty}");
        assert!(trio.machines[0].has_ready(), "it is told so");
        assert!(trio.run(|trio| trio.sinks[0].requests[HONEST.index()] > 0));
    }
}

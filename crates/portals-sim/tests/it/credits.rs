//! What must always hold of the conduit's flow control, on the simulated interface: credits are conserved, receive
//! space never overflows, two nodes that flood each other come through, and a disabled portal neither loses,
//! doubles nor reorders anything. Each with a mistake that the check must find. Every schedule of small networks,
//! and mistakes of the machines themselves, are the business of am-core's `credit_network` tests.

use am_core::transport::{
    Arrival, Body, Membership, Refused, ReplyBound, ReplyPath, RequestHeader, Sink, Transport, Waiting,
};
use am_core::{Address, Endpoint, Handlers, Instant, Payload, Peer, Rank, Span, Token, WaitReason, Words};
use fabric_sim::{RunError, splitmix64};
use portals_sim::conduit::{self, Conduit, ConduitConfig, FlowControl, Testing};
use portals_sim::{AdversarialTiming, PortalsConfig};
use std::cell::RefCell;
use std::rc::Rc;

/// Counts requests; replies to them, if it is told to.
#[derive(Default)]
struct Tally {
    requests: u32,
    replies: bool,
}

impl Sink for Tally {
    fn request(&mut self, _: Arrival<'_>, path: &mut dyn ReplyPath) {
        self.requests += 1;
        if self.replies {
            path.send(0, &Words::EMPTY, Body::None).expect("nobody leaves early");
        }
    }

    fn reply(&mut self, _: Arrival<'_>) {}

    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
}

const ONE_WAY: RequestHeader = RequestHeader::new(0, ReplyBound::None);
const ASK: RequestHeader = RequestHeader::new(0, ReplyBound::UpTo(0));

/// Sends to a peer until it is refused; returns how many messages that were.
fn fill(transport: &mut Conduit<'_>, to: u32, head: RequestHeader, payload: &[u8]) -> u32 {
    let mut sent = 0;
    while transport.send(Peer(to), head, &Words::EMPTY, Body::Copy(payload)).is_ok() {
        sent += 1;
    }
    sent
}

/// Serves until everything that was sent has been answered, and so many requests have come.
fn serve(transport: &mut Conduit<'_>, tally: &mut Tally, requests: u32) {
    loop {
        while transport.poll(64, tally) > 0 {}
        if tally.requests >= requests && transport.is_quiescent() {
            return;
        }
        transport.idle(None, WaitReason::Message);
    }
}

const SENDERS: u32 = 5;
const CREDITS: u32 = 8;

/// Everyone, the target included, spends all its credits at a target that does not look, on messages that fill a
/// credit's room to the last byte; and the space has not a byte more than all credits are worth.
fn incast(flow: FlowControl, extra_credits: u32) -> Result<(), RunError> {
    let config = ConduitConfig {
        buffers: 2,
        chunk: 256,
        credits: CREDITS,
        banked: Some(0),
        testing: Testing { exact_space: true, extra_credits, ..Testing::default() },
        ..ConduitConfig::with(flow)
    };
    let report = conduit::run(&portals_sim::xt4(SENDERS), &config, |mut transport| {
        let sent = fill(&mut transport, 0, ONE_WAY, &[7; 256]);
        let mut tally = Tally::default();
        let due = if transport.local_peer() == Peer(0) { SENDERS * sent } else { 0 };
        if due > 0 {
            transport.charge(Span::from_millis(1));
        }
        serve(&mut transport, &mut tally, due);
        sent
    })?;
    assert_eq!(report.results, vec![Some(CREDITS); SENDERS as usize]);
    Ok(())
}

#[test]
fn an_incast_of_all_credits_fills_the_space() {
    for flow in [FlowControl::Bank, FlowControl::Static] {
        incast(flow, 0).unwrap();
    }
}

#[test]
fn an_overflow_prints_the_ledger() {
    for (flow, books) in [
        (FlowControl::Bank, "40 credits: 0 banked, 40 lent to 5 peers"),
        (FlowControl::Static, "every peer has a share of 8 credits"),
    ] {
        let error = incast(flow, 1).unwrap_err().to_string();
        assert!(error.contains("found no receive buffer at rank 0, although they had credits"), "{error}");
        assert!(error.contains(books), "{error}");
    }
}

/// Two nodes send each other questions as fast as they can.
fn mutual_flood(unreserved: bool) -> Result<(), RunError> {
    let config = ConduitConfig {
        send_chunks: 16,
        reply_slots: 4,
        send_slots: 8,
        testing: Testing { unreserved, ..Testing::default() },
        ..ConduitConfig::default()
    };
    conduit::run(&PortalsConfig::pair(), &config, |mut transport| {
        let (peer, mut tally) = (1 - transport.local_peer().0, Tally { replies: true, ..Tally::default() });
        let mut sent = 0;
        while sent < 500 {
            match transport.send(Peer(peer), ASK, &Words::EMPTY, Body::Copy(&[1; 40])) {
                Ok(()) => sent += 1,
                Err(Refused::Busy(resource)) => {
                    if transport.poll(64, &mut tally) == 0 {
                        transport.idle(None, WaitReason::Room(Peer(peer), resource));
                    }
                }
                Err(Refused::Gone(_)) => panic!("the peer is there"),
            }
        }
        serve(&mut transport, &mut tally, 500);
    })
    .map(drop)
}

#[test]
fn a_mutual_flood_deadlocks_only_without_reserves() {
    mutual_flood(false).unwrap();
    let Err(RunError::Deadlock(report)) = mutual_flood(true) else { panic!("no deadlock") };
    assert_eq!(report.waiting.len(), 2);
    assert!(report.to_string().contains("a send slot for a reply"), "{report}");
}

/// A reproducible sequence (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u32) -> u32 {
        (splitmix64(&mut self.0) >> 33) as u32 % limit
    }
}

/// What a rank knows at the end: per peer, what the peer holds of it, and what it holds of the peer.
type Books = Vec<(u32, u32)>;

/// Random traffic with a favourite target per rank; the balance of each bank after each poll, and all accounts at
/// the end.
fn random_traffic(ranks: u32, seed: u64, per_rank: u32) -> u64 {
    let machine = PortalsConfig {
        adversary: AdversarialTiming { jitter_ns: 10_000.0 * (seed % 3) as f64, late_read: false },
        ..portals_sim::xt4(ranks)
    };
    let config = ConduitConfig {
        credits: 8,
        banked: Some(ranks * (seed % 3) as u32),
        epoch: 16 << (seed % 2),
        buffers: 2 + (seed % 2) as u32,
        ..if (seed / 3).is_multiple_of(2) { ConduitConfig::tuned() } else { ConduitConfig::default() }
    };
    let books: Rc<RefCell<Vec<Books>>> = Rc::new(RefCell::new(vec![Vec::new(); ranks as usize]));
    let shared = Rc::clone(&books);
    let report = conduit::run(&machine, &config, move |mut transport| {
        let (me, mut tally) =
            (transport.local_peer().0, Tally { replies: seed.is_multiple_of(2), ..Tally::default() });
        let mut dice = Draw(seed << 32 | u64::from(me));
        let mut sent = 0;
        let balanced = |transport: &Conduit<'_>| {
            let (sum, total) = transport.balance().expect("there is a bank");
            assert_eq!(sum, total, "rank {me}\n{}", transport.ledger());
        };
        while sent < per_rank {
            let to = if dice.below(4) > 0 { (me / 4 * 4 + sent / 64) % ranks } else { dice.below(ranks) };
            let payload = vec![3; dice.below(1900) as usize];
            while let Err(refused) = transport.send(Peer(to), ASK, &Words::EMPTY, Body::Copy(&payload)) {
                let Refused::Busy(resource) = refused else { panic!("the peer is there") };
                let polled = transport.poll(8, &mut tally);
                balanced(&transport);
                if polled == 0 {
                    transport.idle(None, WaitReason::Room(Peer(to), resource));
                }
            }
            sent += 1;
        }
        // Until everyone has long been done: then nothing is under way. All look at the same moment: who has left
        // is lost.
        let end = Instant::default() + Span::from_millis(500);
        while transport.now() < end {
            while transport.poll(64, &mut tally) > 0 {
                balanced(&transport);
            }
            transport.idle(Some(end), WaitReason::Message);
        }
        assert!(transport.is_quiescent(), "rank {me} has requests that nobody answered");
        let mine = (0..ranks).map(|peer| {
            let (available, outstanding) = transport.holds(peer).expect("there is a loan");
            assert_eq!(outstanding, 0, "rank {me} of rank {peer}");
            (transport.away(peer).expect("there is a bank"), available)
        });
        shared.borrow_mut()[me as usize] = mine.collect();
        transport.charge(Span::from_millis(1));
        (transport.counters().revocations, tally.requests)
    });
    let results: Vec<_> = report.unwrap_or_else(|error| panic!("seed {seed}: {error}")).results;
    let books = books.borrow();
    for lender in 0..ranks as usize {
        for borrower in 0..ranks as usize {
            let (lent, held) = (books[lender][borrower].0, books[borrower][lender].1);
            assert_eq!(lent, held, "seed {seed}: rank {lender} lent to rank {borrower}");
        }
    }
    let requests: u32 = results.iter().flatten().map(|(_, requests)| requests).sum();
    assert_eq!(requests, ranks * per_rank, "seed {seed}");
    results.iter().flatten().map(|(revocations, _)| revocations).sum()
}

#[test]
fn credits_are_conserved_for_any_seed() {
    let revocations: u64 = (0..6).map(|seed| random_traffic(12, seed, 200)).sum();
    assert!(revocations > 0, "credits moved to where the traffic was");
}

/// `cargo test --release -p active-messages-portals --test it -- --ignored credits::many_seeds`
#[test]
#[ignore = "hundreds of seeds with up to 64 ranks take minutes"]
fn credits_are_conserved_for_many_seeds() {
    for seed in 0..300 {
        random_traffic([5, 12, 33, 64][(seed % 4) as usize], seed, 250);
    }
}

/// Many ranks flood one whose buffers and queue are small; returns how often it was disabled, and what came in
/// which order.
fn flood_of_portals_4(seed: u64, testing: Testing) -> (u64, Vec<Vec<u32>>) {
    const EACH: u32 = 120;
    let machine = PortalsConfig {
        adversary: AdversarialTiming { jitter_ns: 3_000.0 * (seed % 4) as f64, late_read: seed % 2 == 1 },
        ..portals_sim::xt4(6)
    };
    let config = ConduitConfig {
        disable_buffers: 2,
        disable_bytes: 4096,
        disable_events: 12,
        resend_ns: 2_000.0,
        testing,
        ..ConduitConfig::with(FlowControl::Disable)
    };
    let report = conduit::run(&machine, &config, move |transport| {
        let ranks = 6;
        let mut handlers = Handlers::<Vec<Vec<u32>>>::new();
        let back = handlers.reply("back", |_: &mut Vec<Vec<u32>>, _: Address, (): (), _: Payload<'_>| {}).unwrap();
        let note = handlers.request(
            "note",
            move |seen: &mut Vec<Vec<u32>>, token: Token<'_>, number: u32, _: Payload<'_>| {
                seen[token.source().rank.0 as usize].push(number);
                if number.is_multiple_of(3) {
                    token.reply(back, ()).unwrap();
                }
            },
        );
        let note = note.unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, vec![Vec::new(); ranks]).unwrap();
        for number in 0..EACH {
            let payload = vec![9; (number as usize * 37) % 700];
            endpoint.request_medium(Rank(0), note, number, &payload).unwrap();
            if endpoint.rank() == Rank(0) && number % 10 == 0 {
                endpoint.charge(Span::from_micros(40));
            }
        }
        endpoint.drain().unwrap();
        endpoint.barrier().unwrap();
        let counters = endpoint.transport().counters();
        (counters.disabled, counters.resent, endpoint.finish().unwrap())
    });
    let results = report.unwrap_or_else(|error| panic!("seed {seed}: {error}")).results;
    let resent: u64 = results.iter().flatten().map(|(_, resent, _)| resent).sum();
    let (disabled, _, seen) = results.into_iter().flatten().next().expect("rank 0 has ended");
    assert!(resent > 0, "seed {seed}: nothing had to be sent again");
    (disabled, seen)
}

fn in_order(seen: &[Vec<u32>]) -> bool {
    seen.iter().all(|numbers| numbers.iter().copied().eq(0..120))
}

#[test]
fn a_disabled_portal_loses_doubles_and_reorders_nothing() {
    for seed in 0..8 {
        let (disabled, seen) = flood_of_portals_4(seed, Testing::default());
        assert!(disabled > 0, "seed {seed}: the receiver was never disabled");
        assert!(in_order(&seen), "seed {seed}: {seen:?}");
    }
}

#[test]
fn what_is_taken_out_of_turn_breaks_the_order() {
    let broken = (0..8).filter(|seed| {
        let testing = Testing { out_of_turn: true, ..Testing::default() };
        !in_order(&flood_of_portals_4(*seed, testing).1)
    });
    assert!(broken.count() > 0);
}

/// The last message of a rank that leaves may be refused, and is sent again all the same.
#[test]
fn who_leaves_stays_until_nothing_is_refused() {
    let config = ConduitConfig {
        disable_buffers: 2,
        disable_bytes: 4096,
        disable_events: 8,
        ..ConduitConfig::with(FlowControl::Disable)
    };
    let report = conduit::run(&portals_sim::xt4(3), &config, |transport| {
        let mut handlers = Handlers::<[u32; 3]>::new();
        let note = handlers.one_way("note", |seen: &mut [u32; 3], from: Address, (), _: Payload<'_>| {
            seen[from.rank.0 as usize] += 1;
        });
        let note = note.unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, [0; 3]).unwrap();
        endpoint.barrier().unwrap();
        match endpoint.rank() {
            // The receiver computes, so that the others' messages fill its buffers.
            Rank(2) => {
                endpoint.charge(Span::from_micros(500));
                endpoint.wait_until(|seen| *seen == [1, 40, 0]).unwrap();
            }
            Rank(1) => {
                (0..40).for_each(|_| endpoint.request_medium(Rank(2), note, (), &[1; 700]).unwrap());
                endpoint.drain().unwrap();
            }
            _ => {
                endpoint.charge(Span::from_micros(200));
                endpoint.request_medium(Rank(2), note, (), &[1; 700]).unwrap();
            }
        }
        endpoint.leave();
    });
    report.unwrap();
}

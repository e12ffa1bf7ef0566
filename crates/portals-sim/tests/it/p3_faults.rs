//! Portals 3.3 under faults from seeds: links repair what they lose, so that everything arrives once and each
//! pair's messages in order; a node that stops is known to be lost; equal seeds give equal runs.

use fabric_sim::{Drawn, DrawnKind, FaultEvent, Faults, Report, Scheduled, WaitFor};
use portals_sim::model::Parameters;
use portals_sim::nic::HostMemory;
use portals_sim::nic::p3::{Ack, Criteria, EventKind, Md, Options, Position, Unlink};
use portals_sim::{AdversarialTiming, Nic, PortalsConfig};

const EACH: u64 = 20;

/// Every rank sends numbered messages to every other, some of them large; each pair's arrive once and in order,
/// and every acknowledgement comes.
fn all_to_all(nic: &Nic<'_>) -> u64 {
    let (p3, memory) = (nic.p3(), HostMemory::new(1 << 20));
    p3.init().unwrap();
    let eq = p3.eq_alloc(1 << 14).unwrap();
    let me = p3.me_attach(0, Criteria::bits(0, u64::MAX), Unlink::Retain, Position::After).unwrap();
    let quiet = Options::EVENT_START_DISABLE;
    let md = Md { eq: Some(eq), ..Md::new(&memory, Options::OP_PUT | Options::MANAGE_REMOTE | quiet) };
    let md = p3.md_attach(me, &md, Unlink::Retain).unwrap();
    nic.launched();
    let others = u64::from(nic.ranks() - 1);
    for number in 0..EACH {
        for other in (0..nic.ranks()).filter(|other| *other != nic.rank()) {
            let length = [8, 700, 40_000][(number % 3) as usize];
            p3.put(md, 0, length, Ack::Request, nic.id(other).unwrap(), 0, 0, 0, number).unwrap();
        }
    }
    let mut next = vec![0; nic.ranks() as usize];
    let (mut acks, mut puts) = (0, 0);
    while acks < others * EACH || puts < others * EACH {
        let event = p3.eq_wait(eq, None).unwrap();
        acks += u64::from(event.kind == EventKind::Ack);
        if event.kind == EventKind::PutEnd {
            let from = nic.rank_of(event.initiator).unwrap() as usize;
            assert_eq!(event.hdr_data, next[from], "messages of rank {from} come once and in order");
            next[from] += 1;
            puts += 1;
        }
    }
    nic.now().0
}

fn faulty(seed: u64) -> PortalsConfig {
    let drawn = vec![
        Drawn { count: 4, within_ns: 100_000.0, kind: DrawnKind::LinkFlap { down_ns: 30_000.0 } },
        Drawn { count: 2, within_ns: 100_000.0, kind: DrawnKind::NodeSlow { factor: 5.0 } },
    ];
    let faults = Faults {
        seed,
        loss: 0.05,
        corruption: 0.02,
        duplication: 0.02,
        retry_ns: 600.0,
        delay: 0.1,
        delay_ns: 4_000.0,
        drawn,
        ..Faults::default()
    };
    let adversary = AdversarialTiming { jitter_ns: 8_000.0, late_read: seed.is_multiple_of(2) };
    let parameters = if seed.is_multiple_of(3) { Parameters::free() } else { Parameters::xt4() };
    PortalsConfig { faults, adversary, parameters, deadline_ns: 1e9, ..portals_sim::xt4(8) }
}

fn run(seed: u64) -> Report<u64> {
    portals_sim::run(&faulty(seed), |nic| all_to_all(&nic)).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

#[test]
fn everything_arrives_once_and_in_order() {
    let retries: u64 = (0..12).map(|seed| run(seed).retries).sum();
    assert!(retries > 1000, "{retries} tries were repeated");
}

#[test]
fn equal_seeds_give_equal_runs() {
    let [one, again, other] = [7, 7, 8].map(run);
    assert_eq!((one.hash, one.events, &one.results), (again.hash, again.events, &again.results));
    assert_ne!(one.hash, other.hash);
}

/// A stopped node takes nothing more; the others are woken when that is known, and wait for nothing else of it.
#[test]
fn a_stopped_node_is_known_to_be_lost() {
    let schedule = vec![Scheduled { at_ns: 100_000.0, event: FaultEvent::NodeStop { node: 2 } }];
    let config = PortalsConfig {
        faults: Faults { schedule, ..Faults::default() },
        deadline_ns: 1e9,
        ..portals_sim::xt4(4)
    };
    let report = portals_sim::run(&config, |nic| {
        let (p3, memory) = (nic.p3(), HostMemory::new(64));
        p3.init().unwrap();
        let eq = p3.eq_alloc(64).unwrap();
        let me = p3.me_attach(0, Criteria::bits(0, 0), Unlink::Retain, Position::After).unwrap();
        let md = Md { eq: Some(eq), ..Md::new(&memory, Options::OP_PUT | Options::EVENT_START_DISABLE) };
        let md = p3.md_attach(me, &md, Unlink::Retain).unwrap();
        nic.launched();
        // For ever, but for the loss.
        while nic.context().losses() == 0 {
            p3.idle(&[eq], None, WaitFor::Named("the loss")).unwrap();
        }
        let known = nic.now();
        p3.put(md, 0, 8, Ack::Request, nic.id(2).unwrap(), 0, 0, 0, 0).unwrap();
        assert_eq!(p3.eq_wait(eq, None).unwrap().kind, EventKind::SendEnd);
        let until = nic.now() + am_core::Span::from_micros(500);
        assert!(p3.eq_wait(eq, Some(until)).is_err(), "nobody acknowledges");
        known.0
    });
    let results = report.unwrap().results;
    assert_eq!(results[2], None);
    for known in [0, 1, 3].map(|rank| results[rank].unwrap()) {
        assert!((100_000_000..120_000_000).contains(&known), "{known}");
    }
}

/// A deadlock names who waits for what, and in which state their interfaces are.
#[test]
fn a_deadlock_is_explained() {
    let error = portals_sim::run(&PortalsConfig::pair(), |nic| {
        let p3 = nic.p3();
        p3.init().unwrap();
        let eq = p3.eq_alloc(4).unwrap();
        p3.eq_wait(eq, None).map(drop).unwrap();
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("an event") && text.contains("0 events not taken"), "{text}");
}

//! Devices of one's own: work posted at a rank's time, stages, packets set aside, headers, traces, deadlock
//! reports.

use am_core::{Instant, PeerStatus, Span};
use fabric_sim::{
    Config, Context, Device, DeviceContext, LinkParameters, Outgoing, Packet, PacketId, RunError, Sim, Stage,
    StageKind, Topology, WaitFor,
};
use std::collections::VecDeque;

const ENGINE: usize = 0;
const HEADER: u32 = 20;

/// An interface whose ranks post commands: one engine sends them in the order of their times, packets wait a
/// little at the receiver before they can be seen.
#[derive(Default)]
struct Nic {
    seen: VecDeque<(u32, Instant)>,
    posted: u32,
}

const COMMAND: u32 = 1;
const VISIBLE: u32 = 2;

impl Device for Nic {
    type Body = u32;

    fn stages(&self) -> Vec<(&'static str, Stage)> {
        vec![("engine", Stage { per_unit_ns: 100.0, ..Stage::latency(50.0) })]
    }

    fn arrive(&mut self, packet: Packet<u32>, port: &mut DeviceContext<'_, u32>) {
        port.defer(port.now() + Span::from_nanos(7), packet, VISIBLE);
    }

    fn due(&mut self, packet: Packet<u32>, token: u32, port: &mut DeviceContext<'_, u32>) {
        if token == VISIBLE {
            self.seen.push_back((packet.body, port.now()));
            return port.wake(packet.to);
        }
        let at = Some(port.serve(ENGINE, port.now(), 1, &packet).leaves);
        let (header, number) = (Some(HEADER), Some(packet.number));
        port.send_as(Outgoing { header, at, number, ..Outgoing::new(packet.from, packet.to, 80, packet.body) });
    }

    fn explain(&self, _: u32) -> Option<String> {
        Some(format!("{} commands posted", self.posted))
    }
}

type Rank<'a> = Context<'a, Nic>;

fn post(rank: &Rank<'_>, to: u32, body: u32) {
    rank.local(|nic, _| nic.posted += 1);
    rank.post(to, 0, body, COMMAND);
}

fn take(rank: &Rank<'_>) -> (u32, Instant) {
    loop {
        if let Some(seen) = rank.device(|nic, _| nic.seen.pop_front()) {
            return seen;
        }
        rank.idle(None, WaitFor::Arrival);
    }
}

/// 1 ns per byte and 300 ns per link; two ranks on node 0, one on node 1.
fn config() -> Config {
    let mut config = Config::new(3);
    config.topology = Topology::Direct { nodes: 2 };
    config.ranks_per_node = 2;
    config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 300.0 };
    config
}

#[test]
fn posted_work_is_done_in_order_of_time() {
    let mut config = config();
    config.trace = true;
    let report = Sim::run_with(
        &config,
        |_, _| Nic::default(),
        |rank: Rank<'_>| match rank.rank() {
            // Runs ahead to 1000 ns before rank 1 has begun.
            0 => {
                rank.charge(Span::from_nanos(1000));
                post(&rank, 2, 10);
                Vec::new()
            }
            1 => {
                rank.charge(Span::from_nanos(950));
                post(&rank, 2, 11);
                Vec::new()
            }
            _ => {
                let begin = rank.now();
                let seen = vec![take(&rank), take(&rank)];
                rank.record("both", PacketId { number: 9, from: 0, to: 2 }, begin, rank.now());
                seen
            }
        },
    )
    .unwrap();
    // Rank 1's command comes first: 100 + 50 ns in the engine, 300 ns and 100 bytes on the link, 7 ns to be seen.
    // The engine is free for the other one 100 ns later.
    let at = |nanos: u64| Instant(nanos * 1000);
    assert_eq!(report.results[2].as_deref(), Some(&[(11, at(950 + 557)), (10, at(950 + 657))][..]));
    let engine: Vec<_> = report.stages.iter().map(|stage| (stage.name, stage.node, stage.busy)).collect();
    assert_eq!(engine, [("engine", 0, Span::from_nanos(200))]);
    assert_eq!((report.links[0].bytes, report.latency.longest()), (200, Span::from_nanos(400)));
    let spans = report.trace.unwrap().spans;
    let of = |stage| spans.iter().filter(move |span| span.stage == stage);
    let engine: Vec<_> = of(StageKind::Device("engine")).map(|span| (span.packet, span.begin, span.end)).collect();
    assert_eq!(engine, [(2, at(950), at(1100)), (1, at(1050), at(1200))]);
    // The packet that a command became keeps its number.
    assert_eq!(of(StageKind::Message).map(|span| span.packet).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(
        of(StageKind::Program("both")).map(|span| (span.packet, span.end)).collect::<Vec<_>>(),
        [(9, at(1607))]
    );
}

#[test]
fn a_departure_is_known_after_what_was_set_aside() {
    let report = Sim::run_with(
        &config(),
        |_, _| Nic::default(),
        |rank: Rank<'_>| {
            if rank.rank() == 0 {
                post(&rank, 2, 10);
                rank.depart(PeerStatus::Finished);
            }
            if rank.rank() == 2 {
                while rank.status(0) == PeerStatus::Active {
                    rank.idle(None, WaitFor::Named("the departure of rank 0"));
                }
                assert_eq!(rank.local(|nic, _| nic.seen.len()), 1);
            }
            rank.now()
        },
    );
    assert_eq!(report.unwrap().results[2], Some(Instant(1_557_000)));
}

#[test]
fn a_deadlock_report_asks_the_device() {
    let outcome = Sim::run_with(
        &config(),
        |_, _| Nic::default(),
        |rank: Rank<'_>| {
            if rank.rank() == 2 {
                post(&rank, 2, 5);
                take(&rank);
                take(&rank);
            }
        },
    );
    let Err(RunError::Deadlock(report)) = outcome else { panic!("{outcome:?}") };
    assert!(
        report.to_string().ends_with("rank 2 waits for anything to arrive since 157.000 ns (1 commands posted)")
    );
}

#[test]
fn a_deadline_ends_programs_that_poll_for_ever() {
    let mut config = config();
    config.deadline_ns = 2_000.0;
    let outcome = Sim::run_with(
        &config,
        |_, _| Nic::default(),
        |rank: Rank<'_>| match rank.rank() {
            0 => loop {
                rank.charge_empty_poll();
                rank.sync();
            },
            1 => drop(take(&rank)),
            _ => {}
        },
    );
    let Err(RunError::DeadlineMissed(late)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((late.remaining, late.waiting.len(), late.waiting[0].rank), (2, 1, 1));
    assert!(late.to_string().starts_with("2 ranks have not ended by the deadline of 2.000 us; rank 1 waits for"));
}

#[test]
fn random_numbers_follow_the_seed_and_differ_by_rank() {
    let draw = |seed| {
        let mut config = config();
        config.faults.seed = seed;
        let draw = |rank: Rank<'_>| (rank.random(), rank.random(), rank.local(|_, port| port.random()));
        Sim::run_with(&config, |_, _| Nic::default(), draw).unwrap().results
    };
    assert_eq!(draw(1), draw(1));
    let all: Vec<_> = [draw(1), draw(2)].concat().into_iter().flatten().flat_map(|(a, b, c)| [a, b, c]).collect();
    let distinct: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
}

/// A transport in the making: it keeps its rank's context and takes leave when it is dropped.
struct Held<'a> {
    rank: Rank<'a>,
    leaves: std::rc::Rc<std::cell::Cell<u32>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.rank.depart(PeerStatus::Finished);
        assert!(self.rank.status(2) == PeerStatus::Active || !std::thread::panicking());
        self.rank.idle(Some(self.rank.now()), WaitFor::Arrival);
        self.leaves.set(self.leaves.get() + 1);
    }
}

#[test]
fn what_holds_a_context_may_use_it_while_it_is_dropped() {
    for fails in [false, true] {
        let leaves = std::rc::Rc::new(std::cell::Cell::new(0));
        let count = std::rc::Rc::clone(&leaves);
        let outcome = Sim::run_with(
            &config(),
            |_, _| Nic::default(),
            move |rank: Rank<'_>| {
                let held = Held { rank, leaves: std::rc::Rc::clone(&count) };
                if fails {
                    take(&held.rank);
                }
            },
        );
        assert_eq!((outcome.is_err(), leaves.get()), (fails, 3));
    }
}

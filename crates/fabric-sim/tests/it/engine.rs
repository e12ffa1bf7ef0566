//! The engine: times against hand-computed values, determinism, deadlocks, panics, large jobs.

use am_core::{Instant, PeerStatus, Span};
use fabric_sim::{Config, LinkParameters, Mailbox, Placement, RunError, Sim, Stage, StageKind, Topology, WaitFor};

type Rank<'a> = fabric_sim::Context<'a, Mailbox<u32>>;

/// 1 ns per byte and 300 ns per link.
const LINK: LinkParameters = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 300.0 };

fn line(nodes: u32) -> Config {
    let mut config = Config::new(nodes);
    config.topology = Topology::Mesh { dims: vec![nodes] };
    config.nic.link = LINK;
    config
}

#[test]
fn the_head_cuts_through_and_the_tail_follows() {
    let report = Sim::run(&line(4), |rank: Rank<'_>| match rank.rank() {
        0 => rank.send(3, 1000, 0),
        3 => assert_eq!(rank.wait().sent, Instant(0)),
        _ => {}
    })
    .unwrap();
    // Three links of 300 ns; the 1000 bytes count once.
    assert_eq!(report.ended, Instant(1_900_000));
    assert_eq!((report.sent, report.delivered, report.lost), (1, 1, 0));
    assert_eq!(report.links.len(), 3);
    assert_eq!((report.links[0].busy, report.links[0].bytes), (Span(1_000_000), 1000));
    assert!((report.links[0].utilisation - 1.0 / 1.9).abs() < 1e-9);
}

#[test]
fn packets_wait_for_a_shared_link_in_order() {
    // 0 and 1 both send to 2. The head from 0 reaches the link 1 -> 2 at 300 ns, where 1's packet, sent at 200 ns,
    // is.
    let report = Sim::run(&line(3), |rank: Rank<'_>| match rank.rank() {
        0 => {
            rank.send(2, 1000, 7);
            Vec::new()
        }
        1 => {
            rank.charge(Span::from_nanos(200));
            rank.send(2, 1000, 8);
            Vec::new()
        }
        _ => (0..2).map(|_| (rank.wait().body, rank.now().0 / 1000)).collect(),
    })
    .unwrap();
    assert_eq!(report.results[2].as_deref(), Some(&[(8, 1500), (7, 2500)][..]));
}

#[test]
fn disjoint_ways_do_not_disturb_each_other() {
    let mut config = line(4);
    config.topology = Topology::Crossbar { nodes: 4 };
    let report = Sim::run(&config, |rank: Rank<'_>| {
        rank.send(rank.rank() ^ 1, 500, 0);
        rank.wait();
    })
    .unwrap();
    assert_eq!(report.ended, Instant(1_100_000));
    // An output of the switch that three share takes three lengths.
    let report = Sim::run(&config, |rank: Rank<'_>| match rank.rank() {
        0 => assert_eq!((0..3).map(|_| rank.wait().bytes).sum::<u32>(), 1500),
        _ => rank.send(0, 500, 0),
    });
    assert_eq!(report.unwrap().ended, Instant(600_000 + 1_500_000));
}

#[test]
fn stages_add_up_and_are_shared_by_the_ranks_of_a_node() {
    let mut config = line(2);
    config.ranks = 4;
    config.ranks_per_node = 2;
    config.nic.header_bytes = 20;
    config.nic.host_issue = Stage::latency(10.0);
    config.nic.nic_tx = Stage { fixed_ns: 100.0, per_unit_ns: 50.0, unit_bytes: 64, depth: 4 };
    config.nic.rx_match = Stage::latency(7.0);
    config.nic.host_poll = Stage::latency(5.0);
    let program = |rank: Rank<'_>| {
        if rank.rank() < 2 {
            rank.send(rank.rank() + 2, 80, 0);
        } else {
            rank.wait();
        }
        rank.now().0
    };
    let report = Sim::run(&config, program).unwrap();
    let first = 10 + (100 + 2 * 50) + 300 + (80 + 20) + 7 + 5;
    // The interface takes rank 1's packet when the units of rank 0's are through, 100 ns later; so is the link
    // then.
    let expected = [10_000, 10_000, first * 1000, (first + 100) * 1000];
    assert_eq!(report.results.into_iter().flatten().collect::<Vec<_>>(), expected);
}

#[test]
fn idling_ends_at_its_time_or_with_an_arrival() {
    let report = Sim::run(&line(2), |rank: Rank<'_>| {
        if rank.rank() == 0 {
            rank.idle(Some(Instant(5_000_000)), WaitFor::Named("the end"));
            assert_eq!(rank.now(), Instant(5_000_000));
            rank.send(1, 0, 0);
        } else {
            rank.idle(Some(Instant(2_000_000)), WaitFor::Arrival);
            assert_eq!(rank.now(), Instant(2_000_000));
            rank.idle(Some(Instant(9_000_000)), WaitFor::Arrival);
            assert_eq!(rank.now(), Instant(5_300_000));
            assert!(rank.receive().is_some() && rank.receive().is_none());
        }
    });
    report.unwrap();
}

#[test]
fn a_rank_runs_ahead_but_never_sees_the_future() {
    let report = Sim::run(&line(2), |rank: Rank<'_>| {
        if rank.rank() == 0 {
            rank.charge(Span::from_micros(50));
            return std::iter::from_fn(|| rank.receive()).map(|packet| packet.body).collect::<Vec<_>>();
        }
        for number in 1..100 {
            rank.charge(Span::from_micros(1));
            rank.send(0, 0, number);
        }
        Vec::new()
    });
    // What was sent at 49 us arrived at 49.3 us; what was sent at 50 us has not arrived at 50 us.
    assert_eq!(report.unwrap().results[0], Some((1..50).collect()));
}

/// Messages everywhere, with times that depend on what arrives.
fn gossip(rank: Rank<'_>) -> u64 {
    let mut sum = u64::from(rank.rank());
    for round in 0..20u32 {
        rank.send((rank.rank() * 7 + round * 3 + 1) % rank.ranks(), 64 + round, round);
        rank.charge(Span::from_nanos(sum % 1000));
        while let Some(packet) = rank.receive() {
            sum = sum.wrapping_mul(31) + u64::from(packet.body) + rank.now().0;
        }
    }
    sum
}

#[test]
fn equal_runs_are_equal_to_the_last_event() {
    let mut config = line(27);
    config.topology = Topology::Torus { dims: vec![3, 3, 3] };
    let run = |config: &Config| Sim::run(config, gossip).unwrap();
    let (one, other) = (run(&config), run(&config));
    assert_eq!((one.hash, &one.results, one.events), (other.hash, &other.results, other.events));
    // Known in advance: the hash is the same in debug and release builds and on every machine.
    assert_eq!(format!("{:016x}", one.hash), "f0ab9ef9d8e527a0");
    config.placement = Placement::Random { seed: 1 };
    assert_ne!(run(&config).hash, one.hash);
    config.trace = true;
    let traced = run(&config);
    config.trace = false;
    assert_eq!(traced.hash, run(&config).hash, "watching changes nothing");
}

#[test]
fn traces_tell_every_stage() {
    let mut config = line(3);
    config.trace = true;
    let report = Sim::run(&config, |rank: Rank<'_>| match rank.rank() {
        0 => rank.send(2, 100, 0),
        2 => assert_eq!(rank.wait().from, 0),
        _ => {}
    })
    .unwrap();
    let spans = report.trace.unwrap().spans;
    let stages: Vec<_> = spans.iter().map(|span| span.stage).collect();
    assert_eq!(
        stages,
        [StageKind::Send, StageKind::Link, StageKind::Link, StageKind::Receive, StageKind::Message]
    );
    assert_eq!((spans[2].begin, spans[2].end), (Instant(300_000), Instant(700_000)));
    assert_eq!((spans[4].begin, spans[4].end), (Instant(0), Instant(700_000)));
    assert_eq!((report.latency.count(), report.latency.longest()), (1, Span(700_000)));
}

#[test]
fn a_deadlock_says_who_waits_for_what() {
    let outcome = Sim::run(&line(3), |rank: Rank<'_>| {
        rank.charge(Span::from_nanos(u64::from(rank.rank())));
        match rank.rank() {
            0 => rank.idle(None, WaitFor::From(2)),
            1 => rank.idle(None, WaitFor::Named("godot")),
            _ => {}
        }
    });
    let Err(RunError::Deadlock(report)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(report.waiting.len(), 2);
    assert_eq!(
        report.to_string(),
        "deadlock at 1.000 ns: 2 ranks wait and nothing is under way; rank 0 waits for something from rank 2 since 0 ps; \
         rank 1 waits for godot since 1.000 ns"
    );
}

#[test]
fn a_panic_ends_the_run_and_unwinds_the_others() {
    struct Flag(std::rc::Rc<std::cell::Cell<u32>>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let unwound = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = unwound.clone();
    let outcome = Sim::run(&line(4), move |rank: Rank<'_>| {
        let _flag = Flag(count.clone());
        if rank.rank() == 2 {
            rank.charge(Span::from_micros(3));
            rank.sync();
            std::panic::panic_any(format!("rank {} has had enough", rank.rank()));
        }
        rank.wait();
    });
    assert_eq!(outcome.unwrap_err().to_string(), "rank 2 panicked at 3.000 us: rank 2 has had enough");
    assert_eq!(unwound.get(), 4);
    assert!(!std::thread::panicking());
}

/// A dissemination barrier.
fn barrier(rank: Rank<'_>) {
    let (me, ranks) = (rank.rank(), rank.ranks());
    let mut early = std::collections::BTreeSet::new();
    for round in (0..).take_while(|round| 1 << round < ranks) {
        rank.send((me + (1 << round)) % ranks, 8, round);
        while !early.remove(&round) {
            early.insert(rank.wait().body);
        }
    }
}

#[test]
fn a_barrier_of_1024_ranks_on_64_nodes() {
    let mut config = line(64);
    config.topology = Topology::Mesh { dims: vec![4, 4, 4] };
    (config.ranks, config.ranks_per_node) = (1024, 16);
    let report = Sim::run(&config, barrier).unwrap();
    assert_eq!((report.results.len(), report.delivered), (1024, 10 * 1024));
}

fn a_large_barrier(ranks: u32) {
    let _alone = crate::alone();
    let mut config = Config::new(ranks);
    config.nic.link = LINK;
    let report = Sim::run(&config, barrier).unwrap();
    let rounds = u64::from(ranks.ilog2());
    assert_eq!(report.delivered, rounds * u64::from(ranks));
    // Everyone does the same at the same time: rounds of two links and 8 ns.
    assert_eq!(report.ended, Instant(rounds * 608_000));
}

#[test]
fn a_barrier_of_4096_ranks() {
    a_large_barrier(4096);
}

#[test]
#[ignore = "takes seconds"]
fn full_a_barrier_of_16384_ranks() {
    a_large_barrier(16_384);
}

#[test]
fn an_end_wakes_its_waiters_and_a_loss_everyone() {
    let run = |status: PeerStatus| {
        let program = move |rank: Rank<'_>| {
            let wanted = match rank.rank() {
                0 => {
                    rank.depart(status);
                    return rank.now();
                }
                1 => WaitFor::From(0),
                2 => WaitFor::From(1),
                3 => WaitFor::Room { to: 0, of: am_core::Resource::Credits },
                4 => WaitFor::Named("whatever"),
                _ => WaitFor::Arrival,
            };
            rank.idle(Some(Instant(5_000_000)), wanted);
            rank.now()
        };
        Sim::run(&line(6), program)
            .unwrap()
            .results
            .into_iter()
            .flatten()
            .map(|at| at.0 / 1_000_000)
            .collect::<Vec<_>>()
    };
    assert_eq!(run(PeerStatus::Finished), [0, 1, 5, 1, 1, 5]);
    assert_eq!(run(PeerStatus::Lost(am_core::LossCause::Left)), [0, 1, 1, 1, 1, 1]);
}

#[test]
fn an_end_is_seen_while_waiting_for_arrivals() {
    let report = Sim::run(&line(3), |rank: Rank<'_>| match rank.rank() {
        0 => rank.depart(PeerStatus::Finished),
        1 => rank.idle(Some(Instant(7_000_000)), WaitFor::Arrival),
        _ => {
            while rank.status(0) == PeerStatus::Active {
                rank.idle(None, WaitFor::Arrival);
            }
            assert_eq!(rank.now(), Instant(7_000_000));
        }
    });
    report.unwrap();
}

/// Every rank waits for an arrival until the last moment, while the others end one by one: the notices wake
/// nobody.
#[test]
fn the_end_of_a_large_job_is_cheap() {
    let mut config = line(2048);
    config.notice_ns = 0.0;
    let report = Sim::run(&config, |rank: Rank<'_>| {
        rank.charge(Span::from_micros(u64::from(rank.rank())));
        rank.sync();
        rank.depart(PeerStatus::Finished);
        let end = Instant(0) + Span::from_millis(100);
        while rank.now() < end {
            rank.idle(Some(end), WaitFor::Arrival);
        }
    });
    let events = report.unwrap().events;
    assert!(events < 20_000, "{events} events for the end of 2048 ranks");
}

/// A rank that waits for another one while a third ends is told of that end when it waits for the third.
#[test]
fn an_end_during_another_wait_is_not_missed() {
    let report = Sim::run(&line(3), |context: Rank<'_>| {
        match context.rank() {
            0 => {
                // Rank 2 ends meanwhile, which does not concern this wait.
                context.idle(Some(Instant(50_000_000)), WaitFor::From(1));
                let began = context.now();
                context.idle(Some(Instant(900_000_000_000)), WaitFor::From(2));
                return context.now().since(began).picos();
            }
            1 => context.charge(Span(100_000_000)),
            _ => context.depart(PeerStatus::Finished),
        }
        0
    });
    assert_eq!(report.unwrap().results[0], Some(0));
}

/// A rank that has run ahead begins to wait without the machine catching up first; what happens meanwhile ends the
/// wait, at its own time.
#[test]
fn what_happened_behind_a_rank_ends_its_wait_at_once() {
    let report = Sim::run(&line(3), |context: Rank<'_>| {
        match context.rank() {
            0 => {
                context.charge(Span(20_000_000));
                context.idle(None, WaitFor::Arrival);
                let first = context.now().0;
                let packet = context.receive().expect("it came at 4.3 us");
                context.idle(None, WaitFor::Arrival);
                return (first, packet.body, context.now().0);
            }
            // Turns of its own while rank 0 is ahead.
            1 => {
                (0..3).for_each(|_| {
                    context.charge(Span(1_000_000));
                    context.sync();
                });
                context.send(0, 1000, 7);
            }
            _ => {
                context.charge(Span(30_000_000));
                context.send(0, 400, 8);
            }
        }
        (0, 0, 0)
    });
    // The second takes two links and 0.4 us.
    assert_eq!(report.unwrap().results[0], Some((20_000_000, 7, 31_000_000)));
}

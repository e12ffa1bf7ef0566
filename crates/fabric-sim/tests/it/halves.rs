//! Runs taken as two halves: what belongs to which, what crosses, who waits for whom.

use am_core::Span;
use fabric_sim::halves::{Halves, measure};
use fabric_sim::{Config, LinkParameters, Mailbox, Report, Sim, Topology};
use std::time::Duration;

type Rank<'a> = fabric_sim::Context<'a, Mailbox<u32>>;

/// Four nodes of a topology with links of 300 ns.
fn four(topology: Topology) -> Config {
    let mut config = Config::new(4);
    config.topology = topology;
    config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 300.0 };
    config
}

/// Each rank sends to those of a list, and takes what comes; the run with and without being measured.
fn exchange(config: &Config, sent: &'static [(u32, u32)]) -> (Halves, Report<()>) {
    let run = || {
        let program = move |rank: Rank<'_>| {
            let me = rank.rank();
            sent.iter().filter(|(from, _)| *from == me).for_each(|(_, to)| rank.send(*to, 8, 0));
            sent.iter().filter(|(_, to)| *to == me).for_each(|_| {
                rank.wait();
            });
        };
        Sim::run(config, program).unwrap()
    };
    let (measured, halves) = measure(run);
    let plain = run();
    assert_eq!((measured.hash, measured.events), (plain.hash, plain.events), "measuring changes nothing");
    assert_eq!(halves.len(), 1);
    (halves[0], plain)
}

#[test]
fn packets_cross_between_the_halves_once() {
    let sent: &[_] = &[(0, 3), (1, 0), (2, 1), (3, 2)];
    let tree = Topology::FatTree { arity: 2, levels: 2, oversubscription: 1 };
    for topology in [Topology::Mesh { dims: vec![4] }, Topology::Crossbar { nodes: 4 }, tree] {
        let (halves, report) = exchange(&four(topology), sent);
        assert_eq!((halves.lookahead, halves.crossings), (Span::from_nanos(300), 2), "{halves}");
        assert_eq!(halves.all_steps(), report.events);
        assert!(halves.steps[0] != 0 && halves.steps[1] != 0 && halves.windows >= 2, "{halves}");
        // Whoever waits waits for longer than without waiting.
        assert!(halves.slower <= halves.in_order && halves.in_order <= halves.total(), "{halves:?}");
        let [bound, slow] = [Duration::ZERO, Duration::from_secs(1)].map(|trip| halves.bound(trip, trip));
        assert!((1.0..=2.0).contains(&bound) && slow < bound, "{halves:?}");
        assert!(halves.bound_in_order(Duration::ZERO, Duration::ZERO) <= bound);
    }
    let within = exchange(&four(Topology::Mesh { dims: vec![4] }), &[(0, 1), (3, 2)]).0;
    assert_eq!(within.crossings, 0);
}

#[test]
fn ranks_that_run_ahead_depend_on_the_other_half() {
    // Ranks 0 and 1 have run ahead when they look. Rank 0 waits for rank 1, whose half is the same; rank 1 would
    // go on if neither rank 2 nor rank 3 were behind.
    let program = |rank: Rank<'_>| {
        if rank.rank() < 2 {
            rank.charge(Span::from_nanos(100 * u64::from(1 + rank.rank())));
            assert!(rank.receive().is_none());
        }
    };
    let (run, halves) = measure(|| Sim::run(&four(Topology::Mesh { dims: vec![4] }), program));
    run.unwrap();
    assert_eq!((halves[0].asked, halves[0].undecided), (2, 0), "rank 0 comes before rank 1 again");
    // All ranks begin at one time.
    assert_eq!(halves[0].ties, 2, "{}", halves[0]);
    let program = |rank: Rank<'_>| {
        if rank.rank() == 1 {
            rank.charge(Span::from_nanos(100));
            assert!(rank.receive().is_none());
        }
    };
    let (run, halves) = measure(|| Sim::run(&four(Topology::Mesh { dims: vec![4] }), program));
    run.unwrap();
    assert_eq!((halves[0].asked, halves[0].undecided), (1, 1));
}

#[test]
fn runs_that_fail_are_not_measured() {
    let stuck = |rank: Rank<'_>| rank.wait().body;
    let (run, halves) = measure(|| Sim::run(&four(Topology::Mesh { dims: vec![4] }), stuck));
    assert!(run.is_err() && halves.is_empty());
}

//! Faults: repaired by links they only cost time, unrepaired they show; all of them follow the seed.

use am_core::{Instant, LossCause, PeerStatus, Span};
use fabric_sim::{
    Config, Context, Drawn, DrawnKind, FaultEvent, Faults, LinkFaults, LinkParameters, Mailbox, Report, RunError,
    Scheduled, Sim, Topology, WaitFor,
};
use proptest::prelude::*;

const PACKETS: u32 = 400;

fn config(faults: Faults) -> Config {
    let mut config = Config::new(4);
    config.topology = Topology::Mesh { dims: vec![4] };
    config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 100.0 };
    config.faults = faults;
    config
}

/// Rank 0 sends numbers to rank 3, which returns those that came within a long time, and whether each was spoilt.
fn stream(config: &Config) -> Report<Vec<(u32, bool)>> {
    Sim::run(config, |rank: Context<'_, Mailbox<u32>>| {
        let mut all = Vec::new();
        if rank.rank() == 0 {
            (0..PACKETS).for_each(|number| rank.send(3, 100, number));
        } else if rank.rank() == 3 {
            let end = Instant(0) + Span::from_millis(10);
            while rank.now() < end {
                all.extend(std::iter::from_fn(|| rank.receive()).map(|packet| (packet.body, packet.corrupt)));
                rank.idle(Some(end), WaitFor::Arrival);
            }
        }
        all
    })
    .unwrap()
}

fn at(at_ns: f64, event: FaultEvent) -> Scheduled {
    Scheduled { at_ns, event }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn with_link_retry_everything_comes_once_and_in_order(
        seed: u64, loss in 0.0..0.4f64, corruption in 0.0..0.4f64, duplication in 0.0..0.4f64, delay in 0.0..0.4f64
    ) {
        let flaps = Drawn { count: 3, within_ns: 50_000.0, kind: DrawnKind::LinkFlap { down_ns: 5_000.0 } };
        let faults = Faults {
            seed, loss, corruption, duplication, delay, delay_ns: 500.0, link_retry: true, retry_ns: 200.0,
            drawn: vec![flaps], ..Faults::default()
        };
        let mut config = config(faults);
        config.nic.ordered = true;
        let report = stream(&config);
        let expected: Vec<_> = (0..PACKETS).map(|number| (number, false)).collect();
        prop_assert_eq!(report.results[3].as_ref(), Some(&expected), "seed {}", seed);
        prop_assert_eq!(report.hash, stream(&config).hash);
    }
}

#[test]
fn another_seed_is_another_run() {
    let run = |seed| stream(&config(Faults { seed, loss: 0.1, link_retry: true, ..Faults::default() }));
    let (one, other) = (run(1), run(2));
    // Known in advance: the same in debug and release builds and on every machine.
    assert_eq!(
        [one.hash, other.hash].map(|hash| format!("{hash:016x}")),
        ["a06562e516471e62", "b33e99882dfc9ac3"]
    );
    assert_eq!(one.retries, one.links.iter().map(|link| link.retries).sum::<u64>());
    assert!(one.links.iter().all(|link| link.retries > 0));
}

/// A narrow link takes no long packets, a short queue no bursts, a special link loses what others carry.
#[test]
fn links_have_limits_and_characters_of_their_own() {
    let stream = |special| stream(&config(Faults { seed: 3, links: vec![special], ..Faults::default() }));
    let plain = LinkFaults { from: Some(1), to: Some(2), ..LinkFaults::default() };
    assert_eq!(stream(LinkFaults { mtu_bytes: Some(100), ..plain }).lost, 0);
    assert_eq!(stream(LinkFaults { mtu_bytes: Some(99), ..plain }).lost, u64::from(PACKETS));
    // All packets come at once, and the link before this one lets them through one by one.
    assert_eq!(stream(LinkFaults { queue_bytes: Some(100), ..plain }).lost, 0);
    let first = LinkFaults { from: Some(0), to: Some(1), queue_bytes: Some(1000), ..LinkFaults::default() };
    assert_eq!(stream(first).delivered, 11, "ten wait and one is on the link");
    let lossy = stream(LinkFaults { loss: Some(0.5), ..plain });
    assert!((150..250).contains(&lossy.lost), "{} of {PACKETS} are lost at 50 %", lossy.lost);
    let back = LinkFaults { from: Some(2), to: Some(1), loss: Some(0.5), ..plain };
    assert_eq!(stream(back).lost, 0, "the other direction is not concerned");
    let far = stream(LinkFaults { latency_ns: Some(5000.0), ..plain });
    assert_eq!(far.ended, stream(plain).ended, "the receiver waits for its end");
    let longest = stream(plain).latency.longest();
    assert_eq!(far.latency.longest(), Span(longest.picos() + 5_000_000));
}

#[test]
fn without_retry_faults_show() {
    let lossy = stream(&config(Faults { seed: 3, loss: 0.1, ..Faults::default() }));
    let got = lossy.results[3].as_ref().unwrap().len() as u64;
    assert!(lossy.lost > 0 && got + lossy.lost == u64::from(PACKETS), "{got} came, {} were lost", lossy.lost);

    let spoilt = stream(&config(Faults { seed: 3, corruption: 0.1, ..Faults::default() }));
    let got = spoilt.results[3].as_ref().unwrap();
    assert!(got.len() == PACKETS as usize && got.iter().any(|(_, spoilt)| *spoilt));
    assert!(spoilt.corrupted > 0);

    let doubled = stream(&config(Faults { seed: 3, duplication: 0.1, ..Faults::default() }));
    let got = doubled.results[3].as_ref().unwrap().len() as u64;
    assert!(doubled.duplicated > 0 && got == u64::from(PACKETS) + doubled.duplicated);

    let mixed = stream(&config(Faults { seed: 3, reordering: 0.1, reorder_ns: 5000.0, ..Faults::default() }));
    let mut got: Vec<_> = mixed.results[3].as_ref().unwrap().iter().map(|(number, _)| *number).collect();
    assert!(!got.is_sorted());
    got.sort_unstable();
    assert_eq!(got, (0..PACKETS).collect::<Vec<_>>());
}

#[test]
fn packets_wait_for_a_link_to_come_up_or_are_lost() {
    let down = FaultEvent::LinkDown { from: 1, to: 2 };
    let up = FaultEvent::LinkUp { from: 1, to: 2 };
    let schedule = vec![at(0.0, down), at(500_000.0, up)];
    let held = stream(&config(Faults { schedule: schedule.clone(), link_retry: true, ..Faults::default() }));
    assert_eq!(held.results[3].as_ref().unwrap().len(), PACKETS as usize);
    assert!(held.latency.longest() > Span::from_micros(400));
    let lost = stream(&config(Faults { schedule, ..Faults::default() }));
    assert_eq!(lost.lost, u64::from(PACKETS));
}

#[test]
fn a_deadlock_report_counts_what_is_held() {
    let faults = Faults {
        schedule: vec![at(0.0, FaultEvent::LinkDown { from: 0, to: 1 })],
        link_retry: true,
        ..Faults::default()
    };
    let outcome = Sim::run(&config(faults), |rank: Context<'_, Mailbox<()>>| match rank.rank() {
        0 => rank.send(1, 8, ()),
        1 => assert_eq!(rank.wait().from, 0),
        _ => {}
    });
    let Err(RunError::Deadlock(report)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((report.held, report.waiting.len()), (1, 1));
    assert!(report.to_string().contains("except 1 packets held at links that are down"));
}

#[test]
fn a_node_stops_and_the_others_learn_it() {
    let stop = at(2_000.0, FaultEvent::NodeStop { node: 3 });
    let config = config(Faults { schedule: vec![stop], ..Faults::default() });
    let report = Sim::run(&config, |rank: Context<'_, Mailbox<()>>| {
        if rank.rank() == 3 {
            loop {
                rank.charge(Span::from_nanos(100));
                rank.sync();
            }
        }
        while rank.status(3) == PeerStatus::Active {
            rank.idle(None, WaitFor::Named("the end of rank 3"));
        }
        rank.send(3, 8, ());
        (rank.status(3), rank.losses(), rank.now())
    })
    .unwrap();
    let told = (PeerStatus::Lost(LossCause::Died), 1, Instant(3_000_000));
    assert_eq!(report.results, [Some(told), Some(told), Some(told), None]);
}

#[test]
fn a_slow_node_is_slow_from_then_on() {
    let slow = at(1_000.0, FaultEvent::NodeSlow { node: 0, factor: 3.0 });
    let config = config(Faults { schedule: vec![slow], ..Faults::default() });
    let report = Sim::run(&config, |rank: Context<'_, Mailbox<()>>| {
        rank.charge(Span::from_nanos(1_000));
        rank.sync();
        rank.charge(Span::from_nanos(1_000));
        rank.now().0
    });
    assert_eq!(report.unwrap().results, [4_000_000, 2_000_000, 2_000_000, 2_000_000].map(Some));
}

/// A rank whose node has stopped is unwound at the end of the run, long after its own time; what it sends then
/// comes to nothing.
#[test]
fn a_stopped_rank_sends_nothing_while_unwound() {
    struct Farewell<'a>(Context<'a, Mailbox<u32>>);

    impl Drop for Farewell<'_> {
        fn drop(&mut self) {
            self.0.send(0, 10, 99);
        }
    }

    let stop = Scheduled { at_ns: 1_000.0, event: FaultEvent::NodeStop { node: 1 } };
    let mut config = config(Faults { schedule: vec![stop], ..Faults::default() });
    config.ranks = 2;
    let report = Sim::run(&config, |rank: Context<'_, Mailbox<u32>>| {
        if rank.rank() == 1 {
            let _farewell = Farewell(rank.clone());
            rank.idle(None, WaitFor::Arrival);
            return None;
        }
        // Until the loss is known, and longer.
        rank.idle(Some(Instant(900_000_000)), WaitFor::Arrival);
        rank.charge(Span(900_000_000));
        rank.sync();
        rank.receive().map(|packet| packet.body)
    })
    .unwrap();
    assert_eq!((report.results, report.delivered), (vec![Some(None), None], 0));
}

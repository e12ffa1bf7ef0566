//! Deliberate mistakes: each must be found by the invariant that it breaks, and the same runs without the mistake
//! pass.

use super::net::{Action, Checks, Fault, Net, Request, Violation};
use super::scheduler::{Scheduler, flood, flood_where};
use portals_sim::credit::{Growth, LoanConfig};

const NODES: usize = 4;

/// `count` requests of one credit from everybody to everybody.
fn all_to_all(count: usize) -> impl Iterator<Item = Request> {
    let pairs = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
    pairs.flat_map(move |(from, to)| vec![Request { from, to, cost: 1 }; count])
}

/// Four nodes that send each other, and mostly node 0, more than their loans allow; one credit is banked.
fn net(fault: Fault, checks: Checks) -> Net {
    net_of(&config(), fault, checks)
}

fn config() -> LoanConfig {
    let mut config = LoanConfig::new(4, 4 * 4 + 1, 2);
    (config.initial, config.epoch, config.revoke_limit) = (4, 4, 2);
    config
}

fn net_of(config: &LoanConfig, fault: Fault, checks: Checks) -> Net {
    let incast = all_to_all(40).filter(|request| request.to == 0);
    let mut net = Net::new(config, &incast.chain(all_to_all(5)).collect::<Vec<_>>());
    (net.fault, net.checks) = (fault, checks);
    net
}

/// Number of random schedules in which a mistake is looked for.
const SCHEDULES: usize = 40;

/// What they find: conservation broken, overflow, deadlock, anything else.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    conservation: usize,
    overflow: usize,
    deadlock: usize,
    other: Vec<Violation>,
}

fn found(fault: Fault, checks: Checks, mortal: &[usize]) -> Found {
    let mut found = Found::default();
    for seed in 0..SCHEDULES as u64 {
        let mut net = net(fault, checks);
        net.mortal = mortal.to_vec();
        match Scheduler::new(seed).drain(&mut net) {
            Ok(_) => {}
            Err(Violation::Conservation(_)) => found.conservation += 1,
            Err(Violation::Overflow(_)) => found.overflow += 1,
            Err(Violation::Deadlock(_)) => found.deadlock += 1,
            Err(other) => found.other.push(other),
        }
    }
    found
}

#[test]
fn without_a_mistake_nothing_is_found() {
    assert_eq!(found(Fault::None, Checks::ALL, &[]), Found::default());
    assert_eq!(found(Fault::None, Checks::ALL, &[1, 2]), Found::default());
    let tally = flood(&mut net(Fault::None, Checks::ALL)).unwrap();
    assert_eq!(tally.peak, 17, "the flood fills the space to the last credit, so that one more overflows it");
}

/// The mistake that the whole machine exists to prevent: a single credit too many overflows under incast.
#[test]
fn one_credit_granted_too_many_overflows() {
    let found = found(Fault::GrantOneMore, Checks::ALL, &[]);
    assert_eq!(found, Found { conservation: found.conservation, ..Found::default() });
    assert!(found.conservation > SCHEDULES / 2, "a schedule without any grant can't show it: {found:?}");
    let overflow = flood(&mut net(Fault::GrantOneMore, Checks::SPACE));
    assert_eq!(overflow, Err(Violation::Overflow("18 of 17 at node 0".into())));
}

/// As the tuned conduit lends.
#[test]
fn one_extra_granted_credit_is_found_where_loans_double() {
    let mut config = config();
    (config.growth, config.max_ask) = (Growth::Doubling, 64);
    let run = |fault, seed| Scheduler::new(seed).drain(&mut net_of(&config, fault, Checks::ALL));
    assert!((0..SCHEDULES as u64).all(|seed| run(Fault::None, seed).is_ok()));
    let broken = |result: &Result<_, _>| matches!(result, Err(Violation::Conservation(_)));
    let found = (0..SCHEDULES as u64).filter(|seed| broken(&run(Fault::GrantOneMore, *seed))).count();
    assert!(found > SCHEDULES / 2, "a schedule without any grant can't show it: {found}");
    let overflow = flood(&mut net_of(&config, Fault::GrantOneMore, Checks::SPACE));
    assert_eq!(overflow.map(|tally| tally.peak), Err(Violation::Overflow("18 of 17 at node 0".into())));
}

/// First one hot sender draws credit from the others, which keep it all the same; then everybody floods.
#[test]
fn a_surrender_not_subtracted_overflows() {
    let run = |fault, checks| {
        let mut net = net(fault, checks);
        for (from, node) in net.nodes.iter_mut().enumerate() {
            node.queues.iter_mut().for_each(|queue| queue.retain(|_| from == 3));
        }
        flood(&mut net)?;
        for request in all_to_all(16) {
            net.nodes[request.from].queues[request.to].push_back(request);
        }
        flood(&mut net)
    };
    assert!(run(Fault::None, Checks::ALL).is_ok());
    let violation = run(Fault::ForgetSurrender, Checks::ALL);
    assert!(matches!(violation, Err(Violation::Conservation(_))), "{violation:?}");
    let violation = run(Fault::ForgetSurrender, Checks::SPACE);
    assert!(matches!(violation, Err(Violation::Overflow(_))), "{violation:?}");
}

/// The books balance throughout; only the space itself shows it.
#[test]
fn credit_returned_before_the_space_is_free_overflows() {
    let found = found(Fault::ReleaseEarly, Checks::ALL, &[]);
    assert_eq!(found, Found { overflow: found.overflow, ..Found::default() });
    assert!(found.overflow > 0);
}

/// Node 1 dies while its requests are being handled at node 0, which takes for ever; the others flood meanwhile.
#[test]
fn space_lent_again_too_soon_overflows() {
    let run = |fault| {
        let mut net = net(fault, Checks::ALL);
        for _ in 0..4 {
            for action in [Action::Send { from: 1, to: 0 }, Action::Deliver { from: 1, to: 0, nth: 0 }] {
                net.apply(action)?;
            }
            net.apply(Action::Accept { at: 0 })?;
        }
        net.apply(Action::Kill { node: 1 })?;
        let stuck = |net: &Net, at: usize, nth: usize| {
            let arrival = net.nodes[at].running.get(nth);
            at == 0 && arrival.is_none_or(|arrival| arrival.from == 1)
        };
        flood_where(&mut net, |net, action| match action {
            Action::Finish { at, nth } => !stuck(net, at, nth),
            _ => true,
        })
    };
    assert_eq!(run(Fault::None).map(|tally| tally.peak), Ok(17));
    assert_eq!(
        run(Fault::ForgetOccupiedSpace).map(|tally| tally.peak),
        Err(Violation::Overflow("18 of 17 at node 0".into()))
    );
}

#[test]
fn lost_returns_break_conservation_and_end_in_deadlock() {
    let checked = found(Fault::DropReturn, Checks::ALL, &[]);
    assert_eq!(checked, Found { conservation: SCHEDULES, ..Found::default() });
    let unchecked = found(Fault::DropReturn, Checks::SPACE, &[]);
    assert_eq!(unchecked, Found { deadlock: SCHEDULES, ..Found::default() });
}

#[test]
fn waiting_for_credit_without_serving_ends_in_deadlock() {
    let found = found(Fault::WaitWithoutServing, Checks::ALL, &[]);
    assert_eq!(found, Found { deadlock: SCHEDULES, ..Found::default() });
}

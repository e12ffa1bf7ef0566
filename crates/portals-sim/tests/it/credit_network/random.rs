//! Random networks, workloads and schedules: every invariant after every step, and nobody waits for ever.

use super::net::{Net, Request};
use super::scheduler::Scheduler;
use portals_sim::credit::{Growth, LoanConfig};
use proptest::prelude::*;

/// Any valid configuration of a small network, from "everything lent" to "nearly everything banked".
fn configs() -> impl Strategy<Value = LoanConfig> {
    let sizes = (2u32..=5, 1u32..=3, 0u32..=2, 0u32..=4, 0u32..=10);
    let limits = (0u32..=8, 0u32..=6, 0u32..=4, 0u32..=3);
    let rest = (1u32..=12, 1u32..=3, 0u32..=3, 0u32..=6, 0u32..=5, 0u32..=3, any::<bool>());
    (sizes, limits, rest).prop_map(|(sizes, limits, rest)| {
        let (peers, max_cost, above_cost, above_min, banked) = sizes;
        let (above_initial, lend_limit, max_ask, above_max) = limits;
        let min = max_cost + above_cost;
        let initial = min + above_min;
        let mut config = LoanConfig::new(peers, peers * initial + banked, max_cost);
        (config.min, config.initial, config.loan_cap) = (min, initial, initial + above_initial);
        (config.lend_limit, config.max_ask, config.max_return) = (lend_limit, max_ask, max_cost + above_max);
        let doubling;
        (
            config.epoch,
            config.decay_shift,
            config.revoke_peers,
            config.revoke_scan,
            config.revoke_limit,
            config.revoke_least,
            doubling,
        ) = rest;
        config.growth = if doubling { Growth::Doubling } else { Growth::Shortage };
        config
    })
}

/// Requests between any two nodes (a node may send to itself), with one target that gets half of them.
fn workloads(config: &LoanConfig, most: usize) -> impl Strategy<Value = Vec<Request>> + use<> {
    let (n, max_cost) = (config.peers as usize, config.max_cost);
    let request = (0..n, 0..n * 2, 1..=max_cost).prop_map(move |(from, to, cost)| Request {
        from,
        to: if to < n { to } else { 0 },
        cost,
    });
    prop::collection::vec(request, 0..most)
}

fn cases() -> impl Strategy<Value = (LoanConfig, Vec<Request>, u64)> {
    configs().prop_flat_map(|config| {
        let workload = workloads(&config, 120);
        (Just(config), workload, any::<u64>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_request_is_served_and_credits_are_conserved((config, requests, seed) in cases()) {
        let mut net = Net::new(&config, &requests);
        let tally = Scheduler::new(seed).drain(&mut net);
        prop_assert_eq!(tally.map(|tally| tally.accepted), Ok(requests.len()));
    }

    #[test]
    fn messages_may_overtake_each_other((config, requests, seed) in cases()) {
        let mut net = Net::new(&config, &requests);
        net.overtaking = true;
        let tally = Scheduler::new(seed).drain(&mut net);
        prop_assert_eq!(tally.map(|tally| tally.accepted), Ok(requests.len()));
    }

    #[test]
    fn the_survivors_go_on_when_nodes_stop((config, requests, seed) in cases(), stopped in 1usize..3) {
        let mut net = Net::new(&config, &requests);
        net.mortal = (0..stopped.min(net.nodes.len() - 1)).collect();
        let tally = Scheduler::new(seed).drain(&mut net);
        prop_assert!(tally.is_ok(), "{tally:?}");
    }
}

//! Traffic patterns that conduits meet: incast, mutual flood, a hotspot that moves, and a patient sender among
//! greedy ones.

use super::net::{Action, Net, Request, peer};
use super::scheduler::{Scheduler, Tally, flood};
use portals_sim::credit::LoanConfig;

fn flow(from: usize, to: usize, count: usize, cost: u32) -> Vec<Request> {
    vec![Request { from, to, cost }; count]
}

/// One fair round: everybody sends what it can, and everything that is there moves one step.
fn round(net: &mut Net, tally: &mut Tally) {
    for action in net.candidates() {
        while tally.apply(net, action).unwrap() && matches!(action, Action::Send { .. }) {}
    }
}

#[test]
fn incast_fills_the_space_and_never_overflows_it() {
    let mut config = LoanConfig::new(12, 12 * 4 + 20, 4);
    (config.initial, config.max_ask) = (4, 4);
    let requests: Vec<_> = (0..12).flat_map(|from| flow(from, 0, 30, 1 + from as u32 % 4)).collect();
    let tally = flood(&mut Net::new(&config, &requests)).unwrap();
    assert_eq!(tally.accepted, requests.len());
    assert!(tally.peak > 12 * 4, "banked credit was lent as well: {}", tally.peak);
    for seed in 0..3 {
        let tally = Scheduler::new(seed).drain(&mut Net::new(&config, &requests)).unwrap();
        assert_eq!(tally.accepted, requests.len(), "seed {seed}");
    }
}

#[test]
fn mutual_flood_ends_with_everything_served() {
    let config = LoanConfig::new(5, 5 * 3 + 4, 3);
    let pairs = (0..25).filter(|i| i / 5 != i % 5);
    let requests: Vec<_> = pairs.flat_map(|i| flow(i / 5, i % 5, 20, 1 + i as u32 % 3)).collect();
    assert_eq!(flood(&mut Net::new(&config, &requests)).unwrap().accepted, requests.len());
    for seed in 0..10 {
        let tally = Scheduler::new(seed).drain(&mut Net::new(&config, &requests)).unwrap();
        assert_eq!(tally.accepted, requests.len(), "seed {seed}");
    }
}

#[test]
fn credit_follows_a_shifting_hotspot() {
    let mut config = LoanConfig::new(6, 6 * 4 + 4, 1);
    (config.initial, config.min, config.max_ask, config.epoch, config.revoke_limit) = (4, 2, 4, 16, 4);
    let mut net = Net::new(&config, &[]);
    let mut tally = Tally::default();
    let loan = |net: &Net, sender: usize| net.nodes[0].bank.loan(peer(sender)).unwrap().loan;
    for hot in [1, 2, 3, 1, 5] {
        net.nodes[hot].queues[0].extend(flow(hot, 0, 300, 1));
        let mut peak = 0;
        while !net.nodes[hot].queues[0].is_empty() {
            round(&mut net, &mut tally);
            peak = peak.max(loan(&net, hot));
        }
        for _ in 0..20 {
            round(&mut net, &mut tally);
        }
        net.check_end().unwrap();
        let loans: Vec<u32> = (0..6).map(|sender| loan(&net, sender)).collect();
        // Everything but the owner's loan and the minimum of the four others could go to the hot sender.
        assert!(
            peak >= 3 * config.initial,
            "node {hot} came to {peak} credits; at the end of its time: {loans:?}"
        );
        let others = (1..6).filter(|&sender| sender != hot);
        assert!(
            others.map(|sender| loans[sender]).max() <= Some(config.initial),
            "quiet senders gave theirs up: {loans:?}"
        );
    }
    assert!(tally.revoked >= 5, "{} revocations", tally.revoked);
}

#[test]
fn a_modest_sender_is_not_starved_by_greedy_ones() {
    let mut config = LoanConfig::new(5, 5 * 4, 4);
    (config.initial, config.epoch) = (4, 8);
    let mut net = Net::new(&config, &[]);
    let mut tally = Tally::default();
    let (mut waited, mut longest) = (0, 0);
    for _ in 0..400 {
        for greedy in 1..4 {
            let queue = &mut net.nodes[greedy].queues[0];
            queue.extend(flow(greedy, 0, 8usize.saturating_sub(queue.len()), 1));
        }
        // Always the most expensive request, which needs the whole minimal loan at once.
        if net.nodes[4].queues[0].is_empty() {
            net.nodes[4].queues[0].extend(flow(4, 0, 1, 4));
            longest = longest.max(std::mem::take(&mut waited));
        }
        round(&mut net, &mut tally);
        waited += 1;
    }
    // Its credits come back after its own request has been served; the polls before that serve one request a
    // round, of at most 20 that fit the space, and a round trip is a few rounds.
    assert!(longest.max(waited) <= 20 + 10, "waited {longest} rounds");
    assert!(tally.accepted >= 390);
}

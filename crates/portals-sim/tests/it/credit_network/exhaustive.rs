//! Every schedule of small networks: each reachable state is visited once, each must satisfy the invariants, each
//! end must have everything served, and no state may come back (so that every schedule ends).

use super::net::{Fault, Net, Request, Violation, peer};
use portals_sim::credit::{Growth, LoanConfig};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// What an exploration has seen.
#[derive(Debug, Default)]
struct Explored {
    /// Fingerprint of each state, and whether everything behind it has been seen.
    states: HashMap<u64, bool>,
    ends: usize,
    /// States in which some loan is above, or below, what it was at the start.
    grown: usize,
    shrunk: usize,
}

impl Explored {
    fn visit(&mut self, net: &Net) -> Result<(), Violation> {
        let state = fingerprint(net);
        match self.states.get(&state) {
            Some(true) => return Ok(()),
            Some(false) => {
                return Err(Violation::Deadlock("a state comes back: the network may run for ever".into()));
            }
            None => self.states.insert(state, false),
        };
        net.check()?;
        self.note_loans(net);
        let mut end = true;
        for action in net.candidates() {
            let mut next = net.clone();
            if next.perform(action)? {
                end = false;
                self.visit(&next)?;
            }
        }
        if end {
            self.ends += 1;
            net.check_end()?;
        }
        self.states.insert(state, true);
        Ok(())
    }

    fn note_loans(&mut self, net: &Net) {
        let n = net.nodes.len();
        let loans = (0..n * n).map(|i| net.nodes[i / n].bank.loan(peer(i % n)).expect("known"));
        let live: Vec<u32> = loans.filter(|loan| !loan.lost).map(|loan| loan.loan).collect();
        let initial = net.nodes[0].bank.config().initial;
        self.grown += usize::from(live.iter().any(|&loan| loan > initial));
        self.shrunk += usize::from(live.iter().any(|&loan| loan < initial));
    }
}

/// 64 bits: two of 100,000 states are confused with a probability of about 3e-10.
fn fingerprint(net: &Net) -> u64 {
    let mut hasher = WordHasher(0);
    net.hash(&mut hasher);
    hasher.finish()
}

/// Mixes a word at a time as SplitMix64 does. The standard library's hasher takes most of the test's time in debug
/// builds.
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        self.0 = (mixed ^ (mixed >> 29)).wrapping_mul(0x94D0_49BB_1331_11EB) ^ (mixed >> 32);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn explore(net: &Net) -> Result<Explored, Violation> {
    let mut explored = Explored::default();
    explored.visit(net)?;
    Ok(explored)
}

/// Three nodes; each has a loan of 2 credits from each other and may fall to 1; nothing is banked.
fn tight() -> LoanConfig {
    let mut config = LoanConfig::new(3, 6, 1);
    (config.initial, config.max_ask, config.max_return) = (2, 1, 2);
    (config.epoch, config.revoke_limit, config.revoke_peers) = (2, 1, 1);
    config
}

/// `count` requests of one credit.
fn requests(from: usize, to: usize, count: usize) -> Vec<Request> {
    vec![Request { from, to, cost: 1 }; count]
}

/// Two nodes that send to the third.
fn incast(config: &LoanConfig, sizes: [usize; 2]) -> Net {
    Net::new(config, &[requests(1, 0, sizes[0]), requests(2, 0, sizes[1])].concat())
}

/// Explores, and makes sure that the exploration was worth it: credits did move between senders.
fn explore_redistribution(net: &Net) {
    let explored = explore(net).unwrap();
    let Explored { states, ends, grown, shrunk } = explored;
    println!("{} states, {ends} ends, a loan grown in {grown}, shrunk in {shrunk}", states.len());
    assert!(ends > 0 && grown > 0 && shrunk > 0, "{ends} ends, {grown} grown, {shrunk} shrunk");
}

#[test]
fn every_schedule_of_an_incast_with_revocation() {
    explore_redistribution(&incast(&tight(), [4, 1]));
}

#[test]
fn every_schedule_of_a_mutual_flood() {
    explore_redistribution(&mutual_flood([4, 2]));
}

fn mutual_flood(sizes: [usize; 2]) -> Net {
    Net::new(&tight(), &[requests(0, 1, sizes[0]), requests(1, 0, sizes[1])].concat())
}

/// As the tuned conduit over Portals has it: loans double, asks are granted in part.
#[test]
fn every_schedule_of_an_incast_whose_loans_double() {
    explore_redistribution(&doubling(2, [3, 1]));
}

/// `cargo test --release -p active-messages-portals --test it -- --ignored double`
#[test]
#[ignore = "millions of states take minutes"]
fn every_schedule_of_larger_incasts_whose_loans_double() {
    for (max_ask, sizes) in [(2, [4, 1]), (2, [3, 2]), (4, [4, 1])] {
        explore_redistribution(&doubling(max_ask, sizes));
    }
    let mut net = doubling(2, [3, 1]);
    net.mortal = vec![2];
    explore_redistribution(&net);
}

fn doubling(max_ask: u32, sizes: [usize; 2]) -> Net {
    let mut config = tight();
    config.growth = Growth::Doubling;
    (config.max_ask, config.total) = (max_ask, config.total + 1);
    incast(&config, sizes)
}

/// `cargo test --release -p active-messages-portals --test it -- --ignored larger_floods`
#[test]
#[ignore = "half a million states take half a minute"]
fn every_schedule_of_larger_floods() {
    for sizes in [[5, 1], [4, 2]] {
        explore_redistribution(&incast(&tight(), sizes));
    }
    explore_redistribution(&mutual_flood([4, 3]));
    let mut net = incast(&tight(), [4, 1]);
    net.mortal = vec![2];
    explore_redistribution(&net);
}

/// A loan shrinks; that one grows as well takes larger incasts.
#[test]
fn every_schedule_in_which_a_node_stops() {
    for mortal in 0..3 {
        let mut net = incast(&tight(), [3, 1]);
        net.mortal = vec![mortal];
        let Explored { ends, shrunk, .. } = explore(&net).unwrap();
        assert!(ends > 0 && shrunk > 0, "{ends} ends, {shrunk} shrunk");
    }
}

#[test]
fn the_exploration_finds_a_deadlock() {
    let requests = [requests(0, 1, 3), requests(1, 0, 3)].concat();
    let mut net = Net::new(&tight(), &requests);
    net.fault = Fault::WaitWithoutServing;
    let violation = explore(&net).map(|_| "no violation").unwrap_err();
    assert!(matches!(violation, Violation::Deadlock(_)), "{violation:?}");
}

//! Many ranks on the conduits of all machines: every rank writes to six neighbours, and all add their numbers up.

use active_messages::{Endpoint, Handlers, Payload, Rank, Transport};
use fabric_sim::Topology;
use lab_sim::conduits::{Conduit, Program, Room};
use std::time::Instant;

/// How far away in number a rank's neighbours are, on either side.
const APART: [u32; 3] = [1, 16, 256];

/// What a rank has: messages of neighbours, and the numbers of those below it in the tree.
#[derive(Default)]
struct State {
    seen: u32,
    parts: u32,
    sum: u64,
    total: Option<u64>,
}

fn neighbours_and_sum(transport: impl Transport, apart: [u32; 3]) -> u64 {
    let mut handlers = Handlers::<State>::new();
    let hello = handlers.one_way("hello", |state: &mut State, _, (): (), _: Payload<'_>| state.seen += 1).unwrap();
    let up = handlers.one_way("up", |state: &mut State, _, part: u64, _: Payload<'_>| {
        state.parts += 1;
        state.sum += part;
    });
    let down =
        handlers.one_way("down", |state: &mut State, _, total: u64, _: Payload<'_>| state.total = Some(total));
    let (up, down) = (up.unwrap(), down.unwrap());
    let mut endpoint = Endpoint::attach(transport, handlers, State::default()).unwrap();
    let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
    for apart in apart.map(|apart| apart % ranks) {
        for to in [(me + apart) % ranks, (me + ranks - apart) % ranks] {
            endpoint.request_medium(Rank(to), hello, (), &[1; 512]).unwrap();
        }
    }
    endpoint.wait_until(|state| state.seen == 6).unwrap();
    // A binomial tree: below a rank are those that differ in one of its lowest zeros.
    let zeros = if me == 0 { u32::BITS - 1 } else { me.trailing_zeros() };
    let below: Vec<u32> = (0..zeros).map(|bit| me + (1 << bit)).take_while(|child| *child < ranks).collect();
    endpoint.wait_until(|state| state.parts == below.len() as u32).unwrap();
    let sum = endpoint.state().sum + u64::from(me);
    if me == 0 {
        endpoint.state_mut().total = Some(sum);
    } else {
        endpoint.request(Rank(me & (me - 1)), up, sum).unwrap();
        endpoint.wait_until(|state| state.total.is_some()).unwrap();
    }
    let total = endpoint.state().total.unwrap_or_default();
    below.into_iter().for_each(|child| endpoint.request(Rank(child), down, total).unwrap());
    endpoint.finish().unwrap();
    total
}

#[derive(Clone, Copy)]
struct NeighboursAndSum;

impl Program for NeighboursAndSum {
    type Result = u64;

    fn play<T: Transport>(self, transport: T) -> u64 {
        neighbours_and_sum(transport, APART)
    }
}

fn check(conduit: Conduit, ranks: u32, dims: [u32; 3]) -> u64 {
    let report = conduit.run(ranks, Topology::Torus { dims: dims.to_vec() }, Room::Small, NeighboursAndSum);
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    let total = u64::from(ranks) * u64::from(ranks - 1) / 2;
    assert!(report.results.iter().all(|sum| *sum == Some(total)));
    report.events
}

#[test]
fn every_conduit_carries_it() {
    for conduit in Conduit::ALL {
        check(conduit, 63, [4, 4, 4]);
    }
}

/// The most memory that this process has had, in MiB.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// `AM_CONDUIT=gasnet cargo test --release -p lab-sim --test it -- --ignored full_16384 --nocapture`: the conduit
/// has the process for itself, so that the memory is its own.
#[test]
#[ignore = "takes minutes and gigabytes; tells time and memory"]
fn full_16384_ranks() {
    let wanted = std::env::var("AM_CONDUIT").unwrap_or_default();
    for conduit in Conduit::ALL.into_iter().filter(|conduit| *conduit != Conduit::Sci) {
        let name = conduit.name();
        if wanted.is_empty() || wanted == name {
            let began = Instant::now();
            let events = check(conduit, 16_384, [32, 32, 16]);
            println!("{name}: {events} events, {:?}, at most {} MiB", began.elapsed(), most_memory());
        }
    }
}

//! Many ranks on the conduits of all machines: every rank writes to six neighbours, and all add their numbers up.

use active_messages::{Endpoint, Handlers, Payload, Rank, Transport};
use fabric_sim::{Processors, Topology, assume_memory};
use lab_sim::conduits::{Conduit, Program, Room};
use std::time::Instant;

/// How far away in number a rank's neighbours are, on either side.
const APART: &[u32] = &[1, 16, 256];

/// What a rank has: messages of neighbours, and the numbers of those below it in the tree.
#[derive(Default)]
struct State {
    seen: u32,
    parts: u32,
    sum: u64,
    total: Option<u64>,
}

fn neighbours_and_sum(transport: impl Transport, apart: &[u32]) -> u64 {
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
    for apart in apart.iter().map(|apart| apart % ranks) {
        for to in [(me + apart) % ranks, (me + ranks - apart) % ranks] {
            endpoint.request_medium(Rank(to), hello, (), &[1; 512]).unwrap();
        }
    }
    endpoint.wait_until(|state| state.seen == 2 * apart.len() as u32).unwrap();
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

/// With the neighbours so far away.
#[derive(Clone, Copy)]
struct NeighboursAndSum(&'static [u32]);

impl Program for NeighboursAndSum {
    type Result = u64;

    fn play<T: Transport>(self, transport: T) -> u64 {
        neighbours_and_sum(transport, self.0)
    }
}

fn check(conduit: Conduit, ranks: u32, dims: [u32; 3], apart: &'static [u32]) -> u64 {
    check_on(None, conduit, ranks, dims, apart)
}

fn check_on(
    processors: Option<Processors>,
    conduit: Conduit,
    ranks: u32,
    dims: [u32; 3],
    apart: &'static [u32],
) -> u64 {
    let (topology, program) = (Topology::Torus { dims: dims.to_vec() }, NeighboursAndSum(apart));
    let report = conduit.run_on(processors, ranks, topology, Room::Small, program);
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    let total = u64::from(ranks) * u64::from(ranks - 1) / 2;
    assert!(report.results.iter().all(|sum| *sum == Some(total)));
    report.events
}

#[test]
fn every_conduit_carries_it() {
    for conduit in Conduit::ALL {
        check(conduit, 63, [4, 4, 4], APART);
    }
}

/// What does not fit is refused before the run, by each conduit with its own numbers.
#[test]
fn machines_that_do_not_fit_memory_are_refused() {
    for conduit in Conduit::ALL {
        let fits = |ranks: u32| {
            let topology = Topology::Torus { dims: vec![4, 4, 4] };
            conduit.run(ranks, topology, Room::Small, NeighboursAndSum(APART)).map(drop)
        };
        let needed = conduit.memory().bytes(63);
        assume_memory(Some(needed));
        fits(63).unwrap();
        assume_memory(Some(needed - 1));
        let error = fits(63).unwrap_err().to_string();
        let each = needed / 63 / 1024;
        let wanted = [
            "ranks is 63, but must be at most 62: 63 ranks",
            &format!("({each} KiB each, if each talks to 6 others)"),
            "are available",
        ];
        assert!(wanted.iter().all(|part| error.contains(part)), "{}: {error}", conduit.name());
        // Halves make the interfaces of all nodes each.
        if !matches!(conduit, Conduit::Sci | Conduit::Machine) {
            let halves = |memory| {
                assume_memory(Some(memory));
                let (topology, program) = (Topology::Torus { dims: vec![4, 4, 4] }, NeighboursAndSum(APART));
                conduit.run_on(Some(Processors::One), 63, topology, Room::Small, program).map(drop)
            };
            let error = halves(needed).unwrap_err().to_string();
            assert!(error.contains("ranks is 63, but must be at most "), "{error}");
            halves(conduit.memory().in_halves().bytes(63)).unwrap();
        }
        assume_memory(None);
    }
    // A command segment for each pair of nodes: no host has that much.
    assert!(Conduit::Sci.memory().bytes(16_384) > 1 << 40);
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
            let events = check(conduit, 16_384, [32, 32, 16], APART);
            println!("{name}: {events} events, {:?}, at most {} MiB", began.elapsed(), most_memory());
        }
    }
}

/// What the conduits' estimates of memory are measured by. `AM_CONDUIT=gasnet AM_RANKS=4096 AM_NEIGHBOURS=6 cargo
/// test --release -p lab-sim --test it -- --ignored full_memory_of_ranks --nocapture`: a rank's memory, of runs
/// with so many neighbours (an even number up to 24), in a process for each; with `AM_HALVES=1` in halves.
#[test]
#[ignore = "takes gigabytes; tells memory"]
fn full_memory_of_ranks() {
    const APART: [u32; 12] = [1, 16, 256, 2, 32, 512, 3, 48, 768, 4, 64, 1000];
    let number = |name: &str, usual: u32| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (ranks, neighbours) = (number("AM_RANKS", 4096), number("AM_NEIGHBOURS", 6));
    let name = std::env::var("AM_CONDUIT").unwrap_or_else(|_| "machine".into());
    let conduit = Conduit::ALL.into_iter().find(|conduit| conduit.name() == name).unwrap();
    let before = most_memory();
    let apart: &'static [u32] = Box::leak(APART[..neighbours as usize / 2].into());
    let halves = (number("AM_HALVES", 0) == 1).then_some(Processors::One);
    check_on(halves, conduit, ranks, [32, ranks.div_ceil(512), 16], apart);
    let kib = (most_memory() - before) as f64 * 1024.0 / f64::from(ranks);
    println!("{name}, {ranks} ranks, {neighbours} neighbours: {kib:.1} KiB a rank");
    if neighbours == 6 {
        let memory = if halves.is_some() { conduit.memory().in_halves() } else { conduit.memory() };
        let told = memory.bytes(ranks) as f64 / 1024.0 / f64::from(ranks);
        assert!((told / kib - 1.0).abs() < 0.2, "{told:.1} KiB are told");
    }
}

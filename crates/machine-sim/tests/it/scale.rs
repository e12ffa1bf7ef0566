//! Many ranks on a machine of one's own.

use am_core::{Endpoint, Handlers, Rank};
use fabric_sim::{LinkParameters, Topology};
use machine_sim::MachineConfig;
use machine_sim::conduit::{self, ConduitConfig};

/// What a rank has: how many neighbours have written, and the partners' sums of each round.
#[derive(Default)]
struct State {
    seen: u32,
    sums: [Option<u64>; 16],
}

/// A torus of so many ranks, one on each node.
fn torus(dims: [u32; 3]) -> MachineConfig {
    let topology = Topology::Torus { dims: dims.to_vec() };
    let mut machine = MachineConfig::new(dims.iter().product(), topology);
    machine.parameters.link = LinkParameters { bandwidth_mb_s: 10_000.0, latency_ns: 50.0 };
    machine.stack_bytes = 64 << 10;
    machine
}

/// Every rank writes to its neighbours, and all add their numbers up by recursive doubling; how many events that
/// took.
fn neighbours_and_sum(machine: &MachineConfig) -> u64 {
    let config = ConduitConfig { segment: 4096, ..ConduitConfig::default() };
    let report = conduit::run(machine, &config, |transport| {
        let mut handlers = Handlers::<State>::new();
        let hello = handlers.one_way("hello", |state: &mut State, _, (): (), _| state.seen += 1).unwrap();
        let add = |state: &mut State, _, (round, sum): (u32, u64), _: am_core::Payload<'_>| {
            state.sums[round as usize] = Some(sum)
        };
        let add = handlers.one_way("add", add).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, State::default()).unwrap();
        let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
        let apart = [1, 16, 256].map(|apart| apart % ranks).into_iter().flat_map(|apart| [apart, ranks - apart]);
        apart.for_each(|apart| endpoint.request_medium(Rank((me + apart) % ranks), hello, (), &[1; 512]).unwrap());
        endpoint.wait_until(|state| state.seen == 6).unwrap();
        let mut sum = u64::from(me);
        for round in 0..ranks.trailing_zeros() {
            endpoint.request(Rank(me ^ (1 << round)), add, (round, sum)).unwrap();
            endpoint.wait_until(|state| state.sums[round as usize].is_some()).unwrap();
            sum += endpoint.state().sums[round as usize].unwrap_or(0);
        }
        endpoint.finish().unwrap();
        sum
    });
    let (report, ranks) = (report.unwrap(), u64::from(machine.ranks));
    assert!(report.results.iter().all(|sum| *sum == Some(ranks * (ranks - 1) / 2)));
    report.events
}

#[test]
fn a_neighbour_exchange_and_an_allreduce_of_512_ranks() {
    assert!(neighbours_and_sum(&torus([8, 8, 8])) > 512 * 6);
}

/// The most memory that this process has had, in MiB.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// `cargo test --release -p active-messages-machine --test it -- --ignored full_16384 --nocapture`
#[test]
#[ignore = "takes a gigabyte or more; tells time and memory"]
fn full_16384_ranks() {
    let began = std::time::Instant::now();
    let events = neighbours_and_sum(&torus([32, 32, 16]));
    let memory = most_memory();
    println!("16,384 ranks: {events} events, {:?}, at most {memory} MiB", began.elapsed());
    assert!(memory < 8 << 10, "{memory} MiB");
}

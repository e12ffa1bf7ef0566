//! Schedules on a machine, held against an oracle of its own: LogGOPS's rules as they are published, a heap of
//! events and nothing else.

use fabric_sim::{RunError, Topology};
use machine_sim::goal::{self, Action, Schedule, patterns};
use machine_sim::model::{Parameters, SizeClass};
use machine_sim::{MachineConfig, crossbar};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// L, o, g in nanoseconds; G, O in picoseconds per byte.
#[derive(Clone, Copy, Debug)]
struct LogGops {
    latency: u64,
    overhead: u64,
    gap: u64,
    gap_per_byte: u64,
    overhead_per_byte: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begin { rank: usize, place: usize },
    Message { from: usize, to: usize, tag: u32, bytes: u64 },
}

/// When the processors of all ranks have ended their last operations, in picoseconds: operations take their
/// processor in the order of time, and then of their becoming possible.
fn oracle(schedule: &Schedule, model: LogGops) -> Vec<u64> {
    let LogGops { latency, overhead, gap, gap_per_byte, overhead_per_byte } = model;
    let ranks = schedule.ranks.len();
    let (mut processor, mut sends, mut receives) = (vec![0; ranks], vec![0; ranks], vec![0; ranks]);
    let mut done: Vec<Vec<Option<u64>>> = schedule.ranks.iter().map(|all| vec![None; all.len()]).collect();
    let mut begun: Vec<Vec<bool>> = schedule.ranks.iter().map(|all| vec![false; all.len()]).collect();
    let mut posted = vec![VecDeque::<(u32, u32, usize)>::new(); ranks];
    let mut unexpected = vec![VecDeque::<(u32, u32, u64)>::new(); ranks];
    let (mut heap, mut number) = (BinaryHeap::new(), 0u64);
    let mut push = |heap: &mut BinaryHeap<Reverse<(u64, u64, Event)>>, at: u64, event: Event| {
        number += 1;
        heap.push(Reverse((at, number, event)));
    };
    let free = |done: &[Option<u64>], operation: &goal::Operation| {
        operation
            .requires
            .iter()
            .map(|other| done[*other as usize])
            .try_fold(0, |last: u64, at| Some(last.max(at?)))
    };
    for (rank, all) in schedule.ranks.iter().enumerate() {
        for (place, _) in all.iter().enumerate().filter(|(_, operation)| operation.requires.is_empty()) {
            begun[rank][place] = true;
            push(&mut heap, 0, Event::Begin { rank, place });
        }
    }
    while let Some(Reverse((now, _, event))) = heap.pop() {
        let mut ended = None;
        match event {
            Event::Begin { rank, place } => match schedule.ranks[rank][place].action {
                Action::Calc(nanos) => {
                    if processor[rank] > now {
                        push(&mut heap, processor[rank], event);
                        continue;
                    }
                    processor[rank] = now + 1000 * nanos;
                    ended = Some((rank, place, processor[rank]));
                }
                Action::Send { bytes, to, tag } => {
                    let possible = processor[rank].max(sends[rank]);
                    if possible > now {
                        push(&mut heap, possible, event);
                        continue;
                    }
                    processor[rank] = now + 1000 * overhead + (bytes - 1) * overhead_per_byte;
                    sends[rank] = now + 1000 * gap + (bytes - 1) * gap_per_byte;
                    let message = Event::Message { from: rank, to: to as usize, tag, bytes };
                    push(&mut heap, now + 1000 * (overhead + latency), message);
                    ended = Some((rank, place, processor[rank]));
                }
                Action::Receive { from, tag, .. } => {
                    let (from, tag) = (from.unwrap(), tag.unwrap());
                    let here =
                        unexpected[rank].iter().position(|(source, tagged, _)| (*source, *tagged) == (from, tag));
                    match here {
                        None => posted[rank].push_back((from, tag, place)),
                        Some(index) => {
                            ended = Some((rank, place, unexpected[rank].remove(index).unwrap().2.max(now)))
                        }
                    }
                }
            },
            Event::Message { from, to, tag, bytes } => {
                let possible = processor[to].max(receives[to]);
                if possible > now {
                    push(&mut heap, possible, event);
                    continue;
                }
                let copy = (bytes - 1) * overhead_per_byte.max(gap_per_byte);
                processor[to] = now + 1000 * overhead + copy;
                receives[to] = now + 1000 * gap + (bytes - 1) * gap_per_byte;
                let wanted =
                    posted[to].iter().position(|(source, tagged, _)| (*source as usize, *tagged) == (from, tag));
                match wanted {
                    None => unexpected[to].push_back((from as u32, tag, processor[to])),
                    Some(index) => ended = Some((to, posted[to].remove(index).unwrap().2, processor[to])),
                }
            }
        }
        if let Some((rank, place, at)) = ended {
            done[rank][place] = Some(at);
            for (next, operation) in schedule.ranks[rank].iter().enumerate() {
                if !begun[rank][next]
                    && let Some(at) = free(&done[rank], operation)
                {
                    begun[rank][next] = true;
                    push(&mut heap, at, Event::Begin { rank, place: next });
                }
            }
        }
    }
    assert!(done.iter().flatten().all(Option::is_some), "the oracle's schedule ends");
    processor
}

fn machine(model: LogGops) -> MachineConfig {
    let class = SizeClass {
        up_to: None,
        send_ns: model.overhead as f64,
        receive_ns: model.overhead as f64,
        gap_ns: model.gap as f64,
        gap_per_byte_ns: model.gap_per_byte as f64 / 1e3,
        overhead_per_byte_ns: model.overhead_per_byte as f64 / 1e3,
    };
    let mut machine = crossbar(1);
    machine.parameters =
        Parameters { sizes: vec![class], ..Parameters::loggp(model.latency as f64, 0.0, 0.0, 0.0) };
    machine
}

fn on_crossbar(schedule: &Schedule, model: LogGops) -> goal::ScheduleReport {
    let nodes = schedule.ranks.len() as u32;
    goal::run(&MachineConfig { topology: Topology::Crossbar { nodes }, ..machine(model) }, schedule).unwrap()
}

/// LogGOPSim's defaults, an interface slower than its processor, and a processor that copies.
const MODELS: [LogGops; 3] = [
    LogGops { latency: 2500, overhead: 1500, gap: 1000, gap_per_byte: 6000, overhead_per_byte: 0 },
    LogGops { latency: 700, overhead: 120, gap: 900, gap_per_byte: 80, overhead_per_byte: 0 },
    LogGops { latency: 1000, overhead: 300, gap: 50, gap_per_byte: 40, overhead_per_byte: 250 },
];

#[test]
fn collectives_take_as_long_as_loggops_says() {
    for model in MODELS {
        for bytes in [1, 8, 4096, 1 << 20] {
            for ranks in [1, 2, 3, 7, 16, 33] {
                for (name, schedule) in [
                    ("broadcast", patterns::binomial_broadcast(ranks, bytes)),
                    ("barrier", patterns::dissemination_barrier(ranks, bytes)),
                    ("alltoall", patterns::linear_alltoall(ranks, bytes)),
                ] {
                    let expected = oracle(&schedule, model).into_iter().max().unwrap();
                    let found = on_crossbar(&schedule, model).ended.into_iter().max().unwrap().0;
                    let apart = found.abs_diff(expected) as f64 / expected.max(1) as f64;
                    assert!(
                        apart < 0.01,
                        "{name} of {ranks} ranks, {bytes} bytes, {model:?}: {found} against {expected}"
                    );
                }
            }
        }
    }
}

/// What the published formulas say of small cases.
#[test]
fn collectives_take_as_long_as_by_hand() {
    let model = MODELS[0];
    let last = |schedule: Schedule| on_crossbar(&schedule, model).ended.into_iter().max().unwrap().0 / 1000;
    // A round trip's half: o + L + o.
    assert_eq!(last(patterns::binomial_broadcast(2, 1)), 1500 + 2500 + 1500);
    // Three generations one after the other, where a rank sends to its children in turn: the last leaf is 3 (L + 2
    // o) deep.
    assert_eq!(last(patterns::binomial_broadcast(8, 1)), 3 * (2500 + 2 * 1500));
    assert_eq!(last(patterns::dissemination_barrier(8, 1)), 3 * (2500 + 2 * 1500));
    // o + L + o, and a byte takes 6 ns.
    assert_eq!(last(patterns::binomial_broadcast(2, 1001)), 1500 + 2500 + 1500 + 6000);
}

#[test]
fn processors_and_interfaces_work_beside_each_other() {
    let schedule = |cpu: u8| {
        format!(
            "num_ranks 1\nrank 0 {{ a: calc 500 cpu 0\n b: calc 700 cpu {cpu}\n c: calc 10 cpu {cpu}\n c requires a\n c requires b }}"
        )
    };
    let took = |cpu| on_crossbar(&schedule(cpu).parse().unwrap(), MODELS[0]).ended[0].0 / 1000;
    assert_eq!((took(0), took(1)), (1210, 710));
}

#[test]
fn what_has_begun_is_enough_for_irequires() {
    let text = |word: &str| {
        format!(
            "num_ranks 2\nrank 0 {{ r: recv 1b from 1\n s: send 1b to 1\n s {word} r }}\nrank 1 {{ r: recv 1b from 0\n s: send 1b to 0\n s requires r }}"
        )
    };
    assert!(on_crossbar(&text("irequires").parse().unwrap(), MODELS[0]).ended[0].0 > 0);
    let machine = MachineConfig { topology: Topology::Crossbar { nodes: 2 }, ..machine(MODELS[0]) };
    let stuck = goal::run(&machine, &text("requires").parse().unwrap());
    let Err(RunError::Deadlock(report)) = stuck else { panic!("{stuck:?}") };
    let text = report.to_string();
    assert!(text.contains("2 operations are left; it receives from 1 with tag 0"), "{text}");
}

/// Above the eager limit a send has ended only when its message was received.
#[test]
fn long_messages_wait_for_their_receiver() {
    let schedule: Schedule = "num_ranks 2\nrank 0 { s: send 100b to 1\n c: calc 1\n c requires s }\n\
                              rank 1 { w: calc 100000\n r: recv 100b from 0\n r requires w }"
        .parse()
        .unwrap();
    let took = |eager| {
        let mut machine = MachineConfig { topology: Topology::Crossbar { nodes: 2 }, ..machine(MODELS[0]) };
        machine.parameters.eager_bytes = eager;
        goal::run(&machine, &schedule).unwrap().ended[0].0 / 1000
    };
    assert_eq!((took(None), took(Some(100))), (1501, 1501));
    assert!(took(Some(99)) > 100_000);
}

#[test]
fn what_cannot_run_is_refused() {
    let schedule = patterns::binomial_broadcast(4, 8);
    let mut machine = MachineConfig { topology: Topology::Crossbar { nodes: 4 }, ..machine(MODELS[0]) };
    machine.faults.loss = 0.1;
    let error = goal::run(&machine, &schedule).unwrap_err().to_string();
    assert!(error.contains("faults contradicts a schedule") && error.contains("link_retry"), "{error}");
    machine.faults.link_retry = true;
    assert!(goal::run(&machine, &schedule).is_ok());
    machine.topology = Topology::Crossbar { nodes: 3 };
    let error = goal::run(&machine, &schedule).unwrap_err().to_string();
    assert!(error.contains("ranks is 4, but must be at most 3 nodes times 1"), "{error}");
}

/// A linear all-to-all takes longer where links are shared.
#[test]
fn networks_slow_schedules_down() {
    let schedule = patterns::linear_alltoall(16, 100_000);
    let took = |topology: &str| {
        let mut machine = MachineConfig { topology: topology.parse().unwrap(), ..machine(MODELS[1]) };
        machine.parameters.link = fabric_sim::LinkParameters { bandwidth_mb_s: 12_500.0, latency_ns: 50.0 };
        goal::run(&machine, &schedule).unwrap().ended.into_iter().max().unwrap()
    };
    assert!(took("ring:16") > took("fat_tree:4x2"));
}

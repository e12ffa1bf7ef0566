//! Random schedules on a machine, held against a reference of its own kind: no events and no queue, but again and
//! again the one thing that can begin soonest, searched among all that is left.

use am_core::Instant;
use fabric_sim::{RunError, Topology, splitmix64};
use machine_sim::goal::{self, Action, Operation, Schedule};
use machine_sim::model::{Parameters, SizeClass};
use machine_sim::{MachineConfig, crossbar};

/// All in picoseconds.
#[derive(Clone, Copy, Debug)]
struct Model {
    latency: u64,
    send: u64,
    receive: u64,
    gap: u64,
    per_byte: u64,
    copy: u64,
    eager: u64,
}

/// What has arrived and was not taken in.
#[derive(Clone, Copy, Debug)]
struct Message {
    from: usize,
    to: usize,
    tag: u32,
    bytes: u64,
    place: usize,
    arrived: u64,
    cpu: u8,
    nic: u8,
}

/// What is known of an operation: when it began and ended, by how many steps at that time it could begin, and how
/// many things began before.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    begun: Option<u64>,
    ended: Option<u64>,
    steps: u64,
    number: u64,
}

/// When something became possible; by how many steps at that time, since receives whose message is there begin and
/// end at once; and behind which beginning.
type Since = (u64, u64, u64);

#[derive(Default)]
struct Rank {
    cpu: [u64; 3],
    sending: [u64; 3],
    receiving: [u64; 3],
    known: Vec<Known>,
    /// When what began last had become possible, of what receives let begin that ended at once, and of everything
    /// else.
    last: [Option<Since>; 2],
    /// Receives by place, in the order of their being posted; messages that were taken in, with the time at which
    /// that has ended.
    posted: Vec<usize>,
    taken: Vec<(Message, u64)>,
}

fn fits(operation: &Operation, message: &Message) -> bool {
    let Action::Receive { from, tag, .. } = operation.action else { return false };
    from.is_none_or(|from| from as usize == message.from) && tag.is_none_or(|tag| tag == message.tag)
}

/// When an operation became possible, if all that it requires is known to have ended.
fn possible(operation: &Operation, known: &[Known]) -> Option<Since> {
    let ends = operation.requires.iter().map(|other| {
        let other = &known[*other as usize];
        let steps = if other.ended == other.begun { other.steps + 2 } else { 1 };
        Some((other.ended?, steps, other.number))
    });
    ends.into_iter().try_fold((0, 0, 0), |last: Since, at| Some(last.max(at?)))
}

/// What a schedule comes to.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// When the processors of each rank had ended.
    Ends(Vec<Instant>),
    /// Some operations wait for each other for ever.
    Hangs,
    /// Several things ended at the same time, each of which let an operation begin, and the rules do not say which
    /// is first.
    Open,
}

fn reference(schedule: &Schedule, model: Model) -> Outcome {
    let length = |bytes: u64, rate: u64| bytes.saturating_sub(1) * rate;
    let mut ranks: Vec<Rank> = schedule
        .ranks
        .iter()
        .map(|all| Rank { known: vec![Known::default(); all.len()], ..Rank::default() })
        .collect();
    let (mut flying, mut number) = (Vec::<Message>::new(), 0);
    // A message was matched with a receive: when both sides have ended.
    let matched = |ranks: &mut [Rank], message: &Message, place: usize, processed: u64, now: u64| {
        ranks[message.to].known[place].ended = Some(processed.max(now));
        if message.bytes > model.eager {
            ranks[message.from].known[message.place].ended = Some(now + model.latency);
        }
    };
    loop {
        // Of all that may begin, the soonest, and of those that which was possible first.
        let mut first: Option<(u64, Since, usize, Result<usize, usize>)> = None;
        let mut offer = |begins, since, rank, what| {
            let offered = (begins, since, rank, what);
            if first.is_none_or(|(at, order, ..)| (begins, since) < (at, order)) {
                first = Some(offered);
            }
        };
        for (rank, operations) in schedule.ranks.iter().enumerate() {
            let state = &ranks[rank];
            for (place, operation) in
                operations.iter().enumerate().filter(|(place, _)| state.known[*place].begun.is_none())
            {
                let Some(since) = possible(operation, &state.known) else { continue };
                let (cpu, nic) =
                    (state.cpu[usize::from(operation.cpu)], state.sending[usize::from(operation.nic)]);
                let free = match operation.action {
                    Action::Calc(_) => cpu,
                    Action::Send { .. } => cpu.max(nic),
                    Action::Receive { .. } => 0,
                };
                offer(since.0.max(free), since, rank, Ok(place));
            }
        }
        for (index, message) in flying.iter().enumerate() {
            let state = &ranks[message.to];
            let free = state.cpu[usize::from(message.cpu)].max(state.receiving[usize::from(message.nic)]);
            offer(message.arrived.max(free), (message.arrived, 0, 0), message.to, Err(index));
        }
        let Some((now, since, rank, what)) = first else { break };
        number += 1;
        let receives = |place: usize| matches!(schedule.ranks[rank][place].action, Action::Receive { .. });
        if what.is_ok_and(|place| !receives(place)) {
            let way = usize::from(since.1 > 2);
            if ranks[rank].last[way].is_some_and(|other| other.0 == since.0 && other != since) {
                return Outcome::Open;
            }
            ranks[rank].last[way] = Some(since);
        }
        match what {
            Ok(place) => {
                let operation = &schedule.ranks[rank][place];
                let (cpu, nic) = (usize::from(operation.cpu), usize::from(operation.nic));
                let steps = if since.0 == now { since.1 } else { 0 };
                ranks[rank].known[place] = Known { begun: Some(now), ended: None, steps, number };
                match operation.action {
                    Action::Calc(nanos) => {
                        ranks[rank].cpu[cpu] = now + 1000 * nanos;
                        ranks[rank].known[place].ended = Some(now + 1000 * nanos);
                    }
                    Action::Send { bytes, to, tag } => {
                        let ended = now + model.send + length(bytes, model.copy);
                        ranks[rank].cpu[cpu] = ended;
                        ranks[rank].sending[nic] = now + model.gap + length(bytes, model.per_byte);
                        if bytes <= model.eager {
                            ranks[rank].known[place].ended = Some(ended);
                        }
                        let arrived = now + model.send + model.latency;
                        let (from, to) = (rank, to as usize);
                        let (cpu, nic) = (operation.cpu, operation.nic);
                        flying.push(Message { from, to, tag, bytes, place, arrived, cpu, nic });
                    }
                    Action::Receive { .. } => {
                        let here = ranks[rank].taken.iter().position(|(message, _)| fits(operation, message));
                        match here {
                            None => ranks[rank].posted.push(place),
                            Some(index) => {
                                let (message, processed) = ranks[rank].taken.remove(index);
                                matched(&mut ranks, &message, place, processed, now);
                            }
                        }
                    }
                }
            }
            Err(index) => {
                let message = flying.remove(index);
                let Message { to, bytes, .. } = message;
                let processed = now + model.receive + length(bytes, model.copy.max(model.per_byte));
                ranks[to].cpu[usize::from(message.cpu)] = processed;
                ranks[to].receiving[usize::from(message.nic)] = now + model.gap + length(bytes, model.per_byte);
                let wants = ranks[to].posted.iter().position(|place| fits(&schedule.ranks[to][*place], &message));
                match wants {
                    None => ranks[to].taken.push((message, processed)),
                    Some(index) => {
                        let place = ranks[to].posted.remove(index);
                        matched(&mut ranks, &message, place, processed, now);
                    }
                }
            }
        }
    }
    if ranks.iter().flat_map(|rank| &rank.known).any(|known| known.ended.is_none()) {
        return Outcome::Hangs;
    }
    Outcome::Ends(ranks.iter().map(|rank| Instant(rank.cpu.into_iter().max().unwrap_or(0))).collect())
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        splitmix64(&mut self.0) % limit
    }
}

/// Messages and computations drawn one after the other: what an operation requires was drawn before it. Receives
/// that take each other's messages can make some wait for ever all the same.
fn drawn(draw: &mut Draw, units: u64) -> Schedule {
    let ranks = 2 + draw.below(4) as usize;
    // Ranks begin at times of their own, so that no two things happen at the same time.
    let begins = |_| vec![Operation::new(Action::Calc(1 + draw.below(99_991)))];
    let mut schedule = Schedule { ranks: (0..ranks).map(begins).collect() };
    for _ in 0..4 + draw.below(36) {
        let one = draw.below(ranks as u64) as usize;
        if draw.below(3) == 0 {
            let (nanos, unit) = (1 + draw.below(7919), draw.below(units) as u8);
            add(&mut schedule, draw, one, Action::Calc(nanos), unit);
            continue;
        }
        let other = (one + 1 + draw.below(ranks as u64 - 1) as usize) % ranks;
        let (tag, bytes) = (draw.below(3) as u32, [0, 1, 8, 300, 5000][draw.below(5) as usize]);
        // A message and whatever receive gets it name the same processor and interface.
        let unit = ((one as u64 + u64::from(tag)) % units) as u8;
        add(&mut schedule, draw, one, Action::Send { bytes, to: other as u32, tag }, unit);
        let mut any = || units == 1 && draw.below(12) == 0;
        let (from, tag) = ((!any()).then_some(one as u32), (!any()).then_some(tag));
        add(&mut schedule, draw, other, Action::Receive { bytes, from, tag }, unit);
    }
    schedule
}

fn add(schedule: &mut Schedule, draw: &mut Draw, rank: usize, action: Action, unit: u8) {
    let operations = &mut schedule.ranks[rank];
    let mut operation = Operation { cpu: unit, nic: unit, ..Operation::new(action).after([0]) };
    for _ in 0..draw.below(3) {
        let other = draw.below(operations.len() as u64) as u32;
        if !operation.requires.contains(&other) {
            operation.requires.push(other);
        }
    }
    operations.push(operation);
}

const MODELS: [Model; 3] = [
    Model {
        latency: 2_500_003,
        send: 1_500_007,
        receive: 1_500_011,
        gap: 1_000_013,
        per_byte: 6007,
        copy: 0,
        eager: u64::MAX,
    },
    Model { latency: 700_001, send: 120_011, receive: 130_003, gap: 900_007, per_byte: 83, copy: 0, eager: 1000 },
    Model {
        latency: 1_000_003,
        send: 300_007,
        receive: 310_019,
        gap: 50_021,
        per_byte: 41,
        copy: 251,
        eager: 100,
    },
];

fn machine(ranks: usize, model: Model) -> MachineConfig {
    let nanos = |picos: u64| picos as f64 / 1e3;
    let class = SizeClass {
        up_to: None,
        send_ns: nanos(model.send),
        receive_ns: nanos(model.receive),
        gap_ns: nanos(model.gap),
        gap_per_byte_ns: nanos(model.per_byte),
        overhead_per_byte_ns: nanos(model.copy),
    };
    let parameters = Parameters {
        latency_ns: nanos(model.latency),
        sizes: vec![class],
        eager_bytes: (model.eager != u64::MAX).then_some(model.eager),
        packet_bytes: 1 << 30,
        ..Parameters::free()
    };
    MachineConfig { parameters, topology: Topology::Crossbar { nodes: ranks as u32 }, ..crossbar(1) }
}

/// Whether the reference knows what a schedule comes to, after it was found to come to that.
fn agrees(seed: u64, units: u64) -> bool {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let schedule = drawn(&mut draw, units);
    let model = MODELS[seed as usize % MODELS.len()];
    let expected = reference(&schedule, model);
    let found = match goal::run(&machine(schedule.ranks.len(), model), &schedule) {
        Ok(played) => Outcome::Ends(played.ended),
        Err(RunError::Deadlock(_)) => Outcome::Hangs,
        Err(error) => panic!("seed {seed}: {error}\n{schedule}"),
    };
    let open = expected == Outcome::Open;
    assert!(open || found == expected, "seed {seed} with {model:?}: {found:?} against {expected:?}\n{schedule}");
    !open
}

#[test]
fn random_schedules_end_when_the_reference_says() {
    let known = (0..400).filter(|seed| agrees(*seed, 1)).count();
    assert!(known > 300, "the reference knows {known} of 400");
}

#[test]
fn random_schedules_match_on_several_processors() {
    let known = (1000..1400).filter(|seed| agrees(*seed, 3)).count();
    assert!(known > 300, "the reference knows {known} of 400");
}

/// Written as text and read again, a schedule is the same.
#[test]
fn random_schedules_survive_their_text() {
    for seed in 0..50 {
        let schedule = drawn(&mut Draw(seed), 3);
        let read: Schedule = schedule.to_string().parse().unwrap_or_else(|error| panic!("{error}\n{schedule}"));
        assert_eq!(read, schedule, "{schedule}");
    }
}

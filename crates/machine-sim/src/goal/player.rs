//! Runs schedules: a state machine of each rank, moved by the network's events.

use super::{Action, Operation, Schedule};
use crate::MachineConfig;
use crate::config::{Shared, shared};
use am_core::{Instant, Span};
use fabric_sim::{ConfigError, Context, Device, DeviceContext, Outgoing, Packet, Report, RunError, Sim, WaitFor};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What a schedule came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Played {
    /// When each rank's processors had ended its last operation.
    pub ended: Vec<Instant>,
    /// The same, with the gaps of its interfaces behind the last messages.
    pub quiet: Vec<Instant>,
    /// What the network did.
    pub report: Report<()>,
}

/// What a message says.
#[derive(Clone, Copy, Debug)]
enum Letter {
    Message {
        tag: u32,
        bytes: u64,
        place: u32,
        cpu: u8,
        nic: u8,
    },
    /// The long message of this place was received.
    Matched {
        place: u32,
    },
}

/// Things that come to their time: an operation may begin, one has ended, a message wants its processor.
const BEGIN: u32 = 0;
const END: u32 = 1;
const MESSAGE: u32 = 2;

type Port<'a> = DeviceContext<'a, Letter>;

/// Where an operation stands.
struct State {
    /// What it still waits for.
    missing: u32,
    /// Who waits for its end and its beginning.
    after: Vec<u32>,
    behind: Vec<u32>,
}

struct Process {
    rank: u32,
    operations: Vec<Operation>,
    states: Vec<State>,
    left: usize,
    begun: bool,
    /// When each processor, and each interface's sending and receiving side, is free.
    cpu: Vec<Instant>,
    sending: Vec<Instant>,
    receiving: Vec<Instant>,
    /// Receives without a message, and messages without a receive: source, tag, place and size.
    posted: VecDeque<(Option<u32>, Option<u32>, u32)>,
    unexpected: VecDeque<(u32, u32, u32, u64, Instant)>,
}

struct Player {
    shared: Rc<Shared>,
    processes: Vec<Process>,
}

/// Number of units that operations name.
fn units(operations: &[Operation], of: impl Fn(&Operation) -> u8) -> usize {
    operations.iter().map(of).max().map_or(1, |most| usize::from(most) + 1)
}

impl Process {
    fn new(rank: u32, operations: Vec<Operation>) -> Self {
        let mut states: Vec<State> =
            operations.iter().map(|_| State { missing: 0, after: Vec::new(), behind: Vec::new() }).collect();
        for (place, operation) in operations.iter().enumerate() {
            states[place].missing = (operation.requires.len() + operation.irequires.len()) as u32;
            operation.requires.iter().for_each(|other| states[*other as usize].after.push(place as u32));
            operation.irequires.iter().for_each(|other| states[*other as usize].behind.push(place as u32));
        }
        let free = |count| vec![Instant(0); count];
        let (cpus, nics) =
            (units(&operations, |operation| operation.cpu), units(&operations, |operation| operation.nic));
        let left = operations.len();
        let (posted, unexpected) = Default::default();
        let (cpu, sending, receiving) = (free(cpus.max(256.min(cpus))), free(nics), free(nics));
        Self { rank, operations, states, left, begun: false, cpu, sending, receiving, posted, unexpected }
    }

    fn unit(units: &mut Vec<Instant>, index: u8) -> &mut Instant {
        if units.len() <= index.into() {
            units.resize(usize::from(index) + 1, Instant(0));
        }
        &mut units[usize::from(index)]
    }
}

impl Player {
    fn process(&mut self, rank: u32) -> &mut Process {
        let found = self.processes.binary_search_by_key(&rank, |process| process.rank);
        &mut self.processes[found.expect("a player is asked for the ranks of its node")]
    }

    /// Lets something come to a rank at a time.
    fn later(rank: u32, from: u32, at: Instant, letter: Letter, token: u32, port: &mut Port<'_>) {
        let number = port.number();
        let packet = Packet { number, from, to: rank, bytes: 0, sent: port.now(), corrupt: false, body: letter };
        port.defer(at, packet, token);
    }

    fn begin(&mut self, rank: u32, place: u32, port: &mut Port<'_>) {
        let (now, shared) = (port.now(), Rc::clone(&self.shared));
        let process = self.process(rank);
        let Operation { action, cpu, nic, .. } = process.operations[place as usize];
        let letter = Letter::Matched { place };
        match action {
            Action::Calc(nanos) => {
                let free = Process::unit(&mut process.cpu, cpu);
                if *free > now {
                    return Self::later(rank, rank, *free, letter, BEGIN, port);
                }
                *free = now + port.slowed(Span::from_nanos(nanos));
                let ends = *free;
                Self::later(rank, rank, ends, letter, END, port);
            }
            Action::Send { bytes, to, tag } => {
                let free = (*Process::unit(&mut process.cpu, cpu)).max(*Process::unit(&mut process.sending, nic));
                if free > now {
                    return Self::later(rank, rank, free, letter, BEGIN, port);
                }
                let class = shared.costs.class(bytes);
                let ends = now + port.slowed(class.sending(bytes));
                *Process::unit(&mut process.cpu, cpu) = ends;
                *Process::unit(&mut process.sending, nic) = now + class.gap(bytes);
                let at = Some(now + port.slowed(class.send_overhead()));
                let length = u32::try_from(bytes).unwrap_or(u32::MAX);
                let message = Letter::Message { tag, bytes, place, cpu, nic };
                port.send_as(Outgoing { at, ..Outgoing::new(rank, to, length, message) });
                if bytes <= shared.costs.eager {
                    Self::later(rank, rank, ends, letter, END, port);
                }
            }
            Action::Receive { from, tag, .. } => {
                let fits = |(source, tagged, ..): &(u32, u32, u32, u64, Instant)| {
                    from.is_none_or(|from| from == *source) && tag.is_none_or(|tag| tag == *tagged)
                };
                match process.unexpected.iter().position(fits) {
                    None => process.posted.push_back((from, tag, place)),
                    Some(index) => {
                        let (source, _, theirs, bytes, processed) =
                            process.unexpected.remove(index).expect("the position was just found");
                        Self::later(rank, rank, processed.max(now), letter, END, port);
                        if bytes > shared.costs.eager {
                            Self::matched(rank, source, theirs, port);
                        }
                    }
                }
            }
        }
        self.advance(rank, place, false, port);
    }

    /// Tells the sender of a long message that it was received.
    fn matched(rank: u32, source: u32, place: u32, port: &mut Port<'_>) {
        port.send(rank, source, 0, Letter::Matched { place });
    }

    /// An operation has ended, or begun: what requires that may begin.
    fn advance(&mut self, rank: u32, place: u32, ended: bool, port: &mut Port<'_>) {
        let now = port.now();
        let process = self.process(rank);
        let state = &mut process.states[place as usize];
        let next = std::mem::take(if ended { &mut state.after } else { &mut state.behind });
        for other in next {
            let state = &mut process.states[other as usize];
            state.missing -= 1;
            if state.missing == 0 {
                Self::later(rank, rank, now, Letter::Matched { place: other }, BEGIN, port);
            }
        }
        if ended {
            process.left -= 1;
            if process.left == 0 {
                port.wake(rank);
            }
        }
    }

    /// A message wants the processor and the interface.
    fn message(&mut self, packet: Packet<Letter>, port: &mut Port<'_>) {
        let Packet { from, to, body, .. } = packet;
        let Letter::Message { tag, bytes, place, cpu, nic } = body else { return };
        let (now, shared) = (port.now(), Rc::clone(&self.shared));
        let process = self.process(to);
        let wants = |(source, tagged, _): &(Option<u32>, Option<u32>, u32)| {
            source.is_none_or(|source| source == from) && tagged.is_none_or(|tagged| tagged == tag)
        };
        let index = process.posted.iter().position(wants);
        let (cpu, nic) = index.map_or((cpu, nic), |index| {
            let operation = &process.operations[process.posted[index].2 as usize];
            (operation.cpu, operation.nic)
        });
        let free = (*Process::unit(&mut process.cpu, cpu)).max(*Process::unit(&mut process.receiving, nic));
        if free > now {
            return port.defer(free, packet, MESSAGE);
        }
        let class = shared.costs.class(bytes);
        let ends = now + port.slowed(class.receive_overhead()) + class.copy(bytes).max(class.length(bytes));
        *Process::unit(&mut process.cpu, cpu) = ends;
        *Process::unit(&mut process.receiving, nic) = now + class.gap(bytes);
        match index {
            None => process.unexpected.push_back((from, tag, place, bytes, ends)),
            Some(index) => {
                let (.., ours) = process.posted.remove(index).expect("the position was just found");
                Self::later(to, to, ends, Letter::Matched { place: ours }, END, port);
                if bytes > shared.costs.eager {
                    Self::matched(to, from, place, port);
                }
            }
        }
    }

    /// Lets all operations of a rank begin that require nothing.
    fn start(&mut self, rank: u32, port: &mut Port<'_>) {
        let now = port.now();
        let process = self.process(rank);
        if std::mem::replace(&mut process.begun, true) {
            return;
        }
        for place in
            (0..process.operations.len() as u32).filter(|place| process.states[*place as usize].missing == 0)
        {
            Self::later(rank, rank, now, Letter::Matched { place }, BEGIN, port);
        }
    }
}

impl Device for Player {
    type Body = Letter;

    fn arrive(&mut self, packet: Packet<Letter>, port: &mut Port<'_>) {
        let mut at = port.now() + self.shared.costs.latency;
        let token = match packet.body {
            Letter::Matched { .. } => END,
            Letter::Message { bytes, .. } => {
                // The receiver begins with the first byte, and ends with the last.
                let costs = &self.shared.costs;
                let early = costs.on_link(bytes).min(costs.class(bytes).length(bytes));
                at = Instant(at.0 - early.0);
                MESSAGE
            }
        };
        port.defer(at, packet, token);
    }

    fn due(&mut self, packet: Packet<Letter>, token: u32, port: &mut Port<'_>) {
        match (token, packet.body) {
            (BEGIN, Letter::Matched { place }) => self.begin(packet.to, place, port),
            (END, Letter::Matched { place }) => self.advance(packet.to, place, true, port),
            _ => self.message(packet, port),
        }
    }

    fn explain(&self, rank: u32) -> Option<String> {
        let process = self.processes.iter().find(|process| process.rank == rank)?;
        let first = process.posted.front().map(|(from, tag, _)| {
            let name = |of: &Option<u32>| of.map_or_else(|| "any".into(), |of| of.to_string());
            format!("; it receives from {} with tag {}", name(from), name(tag))
        });
        Some(format!("{} operations are left{}", process.left, first.unwrap_or_default()))
    }
}

/// Runs a checked schedule.
pub(super) fn play(machine: &MachineConfig, schedule: &Schedule) -> Result<Played, RunError> {
    let shared = Rc::new(shared(machine)?);
    if shared.lossy {
        let (field, other) = ("faults".into(), "a schedule".into());
        let reason = "its messages are not sent again where links lose them; set faults.link_retry".into();
        return Err(ConfigError::Contradiction { field, other, reason }.into());
    }
    let network = machine.network()?;
    let times = Rc::new(RefCell::new(vec![(Instant(0), Instant(0)); schedule.ranks.len()]));
    let found = Rc::clone(&times);
    let device = |_: u32, ranks: &[u32]| {
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        let process = |rank: u32| Process::new(rank, schedule.ranks[rank as usize].clone());
        Player { shared: Rc::clone(&shared), processes: ranks.into_iter().map(process).collect() }
    };
    let report = Sim::run_with(&network, device, move |rank: Context<'_, Player>| {
        let me = rank.rank();
        rank.device(|player, port| player.start(me, port));
        while rank.device(|player, _| player.process(me).left != 0) {
            rank.idle(None, WaitFor::Named("the end of its schedule"));
        }
        let times = rank.device(|player, _| {
            let process = player.process(me);
            let last = |units: &[Instant]| units.iter().copied().max().unwrap_or_default();
            let ended = last(&process.cpu);
            (ended, ended.max(last(&process.sending)).max(last(&process.receiving)))
        });
        found.borrow_mut()[me as usize] = times;
    })?;
    let (ended, quiet) = times.take().into_iter().unzip();
    Ok(Played { ended, quiet, report })
}

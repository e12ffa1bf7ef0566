//! Runs schedules: a state machine of each rank, moved by the network's events.

use super::{Action, Operation, Schedule};
use crate::MachineConfig;
use crate::config::{Shared, shared};
use am_core::{Instant, Span};
use fabric_sim::{ConfigError, Context, Device, DeviceContext, Outgoing, Packet, Report, RunError, Sim, WaitFor};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// What a schedule came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScheduleReport {
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

/// Things that come to their time: an operation may begin, one has ended, a message wants its processor, something
/// is free again.
const BEGIN: u32 = 0;
const END: u32 = 1;
const MESSAGE: u32 = 2;
const FREE: u32 = 3;

type Port<'a> = DeviceContext<'a, Letter>;

/// Where an operation stands.
struct State {
    /// What it still waits for.
    missing: u32,
    /// Who waits for its end and its beginning.
    after: Vec<u32>,
    behind: Vec<u32>,
}

/// What an operation or a message occupies: a processor, and an interface's sending (false) or receiving (true)
/// side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Need {
    cpu: u8,
    side: Option<(bool, u8)>,
}

/// What waits for what it needs.
#[derive(Clone, Copy, Debug)]
enum Work {
    Operation(u32),
    Message { from: u32, tag: u32, bytes: u64, place: u32 },
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
    /// What waits, by what it needs, in the order in which it became possible: its number in that order, over all
    /// needs.
    waiting: BTreeMap<Need, VecDeque<(u64, Work)>>,
    tickets: u64,
    /// When the rank is looked at again because something is free.
    retry: Option<Instant>,
}

struct Player {
    shared: Rc<Shared>,
    processes: Vec<Process>,
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
        Self {
            rank,
            left: operations.len(),
            operations,
            states,
            begun: false,
            cpu: vec![Instant(0)],
            sending: vec![Instant(0)],
            receiving: vec![Instant(0)],
            posted: VecDeque::new(),
            unexpected: VecDeque::new(),
            waiting: BTreeMap::new(),
            tickets: 0,
            retry: None,
        }
    }

    /// When a unit is free; those that nobody has used yet are.
    fn unit(units: &mut Vec<Instant>, index: u8) -> &mut Instant {
        if units.len() <= index.into() {
            units.resize(usize::from(index) + 1, Instant(0));
        }
        &mut units[usize::from(index)]
    }

    fn side(&mut self, (receives, nic): (bool, u8)) -> &mut Instant {
        Self::unit(if receives { &mut self.receiving } else { &mut self.sending }, nic)
    }

    /// When all of what is needed is free.
    fn free_at(&self, need: Need) -> Instant {
        let of = |units: &[Instant], index: u8| units.get(usize::from(index)).copied().unwrap_or_default();
        let side =
            need.side.map(|(receives, nic)| of(if receives { &self.receiving } else { &self.sending }, nic));
        of(&self.cpu, need.cpu).max(side.unwrap_or_default())
    }

    fn wait(&mut self, need: Need, work: Work) {
        self.tickets += 1;
        self.waiting.entry(need).or_default().push_back((self.tickets, work));
    }

    /// What may begin now: of all that waits only for what is free, that which became possible first.
    fn next(&mut self, now: Instant) -> Option<(Need, Work)> {
        let free = self.waiting.iter().filter(|(need, _)| self.free_at(**need) <= now);
        let (_, need) = free.filter_map(|(need, queue)| Some((queue.front()?.0, *need))).min()?;
        let work = self.waiting.get_mut(&need)?.pop_front()?.1;
        Some((need, work))
    }

    /// When the first of what waits may begin, as far as is known.
    fn soonest(&self) -> Option<Instant> {
        let waiting = self.waiting.iter().filter(|(_, queue)| !queue.is_empty());
        waiting.map(|(need, _)| self.free_at(*need)).min()
    }

    /// The place among the posted receives of the first that wants a message.
    fn wanting(&self, from: u32, tag: u32) -> Option<usize> {
        self.posted.iter().position(|(source, tagged, _)| {
            source.is_none_or(|source| source == from) && tagged.is_none_or(|tagged| tagged == tag)
        })
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

    /// An operation may begin: it does, or waits for what it needs.
    fn begin(&mut self, rank: u32, place: u32, port: &mut Port<'_>) {
        let process = self.process(rank);
        let Operation { action, cpu, nic, .. } = process.operations[place as usize];
        match action {
            Action::Calc(_) => process.wait(Need { cpu, side: None }, Work::Operation(place)),
            Action::Send { .. } => process.wait(Need { cpu, side: Some((false, nic)) }, Work::Operation(place)),
            Action::Receive { from, tag, .. } => {
                self.post(rank, place, (from, tag), port);
                return self.advance(rank, place, false, port);
            }
        }
        self.proceed(rank, port);
    }

    /// Lets begin what may, and looks again when more may.
    fn proceed(&mut self, rank: u32, port: &mut Port<'_>) {
        let now = port.now();
        while let Some((need, work)) = self.process(rank).next(now) {
            match work {
                Work::Operation(place) => self.run(rank, place, need, port),
                Work::Message { from, tag, bytes, place } => {
                    self.take(rank, need, (from, tag, bytes, place), port)
                }
            }
        }
        let process = self.process(rank);
        if let Some(at) = process.soonest()
            && process.retry.is_none_or(|retry| retry <= now || retry > at)
        {
            process.retry = Some(at);
            Self::later(rank, rank, at, Letter::Matched { place: 0 }, FREE, port);
        }
    }

    /// Computes or sends: what it needs is free.
    fn run(&mut self, rank: u32, place: u32, need: Need, port: &mut Port<'_>) {
        let (now, shared) = (port.now(), Rc::clone(&self.shared));
        let process = self.process(rank);
        let letter = Letter::Matched { place };
        match process.operations[place as usize].action {
            Action::Calc(nanos) => {
                let ends = now + port.slowed(Span::from_nanos(nanos));
                *Process::unit(&mut process.cpu, need.cpu) = ends;
                Self::later(rank, rank, ends, letter, END, port);
            }
            Action::Send { bytes, to, tag } => {
                let nic = need.side.map_or(0, |(_, nic)| nic);
                let class = shared.costs.class(bytes);
                let ends = now + port.slowed(class.sending(bytes));
                *Process::unit(&mut process.cpu, need.cpu) = ends;
                *process.side((false, nic)) = now + class.gap(bytes);
                let at = Some(now + port.slowed(class.send_overhead()));
                let length = u32::try_from(bytes).unwrap_or(u32::MAX);
                let message = Letter::Message { tag, bytes, place, cpu: need.cpu, nic };
                port.send_as(Outgoing { at, ..Outgoing::new(rank, to, length, message) });
                if bytes <= shared.costs.eager {
                    Self::later(rank, rank, ends, letter, END, port);
                }
            }
            Action::Receive { .. } => unreachable!("receives wait for messages, and for nothing else"),
        }
        self.advance(rank, place, false, port);
    }

    /// A receive is there: it gets the first message that has been taken in for it, or waits for one.
    fn post(&mut self, rank: u32, place: u32, (from, tag): (Option<u32>, Option<u32>), port: &mut Port<'_>) {
        let (now, eager) = (port.now(), self.shared.costs.eager);
        let process = self.process(rank);
        let fits = |(source, tagged, ..): &(u32, u32, u32, u64, Instant)| {
            from.is_none_or(|from| from == *source) && tag.is_none_or(|tag| tag == *tagged)
        };
        let Some(index) = process.unexpected.iter().position(fits) else {
            return process.posted.push_back((from, tag, place));
        };
        let (source, _, theirs, bytes, processed) =
            process.unexpected.remove(index).expect("the position was just found");
        Self::later(rank, rank, processed.max(now), Letter::Matched { place }, END, port);
        if bytes > eager {
            Self::matched(rank, source, theirs, port);
        }
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

    /// A message has arrived. It occupies what the receive that is posted for it names, or else what its sender
    /// did.
    fn message(&mut self, packet: Packet<Letter>, port: &mut Port<'_>) {
        let Packet { from, to, body, .. } = packet;
        let Letter::Message { tag, bytes, place, cpu, nic } = body else { return };
        let process = self.process(to);
        let (cpu, nic) = process.wanting(from, tag).map_or((cpu, nic), |index| {
            let operation = &process.operations[process.posted[index].2 as usize];
            (operation.cpu, operation.nic)
        });
        let work = Work::Message { from, tag, bytes, place };
        process.wait(Need { cpu, side: Some((true, nic)) }, work);
        self.proceed(to, port);
    }

    /// Takes a message in: what it needs is free.
    fn take(
        &mut self,
        rank: u32,
        need: Need,
        (from, tag, bytes, place): (u32, u32, u64, u32),
        port: &mut Port<'_>,
    ) {
        let (now, shared) = (port.now(), Rc::clone(&self.shared));
        let class = shared.costs.class(bytes);
        let ends = now + port.slowed(class.receive_overhead()) + class.copy(bytes).max(class.length(bytes));
        let process = self.process(rank);
        *Process::unit(&mut process.cpu, need.cpu) = ends;
        if let Some(side) = need.side {
            *process.side(side) = now + class.gap(bytes);
        }
        match process.wanting(from, tag) {
            None => process.unexpected.push_back((from, tag, place, bytes, ends)),
            Some(index) => {
                let (.., ours) = process.posted.remove(index).expect("the position was just found");
                Self::later(rank, rank, ends, Letter::Matched { place: ours }, END, port);
                if bytes > shared.costs.eager {
                    Self::matched(rank, from, place, port);
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
            (FREE, _) => self.proceed(packet.to, port),
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
pub(super) fn play(machine: &MachineConfig, schedule: &Schedule) -> Result<ScheduleReport, RunError> {
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
    Ok(ScheduleReport { ended, quiet, report })
}

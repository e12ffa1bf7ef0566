//! The adapter of a node, as the simulation drives it: it takes lines, questions and parts of DMA transfers,
//! writes to memory and answers, without its process's help.

use super::process::{Process, Wanting};
use super::wire::{Ask, Body, Line, Reply, Verdict, Wire};
use crate::model::{Costs, Parameters};
use crate::nic::code::Code;
use crate::nic::errors::{Injector, TransferErrors};
use crate::nic::kinds::{DmaState, LINE, NodeId, SegmentReason};
use crate::nic::mutation::{Defects, Mutation};
use am_core::{Instant, Span};
use fabric_sim::{Device, DeviceContext, Outgoing, Packet};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// What all adapters of a machine share.
pub struct Shared {
    /// The rank of each fabric node.
    pub(crate) ranks: RefCell<Vec<Option<u32>>>,
    pub(crate) parameters: Parameters,
    pub(crate) costs: Costs,
    pub(crate) errors: TransferErrors,
    pub(crate) seed: u64,
    /// The longest time by which a line is held back at its receiver, in picoseconds.
    pub(crate) reorder: u64,
    /// Whether the way between nodes can break.
    pub(crate) breakable: bool,
    pub(crate) defects: Defects,
}

impl Shared {
    /// The SCI number of a fabric node.
    pub(crate) const fn node_id(node: u32) -> NodeId {
        NodeId((node as u16 + 1) * 4)
    }

    /// The process at an SCI node. `None` if there is no such node, `Some(None)` if nobody runs there.
    pub(crate) fn rank_at(&self, node: NodeId) -> Option<Option<u32>> {
        let index = (node.0 / 4).checked_sub(1)?;
        if node.0.is_multiple_of(4) { self.ranks.borrow().get(usize::from(index)).copied() } else { None }
    }

    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.defects.has(mutation)
    }
}

/// The SCI adapter of a node, as the simulation drives it. Its process uses it through
/// [`Virtual`](crate::nic::Virtual).
pub struct Adapter {
    pub(super) shared: Rc<Shared>,
    pub(super) process: Option<Process>,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").field("rank", &self.process.as_ref().map(|p| p.rank)).finish_non_exhaustive()
    }
}

/// What happens to a packet that was set aside.
const ACCEPT: u32 = 0;
const LAND: u32 = 1;
const STEP: u32 = 2;
const READ: u32 = 3;

type Hands<'a> = DeviceContext<'a, Wire>;

impl Adapter {
    pub(crate) fn new(shared: Rc<Shared>, node: u32, ranks: &[u32]) -> Self {
        let rank = ranks.first().copied();
        let count = shared.ranks.borrow().len().max(node as usize + 1);
        let mut all = shared.ranks.borrow_mut();
        all.resize(count, None);
        all[node as usize] = rank;
        drop(all);
        let process = rank.map(|rank| {
            let injector = Injector::new(&shared.errors, shared.seed, Shared::node_id(node));
            Process::new(rank, shared.parameters.pio.outstanding, injector)
        });
        Self { shared, process }
    }

    /// The process, which is there whenever something is for it.
    #[inline]
    pub(super) fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("packets go to nodes with a process")
    }

    fn costs(&self) -> &Costs {
        &self.shared.costs
    }

    /// Lets the process go on if it has what it waits for in a call.
    fn wake_if_satisfied(&mut self, port: &mut Hands<'_>) {
        let process = self.process();
        if process.satisfied(port.now()) {
            let rank = process.rank;
            port.wake(rank);
        }
    }

    /// Lets the process go on wherever it waits.
    fn news(&mut self, port: &mut Hands<'_>) {
        let process = self.process();
        process.news = true;
        let rank = process.rank;
        port.wake(rank);
    }

    /// Sends something small back to where a packet came from, after a while.
    fn answer(&mut self, packet: &Packet<Wire>, after: Span, body: Body, port: &mut Hands<'_>) {
        let at = Some(port.now() + port.slowed(after));
        port.send_as(Outgoing { at, ..Outgoing::new(packet.to, packet.from, 0, Wire(body)) });
    }

    /// Whether a packet has been under way for so long that its sender has given it up.
    fn late(&self, packet: &Packet<Wire>, port: &Hands<'_>) -> bool {
        let over = port.now().since(packet.sent) >= self.costs().timeout;
        over && !self.shared.has(Mutation::TakeLate)
    }

    /// A line has reached the adapter: adversarial timing holds it back, but no line of the same address
    /// behind it.
    fn take_line(&mut self, packet: Packet<Wire>, address: u64, port: &mut Hands<'_>) {
        if packet.corrupt {
            let Body::Line { serial, .. } = packet.body.0 else { unreachable!("a line was taken") };
            let reply = self.costs().reply;
            return self.answer(&packet, reply, Body::Answer { serial, verdict: Verdict::Spoilt }, port);
        }
        let reorder = self.shared.reorder;
        if reorder == 0 {
            return self.accept_line(packet, port);
        }
        let now = port.now();
        let mut at = now + Span(port.random() % (reorder + 1));
        // Rule 1 of the sheet: stores into one line land in their order.
        let mixed = self.shared.has(Mutation::MixLine);
        let accepted = &mut self.process().accepted;
        accepted.retain(|(_, when)| *when >= now);
        match accepted.iter_mut().find(|(line, _)| *line == address) {
            Some((_, before)) if !mixed => {
                at = at.max(*before);
                *before = at;
            }
            _ => accepted.push((address, at)),
        }
        port.defer(at, packet, ACCEPT);
    }

    /// A line is answered, and lands a while later, after everything that was accepted before it.
    fn accept_line(&mut self, packet: Packet<Wire>, port: &mut Hands<'_>) {
        if self.late(&packet, port) {
            return;
        }
        let Body::Line { address, serial, .. } = packet.body.0 else { unreachable!("lines are accepted") };
        let found = self.process().at_address(offset(address), LINE).is_some();
        let verdict = if found { Verdict::Taken } else { Verdict::Nowhere };
        let reply = self.costs().reply;
        self.answer(&packet, reply, Body::Answer { serial, verdict }, port);
        if found {
            self.set_down(packet, LAND, port);
        }
    }

    /// Sets a packet aside until it lands, or is read: in the order of the calls.
    fn set_down(&mut self, packet: Packet<Wire>, token: u32, port: &mut Hands<'_>) {
        let land = port.slowed(self.costs().land);
        let process = self.process();
        let at = (port.now() + land).max(process.last_land);
        process.last_land = at;
        port.defer(at, packet, token);
    }

    /// A line lands.
    fn land_line(&mut self, address: u64, line: &Line, port: &mut Hands<'_>) {
        let Some((local, at)) = self.process().at_address(offset(address), LINE) else {
            return;
        };
        line.write(&local.memory, at);
        let noticed = local.watched.iter().any(|watched| {
            let inside = (at..at + LINE).contains(watched) && line.mask >> (watched - at) & 1 == 1;
            inside && local.memory.byte(*watched) != 0
        });
        if noticed {
            self.news(port);
        }
    }

    /// A part of a DMA transfer lands, and is answered.
    fn land_chunk(&mut self, packet: &Packet<Wire>, port: &mut Hands<'_>) {
        let Body::Chunk { queue, generation, address, ref source, at, len } = packet.body.0 else {
            unreachable!("parts of transfers land");
        };
        let verdict = match self.process().at_address(offset(address), len) {
            Some((local, goal)) => {
                source.copy(at, &local.memory, goal, len.min(local.size.saturating_sub(goal)));
                Verdict::Taken
            }
            None => Verdict::Nowhere,
        };
        if self.process().watched_now() {
            self.news(port);
        }
        let reply = self.costs().reply;
        self.answer(packet, reply, Body::ChunkAnswer { queue, generation, verdict }, port);
    }

    /// Answers a question.
    fn ask(&mut self, packet: Packet<Wire>, port: &mut Hands<'_>) {
        let Body::Ask { serial, ask } = packet.body.0 else { unreachable!("a question was asked") };
        let from = Shared::node_id(port.node_of(packet.from));
        let anyway = self.shared.has(Mutation::ConnectAnyway);
        let process = self.process();
        let result = match ask {
            Ask::Probe => Reply::Done,
            Ask::Connect { id, key } => match process.by_id(id) {
                None => Reply::Refused(Code::NoSuchSegment),
                // Rule 8 of the sheet: nobody is connected before the segment is available.
                Some(local) if !local.available && !anyway => Reply::Refused(Code::ConnectionRefused),
                Some(local) => {
                    let (base, size) = (local.base, local.size);
                    // A question asked twice connects once.
                    if !local.peers.contains(&(packet.from, key)) {
                        local.peers.push((packet.from, key));
                        let number = process.local_number(base).expect("the segment was just found");
                        process.local_event(number, from, SegmentReason::Connect);
                        self.news(port);
                    }
                    Reply::Connected { base, size }
                }
            },
            Ask::Disconnect { base, key } => {
                if let Some(number) = process.local_number(base) {
                    let peers = &mut process.locals.at(number).peers;
                    let before = peers.len();
                    peers.retain(|peer| *peer != (packet.from, key));
                    if peers.len() != before {
                        process.local_event(number, from, SegmentReason::Disconnect);
                        self.news(port);
                    }
                }
                Reply::Done
            }
            Ask::FindInterrupt { number } => {
                let found = process.interrupts.iter().any(|interrupt| interrupt.number == number);
                if found { Reply::Done } else { Reply::Refused(Code::NoSuchSegment) }
            }
            Ask::Read { .. } => {
                // A read pushes the stores before it.
                // Rule 6 of the sheet: a read comes after the stores before it.
                let ahead = self.shared.has(Mutation::ReadAhead);
                let fetched = port.now() + port.slowed(self.costs().fetch);
                let landed = if ahead { Instant(0) } else { self.process().last_land };
                return port.defer(fetched.max(landed), packet, READ);
            }
        };
        let reply = self.costs().reply;
        self.answer(&packet, reply, Body::Reply { serial, result }, port);
    }

    /// Reads a line for another node.
    fn read(&mut self, packet: &Packet<Wire>, port: &mut Hands<'_>) {
        use am_core::segment::Memory;
        let Body::Ask { serial, ask: Ask::Read { address, len } } = packet.body.0 else {
            unreachable!("only reads are set aside to be read");
        };
        let result = match self.process().at_address(offset(address), usize::from(len)) {
            Some((local, at)) => {
                let mut bytes = [0; LINE];
                local.memory.load(at, &mut bytes[..usize::from(len)]);
                Reply::Read(bytes)
            }
            None => Reply::Refused(Code::TransferFailed),
        };
        let body = Wire(Body::Reply { serial, result });
        port.send_as(Outgoing::new(packet.to, packet.from, LINE as u32, body));
    }

    /// The DMA engine sends the next part of a queue, and sets the time for the one after it.
    fn step(&mut self, number: u32, generation: u32, port: &mut Hands<'_>) {
        let (chunk, costs) = (self.shared.parameters.dma.chunk_bytes as usize, self.shared.costs);
        let process = self.process();
        let rank = process.rank;
        let Some(queue) = process.queues.get(number) else { return };
        if queue.generation != generation || queue.state != DmaState::Posted {
            return;
        }
        let transfer = &queue.transfers[queue.current];
        let len = chunk.min(transfer.len - queue.sent);
        let body = Body::Chunk {
            queue: number,
            generation,
            address: transfer.address + queue.sent as u64,
            source: transfer.source.clone(),
            at: transfer.at + queue.sent,
            len,
        };
        let to = transfer.rank;
        queue.sent += len;
        queue.bytes += len as u64;
        if queue.sent == transfer.len {
            (queue.current, queue.sent) = (queue.current + 1, 0);
        }
        let (begin, sent) = (queue.begin, queue.bytes);
        let next = queue.transfers.get(queue.current).map(|transfer| chunk.min(transfer.len - queue.sent));
        let injected = process.injector.draw();
        let queue = process.queues.at(number);
        queue.failed |= injected.is_some();
        let sends = injected.is_none_or(|injected| injected.lands);
        queue.unanswered += u32::from(sends);
        process.counters.failed_lines += u64::from(injected.is_some());
        if sends {
            let header = Some(len.div_ceil(LINE) as u32 * self.shared.parameters.pio.header_bytes);
            port.send_as(Outgoing { header, ..Outgoing::new(rank, to, len as u32, Wire(body)) });
        }
        match next {
            Some(next) => {
                let at = chunk_time(&costs, begin, sent, next);
                self.set_step(rank, number, generation, at, port);
            }
            None => self.wake_if_satisfied(port),
        }
    }

    /// Sets the time of the DMA engine's next part.
    pub(super) fn set_step(&self, rank: u32, queue: u32, generation: u32, at: Instant, port: &mut Hands<'_>) {
        let (sent, body) = (port.now(), Wire(Body::Step { queue, generation }));
        port.defer(at, Packet { number: 0, from: rank, to: rank, bytes: 0, sent, corrupt: false, body }, STEP);
    }

    fn chunk_answered(&mut self, number: u32, generation: u32, verdict: Verdict, port: &mut Hands<'_>) {
        let process = self.process();
        let Some(queue) = process.queues.get(number) else { return };
        if queue.generation != generation || queue.state != DmaState::Posted {
            return;
        }
        queue.unanswered -= 1;
        queue.failed |= verdict != Verdict::Taken;
        process.counters.failed_lines += u64::from(verdict != Verdict::Taken);
        self.wake_if_satisfied(port);
    }
}

/// When the DMA engine puts a part on the link: so that its tail leaves when the engine has read it.
pub(super) fn chunk_time(costs: &Costs, begin: Instant, sent: u64, len: usize) -> Instant {
    let end = begin + costs.engine(sent + len as u64);
    Instant(end.0.saturating_sub(costs.data(len as u64).0)).max(begin)
}

/// The offset of a global address in its node's space.
const fn offset(address: u64) -> u64 {
    address & ((1 << 48) - 1)
}

impl Device for Adapter {
    type Body = Wire;

    fn arrive(&mut self, packet: Packet<Wire>, port: &mut Hands<'_>) {
        match packet.body.0 {
            Body::Line { address, .. } => self.take_line(packet, address, port),
            Body::Chunk { queue, generation, .. } => {
                if packet.corrupt {
                    let reply = self.costs().reply;
                    let body = Body::ChunkAnswer { queue, generation, verdict: Verdict::Spoilt };
                    self.answer(&packet, reply, body, port);
                } else if !self.late(&packet, port) {
                    self.set_down(packet, LAND, port);
                }
            }
            // Whoever waits for what is spoilt asks again, or gives up.
            _ if packet.corrupt => {}
            Body::Answer { serial, verdict } => {
                self.process().answered(serial, verdict);
                self.wake_if_satisfied(port);
            }
            Body::ChunkAnswer { queue, generation, verdict } => {
                self.chunk_answered(queue, generation, verdict, port);
            }
            Body::Ask { .. } => self.ask(packet, port),
            Body::Reply { serial, result } => {
                if let Some((open, answer @ None)) = &mut self.process().asked
                    && *open == serial
                {
                    *answer = Some(result);
                    self.wake_if_satisfied(port);
                }
            }
            Body::Trigger { number } => {
                if self.process().triggered(number) {
                    self.news(port);
                }
            }
            Body::Step { .. } => unreachable!("it never leaves the adapter"),
        }
    }

    fn due(&mut self, packet: Packet<Wire>, token: u32, port: &mut Hands<'_>) {
        match (&packet.body.0, token) {
            (Body::Line { .. }, ACCEPT) => self.accept_line(packet, port),
            (Body::Line { address, line, .. }, _) => self.land_line(*address, line, port),
            (Body::Chunk { .. }, _) => self.land_chunk(&packet, port),
            (Body::Step { queue, generation }, _) => self.step(*queue, *generation, port),
            _ => self.read(&packet, port),
        }
    }

    fn explain(&self, rank: u32) -> Option<String> {
        self.process.as_ref().filter(|process| process.rank == rank).map(Process::explain)
    }
}

/// What a suspended call looks at whenever it is woken.
pub(super) enum Look<R> {
    /// It has it.
    Done(R),
    /// It goes on waiting, at most until then.
    Wait(Option<Instant>),
}

/// A call's look, with the process told what to wake it for.
pub(super) fn looking<R>(
    adapter: &mut Adapter,
    wanting: Wanting,
    look: impl FnOnce(&mut Process) -> Look<R>,
) -> Look<R> {
    let process = adapter.process();
    let found = look(process);
    process.wanting = if matches!(found, Look::Done(_)) { Wanting::Nothing } else { wanting };
    found
}

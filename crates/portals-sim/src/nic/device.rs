//! The interface of a node, as the simulation drives it: its processes, its engines, what arrives, who sleeps.

use super::HostMemory;
use super::directory::ProcessId;
use super::mutation::Defects;
use super::p3::engine::ALL;
use super::wire::{Body, Crossed, Wire};
use super::{p3, p4};
use crate::model::{Costs, Parameters};
use am_core::segment::Memory;
use am_core::{Instant, Span};
use fabric_sim::bytes::{Bytes, Pool};
use fabric_sim::{Crossing, Device, DeviceContext, Directory, Outgoing, Packet, PacketId, Stage};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// What all interfaces of a machine share.
pub struct Shared {
    pub(crate) directory: Directory<ProcessId>,
    pub(crate) parameters: Parameters,
    pub(crate) costs: Costs,
    /// The longest additional time of an [`AdversarialTiming`](crate::AdversarialTiming), in picoseconds.
    pub(crate) jitter: u64,
    pub(crate) late_read: bool,
    /// Something may happen to a process that no event of Portals 3.3 tells of: who waits must not foresee when
    /// the wait ends, and nothing may be kept or left for later.
    pub(crate) no_lookahead: Cell<bool>,
    /// Portals 4 is in use, of which events may come for a process that waits for those of Portals 3.3.
    pub(crate) portals_4: Cell<bool>,
    pub(crate) pool: Rc<Pool>,
    pub(crate) defects: Defects,
}

/// Memory that is still to be read, and from where on.
pub(crate) type Source = Option<(HostMemory, usize)>;

impl Shared {
    /// The bytes of a message: now, or where to read them when it leaves.
    #[inline]
    pub(crate) fn source(&self, memory: &HostMemory, at: usize, length: u32) -> (Bytes, Source) {
        if self.late_read {
            return (Bytes::default(), Some((memory.clone(), at)));
        }
        (self.pool.fill(length, |buffer| memory.load(at, buffer)), None)
    }
}

/// A message that a command sends.
pub(crate) struct Load {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) length: u32,
    pub(crate) body: Body,
    pub(crate) source: Source,
}

/// A process of the node.
pub(crate) struct Process {
    pub(crate) rank: u32,
    pub(crate) id: ProcessId,
    /// It idles: who has something for it wakes it.
    pub(super) sleeps: bool,
    /// While it idles: the event queues of Portals 3.3 that may end that, by their bits; [`ALL`] if any event may.
    pub(super) watched: u64,
    /// While it idles: when it will go on as its clock shows, as far as that is known.
    until: Option<Instant>,
    /// When it is looked whether an event ends that.
    alarm: Option<Instant>,
    /// Puts of Portals 3.3 that have arrived since anyone looked at this process: when, and of whom.
    pub(super) kept: Vec<(Instant, u32, p3::unit::Message)>,
    pub(crate) p3: p3::engine::Interface,
    /// Apart: programs use one of the two, and the memory of thousands of processes is what takes the time.
    pub(crate) p4: Box<p4::engine::Interface>,
}

/// What an interface has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages that commands have sent.
    pub commands: u64,
    /// Commands that found all DMA slots taken and had to wait.
    pub overloads: u64,
    /// Acknowledgements and replies sent.
    pub answers: u64,
    /// Messages that have arrived.
    pub arrivals: u64,
}

/// The Portals interface of a node, as the simulation drives it. Ranks use it through [`Nic`](crate::Nic).
pub struct Portals {
    pub(crate) shared: Rc<Shared>,
    pub(crate) processes: Vec<Process>,
    /// When the transmissions that occupy DMA slots end.
    slots: VecDeque<Instant>,
    /// With jitter: when the last message of a pair was delivered.
    last: BTreeMap<(u32, u32), Instant>,
    counters: Counters,
}

impl std::fmt::Debug for Portals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Portals").field("counters", &self.counters).finish_non_exhaustive()
    }
}

pub(super) const TX: usize = 0;
const REPLY_TX: usize = 1;

/// With so many messages kept a process goes on.
const KEPT: usize = 64;

/// What is set aside.
const LEAVES: u32 = 0;
const ARRIVES: u32 = 1;
pub(crate) const COUNTS: u32 = 2;

impl Portals {
    pub(crate) fn new(shared: Rc<Shared>, node: u32, ranks: &[u32]) -> Self {
        shared.directory.add(node, ranks);
        let processes = ranks.iter().enumerate().map(|(pid, rank)| Process {
            rank: *rank,
            id: ProcessId { nid: node, pid: pid as u32 },
            p3: p3::engine::Interface::new(shared.parameters.limits, shared.defects),
            p4: Box::new(p4::engine::Interface::new(shared.parameters.limits, shared.defects)),
            sleeps: false,
            watched: ALL,
            until: None,
            alarm: None,
            kept: Vec::new(),
        });
        Self {
            processes: processes.collect(),
            slots: VecDeque::new(),
            last: BTreeMap::new(),
            counters: Counters::default(),
            shared,
        }
    }

    /// What this interface has counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When a command that is given at a time can have a DMA slot, if not at once.
    #[inline]
    pub(crate) fn slot(&mut self, now: Instant) -> Option<Instant> {
        while self.slots.front().is_some_and(|end| *end <= now) {
            self.slots.pop_front();
        }
        let beyond = self.slots.len().checked_sub(self.shared.parameters.nic.dma_slots as usize)?;
        self.counters.overloads += 1;
        self.slots.get(beyond).copied()
    }

    /// Sends a command's message; returns when its bytes have been read.
    #[inline]
    pub(crate) fn transmit(&mut self, load: Load, port: &mut DeviceContext<'_, Wire>) -> Instant {
        let costs = &self.shared.costs;
        let Load { from, to, length, body, source } = load;
        let number = port.number();
        self.counters.commands += 1;
        let served = port.serve(TX, port.now(), length, PacketId { number, from, to });
        if served.leaves > port.now() {
            self.slots.push_back(served.leaves);
        }
        let leaves = served.enters + port.slowed(costs.tx);
        let sent = leaves + costs.bytes(length);
        if self.shared.late_read {
            let body = Wire(Body::Held(Box::new((body, source))));
            port.defer(sent, Packet { number, from, to, bytes: length, sent, corrupt: false, body }, LEAVES);
        } else {
            let (at, number, body) = (Some(leaves + costs.inject), Some(number), Wire(body));
            port.send_fifo(Outgoing { at, number, ..Outgoing::new(from, to, length, body) });
        }
        sent
    }

    /// A message leaves, and what it carries is read.
    fn leave(&mut self, packet: Packet<Wire>, port: &mut DeviceContext<'_, Wire>) {
        let Packet { number, from, to, bytes, body: Wire(body), .. } = packet;
        let body = match body {
            Body::Held(held) => {
                let (mut body, source) = *held;
                if let Some((memory, at)) = source
                    && let Some(data) = body.data()
                {
                    *data = self.shared.pool.fill(bytes, |buffer| memory.load(at, buffer));
                }
                body
            }
            body => body,
        };
        let (at, number) = (Some(port.now() + self.shared.costs.inject), Some(number));
        port.send_as(Outgoing { at, number, ..Outgoing::new(from, to, bytes, Wire(body)) });
    }

    /// Sends the bytes that a get asked for, from a time on.
    pub(crate) fn reply(
        &mut self,
        from: u32,
        to: u32,
        length: u32,
        at: Instant,
        body: Body,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let costs = &self.shared.costs;
        self.counters.answers += 1;
        let number = port.number();
        let served = port.serve(REPLY_TX, at, length, PacketId { number, from, to });
        let at = Some(served.enters + port.slowed(costs.tx) + costs.inject);
        port.send_as(Outgoing { at, number: Some(number), ..Outgoing::new(from, to, length, Wire(body)) });
    }

    /// Sends an acknowledgement for what is complete at a time.
    #[inline]
    pub(crate) fn acknowledge(
        &mut self,
        from: u32,
        to: u32,
        at: Instant,
        body: Body,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let costs = &self.shared.costs;
        self.counters.answers += 1;
        let at = Some(at + port.slowed(costs.ack_tx) + costs.inject);
        port.send_as(Outgoing { at, ..Outgoing::new(from, to, 0, Wire(body)) });
    }

    /// An event is on its way to a process: if it idles, and waits for that event, it is woken when the event is
    /// there.
    #[inline]
    pub(crate) fn expect_event(&mut self, local: u32, at: Instant, port: &mut DeviceContext<'_, Wire>) {
        let process = &mut self.processes[local as usize];
        let earlier = |known: Option<Instant>| known.is_none_or(|known| known > at);
        if process.sleeps && earlier(process.until) && earlier(process.alarm) {
            process.alarm = Some(at);
            port.timer(at, local);
        }
    }

    /// Something has happened to a process that no event tells of: if it idles, it is woken.
    pub(crate) fn concern(&mut self, local: u32, port: &mut DeviceContext<'_, Wire>) {
        self.shared.no_lookahead.set(true);
        port.throw(NO_LOOKAHEAD);
        let process = &self.processes[local as usize];
        if process.sleeps {
            port.wake(process.rank);
        }
    }

    /// A process is about to idle, for at most until a time or until there is an event in one of some queues.
    #[inline]
    pub(crate) fn sleep(
        &mut self,
        local: u32,
        until: Option<Instant>,
        watched: u64,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let process = &mut self.processes[local as usize];
        (process.sleeps, process.watched, process.until, process.alarm) = (true, watched, until, None);
        if let Some(at) = self.kept_event(local) {
            self.expect_event(local, at, port);
        }
    }

    /// A process has idled.
    #[inline]
    pub(crate) fn awake(&mut self, local: u32) {
        self.processes[local as usize].sleeps = false;
    }

    fn take(&mut self, packet: Packet<Wire>, port: &mut DeviceContext<'_, Wire>) {
        let local = self.shared.directory.of(packet.to).pid;
        match packet.body.0 {
            Body::P3(message) if self.keeps(&message) => {
                self.expect_event(local, self.shared.costs.told(port.now()), port);
                let process = &mut self.processes[local as usize];
                process.kept.push((port.now(), packet.from, message));
                if process.kept.len() >= KEPT && !port.resume_early(packet.to) {
                    self.catch_up(local, port);
                }
                return;
            }
            _ if port.resume_early(packet.to) => return port.defer(port.now(), packet, ARRIVES),
            _ => self.catch_up(local, port),
        }
        match packet.body.0 {
            Body::P3(message) => self.p3_arrive(local, packet.from, message, port.now(), port),
            Body::P4(message) => self.p4_arrive(local, packet.from, message, port),
            Body::Count(ct, by) => self.p4_count(local, ct, by, port.now(), port),
            Body::Held(_) => unreachable!("a held message never leaves its interface"),
        }
    }
}

/// The switch that nothing of the machine may look ahead any more, and that Portals 4 is in use.
pub(super) const NO_LOOKAHEAD: u8 = 0;
pub(super) const PORTALS_4: u8 = 1;

impl Crossing for Portals {
    type Sent = Crossed;

    fn send_over(body: Wire) -> Crossed {
        body.cross()
    }

    fn take_over(&self, sent: Crossed) -> Wire {
        Wire::crossed(sent, &self.shared.pool)
    }

    fn thrown(&self, switch: u8) {
        self.shared.no_lookahead.set(true);
        if switch == PORTALS_4 {
            self.shared.portals_4.set(true);
        }
    }
}

impl Device for Portals {
    type Body = Wire;

    fn stages(&self) -> Vec<(&'static str, Stage)> {
        let parameters = &self.shared.parameters;
        vec![("tx", parameters.tx()), ("reply tx", parameters.tx())]
    }

    fn arrive(&mut self, packet: Packet<Wire>, port: &mut DeviceContext<'_, Wire>) {
        self.counters.arrivals += 1;
        if self.shared.jitter == 0 {
            return self.take(packet, port);
        }
        let delay = Span(port.random() % (self.shared.jitter + 1));
        let last = self.last.entry((packet.from, packet.to)).or_default();
        *last = (*last).max(port.now() + delay);
        port.defer(*last, packet, ARRIVES);
    }

    fn due(&mut self, packet: Packet<Wire>, token: u32, port: &mut DeviceContext<'_, Wire>) {
        if token == LEAVES { self.leave(packet, port) } else { self.take(packet, port) }
    }

    fn timer(&mut self, local: u32, port: &mut DeviceContext<'_, Wire>) {
        let now = port.now();
        let process = &mut self.processes[local as usize];
        let past = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        // One whose time has come, and who may do what it does then later, sees the event then.
        if !process.sleeps || past(process.until) || !past(process.alarm) {
            return;
        }
        process.alarm = None;
        if process.watched != ALL {
            self.catch_up(local, port);
            let process = &self.processes[local as usize];
            let next = process.p3.next_event(process.watched);
            if !past(next) {
                return next.into_iter().for_each(|next| self.expect_event(local, next, port));
            }
        }
        let process = &mut self.processes[local as usize];
        process.until = Some(now);
        port.wake(process.rank);
    }

    fn lookahead(&self, rank: u32, port: &DeviceContext<'_, Wire>) -> Instant {
        self.lookahead_of(rank, port)
    }

    fn explain(&self, rank: u32) -> Option<String> {
        let process = self.processes.iter().find(|process| process.rank == rank)?;
        let p3 = process.p3.explain(process.kept.len());
        Some(process.p4.explain().map_or(p3.clone(), |p4| format!("{p3}; {p4}")))
    }
}

//! The machine: everything that is not a rank's own code. It executes events in their order.

use crate::away::Away;
use crate::buffered_run::BufferedRun;
use crate::config::Plan;
use crate::device::{Device, Packet};
use crate::device_context::DeviceContext;
use crate::error::{DeadlineMissed, Deadlock, WaitFor, Waiting};
use crate::fault_rng::FaultRng;
use crate::faults::ScheduledFault;
use crate::halves::Meter;
use crate::in_flight::{Flight, InFlight};
use crate::lane_order::LaneOrder;
use crate::members::Members;
use crate::network::{DIRECT, Network};
use crate::nic::Costs;
use crate::path::{Link, Outage};
use crate::port::Ports;
use crate::queue::{Event, Queue};
use crate::random::splitmix64;
use crate::ranks::{RankState, State};
use crate::stage::{NORMAL, Server};
use crate::trace::{Hash, Histogram, StageKind, TraceSpan};
use am_core::{Instant, LossCause, PeerStatus};
use std::collections::VecDeque;

/// A node: the stages of its interface, and those that its device brings. What every packet needs is in one cache
/// line: few stages take any time.
#[repr(C)]
pub(crate) struct Node {
    pub(crate) slowness: u64,
    pub(crate) own: Vec<(&'static str, Server)>,
    /// State of the device's random numbers.
    pub(crate) random: u64,
    pub(crate) stopped: bool,
    /// The packet whose injection is foreseen, of those that enter the network in turn; [`NOBODY`] if there is
    /// none.
    pub(crate) first: u32,
    /// Which of the sending and of the receiving stages take no time.
    pub(crate) tx_free: [bool; 2],
    pub(crate) rx_free: [bool; 3],
    pub(crate) tx: [Server; 2],
    pub(crate) rx: [Server; 3],
}

/// No packet's index.
pub(crate) const NOBODY: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) corrupted: u64,
    pub(crate) duplicated: u64,
}

/// The machine without its devices.
pub(crate) struct Core<B> {
    pub(crate) network: Network,
    pub(crate) node_of: Vec<u32>,
    pub(crate) costs: Costs,
    pub(crate) fault_rng: FaultRng,
    scheduled_faults: Vec<ScheduledFault>,
    pub(crate) queue: Queue,
    pub(crate) in_flight: InFlight<B>,
    pub(crate) nodes: Vec<Node>,
    /// Per node: the packets behind the first of those that enter the network in turn.
    pub(crate) lines: Vec<VecDeque<(Packet<B>, u32)>>,
    pub(crate) links: Vec<Link>,
    /// The nodes' ports, where they have a rate.
    pub(crate) ports: Option<Ports>,
    /// The order of packets, where the interface keeps it and long messages are trains.
    pub(crate) lane_order: Option<LaneOrder>,
    /// The links instead, where their buffers are finite.
    pub(crate) buffers: Option<Box<BufferedRun>>,
    pub(crate) outages: Vec<Outage>,
    pub(crate) ranks: Vec<RankState>,
    /// Ranks that are neither done nor stopped.
    pub(crate) remaining: u32,
    pub(crate) members: Members,
    /// The number of the packet made last.
    pub(crate) numbers: u64,
    pub(crate) hash: Hash,
    pub(crate) counts: Counts,
    pub(crate) latency: Histogram,
    pub(crate) spans: Option<Vec<TraceSpan>>,
    /// Ranks wait that have not been woken by an orderly end.
    pub(crate) withheld: bool,
    /// The time of the event executed last, or of the last turn.
    pub(crate) time: u64,
    /// Nothing happens after this time.
    pub(crate) deadline: u64,
    /// Nothing happens after this time for now: the deadline, or the end of a half's window.
    pub(crate) horizon: u64,
    /// The run has ended and ranks are being unwound.
    pub(crate) over: bool,
    /// What ranks have told all ranks, by rank, and how many have.
    pub(crate) announced: Vec<Option<u64>>,
    pub(crate) announcements: u32,
    /// The other half, where this is one of two.
    pub(crate) away: Option<Box<Away<B>>>,
    /// What measures the run by halves, if that is asked for.
    pub(crate) meter: Option<Box<Meter>>,
}

pub(crate) struct Engine<D: Device> {
    pub(crate) core: Core<D::Body>,
    pub(crate) devices: Vec<D>,
    /// The rank whose turn is next, and when, once that has been found.
    turn: Option<(u64, u32)>,
}

/// What the machine does next.
pub(crate) enum NextStep {
    /// It lets this rank go on.
    Resume(u32),
    /// Nothing: all ranks have ended, or the others will never go on.
    End,
    /// Nothing: what comes next comes after the deadline.
    DeadlineMissed,
}

impl<B: Clone> Core<B> {
    /// The machine with the ranks that `lives` says; the others are another half's.
    pub(crate) fn new(plan: Plan, trace: bool, lives: impl Fn(u32) -> bool) -> Self {
        let Plan { network, node_of, costs, fault_rng, scheduled_faults, link_rules, notice, deadline, seed } =
            plan;
        let mut queue = Queue::default();
        for (index, (at, _)) in scheduled_faults.iter().enumerate() {
            queue.push(*at, Event::Fault(index as u32));
        }
        for rank in (0..node_of.len() as u32).filter(|rank| lives(node_of[*rank as usize])) {
            queue.push(0, Event::Resume(rank));
        }
        // Ranks and nodes draw from streams of their own, so that what one draws does not depend on the others.
        let stream = |number: u64| splitmix64(&mut { seed ^ number.rotate_left(32) });
        let node = |node: u32| Node {
            tx: [costs.nic_tx, costs.tx_translate].map(Server::new),
            rx: [costs.nic_rx, costs.rx_match, costs.mem_write].map(Server::new),
            own: Vec::new(),
            tx_free: [costs.nic_tx, costs.tx_translate].map(|cost| cost.is_free()),
            rx_free: [costs.nic_rx, costs.rx_match, costs.mem_write].map(|cost| cost.is_free()),
            slowness: NORMAL,
            stopped: false,
            first: NOBODY,
            random: stream(u64::from(node) << 1 | 1),
        };
        Self {
            nodes: (0..network.nodes).map(node).collect(),
            lines: (0..network.nodes).map(|_| VecDeque::new()).collect(),
            links: link_rules.iter().map(|link_rules| Link::new(link_rules, costs.packet)).collect(),
            ports: costs.ports.map(|rates| Ports::new(rates, network.nodes)),
            lane_order: (costs.ordered && costs.packet != u32::MAX).then(LaneOrder::default),
            buffers: None,
            outages: link_rules.into_iter().map(Outage::new).collect(),
            ranks: (0..node_of.len() as u64).map(|rank| RankState::new(stream(rank << 1))).collect(),
            remaining: node_of.len() as u32,
            members: Members::new(node_of.len(), notice),
            network,
            node_of,
            costs,
            fault_rng,
            scheduled_faults: scheduled_faults.into_iter().map(|(_, fault)| fault).collect(),
            queue,
            in_flight: InFlight::new(),
            numbers: 0,
            hash: Hash::new(),
            counts: Counts::default(),
            latency: Histogram::default(),
            spans: trace.then(Vec::new),
            withheld: false,
            time: 0,
            deadline,
            horizon: deadline,
            over: false,
            announced: Vec::new(),
            announcements: 0,
            away: None,
            meter: None,
        }
    }

    /// The run has ended: what ranks do while they are unwound comes to nothing.
    pub(crate) fn end(&mut self) {
        self.over = true;
        self.queue.end();
    }

    pub(crate) fn landed(&mut self, from: u32, now: u64) {
        if let Some(notice) = self.members.landed(from, now) {
            self.queue.push(notice, Event::Notice);
        }
    }

    pub(crate) fn depart(&mut self, rank: u32, status: PeerStatus, at: u64) {
        if let Some(notice) = self.members.depart(rank, status, at) {
            self.queue.push(notice.max(self.time), Event::Notice);
        }
    }

    /// Hands a packet to a node's own device at a time.
    pub(crate) fn defer(&mut self, node: u32, at: u64, packet: Packet<B>, token: u32) {
        self.members.sent(packet.from);
        let (bytes, corrupt) = (packet.bytes, packet.corrupt);
        let flight = Flight {
            at: node,
            goal: node,
            tail: at,
            bytes,
            header: token,
            flow: DIRECT,
            passed: 0,
            corrupt,
            channel: 0,
            turn: 0,
            aside: true,
        };
        let index = self.in_flight.launch(flight, packet);
        self.queue.push(at, Event::Due(index));
    }

    fn apply_fault(&mut self, fault: ScheduledFault, now: u64) {
        match fault {
            ScheduledFault::Slow { node, slowness } => {
                self.nodes[node as usize].slowness = slowness;
                for (state, _) in self.ranks.iter_mut().zip(&self.node_of).filter(|(_, of)| **of == node) {
                    state.slowness = slowness;
                }
            }
            ScheduledFault::Link { link, up } => {
                let limited = self.outages[link as usize].limited();
                let known = &mut self.links[link as usize];
                (known.down, known.careful) = (!up, !up || limited);
                if up {
                    for index in std::mem::take(&mut self.outages[link as usize].held) {
                        self.hop(index, now);
                    }
                }
            }
            ScheduledFault::Stop { node } => {
                self.nodes[node as usize].stopped = true;
                for rank in 0..self.node_of.len() as u32 {
                    let ended = matches!(self.ranks[rank as usize].state, State::Done | State::Stopped);
                    if self.node_of[rank as usize] == node && !ended {
                        self.ranks[rank as usize].state = State::Stopped;
                        self.remaining -= 1;
                        self.depart(rank, PeerStatus::Lost(LossCause::Died), now);
                    }
                }
            }
        }
    }

    /// Tells of departures: a loss wakes everyone, an orderly end those that wait for it.
    fn notice(&mut self, now: u64) {
        let news = self.members.notice(now);
        if let Some(next) = news.next {
            self.queue.push(next, Event::Notice);
        }
        if !news.lost && !news.finished {
            return;
        }
        for rank in 0..self.ranks.len() as u32 {
            let waits = match self.ranks[rank as usize].state {
                State::Waiting(wanted) => Some(wanted),
                _ => None,
            };
            let concerned = match waits {
                _ if news.lost => true,
                None | Some(WaitFor::Named(_)) => true,
                Some(WaitFor::From(peer) | WaitFor::Room { to: peer, .. }) => self.members.told_at(peer, now),
                Some(WaitFor::Arrival) => false,
            };
            if concerned {
                self.wake(rank, now);
            } else {
                self.withheld = true;
            }
        }
    }

    /// Wakes everyone whom orderly ends have not woken; returns whether there were any.
    pub(crate) fn tell_the_rest(&mut self, now: u64) -> bool {
        if std::mem::take(&mut self.withheld) {
            (0..self.ranks.len() as u32).for_each(|rank| self.wake(rank, now));
            return true;
        }
        false
    }
}

impl<D: Device> Engine<D> {
    pub(crate) const fn new(core: Core<D::Body>, devices: Vec<D>) -> Self {
        Self { core, devices, turn: None }
    }

    /// Executes an event that is no rank's turn.
    fn execute(&mut self, event: Event, now: u64) {
        let Self { core, devices, .. } = self;
        core.counts.events += 1;
        core.time = now;
        if core.meter.is_some() {
            core.measure_event(event, now);
        }
        let code = match event {
            Event::Resume(rank) | Event::Alarm(rank) => 1 << 32 | u64::from(rank),
            Event::Inject(index) => 2 << 32 | u64::from(index),
            Event::Hop(index) => 3 << 32 | u64::from(index),
            Event::Arrive(index) => 4 << 32 | u64::from(index),
            Event::Deliver(index) => 5 << 32 | u64::from(index),
            Event::Timer { node, token } => (6 << 32 | u64::from(node)) ^ u64::from(token) << 40,
            Event::Fault(index) => 7 << 32 | u64::from(index),
            Event::Notice => 8 << 32,
            Event::Due(index) => 9 << 32 | u64::from(index),
            Event::Buffers => 10 << 32,
        };
        core.hash.add(now ^ code.rotate_left(24));
        match event {
            Event::Inject(index) => core.inject(index, now),
            Event::Hop(index) => core.hop(index, now),
            Event::Arrive(index) => {
                if core.arrive(index, now) {
                    self.deliver(index, now);
                }
            }
            Event::Deliver(index) if core.gone(index) => core.lose(index, now),
            Event::Deliver(index) => self.deliver(index, now),
            Event::Due(index) => self.due(index, now),
            Event::Buffers => core.run_buffers(now),
            Event::Timer { node, token } => {
                if !core.nodes[node as usize].stopped {
                    devices[node as usize].timer(token, &mut DeviceContext { core, node, now });
                }
            }
            // What a rank may notice finds none of them behind.
            Event::Fault(_) | Event::Notice if core.resume_all_early(now) => core.queue.push(now, event),
            Event::Fault(index) => core.apply_fault(core.scheduled_faults[index as usize], now),
            Event::Notice => core.notice(now),
            Event::Resume(rank) | Event::Alarm(rank) => core.alarm(rank, now),
        }
    }

    fn deliver(&mut self, index: u32, now: u64) {
        let Self { core, devices, .. } = self;
        if !core.hand_over(index, now) {
            return;
        }
        let (goal, sent) = (core.in_flight.path(index).goal, core.in_flight.packet(index).sent.0);
        core.span(index, StageKind::Message, goal, sent, now);
        let (flight, packet) = core.in_flight.land(index);
        let Packet { number, from, bytes, .. } = packet;
        core.counts.delivered += 1;
        core.hash.add(number ^ u64::from(bytes) << 32);
        if !flight.aside {
            core.latency.add(now - sent);
        }
        devices[goal as usize].arrive(packet, &mut DeviceContext { core, node: goal, now });
        core.landed(from, now);
    }

    fn due(&mut self, index: u32, now: u64) {
        let Self { core, devices, .. } = self;
        let (Flight { goal: node, header: token, .. }, packet) = core.in_flight.land(index);
        let from = packet.from;
        if !core.nodes[node as usize].stopped {
            devices[node as usize].due(packet, token, &mut DeviceContext { core, node, now });
        }
        core.landed(from, now);
    }

    /// The rank whose turn is next, and when, once that has been found.
    pub(crate) const fn turn(&self) -> Option<(u64, u32)> {
        self.turn
    }

    /// Executes what happens up to a time; returns false as soon as a rank's turn is next.
    #[inline]
    pub(crate) fn settle(&mut self, until: u64) -> bool {
        if let Some((time, _)) = self.turn {
            return time > until;
        }
        while let Some((time, event)) = self.core.queue.pop_until(until) {
            if let Event::Resume(rank) = event {
                if self.core.ranks[rank as usize].state == State::Queued {
                    self.turn = Some((time, rank));
                    return false;
                }
                continue;
            }
            self.execute(event, time);
        }
        true
    }

    /// Executes events until it is a rank's turn.
    #[inline(always)]
    pub(crate) fn next_step(&mut self) -> NextStep {
        while self.core.remaining != 0 {
            if self.settle(self.core.horizon) {
                // What a half does next depends on the other one.
                if self.core.away.is_some() {
                    return NextStep::End;
                }
                if self.turn.is_some() || !self.core.queue.is_empty() {
                    return NextStep::DeadlineMissed;
                }
                // Who looks for an end in order although it waits for something else learns it deadline_missed
                // rather than never.
                if !self.core.tell_the_rest(self.core.time) {
                    return NextStep::End;
                }
                continue;
            }
            if let Some((time, rank)) = self.turn.take() {
                self.core.counts.events += 1;
                self.core.hash.add(time ^ u64::from(rank).rotate_left(24));
                let state = &mut self.core.ranks[rank as usize];
                state.state = State::Running;
                state.resumed = Some(time);
                self.core.time = time;
                if self.core.meter.is_some() {
                    self.core.measure_turn(rank, time);
                }
                return NextStep::Resume(rank);
            }
        }
        NextStep::End
    }

    /// Who waits for what.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        let Self { core, devices, .. } = self;
        let waiting = core.ranks.iter().enumerate().filter_map(|(rank, state)| match state.state {
            State::Waiting(wanted) => {
                let device = &devices[core.node_of[rank] as usize];
                let (rank, since) = (rank as u32, Instant(state.now));
                Some(Waiting { rank, since, wanted, detail: device.explain(rank) })
            }
            _ => None,
        });
        waiting.collect()
    }

    pub(crate) fn deadlock(&self) -> Deadlock {
        let waiting = self.waiting();
        let at = waiting.iter().map(|waiting| waiting.since).max().unwrap_or_default();
        let jammed = self.core.buffers.as_ref().map_or(0, |buffers| buffers.under_way());
        let held = self.core.outages.iter().map(|link| link.held.len()).sum::<usize>() + jammed;
        Deadlock { at, waiting, held }
    }

    pub(crate) fn deadline_missed(&self) -> DeadlineMissed {
        let Core { deadline, remaining, .. } = self.core;
        DeadlineMissed { deadline: Instant(deadline), remaining, waiting: self.waiting() }
    }
}

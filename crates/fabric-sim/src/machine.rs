//! The machine: everything that is not a rank's own code. It executes events in their order.

use crate::config::Plan;
use crate::device::{Device, Packet, Port};
use crate::error::{Deadlock, WaitFor, Waiting};
use crate::faults::{Dice, Quirks, Strike, Try};
use crate::members::Members;
use crate::nic::Costs;
use crate::queue::{Event, Queue};
use crate::stage::{NORMAL, Server};
use crate::topology::Network;
use crate::trace::{Hash, Histogram, StageKind, TraceSpan};
use am_core::Instant;
use std::collections::VecDeque;

/// A packet under way.
struct Flight<B> {
    packet: Packet<B>,
    number: u64,
    /// Where its head is, and the node it goes to.
    at: u32,
    goal: u32,
    /// When its last bit is where its head is.
    tail: u64,
}

/// The stages of a node's interface.
struct Node {
    tx: [Server; 2],
    rx: [Server; 3],
    slowness: u64,
    stopped: bool,
}

#[derive(Default)]
pub(crate) struct Link {
    free_at: u64,
    down: bool,
    held: VecDeque<u32>,
    pub(crate) busy: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) retries: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Its code is running.
    Running,
    /// An event will let it go on.
    Queued,
    Waiting(WaitFor, Option<u64>),
    Done,
    /// Its node has stopped.
    Stopped,
}

pub(crate) struct RankState {
    pub(crate) now: u64,
    pub(crate) state: State,
    epoch: u32,
    /// When the timer of its wait runs out, if one is set.
    timer: Option<u64>,
    /// When it was last resumed: everything before has happened then.
    pub(crate) resumed: Option<u64>,
    /// Something has happened that it has not looked at.
    pub(crate) news: bool,
}

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
    dice: Dice,
    strikes: Vec<Strike>,
    queue: Queue,
    flights: Vec<Option<Flight<B>>>,
    unused: Vec<u32>,
    nodes: Vec<Node>,
    pub(crate) links: Vec<Link>,
    quirks: Vec<Quirks>,
    pub(crate) ranks: Vec<RankState>,
    /// Ranks that are neither done nor stopped.
    pub(crate) remaining: u32,
    pub(crate) members: Members,
    pub(crate) hash: Hash,
    pub(crate) counts: Counts,
    pub(crate) latency: Histogram,
    pub(crate) spans: Option<Vec<TraceSpan>>,
    /// The run has ended and ranks are being unwound.
    pub(crate) over: bool,
}

pub(crate) struct Machine<D: Device> {
    pub(crate) core: Core<D::Body>,
    pub(crate) devices: Vec<D>,
}

impl<B: Clone> Core<B> {
    pub(crate) fn new(plan: Plan, trace: bool) -> Self {
        let Plan { network, node_of, costs, dice, strikes, quirks, notice } = plan;
        let mut queue = Queue::default();
        for (index, (at, _)) in strikes.iter().enumerate() {
            queue.push(*at, Event::Fault(index as u32));
        }
        for rank in 0..node_of.len() as u32 {
            queue.push(0, Event::Resume { rank, epoch: 0 });
        }
        let node = |_| Node {
            tx: [costs.nic_tx, costs.tx_translate].map(Server::new),
            rx: [costs.nic_rx, costs.rx_match, costs.mem_write].map(Server::new),
            slowness: NORMAL,
            stopped: false,
        };
        let rank =
            |_| RankState { now: 0, state: State::Queued, epoch: 0, timer: None, resumed: None, news: false };
        Self {
            nodes: (0..network.nodes).map(node).collect(),
            links: (0..network.links()).map(|_| Link::default()).collect(),
            quirks,
            ranks: (0..node_of.len()).map(rank).collect(),
            remaining: node_of.len() as u32,
            members: Members::new(node_of.len(), notice),
            network,
            node_of,
            costs,
            dice,
            strikes: strikes.into_iter().map(|(_, strike)| strike).collect(),
            queue,
            flights: Vec::new(),
            unused: Vec::new(),
            hash: Hash::new(),
            counts: Counts::default(),
            latency: Histogram::default(),
            spans: trace.then(Vec::new),
            over: false,
        }
    }

    pub(crate) fn slowness(&self, rank: u32) -> u64 {
        self.nodes[self.node_of[rank as usize] as usize].slowness
    }

    /// Lets a packet enter its sender's interface at a time.
    ///
    /// # Panics
    /// If `to` is outside the job.
    pub(crate) fn send(&mut self, from: u32, to: u32, bytes: u32, body: B, at: u64) {
        let ranks = self.node_of.len();
        assert!((to as usize) < ranks, "rank {to} is outside the job of {ranks} ranks");
        self.counts.sent += 1;
        self.members.sent(from);
        let node = self.node_of[from as usize];
        let packet = Packet { from, to, bytes, sent: Instant(at), corrupt: false, body };
        let goal = self.node_of[to as usize];
        let flight = self.launch(Flight { packet, number: self.counts.sent, at: node, goal, tail: at });
        self.queue.push(at, Event::Inject(flight));
    }

    fn launch(&mut self, flight: Flight<B>) -> u32 {
        if let Some(index) = self.unused.pop() {
            self.flights[index as usize] = Some(flight);
            return index;
        }
        self.flights.push(Some(flight));
        self.flights.len() as u32 - 1
    }

    fn flight(&mut self, index: u32) -> &mut Flight<B> {
        self.flights[index as usize].as_mut().expect("an event names a packet that is under way")
    }

    fn land(&mut self, index: u32) -> Flight<B> {
        self.unused.push(index);
        self.flights[index as usize].take().expect("an event names a packet that is under way")
    }

    fn lose(&mut self, index: u32, now: u64) {
        let flight = self.land(index);
        self.counts.lost += 1;
        self.landed(flight.packet.from, now);
    }

    fn landed(&mut self, from: u32, now: u64) {
        if let Some(notice) = self.members.landed(from, now) {
            self.queue.push(notice, Event::Notice);
        }
    }

    pub(crate) fn depart(&mut self, rank: u32, status: am_core::PeerStatus, at: u64) {
        if let Some(notice) = self.members.depart(rank, status, at) {
            self.queue.push(notice, Event::Notice);
        }
    }

    pub(crate) fn timer(&mut self, node: u32, at: u64, token: u32) {
        self.queue.push(at, Event::Timer { node, token });
    }

    /// Lets a rank go on if it waits.
    pub(crate) fn wake(&mut self, rank: u32, now: u64) {
        let state = &mut self.ranks[rank as usize];
        state.news = true;
        if matches!(state.state, State::Waiting(..)) {
            self.enqueue(rank, now);
        }
    }

    /// Lets a rank go on at a time.
    pub(crate) fn enqueue(&mut self, rank: u32, at: u64) {
        let state = &mut self.ranks[rank as usize];
        state.state = State::Queued;
        let epoch = state.epoch;
        self.queue.push(at, Event::Resume { rank, epoch });
    }

    /// Makes a rank wait, for at most until a time.
    pub(crate) fn wait(&mut self, rank: u32, until: Option<u64>, wanted: WaitFor) {
        let state = &mut self.ranks[rank as usize];
        state.state = State::Waiting(wanted, until);
        // One timer serves many waits: it is set anew only for an earlier end.
        if let Some(until) = until
            && state.timer.is_none_or(|timer| timer > until)
        {
            state.timer = Some(until);
            self.queue.push(until, Event::Resume { rank, epoch: u32::MAX });
        }
    }

    fn rank_timer(&mut self, rank: u32, now: u64) {
        let state = &mut self.ranks[rank as usize];
        if state.timer != Some(now) {
            return;
        }
        state.timer = None;
        if let State::Waiting(wanted, Some(until)) = state.state {
            if until <= now {
                self.enqueue(rank, now);
            } else {
                self.wait(rank, Some(until), wanted);
            }
        }
    }

    fn span(&mut self, index: u32, stage: StageKind, place: u32, begin: u64, end: u64) {
        let Some(spans) = &mut self.spans else { return };
        let flight = self.flights[index as usize].as_ref().expect("a traced packet is under way");
        let Packet { from, to, .. } = flight.packet;
        let (begin, end) = (Instant(begin), Instant(end));
        spans.push(TraceSpan { packet: flight.number, from, to, stage, place, begin, end });
    }

    fn inject(&mut self, index: u32, now: u64) {
        let flight = self.flight(index);
        let (at, goal, bytes) = (flight.at, flight.goal, flight.packet.bytes);
        let node = &mut self.nodes[at as usize];
        if node.stopped {
            return self.lose(index, now);
        }
        let slowness = node.slowness;
        let (enters, leaves) = node.tx[0].serve(now, bytes, slowness);
        let (_, leaves) = node.tx[1].serve(leaves, bytes, slowness);
        self.span(index, StageKind::Send, at, enters, leaves);
        self.flight(index).tail = leaves;
        if at == goal {
            self.queue.push(leaves, Event::Arrive(index));
        } else if leaves == now {
            self.hop(index, now);
        } else {
            self.queue.push(leaves, Event::Hop(index));
        }
    }

    fn hop(&mut self, index: u32, now: u64) {
        let flight = self.flight(index);
        let (at, goal, tail, bytes) = (flight.at, flight.goal, flight.tail, flight.packet.bytes);
        let (number, next) = self.network.next(at, goal);
        let quirks = self.quirks[number as usize];
        let (wire, latency) = (bytes.saturating_add(self.costs.header), self.costs.latency + quirks.latency);
        let length = self.costs.serialization(wire);
        let link = &mut self.links[number as usize];
        let crowded = self.dice.retry.is_none()
            && quirks.queue != u32::MAX
            && link.free_at.saturating_sub(now) > self.costs.serialization(quirks.queue);
        if wire > quirks.mtu || crowded {
            return self.lose(index, now);
        }
        if link.down {
            if self.dice.retry.is_some() {
                link.held.push_back(index);
                return;
            }
            return self.lose(index, now);
        }
        let (mut enters, mut outcome, mut doubled) = (now.max(link.free_at), Try::Good, false);
        if self.dice.any {
            enters += self.dice.pause();
            outcome = self.dice.cross(&quirks);
            if let Some(retry) = self.dice.retry {
                while outcome != Try::Good {
                    link.retries += 1;
                    link.busy += length;
                    enters += length + retry;
                    outcome = self.dice.cross(&quirks);
                }
            }
            doubled = self.dice.doubled();
        }
        link.free_at = enters + length;
        link.packets += 1;
        link.bytes += u64::from(wire);
        link.busy += length;
        let left = link.free_at;
        // A copy takes its time on the link; with link retry the far end drops it.
        let copied = doubled && outcome != Try::Lost && self.dice.retry.is_none();
        if doubled {
            link.free_at += length;
            link.busy += length;
        }
        self.span(index, StageKind::Link, number, enters, left + latency);
        if outcome == Try::Lost {
            return self.lose(index, now);
        }
        let flight = self.flight(index);
        flight.packet.corrupt |= outcome == Try::Spoilt;
        flight.at = next;
        flight.tail = (tail + latency).max(left + latency);
        let copy = copied.then(|| Flight { packet: flight.packet.clone(), number: flight.number, ..*flight });
        self.counts.corrupted += u64::from(outcome == Try::Spoilt);
        self.onward(index, enters + latency);
        if let Some(copy) = copy {
            self.counts.duplicated += 1;
            self.members.sent(copy.packet.from);
            let tail = copy.tail + length;
            let copy = self.launch(Flight { tail, ..copy });
            self.onward(copy, enters + length + latency);
        }
    }

    /// A packet whose head has left a link at `head`: to the next link, or into the destination.
    fn onward(&mut self, index: u32, head: u64) {
        let flight = self.flight(index);
        if flight.at != flight.goal {
            return self.queue.push(head, Event::Hop(index));
        }
        let mut tail = flight.tail;
        if self.dice.any {
            tail += self.dice.held_back();
        }
        self.queue.push(tail, Event::Arrive(index));
    }

    /// Passes the receiving stages; returns whether the packet comes out at once.
    fn arrive(&mut self, index: u32, now: u64) -> bool {
        let flight = self.flight(index);
        let (at, bytes) = (flight.goal, flight.packet.bytes);
        let node = &mut self.nodes[at as usize];
        if node.stopped {
            self.lose(index, now);
            return false;
        }
        let slowness = node.slowness;
        let (enters, leaves) = node.rx[0].serve(now, bytes, slowness);
        let (_, leaves) = node.rx[1].serve(leaves, bytes, slowness);
        let (_, leaves) = node.rx[2].serve(leaves, bytes, slowness);
        self.span(index, StageKind::Receive, at, enters, leaves);
        if leaves != now {
            self.queue.push(leaves, Event::Deliver(index));
        }
        leaves == now
    }

    fn strike(&mut self, strike: Strike, now: u64) {
        match strike {
            Strike::Slow { node, slowness } => self.nodes[node as usize].slowness = slowness,
            Strike::Link { link, up } => {
                let link = &mut self.links[link as usize];
                link.down = !up;
                if up {
                    for index in std::mem::take(&mut link.held) {
                        self.hop(index, now);
                    }
                }
            }
            Strike::Stop { node } => {
                self.nodes[node as usize].stopped = true;
                for rank in 0..self.node_of.len() as u32 {
                    let ended = matches!(self.ranks[rank as usize].state, State::Done | State::Stopped);
                    if self.node_of[rank as usize] == node && !ended {
                        self.ranks[rank as usize].state = State::Stopped;
                        self.remaining -= 1;
                        self.depart(rank, am_core::PeerStatus::Lost(am_core::LossCause::Died), now);
                    }
                }
            }
        }
    }

    fn notice(&mut self, now: u64) {
        let (changed, next) = self.members.notice(now);
        if let Some(next) = next {
            self.queue.push(next, Event::Notice);
        }
        if changed {
            for rank in 0..self.ranks.len() as u32 {
                self.wake(rank, now);
            }
        }
    }

    /// Who waits for what.
    pub(crate) fn deadlock(&self) -> Deadlock {
        let waiting = self.ranks.iter().enumerate().filter_map(|(rank, state)| match state.state {
            State::Waiting(wanted, _) => Some(Waiting { rank: rank as u32, since: Instant(state.now), wanted }),
            _ => None,
        });
        let waiting: Vec<_> = waiting.collect();
        let at = waiting.iter().map(|waiting| waiting.since).max().unwrap_or_default();
        Deadlock { at, waiting, held: self.links.iter().map(|link| link.held.len()).sum() }
    }
}

impl<D: Device> Machine<D> {
    /// Executes an event that is no rank's turn.
    fn execute(&mut self, event: Event, now: u64) {
        let Self { core, devices } = self;
        core.counts.events += 1;
        let code = match event {
            Event::Resume { rank, .. } => 1 << 32 | u64::from(rank),
            Event::Inject(index) => 2 << 32 | u64::from(index),
            Event::Hop(index) => 3 << 32 | u64::from(index),
            Event::Arrive(index) => 4 << 32 | u64::from(index),
            Event::Deliver(index) => 5 << 32 | u64::from(index),
            Event::Timer { node, token } => (6 << 32 | u64::from(node)) ^ u64::from(token) << 40,
            Event::Fault(index) => 7 << 32 | u64::from(index),
            Event::Notice => 8 << 32,
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
            Event::Deliver(index) => self.deliver(index, now),
            Event::Timer { node, token } => devices[node as usize].timer(token, &mut Port { core, node, now }),
            Event::Fault(index) => core.strike(core.strikes[index as usize], now),
            Event::Notice => core.notice(now),
            Event::Resume { rank, .. } => core.rank_timer(rank, now),
        }
    }

    fn deliver(&mut self, index: u32, now: u64) {
        let Self { core, devices } = self;
        let Flight { goal, packet, number, .. } = core.land(index);
        let (from, to, sent, bytes) = (packet.from, packet.to, packet.sent, packet.bytes);
        if core.nodes[goal as usize].stopped {
            core.counts.lost += 1;
            return core.landed(from, now);
        }
        core.counts.delivered += 1;
        core.hash.add(number ^ u64::from(bytes) << 32);
        core.latency.add(now - sent.0);
        if let Some(spans) = &mut core.spans {
            let (stage, place) = (StageKind::Message, goal);
            spans.push(TraceSpan { packet: number, from, to, stage, place, begin: sent, end: Instant(now) });
        }
        devices[goal as usize].arrive(packet, &mut Port { core, node: goal, now });
        core.landed(from, now);
    }

    /// Executes what happens up to a time; returns false as soon as another rank's turn is next.
    #[inline]
    pub(crate) fn settle(&mut self, until: u64) -> bool {
        while let Some((time, event)) = self.core.queue.peek() {
            if time > until {
                break;
            }
            if let Event::Resume { rank, epoch } = event
                && epoch != u32::MAX
            {
                let state = &self.core.ranks[rank as usize];
                if state.state == State::Queued && state.epoch == epoch {
                    return false;
                }
                self.core.queue.pop();
                continue;
            }
            self.core.queue.pop();
            self.execute(event, time);
        }
        true
    }

    /// Executes events until it is a rank's turn; `None` if nothing is left or nobody needs anything.
    pub(crate) fn next_turn(&mut self) -> Option<u32> {
        while self.core.remaining != 0 {
            if self.settle(u64::MAX) {
                return None;
            }
            let (time, event) = self.core.queue.pop()?;
            if let Event::Resume { rank, .. } = event {
                self.core.counts.events += 1;
                self.core.hash.add(time ^ u64::from(rank).rotate_left(24));
                let state = &mut self.core.ranks[rank as usize];
                state.state = State::Running;
                state.epoch = (state.epoch + 1) % u32::MAX;
                state.now = state.now.max(time);
                state.resumed = Some(state.now);
                return Some(rank);
            }
        }
        None
    }
}

//! The interface of a node.

use super::handle::{Fault, Finished};
use super::stats::Meter;
use super::stream::{In, Out, Turn};
use super::wire::{Content, Message, NumberedPacket, PacketBody};
use crate::config::Shared;
use am_core::one_sided::Atomic;
use am_core::segment::Memory;
use am_core::{Instant, PeerStatus, Segment, Span};
use fabric_sim::bytes::Detached;
use fabric_sim::{Crossing, Device, DeviceContext, HostMemory, Outgoing, Packet, PacketId, PagedPeers, Stage};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

/// The data paths of a node.
const INJECT: usize = 0;
const EJECT: usize = 1;

/// What comes to its time: a call of a rank, or something that has arrived.
pub(super) const CALLED: u32 = 0;
const ARRIVED: u32 = 1;

/// The most packets that are sent again at once.
const REPEATED: usize = 16;
/// Fruitless attempts that double the wait.
const DOUBLINGS: u32 = 6;

type Port<'a> = DeviceContext<'a, NumberedPacket>;

/// The interface of a node, and what it keeps of each of its ranks.
pub struct Interface {
    shared: Rc<Shared>,
    /// In the order of their ranks.
    processes: Vec<Process>,
    limited: [bool; 2],
    /// When the timer runs out, if it is set.
    timer: Option<Instant>,
}

impl fmt::Debug for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interface").field("processes", &self.processes.len()).finish_non_exhaustive()
    }
}

pub(super) struct Process {
    rank: u32,
    pub(super) memory: Option<Segment<HostMemory>>,
    pub(super) inbox: VecDeque<Message>,
    pub(super) finished: VecDeque<Finished>,
    send_free: Instant,
    receive_free: Instant,
    out: Option<PagedPeers<Out>>,
    incoming: Option<PagedPeers<In>>,
    /// Peers with something to be sent or acknowledged.
    busy: u32,
    /// Peers that have acknowledged nothing for too long.
    pub(super) unreachable: Vec<u32>,
    /// It has left, but not everything was sent.
    leaves: Option<PeerStatus>,
    pub(super) meter: Option<Box<Meter>>,
}

impl Interface {
    pub(crate) fn new(shared: Rc<Shared>, ranks: &[u32]) -> Self {
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        let process = |rank| Process {
            rank,
            memory: None,
            inbox: VecDeque::new(),
            finished: VecDeque::new(),
            send_free: Instant(0),
            receive_free: Instant(0),
            out: None,
            incoming: None,
            busy: 0,
            unreachable: Vec::new(),
            leaves: None,
            meter: None,
        };
        let table = &shared.parameters;
        let limited = [table.injection_mb_s, table.ejection_mb_s].map(f64::is_finite);
        Self { processes: ranks.into_iter().map(process).collect(), limited, timer: None, shared }
    }

    pub(super) fn process(&mut self, rank: u32) -> &mut Process {
        let found = self.processes.binary_search_by_key(&rank, |process| process.rank);
        &mut self.processes[found.expect("an interface is asked for the ranks of its node")]
    }

    fn out(&mut self, rank: u32, to: u32) -> &mut Out {
        let ranks = self.shared.ranks;
        let process = self.process(rank);
        process.out.get_or_insert_with(|| PagedPeers::new(ranks)).get_or_insert_with(to, Out::default)
    }

    /// Changes what a rank has to send to a peer, and keeps count of the peers that it is busy with.
    fn with_out<R>(&mut self, rank: u32, to: u32, change: impl FnOnce(&mut Out) -> R) -> R {
        let out = self.out(rank, to);
        let before = out.is_busy();
        let result = change(out);
        let after = out.is_busy();
        let busy = &mut self.process(rank).busy;
        *busy = *busy + u32::from(after) - u32::from(before);
        result
    }

    /// A rank calls for something to be sent.
    fn called(&mut self, packet: Packet<NumberedPacket>, port: &mut Port<'_>) {
        let Packet { from, to, body: NumberedPacket { contents, .. }, .. } = packet;
        let PacketBody::Whole(content, size) = contents else { unreachable!("ranks call for whole things") };
        if let Content::Leave(status) = content {
            return self.depart(from, status, port);
        }
        if !matches!(content, Content::Message { .. }) || self.near(to) {
            return self.launch((from, to), content, size, port);
        }
        let long = size > self.shared.costs.eager;
        let behind = self.shared.costs.eager != u64::MAX && !self.out(from, to).announced.is_empty();
        if long || behind {
            self.with_out(from, to, |out| out.announced.push_back((content, size)));
            if !behind {
                self.launch((from, to), Content::Announce, 0, port);
            }
            return;
        }
        self.launch((from, to), content, size, port);
    }

    /// The first message that was announced may come; so may those behind it, up to the next long one.
    fn cleared(&mut self, (from, to): (u32, u32), port: &mut Port<'_>) {
        let mut first = true;
        while let Some(size) = self.out(from, to).announced.front().map(|(_, size)| *size) {
            if !first && size > self.shared.costs.eager {
                return self.launch((from, to), Content::Announce, 0, port);
            }
            first = false;
            let next = self.with_out(from, to, |out| out.announced.pop_front());
            let (content, size) = next.expect("there is a first one");
            self.launch((from, to), content, size, port);
        }
        self.leave(from, port);
    }

    /// Whether what goes to a rank stays on this node and goes through its memory.
    fn near(&self, to: u32) -> bool {
        self.shared.costs.local.is_some()
            && self.processes.binary_search_by_key(&to, |process| process.rank).is_ok()
    }

    /// Takes something to another rank of the node through memory.
    fn hand_over(&mut self, (from, to): (u32, u32), content: Content, size: u64, port: &mut Port<'_>) {
        let shared = Rc::clone(&self.shared);
        let Some(local) = &shared.costs.local else { return };
        let now = port.now();
        let mut at = now + local.latency;
        match (&content, &mut self.process(from).meter) {
            (Content::Message { .. }, Some(meter)) => meter.found.sent.add(size),
            // What a get brings its caller copies.
            (Content::Done { data: Some(_), .. }, _) => at = at + shared.costs.class_by(true, size).copy(size),
            _ => {}
        }
        let (number, bytes) = (port.number(), u32::try_from(size).unwrap_or(u32::MAX));
        let body = NumberedPacket { turn: 0, contents: PacketBody::Whole(content, size) };
        port.defer(at, Packet { number, from, to, bytes, sent: now, corrupt: false, body }, ARRIVED);
    }

    /// Lets something leave a rank's interface, packet by packet.
    fn launch(&mut self, way: (u32, u32), content: Content, size: u64, port: &mut Port<'_>) {
        if self.near(way.1) {
            return self.hand_over(way, content, size, port);
        }
        let shared = Rc::clone(&self.shared);
        let class = shared.costs.class(size);
        let (gap, now) = (class.gap(size), port.now());
        let process = self.process(way.0);
        let begins = process.send_free.max(now);
        process.send_free = begins + gap;
        if let Some(meter) = &mut process.meter {
            meter.found.busy[0].0 += gap.0;
            if matches!(content, Content::Message { .. }) {
                meter.found.sent.add(size);
            }
        }
        let packet = u64::from(shared.costs.packet);
        let count = size.div_ceil(packet).max(1);
        for index in 0..count - 1 {
            let at = begins + class.length(index * packet + 1);
            self.packet(way, packet as u32, PacketBody::Part, at, port);
        }
        let before = (count - 1) * packet;
        let at = begins + if count > 1 { class.length(before + 1) } else { Span::ZERO };
        self.packet(way, (size - before) as u32, PacketBody::Whole(content, size), at, port);
    }

    /// Sends a packet, in the turn of its stream where there are turns.
    fn packet(&mut self, way: (u32, u32), bytes: u32, contents: PacketBody, at: Instant, port: &mut Port<'_>) {
        let (from, to) = way;
        let mut turn = 0;
        if self.shared.lossy {
            let (window, timeout) = (self.shared.parameters.retry.window as usize, self.shared.costs.timeout);
            let sent = self.with_out(from, to, |out| {
                if out.kept.len() >= window || !out.waiting.is_empty() {
                    out.waiting.push_back((bytes, contents.clone()));
                    return None;
                }
                let turn = out.next;
                out.next = turn.wrapping_add(1);
                if out.kept.is_empty() {
                    out.due = at + timeout;
                }
                out.kept.push_back((turn, bytes, contents.clone()));
                Some((turn, out.due))
            });
            let Some((given, due)) = sent else { return };
            turn = given;
            self.set_timer(due, port);
        } else if self.shared.sequenced {
            let out = self.out(from, to);
            turn = out.next;
            out.next = turn.wrapping_add(1);
        }
        self.transmit((from, to), bytes, NumberedPacket { turn, contents }, at, port);
    }

    fn transmit(
        &mut self,
        (from, to): (u32, u32),
        bytes: u32,
        body: NumberedPacket,
        at: Instant,
        port: &mut Port<'_>,
    ) {
        let mut at = at.max(port.now());
        if self.limited[0] {
            let number = port.number();
            at = port.serve(INJECT, at, bytes, PacketId { number, from, to }).enters;
        }
        port.send_as(Outgoing { at: Some(at), ..Outgoing::new(from, to, bytes, body) });
    }

    /// Sends what waited for room in the window.
    fn refill(&mut self, from: u32, to: u32, port: &mut Port<'_>) {
        let window = self.shared.parameters.retry.window as usize;
        while let Some((turn, bytes, contents)) = self.with_out(from, to, |out| {
            if out.kept.len() >= window {
                return None;
            }
            let (bytes, contents) = out.waiting.pop_front()?;
            let turn = out.next;
            out.next = turn.wrapping_add(1);
            out.kept.push_back((turn, bytes, contents.clone()));
            Some((turn, bytes, contents))
        }) {
            self.transmit((from, to), bytes, NumberedPacket { turn, contents }, port.now(), port);
        }
    }

    fn set_timer(&mut self, at: Instant, port: &mut Port<'_>) {
        if self.timer.is_none_or(|timer| timer > at) {
            self.timer = Some(at);
            port.timer(at, 0);
        }
    }

    /// All packets of a stream before a turn have arrived.
    fn acknowledged(&mut self, from: u32, to: u32, turn: u32, port: &mut Port<'_>) {
        let due = port.now() + self.shared.costs.timeout;
        let news = self.with_out(from, to, |out| {
            let news = out.acknowledge(turn);
            if news {
                (out.attempts, out.due) = (0, due);
            }
            news
        });
        if news {
            self.refill(from, to, port);
            self.leave(from, port);
        }
    }

    /// Lets a rank leave that was to leave, once everything was sent.
    fn leave(&mut self, rank: u32, port: &mut Port<'_>) {
        let process = self.process(rank);
        if process.busy == 0
            && let Some(status) = process.leaves.take()
        {
            port.depart(rank, status);
        }
    }

    /// A rank leaves the job; the others learn it when it has sent everything.
    fn depart(&mut self, rank: u32, status: PeerStatus, port: &mut Port<'_>) {
        let process = self.process(rank);
        process.leaves = Some(status);
        if process.busy != 0 {
            // Peers may be gone that it still sends to.
            self.set_timer(port.now() + self.shared.costs.timeout, port);
        }
        self.leave(rank, port);
    }

    /// A packet has come in whole, and in its turn.
    fn take(&mut self, packet: Packet<NumberedPacket>, ready: Instant, port: &mut Port<'_>) {
        let Packet { to, bytes, ref body, .. } = packet;
        let PacketBody::Whole(_, size) = body.contents else { return };
        let shared = Rc::clone(&self.shared);
        let class = shared.costs.class(size);
        let mut at = ready + shared.costs.latency + shared.costs.trailing(class, bytes.into());
        let gap = class.gap(size);
        let process = self.process(to);
        at = at.max(process.receive_free);
        process.receive_free = at + gap;
        if let Some(meter) = &mut process.meter {
            meter.found.busy[1].0 += gap.0;
        }
        port.defer(at, packet, ARRIVED);
    }

    /// Something has reached its rank's memory.
    fn arrived(&mut self, packet: Packet<NumberedPacket>, port: &mut Port<'_>) {
        let Packet { from, to, body: NumberedPacket { contents, .. }, .. } = packet;
        let PacketBody::Whole(content, size) = contents else { return };
        let now = port.now();
        let shared = Rc::clone(&self.shared);
        let index = shared.costs.index(size);
        let process = self.process(to);
        let memory = process.memory.as_ref();
        let answer = match content {
            Content::Message { immediate, data, place, called } => {
                if let Some(meter) = &mut process.meter {
                    meter.received(called, now, index, size);
                }
                if let (Some(place), Some(memory)) = (place, memory) {
                    memory.memory().store(place.at as usize, &data[place.after..]);
                }
                process.inbox.push_back(Message { from, immediate, data, size });
                port.wake(to);
                return;
            }
            Content::Announce => Content::Clear,
            Content::Clear => return self.cleared((to, from), port),
            Content::Leave(_) => unreachable!("nobody is told of it by packets"),
            Content::Put { at, data, signal, id } => {
                let done = memory.is_some_and(|memory| {
                    let counted = |counter| memory.atomic(counter, &Atomic::increment()).is_ok();
                    memory.write(at, &data).is_ok() && signal.is_none_or(counted)
                });
                port.wake(to);
                Content::Done { id, value: 0, data: None, refused: !done }
            }
            Content::Get { at, len, id } => {
                let inside =
                    memory.filter(|memory| at.checked_add(len).is_some_and(|end| end <= memory.len() as u64));
                let data = inside
                    .map(|memory| shared.pool.lend(len as u32, |bytes| memory.memory().load(at as usize, bytes)));
                Content::Done { id, value: 0, refused: data.is_none(), data }
            }
            Content::Atomic { at, atomic, id } => {
                let value = memory.and_then(|memory| memory.atomic(at, &atomic).ok());
                port.wake(to);
                Content::Done { id, value: value.unwrap_or_default(), data: None, refused: value.is_none() }
            }
            Content::Done { id, value, data, refused } => {
                let outcome = if refused { Err(Fault::Refused) } else { Ok(()) };
                process.finished.push_back(Finished { id, value, data, outcome });
                port.wake(to);
                return;
            }
        };
        let size = match &answer {
            Content::Done { data: Some(data), .. } => data.len() as u64,
            Content::Done { .. } => 8,
            _ => 0,
        };
        self.launch((to, from), answer, size, port);
    }

    /// Gives up what a peer was to get.
    fn forget(&mut self, rank: u32, peer: u32) {
        self.with_out(rank, peer, |out| {
            out.kept.clear();
            out.waiting.clear();
            out.announced.clear();
            out.attempts = 0;
        });
    }

    /// Sends again what nobody has acknowledged in time, and forgets peers that are gone.
    fn repeat(&mut self, port: &mut Port<'_>) {
        let now = port.now();
        let (timeout, mut next) = (self.shared.costs.timeout, None::<Instant>);
        for index in 0..self.processes.len() {
            let rank = self.processes[index].rank;
            if self.processes[index].busy == 0 {
                continue;
            }
            let peers = self.processes[index].out.iter().flat_map(|peers| peers.iter());
            let busy: Vec<u32> = peers.filter(|(_, out)| out.is_busy()).map(|(peer, _)| peer).collect();
            for peer in busy {
                if port.status(peer) != PeerStatus::Active {
                    self.forget(rank, peer);
                    continue;
                }
                let limit = self.shared.parameters.retry.limit;
                if self.out(rank, peer).attempts >= limit {
                    self.forget(rank, peer);
                    self.process(rank).unreachable.push(peer);
                    port.wake(rank);
                    continue;
                }
                let again = self.with_out(rank, peer, |out| {
                    if out.kept.is_empty() || out.due > now {
                        return Vec::new();
                    }
                    out.attempts += 1;
                    out.due = now + Span(timeout.0 << out.attempts.min(DOUBLINGS));
                    out.kept.iter().take(REPEATED).cloned().collect()
                });
                if let Some(meter) = &mut self.process(rank).meter {
                    meter.found.repeated += again.len() as u64;
                }
                for (turn, bytes, contents) in again {
                    self.transmit((rank, peer), bytes, NumberedPacket { turn, contents }, now, port);
                }
                let leaves = self.process(rank).leaves.is_some();
                let out = self.out(rank, peer);
                let due = if out.kept.is_empty() { now + timeout } else { out.due };
                if !out.kept.is_empty() || leaves {
                    next = Some(next.map_or(due, |next| next.min(due)));
                }
            }
            self.leave(rank, port);
        }
        if let Some(next) = next {
            self.set_timer(next, port);
        }
    }
}

impl Crossing for Interface {
    type Sent = NumberedPacket<Detached>;

    fn send_over(body: NumberedPacket) -> NumberedPacket<Detached> {
        body.map(|bytes| Detached::new(&bytes))
    }

    fn take_over(&self, sent: NumberedPacket<Detached>) -> NumberedPacket {
        sent.map(|bytes| bytes.lend(&self.shared.pool))
    }
}

impl Device for Interface {
    type Body = NumberedPacket;

    fn stages(&self) -> Vec<(&'static str, Stage)> {
        let [inject, eject] = self.shared.parameters.stages();
        vec![("inject", inject), ("eject", eject)]
    }

    fn arrive(&mut self, packet: Packet<NumberedPacket>, port: &mut Port<'_>) {
        if packet.corrupt {
            return;
        }
        let Packet { from, to, bytes, sent, .. } = packet;
        let mut ready = port.now();
        let turn = packet.body.turn;
        if matches!(packet.body.contents, PacketBody::Acknowledged) {
            return self.acknowledged(to, from, turn, port);
        }
        if self.limited[1] {
            let about = PacketId::from(&packet);
            let leaves = port.serve(EJECT, ready, bytes, about).leaves;
            // It takes the bytes in as they come.
            ready = ready.max(Instant(leaves.0.saturating_sub(self.shared.costs.on_link(bytes.into()).0)));
        }
        if !self.shared.sequenced {
            return self.take(packet, ready, port);
        }
        let ranks = self.shared.ranks;
        let incoming = self.process(to).incoming.get_or_insert_with(|| PagedPeers::new(ranks));
        let stream = incoming.get_or_insert_with(from, In::default);
        match stream.turn(turn) {
            Turn::Now => {
                stream.expected = turn.wrapping_add(1);
                let (number, corrupt) = (packet.number, false);
                self.take(packet, ready, port);
                while let Some((bytes, sent, contents)) = self
                    .process(to)
                    .incoming
                    .as_mut()
                    .and_then(|peers| peers.get_or_insert_with(from, In::default).next())
                {
                    let body = NumberedPacket { turn: 0, contents };
                    self.take(Packet { number, from, to, bytes, sent, corrupt, body }, ready, port);
                }
            }
            Turn::Early => stream.keep(turn, bytes, sent, packet.body.contents),
            Turn::Known => {}
        }
        if self.shared.lossy {
            let incoming = self.process(to).incoming.as_ref().and_then(|peers| peers.get(from));
            let turn = incoming.map_or(0, |stream| stream.expected);
            let body = NumberedPacket { turn, contents: PacketBody::Acknowledged };
            port.send_as(Outgoing::new(to, from, 0, body));
        }
    }

    fn due(&mut self, packet: Packet<NumberedPacket>, token: u32, port: &mut Port<'_>) {
        if token == CALLED { self.called(packet, port) } else { self.arrived(packet, port) }
    }

    fn timer(&mut self, _: u32, port: &mut Port<'_>) {
        if self.timer.is_some_and(|timer| timer <= port.now()) {
            self.timer = None;
            self.repeat(port);
        }
    }

    fn explain(&self, rank: u32) -> Option<String> {
        let process = self.processes.iter().find(|process| process.rank == rank)?;
        (process.busy != 0).then(|| format!("its interface has something for {} peers", process.busy))
    }
}

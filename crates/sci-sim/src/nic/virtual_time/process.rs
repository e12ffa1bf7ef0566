//! What an adapter keeps for its process: segments, connections, maps, queues, interrupts, and the lines under
//! way.

use super::HostMemory;
use super::wire::{Reply, Verdict};
use crate::nic::code::Code;
use crate::nic::errors::{Failure, Injected, Injector, Severity};
use crate::nic::kinds::{Callback, CallbackSegment, Counters, DmaState, NodeId, SegmentId, SegmentReason};
use am_core::{Instant, Span};
use std::collections::VecDeque;

/// What happened to a segment and has not been looked at: at most so many; what comes then is dropped.
const EVENTS: usize = 256;

/// A table whose entries keep their numbers.
pub(super) struct Table<T>(Vec<Option<T>>);

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Puts an entry at a free number.
    pub(super) fn add(&mut self, entry: T) -> u32 {
        let free = self.0.iter().position(Option::is_none).unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[free] = Some(entry);
        free as u32
    }

    /// The entry of a handle, which lives as long as the handle.
    #[inline]
    pub(super) fn at(&mut self, number: u32) -> &mut T {
        self.0[number as usize].as_mut().expect("an entry lives as long as its handle")
    }

    pub(super) fn get(&mut self, number: u32) -> Option<&mut T> {
        self.0.get_mut(number as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.0[number as usize] = None;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten()
    }
}

/// A segment of this node.
pub(super) struct Local {
    pub(super) id: SegmentId,
    pub(super) session: u32,
    pub(super) size: usize,
    /// Where it begins in the node's address space.
    pub(super) base: u64,
    pub(super) memory: HostMemory,
    pub(super) prepared: bool,
    pub(super) available: bool,
    pub(super) maps: u32,
    /// Transfers in DMA queues.
    pub(super) transfers: u32,
    /// Who is connected: rank and key of the connection.
    pub(super) peers: Vec<(u32, u32)>,
    pub(super) callback: bool,
    pub(super) events: VecDeque<(NodeId, SegmentReason)>,
    pub(super) watched: Vec<usize>,
}

/// A connection to a segment of another node.
pub(super) struct Connection {
    pub(super) session: u32,
    pub(super) rank: u32,
    pub(super) node: NodeId,
    pub(super) id: SegmentId,
    pub(super) base: u64,
    pub(super) key: u32,
    pub(super) maps: u32,
    pub(super) transfers: u32,
    pub(super) callback: bool,
    pub(super) events: VecDeque<SegmentReason>,
    pub(super) operational: bool,
    pub(super) lost: bool,
}

/// A map of a connected segment.
pub(super) struct Map {
    pub(super) connection: u32,
    pub(super) sequences: u32,
    /// The worst that happened to its lines and has not been asked for.
    pub(super) failure: Option<Failure>,
}

/// A line that has not been answered.
pub(super) struct Pending {
    pub(super) serial: u32,
    pub(super) map: u32,
    /// When it counts as failed.
    pub(super) until: Instant,
    pub(super) injected: Option<Injected>,
}

/// A DMA queue.
pub(super) struct Queue {
    pub(super) session: u32,
    pub(super) state: DmaState,
    pub(super) max: usize,
    pub(super) transfers: Vec<Transfer>,
    /// Counts posts; parts of earlier ones are of no interest.
    pub(super) generation: u32,
    /// The transfer that is being sent, and how much of it has been.
    pub(super) current: usize,
    pub(super) sent: usize,
    pub(super) unanswered: u32,
    pub(super) failed: bool,
    /// When the engine began, and what it has sent since.
    pub(super) begin: Instant,
    pub(super) bytes: u64,
    /// When it counts as failed.
    pub(super) until: Instant,
}

/// A transfer of a DMA queue.
pub(super) struct Transfer {
    pub(super) local: u32,
    pub(super) connection: u32,
    pub(super) rank: u32,
    pub(super) source: HostMemory,
    pub(super) at: usize,
    pub(super) address: u64,
    pub(super) len: usize,
}

impl Queue {
    /// Whether everything has been handed to the network.
    pub(super) fn all_sent(&self) -> bool {
        self.current == self.transfers.len()
    }

    /// Ends it if everything is known, or too late.
    pub(super) fn settle(&mut self, now: Instant) -> bool {
        if self.state != DmaState::Posted {
            return true;
        }
        if self.all_sent() && self.unanswered == 0 {
            self.state = if self.failed { DmaState::Error } else { DmaState::Done };
        } else if now >= self.until {
            self.state = DmaState::Error;
        }
        self.state != DmaState::Posted
    }
}

/// An interrupt of this node.
pub(super) struct Interrupt {
    pub(super) session: u32,
    pub(super) number: u32,
    pub(super) pending: u32,
}

/// What the process, suspended in a call, waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanting {
    Nothing,
    /// Room for a line.
    Window,
    /// The lines of a map.
    Map(u32),
    /// All lines.
    Lines,
    Queue(u32),
    Reply,
    Interrupt(u32),
    Event,
}

/// The process of a node.
pub(super) struct Process {
    pub(super) rank: u32,
    /// Per session: how much made through it is in use.
    pub(super) sessions: Table<u32>,
    pub(super) locals: Table<Local>,
    pub(super) connections: Table<Connection>,
    pub(super) maps: Table<Map>,
    pub(super) queues: Table<Queue>,
    pub(super) interrupts: Table<Interrupt>,
    pub(super) pending: Vec<Pending>,
    pub(super) window: usize,
    pub(super) serial: u32,
    /// The question that is open, and its answer.
    pub(super) asked: Option<(u32, Option<Reply>)>,
    pub(super) wanting: Wanting,
    /// Something came that ends an idling.
    pub(super) news: bool,
    pub(super) callbacks: VecDeque<Callback>,
    pub(super) counters: Counters,
    pub(super) injector: Injector,
    pub(super) next_base: u64,
    pub(super) memory: u64,
    /// When the DMA engine has sent everything that was posted.
    pub(super) engine_free: Instant,
    /// When the last store so far lands here.
    pub(super) last_land: Instant,
    /// Losses that segments have been told of.
    pub(super) losses: u32,
    /// Under adversarial timing: when lines of an address that are on their way may land; by address, pruned.
    pub(super) accepted: Vec<(u64, Instant)>,
}

impl Process {
    pub(super) fn new(rank: u32, window: u32, injector: Injector) -> Self {
        Self {
            rank,
            sessions: Table::new(),
            locals: Table::new(),
            connections: Table::new(),
            maps: Table::new(),
            queues: Table::new(),
            interrupts: Table::new(),
            pending: Vec::with_capacity(window as usize + 1),
            window: window as usize,
            serial: 0,
            asked: None,
            wanting: Wanting::Nothing,
            news: false,
            callbacks: VecDeque::new(),
            counters: Counters::default(),
            injector,
            // Nothing lies at address 0, so that a wild store finds nobody.
            next_base: 1 << 16,
            memory: 0,
            engine_free: Instant(0),
            last_land: Instant(0),
            losses: 0,
            accepted: Vec::new(),
        }
    }

    pub(super) fn serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    pub(super) fn session(&mut self, number: u32, change: i32) {
        let used = self.sessions.at(number);
        *used = used.checked_add_signed(change).expect("what is given back was counted");
    }

    /// The segment that a range of the node's address space lies in, and where.
    pub(super) fn at_address(&self, offset: u64, len: usize) -> Option<(&Local, usize)> {
        let local = self.locals.iter().find(|local| {
            local.base <= offset && offset - local.base + len as u64 <= (local.size as u64).next_multiple_of(64)
        })?;
        Some((local, (offset - local.base) as usize))
    }

    pub(super) fn by_id(&mut self, id: SegmentId) -> Option<&mut Local> {
        self.locals.iter_mut().find(|local| local.id == id)
    }

    /// A line was answered.
    pub(super) fn answered(&mut self, serial: u32, verdict: Verdict) {
        let Some(found) = self.pending.iter().position(|pending| pending.serial == serial) else {
            return;
        };
        let pending = self.pending.remove(found);
        let severity = match verdict {
            Verdict::Taken => None,
            Verdict::Spoilt => Some(Severity::Passing),
            Verdict::Nowhere => Some(Severity::Lasting),
        };
        let failure = pending.injected.map(|injected| injected.failure).or(severity.map(Failure::new));
        self.failed(pending.map, failure);
    }

    fn failed(&mut self, map: u32, failure: Option<Failure>) {
        if let Some(failure) = failure {
            self.counters.failed_lines += 1;
            // A map that has been undone has nobody who would ask.
            if let Some(map) = self.maps.get(map) {
                Failure::worsen(&mut map.failure, failure);
            }
        }
    }

    /// Gives up lines whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(found) = self.pending.iter().position(|pending| pending.until <= now) {
            let pending = self.pending.remove(found);
            let injected = pending.injected.map(|injected| injected.failure);
            self.failed(pending.map, Some(injected.unwrap_or(Failure::new(Severity::Unclear))));
        }
    }

    /// When the next line is given up.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.until).min()
    }

    /// Whether the process need not wait any more.
    pub(super) fn satisfied(&mut self, now: Instant) -> bool {
        match self.wanting {
            Wanting::Nothing => false,
            Wanting::Window => self.pending.len() < self.window,
            Wanting::Map(map) => self.pending.iter().all(|pending| pending.map != map),
            Wanting::Lines => self.pending.is_empty(),
            Wanting::Queue(queue) => self.queues.at(queue).settle(now),
            Wanting::Reply => self.asked.is_some_and(|(_, result)| result.is_some()),
            Wanting::Interrupt(interrupt) => self.interrupts.at(interrupt).pending > 0,
            Wanting::Event => true,
        }
    }

    /// Something happened to a segment of this node.
    pub(super) fn local_event(&mut self, local: u32, node: NodeId, reason: SegmentReason) {
        let local = self.locals.at(local);
        if local.callback {
            let segment = CallbackSegment::Local(local.id);
            if self.callbacks.len() < EVENTS * 4 {
                self.callbacks.push_back(Callback { segment, node, reason });
            }
        } else if local.events.len() < EVENTS {
            local.events.push_back((node, reason));
        }
        self.news = true;
    }

    /// Something happened to a connection.
    pub(super) fn remote_event(&mut self, connection: u32, reason: SegmentReason) {
        let connection = self.connections.at(connection);
        if connection.callback {
            let (segment, node) = (CallbackSegment::Remote(connection.node, connection.id), connection.node);
            if self.callbacks.len() < EVENTS * 4 {
                self.callbacks.push_back(Callback { segment, node, reason });
            }
        } else if connection.events.len() < EVENTS {
            connection.events.push_back(reason);
        }
        self.news = true;
    }

    /// An interrupt came; returns whether there is one of that number.
    pub(super) fn triggered(&mut self, number: u32) -> bool {
        let found = self.interrupts.iter_mut().find(|entry| entry.number == number);
        found.map(|entry| entry.pending = entry.pending.saturating_add(1)).is_some()
    }

    pub(super) fn local_number(&self, base: u64) -> Option<u32> {
        self.locals.0.iter().position(|local| local.as_ref().is_some_and(|l| l.base == base)).map(|n| n as u32)
    }

    pub(super) fn connection_numbers(&self) -> Vec<u32> {
        let numbers = self.connections.0.iter().enumerate();
        numbers.filter_map(|(number, entry)| entry.as_ref().map(|_| number as u32)).collect()
    }

    pub(super) fn local_numbers(&self) -> Vec<u32> {
        let numbers = self.locals.0.iter().enumerate();
        numbers.filter_map(|(number, entry)| entry.as_ref().map(|_| number as u32)).collect()
    }

    /// Ends all connections of a rank to a segment.
    pub(super) fn drop_peer(&mut self, local: u32, rank: u32) {
        self.locals.at(local).peers.retain(|(peer, _)| *peer != rank);
    }

    /// Whether a byte that idling is for is not zero.
    pub(super) fn watched_now(&self) -> bool {
        self.locals.iter().any(|local| local.watched.iter().any(|at| local.memory.byte(*at) != 0))
    }

    /// What a deadlock report says.
    pub(super) fn explain(&self) -> String {
        let events = self.callbacks.len() + self.locals.iter().map(|local| local.events.len()).sum::<usize>();
        format!("{} lines unanswered, {events} segment events not looked at", self.pending.len())
    }

    /// How long an answer may take.
    pub(super) fn deadline(sent: Instant, timeout: Span) -> Instant {
        sent + timeout
    }
}

/// What an answer says to a caller.
pub(super) fn reply_done(result: Reply) -> Result<(), Code> {
    match result {
        Reply::Refused(code) => Err(code),
        _ => Ok(()),
    }
}

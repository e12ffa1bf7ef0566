//! A process's way to its simulated adapter: the interface itself, in terms of the parts in the files beside this
//! one.

use super::HostMemory;
use super::device::{Adapter, Look, Shared, looking};
use super::pio::Combiner;
use super::process::{Process, Wanting, reply_done};
use super::wire::{Ask, Body, Reply, Wire};
use crate::nic::code::{Code, RefusedObject};
use crate::nic::kinds::{
    Callback, Counters, DmaState, Flags, Limits, NodeId, RemoteAddress, SegmentId, SegmentReason, SequenceStatus,
};
use crate::nic::sequence::SequenceState;
use crate::nic::sisci::Sisci;
use am_core::{Instant, PeerStatus, Span};
use fabric_sim::{Context, DeviceContext, Outgoing, WaitFor};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// SISCI in virtual time: what a rank's program gets from [`run`](crate::run).
pub struct Virtual<'a> {
    pub(super) context: Context<'a, Adapter>,
    pub(super) shared: Rc<Shared>,
    pub(super) node: NodeId,
    pub(super) combiner: RefCell<Combiner>,
}

impl fmt::Debug for Virtual<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Virtual").field("node", &self.node).finish_non_exhaustive()
    }
}

/// A session.
#[derive(Debug)]
pub struct Descriptor(pub(super) u32);

/// A segment of this node.
#[derive(Debug)]
pub struct LocalSegment(pub(super) u32);

/// A map of a segment of this node.
#[derive(Debug)]
pub struct LocalMap {
    pub(super) segment: u32,
    pub(super) offset: usize,
    pub(super) memory: HostMemory,
}

/// A connection to a segment of another node.
#[derive(Debug)]
pub struct RemoteSegment {
    pub(super) number: u32,
    pub(super) size: usize,
}

/// A map of a connected segment.
#[derive(Debug)]
pub struct RemoteMap {
    pub(super) number: u32,
    pub(super) rank: u32,
    pub(super) address: RemoteAddress,
    pub(super) size: usize,
}

/// A map sequence.
#[derive(Debug)]
pub struct Sequence {
    pub(super) map: u32,
    pub(super) rank: u32,
    pub(super) connection: u32,
    pub(super) state: SequenceState,
}

/// A DMA queue.
#[derive(Debug)]
pub struct DmaQueue(pub(super) u32);

/// An interrupt of this node.
#[derive(Debug)]
pub struct Interrupt(pub(super) u32);

/// A connection to an interrupt of another node.
#[derive(Debug)]
pub struct RemoteInterrupt {
    rank: u32,
    number: u32,
}

const SESSIONS: usize = 65_536;
const INTERRUPTS: usize = 64;

impl<'a> Virtual<'a> {
    pub(crate) fn initialize(context: Context<'a, Adapter>, shared: Rc<Shared>) -> Self {
        let node = Shared::node_id(context.node_of(context.rank()));
        Self { context, shared, node, combiner: RefCell::default() }
    }

    /// This rank's number in the simulation.
    pub fn rank(&self) -> u32 {
        self.context.rank()
    }

    /// The node of every rank.
    pub fn nodes(&self) -> Vec<NodeId> {
        (0..self.context.ranks()).map(|rank| Shared::node_id(self.context.node_of(rank))).collect()
    }

    /// The machine's parameter table.
    pub fn parameters(&self) -> &crate::model::Parameters {
        &self.shared.parameters
    }

    /// This rank's clock, and what else the simulation offers a rank.
    pub fn context(&self) -> &Context<'a, Adapter> {
        &self.context
    }

    /// Works on the process after everything earlier has happened.
    #[inline]
    pub(super) fn settled<R>(&self, work: impl FnOnce(&mut Process) -> R) -> R {
        self.context.device(|adapter, _| work(adapter.process()))
    }

    /// Works on what belongs to this process alone.
    #[inline]
    pub(super) fn own<R>(&self, work: impl FnOnce(&mut Process) -> R) -> R {
        self.context.local(|adapter, _| work(adapter.process()))
    }

    /// A call into the driver.
    pub(super) fn call(&self) {
        self.context.charge(self.shared.costs.call);
    }

    /// Suspends the rank until a look finds what the call is for; `None` at `until`.
    pub(super) fn wait<R>(
        &self,
        wanting: Wanting,
        until: Option<Instant>,
        mut look: impl FnMut(&mut Process, Instant) -> Look<R>,
    ) -> Option<R> {
        loop {
            let found = self.context.device(|adapter, port: &mut DeviceContext<'_, Wire>| {
                let now = port.now();
                looking(adapter, wanting, |process| look(process, now))
            });
            let deadline = match found {
                Look::Done(found) => return Some(found),
                Look::Wait(deadline) => earlier(deadline, until),
            };
            // A rank that unwinds cannot wait: its time would stand still.
            if std::thread::panicking() || until.is_some_and(|until| until <= self.context.now()) {
                self.own(|process| process.wanting = Wanting::Nothing);
                return None;
            }
            self.context.idle(deadline, WaitFor::Named("its SCI adapter"));
        }
    }

    /// Whether the way to a rank and back is known not to work, and with which code.
    pub(super) fn broken(&self, rank: u32) -> Option<Code> {
        if matches!(self.context.known_status(rank), PeerStatus::Lost(_)) {
            return Some(Code::NoRemoteLinkAccess);
        }
        if !self.shared.breakable {
            return None;
        }
        let me = self.context.rank();
        self.context.device(|_, port| match port.cut(me, rank) {
            Some(0) => Some(Code::NoLinkAccess),
            Some(_) => Some(Code::NoRemoteLinkAccess),
            None => port.cut(rank, me).map(|_| Code::NoRemoteLinkAccess),
        })
    }

    /// The rank of a node that can be asked something.
    fn reach(&self, node: NodeId) -> Result<u32, Code> {
        match self.shared.rank_at(node) {
            None => Err(Code::NoSuchNodeId),
            Some(None) => Err(Code::NoRemoteLinkAccess),
            Some(Some(rank)) => self.broken(rank).map_or(Ok(rank), Err),
        }
    }

    /// Asks another node something and waits for the answer. Questions and answers that get lost are asked again.
    pub(super) fn ask(&self, rank: u32, ask: Ask, timeout: Option<Span>) -> Result<Reply, Code> {
        self.flush();
        let until = timeout.map(|timeout| self.context.now() + timeout);
        let (again, send) = (self.shared.costs.timeout, self.shared.costs.send);
        loop {
            let serial = self.own(|process| {
                let serial = process.serial();
                process.asked = Some((serial, None));
                serial
            });
            let now = self.context.now();
            let body = Wire(Body::Ask { serial, ask });
            self.context.send_as(Outgoing { at: Some(now + send), ..Outgoing::new(self.rank(), rank, 0, body) });
            let deadline = earlier(until, Some(now + again)).expect("one of them is given");
            let result = self.wait(Wanting::Reply, Some(deadline), |process, _| {
                process.asked.and_then(|(_, result)| result).map_or(Look::Wait(None), Look::Done)
            });
            if let Some(result) = result {
                return Ok(result);
            }
            if let Some(code) = self.broken(rank) {
                return Err(code);
            }
            if std::thread::panicking() || until.is_some_and(|until| until <= self.context.now()) {
                return Err(Code::Timeout);
            }
        }
    }
}

/// The earlier of two times that may be missing.
pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl<'a> Sisci for Virtual<'a> {
    type Memory = HostMemory;
    type Descriptor = Descriptor;
    type LocalSegment = LocalSegment;
    type LocalMap = LocalMap;
    type RemoteSegment = RemoteSegment;
    type RemoteMap = RemoteMap;
    type Sequence = Sequence;
    type DmaQueue = DmaQueue;
    type Interrupt = Interrupt;
    type RemoteInterrupt = RemoteInterrupt;

    fn open(&self) -> Result<Descriptor, Code> {
        self.call();
        self.own(|process| {
            let full = process.sessions.iter().count() >= SESSIONS;
            if full { Err(Code::NoSpace) } else { Ok(Descriptor(process.sessions.add(0))) }
        })
    }

    fn close(&self, descriptor: Descriptor) -> Result<(), RefusedObject<Descriptor>> {
        self.call();
        let used = self.own(|process| *process.sessions.at(descriptor.0));
        if used != 0 {
            return Err(RefusedObject { code: Code::Busy, object: descriptor });
        }
        self.own(|process| process.sessions.remove(descriptor.0));
        Ok(())
    }

    fn terminate(self) -> Result<(), RefusedObject<Self>> {
        self.store_barrier();
        let open = self.own(|process| process.sessions.iter().count());
        if open == 0 { Ok(()) } else { Err(RefusedObject { code: Code::Busy, object: self }) }
    }

    fn probe_node(&self, _: &Descriptor, node: NodeId) -> Result<(), Code> {
        self.call();
        let rank = self.reach(node)?;
        let timeout = Span(self.shared.costs.timeout.0.saturating_mul(4));
        match self.ask(rank, Ask::Probe, Some(timeout)) {
            Ok(_) => Ok(()),
            Err(Code::Timeout) => Err(Code::NoRemoteLinkAccess),
            Err(code) => Err(code),
        }
    }

    fn node(&self) -> NodeId {
        self.node
    }

    fn limits(&self) -> Limits {
        let parameters = &self.shared.parameters;
        Limits {
            segment_bytes: parameters.segment_bytes as usize,
            outstanding: parameters.pio.outstanding,
            dma_alignment: parameters.dma.alignment as usize,
        }
    }

    fn create_segment(
        &self,
        descriptor: &Descriptor,
        id: SegmentId,
        size: usize,
        flags: Flags,
    ) -> Result<LocalSegment, Code> {
        self.create(descriptor, id, size, flags)
    }

    fn prepare_segment(&self, segment: &LocalSegment) -> Result<(), Code> {
        self.prepare(segment)
    }

    fn map_local(&self, segment: &LocalSegment, offset: usize, size: usize) -> Result<LocalMap, Code> {
        self.show(segment, offset, size)
    }

    fn unmap_local(&self, map: LocalMap) -> Result<(), RefusedObject<LocalMap>> {
        self.hide(map)
    }

    fn set_available(&self, segment: &LocalSegment) -> Result<(), Code> {
        self.offer(segment, true)
    }

    fn set_unavailable(&self, segment: &LocalSegment) -> Result<(), Code> {
        self.offer(segment, false)
    }

    fn remove_segment(&self, segment: LocalSegment) -> Result<(), RefusedObject<LocalSegment>> {
        self.remove(segment)
    }

    fn wait_for_local_segment_event(
        &self,
        segment: &LocalSegment,
        timeout: Option<Span>,
    ) -> Result<(NodeId, SegmentReason), Code> {
        self.local_event(segment, timeout)
    }

    fn connect_segment(
        &self,
        descriptor: &Descriptor,
        node: NodeId,
        id: SegmentId,
        timeout: Span,
        flags: Flags,
    ) -> Result<RemoteSegment, Code> {
        flags.only(Flags::USE_CALLBACK)?;
        self.call();
        let rank = self.reach(node)?;
        self.connect(descriptor, rank, node, id, timeout, flags)
    }

    fn remote_segment_size(&self, segment: &RemoteSegment) -> usize {
        segment.size
    }

    fn map_remote(&self, segment: &RemoteSegment, offset: usize, size: usize) -> Result<RemoteMap, Code> {
        self.import(segment, offset, size)
    }

    fn unmap_remote(&self, map: RemoteMap) -> Result<(), RefusedObject<RemoteMap>> {
        self.unimport(map)
    }

    fn disconnect_segment(&self, segment: RemoteSegment) -> Result<(), RefusedObject<RemoteSegment>> {
        self.disconnect(segment)
    }

    fn wait_for_remote_segment_event(
        &self,
        segment: &RemoteSegment,
        timeout: Option<Span>,
    ) -> Result<SegmentReason, Code> {
        self.remote_event(segment, timeout)
    }

    fn next_callback(&self) -> Option<Callback> {
        self.survey();
        self.settled(|process| process.callbacks.pop_front())
    }

    fn remote_address(&self, map: &RemoteMap, offset: usize) -> Result<RemoteAddress, Code> {
        if offset >= map.size {
            return Err(Code::OutOfRange);
        }
        RemoteAddress::new(map.address.node(), map.address.offset() + offset as u64)
    }

    #[inline]
    fn store(&self, map: &RemoteMap, offset: usize, bytes: &[u8]) -> Result<(), Code> {
        self.combine(map, offset, bytes)
    }

    #[inline]
    fn store_flag(&self, map: &RemoteMap, offset: usize, value: u8) -> Result<(), Code> {
        self.combine(map, offset, &[value])
    }

    fn flush(&self) {
        self.push_out();
    }

    fn store_barrier(&self) {
        self.barrier();
    }

    fn alert(&self, _: &RemoteMap) {}

    fn read_remote(&self, map: &RemoteMap, offset: usize, out: &mut [u8]) -> Result<(), Code> {
        self.read(map, offset, out)
    }

    fn create_map_sequence(&self, map: &RemoteMap) -> Result<Sequence, Code> {
        let connection = self.own(|process| {
            let entry = process.maps.at(map.number);
            entry.sequences += 1;
            entry.connection
        });
        Ok(Sequence { map: map.number, rank: map.rank, connection, state: SequenceState::new() })
    }

    fn remove_sequence(&self, sequence: Sequence) {
        self.own(|process| process.maps.at(sequence.map).sequences -= 1);
    }

    fn start_sequence(&self, sequence: &mut Sequence) -> SequenceStatus {
        self.start(sequence)
    }

    fn check_sequence(&self, sequence: &mut Sequence, flags: Flags) -> Result<SequenceStatus, Code> {
        self.check(sequence, flags)
    }

    fn memory(&self, map: &LocalMap) -> HostMemory {
        map.memory.clone()
    }

    #[inline]
    fn flag(&self, map: &LocalMap, offset: usize) -> u8 {
        self.context.sync();
        map.memory.byte(offset)
    }

    #[inline]
    fn take_flag(&self, map: &LocalMap, offset: usize) -> u8 {
        use am_core::segment::Memory;
        let found = self.flag(map, offset);
        if found != 0 {
            map.memory.store(offset, &[0]);
        }
        found
    }

    fn watch(&self, map: &LocalMap, offset: usize) -> Result<(), Code> {
        if offset >= map.memory.len() {
            return Err(Code::OutOfRange);
        }
        self.own(|process| process.locals.at(map.segment).watched.push(map.offset + offset));
        Ok(())
    }

    fn sync(&self) {
        self.context.sync();
    }

    fn create_dma_queue(&self, descriptor: &Descriptor, max: usize) -> Result<DmaQueue, Code> {
        self.new_queue(descriptor, max)
    }

    fn enqueue(
        &self,
        queue: &mut DmaQueue,
        local: &LocalSegment,
        local_offset: usize,
        remote: &RemoteSegment,
        remote_offset: usize,
        size: usize,
    ) -> Result<(), Code> {
        self.add_transfer(queue, (local, local_offset), (remote, remote_offset), size)
    }

    fn post(&self, queue: &mut DmaQueue) -> Result<(), Code> {
        self.begin(queue)
    }

    fn dma_state(&self, queue: &DmaQueue) -> DmaState {
        let now = self.now();
        self.settled(|process| {
            let queue = process.queues.at(queue.0);
            queue.settle(now);
            queue.state
        })
    }

    fn wait_for_dma_queue(&self, queue: &mut DmaQueue, timeout: Option<Span>) -> Result<(), Code> {
        self.await_queue(queue, timeout)
    }

    fn reset(&self, queue: &mut DmaQueue) -> Result<(), Code> {
        self.empty(queue)
    }

    fn abort(&self, queue: &mut DmaQueue) -> Result<(), Code> {
        self.end(queue)
    }

    fn remove_dma_queue(&self, queue: DmaQueue) -> Result<(), RefusedObject<DmaQueue>> {
        self.drop_queue(queue)
    }

    fn create_interrupt(&self, descriptor: &Descriptor, number: u32) -> Result<Interrupt, Code> {
        use super::process::Interrupt as Entry;
        self.call();
        self.settled(|process| {
            if process.interrupts.iter().any(|interrupt| interrupt.number == number) {
                return Err(Code::SegmentIdUsed);
            }
            if process.interrupts.iter().count() >= INTERRUPTS {
                return Err(Code::NoSpace);
            }
            process.session(descriptor.0, 1);
            Ok(Interrupt(process.interrupts.add(Entry { session: descriptor.0, number, pending: 0 })))
        })
    }

    fn remove_interrupt(&self, interrupt: Interrupt) {
        self.call();
        self.settled(|process| {
            let session = process.interrupts.at(interrupt.0).session;
            process.session(session, -1);
            process.interrupts.remove(interrupt.0);
        });
    }

    fn connect_interrupt(
        &self,
        _: &Descriptor,
        node: NodeId,
        number: u32,
        timeout: Span,
    ) -> Result<RemoteInterrupt, Code> {
        self.call();
        let rank = self.reach(node)?;
        reply_done(self.ask(rank, Ask::FindInterrupt { number }, Some(timeout))?)?;
        Ok(RemoteInterrupt { rank, number })
    }

    fn disconnect_interrupt(&self, _: RemoteInterrupt) {
        self.call();
    }

    fn trigger_interrupt(&self, interrupt: &RemoteInterrupt) -> Result<(), Code> {
        self.call();
        self.flush();
        let (at, body) =
            (Some(self.now() + self.shared.costs.send), Wire(Body::Trigger { number: interrupt.number }));
        self.context.send_as(Outgoing { at, ..Outgoing::new(self.rank(), interrupt.rank, 0, body) });
        Ok(())
    }

    fn wait_for_interrupt(&self, interrupt: &Interrupt, timeout: Option<Span>) -> Result<(), Code> {
        self.flush();
        let until = timeout.map(|timeout| self.now() + timeout);
        let taken = self.wait(Wanting::Interrupt(interrupt.0), until, |process, _| {
            let entry = process.interrupts.at(interrupt.0);
            if entry.pending == 0 {
                return Look::Wait(None);
            }
            entry.pending -= 1;
            Look::Done(())
        });
        taken.ok_or(Code::Timeout)
    }

    fn idle(&self, until: Option<Instant>, wanted: impl Into<WaitFor>) {
        self.flush();
        let news = self.settled(|process| std::mem::take(&mut process.news) || process.watched_now());
        if !news {
            self.context.idle(until, wanted);
            self.own(|process| process.news = false);
        }
    }

    #[inline]
    fn now(&self) -> Instant {
        self.context.now()
    }

    #[inline]
    fn charge(&self, cost: Span) {
        self.context.charge(cost);
    }

    #[inline]
    fn charge_empty_poll(&self) {
        self.context.charge_empty_poll();
    }

    fn depart(&self, how: PeerStatus) {
        self.flush();
        self.context.depart(how);
    }

    fn status(&self, node: NodeId) -> PeerStatus {
        match self.shared.rank_at(node) {
            Some(Some(rank)) => self.context.status(rank),
            _ => PeerStatus::Active,
        }
    }

    fn losses(&self) -> u32 {
        self.context.losses()
    }

    fn counters(&self) -> Counters {
        self.own(|process| process.counters)
    }
}

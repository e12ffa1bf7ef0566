//! The interface itself between processes, in terms of the files beside this one.

use super::dma::{DmaQueue, Transfer};
use super::library::Mapped;
use super::node::{INTERRUPTS, Peer};
use super::objects::{
    Descriptor, Interrupt, LocalMap, LocalSegment, RemoteInterrupt, RemoteMap, RemoteSegment, Sequence, lines,
};
use super::region::View;
use super::segment::{Local, New, Remote, Wish};
use crate::nic::code::{Code, RefusedObject};
use crate::nic::errors::{Failure, Severity};
use crate::nic::flag;
use crate::nic::kinds::{
    ALIGNMENT, Callback, Counters, DmaState, Flags, LINE, Limits, MAP_ALIGNMENT, NodeId, RemoteAddress, SegmentId,
    SegmentReason, SequenceStatus, inside,
};
use crate::nic::mutation::Mutation;
use crate::nic::sequence::SequenceState;
use crate::nic::sisci::{MAX_TRANSFERS, Sisci};
use am_core::segment::Memory;
use am_core::{Instant, PeerStatus, Span};
use fabric_sim::WaitFor;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

/// How long an error that the driver investigates is pending.
const INVESTIGATION: Span = Span::from_micros(50);

const SESSIONS: usize = 65_536;
const GRAIN: u64 = 1 << 16;

impl Mapped {
    fn has(&self, mutation: Mutation) -> bool {
        self.config.defects.has(mutation)
    }

    /// Stores line by line; some fail.
    #[cold]
    fn store_faulty(&self, map: &RemoteMap, offset: usize, bytes: &[u8], put: impl Fn(usize, &[u8])) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let room = LINE - (map.offset + at) % LINE;
            let (some, more) = rest.split_at(room.min(rest.len()));
            let injected = self.injector.borrow_mut().draw();
            if let Some(injected) = injected {
                map.shared.fail(injected.failure);
                self.count(|counters| counters.failed_lines += 1);
            }
            if injected.is_none_or(|injected| injected.lands) {
                put(at, some);
            }
            (at, rest) = (at + some.len(), more);
        }
    }

    /// The living process of a node.
    fn reach(&self, node: NodeId) -> Result<Arc<Peer>, Code> {
        if !self.config.nodes.contains(&node) {
            return Err(Code::NoSuchNodeId);
        }
        if !self.config.directory.is_dir() {
            // Without the job's directory this node is cut off.
            return Err(Code::NoLinkAccess);
        }
        let peer = self.peer(node).ok_or(Code::NoRemoteLinkAccess)?;
        match peer.look() {
            PeerStatus::Active => Ok(peer),
            _ => Err(Code::NoRemoteLinkAccess),
        }
    }

    fn session(&self, descriptor: &Descriptor) -> Arc<AtomicU32> {
        descriptor.0.fetch_add(1, Relaxed);
        Arc::clone(&descriptor.0)
    }
}

impl Sisci for Mapped {
    type Memory = View;
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
        let mut sessions = self.sessions.borrow_mut();
        if sessions.len() >= SESSIONS {
            return Err(Code::NoSpace);
        }
        let session = Arc::new(AtomicU32::new(0));
        sessions.push(Arc::clone(&session));
        Ok(Descriptor(session))
    }

    fn close(&self, descriptor: Descriptor) -> Result<(), RefusedObject<Descriptor>> {
        if descriptor.0.load(Relaxed) != 0 {
            return Err(RefusedObject { code: Code::Busy, object: descriptor });
        }
        self.sessions.borrow_mut().retain(|session| !Arc::ptr_eq(session, &descriptor.0));
        Ok(())
    }

    fn terminate(self) -> Result<(), RefusedObject<Self>> {
        let open = !self.sessions.borrow().is_empty();
        if open { Err(RefusedObject { code: Code::Busy, object: self }) } else { Ok(()) }
    }

    fn probe_node(&self, _: &Descriptor, node: NodeId) -> Result<(), Code> {
        self.reach(node).map(drop)
    }

    fn node(&self) -> NodeId {
        self.config.node
    }

    fn limits(&self) -> Limits {
        Limits {
            segment_bytes: self.config.segment_bytes,
            outstanding: 1,
            dma_alignment: self.config.dma_alignment,
        }
    }

    fn create_segment(
        &self,
        descriptor: &Descriptor,
        id: SegmentId,
        size: usize,
        flags: Flags,
    ) -> Result<LocalSegment, Code> {
        flags.only(Flags::USE_CALLBACK)?;
        if size == 0 || !size.is_multiple_of(ALIGNMENT) {
            return Err(Code::SizeAlignment);
        }
        if self.locals.borrow().iter().any(|local| local.id == id) {
            return Err(Code::SegmentIdUsed);
        }
        let base = self.next_base.get();
        let next = base + (size as u64).next_multiple_of(GRAIN);
        let room = size <= self.config.memory_bytes.saturating_sub(self.memory.get());
        // Rule 8 of the sheet: segments beyond the limit are refused.
        let large = size > self.config.segment_bytes && !self.has(Mutation::AnySize);
        if large || !room || next >= 1 << RemoteAddress::OFFSET_BITS {
            return Err(Code::NoSpace);
        }
        let local = Local::create(New {
            directory: &self.config.directory,
            node: self.config.node,
            id,
            size,
            base,
            incarnation: self.post.incarnation(),
            callback: flags.has(Flags::USE_CALLBACK),
            session: Arc::clone(&descriptor.0),
        });
        let local = Arc::new(local.map_err(|_| Code::System)?);
        descriptor.0.fetch_add(1, Relaxed);
        self.next_base.set(next);
        self.memory.set(self.memory.get() + size);
        self.locals.borrow_mut().push(Arc::clone(&local));
        Ok(LocalSegment(local))
    }

    fn prepare_segment(&self, segment: &LocalSegment) -> Result<(), Code> {
        if segment.0.prepared.load(Relaxed) {
            return Err(Code::Busy);
        }
        segment.0.prepare()?;
        segment.0.prepared.store(true, Relaxed);
        Ok(())
    }

    fn map_local(&self, segment: &LocalSegment, offset: usize, size: usize) -> Result<LocalMap, Code> {
        let LocalSegment(local) = segment;
        if !local.prepared.load(Relaxed) {
            return Err(Code::SegmentNotPrepared);
        }
        inside(offset, size, local.size, MAP_ALIGNMENT)?;
        local.maps.fetch_add(1, Relaxed);
        // The file ends with a whole word, so that all of the map can be seen as words.
        let memory = local.memory.part(offset, size.next_multiple_of(8));
        Ok(LocalMap { segment: Arc::clone(local), offset, memory })
    }

    fn unmap_local(&self, map: LocalMap) -> Result<(), RefusedObject<LocalMap>> {
        let silent = self.has(Mutation::SilentLoss);
        self.look_after_peers();
        // Rule 8 of the sheet: what others are connected to stays mapped.
        if self.survey_local(&map.segment, silent) != 0 && !self.has(Mutation::UnmapConnected) {
            return Err(RefusedObject { code: Code::Busy, object: map });
        }
        map.segment.maps.fetch_sub(1, Relaxed);
        let part = map.offset..map.offset + map.memory.len();
        let first = map.segment.memory.flag(0) as *const _;
        self.watched.borrow_mut().retain(|(view, at)| !(std::ptr::eq(view.flag(0), first) && part.contains(at)));
        Ok(())
    }

    fn set_available(&self, segment: &LocalSegment) -> Result<(), Code> {
        if !segment.0.prepared.load(Relaxed) {
            return Err(Code::SegmentNotPrepared);
        }
        segment.0.offer(true);
        Ok(())
    }

    fn set_unavailable(&self, segment: &LocalSegment) -> Result<(), Code> {
        if !segment.0.prepared.load(Relaxed) {
            return Err(Code::SegmentNotPrepared);
        }
        segment.0.offer(false);
        Ok(())
    }

    fn remove_segment(&self, segment: LocalSegment) -> Result<(), RefusedObject<LocalSegment>> {
        let LocalSegment(local) = &segment;
        let used = local.maps.load(Relaxed) != 0 || local.transfers.load(Relaxed) != 0;
        // From here on nobody connects, so that who is not connected now never will be.
        let available = local.available();
        local.offer(false);
        self.look_after_peers();
        let connected = self.survey_local(local, self.has(Mutation::SilentLoss)) != 0;
        // Rule 8 of the sheet: what others are connected to is not removed.
        if used || connected && !self.has(Mutation::RemoveConnected) {
            local.offer(available);
            return Err(RefusedObject { code: Code::Busy, object: segment });
        }
        local.unlink();
        local.session.fetch_sub(1, Relaxed);
        self.memory.set(self.memory.get() - local.size);
        self.locals.borrow_mut().retain(|other| !Arc::ptr_eq(other, local));
        Ok(())
    }

    fn wait_for_local_segment_event(
        &self,
        segment: &LocalSegment,
        timeout: Option<Span>,
    ) -> Result<(NodeId, SegmentReason), Code> {
        let LocalSegment(local) = segment;
        if local.callback {
            return Err(Code::IllegalOperation);
        }
        let event = self.wait(timeout, || {
            self.survey();
            local.events.lock().expect("nobody panics with events in hand").pop_front()
        });
        event.ok_or(Code::Timeout)
    }

    fn connect_segment(
        &self,
        descriptor: &Descriptor,
        node: NodeId,
        id: SegmentId,
        _: Span,
        flags: Flags,
    ) -> Result<RemoteSegment, Code> {
        flags.only(Flags::USE_CALLBACK)?;
        let peer = self.reach(node)?;
        let wish = Wish {
            directory: &self.config.directory,
            id,
            me: self.config.node,
            incarnation: self.post.incarnation(),
            callback: flags.has(Flags::USE_CALLBACK),
            session: Arc::clone(&descriptor.0),
            anyway: self.has(Mutation::ConnectAnyway),
        };
        let remote = Arc::new(Remote::connect(wish, peer)?);
        descriptor.0.fetch_add(1, Relaxed);
        self.remotes.borrow_mut().push(Arc::clone(&remote));
        self.count(|counters| counters.connections += 1);
        Ok(RemoteSegment(remote))
    }

    fn remote_segment_size(&self, segment: &RemoteSegment) -> usize {
        segment.0.size
    }

    fn map_remote(&self, segment: &RemoteSegment, offset: usize, size: usize) -> Result<RemoteMap, Code> {
        let RemoteSegment(remote) = segment;
        inside(offset, size, remote.size, ALIGNMENT)?;
        remote.maps.fetch_add(1, Relaxed);
        let (segment, memory, shared) = (Arc::clone(remote), remote.memory.clone(), Arc::default());
        Ok(RemoteMap { segment, offset, size, memory, shared })
    }

    fn unmap_remote(&self, map: RemoteMap) -> Result<(), RefusedObject<RemoteMap>> {
        if map.shared.sequences.load(Relaxed) != 0 {
            return Err(RefusedObject { code: Code::Busy, object: map });
        }
        map.segment.maps.fetch_sub(1, Relaxed);
        Ok(())
    }

    fn disconnect_segment(&self, segment: RemoteSegment) -> Result<(), RefusedObject<RemoteSegment>> {
        let RemoteSegment(remote) = &segment;
        if remote.maps.load(Relaxed) != 0 || remote.transfers.load(Relaxed) != 0 {
            return Err(RefusedObject { code: Code::Busy, object: segment });
        }
        remote.disconnect();
        remote.session.fetch_sub(1, Relaxed);
        self.remotes.borrow_mut().retain(|other| !Arc::ptr_eq(other, remote));
        Ok(())
    }

    fn wait_for_remote_segment_event(
        &self,
        segment: &RemoteSegment,
        timeout: Option<Span>,
    ) -> Result<SegmentReason, Code> {
        let RemoteSegment(remote) = segment;
        if remote.callback {
            return Err(Code::IllegalOperation);
        }
        let event = self.wait(timeout, || {
            self.survey();
            remote.events.lock().expect("nobody panics with events in hand").pop_front()
        });
        event.ok_or(Code::Timeout)
    }

    fn next_callback(&self) -> Option<Callback> {
        if let Some(callback) = self.callbacks.borrow_mut().pop_front() {
            return Some(callback);
        }
        self.survey();
        self.callbacks.borrow_mut().pop_front()
    }

    fn remote_address(&self, map: &RemoteMap, offset: usize) -> Result<RemoteAddress, Code> {
        if offset >= map.size {
            return Err(Code::OutOfRange);
        }
        RemoteAddress::new(map.segment.peer.node, map.segment.base + (map.offset + offset) as u64)
    }

    #[inline]
    fn store(&self, map: &RemoteMap, offset: usize, bytes: &[u8]) -> Result<(), Code> {
        if offset.checked_add(bytes.len()).is_none_or(|end| end > map.size) {
            return Err(Code::OutOfRange);
        }
        self.count(|counters| counters.lines += lines(map.offset + offset, bytes.len()));
        if self.faulty {
            self.store_faulty(map, offset, bytes, |at, some| map.memory.store(map.offset + at, some));
        } else {
            map.memory.store(map.offset + offset, bytes);
        }
        Ok(())
    }

    #[inline]
    fn store_flag(&self, map: &RemoteMap, offset: usize, value: u8) -> Result<(), Code> {
        if offset >= map.size {
            return Err(Code::OutOfRange);
        }
        self.count(|counters| counters.lines += 1);
        if self.faulty {
            self.store_faulty(map, offset, &[value], |at, _| map.memory.flag(map.offset + at).set(value));
        } else {
            map.memory.flag(map.offset + offset).set(value);
        }
        Ok(())
    }

    fn flush(&self) {}

    #[inline]
    fn store_barrier(&self) {
        flag::barrier();
    }

    #[inline]
    fn alert(&self, map: &RemoteMap) {
        map.segment.peer.wake();
    }

    fn read_remote(&self, map: &RemoteMap, offset: usize, out: &mut [u8]) -> Result<(), Code> {
        if offset.checked_add(out.len()).is_none_or(|end| end > map.size) {
            return Err(Code::OutOfRange);
        }
        if map.segment.peer.gone() {
            return Err(Code::TransferFailed);
        }
        // Rule 6 of the sheet: remote reads are counted.
        if !self.has(Mutation::UncountedReads) {
            self.count(|counters| counters.remote_reads += lines(map.offset + offset, out.len()));
        }
        map.memory.load(map.offset + offset, out);
        Ok(())
    }

    fn create_map_sequence(&self, map: &RemoteMap) -> Result<Sequence, Code> {
        map.shared.sequences.fetch_add(1, Relaxed);
        let (lines, peer) = (Arc::clone(&map.shared), Arc::clone(&map.segment.peer));
        Ok(Sequence { lines, peer, state: SequenceState::new() })
    }

    fn remove_sequence(&self, sequence: Sequence) {
        sequence.lines.sequences.fetch_sub(1, Relaxed);
    }

    fn start_sequence(&self, sequence: &mut Sequence) -> SequenceStatus {
        let failed = sequence.state.failed();
        if failed {
            self.heartbeat();
        }
        sequence.lines.take();
        if self.has(Mutation::EasyStart) {
            sequence.state = SequenceState::new();
            return sequence.state.start(false, Instant(0));
        }
        let now = if failed { self.clock() } else { Instant(0) };
        sequence.state.start(sequence.peer.gone(), now)
    }

    #[inline]
    fn check_sequence(&self, sequence: &mut Sequence, flags: Flags) -> Result<SequenceStatus, Code> {
        flags.only(Flags::NO_STORE_BARRIER | Flags::NO_FLUSH)?;
        sequence.state.check_allowed()?;
        // Release: whoever sees what is stored afterwards sees what was checked.
        std::sync::atomic::fence(Release);
        // Rules 4 and 5 of the sheet: the worst failure since the last check is told; that of a node that is gone
        // lasts.
        let mut worst = sequence.lines.take();
        if sequence.peer.gone() {
            worst = Some(Failure::new(Severity::Lasting));
        }
        if self.has(Mutation::BlindCheck) || worst.is_none() {
            return Ok(sequence.state.checked(None, Instant(0), Span::ZERO));
        }
        if self.has(Mutation::LastingAsPassing) {
            worst = Some(Failure::new(Severity::Passing));
        }
        Ok(sequence.state.checked(worst, self.clock(), INVESTIGATION))
    }

    fn memory(&self, map: &LocalMap) -> View {
        map.memory.clone()
    }

    #[inline]
    fn flag(&self, map: &LocalMap, offset: usize) -> u8 {
        map.memory.flag(offset).look()
    }

    #[inline]
    fn take_flag(&self, map: &LocalMap, offset: usize) -> u8 {
        map.memory.flag(offset).take()
    }

    fn watch(&self, map: &LocalMap, offset: usize) -> Result<(), Code> {
        if offset >= map.memory.len() {
            return Err(Code::OutOfRange);
        }
        self.watched.borrow_mut().push((map.segment.memory.clone(), map.offset + offset));
        Ok(())
    }

    fn sync(&self) {}

    fn create_dma_queue(&self, descriptor: &Descriptor, max: usize) -> Result<DmaQueue, Code> {
        if !(1..=MAX_TRANSFERS).contains(&max) {
            return Err(Code::NoSpace);
        }
        Ok(DmaQueue::new(self.session(descriptor), max))
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
        queue.room()?;
        if !local.0.prepared.load(Relaxed) {
            return Err(Code::SegmentNotPrepared);
        }
        let round = self.has(Mutation::RoundDma);
        // Rule 7 of the sheet: begin and end of a transfer are aligned.
        let alignment = if round { ALIGNMENT } else { self.config.dma_alignment };
        inside(local_offset, size, local.0.size, alignment)?;
        inside(remote_offset, size, remote.0.size, alignment)?;
        let (local, remote) = (Arc::clone(&local.0), Arc::clone(&remote.0));
        let mut transfer = Transfer { local, remote, at: local_offset, goal: remote_offset, len: size };
        if round {
            transfer.round();
        }
        queue.add(transfer);
        Ok(())
    }

    fn post(&self, queue: &mut DmaQueue) -> Result<(), Code> {
        queue.post()?;
        self.count(|counters| counters.dma_transfers += queue.len());
        Ok(())
    }

    fn dma_state(&self, queue: &DmaQueue) -> DmaState {
        let (state, failures) = queue.progress(self.faulty.then_some(&self.injector));
        self.count(|counters| counters.failed_lines += failures);
        state
    }

    fn wait_for_dma_queue(&self, queue: &mut DmaQueue, timeout: Option<Span>) -> Result<(), Code> {
        let end = timeout.map(|timeout| std::time::Instant::now() + Duration::from(timeout));
        loop {
            match queue.state() {
                DmaState::Idle | DmaState::Gather => return Err(Code::IllegalOperation),
                DmaState::Done => return Ok(()),
                DmaState::Error => return Err(Code::TransferFailed),
                DmaState::Aborted => return Err(Code::Cancelled),
                DmaState::Posted => {}
            }
            if end.is_some_and(|end| std::time::Instant::now() >= end) {
                return Err(Code::Timeout);
            }
            self.dma_state(queue);
        }
    }

    fn reset(&self, queue: &mut DmaQueue) -> Result<(), Code> {
        if self.dma_state(queue) == DmaState::Posted {
            return Err(Code::Busy);
        }
        queue.empty();
        Ok(())
    }

    fn abort(&self, queue: &mut DmaQueue) -> Result<(), Code> {
        if self.has(Mutation::IgnoreAbort) && queue.state() == DmaState::Posted {
            return Ok(());
        }
        queue.abort()
    }

    fn remove_dma_queue(&self, mut queue: DmaQueue) -> Result<(), RefusedObject<DmaQueue>> {
        if queue.state() == DmaState::Posted {
            return Err(RefusedObject { code: Code::Busy, object: queue });
        }
        queue.empty();
        queue.session.fetch_sub(1, Relaxed);
        Ok(())
    }

    fn create_interrupt(&self, descriptor: &Descriptor, number: u32) -> Result<Interrupt, Code> {
        let mut free = None;
        for slot in 0..INTERRUPTS {
            let mark = self.post.interrupt(slot).0.load(Relaxed);
            if mark == 0 {
                free = free.or(Some(slot));
            } else if mark as u32 == number {
                return Err(Code::SegmentIdUsed);
            }
        }
        let slot = free.ok_or(Code::NoSpace)?;
        self.marks.set(self.marks.get().wrapping_add(1).max(1));
        let (mark, count) = self.post.interrupt(slot);
        count.store(0, Relaxed);
        // Release: pairs with the Acquire of who looks for it.
        mark.store(u64::from(self.marks.get()) << 32 | u64::from(number), Release);
        Ok(Interrupt { session: self.session(descriptor), slot })
    }

    fn remove_interrupt(&self, interrupt: Interrupt) {
        self.post.interrupt(interrupt.slot).0.store(0, Release);
        interrupt.session.fetch_sub(1, Relaxed);
    }

    fn connect_interrupt(
        &self,
        _: &Descriptor,
        node: NodeId,
        number: u32,
        _: Span,
    ) -> Result<RemoteInterrupt, Code> {
        let peer = self.reach(node)?;
        let (slot, mark) = peer.find_interrupt(number).ok_or(Code::NoSuchSegment)?;
        Ok(RemoteInterrupt { peer, slot, mark })
    }

    fn disconnect_interrupt(&self, _: RemoteInterrupt) {}

    fn trigger_interrupt(&self, interrupt: &RemoteInterrupt) -> Result<(), Code> {
        let RemoteInterrupt { peer, slot, mark } = interrupt;
        if peer.gone() || peer.trigger(*slot, *mark) { Ok(()) } else { Err(Code::NoSuchSegment) }
    }

    fn wait_for_interrupt(&self, interrupt: &Interrupt, timeout: Option<Span>) -> Result<(), Code> {
        let count = self.post.interrupt(interrupt.slot).1;
        let taken = self
            .wait(timeout, || count.fetch_update(AcqRel, Acquire, |count| count.checked_sub(1)).ok().map(drop));
        taken.ok_or(Code::Timeout)
    }

    fn idle(&self, until: Option<Instant>, _: impl Into<WaitFor>) {
        let rest = until.map(|until| Duration::from(Span(until.0.saturating_sub(self.clock().0))));
        if rest.is_none_or(|rest| !rest.is_zero()) {
            self.pause(rest);
        }
    }

    fn now(&self) -> Instant {
        self.clock()
    }

    fn charge(&self, _: Span) {}

    fn charge_empty_poll(&self) {}

    fn depart(&self, how: PeerStatus) {
        self.leave(how);
    }

    fn status(&self, node: NodeId) -> PeerStatus {
        if node == self.config.node {
            return self.post.departed().unwrap_or(PeerStatus::Active);
        }
        self.peers.borrow().iter().find(|peer| peer.node == node).map_or(PeerStatus::Active, |peer| peer.status())
    }

    fn losses(&self) -> u32 {
        self.loss_count()
    }

    fn counters(&self) -> Counters {
        self.counters.get()
    }
}

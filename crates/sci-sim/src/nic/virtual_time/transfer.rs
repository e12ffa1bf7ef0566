//! DMA in virtual time: queues of transfers and their states. The engine itself is in `device`.

use super::device::{Look, chunk_time};
use super::handle::{Descriptor, DmaQueue, LocalSegment, RemoteSegment, Virtual};
use super::process::{Queue, Transfer, Wanting};
use crate::nic::code::{Code, RefusedObject};
use crate::nic::kinds::{ALIGNMENT, DmaState, RemoteAddress, inside};
use crate::nic::mutation::Mutation;
use crate::nic::sisci::{MAX_TRANSFERS, Sisci};
use am_core::{Instant, Span};

impl Virtual<'_> {
    pub(super) fn new_queue(&self, descriptor: &Descriptor, max: usize) -> Result<DmaQueue, Code> {
        if !(1..=MAX_TRANSFERS).contains(&max) {
            return Err(Code::NoSpace);
        }
        self.call();
        Ok(self.own(|process| {
            process.session(descriptor.0, 1);
            DmaQueue(process.queues.add(Queue {
                session: descriptor.0,
                state: DmaState::Idle,
                max,
                transfers: Vec::with_capacity(max),
                generation: 0,
                current: 0,
                sent: 0,
                unanswered: 0,
                failed: false,
                begin: Instant(0),
                bytes: 0,
                until: Instant(0),
            }))
        }))
    }

    pub(super) fn add_transfer(
        &self,
        queue: &mut DmaQueue,
        (local, at): (&LocalSegment, usize),
        (remote, goal): (&RemoteSegment, usize),
        size: usize,
    ) -> Result<(), Code> {
        let round = self.shared.has(Mutation::RoundDma);
        // Rule 7 of the sheet: begin and end of a transfer are aligned.
        let alignment = if round { ALIGNMENT } else { self.limits().dma_alignment };
        let now = self.now();
        self.own(|process| {
            let entry = process.queues.at(queue.0);
            entry.settle(now);
            if !matches!(entry.state, DmaState::Idle | DmaState::Gather) {
                return Err(Code::Busy);
            }
            if entry.transfers.len() == entry.max {
                return Err(Code::NoSpace);
            }
            let source = process.locals.at(local.0);
            if !source.prepared {
                return Err(Code::SegmentNotPrepared);
            }
            inside(at, size, source.size, alignment)?;
            inside(goal, size, remote.size, alignment)?;
            source.transfers += 1;
            let memory = source.memory.clone();
            let connection = process.connections.at(remote.number);
            connection.transfers += 1;
            let (node, rank, mut offset) = (connection.node, connection.rank, connection.base + goal as u64);
            let (mut at, mut len) = (at, size);
            if round {
                let before = (goal % 64).min(at);
                (at, offset, len) = (at - before, offset - before as u64, (size + before).next_multiple_of(64));
                len = len.min(memory.len() - at);
            }
            let address = RemoteAddress::new(node, offset)?.bits();
            let (local, connection) = (local.0, remote.number);
            let entry = process.queues.at(queue.0);
            entry.transfers.push(Transfer { local, connection, rank, source: memory, at, address, len });
            entry.state = DmaState::Gather;
            Ok(())
        })
    }

    pub(super) fn begin(&self, queue: &mut DmaQueue) -> Result<(), Code> {
        if self.own(|process| process.queues.at(queue.0).state != DmaState::Gather) {
            return Err(Code::IllegalOperation);
        }
        // What was stored before is not overtaken by what is posted now.
        self.push_out();
        let (costs, chunk) = (self.shared.costs, self.shared.parameters.dma.chunk_bytes as usize);
        self.context.charge(costs.post);
        self.context.local(|adapter, port| {
            let (now, process) = (port.now(), adapter.process());
            let begin = (now + port.slowed(costs.set_up)).max(process.engine_free);
            let (rank, entry) = (process.rank, process.queues.at(queue.0));
            let total: u64 = entry.transfers.iter().map(|transfer| transfer.len as u64).sum();
            let first = chunk.min(entry.transfers[0].len);
            let end = begin + costs.engine(total);
            entry.state = DmaState::Posted;
            entry.generation += 1;
            (entry.current, entry.sent, entry.bytes) = (0, 0, 0);
            (entry.unanswered, entry.failed) = (0, false);
            (entry.begin, entry.until) = (begin, end + costs.timeout);
            let generation = entry.generation;
            process.engine_free = end;
            process.counters.dma_transfers += process.queues.at(queue.0).transfers.len() as u64;
            let at = chunk_time(&costs, begin, 0, first);
            adapter.set_step(rank, queue.0, generation, at, port);
        });
        Ok(())
    }

    pub(super) fn await_queue(&self, queue: &mut DmaQueue, timeout: Option<Span>) -> Result<(), Code> {
        self.push_out();
        let until = timeout.map(|timeout| self.now() + timeout);
        let state = self.wait(Wanting::Queue(queue.0), until, |process, now| {
            let entry = process.queues.at(queue.0);
            if entry.settle(now) { Look::Done(entry.state) } else { Look::Wait(Some(entry.until)) }
        });
        match state {
            None => Err(Code::Timeout),
            Some(DmaState::Done) => Ok(()),
            Some(DmaState::Error) => Err(Code::TransferFailed),
            Some(DmaState::Aborted) => Err(Code::Cancelled),
            Some(DmaState::Idle | DmaState::Gather | DmaState::Posted) => Err(Code::IllegalOperation),
        }
    }

    pub(super) fn empty(&self, queue: &mut DmaQueue) -> Result<(), Code> {
        if self.dma_state(queue) == DmaState::Posted {
            return Err(Code::Busy);
        }
        self.forget(queue.0);
        Ok(())
    }

    /// Takes a queue's transfers out of it.
    fn forget(&self, queue: u32) {
        self.own(|process| {
            while let Some(transfer) = process.queues.at(queue).transfers.pop() {
                process.locals.at(transfer.local).transfers -= 1;
                process.connections.at(transfer.connection).transfers -= 1;
            }
            process.queues.at(queue).state = DmaState::Idle;
        });
    }

    pub(super) fn end(&self, queue: &mut DmaQueue) -> Result<(), Code> {
        self.call();
        let ignored = self.shared.has(Mutation::IgnoreAbort);
        match self.dma_state(queue) {
            DmaState::Posted if ignored => Ok(()),
            DmaState::Posted => {
                let now = self.now();
                self.own(|process| {
                    process.queues.at(queue.0).state = DmaState::Aborted;
                    process.engine_free = process.engine_free.min(now);
                });
                Ok(())
            }
            DmaState::Done | DmaState::Error => Ok(()),
            DmaState::Idle | DmaState::Gather | DmaState::Aborted => Err(Code::IllegalOperation),
        }
    }

    pub(super) fn drop_queue(&self, queue: DmaQueue) -> Result<(), RefusedObject<DmaQueue>> {
        self.call();
        if self.dma_state(&queue) == DmaState::Posted {
            return Err(RefusedObject { code: Code::Busy, object: queue });
        }
        self.forget(queue.0);
        self.own(|process| {
            let session = process.queues.at(queue.0).session;
            process.session(session, -1);
            process.queues.remove(queue.0);
        });
        Ok(())
    }
}

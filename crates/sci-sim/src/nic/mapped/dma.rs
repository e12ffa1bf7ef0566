//! DMA between processes: the processor is the engine, and copies while the queue is looked at.

use super::region::View;
use super::segment::{Local, Remote};
use crate::nic::code::Code;
use crate::nic::errors::Injector;
use crate::nic::kinds::DmaState;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Bytes that one look moves at most.
const STRIDE: usize = 64 << 10;

/// Bytes of a transfer that fail together.
const PART: usize = 1024;

/// A DMA queue.
#[derive(Debug)]
pub struct DmaQueue {
    pub(super) session: Arc<AtomicU32>,
    queue: RefCell<Queue>,
}

#[derive(Debug)]
struct Queue {
    state: DmaState,
    max: usize,
    transfers: Vec<Transfer>,
    current: usize,
    done: usize,
    failed: bool,
}

#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) local: Arc<Local>,
    pub(super) remote: Arc<Remote>,
    pub(super) at: usize,
    pub(super) goal: usize,
    pub(super) len: usize,
}

impl DmaQueue {
    pub(super) fn new(session: Arc<AtomicU32>, max: usize) -> Self {
        let transfers = Vec::with_capacity(max);
        let queue = Queue { state: DmaState::Idle, max, transfers, current: 0, done: 0, failed: false };
        Self { session, queue: RefCell::new(queue) }
    }

    /// Whether another transfer may be added.
    pub(super) fn room(&self) -> Result<(), Code> {
        let queue = self.queue.borrow();
        match queue.state {
            DmaState::Idle | DmaState::Gather if queue.transfers.len() < queue.max => Ok(()),
            DmaState::Idle | DmaState::Gather => Err(Code::NoSpace),
            _ => Err(Code::Busy),
        }
    }

    pub(super) fn add(&mut self, transfer: Transfer) {
        transfer.local.transfers.fetch_add(1, Relaxed);
        transfer.remote.transfers.fetch_add(1, Relaxed);
        let queue = self.queue.get_mut();
        queue.transfers.push(transfer);
        queue.state = DmaState::Gather;
    }

    pub(super) fn post(&mut self) -> Result<(), Code> {
        let queue = self.queue.get_mut();
        if queue.state != DmaState::Gather {
            return Err(Code::IllegalOperation);
        }
        (queue.state, queue.current, queue.done, queue.failed) = (DmaState::Posted, 0, 0, false);
        Ok(())
    }

    /// Copies some more, and says where things are; `drawn`: where failures come from, and whether there are any.
    /// Also returns how many parts have failed.
    pub(super) fn progress(&self, injector: Option<&RefCell<Injector>>) -> (DmaState, u64) {
        let mut queue = self.queue.borrow_mut();
        let (mut budget, mut failures) = (STRIDE, 0);
        while queue.state == DmaState::Posted && budget > 0 {
            let Queue { transfers, current, done, .. } = &*queue;
            let Transfer { local, remote, at, goal, len } = &transfers[*current];
            let some = PART.min(len - done).min(budget);
            let injected = injector.and_then(|injector| injector.borrow_mut().draw());
            let (lost, spoilt) = (remote.peer.gone(), injected.is_some());
            if !lost && injected.is_none_or(|injected| injected.lands) {
                local.memory.copy(at + done, &remote.memory, goal + done, some);
            }
            let ended = done + some == *len;
            failures += u64::from(spoilt);
            queue.failed |= lost || spoilt;
            budget -= some;
            queue.done += some;
            if ended {
                (queue.current, queue.done) = (queue.current + 1, 0);
            }
            if queue.current == queue.transfers.len() {
                // What is stored after the queue is done is seen after the data.
                std::sync::atomic::fence(Release);
                queue.state = if queue.failed { DmaState::Error } else { DmaState::Done };
            }
        }
        (queue.state, failures)
    }

    /// Transfers in it.
    pub(super) fn len(&self) -> u64 {
        self.queue.borrow().transfers.len() as u64
    }

    pub(super) fn state(&self) -> DmaState {
        self.queue.borrow().state
    }

    pub(super) fn abort(&mut self) -> Result<(), Code> {
        let queue = self.queue.get_mut();
        match queue.state {
            DmaState::Posted => queue.state = DmaState::Aborted,
            DmaState::Done | DmaState::Error => {}
            DmaState::Idle | DmaState::Gather | DmaState::Aborted => return Err(Code::IllegalOperation),
        }
        Ok(())
    }

    /// Takes all transfers out.
    pub(super) fn empty(&mut self) {
        let queue = self.queue.get_mut();
        for transfer in queue.transfers.drain(..) {
            transfer.local.transfers.fetch_sub(1, Relaxed);
            transfer.remote.transfers.fetch_sub(1, Relaxed);
        }
        queue.state = DmaState::Idle;
    }
}

impl Transfer {
    /// A defect: rounds the transfer outwards to whole lines.
    pub(super) fn round(&mut self) {
        let before = (self.goal % 64).min(self.at);
        (self.at, self.goal) = (self.at - before, self.goal - before);
        let room = |view: &View, at: usize| view.len() - at;
        let most = room(&self.local.memory, self.at).min(room(&self.remote.memory, self.goal));
        self.len = (self.len + before).next_multiple_of(64).min(most);
    }
}

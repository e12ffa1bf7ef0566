//! Memory that writes leave from and reads come to, and the transfers that use it.

use super::config::ConduitConfig;
use super::transport::STAGES_AT;
use crate::nic::{Access, HostMemory, Nic, TransferId};
use am_core::transport::Ticket;

/// A stage that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stage(usize);

/// What a transfer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The last part of a message's payload, which is notified.
    Message,
    /// Another part; the last one waits for it.
    Part,
    /// An operation of the core; its stage brings so many bytes.
    Native(Ticket, Option<usize>),
}

/// A transfer that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) id: TransferId,
    pub(super) peer: u32,
    pub(super) purpose: Purpose,
    pub(super) stage: Option<Stage>,
}

struct Buffer {
    memory: HostMemory,
    at: u64,
}

/// The stages of a rank, made when they are first needed.
pub(super) struct Stages {
    buffers: Vec<Buffer>,
    free: Vec<usize>,
    most: usize,
    bytes: u64,
    /// Where the next one is mapped.
    next: u64,
    pub(super) under_way: Vec<Transfer>,
}

impl Stages {
    pub(super) fn new(config: &ConduitConfig) -> Self {
        let most = config.stages as usize;
        let (buffers, free, under_way) = (Vec::new(), Vec::new(), Vec::new());
        Self { buffers, free, most, bytes: config.stage_bytes.into(), next: STAGES_AT, under_way }
    }

    /// Stages that are free.
    pub(super) fn left(&self) -> usize {
        self.free.len() + self.most - self.buffers.len()
    }

    /// Takes a stage, if one is free.
    pub(super) fn take(&mut self, nic: &Nic<'_>, config: &ConduitConfig) -> Option<Stage> {
        if let Some(index) = self.free.pop() {
            return Some(Stage(index));
        }
        if self.buffers.len() == self.most {
            return None;
        }
        let buffer = self.make(nic, config);
        self.buffers.push(buffer);
        Some(Stage(self.buffers.len() - 1))
    }

    fn make(&mut self, nic: &Nic<'_>, config: &ConduitConfig) -> Buffer {
        let (memory, at) = (HostMemory::new(self.bytes as usize), self.next);
        let page = u64::from(nic.parameters().rdma.page_bytes);
        self.next += self.bytes.next_multiple_of(page);
        let mapped = nic.map(at, &memory, Access::ReadWrite, config.paging());
        mapped.expect("the addresses of stages are not used for anything else");
        Buffer { memory, at }
    }

    pub(super) fn give(&mut self, stage: Stage) {
        self.free.push(stage.0);
    }

    /// Replaces a stage that a transfer may still write to.
    pub(super) fn abandon(&mut self, stage: Stage, nic: &Nic<'_>, config: &ConduitConfig) {
        let unmapped = nic.unmap(self.buffers[stage.0].at);
        unmapped.expect("a stage is mapped as long as it is one");
        self.buffers[stage.0] = self.make(nic, config);
        self.give(stage);
    }

    pub(super) fn memory(&self, stage: Stage) -> &HostMemory {
        &self.buffers[stage.0].memory
    }

    pub(super) fn at(&self, stage: Stage) -> u64 {
        self.buffers[stage.0].at
    }
}

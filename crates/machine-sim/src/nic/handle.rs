//! A rank's handle to its node's interface.

use super::device::{CALLED, Interface};
use super::stats::{Measurements, Meter};
use super::wire::{Content, Message, NumberedPacket, PacketBody, Place};
use crate::config::Shared;
use am_core::one_sided::Atomic;
use am_core::{Instant, PeerStatus, Segment, Span};
use fabric_sim::bytes::PooledBytes;
use fabric_sim::{Context, HostMemory, WaitFor};
use std::fmt;
use std::rc::Rc;

/// Bytes of a page.
const PAGE: usize = 4096;

/// What a rank's program calls: sending and receiving messages, operations on peers' memory, time. Clones are
/// handles to the same rank.
#[derive(Clone)]
pub struct Nic<'a> {
    context: Context<'a, Interface>,
    shared: Rc<Shared>,
    rank: u32,
}

impl fmt::Debug for Nic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic").field("rank", &self.rank).finish_non_exhaustive()
    }
}

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// There is no such memory.
    Refused,
}

/// The end of an operation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finished {
    /// What its caller calls it.
    pub id: u64,
    /// What an atomic operation found.
    pub value: u64,
    /// What a get has brought.
    pub data: Option<PooledBytes>,
    /// Whether it was done.
    pub outcome: Result<(), Fault>,
}

impl<'a> Nic<'a> {
    pub(crate) fn new(context: Context<'a, Interface>, shared: Rc<Shared>) -> Self {
        let rank = context.rank();
        Self { context, shared, rank }
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.shared.ranks
    }

    /// This rank's clock, and what else the simulation offers a rank.
    pub fn context(&self) -> &Context<'a, Interface> {
        &self.context
    }

    /// This rank's time.
    pub fn now(&self) -> Instant {
        self.context.now()
    }

    /// Lets time pass in which the processor computes. Does not suspend the rank.
    pub fn charge(&self, cost: Span) {
        self.context.charge(cost);
    }

    /// Charges for a look that found nothing. What loops without idling calls this, or its time never ends.
    pub fn charge_empty_poll(&self) {
        self.context.charge(self.shared.costs.empty_poll);
    }

    /// Whether what goes to a peer goes through the memory of a node.
    fn near(&self, peer: u32) -> bool {
        self.shared.costs.local.is_some() && self.context.node_of(peer) == self.context.node_of(self.rank)
    }

    /// Charges the sending overhead of so many bytes.
    fn overhead(&self, to: u32, size: u64) {
        let sending = self.shared.costs.class_by(self.near(to), size).sending(size);
        self.charge(Span(sending.0 + self.shared.costs.lock.0));
    }

    fn call(&self, to: u32, content: Content, size: u64) {
        let body = NumberedPacket { turn: 0, contents: PacketBody::Whole(content, size) };
        self.context.post(to, 0, body, CALLED);
    }

    /// Sends a message of `len` bytes that a function fills, which gets them as the last user left them. Charges
    /// the sending overhead; the message leaves when the interface has time for it. Messages of a pair arrive in
    /// order. Does not block.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn send(&self, to: u32, immediate: [u64; 2], len: u32, fill: impl FnOnce(&mut [u8])) {
        let size = u64::from(len);
        self.overhead(to, size);
        self.send_parts(to, immediate, len, fill, None);
    }

    /// [`Nic::send`] of a message that stands for `size` bytes, which nobody looks at, at no cost for the
    /// processor.
    pub fn inject(&self, to: u32, immediate: [u64; 2], size: u64) {
        let data = self.shared.pool.lend(0, |_| ());
        let called = self.now();
        self.call(to, Content::Message { immediate, data, place: None, called }, size);
    }

    /// Sends bytes of which all after the first so many are placed in the receiver's memory.
    pub(crate) fn send_placed(
        &self,
        to: u32,
        immediate: [u64; 2],
        len: u32,
        place: (u64, usize),
        fill: impl FnOnce(&mut [u8]),
    ) {
        let size = u64::from(len);
        self.overhead(to, size);
        self.send_parts(to, immediate, len, fill, Some(Place { at: place.0, after: place.1 }));
    }

    fn send_parts(
        &self,
        to: u32,
        immediate: [u64; 2],
        len: u32,
        fill: impl FnOnce(&mut [u8]),
        place: Option<Place>,
    ) {
        let (data, called) = (self.shared.pool.lend(len, fill), self.now());
        self.call(to, Content::Message { immediate, data, place, called }, len.into());
    }

    /// The next message that has arrived, if any; charges the receiving overhead, or a look that finds nothing.
    /// Lets everything happen that happens up to this rank's time.
    pub fn receive(&self) -> Option<Message> {
        let found = self.take();
        if found.is_none() {
            self.charge_empty_poll();
        }
        found
    }

    /// [`Nic::receive`] without a cost where there is none.
    pub(crate) fn take(&self) -> Option<Message> {
        // What has come is there, whatever else happens up to now.
        let next = |device: &mut Interface| device.process(self.rank).inbox.pop_front();
        let message = self
            .context
            .local(|device, _| next(device))
            .or_else(|| self.context.device(|device, _| next(device)))?;
        let costs = &self.shared.costs;
        let receiving = costs.class_by(self.near(message.from), message.size).receiving(message.size);
        self.charge(Span(receiving.0 + costs.lock.0));
        Some(message)
    }

    /// The next message; waits for it.
    pub fn wait(&self) -> Message {
        loop {
            if let Some(message) = self.take() {
                return message;
            }
            self.context.idle(None, WaitFor::Arrival);
        }
    }

    /// Makes memory known to the interface, for peers' operations. Charges for its pages.
    pub fn register(&self, memory: &HostMemory) {
        let page = self.shared.costs.register_page;
        self.charge(Span(page.0.saturating_mul(memory.len().div_ceil(PAGE) as u64)));
        let segment = Segment::new(memory.clone(), memory.len());
        self.context.local(|device, _| device.process(self.rank).memory = Some(segment));
    }

    /// Charges for learning where all others are.
    pub(crate) fn charge_exchange(&self) {
        let (each, others) = (self.shared.costs.exchange, u64::from(self.shared.ranks - 1));
        self.charge(Span(each.0.saturating_mul(others)));
    }

    /// Writes bytes to a peer's memory, and with `signal` adds one to the counter there afterwards. Charges the
    /// sending overhead. Its end is [told](Nic::finished) by `id`. Does not block.
    pub fn put(&self, to: u32, at: u64, bytes: &[u8], signal: Option<u64>, id: u64) {
        let size = bytes.len() as u64;
        self.overhead(to, size);
        self.call(to, Content::Put { at, data: self.shared.pool.lend_copy(bytes), signal, id }, size);
    }

    /// Reads bytes of a peer's memory. Charges the sending overhead of a message without bytes. Its end is
    /// [told](Nic::finished) by `id`. Does not block.
    pub fn get(&self, from: u32, at: u64, len: u64, id: u64) {
        self.overhead(from, 0);
        self.call(from, Content::Get { at, len, id }, 0);
    }

    /// Changes a value in a peer's memory. Charges the sending overhead of a message of 16 bytes. Its end is
    /// [told](Nic::finished) by `id`. Does not block.
    pub fn atomic(&self, to: u32, at: u64, atomic: &Atomic, id: u64) {
        self.overhead(to, 16);
        self.call(to, Content::Atomic { at, atomic: *atomic, id }, 16);
    }

    /// The end of an operation, if one has ended. Lets nothing happen.
    pub fn finished(&self) -> Option<Finished> {
        self.context.local(|device, _| device.process(self.rank).finished.pop_front())
    }

    /// Whether a message or the end of an operation is there. Lets nothing happen.
    pub fn has_news(&self) -> bool {
        self.context.local(|device, _| {
            let process = device.process(self.rank);
            !process.inbox.is_empty() || !process.finished.is_empty() || !process.unreachable.is_empty()
        })
    }

    /// A peer that has acknowledged nothing for too long, told once. Lets nothing happen.
    pub fn unreachable(&self) -> Option<u32> {
        self.context.local(|device, _| device.process(self.rank).unreachable.pop())
    }

    /// Suspends the rank until something has come, a rank is known to be lost, or `until`; `wanted` is for
    /// deadlock reports.
    pub fn idle(&self, until: Option<Instant>, wanted: impl Into<WaitFor>) {
        self.context.idle(until, wanted);
    }

    /// Leaves the job. The others learn it once everything has been sent.
    pub fn depart(&self, status: PeerStatus) {
        if std::thread::panicking() {
            // It cannot wait for others, so what it called for may come later.
            return self.context.depart(status);
        }
        // A node that stops before now takes the rank along.
        self.context.sync();
        // Behind what was called before at the same moment.
        self.call(self.rank, Content::Leave(status), 0);
    }

    /// Counts from now on what this rank sends and receives, and with an interval also what it receives in each.
    pub fn measure(&self, interval: Option<Span>) {
        let (now, classes) = (self.now(), self.shared.costs.count());
        let meter = Box::new(Meter::new(now, interval, classes));
        self.context.device(|device, _| device.process(self.rank).meter = Some(meter));
    }

    /// What has been measured.
    pub fn measurements(&self) -> Measurements {
        self.context.device(|device, _| {
            device.process(self.rank).meter.as_ref().map(|meter| meter.found.clone()).unwrap_or_default()
        })
    }
}

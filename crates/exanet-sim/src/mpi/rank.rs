//! What a rank's program calls, and how it drives the interface.

use super::config::MpiConfig;
use super::machine::{Action, Machine, Selector, Stream, note_value};
use super::packet::{Control, Kind};
use super::{Counts, MpiError, Status};
use crate::delivery::{LOSS_NOTICE, LossNotices, Refusals, Turns};
use crate::nic::{
    Access, Fault, HostMemory, Message, Nack, Nic, Notify, PACKET, PacketError, Paging, Progress, RdmaError,
    TransferId,
};
use am_core::slab::Key;
use am_core::{Instant, PeerStatus, Span};
use fabric_sim::WaitFor;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

/// Where the words for notifications are, and where buffers begin.
const NOTES_AT: u64 = 1 << 40;
const BUFFERS_AT: u64 = 2 << 40;
/// Packets of a source that may be ahead of one that is missing: no more than its interface has under way.
const MOST: usize = 1 << 12;

/// Separates the messages of one part of a program from those of others. All ranks belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Communicator(pub(super) u16);

/// The communicator that is there at the start.
pub const WORLD: Communicator = Communicator(0);

/// Memory that messages leave from and come to. Clones are handles to the same memory.
#[derive(Clone, Debug)]
pub struct Buffer {
    memory: HostMemory,
    at: u64,
}

impl Buffer {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Copies bytes into it, after everything up to this rank's time has happened.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, mpi: &Mpi<'_>, at: usize, bytes: &[u8]) {
        mpi.nic.write(&self.memory, at, bytes);
    }

    /// Copies bytes out of it, after everything up to this rank's time has happened. Allocates.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn read(&self, mpi: &Mpi<'_>, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        mpi.nic.read(&self.memory, at, &mut bytes);
        bytes
    }

    fn check(&self, range: &Range<u64>) -> Result<(), MpiError> {
        if range.start <= range.end && range.end <= self.len() {
            return Ok(());
        }
        Err(MpiError::OutsideBuffer { start: range.start, end: range.end, len: self.len() })
    }
}

/// A message under way, until it was waited for: once, so that a request can neither be copied nor be used again.
///
/// ```compile_fail,E0382
/// # use exanet_sim::mpi::{Buffer, Mpi, MpiError, WORLD};
/// fn twice(mpi: &mut Mpi<'_>, buffer: &Buffer) -> Result<(), MpiError> {
///     let request = mpi.receive_begin(WORLD, None, None, buffer, 0..8)?;
///     mpi.wait(request)?;
///     mpi.wait(request)?;
///     Ok(())
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a message is under way until it was waited for"]
pub struct Request(Way);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Send(Key, u64),
    Receive(Key),
}

/// What comes from a peer, and the turn of what goes to it.
#[derive(Debug, Default)]
struct Peer {
    came: Turns<Message>,
    turn: u16,
    /// An eager message of which more is to come.
    eager: Option<(Control, Vec<u8>)>,
}

/// A transfer under way.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    id: TransferId,
    peer: u32,
    way: Way,
}

/// One rank's two-sided messages.
///
/// Calls that wait serve all messages meanwhile; the others neither wait nor receive anything. A message that was
/// begun makes progress only inside calls.
pub struct Mpi<'a> {
    nic: Nic<'a>,
    config: MpiConfig,
    machine: Machine,
    peers: Vec<Peer>,
    /// Packets and transfers that the interface has not taken.
    packets: VecDeque<(u32, [u8; PACKET], usize)>,
    orders: VecDeque<Action>,
    under_way: Vec<Transfer>,
    notes: HostMemory,
    /// Buffers that eager messages are put into, by their addresses.
    buffers: Vec<Buffer>,
    next: u64,
    /// Receives of long messages that have not ended.
    long: u32,
    communicators: u16,
    /// Half of what the library costs for a message.
    half: Span,
    refusals: Refusals,
    loss_notices: LossNotices,
    departures: u32,
    pub(super) collective: Collective,
}

/// What collective operations keep.
#[derive(Debug, Default)]
pub(super) struct Collective {
    pub(super) scratch: Option<Buffer>,
}

impl fmt::Debug for Mpi<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mpi").field("rank", &self.rank()).finish_non_exhaustive()
    }
}

impl<'a> Mpi<'a> {
    pub(super) fn new(nic: Nic<'a>, config: MpiConfig, busy_wait: Span) -> Self {
        nic.open();
        let notes = HostMemory::new(8 * config.receives as usize);
        nic.map(NOTES_AT, &notes, Access::ReadWrite, Paging::Touched).expect("nothing else is mapped");
        // Everybody has opened and mapped before the first message: a job's launcher sees to that.
        nic.charge(Span(1));
        nic.sync();
        let half = Span((nic.parameters().mpi.software_ns * 500.0).round() as u64);
        let peers = (0..nic.ranks()).map(|_| Peer::default()).collect();
        Self {
            machine: Machine::new(config),
            config,
            peers,
            packets: VecDeque::new(),
            orders: VecDeque::new(),
            under_way: Vec::new(),
            notes,
            buffers: Vec::new(),
            next: BUFFERS_AT,
            long: 0,
            communicators: 1,
            half,
            refusals: Refusals::new(busy_wait),
            loss_notices: LossNotices::default(),
            departures: 0,
            collective: Collective::default(),
            nic,
        }
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.nic.rank()
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.nic.ranks()
    }

    /// This rank's time.
    pub fn now(&self) -> Instant {
        self.nic.now()
    }

    /// Lets time pass in which the processor computes.
    pub fn compute(&self, time: Span) {
        self.nic.charge(time);
    }

    /// What this rank has sent so far.
    pub fn counts(&self) -> Counts {
        self.machine.counts
    }

    /// The rank's interface.
    pub fn nic(&self) -> &Nic<'a> {
        &self.nic
    }

    /// A buffer of zeros. Its pages are there, and not pinned. Allocates.
    ///
    /// # Panics
    /// If there is no such amount of memory.
    pub fn buffer(&mut self, len: usize) -> Buffer {
        let (memory, at) = (HostMemory::new(len), self.next);
        let page = u64::from(self.nic.parameters().rdma.page_bytes);
        self.next += (len.max(1) as u64).next_multiple_of(page);
        self.nic.map(at, &memory, Access::ReadWrite, Paging::Touched).expect("addresses are used once");
        let buffer = Buffer { memory, at };
        self.buffers.push(buffer.clone());
        buffer
    }

    /// A communicator of its own for a part of the program. All ranks call this in the same order. Does not block.
    pub fn duplicate(&mut self) -> Communicator {
        let number = self.communicators;
        self.communicators = number.checked_add(1).expect("a program has fewer than 2^16 communicators");
        Communicator(number)
    }

    fn check_rank(&self, rank: u32) -> Result<(), MpiError> {
        let ranks = self.ranks();
        if rank < ranks { Ok(()) } else { Err(MpiError::NoRank { rank, ranks }) }
    }

    /// All that [`send_begin`](Self::send_begin) may refuse.
    pub(super) fn check_send(&self, to: u32, buffer: &Buffer, range: &Range<u64>) -> Result<(), MpiError> {
        self.check_rank(to)?;
        buffer.check(range)
    }

    /// Begins to send some bytes of a buffer, which stay as they are until the request has ended. A long message
    /// looks first whether its receive has been advertised. Does not block.
    ///
    /// # Errors
    /// No such rank; no such bytes. What becomes of the message, the request's end tells.
    pub fn send_begin(
        &mut self,
        communicator: Communicator,
        to: u32,
        tag: u32,
        buffer: &Buffer,
        range: Range<u64>,
    ) -> Result<Request, MpiError> {
        self.check_send(to, buffer, &range)?;
        let (at, len) = (buffer.at + range.start, range.end - range.start);
        let stream = Stream { peer: to, communicator: communicator.0, tag };
        if self.is_long(len) && self.config.protocol.advertises() {
            self.progress();
        }
        let (nic, memory) = (&self.nic, &buffer.memory);
        let key = self.machine.send(stream, at, len, || {
            let mut bytes = vec![0; len as usize];
            nic.read(memory, range.start as usize, &mut bytes);
            bytes
        });
        self.act();
        Ok(Request(Way::Send(key, len)))
    }

    /// Begins to receive a message into some bytes of a buffer: from a rank or any, with a tag or any. Does not
    /// block.
    ///
    /// # Errors
    /// No such rank; no such bytes; too many receives of long messages. What becomes of it, the request's end
    /// tells.
    pub fn receive_begin(
        &mut self,
        communicator: Communicator,
        source: Option<u32>,
        tag: Option<u32>,
        buffer: &Buffer,
        range: Range<u64>,
    ) -> Result<Request, MpiError> {
        source.map_or(Ok(()), |source| self.check_rank(source))?;
        buffer.check(&range)?;
        let capacity = range.end - range.start;
        if self.is_long(capacity) {
            if self.long == self.config.receives {
                return Err(MpiError::TooManyReceives { limit: self.config.receives });
            }
            self.long += 1;
        }
        let selector = Selector { communicator: communicator.0, source, tag };
        let key = self.machine.receive(selector, buffer.at + range.start, capacity);
        self.act();
        Ok(Request(Way::Receive(key)))
    }

    fn is_long(&self, len: u64) -> bool {
        len > self.config.eager.into()
    }

    /// Asks for a receive to be cancelled. Its end tells: [`MpiError::Cancelled`], or its message, which was under
    /// way. Changes nothing of messages that are sent. Does not block.
    pub fn cancel(&mut self, request: &Request) {
        if let Request(Way::Receive(key)) = request {
            self.machine.cancel(*key);
            self.act();
        }
    }

    /// The end of a message, or the request again if it is still under way. The status of a message that was sent
    /// is its receiver's: this rank, with tag 0. Serves messages; does not block.
    ///
    /// # Errors
    /// In the inner result: as [`Mpi::wait`].
    pub fn test(&mut self, request: Request) -> Result<Result<Status, MpiError>, Request> {
        self.progress();
        self.ended(&request).ok_or(request)
    }

    fn ended(&mut self, request: &Request) -> Option<Result<Status, MpiError>> {
        match request.0 {
            Way::Send(key, len) => {
                let done = self.machine.sent(key)?;
                Some(done.map(|()| Status { source: self.rank(), tag: 0, len }))
            }
            Way::Receive(key) => {
                let capacity = self.machine.capacity(key);
                let done = self.machine.received(key)?;
                self.long -= u32::from(self.is_long(capacity));
                Some(done)
            }
        }
    }

    /// Waits for the end of a message.
    ///
    /// # Errors
    /// [`MpiError::Lost`], [`MpiError::Truncated`], [`MpiError::Cancelled`].
    pub fn wait(&mut self, request: Request) -> Result<Status, MpiError> {
        loop {
            if let Some(end) = self.ended(&request) {
                return end;
            }
            let waits = match request.0 {
                Way::Send(..) => "a message to be sent",
                Way::Receive(_) => "a message to be received",
            };
            self.serve(waits);
        }
    }

    /// Waits for the ends of several messages.
    ///
    /// # Errors
    /// The first of them; all have ended then.
    pub fn wait_all(&mut self, requests: impl IntoIterator<Item = Request>) -> Result<(), MpiError> {
        let mut result = Ok(());
        for request in requests {
            let end = self.wait(request);
            result = result.and(end.map(drop));
        }
        result
    }

    /// Sends some bytes of a buffer and waits until they may change.
    ///
    /// # Errors
    /// As [`Mpi::send_begin`] and [`Mpi::wait`].
    pub fn send(
        &mut self,
        communicator: Communicator,
        to: u32,
        tag: u32,
        buffer: &Buffer,
        range: Range<u64>,
    ) -> Result<(), MpiError> {
        let request = self.send_begin(communicator, to, tag, buffer, range)?;
        self.wait(request).map(drop)
    }

    /// Receives a message.
    ///
    /// # Errors
    /// As [`Mpi::receive_begin`] and [`Mpi::wait`].
    pub fn receive(
        &mut self,
        communicator: Communicator,
        source: Option<u32>,
        tag: Option<u32>,
        buffer: &Buffer,
        range: Range<u64>,
    ) -> Result<Status, MpiError> {
        let request = self.receive_begin(communicator, source, tag, buffer, range)?;
        self.wait(request)
    }

    /// Serves messages; idles if there was none.
    fn serve(&mut self, waits: &'static str) {
        if !self.progress() {
            self.nic.idle(self.refusals.until(None), WaitFor::Named(waits));
        }
    }

    /// Serves what has come, without waiting. Whether there was anything.
    pub fn progress(&mut self) -> bool {
        let glance = self.nic.glance();
        let mut given_up = Vec::new();
        let mut found = self.refusals.serve(&self.nic, glance.refused, |peer, nack| given_up.push((peer, nack)));
        for (peer, nack) in given_up {
            if nack == Nack::Unreachable {
                self.unreachable(peer);
            }
            self.loss_notices.refused(peer, nack);
        }
        self.loss_notices.send(&self.nic);
        found |= self.notice_departures();
        // A mailbox does not hold more than these at once.
        for _ in 0..if glance.mail { self.nic.parameters().packetizer.mailbox } else { 0 } {
            let Some(message) = self.nic.mbox_take_seen() else { break };
            self.accept(message);
            found = true;
        }
        if glance.ended {
            found |= self.collect();
        }
        found |= self.look_at_notes();
        found |= self.act();
        if !found {
            self.nic.charge_empty_poll();
        }
        found
    }

    /// Ends what is under way with ranks that have left. Whether there are new ones.
    fn notice_departures(&mut self) -> bool {
        let departures = self.nic.context().departures();
        if std::mem::replace(&mut self.departures, departures) == departures {
            return false;
        }
        // What a rank has sent before it left still counts, and has arrived before its end is known.
        while let Some(message) = self.nic.mbox_take_seen() {
            self.accept(message);
        }
        self.collect();
        self.look_at_notes();
        for peer in 0..self.ranks() {
            if !self.machine.is_lost(peer) && self.nic.context().known_status(peer) != PeerStatus::Active {
                self.machine.lose(peer);
            }
        }
        true
    }

    /// The interface could not reach a peer: what was sent to it may be missing.
    #[cold]
    fn unreachable(&mut self, peer: u32) {
        if !self.machine.is_lost(peer) && self.nic.context().known_status(peer) == PeerStatus::Active {
            self.machine.lose(peer);
            self.loss_notices.add(peer);
        }
    }

    /// Takes a packet into its source's row.
    fn accept(&mut self, message: Message) {
        let Some(from) = self.nic.rank_at(message.from) else { return };
        if self.machine.is_lost(from) {
            return;
        }
        let decoded = Control::decode(message.data());
        let peer = &mut self.peers[from as usize];
        let placed = decoded.map(|(turn, ..)| peer.came.put(turn, message, MOST));
        if message.data() == LOSS_NOTICE || !matches!(placed, Some(Ok(()))) {
            return self.machine.lose(from);
        }
        while let Some(message) = self.peers[from as usize].came.next() {
            let (_, control, start) = Control::decode(message.data()).expect("it was read when it came");
            if self.take(from, control, &message.data()[start..]).is_none() {
                // It broke the protocol.
                return self.machine.lose(from);
            }
        }
    }

    /// Takes a packet whose turn it is.
    fn take(&mut self, from: u32, control: Control, bytes: &[u8]) -> Option<()> {
        let eager = &mut self.peers[from as usize].eager;
        let (control, bytes) = match (control.kind, eager.take()) {
            (Kind::More, Some((first, mut whole))) => {
                whole.extend_from_slice(bytes);
                (first, whole)
            }
            (Kind::More, None) | (_, Some(_)) => return None,
            (_, None) => (control, bytes.to_vec()),
        };
        if control.kind == Kind::Eager && (bytes.len() as u64) < control.place.len {
            *eager = Some((control, bytes));
            return Some(());
        }
        if control.kind == Kind::Eager && bytes.len() as u64 > control.place.len {
            return None;
        }
        self.nic.charge(self.half);
        self.machine.take(from, &control, bytes).ok()
    }

    /// Takes in transfers that have ended. Whether there were any.
    fn collect(&mut self) -> bool {
        let (mut index, before) = (0, self.under_way.len());
        while let Some(&Transfer { id, peer, way }) = self.under_way.get(index) {
            let outcome = match self.nic.rdma_seen(id) {
                Some(Progress::Pending) | None => {
                    index += 1;
                    continue;
                }
                Some(Progress::Done) => Ok(()),
                Some(Progress::Fault(fault)) => Err(fault),
            };
            self.under_way.swap_remove(index);
            match (outcome, way) {
                (Ok(()), Way::Send(key, _)) => self.machine.written(key),
                (Ok(()), Way::Receive(key)) => self.machine.read(key),
                (Err(Fault::Unreachable), _) => self.unreachable(peer),
                // Its context is closed, or its memory is not what it said: nothing more can come of it.
                (Err(_), _) => self.machine.lose(peer),
            }
        }
        before != self.under_way.len()
    }

    /// Looks for notifications. Whether there were any.
    fn look_at_notes(&mut self) -> bool {
        let there = self.machine.awaited().filter_map(|(key, place)| {
            let word = self.notes.word(8 * place.note as usize);
            Some((key, Machine::noted_length(&place, word)?))
        });
        let there: Vec<(Key, u64)> = there.collect();
        let mut found = false;
        for (key, len) in there {
            let (peer, new) = self.machine.expects(key);
            if new {
                found = true;
                self.nic.charge_notice();
                if self.machine.noted(key, len).is_err() {
                    self.machine.lose(peer);
                }
            }
        }
        found
    }

    /// Does what the protocols want done, as far as the interface takes it. Whether it took anything.
    fn act(&mut self) -> bool {
        while let Some(action) = self.machine.action() {
            match action {
                Action::Packet { to, control, payload } => {
                    self.nic.charge(self.half);
                    self.pack(to, control, &payload);
                }
                Action::Fill { at, bytes } => self.fill(at, &bytes),
                transfer => {
                    if matches!(transfer, Action::Read { .. }) {
                        self.nic.charge(self.half);
                    }
                    self.orders.push_back(transfer);
                }
            }
        }
        let mut found = false;
        while let Some((to, packet, len)) = self.packets.front() {
            let address = self.nic.address(*to).expect("ranks were checked");
            match self.nic.pkt_send(address, &packet[..*len]) {
                Err(PacketError::Full { .. }) => break,
                _ => found |= self.packets.pop_front().is_some(),
            }
        }
        while let Some(order) = self.orders.front() {
            if !self.begin(&order.clone()) {
                break;
            }
            self.orders.pop_front();
            found = true;
        }
        found
    }

    /// Cuts a control packet, or an eager message, into packets of the interface.
    fn pack(&mut self, to: u32, control: Control, payload: &[u8]) {
        let (mut left, mut control, mut first) = (payload, control, true);
        while std::mem::take(&mut first) || !left.is_empty() {
            let mut packet = [0; PACKET];
            let turn = &mut self.peers[to as usize].turn;
            let (len, rest) = control.encode(*turn, left, &mut packet);
            *turn = turn.wrapping_add(1);
            self.packets.push_back((to, packet, len));
            (left, control) = (rest, Control::new(Kind::More));
        }
    }

    /// Puts the bytes of an eager message where they belong.
    fn fill(&mut self, at: u64, bytes: &[u8]) {
        let index = self.buffers.partition_point(|buffer| buffer.at <= at) - 1;
        let buffer = &self.buffers[index];
        buffer.memory.write((at - buffer.at) as usize, bytes);
    }

    /// Begins a transfer; whether the interface took it.
    fn begin(&mut self, order: &Action) -> bool {
        let (peer, way, began) = match *order {
            Action::Write { send, to, source, place, len } => {
                let address = self.nic.address(to).expect("ranks were checked");
                let notify = Notify { at: NOTES_AT + 8 * u64::from(place.note), value: note_value(&place, len) };
                (to, Way::Send(send, len), self.nic.rdma_write(source, address, place.at, len, Some(notify)))
            }
            Action::Read { receive, from, source, at, len } => {
                let address = self.nic.address(from).expect("ranks were checked");
                (from, Way::Receive(receive), self.nic.rdma_read(address, source, at, len, None))
            }
            Action::Packet { .. } | Action::Fill { .. } => unreachable!("these are no transfers"),
        };
        match began {
            Ok(id) => self.under_way.push(Transfer { id, peer, way }),
            Err(RdmaError::QueueFull(_)) => return false,
            // An address that a peer made up.
            Err(_) => self.machine.lose(peer),
        }
        true
    }

    /// Ends with all others, and lets what was sent arrive.
    pub(super) fn finish(mut self, well: bool) {
        if well {
            // A rank that was lost would keep the others waiting: these learn of it in the barrier.
            let _ = self.barrier();
        }
        while well && !(self.packets.is_empty() && self.orders.is_empty() && self.under_way.is_empty()) {
            self.serve("what was sent to arrive");
        }
        self.nic.depart(PeerStatus::Finished);
    }
}

impl Drop for Mpi<'_> {
    fn drop(&mut self) {
        // Only the first departure counts: this is that of a program that unwinds.
        self.nic.depart(am_core::transport::Departure::of_drop().status());
    }
}

//! The sending side of an interface: units and their answers, and the engine that sends the cells of transfers.

use super::Address;
use super::device::{
    AGAIN, Context, ENGINE, Exanet, KINDS, Origin, PACKET_TX, RDMA_TX, RETRY, START, Unit, UnitKind, WATCH, Write,
};
use super::errors::{Fault, Nack, PacketError, RdmaError};
use super::packetizer::{Letter, PACKET};
use super::sequence::{Answer, WINDOW};
use super::transfer::{Notify, TransferId};
use super::wire::{Body, Cells, Content, ReadRequest, Wire};
use am_core::{Instant, PeerStatus, Span};
use fabric_sim::{DeviceContext, Outgoing, PacketId};

/// Units of a node beyond which no blocks are begun, so that control packets have room.
const BLOCKS: u32 = WINDOW / 2;
/// Bytes of a request of the interfaces among themselves.
const REQUEST: u32 = PACKET as u32;
/// Time-outs of a unit after which a process asks whether its reads are still being served.
const WATCHED: u64 = 8;

type Port<'p, 'c> = &'p mut DeviceContext<'c, Wire>;

/// What a process asks the engine to move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) local: u64,
    pub(crate) to: Address,
    pub(crate) remote: u64,
    pub(crate) len: u64,
    pub(crate) notify: Option<Notify>,
}

impl Exanet {
    pub(crate) fn packet_send(
        &mut self,
        local: u32,
        to: Address,
        bytes: &[u8],
        port: Port<'_, '_>,
    ) -> Result<u32, PacketError> {
        if self.process(local).context != Context::Open {
            return Err(PacketError::NotOpen);
        }
        if bytes.len() > PACKET {
            return Err(PacketError::TooLong { len: bytes.len() });
        }
        let rank = self.shared.directory.rank(to).ok_or(PacketError::NoProcess(to))?;
        let under_way = self.flow(to.node.into()).out.units.span();
        let letter = Letter { to: rank, data: self.shared.pool.lend_copy(bytes) };
        let process = self.process(local);
        let channel = if under_way < WINDOW { process.packetizer.claim(letter) } else { None };
        let Some(channel) = channel else {
            process.wants_room = true;
            let (busy, channels) = (process.packetizer.in_use(), process.packetizer.count());
            return Err(PacketError::Full { busy, channels, under_way });
        };
        self.dispatch(local, rank, UnitKind::Packet { process: local, channel }, port);
        Ok(channel)
    }

    pub(crate) fn packet_retry(
        &mut self,
        local: u32,
        channel: u32,
        port: Port<'_, '_>,
    ) -> Result<(), PacketError> {
        let refused = self.process(local).packetizer.refusal(channel);
        let (to, _) = refused.ok_or(PacketError::NotRefused(channel))?;
        let under_way = self.flow(port.node_of(to)).out.units.span();
        let process = self.process(local);
        if under_way >= WINDOW {
            process.wants_room = true;
            let (busy, channels) = (process.packetizer.in_use(), process.packetizer.count());
            return Err(PacketError::Full { busy, channels, under_way });
        }
        process.packetizer.again(channel);
        self.dispatch(local, to, UnitKind::Packet { process: local, channel }, port);
        Ok(())
    }

    pub(crate) fn transfer(
        &mut self,
        local: u32,
        order: &Order,
        write: bool,
        port: Port<'_, '_>,
    ) -> Result<TransferId, RdmaError> {
        let process = &mut self.processes[local as usize];
        if process.context != Context::Open {
            return Err(RdmaError::NotOpen);
        }
        for at in [order.local, order.remote] {
            if order.len == 0 || at.checked_add(order.len).is_none() {
                return Err(RdmaError::BadLength { len: order.len, at });
            }
        }
        let to = self.shared.directory.rank(order.to).ok_or(RdmaError::NoProcess(order.to))?;
        let queue = self.shared.parameters.rdma.queue;
        let Some(id) = process.transfers.begin() else {
            process.wants_room = true;
            return Err(RdmaError::QueueFull(queue));
        };
        let &Order { local: at, remote, len, notify, .. } = order;
        if write {
            process.writing += 1;
            self.begin_write(local, (at, to, remote, len), notify, Origin::Own(id), port);
        } else {
            process.asking.push((to, ReadRequest { id, source: remote, destination: at, len, notify }));
            self.retry(local, port);
        }
        Ok(id)
    }

    /// Begins a transfer of bytes at one address, to an address of a rank.
    pub(super) fn begin_write(
        &mut self,
        process: u32,
        (source, to, destination, len): (u64, u32, u64, u64),
        notify: Option<Notify>,
        origin: Origin,
        port: Port<'_, '_>,
    ) {
        let (from, blocks) = (self.process(process).rank, len.div_ceil(self.shared.cut.block()));
        let out = &mut self.flow(port.node_of(to)).out;
        let number = out.transfers;
        out.transfers = number.wrapping_add(1);
        out.live.push(number);
        let write = Write {
            process,
            from,
            source,
            to,
            destination,
            len,
            notify,
            origin,
            number,
            blocks,
            next: 0,
            under_way: 0,
            done: 0,
        };
        let index = self.free_writes.pop().unwrap_or_else(|| {
            self.writes.push(None);
            self.writes.len() as u32 - 1
        });
        self.writes[index as usize] = Some(write);
        let start = port.slowed(self.shared.costs.start);
        port.timer(port.now() + start, index * KINDS + START);
    }

    /// Adds a unit and sends it. There is room.
    fn dispatch(&mut self, local: u32, to: u32, kind: UnitKind, port: Port<'_, '_>) {
        let (node, from) = (port.node_of(to), self.process(local).rank);
        let unit = Unit { from, to, kind, attempts: 0, again: u64::MAX };
        let number = self.flow(node).out.units.add(unit);
        self.transmit(node, number, port);
    }

    /// Sends a unit.
    fn transmit(&mut self, node: u32, number: u32, port: Port<'_, '_>) {
        let Some(unit) = self.flow(node).out.units.get(number) else { return };
        let (from, to, attempts) = (unit.from, unit.to, unit.attempts);
        let content = match &mut unit.kind {
            UnitKind::Block { cursor, queued, paused, .. } => {
                (*cursor, *paused) = (0, false);
                if !std::mem::replace(queued, true) {
                    self.engine.push_back((node, number));
                }
                return self.run_engine(port);
            }
            UnitKind::Packet { process, channel } => {
                let (process, channel) = (*process, *channel);
                let process = self.process(process);
                let letter = process.packetizer.letter(channel).expect("the channel holds the packet");
                Content::Packet(process.address, letter.data.clone())
            }
            UnitKind::Read { request, .. } => Content::Read(*request),
            UnitKind::ReadFault(id, fault) => Content::ReadFault(*id, *fault),
            UnitKind::Watch { id, .. } => Content::Watch(*id),
        };
        let bytes = if let Content::Packet(_, data) = &content { data.len() as u32 } else { REQUEST };
        let served = port.serve(PACKET_TX, port.now(), bytes, PacketId { number: number.into(), from, to });
        let body = Wire(Body::Unit(number, content));
        port.send_as(Outgoing { at: Some(served.leaves), ..Outgoing::new(from, to, bytes, body) });
        let again = self.shared.timeout(served.leaves, attempts);
        self.arm(node, number, again, port);
    }

    /// Sets the time at which a unit is sent again.
    fn arm(&mut self, node: u32, number: u32, again: u64, port: Port<'_, '_>) {
        let out = &mut self.flow(node).out;
        if let Some(unit) = out.units.get(number) {
            unit.again = again;
            if again < out.timed {
                out.timed = again;
                port.timer(Instant(again), node * KINDS + AGAIN);
            }
        }
    }

    /// Sends those units to a node again whose time has come.
    pub(super) fn send_again(&mut self, node: u32, port: Port<'_, '_>) {
        let (now, limit) = (port.now().0, self.shared.parameters.retry.limit);
        let out = &mut self.flow(node).out;
        if out.timed > now {
            // An earlier timer has done this one's work.
            return;
        }
        out.timed = u64::MAX;
        // No more than the window.
        let due: Vec<u32> =
            out.units.all().filter(|(_, unit)| unit.again <= now).map(|(number, _)| number).collect();
        for number in due {
            let Some(unit) = self.flow(node).out.units.get(number) else { continue };
            let waited = matches!(unit.kind, UnitKind::Block { paused: true, .. });
            unit.again = u64::MAX;
            unit.attempts += u32::from(!waited);
            if unit.attempts > limit {
                self.counters.abandoned += 1;
                self.settled(node, number, Err(()), port);
            } else {
                self.counters.resent += u64::from(!waited);
                self.transmit(node, number, port);
            }
        }
        let out = &mut self.flow(node).out;
        let next = out.units.all().map(|(_, unit)| unit.again).min().unwrap_or(u64::MAX);
        if next < out.timed {
            out.timed = next;
            port.timer(Instant(next), node * KINDS + AGAIN);
        }
    }

    /// The other side has answered a unit.
    pub(super) fn answered(&mut self, node: u32, number: u32, answer: Option<Answer>, port: Port<'_, '_>) {
        if let Some(answer) = answer {
            return self.settled(node, number, Ok(answer), port);
        }
        // A page is being fetched there: this block waits, and is then sent again as a whole.
        let wait = port.now().0 + self.shared.costs.fault_wait.0;
        let Some(unit) = self.flow(node).out.units.get(number) else { return };
        if let UnitKind::Block { paused, .. } = &mut unit.kind
            && !std::mem::replace(paused, true)
        {
            self.arm(node, number, wait, port);
        }
    }

    /// A unit is over: answered, or given up.
    fn settled(&mut self, node: u32, number: u32, answer: Result<Answer, ()>, port: Port<'_, '_>) {
        let Some(unit) = self.flow(node).out.units.settle(number) else { return };
        match unit.kind {
            UnitKind::Packet { process, channel } => {
                let nack = match answer {
                    Ok(Answer::Accepted) => None,
                    Ok(Answer::Full) => Some(Nack::MailboxFull),
                    Ok(Answer::NoContext | Answer::Violation) => Some(Nack::NoContext),
                    Err(()) => Some(Nack::Unreachable),
                };
                self.packet_settled(process, channel, nack, port);
            }
            UnitKind::Read { process, request } => match answer {
                Ok(Answer::Accepted) => {
                    let asking = self.process(process);
                    asking.refusals = 0;
                    if asking.transfers.is_pending(request.id) {
                        asking.reading.push((unit.to, request.id));
                        self.watch_later(process, port);
                    }
                }
                Ok(Answer::Full) => {
                    self.process(process).asking.push((unit.to, request));
                    self.retry_later(process, port);
                }
                Ok(Answer::NoContext) => self.end_transfer(process, request.id, Err(Fault::NoContext), port),
                Ok(Answer::Violation) => self.end_transfer(process, request.id, Err(Fault::Source), port),
                Err(()) => self.end_transfer(process, request.id, Err(Fault::Unreachable), port),
            },
            UnitKind::ReadFault(..) => self.serving -= 1,
            // All of it would be here: whoever served it has given it up, or does not answer.
            UnitKind::Watch { process, id } => match answer {
                Ok(Answer::NoContext) => self.end_transfer(process, id, Err(Fault::NoContext), port),
                Ok(Answer::Violation) | Err(()) => {
                    self.end_transfer(process, id, Err(Fault::Unreachable), port);
                }
                Ok(Answer::Accepted | Answer::Full) => {}
            },
            UnitKind::Block { write: index, .. } => {
                let write = self.writes[index as usize].as_mut().expect("a write lives as long as its blocks");
                write.under_way -= 1;
                match answer {
                    Ok(Answer::Accepted) => {
                        write.done += 1;
                        if write.done == write.blocks {
                            self.end_write(index, Ok(()), false, port);
                        } else {
                            self.advance(index, port);
                        }
                    }
                    Ok(Answer::NoContext) => self.end_write(index, Err(Fault::NoContext), false, port),
                    Ok(_) => self.end_write(index, Err(Fault::Destination), false, port),
                    Err(()) => self.end_write(index, Err(Fault::Unreachable), false, port),
                }
            }
        }
        self.made_room(node, port);
    }

    /// There is room among the units to a node again.
    fn made_room(&mut self, node: u32, port: Port<'_, '_>) {
        self.send_read_faults(node, port);
        let starved = std::mem::take(&mut self.flow(node).out.starved);
        for index in starved {
            self.advance(index, port);
        }
        for local in 0..self.processes.len() as u32 {
            self.give_room(local, port);
        }
    }

    /// Tells a process that was refused for want of room; lets one go that leaves.
    fn give_room(&mut self, local: u32, port: Port<'_, '_>) {
        let process = self.process(local);
        if std::mem::take(&mut process.wants_room) {
            port.wake(process.rank);
        }
        self.try_depart(local, port);
    }

    fn packet_settled(&mut self, local: u32, channel: u32, nack: Option<Nack>, port: Port<'_, '_>) {
        let process = self.process(local);
        match nack {
            None => {
                process.packetizer.accepted(channel);
                process.refusals = 0;
            }
            Some(nack) => {
                process.packetizer.refused(channel, nack);
                if process.departing.is_none() {
                    port.wake(process.rank);
                } else if nack == Nack::MailboxFull {
                    self.retry_later(local, port);
                } else {
                    process.packetizer.cancel(channel);
                }
            }
        }
    }

    /// Plans to send again what was refused of a process.
    fn retry_later(&mut self, local: u32, port: Port<'_, '_>) {
        let process = &mut self.processes[local as usize];
        if !std::mem::replace(&mut process.retries, true) {
            let wait = Span(self.shared.costs.busy_wait.0 << process.refusals.min(6));
            process.refusals += 1;
            port.timer(port.now() + wait, local * KINDS + RETRY);
        }
    }

    /// Sends again what was refused: reads always, packets of a process that leaves.
    pub(super) fn retry(&mut self, local: u32, port: Port<'_, '_>) {
        self.process(local).retries = false;
        for (to, request) in std::mem::take(&mut self.process(local).asking) {
            if self.flow(port.node_of(to)).out.units.span() < WINDOW {
                self.dispatch(local, to, UnitKind::Read { process: local, request }, port);
            } else {
                self.process(local).asking.push((to, request));
            }
        }
        let limit = self.shared.parameters.retry.limit;
        let process = self.process(local);
        let (refused, leaves) = (process.packetizer.state().refused, process.departing.is_some());
        if leaves && process.refusals > limit {
            // Nobody empties that mailbox, and may be waiting for this process to leave.
            let given_up = (0..u64::BITS).filter(|channel| process.packetizer.cancel(*channel).is_some()).count();
            self.counters.abandoned += given_up as u64;
            return self.try_depart(local, port);
        }
        let mut left = false;
        for channel in (0..u64::BITS).filter(|channel| leaves && refused & 1 << channel != 0) {
            left |= self.packet_retry(local, channel, port).is_err();
        }
        if left || !self.process(local).asking.is_empty() {
            self.retry_later(local, port);
        }
    }

    /// Begins blocks of a write, as far as it may have them under way.
    pub(super) fn advance(&mut self, index: u32, port: Port<'_, '_>) {
        let most = self.shared.parameters.rdma.window;
        loop {
            let Some(write) = &mut self.writes[index as usize] else { return };
            if write.next == write.blocks || write.under_way >= most {
                return;
            }
            let (from, to, block, node) = (write.from, write.to, write.next, port.node_of(write.to));
            if self.flow(node).out.units.span() >= BLOCKS {
                let starved = &mut self.flow(node).out.starved;
                if !starved.contains(&index) {
                    starved.push(index);
                }
                return;
            }
            let write = self.writes[index as usize].as_mut().expect("the write was just seen");
            write.next += 1;
            write.under_way += 1;
            let kind = UnitKind::Block { write: index, block, cursor: 0, queued: false, paused: false };
            let number = self.flow(node).out.units.add(Unit { from, to, kind, attempts: 0, again: u64::MAX });
            self.transmit(node, number, port);
        }
    }

    /// Sends cells, a packet of one block after another's, as long as the engine is free.
    pub(super) fn run_engine(&mut self, port: Port<'_, '_>) {
        if std::mem::replace(&mut self.engine_runs, true) {
            return;
        }
        while !self.engine_busy
            && let Some((node, number)) = self.engine.pop_front()
        {
            self.send_cells(node, number, port);
        }
        self.engine_runs = false;
    }

    /// Sends the next cells of a block.
    fn send_cells(&mut self, node: u32, number: u32, port: Port<'_, '_>) {
        let Some(unit) = self.flow(node).out.units.get(number) else { return };
        let attempts = unit.attempts;
        let UnitKind::Block { write, block, cursor, queued, paused } = &mut unit.kind else { return };
        if *paused {
            *queued = false;
            return;
        }
        let (index, block, first) = (*write, *block, *cursor);
        let write = self.writes[index as usize].as_ref().expect("a write lives as long as its blocks");
        let (local, from, to) = (write.process, write.from, write.to);
        let cut = self.shared.cut;
        let block_len = cut.block_len(write.len, block);
        let offset = block * cut.block() + u64::from(first * cut.cell);
        let bytes = (block_len - first * cut.cell).min(cut.grain * cut.cell);
        let (source, at) = (write.source + offset, write.destination + offset);
        let Ok(place) = self.processes[local as usize].space.translate(source, bytes.into(), false) else {
            let closed = self.process(local).context == Context::Closed;
            let fault = if closed { Fault::NoContext } else { Fault::Source };
            self.end_write(index, Err(fault), true, port);
            // No answer will come that lets others go on.
            return self.made_room(node, port);
        };
        if first == 0 && self.page_is_taken(place.pageable, port) {
            self.process(local).space.evict(source);
        }
        if let Err(fault) = self.process(local).space.touch(source, bytes.into()) {
            self.counters.page_faults += 1;
            if fault.fetch {
                self.fetch(local, fault.page, port);
            }
            let wait = port.now().0 + self.shared.costs.fetch.0 + 1;
            if let Some(Unit { kind: UnitKind::Block { queued, paused, .. }, .. }) =
                self.flow(node).out.units.get(number)
            {
                (*queued, *paused) = (false, true);
            }
            return self.arm(node, number, wait, port);
        }
        let write = self.writes[index as usize].as_ref().expect("the write was just seen");
        let read = if let Origin::Read(id) = write.origin { Some(id) } else { None };
        let (transfer, blocks, notify) = (write.number, write.blocks, write.notify);
        let data = self.shared.pool.lend(bytes, |buffer| place.memory.read(place.offset, buffer));
        let floor = self.flow(node).out.live.first().copied().unwrap_or(transfer);
        let cells = Cells { data, at, first, block_len, transfer, blocks, floor, notify, read };
        let count = bytes.div_ceil(cut.cell);
        let served = port.serve(RDMA_TX, port.now(), bytes, PacketId { number: number.into(), from, to });
        let header = Some(count * self.shared.parameters.cell.header_bytes);
        let body = Wire(Body::Unit(number, Content::Cells(cells)));
        // Cells leave while others are being read, but none before it is: the last byte is not on its way
        // before the engine has it.
        let link = if node == port.node() { Span::ZERO } else { self.shared.on_the_link(bytes) };
        let at = served.enters.max(Instant(served.leaves.0.saturating_sub(link.0)));
        port.send_as(Outgoing { header, at: Some(at), ..Outgoing::new(from, to, bytes, body) });
        let next = first + count;
        let over = next * cut.cell >= block_len;
        if let Some(Unit { kind: UnitKind::Block { cursor, queued, .. }, .. }) =
            self.flow(node).out.units.get(number)
        {
            (*cursor, *queued) = (next, !over);
        }
        if over {
            let again = self.shared.timeout(served.leaves, attempts);
            self.arm(node, number, again, port);
        } else {
            self.engine.push_back((node, number));
        }
        if served.leaves > port.now() {
            self.engine_busy = true;
            port.timer(served.leaves, ENGINE);
        }
    }

    /// Ends a write, and gives up what is left of it. `here` says that its source is why.
    fn end_write(&mut self, index: u32, how: Result<(), Fault>, here: bool, port: Port<'_, '_>) {
        let Some(write) = self.writes[index as usize].take() else { return };
        self.free_writes.push(index);
        let node = port.node_of(write.to);
        let out = &mut self.flow(node).out;
        out.live.retain(|number| *number != write.number);
        out.starved.retain(|starved| *starved != index);
        let of_write = |unit: &Unit| matches!(unit.kind, UnitKind::Block { write, .. } if write == index);
        let left: Vec<u32> =
            out.units.all().filter(|(_, unit)| of_write(unit)).map(|(number, _)| number).collect();
        for number in left {
            out.units.settle(number);
        }
        match write.origin {
            Origin::Own(id) => {
                self.process(write.process).writing -= 1;
                self.end_transfer(write.process, id, how, port);
                self.try_depart(write.process, port);
            }
            // Who asked has what it asked for, knows better, or is to be told.
            Origin::Read(id) => match how {
                Err(fault) if here => {
                    self.flow(node).out.read_faults.push((write.process, write.to, id, fault));
                    self.send_read_faults(node, port);
                }
                _ => self.serving -= 1,
            },
        }
    }

    /// Tells those who asked for what cannot be read, as far as there is room among the units.
    fn send_read_faults(&mut self, node: u32, port: Port<'_, '_>) {
        while self.flow(node).out.units.span() < WINDOW
            && let Some((local, to, id, fault)) = self.flow(node).out.read_faults.pop()
        {
            self.dispatch(local, to, UnitKind::ReadFault(id, fault), port);
        }
    }

    /// Ends a transfer of a process.
    pub(super) fn end_transfer(&mut self, local: u32, id: TransferId, how: Result<(), Fault>, port: Port<'_, '_>) {
        let process = self.process(local);
        if process.transfers.end(id, how) {
            port.wake(process.rank);
        }
    }

    /// Plans to ask whether the reads of a process are still being served, where that can fail unnoticed.
    fn watch_later(&mut self, local: u32, port: Port<'_, '_>) {
        let process = &mut self.processes[local as usize];
        process.reading.retain(|(_, id)| process.transfers.is_pending(*id));
        if self.shared.lossy && !process.reading.is_empty() && !std::mem::replace(&mut process.watches, true) {
            port.timer(port.now() + Span(WATCHED * self.shared.costs.timeout.0), local * KINDS + WATCH);
        }
    }

    /// Asks whether the reads of a process are still being served.
    pub(super) fn watch(&mut self, local: u32, port: Port<'_, '_>) {
        self.process(local).watches = false;
        self.watch_later(local, port);
        for index in 0..self.process(local).reading.len() {
            let (to, id) = self.process(local).reading[index];
            let units = &mut self.flow(port.node_of(to)).out.units;
            let asked = |unit: &Unit| match unit.kind {
                UnitKind::Watch { process, id: other } => (process, other) == (local, id),
                _ => false,
            };
            if units.span() < WINDOW && !units.all().any(|(_, unit)| asked(unit)) {
                self.dispatch(local, to, UnitKind::Watch { process: local, id }, port);
            }
        }
    }

    /// Whether a read of another process is being served, or its failure is about to be told.
    pub(super) fn serves(&mut self, to: u32, id: TransferId, port: Port<'_, '_>) -> bool {
        let of_read = |write: &Write| matches!(write.origin, Origin::Read(other) if (write.to, other) == (to, id));
        if self.writes.iter().flatten().any(of_read) {
            return true;
        }
        let out = &mut self.flow(port.node_of(to)).out;
        let told =
            |unit: &Unit| matches!(unit.kind, UnitKind::ReadFault(other, _) if (unit.to, other) == (to, id));
        out.read_faults.iter().any(|(_, rank, other, _)| (*rank, *other) == (to, id))
            || out.units.all().any(|(_, unit)| told(unit))
    }

    /// A process leaves the job once all that it sent was taken.
    pub(crate) fn depart(&mut self, local: u32, status: PeerStatus, port: Port<'_, '_>) {
        let process = self.process(local);
        if process.departing.is_some() || process.context == Context::Closed {
            return;
        }
        process.departing = Some(status);
        // What was refused before counts for nothing: from now on the interface tries by itself.
        process.refusals = 0;
        self.retry(local, port);
        self.try_depart(local, port);
    }

    fn try_depart(&mut self, local: u32, port: Port<'_, '_>) {
        let process = self.process(local);
        let Some(status) = process.departing else { return };
        if process.context == Context::Closed || process.writing != 0 || process.packetizer.in_use() != 0 {
            return;
        }
        process.context = Context::Closed;
        process.space.clear();
        process.asking.clear();
        process.reading.clear();
        port.depart(process.rank, status);
    }
}

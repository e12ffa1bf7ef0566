//! The receiving side of an interface: what units do when they come, and what they are answered.

use super::device::{Context, Exanet, Origin};
use super::errors::Fault;
use super::mutation::Mutation;
use super::packetizer::Message;
use super::sequence::{Answer, Known};
use super::transfer::Notify;
use super::wire::{Body, Cells, Content, ReadRequest, Wire};
use fabric_sim::{DeviceContext, Outgoing, Packet};

type Port<'p, 'c> = &'p mut DeviceContext<'c, Wire>;

impl Exanet {
    /// Sends an answer to the rank whose unit it was, in the name of the one that it was for.
    fn answer(&mut self, number: u32, (from, to): (u32, u32), answer: Option<Answer>, port: Port<'_, '_>) {
        let header = Some(self.shared.parameters.cell.header_bytes);
        let body = Wire(Body::Answer(number, answer));
        port.send_as(Outgoing { header, ..Outgoing::new(to, from, 0, body) });
    }

    /// Whether a unit has not come before; copies are answered as the first of them was.
    fn is_new(&mut self, node: u32, number: u32, ranks: (u32, u32), port: Port<'_, '_>) -> bool {
        match self.flow(node).inward.answers.look_up(number) {
            Known::New => return true,
            Known::Answered(answer) => self.answer(number, ranks, Some(answer), port),
            Known::Past => {}
        }
        self.counters.repeated += 1;
        false
    }

    /// Notes and sends the answer to a new unit.
    fn conclude(&mut self, node: u32, number: u32, ranks: (u32, u32), answer: Answer, port: Port<'_, '_>) {
        // Rule 1 of the sheet: a unit that was answered is known, and takes effect no second time.
        if !self.shared.defects.has(Mutation::TakeCopies) {
            self.flow(node).inward.answers.note(number, answer);
        }
        self.answer(number, ranks, Some(answer), port);
    }

    /// A control packet, or a request of the interfaces among themselves.
    pub(super) fn take_control(
        &mut self,
        node: u32,
        number: u32,
        ranks: (u32, u32),
        content: Content,
        port: Port<'_, '_>,
    ) {
        if !self.is_new(node, number, ranks, port) {
            return;
        }
        let local = self.local(ranks.1);
        let answer = match content {
            _ if self.process(local).context != Context::Open => Answer::NoContext,
            Content::Packet(from, data) => {
                let process = self.process(local);
                if process.mailbox.put(Message::new(from, &data)) {
                    port.wake(process.rank);
                    self.counters.packets += 1;
                    Answer::Accepted
                } else {
                    self.counters.refused += 1;
                    Answer::Full
                }
            }
            Content::Read(request) => self.take_read(local, ranks.0, request, port),
            Content::ReadFault(id, fault) => {
                self.end_transfer(local, id, Err(fault), port);
                Answer::Accepted
            }
            Content::Watch(id) if self.serves(ranks.0, id, port) => Answer::Accepted,
            Content::Watch(_) => Answer::Violation,
            Content::Cells(_) => unreachable!("cells go another way"),
        };
        self.conclude(node, number, ranks, answer, port);
    }

    /// Somebody asks to be written to.
    fn take_read(&mut self, local: u32, from: u32, request: ReadRequest, port: Port<'_, '_>) -> Answer {
        let ReadRequest { id, source, destination, len, notify } = request;
        if self.process(local).space.translate(source, len, false).is_err() {
            return Answer::Violation;
        }
        if self.serving >= self.shared.parameters.rdma.reads {
            return Answer::Full;
        }
        self.serving += 1;
        self.begin_write(local, (source, from, destination, len), notify, Origin::Read(id), port);
        Answer::Accepted
    }

    /// Cells of a block: they are written at once, in whatever order they come.
    pub(super) fn take_cells(
        &mut self,
        node: u32,
        number: u32,
        ranks: (u32, u32),
        cells: &Cells,
        port: Port<'_, '_>,
    ) {
        let defects = self.shared.defects;
        let copies =
            defects.has(Mutation::WriteCopies) && self.flow(node).inward.answers.look_up(number) != Known::New;
        // Rule 5 of the sheet: copies of a block that is complete write nothing.
        if !self.is_new(node, number, ranks, port) && !copies {
            return;
        }
        let local = self.local(ranks.1);
        let process = &mut self.processes[local as usize];
        let notified =
            |notify: Notify| notify.at.is_multiple_of(8) && process.space.translate(notify.at, 8, true).is_ok();
        let refusal = if process.context != Context::Open {
            Some(Answer::NoContext)
        } else if cells.read.is_some_and(|id| !process.transfers.is_pending(id)) && !copies {
            // Whoever asked was told that nothing comes any more.
            Some(Answer::Violation)
        } else if !cells.notify.is_none_or(notified) {
            Some(Answer::Violation)
        } else {
            None
        };
        let place = process.space.translate(cells.at, cells.data.len() as u64, true);
        let place = match (refusal, place) {
            (None, Ok(place)) => place,
            (refusal, _) => {
                let answer = refusal.unwrap_or(Answer::Violation);
                self.flow(node).inward.arrivals.drop_block(number);
                if let Some(id) = cells.read {
                    let fault = if answer == Answer::NoContext { Fault::NoContext } else { Fault::Destination };
                    self.end_transfer(local, id, Err(fault), port);
                }
                return self.conclude(node, number, ranks, answer, port);
            }
        };
        if copies {
            place.memory.write(place.offset, &cells.data);
            return;
        }
        if self.flow(node).inward.arrivals.is_new(number) && self.page_is_taken(place.pageable, port) {
            self.process(local).space.evict(cells.at);
        }
        let touched = self.process(local).space.touch(cells.at, cells.data.len() as u64);
        if let Err(fault) = touched {
            self.counters.page_faults += 1;
            if fault.fetch {
                self.fetch(local, fault.page, port);
            }
            // Rule 4 of the sheet: the block is not taken, so that its sender sends it again.
            if !defects.has(Mutation::IgnorePageFaults) {
                return self.answer(number, ranks, None, port);
            }
        } else {
            place.memory.write(place.offset, &cells.data);
        }
        let cut = self.shared.cut;
        let (marks, complete) = (cut.marks(cells.first, cells.data.len() as u32), cut.complete(cells.block_len));
        let arrivals = &mut self.flow(node).inward.arrivals;
        let block_done = arrivals.mark(number, marks, complete);
        let done = block_done && arrivals.block_done(cells.transfer, cells.blocks, cells.floor);
        let tail = marks & (complete ^ complete >> 1) != 0;
        // Rule 2 of the sheet: the notification comes after the last byte of the last block, whichever that is.
        if done || defects.has(Mutation::NotifyAtTail) && tail {
            self.transferred(local, ranks.0, cells, port);
        }
        if block_done {
            self.counters.blocks += 1;
            self.conclude(node, number, ranks, Answer::Accepted, port);
        }
    }

    /// Every byte of a transfer is there: tells the process.
    fn transferred(&mut self, local: u32, from: u32, cells: &Cells, port: Port<'_, '_>) {
        if let Some(notify) = cells.notify {
            let at = port.now() + port.slowed(self.shared.costs.notify);
            if at > port.now() {
                self.notify_later(from, local, notify, at, port);
            } else {
                self.write_notification(from, self.processes[local as usize].rank, notify, port);
            }
        }
        if let Some(id) = cells.read {
            self.end_transfer(local, id, Ok(()), port);
        }
    }

    /// Sets a notification aside. It counts as under way from the rank that sent the bytes, whose departure is
    /// not known before.
    fn notify_later(&self, from: u32, local: u32, notify: Notify, at: am_core::Instant, port: Port<'_, '_>) {
        let (to, sent) = (self.processes[local as usize].rank, port.now());
        let body = Wire(Body::Notify(notify));
        port.defer(at, Packet { number: 0, from, to, bytes: 8, sent, corrupt: false, body }, 0);
    }

    /// Writes a notification; where its page is not there, once it is.
    pub(super) fn write_notification(&mut self, from: u32, to: u32, notify: Notify, port: Port<'_, '_>) {
        let local = self.local(to);
        let touched = self.process(local).space.touch(notify.at, 8);
        if let Err(fault) = touched {
            self.counters.page_faults += 1;
            if fault.fetch {
                self.fetch(local, fault.page, port);
            }
            let at = port.now() + self.shared.costs.fetch;
            return self.notify_later(from, local, notify, at, port);
        }
        let process = self.process(local);
        // The process may have unmapped it since.
        if let Ok(place) = process.space.translate(notify.at, 8, true) {
            place.memory.write(place.offset, &notify.value.to_le_bytes());
            port.wake(process.rank);
        }
    }
}

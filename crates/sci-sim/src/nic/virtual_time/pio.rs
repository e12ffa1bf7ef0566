//! Programmed I/O in virtual time: the processor's write-combining buffer, lines under way, barriers, checks,
//! reads.

use super::device::Look;
use super::handle::{RemoteMap, Sequence, Virtual};
use super::process::{Pending, Process, Wanting};
use super::wire::{Ask, Body, Line, Reply, Wire, ones};
use crate::nic::code::Code;
use crate::nic::errors::{Failure, Severity};
use crate::nic::kinds::{Flags, LINE, SequenceStatus};
use crate::nic::mutation::Mutation;
use crate::nic::sisci::Sisci;
use am_core::Span;
use fabric_sim::Outgoing;

/// The processor's write-combining buffer: one line that is being filled.
#[derive(Debug)]
pub(super) struct Combiner {
    map: u32,
    rank: u32,
    /// Where the line begins in the global address space.
    address: u64,
    /// Which bytes have been stored; none: nothing is there.
    mask: u64,
    bytes: [u8; LINE],
}

impl Default for Combiner {
    fn default() -> Self {
        Self { map: 0, rank: 0, address: 0, mask: 0, bytes: [0; LINE] }
    }
}

impl Virtual<'_> {
    /// Stores bytes line by line. A line that is full, or followed by another, leaves the processor.
    pub(super) fn combine(&self, map: &RemoteMap, offset: usize, bytes: &[u8]) -> Result<(), Code> {
        if offset.checked_add(bytes.len()).is_none_or(|end| end > map.size) {
            return Err(Code::OutOfRange);
        }
        let mut address = map.address.bits() + offset as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let begin = (address % LINE as u64) as usize;
            let (some, more) = rest.split_at(rest.len().min(LINE - begin));
            self.fill(map, address - begin as u64, begin, some);
            (address, rest) = (address + some.len() as u64, more);
        }
        Ok(())
    }

    fn fill(&self, map: &RemoteMap, line: u64, begin: usize, bytes: &[u8]) {
        let other = {
            let combiner = self.combiner.borrow();
            combiner.mask != 0 && (combiner.address != line || combiner.map != map.number)
        };
        if other {
            self.push_out();
        }
        let full = {
            let mut combiner = self.combiner.borrow_mut();
            (combiner.map, combiner.rank, combiner.address) = (map.number, map.rank, line);
            combiner.mask |= ones(begin, bytes.len());
            combiner.bytes[begin..begin + bytes.len()].copy_from_slice(bytes);
            combiner.mask == u64::MAX
        };
        if full {
            self.push_out();
        }
    }

    /// Sends the line in the buffer on its way, once there is room for one more under way.
    pub(super) fn push_out(&self) {
        let (map, rank, address, line) = {
            let mut combiner = self.combiner.borrow_mut();
            if combiner.mask == 0 {
                return;
            }
            let line = Line { mask: std::mem::take(&mut combiner.mask), bytes: combiner.bytes };
            (combiner.map, combiner.rank, combiner.address, line)
        };
        let full = self.own(|process| process.pending.len() >= process.window);
        if full && !self.shared.has(Mutation::NoWindow) {
            self.wait_for_lines(Wanting::Window, |process| process.pending.len() < process.window);
        }
        let costs = &self.shared.costs;
        self.context.charge(costs.line);
        let sent = self.now() + costs.send;
        let answered = sent + costs.reply;
        let (serial, injected) = self.own(|process| {
            let (serial, injected) = (process.serial(), process.injector.draw());
            process.counters.lines += 1;
            // A line that an injected error keeps here has failed when others would have been answered.
            let kept = injected.is_some_and(|injected| !injected.lands);
            let until = if kept { answered } else { Process::deadline(sent, costs.timeout) };
            process.pending.push(Pending { serial, map, until, injected });
            (serial, injected)
        });
        if injected.is_none_or(|injected| injected.lands) {
            let body = Wire(Body::Line { address, serial, line });
            let packet = Outgoing::new(self.context.rank(), rank, LINE as u32, body);
            self.context.send_as(Outgoing { at: Some(sent), ..packet });
        }
    }

    /// Waits until enough lines have been answered or given up.
    fn wait_for_lines(&self, wanting: Wanting, enough: impl Fn(&Process) -> bool) {
        self.wait(wanting, None, |process, now| {
            process.expire(now);
            if enough(process) { Look::Done(()) } else { Look::Wait(process.next_expiry()) }
        });
    }

    pub(super) fn barrier(&self) {
        self.push_out();
        // Rule 1 of the sheet: a barrier ends when every line before it has landed.
        if !self.shared.has(Mutation::HollowBarrier) && self.own(|process| !process.pending.is_empty()) {
            self.wait_for_lines(Wanting::Lines, |process| process.pending.is_empty());
        }
    }

    pub(super) fn start(&self, sequence: &mut Sequence) -> SequenceStatus {
        let broken = if sequence.state.failed() {
            // The driver asks the other side.
            self.barrier();
            self.context.charge(self.shared.costs.restart);
            self.survey_connection(sequence.connection);
            self.context.sync();
            self.broken(sequence.rank).is_some()
        } else {
            matches!(self.context.known_status(sequence.rank), am_core::PeerStatus::Lost(_))
        };
        if self.shared.has(Mutation::EasyStart) {
            sequence.state = crate::nic::sequence::SequenceState::new();
            return sequence.state.start(false, self.now());
        }
        // What failed before is what the last check has told, or of no interest.
        self.own(|process| process.maps.at(sequence.map).failure = None);
        sequence.state.start(broken, self.now())
    }

    pub(super) fn check(&self, sequence: &mut Sequence, flags: Flags) -> Result<SequenceStatus, Code> {
        flags.only(Flags::NO_STORE_BARRIER | Flags::NO_FLUSH)?;
        sequence.state.check_allowed()?;
        if !flags.has(Flags::NO_FLUSH) {
            self.push_out();
        }
        let map = sequence.map;
        // Rule 1 of the sheet: a check waits for the answers to the lines of its map.
        if flags.has(Flags::NO_STORE_BARRIER) || self.shared.has(Mutation::HastyCheck) {
            let now = self.now();
            self.settled(|process| process.expire(now));
        } else {
            self.wait_for_lines(Wanting::Map(map), |process| {
                process.pending.iter().all(|pending| pending.map != map)
            });
        }
        self.context.charge(self.shared.costs.check);
        // Rule 4 of the sheet: the worst failure since the last check is told.
        let mut worst = self.own(|process| process.maps.at(map).failure.take());
        if self.shared.has(Mutation::BlindCheck) {
            worst = None;
        }
        if worst.is_some_and(|failure| failure.severity != Severity::Passing) {
            self.survey_connection(sequence.connection);
            // Rule 5 of the sheet: a lasting failure is told apart from a passing one.
            if self.broken(sequence.rank).is_some() {
                worst = Some(Failure::new(Severity::Lasting));
            }
        }
        if self.shared.has(Mutation::LastingAsPassing) && worst.is_some() {
            worst = Some(Failure::new(Severity::Passing));
        }
        Ok(sequence.state.checked(worst, self.now(), self.shared.costs.investigation))
    }

    pub(super) fn read(&self, map: &RemoteMap, offset: usize, out: &mut [u8]) -> Result<(), Code> {
        if offset.checked_add(out.len()).is_none_or(|end| end > map.size) {
            return Err(Code::OutOfRange);
        }
        let mut address = map.address.bits() + offset as u64;
        let mut rest = out;
        while !rest.is_empty() {
            let room = LINE - (address % LINE as u64) as usize;
            let (some, more) = rest.split_at_mut(room.min(rest.len()));
            let ask = Ask::Read { address, len: some.len() as u8 };
            let timeout = Span(self.shared.costs.timeout.0.saturating_mul(4));
            let result = self.ask(map.rank, ask, Some(timeout)).map_err(|_| Code::TransferFailed)?;
            // Rule 6 of the sheet: remote reads are counted.
            let counted = !self.shared.has(Mutation::UncountedReads);
            self.own(|process| process.counters.remote_reads += u64::from(counted));
            match result {
                Reply::Read(bytes) => some.copy_from_slice(&bytes[..some.len()]),
                _ => return Err(Code::TransferFailed),
            }
            (address, rest) = (address + some.len() as u64, more);
        }
        Ok(())
    }
}

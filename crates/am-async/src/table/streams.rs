//! Calls that have several answers: what comes for them, and what is taken.

use super::Table;
use crate::answers::{Announced, Answers, Complete, Hold, Impossible};
use crate::buffers;
use crate::meter::Party;
use crate::outcome::{Ended, Note, Outcome, Polled, Wakers, outcome_of};
use crate::room::{Room, Side};
use crate::wire::{Status, split_length};
use am_core::Address;
use am_core::slab::Key;
use std::task::Waker;

/// Streams whose memory is kept for others.
const SPARE: usize = 256;

impl Table {
    /// Keeps what a stream had for another one.
    pub(super) fn keep_stream(&mut self, stream: Option<Box<Answers>>) {
        let Some(mut stream) = stream else { return };
        // What nobody has taken goes: answers may be long.
        stream.renew(1);
        if self.spare.len() < SPARE {
            self.spare.push(stream);
        }
    }

    /// The next answer of a stream, or its end.
    pub(crate) fn poll_stream(&mut self, key: Key, waker: Option<&Waker>) -> Polled<Result<Vec<u8>, Ended>> {
        let Some(slot) = self.slots.get_mut(key) else { return Polled::Pending(None) };
        let to = slot.to;
        if let Some(answers) = &mut slot.stream
            && let Some(item) = answers.pop()
        {
            if let Some(answers) = answers.owed() {
                self.notes.push_back(Note::Credit { to, call: key, answers });
            }
            return Polled::Ready(Ok(item));
        }
        match self.poll(key, waker) {
            Polled::Ready(end) => Polled::Ready(Err(end)),
            Polled::Pending(old) => Polled::Pending(old),
        }
    }

    /// One of several answers has come.
    pub(super) fn item(&mut self, call: Key, number: u64, body: impl FnOnce(&mut Vec<u8>), wakers: &mut Wakers) {
        let Some(slot) = self.slots.get_mut(call) else { return };
        let Some(answers) = &mut slot.stream else { return self.end(call, Outcome::BadAnswer, wakers) };
        let (meter, method) = (&self.meter, slot.header.method);
        let bytes = || {
            let mut bytes = buffers::take();
            body(&mut bytes);
            meter.answer_bytes(Party::Caller, method, bytes.len() as u64);
            bytes
        };
        if answers.put(number, bytes).is_err() {
            return self.end(call, Outcome::BadAnswer, wakers);
        }
        wakers.add(&mut slot.waiter);
        if let Some(outcome) = answers.ended() {
            self.end(call, outcome, wakers);
        }
    }

    /// Several of them have come, the first of which has this number.
    pub(super) fn items(&mut self, call: Key, first: u64, body: impl FnOnce(&mut Vec<u8>), wakers: &mut Wakers) {
        let Some(slot) = self.slots.get_mut(call) else { return };
        let Some(answers) = &mut slot.stream else { return self.end(call, Outcome::BadAnswer, wakers) };
        let mut all = buffers::take();
        body(&mut all);
        // As many as its window lets a stream have at most.
        let (mut rest, mut number, mut bad) = (&all[..], first, all.is_empty());
        while !rest.is_empty() && !bad {
            let Some((item, behind)) = split_length(rest) else {
                bad = true;
                break;
            };
            let bytes = || {
                let mut bytes = buffers::take();
                bytes.extend_from_slice(item);
                bytes
            };
            self.meter.answer_bytes(Party::Caller, slot.header.method, item.len() as u64);
            bad = answers.put(number, bytes).is_err();
            (rest, number) = (behind, number.wrapping_add(1));
        }
        buffers::give(all);
        if bad {
            return self.end(call, Outcome::BadAnswer, wakers);
        }
        wakers.add(&mut slot.waiter);
        if let Some(outcome) = answers.ended() {
            self.end(call, outcome, wakers);
        }
    }

    /// An answer, or the end, is announced: it is longer than a message.
    pub(super) fn announced_item(&mut self, call: Key, what: Announced, wakers: &mut Wakers) {
        let Some(slot) = self.slots.get_mut(call) else { return };
        let (to, limit) = (slot.to, u64::from(self.config.max_bytes));
        let Some(answers) = &mut slot.stream else { return self.end(call, Outcome::BadAnswer, wakers) };
        if what.bytes > limit {
            self.notes.push_back(Note::Cancel { to, call });
            return self.end(call, Outcome::AnswerTooLarge { bytes: what.bytes, limit }, wakers);
        }
        match answers.announce(what) {
            Ok(true) => {
                self.room.add(Side::Answers, to, what.bytes, call);
                self.make_room();
            }
            Ok(false) => {}
            Err(Impossible) => self.end(call, Outcome::BadAnswer, wakers),
        }
    }

    /// Part of what was announced has come.
    pub(super) fn item_part(
        &mut self,
        call: Key,
        (at, len): (u64, usize),
        body: impl FnOnce(&mut [u8]),
        wakers: &mut Wakers,
    ) {
        let Some(slot) = self.slots.get_mut(call) else { return };
        let Some(answers) = &mut slot.stream else { return };
        let Complete { what, bytes, behind } = match answers.part(at, len, body) {
            Ok(None) => return,
            Ok(Some(come)) => come,
            Err(Impossible) => return self.end(call, Outcome::BadAnswer, wakers),
        };
        self.room.give(slot.to, what.bytes);
        if let Some(bytes) = behind {
            self.room.add(Side::Answers, slot.to, bytes, call);
        }
        if what.verdict.status == Status::Item {
            self.meter.answer_bytes(Party::Caller, slot.header.method, what.bytes);
            answers.fill(what.number, bytes);
        } else {
            let outcome = outcome_of(what.verdict, &bytes);
            buffers::give(std::mem::replace(&mut slot.bytes, bytes));
            if answers.end(what.number, outcome).is_err() {
                return self.end(call, Outcome::BadAnswer, wakers);
            }
        }
        wakers.add(&mut slot.waiter);
        if let Some(outcome) = answers.ended() {
            self.end(call, outcome, wakers);
        }
        self.make_room();
    }
}

/// Gives back what a stream that ends has of the memory for what is long.
pub(super) fn give_room(answers: &mut Answers, room: &Room, of: Address, call: Key) {
    match answers.forget_parts() {
        Hold::Nothing => {}
        Hold::Waits => room.remove(Side::Answers, of, call),
        Hold::Has(bytes) => room.give(of, bytes),
    }
}

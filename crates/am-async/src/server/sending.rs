//! What the callee's side sends: grants, answers of streams, answers and their parts.

use super::{Server, TURN};
use crate::buffers;
use crate::meter::End;
use crate::task::{Dispatch, Dispatched, LongItem, Phase, Task};
use crate::wire::{Header, Status, Verdict};
use am_core::slab::Key;

/// Where a task goes on after it has sent something.
enum After {
    /// It has more to send.
    Again,
    /// It waits for something else.
    Stay,
    Over,
}

impl<W: Send + 'static> Server<W> {
    /// Sends what can be sent; whether anything was, and whether something is left.
    pub(crate) fn send(&mut self, mut dispatch: impl FnMut(Dispatch<'_>) -> Dispatched) -> (bool, bool) {
        let mut advanced = false;
        for _ in 0..self.grants.len() {
            let Some(key) = self.grants.pop_front() else { break };
            let Some(task) = self.tasks.get(key) else { continue };
            match dispatch(Dispatch::Grant { to: task.from, call: task.call, task: key }) {
                Dispatched::NotNow => self.grants.push_back(key),
                Dispatched::Gone => self.abandon(key, End::Lost),
                _ => advanced = true,
            }
        }
        for _ in 0..self.outgoing.len().min(TURN) {
            let Some(key) = self.outgoing.pop_front() else { break };
            let Some(task) = self.tasks.get_mut(key) else { continue };
            task.listed = false;
            let after = Self::send_one(task, key, &mut dispatch, &mut advanced);
            if task.pending.is_none() && std::mem::take(&mut task.kept) {
                self.held[task.from.rank.0 as usize] -= 1;
            }
            match after {
                After::Again => self.list(key),
                After::Stay => {}
                After::Over => {
                    advanced = true;
                    // One that has no answer has nobody to send it to.
                    self.abandon(key, End::Lost);
                }
            }
        }
        (advanced, !(self.outgoing.is_empty() && self.grants.is_empty()))
    }

    /// Sends what one task has.
    fn send_one(
        task: &mut Task,
        key: Key,
        dispatch: &mut impl FnMut(Dispatch<'_>) -> Dispatched,
        advanced: &mut bool,
    ) -> After {
        let (to, call, before) = (task.from, task.call, task.items);
        if let Phase::Running { .. } = task.phase
            && let Some(pending) = task.pending.take()
        {
            *advanced = true;
            let verdict = Verdict::new(Status::Accepted, task.header.digest);
            if let Dispatched::Gone = dispatch(Dispatch::Accepted { call, verdict, pending }) {
                return After::Over;
            }
        }
        if let Some(item) = &mut task.long_item {
            // Its caller has no room for it yet.
            let Some(sent) = item.sent else { return After::Stay };
            match dispatch(Dispatch::Part { to, call, at: sent, rest: &item.bytes[sent..] }) {
                Dispatched::Partly(bytes) => {
                    *advanced |= bytes != 0;
                    item.sent = Some(sent + bytes);
                    if sent + bytes < item.bytes.len() {
                        return After::Again;
                    }
                }
                Dispatched::NotNow => return After::Again,
                _ => return After::Over,
            }
            task.items += 1;
            task.item_bytes += item.bytes.len() as u64;
            task.long_item.take().into_iter().for_each(|item| buffers::give(item.bytes));
        }
        // The answers of a stream leave before its end.
        while let Some(bundle) = task.answer_queue.as_ref().and_then(|answer_queue| answer_queue.pop()) {
            let (status, body) = bundle.message();
            let verdict = Verdict::new(status, task.header.digest);
            match dispatch(Dispatch::Items { to, call, verdict, body, number: task.items }) {
                Dispatched::NotNow => {
                    if let Some(answer_queue) = &task.answer_queue {
                        answer_queue.put_back(bundle);
                        if task.items != before {
                            answer_queue.sent();
                        }
                    }
                    return After::Again;
                }
                Dispatched::Gone => return After::Over,
                Dispatched::Announced => {
                    *advanced = true;
                    debug_assert_eq!(bundle.bytes.len() as u64, bundle.item_bytes, "a long one is alone");
                    task.long_item = Some(LongItem { bytes: bundle.bytes, sent: None });
                    if let Some(answer_queue) = &task.answer_queue {
                        answer_queue.sent();
                    }
                    return After::Stay;
                }
                _ => {
                    *advanced = true;
                    task.items += u64::from(bundle.count);
                    task.item_bytes += bundle.item_bytes;
                    buffers::give(bundle.bytes);
                }
            }
        }
        if task.items != before
            && let Some(answer_queue) = &task.answer_queue
        {
            answer_queue.sent();
        }
        match task.phase {
            Phase::Answering { verdict } => {
                let (pending, body) = (&mut task.pending, &task.bytes[..]);
                let items = task.header.is(Header::STREAM).then_some(task.items);
                match dispatch(Dispatch::Answer { to, call, verdict, pending, body, task: key, items }) {
                    Dispatched::NotNow => After::Again,
                    Dispatched::Announced => {
                        *advanced = true;
                        task.phase = Phase::Waiting;
                        After::Stay
                    }
                    _ => After::Over,
                }
            }
            Phase::Shipping { sent } => {
                match dispatch(Dispatch::Part { to, call, at: sent, rest: &task.bytes[sent..] }) {
                    Dispatched::Partly(bytes) => {
                        *advanced |= bytes != 0;
                        let sent = sent + bytes;
                        task.phase = Phase::Shipping { sent };
                        if sent == task.bytes.len() { After::Over } else { After::Again }
                    }
                    Dispatched::NotNow => After::Again,
                    _ => After::Over,
                }
            }
            _ => After::Stay,
        }
    }
}

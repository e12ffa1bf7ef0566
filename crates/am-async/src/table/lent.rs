//! Long answers that are read where their callees lend them.

use super::{State, Table};
use crate::coverage::Coverage;
use crate::lending::PIECE;
use crate::outcome::{Note, Wakers, outcome_of};
use am_core::Address;
use am_core::transport::{Lent, LentFault};

impl Table {
    /// Reads a piece of each answer that is lent; whether there was any, and whether any is left. `read` gets who
    /// lends it, where it lies, and the byte to begin with.
    pub(crate) fn read_lent(
        &mut self,
        wakers: &mut Wakers,
        mut read: impl FnMut(Address, &Lent, u64, &mut [u8]) -> Result<(), LentFault>,
    ) -> (bool, bool) {
        let mut any = false;
        for _ in 0..self.reads.len() {
            let Some(call) = self.reads.pop_front() else { break };
            let Some(slot) = self.slots.get_mut(call) else { continue };
            let (to, len) = (slot.to, slot.bytes.len());
            let State::Reading { verdict, task, lent, at } = &mut slot.state else { continue };
            any = true;
            let end = len.min(*at + PIECE);
            match read(to, lent, *at as u64, &mut slot.bytes[*at..end]) {
                Ok(()) if end < len => {
                    *at = end;
                    self.reads.push_back(call);
                }
                Ok(()) => {
                    let outcome = outcome_of(*verdict, &slot.bytes);
                    // What the callee has lent is its own again.
                    self.notes.push_back(Note::Cancel { to, call });
                    self.end(call, outcome, wakers);
                }
                Err(_) => {
                    let (verdict, task) = (*verdict, *task);
                    slot.state = State::Receiving { verdict, received: Coverage::default() };
                    self.notes.push_back(Note::GrantAnswer { to, task, call });
                }
            }
        }
        (any, !self.reads.is_empty())
    }
}

//! Where messages of one hop wait at a rank until their items can go on, and the room that is given back for them.
//!
//! A sender has at most its window of messages here, parked or not yet given back, so that there is a place for
//! each. Places are given back by messages of their own, half a window at a time, and not by replies: a message
//! counts as handled once it is parked, and holds nothing of the transport's while it waits.

use super::config::Malformed;
use super::item_buffer::buffer;
use am_core::{Payload, Rank, zerocopy::IntoBytes};
use std::collections::VecDeque;

/// A message that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    slot: u32,
    /// Who sent it.
    pub(super) from: u32,
    /// Its length in bytes.
    pub(super) len: usize,
    /// Records that have gone on.
    pub(super) next: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    neighbour: bool,
    /// Messages here, and those that have gone on but have not been given back.
    taken: u16,
    /// Messages that have gone on but have not been given back.
    owed: u16,
}

/// The waiting messages of one hop.
#[derive(Debug)]
pub(super) struct ParkedMessages {
    slots: Vec<Vec<u64>>,
    free: Vec<u32>,
    queue: VecDeque<Parked>,
    accounts: Vec<Account>,
    /// Ranks that are owed enough to be told.
    owing: VecDeque<u32>,
    window: u16,
    /// Bytes of a message.
    bytes: usize,
}

impl ParkedMessages {
    /// Places for the messages of `neighbours`, `window` for each. Allocates.
    pub(super) fn new(ranks: u32, neighbours: &[u32], window: u16, bytes: usize) -> Self {
        let mut accounts = vec![Account::default(); ranks as usize];
        neighbours.iter().for_each(|rank| accounts[*rank as usize].neighbour = true);
        let places = neighbours.len() * usize::from(window);
        Self {
            slots: (0..places).map(|_| buffer(bytes)).collect(),
            free: (0..places as u32).rev().collect(),
            queue: VecDeque::with_capacity(places),
            accounts,
            owing: VecDeque::with_capacity(neighbours.len()),
            window,
            bytes,
        }
    }

    /// Parks a message, unless `check` refuses it.
    pub(super) fn park(
        &mut self,
        hop: u32,
        from: u32,
        payload: &Payload<'_>,
        check: impl FnOnce(&[u8]) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let account = self.accounts.get_mut(from as usize).filter(|account| account.neighbour);
        let account = account.ok_or(Malformed::Way { hop, from: Rank(from) })?;
        let over = Malformed::Window { from: Rank(from), window: self.window };
        if account.taken == self.window {
            return Err(over);
        }
        let slot = *self.free.last().ok_or(over)?;
        let words = &mut self.slots[slot as usize];
        // A function that unwound has taken the buffer with it.
        words.resize(self.bytes.div_ceil(8), 0);
        payload.copy_to(words.as_mut_bytes());
        check(&words.as_bytes()[..payload.len()])?;
        self.free.pop();
        account.taken += 1;
        self.queue.push_back(Parked { slot, from, len: payload.len(), next: 0 });
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The message that came first, and its bytes.
    pub(super) fn first(&mut self) -> Option<(&mut Parked, &[u8])> {
        let parked = self.queue.front_mut()?;
        let bytes = self.slots[parked.slot as usize].as_bytes();
        let len = parked.len;
        Some((parked, bytes.get(..len).unwrap_or(&[])))
    }

    /// Takes the buffer of the first message; [`ParkedMessages::put_back`] returns it.
    pub(super) fn take(&mut self) -> Option<(Parked, Vec<u64>)> {
        let parked = *self.queue.front()?;
        Some((parked, std::mem::take(&mut self.slots[parked.slot as usize])))
    }

    /// Returns the buffer of a message.
    pub(super) fn put_back(&mut self, parked: Parked, words: Vec<u64>) {
        self.slots[parked.slot as usize] = words;
    }

    /// Notes that the first message's items have gone on.
    pub(super) fn pop(&mut self) {
        let Some(parked) = self.queue.pop_front() else { return };
        self.free.push(parked.slot);
        let account = &mut self.accounts[parked.from as usize];
        account.owed += 1;
        if account.owed == (self.window / 2).max(1) {
            self.owing.push_back(parked.from);
        }
    }

    /// The next rank to be told, and of how many places.
    pub(super) fn owed(&self) -> Option<(u32, u32)> {
        let rank = *self.owing.front()?;
        Some((rank, self.accounts[rank as usize].owed.into()))
    }

    /// Notes that the next rank has been told.
    pub(super) fn told(&mut self) {
        let Some(rank) = self.owing.pop_front() else { return };
        let account = &mut self.accounts[rank as usize];
        account.taken -= std::mem::take(&mut account.owed);
    }

    /// Records that wait, of so many bytes each.
    pub(super) fn records(&self, record: usize) -> usize {
        self.queue.iter().map(|parked| parked.len / record - parked.next).sum()
    }

    /// Bytes of all places.
    pub(super) fn memory(&self) -> usize {
        self.slots.len() * self.bytes.next_multiple_of(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(_: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }

    #[test]
    fn a_window_is_kept_and_given_back_by_halves() {
        let mut parked_messages = ParkedMessages::new(3, &[0, 2], 4, 24);
        let message = [7; 16];
        let payload = Payload::own(&message);
        assert_eq!(parked_messages.park(1, 1, &payload, right), Err(Malformed::Way { hop: 1, from: Rank(1) }));
        assert_eq!(parked_messages.park(1, 9, &payload, right), Err(Malformed::Way { hop: 1, from: Rank(9) }));
        let refused = Malformed::TooLong { bytes: 16, most: 8 };
        assert_eq!(parked_messages.park(0, 0, &payload, |_| Err(refused)), Err(refused));
        for _ in 0..4 {
            parked_messages.park(0, 0, &payload, right).unwrap();
        }
        let over = Err(Malformed::Window { from: Rank(0), window: 4 });
        assert_eq!(parked_messages.park(0, 0, &payload, right), over);
        // One neighbour's messages take nothing of another's room.
        (0..4).for_each(|_| parked_messages.park(0, 2, &payload, right).unwrap());
        parked_messages.pop();
        assert_eq!((parked_messages.owed(), parked_messages.park(0, 0, &payload, right)), (None, over));
        parked_messages.pop();
        assert_eq!(parked_messages.owed(), Some((0, 2)));
        parked_messages.told();
        assert_eq!(parked_messages.owed(), None);
        (0..2).for_each(|_| parked_messages.park(0, 0, &payload, right).unwrap());
        assert_eq!(parked_messages.park(0, 0, &payload, right), over);
        assert_eq!(parked_messages.records(8), 16);
    }

    #[test]
    fn a_lost_buffer_is_made_anew() {
        let mut parked_messages = ParkedMessages::new(1, &[0], 1, 16);
        parked_messages.park(0, 0, &Payload::own(&[1; 16]), right).unwrap();
        drop(parked_messages.take());
        assert_eq!(parked_messages.first().unwrap().1, []);
        parked_messages.pop();
        parked_messages.told();
        parked_messages.park(0, 0, &Payload::own(&[2; 16]), right).unwrap();
        assert_eq!(parked_messages.first().unwrap().1, [2; 16]);
    }
}

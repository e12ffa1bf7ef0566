//! Collective operations as messages: dissemination, binomial trees, recursive doubling, rings.

use super::MpiError;
use super::rank::{Buffer, Communicator, Mpi};
use std::ops::Range;

/// The communicator of collective operations, which no duplicate has.
const OWN: Communicator = Communicator(u16::MAX);

/// Tags by operation, so that one that a rank has begun does not meet another's.
const BARRIER: u32 = 0;
const BROADCAST: u32 = 1;
const REDUCE: u32 = 2;
const GATHER: u32 = 3;

impl Mpi<'_> {
    /// Waits until all ranks are here: ceil(log2 n) rounds of empty messages.
    ///
    /// # Errors
    /// [`MpiError::Lost`].
    pub fn barrier(&mut self) -> Result<(), MpiError> {
        let (me, ranks) = (self.rank(), self.ranks());
        let scratch = self.scratch(0);
        let mut distance = 1;
        while distance < ranks {
            let (to, from) = ((me + distance) % ranks, (me + ranks - distance) % ranks);
            self.exchange(OWN, BARRIER, (to, &scratch, 0..0), (from, &scratch, 0..0))?;
            distance *= 2;
        }
        Ok(())
    }

    /// Sends some bytes of a buffer to one rank while a message of another comes to some bytes of one.
    ///
    /// # Errors
    /// As [`Mpi::send_begin`] and [`Mpi::receive_begin`], without a message or receive being left; as
    /// [`Mpi::wait`].
    pub fn exchange(
        &mut self,
        communicator: Communicator,
        tag: u32,
        (to, sends, sent): (u32, &Buffer, Range<u64>),
        (from, receives, received): (u32, &Buffer, Range<u64>),
    ) -> Result<(), MpiError> {
        // Looked at first: a receive that was posted for a message that cannot be sent would take another's.
        self.check_send(to, sends, &sent)?;
        let receive = self.receive_begin(communicator, Some(from), Some(tag), receives, received)?;
        let send = self.send_begin(communicator, to, tag, sends, sent)?;
        self.wait_all([receive, send])
    }

    /// A buffer of at least so many bytes for what comes in between. Allocates where it grows.
    fn scratch(&mut self, len: u64) -> Buffer {
        match &self.collective.scratch {
            Some(scratch) if scratch.len() >= len => scratch.clone(),
            _ => {
                let scratch = self.buffer(len.max(64) as usize);
                self.collective.scratch = Some(scratch.clone());
                scratch
            }
        }
    }

    /// Sends some bytes of the root's buffer to all other ranks' buffers, along a binomial tree.
    ///
    /// # Errors
    /// As [`Mpi::wait`]; no such root.
    pub fn broadcast(&mut self, root: u32, buffer: &Buffer, range: Range<u64>) -> Result<(), MpiError> {
        let (me, ranks) = (self.rank(), self.ranks());
        if root >= ranks {
            return Err(MpiError::NoRank { rank: root, ranks });
        }
        let place = (me + ranks - root) % ranks;
        let rank = |place: u32| (place + root) % ranks;
        let mut distance = 1;
        while distance < ranks && place & distance == 0 {
            distance *= 2;
        }
        if place != 0 {
            self.receive(OWN, Some(rank(place - distance)), Some(BROADCAST), buffer, range.clone())?;
        }
        let mut sends = Vec::new();
        while distance > 1 {
            distance /= 2;
            if place + distance < ranks {
                sends.push(self.send_begin(OWN, rank(place + distance), BROADCAST, buffer, range.clone())?);
            }
        }
        self.wait_all(sends)
    }

    /// Adds up vectors of all ranks, element by element; everybody has the same sums, to the last
    /// bit. Recursive doubling; ranks beyond a power of two give theirs to another one first.
    ///
    /// # Errors
    /// As [`Mpi::wait`].
    pub fn all_reduce_sum(&mut self, values: &mut [f64]) -> Result<(), MpiError> {
        let (me, ranks) = (self.rank(), self.ranks());
        let len = 8 * values.len() as u64;
        let (mine, theirs) = (0..len, len..2 * len);
        let scratch = self.scratch(2 * len);
        let core = 1 << ranks.ilog2();
        let extra = ranks - core;
        // The first ranks come in twos, of which the even one steps aside.
        let place = if me < 2 * extra { (me % 2 == 1).then_some(me / 2) } else { Some(me - extra) };
        let rank = |place: u32| if place < extra { 2 * place + 1 } else { place + extra };
        if me < 2 * extra && place.is_none() {
            self.store(&scratch, values);
            self.send(OWN, me + 1, REDUCE, &scratch, mine.clone())?;
            self.receive(OWN, Some(me + 1), Some(REDUCE), &scratch, theirs)?;
            self.load(&scratch, len, values);
            return Ok(());
        }
        if me < 2 * extra {
            self.receive(OWN, Some(me - 1), Some(REDUCE), &scratch, theirs.clone())?;
            self.add(&scratch, len, values);
        }
        let place = place.expect("the others have returned");
        let mut distance = 1;
        while distance < core {
            let other = rank(place ^ distance);
            self.store(&scratch, values);
            self.exchange(OWN, REDUCE, (other, &scratch, mine.clone()), (other, &scratch, theirs.clone()))?;
            // Both add the same two, and addition has no order.
            self.add(&scratch, len, values);
            distance *= 2;
        }
        if me < 2 * extra {
            self.store(&scratch, values);
            self.send(OWN, me - 1, REDUCE, &scratch, mine)?;
        }
        Ok(())
    }

    fn store(&self, scratch: &Buffer, values: &[f64]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        scratch.write(self, 0, &bytes);
    }

    fn load(&self, scratch: &Buffer, at: u64, values: &mut [f64]) {
        let bytes = scratch.read(self, at as usize, 8 * values.len());
        for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(8)) {
            *value = f64::from_le_bytes(bytes.try_into().expect("a chunk has eight bytes"));
        }
    }

    /// Adds what has come.
    fn add(&self, scratch: &Buffer, at: u64, values: &mut [f64]) {
        let mut theirs = vec![0.0; values.len()];
        self.load(scratch, at, &mut theirs);
        for (value, other) in values.iter_mut().zip(theirs) {
            *value += other;
        }
    }

    /// Gathers blocks of `len` bytes: that of rank `i` lies at `i * len` of everybody's buffer afterwards. A ring.
    ///
    /// # Errors
    /// As [`Mpi::wait`]; a buffer that is too short.
    pub fn all_gather(&mut self, buffer: &Buffer, len: u64) -> Result<(), MpiError> {
        let (me, ranks) = (self.rank(), self.ranks());
        let block = |of: u32| u64::from(of % ranks) * len..(u64::from(of % ranks) + 1) * len;
        for step in 0..ranks - 1 {
            let (sent, received) = (block(me + ranks - step), block(me + ranks - step - 1));
            let (to, from) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
            self.exchange(OWN, GATHER, (to, buffer, sent), (from, buffer, received))?;
        }
        Ok(())
    }
}

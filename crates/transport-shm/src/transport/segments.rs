//! The segments of a job's ranks as one endpoint uses them: mapped when first used, for the program and for Long
//! payloads.

use crate::job::Job;
use crate::region::{ShmMemory, Unshared};
use am_core::{Rank, Segment};
use std::cell::OnceCell;

/// The segments of all ranks, mapped when first used.
#[derive(Debug)]
pub(crate) struct Segments {
    /// For the program, which may hand them to other threads.
    mapped: Vec<OnceCell<Segment<ShmMemory>>>,
    /// For the Long messages that this endpoint sends; only written, and only by the thread that has the endpoint.
    puts: Vec<OnceCell<Segment<Unshared>>>,
    /// For those that it receives; only read, by handlers and by whoever has the endpoint.
    pub(super) arrivals: Segment<Unshared>,
    lens: Vec<OnceCell<u64>>,
}

impl Segments {
    /// The segments of a job, of which the own one has `bytes` bytes and is mapped.
    pub(super) fn new(job: &Job, own: Rank, bytes: u64) -> std::io::Result<Self> {
        let ranks = 0..job.board.layout.ranks;
        let (segment, arrivals) = (job.map_segment(own, bytes)?, job.map_unshared(own, bytes)?);
        let mapped: Vec<_> = ranks.clone().map(|_| OnceCell::new()).collect();
        let puts = ranks.clone().map(|_| OnceCell::new()).collect();
        let lens: Vec<_> = ranks.map(|_| OnceCell::new()).collect();
        lens[own.0 as usize].get_or_init(|| segment.len() as u64);
        mapped[own.0 as usize].get_or_init(|| segment);
        Ok(Self { mapped, puts, arrivals, lens })
    }

    /// The size of a rank's segment in bytes, once it has joined. It is read once: what was checked against it
    /// stays true, whatever a faulty rank writes later.
    #[inline]
    fn len(&self, job: &Job, rank: Rank) -> Option<u64> {
        let cell = self.lens.get(rank.0 as usize)?;
        match cell.get() {
            Some(len) => Some(*len),
            None => {
                let len = job.segment_len(rank)?;
                Some(*cell.get_or_init(|| len))
            }
        }
    }

    #[inline]
    pub(crate) fn len_of(&self, job: &Job, rank: Rank) -> u64 {
        self.len(job, rank).unwrap_or(0)
    }

    /// A rank's segment, if it has joined and its segment can be mapped.
    #[inline]
    pub(crate) fn get(&self, job: &Job, rank: Rank) -> Option<&Segment<ShmMemory>> {
        let cell = self.mapped.get(rank.0 as usize)?;
        match cell.get() {
            Some(segment) => Some(segment),
            None => self.map(job, rank),
        }
    }

    /// Maps a rank's segment at its first use; apart, so that every other use is compiled into its caller.
    #[cold]
    fn map(&self, job: &Job, rank: Rank) -> Option<&Segment<ShmMemory>> {
        let segment = job.map_segment(rank, self.len(job, rank)?).ok()?;
        Some(self.mapped.get(rank.0 as usize)?.get_or_init(|| segment))
    }

    /// What Long messages to a rank are written to, if it has joined and its segment can be mapped.
    #[inline]
    pub(crate) fn put(&self, job: &Job, rank: Rank) -> Option<&Segment<Unshared>> {
        let cell = self.puts.get(rank.0 as usize)?;
        match cell.get() {
            Some(segment) => Some(segment),
            None => {
                let segment = job.map_unshared(rank, self.len(job, rank)?).ok()?;
                Some(cell.get_or_init(|| segment))
            }
        }
    }
}

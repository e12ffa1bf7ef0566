//! Updates as active messages: the owner of a word applies them, in its handlers.
//!
//! A rank makes `STRIP` samples in one go, holds `HELD` updates of other ranks' words, and has [`DEFERRED`] of
//! its own words wait until these have been fetched: [`LOOK_AHEAD`] in all. An [aggregator](aggregated) holds what
//! buckets and strip hold otherwise. What a message carries is on its way, no
//! longer held by the sender, and not yet by the owner while a handler takes it out piece by piece.

use super::error::RunError;
use super::hpcc::{LOOK_AHEAD, Stream};
use super::rank::{State, Work};
use super::table::DEFERRED;
use active_messages::pgas::aggregate::{Aggregate, Aggregator, AggregatorConfig, Route};
use active_messages::transport::{Category, Lane};
use active_messages::{Endpoint, Rank, Request, Span, Transport};
use zerocopy::IntoBytes;

/// Samples between two polls where no message calls for one sooner; see [`Work::blocks`].
const BLOCK: u64 = 256;

/// Samples made in one go: so few that the words of this rank's own updates are fetched while the next are made.
const STRIP: usize = 32;

/// Updates for other ranks that wait for company.
const HELD: usize = LOOK_AHEAD - DEFERRED - STRIP;

/// Updates that fill a message. Larger messages are not faster, and leave the processor's first cache.
const FULL: usize = 512;

const _: () = assert!(FULL + STRIP <= HELD, "a message of one bucket, and what comes while it fills");

/// What making and applying an update costs a simulated processor: assumed, about one cache miss. Whoever makes an
/// update is charged for both, which evens out.
const UPDATE: Span = Span::from_nanos(100);

/// Sends one Short message for each update of another rank's word.
///
/// # Errors
/// [`RunError`] when a peer is lost.
pub fn short<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    update: Request<u64>,
    mut work: Work,
) -> Result<(), RunError> {
    let me = endpoint.rank();
    // Which updates are this rank's own is as good as random, so that no branch may depend on it.
    let (mut own, mut others) = ([0; STRIP], [(me, 0); STRIP]);
    while work.stream.left() > 0 {
        let left = work.stream.left();
        endpoint.charge(Span(UPDATE.0 * left.min(BLOCK)));
        for _ in 0..BLOCK / STRIP as u64 {
            let (mut mine, mut made) = (0, 0);
            work.stream.make(STRIP as u64, |sample| {
                let owner = Rank(work.distribution.owner(work.distribution.word(sample)) as u32);
                own[mine % STRIP] = sample;
                others[(made - mine) % STRIP] = (owner, sample);
                mine += usize::from(owner == me);
                made += 1;
            });
            endpoint.state_mut().defer(&own[..mine]);
            for (owner, sample) in &others[..made - mine] {
                endpoint.request(*owner, update, *sample)?;
            }
        }
        endpoint.poll()?;
        work.progress.advance((left - work.stream.left()) as usize);
    }
    Ok(())
}

/// Gathers the updates of each rank's words, and sends them in Medium messages; its own ones it applies.
///
/// # Errors
/// [`RunError`] when a peer is lost.
pub fn medium<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    updates: Request<()>,
    mut work: Work,
) -> Result<(), RunError> {
    let (me, ranks) = (endpoint.rank(), endpoint.ranks());
    let limit = |rank| endpoint.max_payload(Rank(rank), Category::Medium, Lane::Request, 0);
    let limit =
        (0..ranks).filter_map(limit).min().map_or(FULL, |bytes| (bytes as usize / size_of::<u64>()).max(1));
    let mut buckets = Buckets::new(me, ranks as usize, limit);
    let mut until_poll = work.blocks;
    while work.stream.left() > 0 {
        let left = work.stream.left();
        endpoint.charge(Span(UPDATE.0 * left.min(BLOCK)));
        for _ in 0..BLOCK / STRIP as u64 {
            buckets.fill(&mut work);
            endpoint.state_mut().defer(buckets.take_own());
            while let Some((to, bucket)) = buckets.take_due() {
                send(endpoint, to, updates, bucket, limit)?;
            }
        }
        until_poll -= 1;
        if until_poll == 0 {
            endpoint.poll()?;
            until_poll = work.blocks;
        }
        work.progress.advance((left - work.stream.left()) as usize);
    }
    while let Some((to, bucket)) = buckets.take_fullest() {
        send(endpoint, to, updates, bucket, limit)?;
    }
    Ok(())
}

/// How an aggregator gathers updates: by destination, in messages as large as those of buckets, within the
/// look-ahead rule, of which the sample that is being pushed and the updates that wait for their words have their
/// part.
pub fn aggregation() -> AggregatorConfig {
    let look_ahead = LOOK_AHEAD - DEFERRED - 1;
    AggregatorConfig::new().look_ahead(look_ahead).route(Route::Direct).message_bytes(FULL * size_of::<u64>())
}

/// Pushes every update to its word's owner, this rank included.
///
/// # Errors
/// [`RunError`] when a peer is lost.
pub fn aggregated<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    updates: Aggregator<u64>,
    work: Work,
) -> Result<(), RunError> {
    let Work { distribution, mut stream, mut progress, blocks: _ } = work;
    while stream.left() > 0 {
        let left = stream.left();
        endpoint.charge(Span(UPDATE.0 * left.min(BLOCK)));
        // It polls whenever the look-ahead is used up, which the blocks after the first ones do.
        match distribution.shift() {
            Some((mask, shift)) => {
                endpoint.push_all(updates, owned(&mut stream, |sample| (sample & mask) >> shift))
            }
            None => {
                let owner = |sample| distribution.owner(distribution.word(sample));
                endpoint.push_all(updates, owned(&mut stream, owner))
            }
        }?;
        progress.advance((left - stream.left()) as usize);
    }
    Ok(endpoint.done(updates)?)
}

/// The samples of a block, each with the rank that owns its word.
#[inline(always)]
fn owned(stream: &mut Stream, owner: impl Fn(u64) -> u64) -> impl Iterator<Item = (Rank, u64)> {
    stream.strip(BLOCK).map(move |sample| (Rank(owner(sample) as u32), sample))
}

/// Sends updates to the owner of their words.
fn send<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    to: Rank,
    updates: Request<()>,
    bucket: &[u64],
    limit: usize,
) -> Result<(), RunError> {
    for message in bucket.chunks(limit) {
        endpoint.request_medium(to, updates, (), message.as_bytes())?;
    }
    Ok(endpoint.poll().map(|_| ())?)
}

/// The updates that wait, one bucket for each rank.
struct Buckets {
    words: Vec<u64>,
    /// Where the next update of each rank goes. A bucket begins at a multiple of its room.
    ends: Vec<usize>,
    /// The updates of a bucket that make a message: a power of two, half of what there is room for.
    full: usize,
    /// The place of this rank's own bucket.
    me: usize,
    /// Updates of other ranks.
    held: usize,
    /// The ends that were written since buckets were last looked through, in one word: tells whether one is full.
    filled: usize,
}

impl Buckets {
    /// Buckets for so many ranks, for messages of at most `limit` updates where that is possible.
    fn new(me: Rank, ranks: usize, limit: usize) -> Self {
        // With many ranks, few of all that are held are for one of them.
        let share = (4 * HELD / ranks).next_power_of_two();
        let full = FULL.min(share).min(limit.saturating_sub(STRIP).max(1)).max(STRIP);
        let full = if full.is_power_of_two() { full } else { full.next_power_of_two() / 2 };
        Self {
            words: vec![0; 2 * full * ranks],
            ends: (0..ranks).map(|rank| 2 * full * rank).collect(),
            full,
            me: me.0 as usize,
            held: 0,
            filled: 0,
        }
    }

    /// Makes the next updates, each into its owner's bucket, without a branch that depends on which.
    #[inline(always)]
    fn fill(&mut self, work: &mut Work) {
        let (stream, distribution) = (&mut work.stream, work.distribution);
        match distribution.shift() {
            Some((mask, shift)) => self.fill_by(stream, |sample| (sample & mask) >> shift),
            None => self.fill_by(stream, |sample| distribution.owner(distribution.word(sample))),
        }
    }

    #[inline(always)]
    fn fill_by(&mut self, stream: &mut Stream, owner: impl Fn(u64) -> u64) {
        let (mut filled, before) = (0, self.ends[self.me]);
        let (words, ends) = (&mut self.words[..], &mut self.ends[..]);
        let made = stream.make(STRIP as u64, |sample| {
            let owner = owner(sample) as usize;
            let at = ends[owner];
            words[at] = sample;
            ends[owner] = at + 1;
            filled |= at + 1;
        });
        self.held += made as usize - (self.ends[self.me] - before);
        self.filled |= filled;
    }

    /// Where a rank's bucket begins.
    fn start(&self, rank: usize) -> usize {
        2 * self.full * rank
    }

    /// Empties this rank's own bucket.
    #[inline(always)]
    fn take_own(&mut self) -> &[u64] {
        let start = self.start(self.me);
        let end = std::mem::replace(&mut self.ends[self.me], start);
        &self.words[start..end]
    }

    /// Empties a bucket whose updates have to go: one that makes a message, or the fullest of too many.
    #[inline(always)]
    fn take_due(&mut self) -> Option<(Rank, &[u64])> {
        if self.filled & self.full == 0 && self.held <= HELD {
            return None;
        }
        let fullest = self.fullest()?;
        if self.held <= HELD && self.len(fullest) < self.full {
            self.filled = 0;
            return None;
        }
        Some(self.take(fullest))
    }

    /// Empties the fullest bucket, until none has any.
    fn take_fullest(&mut self) -> Option<(Rank, &[u64])> {
        let fullest = self.fullest().filter(|rank| self.len(*rank) > 0)?;
        Some(self.take(fullest))
    }

    fn fullest(&self) -> Option<usize> {
        (0..self.ends.len()).filter(|rank| *rank != self.me).max_by_key(|rank| self.len(*rank))
    }

    fn len(&self, rank: usize) -> usize {
        self.ends[rank] - self.start(rank)
    }

    fn take(&mut self, rank: usize) -> (Rank, &[u64]) {
        let start = self.start(rank);
        let end = std::mem::replace(&mut self.ends[rank], start);
        self.held -= end - start;
        (Rank(rank as u32), &self.words[start..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_access::hpcc::Distribution;
    use crate::random_access::progress::Progress;

    #[test]
    fn buckets_keep_to_the_look_ahead() {
        for (ranks, limit) in [(1, 512), (2, 512), (2, 5), (3, 118), (8, 8192), (100, 512), (700, 512)] {
            let (distribution, me) = (Distribution::new(10, ranks), ranks / 2);
            let stream = || Stream::new(7, 0..20_000);
            let mut work =
                Work { distribution, stream: stream(), blocks: 1, progress: Progress::new(false, "", 0) };
            let mut buckets = Buckets::new(Rank(me), ranks as usize, limit);
            let mut all = Vec::new();
            let mut take = |to: Rank, bucket: &[u64]| {
                let owner = |sample: &u64| distribution.owner(distribution.word(*sample)) == u64::from(to.0);
                assert!(bucket.iter().all(owner), "{ranks} ranks: an update in the bucket of another rank");
                all.extend_from_slice(bucket);
            };
            while work.stream.left() > 0 {
                buckets.fill(&mut work);
                take(Rank(me), buckets.take_own());
                while let Some((to, bucket)) = buckets.take_due() {
                    take(to, bucket);
                }
                let held: usize = (0..ranks as usize).map(|rank| buckets.len(rank)).sum();
                assert!(held == buckets.held && held <= HELD, "{ranks} ranks hold {held}");
            }
            while let Some((to, bucket)) = buckets.take_fullest() {
                take(to, bucket);
            }
            let mut made: Vec<u64> = stream().collect();
            made.sort_unstable();
            all.sort_unstable();
            assert!(all == made, "{ranks} ranks, messages of {limit}: an update is lost or comes twice");
        }
    }
}

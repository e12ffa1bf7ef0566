//! Updates as active messages: the owner of a word applies them one at a time, in its handlers.
//!
//! A rank looks ahead at most `BLOCK` samples at a time and holds at most [`LOOK_AHEAD`] updates. What a message carries is
//! on its way, and no longer held by the sender.

use super::buckets::Buckets;
use super::error::RunError;
use super::hpcc::LOOK_AHEAD;
use super::rank::{State, Work};
use super::table::DEFERRED;
use active_messages::{Category, Endpoint, Lane, Rank, Request, Span, Transport};

/// Samples made and sorted by destination in one go. Enough of them that the memory accesses of a rank's own updates
/// overlap, and few enough to leave most of the look-ahead to the other ranks' buckets.
const BLOCK: usize = 256;

const _: () = assert!(BLOCK + DEFERRED <= LOOK_AHEAD, "what handlers defer counts towards the look-ahead");

impl Work {
    /// Sorts the next samples into buckets; returns how many there were.
    #[inline(always)]
    fn sort(&mut self, buckets: &mut Buckets) -> usize {
        let before = self.stream.left();
        for sample in self.stream.by_ref().take(BLOCK) {
            buckets.push(self.distribution.owner(self.distribution.word(sample)), sample);
        }
        let sorted = (before - self.stream.left()) as usize;
        self.progress.advance(sorted);
        sorted
    }
}

/// What making and applying an update costs a simulated processor: assumed, about one cache miss. Whoever makes an update is
/// charged for both, which evens out.
const UPDATE: Span = Span::from_nanos(100);

/// Applies the updates of this rank's own words at once.
#[inline(always)]
fn apply_own<T: Transport>(endpoint: &mut Endpoint<T, State>, buckets: &mut Buckets, me: u32) {
    let part = &mut endpoint.state_mut().part;
    for update in buckets.bucket(me) {
        part.apply(update.get());
    }
    buckets.clear(me);
}

/// Sends one Short message for each update of another rank's word.
///
/// # Errors
/// [`RunError`] when a peer is lost.
pub fn short<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    update: Request<u64>,
    mut work: Work,
) -> Result<(), RunError> {
    let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
    let mut buckets = Buckets::new(ranks);
    loop {
        let made = work.sort(&mut buckets);
        if made == 0 {
            break;
        }
        endpoint.charge(Span(UPDATE.0 * made as u64));
        apply_own(endpoint, &mut buckets, me);
        for to in (0..ranks).filter(|to| *to != me) {
            for sample in buckets.bucket(to) {
                endpoint.request(Rank(to), update, sample.get())?;
            }
            buckets.clear(to);
        }
        endpoint.poll()?;
    }
    Ok(())
}

/// Gathers updates by destination, and sends the fullest bucket as a Medium message whenever the look-ahead is used up.
///
/// # Errors
/// [`RunError`] when a peer is lost.
pub fn medium<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    handler: Request<()>,
    mut work: Work,
) -> Result<(), RunError> {
    let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
    let mut buckets = Buckets::new(ranks);
    loop {
        let made = work.sort(&mut buckets);
        if made == 0 {
            break;
        }
        endpoint.charge(Span(UPDATE.0 * made as u64));
        apply_own(endpoint, &mut buckets, me);
        send_fullest(endpoint, handler, &mut buckets, BLOCK)?;
        endpoint.poll()?;
    }
    send_fullest(endpoint, handler, &mut buckets, LOOK_AHEAD)
}

/// Sends the fullest buckets until there is room for `room` updates.
fn send_fullest<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    handler: Request<()>,
    buckets: &mut Buckets,
    room: usize,
) -> Result<(), RunError> {
    while buckets.room() < room {
        let Some(to) = buckets.fullest() else { break };
        let limit = endpoint.max_payload(Rank(to), Category::Medium, Lane::Request, 0).unwrap_or(0);
        let updates = usize::try_from(limit / 8).unwrap_or(LOOK_AHEAD).clamp(1, LOOK_AHEAD);
        for payload in buckets.payload(to).chunks(8 * updates) {
            endpoint.request_medium(Rank(to), handler, (), payload)?;
        }
        buckets.clear(to);
    }
    Ok(())
}

//! Updates as active messages: the owner of a word applies them, in its handlers.
//!
//! A rank looks ahead at most `BLOCK` samples at a time and holds at most [`LOOK_AHEAD`] updates. What a message
//! carries is on its way, and no longer held by the sender.

use super::error::RunError;
use super::hpcc::LOOK_AHEAD;
use super::rank::{State, Work};
use super::table::DEFERRED;
use active_messages::pgas::aggregate::{Aggregate, Aggregator, AggregatorConfig, Route};
use active_messages::{Endpoint, Rank, Request, Span, Transport};

/// Samples made in one go.
const BLOCK: usize = 256;

const _: () = assert!(BLOCK + DEFERRED <= LOOK_AHEAD, "what handlers defer counts towards the look-ahead");

/// What making and applying an update costs a simulated processor: assumed, about one cache miss. Whoever makes an
/// update is charged for both, which evens out.
const UPDATE: Span = Span::from_nanos(100);

/// How updates are aggregated: by destination, within the look-ahead rule.
pub fn aggregation() -> AggregatorConfig {
    AggregatorConfig::new().look_ahead(LOOK_AHEAD).route(Route::Direct)
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
    let me = endpoint.rank();
    while work.stream.left() > 0 {
        let made = work.stream.left().min(BLOCK as u64);
        endpoint.charge(Span(UPDATE.0 * made));
        for sample in work.stream.by_ref().take(BLOCK) {
            match Rank(work.distribution.owner(work.distribution.word(sample)) as u32) {
                owner if owner == me => endpoint.state_mut().defer(sample),
                owner => endpoint.request(owner, update, sample)?,
            }
        }
        endpoint.poll()?;
        work.progress.advance(made as usize);
    }
    Ok(())
}

/// Pushes every update to its word's owner, this rank included.
///
/// # Errors
/// [`RunError`] when a peer is lost.
pub fn medium<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    updates: Aggregator<u64>,
    mut work: Work,
) -> Result<(), RunError> {
    while work.stream.left() > 0 {
        let made = work.stream.left().min(BLOCK as u64);
        endpoint.charge(Span(UPDATE.0 * made));
        let distribution = &work.distribution;
        let owner = |sample| Rank(distribution.owner(distribution.word(sample)) as u32);
        // It polls whenever the look-ahead is used up, which the blocks after the first ones do.
        endpoint.push_all(updates, work.stream.by_ref().take(BLOCK).map(|sample| (owner(sample), sample)))?;
        work.progress.advance(made as usize);
    }
    Ok(endpoint.done(updates)?)
}

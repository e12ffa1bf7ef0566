//! The cases of the suite, one function per case that every rank runs with its own transport; one file per topic.
//!
//! Cases use nothing but the transport under test to communicate, no clock and no shared memory, so that ranks may be
//! threads, processes or coroutines of a simulation.

mod accumulator;
mod all_to_all;
mod arguments;
mod bad_input;
mod direct;
mod endings;
mod flood;
mod issue;
mod order;
mod ping;
mod reservations;
mod sizes;
mod statistics;
mod tables;
mod tamper;
mod threads;
mod tokens;
mod unwinding;

use crate::case::{Case, Description, Needs};
use crate::world::{Verdict, World};
use am_core::{Endpoint, Rank, Shape, Span, Transport, WaitError};

/// The cases that need nothing of a transport but the contract.
pub fn cases<T: Transport>() -> Vec<Case<T>> {
    let (plain, smallest, several) = (Needs::PLAIN, Needs::PLAIN.smallest(), Needs::PLAIN.ranks(2));
    vec![
        Case::single(1, "checksum-ping", "chained checksums come back", plain, ping::checksum_ping),
        Case::single(2, "sizes", "Medium and Long of every size, 16 under way", plain, sizes::sizes),
        Case::single(2, "sizes-smallest", "the same at the smallest buffers", smallest, sizes::sizes),
        Case::single(2, "reservations", "buffers filled in place", smallest, reservations::reservations),
        Case::single(3, "zero-length", "Medium and Long without bytes", plain, sizes::zero_length),
        Case::single(4, "arguments", "0 to 16 arguments in all categories", plain, arguments::arguments),
        Case::single(5, "all-to-all", "random, polite and hotspot orders", plain, all_to_all::all_to_all),
        Case::single(5, "all-to-all-smallest", "the same, smallest buffers", smallest, all_to_all::all_to_all),
        Case::single(5, "statistics", "what endpoints count adds up", plain, statistics::statistics),
        Case::single(6, "token-facts", "source, lane, category, handler", plain, tokens::facts),
        Case::single(6, "detached", "tokens answered late or never", smallest, tokens::detached),
        Case::single(7, "issue", "issue without blocking", plain, issue::issue_without_blocking),
        Case::single(7, "issue-smallest", "the same, smallest buffers", smallest, issue::issue_without_blocking),
        Case::single(8, "mutual-flood", "everyone floods everyone", smallest, flood::mutual),
        Case::single(8, "incast", "all flood rank 0", smallest, flood::incast),
        Case::single(8, "rarely-polling", "a rank that rarely polls", smallest.ranks(2), flood::rarely_polling),
        Case::single(8, "unread-replies", "replies are bounded, too", smallest.ranks(2), flood::unread_replies),
        Case::single(8, "refused-when-full", "refusal instead of growth", smallest, flood::refused_when_full),
        Case::single(9, "order", "order per pair where promised", plain, order::order),
        Case::single(10, "wrong-calls", "wrong calls are typed errors", plain, bad_input::wrong_calls),
        Case::single(10, "reply-bound", "reply bounds are checked at attach", plain, bad_input::reply_bound),
        Case::single(10, "faulty-peer", "misaddressed messages are dropped", smallest, tamper::faulty_peer),
        Case::single(10, "tables-names", "tables that differ in a name", several, tables::names),
        Case::single(10, "tables-arguments", "tables that differ in arguments", several, tables::arguments),
        Case::single(10, "tables-kinds", "tables that differ in kind and bound", several, tables::kinds),
        Case::single(10, "tables-lengths", "tables that differ in length", several, tables::lengths),
        Case::single(11, "accumulator", "a lock guards an accumulator", plain, accumulator::locked_accumulator),
        Case::single(13, "finish-together", "everyone finishes at once", plain, endings::together),
        Case::single(13, "drops", "a rank drops its endpoint", several, endings::drops),
        Case::single(13, "leaves", "a rank leaves alone", several, endings::leaves),
        Case::single(13, "panics", "a rank panics", several.unwinds(), endings::panics),
        Case::single(13, "drops-unattached", "a rank ends before attach", several, endings::drops_before_attach),
        Case::single(
            13,
            "panics-unattached",
            "a rank panics before attach",
            several.unwinds(),
            endings::panics_before_attach,
        ),
        Case::single(
            13,
            "panics-blocked-on",
            "a rank panics while others wait for room",
            smallest.ranks(2).unwinds(),
            endings::panics_when_blocked_on,
        ),
        Case::single(
            13,
            "survivors",
            "survivors work on after a loss",
            several.unwinds(),
            endings::survivors_work_on,
        ),
        Case::single(13, "hangs", "a rank that hangs is named", smallest.ranks(2), endings::hangs),
        Case::single(13, "panics-in-handler", "a handler panics", several.unwinds(), endings::panics_in_handler),
        Case::single(13, "unwinding", "panics of handlers, caught", smallest, unwinding::unwinding_handlers),
        Case::single(15, "direct-access", "segments as memory, where offered", plain, direct::direct_access),
    ]
}

/// What the cases of [`cases`] are.
pub fn descriptions() -> Vec<Description> {
    cases::<am_core::loopback::Loopback>().into_iter().map(|case| case.description).collect()
}

/// What the cases of [`threaded_cases`] are.
pub(crate) fn threaded_descriptions() -> Vec<Description> {
    threaded_cases::<am_core::loopback::Loopback>().into_iter().map(|case| case.description).collect()
}

/// Runs one rank's part of a case of [`cases`] with the transports of its endpoints, which may borrow.
///
/// # Errors
/// [`Failure`](crate::Failure) says what this rank found wrong.
///
/// # Panics
/// If there is no such case; and in a case that unwinds, on the rank that does so.
pub fn run_part<T: Transport>(case: &Description, world: &World, transports: Vec<T>) -> Verdict {
    let all = cases::<T>();
    let case =
        all.iter().find(|other| other.description == *case).expect("a description comes from the list of cases");
    case.run(world, transports)
}

/// The cases in which a rank has threads; these transports can go from thread to thread.
pub fn threaded_cases<T: Transport + Send>() -> Vec<Case<T>> {
    let own = Needs::PLAIN.endpoints(threads::ENDPOINTS);
    vec![
        Case::single(12, "threads-shared", "threads share an endpoint", Needs::PLAIN, threads::shared_endpoint),
        Case::several(12, "threads-own", "an endpoint for each thread", own, threads::endpoint_per_thread),
    ]
}

/// All cases, by item.
pub fn all_cases<T: Transport + Send>() -> Vec<Case<T>> {
    let mut all = cases();
    all.extend(threaded_cases());
    all.sort_by_key(|case| case.description.item);
    all
}

fn right(shape: Shape, rank: Rank) -> Rank {
    Rank((rank.0 + 1) % shape.ranks)
}

fn left(shape: Shape, rank: Rank) -> Rank {
    Rank((rank.0 + shape.ranks - 1) % shape.ranks)
}

fn last(shape: Shape) -> Rank {
    Rank(shape.ranks - 1)
}

/// Even and odd ranks pair up; one that is left over pairs with itself.
fn partner(shape: Shape, rank: Rank) -> Rank {
    if rank.0 ^ 1 < shape.ranks { Rank(rank.0 ^ 1) } else { rank }
}

/// 0, 1, 2, 4 and so on up to `max`, with `max` and `max - 1`.
fn powers_up_to(max: usize) -> Vec<usize> {
    let mut sizes = vec![0, max.saturating_sub(1), max];
    sizes.extend(
        std::iter::successors(Some(1), |size: &usize| size.checked_mul(2)).take_while(|size| *size <= max),
    );
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn forgive_time_out(error: WaitError) -> Result<(), WaitError> {
    match error {
        WaitError::TimedOut(_) => Ok(()),
        other => Err(other),
    }
}

/// Serves what arrives for a moment, without a purpose.
fn breathe<T: Transport, S>(endpoint: &mut Endpoint<T, S>) -> Verdict {
    Ok(endpoint.wait_until_for(Span::from_micros(50), |_| false).or_else(forgive_time_out)?)
}

/// Lets time pass without polling, in the transport's own time.
fn pause<T: Transport, S>(endpoint: &mut Endpoint<T, S>, span: Span) {
    let until = endpoint.now() + span;
    while endpoint.now() < until {
        endpoint.charge(Span::from_micros(1));
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_items_complete() {
        let all = all_cases::<am_core::loopback::Loopback>();
        let mut names: Vec<&str> = all.iter().map(|case| case.description.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert!((1..=13).all(|item| all.iter().any(|case| case.description.item == item)));
    }

    #[test]
    fn sizes_include_the_maxima() {
        assert_eq!(powers_up_to(0), [0]);
        assert_eq!(powers_up_to(9), [0, 1, 2, 4, 8, 9]);
        assert_eq!(powers_up_to(64), [0, 1, 2, 4, 8, 16, 32, 63, 64]);
    }

    #[test]
    fn partners_are_mutual() {
        for ranks in 1..9 {
            let shape = Shape::new(ranks);
            for rank in (0..ranks).map(Rank) {
                assert_eq!(partner(shape, partner(shape, rank)), rank);
                assert_eq!(left(shape, right(shape, rank)), rank);
            }
        }
    }
}

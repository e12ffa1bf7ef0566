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
mod layers;
mod one_sided;
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

use crate::case::{Case, Code, Description, Needs};
use crate::world::{Verdict, World};
use am_core::{Endpoint, Rank, Shape, Span, Transport, WaitError};

/// A transport that can go from thread to thread, with its segment.
pub trait Threaded: Transport<Memory: Send> + Send {}

impl<T: Transport<Memory: Send> + Send> Threaded for T {}

const PLAIN: Needs = Needs::PLAIN;
const SMALLEST: Needs = Needs::PLAIN.smallest();
const SEVERAL: Needs = Needs::PLAIN.ranks(2);
const OWN: Needs = Needs::PLAIN.endpoints(threads::ENDPOINTS);

/// Makes a table of descriptions, which needs no transport, and the cases for a transport `T` from one list.
macro_rules! suite {
    (
        $(#[$about_table:meta])* static $table:ident;
        $(#[$about_cases:meta])* fn $cases:ident<T: $bound:ident>;
        $($kind:ident($item:literal, $name:literal, $about:literal, $needs:expr, $code:path),)*
    ) => {
        $(#[$about_table])*
        static $table: &[Description] =
            &[$(Description { item: $item, name: $name, about: $about, needs: $needs }),*];

        $(#[$about_cases])*
        pub fn $cases<T: $bound>() -> Vec<Case<T>> {
            let codes: Vec<Code<T>> = vec![$(Code::$kind($code)),*];
            $table.iter().zip(codes).map(|(description, code)| Case::new(*description, code)).collect()
        }
    };
}

suite! {
    static DESCRIPTIONS;
    /// The cases that need nothing of a transport but the contract.
    fn cases<T: Transport>;
    Single(1, "checksum-ping", "chained checksums come back", PLAIN, ping::checksum_ping),
    Single(2, "sizes", "Medium and Long of every size, 16 under way", PLAIN, sizes::sizes),
    Single(2, "sizes-smallest", "the same at the smallest buffers", SMALLEST, sizes::sizes),
    Single(2, "reservations", "buffers filled in place", SMALLEST, reservations::reservations),
    Single(3, "zero-length", "Medium and Long without bytes", PLAIN, sizes::zero_length),
    Single(4, "arguments", "0 to 16 arguments in all categories", PLAIN, arguments::arguments),
    Single(5, "all-to-all", "random, polite and hotspot orders", PLAIN, all_to_all::all_to_all),
    Single(5, "all-to-all-smallest", "the same, smallest buffers", SMALLEST, all_to_all::all_to_all),
    Single(5, "statistics", "what endpoints count adds up", PLAIN, statistics::statistics),
    Single(6, "token-facts", "source, lane, category, handler", PLAIN, tokens::facts),
    Single(6, "detached", "tokens answered late or never", SMALLEST, tokens::detached),
    Single(7, "issue", "issue without blocking", PLAIN, issue::issue_without_blocking),
    Single(7, "issue-smallest", "the same, smallest buffers", SMALLEST, issue::issue_without_blocking),
    Single(8, "mutual-flood", "everyone floods everyone", SMALLEST, flood::mutual),
    Single(8, "incast", "all flood rank 0", SMALLEST, flood::incast),
    Single(8, "rarely-polling", "a rank that rarely polls", SMALLEST.ranks(2), flood::rarely_polling),
    Single(8, "unread-replies", "replies are bounded, too", SMALLEST.ranks(2), flood::unread_replies),
    Single(8, "refused-when-full", "refusal instead of growth", SMALLEST, flood::refused_when_full),
    Single(9, "order", "order per pair where promised", PLAIN, order::order),
    Single(10, "wrong-calls", "wrong calls are typed errors", PLAIN, bad_input::wrong_calls),
    Single(10, "reply-bound", "reply bounds are checked at attach", PLAIN, bad_input::reply_bound),
    Single(10, "faulty-peer", "misaddressed messages are dropped", SMALLEST, tamper::faulty_peer),
    Single(10, "tables-names", "tables that differ in a name", SEVERAL, tables::names),
    Single(10, "tables-arguments", "tables that differ in arguments", SEVERAL, tables::arguments),
    Single(10, "tables-kinds", "tables that differ in kind and bound", SEVERAL, tables::kinds),
    Single(10, "tables-lengths", "tables that differ in length", SEVERAL, tables::lengths),
    Single(11, "accumulator", "a lock guards an accumulator", PLAIN, accumulator::locked_accumulator),
    Single(13, "finish-together", "everyone finishes at once", PLAIN, endings::together),
    Single(13, "drops", "a rank drops its endpoint", SEVERAL, endings::drops),
    Single(13, "leaves", "a rank leaves alone", SEVERAL, endings::leaves),
    Single(13, "panics", "a rank panics", SEVERAL.unwinds(), endings::panics),
    Single(13, "drops-unattached", "a rank ends before attach", SEVERAL, endings::drops_before_attach),
    Single(13, "panics-unattached", "a rank panics before attach", SEVERAL.unwinds(), endings::panics_before_attach),
    Single(13, "panics-blocked-on", "a rank panics while others wait for room", SMALLEST.ranks(2).unwinds(), endings::panics_when_blocked_on),
    Single(13, "survivors", "survivors work on after a loss", SEVERAL.unwinds(), endings::survivors_work_on),
    Single(13, "hangs", "a rank that hangs is named", SMALLEST.ranks(2), endings::hangs),
    Single(13, "panics-in-handler", "a handler panics", SEVERAL.unwinds(), endings::panics_in_handler),
    Single(13, "unwinding", "panics of handlers, caught", SMALLEST, unwinding::unwinding_handlers),
    Single(15, "direct-access", "segments as memory, where offered", PLAIN, direct::direct_access),
    Single(16, "layers", "two layers and a program share an endpoint", SMALLEST, layers::together),
    Single(17, "put-and-get", "one-sided reads and writes", SMALLEST, one_sided::put_and_get),
    Single(17, "atomics", "everyone updates everyone's counters", PLAIN, one_sided::atomics),
    Single(17, "signals", "puts that tell their target; refusals", PLAIN, one_sided::signals_and_errors),
}

suite! {
    static THREADED_DESCRIPTIONS;
    /// The cases in which a rank has threads; these transports can go from thread to thread.
    fn threaded_cases<T: Threaded>;
    Single(12, "threads-shared", "threads share an endpoint", PLAIN, threads::shared_endpoint),
    Several(12, "threads-own", "an endpoint for each thread", OWN, threads::endpoint_per_thread),
}

/// What the cases of [`cases`] are.
pub fn descriptions() -> &'static [Description] {
    DESCRIPTIONS
}

/// What the cases of [`threaded_cases`] are.
pub(crate) fn threaded_descriptions() -> &'static [Description] {
    THREADED_DESCRIPTIONS
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

/// All cases, by item.
pub fn all_cases<T: Threaded>() -> Vec<Case<T>> {
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

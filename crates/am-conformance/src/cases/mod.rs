//! The cases of the suite, one function per case that every rank runs with its own transport; one file per topic.
//!
//! Cases use nothing but the transport under test to communicate, no clock and no shared memory, so that ranks may
//! be threads, processes or coroutines of a simulation.

mod accumulator;
mod aggregation;
mod all_to_all;
mod arguments;
mod array_losses;
mod arrays;
mod bad_input;
mod call_faults;
mod call_groups;
mod call_limits;
mod calls;
mod collective_limits;
mod collective_mismatches;
mod collective_types;
mod collectives;
mod direct;
mod endings;
mod flood;
mod global_atomics;
mod global_memory;
mod global_sections;
mod issue;
mod layers;
mod message_collectives;
mod message_memory;
mod message_mix;
mod message_rules;
mod messages;
mod messages_lost;
mod native;
mod one_sided;
mod one_sided_limits;
mod order;
mod ping;
mod reservations;
mod sizes;
mod statistics;
mod tables;
mod tamper;
mod teams;
mod teams_lost;
mod threads;
mod tokens;
mod unwinding;

use crate::case::{Case, Code, Description, Needs};
use crate::erased::{Local, Sendable};
use crate::world::{Verdict, World};
use am_core::{Endpoint, Rank, Shape, Span, Transport, WaitError};

/// A transport that can go from thread to thread, with its segment and the room that it has taken.
pub trait Threaded: Transport<Memory: Send + Sync, Room: Send> + Send + 'static {}

impl<T: Transport<Memory: Send + Sync, Room: Send> + Send + 'static> Threaded for T {}

const PLAIN: Needs = Needs::PLAIN;
const SMALLEST: Needs = Needs::PLAIN.smallest();
const SEVERAL: Needs = Needs::PLAIN.ranks(2);
const LOST: Needs = SEVERAL.unwinds().draws(messages_lost::DRAWS);
const OWN: Needs = Needs::PLAIN.endpoints(threads::ENDPOINTS);

/// Makes a table of descriptions and one of codes from one list. The codes are compiled here, for transports of
/// any kind.
macro_rules! suite {
    ($(($item:literal, $name:literal, $about:literal, $needs:expr, $code:path),)*) => {
        static DESCRIPTIONS: &[Description] =
            &[$(Description { item: $item, name: $name, about: $about, needs: $needs }),*];

        // A constant: a static would be compiled into the unit tests too, with all cases.
        const CODES: &[fn(&World, Local<'_>) -> Verdict] = &[$(|world, transport| $code(world, transport)),*];
    };
}

suite! {
    (1, "checksum-ping", "chained checksums come back", PLAIN, ping::checksum_ping),
    (2, "sizes", "Medium and Long of every size, 16 under way", PLAIN, sizes::sizes),
    (2, "sizes-smallest", "the same at the smallest buffers", SMALLEST, sizes::sizes),
    (2, "reservations", "buffers filled in place", SMALLEST, reservations::reservations),
    (3, "zero-length", "Medium and Long without bytes", PLAIN, sizes::zero_length),
    (4, "arguments", "0 to 16 arguments in all categories", PLAIN, arguments::arguments),
    (5, "all-to-all", "random, polite and hotspot orders", PLAIN, all_to_all::all_to_all),
    (5, "all-to-all-smallest", "the same, smallest buffers", SMALLEST, all_to_all::all_to_all),
    (5, "statistics", "what endpoints count adds up", PLAIN, statistics::statistics),
    (6, "token-facts", "source, lane, category, handler", PLAIN, tokens::facts),
    (6, "detached", "tokens answered late or never", SMALLEST, tokens::detached),
    (7, "issue", "issue without blocking", PLAIN, issue::issue_without_blocking),
    (7, "issue-smallest", "the same, smallest buffers", SMALLEST, issue::issue_without_blocking),
    (8, "mutual-flood", "everyone floods everyone", SMALLEST, flood::mutual),
    (8, "incast", "all flood rank 0", SMALLEST, flood::incast),
    (8, "rarely-polling", "a rank that rarely polls", SMALLEST.ranks(2), flood::rarely_polling),
    (8, "unread-replies", "replies are bounded, too", SMALLEST.ranks(2), flood::unread_replies),
    (8, "refused-when-full", "refusal instead of growth", SMALLEST, flood::refused_when_full),
    (9, "order", "order per pair where promised", PLAIN, order::order),
    (10, "wrong-calls", "wrong calls are typed errors", PLAIN, bad_input::wrong_calls),
    (10, "reply-bound", "reply bounds are checked at attach", PLAIN, bad_input::reply_bound),
    (10, "faulty-peer", "misaddressed messages are dropped", SMALLEST, tamper::faulty_peer),
    (10, "tables-names", "tables that differ in a name", SEVERAL, tables::names),
    (10, "tables-arguments", "tables that differ in arguments", SEVERAL, tables::arguments),
    (10, "tables-kinds", "tables that differ in kind and bound", SEVERAL, tables::kinds),
    (10, "tables-lengths", "tables that differ in length", SEVERAL, tables::lengths),
    (11, "accumulator", "a lock guards an accumulator", PLAIN, accumulator::locked_accumulator),
    (13, "finish-together", "everyone finishes at once", PLAIN, endings::together),
    (13, "drops", "a rank drops its endpoint", SEVERAL, endings::drops),
    (13, "leaves", "a rank leaves alone", SEVERAL, endings::leaves),
    (13, "panics", "a rank panics", SEVERAL.unwinds(), endings::panics),
    (13, "drops-unattached", "a rank ends before attach", SEVERAL, endings::drops_before_attach),
    (13, "panics-unattached", "a rank panics before attach", SEVERAL.unwinds(), endings::panics_before_attach),
    (13, "panics-blocked-on", "a rank panics while others wait for room", SMALLEST.ranks(2).unwinds(), endings::panics_when_blocked_on),
    (13, "survivors", "survivors work on after a loss", SEVERAL.unwinds(), endings::survivors_work_on),
    (13, "hangs", "a rank that hangs is named", SMALLEST.ranks(2), endings::hangs),
    (13, "panics-in-handler", "a handler panics", SEVERAL.unwinds(), endings::panics_in_handler),
    (13, "unwinding", "panics of handlers, caught", SMALLEST, unwinding::unwinding_handlers),
    (15, "direct-access", "segments as memory, where offered", PLAIN, direct::direct_access),
    (15, "auxiliary", "auxiliary segments, where offered", PLAIN, direct::auxiliary),
    (16, "layers", "two layers and a program share an endpoint", SMALLEST, layers::together),
    (16, "layers-alarms", "layers are called at the times they ask for", SMALLEST, layers::alarms),
    (17, "put-and-get", "one-sided reads and writes", SMALLEST, one_sided::put_and_get),
    (17, "atomics", "everyone updates everyone's counters", PLAIN, one_sided::atomics),
    (17, "signals", "puts that tell their target; refusals", PLAIN, one_sided::signals_and_errors),
    (17, "one-sided-limits", "sizes on both sides of every limit", PLAIN, one_sided_limits::limits),
    (17, "one-sided-limits-smallest", "the same, smallest buffers", SMALLEST, one_sided_limits::limits),
    (17, "one-sided-way", "the network does what it says", SMALLEST, native::way),
    (17, "one-sided-deaf-target", "the network needs no polls of the target", SMALLEST.ranks(2), native::deaf_target),
    (17, "one-sided-drain", "drain covers operations under way", SMALLEST, native::drained),
    (17, "one-sided-loss", "a target panics among operations", SMALLEST.ranks(2).unwinds(), native::target_lost),
    (18, "collectives", "collectives of overlapping teams", PLAIN, collectives::usual),
    (18, "collectives-tight", "the same, smallest buffers and window", SMALLEST, collectives::tight),
    (18, "collectives-types", "elements of other types, all operators", SMALLEST, collective_types::types),
    (18, "collectives-ahead", "a root that is far ahead", SMALLEST, collectives::ahead),
    (18, "collectives-refusals", "wrong calls and names of barriers", PLAIN, collectives::refusals),
    (18, "collectives-mismatches", "calls that differ are named", SEVERAL, collectives::mismatches),
    (18, "collectives-mismatched", "calls of all kinds that differ", SEVERAL, collective_mismatches::calls),
    (18, "collectives-limits", "sizes on both sides of every limit", PLAIN, collective_limits::limits),
    (18, "collectives-limits-smallest", "the same, smallest buffers", SMALLEST, collective_limits::limits),
    (18, "collectives-sizes", "messages of the wrong size", SEVERAL, collectives::sizes),
    (19, "teams", "splits, lists and duplicates", PLAIN, teams::shapes),
    (19, "teams-lost-small", "a rank lost in small collectives", SEVERAL.unwinds(), teams_lost::small),
    (19, "teams-lost-large", "a rank lost in large collectives", SEVERAL.unwinds(), teams_lost::large),
    (19, "teams-left", "a rank leaves inside a collective", SEVERAL, teams::left_inside),
    (19, "teams-shrink", "ranks lost while others agree", SEVERAL.unwinds(), teams::lost_while_shrinking),
    (20, "aggregation", "aggregators by all ways, with answers", SMALLEST, aggregation::all_ways),
    (20, "aggregation-aged", "items that leave by their age alone", SMALLEST, aggregation::aged),
    (20, "aggregation-loss", "a rank panics before the end", SEVERAL.unwinds(), aggregation::panics),
    (21, "typed-access", "values, slices and access regions", SMALLEST, global_memory::typed_access),
    (21, "typed-sections", "vectored, indexed and strided values", SMALLEST, global_sections::sections),
    (21, "runs", "listed, indexed and strided runs", SMALLEST, global_memory::runs),
    (21, "allocator", "symmetric and local memory", PLAIN, global_memory::allocator),
    (21, "atomic-types", "all operations on all types", SMALLEST, global_atomics::atomics),
    (21, "atomic-domains", "atomics one by one and in batches", SMALLEST, global_memory::domains),
    (22, "array-sections", "elements and sections of arrays", PLAIN, arrays::sections),
    (22, "array-batches", "batches of elements of arrays", SMALLEST, arrays::batches),
    (22, "array-losses", "a rank lost amid batches and ranges", SEVERAL.unwinds(), array_losses::lost),
    (22, "ghost-cells", "ghost cells of arrays", PLAIN, arrays::ghost_cells),
    (23, "messages", "two-sided messages, matched in all ways", PLAIN, messages::matched),
    (23, "messages-smallest", "the same, smallest buffers", SMALLEST, messages::matched),
    (23, "messages-protocols", "long messages by all protocols, also cancelled", SMALLEST.draws(messages::DRAWS), messages::protocols),
    (23, "messages-rules", "what MPI promises, by all protocols", PLAIN.draws(message_rules::DRAWS), message_rules::rules),
    (23, "messages-mixed", "wildcards, probes and cancels in one program", PLAIN.draws(message_mix::DRAWS), message_mix::mixed),
    (23, "messages-collectives", "collectives as messages, by all protocols", SMALLEST, message_collectives::collectives),
    (23, "messages-lost", "a rank is lost in a step of a protocol", LOST, messages_lost::lost),
    (23, "messages-lost-smallest", "the same, smallest buffers", LOST.smallest().draws(messages_lost::DRAWS / 3), messages_lost::lost),
    (24, "calls", "calls of all kinds against a model", PLAIN, calls::modelled),
    (24, "calls-smallest", "the same, smallest buffers", SMALLEST, calls::modelled),
    (24, "calls-groups", "requests along trees, distributed objects", PLAIN, call_groups::groups),
    (24, "calls-limits", "calls beyond the limits of their callers", SMALLEST, call_limits::callers),
    (24, "calls-refused", "requests beyond the limits of their callees", SMALLEST, call_limits::callees),
    (24, "calls-time", "deadlines, retries and dropped calls", PLAIN, call_limits::time),
    (24, "calls-groups-lost", "a rank panics amid trees and objects", SEVERAL.unwinds(), call_groups::lost),
    (24, "calls-malformed", "values that are none", SMALLEST, call_faults::malformed),
    (24, "calls-differ", "methods that one rank alone has", SEVERAL.draws(call_faults::WAYS), call_faults::methods_differ),
    (24, "calls-noisy", "a rank that changes what it says about calls", SMALLEST.ranks(2).unwinds(), call_faults::noisy),
    (24, "calls-lost", "a rank panics amid calls", SEVERAL.unwinds(), calls::lost),
}

static THREADED_DESCRIPTIONS: [Description; 2] = [
    Description { item: 12, name: "threads-shared", about: "threads share an endpoint", needs: PLAIN },
    Description { item: 12, name: "threads-own", about: "an endpoint for each thread", needs: OWN },
];

/// What the cases of [`cases`] are.
pub fn descriptions() -> &'static [Description] {
    DESCRIPTIONS
}

/// What the cases of [`threaded_cases`] are.
pub(crate) fn threaded_descriptions() -> &'static [Description] {
    &THREADED_DESCRIPTIONS
}

/// The cases that need nothing of a transport but the contract. They run behind a trait object.
pub fn cases<T: Transport>() -> Vec<Case<T>> {
    let all = DESCRIPTIONS.iter().zip(CODES);
    all.map(|(description, code)| Case::new(*description, Code::Erased(*code))).collect()
}

/// The cases in which a rank has threads; these transports can go from thread to thread. They run behind a trait
/// object.
pub fn threaded_cases<T: Threaded>() -> Vec<Case<T>> {
    let [shared, own] = THREADED_DESCRIPTIONS;
    let own_code = |world: &World, transports: Vec<T>| {
        threads::endpoint_per_thread(world, transports.into_iter().map(Sendable::threaded).collect())
    };
    vec![
        Case::new(
            shared,
            Code::Single(|world, transport| threads::shared_endpoint(world, Sendable::threaded(transport))),
        ),
        Case::new(own, Code::Several(own_code)),
    ]
}

/// The cases that see most of a transport's own types, its slots and its memory, without a trait object between:
/// what the compiler makes of the core and this transport together is not what it makes of either and a trait
/// object.
pub fn concrete_cases<T: Transport>() -> Vec<Case<T>> {
    let case = |name, code: fn(&World, T) -> Verdict| Case::new(*described(name), Code::Single(code));
    vec![
        case("checksum-ping", ping::checksum_ping::<T>),
        case("reservations", reservations::reservations::<T>),
        case("direct-access", direct::direct_access::<T>),
    ]
}

/// # Panics
/// If no case is called like that.
fn described(name: &str) -> &'static Description {
    DESCRIPTIONS.iter().find(|case| case.name == name).expect("a case is called like that")
}

/// Runs one rank's part of a case of [`cases`] with the transports of its endpoints, which may borrow.
///
/// # Errors
/// [`Failure`](crate::Failure) says what this rank found wrong.
///
/// # Panics
/// If there is no such case; and in a case that unwinds, on the rank that does so.
pub fn run_part<T: Transport>(case: &Description, world: &World, transports: Vec<T>) -> Verdict {
    Case::new(*case, Code::Erased(code(case))).run(world, transports)
}

fn code(case: &Description) -> fn(&World, Local<'_>) -> Verdict {
    let index = DESCRIPTIONS.iter().position(|other| other == case);
    CODES[index.expect("a description comes from the list of cases")]
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

/// Lets time pass without polling, in the transport's own time: at once where the time is virtual.
fn pause<T: Transport, S>(endpoint: &mut Endpoint<T, S>, span: Span) {
    let until = endpoint.now() + span;
    while endpoint.now() < until {
        endpoint.charge(until.since(endpoint.now()));
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_items_complete() {
        // Not by the cases themselves: these tests would compile all of them once more.
        let all: Vec<_> = DESCRIPTIONS.iter().chain(&THREADED_DESCRIPTIONS).collect();
        let mut names: Vec<&str> = all.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert!((1..=13).all(|item| all.iter().any(|case| case.item == item)));
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

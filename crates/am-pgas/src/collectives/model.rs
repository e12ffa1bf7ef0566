//! The algorithms against what the operations mean: an interpreter runs the schedules of all members in memory.

use super::algorithms::gather::Counts;
use super::algorithms::{allreduce, alltoall, broadcast, dissemination, gather, reduce, scan};
use super::schedule::{Local, LogGp, PLogP, Part, Schedule, Side, Upkeep, cost, cost_by_size, mean_cost};
use am_core::Span;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// An element that remembers which operands it was made of, in which order.
type Word = Vec<u32>;

/// What scratch and room for results hold at the start: nothing may depend on it.
const JUNK: u32 = u32::MAX;

/// Runs the schedules of all members; `data` are their operands. Returns the results.
fn interpret(schedules: &[Schedule], data: Vec<Vec<Word>>) -> Vec<Vec<Word>> {
    let mut memories = data;
    for (me, schedule) in schedules.iter().enumerate() {
        assert_eq!(schedule.fault(schedules.len()), None, "member {me} of {}: {schedule:?}", schedules.len());
        memories[me].resize(schedule.data() + schedule.scratch(), vec![JUNK]);
    }
    let (mut next, mut sent) = (vec![0; schedules.len()], vec![false; schedules.len()]);
    let mut under_way = BTreeMap::new();
    loop {
        let mut advanced = false;
        for (me, schedule) in schedules.iter().enumerate() {
            if next[me] == schedule.rounds() {
                continue;
            }
            let (round, memory) = (schedule.round(next[me]), &mut memories[me]);
            if !std::mem::replace(&mut sent[me], true) {
                for send in round.sends {
                    let message = memory[send.part.start..send.part.end()].to_vec();
                    let twice = under_way.insert((me as u32, send.to, send.tag), message);
                    assert_eq!(twice, None, "{send:?} of member {me} is ambiguous");
                }
                advanced = true;
            }
            let key = |from: u32, tag: u32| (from, me as u32, tag);
            if !round.receives.iter().all(|receive| under_way.contains_key(&key(receive.from, receive.tag))) {
                continue;
            }
            for receive in round.receives {
                let message = under_way.remove(&key(receive.from, receive.tag)).unwrap();
                assert_eq!(message.len(), receive.part.len, "{receive:?} of member {me}");
                for (mine, other) in memory[receive.part.start..receive.part.end()].iter_mut().zip(message) {
                    combine(mine, other, receive.combine);
                }
            }
            for local in round.locals {
                let (from, to, side) = match *local {
                    Local::Copy { from, to } => (from, to, None),
                    Local::Combine { from, into, side } => (from, into, Some(side)),
                };
                for index in 0..from.len {
                    let other = memory[from.start + index].clone();
                    combine(&mut memory[to + index], other, side);
                }
            }
            (next[me], sent[me], advanced) = (next[me] + 1, false, true);
        }
        if !advanced {
            break;
        }
    }
    assert!(under_way.is_empty(), "nobody receives {:?}", under_way.keys());
    let over = schedules.iter().zip(&next).all(|(schedule, next)| schedule.rounds() == *next);
    assert!(over, "members wait in rounds {next:?}");
    let result = |(schedule, memory): (&Schedule, &Vec<Word>)| {
        memory[schedule.result().start..schedule.result().end()].to_vec()
    };
    schedules.iter().zip(&memories).map(result).collect()
}

fn combine(mine: &mut Word, other: Word, side: Option<Side>) {
    match side {
        None => *mine = other,
        Some(Side::Right) => mine.extend(other),
        Some(Side::Left) => {
            let mine_was = std::mem::replace(mine, other);
            mine.extend(mine_was);
        }
    }
}

/// Operand `index` of member `of`.
fn operand(of: usize, index: usize) -> Word {
    vec![(of * 10_000 + index) as u32]
}

fn operands(of: usize, count: usize) -> Vec<Word> {
    (0..count).map(|index| operand(of, index)).collect()
}

/// The combination of the operands of members `0..until`.
fn combined(until: usize, index: usize) -> Word {
    (0..until).flat_map(|of| operand(of, index)).collect()
}

fn all(size: usize, schedule: impl FnMut(usize) -> Schedule) -> Vec<Schedule> {
    (0..size).map(schedule).collect()
}

/// Whether operands have to be in order.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Kept,
    Free,
}

fn normal(mut words: Vec<Word>, order: Order) -> Vec<Word> {
    if order == Order::Free {
        words.iter_mut().for_each(|word| word.sort_unstable());
    }
    words
}

/// Host numbers of some members.
fn hosts(size: usize, pattern: u32) -> Vec<u32> {
    (0..size as u32)
        .map(|me| match pattern % 4 {
            0 => 0,
            1 => me,
            2 => me / 3,
            _ => me * 7 % 3,
        })
        .collect()
}

fn check_broadcast(size: usize, root: usize, count: usize, pattern: u32) {
    let hosts = hosts(size, pattern);
    for schedules in [
        all(size, |me| broadcast::tree(me, size, root, count, 2)),
        all(size, |me| broadcast::tree(me, size, root, count, 2 + pattern as usize % 5)),
        all(size, |me| broadcast::linear(me, size, root, count)),
        all(size, |me| broadcast::chain(me, size, root, count, 1 + pattern as usize % 7)),
        all(size, |me| broadcast::scatter_allgather(me, size, root, count)),
        all(size, |me| broadcast::two_level(me, root, count, &hosts)),
    ] {
        let data = (0..size).map(|me| if me == root { operands(me, count) } else { vec![vec![JUNK]; count] });
        assert_eq!(interpret(&schedules, data.collect()), vec![operands(root, count); size]);
    }
}

fn check_reduce(size: usize, root: usize, count: usize, pattern: u32) {
    let (hosts, radix) = (hosts(size, pattern), 2 + pattern as usize % 5);
    let expected: Vec<Word> = (0..count).map(|index| combined(size, index)).collect();
    for (order, schedules) in [
        (Order::Free, all(size, |me| reduce::tree(me, size, root, count, radix))),
        (Order::Kept, all(size, |me| reduce::ordered_tree(me, size, root, count, radix))),
        (Order::Kept, all(size, |me| reduce::linear(me, size, root, count))),
        (Order::Free, all(size, |me| reduce::scatter_gather(me, size, root, count))),
        (Order::Free, all(size, |me| reduce::two_level(me, root, count, &hosts))),
    ] {
        let results = interpret(&schedules, (0..size).map(|me| operands(me, count)).collect());
        assert_eq!(normal(results[root].clone(), order), expected);
    }
}

fn check_allreduce(size: usize, count: usize, pattern: u32) {
    let hosts = hosts(size, pattern);
    let expected: Vec<Word> = (0..count).map(|index| combined(size, index)).collect();
    for (order, schedules) in [
        (Order::Kept, all(size, |me| allreduce::recursive_doubling(me, size, count))),
        (Order::Free, all(size, |me| allreduce::rabenseifner(me, size, count))),
        (Order::Free, all(size, |me| allreduce::ring(me, size, count))),
        (Order::Free, all(size, |me| allreduce::two_level(me, count, &hosts))),
    ] {
        let results = interpret(&schedules, (0..size).map(|me| operands(me, count)).collect());
        for result in &results {
            assert_eq!(result, &results[0], "all members have the same bits");
            assert_eq!(normal(result.clone(), order), expected);
        }
    }
}

fn check_reduce_scatter(counts: &[usize]) {
    let (size, total) = (counts.len(), counts.iter().sum());
    for (order, schedules) in [
        (Order::Free, all(size, |me| reduce::pairwise(me, counts))),
        (Order::Kept, all(size, |me| reduce::then_scatter(me, counts))),
    ] {
        let results = interpret(&schedules, (0..size).map(|me| operands(me, total)).collect());
        let mut at = 0;
        for (result, count) in results.into_iter().zip(counts) {
            let expected: Vec<Word> = (at..at + count).map(|index| combined(size, index)).collect();
            assert_eq!(normal(result, order), expected);
            at += count;
        }
    }
}

fn check_scan(size: usize, count: usize) {
    for exclusive in [false, true] {
        for schedules in [
            all(size, |me| scan::doubling(me, size, count, exclusive)),
            all(size, |me| scan::chain(me, size, count, exclusive)),
        ] {
            let results = interpret(&schedules, (0..size).map(|me| operands(me, count)).collect());
            for (me, result) in results.into_iter().enumerate() {
                let until = if exclusive { me.max(1) } else { me + 1 };
                assert_eq!(result, (0..count).map(|index| combined(until, index)).collect::<Vec<_>>());
            }
        }
    }
}

/// The operands that member `me` gives or gets: `counts` of member `of` for each.
fn piece(of: usize, to: usize, count: usize) -> Vec<Word> {
    (0..count).map(|index| vec![of as u32, to as u32, index as u32]).collect()
}

fn check_scatter(root: usize, counts: &[usize], count: usize) {
    let size = counts.len();
    let known = |me: usize| if me == root { Counts::All(counts) } else { Counts::Own(counts[me]) };
    let equal = vec![count; size];
    for (counts, schedules) in [
        (counts, all(size, |me| gather::scatter_linear(me, root, known(me)))),
        (&equal[..], all(size, |me| gather::scatter_tree(me, size, root, count))),
    ] {
        let whole: Vec<Word> = (0..size).flat_map(|to| piece(root, to, counts[to])).collect();
        let data = (0..size).map(|me| if me == root { whole.clone() } else { vec![vec![JUNK]; counts[me]] });
        let expected: Vec<_> = (0..size).map(|to| piece(root, to, counts[to])).collect();
        assert_eq!(interpret(&schedules, data.collect()), expected);
    }
}

fn check_gather(root: usize, counts: &[usize], count: usize) {
    let size = counts.len();
    let known = |me: usize| if me == root { Counts::All(counts) } else { Counts::Own(counts[me]) };
    let equal = vec![count; size];
    for (counts, schedules) in [
        (counts, all(size, |me| gather::gather_linear(me, root, known(me)))),
        (&equal[..], all(size, |me| gather::gather_tree(me, size, root, count))),
    ] {
        let data = (0..size).map(|me| if me == root { in_place(me, counts) } else { piece(me, 0, counts[me]) });
        let results = interpret(&schedules, data.collect());
        let expected: Vec<Word> = (0..size).flat_map(|of| piece(of, 0, counts[of])).collect();
        assert_eq!(results[root], expected);
    }
}

/// The parts of all, of which only the member's own is there.
fn in_place(me: usize, counts: &[usize]) -> Vec<Word> {
    let parts = counts.iter().enumerate();
    parts.flat_map(|(of, count)| if of == me { piece(of, 0, *count) } else { vec![vec![JUNK]; *count] }).collect()
}

fn check_allgather(counts: &[usize], count: usize) {
    let (size, equal) = (counts.len(), vec![count; counts.len()]);
    let mut algorithms = vec![
        (counts, all(size, |me| gather::ring(me, counts))),
        (&equal[..], all(size, |me| gather::bruck(me, size, count))),
    ];
    if size.is_power_of_two() {
        algorithms.push((&equal, all(size, |me| gather::doubling(me, size, count))));
    }
    for (counts, schedules) in algorithms {
        let expected: Vec<Word> = (0..size).flat_map(|of| piece(of, 0, counts[of])).collect();
        let data = (0..size).map(|me| in_place(me, counts)).collect();
        assert_eq!(interpret(&schedules, data), vec![expected; size]);
    }
}

fn check_alltoall(size: usize, counts: &[usize], count: usize) {
    let given = |of: usize, to: usize| counts[(of * 3 + to) % counts.len()];
    let gives = |me: usize| (0..size).map(|to| given(me, to)).collect::<Vec<_>>();
    let gets = |me: usize| (0..size).map(|of| given(of, me)).collect::<Vec<_>>();
    let equal = |_: usize, _: usize| count;
    type Given<'a> = &'a dyn Fn(usize, usize) -> usize;
    let algorithms: [(Given<'_>, Vec<Schedule>); 3] = [
        (&given, all(size, |me| alltoall::linear(me, &gives(me), &gets(me)))),
        (&given, all(size, |me| alltoall::pairwise(me, &gives(me), &gets(me)))),
        (&equal, all(size, |me| alltoall::bruck(me, size, count))),
    ];
    for (given, schedules) in algorithms {
        let out = |me: usize| (0..size).flat_map(|to| piece(me, to, given(me, to))).collect::<Vec<_>>();
        let data = (0..size).map(|me| {
            let mut data = out(me);
            data.resize(schedules[me].data(), vec![JUNK]);
            data
        });
        let expected = |me: usize| (0..size).flat_map(|of| piece(of, me, given(of, me))).collect::<Vec<_>>();
        let results = interpret(&schedules, data.collect());
        assert_eq!(results, (0..size).map(expected).collect::<Vec<_>>());
    }
}

#[test]
fn every_size_up_to_twenty() {
    for size in 1..=20 {
        let counts: Vec<usize> = (0..size).map(|me| me * 5 % 7).collect();
        for pattern in 0..4 {
            let root = pattern as usize * 3 % size;
            for count in [0, 1, 11] {
                check_broadcast(size, root, count, pattern);
                check_reduce(size, root, count, pattern);
                check_allreduce(size, count, pattern);
            }
            check_scatter(root, &counts, 3);
            check_gather(root, &counts, 3);
        }
        check_reduce_scatter(&counts);
        check_scan(size, 3);
        check_allgather(&counts, 2);
        check_alltoall(size, &counts, 2);
    }
}

#[test]
fn barriers_hear_of_everyone() {
    for size in 1..=40 {
        let schedules = all(size, |me| dissemination(me, size, 1));
        for mut result in interpret(&schedules, (0..size).map(|me| operands(me, 1)).collect()) {
            result[0].sort_unstable();
            result[0].dedup();
            assert_eq!(result[0], combined(size, 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_size_count_and_root(
        counts in prop::collection::vec(0usize..9, 1..50), count in 0usize..40, root in any::<usize>(),
        pattern in any::<u32>(),
    ) {
        let size = counts.len();
        let root = root % size;
        check_broadcast(size, root, count, pattern);
        check_reduce(size, root, count, pattern);
        check_allreduce(size, count, pattern);
        check_reduce_scatter(&counts);
        check_scan(size, count);
        check_scatter(root, &counts, count);
        check_gather(root, &counts, count);
        check_allgather(&counts, count);
        check_alltoall(size, &counts, count);
    }
}

/// The costs that textbooks give, for powers of two without bandwidth.
#[test]
fn costs_are_those_of_the_model() {
    let micros = Span::from_micros;
    let model = LogGp { latency: micros(5), overhead: micros(1), gap: Span::ZERO, per_byte: 0.0, compute: 0.0 };
    // One message takes latency and two overheads.
    for (size, rounds) in [(1, 0), (2, 1), (8, 3), (64, 6)] {
        // The child that is reached last hears of its parent after a message for each round.
        let schedules = all(size, |me| broadcast::tree(me, size, 0, 1, 2));
        assert_eq!(cost(&schedules, 8, &model), Some(micros(7 * rounds)), "{size} members");
        // Everyone sends, then receives: the send is paid once more in each round, the arrival is not delayed by
        // it.
        let schedules = all(size, |me| dissemination(me, size, 0));
        assert_eq!(cost(&schedules, 8, &model), Some(micros(7 * rounds)), "{size} members");
    }
    let bandwidth =
        LogGp { latency: Span::ZERO, overhead: Span::ZERO, gap: Span::ZERO, per_byte: 1.0, compute: 0.0 };
    // A ring moves 2 m (n - 1) / n bytes, less one byte for each message.
    let schedules = all(4, |me| allreduce::ring(me, 4, 4096));
    assert_eq!(cost(&schedules, 1, &bandwidth), Some(Span(6 * 1023)));
    // Where processors handle the bytes, a member sends its own before it takes those of its neighbour.
    let by_processors = |bytes: usize| {
        let of = |picos: usize| Span(picos as u64);
        PLogP {
            send: of(bytes / 2),
            gap: of(bytes / 2),
            gap_in: of(bytes / 4),
            receive: of(bytes),
            more: of(bytes / 4),
            one_way: of(bytes),
        }
    };
    assert_eq!(cost_by_size(&schedules, 1, by_processors), Some(Span(6 * (512 + 1024))));
    let pair = all(2, |me| broadcast::linear(me, 2, 0, 1024));
    assert_eq!(cost_by_size(&pair, 1, by_processors), Some(Span(1024)), "nobody takes anything else meanwhile");
    // A member that waits for a message that nobody sends.
    let alone = [broadcast::tree(1, 2, 0, 1, 2), broadcast::tree(1, 2, 0, 1, 2)];
    assert_eq!(cost(&alone, 8, &model), None);
}

/// What a root pays for messages that have come together, for an interface that brings them one by one, for
/// acknowledgements and for credits.
#[test]
fn roots_take_many_messages_at_once() {
    let of_size = |gap_in| {
        move |_| PLogP {
            send: Span(10),
            gap: Span(10),
            gap_in: Span(gap_in),
            receive: Span(30),
            more: Span(20),
            one_way: Span(100),
        }
    };
    let schedules = all(5, |me| reduce::linear(me, 5, 0, 1));
    assert_eq!(cost_by_size(&schedules, 8, of_size(0)), Some(Span(100 + 3 * 20)));
    // Two more have come when the first is taken, and the last when they are: another look.
    assert_eq!(cost_by_size(&schedules, 8, of_size(15)), Some(Span(100 + 20 + 10 + 20 + 30)));
    let nothing = all(5, |_| super::algorithms::nothing(1, 1));
    let mean = |looks, times| {
        mean_cost([&nothing, &schedules], 8, times, Upkeep { window: 4, looks }, of_size(0)).expect("it ends")
    };
    // A member that is answered at once sends nothing by itself, but every second message is acknowledged.
    assert_eq!(mean(None, 2), Span(100 + 3 * 20 + 4 * 10 / 2));
    // The root owes four credits when it waits again, which hides them.
    assert_eq!(mean(Some(16), 2), Span(100 + 3 * 20 + 4 * 10 / 2));
    // It returns them after each look that finds something.
    assert_eq!(mean(Some(1), 2), Span(100 + 3 * 20 + 4 * 10 + 4 * 10 / 2));
}

#[test]
fn faulty_schedules_are_found() {
    let mut builder = super::schedule::Builder::new(4);
    builder.send(1, 0, Part::new(0, 4));
    builder.receive(1, 0, Part::new(3, 1));
    assert!(builder.finish().fault(2).is_some_and(|fault| fault.contains("overlaps")));
    let mut builder = super::schedule::Builder::new(4);
    builder.send(2, 0, Part::new(0, 5));
    let schedule = builder.finish();
    assert!(schedule.fault(2).is_some_and(|fault| fault.contains("no member 2")));
    assert!(schedule.fault(3).is_some_and(|fault| fault.contains("outside")));
}

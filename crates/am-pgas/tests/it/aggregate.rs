//! Aggregators against a model: random pushes over all routes, bounded memory, ends, answers, lost ranks.

use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::zerocopy::{FromBytes, Immutable, IntoBytes};
use am_core::{Endpoint, Handlers, Joining, Rank, Span};
use am_pgas::aggregate::{
    Aggregate, AggregateError, Aggregator, AggregatorConfig, AggregatorError, Emitter, Route, SendPolicy,
};
use am_pgas::{Pgas, pgas_state};
use proptest::prelude::*;
use std::sync::Barrier;
use std::thread;

/// Runs a function on every rank of a network of threads; returns what they return.
pub(super) fn on_ranks<R: Send>(
    ranks: u32,
    config: LoopbackConfig,
    run: impl Fn(Joining<Loopback>) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let all = network(ranks, config).into_iter();
        let all: Vec<_> = all
            .map(|transport| {
                let run = &run;
                scope.spawn(move || run(Endpoint::builder(transport).timeout(Span::from_secs(60))))
            })
            .collect();
        all.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

pub(super) fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// An item of an odd size.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "am_core::zerocopy")]
#[repr(C)]
struct Odd {
    from: u32,
    number: u32,
    check: u32,
}

impl Odd {
    fn new(from: u32, number: u32) -> Self {
        Self { from, number, check: from ^ number ^ 0x5555_5555 }
    }
}

pub(super) struct State {
    pgas: Pgas,
    /// The number of the next item from each rank.
    next: Vec<u32>,
    wrong: u64,
    /// Sum and number of the items of the anonymous aggregator.
    sum: (u64, u64),
    /// Answers, by question.
    answers: Vec<u32>,
}
pgas_state!(State, pgas);

impl State {
    fn new(pgas: Pgas, ranks: u32, questions: usize) -> Self {
        Self { pgas, next: vec![0; ranks as usize], wrong: 0, sum: (0, 0), answers: vec![0; questions] }
    }

    fn take(&mut self, from: Rank, items: &[Odd]) {
        for item in items {
            let next = &mut self.next[from.0 as usize];
            self.wrong += u64::from(*item != Odd::new(from.0, *next));
            *next += 1;
        }
    }
}

#[derive(Clone, Debug)]
struct Plan {
    ranks: u32,
    route: Route,
    message: usize,
    window: u16,
    send_policy: SendPolicy,
    look_ahead: Option<usize>,
    requests: usize,
    items: u64,
    seed: u64,
}

impl Plan {
    fn config(&self) -> AggregatorConfig {
        let config = AggregatorConfig::new().route(self.route).message_bytes(self.message).window(self.window);
        let config = config.send_policy(self.send_policy);
        self.look_ahead.map_or(config, |items| config.look_ahead(items))
    }

    /// The destinations of a rank's items of one time.
    fn pushes(&self, rank: u32, time: u64) -> Vec<u32> {
        let mut seed = self.seed ^ u64::from(rank) << 32 ^ time << 48;
        let count = random(&mut seed, self.items + 1);
        // Sometimes all go to one rank.
        let one = (random(&mut seed, 4) == 0).then(|| random(&mut seed, self.ranks.into()) as u32);
        (0..count).map(|_| one.unwrap_or_else(|| random(&mut seed, self.ranks.into()) as u32)).collect()
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let route = prop_oneof![Just(Route::Direct), Just(Route::Matrix), Just(Route::Tensor)];
    let send_policy = prop_oneof![
        Just(SendPolicy::Usual),
        Just(SendPolicy::Deterministic),
        Just(SendPolicy::Aged(Span::from_micros(20))),
        Just(SendPolicy::Steady(Span::from_micros(20))),
    ];
    let look_ahead = prop_oneof![Just(None), (1usize..40).prop_map(Some)];
    let sizes = (20usize..200, 1u16..5, prop_oneof![Just(1usize), Just(64)]);
    (1u32..10, route, sizes, send_policy, look_ahead, 0u64..300, any::<u64>()).prop_map(
        |(ranks, route, (message, window, requests), send_policy, look_ahead, items, seed)| Plan {
            ranks,
            route,
            message,
            window,
            send_policy,
            look_ahead,
            requests,
            items,
            seed,
        },
    )
}

const TIMES: u64 = 3;

/// One rank's part: ordered items, anonymous ones, and questions with answers, several times.
fn play(plan: &Plan, joining: Joining<Loopback>) {
    let (me, ranks) = (joining.address().rank.0, plan.ranks);
    let mut handlers = Handlers::<State>::new();
    let mut pgas = Pgas::register(&mut handlers).unwrap();
    let (config, layers) = (plan.config(), &mut pgas);
    let ordered = Aggregator::register(
        &joining,
        layers,
        &mut handlers,
        "ordered",
        config,
        |state: &mut State, from, items| {
            state.take(from, items);
        },
    )
    .unwrap();
    let summed = |state: &mut State, items: &[u64]| {
        state.sum = (state.sum.0 + items.iter().sum::<u64>(), state.sum.1 + items.len() as u64);
    };
    let summed = Aggregator::register_anonymous(&joining, layers, &mut handlers, "sum", config, summed).unwrap();
    let answer = |state: &mut State, _: Rank, items: &[[u32; 2]]| {
        items.iter().for_each(|[question, answer]| state.answers[*question as usize] += answer);
    };
    let answers = Aggregator::register(&joining, layers, &mut handlers, "answers", config, answer).unwrap();
    let questions = Aggregator::register_answering(
        &joining,
        layers,
        &mut handlers,
        "questions",
        config,
        answers,
        move |_: &mut State, from, items: &[u32], emitter| {
            items.iter().for_each(|question| emitter.push(from, [*question, question * 7 + me]).unwrap());
        },
    )
    .unwrap();
    let mut endpoint = joining.attach(handlers, State::new(pgas, ranks, plan.items as usize)).unwrap();
    let mut sent = vec![0; ranks as usize];
    for time in 0..TIMES {
        let pushes = plan.pushes(me, time);
        for (number, to) in pushes.iter().enumerate() {
            let count = &mut sent[*to as usize];
            endpoint.push(ordered, Rank(*to), Odd::new(me, *count)).unwrap();
            *count += 1;
            endpoint.push(questions, Rank(*to), number as u32).unwrap();
            if let Some(most) = plan.look_ahead {
                assert!(endpoint.usage(ordered).unwrap().held <= most);
                assert!(endpoint.usage(questions).unwrap().held <= most);
                let answers = endpoint.usage(answers).unwrap();
                assert!(answers.held <= most + answers.overflow);
            }
            if number % 16 == 0 {
                endpoint.poll().unwrap();
            }
        }
        let all = pushes.iter().enumerate().map(|(number, to)| (Rank(*to), number as u64));
        assert_eq!(endpoint.push_all(summed, all).unwrap(), pushes.len() as u64);
        for _ in 0..2 {
            // A second time without any item.
            endpoint.done(ordered).unwrap();
        }
        // Everything has been handled everywhere, so nothing of this time comes any more.
        let theirs = |rank: u32| (0..=time).map(move |time| plan.pushes(rank, time)).map(|p| p.into_iter());
        let due = |rank| theirs(rank).flatten().filter(|to| *to == me).count() as u32;
        assert_eq!(endpoint.state().next, (0..ranks).map(due).collect::<Vec<_>>());
        assert_eq!(endpoint.state().wrong, 0);
        endpoint.done(questions).unwrap();
        endpoint.done(summed).unwrap();
        endpoint.done(answers).unwrap();
        let sum = |rank: u32| {
            theirs(rank)
                .flat_map(|pushes| pushes.enumerate())
                .filter(|(_, to)| *to == me)
                .map(|(n, _)| n as u64)
                .sum::<u64>()
        };
        let due = ((0..ranks).map(sum).sum(), (0..ranks).map(|rank| u64::from(due(rank))).sum());
        assert_eq!(endpoint.state().sum, due);
        let answered = std::mem::take(&mut endpoint.state_mut().answers);
        let right = |(number, answer): (usize, &u32)| *answer == number as u32 * 7 + pushes[number];
        assert!(answered[..pushes.len()].iter().enumerate().all(right));
        assert!(answered[pushes.len()..].iter().all(|answer| *answer == 0));
        endpoint.state_mut().answers = vec![0; plan.items as usize];
        for held in [endpoint.usage(ordered).unwrap(), endpoint.usage(answers).unwrap()] {
            assert_eq!((held.held, held.passing, held.discarded), (0, 0, 0));
        }
        // Whoever is faster would push the next time's items before the others have looked.
        endpoint.barrier().unwrap();
    }
    endpoint.finish().unwrap();
}

fn run(plan: &Plan) {
    let config = LoopbackConfig::default().requests(plan.requests).replies(1).medium(4096);
    on_ranks(plan.ranks, config, |joining| play(plan, joining));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_pushes_come_once_and_in_order(plan in plans()) {
        run(&plan);
    }
}

/// An endpoint with one aggregator that notes the lengths of the slices that its function gets.
pub(super) struct Slices {
    pub(super) pgas: Pgas,
    pub(super) slices: Vec<(u32, Vec<u64>)>,
}
pgas_state!(Slices, pgas);

pub(super) fn slices(
    joining: Joining<Loopback>,
    config: AggregatorConfig,
) -> Result<(Endpoint<Loopback, Slices>, Aggregator<u64>), AggregatorError> {
    let mut handlers = Handlers::<Slices>::new();
    let mut pgas = Pgas::register(&mut handlers)?;
    let note = |state: &mut Slices, from: Rank, items: &[u64]| state.slices.push((from.0, items.to_vec()));
    let aggregator = Aggregator::register(&joining, &mut pgas, &mut handlers, "slices", config, note)?;
    Ok((joining.attach(handlers, Slices { pgas, slices: Vec::new() }).unwrap(), aggregator))
}

pub(super) fn alone(config: AggregatorConfig) -> (Endpoint<Loopback, Slices>, Aggregator<u64>) {
    slices(Endpoint::builder(network(1, LoopbackConfig::default()).remove(0)), config).unwrap()
}

#[test]
fn what_cannot_work_is_refused() {
    let refused = |config| {
        let transport = network(3, LoopbackConfig::default().medium(4096)).remove(0);
        let mut handlers = Handlers::<Pgas>::new();
        let mut pgas = Pgas::register(&mut handlers).unwrap();
        let handle = |_: &mut Pgas, _: Rank, _: &[u64]| ();
        let joining = Endpoint::builder(transport);
        Aggregator::register(&joining, &mut pgas, &mut handlers, "refused", config, handle).unwrap_err()
    };
    let config = AggregatorConfig::new();
    assert_eq!(refused(config.message_bytes(7)), AggregatorError::Item { needed: 8, available: 7 });
    let matrix = config.message_bytes(11).route(Route::Matrix);
    assert_eq!(refused(matrix), AggregatorError::Item { needed: 12, available: 11 });
    // Two lanes to others, two buffers for the rank's own items, and one for messages that are not aligned.
    let memory = AggregatorError::Memory { buffers: 5, bytes: 1000, memory: 4999 };
    assert_eq!(refused(config.message_bytes(1000).memory(4999)), memory);
    let memory = AggregatorError::Memory { buffers: 5, bytes: 8, memory: 39 };
    assert_eq!(refused(config.memory(39)), memory);
    assert_eq!(refused(config.window(0)), AggregatorError::Zero { what: "window" });
    assert_eq!(refused(config.look_ahead(0)), AggregatorError::Zero { what: "look-ahead" });
}

/// A rank that says done by `advance` goes on with other work until the others have, and may use it again.
#[test]
fn advance_does_not_wait() {
    const TIMES: u64 = 3;
    let first_is_done = std::sync::atomic::AtomicU64::new(0);
    on_ranks(3, LoopbackConfig::default(), |joining| {
        let me = joining.address().rank.0;
        let (mut endpoint, aggregator) = slices(joining, AggregatorConfig::new()).unwrap();
        for time in 1..=TIMES {
            if me == 0 {
                assert!(endpoint.advance(aggregator, true).unwrap(), "the others have not said done");
                assert_eq!(endpoint.push(aggregator, Rank(1), 7), Err(AggregateError::SaidDone));
                first_is_done.store(time, std::sync::atomic::Ordering::SeqCst);
                // Also if others are over in a poll between.
                while endpoint.advance(aggregator, time % 2 == 0).unwrap() {
                    (0..20).for_each(|_| assert!(endpoint.poll().is_ok()));
                    // Not before the end has been told, even if it has come.
                    assert_eq!(endpoint.push(aggregator, Rank(1), 7), Err(AggregateError::SaidDone));
                    thread::yield_now();
                }
                let handled: usize = endpoint.state().slices.iter().map(|(_, items)| items.len()).sum();
                assert_eq!(handled as u64, 2 * time);
            } else {
                while first_is_done.load(std::sync::atomic::Ordering::SeqCst) < time {
                    assert!(endpoint.advance(aggregator, false).unwrap());
                    thread::yield_now();
                }
                endpoint.push(aggregator, Rank(0), time).unwrap();
                if me == 1 {
                    while endpoint.advance(aggregator, true).unwrap() {}
                } else {
                    // What has begun by one ends by the other.
                    let _ = endpoint.advance(aggregator, true).unwrap() && endpoint.done(aggregator).is_ok();
                }
            }
            endpoint.barrier().unwrap();
        }
        endpoint.finish().unwrap();
    });
}

#[test]
fn memory_stays_within_its_bound() {
    for (ranks, route) in [(1, Route::Direct), (7, Route::Direct), (7, Route::Matrix), (9, Route::Tensor)] {
        let memory = 3000;
        on_ranks(ranks, LoopbackConfig::default(), |joining| {
            let config = AggregatorConfig::new().route(route).memory(memory).window(2);
            let (mut endpoint, aggregator) = slices(joining, config).unwrap();
            for item in 0..20_000 {
                endpoint.push(aggregator, Rank((item % u64::from(ranks)) as u32), item).unwrap();
                let held = endpoint.usage(aggregator).unwrap();
                assert!(held.memory <= memory && held.held <= held.look_ahead);
            }
            endpoint.done(aggregator).unwrap();
            endpoint.finish().unwrap();
        });
    }
}

#[test]
fn memory_bounds_answers_too() {
    let joining = Endpoint::builder(network(1, LoopbackConfig::default()).remove(0));
    let mut handlers = Handlers::<Pgas>::new();
    let mut pgas = Pgas::register(&mut handlers).unwrap();
    let config = AggregatorConfig::new().memory(100_000);
    let nothing = |_: &mut Pgas, _: Rank, _: &[u64]| ();
    let answers = Aggregator::register(&joining, &mut pgas, &mut handlers, "answers", config, nothing).unwrap();
    let mut ask = |name: &str, config: AggregatorConfig| {
        let silent = |_: &mut Pgas, _: Rank, _: &[u64], _: &mut Emitter<'_, u64>| ();
        Aggregator::register_answering(&joining, &mut pgas, &mut handlers, name, config, answers, silent)
    };
    // An answer takes 16 bytes while it is staged and 12 while it waits, so that 100 of them fill 350 buffers of
    // questions.
    let exceeds = AggregatorError::Memory { buffers: 352, bytes: 8192, memory: 100_000 };
    assert_eq!(ask("refused", config.answers(100).message_bytes(8192)).unwrap_err(), exceeds);
    let ask = ask("ask", config.answers(100)).unwrap();
    let endpoint = joining.attach(handlers, pgas).unwrap();
    for memory in [endpoint.usage(ask).unwrap().memory, endpoint.usage(answers).unwrap().memory] {
        assert!((20_000..=100_000).contains(&memory), "{memory}");
    }
}

#[test]
fn items_go_when_full_or_before_idling() {
    let (mut endpoint, aggregator) = alone(AggregatorConfig::new().message_bytes(32));
    for item in 0..6 {
        endpoint.push(aggregator, Rank(0), item).unwrap();
    }
    assert_eq!(endpoint.state().slices, [(0, vec![0, 1, 2, 3])]);
    assert_eq!(endpoint.usage(aggregator).unwrap().held, 2);
    endpoint.poll().unwrap();
    assert_eq!(endpoint.state().slices.len(), 1);
    endpoint.wait_until(|state| state.slices.len() == 2).unwrap();
    assert_eq!(endpoint.state().slices[1..], [(0, vec![4, 5])]);
    endpoint.push(aggregator, Rank(0), 6).unwrap();
    endpoint.send_held(aggregator).unwrap();
    assert_eq!(endpoint.state().slices[2..], [(0, vec![6])]);
    // What nobody says done of goes all the same.
    endpoint.push(aggregator, Rank(0), 7).unwrap();
    assert_eq!(endpoint.finish().unwrap().slices[3..], [(0, vec![7])]);
}

#[test]
fn a_rank_alone_ends_without_idling() {
    let (mut endpoint, aggregator) = alone(AggregatorConfig::new());
    let before = endpoint.statistics().idles;
    endpoint.done(aggregator).unwrap();
    endpoint.push(aggregator, Rank(0), 1).unwrap();
    endpoint.done(aggregator).unwrap();
    endpoint.done(aggregator).unwrap();
    // Nothing would have ended that.
    assert_eq!(endpoint.statistics().idles, before);
    endpoint.finish().unwrap();
}

#[test]
fn the_look_ahead_bounds_all_destinations_together() {
    on_ranks(2, LoopbackConfig::default(), |joining| {
        let (mut endpoint, aggregator) = slices(joining, AggregatorConfig::new().look_ahead(10)).unwrap();
        assert_eq!(endpoint.usage(aggregator).unwrap().look_ahead, 10);
        for item in 0..11 {
            endpoint.push(aggregator, Rank((item % 3 == 0).into()), item).unwrap();
        }
        // The fullest has gone: the items for rank 0.
        let held = endpoint.usage(aggregator).unwrap();
        assert_eq!((held.held, held.pushed), (5, 11));
        endpoint.done(aggregator).unwrap();
        endpoint.finish().unwrap();
    });
}

#[test]
fn steady_items_wait_for_no_poll() {
    let (mut endpoint, aggregator) = alone(AggregatorConfig::new().send_policy(SendPolicy::Steady(Span(1))));
    while endpoint.state().slices.is_empty() {
        endpoint.push(aggregator, Rank(0), 1).unwrap();
    }
    let (mut endpoint, aggregator) = alone(AggregatorConfig::new().send_policy(SendPolicy::Aged(Span(1))));
    endpoint.push(aggregator, Rank(0), 1).unwrap();
    while endpoint.state().slices.is_empty() {
        endpoint.poll().unwrap();
    }
    // An age that never comes.
    let steady = SendPolicy::Steady(Span(u64::MAX));
    let (mut endpoint, aggregator) = alone(AggregatorConfig::new().send_policy(steady));
    for item in 0..100 {
        endpoint.push(aggregator, Rank(0), item).unwrap();
        endpoint.poll().unwrap();
    }
    assert!(endpoint.state().slices.is_empty());
}

#[test]
fn deterministic_messages_follow_from_the_pushes_alone() {
    let config = AggregatorConfig::new().message_bytes(64).send_policy(SendPolicy::Deterministic);
    let seen = |disturb: bool| {
        on_ranks(3, LoopbackConfig::default().requests(if disturb { 1 } else { 64 }), |joining| {
            let (mut endpoint, aggregator) = slices(joining, config).unwrap();
            let mut seed = 7 + u64::from(endpoint.rank().0);
            for item in 0..1000 {
                endpoint.push(aggregator, Rank(random(&mut seed, 3) as u32), item).unwrap();
                if disturb && item % 5 == 0 {
                    endpoint.poll_or_idle(Span::from_micros(1)).unwrap();
                }
            }
            endpoint.done(aggregator).unwrap();
            let mut slices = endpoint.finish().unwrap().slices;
            slices.sort_by_key(|(from, _)| *from);
            slices
        })
    };
    let (calm, disturbed) = (seen(false), seen(true));
    for (calm, disturbed) in calm.iter().zip(&disturbed) {
        let differs = calm.iter().zip(disturbed).find(|(calm, disturbed)| calm != disturbed);
        assert_eq!((differs, calm.len()), (None, disturbed.len()));
    }
}

#[test]
fn wrong_uses_are_errors() {
    let (mut endpoint, aggregator) = alone(AggregatorConfig::new());
    let (_other, foreign) = alone(AggregatorConfig::new());
    assert_eq!(endpoint.push(foreign, Rank(0), 1), Err(AggregateError::Foreign));
    assert_eq!(endpoint.done(foreign), Err(AggregateError::Foreign));
    let nobody = AggregateError::NoSuchRank { rank: Rank(1), ranks: 1 };
    assert_eq!(endpoint.push(aggregator, Rank(1), 1), Err(nobody.clone()));
    assert_eq!(endpoint.push_all(aggregator, [(Rank(0), 1), (Rank(1), 2)]), Err(nobody));
    endpoint.done(aggregator).unwrap();
    assert_eq!(endpoint.finish().unwrap().slices, [(0, vec![1])]);
}

#[test]
fn aggregators_that_differ_are_told_at_attach() {
    let config = AggregatorConfig::new();
    let cases = [
        ("8/8192 1h 4n", config, "8/8192 2h 4n", config.route(Route::Matrix), true),
        ("8/96 1h 4n", config.message_bytes(96), "8/100 1h 4n", config.message_bytes(100), true),
        ("8/8192 1h 3n", config.window(3), "8/8192 1h 4n", config, true),
        ("8/8192 1h 4n", config, "8/8192 1h 4", config, false),
    ];
    for (first, in_first, second, in_second, named) in cases {
        let failed = on_ranks(2, LoopbackConfig::default(), |joining| {
            let mut handlers = Handlers::<Pgas>::new();
            let mut pgas = Pgas::register(&mut handlers).unwrap();
            if joining.address().rank.0 == 0 || named {
                let config = if joining.address().rank.0 == 0 { in_first } else { in_second };
                let handle = |_: &mut Pgas, _: Rank, _: &[u64]| ();
                Aggregator::register(&joining, &mut pgas, &mut handlers, "items", config, handle).unwrap();
            } else {
                let handle = |_: &mut Pgas, _: &[u64]| ();
                Aggregator::register_anonymous(&joining, &mut pgas, &mut handlers, "items", in_second, handle)
                    .unwrap();
            }
            joining.attach(handlers, pgas).unwrap_err().to_string()
        });
        assert!(failed.iter().all(|text| text.contains(first) && text.contains(second)), "{failed:?}");
    }
}

/// A question's answers go to all ranks.
#[test]
fn several_answers_to_an_item() {
    struct Many {
        pgas: Pgas,
        answers: u64,
    }
    pgas_state!(Many, pgas);
    for window in [1, 3] {
        on_ranks(4, LoopbackConfig::default().requests(1), |joining| {
            let mut handlers = Handlers::<Many>::new();
            let mut pgas = Pgas::register(&mut handlers).unwrap();
            let config = AggregatorConfig::new().message_bytes(40).window(window).answers(4).route(Route::Matrix);
            let count = |state: &mut Many, _: Rank, items: &[u32]| state.answers += items.len() as u64;
            let answers =
                Aggregator::register(&joining, &mut pgas, &mut handlers, "answers", config, count).unwrap();
            let spread = |_: &mut Many, _: Rank, items: &[u32], emitter: &mut Emitter<'_, u32>| {
                items.iter().for_each(|item| (0..4).for_each(|to| emitter.push(Rank(to), *item).unwrap()));
                assert!(emitter.push(Rank(4), 0).is_err());
            };
            let layers = &mut pgas;
            let ask =
                Aggregator::register_answering(&joining, layers, &mut handlers, "ask", config, answers, spread)
                    .unwrap();
            let mut endpoint = joining.attach(handlers, Many { pgas, answers: 0 }).unwrap();
            for item in 0..500 {
                endpoint.push(ask, Rank(item % 4), item).unwrap();
            }
            endpoint.done(ask).unwrap();
            endpoint.done(answers).unwrap();
            assert_eq!(endpoint.finish().unwrap().answers, 4 * 500);
        });
    }
}

/// A function that pushes more than it may gets an error, and nothing else is harmed.
#[test]
fn an_outlet_takes_what_was_agreed() {
    let joining = Endpoint::builder(network(1, LoopbackConfig::default()).remove(0));
    let mut handlers = Handlers::<Pgas>::new();
    let mut pgas = Pgas::register(&mut handlers).unwrap();
    let config = AggregatorConfig::new();
    let nothing = |_: &mut Pgas, _: Rank, _: &[u32]| ();
    let answers = Aggregator::register(&joining, &mut pgas, &mut handlers, "answers", config, nothing).unwrap();
    let twice = |_: &mut Pgas, from, items: &[u32], emitter: &mut Emitter<'_, u32>| {
        let refused = items
            .iter()
            .flat_map(|item| [*item; 2])
            .map(|item| emitter.push(from, item))
            .filter(|pushed| pushed.is_err());
        assert_eq!(refused.count(), items.len());
    };
    let ask =
        Aggregator::register_answering(&joining, &mut pgas, &mut handlers, "ask", config, answers, twice).unwrap();
    let mut endpoint = joining.attach(handlers, pgas).unwrap();
    endpoint.push_all(ask, (0..10).map(|item| (Rank(0), item))).unwrap();
    endpoint.done(ask).unwrap();
    endpoint.done(answers).unwrap();
    assert_eq!(endpoint.usage(answers).unwrap().handled, 10);
    endpoint.finish().unwrap();
}

#[test]
fn nothing_is_allocated_after_registration() {
    for route in [Route::Direct, Route::Matrix] {
        on_ranks(2, LoopbackConfig::default().requests(1), |joining| {
            let mut handlers = Handlers::<Pgas>::new();
            let mut pgas = Pgas::register(&mut handlers).unwrap();
            let config = AggregatorConfig::new().message_bytes(256).route(route);
            let nothing = |_: &mut Pgas, _: Rank, _: &[u64]| ();
            let answers =
                Aggregator::register(&joining, &mut pgas, &mut handlers, "answers", config, nothing).unwrap();
            let back = |_: &mut Pgas, from, items: &[u64], emitter: &mut Emitter<'_, u64>| {
                items.iter().for_each(|item| emitter.push(from, *item).unwrap());
            };
            let layers = &mut pgas;
            let ask =
                Aggregator::register_answering(&joining, layers, &mut handlers, "ask", config, answers, back)
                    .unwrap();
            let mut endpoint = joining.attach(handlers, pgas).unwrap();
            let mut play = || {
                for item in 0..5000u64 {
                    endpoint.push(ask, Rank((item % 2) as u32), item).unwrap();
                }
                endpoint.done(ask).unwrap();
                endpoint.done(answers).unwrap();
            };
            // The transport's buffers are made as they are first needed.
            play();
            let before = am_conformance::allocations();
            play();
            assert_eq!(am_conformance::allocations() - before, 0);
            endpoint.finish().unwrap();
        });
    }
}

#[test]
fn steady_messages_are_full_between_ages() {
    on_ranks(2, LoopbackConfig::default(), |joining| {
        let age = Span::from_micros(1000);
        let config = AggregatorConfig::new().send_policy(SendPolicy::Steady(age));
        let (mut endpoint, aggregator) = slices(joining, config).unwrap();
        if endpoint.rank() == Rank(0) {
            let (capacity, begin) = (8192 / 8, endpoint.now());
            let (mut items, mut ages) = (0u64, 0);
            while ages < 20 {
                for _ in 0..100 {
                    endpoint.push(aggregator, Rank(1), items).unwrap();
                    items += 1;
                }
                ages = (endpoint.now() - begin).picos() / age.picos();
            }
            let messages = endpoint.usage(aggregator).unwrap().messages;
            assert!(
                messages <= items / capacity + ages + 1,
                "{messages} messages of {items} items in {ages} ages"
            );
        }
        endpoint.done(aggregator).unwrap();
        endpoint.finish().unwrap();
    });
}

/// A rank that sends messages which no aggregator sends, to rank 0 of a matrix of 2 by 2.
#[test]
fn pushes_wait_for_what_functions_pushed_before() {
    struct Order {
        pgas: Pgas,
        seen: Vec<u64>,
    }
    pgas_state!(Order, pgas);
    let waiting = Barrier::new(2);
    on_ranks(2, LoopbackConfig::default().requests(1), |joining| {
        let mut handlers = Handlers::<Order>::new();
        let mut pgas = Pgas::register(&mut handlers).unwrap();
        let config = AggregatorConfig::new().message_bytes(8).answers(11);
        let note = |state: &mut Order, _: Rank, items: &[u64]| state.seen.extend(items);
        let layers = &mut pgas;
        let answers = Aggregator::register(&joining, layers, &mut handlers, "answers", config, note).unwrap();
        let answer = |_: &mut Order, _: Rank, _: &[u64], emitter: &mut Emitter<'_, u64>| {
            (0..10).for_each(|n| emitter.push(Rank(1), n).unwrap());
            emitter.push(Rank(0), 10).unwrap();
        };
        let ask = Aggregator::register_answering(&joining, layers, &mut handlers, "ask", config, answers, answer);
        let ask = ask.unwrap();
        let mut endpoint = joining.attach(handlers, Order { pgas, seen: Vec::new() }).unwrap();
        if endpoint.rank() == Rank(0) {
            endpoint.push(ask, Rank(0), 0).unwrap();
            endpoint.send_held(ask).unwrap();
            endpoint.poll().unwrap();
            // Rank 1 has not served, so that answers to it keep the last one from its lane.
            assert_eq!((endpoint.usage(ask).unwrap().handled, &endpoint.state().seen[..]), (1, &[][..]));
            waiting.wait();
            endpoint.push(answers, Rank(0), 11).unwrap();
        } else {
            waiting.wait();
        }
        endpoint.done(ask).unwrap();
        endpoint.done(answers).unwrap();
        let due = if endpoint.rank() == Rank(0) { vec![10, 11] } else { (0..10).collect() };
        assert_eq!(endpoint.finish().unwrap().seen, due);
    });
}

#[test]
fn items_that_wait_for_their_function_count_as_held() {
    let joining = Endpoint::builder(network(1, LoopbackConfig::default()).remove(0));
    let mut handlers = Handlers::<Pgas>::new();
    let mut pgas = Pgas::register(&mut handlers).unwrap();
    let config = AggregatorConfig::new().message_bytes(24).look_ahead(3).answers(50);
    let nothing = |_: &mut Pgas, _: Rank, _: &[u64]| ();
    let answers = Aggregator::register(&joining, &mut pgas, &mut handlers, "answers", config, nothing).unwrap();
    let many = |_: &mut Pgas, from, items: &[u64], emitter: &mut Emitter<'_, u64>| {
        items.iter().for_each(|item| (0..50).for_each(|_| emitter.push(from, *item).unwrap()));
    };
    let layers = &mut pgas;
    let ask =
        Aggregator::register_answering(&joining, layers, &mut handlers, "ask", config, answers, many).unwrap();
    let mut endpoint = joining.attach(handlers, pgas).unwrap();
    for item in 0..30 {
        endpoint.push(ask, Rank(0), item).unwrap();
        assert!(endpoint.usage(ask).unwrap().held <= 3);
        let held = endpoint.usage(answers).unwrap();
        assert!(held.held <= 3 + held.overflow);
    }
    endpoint.done(ask).unwrap();
    endpoint.done(answers).unwrap();
    let held = [endpoint.usage(ask).unwrap(), endpoint.usage(answers).unwrap()];
    assert_eq!(held.map(|held| (held.held, held.handled)), [(0, 30), (0, 1500)]);
    endpoint.finish().unwrap();
}

/// Nothing comes in meanwhile that would have the layers called.
#[test]
fn what_is_held_leaves_before_a_sleep() {
    on_ranks(2, LoopbackConfig::default(), |joining| {
        let me = joining.address().rank;
        let mut handlers = Handlers::<State>::new();
        let mut pgas = Pgas::register(&mut handlers).unwrap();
        let summed = |state: &mut State, items: &[u64]| state.sum.1 += items.len() as u64;
        let config = AggregatorConfig::new();
        let items =
            Aggregator::register_anonymous(&joining, &mut pgas, &mut handlers, "items", config, summed).unwrap();
        let heard = handlers.one_way("heard", |state: &mut State, _, (), _| state.answers[0] += 1).unwrap();
        let mut endpoint = joining.attach(handlers, State::new(pgas, 2, 1)).unwrap();
        for number in 1..=3 {
            if me == Rank(0) {
                endpoint.push(items, Rank(1), number).unwrap();
                endpoint.wait_until(|state| u64::from(state.answers[0]) == number).unwrap();
                for _ in 0..100 {
                    endpoint.poll().unwrap();
                }
            } else {
                endpoint.wait_until(|state| state.sum.1 == number).unwrap();
                endpoint.request(Rank(0), heard, ()).unwrap();
            }
        }
        endpoint.done(items).unwrap();
        endpoint.finish().unwrap();
    });
}

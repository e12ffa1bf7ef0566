//! One request to many ranks, and a bounded number of futures under way.

use crate::support::{World, attach, job, simple, until_dropped};
use am_async::{CallConfig, CallEndpoint, CallError, Calls, Context, Failure, Methods, join};
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::{Endpoint, Handlers, Rank, Span};
use std::cell::Cell;
use std::fmt::Debug;
use std::panic::resume_unwind;
use std::sync::Barrier;

#[test]
fn one_request_goes_to_all() {
    simple(3, |endpoint, handles| {
        let all = || (0..4).map(Rank);
        let gone = Err(CallError::NoSuchRank { to: Rank(3).into(), ranks: 3 });
        let answers = endpoint.caller().call_each(all(), handles.add, &7).wait(endpoint);
        assert_eq!(answers, [Ok(7), Ok(7), Ok(7), gone.clone()]);
        let answers = endpoint.run(|context| async move {
            // The first answers last.
            let slow = context.call(Rank(0), handles.later, &(1, 2000));
            let each = context.call_each(all(), handles.later, &(2, 10)).await;
            assert_eq!(slow.await, Ok(2));
            each
        });
        let late = Err(CallError::NoSuchRank { to: Rank(3).into(), ranks: 3 });
        assert_eq!(answers.unwrap(), [Ok(3), Ok(3), Ok(3), late]);
        drop(endpoint.caller().call_each(all(), handles.never, &()));
        (0..3).for_each(|rank| until_dropped(endpoint, handles, Rank(rank)));
        assert_eq!(endpoint.caller().held(), 0);
    });
}

/// Along a tree, requests end as they do straight: answers, errors, panics, and who is said to have called.
#[test]
fn a_tree_makes_no_difference() {
    let straight = outcomes(u32::MAX);
    assert_eq!(straight.len(), 5);
    assert_eq!(straight, outcomes(0));
}

fn outcomes(tree_bytes: u32) -> Vec<Vec<String>> {
    let transports = network(11, LoopbackConfig::default().medium(512));
    let attach = |me: u32, transport: Loopback| {
        let mut methods = Methods::<u32>::new();
        let name = methods.function("name", |me: &mut u32, origin, text: String| match *me {
            3 => Err(Failure::new("no name")),
            5 => resume_unwind(Box::new("on purpose".to_owned())),
            me => Ok(format!("{me} for {}: {}", origin.source, text.len())),
        });
        let later = methods.asynchronous("later", |context: Context<u32>, text: String| async move {
            let source = context.origin().source;
            let me = context.with(|me| *me);
            context.sleep(Span::from_micros(u64::from(me))).await;
            if me == 4 {
                return std::future::pending().await;
            }
            Ok::<_, Failure>((me, source.rank.0, text))
        });
        let later = later.unwrap();
        methods.limit(&later, 1);
        let double = methods.slices("double", |_, origin, values: &[f64], answer| {
            answer.extend(values.iter().map(|value| 2.0 * value + f64::from(origin.source.rank.0)));
            Ok::<_, Failure>(())
        });
        let handles = (name.unwrap(), later, double.unwrap());
        let mut handlers = Handlers::new();
        let config = CallConfig::new().tree_bytes(tree_bytes);
        let calls = Calls::register_with(&mut handlers, methods, me, config).unwrap();
        (Endpoint::attach(transport, handlers, calls).unwrap(), handles)
    };
    std::thread::scope(|scope| {
        let ranks = (0..).zip(transports).map(|(me, transport)| {
            scope.spawn(move || {
                let (mut endpoint, (name, later, double)) = attach(me, transport);
                if endpoint.rank() != Rank(7) {
                    endpoint.finish().unwrap();
                    return Vec::new();
                }
                let all = || [7, 0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 3].map(Rank);
                let caller = endpoint.caller();
                let text = "x".repeat(3000);
                let mut seen = vec![debug(&caller.call_each(all(), name, &text).wait(&mut endpoint))];
                let values: Vec<f64> = (0..500).map(f64::from).collect();
                seen.push(debug(&caller.call_each(all(), double, &values).wait(&mut endpoint)));
                // As a future, with a deadline that the tree keeps.
                let hurried = caller.timeout(Span::from_secs(300));
                let others = || all().into_iter().take(11).filter(|rank| *rank != Rank(4));
                let each = endpoint.run(|_| hurried.call_each(others(), later, &text)).unwrap();
                seen.push(debug(&each));
                let late = caller.timeout(Span::from_millis(50)).call_each([4; 5].map(Rank), later, &text);
                let late = late.wait(&mut endpoint);
                // All but one are refused, or end with those that wait for it.
                assert!(late.iter().all(|outcome| outcome.is_err()), "{late:?}");
                // A rank that there is not, and nobody at all.
                let beyond = caller.call_each((6..12).map(Rank), name, &text).wait(&mut endpoint);
                seen.push(debug(&beyond));
                seen.push(debug(&caller.call_each([0; 0].map(Rank), name, &text).wait(&mut endpoint)));
                // What is dropped is cancelled everywhere.
                drop(caller.call_each(others(), later, &text));
                while caller.held() != 0 {
                    endpoint.poll().unwrap();
                }
                endpoint.finish().unwrap();
                seen
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().flat_map(|rank| rank.join().unwrap()).collect()
    })
}

fn debug(outcomes: &[impl Debug]) -> Vec<String> {
    outcomes.iter().map(|outcome| format!("{outcome:?}")).collect()
}

/// A rank that is lost takes with it what it would have passed on: all outcomes come, and those that fail name it.
#[test]
fn a_tree_without_a_rank_ends() {
    let transports = network(9, LoopbackConfig::default().medium(512));
    let attached = &Barrier::new(9);
    std::thread::scope(|scope| {
        for transport in transports {
            scope.spawn(move || {
                let config = CallConfig::new().tree_bytes(0);
                let (mut endpoint, handles) = attach(transport, config);
                attached.wait();
                match endpoint.rank() {
                    Rank(4) => drop(endpoint),
                    Rank(0) => {
                        let call = endpoint.call(Rank(4), handles.never, &());
                        call.wait(&mut endpoint).unwrap_err();
                        endpoint.acknowledge_loss(Rank(4));
                        let bytes = vec![1; 2000];
                        let all = (1..9).map(Rank);
                        let each = endpoint.caller().call_each(all, handles.bytes, &bytes).wait(&mut endpoint);
                        for (rank, outcome) in (1..).zip(&each) {
                            match outcome {
                                Ok(answer) => assert!(*answer == bytes && rank != 4),
                                Err(error) => {
                                    assert_eq!(error.loss().map(|(rank, _)| rank), Some(Rank(4)), "{error}");
                                    assert!(rank >= 4);
                                }
                            }
                        }
                        assert_eq!((each.len(), each[0].is_ok(), each[3].is_ok()), (8, true, false));
                        for rank in [1, 2, 3, 5, 6, 7, 8].map(Rank) {
                            endpoint.call(rank, handles.add, &1).wait(&mut endpoint).unwrap();
                        }
                        endpoint.leave();
                    }
                    _ => {
                        while endpoint.layer::<Calls<World>>().world().total == 0 {
                            let _ = endpoint.poll();
                        }
                        endpoint.leave();
                    }
                }
            });
        }
    });
}

/// A rank that is late costs its own outcome; on a simulated machine, whose time is exact.
#[test]
fn a_late_rank_fails_alone() {
    const TIME: u64 = 16;
    let outcomes = |tree_bytes: u32| {
        let conduit = machine_sim::conduit::ConduitConfig::default();
        let report = machine_sim::conduit::run(&machine_sim::crossbar(9), &conduit, move |transport| {
            let mut methods = Methods::<Rank>::new();
            let slow = methods.asynchronous("slow", |context: Context<Rank>, _: Vec<u8>| async move {
                if context.with(|me| *me) == Rank(6) {
                    return std::future::pending().await;
                }
                // Milliseconds, rounded up.
                Ok::<_, Failure>(context.origin().left.map_or(0, |left| left.0.div_ceil(Span::from_millis(1).0)))
            });
            let slow = slow.unwrap();
            let mut handlers = Handlers::new();
            let config = CallConfig::new().tree_bytes(tree_bytes);
            let calls = Calls::register_with(&mut handlers, methods, Rank(0), config).unwrap();
            let mut endpoint = Endpoint::attach(transport, handlers, calls).unwrap();
            *endpoint.layer_mut::<Calls<Rank>>().world_mut() = endpoint.rank();
            let mut outcomes = Vec::new();
            if endpoint.rank() == Rank(0) {
                let caller = endpoint.caller().timeout(Span::from_millis(TIME));
                outcomes = caller.call_each((1..9).map(Rank), slow, &vec![1; 2000]).wait(&mut endpoint);
            }
            endpoint.finish().unwrap();
            outcomes
        });
        report.unwrap().results.into_iter().flatten().flatten().collect::<Vec<_>>()
    };
    let late = Err(CallError::TimedOut { to: Rank(6).into(), after: Some(Span::from_millis(TIME)) });
    let all = Ok(TIME);
    for tree_bytes in [u32::MAX, 0] {
        assert_eq!(outcomes(tree_bytes), [&all, &all, &all, &all, &all, &late, &all, &all].map(Clone::clone));
    }
}

/// Answers on their way up travel together in no message that is longer than one may be.
#[test]
fn trees_bundle_within_the_limit() {
    let conduit = machine_sim::conduit::ConduitConfig::default();
    let report = machine_sim::conduit::run(&machine_sim::crossbar(20), &conduit, move |transport| {
        let mut methods = Methods::<()>::new();
        let sized = methods.function("sized", |(), _, bytes: Vec<u8>| {
            if bytes.len() == 3 {
                panic!("{}", "o".repeat(990));
            }
            Ok::<_, Failure>(vec![bytes.len() as u8; 300])
        });
        let sized = sized.unwrap();
        let mut handlers = Handlers::new();
        let config = CallConfig::new().tree_bytes(100).max_bytes(1000);
        let calls = Calls::register_with(&mut handlers, methods, (), config).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, calls).unwrap();
        if endpoint.rank() == Rank(0) {
            let all = endpoint.caller().call_each((1..20).map(Rank), sized, &vec![0; 200]).wait(&mut endpoint);
            assert!(all.iter().all(|answer| answer == &Ok(vec![200; 300])), "{all:?}");
            let all = endpoint.caller().call_each((1..20).map(Rank), sized, &vec![0; 3]).wait(&mut endpoint);
            assert!(all.iter().all(|answer| matches!(answer, Err(CallError::Panicked { .. }))), "{all:?}");
        }
        endpoint.finish().unwrap();
    });
    report.unwrap();
}

/// What ranks below one that is lost had answered before is known; on a simulated machine, whose time is exact.
#[test]
fn answers_before_a_loss_count() {
    let conduit = machine_sim::conduit::ConduitConfig::default();
    let report = machine_sim::conduit::run(&machine_sim::crossbar(9), &conduit, move |transport| {
        let mut methods = Methods::<(Rank, bool)>::new();
        let echo = methods.asynchronous("echo", |context: Context<(Rank, bool)>, bytes: Vec<u8>| async move {
            if context.with(|world| world.0) == Rank(6) {
                return std::future::pending().await;
            }
            Ok::<_, Failure>(bytes)
        });
        let over = methods.function("over", |world: &mut (Rank, bool), _, ()| {
            world.1 = true;
            Ok::<_, Failure>(())
        });
        let (echo, over) = (echo.unwrap(), over.unwrap());
        let mut handlers = Handlers::new();
        let config = CallConfig::new().tree_bytes(0);
        let calls = Calls::register_with(&mut handlers, methods, (Rank(0), false), config).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, calls).unwrap();
        endpoint.layer_mut::<Calls<(Rank, bool)>>().world_mut().0 = endpoint.rank();
        let mut outcomes = Vec::new();
        match endpoint.rank() {
            Rank(0) => {
                // Longer than a message.
                let bytes = vec![7; 100_000];
                let all = endpoint.caller().call_each((1..9).map(Rank), echo, &bytes).wait(&mut endpoint);
                outcomes =
                    all.into_iter().map(|outcome| outcome.map(|answer| assert_eq!(answer, bytes))).collect();
                for rank in [1, 2, 3, 5, 6, 7, 8].map(Rank) {
                    endpoint.call(rank, over, &()).wait(&mut endpoint).unwrap();
                }
            }
            // It has passed on what the others have answered.
            Rank(4) => {
                let _ = endpoint.wait_until_for(Span::from_millis(5), |_| false);
                return outcomes;
            }
            _ => endpoint.serve_until(|world| world.1).unwrap(),
        }
        endpoint.leave();
        outcomes
    });
    let outcomes: Vec<Result<(), CallError>> = report.unwrap().results.into_iter().flatten().flatten().collect();
    let lost = |outcome: &Result<(), CallError>| {
        outcome.as_ref().err().and_then(|error| error.loss()).map(|(rank, _)| rank)
    };
    assert_eq!(outcomes.len(), 8);
    for (rank, outcome) in (1..).zip(&outcomes) {
        match rank {
            6 => assert_eq!(lost(outcome), Some(Rank(4)), "{outcome:?}"),
            _ => assert_eq!(*outcome, Ok(()), "rank {rank}"),
        }
    }
}

#[test]
fn no_more_are_under_way_than_may_be() {
    simple(2, |endpoint, handles| {
        for limit in [1, 3, 1000] {
            let (under_way, most) = (&Cell::new(0u32), &Cell::new(0));
            let sums = endpoint.run(|context| async move {
                let context = &context;
                let calls = (0..50u64).map(|number| async move {
                    under_way.set(under_way.get() + 1);
                    most.set(most.get().max(under_way.get()));
                    context.sleep(Span::from_micros(50 - number)).await;
                    let sum = context.call(Rank(1), handles.later, &(number, number % 3)).await;
                    under_way.set(under_way.get() - 1);
                    sum
                });
                join(limit, calls).await
            });
            assert_eq!(sums.unwrap(), (1..=50).map(Ok).collect::<Vec<_>>());
            assert_eq!(most.get() as usize, limit.min(50));
        }
        assert_eq!(endpoint.run(|_| join(0, std::iter::empty::<std::future::Ready<u8>>())).unwrap(), [0; 0]);
    });
}

/// Ranks that call each other along trees, all at once.
fn crossing(config: CallConfig, ranks: u32, each: u32) {
    let barrier = &Barrier::new(ranks as usize);
    std::thread::scope(|scope| {
        for transport in network(ranks, LoopbackConfig::default().medium(512)) {
            scope.spawn(move || {
                let (mut endpoint, handles) = attach(transport, config);
                barrier.wait();
                let outcomes = endpoint.run(|context| async move {
                    let caller = context.timeout(Span::from_secs(60));
                    let all = || (0..ranks).map(Rank);
                    join(8, (0..each).map(|_| caller.call_each(all(), handles.bytes, &vec![1; 2000]))).await
                });
                let outcomes = outcomes.unwrap();
                assert!(outcomes.iter().flatten().all(Result::is_ok), "{config:?}");
                endpoint.finish().unwrap();
            });
        }
    });
}

/// Relays have places of their own, so that they do not wait for each other around the job.
#[test]
fn trees_that_cross_do_not_wait_for_each_other() {
    crossing(CallConfig::new().tree_bytes(0).calls(4), 8, 8);
    crossing(CallConfig::new().tree_bytes(0).calls(1).calls_per_peer(1), 6, 2);
}

/// What a rank passes on to itself is worked on already.
#[test]
fn a_tree_takes_one_task_of_each_rank() {
    let config = CallConfig::new().tree_bytes(0).tasks(1);
    job(6, LoopbackConfig::default().medium(512), config, |endpoint, handles| {
        let answers = endpoint.caller().call_each((0..6).map(Rank), handles.bytes, &vec![1; 2000]).wait(endpoint);
        assert!(answers.iter().all(Result::is_ok), "{:?}", debug(&answers));
    });
}

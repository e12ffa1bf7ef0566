//! What limits do where ranks differ in them, and what stays behind when calls, callers and endpoints end.

use crate::support::{Handles, World, attach, job, until_dropped};
use am_async::{CallConfig, CallEndpoint, CallError, Calls, Context, Failure, Methods, Refusal, Retries};
use am_core::loopback::{Loopback, LoopbackConfig, network, single};
use am_core::{Category, Endpoint, Handlers, Rank, Span};
use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{self, Waker};

/// Two ranks with settings of their own, of which the second serves.
fn differing(configs: [CallConfig; 2], first: impl FnOnce(&mut Endpoint<Loopback, Calls<World>>, Handles)) {
    let [mine, other] = configs;
    let mut transports = network(2, LoopbackConfig::default()).into_iter();
    let (a, b) = (transports.next().unwrap(), transports.next().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || attach(b, other).0.finish().unwrap());
        let (mut endpoint, handles) = attach(a, mine);
        first(&mut endpoint, handles);
        endpoint.finish().unwrap();
    });
}

#[test]
fn a_stream_has_its_callers_window() {
    for windows in [(2, 64), (64, 2), (1, 1)] {
        let configs = [windows.0, windows.1].map(|window| CallConfig::new().stream_window(window));
        differing(configs, |endpoint, handles| {
            let mut answers = endpoint.stream(Rank(1), handles.count, &200);
            for number in 0..200 {
                assert_eq!(answers.wait_next(endpoint), Some(Ok(number)));
            }
            assert_eq!(answers.wait_next(endpoint), None);
        });
    }
}

#[test]
fn calls_leave_at_once_and_in_order() {
    let two = LoopbackConfig::default().requests(2);
    let (mut endpoint, handles) = attach(network(1, two).pop().unwrap(), CallConfig::default());
    let sent = |endpoint: &Endpoint<_, _>| endpoint.statistics().requests_sent(Category::Medium).messages;
    let before = sent(&endpoint);
    let calls: Vec<_> = (0..8).map(|_| endpoint.call(Rank(0), handles.add, &1)).collect();
    assert_eq!(sent(&endpoint) - before, 2, "as many as there is room for, before any poll");
    let totals: Vec<u64> = calls.into_iter().map(|call| call.wait(&mut endpoint).unwrap()).collect();
    assert_eq!(totals, (1..=8).collect::<Vec<u64>>());
    endpoint.finish().unwrap();
}

/// Runs ranks that have the methods and handles that `methods` makes, and the same state; all but the first serve.
fn with_methods<H: Copy + Send>(
    ranks: u32,
    config: CallConfig,
    methods: impl Fn(&mut Methods<Vec<Span>>) -> H + Sync,
    first: impl FnOnce(&mut Endpoint<Loopback, Calls<Vec<Span>>>, H),
) {
    let attach = |transport| {
        let mut registered = Methods::new();
        let handles = methods(&mut registered);
        let mut handlers = Handlers::new();
        let calls = Calls::register_with(&mut handlers, registered, Vec::new(), config).unwrap();
        (Endpoint::attach(transport, handlers, calls).unwrap(), handles)
    };
    let mut transports = network(ranks, LoopbackConfig::default()).into_iter();
    let transport = transports.next().unwrap();
    std::thread::scope(|scope| {
        for transport in transports {
            scope.spawn(move || attach(transport).0.finish().unwrap());
        }
        let (mut endpoint, handles) = attach(transport);
        first(&mut endpoint, handles);
        endpoint.finish().unwrap();
    });
}

#[test]
fn what_is_refused_has_not_run() {
    let methods = |methods: &mut Methods<Vec<Span>>| {
        let long = methods.function("long", |runs: &mut Vec<Span>, _, ()| {
            runs.push(Span(0));
            Ok::<_, Failure>(vec![0u8; 20_000])
        });
        let runs = methods.function("runs", |runs: &mut Vec<Span>, _, ()| Ok::<_, Failure>(runs.len()));
        let never = methods.asynchronous("never", |_, ()| std::future::pending::<Result<(), Failure>>());
        (long.unwrap(), runs.unwrap(), never.unwrap())
    };
    with_methods(2, CallConfig::new().tasks(1), methods, |endpoint, (long, runs, never)| {
        let busy = endpoint.call(Rank(1), never, &());
        // Nobody knows yet that its answers are long: what has run is answered.
        assert_eq!(endpoint.call(Rank(1), long, &()).wait(endpoint).map(|answer| answer.len()), Ok(20_000));
        let refused = endpoint.call(Rank(1), long, &()).wait(endpoint);
        assert_eq!(refused, Err(CallError::Refused { to: Rank(1).into(), why: Refusal::Tasks }));
        assert_eq!(endpoint.call(Rank(1), runs, &()).wait(endpoint), Ok(1));
        drop(busy);
        while endpoint.call(Rank(1), long, &()).wait(endpoint).is_err() {}
        assert_eq!(endpoint.call(Rank(1), runs, &()).wait(endpoint), Ok(2));
    });
}

#[test]
fn one_way_calls_carry_their_deadline() {
    let methods = |methods: &mut Methods<Vec<Span>>| {
        let note = methods.function("note", |seen: &mut Vec<Span>, origin, _: Vec<u8>| {
            seen.push(origin.left.unwrap_or(Span(0)));
            Ok::<_, Failure>(())
        });
        let seen = methods.function("seen", |seen: &mut Vec<Span>, _, ()| {
            Ok::<_, Failure>(seen.iter().map(|left| left.0).collect::<Vec<u64>>())
        });
        (note.unwrap(), seen.unwrap())
    };
    with_methods(2, CallConfig::new(), methods, |endpoint, (note, seen)| {
        let caller = endpoint.caller().timeout(Span::from_secs(3600));
        for len in [0, 10, 100_000] {
            caller.one_way(Rank(1), note, &vec![0; len]).unwrap();
        }
        endpoint.caller().one_way(Rank(1), note, &vec![]).unwrap();
        let all = loop {
            let all = endpoint.call(Rank(1), seen, &()).wait(endpoint).unwrap();
            if all.len() == 4 {
                break all;
            }
        };
        let timed = all.iter().filter(|left| (1..=Span::from_secs(3600).0).contains(*left)).count();
        assert_eq!((timed, all.iter().filter(|left| **left == 0).count()), (3, 1));
    });
}

/// A long one-way call ends when its last part has been sent, and nothing comes back that lets others go on.
#[test]
fn the_end_of_a_one_way_call_lets_the_next_one_go() {
    let methods = |methods: &mut Methods<Vec<Span>>| {
        let note = methods.function("note", |seen: &mut Vec<Span>, _, bytes: Vec<u8>| {
            seen.push(Span(bytes.len() as u64));
            Ok::<_, Failure>(())
        });
        let seen = methods.function("seen", |seen: &mut Vec<Span>, _, ()| Ok::<_, Failure>(seen.len() as u64));
        (note.unwrap(), seen.unwrap())
    };
    with_methods(2, CallConfig::new().calls(1), methods, |endpoint, (note, seen)| {
        let caller = endpoint.caller();
        for _ in 0..3 {
            caller.one_way(Rank(1), note, &vec![0; 100_000]).unwrap();
        }
        let seen = endpoint.caller().timeout(Span::from_secs(60)).call(Rank(1), seen, &());
        assert_eq!(seen.wait(endpoint), Ok(3));
    });
}

#[test]
fn a_retried_call_ends_with_its_callers_time() {
    let methods = |methods: &mut Methods<Vec<Span>>| {
        let never = methods.asynchronous("never", |_, ()| std::future::pending::<Result<(), Failure>>());
        methods.idempotent(never.unwrap())
    };
    with_methods(2, CallConfig::new(), methods, |endpoint, never| {
        // Without a limit this would take longer than anyone waits: pauses double.
        let retries = Retries::new(u32::MAX).timeout(Span::from_micros(500)).pause(Span::from_micros(100));
        let (span, to) = (Span::from_millis(20), Rank(1).into());
        let timed_out = Err(CallError::TimedOut { to, after: Some(span) });
        let retried = endpoint.run(|context| async move {
            let caller = context.timeout(span);
            caller.call_retrying(Rank(1), never, &(), retries).await
        });
        assert_eq!(retried.unwrap(), timed_out);
        let at = endpoint.now() + span;
        let retried = endpoint.run(|context| async move {
            let caller = am_async::Caller::deadline(&context, at);
            caller.call_retrying(Rank(1), never, &(), retries).await
        });
        assert_eq!(retried.unwrap(), Err(CallError::TimedOut { to, after: None }));
        assert!(endpoint.now() >= at);
        assert_eq!(endpoint.caller().held(), 0);
    });
}

/// Polls a future once.
fn once<F: Future>(future: F) -> task::Poll<F::Output> {
    pin!(future).poll(&mut task::Context::from_waker(Waker::noop()))
}

#[test]
fn sleeps_end_with_their_endpoint() {
    let (mut endpoint, _) = attach(single(), CallConfig::default());
    let caller = endpoint.caller();
    let mut begun = pin!(caller.sleep(Span::from_secs(3600)));
    assert!(once(begun.as_mut()).is_pending());
    drop(endpoint);
    assert!(once(begun).is_ready());
    assert!(once(caller.sleep(Span::from_secs(3600))).is_ready());
}

/// Counts when it is dropped.
struct Counted<'a>(&'a AtomicU32);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn spawned_futures_end_with_their_endpoint() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    let (mut endpoint, _) = attach(single(), CallConfig::default());
    let forever = |context: &Context<World>| {
        let (held, counted) = (context.clone(), Counted(&DROPPED));
        context.spawn(async move {
            std::future::pending::<()>().await;
            drop((held, counted));
        });
    };
    let context = endpoint.run(|context| async move {
        forever(&context);
        context.sleep(Span::from_nanos(1)).await;
        context
    });
    let context = context.unwrap();
    // One that has not begun.
    forever(&context);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
    drop(endpoint);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
    forever(&context);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 3);
}

#[test]
fn a_lost_caller_frees_its_callee() {
    let transports = network(3, LoopbackConfig::default());
    let attached = Barrier::new(3);
    std::thread::scope(|scope| {
        for transport in transports {
            let attached = &attached;
            scope.spawn(move || {
                let (mut endpoint, handles) = attach(transport, CallConfig::default());
                attached.wait();
                if endpoint.rank() != Rank(0) {
                    // Calls of all phases: begun, with a long request, as a stream, and answered late.
                    let calls: Vec<_> = (0..20).map(|_| endpoint.call(Rank(0), handles.never, &())).collect();
                    let long = endpoint.call(Rank(0), handles.bytes, &vec![1; 100_000]);
                    let stream = endpoint.stream(Rank(0), handles.count, &1_000_000);
                    endpoint.call(Rank(0), handles.nothing, &()).wait(&mut endpoint).unwrap();
                    // It ends without a word to anyone.
                    std::mem::forget((calls, long, stream));
                    return drop(endpoint);
                }
                let counts = loop {
                    let (begun, dropped) =
                        endpoint.call(Rank(0), handles.counts, &()).wait(&mut endpoint).unwrap();
                    if begun == 40 && dropped == 40 && endpoint.layer::<Calls<World>>().tasks() == 0 {
                        break (begun, dropped);
                    }
                };
                assert_eq!(counts, (40, 40));
                endpoint.leave();
            });
        }
    });
}

#[test]
fn a_cancelled_long_answer_lets_the_next_come() {
    // One answer fits at a time.
    let config = CallConfig::new().receive_bytes(100_000);
    job(2, LoopbackConfig::default(), config, |endpoint, handles| {
        for round in 0..20 {
            let calls: Vec<_> = (0..6).map(|_| endpoint.call(Rank(1), handles.make, &90_000)).collect();
            let mut calls = calls.into_iter();
            let last = calls.next_back().unwrap();
            for _ in 0..round {
                endpoint.poll().unwrap();
            }
            drop(calls);
            assert_eq!(last.wait(endpoint).map(|answer| answer.len()), Ok(90_000));
        }
        assert_eq!(endpoint.caller().held(), 0);
    });
}

#[test]
fn long_requests_and_answers_share_one_memory() {
    let config = CallConfig::new().receive_bytes(50_000);
    job(3, LoopbackConfig::default(), config, |endpoint, handles| {
        let sent = vec![5; 40_000];
        let calls: Vec<_> = (0..30)
            .map(|number| {
                let to = Rank(number % 3);
                (endpoint.call(to, handles.bytes, &sent), endpoint.call(to, handles.make, &40_000))
            })
            .collect();
        for (bytes, make) in calls {
            assert_eq!(bytes.wait(endpoint), Ok(sent.clone()));
            assert_eq!(make.wait(endpoint), Ok(vec![7; 40_000]));
        }
    });
}

#[test]
fn methods_that_wait_keep_no_credit() {
    let network = LoopbackConfig::default().requests(1).medium(128);
    job(2, network, CallConfig::default(), |endpoint, handles| {
        let never: Vec<_> = (0..20).map(|_| endpoint.call(Rank(1), handles.never, &())).collect();
        endpoint.call(Rank(1), handles.nothing, &()).wait(endpoint).unwrap();
        // The parts of a long request need the credit, too.
        let long = vec![3; 5000];
        assert_eq!(endpoint.call(Rank(1), handles.bytes, &long).wait(endpoint), Ok(long));
        assert_eq!(endpoint.call(Rank(1), handles.later, &(1, 10)).wait(endpoint), Ok(2));
        drop(never);
        until_dropped(endpoint, handles, Rank(1));
    });
}

/// What has ended and was not taken is in nobody's way.
#[test]
fn try_call_counts_what_is_under_way() {
    job(1, LoopbackConfig::default(), CallConfig::new().calls(2), |endpoint, handles| {
        let caller = endpoint.caller();
        let held: Vec<_> = (0..2).map(|_| caller.call(Rank(0), handles.nothing, &())).collect();
        assert!(matches!(caller.try_call(Rank(0), handles.nothing, &()), Err(CallError::Busy { .. })));
        while !held.iter().all(|call| call.is_ready()) {
            endpoint.poll().unwrap();
        }
        caller.try_call(Rank(0), handles.nothing, &()).unwrap().wait(endpoint).unwrap();
    });
}

/// A rank that computes when it has been let send long requests keeps those of others waiting no longer than its
/// own.
#[test]
fn a_rank_that_computes_keeps_its_part_of_the_room() {
    const LONG: usize = 1 << 16;
    let config = CallConfig::new().max_bytes(LONG as u32).receive_bytes(2 * LONG as u64);
    let mut transports = network(3, LoopbackConfig::default().medium(512)).into_iter();
    let mut transport = || transports.next().unwrap();
    let (first, second, third) = (transport(), transport(), transport());
    let (announced, over) = (&Barrier::new(3), &Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut endpoint, _) = attach(first, config);
            endpoint.serve_until(|world| world.total == 1).unwrap();
            announced.wait();
            endpoint.finish().unwrap();
        });
        scope.spawn(move || {
            let (mut endpoint, handles) = attach(second, config);
            let calls = [0, 1].map(|_| endpoint.call(Rank(0), handles.bytes, &vec![1; LONG - 8]));
            // It is handled behind them.
            endpoint.caller().one_way(Rank(0), handles.add, &1).unwrap();
            endpoint.poll().unwrap();
            announced.wait();
            over.wait();
            for call in calls {
                call.wait(&mut endpoint).unwrap();
            }
            endpoint.finish().unwrap();
        });
        let (mut endpoint, handles) = attach(third, config);
        announced.wait();
        let caller = endpoint.caller().timeout(Span::from_secs(60));
        let answer = caller.call(Rank(0), handles.bytes, &vec![1; 4096]).wait(&mut endpoint);
        assert_eq!(answer.unwrap().len(), 4096);
        over.wait();
        endpoint.finish().unwrap();
    });
}

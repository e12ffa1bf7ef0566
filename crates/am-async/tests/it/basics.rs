//! What calls do when all goes well, and what their errors are.

use crate::support::{Question, Wrong, attach, job, methods, simple, until_dropped};
use am_async::{CallConfig, CallEndpoint, CallError, Calls, Failure, Methods, Refusal};
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::{AttachError, Category, Endpoint, Handlers, LossCause, Rank, Span};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

#[test]
fn every_kind_of_method_answers() {
    simple(3, |endpoint, handles| {
        endpoint.call(Rank(1), handles.nothing, &()).wait(endpoint).unwrap();
        assert_eq!(endpoint.call(Rank(1), handles.add, &5).wait(endpoint), Ok(5));
        assert_eq!(endpoint.call(Rank(1), handles.add, &6).wait(endpoint), Ok(11));
        assert_eq!(endpoint.call(Rank(0), handles.add, &1).wait(endpoint), Ok(1));
        let question = Question::Many {
            numbers: (0..10).collect(),
            inner: Some(Box::new(Question::Text("twenty bytes of text".into()))),
        };
        assert_eq!(endpoint.call(Rank(2), handles.echo, &question).wait(endpoint), Ok(question));
        assert_eq!(endpoint.call(Rank(2), handles.echo, &Question::Nothing).wait(endpoint), Ok(Question::Nothing));
        assert_eq!(endpoint.call(Rank(2), handles.scale, &[1.0, 2.5]).wait(endpoint), Ok(vec![2.0, 5.0]));
        assert_eq!(endpoint.call(Rank(2), handles.scale, &[]).wait(endpoint), Ok(vec![]));
        assert_eq!(endpoint.call(Rank(1), handles.later, &(7, 100)).wait(endpoint), Ok(8));
        // A call goes round all ranks, its own included.
        assert_eq!(
            endpoint.call(Rank(1), handles.relay, &vec![0, 2, 1, 1, 0]).wait(endpoint),
            Ok(vec![0, 2, 1, 1, 0])
        );
    });
}

#[test]
fn any_size_travels_in_both_directions() {
    for medium in [64, 512, 8192] {
        let network = LoopbackConfig::default().medium(medium);
        job(2, network, CallConfig::default(), |endpoint, handles| {
            for len in [0, 1, 63, 64, 65, 500, 1023, 1024, 1025, 8191, 8192, 8193, 100_000] {
                let bytes: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
                assert_eq!(endpoint.call(Rank(1), handles.bytes, &bytes).wait(endpoint), Ok(bytes), "{len} bytes");
                assert_eq!(endpoint.call(Rank(1), handles.make, &(len as u32)).wait(endpoint), Ok(vec![7; len]));
            }
            let values = vec![1.0; 10_000];
            assert_eq!(endpoint.call(Rank(1), handles.scale, &values).wait(endpoint), Ok(vec![2.0; 10_000]));
        });
    }
}

#[test]
fn errors_keep_their_types() {
    simple(2, |endpoint, handles| {
        assert_eq!(endpoint.call(Rank(1), handles.half, &8).wait(endpoint), Ok(4));
        assert_eq!(
            endpoint.call(Rank(1), handles.half, &-8).wait(endpoint),
            Err(CallError::Failed(Wrong::Negative(-8)))
        );
        assert_eq!(endpoint.call(Rank(1), handles.half, &7).wait(endpoint), Err(CallError::Failed(Wrong::Odd)));
        let (to, text) = (Rank(1).into(), "on purpose".to_owned());
        assert_eq!(
            endpoint.call(Rank(1), handles.panic, &text).wait(endpoint),
            Err(CallError::Panicked { to, text })
        );
        // The callee lives on.
        endpoint.call(Rank(1), handles.nothing, &()).wait(endpoint).unwrap();
        assert_eq!(
            endpoint.call(Rank(2), handles.nothing, &()).wait(endpoint),
            Err(CallError::NoSuchRank { to: Rank(2).into(), ranks: 2 })
        );
        let mut others = Methods::<u64>::new();
        let other = others.function("nothing", |_, _, ()| Ok::<u8, Failure>(1)).unwrap();
        assert_eq!(endpoint.call(Rank(1), other, &()).wait(endpoint), Err(CallError::ForeignMethod));
        assert_eq!(endpoint.caller().held(), 0);
    });
}

#[test]
fn sizes_beyond_the_limit_are_refused() {
    let config = CallConfig::new().max_bytes(1000);
    job(2, LoopbackConfig::default().medium(256), config, |endpoint, handles| {
        assert_eq!(
            endpoint.call(Rank(1), handles.bytes, &vec![0; 999]).wait(endpoint),
            Err(CallError::RequestTooLarge { bytes: 1001, limit: 1000 })
        );
        assert_eq!(endpoint.call(Rank(1), handles.make, &998).wait(endpoint), Ok(vec![7; 998]));
        assert_eq!(
            endpoint.call(Rank(1), handles.make, &999).wait(endpoint),
            Err(CallError::AnswerTooLarge { bytes: 1001, limit: 1000 })
        );
    });
    // Also one that a message would carry.
    job(2, LoopbackConfig::default(), config, |endpoint, handles| {
        let before = endpoint.statistics().requests_sent(Category::Medium).messages;
        assert_eq!(
            endpoint.call(Rank(1), handles.bytes, &vec![0; 999]).wait(endpoint),
            Err(CallError::RequestTooLarge { bytes: 1001, limit: 1000 })
        );
        assert_eq!(endpoint.statistics().requests_sent(Category::Medium).messages, before);
    });
}

#[test]
fn deadlines_end_calls_and_their_methods() {
    simple(2, |endpoint, handles| {
        let hurried = endpoint.caller().timeout(Span::from_millis(5));
        let call = hurried.call(Rank(1), handles.never, &());
        let error = call.wait(endpoint).unwrap_err();
        assert_eq!(error, CallError::TimedOut { to: Rank(1).into(), after: Some(Span::from_millis(5)) });
        // The callee learns of it.
        until_dropped(endpoint, handles, Rank(1));
        assert_eq!(endpoint.caller().held(), 0);
    });
}

#[test]
fn dropped_calls_are_cancelled_at_the_callee() {
    simple(2, |endpoint, handles| {
        let calls: Vec<_> = (0..10).map(|_| endpoint.call(Rank(1), handles.never, &())).collect();
        endpoint.call(Rank(1), handles.nothing, &()).wait(endpoint).unwrap();
        drop(calls);
        until_dropped(endpoint, handles, Rank(1));
        // Calls that were never sent leave nothing, either.
        let calls: Vec<_> = (0..1000).map(|_| endpoint.call(Rank(1), handles.never, &())).collect();
        drop(calls);
        endpoint.call(Rank(1), handles.nothing, &()).wait(endpoint).unwrap();
        assert_eq!((endpoint.caller().held(), endpoint.caller().under_way()), (0, 0));
    });
}

#[test]
fn streams_answer_in_order_and_wait_for_their_taker() {
    let config = CallConfig::new().stream_window(4);
    job(2, LoopbackConfig::default(), config, |endpoint, handles| {
        for count in [0, 1, 4, 5, 100] {
            let mut answers = endpoint.stream(Rank(1), handles.count, &count);
            for number in 0..count {
                assert_eq!(answers.wait_next(endpoint), Some(Ok(number)));
            }
            assert_eq!(answers.wait_next(endpoint), None);
        }
        let mut answers = endpoint.stream(Rank(1), handles.count, &13);
        for number in 0..13 {
            assert_eq!(answers.wait_next(endpoint), Some(Ok(number)));
        }
        assert_eq!(answers.wait_next(endpoint), Some(Err(CallError::Failed(Failure::new("unlucky")))));
        assert_eq!(answers.wait_next(endpoint), None);
        // One that is not wanted to its end.
        let mut answers = endpoint.stream(Rank(1), handles.count, &1_000_000);
        assert_eq!(answers.wait_next(endpoint), Some(Ok(0)));
        drop(answers);
        assert_eq!(endpoint.caller().held(), 0);
    });
}

#[test]
fn futures_run_beside_each_other() {
    simple(3, |endpoint, handles| {
        let sum = endpoint.run(|context| async move {
            let calls: Vec<_> = (0..300u32)
                .map(|number| context.call(Rank(number % 3), handles.later, &(1, 10 * u64::from(number % 7))))
                .collect();
            let mut sum = 0;
            for call in calls {
                sum += call.await.unwrap();
            }
            context.sleep(Span::from_micros(10)).await;
            context.with(|world| assert_eq!(world.finished, 100));
            sum
        });
        assert_eq!(sum, Ok(600));
        // It may borrow.
        let mut seen = Vec::new();
        endpoint
            .run(|context| async {
                let context = context;
                seen.push(context.call(Rank(2), handles.add, &2).await);
            })
            .unwrap();
        assert_eq!(seen, [Ok(2)]);
    });
}

#[test]
fn a_callee_refuses_more_than_it_may_work_on() {
    job(2, LoopbackConfig::default(), CallConfig::new().tasks(3), |endpoint, handles| {
        let calls: Vec<_> = (0..3).map(|_| endpoint.call(Rank(1), handles.never, &())).collect();
        let refused = endpoint.call(Rank(1), handles.later, &(1, 0)).wait(endpoint);
        assert_eq!(refused, Err(CallError::Refused { to: Rank(1).into(), why: Refusal::Tasks }));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("CallConfig::tasks"), "{text}");
        // Functions are not concerned.
        assert_eq!(endpoint.call(Rank(1), handles.add, &1).wait(endpoint), Ok(1));
        drop(calls);
        until_dropped(endpoint, handles, Rank(1));
        assert_eq!(endpoint.call(Rank(1), handles.later, &(1, 0)).wait(endpoint), Ok(2));
    });
}

#[test]
fn limits_make_calls_wait_and_try_calls_fail() {
    let config = CallConfig::new().calls_per_peer(2).calls(3);
    job(3, LoopbackConfig::default(), config, |endpoint, handles| {
        let caller = endpoint.caller();
        let (first, second) = (caller.call(Rank(1), handles.never, &()), caller.call(Rank(1), handles.never, &()));
        let busy = caller.try_call(Rank(1), handles.nothing, &()).unwrap_err();
        assert_eq!(
            busy.to_string(),
            "the call to rank 1 would wait: 2 calls to it are under way, which CallConfig::calls_per_peer limits"
        );
        let third = caller.try_call(Rank(2), handles.never, &()).unwrap();
        let busy = caller.try_call(Rank(2), handles.nothing, &()).unwrap_err();
        assert_eq!(
            busy.to_string(),
            "the call to rank 2 would wait: 3 calls are under way, which CallConfig::calls limits"
        );
        let mut waiting = caller.call(Rank(1), handles.add, &1);
        endpoint.poll().unwrap();
        assert_eq!(caller.under_way(), 3);
        assert!(!waiting.is_ready());
        drop(first);
        waiting = {
            assert_eq!(waiting.wait(endpoint), Ok(1));
            caller.call(Rank(1), handles.add, &1)
        };
        assert_eq!(waiting.wait(endpoint), Ok(2));
        drop((second, third));
    });
}

#[test]
fn calls_to_a_lost_rank_fail_and_others_go_on() {
    let mut transports = network(3, LoopbackConfig::default()).into_iter();
    let (a, b, c) = (transports.next().unwrap(), transports.next().unwrap(), transports.next().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut endpoint, _) = attach(b, CallConfig::default());
            endpoint.serve_until(|world| world.total == 1).unwrap();
            drop(endpoint);
        });
        scope.spawn(move || {
            let (mut endpoint, _) = attach(c, CallConfig::default());
            endpoint.serve_until(|world| world.total == 7).unwrap();
            endpoint.leave();
        });
        let (mut endpoint, handles) = attach(a, CallConfig::default());
        let lost = |rank| CallError::RankLost { rank, cause: LossCause::Left };
        // All have attached.
        endpoint.call(Rank(2), handles.nothing, &()).wait(&mut endpoint).unwrap();
        let calls: Vec<_> = (0..5).map(|_| endpoint.call(Rank(1), handles.never, &())).collect();
        let end = endpoint.call(Rank(1), handles.add, &1);
        for call in calls {
            assert_eq!(call.wait(&mut endpoint), Err(lost(Rank(1))));
        }
        assert_eq!(end.wait(&mut endpoint), Ok(1));
        assert_eq!(endpoint.call(Rank(1), handles.nothing, &()).wait(&mut endpoint), Err(lost(Rank(1))));
        assert_eq!(endpoint.call(Rank(2), handles.add, &7).wait(&mut endpoint), Ok(7));
        // The program learns of the loss as of any other.
        assert_eq!(endpoint.poll().unwrap_err().loss(), Some((Rank(1), LossCause::Left)));
        let error = loop {
            match endpoint.call(Rank(2), handles.nothing, &()).wait(&mut endpoint) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error, CallError::Finished(Rank(2)));
        assert_eq!(endpoint.caller().held(), 0);
        endpoint.leave();
    });
}

#[test]
fn callers_outlive_their_endpoint() {
    let (mut endpoint, handles) = attach(am_core::loopback::single(), CallConfig::default());
    let caller = endpoint.caller();
    let call = caller.call(Rank(0), handles.never, &());
    drop(endpoint);
    assert!(call.is_ready());
    let error = caller.try_call(Rank(0), handles.nothing, &()).unwrap_err();
    assert_eq!(error, CallError::Closed);
}

/// Long slices are sent from where they lie while their callee takes them in, and kept where it does not, also
/// when both sides call at once or a rank calls itself.
#[test]
fn long_slices_travel_in_both_directions() {
    let play = |transport: Loopback| {
        let (mut endpoint, handles) = attach(transport, CallConfig::default());
        let (me, other) = (endpoint.rank(), Rank(1 - endpoint.rank().0));
        for len in [8, 9, 64, 65, 1024, 1025, 20_000] {
            let values: Vec<f64> = (0..len).map(f64::from).collect();
            let calls = [other, me, other].map(|to| endpoint.call(to, handles.scale, &values));
            let doubled: Vec<f64> = values.iter().map(|value| 2.0 * value).collect();
            calls.into_iter().for_each(|call| assert_eq!(call.wait(&mut endpoint).as_ref(), Ok(&doubled)));
        }
        endpoint.finish().unwrap();
    };
    for medium in [64, 512, 8192] {
        std::thread::scope(|scope| {
            network(2, LoopbackConfig::default().medium(medium)).into_iter().for_each(|transport| {
                scope.spawn(|| play(transport));
            });
        });
    }
}

#[test]
fn ranks_with_other_methods_do_not_attach() {
    let errors = network(2, LoopbackConfig::default()).into_iter().enumerate().map(|(rank, transport)| {
        std::thread::spawn(move || {
            let mut methods = Methods::<u64>::new();
            if rank == 0 {
                methods.function("ask", |_, _, number: u32| Ok::<u32, Failure>(number)).unwrap();
            } else {
                methods.function("ask", |_, _, number: u64| Ok::<u32, Failure>(number as u32)).unwrap();
            }
            let mut handlers = Handlers::new();
            let calls = Calls::register(&mut handlers, methods, 0).unwrap();
            Endpoint::attach(transport, handlers, calls).map(|_| ()).unwrap_err()
        })
    });
    for error in errors.collect::<Vec<_>>() {
        let error = error.join().unwrap();
        assert!(matches!(error, AttachError::TablesDiffer { .. }));
        let text = error.to_string();
        assert!(text.contains("'calls.method ask' (function u32 -> u32"), "{text}");
        assert!(text.contains("'calls.method ask' (function u64 -> u32"), "{text}");
    }
}

#[test]
fn names_are_checked() {
    let (mut methods, _) = methods();
    assert!(methods.function("add", |_, _, ()| Ok::<(), Failure>(())).is_err());
    assert!(methods.function("", |_, _, ()| Ok::<(), Failure>(())).is_err());
}

/// A call that somebody else has polled in between, in the poll in which it was made, wakes the endpoint's future.
#[test]
fn calls_wake_who_polled_last() {
    simple(2, |endpoint, handles| {
        let answer = endpoint.run(|calls| async move {
            let mut call = calls.call(Rank(1), handles.later, &(7, 100));
            let other = Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
            assert!(other.is_pending());
            call.await
        });
        assert_eq!(answer.unwrap(), Ok(8));
    });
}

/// One that yields, as to let others go on, is polled again; nothing else would end the endpoint's sleep.
#[test]
fn a_future_that_wakes_itself_is_polled_before_a_sleep() {
    simple(1, |endpoint, _| {
        let (before, mut yields) = (endpoint.idles(), 10);
        let all = endpoint.run(|_| {
            poll_fn(move |context| {
                yields -= 1;
                context.waker().wake_by_ref();
                if yields == 0 { Poll::Ready(()) } else { Poll::Pending }
            })
        });
        all.unwrap();
        assert_eq!(endpoint.idles(), before, "it sleeps although the future can go on");
    });
}

//! Streams whose answers are longer than a message.

use crate::support::{attach, job};
use am_async::{CallConfig, CallEndpoint, CallError, Failure};
use am_core::loopback::{LoopbackConfig, network};
use am_core::{LossCause, Rank, Span};

#[test]
fn answers_of_any_size_come_in_order() {
    let lens = vec![0, 1, 50, 64, 65, 3000, 7, 8192, 8193, 20_000, 20_000, 1, 0, 300];
    for medium in [64, 512, 8192] {
        for (window, room) in [(1, 1), (3, 30_000), (32, 1 << 20)] {
            let config = CallConfig::new().stream_window(window).receive_bytes(room);
            job(2, LoopbackConfig::default().medium(medium), config, |endpoint, handles| {
                // Two at a time, of which one is this rank's own, beside calls with long answers.
                let streams = [Rank(1), Rank(0)].map(|rank| endpoint.stream(rank, handles.pieces, &lens));
                let call = endpoint.call(Rank(1), handles.make, &9000);
                for mut answers in streams {
                    for (number, len) in lens.iter().enumerate() {
                        assert_eq!(answers.wait_next(endpoint), Some(Ok(vec![number as u8; *len])));
                    }
                    let failure = Failure::new("x".repeat(300));
                    assert_eq!(answers.wait_next(endpoint), Some(Err(CallError::Failed(failure))));
                    assert_eq!(answers.wait_next(endpoint), None);
                }
                assert_eq!(call.wait(endpoint), Ok(vec![7; 9000]));
                assert_eq!(endpoint.caller().held(), 0);
            });
        }
    }
}

#[test]
fn answers_beyond_the_limits_are_errors() {
    let mut transports = network(2, LoopbackConfig::default().medium(256)).into_iter();
    let (a, b) = (transports.next().unwrap(), transports.next().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || attach(b, CallConfig::new().max_bytes(2000)).0.finish().unwrap());
        let (mut endpoint, handles) = attach(a, CallConfig::new().max_bytes(1000));
        let mut end = |len: usize| {
            let mut answers = endpoint.stream(Rank(1), handles.pieces, &vec![1, len]);
            assert_eq!(answers.wait_next(&mut endpoint), Some(Ok(vec![0])));
            answers.wait_next(&mut endpoint)
        };
        assert_eq!(end(998), Some(Ok(vec![1; 998])));
        // Too long for the caller, and for the callee.
        assert_eq!(end(1500), Some(Err(CallError::AnswerTooLarge { bytes: 1502, limit: 1000 })));
        let Some(Err(CallError::Failed(failure))) = end(1999) else { panic!("it is too long") };
        let text = "an answer of 2001 bytes exceeds the limit of 2000: raise CallConfig::max_bytes, or let the \
                    stream have more, shorter answers";
        assert_eq!(failure.to_string(), text);
        // An error at the end, too.
        let mut answers = endpoint.stream(Rank(1), handles.pieces, &vec![998]);
        assert_eq!(answers.wait_next(&mut endpoint), Some(Ok(vec![0; 998])));
        assert!(matches!(answers.wait_next(&mut endpoint), Some(Err(CallError::Failed(_)))));
        assert_eq!(endpoint.caller().held(), 0);
        endpoint.finish().unwrap();
    });
}

/// One that is dropped, or too late, gives the memory back that it waits for or has.
#[test]
fn streams_that_end_early_leave_nothing() {
    let config = CallConfig::new().receive_bytes(1).stream_window(2);
    job(2, LoopbackConfig::default().medium(64), config, |endpoint, handles| {
        for calls in 0..6 {
            let lens = vec![1, 5000, 5000, 3];
            let mut streams = [(); 3].map(|()| endpoint.stream(Rank(1), handles.pieces, &lens));
            // Behind the first one, a long one is announced; some of it comes.
            for answers in &mut streams {
                assert_eq!(answers.wait_next(endpoint), Some(Ok(vec![0])));
            }
            for _ in 0..calls {
                endpoint.call(Rank(1), handles.nothing, &()).wait(endpoint).unwrap();
            }
            drop(streams);
        }
        let hurried =
            endpoint.caller().timeout(Span::from_micros(30)).stream(Rank(1), handles.pieces, &vec![1 << 20]);
        let mut hurried = hurried;
        match hurried.wait_next(endpoint) {
            Some(Err(CallError::TimedOut { .. })) => {}
            other => assert_eq!(other.map(|answer| answer.map(|bytes| bytes.len())), Some(Ok(1 << 20))),
        }
        drop(hurried);
        let mut answers = endpoint.stream(Rank(1), handles.pieces, &vec![100_000]);
        assert_eq!(answers.wait_next(endpoint), Some(Ok(vec![0; 100_000])));
        drop(answers);
        assert_eq!((endpoint.caller().held(), endpoint.caller().under_way()), (0, 0));
    });
}

/// What a rank had answered before it left counts; the rest is lost with it.
#[test]
fn a_lost_rank_ends_its_streams_within_an_answer() {
    let mut transports = network(2, LoopbackConfig::default().medium(64)).into_iter();
    let (a, b) = (transports.next().unwrap(), transports.next().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut endpoint, _) = attach(b, CallConfig::default());
            endpoint.serve_until(|world| world.total == 1).unwrap();
            // Not all of the long answer has left.
            drop(endpoint);
        });
        let (mut endpoint, handles) = attach(a, CallConfig::default());
        let mut answers = endpoint.stream(Rank(1), handles.pieces, &vec![10, 2 << 20, 10]);
        assert_eq!(answers.wait_next(&mut endpoint), Some(Ok(vec![0; 10])));
        let _ = endpoint.call(Rank(1), handles.add, &1).wait(&mut endpoint);
        let lost = CallError::RankLost { rank: Rank(1), cause: LossCause::Left };
        assert_eq!(answers.wait_next(&mut endpoint), Some(Err(lost)));
        assert_eq!(answers.wait_next(&mut endpoint), None);
        assert_eq!(endpoint.caller().held(), 0);
        endpoint.leave();
    });
}

//! Aggregators when ranks leave or are lost, functions unwind, and peers send nonsense.

use super::aggregate::*;
use am_core::loopback::{LoopbackConfig, network};
use am_core::{Endpoint, Handlers, LossCause, Payload, Rank, Span};
use am_pgas::aggregate::*;
use am_pgas::{Pgas, pgas_state};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

#[test]
fn a_lost_rank_ends_the_end() {
    for route in [Route::Direct, Route::Matrix] {
        // Nobody leaves before all have attached.
        let attached = Barrier::new(5);
        on_ranks(5, LoopbackConfig::default().requests(2), |joining| {
            let config = AggregatorConfig::new().message_bytes(64).route(route);
            let (mut endpoint, aggregator) = slices(joining, config).unwrap();
            attached.wait();
            if endpoint.rank() == Rank(4) {
                let mut seed = 1;
                for item in 0..300 {
                    endpoint.push(aggregator, Rank(random(&mut seed, 5) as u32), item).unwrap();
                }
                drop(endpoint);
                return;
            }
            let lost = endpoint.done(aggregator).unwrap_err();
            assert_eq!(lost.loss(), Some((Rank(4), LossCause::Left)), "{lost}");
            assert_eq!(endpoint.push(aggregator, Rank(0), 1), Err(AggregateError::SaidDone));
            // It does not get better when the loss is acknowledged.
            endpoint.acknowledge_loss(Rank(4));
            assert_eq!(endpoint.done(aggregator).unwrap_err().lost_rank(), Some(Rank(4)));
            // Nothing that is held back for the lost rank keeps the others from draining.
            endpoint.drain().unwrap();
            endpoint.leave();
        });
    }
}

#[test]
fn pushing_to_a_lost_rank_fails() {
    // Nobody leaves before both have attached.
    let attached = Barrier::new(2);
    on_ranks(2, LoopbackConfig::default(), |joining| {
        let (mut endpoint, aggregator) = slices(joining, AggregatorConfig::new().message_bytes(64)).unwrap();
        attached.wait();
        if endpoint.rank() == Rank(1) {
            return;
        }
        assert!(endpoint.wait_until(|_| false).is_err());
        endpoint.acknowledge_loss(Rank(1));
        let error = (0..100).find_map(|item| endpoint.push(aggregator, Rank(1), item).err());
        assert_eq!(error, Some(AggregateError::Gone { rank: Rank(1), cause: Some(LossCause::Left) }));
        endpoint.push(aggregator, Rank(0), 1).unwrap();
        endpoint.drain().unwrap();
        assert_eq!(endpoint.usage(aggregator).unwrap().discarded, 8);
        assert_eq!(endpoint.leave().slices, [(0, vec![1])]);
    });
}

#[test]
fn a_function_that_unwinds_loses_its_items_alone() {
    let (mut endpoint, aggregator) = {
        let joining = Endpoint::builder(network(1, LoopbackConfig::default()).remove(0));
        let mut handlers = Handlers::<Slices>::new();
        let mut pgas = Pgas::register(&mut handlers).unwrap();
        let note = |state: &mut Slices, from: Rank, items: &[u64]| {
            assert!(!items.contains(&13), "deliberate");
            state.slices.push((from.0, items.to_vec()));
        };
        let config = AggregatorConfig::new().message_bytes(32);
        let aggregator = Aggregator::register(&joining, &mut pgas, &mut handlers, "slices", config, note).unwrap();
        (joining.attach(handlers, Slices { pgas, slices: Vec::new() }).unwrap(), aggregator)
    };
    for item in 0..20 {
        let push = std::panic::AssertUnwindSafe(|| endpoint.push(aggregator, Rank(0), item));
        if let Ok(pushed) = std::panic::catch_unwind(push) {
            pushed.unwrap();
        } else {
            // The function was called for items before this one.
            endpoint.push(aggregator, Rank(0), item).unwrap();
        }
    }
    endpoint.done(aggregator).unwrap();
    let slices = endpoint.finish().unwrap().slices;
    assert_eq!(slices.iter().map(|(_, items)| items.len()).sum::<usize>(), 16);
}

#[test]
fn an_iterator_that_unwinds_takes_nothing_back() {
    let joining = Endpoint::builder(network(1, LoopbackConfig::default()).remove(0));
    let mut handlers = Handlers::<Slices>::new();
    let mut pgas = Pgas::register(&mut handlers).unwrap();
    let note = |state: &mut Slices, from: Rank, items: &[u64]| state.slices.push((from.0, items.to_vec()));
    let config = AggregatorConfig::new().look_ahead(10);
    let aggregator = Aggregator::register(&joining, &mut pgas, &mut handlers, "slices", config, note).unwrap();
    let mut endpoint = joining.attach(handlers, Slices { pgas, slices: Vec::new() }).unwrap();
    let items = (0..20).map(|item| {
        assert_ne!(item, 14, "deliberate");
        (Rank(0), item)
    });
    let push = std::panic::AssertUnwindSafe(|| endpoint.push_all(aggregator, items));
    assert!(std::panic::catch_unwind(push).is_err());
    let usage = endpoint.usage(aggregator).unwrap();
    assert_eq!((usage.pushed, usage.look_ahead), (14, 10));
    assert!((4..=10).contains(&usage.held), "{usage:?}");
    endpoint.done(aggregator).unwrap();
    let slices = endpoint.finish().unwrap().slices;
    assert!(slices.iter().flat_map(|(_, items)| items).copied().eq(0..14), "{slices:?}");
}

#[test]
fn a_full_window_ends_with_its_rank() {
    let (filled, left) = (Barrier::new(2), Barrier::new(2));
    on_ranks(2, LoopbackConfig::default(), |joining| {
        let mut handlers = Handlers::<Pgas>::new();
        let mut pgas = Pgas::register(&mut handlers).unwrap();
        let config = AggregatorConfig::new().message_bytes(8).window(1);
        let nothing = |_: &mut Pgas, _: Rank, _: &[u64]| ();
        let answers =
            Aggregator::register(&joining, &mut pgas, &mut handlers, "answers", config, nothing).unwrap();
        let silent = |_: &mut Pgas, _: Rank, _: &[u64], _: &mut Emitter<'_, u64>| ();
        let layers = &mut pgas;
        let ask = Aggregator::register_answering(&joining, layers, &mut handlers, "ask", config, answers, silent)
            .unwrap();
        let joining = joining.timeout(Span::from_secs(5));
        let mut endpoint = joining.attach(handlers, pgas).unwrap();
        if endpoint.rank() == Rank(1) {
            // Leaves without serving: the window of rank 0 stays full.
            filled.wait();
            endpoint.leave();
            left.wait();
            return;
        }
        endpoint.push(ask, Rank(1), 1).unwrap();
        endpoint.push(ask, Rank(1), 2).unwrap();
        assert_eq!(endpoint.usage(ask).unwrap().messages, 1);
        filled.wait();
        left.wait();
        let gone = AggregateError::Gone { rank: Rank(1), cause: None };
        assert_eq!(endpoint.push(ask, Rank(1), 3), Err(gone));
        endpoint.drain().unwrap();
        let held = endpoint.usage(ask).unwrap();
        assert_eq!((held.held, held.discarded), (0, 1));
        endpoint.leave();
    });
}

#[test]
fn items_go_before_idling_after_a_push_unwound() {
    struct Asked {
        pgas: Pgas,
        asked: u64,
    }
    pgas_state!(Asked, pgas);
    const LAST: u32 = 20;
    let (seen, full, unwound) = (AtomicU32::new(0), Barrier::new(2), Barrier::new(2));
    let seen = Arc::new(seen);
    on_ranks(2, LoopbackConfig::default(), |joining| {
        let mut handlers = Handlers::<Asked>::new();
        let mut pgas = Pgas::register(&mut handlers).unwrap();
        let note = Arc::clone(&seen);
        let disturb = move |_: &mut Asked, _, number: u32, _: Payload<'_>| {
            assert!(number < LAST, "deliberate");
            note.store(number, Ordering::SeqCst);
        };
        let disturb = handlers.one_way("disturb", disturb).unwrap();
        let config = AggregatorConfig::new().message_bytes(8).window(1);
        let nothing = |_: &mut Asked, _: Rank, _: &[u64]| ();
        let layers = &mut pgas;
        let answers = Aggregator::register(&joining, layers, &mut handlers, "answers", config, nothing).unwrap();
        let count = |state: &mut Asked, _: Rank, items: &[u64], _: &mut Emitter<'_, u64>| {
            state.asked += items.len() as u64;
        };
        let ask = Aggregator::register_answering(&joining, layers, &mut handlers, "ask", config, answers, count);
        let ask = ask.unwrap();
        let joining = joining.timeout(Span::from_secs(5));
        let mut endpoint = joining.attach(handlers, Asked { pgas, asked: 0 }).unwrap();
        if endpoint.rank() == Rank(1) {
            full.wait();
            // One after the other, so that rank 0 takes most of them in while its push waits.
            for number in 1..=LAST {
                endpoint.try_request(Rank(0), disturb, number).unwrap();
                while number < LAST && seen.load(Ordering::SeqCst) != number {
                    thread::yield_now();
                }
            }
            unwound.wait();
        } else {
            // The second fills the lane, and nobody gives back the room of the first.
            endpoint.push(ask, Rank(1), 1).unwrap();
            endpoint.push(ask, Rank(1), 2).unwrap();
            full.wait();
            let push = std::panic::AssertUnwindSafe(|| endpoint.push(ask, Rank(1), 3));
            assert!(std::panic::catch_unwind(push).is_err());
            assert_eq!(seen.load(Ordering::SeqCst), LAST - 1);
            endpoint.push(ask, Rank(0), 4).unwrap();
            let waited = endpoint.wait_until(|state| state.asked == 1);
            unwound.wait();
            waited.unwrap();
        }
        endpoint.done(ask).unwrap();
        let due = if endpoint.rank() == Rank(1) { 2 } else { 1 };
        assert_eq!(endpoint.finish().unwrap().asked, due);
    });
}

#[test]
fn every_rank_learns_that_one_left_before_the_end() {
    let together = Barrier::new(3);
    on_ranks(4, LoopbackConfig::default(), |joining| {
        let joining = joining.timeout(Span::from_secs(5));
        let (mut endpoint, aggregator) = slices(joining, AggregatorConfig::new()).unwrap();
        if endpoint.rank() == Rank(3) {
            endpoint.leave();
            return;
        }
        // Only rank 2 is a neighbour of rank 3 in the tree.
        let ended = endpoint.done(aggregator);
        together.wait();
        assert_eq!(ended, Err(AggregateError::Gone { rank: Rank(3), cause: None }));
        endpoint.leave();
    });
}

#[test]
fn malformed_messages_are_refused_and_end_the_end() {
    let record = |to: u32| [7u64.to_ne_bytes().as_slice(), &to.to_le_bytes()].concat();
    let cases = [
        // For a rank that there is not; for the rank that it comes from.
        (1, 0u32, record(9), "has no way from here"),
        (1, 0, record(1), "has no way from here"),
        // From a rank that there is not.
        (2, 1, record(77), "has no way from here"),
        (2, 1, record(2).repeat(8), "exceeds the aggregator's 64 bytes"),
        (2, 0, record(2), "does not lead from rank 2"),
    ];
    for (faulty, hop, message, told) in &cases {
        let (sent, together) = (Barrier::new(2), Barrier::new(2));
        on_ranks(4, LoopbackConfig::default(), |joining| {
            let joining = joining.timeout(Span::from_secs(5));
            let me = joining.address().rank.0;
            if me == *faulty {
                let mut handlers = Handlers::<Pgas>::new();
                let pgas = Pgas::register(&mut handlers).unwrap();
                let ignore = |_: &mut Pgas, _, _: u32, _: Payload<'_>| ();
                let items = handlers.one_way("aggregate.slices 8/64 2h 4n", ignore).unwrap();
                let mut endpoint = joining.attach(handlers, pgas).unwrap();
                endpoint.try_request_medium(Rank(0), items, *hop, message).unwrap();
                sent.wait();
                endpoint.leave();
                return;
            }
            let config = AggregatorConfig::new().message_bytes(64).route(Route::Matrix);
            let (mut endpoint, aggregator) = slices(joining, config).unwrap();
            if me == 3 {
                assert!(endpoint.done(aggregator).is_err());
                endpoint.leave();
                return;
            }
            if me == 0 {
                sent.wait();
                let refused = endpoint.wait_until(|_| false).unwrap_err().to_string();
                assert!(refused.contains(told), "{refused}");
            }
            let ended = endpoint.done(aggregator);
            if *faulty == 2 {
                together.wait();
            }
            if *faulty == 2 || me == 0 {
                assert_eq!(ended, Err(AggregateError::Refused { rank: Rank(*faulty) }));
            }
            assert_eq!(endpoint.leave().slices, []);
        });
    }
}

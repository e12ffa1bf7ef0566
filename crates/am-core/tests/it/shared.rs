//! An endpoint that threads share: who waits sleeps without the lock, and leaving ends all handles.

use am_core::layer::Progress;
use am_core::loopback::{LoopbackConfig, network, single};
use am_core::{
    Endpoint, HandlerError, Handlers, PollError, Rank, Request, SharedEndpoint, Span, WaitError,
    loopback::Loopback,
};
use std::sync::mpsc;
use std::thread;

type Shared = SharedEndpoint<Loopback, u64>;

fn attach(transport: Loopback) -> (Shared, Request<u64>) {
    let mut handlers = Handlers::<u64>::new();
    let add = handlers.one_way("add", |sum, _, value: u64, _| *sum += value).unwrap();
    (SharedEndpoint::new(Endpoint::attach(transport, handlers, 0).unwrap()), add)
}

#[test]
fn a_change_by_another_thread_ends_a_wait() {
    let (shared, add) = attach(single());
    thread::scope(|scope| {
        // Three that wait for different things: one of them serves for all.
        for least in 1..4 {
            let shared = shared.clone();
            scope.spawn(move || shared.wait_until(|sum| *sum >= least).unwrap());
        }
        for _ in 0..50 {
            // Nobody holds the lock while it waits, or this would never get it.
            assert_eq!(*shared.lock().state(), 0);
            thread::sleep(std::time::Duration::from_millis(1));
        }
        shared.request(Rank(0), add, 1).unwrap();
        *shared.lock().state_mut() += 1;
        shared.request(Rank(0), add, 1).unwrap();
    });
    assert_eq!(shared.finish().unwrap(), 3);
}

#[test]
fn threads_on_both_sides_get_their_answers() {
    const EACH: u64 = 300;
    thread::scope(|scope| {
        for transport in network(2, LoopbackConfig::default().requests(2)) {
            scope.spawn(move || {
                let (shared, add) = attach(transport);
                let other = Rank(1 - shared.rank().0);
                thread::scope(|scope| {
                    for _ in 0..3 {
                        let shared = shared.clone();
                        scope.spawn(move || {
                            for _ in 0..EACH {
                                shared.request(other, add, 1).unwrap();
                            }
                            shared.wait_until(|sum| *sum == 3 * EACH).unwrap();
                        });
                    }
                });
                shared.drain().unwrap();
                shared.barrier().unwrap();
                assert_eq!(shared.finish().unwrap(), 3 * EACH);
            });
        }
    });
}

#[test]
fn a_timed_wait_tells_what_it_found() {
    let (shared, add) = attach(single());
    let WaitError::TimedOut(report) = shared.wait_until_for(Span::from_micros(200), |sum| *sum == 1).unwrap_err()
    else {
        panic!("nothing else can happen");
    };
    assert!(report.to_string().contains("waited"), "{report}");
    shared.request_medium_with(Rank(0), add, 1, 100, |buffer| buffer.write(0, &[1; 100])).unwrap();
    shared.wait_until_for(Span::from_secs(60), |sum| *sum == 1).unwrap();
}

#[test]
fn leaving_ends_all_handles() {
    let (shared, add) = attach(single());
    let other = shared.clone();
    let (sender, outcome) = mpsc::channel();
    let waiting = {
        let shared = shared.clone();
        thread::spawn(move || {
            sender.send(()).unwrap();
            let _ = shared.wait_until(|_| false);
        })
    };
    outcome.recv().unwrap();
    shared.request(Rank(0), add, 5).unwrap();
    assert_eq!(shared.finish().unwrap(), 5);
    // The handle that waited panics with a text, as every use does from now on.
    assert!(waiting.join().is_err());
    assert!(other.into_inner().is_err());
}

#[test]
fn a_panic_of_a_handler_ends_every_wait() {
    let mut handlers = Handlers::<u64>::new();
    let boom = handlers.one_way("boom", |_, _, (), _| panic!("no")).unwrap();
    let shared = SharedEndpoint::new(Endpoint::attach(single(), handlers, 0).unwrap());
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || {
                let _ = shared.wait_until(|_| false);
            })
        })
        .collect();
    thread::sleep(std::time::Duration::from_millis(20));
    shared.request(Rank(0), boom, ()).unwrap();
    // Whichever thread served it panicked, and so do all others, instead of waiting for ever.
    for waiting in waiting {
        assert!(waiting.join().is_err());
    }
}

#[test]
fn a_time_out_ends_every_wait() {
    let (shared, _) = attach(single());
    shared.lock().set_timeout(Span::from_millis(30));
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| shared.wait_until(|_| false))).collect();
        for waiting in waiting {
            assert!(matches!(waiting.join().unwrap(), Err(WaitError::TimedOut(_))));
        }
    });
}

#[test]
fn steady_traffic_keeps_nobody_from_the_lock() {
    let mut handlers = Handlers::<(u64, bool)>::new();
    let more = handlers.one_way("more", |state: &mut (u64, bool), _, (), _| state.0 += 1).unwrap();
    // A layer that goes on for ever, as a peer's flood would.
    handlers.progress(move |state, outbox| {
        if state.1 {
            return Ok(Progress::Idle);
        }
        outbox.try_request(Rank(0), more, ()).map(|()| Progress::Advanced).or(Ok(Progress::Blocked))
    });
    let shared = SharedEndpoint::new(Endpoint::attach(single(), handlers, (0, false)).unwrap());
    thread::scope(|scope| {
        scope.spawn(|| shared.wait_until(|(_, stop)| *stop).unwrap());
        for _ in 0..20 {
            let seen = shared.lock().state().0;
            while shared.lock().state().0 == seen {
                thread::yield_now();
            }
        }
        shared.lock().state_mut().1 = true;
    });
}

#[test]
fn a_barrier_sleeps_without_the_lock() {
    const THREADS: u64 = 3;
    let mut ranks = network(2, LoopbackConfig::default()).into_iter();
    let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
    let (free, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (shared, add) = attach(one);
            shared.request(Rank(0), add, 1).unwrap();
            // It comes once the other endpoint has been used by a thread that is in no barrier.
            for () in told {
                shared.barrier().unwrap();
            }
            assert_eq!(shared.lock().statistics().barriers, THREADS);
            shared.finish().unwrap();
        });
        let (shared, add) = attach(zero);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                let shared = shared.clone();
                scope.spawn(move || shared.barrier().unwrap());
            }
            for sum in 1..=THREADS {
                shared.wait_until(|now| *now >= sum).unwrap();
                shared.request(Rank(0), add, 1).unwrap();
                free.send(()).unwrap();
            }
            drop(free);
        });
        assert_eq!(shared.lock().statistics().barriers, THREADS);
        shared.finish().unwrap();
    });
}

#[test]
fn a_barrier_of_threads_defers_errors_of_handlers() {
    thread::scope(|scope| {
        for transport in network(2, LoopbackConfig::default()) {
            scope.spawn(move || {
                let mut handlers = Handlers::<u64>::new();
                let fail: Request<()> = handlers
                    .one_way("fail", |failed: &mut u64, _, (), _| {
                        *failed += 1;
                        Err::<(), _>(HandlerError::new("no"))
                    })
                    .unwrap();
                let shared = SharedEndpoint::new(Endpoint::attach(transport, handlers, 0).unwrap());
                shared.request(Rank(1 - shared.rank().0), fail, ()).unwrap();
                for _ in 0..3 {
                    shared.barrier().unwrap();
                }
                assert_eq!(*shared.lock().state(), 1, "messages of a pair are in order");
                assert!(matches!(shared.poll(), Err(PollError::Handler(_))));
                shared.finish().unwrap();
            });
        }
    });
}

#[test]
fn a_barrier_of_threads_names_who_is_lost() {
    let mut ranks = network(2, LoopbackConfig::default()).into_iter();
    let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
    let (attached, told) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (shared, _) = attach(one);
            told.recv().unwrap();
            drop(shared);
        });
        let (shared, _) = attach(zero);
        attached.send(()).unwrap();
        let lost = shared.barrier().unwrap_err();
        assert_eq!(lost.lost_rank(), Some(Rank(1)), "{lost}");
        shared.leave();
    });
}

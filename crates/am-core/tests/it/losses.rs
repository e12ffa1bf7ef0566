//! What an endpoint counts as when it goes because of another one's loss.

use crate::paced::{Clock, Paced};
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::supervision::{self, Event};
use am_core::{
    Address, Category, Endpoint, Handlers, LossCause, Membership, PeerStatus, PollError, Rank, WaitError,
    WaitReason,
};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, ThreadId};

type Plain = Endpoint<Loopback, ()>;

/// Rank 2 leaves; rank 1 does what is given; rank 0 tells what rank 1 then counts as.
fn status_after(second: impl FnOnce(Plain) + Send) -> PeerStatus {
    let mut ranks = network(3, LoopbackConfig::default()).into_iter();
    // Nobody goes before all have attached.
    let attached = Arc::new(Barrier::new(3));
    let mut next = || {
        let (transport, attached) = (ranks.next().unwrap(), Arc::clone(&attached));
        move || {
            let endpoint = Endpoint::attach(transport, Handlers::new(), ()).unwrap();
            attached.wait();
            endpoint
        }
    };
    let (zero, one, two) = (next(), next(), next());
    thread::scope(|scope| {
        scope.spawn(move || drop(two()));
        scope.spawn(move || catch_unwind(AssertUnwindSafe(|| second(one()))));
        scope
            .spawn(move || {
                let mut endpoint = zero();
                endpoint.acknowledge_loss(Rank(2));
                endpoint.acknowledge_loss(Rank(1));
                while endpoint.status(Rank(1)) == Some(PeerStatus::Active) {
                    endpoint.poll().unwrap();
                    thread::yield_now();
                }
                endpoint.status(Rank(1)).unwrap()
            })
            .join()
            .unwrap()
    })
}

#[test]
fn a_panic_over_a_loss_told_by_a_barrier_is_no_cause() {
    let status = status_after(|mut endpoint| {
        let lost = endpoint.barrier().unwrap_err();
        assert_eq!(lost.lost_rank(), Some(Rank(2)));
        panic!("the barrier failed");
    });
    assert_eq!(status, PeerStatus::Lost(LossCause::Left));
}

#[test]
fn a_panic_after_an_acknowledged_loss_is_a_cause() {
    let status = status_after(|mut endpoint| {
        endpoint.acknowledge_loss(Rank(2));
        while endpoint.status(Rank(2)) == Some(PeerStatus::Active) {
            thread::yield_now();
        }
        endpoint.poll().unwrap();
        panic!("something else failed");
    });
    assert_eq!(status, PeerStatus::Lost(LossCause::Panicked));
}

#[test]
fn a_reply_whose_handler_unwinds_is_counted() {
    let mut handlers = Handlers::<()>::new();
    let answer = handlers.reply("answer", |(), _, (), _| panic!("no")).unwrap();
    let ask = handlers.request("ask", move |(), token, (), _| token.reply(answer, ()).unwrap()).unwrap();
    let mut endpoint = Endpoint::attach(am_core::loopback::single(), handlers, ()).unwrap();
    endpoint.request(Rank(0), ask, ()).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| endpoint.wait_until(|()| false))).is_err());
    assert_eq!(endpoint.statistics().replies_received(Category::Short).messages, 1);
    assert_eq!(endpoint.stall_report().ended, Some(0));
    assert!(endpoint.poll().is_ok(), "the endpoint is usable");
    let _: Result<(), WaitError> = endpoint.finish();
}

/// The events of each thread's endpoints.
static EVENTS: Mutex<Vec<(ThreadId, Address, Event)>> = Mutex::new(Vec::new());

/// Has the events of all endpoints noted.
fn observe() {
    supervision::observe(|whose, event| EVENTS.lock().unwrap().push((thread::current().id(), whose, event)));
}

/// The events of this thread's endpoints so far.
fn events() -> Vec<(Rank, Event)> {
    let me = thread::current().id();
    // Endpoints of other tests tell of themselves meanwhile, so nothing may fail under the lock.
    let all = EVENTS.lock().unwrap().clone();
    all.iter().filter(|(thread, ..)| *thread == me).map(|(_, of, event)| (of.rank, *event)).collect()
}

/// However often and in whatever way the program learns of a loss.
#[test]
fn supervision_hears_of_a_loss_once() {
    observe();
    let mut ranks = network(2, LoopbackConfig::default()).into_iter();
    let mut next = || {
        let transport = ranks.next().unwrap();
        move || {
            let mut handlers = Handlers::<bool>::new();
            let ping = handlers.one_way("ping", |heard: &mut bool, _, (), _| *heard = true).unwrap();
            (Endpoint::attach(transport, handlers, false).unwrap(), ping)
        }
    };
    let (zero, one) = (next(), next());
    thread::scope(|scope| {
        scope.spawn(move || {
            // It leaves when both have attached.
            let (mut endpoint, _) = one();
            endpoint.wait_until(|heard| *heard).unwrap();
        });
        let (mut endpoint, ping) = zero();
        endpoint.request(Rank(1), ping, ()).unwrap();
        assert_eq!(endpoint.wait_until(|_| false).unwrap_err().lost_rank(), Some(Rank(1)));
        for _ in 0..2 {
            assert!(endpoint.wait_until(|_| false).is_err());
            assert!(endpoint.request(Rank(1), ping, ()).is_err());
            assert!(endpoint.barrier().is_err());
        }
        assert_eq!(events(), [(Rank(0), Event::LossTold(Rank(1)))]);
    });
}

#[test]
fn supervision_hears_of_endpoints_that_never_attach() {
    observe();
    let mut ranks = network(3, LoopbackConfig::default()).into_iter();
    let mut joining = || Endpoint::builder(ranks.next().unwrap());
    let (zero, one, two) = (joining(), joining(), joining());
    drop(one);
    let status = |of| zero.transport().status(am_core::Peer(of));
    assert_eq!(status(1), PeerStatus::Lost(LossCause::Left));
    let bound = zero.max_payload(Category::Medium, am_core::transport::Lane::Reply, 0) as u32 + 1;
    let mut handlers = Handlers::<()>::new();
    handlers.request_bounded("large", bound, |(), _, (), _| ()).unwrap();
    two.attach(handlers, ()).unwrap_err();
    assert_eq!(status(2), PeerStatus::Lost(LossCause::Left));
    assert_eq!(events(), [(Rank(1), Event::Left), (Rank(2), Event::Left)]);
}

/// Rank 2 is lost and a handler of rank 0 fails while rank 0 waits for rank 1, which speaks last.
#[test]
fn some_waits_go_on_in_spite_of_losses() {
    let mut ranks = network(3, LoopbackConfig::default()).into_iter();
    let attached = Arc::new(Barrier::new(3));
    let (lost, may_speak) = std::sync::mpsc::channel();
    let mut next = || {
        let (transport, attached) = (ranks.next().unwrap(), Arc::clone(&attached));
        move || {
            let mut handlers = Handlers::<u32>::new();
            let fail = handlers.one_way("fail", |_, _, (), _| Err(am_core::HandlerError::new("as it should")));
            let count = handlers.one_way("count", |count: &mut u32, _, (), _| *count += 1).unwrap();
            let endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
            attached.wait();
            (endpoint, fail.unwrap(), count)
        }
    };
    let (zero, one, two) = (next(), next(), next());
    thread::scope(|scope| {
        scope.spawn(move || drop(two()));
        scope.spawn(move || {
            let (mut endpoint, fail, count) = one();
            endpoint.request(Rank(0), fail, ()).unwrap();
            may_speak.recv().unwrap();
            endpoint.request(Rank(0), count, ()).unwrap();
            endpoint.leave();
        });
        let (mut endpoint, _, _) = zero();
        while endpoint.losses() == 0 {
            thread::yield_now();
        }
        let mut lost = Some(lost);
        let seen = endpoint.wait_through(|endpoint| {
            if let Some(lost) = lost.take() {
                lost.send(()).unwrap();
            }
            let arrived = *endpoint.state() == 1;
            let flow = if arrived {
                ControlFlow::Break(endpoint.losses())
            } else {
                ControlFlow::Continue(WaitReason::Message)
            };
            Ok::<_, WaitError>(flow)
        });
        assert_eq!(seen, Ok(1));
        let first = endpoint.poll();
        assert!(matches!(&first, Err(PollError::Handler(_))), "the handler's error comes first: {first:?}");
        let second = endpoint.poll();
        assert_eq!(second, Err(PollError::PeerLost { rank: Rank(2), cause: LossCause::Left }));
        assert_eq!(endpoint.poll(), Ok(0));
        endpoint.leave();
    });
}

/// The transport refuses a barrier's message for a loss that it has not counted yet.
#[test]
fn a_barrier_names_the_cause_of_a_new_loss() {
    let mut ranks = network(2, LoopbackConfig::default()).into_iter();
    let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
    let (attached, gone) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _endpoint = Endpoint::attach(one, Handlers::new(), ()).unwrap();
                attached.wait();
                panic!("on purpose");
            }));
            assert!(panicked.is_err());
            gone.wait();
        });
        let transport = Paced { inner: zero, clock: Clock::new(), spins: true, uncounted: true };
        let mut endpoint = Endpoint::attach(transport, Handlers::new(), ()).unwrap();
        attached.wait();
        gone.wait();
        let told = endpoint.barrier();
        let lost = PollError::PeerLost { rank: Rank(1), cause: LossCause::Panicked };
        assert_eq!(told, Err(WaitError::Poll(lost)));
    });
}

/// Rank 1 comes to the barrier last and leaves at once, so that its message and the news of its loss are found by
/// one poll: the barrier ends well, and the next poll tells of the loss.
#[test]
fn a_loss_that_a_barrier_passes_over_is_told() {
    let mut ranks = network(2, LoopbackConfig::default()).into_iter();
    let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
    let (attached, meeting, clock) = (Barrier::new(2), Arc::new(Barrier::new(2)), Clock::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut endpoint = Endpoint::attach(one, Handlers::new(), ()).unwrap();
            attached.wait();
            // Rank 0 has sent its message of the barrier and is about to look.
            meeting.wait();
            endpoint.barrier().unwrap();
            drop(endpoint);
            meeting.wait();
        });
        let transport = Paced { inner: zero, clock: Arc::clone(&clock), spins: true, uncounted: false };
        let mut endpoint = Endpoint::attach(transport, Handlers::new(), ()).unwrap();
        *clock.meeting.lock().unwrap() = Some(Arc::clone(&meeting));
        attached.wait();
        endpoint.barrier().unwrap();
        assert_eq!(endpoint.losses(), 1);
        assert_eq!(endpoint.poll(), Err(PollError::PeerLost { rank: Rank(1), cause: LossCause::Left }));
        assert_eq!(endpoint.poll(), Ok(0), "once");
        endpoint.leave();
    });
}

/// What a lost rank sent before is served through the news of its loss, however much it is.
#[test]
fn a_layer_has_all_that_a_lost_rank_sent() {
    const SENT: usize = 700;
    let mut config = LoopbackConfig::default();
    config.requests = SENT;
    let mut ranks = network(2, config).into_iter();
    let mut next = || {
        let transport = ranks.next().unwrap();
        move || {
            let mut handlers = Handlers::<usize>::new();
            let count = handlers.one_way("count", |counted: &mut usize, _, (), _| *counted += 1).unwrap();
            (Endpoint::attach(transport, handlers, 0).unwrap(), count)
        }
    };
    let (zero, one) = (next(), next());
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut endpoint, count) = one();
            (0..SENT).for_each(|_| endpoint.request(Rank(0), count, ()).unwrap());
        });
        let (mut endpoint, _) = zero();
        while endpoint.status(Rank(1)) == Some(PeerStatus::Active) {
            thread::yield_now();
        }
        endpoint.poll_through().unwrap();
        endpoint.serve_through();
        assert_eq!(*endpoint.state(), SENT);
        // The program hears of the loss all the same, once it is counted, which may be after the status has
        // changed.
        let told = loop {
            match endpoint.poll() {
                Ok(_) => thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert!(matches!(told, PollError::PeerLost { rank: Rank(1), .. }));
    });
}

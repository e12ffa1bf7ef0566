//! Layers that want to be called at a time: every wait idles no longer than until then, on a clock that only
//! idling moves.

use crate::paced::{Clock, NONE, Paced};
use am_core::layer::Progress;
use am_core::loopback::{Loopback, LoopbackConfig, network, single};
use am_core::transport::WaitReason;
use am_core::{Endpoint, Handlers, Instant, Rank, Request, SharedEndpoint, Span};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// A layer that waits for the alarm, and has work left until it rang if it is asked to.
struct Alarm {
    clock: Arc<Clock>,
    holds_up: bool,
    rang: Option<Sender<()>>,
}

fn attach(inner: Loopback, spins: bool) -> (Endpoint<Paced, Alarm>, Arc<Clock>, Request<()>) {
    let clock = Clock::new();
    let mut handlers = Handlers::<Alarm>::new();
    let mut layer = handlers.layer::<Alarm>("alarm").unwrap();
    let note = layer.one_way("note", |_, _, (), _| ()).unwrap();
    layer.progress(|alarm, outbox| {
        let Some(due) = alarm.clock.due() else { return Ok(Progress::Idle) };
        // Of several wishes the earliest counts.
        outbox.wake_at(Instant(due + 1));
        outbox.wake_at(Instant(due));
        outbox.wake_at(Instant(due + 2));
        if outbox.now() < Instant(due) {
            return Ok(if alarm.holds_up { Progress::Blocked } else { Progress::Idle });
        }
        alarm.clock.due.store(NONE, SeqCst);
        alarm.clock.rang.store(outbox.now().0, SeqCst);
        alarm.clock.rings.fetch_add(1, SeqCst);
        alarm.rang.take().map(|rang| rang.send(()));
        Ok(Progress::Advanced)
    });
    let state = Alarm { clock: Arc::clone(&clock), holds_up: false, rang: None };
    let transport = Paced { inner, clock: Arc::clone(&clock), spins, uncounted: false };
    let mut endpoint = Endpoint::attach(transport, handlers, state).unwrap();
    endpoint.set_timeout(Span::from_secs(100_000));
    (endpoint, clock, note)
}

/// Sets the alarm a millisecond from now.
fn set(endpoint: &mut Endpoint<Paced, Alarm>) -> u64 {
    let due = endpoint.now().0 + Span::from_millis(1).picos();
    endpoint.layer_mut::<Alarm>().clock.due.store(due, SeqCst);
    due
}

/// The alarm rings when it is due, in each kind of wait.
fn in_every_wait(spins: bool) {
    let (mut endpoint, clock, _) = attach(single(), spins);
    let rang = |count| move |alarm: &Alarm| alarm.clock.rings.load(SeqCst) == count;
    for (kind, wait) in (1..).zip([
        (|endpoint, count| endpoint.wait_until(move |alarm| alarm.clock.rings.load(SeqCst) == count).unwrap())
            as fn(&mut Endpoint<Paced, Alarm>, u64),
        |endpoint, count| {
            let span = Span::from_secs(10);
            endpoint.wait_until_for(span, move |alarm| alarm.clock.rings.load(SeqCst) == count).unwrap();
        },
        |endpoint, count| {
            while endpoint.state().clock.rings.load(SeqCst) != count {
                endpoint.poll_or_idle(Span::from_secs(10)).unwrap();
            }
        },
        |endpoint, _| {
            endpoint.layer_mut::<Alarm>().holds_up = true;
            endpoint.drain().unwrap();
        },
        |endpoint, _| endpoint.quiesce().unwrap(),
        |endpoint, count| {
            let rang = |endpoint: &mut Endpoint<Paced, Alarm>| {
                Ok::<_, am_core::WaitError>((endpoint.state().clock.rings.load(SeqCst) == count).then_some(()))
            };
            endpoint.wait_for(rang).unwrap();
        },
        |endpoint, count| {
            use std::ops::ControlFlow::{Break, Continue};
            endpoint
                .wait_through(|endpoint| {
                    let rang = endpoint.state().clock.rings.load(SeqCst) == count;
                    Ok::<_, am_core::WaitError>(if rang { Break(()) } else { Continue(WaitReason::Message) })
                })
                .unwrap();
        },
    ]) {
        let due = set(&mut endpoint);
        wait(&mut endpoint, kind);
        assert!(rang(kind)(endpoint.state()), "wait {kind}");
        assert_eq!(clock.rang.load(SeqCst), due, "wait {kind}, at the time asked for");
    }
    endpoint.finish().unwrap();
}

#[test]
fn layers_wake_up_in_every_wait() {
    in_every_wait(false);
}

#[test]
fn layers_wake_up_in_every_wait_that_spins() {
    in_every_wait(true);
}

#[test]
fn layers_wake_up_in_barriers_and_for_room() {
    for spins in [false, true] {
        let mut ranks = network(2, LoopbackConfig::default().requests(4)).into_iter();
        let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
        let ((rang, has_rung), (passed, has_passed)) = (channel(), channel());
        thread::scope(|scope| {
            scope.spawn(move || {
                let (mut endpoint, _, _) = attach(one, spins);
                for _ in 0..2 {
                    // It comes, and serves, when the alarm of the other has rung.
                    has_rung.recv().unwrap();
                    endpoint.barrier().unwrap();
                    passed.send(()).unwrap();
                }
                endpoint.finish().unwrap();
            });
            let (mut endpoint, clock, note) = attach(zero, spins);
            let due = set(&mut endpoint);
            endpoint.layer_mut::<Alarm>().rang = Some(rang.clone());
            endpoint.barrier().unwrap();
            assert_eq!(clock.rang.load(SeqCst), due);
            // Nobody serves from here on until the alarm rings.
            has_passed.recv().unwrap();
            while endpoint.try_request(Rank(1), note, ()).is_ok() {}
            let due = set(&mut endpoint);
            endpoint.layer_mut::<Alarm>().rang = Some(rang);
            // There is room once the other serves.
            endpoint.request(Rank(1), note, ()).unwrap();
            assert_eq!(clock.rang.load(SeqCst), due);
            endpoint.barrier().unwrap();
            endpoint.finish().unwrap();
        });
    }
}

#[test]
fn layers_wake_up_in_polls() {
    let (mut endpoint, clock, _) = attach(single(), false);
    let due = set(&mut endpoint);
    endpoint.poll().unwrap();
    assert_eq!(endpoint.wake_time(), Some(Instant(due)));
    for _ in 0..100 {
        endpoint.poll().unwrap();
    }
    assert_eq!(clock.rings.load(SeqCst), 0);
    clock.now.store(due, SeqCst);
    endpoint.poll().unwrap();
    assert_eq!((clock.rings.load(SeqCst), endpoint.wake_time()), (1, Some(Instant(due))), "it may go on");
    endpoint.poll().unwrap();
    assert_eq!(endpoint.wake_time(), None);
    endpoint.finish().unwrap();
}

#[test]
fn layers_wake_up_while_threads_wait() {
    let (mut endpoint, clock, _) = attach(single(), false);
    set(&mut endpoint);
    let shared = SharedEndpoint::new(endpoint);
    thread::scope(|scope| {
        for _ in 0..3 {
            let shared = shared.clone();
            scope.spawn(move || shared.wait_until(|alarm| alarm.clock.rings.load(SeqCst) == 1).unwrap());
        }
    });
    set(&mut shared.lock());
    shared.drain().unwrap();
    shared.wait_until_for(Span::from_secs(600), |alarm| alarm.clock.rings.load(SeqCst) == 2).unwrap();
    assert_eq!(clock.rings.load(SeqCst), 2);
    shared.finish().unwrap();
}

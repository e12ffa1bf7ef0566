//! Death notices: who is told of a rank's end need not wait for its silence, whatever it is doing at that moment.

use am_core::Waiting as _;
use am_core::transport::{LossCause, Membership, Notify, PeerStatus, Transport};
use am_core::{Address, Endpoint, Handlers, Payload, Peer, PollError, Rank, Request, SendError, Span, WaitError};
use std::sync::{Arc, mpsc};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;
use transport_udp::{FailureNotifier, LocalJob, LocalOptions, Udp, UdpConfig, WaitMode};

const LIMIT: Duration = Duration::from_secs(60);

/// Ranks that would wait for an hour until they take a peer for dead.
fn job(ranks: u32, waiting: WaitMode) -> LocalJob {
    let mut config = UdpConfig::new([]);
    config.protocol.silence = Span::from_secs(3600);
    config.linger = Duration::from_millis(50);
    config.waiting = waiting;
    LocalJob::with(ranks, LocalOptions::default(), config).unwrap()
}

type Hook = Box<dyn FnMut() + Send>;

#[derive(Default)]
struct State {
    count: u64,
    hook: Option<Hook>,
}

fn attach(job: &LocalJob, rank: u32) -> (Endpoint<Udp, State>, Request<u64>) {
    let mut handlers = Handlers::<State>::new();
    let note = handlers
        .one_way("note", |state: &mut State, _: Address, _: u64, _: Payload<'_>| {
            state.count += 1;
            if let Some(hook) = &mut state.hook {
                hook();
            }
        })
        .unwrap();
    let mut endpoint = Endpoint::builder(job.join(rank).unwrap())
        .timeout(Some(LIMIT.into()))
        .attach(handlers, State::default())
        .unwrap();
    endpoint.barrier().unwrap();
    (endpoint, note)
}

fn says_lost(result: Result<(), WaitError>, lost: u32) -> bool {
    let Err(WaitError::Poll(PollError::PeerLost { rank, cause: LossCause::Died, .. })) = result else {
        return false;
    };
    rank == Rank(lost)
}

/// Rank 2 vanishes without a word while the others wait for it; the notice ends their waits, and they go on
/// together.
#[test]
fn who_waits_is_woken_and_the_survivors_go_on() {
    for waiting in [WaitMode::Blocking, WaitMode::Adaptive, WaitMode::Polled] {
        let job = Arc::new(job(3, waiting));
        let (tell, told) = mpsc::channel::<()>();
        let theirs = Arc::clone(&job);
        let silent = thread::spawn(move || {
            let (endpoint, _) = attach(&theirs, 2);
            // Its helper answers for it until the end of this test; it is as good as dead for the programs.
            told.recv_timeout(LIMIT).unwrap_err();
            drop(endpoint);
        });
        let (handles, notifiers) = mpsc::channel::<FailureNotifier>();
        let survivors: Vec<_> = (0..2)
            .map(|rank| {
                let (job, handles) = (Arc::clone(&job), handles.clone());
                thread::spawn(move || {
                    let (mut endpoint, note) = attach(&job, rank);
                    handles.send(endpoint.transport().failure_notifier()).unwrap();
                    assert!(says_lost(endpoint.wait_until(|_| false), 2));
                    endpoint.acknowledge_loss(Rank(2));
                    let refused = endpoint.request(Rank(2), note, 1);
                    assert!(matches!(refused, Err(SendError::Wait(why)) if why.lost_rank() == Some(Rank(2))));
                    endpoint.request(Rank(1 - rank), note, 1).unwrap();
                    endpoint.wait_until(|state| state.count == 1).unwrap();
                    endpoint.leave();
                })
            })
            .collect();
        let handles: Vec<_> = (0..2).map(|_| notifiers.recv_timeout(LIMIT).unwrap()).collect();
        // They fall asleep meanwhile if they may; the outcome does not depend on it.
        thread::sleep(Duration::from_millis(20));
        for notifier in &handles {
            notifier.lost(Rank(2), LossCause::Died);
            notifier.lost(Rank(2), LossCause::Silent);
            notifier.lost(Rank(77), LossCause::Died);
        }
        survivors.into_iter().for_each(|survivor| survivor.join().unwrap());
        // The endpoints are gone; so is the matter.
        handles.iter().for_each(|notifier| notifier.lost(Rank(1), LossCause::Died));
        drop(tell);
        silent.join().unwrap();
    }
}

/// A handler that holds up everything else does not hold up the notice.
#[test]
fn a_notice_does_not_wait_for_handlers() {
    let job = Arc::new(job(2, WaitMode::Adaptive));
    let theirs = Arc::clone(&job);
    let other = thread::spawn(move || attach(&theirs, 1).0);
    let (mut endpoint, note) = attach(&job, 0);
    let other = other.join().unwrap();
    let notifier = endpoint.transport().failure_notifier();
    let (begin, begun) = mpsc::channel();
    let (done, waits) = mpsc::channel();
    // The handler runs within a poll, under the endpoint's lock.
    endpoint.state_mut().hook = Some(Box::new(move || {
        begin.send(()).unwrap();
        waits.recv_timeout(LIMIT).expect("the notice is given while this handler runs");
    }));
    let teller = thread::spawn(move || {
        begun.recv_timeout(LIMIT).unwrap();
        notifier.lost(Rank(1), LossCause::Died);
        done.send(()).unwrap();
    });
    endpoint.request(Rank(0), note, 1).unwrap();
    assert!(says_lost(endpoint.wait_until(|_| false), 1));
    assert_eq!(endpoint.state().count, 1);
    teller.join().unwrap();
    drop(other);
}

struct Bell(mpsc::Sender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// A program that waits for several things at once leaves its endpoint to the helper, which hears the notice.
#[test]
fn the_helper_hears_a_notice_too() {
    let job = job(2, WaitMode::Adaptive);
    let [mut a, _b] = [0, 1].map(|rank| job.join(rank).unwrap());
    let (ring, rung) = mpsc::channel();
    let waker = Waker::from(Arc::new(Bell(ring)));
    let notifier = a.failure_notifier();
    let nobody = &mut Nobody;
    // What the opening of sessions stirs up goes first.
    while !a.machine(|machine| machine.is_connected(Peer(1))) || a.notify(&waker) == Notify::Ready {
        a.poll(10, nobody);
    }
    while rung.recv_timeout(Duration::from_millis(20)).is_ok() {
        while a.notify(&waker) == Notify::Ready {
            a.poll(10, nobody);
        }
    }
    notifier.lost(Rank(1), LossCause::Died);
    while a.losses() == 0 {
        rung.recv_timeout(LIMIT).expect("the helper calls");
        a.poll(10, nobody);
        let _ = a.notify(&waker);
    }
    assert_eq!((a.losses(), a.status(Peer(1))), (1, PeerStatus::Lost(LossCause::Died)));
    a.declare_lost(Rank(0), LossCause::Died);
    a.poll(10, nobody);
    assert_eq!((a.losses(), a.status(Peer(0))), (1, PeerStatus::Active), "nobody is told of its own death");
}

struct Nobody;

impl am_core::transport::Sink for Nobody {
    fn request(&mut self, _: am_core::transport::Arrival<'_>, _: &mut dyn am_core::transport::ReplyPath) {}
    fn reply(&mut self, _: am_core::transport::Arrival<'_>) {}
    fn control(&mut self, _: Peer, _: &am_core::arguments::Words, _: Payload<'_>) {}
}

//! A waker is called when something comes, and only an endpoint that asks for one has a thread for it.

use am_conformance::CountingSink;
use am_core::transport::{Body, Notify, ReplyBound, RequestHeader, Transport};
use am_core::{LossCause, Membership, Peer, PeerStatus, Waiting, Words};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;
use transport_shm::{Job, JobConfig, Shm};

const LIMIT: Duration = Duration::from_secs(60);
const ONE_WAY: RequestHeader = RequestHeader::new(0, ReplyBound::None);

struct Call(Mutex<Sender<()>>);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        // A test that has ended needs no call.
        let _ = self.0.lock().unwrap().send(());
    }
}

fn waker() -> (Waker, Receiver<()>) {
    let (sender, calls) = mpsc::channel();
    (Arc::new(Call(Mutex::new(sender))).into(), calls)
}

/// Two endpoints that never look for themselves while they sleep: who is not called sleeps for longer than the
/// test waits.
fn two() -> [Shm; 2] {
    let job = Job::create(&JobConfig::new(2)).unwrap();
    [0, 1].map(|rank| {
        let mut shm = job.join(rank).unwrap();
        shm.set_longest_sleep(100 * LIMIT);
        shm
    })
}

/// Polls until nothing more comes and the waker is armed; returns how many messages came.
fn arm(shm: &mut Shm, waker: &Waker) -> u64 {
    let mut count = CountingSink::default();
    loop {
        shm.poll(100, &mut count);
        match shm.notify(waker) {
            Notify::Armed => return count.0,
            Notify::Ready => {}
            Notify::Never => panic!("shared memory calls wakers"),
        }
    }
}

#[test]
fn a_message_calls_the_waker() {
    let [mut first, mut second] = two();
    let (waker, calls) = waker();
    for _ in 0..200 {
        arm(&mut second, &waker);
        first.send(Peer(1), ONE_WAY, &Words::EMPTY, Body::None).unwrap();
        calls.recv_timeout(LIMIT).expect("the message calls");
        let mut count = CountingSink::default();
        // A call for nothing is allowed, a message without a call is not.
        while count.0 == 0 {
            second.poll(100, &mut count);
        }
    }
}

#[test]
fn what_is_there_arms_nothing() {
    let [mut first, mut second] = two();
    let (waker, _calls) = waker();
    first.send(Peer(1), ONE_WAY, &Words::EMPTY, Body::None).unwrap();
    assert_eq!(second.notify(&waker), Notify::Ready);
    assert_eq!(arm(&mut second, &waker), 1);
}

#[test]
fn room_calls_the_waker() {
    let [mut first, mut second] = two();
    let (waker, calls) = waker();
    while first.send(Peer(1), ONE_WAY, &Words::EMPTY, Body::None).is_ok() {}
    arm(&mut first, &waker);
    let mut count = CountingSink::default();
    while second.poll(1000, &mut count) != 0 {}
    calls.recv_timeout(LIMIT).expect("room calls");
    first.send(Peer(1), ONE_WAY, &Words::EMPTY, Body::None).unwrap();
}

#[test]
fn a_loss_calls_the_waker() {
    let [first, mut second] = two();
    let (waker, calls) = waker();
    arm(&mut second, &waker);
    drop(first);
    calls.recv_timeout(LIMIT).expect("the loss calls");
    arm(&mut second, &waker);
    assert_eq!(second.status(Peer(0)), PeerStatus::Lost(LossCause::Left));
}

#[test]
fn another_thread_calls_by_the_waker() {
    let [_first, mut second] = two();
    let (waker, calls) = waker();
    arm(&mut second, &waker);
    second.waker().unwrap().wake();
    calls.recv_timeout(LIMIT).expect("the waker calls");
}

#[test]
fn sleeping_and_wakers_get_on() {
    let [mut first, mut second] = two();
    let (waker, calls) = waker();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..100 {
                while first.send(Peer(1), ONE_WAY, &Words::EMPTY, Body::None).is_err() {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let mut count = CountingSink::default();
        while count.0 < 100 {
            count.0 += arm(&mut second, &waker);
            if count.0 >= 100 {
                break;
            }
            // Sometimes it goes on by itself while the other thread still sleeps for it.
            if count.0.is_multiple_of(2) {
                second.idle(None, am_core::WaitReason::Message);
            } else {
                calls.recv_timeout(LIMIT).expect("every message calls");
            }
            second.poll(100, &mut count);
        }
    });
}

#[test]
fn only_those_who_ask_have_a_thread() {
    let threads = |name: &str| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let named = |task: &std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        tasks.filter_map(Result::ok).filter(named).count()
    };
    let job = Job::create(&JobConfig::new(78)).unwrap();
    let mut shm = job.join(77).unwrap();
    assert_eq!(shm.poll(10, &mut CountingSink::default()), 0);
    assert_eq!(threads("am-bell-77"), 0);
    let (waker, _calls) = waker();
    arm(&mut shm, &waker);
    // A thread names itself when it begins.
    while threads("am-bell-77") == 0 {
        std::thread::yield_now();
    }
    drop(shm);
    assert_eq!(threads("am-bell-77"), 0);
}

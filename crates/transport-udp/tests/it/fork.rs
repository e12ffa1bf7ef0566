//! A process that forks goes on as if nothing had happened; its child can neither use its endpoints nor harm them.

use am_core::transport::{
    Arrival, Body, Notify, Owed, ReplyBound, ReplyPath, RequestHeader, Sink, Transport, Waiting,
};
use am_core::{
    Address, Endpoint, Handlers, LossCause, Payload, Peer, PollError, Rank, Request, Token, WaitError, Words,
};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, alarm, fork};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Wake, Waker};
use std::time::Duration;
use transport_udp::proto::Dropped;
use transport_udp::{LocalJob, Udp};

/// What ranks count, and the child that the handler of rank 1 makes when it is asked to.
#[derive(Default)]
struct State {
    sum: u64,
    child: Option<Pid>,
    is_child: bool,
}

type Rank0 = Endpoint<Udp, State>;

/// Forks; `None` in the child.
fn split() -> Option<Pid> {
    // SAFETY: the child of this program with several threads does only what needs no thread and no lock of them:
    // it asks the endpoint, which takes no lock in a child, drops it, and exits. The C library keeps its allocator
    // usable in children.
    match unsafe { fork() }.expect("a process may fork") {
        ForkResult::Parent { child } => Some(child),
        ForkResult::Child => None,
    }
}

fn handlers() -> (Handlers<State>, Request<u64>) {
    let mut handlers = Handlers::<State>::new();
    let sum = handlers
        .reply("sum", |state: &mut State, _: Address, value: u64, _: Payload<'_>| state.sum += value)
        .unwrap();
    let add = handlers
        .request("add", move |state: &mut State, token: Token<'_>, value: u64, _: Payload<'_>| {
            if value == 1000 {
                state.child = split();
                state.is_child = state.child.is_none();
            }
            // In the child this is sealed and goes nowhere.
            let _ = token.reply(sum, value);
        })
        .unwrap();
    (handlers, add)
}

/// What the child does with an endpoint of its parent; exits with 0 if that is told to be an error.
fn try_in_child(mut endpoint: Rank0, add: Request<u64>) -> ! {
    // A child that takes a lock of its parent's threads would wait for ever; so it is ended, which the parent
    // sees.
    alarm::set(60);
    let forked =
        |error: &WaitError| matches!(error, WaitError::Poll(PollError::PeerLost { cause: LossCause::Forked, .. }));
    let polled = endpoint.wait_until(|_| false).is_err_and(|error| forked(&error));
    let sent = (0..2).all(|rank| endpoint.request(Rank(rank), add, 5).is_err());
    let lost = endpoint.lost().iter().all(|(_, cause)| *cause == LossCause::Forked);
    let waited = endpoint.barrier().is_err();
    let owes = endpoint.transport().owed(Peer(1)) == Some(Owed::default());
    endpoint.flush();
    drop(endpoint);
    std::process::exit(if polled && sent && lost && waited && owes { 0 } else { 1 })
}

fn exchange(endpoint: &mut Rank0, add: Request<u64>, value: u64) {
    let before = endpoint.state().sum;
    endpoint.request(Rank(1), add, value).unwrap();
    endpoint.wait_until(|state| state.sum == before + value).unwrap();
}

fn well(child: Pid) {
    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
}

#[test]
fn a_child_is_told_that_the_endpoint_is_its_parents() {
    let job = LocalJob::new(2).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (handlers, add) = handlers();
            let mut endpoint = Endpoint::attach(job.join(0).unwrap(), handlers, State::default()).unwrap();
            exchange(&mut endpoint, add, 3);
            // With requests under way, which both would send.
            for _ in 0..100 {
                endpoint.request(Rank(1), add, 1).unwrap();
            }
            let Some(child) = split() else { try_in_child(endpoint, add) };
            well(child);
            endpoint.wait_until(|state| state.sum == 103).unwrap();
            exchange(&mut endpoint, add, 1000);
            exchange(&mut endpoint, add, 7);
            endpoint.barrier().unwrap();
            endpoint.finish().unwrap();
        });
        scope.spawn(|| {
            let (handlers, add) = handlers();
            let mut endpoint = Endpoint::attach(job.join(1).unwrap(), handlers, State::default()).unwrap();
            let waited = endpoint.wait_until(|state| state.child.is_some() || state.is_child);
            if endpoint.state().is_child {
                try_in_child(endpoint, add);
            }
            waited.unwrap();
            well(endpoint.state().child.unwrap());
            endpoint.barrier().unwrap();
            let dropped = endpoint.transport().machine(|machine| machine.counters().dropped);
            assert_eq!(dropped[Dropped::Replayed as usize] + dropped[Dropped::Forged as usize], 0);
            endpoint.finish().unwrap();
        });
    });
}

/// Messages in a row are staged outside the endpoint's lock; those that wait when the process forks leave once, by
/// the parent.
#[test]
fn a_child_sends_none_of_a_row() {
    let job = LocalJob::new(2).unwrap();
    let attach = |rank| {
        let mut handlers = Handlers::<Vec<u64>>::new();
        let note = |seen: &mut Vec<u64>, _: Address, value: u64, _: Payload<'_>| seen.push(value);
        let note = handlers.one_way("note", note).unwrap();
        (Endpoint::attach(job.join(rank).unwrap(), handlers, Vec::new()).unwrap(), note)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut endpoint, note) = attach(0);
            endpoint.barrier().unwrap();
            (0..100).for_each(|value| endpoint.request(Rank(1), note, value).unwrap());
            let Some(child) = split() else {
                alarm::set(60);
                let sent = endpoint.request(Rank(1), note, 1000).is_ok();
                endpoint.flush();
                let polled = endpoint.poll().is_ok();
                drop(endpoint);
                std::process::exit(i32::from(sent || polled))
            };
            well(child);
            (100..200).for_each(|value| endpoint.request(Rank(1), note, value).unwrap());
            endpoint.barrier().unwrap();
            endpoint.finish().unwrap();
        });
        scope.spawn(|| {
            let (mut endpoint, _) = attach(1);
            endpoint.barrier().unwrap();
            endpoint.wait_until(|seen| seen.len() == 200).unwrap();
            assert!(endpoint.state().iter().copied().eq(0..200));
            endpoint.barrier().unwrap();
            let dropped = endpoint.transport().machine(|machine| machine.counters().dropped);
            assert_eq!(dropped[Dropped::Replayed as usize] + dropped[Dropped::Forged as usize], 0);
            endpoint.finish().unwrap();
        });
    });
}

/// What is left of a batch when a handler forks is the parent's alone.
#[test]
fn a_child_delivers_no_more_of_a_batch() {
    let job = LocalJob::new(1).unwrap();
    let mut handlers = Handlers::<State>::new();
    let add = handlers.one_way("add", |state: &mut State, _, value: u64, _| {
        state.sum += 1;
        if value == 1 {
            state.child = split();
            state.is_child = state.child.is_none();
        }
    });
    let add = add.unwrap();
    let mut endpoint = Endpoint::attach(job.join(0).unwrap(), handlers, State::default()).unwrap();
    for value in 0..5u64 {
        endpoint.request(Rank(0), add, value).unwrap();
    }
    // To oneself everything is there at once, so that one poll finds all of it, unless the helper is at it.
    let mut polled = 0;
    while endpoint.state().sum < 2 {
        polled += endpoint.poll().unwrap();
    }
    if endpoint.state().is_child {
        alarm::set(60);
        let code = if endpoint.state().sum == 2 { 0 } else { 1 };
        drop(endpoint);
        std::process::exit(code);
    }
    well(endpoint.state().child.expect("the second handler has run"));
    while endpoint.state().sum < 5 {
        polled += endpoint.poll().unwrap();
    }
    assert_eq!(polled, 5);
    endpoint.finish().unwrap();
}

/// What the helper of rank 1 calls, under the lock of the endpoint.
#[derive(Default)]
struct Call {
    in_handler: bool,
    too_early: bool,
}

struct Holder {
    call: Mutex<Call>,
    held: mpsc::Sender<()>,
    release: Mutex<mpsc::Receiver<()>>,
}

impl Wake for Holder {
    /// Keeps the lock until the handler lets go.
    fn wake(self: Arc<Self>) {
        {
            let mut call = self.call.lock().unwrap();
            call.too_early = !call.in_handler;
            if call.too_early {
                return;
            }
        }
        self.held.send(()).unwrap();
        let _ = self.release.lock().unwrap().recv_timeout(Duration::from_secs(60));
    }
}

/// The handler of rank 1: lets rank 0 send, waits until the helper has the lock, and forks.
struct Forking<'a> {
    other: &'a mut Udp,
    holder: Arc<Holder>,
    held: &'a mpsc::Receiver<()>,
    release: &'a mpsc::Sender<()>,
    outcome: Option<Option<Pid>>,
}

impl Sink for Forking<'_> {
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        {
            let mut call = self.holder.call.lock().unwrap();
            call.in_handler = !call.too_early;
            if call.too_early {
                return;
            }
        }
        assert!(send(self.other));
        self.held.recv_timeout(Duration::from_secs(60)).expect("the helper takes in while a handler runs");
        let child = split();
        if child.is_some() {
            self.release.send(()).unwrap();
        } else {
            alarm::set(60);
        }
        // A Long reply goes to the machine at once, unless it is the parent's.
        path.send(0, arrival.args, Body::Place(&[7; 100], 0)).unwrap();
        self.outcome = Some(child);
    }

    fn reply(&mut self, _: Arrival<'_>) {}

    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
}

struct Ignore;

impl Sink for Ignore {
    fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {}

    fn reply(&mut self, _: Arrival<'_>) {}

    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
}

/// Sends a request to rank 1; returns whether there was room.
fn send(from: &mut Udp) -> bool {
    let head = RequestHeader::new(0, ReplyBound::UpTo(10));
    let sent = from.send(Peer(1), head, &Words::EMPTY, Body::None).is_ok();
    from.flush();
    sent
}

#[test]
fn a_handler_may_fork_while_the_helper_is_at_work() {
    let job = LocalJob::new(2).unwrap();
    let [mut a, mut b] = [0, 1].map(|rank| job.join(rank).unwrap());
    let ((held, is_held), (release, released)) = (mpsc::channel(), mpsc::channel());
    let holder = Arc::new(Holder { call: Mutex::default(), held, release: Mutex::new(released) });
    let child = loop {
        // Two messages are there before the first is delivered, so that the second is delivered by a poll that
        // takes nothing in.
        let mut sent = 0;
        while sent < 2 {
            sent += u32::from(send(&mut a));
            a.poll(10, &mut Ignore);
            b.poll(0, &mut Ignore);
        }
        while b.poll(1, &mut Ignore) == 0 {}
        *holder.call.lock().unwrap() = Call::default();
        while b.notify(&Waker::from(Arc::clone(&holder))) != Notify::Armed {}
        let mut sink = Forking {
            other: &mut a,
            holder: Arc::clone(&holder),
            held: &is_held,
            release: &release,
            outcome: None,
        };
        b.poll(1, &mut sink);
        match sink.outcome {
            Some(Some(child)) => break child,
            // It has come this far without waiting for a lock.
            Some(None) => std::process::exit(0),
            None => while b.poll(10, &mut Ignore) + a.poll(10, &mut Ignore) > 0 {},
        }
    };
    well(child);
}

//! What an endpoint says when its own side is at fault.

use super::*;
use crate::driver::Driver;
use crate::proto::BorrowedPayload;
use am_conformance::CountingSink;
use am_core::arguments::Words;
use am_core::transport::{
    Body, Notify, PeerStatus, Refused, ReplyBound, RequestHeader, Transport, WaitReason, Waiting,
};
use am_core::{Endpoint, Handlers, Instant, LossCause, PollError, Span, WaitError};
use std::sync::atomic::Ordering::SeqCst;
use std::task::Waker;
use std::time::Duration;

mod staged;

/// Attached ranks of one process; each does its work when it is let go.
fn two(work: impl Fn(Endpoint<Udp, u32>) + Sync) {
    let mut config = UdpConfig::new([]);
    // How long a rank waits for a peer whose last word was lost.
    config.protocol.silence = Span::from_secs(2);
    let job = LocalJob::with(2, LocalOptions::default(), config).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (job, work) = (&job, &work);
            scope.spawn(move || work(Endpoint::attach(job.join(rank).unwrap(), Handlers::new(), rank).unwrap()));
        }
    });
}

#[test]
fn a_panic_of_the_helper_reaches_the_program() {
    two(|mut endpoint| {
        // Nobody may still be attaching when the helper comes to grief. What the first one said last may get lost
        // with it.
        let met = endpoint.barrier();
        if *endpoint.state() == 1 {
            // Stays until the other one has left.
            assert!(endpoint.wait_until(|_| false).is_err());
            return;
        }
        met.unwrap();
        // The program is absent until its helper has come to grief.
        break_helper(&Arc::clone(endpoint.transport().driver().shared()));
        let broken = |rank| PollError::PeerLost { rank: Rank(rank), cause: LossCause::Broken };
        assert_eq!(endpoint.poll().unwrap_err().to_string(), broken(0).to_string());
        match endpoint.wait_until(|_| false) {
            Err(WaitError::Poll(error)) => assert_eq!(error.to_string(), broken(0).to_string()),
            other => panic!("{other:?}"),
        }
        assert!(endpoint.barrier().is_err() && endpoint.finish().is_err());
    });
}

/// Makes the helper of an endpoint panic, and waits until that is known.
fn break_helper(shared: &Shared) {
    shared.sabotage.store(true, SeqCst);
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    while shared.failure().is_none() {
        assert!(std::time::Instant::now() < limit, "the helper's panic is not known here");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A call of the program may wait for the lock that a helper holds when it fails: what the helper leaves behind is
/// not worked on.
#[test]
fn a_failing_helper_loses_everyone() {
    let job = LocalJob::new(2).unwrap();
    let mut transport = job.join(0).unwrap();
    let shared = Arc::clone(transport.driver().shared());
    let failing = Arc::clone(&shared);
    let failed = std::thread::spawn(move || {
        let mut engine = failing.engine();
        // Half of something.
        engine.machine.connect(Instant(0), Peer(1));
        panic!("in the middle of it");
    });
    assert!(failed.join().is_err());
    // The call has asked whether the endpoint is well, and now gets the lock.
    let lost = PeerStatus::Lost(LossCause::Broken);
    let head = RequestHeader::new(0, ReplyBound::None);
    let refused =
        transport.driver_mut().with(|machine, now| machine.request(now, Peer(1), head, &Words::EMPTY, None));
    assert_eq!(refused, Err(Refused::Gone(lost)));
    assert_eq!(shared.failure(), Some(LossCause::Broken));
    let lent = BorrowedPayload { to: Peer(1), payload: &[1; 8] };
    let driver = transport.driver_mut();
    assert_eq!(driver.round(Some(lent), |machine, _| machine.buffer_tail(lent)), Err(Refused::Gone(lost)));
    assert_eq!(
        driver.look(|machine| (machine.status(Peer(1)), machine.losses(), machine.settled())),
        (lost, 2, true)
    );
    assert!(!driver.look(Machine::has_ready), "nothing is sent any more");
}

/// A helper that fails between a program's look at it and its request to be woken has nobody to wake, and will
/// never have.
#[test]
fn a_broken_endpoint_arms_no_waker() {
    let job = LocalJob::new(1).unwrap();
    let mut transport = job.join(0).unwrap();
    break_helper(&Arc::clone(transport.driver().shared()));
    assert_eq!(transport.driver_mut().notify(Waker::noop()), Notify::Ready);
}

/// What a rank sends itself takes no datagram and rings no bell: who is about to sleep, or only to look at the
/// socket, learns that it is there.
#[test]
fn a_message_to_oneself_keeps_its_rank_awake() {
    let mut config = UdpConfig::new([9; 16]);
    config.waiting = WaitMode::Polled;
    let mut transport = LocalJob::with(1, LocalOptions::default(), config).unwrap().join(0).unwrap();
    let (head, mut count) = (RequestHeader::new(0, ReplyBound::None), CountingSink(0));
    for sent in 1..9 {
        while transport.send(Peer(0), head, &Words::EMPTY, Body::None).is_err() {
            transport.poll(8, &mut count);
        }
        if sent % 2 == 0 {
            assert_eq!(transport.notify(Waker::noop()), Notify::Ready, "message {sent}");
        } else {
            transport.idle(None, WaitReason::Message);
        }
        assert_eq!((transport.poll(8, &mut count), count.0), (1, sent));
        // All that comes after it is its acknowledgement.
        while transport.notify(Waker::noop()) == Notify::Ready {
            assert_eq!(transport.poll(8, &mut count), 0);
        }
        // From here on it only looks at the socket.
        transport.poll(8, &mut count);
        transport.idle(None, WaitReason::Message);
        transport.idle(None, WaitReason::Message);
    }
}

/// A notice that is taken in between its entry and its bell leaves no bell that ends every sleep.
#[test]
fn a_bell_rings_once() {
    let job = LocalJob::new(2).unwrap();
    let mut transport = job.join(0).unwrap();
    let shared = Arc::clone(transport.driver().shared());
    shared.notices.add(Rank(1), LossCause::Died);
    transport.driver_mut().take_in();
    shared.ring();
    transport.driver_mut().park(None);
    assert!(shared.bell.read().is_err(), "the bell is silent");
}

#[cfg(feature = "tokio")]
#[test]
fn a_panic_of_the_task_reaches_the_program() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
    let mut config = UdpConfig::new([]);
    // What the broken one does not say any more.
    config.protocol.silence = Span::from_secs(1);
    let job = Arc::new(LocalJob::with(2, LocalOptions::default(), config).unwrap());
    let rank = |rank: u32, job: Arc<LocalJob>| async move {
        let transport = job.join_tokio(rank).unwrap();
        let shared = Arc::clone(transport.driver().shared());
        let mut endpoint = AsyncEndpoint::attach(transport, Handlers::new(), 0).unwrap();
        let met = endpoint.endpoint().barrier();
        if rank == 1 {
            // Stays until the other one has left.
            assert!(endpoint.wait_until(|_| false).await.is_err());
            return;
        }
        met.unwrap();
        shared.sabotage.store(true, SeqCst);
        // The task comes to grief while the program waits for it.
        match endpoint.wait_until(|_| false).await {
            Err(WaitError::Poll(PollError::PeerLost { cause: LossCause::Broken, .. })) => {}
            other => panic!("{other:?}"),
        }
    };
    let tasks = [0, 1].map(|number| runtime.spawn(rank(number, job.clone())));
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

/// Whoever keeps sending what counts keeps neither the task nor the lock.
#[cfg(feature = "tokio")]
#[test]
fn a_turn_of_the_task_is_bounded() {
    let mut config = UdpConfig::new([9; 16]);
    config.helper = false;
    let job = LocalJob::with(2, LocalOptions::default(), config.clone()).unwrap();
    let transport = job.join(0).unwrap();
    let settings = config.machine(job.peers(), Peer(1)).unwrap();
    let mut machine = Machine::new(settings, segment(1 << 20).erase()).unwrap();
    machine.connect(Instant(0), Peer(0));
    let mut hello = vec![0; 1 << 16];
    let (_, len) = machine.transmit(Instant(0), &mut hello).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..280 {
        sender.send_to(&hello[..len], transport.local_addr().unwrap()).unwrap();
    }
    let shared = Arc::clone(transport.driver().shared());
    let before = shared.engine().machine.counters().received;
    let received = || shared.engine().machine.counters().received - before;
    let turn = || (asynchronous::work(&shared), received());
    let (pause, first) = turn();
    // A few are the endpoint's own, to itself.
    assert!(pause == Duration::ZERO && (64..280).contains(&first), "{first} datagrams in {pause:?}");
    let (_, second) = turn();
    assert!(second >= 280, "{second} datagrams");
}

#[test]
fn no_more_files_names_the_remedy() {
    let address = "127.0.0.1:0".parse().unwrap();
    let text =
        |code: Errno| UdpError::Bind { address, cause: io::Error::from_raw_os_error(code as i32) }.to_string();
    assert!(text(Errno::EMFILE).ends_with("this process may open no more files: raise `ulimit -n`"));
    assert!(text(Errno::EADDRINUSE).contains("is the port in use"));
    let system = UdpError::System(io::Error::from_raw_os_error(Errno::EMFILE as i32)).to_string();
    assert!(system.ends_with("raise `ulimit -n`"), "{system}");
}

//! What an endpoint says when its own side is at fault.

use super::*;
use am_core::{Endpoint, Handlers, LossCause, PollError, WaitError};
use std::sync::atomic::Ordering::SeqCst;

/// Attached ranks of one process; each does its work when it is let go.
fn two(work: impl Fn(Endpoint<Udp, u32>) + Sync) {
    let job = LocalJob::new(2).unwrap();
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
        // Nobody may still be attaching when the helper comes to grief. What the first one said last may get lost with it.
        let met = endpoint.barrier();
        if *endpoint.state() == 1 {
            // Stays until the other one has left.
            assert!(endpoint.wait_until(|_| false).is_err());
            return;
        }
        met.unwrap();
        let shared = Arc::clone(&endpoint.transport().driver().shared);
        shared.sabotage.store(true, SeqCst);
        // The program is absent until its helper has come to grief.
        let limit = std::time::Instant::now() + Duration::from_secs(60);
        while shared.failure().is_none() {
            assert!(std::time::Instant::now() < limit, "the helper's panic is not known here");
            std::thread::sleep(Duration::from_millis(1));
        }
        let broken = |rank| PollError::PeerLost { rank: Rank(rank), cause: LossCause::Broken };
        assert_eq!(endpoint.poll().unwrap_err().to_string(), broken(0).to_string());
        match endpoint.wait_until(|_| false) {
            Err(WaitError::Poll(error)) => assert_eq!(error.to_string(), broken(0).to_string()),
            other => panic!("{other:?}"),
        }
        assert!(endpoint.barrier().is_err() && endpoint.finish().is_err());
    });
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

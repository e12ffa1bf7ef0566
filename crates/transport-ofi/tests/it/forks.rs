//! Forks of a rank have no part in its job.

use am_core::{Endpoint, HandlerResult, Handlers, LossCause, PollError, Rank, Request, Span, WaitError};
use transport_ofi::{LocalJob, Ofi, OfiConfig};

/// Forks: the child's number, or `None` in the child.
#[expect(unsafe_code, reason = "there is no safe fork")]
fn fork() -> Option<libc::pid_t> {
    // SAFETY: the child has the forking thread alone, uses what no other thread of the parent can have locked (the
    // C library makes its allocator usable), and ends by `end` without running anything else of the test.
    match unsafe { libc::fork() } {
        0 => None,
        child => Some(child),
    }
}

/// Ends the child of a fork at once.
#[expect(unsafe_code, reason = "no safe exit leaves out what the parent has registered for it")]
fn end(code: i32) -> ! {
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for the child, which says by its code what went wrong; its signal times 256 is added.
#[expect(unsafe_code, reason = "the standard library waits for commands alone")]
fn code_of(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the place for the status lives through the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WEXITSTATUS(status) + 256 * libc::WTERMSIG(status)
}

/// What a child makes of the endpoint that it has a copy of; which step went wrong, or 0.
fn misuse(mut endpoint: Endpoint<Ofi, u64>, ping: Request<u64>) -> i32 {
    if endpoint.request(Rank(1), ping, 7).is_ok() {
        return 1;
    }
    // An error or nothing found, as long as it returns.
    let _ = endpoint.poll();
    let waited = endpoint.wait_until_for(Span::from_secs(5), |_| false);
    if !matches!(waited, Err(WaitError::Poll(PollError::PeerLost { cause: LossCause::Forked, .. }))) {
        return 2;
    }
    if endpoint.barrier().is_ok() {
        return 3;
    }
    drop(endpoint);
    0
}

#[test]
fn a_fork_of_a_rank_has_no_part_in_the_job() {
    let config = OfiConfig::default().provider("tcp").interface("127.0.0.1");
    let job = match LocalJob::new(2, &config) {
        Ok(job) => job,
        Err(error) => return crate::skip("forks", "tcp", &error),
    };
    let attach = |rank| {
        let mut handlers = Handlers::<u64>::new();
        let pong = handlers.reply("pong", |seen: &mut u64, _, round: u64, _| *seen = round).unwrap();
        let ping = handlers.request("ping", move |_, token, round: u64, _| -> HandlerResult {
            token.reply(pong, round)?;
            Ok(())
        });
        (Endpoint::attach(job.join(rank).unwrap(), handlers, 0).unwrap(), ping.unwrap())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| attach(1).0.finish().unwrap());
        let (mut endpoint, ping) = attach(0);
        for round in 1..=3 {
            // A message is on its way to the parent when it forks: the child does not take it.
            endpoint.request(Rank(1), ping, round).unwrap();
            let Some(child) = fork() else { end(misuse(endpoint, ping)) };
            assert_eq!(code_of(child), 0, "the step of the child that went wrong");
            endpoint.wait_until(|seen| *seen == round).unwrap();
        }
        endpoint.finish().unwrap();
    });
}

//! A job that does not get on says why: on SIGQUIT, when its time is over, and when a wait takes too long. And
//! what a launcher says of an environment that it does not understand.

use std::process::Stdio;

use am_launch::env;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Finished, InRole, Running, Test, amrun, finish, role};

pub(crate) const TESTS: &[Test] = &[
    ("reports_on_quit", on_quit),
    ("reports_at_the_time_limit", at_the_time_limit),
    ("reports_of_waits_that_time_out", waits_that_time_out),
    ("reports_unknown_variables", unknown_variables),
    ("reports_verbose", verbose),
    ("reports_of_threads", of_threads),
];

const HOSTS: [&str; 4] = ["--hosts", "127.0.0.1:2,127.0.0.2", "--remote", crate::hosts::REMOTE];

/// Fails unless every rank has said once what it waits for.
fn all_report(finished: &Finished, ranks: u32) {
    for rank in 0..ranks {
        let start = format!("rank {rank}: waited ");
        let reports = finished.err.lines().filter(|line| line.starts_with(&start)).count();
        assert_eq!(reports, 1, "rank {rank}: {finished:?}");
    }
}

/// SIGQUIT to the launcher, and to a rank.
fn on_quit() {
    for flags in [&["--transport", "shm"][..], &["--transport", "udp"], &HOSTS] {
        let mut running = Running::start(amrun(&["-n", "3"]).args(flags).role("job").args(["saying"]));
        let _ = [(); 3].map(|()| running.line());
        // Their endpoints are there; those that are still on their way into the wait report when they get there.
        running.signal(Signal::SIGQUIT);
        running.wait_for_errors(3);
        running.signal(Signal::SIGTERM);
        let finished = running.finish();
        assert_eq!(finished.code(), 143, "{finished:?}");
        all_report(&finished, 3);
    }
    let mut running = Running::start(amrun(&["-n", "1"]).role("job").args(["saying"]));
    let rank = Pid::from_raw(running.line().parse().expect("a process id"));
    kill(rank, Signal::SIGQUIT).expect("it lives");
    running.wait_for_errors(1);
    running.signal(Signal::SIGTERM);
    all_report(&running.finish(), 1);
}

fn at_the_time_limit() {
    for flags in [&["--transport", "shm"][..], &["--transport", "udp"], &HOSTS] {
        let limited = |limit: u32| {
            let finished =
                finish(amrun(&["-n", "3", "-t", &format!("{limit}s")]).args(flags).role("job").arg("waiting"));
            assert_eq!(finished.code(), 124, "{finished:?}");
            let over = format!("amrun: the job's {limit} s are over; ending 3 ranks\n");
            assert!(finished.err.contains(&over), "{finished:?}");
            finished
        };
        // Ranks of a loaded machine may not have begun to wait so soon.
        let all_waited = |finished: &Finished| finished.err.matches(": waited ").count() == 3;
        let finished = [1, 5].into_iter().map(limited).find(all_waited).unwrap_or_else(|| limited(40));
        all_report(&finished, 3);
    }
}

fn waits_that_time_out() {
    let plain = |finished: &Finished| {
        assert_eq!(finished.code(), 1, "{finished:?}");
        assert!(finished.err.contains(": timed out: waited ") && finished.err.contains(" for "), "{finished:?}");
    };
    for transport in ["shm", "udp"] {
        let flags = ["-n", "2", "--timeout", "300ms", "--transport", transport];
        plain(&finish(amrun(&flags).role("job").arg("waiting")));
    }
    plain(&finish(amrun(&["-n", "3", "--timeout", "300ms"]).args(HOSTS).role("job").arg("waiting")));
    plain(&finish(role("job").args(["2", "waiting"]).env("AM_TIMEOUT", "0.3")));
}

fn unknown_variables() {
    let line = "AM_UDP_PROTECTOIN in the environment is no variable of active messages; the nearest is \
                AM_UDP_PROTECTION (AM_IGNORE=AM_UDP_PROTECTOIN if another program reads it)\n";
    let refused = |finished: Finished, line: &str| {
        assert_eq!((finished.code(), &*finished.text()), (2, ""), "{finished:?}");
        assert!(finished.err.ends_with(line) && finished.err.lines().count() == 1, "{finished:?}");
    };
    // What amrun can't know rank 0 says, before any rank does anything.
    let refused_by_ranks = |finished: Finished, line: &str| {
        assert_eq!((finished.code(), &*finished.text()), (2, ""), "{finished:?}");
        assert!(finished.err.contains(line) && finished.err.lines().count() == 2, "{finished:?}");
        assert!(
            finished.err.ends_with("amrun: rank 0 exited with code 2; ending the other 2 ranks\n"),
            "{finished:?}"
        );
    };
    let key = "AM_UDP_PROTECTOIN";
    refused_by_ranks(finish(amrun(&["-n", "3"]).env(key, "unauthenticated").role("job").arg("who")), line);
    refused_by_ranks(finish(amrun(&["-n", "3", "-e", &format!("{key}=x")]).role("job").arg("who")), line);
    refused(finish(role("job").env(key, "unauthenticated").args(["3", "who"])), line);
    let by_hand = [(env::RANK, "0"), (env::RANKS, "1"), (env::JOB, "am-test-unknown"), (key, "x")];
    refused(finish(role("job").envs(by_hand).arg("who")), line);
    let wrong = "AM_UDP_SILENCE is \"soon\", but must be a number of seconds from 0.1 to 86400\n";
    for transport in ["shm", "udp"] {
        let mut command = amrun(&["-n", "3", "--transport", transport]);
        refused_by_ranks(finish(command.env("AM_UDP_SILENCE", "soon").role("job").arg("barrier")), wrong);
    }
    let misspelt = "amrun: AM_TIMOUT in the environment is no variable of active messages; the nearest is AM_TIMEOUT \
                    (AM_IGNORE=AM_TIMOUT if another program reads it)\n";
    refused(finish(amrun(&["-n", "3", "true"]).env("AM_TIMOUT", "1s")), misspelt);
    let wrong = "AM_TIMEOUT=soon in the environment is not a time such as 500ms, 10s or 2m\n";
    refused(finish(role("job").env("AM_TIMEOUT", "soon").args(["3", "barrier"])), wrong);
    let finished = finish(role("job").env(key, "x").env("AM_IGNORE", "AM_A,AM_UDP_PROTECT*").args(["2", "who"]));
    assert_eq!(finished.code(), 0, "{finished:?}");
}

fn verbose() {
    let finished = finish(amrun(&["-v", "-np", "2", "--bind"]).role("job").arg("pid").stdin(Stdio::null()));
    assert_eq!(finished.code(), 0, "{finished:?}");
    let said = |part: &str| assert!(finished.err.contains(part), "{part}: {finished:?}");
    said(": 2 ranks of '");
    said("' on this host\n");
    let processes: Vec<String> = finished.text().lines().map(str::to_owned).collect();
    for process in &processes {
        said(&format!(" is process {process}, processors "));
    }
    (0..2).for_each(|rank| said(&format!("amrun: rank {rank} exited with code 0 after ")));
}

/// Ranks that are threads of one process behave as ranks that are processes do.
fn of_threads() {
    let misspelt = "error: AM_TIMOUT in the environment is no variable of active messages; the nearest is AM_TIMEOUT \
                    (AM_IGNORE=AM_TIMOUT if another program reads it)\n";
    let finished = finish(role("threads").env("AM_TIMOUT", "1s"));
    assert_eq!((finished.code(), &*finished.text(), &*finished.err), (2, "", misspelt));
    let finished = finish(role("threads").arg("waiting").env("AM_TIMEOUT", "300ms"));
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.err.starts_with("rank 0: timed out: waited "), "{finished:?}");
    let mut running = Running::start(role("threads").arg("waiting"));
    running.line();
    running.signal(Signal::SIGQUIT);
    running.wait_for_errors(1);
    running.signal(Signal::SIGKILL);
    all_report(&running.finish(), 1);
}

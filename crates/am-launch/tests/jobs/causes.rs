//! Which rank, reason and code a job ends with: that of the first failure, not of a rank that failed because of
//! it; of a rank that ends the whole job; and none, if only its reader has gone.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::harness::{ANTI_HANG, Finished, InRole, Test, amrun, clean, finish, role};

pub(crate) const TESTS: &[Test] = &[
    ("causes_of_failures_under_load", causes_under_load),
    ("full_causes_of_200_failures_under_load", two_hundred_causes_under_load),
    ("causes_keep_going", keep_going),
    ("causes_rank_that_stays", a_lost_rank_that_stays),
    ("causes_rank_ends_the_job", a_rank_ends_the_job),
    ("causes_panics_name_their_rank", panics_name_their_rank),
    ("causes_reader_gone", reader_gone),
];

/// Processes that take all processors, several times over, until this is dropped.
struct Load(Vec<Child>);

impl Load {
    fn begin() -> Self {
        let spin = |_| clean("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        Self((0..4 * am_launch::usable_processors()).map(spin).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One job of three ranks, of which one fails by itself and the others over its loss.
struct Case {
    /// What the failing rank does.
    action: &'static str,
    /// What the others do.
    others: &'static str,
    /// Part of its reason.
    reason: &'static str,
    code: i32,
}

const CASES: [Case; 5] = [
    Case {
        action: "too-large",
        others: "waiting",
        reason: "payload of 10485760 bytes exceeds the 65536-byte limit",
        code: 1,
    },
    Case { action: "no-rank", others: "unwrapping", reason: "no rank 99 in a job of 3 ranks", code: 1 },
    Case { action: "panicking", others: "waiting", reason: "on purpose", code: 101 },
    Case { action: "fail", others: "unwrapping", reason: "it did not work", code: 1 },
    Case { action: "too-large", others: "exiting", reason: "payload of 10485760 bytes", code: 1 },
];

fn check(case: &Case, transport: &str, launch: &mut dyn FnMut() -> Command) {
    let Case { action, others, reason, code } = case;
    for failing in [0, 2] {
        let rest = [0, 1, 2].into_iter().filter(|rank| *rank != failing).map(|rank| format!("{rank}:{others}"));
        let mut command = launch();
        let finished =
            finish(command.env("AM_TRANSPORT", transport).args(rest).arg(format!("{failing}:{action}")));
        let context = format!("{transport}, rank {failing}: {action}, others {others}: {finished:#?}");
        assert_eq!(finished.code(), *code, "{context}");
        let verdict = format!("rank {failing} exited with code {code}");
        assert!(finished.err.lines().any(|line| line.contains(&verdict)), "{context}");
        let named = finished.err.matches("exited with code").count();
        assert_eq!(named, 1, "{context}");
        assert!(finished.err.contains(reason), "{context}");
    }
}

fn causes(rounds: usize) {
    let _load = Load::begin();
    for round in 0..rounds {
        let case = &CASES[round % CASES.len()];
        for transport in ["shm", "udp"] {
            check(case, transport, &mut || {
                let mut command = role("job");
                command.arg("3");
                command
            });
        }
    }
    let case = &CASES[0];
    check(case, "auto", &mut || {
        let mut command = amrun(&["-n", "3", "--hosts", "127.0.0.1:2,127.0.0.2"]);
        command.args(["--remote", crate::hosts::REMOTE]).role("job");
        command
    });
}

fn causes_under_load() {
    causes(5);
}

/// Two jobs of each transport in a round.
fn two_hundred_causes_under_load() {
    causes(100);
}

/// Where the others go on, everyone is named, the first one first.
fn keep_going() {
    let finished = finish(amrun(&["-n", "3", "-k"]).role("job").args(["1:too-large", "waiting"]));
    assert_eq!(finished.code(), 1, "{finished:?}");
    let verdicts: Vec<&str> = finished.err.lines().filter(|line| line.contains("exited with code")).collect();
    assert_eq!(verdicts.len(), 3, "{finished:?}");
    assert_eq!(verdicts[0], "amrun: rank 1 exited with code 1");
}

/// A rank leaves without finishing and lives on; the one that failed over it is named after a while, with both.
fn a_lost_rank_that_stays() {
    let finished = finish(amrun(&["-n", "2"]).role("job").args(["0:shm", "0:sleep", "1:barrier"]));
    assert_eq!(finished.code(), 1, "{finished:?}");
    let line =
        "amrun: rank 1 exited with code 1 after it had lost rank 0, which still runs; ending the other rank";
    assert!(finished.err.lines().any(|found| found == line), "{finished:?}");
}

fn a_rank_ends_the_job() {
    let hosts = ["--hosts", "127.0.0.1:2,127.0.0.2", "--remote", crate::hosts::REMOTE];
    for flags in [&["--transport", "shm"][..], &["--transport", "udp"], &hosts] {
        for (actions, code, line) in [
            (["2:exit-job", "waiting"], 9, "amrun: rank 2 ended the job with code 9\n"),
            (["0:exit-job-well", "sleep"], 0, ""),
            (["1:exit-job-in-handler", "waiting"], 23, "amrun: rank 2 ended the job with code 23\n"),
        ] {
            let finished = finish(amrun(&["-n", "3"]).args(flags).role("job").args(actions));
            assert_eq!(finished.code(), code, "{flags:?} {finished:?}");
            assert_eq!(finished.err, line, "{flags:?} {finished:?}");
        }
    }
}

fn panics_name_their_rank() {
    let Finished { err, .. } = finish(role("job").args(["2", "1:panic", "sleep"]));
    let lines: Vec<&str> = err.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines[0].ends_with(": rank 1 panicked:") && lines[1].contains("panicked at"), "{err}");
}

/// As in `program | head -1`.
fn reader_gone() {
    for action in ["print", "print-checked"] {
        for mut command in [amrun(&["-n", "3"]), amrun(&["-n", "3", "-p"]), role("job"), role("threads")] {
            if command.get_program() == amrun(&[]).get_program() {
                command.role("job");
            }
            command.arg(action).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("a program");
            child.stdout.as_mut().expect("piped").read_exact(&mut [0; 5]).expect("output");
            drop(child.stdout.take());
            let mut pipe = child.stderr.take().expect("piped");
            let err = thread::spawn(move || {
                let mut text = String::new();
                pipe.read_to_string(&mut text).map(|_| text)
            });
            let status = crate::orphans::within(ANTI_HANG, || child.try_wait().expect("a child"));
            assert_eq!(status.code(), Some(i32::from(am_launch::EXIT_BROKEN_PIPE)), "{command:?}");
            assert_eq!(err.join().expect("no panic").expect("text"), "", "{command:?}");
        }
    }
}

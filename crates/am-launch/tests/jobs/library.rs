//! The library call: plain starts, the fate of a rank's closure, and malformed environments.

use std::sync::mpsc;

use am_core::Rank;
use am_launch::{LaunchError, Launcher, RankEnd};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{ANTI_HANG, InRole, Test, amrun, finish, role};

pub(crate) const TESTS: &[Test] = &[
    ("library_a_plain_start_becomes_ranks", a_plain_start_becomes_ranks),
    ("library_number_of_ranks", number_of_ranks),
    ("library_arguments_and_name_are_kept", arguments_and_name_are_kept),
    ("library_launcher_is_set_up", launcher_is_set_up),
    ("library_ends_of_a_rank", ends_of_a_rank),
    ("library_status_is_a_number", status_is_a_number),
    ("library_another_size_is_refused", another_size_is_refused),
    ("library_malformed_environment", malformed_environment),
    ("library_launcher_beside_other_threads", launcher_beside_other_threads),
    ("library_output_ends_with_the_ranks", output_ends_with_the_ranks),
    ("library_launcher_errors", launcher_errors),
];

fn a_plain_start_becomes_ranks() {
    let finished = finish(role("job").arg("who"));
    assert_eq!(finished.code(), 0, "{finished:?}");
    let expected = [0, 1, 2].map(|rank| format!("{rank} of 3 by the program itself"));
    assert_eq!(finished.sorted(), expected);
    assert_eq!(finished.err, "");
}

fn number_of_ranks() {
    let count = |finished: crate::harness::Finished| finished.text().lines().count();
    assert_eq!(count(finish(role("job").arg("who").env("AM_DEFAULT_RANKS", "2"))), 2);
    assert_eq!(count(finish(role("job").args(["5", "who"]).env("AM_DEFAULT_RANKS", "2"))), 5);
    let finished = finish(role("job").arg("who").env("AM_DEFAULT_RANKS", "0"));
    assert_eq!(finished.code(), 2);
    assert!(finished.err.ends_with("AM_DEFAULT_RANKS=0 in the environment is not a number of ranks\n"));
    let finished = finish(role("job").args(["0", "who"]));
    assert_eq!(finished.code(), 2);
    assert!(finished.err.ends_with("0 ranks asked for, but a job has 1 to 4096\n"), "{finished:?}");
}

fn arguments_and_name_are_kept() {
    use std::os::unix::process::CommandExt;
    let finished = finish(role("job").arg0("a name\nof its own").args(["2", "arg0"]));
    assert_eq!(finished.sorted(), [r#"Some("a name\nof its own")"#; 2], "{finished:?}");
}

/// Settings of the launcher hold; program, arguments, number of ranks and name are the program's own.
fn launcher_is_set_up() {
    let finished = finish(role("job").env("T_SET_UP", "1").args(["2", "endpoints"]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert_eq!(finished.sorted(), [0, 1].map(|rank| format!(r#"[{rank}] 2 Some("7s")"#)), "{finished:?}");
    let finished = finish(role("job").env("T_SET_UP", "1").args(["1", "fail"]));
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(
        !finished.err.contains("other:") && finished.err.contains("rank 0 exited with code 1"),
        "{finished:?}"
    );
}

fn ends_of_a_rank() {
    let finished = finish(role("job").args(["3", "1:fail", "sleep"]));
    assert_eq!(finished.code(), 1);
    let lines: Vec<&str> = finished.err.lines().collect();
    assert!(lines[0].ends_with(": rank 1: it did not work"), "{lines:?}");
    assert!(lines[1].ends_with(": rank 1 exited with code 1; ending the other 2 ranks"), "{lines:?}");
    assert_eq!(lines.len(), 2, "{lines:?}");

    let finished = finish(role("job").args(["3", "2:panic", "sleep"]));
    assert_eq!(finished.code(), 101);
    assert!(finished.err.contains("on purpose"), "{finished:?}");
    assert!(finished.err.contains("rank 2 exited with code 101; ending the other 2 ranks"), "{finished:?}");

    assert_eq!(finish(role("job").args(["2", "0:exit", "sleep"])).code(), 42);
    let finished = finish(role("job").args(["2", "0:kill", "sleep"]));
    assert_eq!(finished.code(), 137);
    assert!(finished.err.contains("rank 0 was killed by signal 9 (SIGKILL)"), "{finished:?}");
}

/// The same as a number: for the launcher and for its ranks.
fn status_is_a_number() {
    let number = |actions: [&str; 3]| finish(role("job").env("T_NUMBER", "1").args(actions)).code();
    assert_eq!(number(["2", "who", "barrier"]), 0);
    assert_eq!(number(["2", "0:fail", "sleep"]), 1);
    assert_eq!(number(["2", "0:kill", "sleep"]), 137);
    assert_eq!(number(["5000", "who", "who"]), 2);
}

fn another_size_is_refused() {
    let finished = finish(amrun(&["-n", "1"]).role("job").args(["2", "who"]));
    assert_eq!(finished.code(), 2, "{finished:?}");
    assert!(finished.err.contains("the program asks for 2 ranks, but amrun started 1\n"), "{finished:?}");
    assert_eq!(finish(amrun(&["-n", "2"]).role("job").args(["2", "who"])).code(), 0);
}

fn malformed_environment() {
    for (variables, part) in [
        (&[("AM_RANK", "7"), ("AM_RANKS", "4")][..], "AM_RANK=7 in the environment, but with AM_RANKS=4"),
        (&[("AM_RANK", "one"), ("AM_RANKS", "4")], "AM_RANK=one in the environment is not a rank"),
        (&[("AM_RANK", "1")], "AM_RANK=1 is set in the environment but AM_RANKS is not"),
        (&[("AM_RANKS", "4")], "AM_RANKS=4 is set in the environment but AM_RANK is not"),
        (&[("OMPI_COMM_WORLD_RANK", "1")], "OMPI_COMM_WORLD_RANK=1 is set"),
        (
            &[
                ("AM_RANK", "0"),
                ("AM_RANKS", "1"),
                ("AM_JOB", "j"),
                ("AM_MANIFEST_FD", "999:1:2"),
                ("AM_CONTROL_FD", "998:1:2"),
            ],
            "AM_MANIFEST_FD=999 in the environment is no descriptor of this job",
        ),
        (
            &[("AM_RANK", "0"), ("AM_RANKS", "1"), ("AM_JOB", "j"), ("AM_MEET_TIMEOUT", "soon")],
            "AM_MEET_TIMEOUT=soon in the environment is not a number of seconds",
        ),
    ] {
        let finished = finish(role("job").arg("who").envs(variables.iter().copied()));
        assert_eq!(finished.code(), 2, "{finished:?}");
        assert!(finished.err.contains(part) && finished.err.lines().count() == 1, "{finished:?}");
    }
}

/// Several jobs at once, each watched by a thread of this process, whose first thread takes SIGCHLD for itself.
fn launcher_beside_other_threads() {
    let program = std::env::current_exe().expect("a test knows its file");
    let exits = |codes: [&'static str; 3]| {
        let launcher = Launcher::new(&program).args(["--role", "exit"]).args(codes).ranks(3).keep_going(true);
        let (sender, outcome) = mpsc::channel();
        std::thread::spawn(move || sender.send(launcher.launch().expect("a job")));
        outcome
    };
    let [good, bad] = [exits(["0", "0", "0"]), exits(["0", "8", "0"])]
        .map(|outcome| outcome.recv_timeout(ANTI_HANG).expect("the launcher ends"));
    assert!(good.is_success());
    assert_eq!(bad.ends(), [RankEnd::Exited(0), RankEnd::Exited(8), RankEnd::Exited(0)]);
    assert_eq!((bad.first_failure(), bad.code()), (Some(Rank(1)), 8));
}

/// A process that a rank leaves behind holds the rank's output open; everything that the rank wrote comes through,
/// and the launcher ends nevertheless.
fn output_ends_with_the_ranks() {
    let finished = finish(role("prefixing").args(["sh", "-c", "sleep 1000 & echo $!; printf unfinished"]));
    let text = finished.text();
    let pid = text.lines().next().and_then(|line| line.strip_prefix("[0] ")).expect("a process id");
    kill(Pid::from_raw(pid.parse().expect("a number")), Signal::SIGKILL).expect("a library leaves it alone");
    assert_eq!(text, format!("[0] {pid}\n[0] unfinished\n"));
}

fn launcher_errors() {
    let error = |launcher: Launcher| launcher.launch().expect_err("it can't start");
    assert!(matches!(error(Launcher::new("true").ranks(0)), LaunchError::RankCount { ranks: 0 }));
    assert!(matches!(error(Launcher::new("/no/program")), LaunchError::NotFound { .. }));
    assert!(matches!(error(Launcher::new("true").env("A=B", "")), LaunchError::MalformedVariable { .. }));
}

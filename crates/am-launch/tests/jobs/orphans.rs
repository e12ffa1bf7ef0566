//! Nothing outlives a job: not its ranks when the launcher is killed, not what they left behind.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::{ANTI_HANG, InRole, Running, Test, amrun, role};

pub(crate) const TESTS: &[Test] = &[
    ("orphans_ranks_die_with_amrun", ranks_die_with_amrun),
    ("orphans_ranks_die_with_the_program_itself", ranks_die_with_the_program_itself),
    ("orphans_ranks_below_a_shell_die_with_amrun", ranks_below_a_shell_die_with_amrun),
    ("orphans_ranks_below_a_shell_end_with_a_failed_job", ranks_below_a_shell_end_with_a_failed_job),
    ("orphans_what_ranks_leave_behind_ends", what_ranks_leave_behind_ends),
    ("orphans_deaf_processes_left_behind_end", deaf_processes_left_behind_end),
];

/// Looks again and again until there is an answer; fails the test after a generous time.
pub(crate) fn within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(start.elapsed() < limit, "nothing within {limit:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a process is gone, or has ended and only waits for its new parent to notice.
pub(crate) fn gone(pid: &str) {
    let status = PathBuf::from("/proc").join(pid).join("stat");
    within(ANTI_HANG, || match std::fs::read_to_string(&status) {
        Ok(line) => line.contains(") Z ").then_some(()),
        Err(_) => Some(()),
    });
}

/// Kills the launcher the hard way once `ranks` of them have said their process ids.
fn kill_launcher(command: &mut Command, ranks: usize) {
    let mut running = Running::start(command);
    let pids: Vec<String> = (0..ranks).map(|_| running.line()).collect();
    for pid in &pids {
        assert!(PathBuf::from("/proc").join(pid).exists(), "rank {pid} lives");
    }
    running.signal(Signal::SIGKILL);
    pids.iter().for_each(|pid| gone(pid));
    assert_eq!(running.finish().status.code(), None, "the launcher was killed");
}

fn ranks_die_with_amrun() {
    kill_launcher(amrun(&["-n", "3"]).role("sleep"), 3);
    kill_launcher(amrun(&["-n", "3"]).role("job").args(["pid", "sleep"]), 3);
}

fn ranks_die_with_the_program_itself() {
    kill_launcher(role("job").args(["3", "pid", "sleep"]), 3);
}

/// `sh` stays between launcher and rank because of what follows in its script.
const WRAPPER: [&str; 4] = ["sh", "-c", "\"$@\"; exit $?", "sh"];

fn ranks_below_a_shell_die_with_amrun() {
    kill_launcher(amrun(&["-n", "3"]).args(WRAPPER).role("job").args(["pid", "sleep"]), 3);
}

fn ranks_below_a_shell_end_with_a_failed_job() {
    let actions = ["1:pid", "2:pid", "0:input", "0:exit", "sleep"];
    let mut running =
        Running::start(amrun(&["-n", "3"]).args(WRAPPER).role("job").args(actions).stdin(Stdio::piped()));
    let pids = [running.line(), running.line()];
    running.input(b"go");
    let finished = running.finish();
    assert_eq!(finished.code(), 42, "{finished:?}");
    pids.iter().for_each(|pid| gone(pid));
}

fn what_ranks_leave_behind_ends() {
    let script = "sleep 1000 & echo $!; (sleep 1000 & echo $!) & wait $!";
    let mut running = Running::start(amrun(&["-n", "2"]).args(["sh", "-c", script]));
    let pids: Vec<String> = (0..4).map(|_| running.line()).collect();
    assert_eq!(running.finish().code(), 0);
    pids.iter().for_each(|pid| gone(pid));
}

fn deaf_processes_left_behind_end() {
    let script = "(trap '' TERM HUP; exec sleep 1000) & echo $!";
    let mut running = Running::start(amrun(&["-n", "1", "--grace", "0.1"]).args(["setsid", "sh", "-c", script]));
    let pid = running.line();
    assert_eq!(running.finish().code(), 0);
    gone(&pid);
}

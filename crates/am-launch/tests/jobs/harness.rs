//! How tests are listed and run, since this program plays ranks besides, and processes that can't hang a test for
//! ever.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use am_launch::env;
use libtest_mimic::{Arguments, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Far beyond what any test takes; a test that runs into it fails.
pub(crate) const ANTI_HANG: Duration = Duration::from_secs(120);

/// One test: its name and what it does.
pub(crate) type Test = (&'static str, fn());

/// Tests that launch jobs in this process, or make it busy on purpose: no other test runs beside them but those
/// that wait.
const ALONE: [&str; 3] =
    ["library_launcher_beside_other_threads", "library_launcher_errors", "causes_of_failures_under_load"];

/// Tests that wait most of their time, for jobs that `amrun` starts in processes of its own: they run from the
/// beginning, beside all others.
const WAITING: [&str; 15] = [
    "reports_at_the_time_limit",
    "causes_rank_that_stays",
    "hosts_slow_reader",
    "hosts_stopped_and_continued",
    "hosts_silent_remote_command",
    "hosts_reports",
    "hosts_interrupted_start",
    "rendezvous_wrong_secret",
    "hosts_time_limit",
    "hosts_slow_start",
    "hosts_strangers_at_the_door",
    "hosts_remote_command_fails",
    "reports_of_waits_that_time_out",
    "rendezvous_wrong_version",
    "launchers_a_missing_rank_is_an_error",
];

/// Runs the tests that the command line selects, several at a time.
pub(crate) fn run(tests: &[Test]) -> ExitCode {
    static TURN: RwLock<()> = RwLock::new(());
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(6);
    // The full profile, which takes minutes, has the tests whose names say so.
    let trial = |(name, test): &Test| {
        let (name, test) = (*name, *test);
        let run = move || {
            if ALONE.contains(&name) {
                let _turn = TURN.write().unwrap_or_else(PoisonError::into_inner);
                test();
            } else {
                let waits = WAITING.contains(&name);
                let _turn = (!waits).then(|| TURN.read().unwrap_or_else(PoisonError::into_inner));
                test();
            }
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(name.starts_with("full_"))
    };
    let mut tests = tests.to_vec();
    tests.sort_by_key(|(name, _)| !WAITING.contains(name));
    libtest_mimic::run(&arguments, tests.iter().map(trial).collect()).exit_code()
}

/// `amrun` with an environment that no outer launcher has touched.
pub(crate) fn amrun(flags: &[&str]) -> Command {
    let mut command = clean(env!("CARGO_BIN_EXE_amrun"));
    command.args(flags);
    command
}

/// This program in a role, as a program to start.
pub(crate) fn role(name: &str) -> Command {
    let mut command = clean(std::env::current_exe().expect("a test knows its file"));
    command.args(["--role", name]);
    command
}

/// A command without any launcher's variables.
pub(crate) fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let foreign = ["OMPI_", "PMI", "MPI_", "SLURM_", "PRTE_", "HYDRA_", "HYDI_"];
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("AM_") || foreign.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&key);
        }
    }
    command.env_remove(env::DEFAULT_RANKS);
    command
}

/// An empty file for the survivors of a loss, which a variable names; removed when dropped.
pub(crate) struct Roll(pub(crate) PathBuf);

impl Roll {
    pub(crate) fn new(test: &str) -> Self {
        // Tests of one name for it run at the same time.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("am-roll-{}-{number}-{test}", std::process::id()));
        fs::write(&path, "").expect("a temporary file");
        Self(path)
    }
}

impl Drop for Roll {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Appends this program in a role to the command line of a launcher.
pub(crate) trait InRole {
    fn role(&mut self, name: &str) -> &mut Self;
}

impl InRole for Command {
    fn role(&mut self, name: &str) -> &mut Self {
        self.arg(std::env::current_exe().expect("a test knows its file")).args(["--role", name])
    }
}

/// What a finished process left.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Finished {
    /// The exit code; a process that a signal killed fails the test.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("killed: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.out.clone()).expect("output is text")
    }

    /// The lines of standard output in order of their text.
    pub(crate) fn sorted(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.text().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

/// A process whose output is collected and whose lines can be waited for.
pub(crate) struct Running {
    child: Child,
    lines: mpsc::Receiver<Vec<u8>>,
    err: thread::JoinHandle<String>,
    err_lines: mpsc::Receiver<()>,
    seen: Vec<u8>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (sender, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().expect("piped"));
        thread::spawn(move || send_lines(out, &sender));
        let pipe = child.stderr.take().expect("piped");
        let (sender, err_lines) = mpsc::channel();
        let err = thread::spawn(move || {
            let (mut pipe, mut bytes) = (BufReader::new(pipe), Vec::new());
            while pipe.read_until(b'\n', &mut bytes).expect("a pipe can be read") > 0 {
                let _ = sender.send(());
            }
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Self { child, lines, err, err_lines, seen: Vec::new() }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// The next line of standard output, without its end.
    pub(crate) fn line(&mut self) -> String {
        let line = self.lines.recv_timeout(ANTI_HANG).expect("another line");
        self.seen.extend_from_slice(&line);
        String::from_utf8(line).expect("output is text").trim_end().to_owned()
    }

    /// Waits until it has written so many more lines to standard error.
    pub(crate) fn wait_for_errors(&mut self, lines: usize) {
        (0..lines).for_each(|_| self.err_lines.recv_timeout(ANTI_HANG).expect("another line of errors"));
    }

    /// Writes to its standard input, which the command has to have piped, and closes it.
    pub(crate) fn input(&mut self, input: &[u8]) {
        self.child.stdin.take().expect("piped").write_all(input).expect("it reads");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it lives");
    }

    /// Waits for the end of the process and of everything that holds its output open.
    pub(crate) fn finish(self) -> Finished {
        self.finish_within(ANTI_HANG)
    }

    /// [`Running::finish`], in so much time without a line.
    pub(crate) fn finish_within(mut self, time: Duration) -> Finished {
        loop {
            match self.lines.recv_timeout(time) {
                Ok(line) => self.seen.extend_from_slice(&line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    panic!("no end within {time:?}; so far {:?}", String::from_utf8_lossy(&self.seen));
                }
            }
        }
        let status = self.child.wait().expect("a child can be waited for");
        Finished { status, out: self.seen, err: self.err.join().expect("the reader is sound") }
    }
}

fn send_lines(mut out: BufReader<ChildStdout>, sender: &mpsc::Sender<Vec<u8>>) {
    loop {
        let mut line = Vec::new();
        match out.read_until(b'\n', &mut line) {
            Ok(length) if length > 0 && sender.send(line).is_ok() => {}
            _ => return,
        }
    }
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command) -> Finished {
    Running::start(command).finish()
}

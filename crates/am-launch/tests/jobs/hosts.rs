//! `amrun --hosts`: hosts that are addresses of the loopback network, with a shell in ssh's place, so that nothing
//! needs privileges. Real networks are the business of the root package's `hosts` test.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{ANTI_HANG, Finished, InRole, Roll, Running, Test, amrun, finish};
use crate::orphans::{gone, within};
use crate::roles::{LINES, ROLL, long_line};

pub(crate) const TESTS: &[Test] = &[
    ("hosts_codes", codes),
    ("hosts_placement", placement),
    ("hosts_host_file", host_file),
    ("hosts_bad_lists", bad_lists),
    ("hosts_default_remote_command", default_remote_command),
    ("hosts_surroundings", surroundings),
    ("hosts_working_directory", working_directory),
    ("hosts_standard_input", standard_input),
    ("hosts_prefixed_lines_are_whole", prefixed_lines_are_whole),
    ("hosts_slow_start", slow_start),
    ("hosts_stopped_and_continued", stopped_and_continued),
    ("hosts_slow_reader", slow_reader),
    ("hosts_reports", reports),
    ("hosts_secret_is_hidden", secret_is_hidden),
    ("hosts_ranks_that_exit_are_lost", ranks_that_exit_are_lost),
    ("hosts_transports", transports),
    ("hosts_keep_going", keep_going),
    ("hosts_time_limit", time_limit),
    ("hosts_signals_are_passed_on", signals_are_passed_on),
    ("hosts_program_missing", program_missing),
    ("hosts_remote_command_fails", remote_command_fails),
    ("hosts_other_versions", other_versions),
    ("hosts_silent_remote_command", silent_remote_command),
    ("hosts_port_in_use", port_in_use),
    ("hosts_strangers_at_the_door", strangers_at_the_door),
    ("hosts_interrupted_start", interrupted_start),
    ("hosts_nobody_outlives_amrun", nobody_outlives_amrun),
    ("hosts_what_ranks_leave_behind_ends", what_ranks_leave_behind_ends),
    ("hosts_agent_by_hand", agent_by_hand),
    ("hosts_udp_on_one_host", udp_on_one_host),
    ("full_hosts_512_udp_ranks", many_udp_ranks),
];

/// A remote command that runs its program here, with the host's name in the environment.
pub(crate) const REMOTE: &str = "sh -c 'T_HOST={host} exec \"$@\"' sh";

/// `amrun` on the two hosts 127.0.0.1 and 127.0.0.2.
fn two_hosts(flags: &[&str]) -> Command {
    amrun(&[&["--hosts", "127.0.0.1,127.0.0.2", "--remote", REMOTE], flags].concat())
}

/// A file for one test, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("am-launch-{}-{name}", std::process::id()));
        fs::write(&path, text).expect("a temporary file");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }

    /// Makes it a program.
    fn executable(self) -> Self {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o755)).expect("its own file");
        self
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Checks that a job did not start: the code, and one line that has these parts.
fn refused(finished: &Finished, code: i32, parts: &[&str]) {
    assert_eq!(finished.code(), code, "{finished:?}");
    assert!(finished.err.starts_with("amrun: ") && finished.err.lines().count() == 1, "{finished:?}");
    for part in parts {
        assert!(finished.err.contains(part), "'{part}' is not in {finished:?}");
    }
}

fn codes() {
    for (codes, expected) in [(["0", "0", "0", "0"], 0), (["0", "0", "0", "7"], 7), (["255", "0", "0", "0"], 255)]
    {
        let finished = finish(two_hosts(&["-n", "4"]).role("exit").args(codes));
        assert_eq!(finished.code(), expected, "{finished:?}");
        assert_eq!(finished.err.is_empty(), expected == 0, "{finished:?}");
    }
    let finished = finish(two_hosts(&["-n", "4", "--grace", "100"]).role("fail").args(["3", "9"]));
    assert_eq!(finished.code(), 9);
    assert_eq!(finished.err, "amrun: rank 3 exited with code 9; ending the other 3 ranks\n");
    let finished = finish(two_hosts(&["-n", "3"]).role("die").args(["1", "9"]));
    assert_eq!(finished.code(), 137);
    assert_eq!(finished.err, "amrun: rank 1 was killed by signal 9 (SIGKILL); ending the other 2 ranks\n");
}

/// Who is where, as the ranks see it.
fn places(finished: &Finished) -> Vec<String> {
    assert_eq!(finished.code(), 0, "{finished:?}");
    finished.sorted()
}

const WHERE: [&str; 3] = ["sh", "-c", "echo $AM_RANK/$AM_RANKS $AM_LOCAL_RANK/$AM_LOCAL_RANKS ${T_HOST#127.0.0.}"];

fn placement() {
    let block = places(&finish(two_hosts(&["-n", "3"]).args(WHERE)));
    assert_eq!(block, ["0/3 0/2 1", "1/3 1/2 1", "2/3 0/1 2"]);
    let cyclic = places(&finish(two_hosts(&["-n", "3", "--placement", "cyclic"]).args(WHERE)));
    assert_eq!(cyclic, ["0/3 0/2 1", "1/3 0/1 2", "2/3 1/2 1"]);
    // A host that gets no rank is left alone.
    assert_eq!(places(&finish(two_hosts(&["-n", "1"]).args(WHERE))), ["0/1 0/1 1"]);
    let every_slot = amrun(&["--hosts", "127.0.0.1:2,127.0.0.2", "--remote", REMOTE]).args(WHERE).output();
    assert_eq!(every_slot.expect("amrun").stdout.iter().filter(|&&byte| byte == b'\n').count(), 3);
}

fn host_file() {
    let file = Scratch::new("hosts", "# two\n127.0.0.2 slots=1   # small\n\n127.0.0.1:2\n");
    let flags = ["--hostfile", file.path(), "--remote", REMOTE];
    assert_eq!(places(&finish(amrun(&flags).args(WHERE))), ["0/3 0/1 2", "1/3 0/2 1", "2/3 1/2 1"]);
    let finished = finish(amrun(&[&flags[..], &["-n", "4"]].concat()).args(WHERE));
    refused(
        &finished,
        2,
        &["4 ranks asked for, but the hosts have 3 slots together (127.0.0.2: 1, 127.0.0.1: 2)"],
    );
}

fn bad_lists() {
    let file = Scratch::new("bad-hosts", "127.0.0.1\n\n127.0.0.2 slots=many\n");
    let finished = finish(amrun(&["--hostfile", file.path()]).arg("true"));
    refused(&finished, 2, &[&format!("host file {}, line 3: 'many' is not a number of slots", file.path())]);
    let finished = finish(amrun(&["--hostfile", "/no/such/file"]).arg("true"));
    refused(&finished, 2, &["host file /no/such/file can't be read: No such file"]);
    let finished = finish(amrun(&["--hosts", "a,,b"]).arg("true"));
    refused(&finished, 2, &["--hosts a,,b: '' is no host name; hosts are listed as NAME or NAME:SLOTS"]);
    let finished = finish(amrun(&["--hosts", "a", "--remote", "ssh 'x"]).arg("true"));
    refused(&finished, 2, &["quotation mark without its partner"]);
    let finished = finish(amrun(&["--hosts", "a", "--hostfile", "b"]).arg("true"));
    refused(&finished, 2, &["--hosts", "cannot be used with"]);
    let finished = finish(two_hosts(&["--transport", "shm", "-n", "2"]).role("job").arg("who"));
    assert_eq!((finished.code(), &*finished.text()), (2, ""), "{finished:?}");
    let line = "AM_TRANSPORT=shm, but the ranks are on 2 hosts, and shared memory spans one host only";
    assert!(finished.err.contains(line) && finished.err.lines().count() == 2, "{finished:?}");
}

/// Ranks of this host need no ssh.
fn default_remote_command() {
    let finished =
        finish(amrun(&["--hosts", "127.0.0.1:2,127.0.0.2", "-n", "3"]).role("job").args(["who", "barrier"]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert_eq!(finished.sorted(), [0, 1, 2].map(|rank| format!("{rank} of 3 by amrun")));
}

/// Arguments of all kinds arrive; of the environment what is asked for, and the family's own variables.
fn surroundings() {
    let remote = "env -i {host}=there";
    let args = ["", " a  b ", "'q' \"qq\" $HOME `id`", "line\nline", "*", "--prefix", "--", "-n", "\u{4e16}"];
    let mut command =
        amrun(&["--hosts", "127.0.0.1,127.0.0.2", "--remote", remote, "-n", "2", "-e", "T_ONE=a\n'b"]);
    command.env("T_LOST", "stays here").env("AM_UDP_SILENCE", "7");
    let finished = finish(command.role("arguments").args(args));
    assert_eq!(finished.code(), 0, "{finished:?}");
    let expected: Vec<String> = args.iter().map(|arg| format!("{:?}", arg.as_bytes())).collect();
    let line = format!("{} | {:?}={:?}", expected.join(" "), b"T_ONE", b"a\n'b");
    assert_eq!(finished.sorted(), [line.clone(), line]);
    let script = "echo $AM_UDP_SILENCE $AM_REMOTE";
    let mut command = amrun(&["--hosts", "127.0.0.1", "-n", "1"]);
    command.env("AM_REMOTE", remote).env("AM_UDP_SILENCE", "7");
    assert_eq!(finish(command.args(["/bin/sh", "-c", script])).text(), "7\n");
}

fn working_directory() {
    let here = std::env::current_dir().expect("a directory");
    assert_eq!(finish(two_hosts(&["-n", "2"]).arg("pwd")).sorted(), [here.to_str().expect("text"); 2]);
    assert_eq!(finish(two_hosts(&["-n", "2", "--wdir", "/usr"]).arg("pwd")).sorted(), ["/usr"; 2]);
    let finished = finish(two_hosts(&["-n", "2", "--wdir", "/no/such"]).arg("pwd"));
    refused(
        &finished,
        125,
        &["host 127.0.0.", "the working directory /no/such does not exist here: name one with --wdir"],
    );
}

fn standard_input() {
    let mut running = Running::start(two_hosts(&["-n", "3", "-p"]).role("stdin").stdin(Stdio::piped()));
    running.input(b"for rank 0");
    assert_eq!(running.finish().sorted(), ["[0] \"for rank 0\"", "[1] \"\"", "[2] \"\""]);
    // Rank 0 reads nothing: what waits for it keeps nobody.
    let finished =
        finish(two_hosts(&["-n", "2"]).arg("true").stdin(Stdio::from(fs::File::open("/dev/zero").expect("it"))));
    assert_eq!(finished.code(), 0, "{finished:?}");
}

fn prefixed_lines_are_whole() {
    let finished = finish(two_hosts(&["-n", "4", "--prefix"]).role("lines"));
    assert_eq!(finished.code(), 0, "{}", finished.err);
    let lines: Vec<&[u8]> =
        finished.out.strip_suffix(b"\n").expect("a last line end").split(|&byte| byte == b'\n').collect();
    for rank in 0..4 {
        let prefix = format!("[{rank}] ").into_bytes();
        let own: Vec<&[u8]> = lines.iter().filter_map(|line| line.strip_prefix(&*prefix)).collect();
        let mut expected: Vec<Vec<u8>> = (0..LINES).map(|line| long_line(rank, line)).collect();
        expected.push(b"unfinished \xff\0".to_vec());
        assert!(own == expected, "lines of rank {rank}");
        let errors =
            finished.err.lines().filter(|line| line.starts_with(&format!("[{rank}] error {rank} "))).count();
        assert_eq!(errors, LINES);
    }
    assert_eq!(lines.len(), 4 * (LINES + 1));
}

/// An agent that is ready waits for the others, however soon it would give up a silent launcher.
fn slow_start() {
    let remote = "sh -c 'test {host} = 127.0.0.1 || sleep 1.5; exec \"$@\"' sh";
    let flags = ["--hosts", "127.0.0.1,127.0.0.2", "--remote", remote, "-n", "2", "--lost-after", "0.5"];
    let finished = finish(amrun(&flags).args(["echo", "here"]));
    assert_eq!((finished.code(), &*finished.text()), (0, "here\nhere\n"), "{finished:?}");
}

/// A whole job that is stopped, as a debugger or a paused machine does, goes on as if nothing had happened.
fn stopped_and_continued() {
    let script = "if test $AM_RANK = 0; then trap '' QUIT; echo $PPID; read line; exit 7; fi
        trap 'echo here >&2' QUIT; sleep 1000 & echo $PPID; until wait $!; do :; done";
    let mut command = two_hosts(&["-n", "2", "--lost-after", "4"]);
    let mut running = Running::start(command.args(["sh", "-c", script]).stdin(Stdio::piped()));
    let agents = [running.line(), running.line()].map(|pid| Pid::from_raw(pid.parse().expect("a number")));
    let all = [running.pid(), agents[0], agents[1]];
    all.iter().for_each(|&pid| kill(pid, Signal::SIGSTOP).expect("it lives"));
    // Longer than a silence that loses a host; how much longer does not matter, since nobody runs.
    std::thread::sleep(Duration::from_millis(4500));
    all.iter().for_each(|&pid| kill(pid, Signal::SIGCONT).expect("it lives"));
    // A word to the last rank by way of its agent, twice: by then launcher and agents have found out what they
    // missed.
    for _ in 0..2 {
        running.signal(Signal::SIGQUIT);
        running.wait_for_errors(1);
    }
    running.input(b"go on\n");
    let finished = running.finish();
    assert_eq!(finished.code(), 7, "{finished:?}");
    assert_eq!(finished.err, "here\nhere\namrun: rank 0 exited with code 7; ending the other rank\n");
}

/// Who reads the output may take as long as he likes: with all output stuck, launcher, agents and ranks hear each
/// other.
fn slow_reader() {
    for (name, flags) in [("plain", &["-n", "2"][..]), ("prefixed", &["-n", "2", "-p"])] {
        let roll = Roll::new(&format!("slow-reader-{name}"));
        let script =
            "trap 'echo here >>$T_ROLL' QUIT; head -c 3000000 /dev/zero | tr '\\0' '\\n' & echo $! >>$T_ROLL
            until wait $!; do :; done";
        let mut command = two_hosts(&[flags, &["--grace", "0"]].concat());
        command.args(["sh", "-c", script]).env(ROLL, &roll.0).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("amrun");
        // The first so many lines that ranks have written there.
        let lines = |count: usize| {
            within(ANTI_HANG, || {
                let text = fs::read_to_string(&roll.0).expect("a file of its own");
                let lines: Vec<String> = text.lines().map(str::to_owned).collect();
                (lines.len() >= count && text.ends_with('\n')).then_some(lines)
            })
        };
        let writers = lines(2);
        // What a rank has written so far, and whether it is waiting.
        let written = |process: &String| {
            let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).expect("it lives");
            let bytes = read("io").lines().find_map(|line| line.strip_prefix("wchar: ").map(str::to_owned));
            let waits = read("stat").rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'));
            bytes.filter(|bytes| waits && bytes != "0")
        };
        // It is stuck when nobody has written anything from before a word to both ranks until they have answered.
        let mut said = 2;
        within(ANTI_HANG, || {
            let before = [0, 1].map(|rank| written(&writers[rank]));
            kill(Pid::from_raw(child.id() as i32), Signal::SIGQUIT).expect("it lives");
            said += 2;
            lines(said);
            let stuck = before.iter().all(Option::is_some);
            (stuck && before == [0, 1].map(|rank| written(&writers[rank]))).then_some(())
        });
        let mut out = Vec::new();
        child.stdout.take().expect("piped").read_to_end(&mut out).expect("output");
        assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 6_000_000, "{name}");
        assert_eq!(child.wait().expect("a child").code(), Some(0));
    }
}

fn reports() {
    let finished = finish(two_hosts(&["-n", "3", "-v"]).role("job").args(["report", "barrier"]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    let lines = finished.sorted();
    assert!(lines[0].starts_with("rank 0 of 3, started by amrun, on host 127.0.0.1 at 127.0.0."), "{lines:?}");
    assert!(lines[0].ends_with("; shared memory to 0-1; UDP to 2"), "{lines:?}");
    assert!(
        lines[2].contains("on host 127.0.0.2 at ") && lines[2].ends_with("; shared memory to 2; UDP to 0-1"),
        "{lines:?}"
    );
    assert!(finished.err.contains("amrun: host 127.0.0.2: ranks 2 at 127.0.0."), "{finished:?}");
    // The interface that was asked for, or what there is.
    let finished = finish(two_hosts(&["-n", "2", "--interface", "127.0.0.5"]).role("job").arg("report"));
    assert!(finished.text().contains("at 127.0.0.5 ("), "{finished:?}");
    let finished = finish(two_hosts(&["-n", "2", "--interface", "none7"]).arg("true"));
    refused(&finished, 125, &["host 127.0.0.", "no interface fits none7; there are ", "127.0.0.1", "--interface"]);
}

/// The word goes round by all launchers, long before the silence would be noticed.
fn ranks_that_exit_are_lost() {
    let mut command = two_hosts(&["-n", "4", "--keep-going"]);
    let roll = Roll::new("hosts");
    command.env("AM_UDP_SILENCE", "100").env(ROLL, &roll.0);
    let finished = finish(command.role("job").args(["1:vanish", "outlive"]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert_eq!(finished.text(), "rank 1 is lost: its process died\n".repeat(3), "{finished:?}");
}

fn secret_is_hidden() {
    let finished = finish(two_hosts(&["-n", "2"]).role("job").args(["hidden", "barrier"]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert_eq!(finished.text(), "a secret of 32 bytes, hidden\n".repeat(2));
}

fn transports() {
    for transport in ["auto", "udp"] {
        let flags = ["-n", "4", "--transport", transport, "--endpoints", "2"];
        let finished = finish(two_hosts(&flags).role("job").args(["report", "threads"]));
        assert_eq!(finished.code(), 0, "{finished:?}");
        assert_eq!(finished.text().contains("shared memory"), transport == "auto", "{finished:?}");
    }
    let finished = finish(two_hosts(&["-n", "2"]).role("job").arg("shm"));
    assert_eq!(finished.code(), 1);
    assert!(finished.err.contains("shared memory does not lead to all ranks of this job"), "{finished:?}");
}

fn keep_going() {
    let script = "test $AM_RANK != 1 || exit 6; sleep 0.3; echo done";
    let finished = finish(two_hosts(&["-n", "3", "--keep-going"]).args(["sh", "-c", script]));
    assert_eq!(finished.code(), 6, "{finished:?}");
    assert_eq!(finished.text(), "done\ndone\n");
    assert_eq!(finished.err, "amrun: rank 1 exited with code 6\n");
}

fn time_limit() {
    let finished = finish(two_hosts(&["-n", "2", "-t", "0.3"]).role("sleep"));
    assert_eq!(finished.code(), 124, "{finished:?}");
    assert_eq!(finished.err, "amrun: the job's 0.3 s are over; ending 2 ranks\n");
}

fn signals_are_passed_on() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR1] {
        let mut running = Running::start(two_hosts(&["-n", "3", "--grace", "100"]).role("signal"));
        (0..3).for_each(|_| assert_eq!(running.line(), "ready"));
        running.signal(signal);
        (0..3).for_each(|_| assert_eq!(running.line(), signal.as_str()));
        let finished = running.finish();
        assert_eq!(finished.code(), 100 + signal as i32, "{finished:?}");
    }
}

fn program_missing() {
    for (program, code, part) in [
        ("no-such-program-anywhere", 127, "program 'no-such-program-anywhere' not found"),
        ("/proc/self/status", 126, "program '/proc/self/status' can't be executed"),
    ] {
        refused(&finish(two_hosts(&["-n", "2", program]).arg("x")), code, &["host 127.0.0.", part]);
    }
}

fn remote_command_fails() {
    let run = |remote: &str, more: &[&str]| {
        let flags = ["--hosts", "127.0.0.1", "-n", "1", "--remote", remote];
        finish(amrun(&[&flags[..], more].concat()).arg("true"))
    };
    // As ssh does when it can't connect or log in.
    let ssh = std::env::temp_dir().join(format!("am-launch-{}-bin", std::process::id()));
    fs::create_dir_all(&ssh).expect("a folder");
    let program = ssh.join("ssh");
    fs::write(
        &program,
        "#!/bin/sh\necho 'ssh: connect to host 127.0.0.1 port 22: No route to host' >&2\nexit 255\n",
    )
    .expect("it");
    Command::new("chmod").arg("755").arg(&program).status().expect("chmod");
    let finished = run(program.to_str().expect("text"), &[]);
    fs::remove_dir_all(&ssh).expect("it was there");
    let parts = [
        "host 127.0.0.1: `",
        "No route to host",
        "can't be reached or refuses the login",
        "127.0.0.1 true` shows it",
    ];
    refused(&finished, 125, &parts);
    refused(&run("/no/ssh", &[]), 125, &["`/no/ssh 127.0.0.1` can't be started", "--remote names another one"]);
    let parts = ["exited with code 127", "install it under the same path on every host", "--remote-amrun"];
    refused(&run(REMOTE, &["--remote-amrun", "/no/amrun"]), 125, &parts);
}

fn other_versions() {
    // An amrun without agents says that it doesn't know the flag.
    let old = Scratch::new("old-amrun", "#!/bin/sh\necho \"amrun: unexpected argument '$1' found\" >&2\nexit 2\n")
        .executable();
    let flags = ["--hosts", "127.0.0.1", "-n", "1", "--remote", REMOTE, "--remote-amrun"];
    let finished = finish(amrun(&[&flags[..], &[old.path()]].concat()).arg("true"));
    refused(&finished, 125, &["unexpected argument '--agent'", "amrun there is of another version"]);
    // An agent that gets orders of another version.
    let mut agent = Running::start(amrun(&["--agent"]).stdin(Stdio::piped()));
    agent.input(&[&b"am-agent"[..], &9u16.to_le_bytes(), &0u32.to_le_bytes()].concat());
    let finished = agent.finish();
    assert_eq!(finished.code(), 2);
    assert!(
        finished.err.contains("its orders are of version 9") && finished.err.contains("--remote-amrun"),
        "{finished:?}"
    );
}

fn silent_remote_command() {
    let flags = ["--hosts", "127.0.0.1", "-n", "1", "--remote", "sh -c 'echo busy >&2; exec sleep 1000' {host}"];
    let finished = finish(amrun(&[&flags[..], &["--start-limit", "0.5"]].concat()).arg("true"));
    refused(&finished, 125, &["no report within 0.5 s from 127.0.0.1 (busy)", "--start-limit"]);
}

fn port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let finished = finish(amrun(&["--hosts", "127.0.0.1", "-n", "1", "--port", &port]).arg("true"));
    refused(
        &finished,
        125,
        &[&format!("the rendezvous port 127.0.0.1:{port} is in use on this host: choose another one")],
    );
}

/// Whoever talks nonsense at the launcher's port, or nothing, changes nothing.
fn strangers_at_the_door() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let port = free.port().to_string();
    // The real agent comes only when the strangers have been there.
    let gate = Scratch::new("gate", "");
    let remote = format!("sh -c 'while test -e {}; do sleep 0.05; done; exec \"$@\"' {{host}}", gate.path());
    let running = Running::start(
        amrun(&["--hosts", "127.0.0.1", "-n", "1", "--remote", &remote, "--port", &port]).args(["echo", "fine"]),
    );
    let connect = || within(ANTI_HANG, || TcpStream::connect(free).ok());
    let silent: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    let mut loud = connect();
    loud.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("it listens");
    loud.set_read_timeout(Some(ANTI_HANG)).expect("a limit");
    let mut answer = Vec::new();
    let _ = loud.read_to_end(&mut answer);
    assert_eq!(answer, b"", "a stranger gets no answer");
    drop(gate);
    let finished = running.finish();
    assert_eq!((finished.code(), &*finished.text()), (0, "fine\n"), "{finished:?}");
    drop(silent);
}

fn interrupted_start() {
    let started = Scratch::new("started", "");
    let remote = format!("sh -c 'echo $$ >{}; exec sleep 1000' {{host}}", started.path());
    let running = Running::start(amrun(&["--hosts", "127.0.0.1", "-n", "1", "--remote", &remote]).arg("true"));
    let pid = within(ANTI_HANG, || fs::read_to_string(started.path()).ok().filter(|text| text.ends_with('\n')));
    running.signal(Signal::SIGINT);
    let finished = running.finish();
    refused(&finished, 130, &["ended by SIGINT before the ranks were started"]);
    gone(pid.trim());
}

fn nobody_outlives_amrun() {
    let mut running = Running::start(two_hosts(&["-n", "4"]).role("job").args(["pid", "sleep"]));
    let pids: Vec<String> = (0..4).map(|_| running.line()).collect();
    running.signal(Signal::SIGKILL);
    pids.iter().for_each(|pid| gone(pid));
    assert_eq!(running.finish().status.code(), None, "the launcher was killed");
    // An agent that is killed takes its ranks with it, and the launcher ends the others.
    let script = "echo $$ $PPID $AM_RANK; exec sleep 1000";
    let mut running = Running::start(two_hosts(&["-n", "2"]).args(["sh", "-c", script]));
    let lines = [running.line(), running.line()];
    let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    let second = words.iter().find(|words| words[2] == "1").expect("rank 1");
    kill(Pid::from_raw(second[1].parse().expect("a number")), Signal::SIGKILL).expect("the agent lives");
    let finished = running.finish();
    assert_eq!(finished.code(), 125, "{finished:?}");
    assert!(
        finished.err.contains("host 127.0.0.2 was lost") && finished.err.contains("rank 1 was lost"),
        "{finished:?}"
    );
    words.iter().for_each(|words| gone(words[0]));
}

fn what_ranks_leave_behind_ends() {
    let script = "sleep 1000 & echo $!; (sleep 1000 & echo $!) & wait $!";
    let mut running = Running::start(two_hosts(&["-n", "2"]).args(["sh", "-c", script]));
    let pids: Vec<String> = (0..4).map(|_| running.line()).collect();
    assert_eq!(running.finish().code(), 0);
    pids.iter().for_each(|pid| gone(pid));
}

fn agent_by_hand() {
    let finished = finish(amrun(&["--agent"]).stdin(Stdio::null()));
    assert_eq!(finished.code(), 2);
    assert!(finished.err.contains("amrun --agent is what amrun starts on other hosts"), "{finished:?}");
}

fn udp_on_one_host() {
    for ranks in [1, 64] {
        let count = ranks.to_string();
        let finished = finish(amrun(&["-n", &count, "--transport", "udp"]).role("job").args(["who", "barrier"]));
        assert_eq!(finished.code(), 0, "{finished:?}");
        assert_eq!(finished.sorted().len(), ranks);
    }
    let finished = finish(amrun(&["-n", "3"]).env("AM_TRANSPORT", "udp").role("job").args(["report", "barrier"]));
    assert_eq!(finished.text().matches("; UDP to 0-2\n").count(), 3, "{finished:?}");
    let finished = finish(amrun(&["-n", "2"]).env("AM_TRANSPORT", "tcp").role("job").arg("who"));
    assert_eq!((finished.code(), &*finished.text()), (2, ""), "{finished:?}");
    // What follows depends on what the program was built with.
    let line = "AM_TRANSPORT=tcp in the environment is not one of auto, shm";
    assert!(finished.err.contains(line) && finished.err.lines().count() == 2, "{finished:?}");
    // A rank that dies before it attaches keeps nobody waiting for the size of its segment.
    let mut command = amrun(&["-n", "3", "-k", "--transport", "udp"]);
    let finished = finish(command.env("AM_UDP_SILENCE", "1").role("job").args(["1:kill", "barrier"]));
    assert_eq!(finished.code(), 137, "{finished:?}");
    assert!(finished.err.contains("rank 0: ") && finished.err.contains("rank 1 is lost"), "{finished:?}");
}

/// No connection or descriptor for each pair of ranks.
fn many_udp_ranks() {
    let began = std::time::Instant::now();
    let mut running =
        Running::start(amrun(&["-n", "512", "--transport", "udp"]).role("job").args(["files", "barrier"]));
    let most = (0..512).map(|_| running.line().parse::<u32>().expect("a number")).max();
    assert_eq!(running.finish().code(), 0);
    println!("512 UDP ranks: {:?}, at most {most:?} files of a rank", began.elapsed());
    assert!(most.is_some_and(|most| most < 32));
    assert!(began.elapsed() < Duration::from_secs(600));
}

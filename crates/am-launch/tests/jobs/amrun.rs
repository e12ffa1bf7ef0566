//! The `amrun` command: codes, messages, signals, output, arguments.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::{ANTI_HANG, Finished, InRole, Roll, Running, Test, amrun, clean, finish};
use crate::roles::{LINES, LIST_FILES, ROLL, long_line};

pub(crate) const TESTS: &[Test] = &[
    ("amrun_codes", codes),
    ("amrun_a_failure_ends_sleepers", a_failure_ends_sleepers),
    ("amrun_a_killed_rank_is_named", a_killed_rank_is_named),
    ("amrun_deaf_ranks_are_killed", deaf_ranks_are_killed),
    ("amrun_keep_going", keep_going),
    ("amrun_time_limit", time_limit),
    ("amrun_signals_are_passed_on", signals_are_passed_on),
    ("amrun_ranks_start_with_a_clean_mask", ranks_start_with_a_clean_mask),
    ("amrun_ignored_sigchld", ignored_sigchld),
    ("amrun_prefixed_lines_are_whole", prefixed_lines_are_whole),
    ("amrun_closed_output_reaches_ranks", closed_output_reaches_ranks),
    ("amrun_arguments_and_environment", arguments_and_environment),
    ("amrun_standard_input", standard_input),
    ("amrun_64_ranks", sixty_four_ranks),
    ("amrun_lost_ranks_reach_the_survivors", lost_ranks_reach_the_survivors),
    ("amrun_few_descriptors", few_descriptors),
    ("full_amrun_many_ranks", many_ranks),
    ("amrun_ranks_that_exit_are_lost", ranks_that_exit_are_lost),
    ("amrun_children_of_ranks_inherit_nothing", children_of_ranks_inherit_nothing),
    ("amrun_descriptors_are_taken_over_once", descriptors_are_taken_over_once),
    ("amrun_children_of_ranks_are_no_ranks", children_of_ranks_are_no_ranks),
    ("amrun_file_size_limit", file_size_limit),
    ("amrun_ring_sizes", ring_sizes),
    ("amrun_binding", binding),
    ("amrun_program_missing", program_missing),
    ("amrun_usage", usage),
    ("amrun_threads_are_no_ranks", threads_are_no_ranks),
];

fn threads_are_no_ranks() {
    let finished = finish(amrun(&["-n", "2"]).role("threads"));
    assert_eq!(finished.code(), 2, "{finished:?}");
    assert!(finished.err.contains("of 2: start the program by itself, with --ranks 2"), "{finished:?}");
    assert_eq!(finished.out, b"", "no rank has run");
    let finished = finish(amrun(&["-n", "1"]).role("threads"));
    assert_eq!((finished.code(), &finished.out[..]), (0, &b"0 of 1\n"[..]), "{finished:?}");
}

fn codes() {
    for (codes, expected) in [(["0", "0", "0"], 0), (["0", "7", "0"], 7), (["255", "0", "0"], 255)] {
        let finished = finish(amrun(&["-n", "3"]).role("exit").args(codes));
        assert_eq!(finished.code(), expected, "{finished:?}");
        assert_eq!(finished.err.is_empty(), expected == 0, "{finished:?}");
    }
}

fn a_failure_ends_sleepers() {
    let finished = finish(amrun(&["-n", "4", "--grace", "100"]).role("fail").args(["2", "9"]));
    assert_eq!(finished.code(), 9);
    assert_eq!(finished.err, "amrun: rank 2 exited with code 9; ending the other 3 ranks\n");
}

fn a_killed_rank_is_named() {
    let finished = finish(amrun(&["-n", "3"]).role("die").args(["1", "9"]));
    assert_eq!(finished.code(), 137);
    assert_eq!(finished.err, "amrun: rank 1 was killed by signal 9 (SIGKILL); ending the other 2 ranks\n");
}

fn deaf_ranks_are_killed() {
    // Rank 0 fails only when rank 1 has gone deaf.
    let script =
        "test $AM_RANK = 1 || { read line; exit 5; }; trap '' TERM; echo deaf; while :; do sleep 1000; done";
    let mut running =
        Running::start(amrun(&["-n", "2", "--grace", "0.2"]).args(["sh", "-c", script]).stdin(Stdio::piped()));
    assert_eq!(running.line(), "deaf");
    running.input(b"go\n");
    let finished = running.finish();
    assert_eq!(finished.code(), 5, "{finished:?}");
    let lines: Vec<&str> = finished.err.lines().collect();
    assert_eq!(
        lines,
        [
            "amrun: rank 0 exited with code 5; ending the other rank",
            "amrun: still there 0.2 s after being told to end: killing 1 rank"
        ]
    );
}

fn keep_going() {
    let script = "test $AM_RANK != 1 || exit 6; sleep 0.3; echo done";
    let finished = finish(amrun(&["-n", "3", "--keep-going"]).args(["sh", "-c", script]));
    assert_eq!(finished.code(), 6, "{finished:?}");
    assert_eq!(finished.text(), "done\ndone\n");
    assert_eq!(finished.err, "amrun: rank 1 exited with code 6\n");
}

fn time_limit() {
    let finished = finish(amrun(&["-n", "2", "-t", "0.2"]).role("sleep"));
    assert_eq!(finished.code(), 124, "{finished:?}");
    assert_eq!(finished.err, "amrun: the job's 0.2 s are over; ending 2 ranks\n");
}

fn signals_are_passed_on() {
    for signal in
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2]
    {
        let mut running = Running::start(amrun(&["-n", "3", "--grace", "100"]).role("signal"));
        (0..3).for_each(|_| assert_eq!(running.line(), "ready"));
        running.signal(signal);
        // SIGUSR1 asks nobody to end, so the first rank that fails over it takes the others with it, unless they
        // have answered before: each says what it got first.
        (0..3).for_each(|_| assert_eq!(running.line(), signal.as_str()));
        let finished = running.finish();
        assert_eq!(finished.code(), 100 + signal as i32, "{finished:?}");
    }
}

fn ranks_start_with_a_clean_mask() {
    let finished = finish(amrun(&["-n", "2"]).role("status").arg("SigBlk"));
    assert_eq!(finished.sorted(), ["SigBlk:\t0000000000000000"; 2]);
    let finished = finish(amrun(&["-n", "1"]).role("status").arg("SigIgn"));
    let plain = finish(crate::harness::role("status").arg("SigIgn"));
    assert_eq!(finished.text(), plain.text());
}

/// A parent that ignores SIGCHLD hands that on; the launcher has to hear of its ranks nevertheless.
fn ignored_sigchld() {
    let ignoring = |command: &[&str]| finish(clean("env").arg("--ignore-signal=CHLD").args(command));
    let mask = ignoring(&["grep", "SigIgn", "/proc/self/status"]).text();
    let mask = mask.trim().rsplit('\t').next().and_then(|mask| u64::from_str_radix(mask, 16).ok());
    if mask.is_none_or(|mask| mask & 1 << (Signal::SIGCHLD as u64 - 1) == 0) {
        println!("amrun_ignored_sigchld: skipped, this env can't ignore signals");
        return;
    }
    let finished = ignoring(&[env!("CARGO_BIN_EXE_amrun"), "-n", "2", "sh", "-c", "exit 3"]);
    assert_eq!(finished.code(), 3, "{finished:?}");
}

fn prefixed_lines_are_whole() {
    let finished = finish(amrun(&["-n", "4", "--prefix"]).role("lines"));
    assert_eq!(finished.code(), 0, "{}", finished.err);
    let mut lines: BTreeMap<u32, Vec<&[u8]>> = BTreeMap::new();
    for line in finished.out.strip_suffix(b"\n").expect("a last line end").split(|&byte| byte == b'\n') {
        assert_eq!((line[0], &line[2..4]), (b'[', &b"] "[..]), "a line without its rank");
        lines.entry(u32::from(line[1] - b'0')).or_default().push(&line[4..]);
    }
    for rank in 0..4 {
        let mut expected: Vec<Vec<u8>> = (0..LINES).map(|line| long_line(rank, line)).collect();
        expected.push(b"unfinished \xff\0".to_vec());
        assert!(lines[&rank] == expected, "lines of rank {rank}");
        let errors: String = (0..LINES).map(|line| format!("[{rank}] error {rank} {line}\n")).collect();
        let prefix = format!("[{rank}]");
        let own: String = finished.err.split_inclusive('\n').filter(|line| line.starts_with(&prefix)).collect();
        assert_eq!(own, errors);
    }
    assert_eq!(finished.err.lines().count(), 4 * LINES);
}

/// As in `amrun -p yes | head -1`: the ranks notice that nobody reads any more.
fn closed_output_reaches_ranks() {
    let mut command = amrun(&["-n", "2", "-p", "yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("amrun");
    let mut first = [0; 6];
    child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("output");
    assert_eq!(&first[4..], b"y\n");
    drop(child.stdout.take());
    let status = crate::orphans::within(ANTI_HANG, || child.try_wait().expect("a child"));
    assert_ne!(status.code(), Some(0));
    assert_ne!(status.code(), None);
}

fn arguments_and_environment() {
    let args: [&[u8]; 12] = [
        b"",
        b" ",
        b"a b",
        b"'q' \"qq\" `b` $HOME \\",
        b"line\nline\n",
        b"*",
        b"-n",
        b"--prefix",
        b"--",
        b"\xff\xfe",
        "\u{e4}\u{4e16}".as_bytes(),
        b"",
    ];
    let mut command = amrun(&["-n", "3", "--env", "T_ONE=a=b c\n'\"", "-e", "T_EMPTY=", "-e"]);
    command.arg(OsString::from_vec(b"T_RAW=\xff".to_vec()));
    command.env("T_OUTER", OsString::from_vec(b"\xfe \n".to_vec())).env("T_ONE", "replaced");
    command.role("arguments").args(args.map(|arg| OsString::from_vec(arg.to_vec())));
    let finished = finish(&mut command);
    assert_eq!(finished.code(), 0, "{finished:?}");
    let expected: Vec<String> = args.iter().map(|arg| format!("{arg:?}")).collect();
    let pairs: [(&[u8], &[u8]); 4] =
        [(b"T_EMPTY", b""), (b"T_ONE", b"a=b c\n'\""), (b"T_OUTER", b"\xfe \n"), (b"T_RAW", b"\xff")];
    let mut variables = pairs.map(|(key, value)| format!("{key:?}={value:?}"));
    variables.sort();
    let line = format!("{} | {}", expected.join(" "), variables.join(" "));
    assert_eq!(finished.sorted(), [line.clone(), line.clone(), line]);
}

fn standard_input() {
    let mut running = Running::start(amrun(&["-n", "3", "-p"]).role("stdin").stdin(Stdio::piped()));
    running.input(b"for rank 0");
    assert_eq!(running.finish().sorted(), ["[0] \"for rank 0\"", "[1] \"\"", "[2] \"\""]);
}

fn sixty_four_ranks() {
    let finished = finish(amrun(&["-n", "64"]).role("job").args(["who", "barrier"]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    let mut expected: Vec<String> = (0..64).map(|rank| format!("{rank} of 64 by amrun")).collect();
    expected.sort();
    assert_eq!(finished.sorted(), expected);
}

/// A rank that dies, fails or leaves before it has joined, while the others wait for it.
fn lost_ranks_reach_the_survivors() {
    for (action, code) in [("1:kill", 137), ("1:exit", 42), ("1:fail", 1), ("1:panic", 101)] {
        let finished = finish(amrun(&["-n", "3", "--keep-going"]).role("job").args([action, "barrier"]));
        assert_eq!(finished.code(), code, "{finished:?}");
        // A survivor may also learn first that another one has given up over the same loss.
        let errors: Vec<&str> = finished.err.lines().filter(|line| line.contains(" is lost: ")).collect();
        assert!(
            [0, 2].iter().all(|rank| errors.iter().any(|line| line.contains(&format!(": rank {rank}: ")))),
            "{errors:?}"
        );
        assert!(errors.iter().any(|line| line.contains("rank 1 is lost")), "{errors:?}");
    }
}

/// `amrun` by a shell that limits what it and the ranks may have.
fn limited(limit: &str, flags: &[&str], actions: &[&str]) -> Finished {
    limited_within(ANTI_HANG, limit, flags, actions)
}

/// [`limited`], in so much time.
fn limited_within(time: Duration, limit: &str, flags: &[&str], actions: &[&str]) -> Finished {
    let script = format!("{limit}; exec \"$0\" \"$@\"");
    let roll = Roll::new("limited");
    let mut command = clean("sh");
    command.env(ROLL, &roll.0).args(["-c", &script, env!("CARGO_BIN_EXE_amrun")]).args(flags);
    Running::start(command.role("job").args(actions)).finish_within(time)
}

fn few_descriptors() {
    let finished = limited("ulimit -Sn 24", &["-n", "40"], &["barrier"]);
    assert_eq!((finished.code(), &*finished.err), (0, ""), "{finished:?}");
    // A death reaches everyone, also those that could not have a descriptor for the rank.
    let finished = limited("ulimit -Sn 24", &["-n", "40", "--keep-going"], &["7:killed", "outlive"]);
    assert_eq!(finished.code(), 137, "{finished:?}");
    assert_eq!(finished.text(), "rank 7 is lost: its process died\n".repeat(39), "{finished:?}");
}

/// Memory that is available on this host, in MiB.
fn available() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").expect("/proc");
    let line = info.lines().find(|line| line.starts_with("MemAvailable:")).expect("the kernel tells it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") >> 10
}

/// Many more ranks than the usual limit of files.
fn many_ranks() {
    let (began, before) = (Instant::now(), available());
    let over = AtomicBool::new(false);
    let least = thread::scope(|scope| {
        let least = scope.spawn(|| {
            let mut least = before;
            while !over.load(Relaxed) {
                thread::sleep(Duration::from_millis(50));
                least = least.min(available());
            }
            least
        });
        let time = Duration::from_secs(1800);
        let finished = limited_within(time, "ulimit -Sn 1024", &["-n", "2000"], &["barrier"]);
        over.store(true, Relaxed);
        assert_eq!((finished.code(), &*finished.err), (0, ""), "{finished:?}");
        least.join().expect("no panic")
    });
    println!("2000 ranks: {:?}, {} MiB at most", began.elapsed(), before.saturating_sub(least));
}

fn ranks_that_exit_are_lost() {
    for transport in ["shm", "udp"] {
        let flags = ["-n", "3", "--transport", transport, "--keep-going"];
        let roll = Roll::new("exit");
        let mut command = amrun(&flags);
        let finished = finish(command.env(ROLL, &roll.0).role("job").args(["1:vanish", "outlive"]));
        assert_eq!(finished.code(), 0, "{finished:?}");
        assert_eq!(finished.text(), "rank 1 is lost: its process died\n".repeat(2), "{finished:?}");
    }
}

fn children_of_ranks_inherit_nothing() {
    // This program may itself have inherited some.
    let expected = finish(clean("sh").args(["-c", LIST_FILES])).text();
    for transport in ["shm", "udp"] {
        let finished =
            finish(amrun(&["-n", "2", "--transport", transport]).role("job").args(["child", "barrier"]));
        assert_eq!(finished.code(), 0, "{finished:?}");
        assert_eq!(finished.text(), expected.repeat(2), "{finished:?}");
    }
}

fn descriptors_are_taken_over_once() {
    for transport in ["shm", "udp"] {
        let finished =
            finish(amrun(&["-n", "1", "--transport", transport]).role("job").args(["again", "barrier"]));
        assert_eq!(finished.code(), 0, "{finished:?}");
        let text = finished.text();
        assert!(text.starts_with("AM_LIFELINE_FD=") && text.contains("taken it over before"), "{text}");
    }
    // What is not the launcher's stays as it is.
    let script = "exec 3</dev/null; AM_MANIFEST_FD=3:${AM_MANIFEST_FD#*:} \"$0\" \"$@\"";
    let finished = finish(amrun(&["-n", "1"]).args(["sh", "-c", script]).role("job").arg("barrier"));
    assert!(
        finished.err.contains("AM_MANIFEST_FD=3 in the environment is no descriptor of this job"),
        "{finished:?}"
    );
}

fn children_of_ranks_are_no_ranks() {
    for transport in ["shm", "udp"] {
        let finished =
            finish(amrun(&["-n", "2", "--transport", transport]).role("job").args(["grandchild", "barrier"]));
        assert_eq!(finished.code(), 0, "{finished:?}");
        for line in finished.text().lines() {
            assert!(line.contains("AM_LIFELINE_FD=") && line.contains("is no descriptor of this job"), "{line}");
            assert!(line.ends_with("have to be started without the variables AM_*; exit status: 2"), "{line}");
        }
        assert_eq!(finished.text().lines().count(), 2, "{finished:?}");
    }
}

fn file_size_limit() {
    let remedy = "(ulimit -f): start it with `ulimit -f unlimited`\n";
    let finished = limited("ulimit -f 0", &["-n", "2"], &["barrier"]);
    assert_eq!(finished.code(), 125, "{finished:?}");
    assert!(finished.err.ends_with(remedy) && finished.err.lines().count() == 1, "{finished:?}");
    // Enough for what a launcher makes, but not for shared memory, which the first rank makes.
    let finished = limited("ulimit -f 1000000", &["-n", "2", "--transport", "shm"], &["barrier"]);
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.err.contains(remedy) && finished.err.contains(": rank 0: "), "{finished:?}");
}

fn ring_sizes() {
    let flags = ["-n", "2", "-e", "AM_SHM_RING_CELLS=4", "-e", "AM_SHM_RING_BYTES=256"];
    assert_eq!(finish(amrun(&flags).role("job").arg("barrier")).code(), 0);
    let finished = finish(amrun(&["-n", "2", "-e", "AM_SHM_RING_CELLS=5"]).role("job").arg("barrier"));
    assert_eq!(finished.code(), 2, "{finished:?}");
    assert!(finished.err.contains("number of cells of 5 is not a power of two"), "{finished:?}");
}

fn binding() {
    let usable = am_launch::usable_processors() as usize;
    let ranks = (usable + 1).to_string();
    let finished = finish(amrun(&["-n", &ranks, "--bind", "-p"]).role("status").arg("Cpus_allowed_list"));
    let lines = finished.sorted();
    assert_eq!(lines.len(), usable + 1, "{finished:?}");
    let mut cpus: Vec<&str> = lines.iter().map(|line| line.rsplit('\t').next().expect("a list")).collect();
    assert!(cpus.iter().all(|cpu| cpu.parse::<u32>().is_ok()), "one processor each: {cpus:?}");
    cpus.sort_unstable();
    cpus.dedup();
    assert_eq!(cpus.len(), usable, "all processors in turn");
}

fn program_missing() {
    let directory = std::env::temp_dir();
    for (program, code, part) in [
        ("no-such-program-anywhere", 127, "'no-such-program-anywhere' not found"),
        ("./no/such/file", 127, "'./no/such/file' not found"),
        ("/proc/self/status", 126, "'/proc/self/status' can't be executed"),
        (directory.to_str().expect("text"), 126, "can't be executed"),
    ] {
        let finished = finish(amrun(&["-n", "2", program]).arg("x"));
        assert_eq!(finished.code(), code, "{finished:?}");
        assert!(finished.err.contains(part) && finished.err.lines().count() == 1, "{finished:?}");
    }
}

fn usage() {
    for flags in [
        &["-n", "0", "true"][..],
        &["-n", "x", "true"],
        &["-n", "2"],
        &["--no-such-flag", "true"],
        &["-e", "AM_RANK=1", "true"],
        &[],
    ] {
        let finished = finish(&mut amrun(flags));
        assert_eq!(finished.code(), 2, "{finished:?}");
        assert!(finished.err.starts_with("amrun: ") && finished.err.lines().count() == 1, "{finished:?}");
    }
    let finished = finish(amrun(&["true"]).env("AM_DEFAULT_RANKS", "none"));
    assert_eq!(finished.code(), 2);
    assert_eq!(finished.err, "amrun: AM_DEFAULT_RANKS=none in the environment is not a number of ranks\n");
    let help = finish(&mut amrun(&["--help"]));
    assert_eq!(help.code(), 0);
    assert!(help.text().contains("Exit codes:"));
    let version = finish(&mut amrun(&["--version"]));
    assert_eq!(version.text(), format!("amrun {}\n", env!("CARGO_PKG_VERSION")));
}

//! Runs the RandomAccess example as a user does: the built program, with ranks as processes, judged by what it
//! prints.
//!
//! `cargo test` builds the examples first; `cargo test --test random_access` alone takes the one built last.

use serde_json::Value;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for the slowest machine: a run that takes this long hangs.
const HANG: Duration = Duration::from_secs(120);

/// The variants whose updates are messages.
const MESSAGES: [&str; 3] = ["short", "medium", "aggregated"];

const VARIANTS: [&str; 6] = ["short", "medium", "aggregated", "atomic", "put-get", "direct"];

/// Reads a pipe to its end on a thread of its own, so that a full pipe never blocks the program.
fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    let mut pipe = pipe.expect("the output is piped");
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        bytes
    })
}

/// Kills the program when a test ends before it.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(lab::example_program("random_access"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Guard(command.spawn().expect("the example starts"));
    let (stdout, stderr) = (drain(child.0.stdout.take()), drain(child.0.stderr.take()));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.0.try_wait().expect("a child can be waited for") {
            break status;
        }
        assert!(start.elapsed() < HANG, "{arguments:?} hangs");
        thread::sleep(Duration::from_millis(5));
    };
    let stdout = stdout.join().expect("no panic");
    Output { status, stdout, stderr: stderr.join().expect("no panic") }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// Runs with `--json` and returns the one object that it prints.
fn json(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["--json"]].concat());
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {}\n{stdout}\n{stderr}", output.status);
    assert_eq!(stdout.lines().count(), 1, "{arguments:?}: {stdout}");
    let value: Value = serde_json::from_str(stdout).expect("JSON");
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    let expected = ["backend", "errors", "gups", "log2_table", "ranks", "seconds", "updates", "variant"];
    assert_eq!(keys, expected, "{arguments:?}");
    value
}

fn check(value: &Value, variant: &str, ranks: u64, log2_table: u64, updates: u64) {
    assert_eq!(value["variant"], variant);
    assert_eq!((value["ranks"].as_u64(), value["log2_table"].as_u64()), (Some(ranks), Some(log2_table)));
    assert_eq!(value["updates"].as_u64(), Some(updates));
    let (seconds, gups) =
        (value["seconds"].as_f64().expect("a number"), value["gups"].as_f64().expect("a number"));
    assert!(seconds > 0.0 && gups > 0.0, "{value}");
    let product = gups * seconds * 1e9;
    assert!((product / updates as f64 - 1.0).abs() < 1e-6, "GUPS are updates by time: {value}");
    let errors = value["errors"].as_u64().expect("verified");
    let allowed = if variant == "put-get" { (1 << log2_table) / 100 } else { 0 };
    assert!(errors <= allowed, "{value}");
}

fn every_variant(ranks: u64, log2_table: u64) {
    for variant in VARIANTS {
        let (r, n) = (ranks.to_string(), log2_table.to_string());
        let value = json(&["--ranks", &r, "--log2-table", &n, "--variant", variant]);
        assert_eq!(value["backend"], "shm");
        check(&value, variant, ranks, log2_table, 4 << log2_table);
    }
}

#[test]
fn udp_runs_message_variants() {
    for variant in MESSAGES {
        let value = json(&["--backend", "udp", "--ranks", "3", "--log2-table", "12", "--variant", variant]);
        assert_eq!(value["backend"], "udp");
        check(&value, variant, 3, 12, 4 << 12);
    }
}

#[test]
fn one_rank_runs_every_variant() {
    every_variant(1, 12);
}

#[test]
fn two_ranks_run_every_variant() {
    every_variant(2, 14);
}

#[test]
fn three_ranks_run_every_variant() {
    every_variant(3, 13);
}

#[test]
fn eight_ranks_run_every_variant() {
    every_variant(8, 14);
}

#[test]
fn uneven_shares_lose_no_update() {
    for ranks in [5_u64, 7] {
        for variant in MESSAGES {
            let value = json(&["--ranks", &ranks.to_string(), "--log2-table", "10", "--variant", variant]);
            check(&value, variant, ranks, 10, 4 << 10);
        }
    }
}

#[test]
fn as_many_ranks_as_words_run() {
    for variant in MESSAGES {
        check(&json(&["--ranks", "4", "--log2-table", "2", "--variant", variant]), variant, 4, 2, 16);
    }
}

#[test]
fn one_rank_runs_over_loopback() {
    for variant in MESSAGES {
        let value = json(&["--backend", "loopback", "--log2-table", "12", "--variant", variant]);
        assert_eq!(value["backend"], "loopback");
        check(&value, variant, 1, 12, 4 << 12);
    }
}

#[test]
fn repeated_and_seeded_runs_stay_without_errors() {
    for seed in ["0", "0", "0", "1", "1000000007", "18446744073709551615"] {
        for variant in MESSAGES {
            let arguments = ["--ranks", "3", "--log2-table", "12", "--variant", variant, "--seed", seed];
            check(&json(&arguments), variant, 3, 12, 4 << 12);
        }
    }
}

#[test]
fn a_shortened_run_says_so() {
    let arguments = ["--ranks", "2", "--log2-table", "12", "--updates", "5000"];
    check(&json(&arguments), "medium", 2, 12, 5000);
    let output = run(&arguments);
    assert!(output.status.success());
    let stdout = text(&output.stdout);
    assert!(stdout.contains("5000 updates instead of the 16384 of a full run"), "{stdout}");
    let full = run(&arguments[..4]);
    assert!(!text(&full.stdout).contains("instead of"), "{}", text(&full.stdout));
}

#[test]
fn the_final_table_names_what_a_user_looks_for() {
    let output = run(&["--ranks", "3", "--log2-table", "12", "--variant", "short"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    for part in ["GUPS", "messages/s", "stalls", "verified: 0 errors", "4096 words", "rank 0", "rank 2", "total"] {
        assert!(stdout.contains(part), "{part:?} is missing in\n{stdout}");
    }
    assert_eq!(stderr, "", "no progress bar where there is no terminal");
}

#[test]
fn verification_can_be_declined() {
    let value = json(&["--ranks", "2", "--log2-table", "10", "--verify=false"]);
    assert!(value["errors"].is_null(), "{value}");
}

#[test]
fn wrong_arguments_are_one_line_and_exit_code_2() {
    for (arguments, part) in [
        (&["--frobnicate"][..], "--frobnicate"),
        (&["--variant", "long"], "put-get"),
        (&["--ranks", "none"], "none"),
        (&["--ranks", "9", "--log2-table", "3"], "9 ranks cannot share a table of 8 words"),
        (&["--backend", "loopback", "--ranks", "2"], "single rank"),
        (&["--loss", "0.1"], "--loss"),
    ] {
        let output = run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(part), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn help_explains_every_flag() {
    let output = run(&["--help"]);
    assert!(output.status.success());
    let stdout = text(&output.stdout);
    for flag in ["ranks", "log2-table", "updates", "variant", "backend", "seed", "verify", "json"] {
        assert!(stdout.contains(&format!("--{flag}")), "--{flag} is missing in\n{stdout}");
    }
}

//! Runs the hello example over libfabric as a user does, chosen by `AM_TRANSPORT`; skipped, and said so, where the
//! library is missing.
//!
//! `cargo test` builds the examples first; `cargo test --test libfabric` alone takes the one built last.

use active_messages::Rank;
use active_messages::launch::Launcher;
use active_messages::ofi::{self, OfiConfig};
use std::io::Write as _;
use std::process::{Command, Output};

/// Runs hello with some variables.
fn hello(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(lab::example_program("hello"));
    // A run that takes this long hangs.
    command.env("AM_TIMEOUT", "60s").env("AM_OFI_INTERFACE", "127.0.0.1").envs(variables.iter().copied());
    command.output().expect("the example starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether this machine has the provider tcp.
fn has_tcp(what: &str) -> bool {
    match ofi::choose(&OfiConfig::default().provider("tcp").interface("127.0.0.1")) {
        Ok(_) => true,
        Err(error) => {
            // Past the test runner, which shows nothing of tests that pass.
            if let Ok(mut out) = std::fs::OpenOptions::new().append(true).open("/dev/stderr") {
                let _ = out.write_all(format!("SKIPPED: {what}: {error}\n").as_bytes());
            }
            false
        }
    }
}

#[test]
fn ranks_meet_over_what_is_chosen() {
    if !has_tcp("ranks over libfabric") {
        return;
    }
    for (transport, library) in [
        ("ofi:tcp", ""),
        ("shm+ofi:tcp", ""),
        ("ofi:tcp+udp", ""),
        // What has no libfabric is left to UDP.
        ("ofi+udp", "/nowhere/libfabric.so.1"),
    ] {
        let library = ("AM_OFI_LIBRARY", library);
        let mut variables = vec![("AM_TRANSPORT", transport)];
        variables.extend(Some(library).filter(|(_, file)| !file.is_empty()));
        let output = hello(&variables);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{transport}: {}: {err}", output.status);
        assert_eq!(
            out.lines().filter(|line| line.starts_with("hello from rank")).count(),
            3,
            "{transport}: {out}{err}"
        );
    }
}

/// Rank 1 takes another provider than the others: known before the program's code runs.
#[test]
fn ranks_that_differ_are_refused() {
    if !has_tcp("ranks that differ") {
        return;
    }
    let hello = lab::example_program("hello");
    let script = "if [ \"$AM_RANK\" = 1 ]; then export AM_OFI_MEDIUM=64; fi; exec \"$0\"";
    let launcher = Launcher::new("/bin/sh").args(["-c", script]).arg(hello).ranks(3).name("hello");
    let launcher = launcher.env("AM_TRANSPORT", "ofi:tcp").env("AM_OFI_INTERFACE", "127.0.0.1");
    let outcome = launcher.launch().expect("the launcher starts ranks");
    assert_eq!((outcome.first_failure(), outcome.code()), (Some(Rank(0)), 2));
}

/// Limits are met before ranks start, or before the program's code runs: whatever the limit, ranks greet or nobody
/// does.
#[test]
fn limits_are_met_before_ranks_start() {
    if !has_tcp("limits of descriptors") {
        return;
    }
    let with_limit = |limit: u32| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\"")]).arg(lab::example_program("hello"));
        command.env("AM_TIMEOUT", "60s").env("AM_OFI_INTERFACE", "127.0.0.1").env("AM_TRANSPORT", "ofi:tcp");
        command.output().expect("the example starts")
    };
    for limit in [18, 20, 22, 24, 26, 28, 30] {
        let output = with_limit(limit);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        match output.status.code() {
            Some(0) => assert_eq!(out.lines().count(), 3, "{limit}: {out}{err}"),
            Some(2) => assert!(out.is_empty() && err.contains("ulimit -n"), "{limit}: {out}{err}"),
            code => panic!("{limit}: {code:?}: {out}{err}"),
        }
    }
    let output = with_limit(20);
    let err = text(&output.stderr);
    assert_eq!((output.status.code(), err.lines().count()), (Some(2), 1), "{err}");
}

#[test]
fn what_this_machine_has_is_listed() {
    let output = hello(&[("AM_TRANSPORT", "list")]);
    let out = text(&output.stdout);
    assert!(
        output.status.success() && out.starts_with("shm: shared memory") && out.contains("shm+ofi+udp"),
        "{out}"
    );
    assert!(!has_tcp("the list of providers") || out.contains("tcp"), "{out}");
    assert!(!out.contains("hello from"), "{out}");
}

#[test]
fn what_is_not_there_is_refused_before_ranks_start() {
    for (name, value, remedy) in [
        ("AM_OFI_LIBRARY", "/nowhere/libfabric.so.1", "apt-get install libfabric1"),
        ("AM_TRANSPORT", "ofi:nosuch", "AM_FABRIC and AM_OFI_INTERFACE choose"),
        ("AM_TRANSPORT", "ofi:", "shm+ofi"),
        ("AM_TRANSPORT", "udp+ofi", "it has to be one of auto"),
        ("AM_OFI_MEDIUM", "1", "a number of bytes from 64 to 65536"),
    ] {
        if value == "ofi:nosuch" && !has_tcp("a provider that is missing") {
            continue;
        }
        let output = hello(&[("AM_TRANSPORT", "ofi"), (name, value)]);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}={value}: {err}");
        assert!(err.lines().count() == 1 && err.contains(remedy), "{name}={value}: {err}");
    }
}

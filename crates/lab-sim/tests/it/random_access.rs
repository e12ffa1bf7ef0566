//! Runs RandomAccess on simulated machines as a user does, judged by what it prints.

use serde_json::Value;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(lab::example_program("random_access_sim")).args(arguments).output().expect("the example starts")
}

/// Runs with `--json` and returns the one object that it prints.
fn json(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Runs small on a machine, twice; the run makes all its updates without an error, and repeats itself to the last
/// digit.
fn repeats(backend: &str, arguments: &[&str]) {
    for variant in ["short", "medium", "aggregated"] {
        let all = ["--backend", backend, "--ranks", "16", "--log2-table", "10", "--variant", variant];
        let all = [&all, arguments].concat();
        let value = json(&all);
        assert_eq!((&value["backend"], &value["variant"]), (&backend.into(), &variant.into()));
        assert_eq!((value["updates"].as_u64(), value["errors"].as_u64()), (Some(4 << 10), Some(0)), "{value}");
        assert_eq!(json(&all), value, "a simulated run repeats itself to the last digit");
    }
}

#[test]
fn extoll_runs_every_conduit() {
    for conduit in ["gasnet", "gasnet-first", "pscom"] {
        let machine = ["--topology", "mesh3d:2x2x2", "--conduit", conduit];
        repeats("extoll", &machine);
        repeats("extoll", &[&machine[..], &["--loss", "0.01", "--fault-seed", "7"]].concat());
    }
}

/// The program that runs between processes becomes this one where a simulated machine is asked for.
#[test]
fn one_command_runs_every_backend() {
    let arguments = ["--backend", "sim", "--machine", "torus", "--ranks", "64", "--log2-table", "10", "--json"];
    let output = Command::new(lab::example_program("random_access")).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, run(&arguments).stdout);
    let wrong =
        Command::new(lab::example_program("random_access")).args(["--backend=sci", "--ranks", "0"]).output();
    assert_eq!(wrong.expect("it starts").status.code(), Some(2));
}

#[test]
fn portals_runs_every_flow_control() {
    for flow in ["bank", "static", "portals4"] {
        repeats("portals", &["--flow", flow]);
    }
}

#[test]
fn exanet_runs_with_and_without_losses() {
    repeats("exanet", &[]);
    repeats("exanet", &["--loss", "0.01", "--fault-seed", "7"]);
}

#[test]
fn sci_runs_with_and_without_losses() {
    repeats("sci", &[]);
    repeats("sci", &["--loss", "0.01"]);
}

#[test]
fn a_machine_of_ones_own_runs_with_and_without_losses() {
    repeats("sim", &["--machine", "torus"]);
    repeats("sim", &["--machine", "torus", "--loss", "0.01", "--fault-seed", "7"]);
    let all = json(&["--backend", "sim", "--machine", "torus", "--log2-table", "10"]);
    assert_eq!((all["ranks"].as_u64(), all["errors"].as_u64()), (Some(64), Some(0)), "{all}");
}

#[test]
fn wrong_arguments_are_one_line_and_exit_code_2() {
    for (arguments, part) in [
        (&["--frobnicate"][..], "--frobnicate"),
        (&["--ranks", "9", "--log2-table", "3"], "9 ranks cannot share a table of 8 words"),
        (&["--log2-table", "40"], "ask for a smaller --log2-table"),
        (&["--topology", "star:4"], "'star:4'"),
        (&["--ranks", "9", "--ranks-per-node", "2", "--topology", "ring:4"], "ranks is 9"),
        (&["--loss", "2"], "loss"),
        (&["--machine", "/nonexistent.toml"], "/nonexistent.toml"),
        (
            &["--backend", "sim"],
            "add --machine FILE.toml or --machine NAME, where NAME is one of loggopsim, torus",
        ),
        (&["--backend", "sim", "--machine", "my.toml"], "my.toml: No such file"),
        (&["--backend", "sim", "--machine", "cube"], "machine is cube, but must be a file such as my.toml"),
        (
            &["--backend", "sim", "--machine", "torus", "--ranks", "65"],
            "ranks is 65, but must be at most 64 nodes",
        ),
        (&["--backend", "sim", "--flow", "bank"], "--flow means nothing to --backend sim"),
        (&["--backend", "sci", "--flow", "bank"], "--flow means nothing to --backend sci"),
    ] {
        let output = run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(part), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

/// What cannot be halved, and what there cannot be, is a mistake of the command line, in one line, whether the run
/// was to be in halves or not; what fails in the run is none.
#[test]
fn wrong_machines_are_usage_errors() {
    let small = |arguments: &[&str]| {
        let all = [&["--backend", "portals", "--ranks", "16", "--log2-table", "10"], arguments].concat();
        let output = run(&all);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.lines().count() <= 1, "{arguments:?}: {said}");
        (output.status.code(), said)
    };
    for (arguments, part) in [
        (&["--processors", "0"][..], "0 is not in 1..=2"),
        (&["--processors", "3"], "3 is not in 1..=2"),
        (&["--processors", "x"], "invalid"),
        (&["--processors", "2", "--loss", "0.1"], "faults"),
        (&["--processors", "1", "--loss", "0.1"], "faults"),
        (&["--processors", "2", "--ranks-per-node", "1", "--topology", "crossbar:8"], "at most 8 nodes"),
        (&["--ranks-per-node", "1", "--topology", "crossbar:8"], "at most 8 nodes"),
    ] {
        let (code, said) = small(arguments);
        assert!(code == Some(2) && said.contains(part), "{arguments:?}: {code:?}, {said}");
    }
    for arguments in [&[][..], &["--processors", "1"], &["--processors", "2"]] {
        let told = |mib: &str| {
            let mut command = Command::new(lab::example_program("random_access_sim"));
            command.args(["--backend", "portals", "--ranks", "64", "--log2-table", "12", "--variant", "short"]);
            let output = command.args(arguments).env("AM_SIM_MEMORY_MIB", mib).output().expect("it starts");
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (code, said) = told("4");
        assert!(
            code == Some(2) && said.contains("AM_SIM_MEMORY_MIB is 4; ask for fewer ranks"),
            "{code:?}, {said}"
        );
        assert_eq!(told("0").0, Some(0), "{arguments:?}");
        let (code, said) = told("much");
        assert!(code == Some(2) && said.contains("AM_SIM_MEMORY_MIB is 'much'"), "{code:?}, {said}");
    }
    // A stack that no address space has room for: so there is no second thread.
    let mut command = Command::new(lab::example_program("random_access_sim"));
    command.args(["--backend", "portals", "--ranks", "16", "--log2-table", "10", "--processors", "2"]);
    let output = command.env("RUST_MIN_STACK", (1_u64 << 47).to_string()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), said.contains("no thread for a second processor")),
        (Some(1), true),
        "{said}"
    );
}

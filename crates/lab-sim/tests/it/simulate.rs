//! Runs `simulate` as a user does, judged by what it prints and writes.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    Command::new(lab::example_program("simulate")).args(arguments).output().expect("the example starts")
}

/// Runs with `--json` and returns the one object that it prints.
fn json(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// A file of a folder for one test.
fn file(test: &str, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("simulate-{test}"));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder.join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is text")
}

/// The column of a key.
fn column(value: &Value, key: &str) -> Vec<f64> {
    let points = value["points"].as_array().expect("there are points");
    points.iter().map(|point| point[key].as_f64().expect("each point has each key")).collect()
}

#[test]
fn pairs_are_measured() {
    let of = |measure: &str| json(&["--machine", "loggopsim", "--measure", measure, "--sweep", "bytes=1..1024"]);
    let latency = of("latency");
    assert_eq!(column(&latency, "bytes").len(), 11);
    // o + L + o, and 6 ns for each further byte.
    assert_eq!(column(&latency, "latency_ns")[..2], [5500.0, 5506.0]);
    assert_eq!(column(&latency, "latency_ns")[10], 5500.0 + 1023.0 * 6.0);
    // The processors' 1500 ns are longer than the gap of 1000 and 6 ns for each byte.
    let rate = column(&of("rate"), "rate_m_s")[0];
    assert!((0.64..0.667).contains(&rate), "{rate}");
    let bandwidth = column(&of("bandwidth"), "bandwidth_mb_s");
    assert!(bandwidth.windows(2).all(|two| two[0] < two[1]) && bandwidth[10] < 1e3 / 6.0, "{bandwidth:?}");
}

/// A lost packet takes its time: with losses no size of message has a lower latency, and larger losses cost more
/// in the mean.
#[test]
fn losses_improve_no_latency() {
    let latencies = |loss: f64, seed: u32| {
        let path = file("losses", &format!("{loss}-{seed}.toml"));
        let machine = format!(
            "ranks = 8\ntopology = {{ kind = \"ring\", nodes = 8 }}\n[parameters]\nname = \"lossy\"\nlatency_ns = 300\n\
             link = {{ bandwidth_mb_s = 10000, latency_ns = 50 }}\n[faults]\nseed = {seed}\nloss = {loss}\n"
        );
        std::fs::write(&path, machine).expect("the file can be written");
        let sweep = ["--measure", "latency", "--sweep", "bytes=8..65536"];
        column(&json(&[&["--machine", text(&path)][..], &sweep].concat()), "latency_ns")
    };
    let whole = latencies(0.0, 1);
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    for seed in 1..=3 {
        let [few, many] = [0.001, 0.05].map(|loss| latencies(loss, seed));
        for lossy in [&few, &many] {
            assert_eq!(lossy.len(), whole.len());
            assert!(lossy.iter().zip(&whole).all(|(lossy, whole)| lossy >= whole), "{lossy:?} below {whole:?}");
        }
        assert!(mean(&many) > mean(&few) && mean(&many) > mean(&whole), "{many:?} {few:?}");
    }
}

#[test]
fn loads_are_swept_and_written() {
    let (csv, links, svg) = (file("loads", "out.csv"), file("loads", "links.csv"), file("loads", "out.svg"));
    let arguments =
        ["--machine", "torus", "--pattern", "uniform", "--sweep", "load=0.1..1.0/4", "--messages", "50"];
    let files = ["--csv", text(&csv), "--links", text(&links), "--svg", text(&svg)];
    let value = json(&[&arguments[..], &files].concat());
    let beside = [&arguments[..], &["--jobs", "3"]].concat();
    assert_eq!(json(&beside), value, "runs repeat themselves to the last digit, several at a time, too");
    let (loads, busiest) = (column(&value, "load"), column(&value, "busiest_link"));
    assert!(loads.len() == 4 && busiest.iter().all(|part| (0.0..=1.0).contains(part)), "{busiest:?}");
    let mean = column(&value, "mean_ns");
    assert!(mean[0] < mean[3], "{mean:?}");
    let read = |path: &Path| std::fs::read_to_string(path).expect("the file was written");
    assert!(read(&csv).starts_with("bytes,load,offered_mb_s,") && read(&csv).lines().count() == 5);
    assert_eq!(read(&links).lines().count(), 1 + value["links"].as_array().map_or(0, Vec::len));
    let parts = ["received", "classes", "series"].map(|part| file("loads", &format!("{part}.csv")));
    let flags =
        ["--received", "--classes", "--series"].iter().zip(&parts).flat_map(|(flag, path)| [*flag, text(path)]);
    let more: Vec<&str> = arguments.into_iter().chain(["--interval", "1000"]).chain(flags).collect();
    let value = json(&more);
    for (path, (part, head)) in parts.iter().zip([
        ("received", "size,load,rank,bytes,messages"),
        (
            "classes",
            "size,load,class,bytes,longest_ns,mean_ns,median_ns_from,median_ns_below,messages,p99_ns_from,p99_ns_below",
        ),
        ("series", "size,load,interval,bytes,from_ns,messages"),
    ]) {
        let (csv, list) = (read(path), value[part].as_array().expect("a list"));
        assert_eq!(csv.lines().next(), Some(head));
        // All four runs; the JSON has the last one.
        let of = |load: f64| csv.lines().skip(1).filter(move |line| line.starts_with(&format!("1024,{load},")));
        assert_eq!(loads.iter().map(|load| of(*load).count()).sum::<usize>() + 1, csv.lines().count());
        assert!(loads.iter().all(|load| of(*load).count() > 0) && of(1.0).count() == list.len(), "{csv}");
        let first = of(1.0).next().expect("there is one");
        assert!(first.starts_with(&format!("1024,1,0,{},", list[0]["bytes"])), "{first}");
        let second = of(1.0).nth(1).expect("there are two");
        assert!(part != "series" || second.split(',').nth(4) == Some("1000.0"), "{second}");
    }
    for picture in [svg.clone(), svg.with_file_name("out-accepted.svg")] {
        assert!(
            read(&picture).starts_with("<svg") && read(&picture).contains("a 3D torus"),
            "{}",
            picture.display()
        );
    }
}

#[test]
fn every_pattern_runs() {
    for pattern in [
        "uniform",
        "permutation",
        "transpose",
        "bit-reversal",
        "bit-complement",
        "neighbour",
        "hotspot",
        "incast",
        "all-to-all",
        "bursts",
    ] {
        let value = json(&["--machine", "torus", "--pattern", pattern, "--messages", "20", "--interval", "500"]);
        let accepted = column(&value, "accepted_mb_s")[0];
        assert!(accepted > 0.0 && value["what"] == pattern, "{pattern}: {value}");
        assert!(value["series"].as_array().is_some_and(|series| !series.is_empty()), "{pattern}");
    }
}

#[test]
fn schedules_run() {
    let goal = file("goal", "ping.goal");
    let schedule = "num_ranks 2\nrank 0 { send 8b to 1 tag 3 }\nrank 1 { recv 8b from 0 tag 3 }\n";
    std::fs::write(&goal, schedule).expect("the file can be written");
    let value = json(&["--machine", "loggopsim", "--goal", text(&goal)]);
    assert_eq!(column(&value, "ended_ns"), [1500.0 + 2500.0 + 1500.0 + 7.0 * 6.0]);
    assert_eq!(value["ended_ns"], serde_json::json!([1500.0, 5542.0]));
}

#[test]
fn what_is_wrong_is_one_line_and_an_exit_code() {
    let (stuck, wrong) = (file("wrong", "stuck.goal"), file("wrong", "wrong.goal"));
    std::fs::write(&stuck, "num_ranks 1\nrank 0 { recv 8b from 0 }\n").expect("the file can be written");
    std::fs::write(&wrong, "num_ranks 1\nrank 0 { jump }\n").expect("the file can be written");
    for (arguments, code, part) in [
        (&["--machine", "torus"][..], 2, "--measure"),
        (&["--machine", "cube", "--measure", "rate"], 2, "machine is cube, but must be a file such as my.toml"),
        (&["--machine", "torus", "--ranks", "65", "--measure", "rate"], 2, "ranks is 65"),
        (&["--machine", "torus", "--ranks", "1", "--measure", "rate"], 2, "two different ranks"),
        (&["--machine", "torus", "--pattern", "transpose", "--ranks", "8"], 2, "asks for a square: set --ranks"),
        (&["--machine", "torus", "--pattern", "uniform", "--load", "0"], 2, "--load 0: must be above 0"),
        (&["--machine", "torus", "--pattern", "uniform", "--burst", "5"], 2, "--burst goes with --pattern bursts"),
        (
            &["--machine", "torus", "--measure", "rate", "--sweep", "load=0.1..1"],
            2,
            "--sweep load goes with --pattern",
        ),
        (&["--machine", "torus", "--goal", "/nonexistent.goal"], 2, "/nonexistent.goal: No such file"),
        (&["--machine", "torus", "--goal", text(&wrong)], 2, "line 2: 'jump'"),
        (
            &["--machine", "torus", "--measure", "rate", "--csv", "/nonexistent/out.csv"],
            2,
            "cannot write /nonexistent/out.csv",
        ),
    ] {
        let output = run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(part), "{arguments:?}: {stderr}");
    }
    let output = run(&["--machine", "torus", "--goal", text(&stuck)]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("1 operations are left; it receives from 0"), "{stderr}");
    let help = run(&["--help"]);
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--pattern"));
    let list = run(&["--list"]);
    assert!(list.status.success() && String::from_utf8_lossy(&list.stdout).contains("hdr_fat_tree"));
}

/// `simulate ... | head -1` ends as any program does whose reader has gone, and tells of no panic.
#[test]
fn a_reader_that_leaves_ends_it() {
    let mut command = Command::new(lab::example_program("simulate"));
    command.args(["--machine", "loggopsim", "--measure", "latency"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the example starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr)), (Some(141), "".into()));
}

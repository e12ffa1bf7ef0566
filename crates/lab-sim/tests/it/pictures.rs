//! The pictures in `docs` are what the commands draw from this tree, byte for byte: those that take seconds. The
//! others are drawn by `figures -- extoll --docs` (`exanet`, `portals`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Draws with an example; fails with what it says.
fn draw(program: &str, arguments: &[&str]) {
    let output = Command::new(lab::example_program(program)).args(arguments).output().expect("the example starts");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn docs_have_what_this_tree_draws() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).expect("a folder can be made");
    let folder = out.to_str().expect("the path is text");
    for (machine, parts) in [
        ("sci", &[][..]),
        ("portals", &["latency", "bandwidth", "medium"]),
        ("extoll", &["latency", "throughput", "window", "udp"]),
    ] {
        let only = parts.iter().flat_map(|part| ["--only", part]);
        draw("figures", &[machine, "--out", folder].into_iter().chain(only).collect::<Vec<_>>());
    }
    let uniform = format!("{folder}/machine-uniform.svg");
    let load = ["--machine", "torus", "--pattern", "uniform", "--sweep", "load=0.1..1.0"];
    draw("simulate", &[&load[..], &["--svg", &uniform]].concat());

    let docs: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs"].iter().collect();
    let mut known = Vec::new();
    for drawn in fs::read_dir(&out).expect("the folder was just made") {
        let drawn = drawn.expect("the folder can be read").path();
        let name = drawn.file_name().and_then(|name| name.to_str()).expect("names are text").to_owned();
        let Ok(picture) = fs::read(docs.join(&name)) else { continue };
        if name.ends_with(".svg") {
            let same = fs::read(&drawn).expect("the picture was just drawn") == picture;
            assert!(same, "docs/{name} is not what this tree draws: see {}", drawn.display());
            known.push(name);
        }
    }
    known.sort();
    let expected = [
        "extoll-latency.svg",
        "extoll-throughput.svg",
        "extoll-udp.svg",
        "extoll-window.svg",
        "machine-uniform-accepted.svg",
        "machine-uniform.svg",
        "portals-medium.svg",
        "portals-put-bandwidth.svg",
        "portals-put-latency.svg",
        "sci-messages.svg",
        "sci-methods.svg",
        "sci-raw.svg",
        "sci-tuned.svg",
    ];
    assert_eq!(known, expected);
}

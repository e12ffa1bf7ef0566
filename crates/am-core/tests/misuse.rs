//! Misuses that the types rule out: each file in `misuse/` must fail to compile, at the marked line and with the marked
//! error, and must compile without its misuse.
//!
//! `//~ E0382` marks a line and the error that it must cause; `//~~ E0080` the same for an error that the compiler finds
//! inside the library on behalf of that line. What is taken out for the second half are the marked lines, or those marked
//! `//-` if there are any. Codes and lines are compared, texts are not, so that every compiler since the oldest supported
//! one agrees.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An error: its line in the case's file (0 if it lies elsewhere) and its code.
type Error = (u64, String);

/// A misuse, read from its file.
struct Misuse {
    name: String,
    text: String,
    expected: Vec<Error>,
}

impl Misuse {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let marked = |marker: &str, elsewhere: bool| {
            let lines = text.lines().zip(1..);
            let found = lines.filter_map(|(line, number)| Some((line.split_once(marker)?.1, number)));
            let code = |rest: &str| rest.split_whitespace().next().unwrap_or_default().to_string();
            found.map(|(rest, number)| (if elsewhere { 0 } else { number }, code(rest))).collect::<Vec<_>>()
        };
        let mut expected = marked("//~ ", false);
        expected.extend(marked("//~~ ", true));
        assert!(!expected.is_empty(), "{} marks no error", path.display());
        Self { name: path.file_stem().unwrap().to_string_lossy().into_owned(), expected, text }
    }

    /// The file without its misuse. Lines keep their numbers.
    fn corrected(&self) -> String {
        let marker = if self.text.contains("//-") { "//-" } else { "//~" };
        self.text
            .lines()
            .map(|line| if line.contains(marker) { "\n".into() } else { format!("{line}\n") })
            .collect()
    }
}

fn misuses() -> Vec<Misuse> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/misuse");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| Misuse::read(path)).collect()
}

/// Writes a package with every misuse, and every corrected one, as a library of its own; returns its folder.
fn write_package(misuses: &[Misuse]) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("misuse");
    let core = env!("CARGO_MANIFEST_DIR");
    fs::create_dir_all(root.join("src")).unwrap();
    let mut manifest = format!(
        "[package]\nname = \"misuse\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n[workspace]\n\
         [profile.dev]\ndebug = false\nincremental = false\n[lints.rust]\nunused = \"allow\"\n\
         [dependencies]\nam-core.path = {core:?}\n"
    );
    for misuse in misuses {
        for (suffix, text) in [("", misuse.text.clone()), ("_corrected", misuse.corrected())] {
            let name = format!("{}{suffix}", misuse.name);
            write!(manifest, "[[example]]\nname = {name:?}\npath = \"{name}.rs\"\ncrate-type = [\"lib\"]\n")
                .unwrap();
            fs::write(root.join(format!("{name}.rs")), text).unwrap();
        }
    }
    fs::write(root.join("src/lib.rs"), "").unwrap();
    fs::write(root.join("Cargo.toml"), manifest).unwrap();
    // The versions that are there already: nothing has to be fetched.
    fs::copy(Path::new(core).join("../../Cargo.lock"), root.join("Cargo.lock")).unwrap();
    root
}

/// Builds the package; returns the errors of every library.
fn build(root: &Path) -> BTreeMap<String, Vec<Error>> {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--keep-going", "--examples", "--message-format=json"])
        .current_dir(root)
        .env("CARGO_TARGET_DIR", root.join("target"))
        .env_remove("RUSTFLAGS")
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let mut errors: BTreeMap<String, Vec<Error>> = BTreeMap::new();
    let text = String::from_utf8(output.stdout).unwrap();
    for message in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let name = message["target"]["name"].as_str().unwrap_or_default().to_string();
        match message["reason"].as_str() {
            // An entry without errors: it was built.
            Some("compiler-artifact") => drop(errors.entry(name).or_default()),
            Some("compiler-message") if message["message"]["level"] == "error" => {
                let Some(code) = message["message"]["code"]["code"].as_str() else {
                    continue;
                };
                let spans = message["message"]["spans"].as_array().into_iter().flatten();
                let own =
                    spans.filter(|span| span["is_primary"] == true && span["file_name"] == format!("{name}.rs"));
                let line = own.filter_map(|span| span["line_start"].as_u64()).next().unwrap_or(0);
                let errors = errors.entry(name).or_default();
                let error = (line, code.to_string());
                // Some misuses break several rules of one kind at once.
                if !errors.contains(&error) {
                    errors.push(error);
                }
            }
            _ => {}
        }
    }
    assert!(
        errors.contains_key("am_core"),
        "the package was not built: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    errors
}

#[test]
fn misuses_do_not_compile_and_nothing_else_is_wrong_with_them() {
    let misuses = misuses();
    assert!(misuses.len() >= 37, "misuses are missing");
    let mut errors = build(&write_package(&misuses));
    let mut wrong = String::new();
    for misuse in misuses {
        let mut check = |name: &str, expected: Vec<Error>| {
            let found = errors.remove(name);
            if found.as_ref() != Some(&expected) {
                writeln!(wrong, "{name}: errors {found:?} instead of {expected:?}").unwrap();
            }
        };
        check(&format!("{}_corrected", misuse.name), Vec::new());
        check(&misuse.name, misuse.expected);
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

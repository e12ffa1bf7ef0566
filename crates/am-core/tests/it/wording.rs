//! What the compiler says to those who misuse the core: the words of `#[diagnostic::on_unimplemented]` and of
//! constant assertions, which a test that only expects an error does not see.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Compiler errors that blame the library's file and not the program: another compiler made it, or what it needs
/// has gone.
const OTHER_BUILD: [&str; 6] = ["E0460", "E0461", "E0462", "E0463", "E0464", "E0514"];

/// The core's libraries beside this program, the newest first.
fn libraries() -> Vec<PathBuf> {
    let program = std::env::current_exe().expect("a test knows its file");
    let files = program.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let mut found: Vec<(SystemTime, PathBuf)> = files
        .filter(|file| {
            let name = file.file_name();
            let name = name.to_string_lossy();
            name.starts_with("libam_core-") && name.ends_with(".rlib")
        })
        .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())))
        .collect();
    found.sort_unstable();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// What the compiler says to a program; `None` if there is no compiler, or it can't use the library.
fn said(program: &str, library: &Path) -> Option<String> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let folder = library.parent().expect("a file is in a folder").display().to_string();
    let mut child = Command::new(compiler)
        // Constant assertions in generic functions fail where code is made.
        .args(["--edition=2024", "--emit=obj", "--crate-name=misuse", "--cap-lints=allow"])
        .args(["-L", &format!("dependency={folder}"), "--out-dir", env!("CARGO_TARGET_TMPDIR")])
        .args(["--extern", &format!("am_core={}", library.display()), "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take().expect("piped").write_all(program.as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "this compiles:\n{program}");
    OTHER_BUILD.iter().all(|code| !text.contains(code)).then_some(text)
}

/// The compiler refuses a program with these words.
fn is_told(program: &str, words: &[&str]) {
    let program = format!("use am_core::*; use am_core::loopback::Loopback;\n{program}");
    let Some(said) = libraries().iter().find_map(|library| said(&program, library)) else {
        // Past the test runner, which shows nothing of tests that pass.
        if let Ok(mut out) = fs::OpenOptions::new().append(true).open("/dev/stderr") {
            let _ = out
                .write_all(b"SKIPPED: the compiler's words: no rustc that can use the library of these tests\n");
        }
        return;
    };
    for words in words {
        assert!(said.contains(words), "'{words}' is not in:\n{said}");
    }
}

#[test]
fn traits_say_what_is_expected() {
    is_told(
        "pub struct Mine;
        pub fn misuse(handlers: &mut Handlers<u64>, endpoint: &mut Endpoint<Loopback, ()>, note: Request<()>) {
            let _ = handlers.one_way(\"text\", |_: &mut u64, _, _: String, _| ());
            let _ = endpoint.request(0, note, ());
            let _ = handlers.one_way(\"number\", |_: &mut u64, _: Address, (): (), _: Payload<'_>| 7u32);
            let _ = handlers.layer::<Mine>(\"mine\");
        }
        fn main() {}",
        &[
            "`String` does not travel as handler arguments",
            "not made of 32- and 64-bit numbers",
            "text and lists travel as the payload of a Medium or Long message",
            "use `u64` or `u32` for `usize`, and `Plain<T>` for a structure",
            "does not name an endpoint",
            "a rank is written `Rank(0)`",
            "endpoint 2 of rank 0 is `Address::new(Rank(0), 2)`",
            "a handler returns nothing or a `Result<(), E>`, not `u32`",
            "end the handler's last line with `;`, or return `HandlerResult` and end with `Ok(())`",
            "the endpoint's state `u64` does not own the layer `Mine`",
            "give the state a field for the layer, and `impl HasLayer<Mine>` with references to it",
        ],
    );
}

#[test]
fn too_many_words_are_counted() {
    is_told(
        "type Rank0 = Endpoint<Loopback, ()>;
        pub fn misuse(handlers: &mut Handlers<()>, endpoint: &mut Rank0, more: Request<[u32; 17]>) {
            let _ = handlers.one_way(\"more\", |(), _, _: [u32; 17], _| ());
            let _ = endpoint.request(Rank(0), more, [0; 17]);
        }
        fn main() {
            std::hint::black_box(misuse as *const ());
        }",
        &[
            "a handler takes at most sixteen 32-bit words: let the rest come as payload",
            "arguments of more than sixteen 32-bit words: send the rest as payload",
        ],
    );
}

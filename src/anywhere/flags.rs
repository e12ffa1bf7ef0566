//! A program's own flags, with those of every program for any backend.

use super::{HELP, Options, Program, refuse, run};
use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;
use std::str::FromStr;

/// Reads the flags of a program: `--backend`, `--machine`, `--ranks`, `--json`, `--help`, and its own numbers and
/// names, each with a default.
///
/// What is wrong with them is told when the program is to run, so that flags are read without error handling.
///
/// ```no_run
/// use active_messages::anywhere::{Flags, Options, Part, Program};
/// use active_messages::prelude::*;
///
/// struct Hello { times: u32 }
///
/// impl Program for Hello {
///     fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
///         (0..self.times).for_each(|_| println!("hello from rank {}", rank.address()));
///         rank.attach(Handlers::<()>::new(), ())?.finish()?;
///         Ok(())
///     }
/// }
///
/// fn main() -> std::process::ExitCode {
///     let mut flags = Flags::new("Greets.", Options::new().default_ranks(4));
///     let times = flags.value("--times", "N", 1, "greetings of each rank");
///     flags.run(Hello { times })
/// }
/// ```
#[derive(Debug)]
pub struct Flags {
    about: &'static str,
    options: Options,
    program: String,
    /// Arguments that no flag has taken yet.
    rest: Vec<String>,
    help: String,
    wrong: Option<String>,
    json: bool,
}

impl Flags {
    /// Takes the program's arguments; `about` says what it does, and `options` are what these override.
    pub fn new(about: &'static str, options: Options) -> Self {
        Self::of(about, options, std::env::args_os())
    }

    fn of(about: &'static str, mut options: Options, args: impl IntoIterator<Item = OsString>) -> Self {
        let (rest, wrong) = match options.take_args(args) {
            Ok(rest) => (rest, None),
            Err(usage) => (Vec::new(), Some(usage.to_string())),
        };
        let mut rest = rest.into_iter().map(|arg| arg.to_string_lossy().into_owned());
        let program = rest.next().unwrap_or_default();
        let mut flags =
            Self { about, options, program, rest: rest.collect(), help: String::new(), wrong, json: false };
        flags.json = flags.switch("--json", "print one JSON object instead of a table");
        flags
    }

    fn describe(&mut self, flag: &str, text: &str) {
        self.help += &format!("  {flag:<15} {text}\n");
    }

    /// Whether a flag without a value is given.
    pub fn switch(&mut self, flag: &str, help: &str) -> bool {
        self.describe(flag, help);
        let before = self.rest.len();
        self.rest.retain(|arg| arg != flag);
        self.rest.len() < before
    }

    /// The value of a flag (`--flag VALUE` or `--flag=VALUE`), or its default. `name` stands for the value in the
    /// help.
    pub fn value<V: FromStr + Display>(&mut self, flag: &str, name: &str, default: V, help: &str) -> V {
        self.describe(&format!("{flag} {name}"), &format!("{help} [default: {default}]"));
        let inline = |arg: &str| arg.strip_prefix(flag).and_then(|rest| rest.strip_prefix('=')).map(str::to_owned);
        let Some(at) = self.rest.iter().position(|arg| arg == flag || inline(arg).is_some()) else {
            return default;
        };
        let given = self.rest.remove(at);
        let text = match inline(&given) {
            Some(text) => text,
            None if at < self.rest.len() => self.rest.remove(at),
            None => {
                self.wrong.get_or_insert(format!("{flag} needs a value"));
                return default;
            }
        };
        text.parse().unwrap_or_else(|_| {
            self.wrong.get_or_insert(format!("{flag} {text}: not a value of its kind, such as {default}"));
            default
        })
    }

    /// Tells that values do not go together; the program then does not run. Its first reason counts.
    pub fn require(&mut self, holds: bool, otherwise: &str) {
        if !holds {
            self.wrong.get_or_insert(otherwise.to_owned());
        }
    }

    /// Tells how many bytes every rank takes for the value of a flag. Where its ranks take more together than this
    /// host has, the program does not run, and the error tells both. If a launcher has started the ranks, others
    /// may be elsewhere, and one alone counts.
    pub fn memory(&mut self, flag: &str, value: u64, bytes: u64) {
        let ranks = if matches!(crate::launch::started_as(), Ok(Some(_))) { 1 } else { self.ranks() };
        self.memory_of(flag, value, (ranks, bytes), memory_bytes());
    }

    fn memory_of(&mut self, flag: &str, value: u64, (ranks, bytes): (u32, u64), host: Option<u64>) {
        let fits = |host: u64| bytes.checked_mul(ranks.into()).is_some_and(|all| all <= host);
        let Some(host) = host.filter(|host| !fits(*host)) else { return };
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        let (takes, has) = (gib(bytes), gib(host));
        self.wrong.get_or_insert(format!(
            "{flag} {value} takes {takes:.1} GiB of memory of each of {ranks} rank(s), and this host has \
             {has:.1} GiB"
        ));
    }

    /// Whether one JSON object is wanted; see [`Report`](super::Report).
    pub fn json(&self) -> bool {
        self.json
    }

    /// The number of ranks that is asked for or the default, where the program decides that.
    pub fn ranks(&self) -> u32 {
        self.options.expected()
    }

    /// Sets whether ranks that are processes go on when one of them has died.
    pub fn keep_going(&mut self, keep_going: bool) {
        self.options.keep_going = keep_going;
    }

    /// Sets the size in bytes of every rank's segment, which often follows from the flags.
    pub fn segment_bytes(&mut self, bytes: usize) {
        self.options.segment_bytes = bytes;
    }

    /// What is wrong, help being wanted aside.
    fn fault(&self) -> Option<String> {
        let unexpected = || {
            let arg = self.rest.first()?;
            let meant = self.meant(arg).map_or(String::new(), |flag| format!("; did you mean {flag}?"));
            Some(format!("unexpected argument '{arg}'{meant}; --help lists the options"))
        };
        self.wrong.clone().or_else(unexpected)
    }

    /// The flag that an argument begins like, or that begins like it.
    fn meant(&self, arg: &str) -> Option<&str> {
        let arg = arg.split_once('=').map_or(arg, |(flag, _)| flag);
        let known =
            HELP.split_whitespace().chain(self.help.split_whitespace()).filter(|word| word.starts_with("--"));
        let mut alike = known.filter(|flag| flag.starts_with(arg) || arg.starts_with(*flag));
        alike.next().filter(|_| arg.len() > 3)
    }

    /// Runs the program, unless its flags are wrong or help is wanted. Returns its exit code as
    /// [`main`](super::main) does.
    pub fn run(self, program: impl Program) -> ExitCode {
        if self.rest.iter().any(|arg| arg == "--help" || arg == "-h") {
            print!("{}\n\nUsage: {} [OPTIONS]\n\n{HELP}{}", self.about, self.program, self.help);
            return ExitCode::SUCCESS;
        }
        match self.fault() {
            None => run(self.options, program),
            Some(fault) => refuse(&super::Usage(fault)),
        }
    }
}

/// The memory of this host, if the system tells.
fn memory_bytes() -> Option<u64> {
    let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().trim_end_matches("kB").trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(args: &[&str]) -> Flags {
        let args = ["program"].iter().chain(args).map(|arg| OsString::from(*arg));
        Flags::of("Does something.", Options::new(), args)
    }

    #[test]
    fn values_are_given_either_way_or_default() {
        let mut flags = flags(&["--size", "7", "--json", "--ranks", "3", "--name=a=b"]);
        assert_eq!((flags.value("--size", "N", 5u64, ""), flags.value("--times", "N", 2u32, "")), (7, 2));
        assert_eq!(flags.value("--name", "NAME", String::from("x"), ""), "a=b");
        assert!(flags.json() && flags.ranks() == 3 && !flags.switch("--quick", ""));
        assert_eq!(flags.fault(), None);
    }

    #[test]
    fn faults_are_told_with_the_flag() {
        for (args, part) in [
            (&["--size"][..], "--size needs a value"),
            (&["--size", "many"], "--size many"),
            (&["--size", "-1"], "--size -1"),
            (&["--sizes", "1"], "unexpected argument '--sizes'; did you mean --size?"),
            (&["--rank=1"], "unexpected argument '--rank=1'; did you mean --ranks?"),
            (&["--", "1"], "unexpected argument '--'; --help"),
            (&["--backend", "tcp"], "no backend 'tcp'"),
        ] {
            let mut flags = flags(args);
            assert_eq!(flags.value("--size", "N", 5u64, ""), 5);
            assert!(flags.fault().is_some_and(|fault| fault.contains(part)), "{args:?}: {:?}", flags.fault());
        }
        let mut large = flags(&["--ranks", "3"]);
        large.memory_of("--size", 1000, (3, 8000), Some(24_000));
        large.memory_of("--size", u64::MAX, (3, u64::MAX), None);
        assert_eq!(large.fault(), None);
        large.memory_of("--size", 1 << 40, (3, 8 << 40), Some(24 << 30));
        let fault =
            "--size 1099511627776 takes 8192.0 GiB of memory of each of 3 rank(s), and this host has 24.0 GiB";
        assert_eq!(large.fault().as_deref(), Some(fault));
        assert!(memory_bytes().is_none_or(|bytes| bytes > 1 << 20));
        let mut flags = flags(&[]);
        flags.require(false, "the size is a power of two");
        assert_eq!(flags.fault().as_deref(), Some("the size is a power of two"));
    }
}

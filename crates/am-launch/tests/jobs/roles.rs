//! What ranks do in the tests.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs, io, process, thread};

use active_messages::anywhere::{self, Backend, Options, Part, Program};
use active_messages::launch::{self, JobTransport, RankJob, RunOptions};
use active_messages::shm::JoinOptions;
use am_core::{Address, Endpoint, Handlers, Joining, Payload, Rank, Request, Transport};
use am_launch::Launcher;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::getpid;

use crate::harness::ANTI_HANG;

/// The length of a line in the role `lines`: many times what a pipe passes on at once.
pub(crate) const LONG_LINE: usize = 300_000;
/// The variable with the file that the survivors of a loss sign, each with one byte.
pub(crate) const ROLL: &str = "T_ROLL";
/// A shell's command that names the files which the shell has open.
pub(crate) const LIST_FILES: &str = "cd /proc/$$/fd; echo *";
/// How many lines each rank writes in the role `lines`.
pub(crate) const LINES: usize = 5;

/// Asks for threads as ranks, whoever started this process, or for the backend that the second argument names; the
/// first says what the ranks do.
fn threads(args: &[OsString]) -> ExitCode {
    struct Act(String);
    impl Program for Act {
        fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
            if self.0 == "who" {
                say(&format!("{} of {}", rank.address(), rank.shape().ranks));
            }
            let mut endpoint = rank.attach(Handlers::<()>::new(), ())?;
            match &*self.0 {
                "waiting" => {
                    say("waiting");
                    endpoint.wait_until(|()| false)?;
                }
                "print" => loop {
                    println!("{}", "y".repeat(4000));
                },
                "print-checked" => loop {
                    writeln!(io::stdout(), "{}", "y".repeat(4000))?;
                },
                _ => {}
            }
            endpoint.finish()?;
            Ok(())
        }
    }
    let word = |index: usize| args.get(index).and_then(|word| word.to_str());
    let mut options = Options::new().default_ranks(1);
    options.backend = Some(word(1).map_or(Backend::Loopback, |name| name.parse().expect("a backend")));
    anywhere::run(options, Act(word(0).unwrap_or("who").into()))
}

/// Plays the role and returns the process's exit code.
pub(crate) fn play(role: &str, args: Vec<OsString>) -> ExitCode {
    let rank: u32 = env::var("AM_RANK").ok().and_then(|rank| rank.parse().ok()).unwrap_or_default();
    let number =
        |index: usize| -> u32 { args[index].to_str().and_then(|text| text.parse().ok()).expect("a number") };
    match role {
        // Exits with the code that the arguments have for its rank.
        "exit" => return ExitCode::from(number(rank as usize) as u8),
        // One rank fails with a code, or by a signal; the others sleep.
        "fail" if rank == number(0) => return ExitCode::from(number(1) as u8),
        "die" if rank == number(0) => {
            kill(getpid(), Signal::try_from(number(1) as i32).expect("a signal")).expect("ok")
        }
        "fail" | "die" => thread::sleep(Duration::from_secs(3600)),
        // Says which of the signals it got, and exits with 100 + its number.
        "signal" => {
            let all = SigSet::all();
            all.thread_set_mask().expect("a mask can be set");
            say("ready");
            let signal = all.wait().expect("a signal");
            say(signal.as_str());
            return ExitCode::from(100 + signal as u8);
        }
        // Says its process id and sleeps.
        "sleep" => {
            say(&getpid().to_string());
            thread::sleep(Duration::from_secs(3600));
        }
        // Says the lines of /proc/self/status that start so.
        "status" => {
            let status = fs::read_to_string("/proc/self/status").expect("/proc");
            let start = args[0].to_str().expect("text");
            status.lines().filter(|line| line.starts_with(start)).for_each(say);
        }
        "arguments" => report(&args),
        "stdin" => {
            let mut input = String::new();
            io::stdin().read_to_string(&mut input).expect("text");
            say(&format!("{input:?}"));
        }
        "lines" => lines(rank),
        "job" => return job(&args),
        // A program whose ranks are threads of one process.
        "threads" => return threads(&args),
        // Launches the program that the arguments name, with prefixed output.
        "prefixing" => {
            let launcher = Launcher::new(&args[0]).args(&args[1..]).prefix(true);
            return ExitCode::from(launcher.launch().expect("a job").code());
        }
        _ => panic!("no role {role}"),
    }
    ExitCode::SUCCESS
}

/// A line in one write.
fn say(line: &str) {
    io::stdout().write_all(format!("{line}\n").as_bytes()).expect("somebody reads");
}

/// Every argument, and the variables that start with T_, as bytes.
fn report(args: &[OsString]) {
    let bytes = |text: &OsStr| format!("{:?}", text.as_bytes());
    let mut variables: Vec<String> = env::vars_os()
        .filter(|(key, _)| key.as_bytes().starts_with(b"T_"))
        .map(|(key, value)| format!("{}={}", bytes(&key), bytes(&value)))
        .collect();
    variables.sort();
    let args: Vec<String> = args.iter().map(|arg| bytes(arg)).collect();
    say(&format!("{} | {}", args.join(" "), variables.join(" ")));
}

/// Long lines in many pieces on standard output, a short one on standard error, and an unfinished one at the end.
fn lines(rank: u32) {
    let mut out = io::stdout().lock();
    for line in 0..LINES {
        let text = long_line(rank, line);
        for piece in text.chunks(1000 + 37 * rank as usize) {
            out.write_all(piece).and_then(|()| out.flush()).expect("somebody reads");
        }
        out.write_all(b"\n").expect("somebody reads");
        io::stderr().write_all(format!("error {rank} {line}\n").as_bytes()).expect("somebody reads");
    }
    out.write_all(b"unfinished \xff\0").expect("somebody reads");
    out.flush().expect("somebody reads");
}

/// A line of bytes that are neither text nor line ends.
pub(crate) fn long_line(rank: u32, line: usize) -> Vec<u8> {
    (0..LONG_LINE)
        .map(|at| (at * 31 + line * 7 + rank as usize * 101) as u8)
        .map(|byte| byte.max(b'\n' + 1))
        .collect()
}

/// A program that uses the library: `job [RANKS] ACTION...`, where an action for all ranks is a word and one for a
/// single rank is `RANK:WORD`.
fn job(args: &[OsString]) -> ExitCode {
    let words: Vec<&str> = args.iter().map(|arg| arg.to_str().expect("text")).collect();
    let ranks = words.first().and_then(|word| word.parse().ok());
    let actions = if ranks.is_some() { &words[1..] } else { &words[..] };
    let mut options = RunOptions::new().ranks(ranks).default_ranks(3);
    if env::var_os("T_SET_UP").is_some() {
        let set = |launcher: Launcher| launcher.prefix(true).endpoints(2).env("AM_TIMEOUT", "7s");
        options = options.launcher(set).launcher(|launcher| launcher.ranks(9).name("other").arg("other"));
        options = options.launcher(|launcher| launcher.args(["and", "more"]));
    }
    let program = |job: RankJob| {
        for action in actions {
            let (whose, action) = action.split_once(':').unwrap_or((".", action));
            if whose == "." || whose == job.rank().to_string() {
                act(&job, action)?;
            }
        }
        Ok::<(), String>(())
    };
    if env::var_os("T_NUMBER").is_some() {
        process::exit(launch::run_status(options, program));
    }
    launch::run(options, program)
}

/// FNV-1a.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn act(job: &RankJob, action: &str) -> Result<(), String> {
    match action {
        "who" => say(&format!("{} of {} by {}", job.rank(), job.ranks(), job.started_by())),
        "name" => say(job.job_id()),
        "report" => say(&job.report()),
        // Tells it from others without showing it: the tests' secrets are nobody's.
        "secret" => say(&format!("{:016x}", fingerprint(job.secret().bytes()))),
        "pid" => say(&getpid().to_string()),
        "sleep" => thread::sleep(Duration::from_secs(3600)),
        "shm" => drop(job.shm(JoinOptions::default()).map_err(|error| error.to_string())?),
        "hidden" => hidden(job)?,
        "endpoints" => say(&format!("{} {:?}", job.endpoints(), env::var_os("AM_TIMEOUT"))),
        "files" => say(&fs::read_dir("/proc/self/fd").expect("/proc").count().to_string()),
        "input" => drop(io::stdin().read_to_string(&mut String::new()).map_err(|error| error.to_string())?),
        "fail" => return Err("it did not work".into()),
        "panic" => panic!("on purpose"),
        "exit" => process::exit(42),
        "kill" => kill(getpid(), Signal::SIGKILL).map_err(|error| error.to_string())?,
        "barrier" => barrier(job, 0)?,
        "threads" => thread::scope(|scope| {
            let first = scope.spawn(|| barrier(job, 0));
            barrier(job, 1).and(first.join().expect("no panic"))
        })?,
        // Lists what a program that this one starts inherits.
        "child" => {
            let list = process::Command::new("sh").args(["-c", LIST_FILES]).output();
            say(String::from_utf8_lossy(&list.map_err(|error| error.to_string())?.stdout).trim_end());
        }
        "grandchild" => grandchild()?,
        "again" => match RankJob::from_environment() {
            Err(error) => say(&error.to_string()),
            Ok(_) => return Err("descriptors were taken over twice".into()),
        },
        "vanish" => vanish(job, || process::exit(0))?,
        "killed" => vanish(job, || {
            let _ = kill(getpid(), Signal::SIGKILL);
        })?,
        "outlive" => vanish(job, || {})?,
        // What the ranks of the next tests fail over.
        "too-large" => exchange(job, |endpoint, poke| {
            endpoint
                .request_medium(next(endpoint), poke, (), &vec![0; 10 << 20])
                .map_err(|error| error.to_string())
        })?,
        "no-rank" => exchange(job, |endpoint, poke| {
            endpoint.request(Rank(99), poke, ()).map_err(|error| error.to_string())
        })?,
        "panicking" => exchange(job, |_, _| panic!("on purpose"))?,
        "waiting" => exchange(job, |endpoint, _| {
            // Nobody ever sends what this waits for.
            endpoint.wait_until(|_| false).map_err(|error| error.to_string())
        })?,
        "saying" => exchange(job, |endpoint, _| {
            say(&getpid().to_string());
            endpoint.wait_until(|_| false).map_err(|error| error.to_string())
        })?,
        "unwrapping" => exchange(job, |endpoint, _| {
            endpoint.wait_until(|_| false).expect("all peers stay");
            Ok(())
        })?,
        "exiting" => exchange(job, |endpoint, _| {
            let Err(error) = endpoint.wait_until(|_| false) else { return Ok(()) };
            eprintln!("{error}");
            process::exit(77)
        })?,
        "exit-job" => job.exit_job(9),
        "exit-job-well" => job.exit_job(0),
        "exit-job-in-handler" => exchange(job, |endpoint, poke| {
            endpoint.request(next(endpoint), poke, ()).map_err(|error| error.to_string())?;
            endpoint.wait_until(|_| false).map_err(|error| error.to_string())
        })?,
        "print" => loop {
            println!("{}", "y".repeat(4000));
        },
        "print-checked" => loop {
            writeln!(io::stdout(), "{}", "y".repeat(4000)).map_err(|error| error.to_string())?;
        },
        "arg0" => say(&format!("{:?}", env::args_os().next())),
        _ => return Err(format!("no action {action}")),
    }
    Ok(())
}

/// The rank after an endpoint's own.
fn next<T: Transport, S>(endpoint: &Endpoint<T, S>) -> Rank {
    Rank((endpoint.rank().0 + 1) % endpoint.ranks())
}

/// Attaches, meets all others, and does something. The handler that is handed over ends the job with code 23.
fn exchange(
    job: &RankJob,
    act: impl FnOnce(&mut Endpoint<JobTransport, ()>, Request<()>) -> Result<(), String>,
) -> Result<(), String> {
    let transport = job.attach(JoinOptions::default()).map_err(|error| error.to_string())?;
    let mut handlers = Handlers::new();
    let poke = handlers.one_way("poke", |_: &mut (), _: Address, (): (), _: Payload<'_>| am_launch::exit_job(23));
    let poke = poke.map_err(|error| error.to_string())?;
    let mut endpoint = Endpoint::attach(transport, handlers, ()).map_err(|error| error.to_string())?;
    endpoint.barrier().map_err(|error| error.to_string())?;
    act(&mut endpoint, poke)?;
    endpoint.finish().map_err(|error| error.to_string())
}

/// All endpoints meet in a barrier over whatever the job spans.
fn barrier(job: &RankJob, endpoint: u16) -> Result<(), String> {
    let transport = job.attach(JoinOptions::default().endpoint(endpoint)).map_err(|error| error.to_string())?;
    let mut endpoint =
        Endpoint::attach(transport, Handlers::<()>::new(), ()).map_err(|error| error.to_string())?;
    endpoint.barrier().map_err(|error| error.to_string())?;
    endpoint.finish().map_err(|error| error.to_string())
}

/// Meets the others and then ends in some way; whoever does not end says how it learned that another one did.
fn vanish(job: &RankJob, end: impl FnOnce()) -> Result<(), String> {
    // Before descriptors become scarce.
    let roll = env::var_os(ROLL).ok_or("no roll to sign")?;
    let mut roll = fs::File::options().append(true).open(roll).map_err(|error| error.to_string())?;
    let transport = job.attach(JoinOptions::default()).map_err(|error| error.to_string())?;
    let mut endpoint =
        Endpoint::attach(transport, Handlers::<()>::new(), ()).map_err(|error| error.to_string())?;
    // One that ends may do so while others have not quite met it.
    let met = endpoint.barrier();
    end();
    let limit = am_core::Span::from_secs(100);
    let heard = met.and_then(|()| endpoint.wait_until_for(limit, |_| false));
    say(&heard.map_or_else(|error| error.to_string(), |()| "nothing".into()));
    // Nobody leaves before all survivors have seen the loss, as a rank that leaves is lost, too.
    let mut sign = || -> io::Result<()> {
        roll.write_all(b"x")?;
        let until = Instant::now() + ANTI_HANG;
        while roll.metadata()?.len() + 1 < u64::from(job.ranks()) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    };
    sign().map_err(|error| error.to_string())
}

/// Starts this program as a rank would start another one: with its own environment, and with a file of the
/// launcher's kind where the launcher's was. Says what that program says, and how it ends.
fn grandchild() -> Result<(), String> {
    let variable = env::var("AM_LIFELINE_FD").map_err(|error| error.to_string())?;
    let number = variable.split(':').next().and_then(|number| number.parse().ok()).ok_or("no number")?;
    // One whose ends do not have that number themselves.
    let mut pipes = Vec::new();
    let (reading, _writing) = loop {
        match nix::unistd::pipe().map_err(|error| error.to_string())? {
            pipe if pipe.0.as_raw_fd().min(pipe.1.as_raw_fd()) > number => break pipe,
            pipe => pipes.push(pipe),
        }
    };
    drop(pipes);
    let taken = fcntl(&reading, FcntlArg::F_DUPFD(number)).map_err(|error| error.to_string())?;
    if taken != number {
        return Err(format!("descriptor {number} is in use"));
    }
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let ended = process::Command::new(program).args(["--role", "job", "who"]).output();
    let ended = ended.map_err(|error| error.to_string())?;
    say(&format!("{}; {}", String::from_utf8_lossy(&ended.stderr).trim_end(), ended.status));
    Ok(())
}

/// Looks for the job's secret where others could see it: in the arguments and the environment of this process and
/// all above it.
fn hidden(job: &RankJob) -> Result<(), String> {
    let secret = job.secret().bytes();
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut process = process::id().to_string();
    while process != "0" && process != "1" {
        for place in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{process}/{place}")).unwrap_or_default();
            let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
            if has(secret) || has(hex.as_bytes()) || has(hex.to_uppercase().as_bytes()) {
                return Err(format!("the secret is in the {place} of process {process}"));
            }
        }
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).map_err(|error| error.to_string())?;
        let rest = stat.rsplit_once(')').ok_or("a strange stat file")?.1;
        process = rest.split_whitespace().nth(1).ok_or("a strange stat file")?.to_owned();
    }
    say(&format!("a secret of {} bytes, hidden", secret.len()));
    Ok(())
}

//! The conformance suite over shared memory between real processes, and what only processes can show: ranks that
//! exit, panic, are killed or hang while others wait for them, and what a launcher passes on.
//!
//! The program plays both parts. Started by `cargo test` it lists and runs tests, launching itself as ranks; with
//! [`ROLE`] in its environment it is one of these ranks. Like other test programs it takes names (or parts of
//! names) of tests, `--list`, and `--ignored` for the full profile, which takes minutes:
//! `cargo test --release --test conformance_processes -- --ignored`.

mod collectives;
mod endings;
#[path = "../harness/mod.rs"]
mod harness;
mod messages;
mod ranks;

use active_messages::launch::{Launcher, Outcome, RankEnd, TransportChoice, TransportOptions};
use active_messages::p2p::Protocol;
use am_conformance::{Buffers, Plan, Profile, all_cases, difficult_arguments, difficult_variables};
use endings::{ENDINGS, Ending};
use harness::{Outcomes, test};
use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The variable that makes this program a rank, and says which part it plays.
const ROLE: &str = "AM_CONFORMANCE_ROLE";
/// The variable that names the folder where ranks leave their process ids.
const SCRATCH: &str = "AM_CONFORMANCE_SCRATCH";
/// Far beyond what any job here takes: a job that is not done by then hangs.
const HANGS: Duration = Duration::from_secs(400);

fn main() -> ExitCode {
    if let Ok(role) = env::var(ROLE) {
        return if role == "launcher" { launch_idlers() } else { ranks::play(&role) };
    }
    let mut tests = Vec::new();
    for ranks in [1, 2, 5] {
        tests.push(test(format!("quick_{ranks}_ranks"), move || suite(Profile::Quick, ranks)));
    }
    for ranks in [1, 2, 3, 5, 8] {
        tests.push(test(format!("full_{ranks}_ranks"), move || suite(Profile::Full, ranks)).full());
    }
    for ending in &ENDINGS {
        tests.push(test(format!("ending_{}", ending.name), || ends(ending)));
    }
    tests.push(test("ending_hangs", hangs));
    tests.push(test("killed_amid_messages", killed_amid_messages));
    tests.push(test("killed_inside_collectives_shm", || killed_inside_collectives(TransportChoice::Shm)));
    tests.push(test("killed_inside_collectives_udp", || killed_inside_collectives(TransportChoice::Udp)));
    tests.push(test("failure_ends_the_job", failure_ends_the_job));
    tests.push(test("killed_launcher_leaves_nobody", killed_launcher));
    tests.push(test("surroundings_reach_ranks", surroundings));
    harness::run(tests)
}

/// A job of this program: a launcher, and the folder where its ranks leave their process ids.
struct Play {
    launcher: Launcher,
    ranks: u32,
    scratch: PathBuf,
}

impl Play {
    fn new(role: &str, ranks: u32) -> Result<Self, Box<dyn Error>> {
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conformance-{}", std::process::id()));
        // Left behind by an earlier job that failed.
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch)?;
        let launcher = Launcher::new(env::current_exe()?)
            .name("conformance")
            .env(ROLE, role)
            .env(SCRATCH, &scratch)
            .ranks(ranks)
            .time_limit(HANGS)
            .grace(Duration::from_millis(300));
        Ok(Self { launcher, ranks, scratch })
    }

    fn with(self, change: impl FnOnce(Launcher) -> Launcher) -> Self {
        Self { launcher: change(self.launcher), ..self }
    }

    /// Runs the job; fails if it hangs or leaves anything behind.
    fn run(self) -> Result<Outcome, Box<dyn Error>> {
        let open = open_files()?;
        let outcome = self.launcher.launch()?;
        check(!outcome.timed_out(), || "the job hangs".into())?;
        check(outcome.ends().len() == self.ranks as usize, || format!("{:?}", outcome.ends()))?;
        for (rank, process) in processes(&self.scratch)? {
            check(!exists(process), || format!("rank {rank} is still there as process {process}"))?;
        }
        let after = open_files()?;
        check(open == after, || format!("{open} files were open before the job, {after} are after it"))?;
        fs::remove_dir_all(&self.scratch)?;
        Ok(outcome)
    }
}

fn check(ok: bool, what: impl FnOnce() -> String) -> Outcomes {
    if ok { Ok(()) } else { Err(what().into()) }
}

/// How many files this process has open.
fn open_files() -> Result<usize, Box<dyn Error>> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}

/// The ranks that have started, with their process ids.
fn processes(scratch: &Path) -> Result<Vec<(String, u32)>, Box<dyn Error>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(scratch)? {
        let path = entry?.path();
        let rank = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A rank may be about to write its number.
        if let Ok(process) = fs::read_to_string(&path)?.parse() {
            all.push((rank, process));
        }
    }
    Ok(all)
}

/// Whether a process runs; one that has ended but was not waited for does not.
fn exists(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z" && state != "X")
}

/// Items 1 to 13 with processes as ranks.
fn suite(profile: Profile, ranks: u32) -> Outcomes {
    let plan = Plan::from_environment(profile);
    let in_part = profile == Profile::Quick && ranks != 2;
    let plan = if in_part { plan.sample(&format!("{ranks} processes")) } else { plan };
    let mut problems = String::new();
    for case in all_cases::<active_messages::shm::Shm>() {
        if !plan.wants(&case.description, ranks) {
            continue;
        }
        let (endpoints, buffers) = (case.description.needs.endpoints, case.description.needs.buffers);
        let size = |launcher: Launcher| match buffers {
            Buffers::Default => launcher.endpoints(endpoints),
            Buffers::Smallest => launcher.endpoints(endpoints).rings(Some(4), Some(256)),
        };
        let name = case.description.name;
        for draw in 0..case.description.needs.draws {
            let role = format!("case {name} {} {} {draw}", profile == Profile::Full, plan.seed);
            let play = Play::new(&role, ranks)?;
            let outcome = play.with(|launcher| size(launcher.keep_going(true).time_limit(plan.limit()))).run()?;
            if !outcome.is_success() {
                problems += &format!("      {name} with {ranks} ranks, draw {draw}: {:?}\n", outcome.ends());
            }
        }
    }
    check(problems.is_empty(), || format!("{problems}      (AM_CONFORMANCE_SEED={})", plan.seed))
}

/// A victim, the last rank, ends in some way; the survivors say whether they were told.
fn ends(ending: &'static Ending) -> Outcomes {
    for ranks in [2, 5] {
        let play = Play::new(&format!("ending {}", ending.name), ranks)?;
        let outcome = play.with(|launcher| launcher.keep_going(true)).run()?;
        let (victim, survivors) = outcome.ends().split_last().ok_or("a job without ranks")?;
        check(*victim == ending.end, || {
            format!("of {ranks} ranks, the victim {victim} instead of {}", ending.end)
        })?;
        check(survivors.iter().all(|end| end.is_success()), || format!("of {ranks} ranks: {:?}", outcome.ends()))?;
        check(outcome.code() == ending.end.code(), || format!("the launcher's code is {}", outcome.code()))?;
    }
    Ok(())
}

/// The last rank is killed amid long messages to and from all others, by every protocol.
fn killed_amid_messages() -> Outcomes {
    for protocol in Protocol::ALL {
        for polls in messages::POLLS {
            let play = Play::new(&format!("messages {} {polls}", protocol.name()), 3)?;
            let outcome = play.with(|launcher| launcher.keep_going(true)).run()?;
            let told = || format!("{}, after {polls} polls: {:?}", protocol.name(), outcome.ends());
            let (victim, survivors) = outcome.ends().split_last().ok_or("a job without ranks")?;
            check(*victim == RankEnd::Killed(9) && survivors.iter().all(|end| end.is_success()), told)?;
        }
    }
    Ok(())
}

/// A rank in the middle is killed inside every collective operation. Over UDP nobody is lost by silence within the
/// time that a job has: the launcher tells.
fn killed_inside_collectives(transport: TransportChoice) -> Outcomes {
    const RANKS: u32 = 4;
    for kind in collectives::KINDS {
        for (count, polls) in collectives::COUNTS
            .into_iter()
            .flat_map(|count| collectives::POLLS.into_iter().map(move |polls| (count, polls)))
        {
            let manner = polls.map_or("in the call".into(), |polls: u32| polls.to_string());
            let role = format!("collective {kind} {count} {}", polls.map_or("-".into(), |_| manner.clone()));
            let play = Play::new(&role, RANKS)?;
            let options =
                |launcher: Launcher| launcher.keep_going(true).transport(transport).env("AM_UDP_SILENCE", "86400");
            let outcome = play.with(options).run()?;
            let right = outcome.ends().iter().enumerate().all(|(rank, end)| match rank as u32 == RANKS / 2 {
                true => *end == RankEnd::Killed(9),
                false => end.is_success(),
            });
            check(right, || format!("{kind} of {count}, {manner}: {:?}", outcome.ends()))?;
        }
    }
    Ok(())
}

/// The victim is stopped. The survivors' patience ends; then one of them fails, and the launcher ends the victim.
fn hangs() -> Outcomes {
    for ranks in [2, 5] {
        let outcome = Play::new("hang", ranks)?.run()?;
        let (victim, survivors) = outcome.ends().split_last().ok_or("a job without ranks")?;
        check(matches!(victim, RankEnd::Killed(_)), || format!("the victim {victim}"))?;
        check(survivors[0] == RankEnd::Exited(ranks::GAVE_UP), || format!("rank 0 {}", survivors[0]))?;
        // The launcher may end the others while they are on their way out.
        let fine = |end: &RankEnd| end.is_success() || *end == RankEnd::Killed(15);
        check(survivors[1..].iter().all(fine), || format!("of {ranks} ranks: {:?}", outcome.ends()))?;
        check(outcome.code() == ranks::GAVE_UP, || format!("the launcher's code is {}", outcome.code()))?;
    }
    Ok(())
}

/// Unless told otherwise, the launcher ends the job with its first rank that fails.
fn failure_ends_the_job() -> Outcomes {
    for ranks in [2, 8] {
        let outcome = Play::new("fail", ranks)?.run()?;
        let (victim, others) = outcome.ends().split_last().ok_or("a job without ranks")?;
        check(*victim == RankEnd::Exited(7), || format!("the victim {victim}"))?;
        check(others.iter().all(|end| matches!(end, RankEnd::Killed(_))), || format!("{:?}", outcome.ends()))?;
        check(outcome.code() == 7, || format!("the launcher's code is {}", outcome.code()))?;
        let first = outcome.first_failure().map(|rank| rank.0);
        check(first == Some(ranks - 1), || format!("rank {first:?} failed first"))?;
    }
    Ok(())
}

/// Ranks of the job that [`killed_launcher`] starts.
const IDLERS: u32 = 3;

/// Plays a launcher whose ranks wait for ever.
fn launch_idlers() -> ExitCode {
    let program = env::current_exe().expect("a running program has a path");
    let launched = Launcher::new(program).env(ROLE, "idle").ranks(IDLERS).launch();
    ExitCode::from(launched.map_or(1, |outcome| outcome.code()))
}

/// A launcher is killed without a chance to clean up.
fn killed_launcher() -> Outcomes {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("launcher-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let mut command = Command::new(env::current_exe()?);
    let mut launcher = command.env(ROLE, "launcher").env(SCRATCH, &scratch).stdin(Stdio::null()).spawn()?;
    let deadline = Instant::now() + HANGS;
    let wait_until = |what: &str, done: &dyn Fn() -> Result<bool, Box<dyn Error>>| {
        while !done()? {
            check(Instant::now() < deadline, || what.into())?;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok::<(), Box<dyn Error>>(())
    };
    let started = wait_until("the ranks do not start", &|| Ok(processes(&scratch)?.len() == IDLERS as usize));
    launcher.kill()?;
    launcher.wait()?;
    started?;
    let ranks = processes(&scratch)?;
    wait_until("ranks outlive their launcher", &|| Ok(!ranks.iter().any(|(_, process)| exists(*process))))?;
    Ok(fs::remove_dir_all(&scratch)?)
}

/// Item 14: difficult arguments and variables.
fn surroundings() -> Outcomes {
    for ranks in [1, 3] {
        let with_variables = |launcher: Launcher| {
            difficult_variables().into_iter().fold(launcher, |launcher, (name, value)| launcher.env(name, value))
        };
        let play = Play::new("surroundings", ranks)?;
        let outcome = play.with(|launcher| with_variables(launcher).args(difficult_arguments())).run()?;
        check(outcome.is_success(), || format!("{:?}", outcome.ends()))?;
    }
    Ok(())
}

//! The life and death of ranks that are processes: however one ends, the others are told which and how, and
//! nothing of a job outlives it.
//!
//! The other ranks of each test are this program once more, started with a role in its environment; they open the
//! job through the descriptor that they inherit.

use am_core::{
    Address, AttachError, Endpoint, Handlers, LossCause, Payload, PeerStatus, PollError, Rank, Request, Span,
    WaitError,
};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use transport_shm::{Job, JobConfig, JoinError, Shm};

/// Long enough for any machine, short enough to end a test that hangs.
pub(crate) const PATIENCE: Span = Span::from_secs(60);

const ROLE: &str = "AM_TEST_ROLE";

/// What another process does as a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Joins, says so, and goes when its input ends.
    Join,
    /// Attaches, and waits for what ends its wait.
    Wait,
    /// Attaches, does something else for a while, and then waits.
    WaitLater,
    /// Attaches, and ends without a word.
    Exit,
    /// Attaches, and leaves without finishing.
    Leave,
    /// Attaches, and panics.
    Panic,
    /// Attaches, and finishes.
    Finish,
    /// Attaches, waits for a second and a half, and says how many microseconds of processor time that took.
    Idle,
    /// Attaches, and sends back what it gets until the other one is lost.
    Echo,
    /// Is a whole job by itself, and looks what remains of it.
    Whole,
    /// Joins a job of its own again and again, with a little more address space each time.
    Scarce,
}

const ROLES: [Role; 11] = [
    Role::Join,
    Role::Wait,
    Role::WaitLater,
    Role::Exit,
    Role::Leave,
    Role::Panic,
    Role::Finish,
    Role::Idle,
    Role::Echo,
    Role::Whole,
    Role::Scarce,
];

pub(crate) type Ping = Request<u64>;

pub(crate) fn attach(transport: Shm) -> Result<(Endpoint<Shm, u64>, Ping), AttachError> {
    let mut handlers = Handlers::<u64>::new();
    let ping = handlers
        .one_way("ping", |seen: &mut u64, _: Address, value: u64, _: Payload<'_>| *seen = value)
        .expect("the table is empty");
    Ok((Endpoint::builder(transport).timeout(Some(PATIENCE)).attach(handlers, 0)?, ping))
}

/// A rank in a process of its own.
pub(crate) struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(job: &Job, rank: u32, role: Role) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
        command.args(["--exact", "life::play", "--nocapture", "--quiet"]).env(ROLE, format!("{role:?}"));
        command.env("AM_TEST_RANK", rank.to_string()).env("AM_TEST_JOB", job.fd().as_raw_fd().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("this program can be started again");
        let out = BufReader::new(child.stdout.take().expect("it was asked for"));
        Self { child, out }
    }

    /// The next line that the process has to say.
    pub(crate) fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.out.read_line(&mut line).expect("it writes text"), 0, "the process has ended");
            // The test harness of the other process has its own things to say.
            if let Some(said) = line.strip_prefix("rank: ") {
                return said.trim_end().into();
            }
        }
    }

    pub(crate) fn kill(&self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL).expect("it runs");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other processes' program; without a role it is a test that has nothing to do.
#[test]
fn play() {
    let Some(role) = std::env::var(ROLE).ok() else {
        return;
    };
    let role = ROLES.into_iter().find(|known| format!("{known:?}") == role).expect("a known role");
    if role == Role::Whole {
        return whole();
    }
    if role == Role::Scarce {
        return scarce();
    }
    let number = |name| std::env::var(name).expect("the parent sets it").parse::<u32>().expect("a number");
    let path = format!("/proc/self/fd/{}", number("AM_TEST_JOB"));
    let file = File::options().read(true).write(true).open(path).expect("the descriptor was inherited");
    let job = Job::open(file.into()).expect("the parent made a job");
    let transport = job.join(number("AM_TEST_RANK")).expect("the rank is free");
    if role == Role::Join {
        say("joined");
        std::io::stdin().read_to_end(&mut Vec::new()).expect("the parent closes it");
        return;
    }
    let (mut endpoint, ping) = attach(transport).expect("everyone attaches");
    say("attached");
    match role {
        Role::Wait | Role::WaitLater => {
            if role == Role::WaitLater {
                std::thread::sleep(Duration::from_millis(500));
            }
            say(&endpoint.wait_until(|_| false).expect_err("nothing else ends this wait").to_string());
        }
        Role::Echo => loop {
            let before = *endpoint.state();
            if endpoint.wait_until(|seen| *seen != before).is_err() {
                return;
            }
            let value = *endpoint.state();
            endpoint.request(Rank(0), ping, value).expect("it is there");
        },
        Role::Exit => std::process::exit(0),
        Role::Leave => drop(endpoint),
        Role::Panic => panic!("as the role demands"),
        Role::Idle => {
            let before = used();
            endpoint.wait_until_for(Span::from_millis(1500), |_| false).expect_err("nothing comes");
            say(&(used() - before).as_micros().to_string());
        }
        Role::Finish => drop(endpoint.finish().expect("everyone finishes")),
        Role::Join | Role::Whole | Role::Scarce => {}
    }
}

fn say(what: &str) {
    println!("rank: {what}");
    std::io::stdout().flush().expect("the parent listens");
}

pub(crate) fn create(ranks: u32) -> Job {
    let job = Job::create(&JobConfig::new(ranks)).expect("memory is there");
    job.inherit().expect("it is open");
    job
}

pub(crate) fn lost(rank: u32, cause: LossCause) -> WaitError {
    PollError::PeerLost { rank: Rank(rank), cause }.into()
}

/// Rank 0 waits for rank 1, which plays a role; what ends the wait.
fn wait_for(role: Role) -> WaitError {
    let job = create(2);
    let _other = Process::start(&job, 1, role);
    let (mut endpoint, _) = attach(job.join(0).expect("it is free")).expect("everyone attaches");
    endpoint.wait_until(|_| false).expect_err("nothing else ends this wait")
}

#[test]
fn a_rank_that_exits_is_named() {
    assert_eq!(wait_for(Role::Exit), lost(1, LossCause::Died));
}

#[test]
fn a_rank_that_leaves_is_named() {
    assert_eq!(wait_for(Role::Leave), lost(1, LossCause::Left));
}

#[test]
fn a_rank_that_panics_is_named() {
    assert_eq!(wait_for(Role::Panic), lost(1, LossCause::Panicked));
}

#[test]
fn a_killed_rank_is_named_to_all_who_wait() {
    let job = create(4);
    let mut others: Vec<Process> = (1..4).map(|rank| Process::start(&job, rank, Role::Wait)).collect();
    let (mut endpoint, ping) = attach(job.join(0).expect("it is free")).expect("everyone attaches");
    others.iter_mut().for_each(|other| assert_eq!(other.line(), "attached"));
    std::thread::scope(|scope| {
        // By then everyone sleeps.
        let victim = &others[1];
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            victim.kill();
        });
        assert_eq!(endpoint.wait_until(|_| false), Err(lost(2, LossCause::Died)));
    });
    for survivor in [0, 2] {
        assert_eq!(others[survivor].line(), "rank 2 is lost: its process died");
    }
    // What it cannot do any more is an error too, and says the same.
    let error = endpoint.request(Rank(2), ping, 1).expect_err("nobody is there");
    assert_eq!(error.lost_rank(), Some(Rank(2)));
    assert!(endpoint.lost().contains(&(Rank(2), LossCause::Died)));
}

#[test]
fn late_survivors_learn_where_a_loss_began() {
    let job = create(3);
    let (mut victim, mut late) = (Process::start(&job, 1, Role::Wait), Process::start(&job, 2, Role::WaitLater));
    let (mut endpoint, _) = attach(job.join(0).expect("it is free")).expect("everyone attaches");
    assert_eq!((victim.line(), late.line()), ("attached".into(), "attached".into()));
    victim.kill();
    assert_eq!(endpoint.wait_until(|_| false), Err(lost(1, LossCause::Died)));
    // Rank 0 gives up because of rank 1, before rank 2 looks.
    drop(endpoint);
    assert_eq!(job.status(0), Some(PeerStatus::Lost(LossCause::Left)));
    assert_eq!(late.line(), "rank 1 is lost: its process died");
}

#[test]
fn a_rank_that_never_joins_is_told_by_the_launcher() {
    let job = create(3);
    let mut other = Process::start(&job, 1, Role::Wait);
    std::thread::scope(|scope| {
        let transport = job.join(0).expect("it is free");
        let attaching = scope.spawn(move || attach(transport).map(drop));
        std::thread::sleep(Duration::from_millis(200));
        job.mark_dead(2);
        let outcome = attaching.join().expect("no panic");
        assert_eq!(outcome.expect_err("rank 2 does not come"), AttachError::Wait(lost(2, LossCause::Died)));
    });
    // The other could not attach either, and ends.
    let mut rest = String::new();
    other.out.read_to_string(&mut rest).expect("it writes text");
    assert!(!rest.contains("attached"), "{rest}");
}

#[test]
fn ranks_that_finish_are_not_lost() {
    let job = create(3);
    let _others = [Process::start(&job, 1, Role::Finish), Process::start(&job, 2, Role::Finish)];
    let (endpoint, _) = attach(job.join(0).expect("it is free")).expect("everyone attaches");
    endpoint.finish().expect("everyone finishes");
    let until = Instant::now() + Duration::from_secs(60);
    while (1..3).any(|rank| job.status(rank) != Some(PeerStatus::Finished)) {
        assert!(Instant::now() < until, "{:?}", [1, 2].map(|rank| job.status(rank)));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The process of a rank is known by its number and by when it was started: another process that gets the number
/// later is not taken for it.
#[test]
fn a_reused_process_number_does_not_hide_a_death() {
    // Where the start time of rank 1 lies in the job file.
    const STARTED: u64 = 4096 + 256 + 2 * 8;
    for earlier in [false, true] {
        let job = create(2);
        let mut other = Process::start(&job, 1, Role::Join);
        assert_eq!(other.line(), "joined");
        if earlier {
            let file = File::from(job.fd().try_clone_to_owned().expect("descriptors are there"));
            let mut word = [0; 8];
            file.read_exact_at(&mut word, STARTED).expect("it is in the file");
            let started = u64::from_le_bytes(word);
            assert_ne!(started, 0);
            file.write_all_at(&(started - 1).to_le_bytes(), STARTED).expect("it is in the file");
        }
        let _watching = job.join(0).expect("it is free");
        let until = Instant::now() + if earlier { Duration::from_secs(60) } else { Duration::from_millis(500) };
        while job.status(1) == Some(PeerStatus::Active) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let expected = if earlier { PeerStatus::Lost(LossCause::Died) } else { PeerStatus::Active };
        assert_eq!(job.status(1), Some(expected));
    }
}

/// A faulty rank that makes itself absent is found dead all the same.
#[test]
fn a_status_from_nowhere_does_not_hide_a_death() {
    // Where the status of rank 1 lies in the job file.
    const STATUS: u64 = 4096 + 256;
    let job = create(2);
    let mut other = Process::start(&job, 1, Role::Join);
    assert_eq!(other.line(), "joined");
    // The watch of rank 0 begins by looking who is there.
    let _watching = job.join(0).expect("it is free");
    std::thread::sleep(Duration::from_millis(300));
    let file = File::from(job.fd().try_clone_to_owned().expect("descriptors are there"));
    file.write_all_at(&0u64.to_le_bytes(), STATUS).expect("it is in the file");
    other.kill();
    let until = Instant::now() + Duration::from_secs(60);
    while job.status(1) != Some(PeerStatus::Lost(LossCause::Died)) {
        assert!(Instant::now() < until, "{:?}", job.status(1));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nothing_remains_of_a_job() {
    // Other tests of this program have jobs too, so this is looked at in a process of its own.
    let job = create(1);
    let mut process = Process::start(&job, 0, Role::Whole);
    assert_eq!(process.line(), "nothing remains");
}

/// A job of two threads, from beginning to end.
fn whole() {
    // The job of the parent was inherited and is none of ours, but it is not mapped.
    let count = |dir: &str| std::fs::read_dir(dir).expect("it is always there").count();
    let mapped = || std::fs::read_to_string("/proc/self/maps").expect("it is always there").contains("memfd:");
    let before = (count("/proc/self/fd"), count("/proc/self/task"));
    let job = create(2);
    assert!(mapped());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let transport = job.join(rank).expect("it is free");
            scope.spawn(move || attach(transport).expect("both attach").0.finish().expect("both finish"));
        }
    });
    drop(job);
    assert_eq!(count("/proc/self/fd"), before.0);
    assert!(!mapped());
    // A thread that has done its work needs another moment to disappear.
    let until = Instant::now() + Duration::from_secs(30);
    while count("/proc/self/task") != before.1 {
        assert!(Instant::now() < until, "{} threads instead of {}", count("/proc/self/task"), before.1);
        std::thread::sleep(Duration::from_millis(1));
    }
    say("nothing remains");
}

/// The limit of address space concerns a whole process.
#[test]
fn a_join_that_failed_can_be_repeated() {
    let job = create(1);
    let mut process = Process::start(&job, 0, Role::Scarce);
    assert_eq!(process.line(), "joined in the end");
}

/// Joins with one page more each time, so that each of the mappings fails in turn.
fn scarce() {
    let job = create(1);
    let sizes = std::fs::read_to_string("/proc/self/statm").expect("it is always there");
    let pages: u64 = sizes.split(' ').next().and_then(|size| size.parse().ok()).expect("a number of pages");
    let (before, most) = getrlimit(Resource::RLIMIT_AS).expect("every process may ask");
    let mut failures = 0;
    let outcome = (0..64).find_map(|more| {
        setrlimit(Resource::RLIMIT_AS, (pages + more) * 4096, most).expect("it is no more than before");
        let outcome = job.join(0).map(drop);
        setrlimit(Resource::RLIMIT_AS, before, most).expect("it is no more than allowed");
        let scarce = matches!(outcome, Err(JoinError::System(_)));
        failures += u32::from(scarce);
        (!scarce).then_some(outcome)
    });
    outcome.expect("a few pages are enough").expect("nobody else joins");
    assert!(failures >= 3, "{failures} joins failed");
    say("joined in the end");
}

/// Processor time that this process has used.
fn used() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("every process may ask for its own");
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros.unsigned_abs())
}

/// Looked at in a process of its own, since other tests run in this one.
#[test]
fn a_waiting_rank_uses_next_to_no_processor_time() {
    let job = create(2);
    let mut other = Process::start(&job, 1, Role::Idle);
    let (mut endpoint, _) = attach(job.join(0).expect("it is free")).expect("everyone attaches");
    assert_eq!(other.line(), "attached");
    endpoint.wait_until(|_| false).expect_err("the other leaves in the end");
    let used = Duration::from_micros(other.line().parse().expect("a number"));
    assert!(used < Duration::from_millis(200), "{used:?} of 1.5 s");
}

/// Nobody else ever attaches, so that attaching fails at any time-out.
#[test]
fn a_failed_attach_is_no_finish() {
    let job = create(2);
    let timeout = Some(am_core::Span::from_millis(1));
    let transport = job.join(0).expect("it is free");
    let outcome = Endpoint::builder(transport).timeout(timeout).attach(Handlers::new(), ());
    assert!(matches!(outcome, Err(AttachError::Wait(_))), "{outcome:?}");
    assert_eq!(job.status(0), Some(PeerStatus::Lost(LossCause::Left)));
}

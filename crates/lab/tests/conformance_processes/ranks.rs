//! The parts that ranks play: cases of the suite, survivors and victims, and ranks that look at their
//! surroundings.

use crate::{SCRATCH, collectives, endings, messages};
use active_messages::launch::{self, RankJob};
use active_messages::shm::{JoinOptions, Shm};
use active_messages::{
    Address, AttachError, Endpoint, Handlers, Payload, PeerStatus, Rank, Request, Span, WaitError,
};
use am_conformance::{Profile, World, all_cases, check_surroundings, is_deliberate};
use nix::sys::signal::{Signal, raise};
use std::env;
use std::error::Error;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

/// Bytes of every rank's segment: not a multiple of anything but eight.
pub(crate) const SEGMENT: usize = (1 << 18) + 8;
/// How long a rank waits before it reports a stall; no test waits for it.
pub(crate) const PATIENCE: Span = Span::from_secs(60);
/// The exit code of the rank that gives up on one that hangs.
pub(crate) const GAVE_UP: u8 = 3;

/// Plays a part as a rank of the job that started this process.
pub(crate) fn play(role: &str) -> ExitCode {
    match part(role) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("rank {}: {error}", env::var("AM_RANK").unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

fn part(role: &str) -> Result<ExitCode, Box<dyn Error>> {
    let job = RankJob::from_environment()?.ok_or("this process was not launched as a rank")?;
    let place = PathBuf::from(env::var_os(SCRATCH).ok_or("nowhere to leave the process id")?);
    fs::write(place.join(job.rank().to_string()), std::process::id().to_string())?;
    let mut words = role.split(' ');
    let part = words.next().unwrap_or_default();
    let mut word = || words.next().ok_or(format!("the role '{role}' is incomplete"));
    match part {
        "case" => {
            let (name, full, seed, draw) = (word()?, word()? == "true", word()?.parse()?, word()?.parse()?);
            let world = World::new(if full { Profile::Full } else { Profile::Quick }, seed).drawn(draw);
            case(name, world, &job)?;
        }
        "ending" => endings::play(word()?, &job)?,
        "messages" => messages::play(word()?, word()?.parse()?, &job)?,
        "collective" => collectives::play(word()?, word()?.parse()?, word()?.parse().ok(), &job)?,
        "hang" => return hang(&job),
        "fail" => fail(&job)?,
        "idle" => loop {
            std::thread::park();
        },
        "surroundings" => surroundings(&job)?,
        other => return Err(format!("no part '{other}'").into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// One case of the suite.
fn case(name: &str, world: World, job: &RankJob) -> Result<(), Box<dyn Error>> {
    let case = all_cases::<Shm>().into_iter().find(|case| case.description.name == name).ok_or("no such case")?;
    let join = |endpoint| job.shm(JoinOptions::default().segment_bytes(SEGMENT).endpoint(endpoint));
    let transports = (0..case.description.needs.endpoints).map(join).collect::<Result<Vec<_>, _>>()?;
    match catch_unwind(AssertUnwindSafe(|| case.run(&world, transports))) {
        Ok(verdict) => Ok(verdict.map_err(|failure| format!("{name}: {failure}"))?),
        Err(panic) if is_deliberate(&*panic) && case.description.needs.unwinds => Ok(()),
        Err(panic) => resume_unwind(panic),
    }
}

/// The job's shared memory as this rank's only endpoint.
pub(crate) fn join(job: &RankJob) -> Result<Shm, launch::JobAttachError> {
    job.shm(JoinOptions::default().segment_bytes(SEGMENT))
}

/// What ranks tell each other.
#[derive(Default)]
pub(crate) struct Party {
    pub(crate) ready: u32,
}

/// The handlers of jobs in which someone ends.
pub(crate) struct Table {
    pub(crate) ready: Request<()>,
    pub(crate) note: Request<()>,
    pub(crate) fatal: Request<()>,
}

/// Attaches, with a handler that ends the process. The last rank returns when all others have attached.
pub(crate) fn attach(transport: Shm, end: fn()) -> Result<(Endpoint<Shm, Party>, Table), AttachError> {
    let mut handlers = Handlers::<Party>::new();
    let registered = "three handlers with different names fit the table";
    let count = |party: &mut Party, _: Address, (): (), _: Payload<'_>| party.ready += 1;
    let table = Table {
        ready: handlers.one_way("ready", count).expect(registered),
        note: handlers.one_way("note", |_: &mut Party, _: Address, (): (), _: Payload<'_>| {}).expect(registered),
        fatal: handlers
            .one_way("fatal", move |_: &mut Party, _: Address, (): (), _: Payload<'_>| end())
            .expect(registered),
    };
    let mut endpoint = Endpoint::builder(transport).timeout(Some(PATIENCE)).attach(handlers, Party::default())?;
    let last = Rank(endpoint.ranks() - 1);
    if endpoint.rank() == last {
        endpoint.wait_until(|party| party.ready == last.0)?;
        endpoint.state_mut().ready = 0;
    } else {
        endpoint.request(last, table.ready, ()).map_err(|error| match error {
            active_messages::SendError::Wait(error) => error,
            other => unreachable!("nobody ends before it is ready: {other}"),
        })?;
    }
    Ok((endpoint, table))
}

/// The last rank stops itself while the others are in a barrier; their patience ends, and they say whom they miss.
fn hang(job: &RankJob) -> Result<ExitCode, Box<dyn Error>> {
    let (mut endpoint, table) = attach(join(job)?, || ())?;
    let (me, victim) = (endpoint.rank(), Rank(endpoint.ranks() - 1));
    if me == victim {
        raise(Signal::SIGSTOP)?;
        return Err("the victim went on".into());
    }
    endpoint.set_timeout(Some(Span::from_millis(300)));
    let report = match endpoint.barrier() {
        Err(WaitError::TimedOut(report)) => report,
        other => return Err(format!("the barrier ended with {other:?}").into()),
    };
    // Rank 0 follows the victim and waits for it alone; the others may wait for each other.
    if me == Rank(0) && report.needs != [victim.into()] {
        return Err(format!("the report does not name the rank that hangs: {report}").into());
    }
    endpoint.set_timeout(Some(PATIENCE));
    let survivors: Vec<Address> = endpoint.others().filter(|other| other.rank != victim).collect();
    for other in &survivors {
        endpoint.request(*other, table.ready, ())?;
    }
    endpoint.wait_until(|party| party.ready as usize == survivors.len())?;
    if me == Rank(0) {
        while survivors.iter().any(|other| endpoint.status(*other) == Some(PeerStatus::Active)) {
            std::thread::yield_now();
        }
    }
    endpoint.leave();
    Ok(if me == Rank(0) { ExitCode::from(GAVE_UP) } else { ExitCode::SUCCESS })
}

/// The last rank fails; the others do not care, and would stay for ever.
fn fail(job: &RankJob) -> Result<(), Box<dyn Error>> {
    let (endpoint, _) = attach(join(job)?, || ())?;
    if endpoint.rank().0 + 1 == endpoint.ranks() {
        std::process::exit(7);
    }
    loop {
        std::thread::park();
    }
}

/// Arguments, variables, the own number; and that the job's memory has no name in any file system.
fn surroundings(job: &RankJob) -> Result<(), Box<dyn Error>> {
    check_surroundings(env::args_os().skip(1), |name| env::var_os(name))?;
    let endpoint = Endpoint::builder(join(job)?).timeout(Some(PATIENCE)).attach(Handlers::<()>::new(), ())?;
    if (endpoint.rank(), endpoint.ranks()) != (job.rank(), job.ranks()) {
        return Err(format!("rank {} of {} by the job's memory", endpoint.rank(), endpoint.ranks()).into());
    }
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mut shared =
        maps.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(|mode| mode.ends_with('s')));
    if !maps.contains("active-messages") || !shared.all(|line| line.ends_with("(deleted)")) {
        return Err("the job's memory has a name that could be left behind".into());
    }
    endpoint.finish()?;
    Ok(())
}

//! The parts that ranks play on several hosts.

use active_messages::launch::{JobTransport, RankJob};
use active_messages::shm::JoinOptions;
use active_messages::udp::UdpConfig;
use active_messages::{Address, Endpoint, Handlers, Payload, PeerStatus, PollError, Rank, Request, Span};
use am_conformance::{Buffers, Profile, World, all_cases, is_deliberate};
use nix::sys::signal::{Signal, raise};
use std::env;
use std::error::Error;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The variable that says which part a rank plays.
pub(crate) const ROLE: &str = "AM_HOSTS_ROLE";
/// The variable that names the folder where ranks leave their process ids.
pub(crate) const SCRATCH: &str = "AM_HOSTS_SCRATCH";
/// Bytes of every rank's segment: not a multiple of anything but eight.
const SEGMENT: usize = (1 << 18) + 8;
/// How long a rank waits before it reports a stall; no test waits for it.
const PATIENCE: Span = Span::from_secs(60);

/// Plays the part that the environment names.
pub(crate) fn play(role: &str) -> ExitCode {
    match part(role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rank {}: {error}", env::var("AM_RANK").unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

fn part(role: &str) -> Result<(), Box<dyn Error>> {
    let job = RankJob::from_environment()?.ok_or("this process was not launched as a rank")?;
    note_process(&job)?;
    let mut words = role.split(' ');
    let part = words.next().unwrap_or_default();
    let mut word = || words.next().ok_or(format!("the role '{role}' is incomplete"));
    match part {
        "case" => {
            let (name, full, seed) = (word()?, word()? == "true", word()?.parse()?);
            case(name, World::new(if full { Profile::Full } else { Profile::Quick }, seed), &job)
        }
        "report" => {
            println!("{}", job.report());
            Ok(attach(&job)?.0.finish().map(drop)?)
        }
        #[cfg(feature = "ofi")]
        "carriers" => carriers(&job, word()?.parse()?),
        "rounds" => rounds(&job, &job_file("stop")?),
        "tasks" => super::tasks::play(&job, word()? == "killed"),
        "victim" => victim(&job),
        "survive" => survive(&job, word()?.parse()?),
        "idle" => loop {
            std::thread::park();
        },
        other => Err(format!("no part '{other}'").into()),
    }
}

/// Leaves this process's and its parent's id where the test finds them.
fn note_process(job: &RankJob) -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var_os(SCRATCH).ok_or("nowhere to leave the process id")?);
    let (own, parent) = (std::process::id(), nix::unistd::getppid());
    // Under its name only when it is complete.
    let draft = folder.join(format!(".{}", job.rank()));
    fs::write(&draft, format!("{own} {parent}"))?;
    Ok(fs::rename(draft, folder.join(job.rank().to_string()))?)
}

/// One case of the suite.
fn case(name: &str, world: World, job: &RankJob) -> Result<(), Box<dyn Error>> {
    let cases = all_cases::<JobTransport>();
    let case = cases.into_iter().find(|case| case.description.name == name).ok_or("no such case")?;
    let needs = case.description.needs;
    let udp = move |config: UdpConfig| match needs.buffers {
        Buffers::Default => config,
        Buffers::Smallest => UdpConfig::smallest(config.secret.clone()),
    };
    let attach = |endpoint| job.attach_with(JoinOptions::default().segment_bytes(SEGMENT).endpoint(endpoint), udp);
    let transports = (0..needs.endpoints).map(attach).collect::<Result<Vec<_>, _>>()?;
    match catch_unwind(AssertUnwindSafe(|| case.run(&world, transports))) {
        Ok(verdict) => Ok(verdict.map_err(|failure| format!("{name}: {failure}"))?),
        Err(panic) if is_deliberate(&*panic) && needs.unwinds => Ok(()),
        Err(panic) => resume_unwind(panic),
    }
}

/// Shared memory leads to ranks of the same host, libfabric to those of hosts other than the one apart, UDP to the
/// rest; messages arrive over all of them.
#[cfg(feature = "ofi")]
fn carriers(job: &RankJob, apart: u32) -> Result<(), Box<dyn Error>> {
    use active_messages::launch::Carrier;
    let (mut endpoint, count) = attach(job)?;
    for to in (0..job.ranks()).map(Rank) {
        let hosts = [job.host_of(job.rank()), job.host_of(to)];
        let expected = match hosts {
            [own, other] if own == other => Carrier::Shm,
            hosts if hosts.contains(&apart) => Carrier::Udp,
            _ => Carrier::Ofi,
        };
        if job.carrier(to) != expected {
            return Err(format!("{} to {to}, not {expected}: {}", job.carrier(to), job.report()).into());
        }
        endpoint.request(to, count, ())?;
    }
    let all = u64::from(job.ranks());
    endpoint.wait_until(|sum| *sum == all)?;
    Ok(endpoint.finish().map(drop)?)
}

type Party = Endpoint<JobTransport, u64>;

/// Attaches with a handler that counts.
fn attach(job: &RankJob) -> Result<(Party, Request<()>), Box<dyn Error>> {
    let mut handlers = Handlers::<u64>::new();
    let count = handlers.one_way("count", |sum: &mut u64, _: Address, (): (), _: Payload<'_>| *sum += 1)?;
    let transport = job.attach(JoinOptions::default().segment_bytes(SEGMENT))?;
    Ok((Endpoint::builder(transport).timeout(Some(PATIENCE)).attach(handlers, 0)?, count))
}

/// Everybody sends to everybody, round by round, until the test leaves a file.
fn rounds(job: &RankJob, stop: &Path) -> Result<(), Box<dyn Error>> {
    let (mut endpoint, count) = attach(job)?;
    let others = u64::from(endpoint.ranks()) - 1;
    let mut round = 0;
    let mut last = false;
    while !last {
        round += 1;
        // Rank 0 decides, so that all do as many rounds: whoever is asked to stop is told in a round of its own.
        last = endpoint.rank() == Rank(0) && stop.exists();
        let again = u64::from(last);
        for to in 0..endpoint.ranks() {
            if Rank(to) != endpoint.rank() {
                (0..=again).try_for_each(|_| endpoint.request(Rank(to), count, ()))?;
            }
        }
        endpoint.drain()?;
        endpoint.barrier()?;
        if endpoint.rank() == Rank(0) {
            fs::write(job_file("rounds")?, round.to_string())?;
        } else {
            last = *endpoint.state_mut() > round * others;
        }
        endpoint.barrier()?;
    }
    let sum = endpoint.finish()?;
    let expected = round * others + u64::from(job.rank() != Rank(0));
    if sum == expected { Ok(()) } else { Err(format!("{sum} messages instead of {expected}").into()) }
}

/// The last rank kills itself when all have attached; the others find out and go on without it.
fn victim(job: &RankJob) -> Result<(), Box<dyn Error>> {
    let (mut endpoint, count) = attach(job)?;
    endpoint.barrier()?;
    fs::write(job_file(&format!("ready-{}", job.rank()))?, "")?;
    let victim = Rank(endpoint.ranks() - 1);
    if endpoint.rank() == victim {
        // Not while others are on their way out of the barrier, which a loss would end for them.
        while !(0..victim.0).all(|rank| job_file(&format!("ready-{rank}")).is_ok_and(|file| file.exists())) {
            endpoint.poll()?;
        }
        raise(Signal::SIGKILL)?;
    }
    go_on_without(endpoint, count, &[victim])
}

/// The test makes the ranks from this one on unreachable when all have attached; the others find out and go on.
fn survive(job: &RankJob, first_lost: u32) -> Result<(), Box<dyn Error>> {
    let (mut endpoint, count) = attach(job)?;
    endpoint.barrier()?;
    fs::write(job_file(&format!("ready-{}", job.rank()))?, "")?;
    let lost: Vec<Rank> = (first_lost..endpoint.ranks()).map(Rank).collect();
    if lost.contains(&endpoint.rank()) {
        // Its agent ends it.
        loop {
            std::thread::park();
        }
    }
    go_on_without(endpoint, count, &lost)
}

/// Waits until these ranks are known to be lost, sees that sending to them says so, and talks to all the others.
fn go_on_without(mut endpoint: Party, count: Request<()>, lost: &[Rank]) -> Result<(), Box<dyn Error>> {
    let is_lost = |endpoint: &Party, rank: Rank| matches!(endpoint.status(rank), Some(PeerStatus::Lost(_)));
    while !lost.iter().all(|&rank| is_lost(&endpoint, rank)) {
        match endpoint.poll() {
            Err(PollError::PeerLost { rank, .. }) if lost.contains(&rank) => {}
            other => drop(other?),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for &rank in lost {
        // The news may reach the status before it reaches the way there, which a poll brings up to date.
        let error = loop {
            match endpoint.request(rank, count, ()) {
                Ok(()) => drop(endpoint.poll()),
                Err(error) => break error,
            }
        };
        if error.lost_rank() != Some(rank) {
            return Err(format!("the error does not name rank {rank}: {error}").into());
        }
    }
    // A survivor leaves when it has heard of all others, so nobody misses a word that it needs.
    (0..endpoint.ranks()).for_each(|rank| endpoint.acknowledge_loss(Rank(rank)));
    let survivors: Vec<Address> = endpoint.others().filter(|other| !lost.contains(&other.rank)).collect();
    survivors.iter().try_for_each(|&other| endpoint.request(other, count, ()))?;
    let expected = survivors.len() as u64;
    endpoint.wait_until(|sum| *sum >= expected)?;
    println!("rank {} goes on", endpoint.rank());
    endpoint.leave();
    Ok(())
}

/// A file that the test knows.
fn job_file(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    Ok(Path::new(&env::var_os(SCRATCH).ok_or("no folder")?).join(name))
}

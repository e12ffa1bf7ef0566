//! A process that is killed inside a collective operation, over shared memory and over UDP: every survivor gets an
//! error that names it, and goes on in a team without it.

use crate::ranks::{PATIENCE, SEGMENT};
use active_messages::launch::{JobTransport, RankJob};
use active_messages::pgas::Team;
use active_messages::pgas::collectives::{CollectiveError, Collectives, Operator, Ordered, Sum};
use active_messages::shm::JoinOptions;
use active_messages::{Endpoint, Handlers, LossCause, Rank};
use nix::sys::signal::{Signal, raise};
use std::error::Error;

type Ranks = Endpoint<JobTransport, Collectives>;
type Outcome = Result<(), CollectiveError>;

/// The operations, by name.
pub(crate) const KINDS: [&str; 10] = [
    "barrier",
    "broadcast",
    "reduce",
    "allreduce",
    "allreduce_ordered",
    "reduce_scatter",
    "scan",
    "gather",
    "allgather",
    "alltoall",
];

/// Elements of each member: a few, and more than passes at once.
pub(crate) const COUNTS: [usize; 2] = [2, 40_000];

/// Polls of a victim that has begun an operation before it is killed; with none of these it is killed where it
/// combines elements, or before it comes to an operation that combines none.
pub(crate) const POLLS: [Option<u32>; 3] = [None, Some(0), Some(5)];

/// The sum, whose operator is the end of a victim. Its name is that of the survivors' operator.
#[derive(Clone, Copy)]
struct Last {
    victim: bool,
}

impl Operator<u64> for Last {
    fn name(&self) -> &'static str {
        "Last"
    }

    fn combine(&self, a: u64, b: u64) -> u64 {
        if self.victim {
            raise(Signal::SIGKILL).expect("a process may kill itself");
        }
        a.wrapping_add(b)
    }
}

/// One operation in the call of which a victim stays.
fn block(kind: &str, count: usize, root: u32, team: &Team, endpoint: &mut Ranks, victim: bool) -> Outcome {
    let (me, size, last) = (team.me(), team.size() as usize, Last { victim });
    let (mut part, mut all) = (vec![1u64; count], vec![1u64; count * size]);
    let given = all.clone();
    match kind {
        "barrier" => team.barrier(endpoint),
        "broadcast" => team.broadcast(endpoint, root, &mut part),
        "reduce" => team.reduce(endpoint, root, &mut part, last),
        "allreduce" => team.allreduce(endpoint, &mut part, last),
        "allreduce_ordered" => team.allreduce(endpoint, &mut part, Ordered(last)),
        "reduce_scatter" => team.reduce_scatter(endpoint, &all, &mut part, last),
        "scan" => team.scan(endpoint, &mut part, last),
        "gather" => team.gather(endpoint, root, &part, &mut all[..if me == root { count * size } else { 0 }]),
        "allgather" => team.allgather(endpoint, &part, &mut all),
        _ => team.alltoall(endpoint, &given, &mut all),
    }
}

/// The victim's part, which ends the process.
fn fall(
    kind: &str,
    count: usize,
    polls: Option<u32>,
    team: &Team,
    endpoint: &mut Ranks,
) -> Result<(), Box<dyn Error>> {
    let (me, size, sum) = (team.me(), team.size() as usize, Last { victim: false });
    let (part, all) = (vec![1u64; count], vec![1u64; count * size]);
    let Some(polls) = polls else {
        let combines = matches!(kind, "reduce" | "allreduce" | "allreduce_ordered" | "reduce_scatter" | "scan");
        if combines {
            // As the root, so that it combines.
            let ended = block(kind, count, me, team, endpoint, true);
            return Err(format!("the victim's operation ended with {ended:?}").into());
        }
        raise(Signal::SIGKILL)?;
        return Ok(());
    };
    let mut elements = None;
    let mut notified = None;
    match kind {
        "barrier" => notified = Some(team.notify(endpoint, None)?),
        "broadcast" => elements = Some(team.broadcast_nb(endpoint, me, part)?),
        "reduce" => elements = Some(team.reduce_nb(endpoint, me, part, sum)?),
        "allreduce" => elements = Some(team.allreduce_nb(endpoint, part, sum)?),
        "allreduce_ordered" => elements = Some(team.allreduce_nb(endpoint, part, Ordered(sum))?),
        "reduce_scatter" => elements = Some(team.reduce_scatter_nb(endpoint, all, &vec![count; size], sum)?),
        "scan" => elements = Some(team.scan_nb(endpoint, part, sum)?),
        "gather" => elements = Some(team.gather_nb(endpoint, me, part)?),
        "allgather" => elements = Some(team.allgather_nb(endpoint, &part)?),
        _ => elements = Some(team.alltoall_nb(endpoint, all)?),
    }
    for _ in 0..polls {
        endpoint.poll()?;
    }
    raise(Signal::SIGKILL)?;
    drop((elements, notified));
    Err("the victim went on".into())
}

/// One rank's part; a rank in the middle is the victim, and the root.
pub(crate) fn play(kind: &str, count: usize, polls: Option<u32>, job: &RankJob) -> Result<(), Box<dyn Error>> {
    let mut handlers = Handlers::<Collectives>::new();
    let collectives = Collectives::register(&mut handlers)?;
    let transport = job.attach(JoinOptions::default().segment_bytes(SEGMENT))?;
    let mut endpoint = Endpoint::builder(transport).timeout(Some(PATIENCE)).attach(handlers, collectives)?;
    let all = Team::world(&mut endpoint)?;
    let victim = all.size() / 2;
    let without = all.split(&mut endpoint, (all.me() != victim).then_some(0), 0)?;
    let team = all.duplicate(&mut endpoint)?;
    // Nobody waits for anything when the victim goes on.
    let mut here = vec![0u8; if all.me() == victim { all.size() as usize } else { 0 }];
    all.gather(&mut endpoint, victim, &[1], &mut here)?;
    let Some(without) = without else { return fall(kind, count, polls, &team, &mut endpoint) };
    let ended = block(kind, count, victim, &team, &mut endpoint, false);
    // Who did not need the victim learns of it in the next operation.
    let ended = ended.and_then(|()| team.barrier(&mut endpoint));
    let loss = ended.as_ref().err().and_then(CollectiveError::loss);
    if loss != Some((Rank(victim), LossCause::Died)) {
        return Err(format!("{kind} ended with {ended:?}, rank {victim} was killed").into());
    }
    let again = team.barrier(&mut endpoint);
    if again != ended {
        return Err(format!("the next operation ended with {again:?} instead of {ended:?}").into());
    }
    let survivors = team.shrink(&mut endpoint)?;
    if survivors.ranks() != without.ranks() {
        return Err(format!("the survivors are {:?}", survivors.ranks()).into());
    }
    for kind in KINDS {
        block(kind, count, 0, &survivors, &mut endpoint, false)?;
    }
    let sum = survivors.allreduce_one(&mut endpoint, 1u32, Sum)?;
    if sum != without.size() {
        return Err(format!("a sum of {sum} of {} survivors", without.size()).into());
    }
    // Each has all that it waits for when the others leave.
    survivors.barrier(&mut endpoint)?;
    endpoint.acknowledge_loss(Rank(victim));
    endpoint.drain()?;
    endpoint.leave();
    Ok(())
}

//! Item 19, losses inside collective operations: a rank that never comes to one, has begun it, or dies in the
//! call.

use super::teams::{arrive, leave};
use crate::case::unwind;
use crate::random::Random;
use crate::world::{Verdict, World, ensure, equal};
use am_core::{Address, Endpoint, Handlers, LossCause, Payload, Request, Transport};
use am_pgas::Team;
use am_pgas::collectives::{Collective, CollectiveError, Collectives, Notified, Ordered, Sum};
use am_pgas::layers::HasLayer;

/// A member's collectives, and whether the victim has said that it goes on.
struct Member {
    collectives: Collectives,
    ready: bool,
}

impl HasLayer<Collectives> for Member {
    fn as_layer(&self) -> &Collectives {
        &self.collectives
    }

    fn as_layer_mut(&mut self) -> &mut Collectives {
        &mut self.collectives
    }
}

type Ranks<T> = Endpoint<T, Member>;

/// An operation that a rank is lost inside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Barrier,
    Broadcast,
    Reduce,
    ReduceOrdered,
    Allreduce,
    AllreduceOrdered,
    ReduceScatter,
    ReduceScatterv,
    Scan,
    Exscan,
    Scatter,
    Scatterv,
    Gather,
    Gatherv,
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Split,
    Duplicate,
    Select,
}

/// All of them, in the order in which they lose members.
const KINDS: [Kind; 21] = [
    Kind::Barrier,
    Kind::Broadcast,
    Kind::Reduce,
    Kind::ReduceOrdered,
    Kind::Allreduce,
    Kind::AllreduceOrdered,
    Kind::ReduceScatter,
    Kind::ReduceScatterv,
    Kind::Scan,
    Kind::Exscan,
    Kind::Scatter,
    Kind::Scatterv,
    Kind::Gather,
    Kind::Gatherv,
    Kind::Allgather,
    Kind::Allgatherv,
    Kind::Alltoall,
    Kind::Alltoallv,
    Kind::Split,
    Kind::Duplicate,
    Kind::Select,
];

/// How the victim takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It never comes to the operation.
    Absent,
    /// It begins the operation, polls so often, and is lost.
    Begun(u64),
    /// It is lost while it blocks in the operation, in a handler.
    Blocked,
}

/// One operation of a team: the same on all members.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    count: usize,
    root: u32,
}

/// What is under way.
enum Begun {
    Barrier(Notified),
    Elements(Collective<Vec<u64>>),
    /// The operation has no form with a handle.
    Over,
}

impl Begun {
    fn end<T: Transport>(self, endpoint: &mut Ranks<T>) -> Result<(), CollectiveError> {
        match self {
            Self::Barrier(notified) => notified.wait(endpoint, None),
            Self::Elements(handle) => handle.wait(endpoint).map(drop),
            Self::Over => Ok(()),
        }
    }
}

impl Step {
    /// Elements of each member's part, in the forms with counts.
    fn counts(&self, team: &Team) -> Vec<usize> {
        (0..team.size() as usize).map(|member| self.count + member).collect()
    }

    /// Elements that a member gives to each other one, or gets from each.
    fn exchanged(&self, team: &Team) -> Vec<usize> {
        self.counts(team).into_iter().map(|count| count + team.me() as usize).collect()
    }

    fn begin<T: Transport>(&self, team: &Team, endpoint: &mut Ranks<T>) -> Result<Begun, CollectiveError> {
        let (count, root, size, me) = (self.count, self.root, team.size() as usize, team.me());
        let ones = |len: usize| vec![1u64; len];
        let counts = self.counts(team);
        let total: usize = counts.iter().sum();
        let at_root = |len: usize| ones(if me == root { len } else { 0 });
        let known = if me == root { &counts[..] } else { &[] };
        let own = counts[me as usize];
        let handle = match self.kind {
            Kind::Barrier => return Ok(Begun::Barrier(team.notify(endpoint, None)?)),
            Kind::Broadcast => team.broadcast_nb(endpoint, root, ones(count)),
            Kind::Reduce => team.reduce_nb(endpoint, root, ones(count), Sum),
            Kind::ReduceOrdered => team.reduce_nb(endpoint, root, ones(count), Ordered(Sum)),
            Kind::Allreduce => team.allreduce_nb(endpoint, ones(count), Sum),
            Kind::AllreduceOrdered => team.allreduce_nb(endpoint, ones(count), Ordered(Sum)),
            Kind::ReduceScatter => team.reduce_scatter_nb(endpoint, ones(count * size), &vec![count; size], Sum),
            Kind::ReduceScatterv => team.reduce_scatter_nb(endpoint, ones(total), &counts, Ordered(Sum)),
            Kind::Scan => team.scan_nb(endpoint, ones(count), Sum),
            Kind::Exscan => team.exscan_nb(endpoint, ones(count), Sum),
            Kind::Scatter => team.scatter_nb(endpoint, root, at_root(count * size), count),
            Kind::Scatterv => team.scatterv_nb(endpoint, root, at_root(total), known, own),
            Kind::Gather => team.gather_nb(endpoint, root, ones(count)),
            Kind::Gatherv => team.gatherv_nb(endpoint, root, ones(own), known),
            Kind::Allgather => team.allgather_nb(endpoint, &ones(count)),
            Kind::Allgatherv => team.allgatherv_nb(endpoint, &ones(own), &counts),
            Kind::Alltoall => team.alltoall_nb(endpoint, ones(count * size)),
            Kind::Alltoallv => {
                let each = self.exchanged(team);
                team.alltoallv_nb(endpoint, ones(each.iter().sum()), &each, &each)
            }
            Kind::Split | Kind::Duplicate | Kind::Select => {
                self.block(team, endpoint)?;
                return Ok(Begun::Over);
            }
        };
        handle.map(Begun::Elements)
    }

    fn block<T: Transport>(&self, team: &Team, endpoint: &mut Ranks<T>) -> Result<(), CollectiveError> {
        let (count, root, size, me) = (self.count, self.root, team.size() as usize, team.me());
        let (mut part, mut all) = (vec![1u64; count], vec![1u64; count * size]);
        let given = all.clone();
        let counts = self.counts(team);
        let (own, total) = (counts[me as usize], counts.iter().sum());
        let (mut varying, mut whole) = (vec![1u64; own], vec![1u64; total]);
        let known = if me == root { &counts[..] } else { &[] };
        match self.kind {
            Kind::Barrier => team.barrier(endpoint),
            Kind::Broadcast => team.broadcast(endpoint, root, &mut part),
            Kind::Reduce => team.reduce(endpoint, root, &mut part, Sum),
            Kind::ReduceOrdered => team.reduce(endpoint, root, &mut part, Ordered(Sum)),
            Kind::Allreduce => team.allreduce(endpoint, &mut part, Sum),
            Kind::AllreduceOrdered => team.allreduce(endpoint, &mut part, Ordered(Sum)),
            Kind::ReduceScatter => team.reduce_scatter(endpoint, &all, &mut part, Sum),
            Kind::ReduceScatterv => team.reduce_scatterv(endpoint, &whole, &counts, &mut varying, Ordered(Sum)),
            Kind::Scan => team.scan(endpoint, &mut part, Sum),
            Kind::Exscan => team.exscan(endpoint, &mut part, Sum),
            Kind::Scatter => team.scatter(endpoint, root, &all, &mut part),
            Kind::Scatterv => team.scatterv(endpoint, root, &whole[..known.iter().sum()], known, &mut varying),
            Kind::Gather => team.gather(endpoint, root, &part, &mut all),
            Kind::Gatherv => team.gatherv(endpoint, root, &varying, known, &mut whole[..known.iter().sum()]),
            Kind::Allgather => team.allgather(endpoint, &part, &mut all),
            Kind::Allgatherv => team.allgatherv(endpoint, &varying, &counts, &mut whole),
            Kind::Alltoall => team.alltoall(endpoint, &given, &mut all),
            Kind::Alltoallv => {
                let each = self.exchanged(team);
                let mut got = vec![1u64; each.iter().sum()];
                team.alltoallv(endpoint, &got.clone(), &each, &each, &mut got)
            }
            Kind::Split => team.split(endpoint, Some(0), 0).map(drop),
            Kind::Duplicate => team.duplicate(endpoint).map(drop),
            Kind::Select => {
                let backwards: Vec<u32> = (0..team.size()).rev().collect();
                team.select(endpoint, &backwards).map(drop)
            }
        }
    }

    /// Whether a member cannot have got through the operation without a victim that never came to it.
    fn needs(&self, me: u32, victim: u32) -> bool {
        match self.kind {
            Kind::Broadcast | Kind::Scatter | Kind::Scatterv => self.root == victim,
            Kind::Reduce | Kind::ReduceOrdered | Kind::Gather | Kind::Gatherv => self.root == me,
            Kind::Scan | Kind::Exscan => me > victim,
            _ => true,
        }
    }
}

/// What ends a victim, and what it says before.
struct Signals {
    ready: Request<()>,
    die: Request<()>,
}

/// The position of the member that ends a victim which blocks.
fn executioner(victim: u32) -> u32 {
    u32::from(victim == 0)
}

/// The victim's part, which does not return.
fn fall<T: Transport>(
    (step, manner): (Step, Manner),
    team: &Team,
    endpoint: &mut Ranks<T>,
    signals: &Signals,
) -> Verdict {
    match manner {
        Manner::Absent => {}
        Manner::Begun(polls) => {
            let begun = step.begin(team, endpoint)?;
            for _ in 0..polls {
                endpoint.poll()?;
            }
            // Dropped, it would be taken back.
            std::mem::forget(begun);
        }
        Manner::Blocked => {
            let other = team.rank(executioner(team.me())).expect("a team has two members");
            endpoint.request(other, signals.ready, ())?;
            step.block(team, endpoint)?;
            endpoint.wait_until(|_| false)?;
        }
    }
    unwind()
}

/// The positions of the victim, which is any member, and of the root, and how the victim takes part.
fn draw(random: &mut Random, kind: Kind, size: u32) -> (u32, u32, Manner) {
    let victim = random.below(u64::from(size)) as u32;
    // The root is the victim in half of the operations.
    let root = match random.below(2) {
        0 => victim,
        _ => (victim + 1 + random.below(u64::from(size) - 1) as u32) % size,
    };
    let handles = !matches!(kind, Kind::Split | Kind::Duplicate | Kind::Select);
    let polls = random.below(4);
    let manner = match random.below(3) {
        0 => Manner::Absent,
        1 if handles => Manner::Begun(polls),
        _ => Manner::Blocked,
    };
    (victim, root, manner)
}

/// A member is lost inside one operation after the other, each time in a team without the one before; which
/// operations come first depends on the seed.
fn lost_inside<T: Transport>(world: &World, transport: T, count: usize) -> Verdict {
    let mut handlers = Handlers::<Member>::new();
    let collectives = Collectives::register(&mut handlers)?;
    let ready = |state: &mut Member, _: Address, (): (), _: Payload<'_>| state.ready = true;
    let ready = handlers.one_way("ready", ready)?;
    let die = handlers.one_way("die", |_: &mut Member, _: Address, (): (), _: Payload<'_>| unwind())?;
    let signals = Signals { ready, die };
    let mut endpoint = world.attach(transport, handlers, Member { collectives, ready: false })?;
    let mut all = Team::world(&mut endpoint)?;
    let mut random = world.random(1900);
    let first = world.seed.wrapping_add(u64::from(endpoint.ranks()) * 5);
    let rounds = world.count(2, 7).min(all.size() - 1);
    for round in 0..u64::from(rounds) {
        let kind = KINDS[(first.wrapping_add(round) % KINDS.len() as u64) as usize];
        let (lost, root, manner) = draw(&mut random, kind, all.size());
        let (step, blocking) = (Step { kind, count, root }, random.below(2) == 0);
        let what = format!("{step:?}, victim {lost} of {} {manner:?}, blocking {blocking}", all.size());
        let (me, last) = (all.me(), all.size() - 1);
        let victim = all.rank(lost).expect("the victim is in the team");
        let without = all.split(&mut endpoint, (me != lost).then_some(0), 0)?;
        let team = all.duplicate(&mut endpoint)?;
        step.begin(&team, &mut endpoint)?.end(&mut endpoint)?;
        arrive(&all, &mut endpoint, victim)?;
        if me == lost {
            return fall((step, manner), &team, &mut endpoint, &signals);
        }
        let without = without.expect("all but the victim are in it");
        if manner == Manner::Blocked && me == executioner(lost) {
            endpoint.wait_until(|state| state.ready)?;
            endpoint.state_mut().ready = false;
            endpoint.request(victim, signals.die, ())?;
        }
        // The loss may be known before this begins.
        let mut ended = if blocking {
            step.block(&team, &mut endpoint)
        } else {
            step.begin(&team, &mut endpoint).and_then(|begun| begun.end(&mut endpoint))
        };
        if ended.is_ok() {
            let missed = manner == Manner::Absent && step.needs(me, lost);
            ensure(!missed, || format!("{what}: it came to its end without the victim"))?;
            ended = team.barrier(&mut endpoint);
        }
        // Who has been told of a loss counts as one that leaves because of it, however it ends.
        let named = match ended.as_ref().err().and_then(CollectiveError::loss) {
            Some((rank, LossCause::Panicked)) => rank == victim,
            Some((rank, LossCause::Left)) => rank == victim && round > 0,
            _ => false,
        };
        ensure(named, || format!("{what}: it ended with {ended:?}, expected the loss of rank {victim}"))?;
        equal("the next operation", team.barrier(&mut endpoint), ended)?;
        // Nobody has acknowledged anything, and yet a team without the victim goes on.
        equal("sum of those without it", without.allreduce_one(&mut endpoint, 1u32, Sum)?, last)?;
        endpoint.acknowledge_loss(victim);
        all = team.shrink(&mut endpoint)?;
        equal("the survivors", all.ranks(), without.ranks())?;
        let again = Step { root: root % last, ..step };
        again.begin(&all, &mut endpoint)?.end(&mut endpoint)?;
    }
    for kind in KINDS {
        Step { kind, count, root: all.size() - 1 }.block(&all, &mut endpoint)?;
    }
    equal("sum of the survivors", all.allreduce_one(&mut endpoint, 1u32, Sum)?, all.size())?;
    leave(endpoint, &all)
}

pub(super) fn small<T: Transport>(world: &World, transport: T) -> Verdict {
    lost_inside(world, transport, 2)
}

pub(super) fn large<T: Transport>(world: &World, transport: T) -> Verdict {
    lost_inside(world, transport, 3000)
}

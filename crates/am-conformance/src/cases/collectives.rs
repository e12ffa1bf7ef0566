//! Item 18, collective operations: random ones on overlapping teams, some of them under way at once, against
//! models.

use crate::random::{Random, mix};
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::{Endpoint, Handlers, Transport};
use am_pgas::Team;
use am_pgas::collectives::{
    Allgather, Allreduce, Alltoall, Broadcast, Call, Collective, CollectiveError, Collectives, Gather, Max,
    Notified, Operation, Ordered, Reduce, ReduceScatter, Row, Scan, Sum, Tuning,
};

pub(super) type Ranks<T> = Endpoint<T, Collectives>;

impl From<CollectiveError> for Failure {
    fn from(error: CollectiveError) -> Self {
        Self::Check(format!("collective: {error}"))
    }
}

pub(super) fn attach<T: Transport>(world: &World, transport: T, tuning: Tuning) -> Result<Ranks<T>, Failure> {
    let mut handlers = Handlers::<Collectives>::new();
    let collectives = Collectives::register_tuned(&mut handlers, tuning)?;
    Ok(world.attach(transport, handlers, collectives)?)
}

/// The composition of two affine maps modulo 2^32, packed as factor and term: associative, and it does not
/// commute.
fn compose(f: u64, g: u64) -> u64 {
    let ((a, b), (c, d)) = ((f as u32, (f >> 32) as u32), (g as u32, (g >> 32) as u32));
    let (factor, term) = (a.wrapping_mul(c), b.wrapping_mul(c).wrapping_add(d));
    u64::from(factor) | u64::from(term) << 32
}

/// How operands are combined.
#[derive(Clone, Copy)]
enum Way {
    Sum,
    Max,
    Compose,
}

impl Way {
    fn combine(self, a: u64, b: u64) -> u64 {
        match self {
            Self::Sum => a.wrapping_add(b),
            Self::Max => a.max(b),
            Self::Compose => compose(a, b),
        }
    }
}

/// Calls a method with the operator of a way.
macro_rules! with_operator {
    ($way:expr, |$operator:ident| $call:expr) => {
        match $way {
            Way::Sum => {
                let $operator = Sum;
                $call
            }
            Way::Max => {
                let $operator = Max;
                $call
            }
            Way::Compose => {
                let $operator = Ordered(compose);
                $call
            }
        }
    };
}

/// What a member has under way, and what it is to bring.
enum Pending {
    Elements(Collective<Vec<u64>>, Option<Vec<u64>>, String),
    Barrier(Notified, Option<u32>),
}

/// One rank in a case. `shared` draws the same on all ranks.
struct Player<'w, T: Transport> {
    world: &'w World,
    endpoint: Ranks<T>,
    shared: Random,
    own: Random,
    pending: Vec<Pending>,
    step: u64,
}

impl<T: Transport> Player<'_, T> {
    /// The operands of a member in this step.
    fn operands(&self, member: u32, count: usize) -> Vec<u64> {
        let value = |index: usize| mix(&[self.world.seed, self.step, u64::from(member), index as u64]);
        (0..count).map(value).collect()
    }

    fn combined(&self, members: std::ops::Range<u32>, count: usize, way: Way) -> Vec<u64> {
        let all = members.map(|member| self.operands(member, count));
        let fold = |a: Vec<u64>, b: Vec<u64>| a.into_iter().zip(b).map(|(a, b)| way.combine(a, b)).collect();
        all.reduce(fold).unwrap_or_default()
    }

    /// A count: mostly small, at times beyond any buffer.
    fn count(&mut self) -> usize {
        let most = [3, 40, 40, 3000][self.shared.below(4) as usize];
        self.shared.length(most)
    }

    fn checked(&self, what: &str, found: &[u64], expected: &[u64]) -> Verdict {
        ensure(found == expected, || {
            let at = found.iter().zip(expected).position(|(a, b)| a != b);
            let lens = (found.len(), expected.len());
            format!("step {}, {what}: element {at:?} differs, lengths {lens:?}", self.step)
        })
    }

    /// One operation of a team; `team` is none on ranks outside of it, which draw all the same.
    fn play(&mut self, team: Option<&Team>, size: u32) -> Verdict {
        self.step += 1;
        let (kind, count) = (self.shared.below(14), self.count());
        let root = self.shared.below(u64::from(size)) as u32;
        let way = [Way::Sum, Way::Max, Way::Compose][self.shared.below(3) as usize];
        let blocking = self.shared.below(2) == 0;
        let counts: Vec<usize> = (0..size).map(|_| self.shared.length(count.min(200))).collect();
        let name = Some(self.shared.below(9) as u32).filter(|name| *name > 4);
        let Some(team) = team else { return Ok(()) };
        let (me, many) = (team.me(), size as usize);
        let mine = self.operands(me, count);
        let what = format!("kind {kind} of {count}, root {root}, {size} members");
        let endpoint = &mut self.endpoint;
        let started = match kind {
            0 if blocking => return Ok(team.barrier(endpoint)?),
            0 => {
                // An anonymous one meets any name.
                let name = name.filter(|_| me % 2 == 0);
                let notified = team.notify(endpoint, name)?;
                self.pending.push(Pending::Barrier(notified, name));
                return Ok(());
            }
            1 => {
                let handle = if blocking {
                    let mut elements = mine;
                    team.broadcast(endpoint, root, &mut elements)?;
                    Err(elements)
                } else {
                    Ok(team.broadcast_nb(endpoint, root, mine)?)
                };
                (handle, Some(self.operands(root, count)))
            }
            2 => {
                let handle = if blocking {
                    let mut elements = mine.clone();
                    with_operator!(way, |operator| team.reduce(endpoint, root, &mut elements, operator)?);
                    Err(elements)
                } else {
                    Ok(with_operator!(way, |operator| team.reduce_nb(endpoint, root, mine.clone(), operator)?))
                };
                let expected = if me == root { Some(self.combined(0..size, count, way)) } else { None };
                (handle, expected.or_else(|| blocking.then_some(mine)))
            }
            3 | 4 => {
                let handle = if blocking {
                    let mut elements = mine;
                    with_operator!(way, |operator| team.allreduce(endpoint, &mut elements, operator)?);
                    Err(elements)
                } else {
                    Ok(with_operator!(way, |operator| team.allreduce_nb(endpoint, mine, operator)?))
                };
                (handle, Some(self.combined(0..size, count, way)))
            }
            5 => {
                let total = counts.iter().sum();
                let mine = self.operands(me, total);
                let endpoint = &mut self.endpoint;
                let handle = if blocking {
                    let mut part = vec![0; counts[me as usize]];
                    with_operator!(way, |operator| {
                        team.reduce_scatterv(endpoint, &mine, &counts, &mut part, operator)?;
                    });
                    Err(part)
                } else {
                    Ok(with_operator!(way, |operator| team
                        .reduce_scatter_nb(endpoint, mine, &counts, operator)?))
                };
                let at: usize = counts[..me as usize].iter().sum();
                let all = self.combined(0..size, total, way);
                (handle, Some(all[at..at + counts[me as usize]].to_vec()))
            }
            6 => {
                let handle = if blocking {
                    let mut elements = mine;
                    with_operator!(way, |operator| team.scan(endpoint, &mut elements, operator)?);
                    Err(elements)
                } else {
                    Ok(with_operator!(way, |operator| team.scan_nb(endpoint, mine, operator)?))
                };
                (handle, Some(self.combined(0..me + 1, count, way)))
            }
            7 => {
                let handle = if blocking {
                    let mut elements = mine;
                    with_operator!(way, |operator| team.exscan(endpoint, &mut elements, operator)?);
                    Err(elements)
                } else {
                    Ok(with_operator!(way, |operator| team.exscan_nb(endpoint, mine, operator)?))
                };
                (handle, Some(self.combined(0..me.max(1), count, way)))
            }
            8 => {
                let count = count.min(300);
                let all = self.operands(root, count * many);
                let given = if me == root { all.clone() } else { Vec::new() };
                let endpoint = &mut self.endpoint;
                let handle = if blocking {
                    let mut part = vec![0; count];
                    team.scatter(endpoint, root, &given, &mut part)?;
                    Err(part)
                } else {
                    Ok(team.scatter_nb(endpoint, root, given, count)?)
                };
                (handle, Some(all[me as usize * count..][..count].to_vec()))
            }
            9 => {
                let all = self.operands(root, counts.iter().sum());
                let (given, known) = if me == root { (all.clone(), &counts[..]) } else { (Vec::new(), &[][..]) };
                let (at, count) = (counts[..me as usize].iter().sum::<usize>(), counts[me as usize]);
                let endpoint = &mut self.endpoint;
                let handle = if blocking {
                    let mut part = vec![0; count];
                    team.scatterv(endpoint, root, &given, known, &mut part)?;
                    Err(part)
                } else {
                    Ok(team.scatterv_nb(endpoint, root, given, known, count)?)
                };
                (handle, Some(all[at..at + count].to_vec()))
            }
            10 => {
                let count = count.min(300);
                let part = mine[..count].to_vec();
                let handle = if blocking {
                    let mut all = vec![0; if me == root { count * many } else { 0 }];
                    team.gather(endpoint, root, &part, &mut all)?;
                    Err(all)
                } else {
                    Ok(team.gather_nb(endpoint, root, part)?)
                };
                let all = (0..size).flat_map(|member| self.operands(member, count)).collect();
                (handle, Some(if me == root { all } else { Vec::new() }))
            }
            11 => {
                let part = self.operands(me, counts[me as usize]);
                let known = if me == root { &counts[..] } else { &[] };
                let endpoint = &mut self.endpoint;
                let handle = if blocking {
                    let mut all = vec![0; known.iter().sum()];
                    team.gatherv(endpoint, root, &part, known, &mut all)?;
                    Err(all)
                } else {
                    Ok(team.gatherv_nb(endpoint, root, part, known)?)
                };
                let all = (0..size).flat_map(|member| self.operands(member, counts[member as usize])).collect();
                (handle, Some(if me == root { all } else { Vec::new() }))
            }
            12 => {
                let equal = root.is_multiple_of(2);
                let counts = if equal { vec![count.min(300); many] } else { counts };
                let part = self.operands(me, counts[me as usize]);
                let endpoint = &mut self.endpoint;
                let mut all = vec![0; counts.iter().sum()];
                let handle = match (blocking, equal) {
                    (true, true) => {
                        team.allgather(endpoint, &part, &mut all)?;
                        Err(all)
                    }
                    (true, false) => {
                        team.allgatherv(endpoint, &part, &counts, &mut all)?;
                        Err(all)
                    }
                    (false, true) => Ok(team.allgather_nb(endpoint, &part)?),
                    (false, false) => Ok(team.allgatherv_nb(endpoint, &part, &counts)?),
                };
                let all = (0..size).flat_map(|member| self.operands(member, counts[member as usize])).collect();
                (handle, Some(all))
            }
            _ => {
                let equal = root.is_multiple_of(2);
                let given = |from: u32, to: u32| {
                    if equal { count.min(100) } else { counts[(from + to * 3) as usize % many] }
                };
                let gives: Vec<usize> = (0..size).map(|to| given(me, to)).collect();
                let gets: Vec<usize> = (0..size).map(|from| given(from, me)).collect();
                let all = self.operands(me, gives.iter().sum());
                let endpoint = &mut self.endpoint;
                let mut got = vec![0; gets.iter().sum()];
                let handle = match (blocking, equal) {
                    (true, true) => {
                        team.alltoall(endpoint, &all, &mut got)?;
                        Err(got)
                    }
                    (true, false) => {
                        team.alltoallv(endpoint, &all, &gives, &gets, &mut got)?;
                        Err(got)
                    }
                    (false, true) => Ok(team.alltoall_nb(endpoint, all)?),
                    (false, false) => Ok(team.alltoallv_nb(endpoint, all, &gives, &gets)?),
                };
                let part = |from: u32| {
                    let at: usize = (0..me).map(|to| given(from, to)).sum();
                    self.operands(from, at + given(from, me)).split_off(at)
                };
                (handle, Some((0..size).flat_map(part).collect()))
            }
        };
        match started {
            (Ok(handle), expected) => self.pending.push(Pending::Elements(handle, expected, what)),
            (Err(found), Some(expected)) => self.checked(&what, &found, &expected)?,
            (Err(_), None) => {}
        }
        Ok(())
    }

    /// Waits for some of what is under way, in any order.
    fn settle(&mut self, left: usize) -> Verdict {
        while self.pending.len() > left {
            let at = self.own.below(self.pending.len() as u64) as usize;
            match self.pending.swap_remove(at) {
                Pending::Barrier(notified, name) => notified.wait(&mut self.endpoint, name)?,
                Pending::Elements(handle, expected, what) => {
                    if self.own.below(4) == 0 {
                        while !handle.test(&mut self.endpoint)? {
                            super::breathe(&mut self.endpoint)?;
                        }
                    }
                    let found = handle.wait(&mut self.endpoint)?;
                    if let Some(expected) = expected {
                        self.checked(&what, &found, &expected)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Random operations on overlapping teams of odd shapes, up to eight under way.
fn play<T: Transport>(world: &World, transport: T, tuning: Tuning, steps: u32) -> Verdict {
    let mut endpoint = attach(world, transport, tuning)?;
    let (size, me) = (endpoint.ranks(), endpoint.rank().0);
    let all = Team::world(&mut endpoint)?;
    let mut shared = world.random(1 << 40);
    let turned = all.split(&mut endpoint, Some(0), -(me as i32))?;
    // The ranks of a team that is not the same everywhere: of the same size, for the draws.
    let halves = all.split(&mut endpoint, (me / 2 * 2 + 1 < size).then_some(me / 2), 0)?;
    let listed: Vec<u32> = (0..size).filter(|_| shared.below(3) > 0).collect();
    let list = if listed.is_empty() { vec![0] } else { listed };
    let some = all.select(&mut endpoint, &list)?;
    let teams = [(Some(all), size), (turned, size), (halves, 2), (some, list.len() as u32)];
    let own = world.random(u64::from(me));
    let mut player = Player { world, endpoint, shared, own, pending: Vec::new(), step: 0 };
    for _ in 0..steps {
        let (team, size) = &teams[player.shared.below(4) as usize];
        player.play(team.as_ref(), *size)?;
        let left = player.shared.below(12) as usize;
        player.settle(left.min(8))?;
    }
    player.settle(0)?;
    let mut endpoint = player.endpoint;
    teams[0].0.as_ref().expect("everyone is in the world").barrier(&mut endpoint)?;
    endpoint.finish()?;
    Ok(())
}

pub(super) fn usual<T: Transport>(world: &World, transport: T) -> Verdict {
    play(world, transport, Tuning::default(), world.count(60, 2000))
}

/// The smallest window, almost nothing sent before it is asked for, and the other algorithms.
pub(super) fn tight<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut tuning = Tuning::default();
    (tuning.eager, tuning.window, tuning.check) = (24, 2, false);
    tuning.broadcast = vec![
        Row::new(usize::MAX, 200, Broadcast::Chain { segment: 64 }),
        Row::new(usize::MAX, 400, Broadcast::Linear),
        Row::new(usize::MAX, 1000, Broadcast::ScatterAllgather),
        Row::any(Broadcast::Tree { radix: 3 }),
    ];
    tuning.reduce = vec![
        Row::new(usize::MAX, 200, Reduce::Linear),
        Row::new(usize::MAX, 400, Reduce::Tree { radix: 4 }),
        Row::any(Reduce::ScatterGather),
    ];
    tuning.allreduce = vec![
        Row::new(usize::MAX, 200, Allreduce::Ring),
        Row::new(usize::MAX, 400, Allreduce::RecursiveDoubling),
        Row::any(Allreduce::Rabenseifner),
    ];
    tuning.reduce_scatter =
        vec![Row::new(usize::MAX, 400, ReduceScatter::ThenScatter), Row::any(ReduceScatter::Pairwise)];
    tuning.scan = vec![Row::any(Scan::Chain)];
    tuning.gather = vec![Row::any(Gather::Tree)];
    tuning.allgather = vec![Row::new(usize::MAX, 200, Allgather::Bruck), Row::any(Allgather::Ring)];
    tuning.alltoall = vec![Row::new(usize::MAX, 200, Alltoall::Bruck), Row::any(Alltoall::Pairwise)];
    play(world, transport, tuning, world.count(25, 1000))
}

/// A root that is far ahead of the others, who stay usable for other teams meanwhile.
pub(super) fn ahead<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport, Tuning::default())?;
    let all = Team::world(&mut endpoint)?;
    let other = all.duplicate(&mut endpoint)?;
    let broadcasts = u64::from(world.count(300, 100_000));
    let mut own: Vec<_> = Vec::new();
    if all.me() == 0 {
        for value in 0..broadcasts {
            own.push(all.broadcast_nb(&mut endpoint, 0, vec![value])?);
        }
    }
    // The others have not begun, and what rank 0 has sent to them keeps nothing else from getting on.
    equal("sum in another team", other.allreduce_one(&mut endpoint, 1u32, Sum)?, all.size())?;
    if all.me() != 0 {
        for value in 0..broadcasts {
            let mut found = [0];
            all.broadcast(&mut endpoint, 0, &mut found)?;
            equal("broadcast value", found, [value])?;
        }
    }
    for handle in own {
        handle.wait(&mut endpoint)?;
    }
    other.barrier(&mut endpoint)?;
    endpoint.finish()?;
    Ok(())
}

/// Barriers whose names differ, lengths that are wrong, roots that do not exist, and teams of other endpoints; the
/// team goes on.
pub(super) fn refusals<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport, Tuning::default())?;
    let all = Team::world(&mut endpoint)?;
    let (me, size) = (all.me(), all.size());
    let notified = all.notify(&mut endpoint, Some(me.min(1)))?;
    let found = notified.wait(&mut endpoint, Some(me.min(1)));
    let mismatch = CollectiveError::BarrierMismatch { mine: Some(me.min(1)), lowest: 0, highest: 1 };
    equal("barriers of two names", found, if size > 1 { Err(mismatch) } else { Ok(()) })?;
    let notified = all.notify(&mut endpoint, Some(7))?;
    let mismatch = CollectiveError::BarrierMismatch { mine: Some(8), lowest: 7, highest: 8 };
    equal("phases of two names", notified.wait(&mut endpoint, Some(8)), Err(mismatch))?;
    let missing = CollectiveError::NoSuchMember { member: size, size };
    equal("a root outside the team", all.broadcast(&mut endpoint, size, &mut [0u8]), Err(missing.clone()))?;
    equal("a list with strangers", all.select(&mut endpoint, &[size]).map(drop), Err(missing))?;
    let what = "the slice for all parts";
    let short = CollectiveError::Length { what, given: 0, needed: size as usize };
    equal("a slice that is too short", all.allgather(&mut endpoint, &[1u8], &mut []), Err(short))?;
    let copy = all.duplicate(&mut endpoint)?;
    copy.clone().destroy(&mut endpoint)?;
    equal("a destroyed team", copy.barrier(&mut endpoint), Err(CollectiveError::Destroyed))?;
    equal("a sum at last", all.allreduce_one(&mut endpoint, 2u64, Sum)?, 2 * u64::from(size))?;
    endpoint.finish()?;
    Ok(())
}

/// Members that call different things: every member gets an error that names two of them, other teams go on, and
/// so do the survivors, which are all.
pub(super) fn mismatches<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut tuning = Tuning::default();
    tuning.check = true;
    let mut endpoint = attach(world, transport, tuning)?;
    let all = Team::world(&mut endpoint)?;
    let other = all.duplicate(&mut endpoint)?;
    // Nobody is in the first team any more when it fails.
    other.barrier(&mut endpoint)?;
    let (me, last) = (all.me(), all.size() - 1);
    let mine = [3usize, 5][usize::from(me == last)];
    let found = all.allreduce(&mut endpoint, &mut vec![1u64; mine], Sum);
    let is = |call: &Call, count| (call.operation, call.element, call.count) == (Operation::Allreduce, 8, count);
    let named = match &found {
        Err(CollectiveError::Mismatch { first, first_call, second, second_call }) => {
            is(first_call, 3) && is(second_call, 5) && second.0 == last && first.0 < last
        }
        _ => false,
    };
    ensure(named, || format!("calls that differ ended with {found:?}"))?;
    equal("the team's next operation", all.barrier(&mut endpoint), found)?;
    equal("another team's sum", other.allreduce_one(&mut endpoint, 1u32, Sum)?, last + 1)?;
    let again = all.shrink(&mut endpoint)?;
    equal("members of the shrunk team", again.ranks(), all.ranks())?;
    equal("its sum", again.allreduce_one(&mut endpoint, 1u32, Sum)?, last + 1)?;
    endpoint.finish()?;
    Ok(())
}

/// Without the check, messages of the wrong size are found all the same.
pub(super) fn sizes<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut tuning = Tuning::default();
    tuning.check = false;
    let mut endpoint = attach(world, transport, tuning)?;
    let all = Team::world(&mut endpoint)?;
    all.duplicate(&mut endpoint)?.barrier(&mut endpoint)?;
    let last = all.size() - 1;
    let count = [3usize, 5][usize::from(all.me() == last)];
    let found = all.broadcast(&mut endpoint, last, &mut vec![1u64; count]);
    match found {
        // The root has sent, and may be over before it hears of it.
        Ok(()) => equal("a rank that heard of nothing", all.me(), last)?,
        Err(CollectiveError::Size { from, sent: 40, expected: 24, .. }) => equal("sender", from.0, last)?,
        // Where members share memory, calls are compared.
        Err(CollectiveError::Mismatch { .. }) => {}
        other => ensure(false, || format!("sizes that differ ended with {other:?}"))?,
    }
    // Nobody gets through a barrier of this team any more.
    let outcome = all.barrier(&mut endpoint);
    let told = match &outcome {
        Err(CollectiveError::Size { sent: 40, expected: 24, .. }) => true,
        Err(CollectiveError::Mismatch { first_call, second_call, second, .. }) => {
            (first_call.count, second_call.count, second.0) == (3, 5, last)
        }
        _ => false,
    };
    ensure(told, || format!("the next barrier ended with {outcome:?}"))?;
    let again = all.shrink(&mut endpoint)?;
    again.barrier(&mut endpoint)?;
    endpoint.finish()?;
    Ok(())
}

//! Item 18, collective operations whose sizes lie on both sides of limits: of messages to each peer, of what is
//! sent before it is asked for, and of the algorithms' choice.

use super::collectives::{Ranks, attach};
use crate::random::pattern;
use crate::world::{Failure, Verdict, World, ensure};
use am_core::{Category, Lane, Rank, Transport};
use am_pgas::Team;
use am_pgas::collectives::{Max, Ordered, Row, Tuning};

/// Elements of the largest operation, all members' together.
const MOST: usize = 1 << 20;
/// Argument words that a message of a collective operation may have.
const WORDS: std::ops::RangeInclusive<usize> = 4..=12;
/// Limits that each member names; of more the first count.
const NAMED: usize = 64;

/// The limits of a table of algorithms, in bytes.
fn of_rows<A>(rows: &[Row<A>]) -> impl Iterator<Item = usize> + '_ {
    rows.iter().map(|row| row.bytes).filter(|bytes| *bytes != usize::MAX)
}

/// Limits of a tuning.
fn of_tuning(tuning: &Tuning) -> Vec<usize> {
    // What a member's line holds, and a block through which large operations pass.
    let mut limits = vec![32, 64 << 10, tuning.eager, tuning.direct_bytes, tuning.lent_bytes];
    limits.extend(of_rows(&tuning.broadcast).chain(of_rows(&tuning.reduce)).chain(of_rows(&tuning.allreduce)));
    limits.extend(of_rows(&tuning.gather).chain(of_rows(&tuning.allgather)).chain(of_rows(&tuning.alltoall)));
    limits.extend(of_rows(&tuning.reduce_scatter).chain(of_rows(&tuning.scan)));
    limits
}

/// The limits of all members, the same on all: those of messages to their peers, and of the tuning.
fn of_all<T: Transport>(endpoint: &mut Ranks<T>, all: &Team, tuning: &Tuning) -> Result<Vec<usize>, Failure> {
    let mut own = Vec::new();
    for to in (0..endpoint.ranks()).map(Rank) {
        let largest = WORDS.filter_map(|words| endpoint.max_payload(to, Category::Medium, Lane::Request, words));
        own.extend(largest);
    }
    own.sort_unstable();
    own.dedup();
    own.resize(NAMED, 0);
    let mut named = vec![0; NAMED * all.size() as usize];
    all.allgather(endpoint, &own, &mut named)?;
    let mut limits: Vec<usize> = named.into_iter().map(|limit| limit as usize).collect();
    limits.extend(of_tuning(tuning));
    limits.sort_unstable();
    limits.dedup();
    limits.retain(|limit| *limit != 0);
    Ok(limits)
}

/// The largest of all members' elements, one by one.
fn largest(given: &[Vec<u8>]) -> Vec<u8> {
    let max = |a: Vec<u8>, b: &Vec<u8>| a.iter().zip(b).map(|(a, b)| *a.max(b)).collect();
    given[1..].iter().fold(given[0].clone(), max)
}

/// One operation of so many bytes of each member.
fn play<T: Transport>(
    (kind, len, salt): (u64, usize, u64),
    team: &Team,
    endpoint: &mut Ranks<T>,
) -> Result<bool, Failure> {
    let (me, size) = (team.me() as usize, team.size() as usize);
    let root = salt as u32 % team.size();
    let is_root = root as usize == me;
    // In the order of members what each gives, which all know.
    let each = |len: usize| (0..size as u64).map(|member| pattern(salt ^ member, len)).collect::<Vec<_>>();
    let given = each(len);
    let mut part = given[me].clone();
    Ok(match kind {
        0 => {
            team.broadcast(endpoint, root, &mut part)?;
            part == given[root as usize]
        }
        1 => {
            team.reduce(endpoint, root, &mut part, Max)?;
            !is_root || part == largest(&given)
        }
        2 => {
            team.allreduce(endpoint, &mut part, Max)?;
            part == largest(&given)
        }
        3 => {
            team.allreduce(endpoint, &mut part, Ordered(|a: u8, b: u8| a.max(b)))?;
            part == largest(&given)
        }
        4 => {
            team.scan(endpoint, &mut part, Max)?;
            part == largest(&given[..=me])
        }
        5 => {
            let whole = each(len * size);
            team.reduce_scatter(endpoint, &whole[me], &mut part, Max)?;
            part == largest(&whole)[me * len..][..len]
        }
        6 => {
            let whole = pattern(salt, len * size);
            team.scatter(endpoint, root, &whole[..if is_root { len * size } else { 0 }], &mut part)?;
            part == whole[me * len..][..len]
        }
        7 => {
            let mut whole = vec![0; if is_root { len * size } else { 0 }];
            team.gather(endpoint, root, &part, &mut whole)?;
            !is_root || whole == given.concat()
        }
        8 => {
            let mut whole = vec![0; len * size];
            team.allgather(endpoint, &part, &mut whole)?;
            whole == given.concat()
        }
        _ => {
            let (all, mut got) = (each(len * size), vec![0; len * size]);
            team.alltoall(endpoint, &all[me], &mut got)?;
            got == all.iter().flat_map(|of| &of[me * len..][..len]).copied().collect::<Vec<_>>()
        }
    })
}

/// Operations whose messages, or whose members' parts, are a byte below, at and above limits. Which ones depends
/// on the seed.
pub(super) fn limits<T: Transport>(world: &World, transport: T) -> Verdict {
    let tuning = Tuning::default();
    let mut endpoint = attach(world, transport, tuning.clone())?;
    let all = Team::world(&mut endpoint)?;
    let limits = of_all(&mut endpoint, &all, &tuning)?;
    let mut same = world.random(1820);
    for round in 0..u64::from(world.count(8, 200)) {
        let limit = limits[same.below(limits.len() as u64) as usize];
        let (kind, parts) = (same.below(10), [1, all.size() as usize][same.below(2) as usize]);
        for len in [limit - 1, limit, limit + 1] {
            // Of all members together, at times.
            let len = (len / parts).min(MOST / (all.size() * all.size()) as usize);
            let right = play((kind, len, world.salt(&[round])), &all, &mut endpoint)?;
            ensure(right, || format!("operation {kind} of {len} bytes of each member, around {limit}"))?;
        }
    }
    all.barrier(&mut endpoint)?;
    endpoint.finish()?;
    Ok(())
}

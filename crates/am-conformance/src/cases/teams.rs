//! Item 19, teams: who is in them and in which order, and what becomes of them when ranks are lost.

use super::collectives::attach;
use crate::case::unwind;
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::{Endpoint, Handlers, LossCause, Rank, Transport};
use am_pgas::collectives::{CollectiveError, Collectives, Sum, Tuning};
use am_pgas::layers::HasLayer;
use am_pgas::{Pgas, Team};

/// Splits, lists, duplicates and hosts, many times over; positions translate both ways.
pub(super) fn shapes<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut handlers = Handlers::<Pgas>::new();
    let pgas = Pgas::register(&mut handlers)?;
    let mut endpoint = world.attach(transport, handlers, pgas)?;
    let all = Team::world(&mut endpoint)?;
    let (me, size) = (endpoint.rank().0, endpoint.ranks());
    equal("the world", (all.me(), all.size(), all.rank(size)), (me, size, None))?;
    equal("the world again", Team::world(&mut endpoint)? == all, true)?;
    let mut random = world.random(7);
    for round in 0..world.count(6, 100) {
        let keys: Vec<i32> = (0..size).map(|_| random.below(3) as i32 - 1).collect();
        let colours: Vec<Option<u32>> =
            (0..size).map(|_| Some(random.below(3) as u32).filter(|colour| *colour > 0)).collect();
        let team = all.split(&mut endpoint, colours[me as usize], keys[me as usize])?;
        let mut expected: Vec<u32> =
            (0..size).filter(|rank| colours[*rank as usize] == colours[me as usize]).collect();
        expected.sort_by_key(|rank| keys[*rank as usize]);
        let expected: Vec<Rank> = expected.into_iter().map(Rank).collect();
        let Some(team) = team else {
            equal("colour of a rank without a team", colours[me as usize], None)?;
            continue;
        };
        equal("ranks of the team", team.ranks(), &expected[..])?;
        equal("own position", team.rank(team.me()), Some(Rank(me)))?;
        for position in 0..size {
            let there = all.translate(position, &team);
            equal("there and back", there.and_then(|there| team.translate(there, &all)), there.map(|_| position))?;
        }
        equal(
            "sum of the team",
            team.allreduce_one(&mut endpoint, me, Sum)?,
            expected.iter().map(|rank| rank.0).sum(),
        )?;
        let copy = team.duplicate(&mut endpoint)?;
        ensure(copy != team && copy.ranks() == team.ranks(), || format!("round {round}: {copy:?}"))?;
        let host = copy.split_by_host(&mut endpoint)?;
        let near = host.ranks().iter().all(|rank| rank.0 == me || endpoint.remote_segment(*rank).is_some());
        equal("whether the ranks of the host share memory", near, true)?;
        host.barrier(&mut endpoint)?;
    }
    let backwards: Vec<u32> = (0..size).rev().collect();
    let team = all.select(&mut endpoint, &backwards)?;
    equal("own position in the list", team.map(|team| team.me()), Some(size - 1 - me))?;
    if size > 1 {
        let list = if me == 0 { &backwards[1..] } else { &backwards[..] };
        let found = all.select(&mut endpoint, list).map(drop);
        let (first_members, second_members) = (size - 1, size);
        let (first, second) = (Rank(0), Rank(1));
        let differ = CollectiveError::ListsDiffer { first, first_members, second, second_members };
        equal("lists that differ", found, Err(differ))?;
        equal("sum after lists that differ", all.allreduce_one(&mut endpoint, 1u32, Sum)?, size)?;
    }
    endpoint.finish()?;
    Ok(())
}

/// The victim goes on when all others have been here, none of whom waits for anything then.
pub(super) fn arrive<T: Transport, S: HasLayer<Collectives>>(
    all: &Team,
    endpoint: &mut Endpoint<T, S>,
    victim: Rank,
) -> Verdict {
    let mut arrived = vec![0u8; if endpoint.rank() == victim { all.size() as usize } else { 0 }];
    let root = all.position(victim).expect("the victim is in the team");
    Ok(all.gather(endpoint, root, &[1], &mut arrived)?)
}

/// Leaves when all others are ready to: who has been through a barrier may be missed by those who are still in it.
pub(super) fn leave<T: Transport, S: HasLayer<Collectives>>(mut endpoint: Endpoint<T, S>, team: &Team) -> Verdict {
    team.barrier(&mut endpoint)?;
    // What the barrier's last messages need to be on their way; their receivers have all that they wait for.
    endpoint.drain().map_err(Failure::Wait)?;
    endpoint.leave();
    Ok(())
}

/// Ranks are lost one after the other, each while the others agree on a team without the one before.
pub(super) fn lost_while_shrinking<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut handlers = Handlers::<Collectives>::new();
    let collectives = Collectives::register(&mut handlers)?;
    let mut endpoint = world.attach(transport, handlers, collectives)?;
    let mut team = Team::world(&mut endpoint)?;
    arrive(&team, &mut endpoint, Rank(0))?;
    let (me, size) = (endpoint.rank().0, endpoint.ranks());
    // A loss ends waits, in which no time passes then, as long as it is not acknowledged.
    for rank in 0..size {
        endpoint.acknowledge_loss(Rank(rank));
    }
    // The coordinators go first: ranks 0, 1 and so on, until two are left.
    if me + 2 < size {
        if me > 0 {
            // Until the one before is gone.
            while endpoint.status(Rank(me - 1)) == Some(am_core::PeerStatus::Active) {
                let _ = super::breathe(&mut endpoint);
            }
        }
        unwind();
    }
    for _ in 0..size {
        team = team.shrink(&mut endpoint)?;
        let sum = team.allreduce_one(&mut endpoint, 1u32, Sum);
        // A rank that was lost late is in the team, which is shrunk again.
        match sum {
            Ok(sum) if sum == size.min(2) => break,
            Ok(sum) => ensure(sum == team.size(), || format!("a sum of {sum} in {team:?}"))?,
            Err(error) => ensure(error.loss().is_some(), || format!("a sum ended with {error}"))?,
        }
    }
    let expected: Vec<Rank> = (size.saturating_sub(2)..size).map(Rank).collect();
    equal("the survivors", team.ranks(), &expected[..])?;
    leave(endpoint, &team)
}

/// Rank 0 leaves instead of coming to a broadcast, which the others wait for, and to an agreement.
pub(super) fn left_inside<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport, Tuning::default())?;
    let all = Team::world(&mut endpoint)?;
    let team = all.duplicate(&mut endpoint)?;
    arrive(&all, &mut endpoint, Rank(0))?;
    if endpoint.rank() == Rank(0) {
        endpoint.leave();
        return Ok(());
    }
    let found = team.broadcast(&mut endpoint, 0, &mut [0u64]).map_err(|error| error.loss());
    equal("the end of a broadcast", found, Err(Some((Rank(0), LossCause::Left))))?;
    let again = team.shrink(&mut endpoint)?;
    equal("the survivors", again.ranks(), &team.ranks()[1..])?;
    equal("sum of the survivors", again.allreduce_one(&mut endpoint, 1u32, Sum)?, team.size() - 1)?;
    leave(endpoint, &again)
}

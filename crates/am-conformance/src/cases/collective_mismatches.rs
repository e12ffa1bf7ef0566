//! Item 18, members that call different things: operations, sizes, roots, types and operators.

use super::collectives::{Ranks, attach};
use crate::world::{Verdict, World, ensure, equal};
use am_core::Transport;
use am_pgas::Team;
use am_pgas::collectives::{CollectiveError, Max, Name, Operation, Ordered, Sum, Tuning};

type Outcome = Result<(), CollectiveError>;

/// What a member calls.
#[derive(Clone, Copy, Debug)]
enum What {
    Barrier,
    Broadcast,
    Reduce,
    Allreduce,
    ReduceScatter,
    Scan,
    Exscan,
    Scatter,
    Gather,
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Split,
    Duplicate,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Sum,
    Max,
    Ordered,
    /// The sum of signed numbers.
    Signed,
}

/// A call: its operation, elements, whether its root is the last member or the first, and how it combines.
type Calling = (What, usize, bool, Way);

const fn plain(what: What, count: usize) -> Calling {
    (what, count, false, Way::Sum)
}

/// What most call, and what one member calls instead.
const PAIRS: [(Calling, Calling); 26] = [
    (plain(What::Broadcast, 3), plain(What::Broadcast, 5)),
    (plain(What::Broadcast, 3000), plain(What::Broadcast, 3001)),
    (plain(What::Broadcast, 3), (What::Broadcast, 3, true, Way::Sum)),
    (plain(What::Broadcast, 3000), (What::Broadcast, 3000, true, Way::Sum)),
    (plain(What::Broadcast, 3), plain(What::Reduce, 3)),
    (plain(What::Reduce, 4), (What::Reduce, 4, false, Way::Max)),
    (plain(What::Reduce, 4), (What::Reduce, 4, true, Way::Sum)),
    (plain(What::Allreduce, 2), (What::Allreduce, 2, false, Way::Ordered)),
    (plain(What::Allreduce, 2), (What::Allreduce, 2, false, Way::Signed)),
    (plain(What::Allreduce, 3000), (What::Allreduce, 3000, false, Way::Max)),
    (plain(What::Allreduce, 1), plain(What::Barrier, 0)),
    (plain(What::ReduceScatter, 2), plain(What::ReduceScatter, 3)),
    (plain(What::ReduceScatter, 1000), plain(What::Alltoall, 1000)),
    (plain(What::Scan, 3), plain(What::Exscan, 3)),
    (plain(What::Scan, 3000), plain(What::Scan, 1)),
    (plain(What::Exscan, 3), (What::Exscan, 3, false, Way::Ordered)),
    (plain(What::Scatter, 4), plain(What::Scatter, 5)),
    (plain(What::Scatter, 4), (What::Scatter, 4, true, Way::Sum)),
    (plain(What::Gather, 4), plain(What::Gather, 1000)),
    (plain(What::Gather, 4), (What::Gather, 4, true, Way::Sum)),
    (plain(What::Allgather, 3), plain(What::Alltoall, 3)),
    (plain(What::Allgather, 3000), plain(What::Allgather, 2999)),
    (plain(What::Allgatherv, 3), plain(What::Allgatherv, 4)),
    (plain(What::Alltoall, 0), plain(What::Alltoall, 7)),
    (plain(What::Alltoallv, 2), plain(What::Allgather, 2)),
    (plain(What::Split, 0), plain(What::Duplicate, 0)),
];

fn call<T: Transport>((what, count, late, way): Calling, team: &Team, endpoint: &mut Ranks<T>) -> Outcome {
    let (size, me) = (team.size() as usize, team.me());
    let root = if late { team.size() - 1 } else { 0 };
    let at_root = if me == root { count * size } else { 0 };
    let (mut part, mut all) = (vec![1u64; count], vec![1u64; count * size]);
    let given = all.clone();
    let counts: Vec<usize> = (0..size).map(|member| count + member).collect();
    let (own, mut whole) = (vec![1u64; counts[me as usize]], vec![1u64; counts.iter().sum()]);
    match (what, way) {
        (What::Barrier, _) => team.barrier(endpoint),
        (What::Broadcast, _) => team.broadcast(endpoint, root, &mut part),
        (What::Reduce, Way::Max) => team.reduce(endpoint, root, &mut part, Max),
        (What::Reduce, _) => team.reduce(endpoint, root, &mut part, Sum),
        (What::Allreduce, Way::Max) => team.allreduce(endpoint, &mut part, Max),
        (What::Allreduce, Way::Ordered) => team.allreduce(endpoint, &mut part, Ordered(Sum)),
        (What::Allreduce, Way::Signed) => team.allreduce(endpoint, &mut vec![1i64; count], Sum),
        (What::Allreduce, _) => team.allreduce(endpoint, &mut part, Sum),
        (What::ReduceScatter, _) => team.reduce_scatter(endpoint, &all, &mut part, Sum),
        (What::Scan, _) => team.scan(endpoint, &mut part, Sum),
        (What::Exscan, Way::Ordered) => team.exscan(endpoint, &mut part, Ordered(Sum)),
        (What::Exscan, _) => team.exscan(endpoint, &mut part, Sum),
        (What::Scatter, _) => team.scatter(endpoint, root, &given[..at_root], &mut part),
        (What::Gather, _) => team.gather(endpoint, root, &part, &mut all[..at_root]),
        (What::Allgather, _) => team.allgather(endpoint, &part, &mut all),
        (What::Allgatherv, _) => team.allgatherv(endpoint, &own, &counts, &mut whole),
        (What::Alltoall, _) => team.alltoall(endpoint, &given, &mut all),
        (What::Alltoallv, _) => {
            let each = vec![count; size];
            team.alltoallv(endpoint, &given, &each, &each, &mut all)
        }
        (What::Split, _) => team.split(endpoint, Some(0), 0).map(drop),
        (What::Duplicate, _) => team.duplicate(endpoint).map(drop),
    }
}

/// Whether a call is what a member called.
fn is(call: &am_pgas::collectives::Call, (what, count, late, way): Calling, size: u32) -> bool {
    let size = size as usize;
    let total = (0..size).map(|member| count + member).sum();
    let (operation, elements, rooted, combines) = match what {
        What::Barrier => return call.operation == Operation::Barrier,
        What::Split => return call.operation == Operation::Split,
        What::Duplicate => return call.operation == Operation::Duplicate,
        What::Broadcast => (Operation::Broadcast, count, true, false),
        What::Reduce => (Operation::Reduce, count, true, true),
        What::Allreduce => (Operation::Allreduce, count, false, true),
        What::ReduceScatter => (Operation::ReduceScatter, count * size, false, true),
        What::Scan => (Operation::Scan, count, false, true),
        What::Exscan => (Operation::Exscan, count, false, true),
        What::Scatter => (Operation::Scatter, count, true, false),
        What::Gather => (Operation::Gather, count, true, false),
        What::Allgather => (Operation::Allgather, count, false, false),
        What::Allgatherv => (Operation::Allgatherv, total, false, false),
        What::Alltoall => (Operation::Alltoall, count, false, false),
        What::Alltoallv => (Operation::Alltoallv, 0, false, false),
    };
    let of = if matches!(way, Way::Signed) { Name::of_type::<i64>() } else { Name::of_type::<u64>() };
    let operator = Name::of(if matches!(way, Way::Max) { "Max" } else { "Sum" });
    let root = if late { size as u32 - 1 } else { 0 };
    (call.operation, call.element, call.of, call.count) == (operation, 8, of, elements as u64)
        && call.root == rooted.then_some(root)
        && call.operator == combines.then_some(operator)
        && call.ordered == (combines && matches!(way, Way::Ordered))
}

/// One member, any, calls something else than the others: every member gets the same error, which names it,
/// another one, and what both called. Other teams go on.
pub(super) fn calls<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut tuning = Tuning::default();
    tuning.check = true;
    let mut endpoint = attach(world, transport, tuning)?;
    let all = Team::world(&mut endpoint)?;
    let mut same = world.random(1810);
    for (usual, other) in PAIRS {
        let team = all.duplicate(&mut endpoint)?;
        // All have made the team before it fails.
        all.barrier(&mut endpoint)?;
        let (me, size) = (team.me(), team.size());
        let odd = same.below(u64::from(size)) as u32;
        let mine = if me == odd { other } else { usual };
        let first = call(mine, &team, &mut endpoint);
        // Who only gives is over before, and hears of it in the next operation.
        let found = first.and_then(|()| team.barrier(&mut endpoint));
        let named = match &found {
            Err(CollectiveError::Mismatch { first, first_call, second, second_call }) => {
                let of = |rank: u32| if rank == odd { other } else { usual };
                first < second
                    && (first.0 == odd || second.0 == odd)
                    && is(first_call, of(first.0), size)
                    && is(second_call, of(second.0), size)
            }
            _ => false,
        };
        ensure(named, || format!("{usual:?}, of member {odd} {other:?}: {found:?}"))?;
        equal("the team's next operation", team.barrier(&mut endpoint), found)?;
        equal("another team's sum", all.allreduce_one(&mut endpoint, 1u32, Sum)?, size)?;
    }
    endpoint.finish()?;
    Ok(())
}

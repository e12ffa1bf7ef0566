//! Item 13, how ranks end: together, one before the others, by a panic, before they attached, or not at all. The
//! others get an error that names the rank, and never hang. The victim is always the last rank.

use super::{last, pause, right};
use crate::case::unwind;
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::{
    Address, AttachError, Endpoint, Handlers, LossCause, Payload, PeerStatus, PollError, Rank, Request, SendError,
    Span, Token, Transport, WaitError,
};

/// Fails unless an error tells that the victim was lost, or that another rank has left, which it did because of
/// the victim: between hosts news arrives in any order.
fn blames(what: &str, error: &PollError, victim: Rank, cause: LossCause) -> Verdict {
    let expected = PollError::PeerLost { rank: victim, cause };
    let follower = |rank: Rank, cause| rank != victim && cause == LossCause::Left;
    let ok = *error == expected || matches!(error, PollError::PeerLost { rank, cause } if follower(*rank, *cause));
    ensure(ok, || format!("{what}: found {error}, expected {expected}"))
}

/// Fails unless a wait ended because the victim was lost; then leaves as survivors do.
fn survive<T: Transport, S>(
    endpoint: Endpoint<T, S>,
    victim: Rank,
    cause: LossCause,
    outcome: Result<(), WaitError>,
) -> Verdict {
    match outcome {
        Err(WaitError::Poll(error)) => blames("end of the wait", &error, victim, cause)?,
        other => return ensure(false, || format!("the wait ended with {other:?}")),
    }
    let lost = endpoint.lost();
    ensure(lost.iter().all(|(rank, found)| (*rank, *found) == (victim, cause)), || {
        format!("lost ranks: {lost:?}")
    })?;
    endpoint.leave();
    Ok(())
}

#[derive(Default)]
struct State {
    replies: u64,
    ready: u32,
}

struct Table {
    ask: Request<()>,
    ready: Request<()>,
    fatal: Request<()>,
}

/// Attaches. The victim returns when everyone else has attached, so that its end does not meet them on the way.
fn attach<T: Transport>(world: &World, transport: T) -> Result<(Endpoint<T, State>, Table), Failure> {
    let mut handlers = Handlers::<State>::new();
    let reply =
        handlers.reply("reply", |state: &mut State, _: Address, (): (), _: Payload<'_>| state.replies += 1)?;
    let ask = handlers.request("ask", move |_: &mut State, token: Token<'_>, (): (), _: Payload<'_>| {
        // A requester that has gone takes no reply; that is none of this handler's business.
        let _ = token.reply(reply, ());
    })?;
    let ready =
        handlers.one_way("ready", |state: &mut State, _: Address, (): (), _: Payload<'_>| state.ready += 1)?;
    let fatal = handlers.one_way("fatal", |_: &mut State, _: Address, (): (), _: Payload<'_>| unwind())?;
    let mut endpoint = world.attach(transport, handlers, State::default())?;
    let victim = last(endpoint.shape());
    if endpoint.rank() == victim {
        endpoint.wait_until(|state| state.ready == victim.0)?;
        endpoint.state_mut().ready = 0;
    } else {
        endpoint.request(victim, ready, ())?;
    }
    Ok((endpoint, Table { ask, ready, fatal }))
}

/// Leaves when all survivors are ready to: whoever left earlier would be missed.
fn leave_with_survivors<T: Transport>(mut endpoint: Endpoint<T, State>, table: &Table, victim: Rank) -> Verdict {
    let survivors: Vec<Address> = endpoint.others().filter(|other| other.rank != victim).collect();
    for other in &survivors {
        endpoint.request(*other, table.ready, ())?;
    }
    endpoint.wait_until(|state| state.ready as usize == survivors.len())?;
    endpoint.leave();
    Ok(())
}

/// All ranks finish at once, each with replies on their way that still get handled.
pub(super) fn together<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, table) = attach(world, transport)?;
    let (ranks, barriers) = (endpoint.ranks(), world.count(200, 10_000));
    for _ in 0..barriers {
        endpoint.barrier()?;
    }
    equal("barriers", endpoint.statistics().barriers, u64::from(barriers))?;
    for to in 0..ranks {
        endpoint.request(Rank(to), table.ask, ())?;
    }
    equal("replies at the end", endpoint.finish()?.replies, u64::from(ranks))
}

/// The victim drops its endpoint while the others are in a barrier.
pub(super) fn drops<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, _) = attach(world, transport)?;
    let victim = last(endpoint.shape());
    if endpoint.rank() == victim {
        return Ok(());
    }
    let outcome = endpoint.barrier();
    survive(endpoint, victim, LossCause::Left, outcome)
}

/// The victim panics while the others are in a barrier.
pub(super) fn panics<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, _) = attach(world, transport)?;
    let victim = last(endpoint.shape());
    if endpoint.rank() == victim {
        unwind();
    }
    let outcome = endpoint.barrier();
    survive(endpoint, victim, LossCause::Panicked, outcome)
}

/// The victim's handler panics and nobody catches it.
pub(super) fn panics_in_handler<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, table) = attach(world, transport)?;
    let victim = last(endpoint.shape());
    match endpoint.rank() {
        rank if rank == victim => endpoint.request(Rank(0), table.ready, ())?,
        Rank(0) => {
            endpoint.wait_until(|state| state.ready == 1)?;
            endpoint.request(victim, table.fatal, ())?;
        }
        _ => {}
    }
    let outcome = endpoint.wait_until(|_| false);
    survive(endpoint, victim, LossCause::Panicked, outcome)
}

/// The victim leaves properly but without the others, who are in a barrier: it can't come any more.
pub(super) fn leaves<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, table) = attach(world, transport)?;
    let victim = last(endpoint.shape());
    if endpoint.rank() == victim {
        endpoint.leave();
        return Ok(());
    }
    // The neighbours of the victim learn it from the victim, the others from them.
    let outcome = endpoint.barrier();
    ensure(matches!(&outcome, Err(WaitError::Poll(PollError::PeerLost { .. }))), || {
        format!("the barrier ended with {outcome:?}")
    })?;
    if right(endpoint.shape(), endpoint.rank()) == victim {
        loop {
            match endpoint.request(victim, table.ask, ()) {
                Ok(()) => {}
                Err(SendError::Finished { to }) => break equal("who has finished", to, victim.into())?,
                Err(other) => return Err(other.into()),
            }
        }
    }
    endpoint.leave();
    Ok(())
}

/// Fails unless attaching failed because the victim was lost.
fn unattached<T: Transport>(world: &World, transport: T, victim: Rank, cause: LossCause) -> Verdict {
    match attach(world, transport).map(drop) {
        Err(Failure::Attach(AttachError::Wait(WaitError::Poll(error)))) => {
            blames("end of attaching", &error, victim, cause)
        }
        other => ensure(false, || format!("attaching ended with {other:?}")),
    }
}

/// The victim goes before it attaches.
pub(super) fn drops_before_attach<T: Transport>(world: &World, transport: T) -> Verdict {
    let (victim, me) = (last(transport.shape()), transport.shape().address(transport.local_peer()).rank);
    if me == victim {
        return Ok(());
    }
    unattached(world, transport, victim, LossCause::Left)
}

/// The victim panics before it attaches.
pub(super) fn panics_before_attach<T: Transport>(world: &World, transport: T) -> Verdict {
    let (victim, me) = (last(transport.shape()), transport.shape().address(transport.local_peer()).rank);
    if me == victim {
        unwind();
    }
    unattached(world, transport, victim, LossCause::Panicked)
}

/// The victim panics while the others wait for room towards it, at the smallest buffers.
pub(super) fn panics_when_blocked_on<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, table) = attach(world, transport)?;
    let victim = last(endpoint.shape());
    if endpoint.rank() == victim {
        pause(&mut endpoint, Span::from_millis(20));
        unwind();
    }
    let error = loop {
        if let Err(error) = endpoint.request(victim, table.ask, ()) {
            break error;
        }
    };
    equal("rank that made sending fail", error.lost_rank(), Some(victim))?;
    let SendError::Wait(outcome) = error else {
        return Err(Failure::Check(format!("sending failed with {error:?}")));
    };
    survive(endpoint, victim, LossCause::Panicked, Err(outcome))
}

/// After a loss that they acknowledge, the survivors work on among themselves.
pub(super) fn survivors_work_on<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, table) = attach(world, transport)?;
    let (ranks, me, victim) = (endpoint.ranks(), endpoint.rank(), last(endpoint.shape()));
    if me == victim {
        unwind();
    }
    let lost = PollError::PeerLost { rank: victim, cause: LossCause::Panicked };
    equal("end of the wait", endpoint.wait_until(|_| false), Err(lost.clone().into()))?;
    // Until it is acknowledged, every wait says so again.
    equal("end of another wait", endpoint.wait_until(|_| false), Err(lost.clone().into()))?;
    endpoint.acknowledge_loss(victim);
    let rounds = world.count(100, 5000);
    for _ in 0..rounds {
        for to in 0..ranks - 1 {
            endpoint.request(Rank(to), table.ask, ())?;
        }
    }
    let due = u64::from(rounds * (ranks - 1));
    endpoint.wait_until(|state| state.replies == due)?;
    equal(
        "sending to the victim",
        endpoint.request(victim, table.ask, ()),
        Err(SendError::Wait(lost.clone().into())),
    )?;
    let trial = endpoint.try_reserve_medium(victim, table.ask, (), 1).map(drop);
    equal("reserving towards the victim", trial, Err(SendError::Wait(lost.clone().into())))?;
    equal("a barrier", endpoint.barrier(), Err(lost.into()))?;
    equal("status", endpoint.status(victim), Some(PeerStatus::Lost(LossCause::Panicked)))?;
    leave_with_survivors(endpoint, &table, victim)
}

/// How long survivors wait for a rank that hangs.
const PATIENCE: Span = Span::from_millis(200);

/// The victim hangs: it neither polls nor ends while the others are in a barrier and send to it. Their patience
/// ends, and the stall reports name the rank.
pub(super) fn hangs<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, table) = attach(world, transport)?;
    let (me, victim) = (endpoint.rank(), last(endpoint.shape()));
    if me == victim {
        let others: Vec<Address> = endpoint.others().collect();
        while others.iter().any(|other| endpoint.status(*other) == Some(PeerStatus::Active)) {
            pause(&mut endpoint, Span::from_millis(1));
        }
        endpoint.leave();
        return Ok(());
    }
    endpoint.set_timeout(Some(PATIENCE));
    match endpoint.barrier() {
        Err(WaitError::TimedOut(report)) => {
            ensure(report.waited >= PATIENCE, || format!("patience ended early: {report}"))?;
            // The successor of the victim waits for it alone; the others may wait for each other.
            ensure(me != right(endpoint.shape(), victim) || report.needs == [victim.into()], || {
                format!("the report does not name the rank that hangs: {report}")
            })?;
        }
        other => return ensure(false, || format!("the barrier ended with {other:?}")),
    }
    let blocked = loop {
        if let Err(error) = endpoint.request(victim, table.ask, ()) {
            break error;
        }
    };
    let SendError::Wait(WaitError::TimedOut(report)) = blocked else {
        return ensure(false, || format!("sending ended with {blocked:?}"));
    };
    ensure(report.blocked_on.is_some_and(|(to, _)| to == victim.into()), || {
        format!("the report does not say who takes nothing: {report}")
    })?;
    equal("whether the report names the rank", report.to_string().contains(&format!("rank {victim}")), true)?;
    endpoint.set_timeout(Some(world.patience));
    leave_with_survivors(endpoint, &table, victim)
}

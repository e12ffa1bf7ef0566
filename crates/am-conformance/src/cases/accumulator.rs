//! Item 11: a lock token on rank 0 guards an accumulator on the last rank.
//!
//! The lock is granted in the order of tickets: rank `r` of `n` draws ticket `i n + r` in iteration `i`. Whoever
//! holds it reads the accumulator, adds `r + 1`, and passes the lock on; so the value read is known in advance.

use crate::world::{Findings, Verdict, World, equal};
use am_core::{Address, Endpoint, Handlers, Payload, PendingReply, Rank, Reply, Token, Transport};

#[derive(Default)]
struct State {
    findings: Findings,
    /// On rank 0: the ticket that holds the lock, and those who wait.
    turn: u64,
    waiting: Vec<(u64, PendingReply)>,
    /// On the last rank.
    accumulator: u64,
    /// Everywhere: what came back.
    granted: u64,
    value: Option<u64>,
    written: u64,
}

/// Waits as `wait_until` does; on rank 0, passes the lock on meanwhile.
fn wait<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    granted: Reply<()>,
    done: impl Fn(&State) -> bool,
) -> Verdict {
    loop {
        endpoint
            .wait_until(|state| done(state) || state.waiting.iter().any(|(ticket, _)| *ticket == state.turn))?;
        let state = endpoint.state_mut();
        let (turn, waiting) = (state.turn, &mut state.waiting);
        let next = waiting.iter().position(|(ticket, _)| *ticket == turn).map(|index| waiting.swap_remove(index));
        if let Some((_, pending)) = next {
            let answered = endpoint.answer(pending, granted, ());
            endpoint.state_mut().findings.ok("grant", answered);
        }
        if done(endpoint.state()) {
            return Ok(());
        }
    }
}

/// Every rank adds to the accumulator under the lock.
pub(super) fn locked_accumulator<T: Transport>(world: &World, transport: T) -> Verdict {
    let (ranks, me) = (u64::from(transport.shape().ranks), transport.shape().address(transport.local_peer()).rank);
    let mut handlers = Handlers::<State>::new();
    let granted = handlers.reply("granted", |state: &mut State, _: Address, (): (), _: Payload<'_>| {
        state.granted += 1;
    })?;
    let value = handlers.reply("value", |state: &mut State, _: Address, value: u64, _: Payload<'_>| {
        state.value = Some(value);
    })?;
    let written = handlers.reply("written", |state: &mut State, _: Address, (): (), _: Payload<'_>| {
        state.written += 1;
    })?;
    let acquire =
        handlers.request("acquire", |state: &mut State, token: Token<'_>, ticket: u64, _: Payload<'_>| {
            state.waiting.push((ticket, token.detach()));
        })?;
    let release = handlers.one_way("release", |state: &mut State, _: Address, ticket: u64, _: Payload<'_>| {
        state.findings.equal("ticket given back", ticket, state.turn);
        state.turn += 1;
    })?;
    let read = handlers.request("read", move |state: &mut State, token: Token<'_>, (): (), _: Payload<'_>| {
        let sent = token.reply(value, state.accumulator);
        state.findings.ok("value", sent);
    })?;
    let write =
        handlers.request("write", move |state: &mut State, token: Token<'_>, value: u64, _: Payload<'_>| {
            state.accumulator = value;
            let sent = token.reply(written, ());
            state.findings.ok("written", sent);
        })?;
    let mut endpoint = world.attach(transport, handlers, State::default())?;
    let (lock, place, rank) = (Rank(0), Rank(ranks as u32 - 1), u64::from(me.0));
    let iterations = u64::from(world.count(20, 1000));
    for iteration in 0..iterations {
        let ticket = iteration * ranks + rank;
        endpoint.request(lock, acquire, ticket)?;
        wait(&mut endpoint, granted, |state| state.granted > iteration)?;
        endpoint.request(place, read, ())?;
        wait(&mut endpoint, granted, |state| state.value.is_some())?;
        let found = endpoint.state_mut().value.take().unwrap_or_default();
        let expected = rank * (rank + 1) / 2 + iteration * (ranks * (ranks + 1) / 2);
        equal("value of the accumulator", found, expected)?;
        endpoint.request(place, write, found + rank + 1)?;
        wait(&mut endpoint, granted, |state| state.written > iteration)?;
        endpoint.request(lock, release, ticket)?;
    }
    if me == lock {
        wait(&mut endpoint, granted, |state| state.turn == iterations * ranks)?;
    }
    let state = endpoint.finish()?;
    if me == place {
        equal("final value", state.accumulator, iterations * ranks * (ranks + 1) / 2)?;
    }
    state.findings.verdict()
}

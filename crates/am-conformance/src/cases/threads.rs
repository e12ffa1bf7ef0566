//! Item 12: one to four threads per rank as senders and pollers, (n, 1), (1, n) and (n, n): on a shared endpoint,
//! and with an endpoint for each thread.

use super::{left, right};
use crate::erased::Sendable;
use crate::random::pattern;
use crate::world::{Findings, Verdict, World, ensure, equal};
use am_core::{
    Address, Endpoint, Handlers, Membership, Payload, Peer, RegisterError, Request, SharedEndpoint, Span, Token,
    WaitError,
};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Senders and pollers (or receiving endpoints) of each rank.
const PAIRINGS: [(u16, u16); 10] =
    [(1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (1, 3), (1, 4), (2, 2), (3, 3), (4, 4)];
/// The most endpoints of a rank that [`PAIRINGS`] need.
pub(super) const ENDPOINTS: u16 = 4;

struct State {
    findings: Findings,
    world: World,
    requests: u64,
    replies: u64,
}

fn table(world: &World) -> Result<(Handlers<State>, Request<u32>, State), RegisterError> {
    let mut handlers = Handlers::new();
    let reply = handlers.reply("reply", |state: &mut State, _: Address, number: u32, payload: Payload<'_>| {
        let salt = state.world.salt(&[u64::from(number)]);
        state.findings.payload("payload of a reply", &payload, salt);
        state.replies += 1;
    })?;
    let ask =
        handlers.request("ask", move |state: &mut State, token: Token<'_>, number: u32, bytes: Payload<'_>| {
            let salt = state.world.salt(&[u64::from(number)]);
            state.findings.payload("payload of a request", &bytes, salt);
            state.requests += 1;
            let sent = match bytes.is_empty() {
                true => token.reply(reply, number),
                false => token.reply_medium(reply, number, &bytes.to_vec()),
            };
            state.findings.ok("reply", sent);
        })?;
    Ok((handlers, ask, State { findings: Findings::default(), world: *world, requests: 0, replies: 0 }))
}

/// Payload of a numbered message: every other one is Short.
fn bytes(world: &World, number: u32) -> Vec<u8> {
    let len = if number.is_multiple_of(2) { 0 } else { number as usize % 60 + 1 };
    pattern(world.salt(&[u64::from(number)]), len)
}

/// One thread's messages on a shared endpoint.
fn send_shared(
    world: &World,
    shared: &SharedEndpoint<Sendable, State>,
    to: Address,
    ask: Request<u32>,
    count: u32,
) -> Verdict {
    for number in 0..count {
        match bytes(world, number) {
            none if none.is_empty() => shared.request(to, ask, number)?,
            some => shared.request_medium(to, ask, number, &some)?,
        }
    }
    Ok(())
}

/// Polls until told that all is done.
fn poll_shared(shared: &SharedEndpoint<Sendable, State>, done: &AtomicBool) -> Verdict {
    while !done.load(Relaxed) {
        // Nothing there, or another thread has the lock.
        if shared.poll()?.unwrap_or(0) == 0 {
            thread::yield_now();
        }
    }
    Ok(())
}

/// The failures of several threads, all of them: one that lost another may fail before that one. A panic goes on
/// here.
fn join_all(threads: Vec<thread::ScopedJoinHandle<'_, Verdict>>) -> Verdict {
    let outcomes = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
    let failures: Vec<String> =
        outcomes.filter_map(|outcome| outcome.err().map(|failure| failure.to_string())).collect();
    ensure(failures.is_empty(), || failures.join("; "))
}

/// A locked endpoint that all threads of a rank use.
pub(super) fn shared_endpoint(world: &World, transport: Sendable) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let to = Address::from(right(shape, me));
    let (handlers, ask, state) = table(world)?;
    let shared = SharedEndpoint::new(world.attach(transport, handlers, state)?);
    let (per_thread, mut due) = (world.count(200, 10_000), 0);
    for (senders, pollers) in PAIRINGS {
        due += u64::from(senders) * u64::from(per_thread);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let pollers: Vec<_> = (0..pollers).map(|_| scope.spawn(|| poll_shared(&shared, &done))).collect();
            let send = || send_shared(world, &shared, to, ask, per_thread);
            let senders = (0..senders).map(|_| scope.spawn(send)).collect();
            let outcome = join_all(senders)
                .and_then(|()| Ok(shared.wait_until(|state| state.replies == due && state.requests == due)?));
            done.store(true, Relaxed);
            outcome.and(join_all(pollers))
        })?;
        shared.drain()?;
        shared.barrier()?;
        let late = shared.wait_until_for(Span::from_micros(50), |state| state.replies > due);
        ensure(matches!(late, Err(WaitError::TimedOut(_))), || format!("more replies than requests: {late:?}"))?;
    }
    let other = shared.clone();
    let state = shared.finish()?;
    equal("an endpoint that has left", other.into_inner().is_err(), true)?;
    equal("requests and replies", (state.requests, state.replies), (due, due))?;
    state.findings.verdict()
}

/// One thread with an endpoint of its own, through all pairings.
fn own_endpoint(world: &World, transport: Sendable) -> Verdict {
    let (shape, Address { rank, endpoint: own }) =
        (transport.shape(), transport.shape().address(transport.local_peer()));
    let (handlers, ask, state) = table(world)?;
    let mut endpoint: Endpoint<Sendable, State> = world.attach(transport, handlers, state)?;
    let (per_pair, mut requests, mut replies) = (world.count(60, 5000), 0, 0);
    for (senders, receivers) in PAIRINGS {
        if own < senders {
            for number in 0..per_pair {
                for to in (0..receivers).map(|to| Address::new(right(shape, rank), to)) {
                    match bytes(world, number) {
                        none if none.is_empty() => endpoint.request(to, ask, number)?,
                        some => endpoint.request_medium(to, ask, number, &some)?,
                    }
                }
            }
            replies += u64::from(per_pair) * u64::from(receivers);
        }
        if own < receivers {
            requests += u64::from(per_pair) * u64::from(senders);
        }
        endpoint.wait_until(|state| state.replies == replies && state.requests == requests)?;
        endpoint.barrier()?;
        equal("address", endpoint.address(), Address::new(rank, own))?;
    }
    let from_left = Address::new(left(shape, rank), own);
    equal("status of an endpoint of the left neighbour", endpoint.status(from_left).is_some(), true)?;
    let state = endpoint.finish()?;
    equal("requests and replies", (state.requests, state.replies), (requests, replies))?;
    state.findings.verdict()
}

/// An endpoint for each thread of a rank.
pub(super) fn endpoint_per_thread(world: &World, transports: Vec<Sendable>) -> Verdict {
    let peers: Vec<Peer> = transports.iter().map(Membership::local_peer).collect();
    equal("order of a rank's endpoints", peers.is_sorted(), true)?;
    thread::scope(|scope| {
        let threads = transports.into_iter().map(|transport| scope.spawn(move || own_endpoint(world, transport)));
        join_all(threads.collect())
    })
}

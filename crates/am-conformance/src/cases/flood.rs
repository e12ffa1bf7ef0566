//! Item 8: floods at the smallest buffers: everyone against everyone, all against one, and a rank that rarely
//! polls.

use super::pause;
use crate::random::pattern;
use crate::world::{Findings, Verdict, World, ensure, equal};
use am_core::{
    Address, Category, Endpoint, Handlers, Lane, Payload, Rank, Request, SendError, Span, Token, Transport,
};

struct State {
    findings: Findings,
    world: World,
    requests: u64,
    replies: u64,
}

/// A handler that answers with as much as it got, in the same category, and one that does not answer.
struct Table {
    ask: Request<u32>,
    note: Request<u32>,
}

fn attach<T: Transport>(world: &World, transport: T) -> Result<(Endpoint<T, State>, Table), crate::Failure> {
    let mut handlers = Handlers::<State>::new();
    let reply = handlers.reply("reply", |state: &mut State, _: Address, index: u32, payload: Payload<'_>| {
        let salt = state.world.salt(&[u64::from(index)]);
        state.findings.payload("payload of a reply", &payload, salt);
        state.replies += 1;
    })?;
    let ask =
        handlers.request("ask", move |state: &mut State, token: Token<'_>, index: u32, bytes: Payload<'_>| {
            let salt = state.world.salt(&[u64::from(index)]);
            state.findings.payload("payload of a request", &bytes, salt);
            state.requests += 1;
            let sent = if bytes.is_empty() {
                token.reply(reply, index)
            } else {
                let len = bytes.len().min(token.max_reply());
                token.reply_medium(reply, index, &pattern(salt, len))
            };
            state.findings.ok("reply", sent);
        })?;
    let note = handlers.one_way("note", |state: &mut State, _: Address, index: u32, bytes: Payload<'_>| {
        let salt = state.world.salt(&[u64::from(index)]);
        state.findings.payload("payload of a one-way request", &bytes, salt);
        state.requests += 1;
    })?;
    let state = State { findings: Findings::default(), world: *world, requests: 0, replies: 0 };
    Ok((world.attach(transport, handlers, state)?, Table { ask, note }))
}

/// Everyone but this rank, or this rank if it is alone.
fn targets<T: Transport>(endpoint: &Endpoint<T, State>) -> Vec<Rank> {
    let others: Vec<Rank> = endpoint.others().map(|address| address.rank).collect();
    if others.is_empty() { vec![endpoint.rank()] } else { others }
}

/// Sends number `index` of a flood: Short, or Medium of the largest size.
fn send<T: Transport>(endpoint: &mut Endpoint<T, State>, to: Rank, ask: Request<u32>, index: u32) -> Verdict {
    if index.is_multiple_of(2) {
        endpoint.request(to, ask, index)?;
    } else {
        let len = endpoint.max_payload(to, Category::Medium, Lane::Request, 1).unwrap_or(0) as usize;
        let bytes = pattern(endpoint.state().world.salt(&[u64::from(index)]), len);
        endpoint.request_medium(to, ask, index, &bytes)?;
    }
    Ok(())
}

/// Every rank floods every other with requests that reply.
pub(super) fn mutual<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, Table { ask, .. }) = attach(world, transport)?;
    let targets = targets(&endpoint);
    let per_pair = world.count(150, 5000);
    for index in 0..per_pair {
        for to in &targets {
            send(&mut endpoint, *to, ask, index)?;
        }
    }
    let due = u64::from(per_pair) * targets.len() as u64;
    endpoint.wait_until(|state| state.replies == due)?;
    let state = endpoint.finish()?;
    equal("requests", state.requests, due)?;
    state.findings.verdict()
}

/// All ranks flood rank 0, which floods nobody.
pub(super) fn incast<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, Table { ask, .. }) = attach(world, transport)?;
    let per_rank = world.count(300, 20_000);
    let sends = endpoint.rank() != Rank(0) || endpoint.ranks() == 1;
    if sends {
        for index in 0..per_rank {
            send(&mut endpoint, Rank(0), ask, index)?;
        }
        endpoint.wait_until(|state| state.replies == u64::from(per_rank))?;
    }
    let (rank, ranks) = (endpoint.rank(), endpoint.ranks());
    let state = endpoint.finish()?;
    let senders = if ranks == 1 { 1 } else { ranks - 1 };
    let due = if rank == Rank(0) { u64::from(senders * per_rank) } else { 0 };
    equal("requests", state.requests, due)?;
    state.findings.verdict()
}

/// The last rank polls rarely and one message at a time, while all others send to it as fast as they may. It ends,
/// and what waits for the slow rank is bounded by the buffers, not by the number of messages.
pub(super) fn rarely_polling<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, Table { ask, .. }) = attach(world, transport)?;
    let slow = Rank(endpoint.ranks() - 1);
    let per_rank = world.count(400, 5000);
    let due = u64::from(per_rank) * u64::from(endpoint.ranks() - 1);
    if endpoint.rank() == slow {
        let mut polls = 0u32;
        while endpoint.state().requests < due {
            if polls.is_multiple_of(64) {
                pause(&mut endpoint, Span::from_millis(2));
            }
            polls += 1;
            endpoint.poll_budget(1)?;
        }
    } else {
        let mut most_under_way = 0;
        for index in 0..per_rank {
            send(&mut endpoint, slow, ask, index)?;
            most_under_way = most_under_way.max(u64::from(index) + 1 - endpoint.state().replies);
        }
        endpoint.wait_until(|state| state.replies == u64::from(per_rank))?;
        ensure(most_under_way <= u64::from(per_rank) / 2, || {
            format!("{most_under_way} of {per_rank} requests were under way at once at the smallest buffers")
        })?;
    }
    let rank = endpoint.rank();
    let state = endpoint.finish()?;
    equal("requests", state.requests, if rank == slow { due } else { 0 })?;
    state.findings.verdict()
}

/// More than any buffers hold.
const PLENTY: u32 = 1_000_000;

/// A rank that sends to itself without polling is refused at some point, for want of room for requests or for
/// replies, and can go on after polling.
pub(super) fn refused_when_full<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, Table { ask, note }) = attach(world, transport)?;
    let me = endpoint.rank();
    let (mut round, mut none) = (0, 0);
    while round < world.count(8, 40) {
        let before = endpoint.state().requests;
        let handler = if round % 4 < 2 { ask } else { note };
        let mut accepted = 0;
        let refusal = loop {
            let outcome = if round % 2 == 0 {
                endpoint.try_request(me, handler, accepted)
            } else {
                let bytes = pattern(world.salt(&[u64::from(accepted)]), 16);
                endpoint.try_request_medium(me, handler, accepted, &bytes)
            };
            match outcome {
                Ok(()) if accepted < PLENTY => accepted += 1,
                other => break other,
            }
        };
        let Err(SendError::WouldBlock { to, resource }) = refusal else {
            return ensure(false, || {
                format!("request {accepted} without a poll: {refusal:?} instead of a refusal")
            });
        };
        equal("destination of a refusal", to, me.into())?;
        let report = endpoint.stall_report();
        ensure(endpoint.statistics().stalls(resource) > 0, || format!("stalls for {resource} are not counted"))?;
        if accepted == 0 {
            // What all peers share may be short for as long as their last messages are under way.
            none += 1;
            ensure(none < 500, || format!("not even one request fits for want of {resource}"))?;
            endpoint.poll()?;
            pause(&mut endpoint, Span::from_micros(200));
            continue;
        }
        none = 0;
        ensure(report.short_of.iter().any(|(to, _)| to.rank == me), || {
            format!("the stall report does not show the shortage: {report}")
        })?;
        let due = endpoint.state().replies + if round % 4 < 2 { u64::from(accepted) } else { 0 };
        endpoint.wait_until(|state| state.replies == due && state.requests == before + u64::from(accepted))?;
        round += 1;
    }
    endpoint.finish()?.findings.verdict()
}

/// A rank that asks and asks but reads no reply is refused at some point, however diligent the other is.
pub(super) fn unread_replies<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, Table { ask, .. }) = attach(world, transport)?;
    let asks = endpoint.rank().0 % 2 == 0 && endpoint.rank().0 + 1 < endpoint.ranks();
    if asks {
        let to = Rank(endpoint.rank().0 + 1);
        let (mut accepted, mut refusals) = (0, 0);
        // A refusal may pass when the other polls; one that lasts is for want of room for replies.
        while refusals < 20 {
            match endpoint.try_request(to, ask, accepted) {
                Ok(()) => (accepted, refusals) = (accepted + 1, 0),
                Err(SendError::WouldBlock { .. }) => {
                    refusals += 1;
                    pause(&mut endpoint, Span::from_micros(200));
                }
                Err(other) => return Err(other.into()),
            }
            ensure(accepted < PLENTY, || format!("{accepted} replies wait unread and no end"))?;
        }
        endpoint.wait_until(|state| state.replies == u64::from(accepted))?;
    }
    endpoint.finish()?.findings.verdict()
}

//! Item 6: a handler learns the truth about its message: who sent it, request or reply, category, which handler;
//! and tokens that leave their handler answer later.

use super::{breathe, left, right};
use crate::random::pattern;
use crate::world::{Findings, Verdict, World, equal};
use am_core::{Address, Category, Handlers, Payload, PendingReply, Reply, Request, SendError, Token, Transport};

struct Facts {
    findings: Findings,
    source: Address,
    replies: u64,
}

/// A full table of 256 request and 256 reply handlers: whichever is named runs, with the right source, category
/// and lane.
pub(super) fn facts<T: Transport>(world: &World, transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let (to, source) = (right(shape, me), Address::from(left(shape, me)));
    let mut handlers = Handlers::<Facts>::new();
    let mut requests: Vec<Request<u32>> = Vec::new();
    for pair in 0..256 {
        let reply: Reply<u32> = handlers.reply(
            &format!("reply {pair}"),
            move |state: &mut Facts, from: Address, index: u32, _: Payload<'_>| {
                state.findings.equal("reply handler", index, pair);
                state.findings.equal("source of a reply", from, state.source);
                state.replies += 1;
            },
        )?;
        let request = handlers.request(
            &format!("request {pair}"),
            move |state: &mut Facts, token: Token<'_>, index: u32, payload: Payload<'_>| {
                state.findings.equal("request handler", index, pair);
                state.findings.equal("source of a request", token.source(), source);
                let sent = match payload.category() {
                    Category::Long => token.reply_long(reply, pair, &[1, 2, 3], payload.offset().unwrap_or(0)),
                    // Every other one brings no bytes, and is not a Short message for that.
                    Category::Medium => token.reply_medium(reply, pair, &[1, 2, 3]),
                    Category::Short => token.reply(reply, pair),
                };
                state.findings.ok("reply", sent);
            },
        )?;
        requests.push(request);
    }
    let state = Facts { findings: Findings::default(), source: to.into(), replies: 0 };
    let mut endpoint = world.attach(transport, handlers, state)?;
    for (index, request) in requests.iter().enumerate() {
        equal("index of a handler", usize::from(request.index()), index)?;
        endpoint.request(to, *request, index as u32)?;
        endpoint.request_medium(to, *request, index as u32, &[7; 2][..2 * (index % 2)])?;
        endpoint.request_long(to, *request, index as u32, &[7, 7], 16)?;
    }
    endpoint.wait_until(|state| state.replies == 3 * 256)?;
    endpoint.barrier()?;
    let counted = endpoint.statistics();
    for (category, bytes) in Category::ALL.into_iter().zip([0, 1, 2]) {
        let (received, replies) = (counted.requests_received(category), counted.replies_received(category));
        equal("requests of a category", (received.messages, received.bytes), (256, 256 * bytes))?;
        let bytes_back = if category == Category::Short { 0 } else { 3 * 256 };
        equal("replies of a category", (replies.messages, replies.bytes), (256, bytes_back))?;
    }
    endpoint.finish()?.findings.verdict()
}

struct Kept {
    findings: Findings,
    world: World,
    pending: Vec<(PendingReply, u32)>,
    answers: Vec<u32>,
}

/// Detached tokens: answered in another order, in every category, by another call; a third dropped unanswered,
/// whose credits return: many more are detached than fit the buffers.
pub(super) fn detached<T: Transport>(world: &World, transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let (to, bound) = (right(shape, me), transport.limits(transport.local_peer()).default_reply.min(1000));
    let mut handlers = Handlers::<Kept>::new();
    let answer = handlers.reply("answer", |state: &mut Kept, _: Address, index: u32, payload: Payload<'_>| {
        let salt = state.world.salt(&[u64::from(index)]);
        state.findings.payload("answer", &payload, salt);
        state.answers.push(index);
    })?;
    let ask = handlers.request("ask", |state: &mut Kept, token: Token<'_>, index: u32, _: Payload<'_>| {
        state.pending.push((token.detach(), index));
    })?;
    let state = Kept { findings: Findings::default(), world: *world, pending: Vec::new(), answers: Vec::new() };
    let mut endpoint = world.attach(transport, handlers, state)?;
    let source = Address::from(left(shape, me));
    let mut random = world.random(u64::from(me.0));
    let mut serve = |endpoint: &mut _| reply_to_all(endpoint, answer, bound, source, &mut random);
    let questions = world.count(1200, 12_000);
    for index in 0..questions {
        loop {
            match endpoint.try_request(to, ask, index) {
                Ok(()) => break,
                Err(SendError::WouldBlock { .. }) => serve(&mut endpoint)?,
                Err(other) => return Err(other.into()),
            }
        }
        if index % 5 == 0 {
            serve(&mut endpoint)?;
        }
    }
    let answered: Vec<u32> = (0..questions).filter(|index| index % 3 != 0).collect();
    while endpoint.statistics().detached < u64::from(questions)
        || !endpoint.state().pending.is_empty()
        || endpoint.state().answers.len() < answered.len()
    {
        serve(&mut endpoint)?;
    }
    endpoint.barrier()?;
    let state = endpoint.finish()?;
    let mut answers = state.answers;
    answers.sort_unstable();
    equal("answered questions", answers, answered)?;
    state.findings.verdict()
}

/// Answers what has been kept so far, in random order, except for every third, which it drops; then serves a
/// little.
fn reply_to_all<T: Transport>(
    endpoint: &mut am_core::Endpoint<T, Kept>,
    answer: Reply<u32>,
    bound: usize,
    source: Address,
    random: &mut crate::random::Random,
) -> Verdict {
    let mut pending = std::mem::take(&mut endpoint.state_mut().pending);
    random.shuffle(&mut pending);
    for (reply, index) in pending {
        equal("source of a pending reply", reply.source(), source)?;
        let salt = endpoint.state().world.salt(&[u64::from(index)]);
        let outcome = match index % 9 {
            0 | 3 | 6 => {
                drop(reply);
                Ok(())
            }
            1 | 4 => endpoint.answer(reply, answer, index),
            2 | 5 => endpoint.answer_medium(reply, answer, index, &pattern(salt, bound)),
            // Each at its own place, so that answers under way together don't overwrite each other.
            _ => endpoint.answer_long(reply, answer, index, &pattern(salt, 24), u64::from(index % 32) * 24),
        };
        endpoint.state_mut().findings.ok("answer", outcome);
    }
    breathe(endpoint)
}

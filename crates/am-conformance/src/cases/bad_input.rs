//! Item 10, wrong calls: each a typed error that carries the numbers; nothing is sent, nothing is lost, and the
//! endpoint works on.

use super::{left, right};
use crate::world::{Failure, Findings, Verdict, World, ensure, equal};
use am_core::loopback;
use am_core::transport::DEFAULT_REPLY;
use am_core::{
    Address, AttachError, Category, Endpoint, Handlers, Lane, Limits, Payload, PendingReply, Rank, Rejected,
    Reply, ReplyError, Request, SegmentError, SendError, Token, Transport, Words,
};

#[derive(Default)]
struct State {
    findings: Findings,
    arrived: u64,
    replies: u64,
    segment_of_source: u64,
    kept: Vec<PendingReply>,
}

/// The error of a call that must fail before anything is sent.
fn refusal<V>(what: &str, outcome: Result<V, SendError>, expected: &SendError) -> Verdict {
    match outcome {
        Ok(_) => Err(Failure::Check(format!("{what} was accepted instead of: {expected}"))),
        Err(error) => equal(what, &error, expected),
    }
}

/// Every form of sending with the same wrong destination or handler.
fn refused_by_all_forms<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    to: Address,
    handler: Request<u32>,
    expected: &SendError,
) -> Verdict {
    refusal("request", endpoint.request(to, handler, 1), expected)?;
    refusal("try_request", endpoint.try_request(to, handler, 1), expected)?;
    refusal("request_medium", endpoint.request_medium(to, handler, 1, &[1]), expected)?;
    refusal("try_request_medium", endpoint.try_request_medium(to, handler, 1, &[1]), expected)?;
    refusal("request_long", endpoint.request_long(to, handler, 1, &[1], 0), expected)?;
    refusal("try_request_long", endpoint.try_request_long(to, handler, 1, &[1], 0), expected)?;
    refusal("reserve_medium", endpoint.reserve_medium(to, handler, 1, 1).map(drop), expected)?;
    refusal("try_reserve_medium", endpoint.try_reserve_medium(to, handler, 1, 1).map(drop), expected)
}

/// Payloads that are too large, and Long ranges outside the destination's segment.
fn wrong_sizes<T: Transport>(endpoint: &mut Endpoint<T, State>, to: Address, handler: Request<u32>) -> Verdict {
    let limit = endpoint.max_payload(to, Category::Medium, Lane::Request, 1).unwrap_or(0);
    let bytes = vec![0; limit as usize + 1];
    let expected = SendError::PayloadTooLarge { len: bytes.len(), limit, category: Category::Medium, to };
    refusal("request_medium", endpoint.request_medium(to, handler, 1, &bytes), &expected)?;
    refusal("try_request_medium", endpoint.try_request_medium(to, handler, 1, &bytes), &expected)?;
    refusal("reserve_medium", endpoint.reserve_medium(to, handler, 1, bytes.len()).map(drop), &expected)?;
    refusal("try_reserve_medium", endpoint.try_reserve_medium(to, handler, 1, bytes.len()).map(drop), &expected)?;
    let segment = endpoint.segment_len(to.rank).unwrap_or(0);
    for (len, offset) in [(8, segment - 7), (1, segment), (1, u64::MAX), (0, segment + 1), (2, u64::MAX - 1)] {
        let expected = SendError::OutsideSegment { len, offset, segment, to };
        let bytes = vec![0xff; len];
        refusal("request_long", endpoint.request_long(to, handler, 1, &bytes, offset), &expected)?;
        refusal("try_request_long", endpoint.try_request_long(to, handler, 1, &bytes, offset), &expected)?;
    }
    Ok(())
}

/// Notes unless a reply was refused as expected; gives the permission back.
fn rejection<K>(findings: &mut Findings, outcome: Result<(), Rejected<K>>, expected: ReplyError) -> Option<K> {
    match outcome {
        Ok(()) => {
            findings.add(format!("a reply was accepted instead of: {expected}"));
            None
        }
        Err(Rejected { error, token, .. }) => {
            findings.equal("error of a reply", error, expected);
            Some(token)
        }
    }
}

/// The wrong replies, one after the other with the same token.
fn wrong_replies<'a>(
    state: &mut State,
    token: Token<'a>,
    reply: Reply<u32>,
    foreign: Reply<u32>,
) -> Option<Token<'a>> {
    let (to, segment, bound) = (token.source(), state.segment_of_source, token.max_reply());
    let findings = &mut state.findings;
    let expected = ReplyError::ForeignHandler { handler: foreign.index() };
    let token = rejection(findings, token.reply(foreign, 1), expected)?;
    let expected = ReplyError::PayloadTooLarge { len: bound + 1, bound };
    let token = rejection(findings, token.reply_medium(reply, 1, &vec![0; bound + 1]), expected.clone())?;
    let filled = token.reply_medium_with(reply, 1, bound + 1, |_| panic!("a refused reply must not be filled"));
    let token = rejection(findings, filled, expected)?;
    let source = SegmentError::OutOfRange { offset: segment - 1, len: 2, segment };
    let expected = ReplyError::OutsideSegment { to, source };
    let token = rejection(findings, token.reply_long(reply, 1, &[9; 2], segment - 1), expected)?;
    let source = SegmentError::OutOfRange { offset: u64::MAX, len: 1, segment };
    rejection(findings, token.reply_long(reply, 1, &[9], u64::MAX), ReplyError::OutsideSegment { to, source })
}

#[derive(Default)]
struct Stray {
    kept: Option<PendingReply>,
}

/// A pending reply of a job that has nothing to do with the one under test, and a reply handler of that job.
fn stray() -> Result<(PendingReply, Reply<u32>), Failure> {
    let mut handlers = Handlers::<Stray>::new();
    let reply = handlers.reply("reply", |_: &mut Stray, _: Address, _: u32, _: Payload<'_>| {})?;
    let keep = handlers.request("keep", |stray: &mut Stray, token: Token<'_>, (): (), _: Payload<'_>| {
        stray.kept = Some(token.detach());
    })?;
    let mut endpoint = Endpoint::attach(loopback::single(), handlers, Stray::default())?;
    endpoint.request(Rank(0), keep, ())?;
    endpoint.poll()?;
    let kept = endpoint.state_mut().kept.take();
    Ok((kept.ok_or_else(|| Failure::Check("the loopback endpoint did not keep its token".into()))?, reply))
}

/// Wrong requests, replies and answers; between and after them, right ones.
pub(super) fn wrong_calls<T: Transport>(world: &World, transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let to = Address::from(right(shape, me));
    let mut others = Handlers::<State>::new();
    let foreign_reply = others.reply("foreign reply", |_: &mut State, _: Address, _: u32, _: Payload<'_>| {})?;
    let foreign = others.one_way("foreign", |_: &mut State, _: Address, _: u32, _: Payload<'_>| {})?;
    let mut handlers = Handlers::<State>::new();
    let note =
        handlers.one_way("note", |state: &mut State, _: Address, _: u32, _: Payload<'_>| state.arrived += 1)?;
    let reply = handlers.reply("reply", |state: &mut State, _: Address, value: u32, _: Payload<'_>| {
        state.findings.equal("value of a reply", value, 7);
        state.replies += 1;
    })?;
    let ask = handlers.request("ask", move |state: &mut State, token: Token<'_>, _: u32, _: Payload<'_>| {
        if let Some(token) = wrong_replies(state, token, reply, foreign_reply) {
            let sent = token.reply(reply, 7);
            state.findings.ok("the right reply after wrong ones", sent);
        }
    })?;
    let keep = handlers.request("keep", |state: &mut State, token: Token<'_>, _: u32, _: Payload<'_>| {
        state.kept.push(token.detach());
    })?;
    let mut endpoint = world.attach(transport, handlers, State::default())?;
    endpoint.state_mut().segment_of_source = endpoint.segment_len(left(shape, me)).unwrap_or(0);
    endpoint.segment().write(0, &vec![0x5a; endpoint.segment().len()])?;
    endpoint.barrier()?;
    let (ranks, endpoints) = (shape.ranks, shape.endpoints);
    for outside in [Address::from(Rank(ranks)), Rank(u32::MAX).into(), Address::new(Rank(0), endpoints)] {
        let expected = SendError::NoSuchEndpoint { to: outside, ranks, endpoints };
        refused_by_all_forms(&mut endpoint, outside, note, &expected)?;
        equal("limits outside the job", endpoint.limits(outside), None)?;
        equal("status outside the job", endpoint.status(outside), None)?;
    }
    endpoint.request(to, note, 1)?;
    let expected = SendError::ForeignHandler { handler: foreign.index() };
    refused_by_all_forms(&mut endpoint, to, foreign, &expected)?;
    endpoint.request_medium(to, note, 1, &[1, 2])?;
    wrong_sizes(&mut endpoint, to, note)?;
    endpoint.request_long(to, note, 1, &[0x5a; 2], 0)?;
    equal("seventeen words", Words::from_slice(&[0; 17]).err().map(|error| error.given), Some(17))?;
    equal("requests sent", endpoint.statistics().total_sent(), 3)?;
    endpoint.request(to, ask, 1)?;
    endpoint.wait_until(|state| state.replies == 1)?;
    endpoint.request(to, keep, 1)?;
    endpoint.wait_until(|state| !state.kept.is_empty())?;
    wrong_answers(&mut endpoint, reply, foreign_reply)?;
    endpoint.wait_until(|state| state.replies == 2)?;
    endpoint.drain()?;
    endpoint.barrier()?;
    let mut bytes = vec![0; endpoint.segment().len()];
    endpoint.segment().read(0, &mut bytes)?;
    equal("whether the segment is untouched", bytes.iter().all(|byte| *byte == 0x5a), true)?;
    let state = endpoint.finish()?;
    equal("right messages", (state.arrived, state.replies), (3, 2))?;
    state.findings.verdict()
}

/// The wrong answers with one pending reply, then the right one.
fn wrong_answers<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    reply: Reply<u32>,
    foreign: Reply<u32>,
) -> Verdict {
    let mut findings = std::mem::take(&mut endpoint.state_mut().findings);
    let (stray, its_reply) = stray()?;
    let expected = ReplyError::ForeignHandler { handler: its_reply.index() };
    drop(rejection(&mut findings, endpoint.answer(stray, its_reply, 1), expected));
    let kept = endpoint.state_mut().kept.pop();
    let mut kept = kept.ok_or_else(|| Failure::Check("no token was kept".into()))?;
    let (to, segment) = (kept.source(), endpoint.state().segment_of_source);
    let outside = SegmentError::OutOfRange { offset: segment, len: 1, segment };
    let bound = endpoint.limits(to).map_or(0, |limits| limits.default_reply);
    for (wrong, expected) in [
        (0, ReplyError::ForeignHandler { handler: foreign.index() }),
        (1, ReplyError::PayloadTooLarge { len: bound + 1, bound }),
        (2, ReplyError::OutsideSegment { to, source: outside }),
    ] {
        let outcome = match wrong {
            0 => endpoint.answer(kept, foreign, 1),
            1 => endpoint.answer_medium(kept, reply, 1, &vec![0; bound + 1]),
            _ => endpoint.answer_long(kept, reply, 1, &[9], segment),
        };
        kept = rejection(&mut findings, outcome, expected)
            .ok_or_else(|| Failure::Check("a wrong answer used the pending reply up".into()))?;
    }
    let sent = endpoint.answer(kept, reply, 7);
    findings.ok("the right answer after wrong ones", sent);
    endpoint.state_mut().findings = findings;
    Ok(())
}

/// A handler that declares larger replies than the transport carries is refused on every rank.
pub(super) fn reply_bound<T: Transport>(world: &World, transport: T) -> Verdict {
    let Limits { medium_reply: limit, default_reply, .. } = *transport.limits(transport.local_peer());
    ensure(default_reply <= limit.min(DEFAULT_REPLY), || {
        format!(
            "replies without a declared bound may have {default_reply} bytes, beyond {limit} or {DEFAULT_REPLY}"
        )
    })?;
    let bound = u32::try_from(limit + 1).unwrap_or(u32::MAX);
    let mut handlers = Handlers::<()>::new();
    handlers.request_bounded("large", bound, |(): &mut (), _: Token<'_>, (): (), _: Payload<'_>| {})?;
    let to = Rank(0).into();
    let expected = AttachError::ReplyBound { name: "large".into(), bound, limit, to };
    equal("attaching", world.attach(transport, handlers, ()).map(drop), Err(expected))
}

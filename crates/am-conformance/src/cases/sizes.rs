//! Items 2 and 3: Medium and Long messages of every size, up to sixteen under way, and of no size at all.
//!
//! The ranks pair up and exchange messages whose every byte is a function of iteration, chunk, sender and
//! position. For Long messages each segment falls into three parts: what requests bring, what replies bring, and
//! sources. Sizes beyond a third of a segment go one at a time, so that nothing overlaps.

use super::{partner, powers_up_to};
use crate::random::pattern;
use crate::world::{Findings, Verdict, World, ensure, equal};
use am_core::{Address, Category, Endpoint, Handlers, Lane, Payload, Rank, Request, Token, Transport};

/// Messages under way at once.
const DEPTH: u32 = 16;
/// Written right behind the last expected reply; must survive.
const GUARD: u8 = 0xa5;

/// Iteration, chunk, offset in the destination's segment, offset of the reply.
type Args = (u32, u32, u64, u64);

struct State {
    findings: Findings,
    world: World,
    me: Rank,
    source: Rank,
    requests: u64,
    replies: u64,
}

impl State {
    fn salt(&self, iteration: u32, chunk: u32, from: Rank) -> u64 {
        self.world.salt(&[u64::from(iteration), u64::from(chunk), u64::from(from.0)])
    }

    /// Checks a request or reply: where it comes from, where it lies, each of its bytes.
    fn check(&mut self, what: &str, from: Address, offset: Option<u64>, salt: u64, payload: &Payload<'_>) {
        self.findings.equal("source", from, self.source.into());
        self.findings.equal("offset", payload.offset(), offset);
        self.findings.payload(what, payload, salt);
    }
}

struct Table {
    medium: Request<Args>,
    long: Request<Args>,
}

fn table(handlers: &mut Handlers<State>, bound: u32) -> Result<Table, am_core::RegisterError> {
    let take = |long: bool| {
        move |state: &mut State, from: Address, (iteration, chunk, at, _): Args, payload: Payload<'_>| {
            let salt = state.salt(iteration, chunk, from.rank);
            state.check("bytes of a reply", from, long.then_some(at), !salt, &payload);
            state.replies += 1;
        }
    };
    let medium_reply = handlers.reply("medium reply", take(false))?;
    let long_reply = handlers.reply("long reply", take(true))?;
    let serve = move |long: bool| {
        move |state: &mut State, token: Token<'_>, args: Args, payload: Payload<'_>| {
            let (iteration, chunk, at, reply_at) = args;
            let (from, offset) = (token.source(), long.then_some(at));
            let salt = state.salt(iteration, chunk, from.rank);
            state.check("bytes of a request", from, offset, salt, &payload);
            let salt_back = !state.salt(iteration, chunk, state.me);
            let back = (iteration, chunk, reply_at, 0);
            let sent = if long {
                token.reply_long(long_reply, back, &pattern(salt_back, payload.len()), reply_at)
            } else {
                let len = payload.len().min(token.max_reply());
                token.reply_medium(medium_reply, back, &pattern(salt_back, len))
            };
            state.findings.ok("reply", sent);
            if !long {
                // The place of a Long payload may be used again as soon as the reply is out.
                state.check("bytes of a request after its reply", from, offset, salt, &payload);
            }
            state.requests += 1;
        }
    };
    let medium = handlers.request_bounded("medium", bound, serve(false))?;
    let long = handlers.request("long", serve(true))?;
    Ok(Table { medium, long })
}

fn attach<T: Transport>(world: &World, transport: T) -> Result<(Endpoint<T, State>, Table), crate::Failure> {
    let (shape, me) = (transport.shape(), transport.local_peer());
    let rank = shape.address(me).rank;
    let mut handlers = Handlers::new();
    let table = table(&mut handlers, u32::try_from(transport.limits(me).medium_reply).unwrap_or(u32::MAX))?;
    let source = partner(shape, rank);
    let state = State { findings: Findings::default(), world: *world, me: rank, source, requests: 0, replies: 0 };
    Ok((world.attach(transport, handlers, state)?, table))
}

/// One iteration of Medium messages of one size.
fn mediums<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    table: &Table,
    iteration: u32,
    size: usize,
    inside: bool,
) -> Verdict {
    let (me, to) = (endpoint.state().me, endpoint.state().source);
    let due = endpoint.state().replies + u64::from(DEPTH);
    for chunk in 0..DEPTH {
        let bytes = pattern(endpoint.state().salt(iteration, chunk, me), size);
        // The last third of the segment is for sources; where a Medium does not fit there, it has none inside.
        let (third, inside) = (third(endpoint, to), inside && size as u64 <= third(endpoint, to));
        let bytes = if inside { through_segment(endpoint, 2 * third + 1, bytes)? } else { bytes };
        endpoint.request_medium(to, table.medium, (iteration, chunk, 0, 0), &bytes)?;
    }
    Ok(endpoint.wait_until(|state| state.replies == due)?)
}

/// The same bytes by way of this rank's segment.
fn through_segment<T: Transport>(
    endpoint: &Endpoint<T, State>,
    at: u64,
    mut bytes: Vec<u8>,
) -> Result<Vec<u8>, crate::Failure> {
    endpoint.segment().write(at, &bytes)?;
    bytes.fill(0);
    endpoint.segment().read(at, &mut bytes)?;
    Ok(bytes)
}

/// One iteration of Long messages of one size, `depth` at once.
fn longs<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    table: &Table,
    iteration: u32,
    size: usize,
    inside: bool,
    depth: u32,
) -> Verdict {
    let (me, to) = (endpoint.state().me, endpoint.state().source);
    let third = third(endpoint, to);
    // Requests, replies and sources; a size beyond a third goes alone and has the whole segment.
    let [requests, replies, sources] = if size as u64 > third { [0; 3] } else { [0, third, 2 * third + 1] };
    let due = endpoint.state().replies + u64::from(depth);
    let end = replies + u64::from(depth) * size as u64;
    let guarded = endpoint.segment().write(end, &[GUARD]).is_ok();
    for chunk in 0..depth {
        let bytes = pattern(endpoint.state().salt(iteration, chunk, me), size);
        let bytes = if inside { through_segment(endpoint, sources, bytes)? } else { bytes };
        let offset = u64::from(chunk) * size as u64;
        let args = (iteration, chunk, requests + offset, replies + offset);
        endpoint.request_long(to, table.long, args, &bytes, requests + offset)?;
    }
    endpoint.wait_until(|state| state.replies == due)?;
    for chunk in 0..depth {
        let salt = !endpoint.state().salt(iteration, chunk, to);
        let placed = endpoint.segment().view(replies + u64::from(chunk) * size as u64, size)?;
        let deviation = crate::random::deviation(&placed, salt);
        ensure(deviation.is_none(), || format!("reply {chunk} of {size} bytes, later: {deviation:?}"))?;
    }
    if guarded {
        let mut guard = [0];
        endpoint.segment().read(end, &mut guard)?;
        equal("the byte behind the last reply", guard, [GUARD])?;
    }
    Ok(())
}

/// A third of the smaller of two segments, in bytes.
fn third<T: Transport>(endpoint: &Endpoint<T, State>, other: Rank) -> u64 {
    let theirs = endpoint.segment_len(other).unwrap_or(0);
    // One byte stays free for the guard between replies and sources.
    theirs.min(endpoint.segment().len() as u64).saturating_sub(1) / 3
}

fn words_of(args: Args) -> usize {
    am_core::arguments::encode(&args).len()
}

/// Item 2: sizes 0, 1, 2, 4 and so on, the maxima and one less.
pub(super) fn sizes<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, table) = attach(world, transport)?;
    let (to, words) = (endpoint.state().source, words_of((0, 0, 0, 0)));
    let largest = |category| endpoint.max_payload(to, category, Lane::Request, words).unwrap_or(0);
    let medium = usize::try_from(largest(Category::Medium)).unwrap_or(usize::MAX);
    let own = endpoint.segment().len() as u64;
    let long = usize::try_from(largest(Category::Long).min(own)).unwrap_or(usize::MAX);
    let mut iteration = 0;
    for size in powers_up_to(medium) {
        for inside in [false, true] {
            mediums(&mut endpoint, &table, iteration, size, inside)?;
            iteration += 1;
        }
    }
    let third = third(&endpoint, to);
    for size in powers_up_to(long) {
        let fit = third.checked_div(size as u64).unwrap_or(u64::from(DEPTH));
        for inside in [false, true] {
            if fit > 0 {
                let depth = u32::try_from(fit).unwrap_or(DEPTH).min(DEPTH);
                longs(&mut endpoint, &table, iteration, size, inside, depth)?;
            } else {
                for turn in 0..endpoint.ranks() {
                    endpoint.barrier()?;
                    if endpoint.rank() == Rank(turn) {
                        longs(&mut endpoint, &table, iteration, size, inside, 1)?;
                    }
                }
                endpoint.barrier()?;
            }
            iteration += 1;
        }
    }
    let state = endpoint.finish()?;
    equal("requests against replies", state.requests, state.replies)?;
    state.findings.verdict()
}

/// Item 3: no bytes, anywhere from a segment's start to its very end.
pub(super) fn zero_length<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, table) = attach(world, transport)?;
    let to = endpoint.state().source;
    let (theirs, own) = (endpoint.segment_len(to).unwrap_or(0), endpoint.segment().len() as u64);
    let rounds = world.count(10, 100);
    for iteration in 0..rounds {
        for (chunk, part) in [0, 1, 2].into_iter().enumerate() {
            let (at, reply_at) = (theirs * part / 2, own * part / 2);
            let args = (iteration, chunk as u32, at, reply_at);
            endpoint.request_medium(to, table.medium, args, &[])?;
            endpoint.request_long(to, table.long, args, &[], at)?;
        }
    }
    let due = u64::from(rounds) * 6;
    endpoint.wait_until(|state| state.replies == due)?;
    let received = endpoint.statistics();
    for category in [Category::Medium, Category::Long] {
        equal("replies", received.replies_received(category).messages, due / 2)?;
        equal("bytes of replies", received.replies_received(category).bytes, 0)?;
    }
    let state = endpoint.finish()?;
    equal("requests", state.requests, due)?;
    state.findings.verdict()
}

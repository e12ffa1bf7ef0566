//! Item 4: every number of arguments, 0 to 16, in every category, answered in kind.

use super::{left, right};
use crate::random::{Random, mix, pattern};
use crate::world::{Findings, Verdict, World, equal};
use am_core::{Address, Category, Handlers, Lane, Payload, Rank, Request, Token, Transport, Words};

/// What message number `index` of a rank looks like; every rank can tell. The order is by iteration, number of
/// arguments, category.
struct Message {
    category: Category,
    args: Words,
    back: Words,
    salt: u64,
}

const COUNTS: u32 = 17;

fn message(world: &World, from: Rank, index: u32) -> Message {
    let category = Category::ALL[(index % 3) as usize];
    let count = (index / 3 % COUNTS) as usize;
    let mut random = Random::new(world.seed, mix(&[u64::from(from.0), u64::from(index)]));
    Message { category, args: random.words(count), back: random.words(count), salt: random.number() }
}

struct State {
    findings: Findings,
    world: World,
    me: Rank,
    requests: u32,
    replies: u32,
    /// Size of the payloads of Long replies to the left neighbour.
    long: usize,
}

/// Checks what arrived against what must have been sent.
fn check(
    findings: &mut Findings,
    what: &str,
    (from, expected_from): (Address, Rank),
    (args, expected): (Words, Words),
    (payload, salt): (&Payload<'_>, u64),
) {
    findings.equal(&format!("source of a {what}"), from, expected_from.into());
    findings.equal(&format!("arguments of a {what}"), args, expected);
    findings.payload(what, payload, salt);
}

/// Every rank sends to its right neighbour, one message at a time.
pub(super) fn arguments<T: Transport>(world: &World, transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let (to, source) = (right(shape, me), left(shape, me));
    let bound = transport.limits(transport.local_peer()).medium_reply;
    let mut handlers = Handlers::<State>::new();
    let take = move |category: Category| {
        move |state: &mut State, from: Address, args: Words, payload: Payload<'_>| {
            let sent = message(&state.world, state.me, state.replies);
            state.findings.equal("category of a reply", category, sent.category);
            state.findings.equal(
                "whether a reply was placed",
                payload.offset().is_some(),
                category == Category::Long,
            );
            check(&mut state.findings, "reply", (from, to), (args, sent.back), (&payload, !sent.salt));
            state.replies += 1;
        }
    };
    let short_reply = handlers.reply("short reply", take(Category::Short))?;
    let medium_reply = handlers.reply("medium reply", take(Category::Medium))?;
    let long_reply = handlers.reply("long reply", take(Category::Long))?;
    let serve = move |category: Category| {
        move |state: &mut State, token: Token<'_>, args: Words, payload: Payload<'_>| {
            let sent = message(&state.world, source, state.requests);
            state.findings.equal("category of a request", category, sent.category);
            check(
                &mut state.findings,
                "request",
                (token.source(), source),
                (args, sent.args),
                (&payload, sent.salt),
            );
            let outcome = match category {
                Category::Short => token.reply(short_reply, sent.back),
                Category::Medium => {
                    let bytes = pattern(!sent.salt, token.max_reply());
                    token.reply_medium(medium_reply, sent.back, &bytes)
                }
                Category::Long => token.reply_long(long_reply, sent.back, &pattern(!sent.salt, state.long), 8),
            };
            state.findings.ok("reply", outcome);
            state.requests += 1;
        }
    };
    let bound = u32::try_from(bound).unwrap_or(u32::MAX);
    let table: [Request<Words>; 3] = [
        handlers.request("short", serve(Category::Short))?,
        handlers.request_bounded("medium", bound, serve(Category::Medium))?,
        handlers.request("long", serve(Category::Long))?,
    ];
    let state = State { findings: Findings::default(), world: *world, me, requests: 0, replies: 0, long: 0 };
    let mut endpoint = world.attach(transport, handlers, state)?;
    endpoint.state_mut().long = (endpoint.segment_len(source).unwrap_or(0) / 2).min(4099) as usize;
    endpoint.barrier()?;
    let total = world.count(2, 10) * COUNTS * 3;
    for index in 0..total {
        let Message { category, args, salt, .. } = message(world, me, index);
        equal("number of arguments", args.len() as u32, index / 3 % COUNTS)?;
        let handler = table[(index % 3) as usize];
        let largest = endpoint.max_payload(to, category, Lane::Request, args.len()).unwrap_or(0);
        match category {
            Category::Short => endpoint.request(to, handler, args)?,
            Category::Medium => endpoint.request_medium(to, handler, args, &pattern(salt, largest as usize))?,
            Category::Long => {
                // In the last quarter of the segment, away from replies, which land at its start.
                let at = largest / 4 * 3;
                let len = (largest - at).min(4099) as usize;
                endpoint.request_long(to, handler, args, &pattern(salt, len), at)?;
            }
        }
        endpoint.wait_until(|state| state.replies > index)?;
    }
    let state = endpoint.finish()?;
    equal("requests", state.requests, total)?;
    equal("replies", state.replies, total)?;
    state.findings.verdict()
}

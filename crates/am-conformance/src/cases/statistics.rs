//! What endpoints count adds up: over all ranks, what was sent was received, and every request that may be
//! answered ended in a reply or a bare credit.

use crate::random::pattern;
use crate::world::{Findings, Verdict, World, equal};
use am_core::{Address, Category, Handlers, Payload, Rank, Statistics, Token, Transport, Words};

#[derive(Default)]
struct State {
    findings: Findings,
    replies: u64,
    /// On rank 0: the sums of what the ranks counted, and how many told.
    sums: [u64; COUNTERS],
    told: u32,
}

const COUNTERS: usize = 19;

/// The counters that must add up, in pairs where possible: messages and bytes of a category sent and received.
fn counters(counted: &Statistics, answerable: u64) -> [u64; COUNTERS] {
    let mut all = [0; COUNTERS];
    for (index, category) in Category::ALL.into_iter().enumerate() {
        let (sent, received) = (counted.requests_sent(category), counted.requests_received(category));
        let replies = counted.replies_received(category);
        all[4 * index..4 * index + 4].copy_from_slice(&[
            sent.messages,
            received.messages,
            sent.bytes,
            received.bytes,
        ]);
        all[12] += replies.messages;
        all[13] += replies.bytes;
    }
    all[14] = counted.replies_sent;
    all[15] = counted.bare_credits;
    all[16] = answerable;
    all[17] = counted.total_sent();
    all[18] = counted.total_received();
    all
}

/// Random traffic of every kind, then the sums.
pub(super) fn statistics<T: Transport>(world: &World, transport: T) -> Verdict {
    let (ranks, me) = (transport.shape().ranks, transport.shape().address(transport.local_peer()).rank);
    let mut handlers = Handlers::<State>::new();
    let reply =
        handlers.reply("reply", |state: &mut State, _: Address, (): (), _: Payload<'_>| state.replies += 1)?;
    let note = handlers.one_way("note", |_: &mut State, _: Address, (): (), _: Payload<'_>| {})?;
    let ask = handlers.request(
        "ask",
        move |state: &mut State, token: Token<'_>, wanted: bool, bytes: Payload<'_>| {
            if wanted {
                let sent = match bytes.len() % 3 {
                    0 => token.reply(reply, ()),
                    1 => token.reply_medium(reply, (), &bytes.to_vec()),
                    _ => token.reply_long(reply, (), &[1; 33], 0),
                };
                state.findings.ok("reply", sent);
            }
        },
    )?;
    let tell = handlers.one_way("tell", |state: &mut State, _: Address, _: Words, counters: Payload<'_>| {
        let mut sums = state.sums.iter_mut();
        counters.for_each_u64(|counter| *sums.next().expect("as many counters as sums") += counter);
        state.told += 1;
    })?;
    let largest = transport.limits(transport.local_peer()).medium_request.min(200);
    let mut endpoint = world.attach(transport, handlers, State::default())?;
    let mut random = world.random(u64::from(me.0));
    let (mut wanted, mut answerable) = (0, 0);
    for _ in 0..world.count(1000, 50_000) {
        let (to, kind) = (Rank(random.below(ranks.into()) as u32), random.below(6));
        let answer = random.below(4) != 0;
        let bytes = pattern(0, random.length(largest));
        match kind {
            0 => endpoint.request(to, note, ())?,
            1 => endpoint.request_medium(to, note, (), &bytes)?,
            2 => endpoint.request_long(to, note, (), &bytes, 64)?,
            3 => endpoint.request(to, ask, answer)?,
            4 => endpoint.request_medium(to, ask, answer, &bytes)?,
            _ => endpoint.request_long(to, ask, answer, &bytes, 64)?,
        }
        answerable += u64::from(kind >= 3);
        wanted += u64::from(kind >= 3 && answer);
    }
    endpoint.wait_until(|state| state.replies == wanted)?;
    endpoint.drain()?;
    endpoint.barrier()?;
    let counted = endpoint.statistics();
    equal("replies received", Category::ALL.iter().map(|c| counted.replies_received(*c).messages).sum(), wanted)?;
    // Nobody tells before everyone has looked.
    endpoint.barrier()?;
    let bytes: Vec<u8> = counters(&counted, answerable).iter().flat_map(|counter| counter.to_le_bytes()).collect();
    endpoint.request_long(Rank(0), tell, Words::EMPTY, &bytes, u64::from(me.0) * bytes.len() as u64)?;
    if me == Rank(0) {
        endpoint.wait_until(|state| state.told == ranks)?;
        let sums = endpoint.state().sums;
        for (index, category) in Category::ALL.into_iter().enumerate() {
            equal(&format!("{category} requests received"), sums[4 * index + 1], sums[4 * index])?;
            equal(&format!("bytes of {category} requests received"), sums[4 * index + 3], sums[4 * index + 2])?;
        }
        equal("replies received against sent", sums[12], sums[14])?;
        equal("replies and bare credits against requests that may be answered", sums[14] + sums[15], sums[16])?;
        equal("all received against all sent", sums[18], sums[17])?;
    }
    let stray = endpoint.statistics().bad_messages + endpoint.statistics().detached;
    equal("bad messages and detached tokens", stray, 0)?;
    endpoint.finish()?.findings.verdict()
}

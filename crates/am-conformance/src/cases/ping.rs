//! Item 1: Short requests whose Medium replies bring a chained checksum back.

use super::right;
use crate::random::mix;
use crate::world::{Findings, Verdict, World, equal};
use am_core::{Address, Endpoint, Handlers, Payload, Token, Transport};

/// 64 values, each mixed from the one before.
fn checksums(index: u64, seed: u64) -> Vec<u8> {
    let chain = std::iter::successors(Some(mix(&[index, seed])), |last| Some(mix(&[*last])));
    chain.take(64).flat_map(u64::to_le_bytes).collect()
}

struct State {
    findings: Findings,
    seed: u64,
    source: Address,
    replies: u64,
}

/// Every rank pings its right neighbour, one ping at a time.
pub(super) fn checksum_ping<T: Transport>(world: &World, transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()));
    let to = right(shape, me.rank);
    let mut handlers = Handlers::<State>::new();
    let pong = handlers.reply("pong", |state: &mut State, from: Address, index: u64, payload: Payload<'_>| {
        state.findings.equal("source of the pong", from, state.source);
        state.findings.equal("number of the pong", index, state.replies);
        state.findings.equal("checksums", payload.to_vec(), checksums(index, state.seed));
        state.replies += 1;
    })?;
    let ping = handlers.request(
        "ping",
        move |state: &mut State, token: Token<'_>, (index, seed): (u64, u64), _: Payload<'_>| {
            let sent = token.reply_medium(pong, index, &checksums(index, seed));
            state.findings.ok("pong", sent);
        },
    )?;
    let seed = world.salt(&[u64::from(me.rank.0)]);
    let state = State { findings: Findings::default(), seed, source: to.into(), replies: 0 };
    let mut endpoint: Endpoint<T, State> = world.attach(transport, handlers, state)?;
    let pings = u64::from(world.count(100, 1000));
    for index in 0..pings {
        endpoint.request(to, ping, (index, seed))?;
        endpoint.wait_until(|state| state.replies > index)?;
    }
    let state = endpoint.finish()?;
    equal("pongs", state.replies, pings)?;
    state.findings.verdict()
}

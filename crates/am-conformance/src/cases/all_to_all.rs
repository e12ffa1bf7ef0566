//! Item 5: everyone sends to everyone, in different orders, with and without replies; counts are exact.

use crate::random::pattern;
use crate::world::{Findings, Verdict, World, equal};
use am_core::{Address, Category, Handlers, Lane, Payload, Rank, Token, Transport};

/// In which order a rank visits its peers.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// Shuffled anew in every iteration.
    Random,
    /// Starting with oneself, so that no two ranks visit the same peer at once.
    Polite,
    /// The same for all ranks, so that all visit the same peer at once.
    Hotspot,
}

/// Messages of each kind that arrived from one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Arrived {
    shorts: u64,
    mediums: u64,
    bytes: u64,
    short_replies: u64,
    medium_replies: u64,
    reply_bytes: u64,
}

struct State {
    findings: Findings,
    world: World,
    from: Vec<Arrived>,
}

/// Length of the Medium message that `from` sends to `to` in an iteration.
fn length(world: &World, from: Rank, to: Rank, iteration: u32, max: usize) -> usize {
    world.random(world.salt(&[u64::from(from.0), u64::from(to.0), u64::from(iteration)])).length(max)
}

/// Short messages without arguments and Medium ones of random size, one-way and answered.
pub(super) fn all_to_all<T: Transport>(world: &World, transport: T) -> Verdict {
    let (ranks, me) = (transport.shape().ranks, transport.shape().address(transport.local_peer()).rank);
    let mut handlers = Handlers::<State>::new();
    let pong = handlers.reply("pong", |state: &mut State, from: Address, (): (), _: Payload<'_>| {
        state.from[from.rank.0 as usize].short_replies += 1;
    })?;
    let echo =
        handlers.reply("echo", move |state: &mut State, from: Address, iteration: u32, bytes: Payload<'_>| {
            let salt = state.world.salt(&[u64::from(me.0), u64::from(iteration)]);
            state.findings.payload("echo", &bytes, salt);
            let arrived = &mut state.from[from.rank.0 as usize];
            arrived.medium_replies += 1;
            arrived.reply_bytes += bytes.len() as u64;
        })?;
    let count_medium = |state: &mut State, from: Address, iteration: u32, bytes: Payload<'_>| {
        let salt = state.world.salt(&[u64::from(from.rank.0), u64::from(iteration)]);
        state.findings.payload("medium", &bytes, salt);
        let arrived = &mut state.from[from.rank.0 as usize];
        arrived.mediums += 1;
        arrived.bytes += bytes.len() as u64;
    };
    let short = handlers.one_way("short", |state: &mut State, from: Address, (): (), _: Payload<'_>| {
        state.from[from.rank.0 as usize].shorts += 1;
    })?;
    let medium = handlers.one_way("medium", count_medium)?;
    let ping = handlers.request("ping", move |state: &mut State, token: Token<'_>, (): (), _: Payload<'_>| {
        state.from[token.source().rank.0 as usize].shorts += 1;
        let sent = token.reply(pong, ());
        state.findings.ok("pong", sent);
    })?;
    let call = handlers.request(
        "call",
        move |state: &mut State, token: Token<'_>, iteration: u32, bytes: Payload<'_>| {
            count_medium(state, token.source(), iteration, bytes);
            let sent = token.reply_medium(echo, iteration, &bytes.to_vec());
            state.findings.ok("echo", sent);
        },
    )?;
    let from = vec![Arrived::default(); ranks as usize];
    let mut endpoint =
        world.attach(transport, handlers, State { findings: Findings::default(), world: *world, from })?;
    let largest = |to| {
        let request = endpoint.max_payload(to, Category::Medium, Lane::Request, 1).unwrap_or(0);
        let reply = endpoint.limits(to).map_or(0, |limits| limits.default_reply as u64);
        request.min(reply) as usize
    };
    let max = (0..ranks).map(|to| largest(Rank(to))).min().unwrap_or(0);
    let rounds = world.count(12, 1000);
    let mut expected = vec![Arrived::default(); ranks as usize];
    let mut visits: Vec<u32> = (0..ranks).collect();
    let mut random = world.random(u64::from(me.0));
    for (phase, order) in [Order::Random, Order::Polite, Order::Hotspot].into_iter().enumerate() {
        for iteration in (0..rounds).map(|round| phase as u32 * rounds + round) {
            match order {
                Order::Random => random.shuffle(&mut visits),
                Order::Polite => visits = (0..ranks).map(|step| (me.0 + step) % ranks).collect(),
                Order::Hotspot => visits = (0..ranks).map(|step| (iteration + step) % ranks).collect(),
            }
            for to in visits.iter().copied().map(Rank) {
                let salt = world.salt(&[u64::from(me.0), u64::from(iteration)]);
                let bytes = pattern(salt, length(world, me, to, iteration, max));
                endpoint.request(to, short, ())?;
                endpoint.request(to, ping, ())?;
                endpoint.request_medium(to, medium, iteration, &bytes)?;
                endpoint.request_medium(to, call, iteration, &bytes)?;
                let theirs = length(world, to, me, iteration, max) as u64;
                let due = &mut expected[to.0 as usize];
                due.shorts += 2;
                due.mediums += 2;
                due.bytes += 2 * theirs;
                due.short_replies += 1;
                due.medium_replies += 1;
                due.reply_bytes += bytes.len() as u64;
            }
        }
        endpoint.wait_until(|state| state.from == expected)?;
        endpoint.barrier()?;
    }
    let state = endpoint.finish()?;
    equal("messages from each rank", state.from, expected)?;
    state.findings.verdict()
}

//! Item 9: requests of a pair are handled in the order they were sent, and replies likewise, where the transport
//! says so; everywhere each exactly once.

use crate::world::{Findings, Verdict, World, equal};
use am_core::{Address, Handlers, Payload, Rank, Token, Transport};

/// What arrived from one rank on one lane.
#[derive(Clone, Default)]
struct Sequence {
    seen: Vec<u32>,
}

impl Sequence {
    fn check(mut self, ordered: bool, due: u32) -> Verdict {
        if !ordered {
            self.seen.sort_unstable();
        }
        equal("sequence", self.seen, (0..due).collect())
    }
}

struct State {
    findings: Findings,
    requests: Vec<Sequence>,
    replies: Vec<Sequence>,
}

/// Numbered messages of all categories, one-way and answered, mixed.
pub(super) fn order<T: Transport>(world: &World, transport: T) -> Verdict {
    let (ranks, me) = (transport.shape().ranks, transport.shape().address(transport.local_peer()).rank);
    let ordered = transport.limits(transport.local_peer()).ordered;
    let mut handlers = Handlers::<State>::new();
    let reply = handlers.reply("reply", |state: &mut State, from: Address, number: u32, _: Payload<'_>| {
        state.replies[from.rank.0 as usize].seen.push(number);
    })?;
    let note = handlers.one_way("note", |state: &mut State, from: Address, number: u32, _: Payload<'_>| {
        state.requests[from.rank.0 as usize].seen.push(number);
    })?;
    let ask = handlers.request(
        "ask",
        move |state: &mut State, token: Token<'_>, (number, asked): (u32, u32), payload: Payload<'_>| {
            state.requests[token.source().rank.0 as usize].seen.push(number);
            let sent = match payload.offset() {
                None if number % 2 == 0 => token.reply(reply, asked),
                None => token.reply_medium(reply, asked, &[1; 40]),
                Some(at) => token.reply_long(reply, asked, &[2; 40], at),
            };
            state.findings.ok("reply", sent);
        },
    )?;
    let sequences = vec![Sequence::default(); ranks as usize];
    let state = State { findings: Findings::default(), requests: sequences.clone(), replies: sequences };
    let mut endpoint = world.attach(transport, handlers, state)?;
    let per_pair = world.count(300, 10_000);
    let mut random = world.random(u64::from(me.0));
    let mut asked = vec![0; ranks as usize];
    for number in 0..per_pair {
        for to in 0..ranks {
            let (peer, count) = (Rank(to), &mut asked[to as usize]);
            let kind = random.below(5);
            match kind {
                0 => endpoint.request(peer, note, number)?,
                1 => endpoint.request_medium(peer, note, number, &[3; 50])?,
                2 => endpoint.request(peer, ask, (number, *count))?,
                3 => endpoint.request_medium(peer, ask, (number, *count), &[4; 50])?,
                _ => endpoint.request_long(peer, ask, (number, *count), &[5; 50], 64)?,
            }
            *count += u32::from(kind >= 2);
        }
    }
    let all = |sequences: &[Sequence], due: &[u32]| {
        sequences.iter().zip(due).all(|(sequence, due)| sequence.seen.len() >= *due as usize)
    };
    endpoint.wait_until(|state| {
        all(&state.replies, &asked) && all(&state.requests, &vec![per_pair; ranks as usize])
    })?;
    let state = endpoint.finish()?;
    for (from, due) in asked.into_iter().enumerate() {
        state.requests[from].clone().check(ordered, per_pair)?;
        state.replies[from].clone().check(ordered, due)?;
    }
    state.findings.verdict()
}

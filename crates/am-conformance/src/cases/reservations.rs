//! Item 2, negotiated payload: buffers in the transport that are filled in pieces, committed or dropped.

use super::{breathe, right};
use crate::random::pattern;
use crate::world::{Findings, Verdict, World, equal};
use am_core::{Address, Category, Handlers, Lane, Payload, PayloadWriter, SendError, Token, Transport};

struct State {
    findings: Findings,
    world: World,
    arrived: Vec<u32>,
    replies: u64,
}

/// Reservations of all sizes at the smallest buffers: filled back to front, by words and in pieces; most are
/// dropped, and neither arrive nor use up room.
pub(super) fn reservations<T: Transport>(world: &World, transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let to = right(shape, me);
    let mut handlers = Handlers::<State>::new();
    let done =
        handlers.reply("done", |state: &mut State, _: Address, (): (), _: Payload<'_>| state.replies += 1)?;
    let check = |state: &mut State, number: u32, payload: Payload<'_>| {
        let salt = state.world.salt(&[u64::from(number)]);
        state.findings.payload("reserved payload", &payload, salt);
        state.arrived.push(number);
    };
    let note =
        handlers.one_way("note", move |state: &mut State, _: Address, number: u32, payload: Payload<'_>| {
            check(state, number, payload);
        })?;
    let ask =
        handlers.request("ask", move |state: &mut State, token: Token<'_>, number: u32, bytes: Payload<'_>| {
            check(state, number, bytes);
            let sent = token.reply(done, ());
            state.findings.ok("done", sent);
        })?;
    let state = State { findings: Findings::default(), world: *world, arrived: Vec::new(), replies: 0 };
    let mut endpoint = world.attach(transport, handlers, state)?;
    let largest = endpoint.max_payload(to, Category::Medium, Lane::Request, 1).unwrap_or(0) as usize;
    let mut random = world.random(u64::from(me.0));
    let (rounds, mut expected) = (world.count(500, 20_000), Vec::new());
    for number in 0..rounds {
        let len = if number % 8 == 0 { largest } else { random.length(largest) };
        let bytes = pattern(world.salt(&[u64::from(number)]), len);
        let handler = if number % 2 == 0 { note } else { ask };
        for _ in 0..number % 3 {
            let mut dropped = endpoint.reserve_medium(to, handler, number, len)?;
            dropped.write(0, &vec![0xee; len]);
        }
        let mut room = loop {
            // The `try_` form in half of the rounds; what it refuses is asked for again.
            if number % 4 < 2 {
                break endpoint.reserve_medium(to, handler, number, len)?;
            }
            match endpoint.try_reserve_medium(to, handler, number, len).map(drop) {
                Ok(()) => break endpoint.try_reserve_medium(to, handler, number, len)?,
                Err(SendError::WouldBlock { .. }) => breathe(&mut endpoint)?,
                Err(other) => return Err(other.into()),
            }
        };
        equal("size of the reservation", (room.len(), room.is_empty()), (len, len == 0))?;
        let (words, rest) = bytes.split_at(len / 8 * 8);
        room.write(words.len(), rest);
        for (index, word) in words.chunks_exact(8).enumerate().rev() {
            match number % 3 {
                0 => room.write(8 * index, word),
                _ => room.write_u64(index, u64::from_le_bytes(word.try_into().expect("chunks of eight bytes"))),
            }
        }
        room.commit();
        expected.push(number);
    }
    let sent = endpoint.statistics().requests_sent(Category::Medium).messages;
    equal("committed reservations counted as sent", sent, u64::from(rounds))?;
    let asked = u64::from(rounds / 2);
    endpoint.wait_until(|state| state.replies == asked)?;
    let mut state = endpoint.finish()?;
    state.arrived.sort_unstable();
    equal("arrived reservations", state.arrived, expected)?;
    state.findings.verdict()
}

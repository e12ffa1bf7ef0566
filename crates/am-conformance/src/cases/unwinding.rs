//! Item 13, handlers that unwind: the credit of their message returns all the same, and an endpoint whose program
//! catches the panic works on.

use super::{breathe, left, right};
use crate::case::{is_deliberate, unwind};
use crate::world::{Findings, Verdict, World, equal};
use am_core::{Address, Endpoint, Handlers, Payload, SendError, Token, Transport};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

#[derive(Default)]
struct State {
    findings: Findings,
    thrown: u64,
    caught: u64,
    replies: u64,
    /// Whether the right neighbour has attached: a panic would end its attaching.
    ready: bool,
}

/// Serves a little and catches what handlers throw.
fn serve<T: Transport>(endpoint: &mut Endpoint<T, State>) -> Verdict {
    match catch_unwind(AssertUnwindSafe(|| breathe(endpoint))) {
        Ok(outcome) => outcome,
        Err(panic) if is_deliberate(&*panic) => {
            endpoint.state_mut().caught += 1;
            Ok(())
        }
        Err(panic) => resume_unwind(panic),
    }
}

/// Request handlers that unwind before and after their reply, one-way and reply handlers that unwind; many more
/// than fit the smallest buffers.
pub(super) fn unwinding_handlers<T: Transport>(world: &World, transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let to = right(shape, me);
    let mut handlers = Handlers::<State>::new();
    let reply = handlers.reply("reply", |state: &mut State, _: Address, unwinds: bool, _: Payload<'_>| {
        state.replies += 1;
        if unwinds {
            state.thrown += 1;
            unwind();
        }
    })?;
    let before = handlers.request("before", |state: &mut State, _: Token<'_>, (): (), _: Payload<'_>| {
        state.thrown += 1;
        unwind();
    })?;
    let after =
        handlers.request("after", move |state: &mut State, token: Token<'_>, (): (), _: Payload<'_>| {
            let sent = token.reply(reply, false);
            state.findings.ok("reply", sent);
            state.thrown += 1;
            unwind();
        })?;
    let there =
        handlers.request("there", move |state: &mut State, token: Token<'_>, (): (), bytes: Payload<'_>| {
            let sent = token.reply_medium(reply, true, &bytes.to_vec());
            state.findings.ok("reply", sent);
        })?;
    let lone = handlers.one_way("lone", |state: &mut State, _: Address, (): (), _: Payload<'_>| {
        state.thrown += 1;
        unwind();
    })?;
    let ready =
        handlers.one_way("ready", |state: &mut State, _: Address, (): (), _: Payload<'_>| state.ready = true)?;
    let mut endpoint = world.attach(transport, handlers, State::default())?;
    endpoint.request(left(shape, me), ready, ())?;
    while !endpoint.state().ready {
        serve(&mut endpoint)?;
    }
    let rounds = world.count(40, 1000);
    for (number, handler) in (0..rounds).flat_map(|_| [before, after, there, lone].into_iter().enumerate()) {
        loop {
            let outcome = match number % 2 {
                0 => endpoint.try_request(to, handler, ()),
                _ => endpoint.try_request_medium(to, handler, (), &[1; 9]),
            };
            match outcome {
                Ok(()) => break,
                Err(SendError::WouldBlock { .. }) => serve(&mut endpoint)?,
                Err(other) => return Err(other.into()),
            }
        }
    }
    // Four handlers unwind per round: three at the destination, and the reply's of the third here.
    let (thrown, replies) = (4 * u64::from(rounds), 2 * u64::from(rounds));
    while endpoint.state().thrown < thrown || endpoint.state().replies < replies {
        serve(&mut endpoint)?;
    }
    let state = endpoint.state();
    equal("panics caught against thrown", state.caught, state.thrown)?;
    // Nothing unwinds any more, so from here on the waits need no catching.
    endpoint.drain()?;
    endpoint.barrier()?;
    let state = endpoint.finish()?;
    equal("panics and replies", (state.thrown, state.replies), (thrown, replies))?;
    state.findings.verdict()
}

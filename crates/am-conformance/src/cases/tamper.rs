//! Item 10, a faulty peer: requests for handlers that don't exist or with other arguments are dropped, reported to
//! the receiver, and give their credit back.

use super::{breathe, left, right};
use crate::world::{Findings, Verdict, World, ensure, equal};
use am_core::transport::{Body, Membership, Refused, RequestHeader, Waiting};
use am_core::{
    Address, BadMessage, Endpoint, Handlers, Payload, Peer, PollError, SendError, Span, Token, Transport,
    WaitError, Words,
};
use std::cell::Cell;

/// A transport that names another handler than it was told to.
struct Tamper<T> {
    inner: T,
    handler: Cell<Option<u8>>,
}

impl<T> Tamper<T> {
    fn head(&self, head: RequestHeader) -> RequestHeader {
        RequestHeader::new(self.handler.get().unwrap_or(head.handler), head.reply)
    }
}

impl<T: Transport> Membership for Tamper<T> {
    am_core::forward!(inner: local_peer, shape, losses, status, writes_no_more, is_fork, depart);
}

impl<T: Transport> Waiting for Tamper<T> {
    am_core::forward!(inner: idle, idle_unless, wake_peer, spins, waker, now, charge);
    am_core::forward!(inner: notify, descriptor, notify_readable, end_notify);
}

impl<T: Transport> Transport for Tamper<T> {
    type Memory = T::Memory;
    type Room = T::Room;
    type Slot<'a>
        = T::Slot<'a>
    where
        Self: 'a;
    am_core::forward!(inner:
        may_deliver, limits, control, poll, reply_detached, flush, is_quiescent, polls_per_sweep, segment,
        segment_len, remote_segment, reads_lent, read_lent, auxiliary, native, credits, owed, bare_credits,
    );
    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        let head = self.head(head);
        self.inner.send(to, head, args, body)
    }
    fn reserve(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize) -> Result<T::Room, Refused> {
        let head = self.head(head);
        self.inner.reserve(to, head, args, len)
    }
    fn slot(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize, room: T::Room) -> T::Slot<'_> {
        let head = self.head(head);
        self.inner.slot(to, head, args, len, room)
    }
}

#[derive(Default)]
struct State {
    findings: Findings,
    right: u64,
    replies: u64,
    /// Whether the right neighbour has attached: a bad message would end its attaching.
    ready: bool,
}

/// What a dropped message must have been: the index it named and why it did not fit.
const EXPECTED: [(u8, BadMessage); 3] = [
    (200, BadMessage::UnknownHandler),
    (3, BadMessage::UnknownHandler),
    (1, BadMessage::WrongArguments { words: 1 }),
];

/// Takes bad messages off an outcome; passes everything else on.
fn absorb(outcome: Result<(), WaitError>, source: Address, told: &mut u64) -> Verdict {
    match outcome {
        Err(WaitError::Poll(PollError::BadMessage { from, handler, reason })) => {
            *told += 1;
            equal("sender of a bad message", from, source)?;
            ensure(EXPECTED.contains(&(handler, reason)), || format!("bad message: {handler}, {reason:?}"))
        }
        other => Ok(other?),
    }
}

/// Bad messages among good ones, many more than fit the buffers.
pub(super) fn faulty_peer<T: Transport>(world: &World, transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let (to, source) = (right(shape, me), Address::from(left(shape, me)));
    let mut handlers = Handlers::<State>::new();
    let reply =
        handlers.reply("reply", |state: &mut State, _: Address, _: u32, _: Payload<'_>| state.replies += 1)?;
    let ask =
        handlers.request("ask", move |state: &mut State, token: Token<'_>, value: u32, _: Payload<'_>| {
            state.right += 1;
            let sent = token.reply(reply, value);
            state.findings.ok("reply", sent);
        })?;
    handlers.one_way("other arguments", |state: &mut State, _: Address, _: (u32, u64), _: Payload<'_>| {
        state.findings.add("a message with the wrong arguments was handled".into());
    })?;
    let ready =
        handlers.one_way("ready", |state: &mut State, _: Address, (): (), _: Payload<'_>| state.ready = true)?;
    let tamper = Tamper { inner: transport, handler: Cell::new(None) };
    let mut endpoint: Endpoint<Tamper<T>, State> = world.attach(tamper, handlers, State::default())?;
    let (rounds, mut told) = (u64::from(world.count(40, 1000)), 0);
    endpoint.request(source, ready, ())?;
    while !endpoint.state().ready {
        let served = endpoint.wait_until_for(Span::from_micros(50), |state| state.ready);
        absorb(served.or_else(super::forgive_time_out), source, &mut told)?;
    }
    for round in 0..rounds {
        for handler in EXPECTED.map(|(handler, _)| Some(handler)).into_iter().chain([None]) {
            loop {
                endpoint.transport().handler.set(handler);
                let outcome = match round % 3 {
                    0 => endpoint.try_request(to, ask, 1),
                    1 => endpoint.try_request_medium(to, ask, 1, &[1, 2, 3]),
                    _ => endpoint.try_request_long(to, ask, 1, &[1, 2, 3], 8),
                };
                endpoint.transport().handler.set(None);
                match outcome {
                    Ok(()) => break,
                    Err(SendError::WouldBlock { .. }) => {
                        let served = endpoint.wait_until_for(Span::from_micros(50), |_| false);
                        absorb(served.or_else(super::forgive_time_out), source, &mut told)?;
                    }
                    Err(other) => return Err(other.into()),
                }
            }
        }
    }
    let bad = 3 * rounds;
    while endpoint.statistics().bad_messages < bad || endpoint.state().replies < rounds {
        let served = endpoint.wait_until_for(Span::from_micros(50), |_| false);
        absorb(served.or_else(super::forgive_time_out), source, &mut told)?;
    }
    ensure((1..=bad).contains(&told), || format!("{told} of {bad} bad messages were told"))?;
    endpoint.drain()?;
    endpoint.barrier()?;
    breathe(&mut endpoint)?;
    equal("bad messages", endpoint.statistics().bad_messages, bad)?;
    let state = endpoint.finish()?;
    equal("good messages and replies", (state.right, state.replies), (rounds, rounds))?;
    state.findings.verdict()
}

//! No allocation per message after set-up: sending, serving and answering every kind of message over the loopback
//! transport, counted by a global allocator per thread.

use am_conformance::{allocations, without_stall_requests};
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::{
    Address, Endpoint, Handlers, Payload, PayloadWriter, PendingReply, Rank, Reply, Request, SendError, Token,
};

/// How often this thread allocates in `work`.
fn allocations_in(work: impl FnOnce()) -> u64 {
    let before = allocations();
    work();
    allocations() - before
}

struct State {
    handled: u64,
    sum: u64,
    kept: Vec<PendingReply>,
}

#[derive(Clone, Copy)]
struct Table {
    note: Request<(u64, u32)>,
    ask: Request<u32>,
    keep: Request<()>,
    reply: Reply<u32>,
}

type Rig = (Endpoint<Loopback, State>, Table);

/// Joins the network as one rank.
fn attach(transport: Loopback) -> Rig {
    let mut handlers = Handlers::<State>::new();
    let reply = handlers.reply("reply", |state: &mut State, _: Address, _: u32, payload: Payload<'_>| {
        state.handled += 1;
        payload.for_each_u64(|value| state.sum = state.sum.wrapping_add(value));
    });
    let reply = reply.unwrap();
    let note = |state: &mut State, _: Address, (a, b): (u64, u32), payload: Payload<'_>| {
        state.handled += 1;
        state.sum = state.sum.wrapping_add(a + u64::from(b) + payload.u64(0).unwrap_or(0));
    };
    let ask = move |state: &mut State, token: Token<'_>, kind: u32, payload: Payload<'_>| {
        state.handled += 1;
        let mut bytes = [0; 512];
        let bytes = &mut bytes[..payload.len().min(512)];
        payload.copy_to(bytes);
        match kind {
            0 => token.reply(reply, 1).unwrap(),
            1 => token.reply_medium(reply, 2, bytes).unwrap(),
            2 => token.reply_medium_with(reply, 3, 64, |buffer| buffer.write_u64(7, 9)).unwrap(),
            3 => token.reply_long(reply, 4, bytes, 1024).unwrap(),
            _ => {}
        }
    };
    let keep = |state: &mut State, token: Token<'_>, (): (), _: Payload<'_>| state.kept.push(token.detach());
    let table = Table {
        note: handlers.one_way("note", note).unwrap(),
        ask: handlers.request("ask", ask).unwrap(),
        keep: handlers.request_bounded("keep", 4096, keep).unwrap(),
        reply,
    };
    let state = State { handled: 0, sum: 0, kept: Vec::with_capacity(64) };
    (Endpoint::attach(transport, handlers, state).unwrap(), table)
}

/// Two ranks that have attached, to be driven in turn by one thread.
fn pair() -> [Rig; 2] {
    let config = LoopbackConfig::default().requests(16).replies(16);
    let ranks = network(2, config).into_iter().map(|transport| std::thread::spawn(move || attach(transport)));
    let ranks: Vec<_> = ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect();
    ranks.try_into().unwrap_or_else(|_| unreachable!("two ranks were started"))
}

/// Every kind of message from one rank to another, in portions that fit the buffers.
fn exchange((from, table): &mut Rig, (to, theirs): &mut Rig, bytes: &[u8]) {
    let peer = to.rank();
    from.request(peer, table.note, (1, 2)).unwrap();
    from.try_request(peer, table.note, (3, 4)).unwrap();
    from.request_medium(peer, table.note, (5, 6), bytes).unwrap();
    from.try_request_medium(peer, table.note, (5, 6), bytes).unwrap();
    from.request_long(peer, table.note, (7, 8), bytes, 64).unwrap();
    from.try_request_long(peer, table.note, (7, 8), bytes, 64).unwrap();
    let mut room = from.reserve_medium(peer, table.note, (9, 10), bytes.len()).unwrap();
    room.write(0, bytes);
    room.commit();
    drop(from.try_reserve_medium(peer, table.note, (9, 10), bytes.len()).unwrap());
    to.poll().unwrap();
    for kind in 0..5 {
        from.request_medium(peer, table.ask, kind, bytes).unwrap();
        from.request(peer, table.ask, kind).unwrap();
    }
    to.poll().unwrap();
    for _ in 0..4 {
        from.request(peer, table.keep, ()).unwrap();
    }
    to.poll().unwrap();
    for number in 0..4 {
        let pending = to.state_mut().kept.pop().unwrap();
        match number {
            0 => to.answer(pending, theirs.reply, 1).unwrap(),
            1 => to.answer_medium(pending, theirs.reply, 2, bytes).unwrap(),
            2 => to.answer_long(pending, theirs.reply, 3, bytes, 2048).unwrap(),
            _ => drop(pending),
        }
    }
    to.poll().unwrap();
    while from.poll().unwrap() != 0 {}
    // Refused for want of room, then served.
    let mut accepted = 0;
    loop {
        match from.try_request_medium(peer, table.note, (0, 0), bytes) {
            Ok(()) => accepted += 1,
            Err(SendError::WouldBlock { .. }) => break,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(accepted, 16);
    while to.poll().unwrap() != 0 {}
    from.drain().unwrap();
    from.wait_until(|_| true).unwrap();
}

#[test]
fn messages_allocate_nothing_after_the_first_round() {
    let _undisturbed = without_stall_requests();
    let [mut a, mut b] = pair();
    let bytes = [5; 3000];
    for _ in 0..3 {
        exchange(&mut a, &mut b, &bytes);
        exchange(&mut b, &mut a, &bytes);
    }
    let before = (a.0.state().handled, b.0.state().handled);
    let rounds = 500;
    let made = allocations_in(|| {
        for _ in 0..rounds {
            exchange(&mut a, &mut b, &bytes);
            exchange(&mut b, &mut a, &bytes);
        }
    });
    assert_eq!(made, 0, "allocations in {rounds} rounds");
    // 33 requests are counted at the destination, 11 replies at the requester, in both directions.
    let handled = (a.0.state().handled - before.0, b.0.state().handled - before.1);
    assert_eq!(handled, (rounds * 44, rounds * 44));
}

#[test]
fn waiting_and_barriers_allocate_nothing() {
    let _undisturbed = without_stall_requests();
    let ranks = network(3, LoopbackConfig::default()).into_iter().map(|transport| {
        std::thread::spawn(move || {
            let (mut endpoint, table) = attach(transport);
            let next = Rank((endpoint.rank().0 + 1) % 3);
            let mut due = 0;
            let mut rounds = |count: u32| {
                for _ in 0..count {
                    // One request of the left neighbour and one reply of the right one.
                    due += 2;
                    endpoint.request(next, table.ask, 0).unwrap();
                    endpoint.wait_until(|state| state.handled >= due).unwrap();
                    endpoint.barrier().unwrap();
                }
            };
            rounds(3);
            let made = allocations_in(|| rounds(300));
            endpoint.finish().unwrap();
            made
        })
    });
    for rank in ranks.collect::<Vec<_>>() {
        assert_eq!(rank.join().unwrap(), 0);
    }
}

#[test]
fn the_counter_counts() {
    let _undisturbed = without_stall_requests();
    assert_eq!(allocations_in(|| drop(std::hint::black_box(Box::new(7)))), 1);
    assert_eq!(allocations_in(|| ()), 0);
}

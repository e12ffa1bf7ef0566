//! Endpoints against a model: random operations of several ranks, driven in turn by one thread over the loopback
//! transport, must have exactly the effects that a small model predicts: what is accepted or refused and why,
//! which handlers run in which order with which bytes, what the segments hold, credits and statistics.

mod reference;

use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::{
    Address, Category, Endpoint, Handlers, Payload, PayloadWriter, PendingReply, Rank, Reply, Request, SendError,
    Token,
};
use proptest::prelude::*;
use reference::{ACTIONS, Action, Event, Frame, Model, REPLY_LEN, SEGMENT, reply_bytes, reply_offset};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const MEDIUM: usize = 32;

/// One step of a run. Ranks and indices are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Send {
        from: usize,
        to: usize,
        action: Action,
        category: Category,
        bytes: Vec<u8>,
        at: usize,
    },
    /// A reservation, committed or dropped.
    Reserve {
        from: usize,
        to: usize,
        action: Action,
        bytes: Vec<u8>,
        commit: bool,
    },
    Poll {
        rank: usize,
        budget: usize,
    },
    /// The oldest or newest pending reply of a rank, answered or dropped.
    Settle {
        rank: usize,
        newest: bool,
        answer: Option<Category>,
    },
}

#[derive(Default)]
struct State {
    events: Vec<Event>,
    pending: Vec<(PendingReply, u32)>,
}

#[derive(Clone, Copy)]
struct Table {
    note: Request<(u32, u32)>,
    ask: Request<(u32, u32)>,
    reply: Reply<u32>,
}

type Rig = (Endpoint<Loopback, State>, Table);

fn attach(transport: Loopback) -> Rig {
    let mut handlers = Handlers::<State>::new();
    let reply = handlers.reply("reply", |state: &mut State, from: Address, number: u32, payload: Payload<'_>| {
        let (from, bytes, at) = (from.rank.0 as usize, payload.to_vec(), payload.offset());
        state.events.push(Event::Reply { from, number, bytes, at });
    });
    let reply = reply.unwrap();
    let see = |state: &mut State, from: Address, number: u32, payload: Payload<'_>| {
        let (from, bytes, at) = (from.rank.0 as usize, payload.to_vec(), payload.offset());
        state.events.push(Event::Request { from, number, bytes, at });
    };
    let note = move |state: &mut State, from: Address, (number, _): (u32, u32), payload: Payload<'_>| {
        see(state, from, number, payload);
    };
    let ask = move |state: &mut State, token: Token<'_>, (number, action): (u32, u32), payload: Payload<'_>| {
        see(state, token.source(), number, payload);
        let bytes = reply_bytes(number, REPLY_LEN);
        match ACTIONS[action as usize] {
            Action::Note | Action::Ignore => {}
            Action::ReplyShort => token.reply(reply, number).unwrap(),
            Action::ReplyMedium => token.reply_medium(reply, number, &bytes).unwrap(),
            Action::ReplyLong => token.reply_long(reply, number, &bytes, reply_offset(number)).unwrap(),
            Action::Detach => state.pending.push((token.detach(), number)),
            Action::Panic => resume_unwind(Box::new("as asked")),
        }
    };
    let (note, ask) = (handlers.one_way("note", note).unwrap(), handlers.request("ask", ask).unwrap());
    (Endpoint::attach(transport, handlers, State::default()).unwrap(), Table { note, ask, reply })
}

/// Sends as a step says.
fn send(rig: &mut Rig, to: usize, action: Action, number: u32, how: How<'_>) -> Result<(), SendError> {
    let (endpoint, table) = rig;
    let handler = if action == Action::Note { table.note } else { table.ask };
    let action = ACTIONS.iter().position(|other| *other == action).unwrap() as u32;
    let (to, args) = (Rank(to as u32), (number, action));
    match how {
        How::Short => endpoint.try_request(to, handler, args),
        How::Medium(bytes) => endpoint.try_request_medium(to, handler, args, bytes),
        How::Long(bytes, at) => endpoint.try_request_long(to, handler, args, bytes, at),
        How::Reserved(bytes, commit) => {
            let mut room = endpoint.try_reserve_medium(to, handler, args, bytes.len())?;
            bytes.iter().enumerate().rev().for_each(|(at, byte)| room.write(at, &[*byte]));
            if commit {
                room.commit();
            }
            Ok(())
        }
    }
}

/// How a step sends.
enum How<'a> {
    Short,
    Medium(&'a [u8]),
    Long(&'a [u8], u64),
    Reserved(&'a [u8], bool),
}

fn check(model: &Model, rigs: &[Rig]) -> Result<(), TestCaseError> {
    for (party, (endpoint, _)) in model.parties.iter().zip(rigs) {
        prop_assert_eq!(&endpoint.state().events, &party.events);
        prop_assert_eq!(endpoint.segment().view(0, SEGMENT).unwrap().to_vec(), &party.segment);
        let counted = endpoint.statistics();
        for category in Category::ALL {
            prop_assert_eq!(counted.requests_sent(category).messages, party.sent[category as usize]);
            prop_assert_eq!(counted.requests_received(category).messages, party.received[category as usize]);
        }
        let found = (counted.replies_sent, counted.bare_credits, counted.detached, counted.bad_messages);
        prop_assert_eq!(found, (party.replies_sent, party.bare, party.detached, 0));
        for (peer, (under_way, owed)) in party.under_way.iter().zip(&party.owed).enumerate() {
            let left = endpoint.credits(Rank(peer as u32)).unwrap();
            let expected = (model.requests - under_way, model.replies - owed);
            prop_assert_eq!((left.request_frames as usize, left.reply_frames as usize), expected);
        }
    }
    Ok(())
}

/// Runs one step on both sides.
fn step(model: &mut Model, rigs: &mut [Rig], step: Step, number: u32) -> Result<(), TestCaseError> {
    let ranks = rigs.len();
    match step {
        Step::Send { from, to, action, category, bytes, at } => {
            let (from, to) = (from % ranks, to % ranks);
            let bytes = if category == Category::Short { Vec::new() } else { bytes };
            let (how, placed) = match category {
                Category::Short => (How::Short, None),
                Category::Medium => (How::Medium(&bytes), None),
                Category::Long => (How::Long(&bytes, at as u64), Some((at, bytes.len()))),
            };
            let outcome = send(&mut rigs[from], to, action, number, how);
            expect_sent(model, (from, to), action, &outcome)?;
            if outcome.is_ok() {
                model.send(from, to, category, Frame { from, number, action: Some(action), bytes, placed });
            }
        }
        Step::Reserve { from, to, action, bytes, commit } => {
            let (from, to) = (from % ranks, to % ranks);
            let outcome = send(&mut rigs[from], to, action, number, How::Reserved(&bytes, commit));
            expect_sent(model, (from, to), action, &outcome)?;
            if outcome.is_ok() && commit {
                let frame = Frame { from, number, action: Some(action), bytes, placed: None };
                model.send(from, to, Category::Medium, frame);
            }
        }
        Step::Poll { rank, budget } => {
            let rank = rank % ranks;
            let endpoint = &mut rigs[rank].0;
            let outcome = catch_unwind(AssertUnwindSafe(|| endpoint.poll_budget(budget)));
            prop_assert_eq!(outcome.ok(), model.poll(rank, budget).map(Ok));
        }
        Step::Settle { rank, newest, answer } => {
            let rank = rank % ranks;
            let party = &mut model.parties[rank];
            let (endpoint, table) = &mut rigs[rank];
            if party.pending.is_empty() {
                return Ok(());
            }
            let index = if newest { party.pending.len() - 1 } else { 0 };
            let (to, number) = party.pending.remove(index);
            let (pending, _) = endpoint.state_mut().pending.remove(index);
            let bytes = reply_bytes(number, REPLY_LEN);
            match answer {
                None => {
                    drop(pending);
                    party.dropped.push(to);
                    return Ok(());
                }
                Some(Category::Short) => endpoint.answer(pending, table.reply, number).unwrap(),
                Some(Category::Medium) => endpoint.answer_medium(pending, table.reply, number, &bytes).unwrap(),
                Some(Category::Long) => {
                    endpoint.answer_long(pending, table.reply, number, &bytes, reply_offset(number)).unwrap();
                }
            }
            model.reply(rank, to, number, answer.unwrap());
        }
    }
    Ok(())
}

fn expect_sent(
    model: &Model,
    (from, to): (usize, usize),
    action: Action,
    outcome: &Result<(), SendError>,
) -> Result<(), TestCaseError> {
    let refusal = model.refusal(from, to, action);
    let to = Rank(to as u32).into();
    let expected = refusal.map_or(Ok(()), |resource| Err(SendError::WouldBlock { to, resource }));
    prop_assert_eq!(outcome, &expected);
    Ok(())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rank = || 0usize..3;
    let action = || prop::sample::select(&ACTIONS[..]);
    let bytes = |least| prop::collection::vec(any::<u8>(), least..=MEDIUM);
    let category = || prop::sample::select(&Category::ALL[..]);
    let send = (rank(), rank(), action(), category(), bytes(1), 0..=SEGMENT - MEDIUM)
        .prop_map(|(from, to, action, category, bytes, at)| Step::Send { from, to, action, category, bytes, at });
    let reserve = (rank(), rank(), action(), bytes(1), any::<bool>())
        .prop_map(|(from, to, action, bytes, commit)| Step::Reserve { from, to, action, bytes, commit });
    let poll = (rank(), 0usize..6).prop_map(|(rank, budget)| Step::Poll { rank, budget });
    let settle = (rank(), any::<bool>(), prop::option::of(category()))
        .prop_map(|(rank, newest, answer)| Step::Settle { rank, newest, answer });
    prop::collection::vec(prop_oneof![4 => send, 1 => reserve, 4 => poll, 1 => settle], 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn endpoints_do_what_the_model_says(
        ranks in 1usize..=3, requests in 1usize..4, replies in 1usize..4, steps in steps()
    ) {
        let config = LoopbackConfig::default().requests(requests).replies(replies).medium(MEDIUM).segment(SEGMENT);
        let network = network(ranks as u32, config).into_iter();
        let threads = network.map(|transport| std::thread::spawn(|| attach(transport)));
        let mut rigs: Vec<Rig> =
            threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect();
        let mut model = Model::new(ranks, &config);
        for (number, next) in steps.into_iter().enumerate() {
            step(&mut model, &mut rigs, next, number as u32)?;
            check(&model, &rigs)?;
        }
    }
}

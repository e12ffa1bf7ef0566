//! Item 7: thousands of operations issued without blocking, to ranks that poll only now and then; nothing is lost
//! and nothing arrives twice, however a refusal is met.

use super::breathe;
use crate::random::{Random, pattern};
use crate::world::{Failure, Findings, Verdict, World, equal};
use am_core::{Address, Endpoint, Handlers, Payload, PayloadWriter, Rank, Request, SendError, Token, Transport};

/// How a rank meets a refusal.
#[derive(Clone, Copy, Debug)]
enum Policy {
    /// The next rank gets the message instead.
    Next,
    /// The same message again, at once.
    Retry,
    /// Other messages first; the refused ones when those are out.
    Lazy,
    /// The same message again, with a poll after every attempt, refused or not.
    Always,
    /// No refusals: the blocking forms.
    Blocking,
}

const POLICIES: [Policy; 5] = [Policy::Next, Policy::Retry, Policy::Lazy, Policy::Always, Policy::Blocking];
/// Operations between two polls of one's own accord.
const NOW_AND_THEN: u32 = 64;
/// Largest Medium payload used; less where the transport allows less.
const LARGEST: usize = 256;

struct State {
    findings: Findings,
    world: World,
    delivered: Vec<u64>,
    replies: u64,
    claimed: Vec<Option<u64>>,
}

#[derive(Clone, Copy)]
struct Table {
    count: Request<u64>,
    ask: Request<u64>,
    claim: Request<u64>,
    largest: usize,
}

/// One operation: its kind and payload follow from its number.
#[derive(Clone, Copy)]
struct Operation {
    to: u32,
    number: u64,
}

fn attempt<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    table: &Table,
    Operation { to, number }: Operation,
    blocking: bool,
) -> Result<(), SendError> {
    let to = Rank(to);
    let len = (number % (table.largest as u64 + 1)) as usize;
    let bytes = |endpoint: &Endpoint<T, State>| pattern(endpoint.state().world.salt(&[number]), len);
    match (number % 5, blocking) {
        (0 | 1, false) => endpoint.try_request(to, table.count, number),
        (0 | 1, true) => endpoint.request(to, table.count, number),
        (2, false) => endpoint.try_request(to, table.ask, number),
        (2, true) => endpoint.request(to, table.ask, number),
        (3, false) => {
            let bytes = bytes(endpoint);
            endpoint.try_request_medium(to, table.ask, number, &bytes)
        }
        (3, true) => {
            let bytes = bytes(endpoint);
            endpoint.request_medium(to, table.ask, number, &bytes)
        }
        (_, blocking) => {
            let bytes = bytes(endpoint);
            let mut room = if blocking {
                endpoint.reserve_medium(to, table.count, number, len)?
            } else {
                endpoint.try_reserve_medium(to, table.count, number, len)?
            };
            room.write(0, &bytes);
            room.commit();
            Ok(())
        }
    }
}

/// Issues operations under a policy; counts what was accepted per rank.
fn issue<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    table: &Table,
    policy: Policy,
    random: &mut Random,
    accepted: &mut [u64],
) -> Result<u64, Failure> {
    let (operations, ranks) = (endpoint.state().world.count(500, 10_000), endpoint.ranks());
    let (mut put_off, mut asked) = (Vec::new(), 0);
    let mut fresh = 0..operations;
    loop {
        let next =
            fresh.next().map(|_| Operation { to: random.below(ranks.into()) as u32, number: random.number() });
        let Some(mut operation) = next.or_else(|| put_off.pop()) else {
            return Ok(asked);
        };
        for tries in 0u32.. {
            let outcome = attempt(endpoint, table, operation, matches!(policy, Policy::Blocking));
            if matches!(policy, Policy::Always) {
                endpoint.poll()?;
            }
            match outcome {
                Ok(()) => {
                    accepted[operation.to as usize] += 1;
                    asked += u64::from(matches!(operation.number % 5, 2 | 3));
                    break;
                }
                Err(SendError::WouldBlock { .. }) => {}
                Err(other) => return Err(other.into()),
            }
            match policy {
                Policy::Next => operation.to = (operation.to + 1) % ranks,
                Policy::Lazy => {
                    put_off.push(operation);
                    if fresh.is_empty() {
                        breathe(endpoint)?;
                    }
                    break;
                }
                Policy::Retry | Policy::Always | Policy::Blocking => {}
            }
            if tries % 16 == 15 {
                // All ranks may be here at once: someone has to serve.
                breathe(endpoint)?;
            }
        }
        if fresh.start % NOW_AND_THEN == 0 {
            endpoint.poll()?;
        }
    }
}

/// Every rank uses every policy once, while its peers use others.
pub(super) fn issue_without_blocking<T: Transport>(world: &World, transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let limits = transport.limits(transport.local_peer());
    let largest = limits.medium_request.min(limits.default_reply).min(LARGEST);
    let mut handlers = Handlers::<State>::new();
    let reply = handlers.reply("reply", |state: &mut State, _: Address, number: u64, payload: Payload<'_>| {
        let salt = state.world.salt(&[number]);
        state.findings.payload("payload of a reply", &payload, salt);
        state.replies += 1;
    })?;
    let take = |state: &mut State, from: Address, number: u64, payload: Payload<'_>| {
        let salt = state.world.salt(&[number]);
        state.findings.payload("payload of a request", &payload, salt);
        state.delivered[from.rank.0 as usize] += 1;
    };
    let count = handlers.one_way("count", take)?;
    let ask =
        handlers.request("ask", move |state: &mut State, token: Token<'_>, number: u64, bytes: Payload<'_>| {
            take(state, token.source(), number, bytes);
            let sent = token.reply_medium(reply, number, &bytes.to_vec());
            state.findings.ok("reply", sent);
        })?;
    let claim = handlers.one_way("claim", |state: &mut State, from: Address, accepted: u64, _: Payload<'_>| {
        state.claimed[from.rank.0 as usize] = Some(accepted);
    })?;
    let table = Table { count, ask, claim, largest };
    let ranks = shape.ranks as usize;
    let findings = Findings::default();
    let state =
        State { findings, world: *world, delivered: vec![0; ranks], replies: 0, claimed: vec![None; ranks] };
    let mut endpoint = world.attach(transport, handlers, state)?;
    let mut random = world.random(u64::from(me.0));
    let (mut accepted, mut asked) = (vec![0; ranks], 0);
    for phase in 0..POLICIES.len() {
        let policy = POLICIES[(phase + me.0 as usize) % POLICIES.len()];
        asked += issue(&mut endpoint, &table, policy, &mut random, &mut accepted)?;
        endpoint.wait_until(|state| state.replies == asked)?;
        endpoint.drain()?;
        endpoint.barrier()?;
        for (to, accepted) in accepted.iter().enumerate() {
            endpoint.request(Rank(to as u32), table.claim, *accepted)?;
        }
        endpoint.wait_until(|state| state.claimed.iter().all(Option::is_some))?;
        let claimed: Vec<u64> = endpoint.state().claimed.iter().flatten().copied().collect();
        equal("deliveries from each rank", &endpoint.state().delivered, &claimed)?;
        endpoint.barrier()?;
        endpoint.state_mut().claimed.fill(None);
    }
    let state = endpoint.finish()?;
    equal("replies", state.replies, asked)?;
    state.findings.verdict()
}

//! Two ranks on two nodes: puts one after the other, puts in a flood, and round trips of active messages. Each
//! function runs a simulation and tells virtual time; none is timed before a few that are not.

use active_messages::transport::{Membership, Waiting};
use active_messages::{Address, Endpoint, Handlers, Payload, Rank, Span, Token, Transport};
use fabric_sim::RunError;
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, Conduit, ConduitConfig, Local};
use portals_sim::nic::HostMemory;

/// Operations before those that are timed.
const WARM_UP: u32 = 2;

/// The first result.
fn first<T: Default>(results: Vec<Option<T>>) -> T {
    results.into_iter().flatten().next().unwrap_or_default()
}

/// A conduit whose segments are large enough.
fn roomy(bytes: u32) -> ConduitConfig {
    let default = ConduitConfig::default();
    ConduitConfig { segment: default.segment.max(u64::from(bytes)), ..default }
}

/// Serves until the other rank has left.
fn attend(transport: Conduit<'_>) {
    let endpoint = Endpoint::attach(transport, Handlers::<()>::new(), ());
    endpoint.expect("both ranks attach").finish().expect("both ranks end");
}

/// The time of a blocking put of some bytes from registered memory outside the segment.
pub fn put(machine: &PortalsConfig, bytes: u32, count: u32) -> Result<Span, RunError> {
    let report = conduit::run(machine, &roomy(bytes), move |mut transport| {
        let mut took = Span::ZERO;
        if transport.local_peer().0 == 0 {
            let memory = HostMemory::new(bytes as usize);
            let direct = transport.one_sided();
            for round in 0..WARM_UP + count {
                let began = transport.now();
                let put = direct.put(Rank(1), 0, Local::Memory(&memory, 0), bytes);
                transport.wait_direct(put.expect("the segment is as large"));
                if round >= WARM_UP {
                    took = Span(took.0 + transport.now().since(began).0);
                }
            }
        }
        attend(transport);
        took
    })?;
    Ok(Span(first(report.results).0 / u64::from(count)))
}

/// Bytes per second of a flood of puts, as many under way as the conduit lets.
pub fn flood(machine: &PortalsConfig, bytes: u32, count: u32) -> Result<f64, RunError> {
    let report = conduit::run(machine, &roomy(bytes), move |mut transport| {
        let mut rate = 0.0;
        if transport.local_peer().0 == 0 {
            let memory = HostMemory::new(bytes as usize);
            let direct = transport.one_sided();
            // Registers the memory.
            let put = direct.put(Rank(1), 0, Local::Memory(&memory, 0), bytes);
            transport.wait_direct(put.expect("the segment is as large"));
            let began = transport.now();
            let mut last = None;
            for _ in 0..count {
                loop {
                    match direct.put(Rank(1), 0, Local::Memory(&memory, 0), bytes) {
                        Ok(put) => break last = Some(put),
                        // All that can be are under way: the oldest gives way.
                        Err(_) => transport.wait_direct(last.expect("the first put is never refused")),
                    }
                }
            }
            while direct.under_way() > 0 {
                transport.wait_direct(last.expect("there was a put"));
            }
            let took = transport.now().since(began);
            rate = f64::from(count) * f64::from(bytes) / (took.0 as f64 * 1e-12);
        }
        attend(transport);
        rate
    })?;
    Ok(first(report.results))
}

#[derive(Default)]
struct State {
    replies: u64,
}

/// The time of a round trip of Medium messages with as many bytes in either direction; without bytes, of Short
/// ones.
pub fn round_trip(
    machine: &PortalsConfig,
    config: &ConduitConfig,
    bytes: u32,
    count: u32,
) -> Result<Span, RunError> {
    let config = ConduitConfig { default_reply: config.default_reply.max(bytes), ..config.clone() };
    let report = conduit::run(machine, &config, move |transport| answered(transport, bytes, count))?;
    Ok(Span(first(report.results).0 / u64::from(count)))
}

fn answered<T: Transport>(transport: T, bytes: u32, count: u32) -> Span {
    let mut handlers = Handlers::<State>::new();
    let back = handlers.reply("back", |state: &mut State, _: Address, (): (), _: Payload<'_>| state.replies += 1);
    let back = back.expect("the table has room");
    let there = handlers.request("there", move |_: &mut State, token: Token<'_>, (): (), payload: Payload<'_>| {
        let sent = match payload.len() {
            0 => token.reply(back, ()),
            len => token.reply_medium_with(back, (), len, |buffer| buffer.write(0, &[1])),
        };
        sent.expect("the requester waits for the reply");
    });
    let there = there.expect("the table has room");
    let mut endpoint = Endpoint::attach(transport, handlers, State::default()).expect("both ranks attach");
    let mut took = Span::ZERO;
    if endpoint.rank() == Rank(0) {
        let payload = vec![7; bytes as usize];
        for round in 0..WARM_UP + count {
            let began = endpoint.now();
            let sent = match bytes {
                0 => endpoint.request(Rank(1), there, ()),
                _ => endpoint.request_medium(Rank(1), there, (), &payload),
            };
            sent.expect("rank 1 serves");
            let due = u64::from(round) + 1;
            endpoint.wait_until(|state| state.replies == due).expect("rank 1 replies");
            if round >= WARM_UP {
                took = Span(took.0 + endpoint.now().since(began).0);
            }
        }
    }
    endpoint.finish().expect("both ranks end");
    took
}

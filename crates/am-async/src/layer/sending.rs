//! What the layer sends: through the outbox while it makes progress, and at once through the endpoint.

use super::{ANSWER, CALL, CALL_WITH, Calls, NO_DEADLINE, ONE_WAY, ONE_WAY_WITH, PART, Wire};
use crate::buffers;
use crate::context::Environment;
use crate::outcome::{Note, Outgoing, Sent, Wakers};
use crate::shared::Shared;
use crate::task::{Dispatch, Dispatched};
use crate::wire::{Control, Header, PART_OF_ANSWER, Status, Verdict, measures};
use am_core::layer::Outbox;
use am_core::slab::Key;
use am_core::{
    Address, Arguments, Category, Endpoint, HasLayer, Lane, Rejected, ReplyError, Request, SendError, Transport,
};

/// The largest payload of a request to a rank with so many argument words.
#[inline]
pub(super) fn room(outbox: &Outbox<'_>, to: Address, words: usize) -> u64 {
    outbox.max_payload(to, Category::Medium, Lane::Request, words).unwrap_or(0)
}

/// Sends a request of a category that its payload tells.
#[inline]
fn request<A: Arguments>(
    outbox: &mut Outbox<'_>,
    to: Address,
    handler: Request<A>,
    args: A,
    body: &[u8],
) -> Result<(), SendError> {
    match body {
        [] => outbox.try_request(to, handler, args),
        body => outbox.try_request_medium(to, handler, args, body),
    }
}

#[inline]
fn sent(outcome: Result<(), SendError>) -> Sent {
    match outcome {
        Ok(()) => Sent::Yes,
        Err(SendError::WouldBlock { .. }) => Sent::NotNow,
        Err(error) => Sent::Failed(error),
    }
}

/// Makes a call and sends it at once, where nothing waits before it and it fits one message; else gives its
/// request back. Whoever calls lets the endpoint poll. Whether it is on its way: else it has failed, or is sent
/// later.
#[inline]
pub(crate) fn call_at_once<T: Transport, S: HasLayer<Calls<W>>, W: 'static>(
    endpoint: &mut Endpoint<T, S>,
    shared: &Shared,
    to: Address,
    header: Header,
    request: Vec<u8>,
) -> Result<(Key, bool), Vec<u8>> {
    let room = || endpoint.max_payload(to, Category::Medium, Lane::Request, CALL).unwrap_or(0);
    if !request.is_empty() && request.len() as u64 > room() {
        return Err(request);
    }
    let send = |endpoint: &mut Endpoint<T, S>, key: Key| {
        let handler = endpoint.layer_unscheduled::<Calls<W>>().wire.call;
        let words = (header.to_u64(), key.to_u64());
        sent(match &request[..] {
            [] => endpoint.try_request(to, handler, words),
            body => endpoint.try_request_medium(to, handler, words, body),
        })
    };
    let mut table = shared.table();
    let started =
        table.start_sent(endpoint.shape(), to, (header, request.len()), endpoint, |endpoint| endpoint.now(), send);
    let Some((key, sent)) = started else { return Err(request) };
    match sent {
        Sent::Yes | Sent::Announced => {
            drop(table);
            buffers::give(request);
            endpoint.layer_unscheduled::<Calls<W>>().watch = true;
            return Ok((key, true));
        }
        Sent::NotNow => table.put_back(key, request),
        Sent::Failed(error) => {
            buffers::give(request);
            table.refused(key, error, &mut Wakers::default());
        }
    }
    drop(table);
    let calls = endpoint.layer_mut::<Calls<W>>();
    (calls.watch, calls.more) = (true, true);
    Ok((key, false))
}

/// Whether a request of so many bytes is longer than a message.
pub(crate) fn is_long<T: Transport, S>(endpoint: &Endpoint<T, S>, to: Address, bytes: usize) -> bool {
    bytes as u64 > endpoint.max_payload(to, Category::Medium, Lane::Request, CALL).unwrap_or(0)
}

/// Bytes of a long request that are kept between two looks whether the callee has room.
const KEPT: usize = 16 << 10;

/// Looks in vain at a network that has no room, after which the rest of a long request is kept.
const LOOKS: u32 = 2000;

/// Makes a call whose request is longer than a message, where nothing waits before it: it is announced first, and
/// sent from where it lies if the callee soon has room for it, so that both sides copy at once. What it has none
/// for is kept. Else gives `before` back, what comes before the request's bytes. Polls the endpoint.
pub(crate) fn call_from_memory<T: Transport, S: HasLayer<Calls<W>>, W: 'static>(
    endpoint: &mut Endpoint<T, S>,
    shared: &Shared,
    to: Address,
    header: Header,
    before: Vec<u8>,
    bytes: &[u8],
) -> Result<Key, Vec<u8>> {
    let len = before.len() + bytes.len();
    let wire = endpoint.layer_unscheduled::<Calls<W>>().wire;
    let announce = |endpoint: &mut Endpoint<T, S>, key: Key| {
        let long = Header { flags: header.flags | Header::LONG, ..header }.to_u64();
        let words = (long, key.to_u64(), NO_DEADLINE, measures(len as u32, 0));
        sent(endpoint.try_request(to, wire.call_with, words))
    };
    let mut table = shared.table();
    let started =
        table.start_sent(endpoint.shape(), to, (header, len), endpoint, |endpoint| endpoint.now(), announce);
    let Some((key, announced)) = started else { return Err(before) };
    endpoint.layer_unscheduled::<Calls<W>>().watch = true;
    // What is kept of the request.
    let mut kept = buffers::take_for(len);
    kept.extend_from_slice(&before);
    buffers::give(before);
    let ahead = kept.len();
    let failed = match announced {
        Sent::Yes | Sent::Announced => {
            table.announced(key);
            false
        }
        Sent::NotNow => {
            kept.extend_from_slice(bytes);
            table.put_back(key, std::mem::take(&mut kept));
            true
        }
        Sent::Failed(error) => {
            buffers::give(std::mem::take(&mut kept));
            table.refused(key, error, &mut Wakers::default());
            true
        }
    };
    drop(table);
    if failed {
        endpoint.layer_mut::<Calls<W>>().more = true;
        return Ok(key);
    }
    endpoint.flush();
    let remote = loop {
        endpoint.serve_through();
        match shared.table().writing(key) {
            // It has ended: it is too long, or the callee is lost.
            None => break None,
            Some(Some(remote)) => break Some(remote),
            Some(None) if kept.len() == len => break None,
            Some(None) => {
                let rest = &bytes[kept.len() - ahead..];
                kept.extend_from_slice(&rest[..rest.len().min(KEPT)]);
            }
        }
    };
    let mut sent = 0;
    if let Some(remote) = remote {
        let most = endpoint.max_payload(to, Category::Medium, Lane::Request, PART).unwrap_or(0) as usize;
        let mut looks = 0;
        while sent < len && looks < LOOKS {
            let part = match kept.get(sent..) {
                Some(kept) if !kept.is_empty() => &kept[..kept.len().min(most)],
                _ => {
                    let rest = &bytes[sent - ahead..];
                    &rest[..rest.len().min(most)]
                }
            };
            match endpoint.try_request_medium(to, wire.part, (remote, sent as u64), part) {
                Ok(()) => (sent, looks) = (sent + part.len(), 0),
                Err(SendError::WouldBlock { .. }) => {
                    looks += 1;
                    endpoint.serve_through();
                    if shared.table().writing(key).is_none() {
                        break;
                    }
                }
                // What is lost ends with all calls to the peer.
                Err(_) => break,
            }
        }
    }
    // What has ended meanwhile, as refused or with its callee, needs nothing any more.
    if sent < len && shared.table().writing(key).is_some() {
        kept.extend_from_slice(&bytes[kept.len() - ahead..]);
    }
    shared.table().written(key, kept, sent == len, sent);
    endpoint.layer_mut::<Calls<W>>().more = true;
    Ok(key)
}

/// Sends the calls that the future of an endpoint has just made, where they fit messages; everything else, and
/// what there is no room for, is left to the layer's progress.
#[inline]
pub(crate) fn send_at_once<T: Transport, S: HasLayer<Calls<W>>, W: Send + 'static>(
    endpoint: &mut Endpoint<T, S>,
    environment: &Environment<W>,
) {
    let shared = &environment.shared;
    let handler = endpoint.layer_unscheduled::<Calls<W>>().wire.call;
    let (mut wakers, mut table) = (Wakers::default(), shared.table());
    let (_, blocked) = table.send(&mut wakers, |outgoing| {
        let Outgoing { key, to, header, request: body, left, .. } = outgoing;
        let room = || endpoint.max_payload(to, Category::Medium, Lane::Request, CALL).unwrap_or(0);
        let plain = left.is_none() && !header.is(Header::ONE_WAY) && !header.is(Header::STREAM);
        if !plain || (!body.is_empty() && body.len() as u64 > room()) {
            return Sent::NotNow;
        }
        let words = (header.to_u64(), key.to_u64());
        sent(match body {
            [] => endpoint.try_request(to, handler, words),
            body => endpoint.try_request_medium(to, handler, words, body),
        })
    });
    let left = blocked || table.has_work();
    drop(table);
    let calls = endpoint.layer_unscheduled::<Calls<W>>();
    if wakers.root || !wakers.others.is_empty() {
        calls.wake_all(wakers);
    }
    calls.watch = true;
    calls.more |= left || environment.has_spawned();
}

#[inline]
pub(super) fn send_call(outbox: &mut Outbox<'_>, wire: Wire, outgoing: Outgoing<'_>) -> Sent {
    let Outgoing { key, to, header, request: body, left, window } = outgoing;
    let (one_way, stream, call) = (header.is(Header::ONE_WAY), header.is(Header::STREAM), key.to_u64());
    let words = match (one_way, left.is_some() | stream) {
        (true, false) => ONE_WAY,
        (true, true) => ONE_WAY_WITH,
        (false, false) => CALL,
        (false, true) => CALL_WITH,
    };
    let time = left.map_or(NO_DEADLINE, |left| left.0);
    if !body.is_empty() && body.len() as u64 > room(outbox, to, words) {
        let header = Header { flags: header.flags | Header::LONG, ..header }.to_u64();
        let measures = measures(body.len() as u32, window);
        return match sent(outbox.try_request(to, wire.call_with, (header, call, time, measures))) {
            Sent::Yes => Sent::Announced,
            other => other,
        };
    }
    let header = header.to_u64();
    sent(match (one_way, words) {
        (true, ONE_WAY) => request(outbox, to, wire.one_way, header, body),
        (true, _) => request(outbox, to, wire.one_way_with, (header, time), body),
        (false, CALL) => request(outbox, to, wire.call, (header, call), body),
        (false, _) => request(outbox, to, wire.call_with, (header, call, time, measures(0, window)), body),
    })
}

pub(super) fn send_note(outbox: &mut Outbox<'_>, wire: Wire, note: Note) -> Sent {
    let (to, what, a, b) = match note {
        Note::Cancel { to, call } => (to, Control::Cancel, call.to_u64(), 0),
        Note::GrantAnswer { to, task, call } => (to, Control::GrantAnswer, task, call.to_u64()),
        Note::GrantItem { to, call } => (to, Control::GrantItem, call.to_u64(), 0),
        Note::Credit { to, call, answers } => (to, Control::Credit, call.to_u64(), answers),
    };
    sent(outbox.try_request(to, wire.control, (what as u64, a, b)))
}

/// Sends as much of something long as one message carries.
pub(super) fn send_part(
    outbox: &mut Outbox<'_>,
    wire: Wire,
    to: Address,
    remote: u64,
    at: u64,
    rest: &[u8],
) -> Result<usize, SendError> {
    let len = rest.len().min(usize::try_from(room(outbox, to, PART)).unwrap_or(usize::MAX));
    match outbox.try_request_medium(to, wire.part, (remote, at), &rest[..len]) {
        Ok(()) => Ok(len),
        Err(SendError::WouldBlock { .. }) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Announces what is longer than a message.
fn announce(
    outbox: &mut Outbox<'_>,
    wire: Wire,
    to: Address,
    verdict: Verdict,
    call: u64,
    (a, b): (u64, u64),
) -> Dispatched {
    let verdict = Verdict { long: true, ..verdict }.to_u64();
    match outbox.try_request(to, wire.answer, (verdict, call, a, b)) {
        Ok(()) => Dispatched::Announced,
        Err(SendError::WouldBlock { .. }) => Dispatched::NotNow,
        Err(_) => Dispatched::Gone,
    }
}

pub(super) fn send_answer(outbox: &mut Outbox<'_>, wire: Wire, dispatch: Dispatch<'_>) -> Dispatched {
    let outcome = match dispatch {
        Dispatch::Answer { to, call, verdict, pending, body, task, items } => {
            if let Some(way_back) = pending.take() {
                let words = (verdict.to_u64(), call);
                let answered = match body {
                    [] => outbox.answer(way_back, wire.answered, words),
                    body => outbox.answer_medium(way_back, wire.answered, words, body),
                };
                match answered {
                    Ok(()) => return Dispatched::Sent,
                    Err(Rejected { error: ReplyError::PayloadTooLarge { .. }, token, .. }) => {
                        // The credit goes back; the answer goes as a message of its own.
                        let accepted = Verdict::new(Status::Accepted, verdict.digest).to_u64();
                        if outbox.answer(token, wire.answered, (accepted, call)).is_err() {
                            return Dispatched::Gone;
                        }
                    }
                    Err(_) => return Dispatched::Gone,
                }
            }
            if body.len() as u64 > room(outbox, to, ANSWER) {
                let bytes = body.len() as u64;
                let numbers = items.map_or((bytes, task.to_u64()), |items| (items, bytes));
                return announce(outbox, wire, to, verdict, call, numbers);
            }
            request(outbox, to, wire.answer, (verdict.to_u64(), call, items.unwrap_or(0), 0), body)
        }
        Dispatch::Accepted { call, verdict, pending } => {
            return match outbox.answer(pending, wire.answered, (verdict.to_u64(), call)) {
                Ok(()) => Dispatched::Sent,
                Err(_) => Dispatched::Gone,
            };
        }
        Dispatch::Items { to, call, verdict, body, number } => {
            if body.len() as u64 > room(outbox, to, ANSWER) {
                return announce(outbox, wire, to, verdict, call, (number, body.len() as u64));
            }
            request(outbox, to, wire.answer, (verdict.to_u64(), call, number, 0), body)
        }
        Dispatch::Grant { to, call, task } => {
            outbox.try_request(to, wire.control, (Control::GrantRequest as u64, call, task.to_u64()))
        }
        Dispatch::Part { to, call, at, rest } => {
            return match send_part(outbox, wire, to, call, at as u64 | PART_OF_ANSWER, rest) {
                Ok(bytes) => Dispatched::Partly(bytes),
                Err(_) => Dispatched::Gone,
            };
        }
    };
    match outcome {
        Ok(()) => Dispatched::Sent,
        Err(SendError::WouldBlock { .. }) => Dispatched::NotNow,
        Err(_) => Dispatched::Gone,
    }
}

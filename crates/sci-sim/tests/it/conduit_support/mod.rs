//! The exchange that tests of the conduit play: messages of every kind and size from rank 0 to rank 1, most of
//! them answered, each checked for its bytes and for having run once.
use am_core::{Address, Endpoint, Handlers, Payload, Rank, Reply, Request, SendError, Token, Transport};
use fabric_sim::{Report, RunError};
use sci_sim::SciConfig;
use sci_sim::conduit::{self, Conduit, ConduitConfig, Counts, NodeMap};
use sci_sim::nic::{Counters, PlannedError, PlannedStatus, Sisci, Virtual};

/// Programs that poll for ever end here, in nanoseconds.
const DEADLINE: f64 = 1e9;

/// So many ranks on the published machine.
pub(crate) fn machine(ranks: u32) -> SciConfig {
    SciConfig { deadline_ns: DEADLINE, ..sci_sim::fitting(ranks) }
}

/// Two ranks, and an error in one of the lines that rank 0 stores.
pub(crate) fn with_error(line: u64, status: PlannedStatus, lands: bool) -> SciConfig {
    let node = NodeMap::consecutive(2).node(0).unwrap();
    let mut machine = machine(2);
    machine.errors.planned = vec![PlannedError { node, line, status, lands }];
    machine
}

pub(crate) fn pattern(number: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + number as usize * 13) as u8).collect()
}

/// What a rank has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Handlers that ran, by message.
    pub(crate) runs: Vec<u32>,
    pub(crate) replies: Vec<u32>,
    pub(crate) wrong: Vec<String>,
}

/// Handlers whose messages carry their number and the length of their payload.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    pub(crate) ask: Request<(u32, u32)>,
    pub(crate) note: Request<(u32, u32)>,
}

fn check(seen: &mut Seen, what: &str, number: u32, payload: Payload<'_>) {
    let len = payload.len();
    if payload.to_vec() != pattern(number, len) {
        seen.wrong.push(format!("{what} {number}: {len} bytes are not those that were sent"));
    }
}

fn check_all(seen: &mut Seen, what: &str, number: u32, len: u32, payload: Payload<'_>) {
    if payload.len() != len as usize {
        seen.wrong.push(format!("{what} {number} has {} bytes instead of {len}", payload.len()));
    }
    check(seen, what, number, payload);
    seen.runs.push(number);
}

pub(crate) fn attach<T: Transport>(transport: T) -> Result<(Endpoint<T, Seen>, Table), String> {
    let mut handlers = Handlers::<Seen>::new();
    let back = |seen: &mut Seen, _: Address, number: u32, payload: Payload<'_>| {
        check(seen, "reply", number, payload);
        seen.replies.push(number);
    };
    let back: Reply<u32> = handlers.reply("back", back).unwrap();
    let ask = move |seen: &mut Seen, token: Token<'_>, (number, len): (u32, u32), bytes: Payload<'_>| {
        check_all(seen, "request", number, len, bytes);
        let answer = pattern(number, len as usize);
        let sent = match bytes.offset() {
            Some(at) => token.reply_long(back, number, &answer, at),
            None if len > 0 => token.reply_medium(back, number, &answer),
            None => token.reply(back, number),
        };
        sent.unwrap();
        // What is read after the reply has been handed over must still be the request's.
        check(seen, "request after its reply", number, bytes);
    };
    let ask = handlers.request("ask", ask).unwrap();
    let note = |seen: &mut Seen, _: Address, (number, len): (u32, u32), bytes: Payload<'_>| {
        check_all(seen, "note", number, len, bytes);
    };
    let note = handlers.one_way("note", note).unwrap();
    let endpoint = Endpoint::attach(transport, handlers, Seen::default()).map_err(|error| error.to_string())?;
    Ok((endpoint, Table { ask, note }))
}

/// Sizes of the Medium messages: none, one line, two, the largest.
const SIZES: [usize; 4] = [0, 1, 100, 944];
/// Where Long payloads go: a place for each, off every alignment.
const PLACE: u64 = 4099;
const LONG: usize = 3000;

/// One rank's part of the exchange.
///
/// # Errors
/// What it saw wrong first.
pub(crate) fn exchange<T: Transport, C>(transport: T, counts: impl Fn(&T) -> C) -> Result<C, String> {
    let failed = |error: SendError| error.to_string();
    let (mut endpoint, table) = attach(transport)?;
    let (mut number, mut asked) = (0, Vec::new());
    if endpoint.rank() == Rank(0) {
        for (index, len) in SIZES.into_iter().enumerate() {
            for _ in 0..2 {
                let bytes = pattern(number, len);
                endpoint.request_medium(Rank(1), table.ask, (number, len as u32), &bytes).map_err(failed)?;
                asked.push(number);
                number += 1;
            }
            let (bytes, place) = (pattern(number, LONG), PLACE + 3072 * index as u64);
            endpoint.request_long(Rank(1), table.ask, (number, LONG as u32), &bytes, place).map_err(failed)?;
            asked.push(number);
            let note = (number + 1, 200);
            endpoint.request_medium(Rank(1), table.note, note, &pattern(note.0, 200)).map_err(failed)?;
            number += 2;
        }
        let count = asked.len();
        endpoint.wait_until(|seen| seen.replies.len() >= count).map_err(|error| error.to_string())?;
        endpoint.drain().map_err(|error| error.to_string())?;
    }
    endpoint.barrier().map_err(|error| error.to_string())?;
    let counted = counts(endpoint.transport());
    let rank = endpoint.rank();
    let mut seen = endpoint.finish().map_err(|error| error.to_string())?;
    if let Some(wrong) = seen.wrong.first() {
        return Err(format!("payload: {wrong}"));
    }
    seen.runs.sort_unstable();
    seen.replies.sort_unstable();
    if rank == Rank(1) && seen.runs != (0..4 * SIZES.len() as u32).collect::<Vec<_>>() {
        return Err(format!("handlers that ran: {:?}", seen.runs));
    }
    if rank == Rank(0) && seen.replies != asked {
        return Err(format!("replies: {:?}", seen.replies));
    }
    Ok(counted)
}

/// What conduit and interface of a rank have counted.
pub(crate) type Counted = (Counts, Counters);

/// Plays the exchange; the counts of both ranks.
///
/// # Errors
/// What went wrong first.
pub(crate) fn play(machine: &SciConfig, conduit: &ConduitConfig) -> Result<Vec<Counted>, String> {
    let counted = |transport: &Conduit<Virtual<'_>>| (transport.counts(), transport.nic().counters());
    let outcome = conduit::run(machine, conduit, move |transport| exchange(transport, counted));
    let report: Report<_> = outcome.map_err(|error| match error {
        RunError::Deadlock(_) => "deadlock".into(),
        RunError::DeadlineMissed(_) => "no end".into(),
        error => error.to_string(),
    })?;
    let results: Vec<Result<_, String>> = report.results.into_iter().flatten().collect();
    // Who fails because another has left tells less than that one.
    let follows = |error: &String| error.contains("left without finishing");
    let errors = results.iter().filter_map(|result| result.as_ref().err());
    match errors.min_by_key(|error| follows(error)) {
        Some(error) => Err(error.clone()),
        None => results.into_iter().collect(),
    }
}

//! Exchanges between two neighbouring nodes, on the raw interface and on the conduit. Each function runs a
//! simulation and tells virtual time: half of a round trip, unless it says otherwise.

use active_messages::{Address, Endpoint, Handlers, Payload, Rank, Reply, Request, Span, Token, Transport, Words};
use fabric_sim::{Report, RunError, WaitFor};
use sci_sim::conduit::{self, ConduitConfig};
use sci_sim::nic::{Code, Flags, NodeId, SegmentId, Sisci, Virtual};
use sci_sim::{self, SciConfig};
use std::error::Error;

/// Round trips that are timed, after one that is not.
const TRIPS: u32 = 4;

/// The segment that both export.
const SEGMENT: SegmentId = SegmentId(1);

/// How long a connection may take.
const PATIENCE: Span = Span::from_millis(1);

/// Which kind of active message carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// None but its arguments.
    Short,
    /// A payload in the message.
    Medium,
    /// A payload in the segment.
    Long,
}

/// How bytes are moved on the raw interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Stored by the processor.
    Stores,
    /// Moved by the DMA engine, multiples of 64 bytes.
    Dma,
}

/// Half a round trip of so many bytes, from the first store until the last byte has landed.
///
/// # Errors
/// As [`sci_sim::run`].
pub fn raw(machine: &SciConfig, way: Way, bytes: usize) -> Result<Span, RunError> {
    let report =
        sci_sim::run(machine, move |nic| raw_rank(&nic, way, bytes).expect("the interface refuses nothing"))?;
    Ok(first(report))
}

fn raw_rank(nic: &Virtual<'_>, way: Way, bytes: usize) -> Result<Span, Code> {
    let bytes = bytes.max(1);
    let size = bytes.next_multiple_of(64);
    let session = nic.open()?;
    let export = |id| {
        let segment = nic.create_segment(&session, id, size, Flags::NONE)?;
        nic.prepare_segment(&segment)?;
        nic.set_available(&segment)?;
        Ok::<_, Code>(segment)
    };
    let (mine, source) = (export(SEGMENT)?, export(SegmentId(2))?);
    let (own, from) = (nic.map_local(&mine, 0, size)?, nic.map_local(&source, 0, size)?);
    let last = bytes - 1;
    nic.watch(&own, last)?;
    let peer = connect(nic, &session, nic.nodes()[1 - nic.rank() as usize])?;
    let there = nic.map_remote(&peer, 0, size)?;
    let payload = vec![0x5a; bytes];
    active_messages::segment::Memory::store(&nic.memory(&from), 0, &payload);
    let mut queue = nic.create_dma_queue(&session, 1)?;
    let mut send = || match way {
        Way::Stores => nic.store(&there, 0, &payload).map(|()| nic.flush()),
        Way::Dma => {
            nic.enqueue(&mut queue, &source, 0, &peer, 0, size)?;
            nic.post(&mut queue)?;
            nic.wait_for_dma_queue(&mut queue, None)?;
            nic.reset(&mut queue)
        }
    };
    let receive = || {
        while nic.take_flag(&own, last) == 0 {
            nic.idle(None, WaitFor::Named("the last byte"));
        }
    };
    let mut began = nic.now();
    for trip in 0..=TRIPS {
        if trip == 1 {
            began = nic.now();
        }
        if nic.rank() == 0 {
            send()?;
            receive();
        } else {
            receive();
            send()?;
        }
    }
    Ok(Span(nic.now().since(began).0 / u64::from(2 * TRIPS)))
}

fn connect(
    nic: &Virtual<'_>,
    session: &<Virtual<'_> as Sisci>::Descriptor,
    node: NodeId,
) -> Result<<Virtual<'static> as Sisci>::RemoteSegment, Code> {
    loop {
        match nic.connect_segment(session, node, SEGMENT, PATIENCE, Flags::NONE) {
            // The other side has not come so far yet.
            Err(Code::NoSuchSegment | Code::ConnectionRefused) => nic.charge(PATIENCE),
            other => return other,
        }
    }
}

/// The time of reading so many bytes from the other node.
///
/// # Errors
/// As [`sci_sim::run`].
pub fn read(machine: &SciConfig, bytes: usize) -> Result<Span, RunError> {
    let report = sci_sim::run(machine, move |nic| read_rank(&nic, bytes).expect("the interface refuses nothing"))?;
    Ok(first(report))
}

fn read_rank(nic: &Virtual<'_>, bytes: usize) -> Result<Span, Code> {
    let size = bytes.next_multiple_of(64);
    let session = nic.open()?;
    let segment = nic.create_segment(&session, SEGMENT, size, Flags::NONE)?;
    nic.prepare_segment(&segment)?;
    nic.set_available(&segment)?;
    let peer = connect(nic, &session, nic.nodes()[1 - nic.rank() as usize])?;
    let there = nic.map_remote(&peer, 0, size)?;
    let mut into = vec![0; bytes];
    let began = nic.now();
    if nic.rank() == 0 {
        nic.read_remote(&there, 0, &mut into)?;
    }
    Ok(nic.now().since(began))
}

/// Half a round trip of active messages of one kind with sixteen arguments, answered in kind: so the header has 72
/// bytes, two lines, or 80 in a Long message.
///
/// # Errors
/// As [`conduit::run`].
pub fn messages(machine: &SciConfig, config: &ConduitConfig, kind: Kind, bytes: usize) -> Result<Span, RunError> {
    let config = ConduitConfig { segment: config.segment.max(bytes as u64), ..config.clone() };
    let report = conduit::run(machine, &config, move |transport| {
        answered(transport, kind, bytes).unwrap_or_else(|error| panic!("a rank of the ping-pong: {error}"))
    })?;
    Ok(first(report))
}

#[derive(Clone, Copy)]
struct Pings {
    short: Request<Words>,
    medium: Request<Words>,
    long: Request<Words>,
}

/// What the handlers work on: the answers that have come, and the payload of answers.
struct State {
    answers: u32,
    payload: Vec<u8>,
}

fn register(handlers: &mut Handlers<State>) -> Result<Pings, Box<dyn Error>> {
    let pong: Reply<Words> =
        handlers.reply("pong", |state: &mut State, _: Address, _: Words, _: Payload<'_>| state.answers += 1)?;
    let short = move |_: &mut State, token: Token<'_>, words: Words, _: Payload<'_>| {
        token.reply(pong, words).expect("the asker waits");
    };
    let medium = move |state: &mut State, token: Token<'_>, words: Words, payload: Payload<'_>| {
        token.reply_medium(pong, words, &state.payload[..payload.len()]).expect("the asker waits");
    };
    let long = move |state: &mut State, token: Token<'_>, words: Words, payload: Payload<'_>| {
        token.reply_long(pong, words, &state.payload[..payload.len()], 0).expect("the asker waits");
    };
    Ok(Pings {
        short: handlers.request("short", short)?,
        medium: handlers.request("medium", medium)?,
        long: handlers.request("long", long)?,
    })
}

/// One rank of a ping-pong on any transport.
fn answered<T: Transport>(transport: T, kind: Kind, bytes: usize) -> Result<Span, Box<dyn Error>> {
    let mut handlers = Handlers::new();
    let pings = register(&mut handlers)?;
    let payload = vec![0x5a; bytes];
    let mut endpoint = Endpoint::attach(transport, handlers, State { answers: 0, payload: payload.clone() })?;
    let words = Words::from_slice(&[7; 16])?;
    let mut half = Span::ZERO;
    if endpoint.rank() == Rank(0) {
        let mut began = endpoint.now();
        for trip in 0..=TRIPS {
            if trip == 1 {
                began = endpoint.now();
            }
            match kind {
                Kind::Short => endpoint.request(Rank(1), pings.short, words)?,
                Kind::Medium => endpoint.request_medium(Rank(1), pings.medium, words, &payload)?,
                Kind::Long => endpoint.request_long(Rank(1), pings.long, words, &payload, 0)?,
            }
            endpoint.wait_until(|state| state.answers == trip + 1)?;
        }
        half = Span(endpoint.now().since(began).0 / u64::from(2 * TRIPS));
    }
    endpoint.finish()?;
    Ok(half)
}

/// The time between two one-way Medium messages of a stream.
///
/// # Errors
/// As [`conduit::run`].
pub fn stream(machine: &SciConfig, config: &ConduitConfig, bytes: usize, count: u32) -> Result<Span, RunError> {
    let report = conduit::run(machine, config, move |transport| {
        streamed(transport, bytes, count).unwrap_or_else(|error| panic!("a rank of the stream: {error}"))
    })?;
    Ok(first(report))
}

fn streamed<T: Transport>(transport: T, bytes: usize, count: u32) -> Result<Span, Box<dyn Error>> {
    let mut handlers = Handlers::<()>::new();
    let note: Request<u64> = handlers.one_way("note", |(): &mut (), _: Address, _: u64, _: Payload<'_>| ())?;
    let mut endpoint = Endpoint::attach(transport, handlers, ())?;
    let (payload, began) = (vec![0x5a; bytes], endpoint.now());
    if endpoint.rank() == Rank(0) {
        for number in 0..count {
            endpoint.request_medium(Rank(1), note, number.into(), &payload)?;
        }
        endpoint.drain()?;
    }
    let each = Span(endpoint.now().since(began).0 / u64::from(count));
    endpoint.finish()?;
    Ok(each)
}

/// What rank 0 tells.
fn first(report: Report<Span>) -> Span {
    report.results.into_iter().flatten().next().unwrap_or_default()
}

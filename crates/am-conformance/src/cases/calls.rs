//! Item 24, calls: every rank makes calls that the seed draws, to all ranks and of all kinds, some of which it
//! drops or gives little time; settings differ from rank to rank. A model that knows no network says how each call
//! may end, and how often each rank must have received each request.

use crate::random::{mix, pattern};
use crate::world::{Failure, Findings, Verdict, World, ensure, equal};
use am_async::{
    Answers, Busy, Call, CallConfig, CallEndpoint, CallError, Callable, Calls, Context, Method, Methods,
    SliceMethod, StreamMethod,
};
use am_core::{Endpoint, Handlers, Rank, Span, Transport};
use std::panic::resume_unwind;

type Text = am_async::Failure;

/// No request or answer is longer.
const LONGEST: u32 = 6000;

/// What the methods work on.
#[derive(Default)]
struct Log {
    /// How often the request with this number has been received.
    received: Vec<u32>,
    findings: Findings,
    handles: Option<Handles>,
}

impl Log {
    /// Notes a request and its bytes.
    fn note(&mut self, number: u32, bytes: &[u8]) {
        let place = number as usize;
        if self.received.len() <= place {
            self.received.resize(place + 1, 0);
        }
        self.received[place] += 1;
        self.findings.equal("bytes of a request", bytes == asked(number, bytes.len()), true);
    }
}

/// A request: its number, the length of its answer, and bytes.
type Ask = (u32, u32, Vec<u8>);

#[derive(Clone, Copy)]
struct Handles {
    echo: Method<Ask, Vec<u8>>,
    later: Method<Ask, Vec<u8>>,
    relay: Method<(u32, Ask), Vec<u8>>,
    fails: Method<u32, (), u64>,
    panics: Method<u32, ()>,
    panics_later: Method<u32, ()>,
    never: Method<u32, ()>,
    slices: SliceMethod<u32, u32>,
    stream: StreamMethod<(u32, u32), Vec<u8>>,
    stream_panics: StreamMethod<(u32, u32), Vec<u8>>,
    counts: Method<Vec<u32>, Vec<u32>>,
}

fn asked(number: u32, len: usize) -> Vec<u8> {
    pattern(mix(&[24, number.into()]), len)
}

fn answered(number: u32, len: usize) -> Vec<u8> {
    pattern(mix(&[42, number.into()]), len)
}

/// An answer of a stream: some are longer than a message of most transports.
fn item_of(number: u32, item: u32) -> Vec<u8> {
    let len = if item % 5 == 1 { 700 * (1 + number as usize % 4) } else { item as usize % 20 };
    answered(number ^ item, len)
}

/// Ends an `async` method, whose request is noted: at once, after a sleep, or while the state is lent to it.
async fn panic_in(context: &Context<Log>, number: u32) {
    match number % 3 {
        0 => panic_with(number),
        1 => {
            context.sleep(Span::from_nanos(200)).await;
            panic_with(number)
        }
        _ => context.with(|_| panic_with(number)),
    }
}

/// As a panic, without the message that one prints.
fn panic_with(number: u32) {
    resume_unwind(Box::new(number.to_string()))
}

fn methods() -> Result<(Methods<Log>, Handles), Failure> {
    let mut methods = Methods::<Log>::new();
    let echo = methods.function("echo", |log: &mut Log, _, (number, len, bytes): Ask| {
        log.note(number, &bytes);
        Ok(answered(number, len as usize))
    })?;
    let later = methods.asynchronous("later", |context: Context<Log>, (number, len, bytes): Ask| async move {
        context.with(|log| log.note(number, &bytes));
        context.sleep(Span::from_nanos(u64::from(len) % 1000)).await;
        Ok(answered(number, len as usize))
    })?;
    let relay = methods.asynchronous("relay", |context: Context<Log>, (to, ask): (u32, Ask)| async move {
        let echo = context.with(|log| log.handles.expect("set before anything is called").echo);
        Ok(context.call(Rank(to), echo, &ask).await?)
    })?;
    let fails = methods.function("fails", |log: &mut Log, _, number: u32| {
        log.note(number, &[]);
        Err::<(), _>(u64::from(number) << 8)
    })?;
    let panics = methods.function("panics", |log: &mut Log, _, number: u32| -> Result<(), Text> {
        log.note(number, &[]);
        panic_with(number);
        Ok(())
    })?;
    let panics_later = methods.asynchronous("panics later", |context: Context<Log>, number: u32| {
        context.with(|log| log.note(number, &[]));
        if number.is_multiple_of(4) {
            // Before there is a future.
            panic_with(number);
        }
        async move {
            panic_in(&context, number).await;
            Ok::<(), Text>(())
        }
    })?;
    let never = methods.asynchronous("never", |context: Context<Log>, number: u32| async move {
        context.with(|log| log.note(number, &[]));
        std::future::pending::<Result<(), Text>>().await
    })?;
    let slices = methods.slices("slices", |log: &mut Log, _, values: &[u32], answer| {
        let Some((number, rest)) = values.split_first() else { return Err(Text::new("no number")) };
        log.note(*number, &[]);
        answer.extend(rest.iter().map(|value| value ^ number));
        Ok(())
    })?;
    let stream =
        methods.stream("stream", |context: Context<Log>, (number, count): (u32, u32), mut sink| async move {
            context.with(|log| log.note(number, &[]));
            for item in 0..count {
                if item % 5 == 3 {
                    context.sleep(Span::from_nanos(300)).await;
                }
                sink.send(&item_of(number, item)).await?;
            }
            if count % 4 == 3 { Err(Text::new("at its end")) } else { Ok(()) }
        })?;
    let stream_panics = methods.stream(
        "stream panics",
        |context: Context<Log>, (number, count): (u32, u32), mut sink| async move {
            context.with(|log| log.note(number, &[]));
            for item in 0..count {
                sink.send(&item_of(number, item)).await?;
            }
            panic_in(&context, number).await;
            Ok::<(), Text>(())
        },
    )?;
    let counts = methods.function("counts", |log: &mut Log, _, numbers: Vec<u32>| {
        Ok(numbers.iter().map(|number| log.received.get(*number as usize).copied().unwrap_or(0)).collect())
    })?;
    let handles =
        Handles { echo, later, relay, fails, panics, panics_later, never, slices, stream, stream_panics, counts };
    Ok((methods, handles))
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Check(format!("call: {error}"))
    }
}

type Ranks<T> = Endpoint<T, Calls<Log>>;

fn attach<T: Transport>(world: &World, transport: T, config: CallConfig) -> Result<(Ranks<T>, Handles), Failure> {
    let (methods, handles) = methods()?;
    let mut table = Handlers::new();
    let log = Log { handles: Some(handles), ..Log::default() };
    let calls = Calls::register_with(&mut table, methods, log, config)?;
    Ok((world.attach(transport, table, calls)?, handles))
}

/// How a call may end, and how often its request may have been received by then.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Received {
    Once,
    AtMostOnce,
    Never,
}

/// What becomes of a call at its caller.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Awaited,
    /// Made only if it need not wait for others.
    Tried,
    Hurried,
    Dropped,
    Unanswered,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Echo,
    Later,
    Relay { over: u32 },
    Fails,
    Panics,
    PanicsLater,
    Never,
    Slices,
    Stream { count: u32 },
    StreamPanics { count: u32 },
    TooLong,
}

#[derive(Clone, Copy)]
struct Planned {
    number: u32,
    to: Rank,
    kind: Kind,
    way: Way,
    bytes: usize,
    answer: u32,
}

impl Planned {
    /// The rank that this one's call goes to.
    fn callee(&self) -> Rank {
        match self.kind {
            Kind::Relay { over } => Rank(over),
            _ => self.to,
        }
    }
}

/// The calls of a rank, each with a number of its own.
fn plan(world: &World, ranks: u32, me: u32, calls: u32) -> Vec<Planned> {
    let tight = is_tight(world);
    let mut random = world.random(0x2400 + u64::from(me));
    let mut length = {
        let lens = [0, 1, 7, 40, 64, 100, 900, 1500, 5000];
        let mut random = world.random(0x2500 + u64::from(me));
        move || lens[random.below(lens.len() as u64) as usize]
    };
    let draw = |index| {
        let to = Rank(random.below(ranks.into()) as u32);
        let kind = match random.below(22) {
            0..=5 => Kind::Echo,
            6..=9 => Kind::Later,
            10 | 11 if !tight => Kind::Relay { over: random.below(ranks.into()) as u32 },
            12 => Kind::Fails,
            13 => Kind::Panics,
            14 => Kind::Never,
            10 | 11 | 15 | 16 => Kind::Slices,
            17 | 18 => Kind::Stream { count: random.below(12) as u32 },
            19 => Kind::PanicsLater,
            20 => Kind::StreamPanics { count: random.below(8) as u32 },
            _ => Kind::TooLong,
        };
        let way = match (random.below(8), kind) {
            // What never answers is not waited for.
            (0..=3, Kind::Never) => Way::Hurried,
            (_, Kind::Never) | (0, _) => Way::Dropped,
            (1, _) => Way::Hurried,
            (2, Kind::Echo | Kind::Later) => Way::Unanswered,
            (3 | 4, Kind::Echo | Kind::Later | Kind::Fails | Kind::Slices) => Way::Tried,
            _ => Way::Awaited,
        };
        Planned { number: me * calls + index, to, kind, way, bytes: length(), answer: length() as u32 }
    };
    (0..calls).map(draw).collect()
}

/// Whether few calls may be under way. Then no method calls, and calls are ended as they were begun.
fn is_tight(world: &World) -> bool {
    world.random(0x2800).below(2) == 0
}

/// A rank's settings: they differ.
fn settings(world: &World, me: u32) -> CallConfig {
    let mut random = world.random(0x2600 + u64::from(me));
    let mut one = |of: &[u32]| of[random.below(of.len() as u64) as usize];
    let (per_peer, all) = if is_tight(world) { (one(&[1, 4]), one(&[2, 8192])) } else { (1024, 8192) };
    let config = CallConfig::new().calls_per_peer(per_peer).calls(all);
    let config = config.tasks(one(&[3, 4096])).receive_bytes(one(&[1, 8000, 1 << 20]).into());
    config.stream_window(one(&[1, 3, 32])).max_bytes(LONGEST)
}

/// What the model knows when a call is tried: how many calls to its callee, and in all, may be under way.
#[derive(Clone, Copy)]
struct Before {
    config: CallConfig,
    to_callee: usize,
    all: usize,
}

impl Before {
    /// A call that was tried, or why it would wait.
    fn made<M: Callable<Error: std::fmt::Debug>>(
        self,
        made: Result<Call<M>, CallError<M::Error>>,
        pending: fn(Call<M>) -> Pending,
    ) -> Result<Pending, Failure> {
        let right = match &made {
            Err(CallError::Busy { why: Busy::Peer { limit }, .. }) => {
                *limit == self.config.calls_per_peer && self.to_callee >= *limit as usize
            }
            Err(CallError::Busy { why: Busy::All { limit }, .. }) => {
                *limit == self.config.calls && self.all >= *limit as usize
            }
            made => made.is_ok(),
        };
        let Self { to_callee, all, .. } = self;
        ensure(right, || format!("tried with {to_callee} calls to the callee, {all} in all: {made:?}"))?;
        Ok(made.map_or(Pending::Denied, pending))
    }
}

/// A call under way.
enum Pending {
    Bytes(Call<Method<Ask, Vec<u8>>>),
    Relayed(Call<Method<(u32, Ask), Vec<u8>>>),
    Nothing(Call<Method<u32, (), u64>>),
    Unit(Call<Method<u32, ()>>),
    Values(Call<SliceMethod<u32, u32>>),
    Stream(Answers<Vec<u8>, Text>),
    Sent,
    Denied,
}

fn begin<T: Transport>(
    endpoint: &mut Ranks<T>,
    handles: Handles,
    planned: &Planned,
    before: Before,
) -> Result<Pending, Failure> {
    let Planned { number, to, kind, way, bytes, answer } = *planned;
    let mut caller = endpoint.caller();
    if way == Way::Hurried {
        caller = caller.timeout(Span::from_nanos(mix(&[number.into()]) % 20_000));
    }
    let ask: Ask = (number, answer, asked(number, bytes));
    let values = || -> Vec<u32> { std::iter::once(number).chain(0..bytes as u32 / 8).collect() };
    if way == Way::Tried {
        return match kind {
            Kind::Echo => before.made(caller.try_call(to, handles.echo, &ask), Pending::Bytes),
            Kind::Later => before.made(caller.try_call(to, handles.later, &ask), Pending::Bytes),
            Kind::Slices => before.made(caller.try_call(to, handles.slices, &values()), Pending::Values),
            _ => before.made(caller.try_call(to, handles.fails, &number), Pending::Nothing),
        };
    }
    Ok(match kind {
        Kind::Echo if way == Way::Unanswered => {
            caller.one_way(to, handles.echo, &ask)?;
            Pending::Sent
        }
        Kind::Later if way == Way::Unanswered => {
            caller.one_way(to, handles.later, &ask)?;
            Pending::Sent
        }
        Kind::Echo => Pending::Bytes(caller.call(to, handles.echo, &ask)),
        Kind::Later => Pending::Bytes(caller.call(to, handles.later, &ask)),
        Kind::Relay { over } => Pending::Relayed(caller.call(Rank(over), handles.relay, &(to.0, ask))),
        Kind::Fails => Pending::Nothing(caller.call(to, handles.fails, &number)),
        Kind::Panics => Pending::Unit(caller.call(to, handles.panics, &number)),
        Kind::PanicsLater => Pending::Unit(caller.call(to, handles.panics_later, &number)),
        Kind::Never => Pending::Unit(caller.call(to, handles.never, &number)),
        Kind::Slices => {
            // The endpoint's own calls of long slices take another way.
            let hurried = way == Way::Hurried;
            Pending::Values(if hurried {
                caller.call(to, handles.slices, &values())
            } else {
                endpoint.call(to, handles.slices, &values())
            })
        }
        Kind::Stream { count } => Pending::Stream(caller.stream(to, handles.stream, &(number, count))),
        Kind::StreamPanics { count } => {
            Pending::Stream(caller.stream(to, handles.stream_panics, &(number, count)))
        }
        Kind::TooLong => {
            Pending::Bytes(caller.call(to, handles.echo, &(number, answer, vec![0; LONGEST as usize])))
        }
    })
}

/// Judges an end that is no answer.
fn failed<E: std::fmt::Debug>(planned: &Planned, error: &CallError<E>) -> Result<Received, Failure> {
    let Planned { number, kind, way, .. } = *planned;
    match error {
        CallError::TimedOut { .. } if way == Way::Hurried => Ok(Received::AtMostOnce),
        CallError::Refused { .. } if !matches!(kind, Kind::Fails | Kind::Panics | Kind::TooLong) => {
            Ok(Received::Never)
        }
        CallError::RequestTooLarge { bytes, limit } if matches!(kind, Kind::TooLong) => {
            ensure(bytes > limit && *limit == LONGEST.into(), || format!("call {number}: {bytes} > {limit}"))?;
            Ok(Received::Never)
        }
        error => Err(Failure::Check(format!("call {number}, {kind:?}: it ended with {error:?}"))),
    }
}

/// Waits for a call as it was planned, and compares what it answers with what the model says.
fn end<T: Transport>(endpoint: &mut Ranks<T>, planned: &Planned, pending: Pending) -> Result<Received, Failure> {
    let Planned { number, kind, way, bytes, answer, .. } = *planned;
    let what = || format!("the answer of call {number}, {kind:?}");
    match (way, pending) {
        (Way::Dropped, _) => Ok(Received::AtMostOnce),
        // It may be on its way, or refused, which nobody tells.
        (_, Pending::Sent) => Ok(Received::AtMostOnce),
        (_, Pending::Denied) => Ok(Received::Never),
        (_, Pending::Bytes(call)) => match call.wait(endpoint) {
            Ok(found) => {
                ensure(found == answered(number, answer as usize), what)?;
                Ok(Received::Once)
            }
            Err(error) => failed(planned, &error),
        },
        (_, Pending::Relayed(call)) => match call.wait(endpoint) {
            Ok(found) => {
                ensure(found == answered(number, answer as usize), what)?;
                Ok(Received::Once)
            }
            // The relay tells the text of what its own call ended with.
            Err(CallError::Failed(text)) if text.0.contains("refused the request") => Ok(Received::Never),
            Err(CallError::Failed(text)) if way == Way::Hurried && text.0.contains("in time") => {
                Ok(Received::AtMostOnce)
            }
            Err(error) => failed(planned, &error),
        },
        (_, Pending::Nothing(call)) => match call.wait(endpoint) {
            Err(CallError::Failed(code)) => {
                equal("the error of a call", code, u64::from(number) << 8)?;
                Ok(Received::Once)
            }
            Err(error) => failed(planned, &error),
            Ok(()) => Err(Failure::Check(what())),
        },
        (_, Pending::Unit(call)) => match call.wait(endpoint) {
            Err(CallError::Panicked { text, .. }) if matches!(kind, Kind::Panics | Kind::PanicsLater) => {
                equal("the text of a panic", text, number.to_string())?;
                Ok(Received::Once)
            }
            Err(error) => failed(planned, &error),
            Ok(()) => Err(Failure::Check(what())),
        },
        (_, Pending::Values(call)) => match call.wait(endpoint) {
            Ok(found) => {
                let expected: Vec<u32> = (0..bytes as u32 / 8).map(|value| value ^ number).collect();
                ensure(found == expected, what)?;
                Ok(Received::Once)
            }
            Err(error) => failed(planned, &error),
        },
        (_, Pending::Stream(mut answers)) => {
            let (count, panics) = match kind {
                Kind::Stream { count } => (count, false),
                Kind::StreamPanics { count } => (count, true),
                _ => return Err(Failure::Check(what())),
            };
            for item in 0..count {
                match answers.wait_next(endpoint) {
                    Some(Ok(found)) => ensure(found == item_of(number, item), what)?,
                    Some(Err(error)) => return failed(planned, &error),
                    None => return Err(Failure::Check(format!("{}: it ended after {item}", what()))),
                }
            }
            match answers.wait_next(endpoint) {
                None if !panics && count % 4 != 3 => Ok(Received::Once),
                Some(Err(CallError::Failed(_))) if !panics && count % 4 == 3 => Ok(Received::Once),
                Some(Err(CallError::Panicked { text, .. })) if panics => {
                    equal("the text of a panic", text, number.to_string())?;
                    ensure(answers.wait_next(endpoint).is_none(), || format!("{}: it goes on", what()))?;
                    Ok(Received::Once)
                }
                Some(Err(error)) => failed(planned, &error),
                _ => Err(Failure::Check(format!("{}: it did not end as it should", what()))),
            }
        }
    }
}

/// Asks a rank how often it has received requests.
fn counts<T: Transport>(
    endpoint: &mut Ranks<T>,
    handles: Handles,
    of: Rank,
    numbers: &Vec<u32>,
) -> Result<Vec<u32>, Failure> {
    loop {
        match endpoint.call(of, handles.counts, numbers).wait(endpoint) {
            Ok(counts) => return Ok(counts),
            // Its answer may be long.
            Err(CallError::Refused { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Calls of all kinds against the model.
pub(super) fn modelled<T: Transport>(world: &World, transport: T) -> Verdict {
    let me = transport.shape().address(transport.local_peer()).rank;
    let (mut endpoint, handles) = attach(world, transport, settings(world, me.0))?;
    let ranks = endpoint.ranks();
    let calls = world.count(40, 400);
    let planned = plan(world, ranks, me.0, calls);
    let mut random = world.random(0x2700 + u64::from(me.0));
    let (mut under_way, mut ends, mut unanswered) = (Vec::<(&Planned, Pending)>::new(), Vec::new(), 0);
    for call in &planned {
        let to_callee = under_way.iter().filter(|(other, _)| other.callee() == call.callee()).count();
        // What nobody answers ends when it has been sent, of which nobody hears.
        let (to_callee, all) = (to_callee + unanswered, under_way.len() + unanswered);
        let before = Before { config: settings(world, me.0), to_callee, all };
        let pending = begin(&mut endpoint, handles, call, before)?;
        unanswered += usize::from(call.way == Way::Unanswered);
        let streams = matches!(call.kind, Kind::Stream { .. } | Kind::StreamPanics { .. });
        if is_tight(world) && (call.way == Way::Dropped || streams) {
            // What nobody takes, or ends, would keep the others waiting.
            ends.push((call, end(&mut endpoint, call, pending)?));
            continue;
        }
        under_way.push((call, pending));
        // Now and then some are ended, in any order, or something is polled for.
        match random.below(6) {
            0 | 1 if !under_way.is_empty() => {
                let any = random.below(under_way.len() as u64) as usize;
                let (call, pending) = under_way.remove(if is_tight(world) { 0 } else { any });
                ends.push((call, end(&mut endpoint, call, pending)?));
            }
            2 => {
                endpoint.poll()?;
            }
            _ => {}
        }
    }
    for (call, pending) in under_way {
        ends.push((call, end(&mut endpoint, call, pending)?));
    }
    for to in 0..ranks {
        let (numbers, due): (Vec<u32>, Vec<(Kind, Received)>) = ends
            .iter()
            .filter(|(call, _)| call.to == Rank(to))
            .map(|(call, end)| (call.number, (call.kind, *end)))
            .unzip();
        let found = counts(&mut endpoint, handles, Rank(to), &numbers)?;
        for ((number, found), (kind, due)) in numbers.iter().zip(found).zip(due) {
            let ok = match due {
                Received::Once => found == 1,
                Received::AtMostOnce => found <= 1,
                Received::Never => found == 0,
            };
            ensure(ok, || format!("call {number}, {kind:?}, was received {found} times, which is to be {due:?}"))?;
        }
    }
    one_way_calls_arrive(world, &mut endpoint, handles)?;
    // What was dropped, or was too late, is no longer worked on, neither by methods nor by those that they call.
    for _ in 0..2 {
        endpoint.wait_until(|calls| calls.tasks() == 0)?;
        endpoint.drain()?;
        endpoint.barrier()?;
    }
    let caller = endpoint.caller();
    equal("calls that are held in the end", (caller.held(), caller.under_way()), (0, 0))?;
    let mut calls = endpoint.finish()?;
    std::mem::take(&mut calls.world_mut().findings).verdict()
}

/// One-way calls of functions are received, once each, whatever their length.
fn one_way_calls_arrive<T: Transport>(world: &World, endpoint: &mut Ranks<T>, handles: Handles) -> Verdict {
    const FIRST: u32 = 1 << 16;
    endpoint.wait_until(|calls| calls.tasks() == 0)?;
    endpoint.barrier()?;
    let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
    let numbers: Vec<u32> = (0..6).map(|index| FIRST + me * 6 + index).collect();
    for to in 0..ranks {
        for (number, bytes) in numbers.iter().zip([0, 3, 60, 300, 2000, 5000]) {
            endpoint.caller().one_way(Rank(to), handles.echo, &(*number, 0, asked(*number, bytes)))?;
        }
        // Long ones come when there is room for them, which others may have before.
        let mut found = counts(endpoint, handles, Rank(to), &numbers)?;
        // A rank that works on few requests refuses long ones, which nobody tells.
        let exact = settings(world, to).tasks > 1000;
        for _ in 0..if exact { 10_000 } else { 0 } {
            if found.iter().all(|count| *count == 1) {
                break;
            }
            endpoint.run(|context| async move { context.sleep(Span::from_micros(20)).await })?;
            found = counts(endpoint, handles, Rank(to), &numbers)?;
        }
        let due = found.iter().map(|count| if exact { 1 } else { (*count).min(1) }).collect();
        equal("one-way calls received", found, due)?;
    }
    Ok(())
}

/// The last rank panics amid calls from and to everyone: calls to it fail and name it, what was worked on for it
/// is dropped, and the survivors' calls to each other go on.
pub(super) fn lost<T: Transport>(world: &World, transport: T) -> Verdict {
    let config = CallConfig::new().receive_bytes(10_000).max_bytes(1 << 20);
    let (mut endpoint, handles) = attach(world, transport, config)?;
    let (me, victim) = (endpoint.rank(), super::last(endpoint.shape()));
    let survivors = victim.0;
    if me == victim {
        let mut calls = Vec::new();
        for to in (0..survivors).map(Rank) {
            calls.extend((0..5).map(|_| endpoint.call(to, handles.never, &0)));
            // It is begun before the end.
            endpoint.call(to, handles.echo, &(2, 0, vec![])).wait(&mut endpoint)?;
        }
        endpoint.serve_until(|log| log.received.get(1) == Some(&survivors))?;
        crate::case::unwind();
    }
    let mut never: Vec<_> = (0..5).map(|_| endpoint.call(victim, handles.never, &0)).collect();
    let mut answers = endpoint.stream(victim, handles.stream, &(0, 1_000_000));
    ensure(matches!(answers.wait_next(&mut endpoint), Some(Ok(_))), || "the stream did not begin".into())?;
    endpoint.serve_until(|log| log.received.get(2) == Some(&1))?;
    equal("requests of the victim", endpoint.layer::<Calls<Log>>().tasks() >= 5, true)?;
    endpoint.caller().one_way(victim, handles.echo, &(1, 0, asked(1, 0)))?;
    // One that waits for room, or for its turn, or comes too late.
    let long = endpoint.call(victim, handles.later, &(3, 50_000, asked(3, 50_000)));
    let is_lost = |error: &CallError| match error {
        CallError::RankLost { rank, .. } => *rank == victim,
        _ => false,
    };
    match long.wait(&mut endpoint) {
        Ok(answer) => ensure(answer == answered(3, 50_000), || "another answer".into())?,
        Err(error) => ensure(is_lost(&error), || format!("a long call to a lost rank: {error}"))?,
    }
    for call in never.drain(..) {
        let outcome = call.wait(&mut endpoint);
        ensure(matches!(&outcome, Err(error) if is_lost(error)), || {
            format!("a call to a lost rank: {outcome:?}")
        })?;
    }
    loop {
        match answers.wait_next(&mut endpoint) {
            Some(Ok(_)) => {}
            Some(Err(error)) if is_lost(&error) => break,
            other => return ensure(false, || format!("a stream of a lost rank: {other:?}")),
        }
    }
    let late = endpoint.call(victim, handles.echo, &(4, 0, vec![])).wait(&mut endpoint);
    ensure(matches!(&late, Err(error) if is_lost(error)), || format!("a call to a lost rank: {late:?}"))?;
    equal("calls that are held", endpoint.caller().held(), 0)?;
    endpoint.acknowledge_loss(victim);
    // What the victim had asked for is dropped; the other survivors are served.
    endpoint.wait_until(|calls| calls.tasks() == 0)?;
    for to in (0..survivors).map(Rank) {
        let answer = endpoint.call(to, handles.later, &(5, 3000, asked(5, 3000))).wait(&mut endpoint)?;
        ensure(answer == answered(5, 3000), || "another answer of a survivor".into())?;
        endpoint.call(to, handles.echo, &(6, 0, vec![])).wait(&mut endpoint)?;
    }
    endpoint.serve_until(|log| log.received.get(6) == Some(&survivors))?;
    let findings = std::mem::take(&mut endpoint.layer_mut::<Calls<Log>>().world_mut().findings);
    endpoint.drain().map_err(Failure::Wait)?;
    endpoint.leave();
    findings.verdict()
}

//! Item 24, limits: every rank calls its right neighbour step by step, beyond the limits of callers, of callees
//! and of time. A list of what the neighbour is to have received, in order, grows with the steps; what is refused,
//! too long, tried in vain, or dropped before its turn is not in it.

use super::right;
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_async::{
    Busy, Call, CallConfig, CallEndpoint, CallError, Calls, Context, Failure as Text, Idempotent, Method, Methods,
    Refusal, Retries, StreamMethod,
};
use am_core::{Category, Endpoint, Handlers, Lane, Rank, Span, Transport};
use std::fmt::Debug;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Requests of methods that others call, or that are repeated, have numbers from here on: they are counted only.
const UNORDERED: u32 = 1000;

/// What the methods work on.
#[derive(Default)]
struct Log {
    received: Vec<u32>,
    /// Futures that have begun, and that are over.
    begun: u32,
    over: Arc<AtomicU32>,
    handles: Option<Handles>,
}

impl Log {
    fn count(&self, number: u32) -> u32 {
        self.received.iter().filter(|received| **received == number).count() as u32
    }

    /// Notes a request whose future begins.
    fn begin(&mut self, number: u32) -> Guard {
        self.received.push(number);
        self.begun += 1;
        Guard(Arc::clone(&self.over))
    }
}

/// Counts the future that holds it when that is dropped.
struct Guard(Arc<AtomicU32>);

impl Drop for Guard {
    fn drop(&mut self) {
        // Relaxed: the thread of the endpoint drops it, and asks.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy)]
struct Handles {
    note: Method<u32, u32>,
    long: Method<(u32, Vec<u8>), ()>,
    never: Method<u32, ()>,
    alone: Idempotent<Method<(u32, bool), u32>>,
    /// Answers the requests after so many.
    flaky: Idempotent<Method<(u32, u32), u32>>,
    fails: Idempotent<Method<u32, ()>>,
    panics: Idempotent<Method<u32, ()>>,
    /// The time left at each of these ranks, each of which calls the next one.
    left: Method<Vec<u32>, Vec<u64>>,
    /// Has a rank call another that never answers.
    pass: Method<(u32, u32), ()>,
    ticks: StreamMethod<u32, u32>,
    /// How often a number was received, futures begun, and those that are over.
    count: Method<u32, (u32, u32, u32)>,
}

fn methods() -> Result<(Methods<Log>, Handles), Failure> {
    let mut methods = Methods::<Log>::new();
    let note = methods.function("note", |log: &mut Log, _, number: u32| {
        log.received.push(number);
        Ok(number)
    })?;
    let long = methods.function("long", |log: &mut Log, _, (number, _): (u32, Vec<u8>)| {
        log.received.push(number);
        Ok(())
    })?;
    let never = methods.asynchronous("never", |context: Context<Log>, number: u32| async move {
        let _guard = context.with(|log| log.begin(number));
        std::future::pending::<Result<(), Text>>().await
    })?;
    let alone =
        methods.asynchronous("alone", |context: Context<Log>, (number, stays): (u32, bool)| async move {
            let _guard = context.with(|log| log.begin(number));
            if stays { std::future::pending().await } else { Ok(number) }
        })?;
    methods.limit(&alone, 1);
    let flaky =
        methods.asynchronous("flaky", |context: Context<Log>, (number, after): (u32, u32)| async move {
            let _guard = context.with(|log| log.begin(number));
            let attempts = context.with(|log| log.count(number));
            if attempts > after { Ok(attempts) } else { std::future::pending().await }
        })?;
    let fails = methods.function("fails", |log: &mut Log, _, number: u32| -> Result<(), Text> {
        log.received.push(number);
        Err(Text::new(number.to_string()))
    })?;
    let panics = methods.asynchronous("panics", |context: Context<Log>, number: u32| async move {
        let _guard = context.with(|log| log.begin(number));
        if number != 0 {
            // As a panic, without the message that one prints.
            resume_unwind(Box::new(number.to_string()));
        }
        Ok::<(), Text>(())
    })?;
    let left = methods.asynchronous("left", |context: Context<Log>, mut via: Vec<u32>| async move {
        let mut all = vec![context.origin().left.map_or(u64::MAX, |left| left.0)];
        if let Some(next) = via.pop() {
            let left = context.with(|log| log.handles.expect("set before anything is called").left);
            all.extend(context.call(Rank(next), left, &via).await?);
        }
        Ok::<_, Text>(all)
    })?;
    let pass = methods.asynchronous("pass", |context: Context<Log>, (number, to): (u32, u32)| async move {
        let (_guard, handles) = context.with(|log| (log.begin(number), log.handles));
        let never = handles.expect("set before anything is called").never;
        Ok::<(), Text>(context.call(Rank(to), never, &number).await?)
    })?;
    let ticks = methods.stream("ticks", |context: Context<Log>, number: u32, mut sink| async move {
        let _guard = context.with(|log| log.begin(number));
        for tick in 0.. {
            sink.send(&tick).await?;
        }
        Ok::<(), Text>(())
    })?;
    let count = methods.function("count", |log: &mut Log, _, number: u32| {
        Ok((log.count(number), log.begun, log.over.load(Ordering::Relaxed)))
    })?;
    let (alone, flaky) = (methods.idempotent(alone), methods.idempotent(flaky));
    let (fails, panics) = (methods.idempotent(fails), methods.idempotent(panics));
    let handles = Handles { note, long, never, alone, flaky, fails, panics, left, pass, ticks, count };
    Ok((methods, handles))
}

type Ranks<T> = Endpoint<T, Calls<Log>>;

/// A rank that calls its right neighbour.
struct Steps<T: Transport> {
    endpoint: Ranks<T>,
    handles: Handles,
    to: Rank,
    /// What the neighbour is to have received, in order; as this rank from its left one, which takes the same
    /// steps.
    due: Vec<u32>,
    /// Requests that this rank may work on at a time.
    tasks: u32,
}

impl<T: Transport> Steps<T> {
    fn new(world: &World, transport: T, config: CallConfig) -> Result<Self, Failure> {
        let (methods, handles) = methods()?;
        let mut table = Handlers::new();
        let log = Log { handles: Some(handles), ..Log::default() };
        let calls = Calls::register_with(&mut table, methods, log, config)?;
        let endpoint = world.attach(transport, table, calls)?;
        let to = right(endpoint.shape(), endpoint.rank());
        Ok(Self { endpoint, handles, to, due: Vec::new(), tasks: config.tasks })
    }

    /// Asks the neighbour how often it has received a number, begun futures, and ended them.
    fn count(&mut self, number: u32) -> Result<(u32, u32, u32), Failure> {
        let counts = self.endpoint.call(self.to, self.handles.count, &number).wait(&mut self.endpoint)?;
        let tasks = self.endpoint.layer::<Calls<Log>>().tasks();
        ensure(tasks <= self.tasks, || format!("this rank works on {tasks} requests, may on {}", self.tasks))?;
        Ok(counts)
    }

    /// Waits until the neighbour's counts are so.
    fn until(&mut self, what: &str, number: u32, is: impl Fn((u32, u32, u32)) -> bool) -> Verdict {
        for _ in 0..10_000 {
            let counts = self.count(number)?;
            if is(counts) {
                return Ok(());
            }
            self.pause(Span::from_micros(20))?;
        }
        let counts = self.count(number)?;
        ensure(false, || format!("{what}, {number}: received, begun, over are {counts:?}"))
    }

    fn pause(&mut self, span: Span) -> Verdict {
        self.endpoint.run(|context| async move { context.sleep(span).await }).map_err(Failure::Wait)
    }

    /// A call that the neighbour works on until it is dropped.
    fn hold(&mut self, number: u32) -> Result<Call<Method<u32, ()>>, Failure> {
        let call = self.endpoint.call(self.to, self.handles.never, &number);
        self.due.push(number);
        self.until("a request that stays", number, |(received, ..)| received == 1)?;
        Ok(call)
    }

    /// A short call that is answered.
    fn note(&mut self, number: u32) -> Verdict {
        self.due.push(number);
        let answer = self.endpoint.call(self.to, self.handles.note, &number).wait(&mut self.endpoint)?;
        equal("an answer", answer, number)
    }

    /// Waits until the neighbour has ended all futures that it has begun.
    fn until_over(&mut self) -> Verdict {
        self.until("futures of calls that are over", 0, |(_, begun, over)| begun == over)
    }

    /// Compares what this rank has received with the list, and ends.
    fn end(mut self) -> Verdict {
        self.until_over()?;
        self.endpoint.drain()?;
        self.endpoint.barrier()?;
        // Nobody's calls are worked on any more, also those of methods.
        self.endpoint.wait_until(|calls| calls.tasks() == 0)?;
        self.endpoint.barrier()?;
        let caller = self.endpoint.caller();
        equal("calls held and under way", (caller.held(), caller.under_way()), (0, 0))?;
        let mut log = self.endpoint.finish()?;
        let mut received = std::mem::take(&mut log.world_mut().received);
        received.retain(|number| *number < UNORDERED);
        equal("requests received, in order", received, self.due)
    }
}

fn failed<R: Debug, E: Debug + PartialEq>(
    what: &str,
    outcome: Result<R, CallError<E>>,
    is: impl Fn(&CallError<E>) -> bool,
) -> Verdict {
    ensure(outcome.as_ref().is_err_and(is), || format!("{what} ended with {outcome:?}"))
}

/// The limits of a caller: calls under way to a peer or in all, and the bytes of a request.
pub(super) fn callers<T: Transport>(world: &World, transport: T) -> Verdict {
    const LONGEST: u32 = 3000;
    let mut random = world.random(0x2410);
    let limit = [1, 2, 4][random.below(3) as usize];
    let of_peer = random.below(2) == 0;
    let config = CallConfig::new().max_bytes(LONGEST);
    let config = if of_peer { config.calls_per_peer(limit) } else { config.calls(limit) };
    let mut steps = Steps::new(world, transport, config)?;
    let (to, handles, caller) = (steps.to, steps.handles, steps.endpoint.caller());
    let why = if of_peer { Busy::Peer { limit } } else { Busy::All { limit } };
    let busy = CallError::Busy { to: to.into(), why };

    let mut held = Vec::new();
    for number in 1..limit {
        held.push(steps.hold(number)?);
    }
    // Whether it has been sent or not.
    held.push(caller.call(to, handles.never, &(UNORDERED + 1)));
    failed("a call beyond the limit", caller.try_call(to, handles.note, &10), |error| *error == busy)?;
    for _ in 0..random.below(4) {
        steps.endpoint.poll()?;
    }
    failed("a call beyond the limit", caller.try_call(to, handles.note, &11), |error| *error == busy)?;
    // They wait, and go one by one when a place is free.
    let waiting: Vec<_> = (20..25).map(|number| caller.call(to, handles.note, &number)).collect();
    for _ in 0..random.below(4) {
        steps.endpoint.poll()?;
    }
    equal("calls under way", caller.under_way() <= limit, true)?;
    equal("calls that are ready", waiting.iter().filter(|call| call.is_ready()).count(), 0)?;
    drop(held.remove(0));
    for (number, call) in (20..).zip(waiting) {
        steps.due.push(number);
        equal("an answer", call.wait(&mut steps.endpoint)?, number)?;
    }
    // All places but one are taken; calls that wait and are dropped leave no trace.
    held.push(steps.endpoint.call(to, handles.never, &UNORDERED));
    let dropped: Vec<_> = (31..34).map(|number| caller.call(to, handles.note, &number)).collect();
    for _ in 0..random.below(3) {
        steps.endpoint.poll()?;
    }
    drop((dropped, held.pop()));
    let next = caller.try_call(to, handles.note, &40);
    let next = next.map_err(|error| Failure::Check(format!("a place is free: {error}")))?;
    equal("an answer", next.wait(&mut steps.endpoint)?, 40)?;
    steps.due.push(40);
    // What was dropped right after it had been made may have been sent.
    let (received, ..) = steps.count(UNORDERED)?;
    ensure(received <= 1, || format!("a dropped call was received {received} times"))?;

    // A request that is too long is refused before anything is sent.
    let sent = |steps: &Steps<T>| {
        let statistics = steps.endpoint.statistics();
        [Category::Short, Category::Medium, Category::Long].map(|of| statistics.requests_sent(of).messages)
    };
    let long = (50, vec![7; LONGEST as usize]);
    let before = sent(&steps);
    let (one, other) = (steps.endpoint.call(to, handles.long, &long), caller.call(to, handles.long, &long));
    ensure(one.is_ready() && other.is_ready(), || "it is refused at once".into())?;
    let tried = caller.try_call(to, handles.long, &long).map(drop);
    let one_way = caller.one_way(to, handles.long, &long);
    let outcomes = [one.wait(&mut steps.endpoint), other.wait(&mut steps.endpoint), tried, one_way];
    equal("messages sent", sent(&steps), before)?;
    for outcome in outcomes {
        failed("a request that is too long", outcome, |error| match error {
            CallError::RequestTooLarge { bytes, limit } => *limit == u64::from(LONGEST) && bytes > limit,
            _ => false,
        })?;
    }
    equal("calls held", caller.held(), held.len())?;
    drop(held);
    steps.note(60)?;
    steps.end()
}

/// The limits of a callee: requests that it works on, in all and of one method. It refuses what is beyond, and
/// goes on with everything else.
pub(super) fn callees<T: Transport>(world: &World, transport: T) -> Verdict {
    let tasks = [1, 2, 5][world.random(0x2411).below(3) as usize];
    let mut steps = Steps::new(world, transport, CallConfig::new().tasks(tasks))?;
    let (to, handles, caller) = (steps.to, steps.handles, steps.endpoint.caller());
    let by = |why| move |error: &CallError| *error == CallError::Refused { to: to.into(), why };
    let held = (1..=tasks).map(|number| steps.hold(number)).collect::<Result<Vec<_>, _>>()?;
    let longer = steps.endpoint.max_payload(to, Category::Medium, Lane::Request, 4).unwrap_or(0) + 1;
    let longer = vec![3u8; longer as usize];
    // Many times what it may work on, one after the other and at once.
    let endpoint = &mut steps.endpoint;
    for _ in 0..5 {
        failed("one too many", endpoint.call(to, handles.never, &10).wait(endpoint), by(Refusal::Tasks))?;
        let outcome = endpoint.call(to, handles.long, &(11, longer.clone())).wait(endpoint);
        failed("a long one too many", outcome, by(Refusal::Tasks))?;
        let mut ticks = endpoint.stream(to, handles.ticks, &12);
        let first = ticks.wait_next(endpoint).unwrap_or(Ok(0));
        failed("a stream too many", first, by(Refusal::Tasks))?;
        equal("what follows a refused stream", ticks.wait_next(endpoint), None)?;
        caller.one_way(to, handles.never, &13)?;
    }
    let many: Vec<_> = (0..50).map(|_| endpoint.call(to, handles.never, &14)).collect();
    for call in many {
        failed("many too many", call.wait(endpoint), by(Refusal::Tasks))?;
    }
    // Functions are not among them.
    steps.note(20)?;
    let (_, begun, over) = steps.count(0)?;
    equal("futures begun and over", (begun, over), (tasks, 0))?;
    drop(held);
    steps.until_over()?;
    let endpoint = &mut steps.endpoint;
    endpoint.call(to, handles.long, &(21, longer)).wait(endpoint)?;
    steps.due.push(21);
    // A method that works on one request at a time.
    let alone = endpoint.call(to, handles.alone, &(22, true));
    steps.due.push(22);
    steps.until("a request that is alone", 22, |(received, ..)| received == 1)?;
    for _ in 0..5 {
        let outcome = steps.endpoint.call(to, handles.alone, &(23, false)).wait(&mut steps.endpoint);
        failed("one beside it", outcome, by(Refusal::Method))?;
    }
    let other = if tasks > 1 { Some(steps.hold(24)?) } else { None };
    drop((alone, other));
    steps.until_over()?;
    let endpoint = &mut steps.endpoint;
    equal("an answer", endpoint.call(to, handles.alone, &(25, false)).wait(endpoint)?, 25)?;
    steps.due.push(25);
    steps.end()
}

/// Deadlines, which travel with calls and those of their methods; retries; and dropped calls, of which all learn
/// that work on them.
pub(super) fn time<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut steps = Steps::new(world, transport, CallConfig::new())?;
    deadlines(&mut steps)?;
    cancellations(world, &mut steps)?;
    retries(&mut steps)?;
    steps.end()
}

fn deadlines<T: Transport>(steps: &mut Steps<T>) -> Verdict {
    let (to, handles, caller) = (steps.to, steps.handles, steps.endpoint.caller());
    let (hour, step) = (Span::from_secs(3600), Span::from_micros(300));
    let next = right(steps.endpoint.shape(), to).0;
    // Through three ranks: less is left at each, and all that the first one has.
    let via = vec![to.0, next];
    let lefts = caller.timeout(hour).call(to, handles.left, &via).wait(&mut steps.endpoint)?;
    ensure(lefts.len() == 3 && lefts[0] <= hour.0 && lefts.is_sorted_by(|one, next| one >= next), || {
        format!("picoseconds left at three ranks: {lefts:?}")
    })?;
    ensure(*lefts.last().unwrap_or(&0) > hour.0 / 2, || format!("much is left: {lefts:?}"))?;
    let lefts = caller.call(to, handles.left, &via).wait(&mut steps.endpoint)?;
    equal("times left of a call without a deadline", lefts, vec![u64::MAX; 3])?;
    // It is a time, not a span: the second call has less left by what has passed.
    let absolute = caller.deadline(steps.endpoint.now() + hour);
    let first = absolute.call(to, handles.left, &vec![]).wait(&mut steps.endpoint)?[0];
    let before = steps.endpoint.now();
    steps.pause(step)?;
    let passed = steps.endpoint.now() - before;
    let second = absolute.call(to, handles.left, &vec![]).wait(&mut steps.endpoint)?[0];
    ensure(passed >= step && second + passed.0 <= first, || {
        format!("{first} ps left, and {second} after {passed:?}")
    })?;
    // One that has passed: nothing is sent.
    let late = caller.deadline(steps.endpoint.now());
    let outcome = late.call(to, handles.note, &1).wait(&mut steps.endpoint);
    failed("a late call", outcome, |error| *error == CallError::TimedOut { to: to.into(), after: None })?;
    // At the caller not before its time, at the callee soon after, and where that one waits for another.
    let began = steps.endpoint.now();
    let timed = caller.timeout(step);
    let never = timed.call(to, handles.never, &UNORDERED);
    let pass = timed.call(to, handles.pass, &(UNORDERED + 1, next));
    for outcome in [never.wait(&mut steps.endpoint), pass.wait(&mut steps.endpoint)] {
        let error = CallError::TimedOut { to: to.into(), after: Some(step) };
        equal("a call that never ends", outcome, Err(error))?;
    }
    ensure(steps.endpoint.now() - began >= step, || "it ended early".into())?;
    steps.until_over()
}

fn cancellations<T: Transport>(world: &World, steps: &mut Steps<T>) -> Verdict {
    let (to, handles, caller) = (steps.to, steps.handles, steps.endpoint.caller());
    let next = right(steps.endpoint.shape(), to).0;
    drop(steps.hold(2)?);
    steps.until_over()?;
    let passing = caller.call(to, handles.pass, &(UNORDERED + 2, next));
    steps.until("a request that waits for another rank", UNORDERED + 2, |(received, ..)| received > 0)?;
    drop(passing);
    steps.until_over()?;
    let mut ticks = caller.stream(to, handles.ticks, &3);
    steps.due.push(3);
    for tick in 0..world.random(0x2412).below(40) as u32 {
        equal("a tick", ticks.wait_next(&mut steps.endpoint), Some(Ok(tick)))?;
    }
    steps.until("a stream", 3, |(received, ..)| received == 1)?;
    drop(ticks);
    steps.until_over()?;
    // Long ones, dropped at any time.
    for (number, polls) in (UNORDERED + 10..).zip(0..8) {
        let call = caller.call(to, handles.long, &(number, vec![1; 20_000]));
        for _ in 0..polls {
            steps.endpoint.poll()?;
        }
        drop(call);
        let (received, ..) = steps.count(number)?;
        ensure(received <= 1, || format!("call {number} was received {received} times"))?;
    }
    steps.note(4)
}

fn retries<T: Transport>(steps: &mut Steps<T>) -> Verdict {
    let (to, handles) = (steps.to, steps.handles);
    let pause = Span::from_micros(20);
    // What does not answer is asked again; each attempt comes once at most.
    for round in 0.. {
        let number = UNORDERED + 20 + round;
        let retries = Retries::new(6).timeout(Span::from_micros(300 << round)).pause(pause);
        let outcome = steps
            .endpoint
            .run(|context| async move { context.call_retrying(to, handles.flaky, &(number, 2), retries).await });
        let (received, ..) = steps.count(number)?;
        match outcome? {
            Ok(answer) => {
                ensure(answer >= 3 && answer <= received && received <= 6, || {
                    format!("answered at request {answer} of {received}")
                })?;
                break;
            }
            // It may have been too short a time.
            Err(CallError::TimedOut { .. }) if round < 20 => ensure(received <= 6, || format!("{received}"))?,
            Err(error) => return Err(error.into()),
        }
    }
    // An answer is one, also an error.
    let retries = Retries::new(5).pause(pause);
    let ends = steps.endpoint.run(|context| async move {
        let fails = context.call_retrying(to, handles.fails, &5, retries).await;
        (fails, context.call_retrying(to, handles.panics, &6, retries).await)
    })?;
    failed("a method that fails", ends.0, |error| *error == CallError::Failed(Text::new("5")))?;
    failed("a method that panics", ends.1, |error| matches!(error, CallError::Panicked { .. }))?;
    steps.due.extend([5, 6]);
    // A refused request is sent again, and has not run before.
    let alone = steps.endpoint.call(to, handles.alone, &(7, true));
    steps.due.push(7);
    steps.until("a request that is alone", 7, |(received, ..)| received == 1)?;
    let refused = steps
        .endpoint
        .run(|context| async move { context.call_retrying(to, handles.alone, &(8, false), retries).await })?;
    failed("one beside it", refused, |error| matches!(error, CallError::Refused { why: Refusal::Method, .. }))?;
    let freed = steps.endpoint.run(|context| async move {
        let released = context.clone();
        context.spawn(async move {
            released.sleep(Span::from_micros(100)).await;
            drop(alone);
        });
        let retries = Retries::new(30).pause(pause);
        context.call_retrying(to, handles.alone, &(9, false), retries).await
    })?;
    equal("the answer once there is room", freed, Ok(9))?;
    steps.due.push(9);
    Ok(())
}

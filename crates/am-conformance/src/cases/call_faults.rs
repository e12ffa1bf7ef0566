//! Item 24, faulty peers: a rank whose methods differ is found at attach; bytes that are no value of their type,
//! in requests, answers, errors and streams, are an error of that call alone; and a rank that changes its messages
//! on their way costs others only its calls.

use super::last;
use crate::case::unwind;
use crate::random::{Random, mix, pattern};
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_async::{
    Call, CallConfig, CallEndpoint, CallError, Calls, Context, Failure as Text, Method, Methods, StreamMethod,
};
use am_core::transport::{
    Arrival, Body, Completion, Membership, PendingKey, Refused, ReplyPath, ReplyPathGone, RequestHeader, Sink,
    Waiting,
};
use am_core::{AttachError, Endpoint, Handlers, Payload, Peer, Rank, Span, Transport, Words};
use serde::de::Deserializer;
use serde::ser::{Error as _, SerializeTuple, Serializer};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// How a value is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lie {
    #[default]
    None,
    /// Its last part is missing.
    Truncated,
    /// Nothing is there.
    Empty,
    /// A byte follows it.
    Longer,
    /// Its text is none.
    NoText,
    /// Its list claims elements that do not follow.
    NoList,
    /// Another type.
    Other,
}

const LIES: [Lie; 6] = [Lie::Truncated, Lie::Empty, Lie::Longer, Lie::NoText, Lie::NoList, Lie::Other];

/// A value that its sender may write as none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    lie: Lie,
    number: u32,
    text: String,
    list: Vec<u16>,
}

impl Said {
    /// The value of a number, and of a length that may be more than a message has.
    fn new(lie: Lie, number: u32, length: u32) -> Self {
        let list = pattern(mix(&[number.into()]), length as usize).into_iter().map(u16::from).collect();
        Self { lie, number, text: format!("number {number}"), list }
    }
}

impl Serialize for Said {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { lie, number, text, list } = self;
        let mut parts = to.serialize_tuple(4)?;
        match lie {
            Lie::Empty => return parts.end(),
            Lie::Other => parts.serialize_element(&(f64::NAN, true, [u64::MAX; 3]))?,
            _ => parts.serialize_element(number)?,
        }
        match lie {
            Lie::Other => return parts.end(),
            // A string's length and bytes that are no characters.
            Lie::NoText => parts.serialize_element(&(3u8, [0xff_u8; 3]))?,
            _ => parts.serialize_element(text)?,
        }
        match lie {
            Lie::Truncated => return parts.end(),
            Lie::NoList => parts.serialize_element(&(u64::MAX >> 1))?,
            _ => parts.serialize_element(list)?,
        }
        if *lie == Lie::Longer {
            parts.serialize_element(&0u8)?;
        }
        parts.end()
    }
}

impl<'de> Deserialize<'de> for Said {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (number, text, list) = Deserialize::deserialize(from)?;
        Ok(Self { lie: Lie::None, number, text, list })
    }
}

/// A value that cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Unwritable;

impl Serialize for Unwritable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("it cannot be written"))
    }
}

/// What is asked for: which lie, a number, and a length.
type Ask = (u8, u32, u32);

#[derive(Default)]
struct Log {
    received: Vec<u32>,
    begun: u32,
}

#[derive(Clone, Copy)]
struct Handles {
    say: Method<Ask, Said, Said>,
    say_later: Method<Ask, Said, Said>,
    /// Fails with what is asked for.
    fail: Method<Ask, (), Said>,
    /// Says items, of which the last one is a lie.
    items: StreamMethod<Ask, Said, Said>,
    hear: Method<Said, u32>,
    hear_later: Method<Said, u32>,
    unwritable: Method<u32, Unwritable>,
    unwritten: Method<Unwritable, ()>,
    never: Method<u32, ()>,
    count: Method<Vec<u32>, Vec<u32>>,
}

fn said((lie, number, length): Ask) -> Said {
    let lie = usize::from(lie).checked_sub(1).map_or(Lie::None, |lie| LIES[lie]);
    Said::new(lie, number, length)
}

fn methods() -> Result<(Methods<Log>, Handles), Failure> {
    let mut methods = Methods::<Log>::new();
    let say = methods.function("say", |log: &mut Log, _, ask: Ask| {
        log.received.push(ask.1);
        Ok::<Said, Said>(said(ask))
    })?;
    let say_later = methods.asynchronous("say later", |context: Context<Log>, ask: Ask| async move {
        context.with(|log| log.received.push(ask.1));
        context.sleep(Span::from_nanos(300)).await;
        Ok::<Said, Said>(said(ask))
    })?;
    let fail = methods.function("fail", |log: &mut Log, _, ask: Ask| {
        log.received.push(ask.1);
        Err::<(), Said>(said(ask))
    })?;
    let items =
        methods.stream("items", |context: Context<Log>, (lie, number, count): Ask, mut sink| async move {
            context.with(|log| log.received.push(number));
            for item in 0..count {
                let lie = if item + 1 == count { lie } else { 0 };
                // Some are longer than a message of most transports.
                let length = if item % 4 == 2 { 3000 } else { item };
                let sent = sink.send(&said((lie, number ^ item, length))).await;
                if sent.is_err() {
                    break;
                }
            }
            Ok::<(), Said>(())
        })?;
    let hear = methods.function("hear", |log: &mut Log, _, said: Said| {
        log.received.push(said.number);
        Ok::<_, Text>(said.number)
    })?;
    let hear_later = methods.asynchronous("hear later", |context: Context<Log>, said: Said| async move {
        context.with(|log| log.received.push(said.number));
        Ok::<_, Text>(said.number)
    })?;
    let unwritable = methods.function("unwritable", |log: &mut Log, _, number: u32| {
        log.received.push(number);
        Ok::<_, Text>(Unwritable)
    })?;
    let unwritten = methods.function("unwritten", |log: &mut Log, _, Unwritable| {
        log.received.push(u32::MAX);
        Ok::<(), Text>(())
    })?;
    let never = methods.asynchronous("never", |context: Context<Log>, _: u32| async move {
        context.with(|log| log.begun += 1);
        std::future::pending::<Result<(), Text>>().await
    })?;
    let count = methods.function("count", |log: &mut Log, _, numbers: Vec<u32>| {
        let count = |number| log.received.iter().filter(|received| *received == number).count() as u32;
        Ok::<_, Text>(numbers.iter().map(count).collect())
    })?;
    let handles = Handles { say, say_later, fail, items, hear, hear_later, unwritable, unwritten, never, count };
    Ok((methods, handles))
}

type Ranks<T> = Endpoint<T, Calls<Log>>;

type Saying = Call<Method<Ask, Said, Said>>;

fn attach<T: Transport>(world: &World, transport: T) -> Result<(Ranks<T>, Handles), Failure> {
    let (methods, handles) = methods()?;
    let mut table = Handlers::new();
    let config = CallConfig::new().max_bytes(1 << 20).receive_bytes(20_000);
    let calls = Calls::register_with(&mut table, methods, Log::default(), config)?;
    Ok((world.attach(transport, table, calls)?, handles))
}

/// An outcome against the model's.
fn judge<R: Debug + PartialEq, E: Debug + PartialEq>(
    ask: Ask,
    found: Result<R, CallError<E>>,
    due: Result<R, CallError<E>>,
) -> Verdict {
    let lie = said((ask.0, 0, 0)).lie;
    ensure(found == due, || {
        let text = format!("call {} of {} B, {lie:?}: found {found:?}, expected {due:?}", ask.1, ask.2);
        text.chars().take(400).collect()
    })
}

/// Values that are none: everyone tells everyone some, amid calls that are in order.
pub(super) fn malformed<T: Transport>(world: &World, transport: T) -> Verdict {
    let (mut endpoint, handles) = attach(world, transport)?;
    let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
    let calls = world.count(40, 400);
    let mut random = world.random(0x2420 + u64::from(me));
    let mut received: Vec<Vec<(u32, u32)>> = vec![Vec::new(); ranks as usize];
    // Calls that are in order meanwhile.
    let mut beside: Vec<(Ask, Saying)> = Vec::new();
    for index in 0..calls {
        let number = (me * calls + index) << 8;
        let to = Rank(random.below(ranks.into()) as u32);
        // Half of them are what they have to be.
        let lie = random.below(12).saturating_sub(5) as u8;
        let ask: Ask = (lie, number, [0, 3, 40, 900, 4000][random.below(5) as usize]);
        let (honest, bad) = (said((0, ask.1, ask.2)), || CallError::BadAnswer { to: to.into() });
        let told = |value| if lie == 0 { Ok(value) } else { Err(bad()) };
        let mut count = 1;
        match random.below(8) {
            0 => judge(ask, endpoint.call(to, handles.say, &ask).wait(&mut endpoint), told(honest))?,
            1 => judge(ask, endpoint.call(to, handles.say_later, &ask).wait(&mut endpoint), told(honest))?,
            2 => {
                let due = if lie == 0 { CallError::Failed(honest) } else { bad() };
                judge(ask, endpoint.call(to, handles.fail, &ask).wait(&mut endpoint), Err(due))?;
            }
            3 => {
                let ask = (lie, number, 1 + random.below(9) as u32);
                items(&mut endpoint, handles, to, ask)?;
            }
            kind @ (4 | 5) => {
                let method = if kind == 4 { handles.hear } else { handles.hear_later };
                let outcome = endpoint.call(to, method, &said(ask)).wait(&mut endpoint);
                let due = if lie == 0 { Ok(number) } else { Err(CallError::BadRequest { to: to.into() }) };
                count = u32::from(lie == 0);
                judge(ask, outcome, due)?;
            }
            6 => {
                let outcome = endpoint.call(to, handles.unwritable, &number).wait(&mut endpoint);
                let right =
                    matches!(&outcome, Err(CallError::Panicked { text, .. }) if text.contains("serialised"));
                ensure(right, || format!("an answer that cannot be written: {outcome:?}"))?;
                let outcome = endpoint.call(to, handles.unwritten, &Unwritable).wait(&mut endpoint);
                let right = matches!(outcome, Err(CallError::Unserialisable(_)));
                ensure(right, || format!("a request that cannot be written: {outcome:?}"))?;
            }
            _ => {
                let ask = (0, number, ask.2);
                beside.push((ask, endpoint.call(to, handles.say_later, &ask)));
            }
        }
        received[to.0 as usize].push((number, count));
        if beside.len() > 3 {
            let (ask, call) = beside.remove(0);
            judge(ask, call.wait(&mut endpoint), Ok(said(ask)))?;
        }
    }
    for (ask, call) in beside {
        judge(ask, call.wait(&mut endpoint), Ok(said(ask)))?;
    }
    for (to, received) in (0..).map(Rank).zip(received) {
        let (numbers, due): (Vec<u32>, Vec<u32>) = received.into_iter().unzip();
        let found = endpoint.call(to, handles.count, &numbers).wait(&mut endpoint)?;
        equal("requests received", found, due)?;
        let none = endpoint.call(to, handles.count, &vec![u32::MAX]).wait(&mut endpoint)?;
        equal("requests received that cannot be written", none, vec![0])?;
    }
    let caller = endpoint.caller();
    equal("calls held and under way", (caller.held(), caller.under_way()), (0, 0))?;
    endpoint.drain()?;
    endpoint.barrier()?;
    // The end of streams whose caller has given up may be on its way.
    endpoint.wait_until(|calls| calls.tasks() == 0)?;
    endpoint.finish()?;
    Ok(())
}

/// A stream whose last item is none: those before it come, it is an error, and then there is nothing.
fn items<T: Transport>(endpoint: &mut Ranks<T>, handles: Handles, to: Rank, ask: Ask) -> Verdict {
    let (lie, number, count) = ask;
    let mut answers = endpoint.stream(to, handles.items, &ask);
    for item in 0..count {
        let honest = said((0, number ^ item, if item % 4 == 2 { 3000 } else { item }));
        let lies = item + 1 == count && lie != 0;
        let due = if lies { Err(CallError::BadAnswer { to: to.into() }) } else { Ok(honest) };
        let Some(found) = answers.wait_next(endpoint) else {
            return ensure(false, || format!("stream {number} ended before item {item} of {count}"));
        };
        judge(ask, found, due)?;
    }
    equal("what follows the items", answers.wait_next(endpoint), None)
}

/// Changes the words of messages: one of so many, none of 0.
struct Noise {
    random: Random,
    one_in: u64,
}

impl Noise {
    fn change(&mut self, args: &Words) -> Words {
        if self.one_in == 0 || args.is_empty() || self.random.below(self.one_in) != 0 {
            return *args;
        }
        let mut words: Vec<u32> = args.iter().collect();
        let place = self.random.below(words.len() as u64) as usize;
        words[place] = match self.random.below(4) {
            0 => 0,
            1 => u32::MAX,
            _ => words[place] ^ 1 << self.random.below(32),
        };
        Words::from_slice(&words).expect("there are as many words as before")
    }
}

/// A transport that makes [`Noise`], on messages' way out.
struct Noisy<T> {
    inner: T,
    noise: Noise,
}

impl<T: Transport> Membership for Noisy<T> {
    am_core::forward!(inner: local_peer, shape, losses, status, is_fork, depart);
}

impl<T: Transport> Waiting for Noisy<T> {
    am_core::forward!(inner: idle, idle_unless, wake_peer, spins, waker, now, charge);
    am_core::forward!(inner: notify, descriptor, notify_readable, end_notify);
}

impl<T: Transport> Transport for Noisy<T> {
    type Memory = T::Memory;
    type Room = T::Room;
    type Slot<'a>
        = T::Slot<'a>
    where
        Self: 'a;
    am_core::forward!(inner:
        may_deliver, limits, control, flush, is_quiescent, polls_per_sweep, segment, segment_len, remote_segment,
        reads_lent, read_lent, auxiliary, native, credits, owed, bare_credits,
    );
    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        let words = self.noise.change(args);
        self.inner.send(to, head, &words, body)
    }
    fn reserve(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize) -> Result<T::Room, Refused> {
        self.inner.reserve(to, head, args, len)
    }
    fn slot(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize, room: T::Room) -> T::Slot<'_> {
        self.inner.slot(to, head, args, len, room)
    }
    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        self.inner.poll(budget, &mut NoisySink { sink, noise: &mut self.noise })
    }
    fn reply_detached<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        let noise = &mut self.noise;
        self.inner.reply_detached(key, |path| reply(&mut NoisyPath { path, noise }))
    }
}

struct NoisySink<'a, S> {
    sink: &'a mut S,
    noise: &'a mut Noise,
}

impl<S: Sink> Sink for NoisySink<'_, S> {
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        self.sink.request(arrival, &mut NoisyPath { path, noise: self.noise });
    }
    fn reply(&mut self, arrival: Arrival<'_>) {
        self.sink.reply(arrival);
    }
    fn control(&mut self, from: Peer, args: &Words, payload: Payload<'_>) {
        self.sink.control(from, args, payload);
    }
    fn completed(&mut self, completion: Completion<'_>) {
        self.sink.completed(completion);
    }
}

struct NoisyPath<'a> {
    path: &'a mut dyn ReplyPath,
    noise: &'a mut Noise,
}

impl ReplyPath for NoisyPath<'_> {
    fn bound(&self) -> usize {
        self.path.bound()
    }
    fn segment_len(&self) -> u64 {
        self.path.segment_len()
    }
    fn long_limit(&self) -> u64 {
        self.path.long_limit()
    }
    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        let words = self.noise.change(args);
        self.path.send(handler, &words, body)
    }
    fn check(&self) -> Result<(), ReplyPathGone> {
        self.path.check()
    }
    fn detach(&mut self) -> PendingKey {
        self.path.detach()
    }
}

/// The number that tells a rank that another one needs it no more.
const OVER: u32 = u32::MAX - 1;

/// The last rank changes a third of what it says about calls. Calls to it end, however; calls of the others to
/// each other are as if it were not there, and nothing of it stays.
pub(super) fn noisy<T: Transport>(world: &World, transport: T) -> Verdict {
    let shape = transport.shape();
    let (me, noisy) = (shape.address(transport.local_peer()).rank, last(shape));
    let noise = Noise { random: world.random(0x2421), one_in: if me == noisy { 3 } else { 0 } };
    let (mut endpoint, handles) = attach(world, Noisy { inner: transport, noise })?;
    let calls = world.count(30, 600);
    let mut random = world.random(0x2422 + u64::from(me.0));
    let mut received: Vec<Vec<u32>> = vec![Vec::new(); shape.ranks as usize];
    for index in 0..calls {
        let number = (me.0 * calls + index) << 8;
        let to = Rank(random.below(shape.ranks.into()) as u32);
        let ask: Ask = (0, number, [0, 3, 40, 900, 4000][random.below(5) as usize]);
        let kind = random.below(6);
        if me == noisy || to == noisy {
            // It ends somehow.
            let caller = endpoint.caller().timeout(Span::from_micros(random.below(400)));
            match kind {
                0 => drop(caller.call(to, handles.say, &ask).wait(&mut endpoint)),
                1 => drop(caller.call(to, handles.say_later, &ask).wait(&mut endpoint)),
                2 => drop(caller.call(to, handles.hear, &said(ask)).wait(&mut endpoint)),
                3 => drop(caller.call(to, handles.hear_later, &said(ask)).wait(&mut endpoint)),
                4 => drop(caller.call(to, handles.never, &number).wait(&mut endpoint)),
                _ => {
                    let mut answers = caller.stream(to, handles.items, &(0, number, 9));
                    // Not more than were asked for, whatever is said.
                    let count = (0..100).take_while(|_| answers.wait_next(&mut endpoint).is_some()).count();
                    ensure(count <= 10, || format!("{count} answers of 9"))?;
                }
            }
            continue;
        }
        received[to.0 as usize].push(number);
        match kind {
            0 => judge(ask, endpoint.call(to, handles.say, &ask).wait(&mut endpoint), Ok(said(ask)))?,
            1 => judge(ask, endpoint.call(to, handles.say_later, &ask).wait(&mut endpoint), Ok(said(ask)))?,
            2 => judge(ask, endpoint.call(to, handles.hear, &said(ask)).wait(&mut endpoint), Ok(number))?,
            3 => judge(ask, endpoint.call(to, handles.hear_later, &said(ask)).wait(&mut endpoint), Ok(number))?,
            4 => {
                let due = CallError::Failed(said(ask));
                judge(ask, endpoint.call(to, handles.fail, &ask).wait(&mut endpoint), Err(due))?;
            }
            _ => items(&mut endpoint, handles, to, (0, number, 9))?,
        }
    }
    let over = |log: &Log| log.received.iter().filter(|number| **number == OVER).count() as u32;
    if me == noisy {
        endpoint.serve_until(|log| over(log) == noisy.0)?;
        unwind();
    }
    for to in (0..noisy.0).map(Rank) {
        let numbers = &received[to.0 as usize];
        let found = endpoint.call(to, handles.count, numbers).wait(&mut endpoint)?;
        equal("requests received", found, vec![1; numbers.len()])?;
    }
    endpoint.caller().one_way(noisy, handles.hear, &Said::new(Lie::None, OVER, 0))?;
    // It ends, and calls that have no deadline do, too.
    let lost = loop {
        if let Err(CallError::RankLost { rank, .. }) = endpoint.call(noisy, handles.never, &0).wait(&mut endpoint)
        {
            break rank;
        }
    };
    equal("the lost rank", lost, noisy)?;
    endpoint.acknowledge_loss(noisy);
    endpoint.wait_until(|calls| calls.tasks() == 0)?;
    for to in (0..noisy.0).map(Rank) {
        endpoint.call(to, handles.hear, &Said::new(Lie::None, OVER, 0)).wait(&mut endpoint)?;
    }
    endpoint.serve_until(|log| over(log) == noisy.0)?;
    let caller = endpoint.caller();
    equal("calls held and under way", (caller.held(), caller.under_way()), (0, 0))?;
    endpoint.drain().map_err(Failure::Wait)?;
    endpoint.leave();
    Ok(())
}

/// How the methods of the last rank differ, and what the others and it have where they first do.
const DIFFERENCES: [(Difference, &str, &str); 6] = [
    (Difference::Additional, "'calls.method call_each", "'calls.method four'"),
    (Difference::Lacking, "'calls.method two'", "'calls.method three'"),
    (Difference::Order, "'calls.method two'", "'calls.method three'"),
    (Difference::Kind, "'calls.method two' (function ", "'calls.method two' (async "),
    (Difference::Request, "'calls.method two' (function u32 ->", "'calls.method two' (function u64 ->"),
    (Difference::Idempotent, "'calls.method two' (function ", "Failure, idempotent)"),
];

pub(super) const WAYS: u32 = DIFFERENCES.len() as u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    Additional,
    Lacking,
    Order,
    Kind,
    Request,
    Idempotent,
}

/// Registers the methods of most ranks, or those of one that differs.
fn differing(of: Option<Difference>) -> Result<Methods<()>, Failure> {
    let mut methods = Methods::new();
    let add = |methods: &mut Methods<()>, name| methods.function(name, |(), _, number: u32| Ok::<_, Text>(number));
    add(&mut methods, "one")?;
    if of == Some(Difference::Order) {
        add(&mut methods, "three")?;
    }
    match of {
        Some(Difference::Lacking) => {}
        Some(Difference::Kind) => {
            methods.asynchronous("two", |_, number: u32| async move { Ok::<_, Text>(number) })?;
        }
        Some(Difference::Request) => {
            methods.function("two", |(), _, number: u64| Ok::<_, Text>(number as u32))?;
        }
        Some(Difference::Idempotent) => {
            let two = add(&mut methods, "two")?;
            methods.idempotent(two);
        }
        _ => drop(add(&mut methods, "two")?),
    }
    if of != Some(Difference::Order) {
        add(&mut methods, "three")?;
    }
    if of == Some(Difference::Additional) {
        add(&mut methods, "four")?;
    }
    Ok(methods)
}

/// A method that one rank alone has or lacks, or has elsewhere or otherwise: every rank learns of it at attach.
pub(super) fn methods_differ<T: Transport>(world: &World, transport: T) -> Verdict {
    let (difference, in_most, in_last) = DIFFERENCES[world.combination(0x2425, WAYS) as usize];
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let odd = last(shape);
    let mut table = Handlers::new();
    let calls = Calls::register(&mut table, differing((me == odd).then_some(difference))?, ())?;
    let error = match world.attach(transport, table, calls) {
        Ok(_) => return Err(Failure::Check(format!("{difference:?}: different methods were accepted"))),
        Err(error) => error,
    };
    let AttachError::TablesDiffer { a, b, in_a, in_b, .. } = &error else {
        return Err(Failure::Check(format!("{difference:?}: {error}")));
    };
    let (most, of_last) = if b.rank == odd { ((a, in_a), (b, in_b)) } else { ((b, in_b), (a, in_a)) };
    let right = (most.0.rank, of_last.0.rank) == (Rank(0), odd);
    let told = most.1.contains(in_most) && of_last.1.contains(in_last) && most.1 != of_last.1;
    ensure(right && told, || format!("{difference:?}: {error}"))
}

//! A rank that breaks the protocol of calls, as fuzzers and ordinary tests play it against one that keeps it.
//! What it says is drawn from what the other one knows: the calls and tasks that there are, the lengths of long
//! messages that come in parts, and the numbers around every limit.

use super::*;
use crate::caller::{Answers, Call};
use crate::error::Failure;
use crate::method::{Callable, Method, SliceMethod, StreamMethod};
use crate::run::CallEndpoint;
use crate::wire::measures;
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::{Category, Endpoint, Lane, Rank, SendError};
use serde::{Deserialize, Serialize};

/// What the bytes are made of that each rank sends: the honest one, then the other.
const MADE_OF: [u8; 2] = [0x5a, 0xa5];
/// The longest message in parts.
const LONGEST: u32 = 4000;
/// Messages and steps of a duel at most.
const STEPS: usize = 300;
/// The limits of both ranks.
const TASKS: u32 = 20;
const CALLS: u32 = 12;
const CALLS_PER_PEER: u32 = 8;
const RECEIVE_BYTES: u64 = 6000;
const WINDOW: u32 = 3;

/// What methods work on.
struct World {
    /// Which rank it is.
    place: usize,
    /// Whether bytes have come that the other rank has not sent.
    foreign: bool,
}

#[derive(Debug, Serialize, Deserialize)]
enum Question {
    Nothing,
    Text(String),
    Many { numbers: Vec<u32>, inner: Option<(u8, Vec<i64>)> },
}

#[derive(Clone, Copy)]
struct Handles {
    bytes: SliceMethod<u8, u8>,
    echo: Method<Question, Question>,
    make: Method<u32, Vec<u8>>,
    later: Method<Vec<u8>, Vec<u8>>,
    never: Method<(), ()>,
    count: StreamMethod<u32, Vec<u8>>,
}

type Rung = Endpoint<Loopback, Calls<World>>;

fn attach(transport: Loopback, place: usize) -> (Rung, Handles) {
    let mut methods = Methods::<World>::new();
    let expect = "a new name";
    let bytes = methods.slices("bytes", |world: &mut World, _, request: &[u8], answer| {
        world.foreign |= request.iter().any(|byte| *byte != MADE_OF[1 - world.place]);
        answer.extend(request.iter().map(|_| MADE_OF[world.place]));
        Ok::<(), Failure>(())
    });
    let make = methods.function("make", |world: &mut World, _, len: u32| {
        Ok::<_, Failure>(vec![MADE_OF[world.place]; len as usize % (LONGEST as usize + 200)])
    });
    let handles = Handles {
        bytes: bytes.expect(expect),
        echo: methods.function("echo", |_, _, question| Ok::<_, Failure>(question)).expect(expect),
        make: make.expect(expect),
        later: methods.asynchronous("later", |_, bytes| async move { Ok::<_, Failure>(bytes) }).expect(expect),
        never: methods.asynchronous("never", |_, ()| std::future::pending::<Result<(), Failure>>()).expect(expect),
        count: methods
            .stream("count", move |_, count: u32, mut sink| async move {
                for number in 0..count % 50 {
                    // Every third is longer than a message.
                    let len = if number % 3 == 2 { 500 + 40 * number } else { number };
                    sink.send(&vec![MADE_OF[place]; len as usize]).await?;
                }
                Ok::<(), Failure>(())
            })
            .expect(expect),
    };
    let config = CallConfig::new().tasks(TASKS).calls(CALLS).calls_per_peer(CALLS_PER_PEER).max_bytes(LONGEST);
    let config = config.receive_bytes(RECEIVE_BYTES).stream_window(WINDOW);
    let (world, mut table) = (World { place, foreign: false }, Handlers::new());
    let calls = Calls::register_with(&mut table, methods, world, config).expect("room in the table");
    (Endpoint::attach(transport, table, calls).expect("both ranks are alike"), handles)
}

/// Choices that bytes make; when they are used up, the first of everything.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn of(&mut self, many: usize) -> usize {
        usize::from(self.byte()) % many.max(1)
    }

    fn one_of(&mut self, all: &[u64]) -> u64 {
        all[self.of(all.len())]
    }

    /// One of these numbers, or one beside it.
    fn near(&mut self, all: &[u64]) -> u64 {
        let number = self.one_of(all);
        number.wrapping_add([0, 0, 0, 0, 0, 0, 1, u64::MAX][self.of(8)])
    }
}

/// A call that the honest rank waits for.
enum Waiting {
    Bytes(Call<SliceMethod<u8, u8>>),
    Echo(Call<Method<Question, Question>>),
    Make(Call<Method<u32, Vec<u8>>>),
    Later(Call<Method<Vec<u8>, Vec<u8>>>),
    Never(Call<Method<(), ()>>),
    Count(Answers<Vec<u8>, Failure>),
}

struct Duel<'a> {
    choices: Choices<'a>,
    honest: Rung,
    hostile: Rung,
    handles: Handles,
    waiting: Vec<Waiting>,
    /// Calls that ended with an answer.
    answered: usize,
}

/// What the bytes have one rank do to another: returns whether the honest one got an answer to any of its calls.
///
/// # Panics
/// If the honest rank takes bytes for what the other has sent that it has not, or anything is left of calls when
/// the other is gone.
pub fn hostile(data: &[u8]) -> bool {
    let transports = network(2, LoopbackConfig::default().medium(512));
    let [honest, hostile] = transports.try_into().unwrap_or_else(|_| unreachable!("there are two"));
    // Each waits for the other to attach.
    let ((honest, handles), (hostile, _)) = std::thread::scope(|scope| {
        let hostile = scope.spawn(|| attach(hostile, 1));
        (attach(honest, 0), hostile.join().expect("both ranks are alike"))
    });
    let mut duel = Duel { choices: Choices(data), honest, hostile, handles, waiting: Vec::new(), answered: 0 };
    for _ in 0..STEPS {
        if duel.choices.0.is_empty() {
            break;
        }
        duel.step();
    }
    duel.end()
}

impl Duel<'_> {
    fn step(&mut self) {
        match self.choices.of(16) {
            0..=1 => drop(self.honest.poll()),
            // The hostile rank keeps the protocol for a while, so that calls get far.
            2..=3 => drop(self.hostile.poll()),
            4..=6 => self.call(),
            7 => self.take(),
            8 => {
                let place = self.choices.of(self.waiting.len());
                if place < self.waiting.len() {
                    self.waiting.swap_remove(place);
                }
            }
            9 => {
                let bytes = vec![MADE_OF[1]; self.length() as usize];
                let _ = self.hostile.caller().one_way(Rank(0), self.handles.bytes, &bytes);
                let _ = self.hostile.poll();
            }
            _ => self.say(),
        }
        self.check();
    }

    /// Whatever the hostile rank says, the honest one keeps to its limits, and reads what was sent to it.
    fn check(&self) {
        let calls = self.honest.state();
        assert!(!calls.world().foreign, "bytes that nobody has sent");
        // Each function may be beyond the limit once.
        let tasks = calls.tasks() - calls.server.on_behalf();
        assert!(tasks <= TASKS + 3, "{tasks} tasks");
        assert!(calls.room.used() <= RECEIVE_BYTES, "{} bytes", calls.room.used());
        let (early, held, by_call) = calls.server.kept();
        assert!(early <= 256 && held <= 16, "{early} cancellations, {held} ways back");
        assert!(by_call <= calls.tasks() as usize, "{by_call} calls of tasks");
        let table = calls.environment.shared.table();
        assert!(table.under_way() <= CALLS_PER_PEER, "{} calls under way", table.under_way());
        assert!(table.most_untaken() <= WINDOW as usize, "{} answers of a stream", table.most_untaken());
    }

    /// The honest rank makes a call.
    fn call(&mut self) {
        let length = self.length();
        let bytes = vec![MADE_OF[0]; length as usize];
        let caller = match self.choices.of(4) {
            0 => self.honest.caller().timeout(Span(self.choices.one_of(&[0, 1 << 50, u64::MAX - 1, u64::MAX]))),
            _ => self.honest.caller(),
        };
        let handles = self.handles;
        let waiting = match self.choices.of(10) {
            // Of these each byte is known.
            0 | 6..=8 => Waiting::Bytes(caller.call(Rank(1), handles.bytes, &bytes)),
            1 => Waiting::Make(caller.call(Rank(1), handles.make, &length)),
            2 => Waiting::Later(caller.call(Rank(1), handles.later, &bytes)),
            3 => Waiting::Never(caller.call(Rank(1), handles.never, &())),
            4 => Waiting::Count(caller.stream(Rank(1), handles.count, &length)),
            5 => {
                let question = Question::Many { numbers: vec![length; 3], inner: Some((7, vec![-1])) };
                Waiting::Echo(caller.call(Rank(1), handles.echo, &question))
            }
            _ => return drop(caller.one_way(Rank(1), handles.bytes, &bytes)),
        };
        self.waiting.push(waiting);
        if self.waiting.len() > 30 {
            self.waiting.remove(0);
        }
    }

    /// The honest rank looks at its calls.
    fn take(&mut self) {
        let own =
            |bytes: &[u8]| assert!(bytes.iter().all(|byte| *byte == MADE_OF[1]), "bytes that nobody has sent");
        fn ended<M: Callable>(call: &mut Call<M>, see: impl FnOnce(M::Response)) -> Option<bool> {
            call.take(None).map(|outcome| outcome.map(see).is_ok())
        }
        let answered = &mut self.answered;
        self.waiting.retain_mut(|waiting| {
            let end = match waiting {
                Waiting::Bytes(call) => ended(call, |bytes| own(&bytes)),
                Waiting::Make(call) => ended(call, |_| ()),
                Waiting::Later(call) => ended(call, |_| ()),
                Waiting::Never(call) => ended(call, |()| ()),
                Waiting::Echo(call) => ended(call, |question| drop(format!("{question:?}"))),
                Waiting::Count(answers) => match answers.take(None) {
                    std::task::Poll::Pending => None,
                    std::task::Poll::Ready(None) => Some(false),
                    std::task::Poll::Ready(Some(answer)) => {
                        answer.into_iter().for_each(|bytes| own(&bytes));
                        *answered += 1;
                        None
                    }
                },
            };
            *answered += usize::from(end == Some(true));
            end.is_none()
        });
    }

    fn length(&mut self) -> u32 {
        let room = self.hostile.max_payload(Rank(0), Category::Medium, Lane::Request, CALL).unwrap_or(0);
        let part = self.hostile.max_payload(Rank(0), Category::Medium, Lane::Request, PART).unwrap_or(0);
        let limits = [0, 1, room, part, 2 * part, 1024, u64::from(LONGEST)];
        (self.choices.near(&limits) as u32).min(LONGEST + 1)
    }

    /// A word that tells a method, of any of them or none.
    fn header(&mut self) -> u64 {
        let handles = self.handles;
        let ids = [
            handles.bytes.id(),
            handles.bytes.id(),
            handles.echo.id(),
            handles.make.id(),
            handles.later.id(),
            handles.never.id(),
            handles.count.id,
        ];
        let id = ids[self.choices.of(ids.len())];
        let stream = if id == handles.count.id { Header::STREAM } else { 0 };
        let flags = match self.choices.of(8) {
            0 => u16::from(self.choices.byte()),
            1..=2 => stream | Header::ONE_WAY,
            _ => stream,
        };
        let header = Header::new(id, flags).to_u64();
        if self.choices.of(16) == 0 { header ^ 1 << self.choices.of(64) } else { header }
    }

    /// The number of a call of the honest rank, or of a task that it works on: one that there is, was, or might
    /// be.
    fn key(&mut self, of_tasks: bool) -> u64 {
        let calls = self.honest.state();
        let mut keys: Vec<u64> = match of_tasks {
            true => calls.server.known().map(|known| known.0.to_u64()).collect(),
            false => calls.environment.shared.table().known().map(|known| known.0.to_u64()).collect(),
        };
        if keys.is_empty() || self.choices.of(8) == 0 {
            keys.extend([0, 1 << 32, u64::from(u32::MAX), u64::MAX]);
        }
        self.choices.near(&keys)
    }

    /// The digest of a call's method, and its length.
    fn digest(&mut self, call: u64) -> u64 {
        let table = self.honest.state().environment.shared.table();
        let digest = table.known().find(|known| known.0.to_u64() == call).map_or(0, |known| known.1);
        drop(table);
        u64::from(digest) << 32
    }

    /// A request, or an answer, that comes to the honest rank in parts: where its parts go, and its length.
    fn in_parts(&mut self, answers: bool) -> Option<(u64, usize)> {
        let calls = self.honest.state();
        let parts: Vec<(u64, usize)> = match answers {
            true => {
                let table = calls.environment.shared.table();
                table.known().filter_map(|known| Some((known.0.to_u64(), known.2?))).collect()
            }
            false => calls.server.known().filter_map(|known| Some((known.0.to_u64(), known.2?))).collect(),
        };
        let choice = self.choices.of(parts.len());
        parts.get(choice).copied()
    }

    /// The hostile rank sends a few parts of something long that the honest one has room for: as its length
    /// suggests, in any order, some of them twice, some too long.
    fn send_parts(&mut self, answers: bool) {
        let Some((key, total)) = self.in_parts(answers) else { return };
        let (to, wire, of) = (Rank(0), self.hostile.state().wire, total as u64);
        let most = self.hostile.max_payload(to, Category::Medium, Lane::Request, PART).unwrap_or(0);
        for _ in 0..=self.choices.of(8) {
            let part = self.choices.near(&[of / 2, of.div_ceil(2), of / 3, of, most, 1]).min(most);
            let at = [0, 0, part, 2 * part, of / 2, of.saturating_sub(part), of.saturating_sub(1), of];
            let at = self.choices.near(&at) & !PART_OF_ANSWER;
            let at = if answers { at | PART_OF_ANSWER } else { at };
            let body = vec![MADE_OF[1]; part as usize];
            let said = self.hostile.try_request_medium(to, wire.part, (key, at), &body);
            self.hear(said);
        }
    }

    /// The hostile rank says something, maybe so often that a limit is reached.
    fn say(&mut self) {
        match self.choices.of(4) {
            0 => self.send_parts(false),
            1 => self.send_parts(true),
            _ => {
                let times = [1, 1, 1, 1, 2, 3, 4, 8, 12, 17, 21, 40];
                let times = times[self.choices.of(times.len())];
                // The same again, but for its numbers.
                let data = self.choices.0;
                for time in 0..times {
                    self.choices.0 = data;
                    self.say_one(time);
                }
            }
        }
    }

    fn say_one(&mut self, time: u64) {
        let wire = self.hostile.state().wire;
        let window = u64::from(self.choices.byte() % 5);
        let length = u64::from(self.length());
        let left = self.choices.one_of(&[NO_DEADLINE, NO_DEADLINE, NO_DEADLINE - 1, 1 << 50, 0]);
        let to = Rank(0);
        let most = self.hostile.max_payload(to, Category::Medium, Lane::Request, CALL_WITH).unwrap_or(0);
        let body = vec![MADE_OF[1]; length.min(most) as usize];
        let body = match self.choices.of(4) {
            0 => &body[..0],
            _ => &body[..],
        };
        let number = |choices: &mut Choices<'_>| {
            let numbers = [0, 1, u64::from(WINDOW), RECEIVE_BYTES, u64::from(LONGEST), 1 << 32, u64::MAX >> 1];
            choices.near(&numbers).wrapping_add(time)
        };
        let said = match self.choices.of(12) {
            0 => {
                let (header, call) = (self.header(), number(&mut self.choices));
                self.hostile.try_request_medium(to, wire.call, (header, call), body)
            }
            1 => {
                let (header, call) = (self.header(), number(&mut self.choices));
                let words = (header, call, left, measures(0, window as u32));
                self.hostile.try_request_medium(to, wire.call_with, words, body)
            }
            // A long request, of which parts may come.
            2..=3 => {
                let (header, call) = (self.header() | u64::from(Header::LONG) << 16, number(&mut self.choices));
                let words = (header, call, left, measures(length as u32, window as u32));
                self.hostile.try_request(to, wire.call_with, words)
            }
            4 => {
                let header = self.header();
                self.hostile.try_request_medium(to, wire.one_way_with, (header, left), body)
            }
            5 => {
                let header = self.header();
                self.hostile.try_request_medium(to, wire.one_way, header, body)
            }
            // Answers of every kind to calls that there are.
            6..=7 => {
                let call = self.key(false);
                let status =
                    self.choices.one_of(&[0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10, 10, 11, 255]);
                let long = u64::from(self.choices.of(2) == 0) << 8;
                let verdict = self.digest(call) | status | long;
                let numbers = match (long != 0, self.choices.of(4)) {
                    // What a stream announces has its number first.
                    (true, 0..=1) => (number(&mut self.choices) % 8, length),
                    (true, _) => (length, self.key(true)),
                    (false, _) => (number(&mut self.choices), self.key(true)),
                };
                self.hostile.try_request_medium(to, wire.answer, (verdict, call, numbers.0, numbers.1), body)
            }
            8 => {
                let what = self.choices.one_of(&[0, 1, 1, 2, 2, 3, 4, u64::MAX]);
                let (a, b) = match what {
                    1 => (self.key(false), number(&mut self.choices)),
                    2 => (self.key(true), number(&mut self.choices)),
                    _ => (number(&mut self.choices), number(&mut self.choices)),
                };
                self.hostile.try_request(to, wire.control, (what, a, b))
            }
            // Parts of what there is, in any order, some of them twice.
            kind => {
                let answers = kind == 9;
                let key = self.key(!answers);
                let part = body.len() as u64;
                let at =
                    self.choices.near(&[0, 0, part, 2 * part, length, length.saturating_sub(part), u64::MAX >> 1]);
                let at = if answers { at | PART_OF_ANSWER } else { at & !PART_OF_ANSWER };
                self.hostile.try_request_medium(to, wire.part, (key, at), body)
            }
        };
        self.hear(said);
    }

    /// Has the honest rank look at messages where there is no room for more.
    fn hear(&mut self, said: Result<(), SendError>) {
        match said {
            Ok(()) => self.hostile.flush(),
            Err(SendError::WouldBlock { .. }) => drop(self.honest.poll()),
            Err(error) => panic!("the hostile rank cannot say that: {error}"),
        }
    }

    /// The hostile rank goes. Nothing stays of what it has said.
    fn end(mut self) -> bool {
        let _ = self.honest.poll();
        self.take();
        self.waiting.clear();
        drop(self.hostile);
        let left = |honest: &Rung| {
            let calls = honest.state();
            let table = calls.environment.shared.table();
            (calls.tasks(), table.len(), table.under_way(), calls.room.used())
        };
        for _ in 0..10_000 {
            let _ = self.honest.poll();
            if left(&self.honest) == (0, 0, 0, 0) {
                break;
            }
        }
        assert_eq!(left(&self.honest), (0, 0, 0, 0), "tasks, calls, calls under way, bytes");
        self.answered > 0
    }
}

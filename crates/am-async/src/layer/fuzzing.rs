//! A rank that breaks the protocol of calls, as fuzzers and ordinary tests play it against one that keeps it.
//! What it says is drawn from what the other one knows: calls and tasks that there are, what is missing of long
//! messages, and the numbers around every limit.

use super::*;
use crate::caller::{Answers, Call};
use crate::error::Failure;
use crate::method::{Callable, Method, SliceMethod, StreamMethod};
use crate::run::CallEndpoint;
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::{Endpoint, Rank};
use serde::{Deserialize, Serialize};

/// What the bytes are made of that each rank sends: the honest one, then the other.
const MADE_OF: [u8; 2] = [0x5a, 0xa5];
/// The longest message in parts.
const LONGEST: u32 = 4000;
/// Messages and steps of a duel at most.
const STEPS: usize = 300;

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
    count: StreamMethod<u32, u32>,
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
            .stream("count", |_, count: u32, mut sink| async move {
                for number in 0..count % 50 {
                    sink.send(&number).await?;
                }
                Ok::<(), Failure>(())
            })
            .expect(expect),
    };
    let config = CallConfig::new().tasks(20).calls(12).calls_per_peer(8).max_bytes(LONGEST).receive_bytes(6000);
    let (world, mut table) = (World { place, foreign: false }, Handlers::new());
    let calls =
        Calls::register_with(&mut table, methods, world, config.stream_window(3)).expect("room in the table");
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
    Count(Answers<u32, Failure>),
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
        assert!(!self.honest.state().world().foreign, "bytes that nobody has sent");
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
        let waiting = match self.choices.of(7) {
            0 => Waiting::Bytes(caller.call(Rank(1), handles.bytes, &bytes)),
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
                    std::task::Poll::Ready(Some(_)) => {
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
            true => calls.server.known().map(|(key, _)| key.to_u64()).collect(),
            false => calls.environment.shared.table().known().map(|(key, _)| key.to_u64()).collect(),
        };
        if keys.is_empty() || self.choices.of(8) == 0 {
            keys.extend([0, 1 << 32, u64::from(u32::MAX), u64::MAX]);
        }
        self.choices.near(&keys)
    }

    /// The digest of a call's method, and its length.
    fn digest(&mut self, call: u64) -> u64 {
        let table = self.honest.state().environment.shared.table();
        let digest = table.known().find(|(key, _)| key.to_u64() == call).map_or(0, |(_, digest)| digest);
        drop(table);
        u64::from(digest) << 32
    }

    /// The hostile rank says something.
    fn say(&mut self) {
        let wire = self.honest.state().wire;
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
        let number =
            |choices: &mut Choices<'_>| choices.near(&[0, 1, 3, 6000, u64::from(LONGEST), 1 << 32, u64::MAX >> 1]);
        let _ = match self.choices.of(12) {
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
                let status = self.choices.one_of(&[0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10, 255]);
                let long = u64::from(self.choices.of(2) == 0) << 8;
                let verdict = self.digest(call) | status | long;
                let numbers = (if long != 0 { length } else { number(&mut self.choices) }, self.key(true));
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
        self.hostile.flush();
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

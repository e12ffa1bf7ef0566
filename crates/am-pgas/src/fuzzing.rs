//! What fuzzers and ordinary tests call alike: ranks that keep to the protocols of this crate, and one whose
//! messages are other ones than it has sent.
//!
//! What the faulty rank says is drawn from what ranks say just then: its messages, and its answers, come with some
//! of their words and bytes changed to numbers beside them, to numbers of earlier messages, or to limits, or as an
//! earlier message of the same kind. So they name operations, teams, aggregators and places that there are, a
//! little off.

use crate::aggregate::{Aggregate, Aggregator, AggregatorConfig, Route};
use crate::collectives::{Collective, Max, Sum};
use crate::{Pgas, Team, pgas_state};
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::one_sided::{AtomicOp, Operation};
use am_core::transport::{Arrival, Completion, Membership, ReplyPath, Sink, Waiting};
use am_core::{Endpoint, Handlers, Payload, Peer, Rank, Span, Transport, Words};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Ranks, of which one is faulty.
const RANKS: u32 = 4;
const FAULTY: u32 = 1;
/// Steps of all ranks together at most.
const STEPS: usize = 300;
/// Bytes of the aggregators' buffers, and of their messages.
const MEMORY: usize = 4096;
const MESSAGE: usize = 64;
/// Bytes of a segment.
const SEGMENT: usize = 256;
/// Collective operations of a rank on a team at most.
const OPERATIONS: usize = 24;

/// Where the bytes come in: choices, as long as there are some.
#[derive(Debug, Default)]
struct Draw {
    bytes: Vec<u8>,
    at: usize,
    /// Whether the faulty rank's messages are changed.
    on: bool,
    /// Messages of the faulty rank as they were.
    earlier: Vec<(u8, Words, Vec<u8>)>,
    /// How many were changed.
    changed: usize,
}

impl Draw {
    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    fn of(&mut self, many: usize) -> usize {
        usize::from(self.byte()) % many.max(1)
    }

    fn is_over(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// A number that may stand in this one's place.
    fn near(&mut self, number: u32) -> u32 {
        let limits = [0, 1, 2, FAULTY, RANKS, MESSAGE as u32, SEGMENT as u32, u32::MAX, 1 << 31, 1 << 16];
        match self.of(5) {
            0 => number.wrapping_add(1),
            1 => number.wrapping_sub(1),
            2 => number ^ 1 << self.of(32),
            3 if !self.earlier.is_empty() => {
                let earlier = self.of(self.earlier.len());
                let words = self.earlier[earlier].1;
                words.word(self.of(words.len())).unwrap_or(number)
            }
            _ => limits[self.of(limits.len())],
        }
    }

    /// What comes in a message's place; none if it comes as it is.
    fn change(&mut self, arrival: &Arrival<'_>) -> Option<(u8, Words, Vec<u8>)> {
        if !self.on || arrival.from != Peer(FAULTY) || arrival.payload.offset().is_some() {
            return None;
        }
        let mut bytes = vec![0; arrival.payload.len()];
        arrival.payload.copy_to(&mut bytes);
        let own = (arrival.handler, *arrival.args, bytes);
        if self.earlier.len() < 64 {
            self.earlier.push(own.clone());
        } else {
            let place = self.of(64);
            self.earlier[place] = own.clone();
        }
        let (handler, words, mut bytes) = own;
        let mut words: Vec<u32> = words.iter().collect();
        match self.of(8) {
            0..=3 => return None,
            4 => {
                let handler = arrival.handler;
                let same: Vec<_> = self.earlier.iter().filter(|earlier| earlier.0 == handler).collect();
                let (handler, words, bytes) =
                    same[usize::from(self.bytes.get(self.at).copied()?) % same.len()].clone();
                (self.at, self.changed) = (self.at + 1, self.changed + 1);
                return Some((handler, words, bytes));
            }
            5 => {
                let len = bytes.len();
                let lens = [0, 1, len.wrapping_sub(1), len + 1, 2 * len, MESSAGE, MESSAGE + 8, 8, 16];
                bytes.resize(lens[self.of(lens.len())].min(1024), 0xa5);
            }
            6 if bytes.len() >= 4 => {
                let place = self.of(bytes.len() / 4) * 4;
                let number = bytes[place..].first_chunk().copied().unwrap_or_default();
                let number = self.near(u32::from_le_bytes(number));
                bytes[place..][..4].copy_from_slice(&number.to_le_bytes());
            }
            _ => {
                for _ in 0..=self.of(3) {
                    let place = self.of(words.len());
                    if let Some(word) = words.get(place).copied() {
                        words[place] = self.near(word);
                    }
                }
            }
        }
        self.changed += 1;
        Some((handler, Words::from_slice(&words).ok()?, bytes))
    }
}

/// What all ranks draw from.
type Shared = Arc<Mutex<Draw>>;

fn lock(draw: &Shared) -> MutexGuard<'_, Draw> {
    draw.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A transport to which the faulty rank's messages come changed.
#[derive(Debug)]
struct Changed {
    inner: Loopback,
    draw: Shared,
}

impl Membership for Changed {
    am_core::forward!(inner: local_peer, shape, losses, status, is_fork, depart);
}

impl Waiting for Changed {
    am_core::forward!(inner: idle, idle_unless, wake_peer, spins, waker, now, charge);
    am_core::forward!(inner: notify, descriptor, notify_readable, end_notify);
}

impl Transport for Changed {
    type Memory = <Loopback as Transport>::Memory;
    type Room = <Loopback as Transport>::Room;
    type Slot<'a> = <Loopback as Transport>::Slot<'a>;
    am_core::forward!(inner:
        send, reserve, slot, may_deliver, limits, control, reply_detached, flush, is_quiescent, polls_per_sweep,
        segment, segment_len, remote_segment, auxiliary, native, credits, owed, bare_credits,
    );

    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        self.inner.poll(budget, &mut Between { sink, draw: &self.draw })
    }
}

struct Between<'a, S> {
    sink: &'a mut S,
    draw: &'a Shared,
}

impl<S: Sink> Between<'_, S> {
    fn pass(&mut self, arrival: Arrival<'_>, pass: impl FnOnce(&mut S, Arrival<'_>)) {
        let changed = lock(self.draw).change(&arrival);
        let Some((handler, args, bytes)) = &changed else { return pass(self.sink, arrival) };
        let mut arrival = arrival;
        (arrival.handler, arrival.args) = (*handler, args);
        if arrival.payload.category() == am_core::Category::Medium {
            arrival.payload = Payload::own(bytes);
        }
        pass(self.sink, arrival);
    }
}

impl<S: Sink> Sink for Between<'_, S> {
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        self.pass(arrival, |sink, arrival| sink.request(arrival, path));
    }

    fn reply(&mut self, arrival: Arrival<'_>) {
        self.pass(arrival, |sink, arrival| sink.reply(arrival));
    }

    fn control(&mut self, from: Peer, args: &Words, payload: Payload<'_>) {
        self.sink.control(from, args, payload);
    }

    fn completed(&mut self, completion: Completion<'_>) {
        self.sink.completed(completion);
    }
}

/// What a rank's handlers see.
struct State {
    pgas: Pgas,
    /// Items that were handled.
    items: u64,
}

pgas_state!(State, pgas);

type Member = Endpoint<Changed, State>;

/// What has begun on a team, in the order in which all its members begin it.
enum Begun {
    Sum(Collective<Vec<u64>>),
    Long(Collective<Vec<u32>>),
    Broadcast(Collective<Vec<u16>>),
}

struct Player {
    endpoint: Member,
    aggregators: [Aggregator<u64>; 3],
    world: Team,
    /// Without the faulty rank.
    sound: Option<Team>,
    on_world: Vec<Begun>,
    on_sound: Vec<Begun>,
    atomics: Vec<Operation<u64>>,
}

fn attach(transport: Changed) -> Player {
    const EXPECT: &str = "nothing is changed yet";
    let mut handlers = Handlers::<State>::new();
    let mut state = State { pgas: Pgas::register(&mut handlers).expect(EXPECT), items: 0 };
    let joining = Endpoint::builder(transport).timeout(Span::from_secs(60));
    let config = AggregatorConfig::new().message_bytes(MESSAGE).memory(MEMORY).window(2);
    let sees = |state: &mut State, from: Rank, items: &[u64]| {
        assert!(from.0 < RANKS, "items of rank {from}, which there is not");
        state.items += items.len() as u64;
    };
    let answers =
        Aggregator::register(&joining, &mut state.pgas, &mut handlers, "a", config.route(Route::Direct), sees);
    let answers = answers.expect(EXPECT);
    let far = config.route(Route::Matrix);
    let routed = Aggregator::register(&joining, &mut state.pgas, &mut handlers, "b", far, sees).expect(EXPECT);
    let asked = Aggregator::register_answering(
        &joining,
        &mut state.pgas,
        &mut handlers,
        "c",
        far,
        answers,
        move |state: &mut State, from, items: &[u64], emitter| {
            sees(state, from, items);
            items.iter().for_each(|item| emitter.push(from, *item).expect("an answer to each has room"));
        },
    );
    let aggregators = [answers, routed, asked.expect(EXPECT)];
    let mut endpoint = joining.attach(handlers, state).expect(EXPECT);
    let world = Team::world(&mut endpoint).expect(EXPECT);
    let sound: Vec<u32> = (0..RANKS).filter(|rank| *rank != FAULTY).collect();
    let sound = world.select(&mut endpoint, &sound).expect(EXPECT);
    // What is waited for in vain ends at once.
    endpoint.set_timeout(Some(Span(1)));
    let (on_world, on_sound, atomics) = (Vec::new(), Vec::new(), Vec::new());
    Player { endpoint, aggregators, world, sound, on_world, on_sound, atomics }
}

impl Player {
    /// Begins the team's next operation; which one that is, all members know.
    fn begin(&mut self, sound: bool) {
        let (team, begun) = match &self.sound {
            Some(team) if sound => (team, &mut self.on_sound),
            _ => (&self.world, &mut self.on_world),
        };
        let (number, endpoint) = (begun.len(), &mut self.endpoint);
        if number == OPERATIONS {
            return;
        }
        let next = match number % 4 {
            0 | 2 => team.allreduce_nb(endpoint, vec![number as u64; 1 + number % 5], Sum).map(Begun::Sum),
            1 => team.allreduce_nb(endpoint, vec![number as u32; 700], Max).map(Begun::Long),
            _ => team.broadcast_nb(endpoint, 2, vec![number as u16; 40]).map(Begun::Broadcast),
        };
        // A team with the faulty rank may have failed; then no more of its operations begin.
        match next {
            Ok(next) => begun.push(next),
            Err(error) => assert!(!sound || self.sound.is_none(), "a team of sound ranks: {error}"),
        }
    }

    fn access(&mut self, draw: &Shared) {
        let (to, what, place) = {
            let mut draw = lock(draw);
            (Rank(draw.of(RANKS as usize) as u32), draw.of(6), draw.of(SEGMENT / 8) as u64 * 8)
        };
        let endpoint = &mut self.endpoint;
        let begun = match what {
            0 => endpoint.atomic_nb(to, place, AtomicOp::Add(3u64)),
            1 => endpoint.atomic_nb(to, place, AtomicOp::Swap(7u64)),
            2 => endpoint.atomic_nb(to, place, AtomicOp::Get),
            3 => return drop(endpoint.atomic_nbi(to, place, AtomicOp::Max(9u64))),
            4 => return drop(endpoint.put_nbi(to, place, &[1; 8])),
            _ => return drop(endpoint.get_nbi(to, place, 8, 0)),
        };
        self.atomics.extend(begun);
    }

    fn push(&mut self, draw: &Shared) {
        let (which, to, times) = {
            let mut draw = lock(draw);
            (draw.of(3), Rank(draw.of(RANKS as usize) as u32), draw.of(20))
        };
        for number in 0..times {
            let _ = self.endpoint.push(self.aggregators[which], to, number as u64);
        }
        if times % 3 == 0 {
            let _ = self.endpoint.send_held(self.aggregators[which]);
        }
    }

    /// However the faulty rank speaks, the others keep to their limits.
    fn check(&self) {
        for aggregator in self.aggregators {
            let usage = self.endpoint.usage(aggregator).expect("its own aggregator");
            assert!(usage.memory <= MEMORY, "{usage:?}");
            assert!(usage.held <= usage.look_ahead.max(usage.overflow), "{usage:?}");
        }
    }
}

/// What the bytes have one rank do to three others; returns how many of its messages were changed.
///
/// # Panics
/// If a sound rank exceeds its limits, is told of items of a rank that there is not, finds a wrong result of an
/// operation of sound ranks, or waits for ever once the faulty one is gone.
pub fn hostile(data: &[u8]) -> usize {
    let draw = Shared::default();
    let config = LoopbackConfig::default().segment(SEGMENT).medium(1024).direct(false);
    let ranks = network(RANKS, config).into_iter().map(|inner| Changed { inner, draw: Arc::clone(&draw) });
    // Each waits for the others to attach.
    let mut players: Vec<Player> = thread::scope(|scope| {
        let ranks: Vec<_> = ranks.map(|transport| scope.spawn(|| attach(transport))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("all are alike")).collect()
    });
    *lock(&draw) = Draw { bytes: data.to_vec(), on: true, ..Draw::default() };
    for _ in 0..STEPS {
        if lock(&draw).is_over() {
            break;
        }
        let (whose, what) = {
            let mut draw = lock(&draw);
            (draw.of(RANKS as usize), draw.of(10))
        };
        let player = &mut players[whose];
        match what {
            0..=3 => drop(player.endpoint.poll()),
            4 => player.begin(false),
            5 => player.begin(true),
            6 => player.access(&draw),
            7..=8 => player.push(&draw),
            _ => drop(player.endpoint.done(player.aggregators[1])),
        }
        player.check();
    }
    // All operations of the team of sound ranks take place, though one member has said nothing so far.
    let most = players.iter().map(|player| player.on_sound.len()).max().unwrap_or(0);
    for player in players.iter_mut().filter(|player| player.sound.is_some()) {
        while player.on_sound.len() < most {
            player.begin(true);
        }
    }
    lock(&draw).on = false;
    let faulty = players.remove(FAULTY as usize);
    drop(faulty);
    end(players);
    lock(&draw).changed
}

/// Has all that has begun end.
fn end(mut players: Vec<Player>) {
    // Everybody learns of the loss.
    for _ in 0..200 {
        for player in &mut players {
            let _ = player.endpoint.poll();
            player.endpoint.acknowledge_loss(Rank(FAULTY));
            player.check();
        }
    }
    let mut left = usize::MAX;
    for _ in 0..2000 {
        left = 0;
        for player in &mut players {
            let endpoint = &mut player.endpoint;
            for begun in player.on_sound.iter().chain(&player.on_world) {
                let done = match begun {
                    Begun::Sum(begun) => begun.test(endpoint),
                    Begun::Long(begun) => begun.test(endpoint),
                    Begun::Broadcast(begun) => begun.test(endpoint),
                };
                left += usize::from(!done.unwrap_or(false));
            }
            for atomic in &player.atomics {
                left += usize::from(!endpoint.test(atomic).unwrap_or(false));
            }
        }
        if left == 0 {
            break;
        }
    }
    assert_eq!(left, 0, "operations that never end");
    for mut player in players {
        for (number, begun) in player.on_sound.into_iter().enumerate() {
            let right = match begun {
                Begun::Sum(begun) => {
                    let sums = begun.wait(&mut player.endpoint);
                    sums.map(|sums| sums == vec![3 * number as u64; 1 + number % 5])
                }
                Begun::Long(begun) => begun.wait(&mut player.endpoint).map(|all| all == vec![number as u32; 700]),
                Begun::Broadcast(begun) => {
                    begun.wait(&mut player.endpoint).map(|all| all == vec![number as u16; 40])
                }
            };
            assert_eq!(right, Ok(true), "operation {number} of the sound ranks");
        }
        for begun in player.on_world {
            match begun {
                Begun::Sum(begun) => drop(begun.wait(&mut player.endpoint)),
                Begun::Long(begun) => drop(begun.wait(&mut player.endpoint)),
                Begun::Broadcast(begun) => drop(begun.wait(&mut player.endpoint)),
            }
        }
        player.atomics.into_iter().for_each(|atomic| drop(player.endpoint.wait(atomic)));
    }
}

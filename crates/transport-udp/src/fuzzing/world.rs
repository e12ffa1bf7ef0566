//! What fuzz targets and the tests of the simulated network share: endpoints with a small application, and its
//! ledger.

use crate::proto::{Batch, Config, Direct, Event, Machine, Secrets};
use crate::sim::{self, Network, SplitMix64};
use am_core::arguments::Words;
use am_core::transport::{
    Arrival, Body, Category, LossCause, Refused, ReplyBound, ReplyPath, RequestHeader, Sink,
};
use am_core::{Instant, Payload, Peer, Shape, Span};

/// Eight regions of 256 KiB.
pub const SEGMENT: usize = 2 << 20;

pub fn config(ranks: u32, me: u32, incarnation: u64) -> Config {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&incarnation.to_le_bytes());
    bytes[8..12].copy_from_slice(&me.to_le_bytes());
    Config::new(Shape::new(ranks), Peer(me), Secrets { job: b"a secret of the job".to_vec(), incarnation: bytes })
}

/// The handler that never replies.
pub const SILENT: u8 = 9;

/// The bytes that message `number` from `from` carries.
pub fn pattern(from: Peer, number: u64, len: usize) -> Vec<u8> {
    let mut rng = SplitMix64(number << 8 | u64::from(from.0));
    (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(len).collect()
}

/// One endpoint's application: numbers its requests, checks that others' arrive once, in order and unharmed.
#[derive(Default)]
pub struct App {
    pub me: u32,
    /// Per peer: requests sent, replies received, bare or one-way requests sent, next number expected.
    pub sent: Vec<u64>,
    pub replied: Vec<u64>,
    pub silent: Vec<u64>,
    pub expected: Vec<u64>,
    /// Numbers of requests whose replies are awaited, per peer.
    pub awaited: Vec<std::collections::VecDeque<u64>>,
    /// Long payloads under way: destination, bytes, how many are handed over.
    pub pushing: Option<(Peer, Vec<u8>, usize)>,
    pub events: Vec<Event>,
}

/// How a request with this number is to be treated; known to both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    OneWay,
    Bare,
    Short,
    Medium(usize),
    Long(usize),
}

pub fn treatment(from: Peer, number: u64) -> Treatment {
    let mut rng = SplitMix64(number.wrapping_mul(77) ^ u64::from(from.0));
    match rng.below(5) {
        0 => Treatment::OneWay,
        1 => Treatment::Bare,
        2 => Treatment::Short,
        3 => Treatment::Medium(rng.below(5000) as usize),
        _ => Treatment::Long(rng.below(4000) as usize),
    }
}

pub fn words(number: u64) -> Words {
    Words::from_slice(&[number as u32, (number >> 32) as u32]).unwrap()
}

fn number(args: &Words) -> u64 {
    u64::from(args.word(0).unwrap()) | u64::from(args.word(1).unwrap()) << 32
}

/// Where requests (lane 0) and replies (lane 1) of `from` are placed in a segment.
fn region(from: Peer, lane: u64) -> u64 {
    (u64::from(from.0) * 2 + lane) * (SEGMENT as u64 / 8)
}

impl Sink for App {
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        let (from, number) = (arrival.from, number(arrival.args));
        assert_eq!(number, self.expected[from.index()], "rank {} from {from:?}: in order, once", self.me);
        self.expected[from.index()] += 1;
        let bytes = arrival.payload.to_vec();
        assert!(bytes == pattern(from, number, bytes.len()), "payload of request {number} from {from:?}");
        assert_eq!(arrival.payload.offset().is_some(), arrival.category == Category::Long);
        let me = Peer(self.me);
        if arrival.handler == SILENT {
            return;
        }
        match treatment(from, number) {
            Treatment::OneWay | Treatment::Bare => {}
            Treatment::Short => path.send(1, arrival.args, Body::None).unwrap(),
            Treatment::Medium(len) => {
                let reply = pattern(me, number, len);
                path.send_filled(1, arrival.args, len, &mut |out| out.write(0, &reply)).unwrap();
            }
            Treatment::Long(len) => {
                // Replies under way at once must not lie over each other.
                let at = region(me, 1) + number % 64 * 4096;
                path.send(1, arrival.args, Body::Place(&pattern(me, number, len), at)).unwrap();
            }
        }
    }

    fn reply(&mut self, arrival: Arrival<'_>) {
        let (from, number) = (arrival.from, number(arrival.args));
        assert_eq!(self.awaited[from.index()].pop_front(), Some(number), "replies in order, once");
        let len = match treatment(Peer(self.me), number) {
            Treatment::Medium(len) | Treatment::Long(len) => len,
            _ => 0,
        };
        assert!(arrival.payload.to_vec() == pattern(from, number, len), "payload of reply {number} from {from:?}");
        self.replied[from.index()] += 1;
    }

    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {
        panic!("nobody sends control messages here");
    }
}

/// Endpoints with applications on a network.
pub struct World {
    pub net: Network,
    pub apps: Vec<App>,
    pub peak: usize,
    /// Handlers run behind the next step of the network, as they do beside a helper that drives their machine
    /// meanwhile.
    pub late: bool,
    /// What they deliver then.
    batches: Vec<Option<Batch>>,
}

pub fn app(me: u32, ranks: usize) -> App {
    App {
        me,
        sent: vec![0; ranks],
        replied: vec![0; ranks],
        silent: vec![0; ranks],
        expected: vec![0; ranks],
        awaited: vec![Default::default(); ranks],
        ..App::default()
    }
}

impl World {
    pub fn new(seed: u64, ranks: u32, change: impl Fn(&mut Config)) -> Self {
        let mut machines = Vec::new();
        for me in 0..ranks {
            let mut config = config(ranks, me, seed);
            change(&mut config);
            let (machine, _) = sim::machine(config, SEGMENT).unwrap();
            machines.push(machine);
        }
        let apps = (0..ranks).map(|me| app(me, ranks as usize)).collect();
        let batches = (0..ranks).map(|_| None).collect();
        Self { net: Network::new(seed, machines), apps, peak: 0, late: false, batches }
    }

    /// Tries to send the next request of `from` to `to`, of a random kind.
    pub fn send(&mut self, from: Peer, to: Peer, most: u64) -> Result<(), Refused> {
        let now = self.net.now();
        let kind = self.net.rng().below(8);
        let len = self.net.rng().below(most + 1) as usize;
        let app = &mut self.apps[from.index()];
        let machine = self.net.machine(from).unwrap();
        if app.pushing.is_some() {
            return Err(Refused::Busy(am_core::Resource::Interface));
        }
        let number = app.sent[to.index()];
        let treatment = treatment(from, number);
        let reply = match treatment {
            Treatment::OneWay => ReplyBound::None,
            Treatment::Medium(len) => ReplyBound::UpTo(len as u32),
            _ => ReplyBound::UpTo(10),
        };
        let head = RequestHeader::new(0, reply);
        match kind {
            0 => {
                // Requests in a row must not place their payloads over each other before they are handled.
                if app.sent[to.index()] != 0 && !machine.quiet() {
                    return Err(Refused::Busy(am_core::Resource::Interface));
                }
                machine.long(now, to, head, &words(number), len as u64, region(from, 0))?;
                app.pushing = Some((to, pattern(from, number, len), 0));
            }
            1 => machine.request(now, to, head, &words(number), Some(&pattern(from, number, len)))?,
            2..=3 => machine.request(now, to, head, &words(number), Some(&pattern(from, number, len % 100)))?,
            _ => machine.request(now, to, head, &words(number), None)?,
        }
        app.sent[to.index()] += 1;
        if matches!(treatment, Treatment::OneWay | Treatment::Bare) {
            app.silent[to.index()] += 1;
        } else {
            app.awaited[to.index()].push_back(number);
        }
        Ok(())
    }

    /// Lets applications poll and push, and the network take a step.
    pub fn step(&mut self, until: Instant) -> bool {
        let now = self.net.now();
        for app in &mut self.apps {
            let Some(machine) = self.net.machine(Peer(app.me)) else { continue };
            if let Some((to, bytes, done)) = &mut app.pushing {
                match machine.push(*to, &bytes[*done..]) {
                    Ok(count) => *done += count,
                    Err(_) => *done = bytes.len(),
                }
                if *done == bytes.len() {
                    app.pushing = None;
                }
            }
            if self.late {
                let batch = self.batches[app.me as usize].get_or_insert_with(|| machine.new_batch());
                machine.release_held(now);
                machine.take_batch(now, 256, batch);
            } else {
                machine.poll(now, 256, app);
            }
            while let Some(event) = machine.next_event() {
                app.events.push(event);
            }
            self.peak = self.peak.max(machine.buffer_bytes());
        }
        let more = self.net.step(until);
        if self.late {
            self.deliver();
        }
        more
    }

    fn deliver(&mut self) {
        let now = self.net.now();
        for (app, batch) in self.apps.iter_mut().zip(&mut self.batches) {
            let (Some(machine), Some(batch)) = (self.net.machine(Peer(app.me)), batch) else { continue };
            batch.deliver(app, &mut Direct { machine, now });
            machine.settle(now, batch);
        }
    }

    /// Steps until `done` holds; fails after `limit` of virtual time.
    pub fn run(&mut self, limit: Span, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.net.now() + limit;
        while !done(self) {
            assert!(self.net.now() < end, "not done after {limit}; {}", self.ledger());
            self.step(end);
        }
    }

    pub fn ledger(&mut self) -> String {
        let machines: Vec<_> = (0..self.apps.len() as u32)
            .filter_map(|peer| self.net.machine(Peer(peer)).map(|machine| machine.counters().clone()))
            .collect();
        let apps: Vec<_> =
            self.apps.iter().map(|app| (&app.sent, &app.expected, &app.replied, &app.events)).collect();
        format!("{apps:?} {machines:?}")
    }

    /// Whether everything sent has been handled and answered.
    pub fn complete(&mut self) -> bool {
        let count = self.apps.len();
        let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        let mut apps = pairs.map(|(a, b)| (&self.apps[a], &self.apps[b], a, b));
        apps.all(|(from, to, a, b)| to.expected[a] == from.sent[b] && from.awaited[b].is_empty())
            && (0..count as u32).all(|peer| self.net.machine(Peer(peer)).is_none_or(|machine| machine.quiet()))
    }

    pub fn lost(&self, by: u32, peer: u32) -> Option<LossCause> {
        self.apps[by as usize].events.iter().find_map(|event| match event {
            Event::Lost(lost, cause) if lost.0 == peer => Some(*cause),
            _ => None,
        })
    }

    pub fn machine(&mut self, peer: u32) -> &mut Machine {
        self.net.machine(Peer(peer)).unwrap()
    }
}

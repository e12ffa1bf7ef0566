//! Ranks that have less than a processor, in virtual time: each runs for a while and is away for a while, its
//! socket keeps what comes meanwhile as far as its buffer goes, and its timers run out late.

use crate::common::{config, words};
use am_conformance::CountingSink;
use am_core::transport::{PeerStatus, ReplyBound, RequestHeader};
use am_core::{Instant, Peer, Span};
use std::collections::VecDeque;
use transport_udp::proto::Machine;
use transport_udp::sim::{self, SplitMix64};

/// What the system's usual buffer takes, in bytes of memory: more than there is of payload.
const BUFFER: usize = 212_992;
const OVERHEAD: usize = 768;
const HEAD: RequestHeader = RequestHeader::new(0, ReplyBound::None);

/// How a crowd is drawn.
#[derive(Clone, Copy)]
struct Crowd {
    ranks: u32,
    /// Bytes of each message, and how many each rank sends.
    bytes: usize,
    messages: u64,
    smallest: bool,
    /// Time that a rank is away, between these, in milliseconds.
    away: (u64, u64),
}

struct Rank {
    machine: Machine,
    socket: VecDeque<Vec<u8>>,
    buffered: usize,
    taken: CountingSink,
    sent: u64,
    /// It does not run before.
    back: Instant,
}

/// One processor and its ranks.
struct Host {
    ranks: Vec<Rank>,
    now: Instant,
    random: SplitMix64,
    crowd: Crowd,
}

impl Host {
    fn new(crowd: Crowd, seed: u64) -> Self {
        let rank = |me| {
            let mut config = config(crowd.ranks, me, u64::from(me));
            config.datagram_limit = 65_487;
            if crowd.smallest {
                config.protocol = config.protocol.smallest();
            }
            let machine = sim::machine(config, 4096).unwrap().0;
            let (socket, taken, back) = (VecDeque::new(), CountingSink::default(), Instant(0));
            Rank { machine, socket, buffered: 0, taken, sent: 0, back }
        };
        let ranks = (0..crowd.ranks).map(rank).collect();
        Self { ranks, now: Instant(0), random: SplitMix64(seed), crowd }
    }

    /// All that rank `me` can do at present; it costs time, during which nobody else runs.
    fn run(&mut self, me: usize, buffer: &mut [u8]) {
        loop {
            let Self { ranks, now, crowd, .. } = self;
            let rank = &mut ranks[me];
            let mut idle = true;
            while let Some(mut datagram) = rank.socket.pop_front() {
                rank.buffered -= datagram.len() + OVERHEAD;
                *now = *now + Span::from_micros(2) + Span(datagram.len() as u64 * 100);
                let _ = rank.machine.handle(*now, &mut datagram);
                idle = false;
            }
            if rank.machine.deadline().is_some_and(|at| at <= *now) {
                rank.machine.tick(*now);
                idle = false;
            }
            idle &= rank.machine.poll(*now, 1000, &mut rank.taken) == 0;
            let payload = vec![7; crowd.bytes];
            while rank.sent < crowd.messages * u64::from(crowd.ranks) {
                let to = Peer((rank.sent % u64::from(crowd.ranks)) as u32);
                let payload = (crowd.bytes > 0).then_some(&payload[..]);
                if to.index() != me && rank.machine.request(*now, to, HEAD, &words(0), payload).is_err() {
                    break;
                }
                rank.sent += 1;
                idle = false;
            }
            while let Some((to, len)) = self.ranks[me].machine.transmit(self.now, buffer) {
                self.now = self.now + Span::from_micros(2) + Span(len as u64 * 100);
                let there = &mut self.ranks[to.index()];
                if there.buffered <= BUFFER {
                    there.buffered += len + OVERHEAD;
                    there.socket.push_back(buffer[..len].to_vec());
                }
                idle = false;
            }
            if idle {
                return;
            }
        }
    }

    /// Lets ranks run by turns until all messages have been taken; returns how long that took.
    fn finish(mut self) -> Span {
        let mut buffer = vec![0; 65_535];
        let all = self.crowd.messages * u64::from(self.crowd.ranks - 1);
        let (low, high) = self.crowd.away;
        while self.ranks.iter().any(|rank| rank.taken.0 < all) {
            let wants = |rank: &Rank| match rank.socket.is_empty() && rank.sent > 0 {
                true => rank.machine.deadline().map(|at| at.max(rank.back)),
                false => Some(rank.back),
            };
            let (at, me) = (0..self.ranks.len())
                .filter_map(|me| Some((wants(&self.ranks[me])?, me)))
                .min()
                .expect("somebody has something to do");
            self.now = self.now.max(at);
            self.run(me, &mut buffer);
            let away = Span::from_micros(1000 * low + self.random.below(1000 * (high - low) + 1));
            self.ranks[me].back = self.now + away;
            for (other, there) in self.ranks.iter().enumerate() {
                let lost =
                    (0..self.crowd.ranks).find(|peer| there.machine.status(Peer(*peer)) != PeerStatus::Active);
                assert_eq!(lost, None, "rank {other} has lost it at {}", self.now.since(Instant(0)));
            }
            assert!(self.now < Instant(0) + Span::from_secs(120), "{:?}", self.counts());
        }
        self.now.since(Instant(0))
    }

    fn counts(&self) -> Vec<u64> {
        self.ranks.iter().map(|rank| rank.taken.0).collect()
    }
}

const CROWDS: [Crowd; 3] = [
    Crowd { ranks: 2, bytes: 60_000, messages: 200, smallest: false, away: (0, 100) },
    Crowd { ranks: 4, bytes: 0, messages: 5000, smallest: true, away: (5, 100) },
    Crowd { ranks: 3, bytes: 20_000, messages: 200, smallest: false, away: (5, 50) },
];

fn play(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let took = CROWDS.map(|crowd| Host::new(crowd, seed).finish());
        println!("seed {seed}: {took:?}");
    }
}

#[test]
fn crowded_ranks_lose_nobody() {
    play(0..2);
}

#[test]
#[ignore = "takes a while"]
fn full_crowded_ranks_lose_nobody() {
    play(2..200);
}

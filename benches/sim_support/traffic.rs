//! The load of the figures of one core: packets that are sent on at random, a barrier, and the bare heap beside
//! them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Duration;

use super::measure::processor_time;
use fabric_sim::{Config, Context, LinkParameters, Mailbox, Report, Sim, Stage, Topology, WaitFor};

/// What a packet carries here.
type Rank<'a> = Context<'a, Mailbox<u32>>;

/// A generator that costs next to nothing (xorshift, 64 bits).
fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// A machine with as many nodes as ranks in a 3D torus, with stages and links that take their time.
pub(crate) fn machine(dims: [u32; 3]) -> Config {
    let mut config = Config::new(dims.iter().product());
    config.topology = Topology::Torus { dims: dims.to_vec() };
    config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 300.0 };
    let stage = Stage { fixed_ns: 100.0, per_unit_ns: 10.0, unit_bytes: 64, depth: u32::MAX };
    (config.nic.nic_tx, config.nic.nic_rx) = (stage, stage);
    config
}

/// Every rank sends a packet to a random rank; whoever receives one sends it on, `times` times.
pub(crate) fn random(config: &Config, times: u32) -> Report<()> {
    let program = move |rank: Rank<'_>| {
        let mut state = (u64::from(rank.rank()) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut send = |left: u32| rank.send((draw(&mut state) % u64::from(rank.ranks())) as u32, 64, left);
        send(times);
        // Nobody knows when the last packet has come; a time at which all have does as well.
        let end = am_core::Instant(u64::from(times + 1) * 20_000_000);
        while rank.now() < end {
            while let Some(packet) = rank.receive() {
                if packet.body > 0 {
                    send(packet.body - 1);
                }
            }
            rank.idle(Some(end), WaitFor::Arrival);
        }
    };
    Sim::run(config, program).expect("the traffic ends by itself")
}

/// A dissemination barrier among ranks around a switch, from the first stack to the last.
pub(crate) fn barrier(ranks: u32) {
    let mut config = Config::new(ranks);
    config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 300.0 };
    let program = |rank: Rank<'_>| {
        let mut early = 0u32;
        for round in (0..).take_while(|round| 1 << round < rank.ranks()) {
            rank.send((rank.rank() + (1 << round)) % rank.ranks(), 8, round);
            while early & 1 << round == 0 {
                early |= 1 << rank.wait().body;
            }
        }
    };
    Sim::run(&config, program).expect("a barrier ends");
}

/// Seconds for which a bare binary heap of (time, number) works on one event, with so many pending: the earliest
/// is taken out, and one at a random later time put in. Works for at least a time.
pub(crate) fn heap_seconds(pending: u32, least: Duration) -> f64 {
    let (mut heap, mut state, mut number) = (BinaryHeap::new(), 1u64, 0u64);
    for _ in 0..pending {
        number += 1;
        heap.push(Reverse((draw(&mut state) % 1_000_000, number)));
    }
    let (begin, mut events) = (processor_time(), 0u64);
    loop {
        for _ in 0..10_000 {
            number += 1;
            if let Some(Reverse((time, _))) = heap.pop() {
                heap.push(Reverse((time + draw(&mut state) % 1_000_000, number)));
            }
        }
        events += 10_000;
        let elapsed = processor_time() - begin;
        if elapsed >= least {
            black_box(&heap);
            return elapsed.as_secs_f64() / events as f64;
        }
    }
}

//! Random programs on machines with losses, overtaking, page faults, small mailboxes and short queues: every
//! message comes once, in order under its tag, with its bytes.
//!
//! `AM_CONFORMANCE_FIRST=7 AM_CONFORMANCE_SEEDS=1` chooses the seeds of the `many_seeds` test (`-- --ignored`).

use crate::nic_model::go_wrong;
use am_conformance::{Draw, chosen_seeds};
use am_core::Span;
use exanet_sim::ExanetConfig;
use exanet_sim::mpi::{self, Buffer, Counts, Mpi, MpiConfig, MpiError, Protocol, Request, Status, WORLD};
use fabric_sim::{Topology, splitmix64};

const RANKS: u32 = 4;
const MESSAGES: u32 = 12;
const ROOM: u64 = 32_768;

/// The machine of a seed.
fn machine(seed: u64) -> ExanetConfig {
    let mut draw = Draw::new(seed);
    let topology = match draw.of(3) {
        0 => Topology::Ring { nodes: 4 },
        1 => Topology::Direct { nodes: 2 },
        _ => Topology::Torus { dims: vec![2, 2] },
    };
    let mut machine = ExanetConfig::new(RANKS, topology.clone());
    machine.ranks_per_node = if matches!(topology, Topology::Direct { .. }) { 2 } else { 1 };
    machine.parameters.packetizer.channels = draw.one(&[1, 3, 32]);
    machine.parameters.packetizer.mailbox = draw.one(&[2, 1024]);
    machine.parameters.rdma.queue = draw.one(&[1, 64]);
    machine.parameters.rdma.reads = draw.one(&[1, 16]);
    machine.parameters.retry.timeout_ns = 30_000.0;
    machine.faults.seed = seed;
    go_wrong(&mut draw, &mut machine);
    machine.deadline_ns = 1e10;
    machine
}

/// What a rank does: all can know it. Message `number` of a rank.
fn message(seed: u64, rank: u32, number: u32) -> (u32, u32, u64) {
    let mut state = seed ^ u64::from(rank) << 40 ^ u64::from(number) << 48;
    let mut draw = |choices: u64| splitmix64(&mut state) % choices;
    let (to, tag) = (draw(RANKS.into()) as u32, draw(2) as u32);
    let most = [64, 2048, 2049, ROOM][draw(4) as usize];
    (to, tag, 8 + draw(most - 8))
}

/// The bytes of a message, the first eight of which name it.
fn bytes(rank: u32, number: u32, len: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..len).map(|at| (at * 13 + u64::from(number) * 7 + u64::from(rank)) as u8).collect();
    bytes[..8].copy_from_slice(&(u64::from(rank) << 32 | u64::from(number)).to_le_bytes());
    bytes
}

/// Who a message comes from to a receive: those with tag 0 from anybody.
fn source(from: u32, tag: u32) -> Option<u32> {
    (tag != 0).then_some(from)
}

/// A rank of a random program.
struct Player<'m, 'a> {
    mpi: &'m mut Mpi<'a>,
    seed: u64,
    state: u64,
    /// Receives that have not ended, in the order in which they were posted.
    receives: Vec<(Request, Buffer, u32)>,
    /// What has come, with the place of its receive.
    found: Vec<(u32, Status, Vec<u8>)>,
    posted: u32,
}

impl Player<'_, '_> {
    fn draw(&mut self, choices: u64) -> u64 {
        splitmix64(&mut self.state) % choices
    }

    fn post(&mut self, from: u32, tag: u32) -> Result<(), MpiError> {
        let buffer = self.mpi.buffer(ROOM as usize);
        let request = self.mpi.receive_begin(WORLD, source(from, tag), Some(tag), &buffer, 0..ROOM)?;
        self.receives.push((request, buffer, self.posted));
        self.posted += 1;
        Ok(())
    }

    /// Waits for a receive; whether it has got a message.
    fn end(&mut self, at: usize) -> Result<bool, MpiError> {
        let (request, buffer, place) = self.receives.swap_remove(at);
        match self.mpi.wait(request) {
            Ok(status) => {
                let bytes = buffer.read(self.mpi, 0, status.len as usize);
                self.found.push((place, status, bytes));
                Ok(true)
            }
            Err(MpiError::Cancelled) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn run(&mut self) -> Result<(), MpiError> {
        let me = self.mpi.rank();
        let mut coming: Vec<(u32, u32)> = (0..RANKS)
            .flat_map(|from| (0..MESSAGES).map(move |number| (from, number)))
            .filter_map(|(from, number)| {
                let (to, tag, _) = message(self.seed, from, number);
                (to == me).then_some((from, tag))
            })
            .collect();
        let (mut sends, mut number) = (Vec::new(), 0);
        while number < MESSAGES || !coming.is_empty() || !self.receives.is_empty() {
            match self.draw(4) {
                0 if number < MESSAGES => {
                    let (to, tag, len) = message(self.seed, me, number);
                    let buffer = self.mpi.buffer(len as usize);
                    buffer.write(self.mpi, 0, &bytes(me, number, len));
                    sends.push(self.mpi.send_begin(WORLD, to, tag, &buffer, 0..len)?);
                    number += 1;
                }
                1 | 2 if !coming.is_empty() => {
                    let at = self.draw(coming.len() as u64) as usize;
                    let (from, tag) = coming.swap_remove(at);
                    self.post(from, tag)?;
                    if self.draw(6) == 0 {
                        let at = self.receives.len() - 1;
                        self.mpi.cancel(&self.receives[at].0);
                        if !self.end(at)? {
                            coming.push((from, tag));
                        }
                    }
                }
                // Before everything is sent and posted, others may wait for this rank.
                3 if number == MESSAGES && coming.is_empty() => {
                    let at = self.draw(self.receives.len() as u64) as usize;
                    assert!(self.end(at)?, "only what was cancelled is");
                }
                _ => {
                    self.mpi.compute(Span::from_nanos(500));
                    self.mpi.progress();
                }
            }
        }
        self.mpi.wait_all(sends)
    }

    /// What is wrong with what has come.
    fn problems(&mut self) -> Vec<String> {
        let me = self.mpi.rank();
        let mut problems = Vec::new();
        self.found.sort_by_key(|(place, ..)| *place);
        for from in 0..RANKS {
            for tag in 0..2 {
                let sent = (0..MESSAGES).filter_map(|number| {
                    let (to, of, len) = message(self.seed, from, number);
                    ((to, of) == (me, tag)).then(|| bytes(from, number, len))
                });
                let came = self.found.iter().filter(|(_, status, _)| (status.source, status.tag) == (from, tag));
                let came: Vec<&Vec<u8>> = came.map(|(.., bytes)| bytes).collect();
                let sent: Vec<Vec<u8>> = sent.collect();
                if !sent.iter().eq(came.iter().copied()) {
                    let names = |all: &mut dyn Iterator<Item = &Vec<u8>>| -> Vec<Vec<u8>> {
                        all.map(|bytes| bytes[..8].to_vec()).collect()
                    };
                    let (sent, came) = (names(&mut sent.iter()), names(&mut came.into_iter()));
                    problems.push(format!("rank {me}, of rank {from} with tag {tag}: {came:?}, not {sent:?}"));
                }
            }
        }
        problems
    }
}

/// Plays the program of a seed; returns what went wrong, and what was sent.
fn play(seed: u64, protocol: Protocol) -> (Vec<String>, Counts) {
    let report = mpi::run(&machine(seed), &MpiConfig::of(protocol), move |mpi| {
        let state = seed ^ u64::from(mpi.rank()) << 32 ^ 0x5555;
        let mut player = Player { mpi, seed, state, receives: Vec::new(), found: Vec::new(), posted: 0 };
        player.run()?;
        Ok((player.problems(), player.mpi.counts()))
    });
    let report = match report {
        Ok(report) => report,
        Err(error) => return (vec![format!("seed {seed}, {protocol:?}: {error}")], Counts::default()),
    };
    let (mut problems, mut all) = (Vec::new(), Counts::default());
    for result in report.results {
        match result {
            Some(Ok((found, counts))) => {
                problems.extend(found.into_iter().map(|found| format!("seed {seed}, {protocol:?}: {found}")));
                all = all.and(&counts);
            }
            other => problems.push(format!("seed {seed}, {protocol:?}: {:?}", other.map(|end| end.map(drop)))),
        }
    }
    (problems, all)
}

fn play_seeds(seeds: std::ops::Range<u64>) -> Counts {
    let (mut problems, mut all) = (Vec::new(), Counts::default());
    for seed in seeds {
        let (found, counts) = play(seed, Protocol::ALL[(seed % 5) as usize]);
        problems.extend(found);
        all = all.and(&counts);
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    all
}

#[test]
fn random_programs_receive_what_was_sent() {
    let Counts { rts, cts, rtr, revoke, ack, advertised, crossed, retired_by_number, .. } = play_seeds(0..60);
    let least = [rts, cts, rtr, revoke, ack, advertised, crossed, retired_by_number].into_iter().min();
    assert!(least > Some(3), "{rts} {cts} {rtr} {revoke} {ack} {advertised} {crossed} {retired_by_number}");
}

/// `cargo test --release -p active-messages-exanet --test it -- --ignored mpi::random::many_seeds`
#[test]
#[ignore = "a thousand seeds take a minute"]
fn many_seeds() {
    play_seeds(chosen_seeds(1000));
}

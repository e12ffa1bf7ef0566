//! Random programs on the interface against what they must come to: every packet once, every notification after
//! its data, every read as it was asked for, under losses, copies, reordering, page faults, small mailboxes and
//! few channels.
//!
//! `AM_CONFORMANCE_FIRST=7 AM_CONFORMANCE_SEEDS=1` chooses the seeds of the `many_seeds` test (`-- --ignored`).

use am_conformance::{Draw, chosen_seeds};
use am_core::PeerStatus;
use exanet_sim::model::Parameters;
use exanet_sim::nic::{
    Access, Counters, Defects, HostMemory, Message, Mutation, Notify, PacketError, Paging, Progress, RdmaError,
    TransferId,
};
use exanet_sim::{AdversarialTiming, ExanetConfig, Nic, PageFaults, Testing};
use fabric_sim::{Topology, WaitFor, splitmix64};

const RANKS: u32 = 3;
const OPERATIONS: u64 = 14;
/// Room of one transfer, and where the areas of a rank's memory begin.
const ROOM: u64 = 40_960;
const SOURCES: u64 = 0;
const READ_ONLY: u64 = SOURCES + OPERATIONS * ROOM;
const TARGETS: u64 = READ_ONLY + OPERATIONS * ROOM;
const NOTES: u64 = TARGETS + RANKS as u64 * OPERATIONS * ROOM;
const SIZE: u64 = NOTES + RANKS as u64 * OPERATIONS * 8;
/// Where memory is mapped.
const AT: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Packet,
    Write,
    Read,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    kind: Kind,
    peer: u32,
    len: u64,
    notify: bool,
}

/// What a rank does, which everybody can know.
fn operation(seed: u64, rank: u32, number: u64) -> Operation {
    let mut state = seed ^ u64::from(rank) << 40 ^ number << 48;
    let mut draw = |choices: u64| splitmix64(&mut state) % choices;
    let kind = [Kind::Packet, Kind::Packet, Kind::Packet, Kind::Write, Kind::Write, Kind::Read][draw(6) as usize];
    let peer = draw(RANKS.into()) as u32;
    let long = [64, 4096, ROOM][draw(3) as usize];
    let len = if matches!(kind, Kind::Packet) { 16 + draw(49) } else { 1 + draw(long) };
    Operation { kind, peer, len, notify: draw(4) != 0 || matches!(kind, Kind::Write) }
}

/// A byte of what an operation moves.
fn pattern(rank: u32, number: u64, at: u64) -> u8 {
    (at.wrapping_mul(31) + (at >> 8) + number * 7 + u64::from(rank) * 101) as u8
}

fn target(of: u32, number: u64) -> u64 {
    TARGETS + (u64::from(of) * OPERATIONS + number) * ROOM
}

fn note(of: u32, number: u64) -> u64 {
    NOTES + (u64::from(of) * OPERATIONS + number) * 8
}

/// What goes wrong on a machine, by a seed's choices.
pub(crate) fn go_wrong(draw: &mut Draw, machine: &mut ExanetConfig) {
    if draw.of(2) == 0 {
        (machine.faults.loss, machine.faults.corruption, machine.faults.duplication) = (0.03, 0.02, 0.05);
    }
    if draw.of(2) == 0 {
        (machine.faults.reordering, machine.faults.reorder_ns) = (0.3, 40_000.0);
    }
    if draw.of(2) == 0 {
        machine.errors = PageFaults { page_faults: 0.2 };
    }
    if draw.of(3) == 0 {
        machine.adversary = AdversarialTiming { jitter_ns: 3_000.0 };
    }
}

/// The machine of a seed.
fn machine(seed: u64, defect: Option<Mutation>) -> ExanetConfig {
    let mut draw = Draw::new(seed);
    let (topology, per_node) = match draw.of(3) {
        0 => (Topology::Ring { nodes: 3 }, 1),
        1 => (Topology::Direct { nodes: 2 }, 2),
        _ => (Topology::Torus { dims: vec![2, 2] }, 1),
    };
    let mut machine = ExanetConfig::new(RANKS, topology);
    machine.ranks_per_node = per_node;
    machine.parameters = if draw.of(3) == 0 { Parameters::free() } else { Parameters::prototype() };
    machine.parameters.packetizer.channels = draw.one(&[1, 3, 32]);
    machine.parameters.packetizer.mailbox = draw.one(&[1, 2, 1024]);
    machine.parameters.rdma.queue = draw.one(&[1, 64]);
    machine.parameters.rdma.grain = draw.one(&[1, 4, 7]);
    machine.parameters.rdma.reads = draw.one(&[1, 16]);
    machine.parameters.retry.timeout_ns = 30_000.0;
    machine.faults.seed = seed;
    go_wrong(&mut draw, &mut machine);
    machine.deadline_ns = 1e9;
    machine.testing = Testing { defects: defect.map_or_else(Defects::default, Defects::of) };
    machine
}

/// A rank of a random program.
struct Player<'a> {
    nic: Nic<'a>,
    seed: u64,
    memory: HostMemory,
    problems: Vec<String>,
    /// Per rank and operation: how often its packet, or whether its notification, has come.
    packets: Vec<u32>,
    notes: Vec<bool>,
    transfers: Vec<(u64, TransferId)>,
}

impl Player<'_> {
    fn run(&mut self) {
        let me = self.nic.rank();
        for number in 0..OPERATIONS {
            let operation = operation(self.seed, me, number);
            self.begin(number, operation);
            self.look();
        }
        while !self.is_over() {
            if !self.look() {
                // That a packet was taken wakes nobody: where only this is missing, it is looked for again.
                let until = (!self.is_missing()).then(|| self.nic.now() + am_core::Span::from_micros(50));
                self.nic.idle(until, WaitFor::Named("what is missing"));
            }
        }
        // Whatever is still under way changes nothing that has been checked.
        self.nic.charge(am_core::Span::from_micros(500));
        self.nic.sync();
        self.check_marks();
    }

    fn is_over(&self) -> bool {
        let channels = self.nic.pkt_channels();
        channels.busy | channels.refused == 0 && !self.is_missing()
    }

    /// Whether something is yet to come that wakes this rank.
    fn is_missing(&self) -> bool {
        let me = self.nic.rank();
        let all = (0..RANKS).flat_map(|rank| (0..OPERATIONS).map(move |number| (rank, number)));
        let missing = |(rank, number): (u32, u64)| {
            let operation = operation(self.seed, rank, number);
            let index = (u64::from(rank) * OPERATIONS + number) as usize;
            match operation.kind {
                Kind::Packet => operation.peer == me && self.packets[index] == 0,
                Kind::Write => operation.peer == me && !self.notes[index],
                Kind::Read => false,
            }
        };
        !self.transfers.is_empty() || all.into_iter().any(missing)
    }

    fn begin(&mut self, number: u64, operation: Operation) {
        let (me, Operation { kind, peer, len, notify }) = (self.nic.rank(), operation);
        let to = self.nic.address(peer).unwrap();
        let note = notify.then_some(Notify { at: AT + note(me, number), value: 1 + number });
        loop {
            let refused = match kind {
                Kind::Packet => {
                    let bytes: Vec<u8> = (0..len).map(|at| pattern(me, number, at)).collect();
                    let bytes = [&number.to_le_bytes()[..], &bytes[8..]].concat();
                    match self.nic.pkt_send(to, &bytes) {
                        Ok(_) => None,
                        Err(PacketError::Full { .. }) => Some("a free channel"),
                        Err(error) => return self.problems.push(format!("packet {number}: {error}")),
                    }
                }
                Kind::Write | Kind::Read => {
                    let started = if matches!(kind, Kind::Write) {
                        self.nic.rdma_write(AT + SOURCES + number * ROOM, to, AT + target(me, number), len, note)
                    } else {
                        self.nic.rdma_read(to, AT + READ_ONLY + number * ROOM, AT + target(me, number), len, note)
                    };
                    match started {
                        Ok(id) => {
                            self.transfers.push((number, id));
                            None
                        }
                        Err(RdmaError::QueueFull(_)) => Some("room in the queue"),
                        Err(error) => return self.problems.push(format!("transfer {number}: {error}")),
                    }
                }
            };
            let Some(wanted) = refused else { return };
            if !self.look() {
                self.nic.idle(None, WaitFor::Named(wanted));
            }
        }
    }

    /// Looks at everything once; whether anything was there.
    fn look(&mut self) -> bool {
        let (me, mut found) = (self.nic.rank(), false);
        while let Some(message) = self.nic.mbox_poll() {
            self.take(&message);
            found = true;
        }
        let refused = self.nic.pkt_channels().refused;
        for channel in (0..64).filter(|channel| refused & 1 << channel != 0) {
            let _ = self.nic.pkt_retry(channel);
            found = true;
        }
        let mut ended = Vec::new();
        for (number, id) in std::mem::take(&mut self.transfers) {
            match self.nic.rdma_poll(id) {
                Ok(Progress::Pending) => self.transfers.push((number, id)),
                Ok(Progress::Done) => ended.push(number),
                other => self.problems.push(format!("transfer {number}: {other:?}")),
            }
        }
        found |= !ended.is_empty();
        for number in ended {
            let Operation { kind, peer, len, .. } = operation(self.seed, me, number);
            if matches!(kind, Kind::Read) {
                self.check(me, number, peer, len);
            } else {
                // The source may change now; nobody reads it again.
                self.fill(SOURCES + number * ROOM, len, 0x55);
            }
        }
        for rank in 0..RANKS {
            for number in 0..OPERATIONS {
                let Operation { kind, peer, len, .. } = operation(self.seed, rank, number);
                let index = (u64::from(rank) * OPERATIONS + number) as usize;
                let here = matches!(kind, Kind::Write) && peer == me && !self.notes[index];
                let at = note(rank, number) as usize;
                if here && self.memory.word(at) != 0 {
                    (self.notes[index], found) = (true, true);
                    self.check(rank, number, rank, len);
                    // A notification that came again would show.
                    self.memory.write(at, &0x7777u64.to_le_bytes());
                }
            }
        }
        found
    }

    fn take(&mut self, message: &Message) {
        let (from, data) = (self.nic.rank_at(message.from).unwrap(), message.data());
        let number = u64::from_le_bytes(data[..8].try_into().unwrap());
        let Operation { len, .. } = operation(self.seed, from, number);
        let right = data.len() as u64 == len
            && data.iter().enumerate().skip(8).all(|(at, byte)| *byte == pattern(from, number, at as u64));
        let count = &mut self.packets[(u64::from(from) * OPERATIONS + number) as usize];
        *count += 1;
        if *count != 1 || !right {
            self.problems.push(format!("packet {number} of rank {from}: came {count} times, right: {right}"));
        }
    }

    /// Checks what a transfer of `of` has brought from sources of `source`, and puts a mark in its place.
    fn check(&mut self, of: u32, number: u64, source: u32, len: u64) {
        let mut found = vec![0; len as usize];
        self.memory.read(target(of, number) as usize, &mut found);
        let wrong = found.iter().enumerate().position(|(at, byte)| *byte != pattern(source, number, at as u64));
        if let Some(at) = wrong {
            self.problems.push(format!("transfer {number} of rank {of}: byte {at} of {len} is not there"));
        }
        self.fill(target(of, number), len, 0xee);
    }

    /// What was checked stays as it was marked.
    fn check_marks(&mut self) {
        let me = self.nic.rank();
        for rank in 0..RANKS {
            for number in 0..OPERATIONS {
                let Operation { kind, peer, len, .. } = operation(self.seed, rank, number);
                let written = matches!(kind, Kind::Write) && peer == me;
                let read = matches!(kind, Kind::Read) && rank == me;
                let bytes = (0..len).map(|at| self.memory.byte((target(rank, number) + at) as usize));
                if (written || read) && !bytes.into_iter().all(|byte| byte == 0xee) {
                    self.problems.push(format!("transfer {number} of rank {rank} was written again"));
                }
                if written && self.memory.word(note(rank, number) as usize) != 0x7777 {
                    self.problems.push(format!("transfer {number} of rank {rank} was notified again"));
                }
            }
        }
    }

    fn fill(&self, at: u64, len: u64, byte: u8) {
        self.memory.write(at as usize, &vec![byte; len as usize]);
    }
}

/// Plays the program of a seed; returns what went wrong, and what the interfaces have counted.
fn play(seed: u64, defect: Option<Mutation>) -> (Vec<String>, Counters) {
    let paging = [Paging::Pinned, Paging::Touched, Paging::Untouched][(seed / 7 % 3) as usize];
    let report = exanet_sim::run(&machine(seed, defect), move |nic| {
        let memory = HostMemory::new(SIZE as usize);
        nic.open();
        nic.map(AT, &memory, Access::ReadWrite, paging).unwrap();
        let me = nic.rank();
        for number in 0..OPERATIONS {
            let bytes: Vec<u8> = (0..ROOM).map(|at| pattern(me, number, at)).collect();
            memory.write((SOURCES + number * ROOM) as usize, &bytes);
            memory.write((READ_ONLY + number * ROOM) as usize, &bytes);
        }
        let notes = (u64::from(RANKS) * OPERATIONS) as usize;
        let (packets, notes) = (vec![0; notes], vec![false; notes]);
        let (problems, transfers) = (Vec::new(), Vec::new());
        let mut player = Player { nic, seed, memory, problems, packets, notes, transfers };
        // Everybody has opened and mapped before the first operation.
        player.nic.charge(am_core::Span::from_nanos(1));
        player.nic.sync();
        player.run();
        // Whoever reads from this rank is still served.
        player.nic.charge(am_core::Span::from_millis(100));
        let counters = player.nic.counters();
        player.nic.depart(PeerStatus::Finished);
        (player.problems, counters)
    });
    let report = match report {
        Ok(report) => report,
        Err(error) => return (vec![error.to_string()], Counters::default()),
    };
    let (mut problems, mut all) = (Vec::new(), Counters::default());
    for (rank, result) in report.results.into_iter().enumerate() {
        let (found, counters) = result.expect("every rank ends");
        problems.extend(found.into_iter().map(|found| format!("rank {rank}: {found}")));
        all.resent += counters.resent;
        all.repeated += counters.repeated;
        all.spoilt += counters.spoilt;
        all.refused += counters.refused;
        all.page_faults += counters.page_faults;
    }
    (problems, all)
}

fn play_seeds(seeds: std::ops::Range<u64>) -> Counters {
    let (mut problems, mut all) = (Vec::new(), Counters::default());
    for seed in seeds {
        let (found, counters) = play(seed, None);
        problems.extend(found.into_iter().map(|found| format!("seed {seed}: {found}")));
        all.resent += counters.resent;
        all.repeated += counters.repeated;
        all.spoilt += counters.spoilt;
        all.refused += counters.refused;
        all.page_faults += counters.page_faults;
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    all
}

#[test]
fn random_programs_come_to_what_they_must() {
    let Counters { resent, repeated, spoilt, refused, page_faults, .. } = play_seeds(0..60);
    // All of it has happened.
    let least = [resent, repeated, spoilt, refused, page_faults].into_iter().min();
    assert!(least > Some(10), "{resent} {repeated} {spoilt} {refused} {page_faults}");
}

/// At its end packets are still to be taken, and nothing else happens.
#[test]
fn packets_that_are_taken_last_are_waited_for() {
    play_seeds(1062..1063);
}

/// `cargo test --release -p active-messages-exanet --test it -- --ignored nic_model::many_seeds`
#[test]
#[ignore = "a thousand seeds take a minute"]
fn many_seeds() {
    play_seeds(chosen_seeds(1000));
}

#[test]
fn every_defect_is_noticed() {
    for defect in [
        Mutation::DropWhenFull,
        Mutation::TakeCopies,
        Mutation::NotifyAtTail,
        Mutation::IgnorePageFaults,
        Mutation::NoRetransmission,
        Mutation::WriteCopies,
    ] {
        let noticed = (0..60).filter(|seed| !play(*seed, Some(defect)).0.is_empty()).take(3).count();
        assert_eq!(noticed, 3, "seeds of 60, at least, that notice {defect:?}");
    }
}

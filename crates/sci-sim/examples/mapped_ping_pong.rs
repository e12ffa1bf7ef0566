//! What the mapped interface costs by itself, in wall-clock time: a ping-pong of two threads, each with a node of
//! its own, beside one over a bare cache line in the same run.
//!
//! `cargo run --release -p active-messages-sci --example mapped_ping_pong`

use am_core::{Span, WaitReason};
use sci_sim::nic::{Code, Flags, Mapped, MappedConfig, NodeId, SegmentId, SequenceStatus, Sisci};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 20_000;
const REPETITIONS: usize = 15;

/// One cache line each way.
#[repr(align(128))]
struct Line(AtomicU64);

/// The best of some repetitions: whatever else the machine does only makes it slower.
fn best(mut once: impl FnMut() -> Duration) -> f64 {
    let times = (0..REPETITIONS).map(|_| once().as_secs_f64() * 1e9 / ROUNDS as f64);
    times.fold(f64::INFINITY, f64::min)
}

fn bare() -> f64 {
    let lines = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    let await_round = |line: &Line, round| {
        while line.0.load(Acquire) != round {
            std::hint::spin_loop();
        }
    };
    let last = REPETITIONS as u64 * ROUNDS;
    std::thread::scope(|scope| {
        let lines = &lines;
        scope.spawn(move || {
            for round in 1..=last {
                await_round(&lines[0], round);
                lines[1].0.store(round, Release);
            }
        });
        let mut round = 0;
        best(|| {
            let began = Instant::now();
            for _ in 0..ROUNDS {
                round += 1;
                lines[0].0.store(round, Release);
                await_round(&lines[1], round);
            }
            began.elapsed()
        })
    })
}

/// What a node does each turn: `checked` stores 80 bytes, checks them, sets a flag and another in a line of its
/// own.
struct End {
    nic: Mapped,
    mine: <Mapped as Sisci>::LocalMap,
    map: <Mapped as Sisci>::RemoteMap,
    sequence: <Mapped as Sisci>::Sequence,
    checked: bool,
}

impl End {
    fn join(directory: &Path, me: usize, checked: bool) -> Result<Self, Box<dyn std::error::Error>> {
        let nodes = [NodeId(4), NodeId(8)];
        let nic = Mapped::initialize(MappedConfig::new(directory, nodes[me], nodes))?;
        let session = nic.open()?;
        let segment = nic.create_segment(&session, SegmentId(1), 4096, Flags::NONE)?;
        nic.prepare_segment(&segment)?;
        let mine = nic.map_local(&segment, 0, 4096)?;
        nic.watch(&mine, 0)?;
        nic.set_available(&segment)?;
        let (other, timeout) = (nodes[1 - me], Span::from_secs(1));
        let remote = loop {
            match nic.connect_segment(&session, other, SegmentId(1), timeout, Flags::NONE) {
                Err(Code::NoRemoteLinkAccess | Code::NoSuchSegment | Code::ConnectionRefused) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                connected => break connected?,
            }
        };
        let map = nic.map_remote(&remote, 0, 4096)?;
        let mut sequence = nic.create_map_sequence(&map)?;
        let _ = nic.start_sequence(&mut sequence);
        Ok(Self { nic, mine, map, sequence, checked })
    }

    fn send(&mut self) -> Result<(), Code> {
        if self.checked {
            self.nic.store(&self.map, 1024, &[7; 80])?;
            let status = self.nic.check_sequence(&mut self.sequence, Flags::NONE)?;
            assert_eq!(status, SequenceStatus::Ok);
            self.nic.store_flag(&self.map, 64, 1)?;
        }
        self.nic.store_flag(&self.map, 0, 1)?;
        self.nic.alert(&self.map);
        Ok(())
    }

    fn receive(&self) {
        while self.nic.flag(&self.mine, 0) == 0 {
            self.nic.idle(None, WaitReason::Message);
        }
        self.nic.take_flag(&self.mine, 0);
        if self.checked {
            while self.nic.take_flag(&self.mine, 64) == 0 {
                std::hint::spin_loop();
            }
        }
    }
}

fn mapped(directory: &Path, checked: bool) -> f64 {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut end = End::join(directory, 1, checked).expect("the job's directory can be used");
            for _ in 0..REPETITIONS as u64 * ROUNDS {
                end.receive();
                end.send().expect("the other end is there");
            }
        });
        let mut end = End::join(directory, 0, checked).expect("the job's directory can be used");
        best(|| {
            let began = Instant::now();
            for _ in 0..ROUNDS {
                end.send().expect("the other end is there");
                end.receive();
            }
            began.elapsed()
        })
    })
}

fn main() {
    let shm = Path::new("/dev/shm");
    let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let directory = base.join(format!("sci-ping-pong-{}", std::process::id()));
    let line = bare();
    println!("bare cache line               {line:8.0} ns a round trip");
    for (name, checked) in [("one flag", false), ("80 bytes, check, two flags", true)] {
        let round = mapped(&directory, checked);
        println!("{name:<29} {round:8.0} ns a round trip, {:.2} times the bare line", round / line);
    }
}

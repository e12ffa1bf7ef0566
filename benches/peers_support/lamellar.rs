//! The rows of `cargo bench --bench peers` on Lamellar's backend for shared memory: active messages, one-sided
//! access and barriers between two processes, which this program starts itself. Rank 0 prints a line for each row:
//! its name and the value, in the unit that the bench has for the row. The argument divides all counts (1 for
//! figures). It is a package of its own (`lamellar.toml`), since nothing else here needs Lamellar.

use std::env;
use std::process::{Command, ExitCode};
use std::time::Instant;

use lamellar::active_messaging::prelude::*;
use lamellar::memregion::prelude::*;

const LARGEST: usize = 1 << 20;
/// Tells the processes which of them they are; Lamellar reads it, too.
const RANK: &str = "LAMELLAR_PE_ID";

/// A request of eight bytes whose answer has as many.
#[lamellar::AmData(Clone, Debug)]
struct Trip {
    word: u64,
}

#[lamellar::am]
impl LamellarAM for Trip {
    async fn exec(self) -> u64 {
        self.word
    }
}

/// A message of eight bytes without an answer.
#[lamellar::AmData(Clone, Debug)]
struct OneWay {
    word: u64,
}

#[lamellar::am]
impl LamellarAM for OneWay {
    async fn exec(self) {}
}

/// A message with a payload.
#[lamellar::AmData(Clone, Debug)]
struct Payload {
    bytes: Vec<u8>,
}

#[lamellar::am]
impl LamellarAM for Payload {
    async fn exec(self) {}
}

/// Seconds of `times` of something, after a tenth as many that do not count.
fn timed(times: usize, mut step: impl FnMut(usize)) -> f64 {
    (0..times / 10).for_each(&mut step);
    let start = Instant::now();
    (0..times).for_each(step);
    start.elapsed().as_secs_f64()
}

fn measure(divisor: usize) {
    let world = lamellar::LamellarWorldBuilder::new().build();
    let first = world.my_pe() == 0;
    let count = |wanted: usize| (wanted / divisor).max(1);
    let tell = |row: &str, value: f64| println!("{row} {value:.9}");
    world.barrier();

    if first {
        let trips = count(20_000);
        let took = timed(trips, |i| {
            world.exec_am_pe(1, Trip { word: i as u64 }).block();
        });
        tell("round-trip", took * 1e6 / trips as f64);
    }
    world.barrier();

    if first {
        let messages = count(400_000);
        let send = |count: usize| {
            for i in 0..count {
                let _ = world.spawn_am_pe(1, OneWay { word: i as u64 });
            }
            world.wait_all();
        };
        send(messages / 10);
        let start = Instant::now();
        send(messages);
        tell("rate", messages as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
    world.barrier();

    for (row, len, messages) in [("stream-64k", 65_536, 4_000), ("stream-1m", LARGEST, 300)] {
        if first {
            let messages = count(messages);
            let bytes = vec![2; len];
            let send = |count: usize| {
                for _ in 0..count {
                    let _ = world.spawn_am_pe(1, Payload { bytes: bytes.clone() });
                }
                world.wait_all();
            };
            send(messages / 10);
            let start = Instant::now();
            send(messages);
            tell(row, (messages * len) as f64 / start.elapsed().as_secs_f64() / 1e9);
        }
        world.barrier();
    }

    let words = world.alloc_shared_mem_region::<u64>(LARGEST / 8).block();
    let block = world.alloc_one_sided_mem_region::<u64>(LARGEST / 8);
    // SAFETY: the other process touches nothing until the barrier below.
    unsafe {
        words.as_mut_slice().fill(1);
        block.as_mut_slice().fill(2);
    }
    world.barrier();
    if first {
        let times = count(200_000);
        // SAFETY: only this process uses the regions between the two barriers.
        let took = timed(times, |i| unsafe { words.put_blocking(1, i & 1023, 3) });
        tell("put", took * 1e9 / times as f64);
        // SAFETY: as above.
        let took = timed(times, |i| unsafe {
            std::hint::black_box(words.get(1, i & 1023).block());
        });
        tell("get", took * 1e9 / times as f64);
        let blocks = count(1_000);
        // SAFETY: as above.
        let took = timed(blocks, |_| unsafe { words.put_buffer(1, 0, &block).block() });
        tell("put-1m", (blocks * LARGEST) as f64 / took / 1e9);
    }
    world.barrier();

    let times = count(20_000);
    let took = timed(times, |_| world.barrier());
    if first {
        tell("barrier", took * 1e6 / times as f64);
    }
}

/// Starts this program twice and waits.
fn start(divisor: &str) -> ExitCode {
    let job = std::process::id().to_string();
    let program = env::current_exe().expect("this program has a path");
    let ranks = [0, 1].map(|rank| {
        Command::new(&program)
            .arg(divisor)
            .env(RANK, rank.to_string())
            .env("LAMELLAR_BACKEND", "shmem")
            .env("LAMELLAR_NUM_PES", "2")
            .env("LAMELLAR_JOB_ID", &job)
            .env("LAMELLAR_THREADS", "1")
            .spawn()
            .expect("this program starts")
    });
    let ended = ranks.map(|mut rank| rank.wait().expect("a process that was started").success());
    if ended == [true; 2] { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let divisor = arguments.next().unwrap_or_default();
    let Some(parsed) = divisor.parse().ok().filter(|&divisor| divisor > 0 && arguments.next().is_none()) else {
        eprintln!("usage: lamellar-peer DIVISOR");
        return ExitCode::from(2);
    };
    if env::var_os(RANK).is_none() {
        return start(&divisor);
    }
    measure(parsed);
    ExitCode::SUCCESS
}

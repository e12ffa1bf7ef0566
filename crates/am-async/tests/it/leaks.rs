//! Nothing is left of calls, however they end: answered, dropped, timed out, refused, too large, with a panic, or
//! with the death of a rank.

use crate::support::attach;
use am_async::{CallConfig, CallEndpoint, CallError, Calls, Failure};
use am_core::loopback::{LoopbackConfig, network};
use am_core::{Rank, Span};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::RngCore;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// How calls have ended; those that were dropped, or never waited for, are not among them.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    answered: u64,
    panicked: u64,
    too_large: u64,
    timed_out: u64,
    refused: u64,
    lost: u64,
}

impl Ends {
    fn add<R>(&mut self, outcome: Result<R, CallError<Failure>>) {
        *match outcome {
            Ok(_) => &mut self.answered,
            Err(CallError::Panicked { .. }) => &mut self.panicked,
            Err(CallError::RequestTooLarge { .. } | CallError::AnswerTooLarge { .. }) => &mut self.too_large,
            Err(CallError::TimedOut { .. }) => &mut self.timed_out,
            Err(CallError::Refused { .. }) => &mut self.refused,
            Err(CallError::RankLost { .. }) => &mut self.lost,
            // A stream's own error.
            Err(CallError::Failed(_)) => return,
            Err(error) => panic!("a call ended with {error}"),
        } += 1;
    }

    fn each(&self) -> [u64; 6] {
        [self.answered, self.panicked, self.too_large, self.timed_out, self.refused, self.lost]
    }
}

/// A job of three ranks in which the first makes so many calls to the others, of which the last dies on the way,
/// sooner or later.
fn job(seed: u64, calls: u64) -> Ends {
    const LONGEST: u64 = 5000;
    let config = CallConfig::new().tasks(12).receive_bytes(30_000).stream_window(4).max_bytes(LONGEST as u32);
    let mut transports = network(3, LoopbackConfig::default().medium(512)).into_iter();
    let mut transport = || transports.next().unwrap();
    let (first, second, third) = (transport(), transport(), transport());
    let (attached, settled) = (&Barrier::new(3), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut endpoint, _) = attach(second, config);
            attached.wait();
            endpoint.serve_until(|world| world.total == u64::MAX).unwrap();
            // What the first rank has dropped is dropped here, too.
            while endpoint.layer::<Calls<_>>().tasks() != 0 {
                let _ = endpoint.poll();
            }
            settled.store(true, Ordering::SeqCst);
            endpoint.leave();
        });
        scope.spawn(move || {
            let (mut endpoint, _) = attach(third, config);
            attached.wait();
            let death = Pcg64::new(seed.into(), 17).next_u64() % (calls / 32) + 1;
            endpoint.serve_until(|world| world.total >= death).unwrap();
            drop(endpoint);
        });
        let (mut endpoint, handles) = attach(first, config);
        attached.wait();
        let mut random = Pcg64::new(seed.into(), 16);
        let (mut made, mut ends) = (0, Ends::default());
        while made < calls {
            // Some at a time, in whatever state they are when they are dropped.
            let batch = random.next_u64() % 40 + 1;
            let (mut made_bytes, mut bytes, mut units, mut streams) =
                (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for _ in 0..batch {
                let (kind, to) = (random.next_u64() % 12, Rank(1 + (random.next_u64() % 2) as u32));
                let caller = match random.next_u64() % 4 {
                    0 => endpoint.caller().timeout(Span::from_nanos(random.next_u64() % 200_000)),
                    _ => endpoint.caller(),
                };
                // Some are too long.
                let len = random.next_u64() % (LONGEST + 1000);
                match kind {
                    0 => units.push(caller.call(to, handles.never, &())),
                    1 => streams.push(caller.stream(to, handles.count, &(len as u32 % 30))),
                    2 | 3 => made_bytes.push(caller.call(to, handles.make, &(len as u32))),
                    4 | 5 => bytes.push(caller.call(to, handles.bytes, &vec![1; len as usize])),
                    6 => drop(caller.one_way(Rank(2), handles.add, &1)),
                    7 => units.push(caller.call(to, handles.unwind, &())),
                    8 => units.push(caller.call(to, handles.unwind_later, &())),
                    9 => streams.push(caller.stream(to, handles.unwind_amid, &(len as u32 % 9))),
                    _ => units.push(caller.call(to, handles.nothing, &())),
                }
            }
            made += batch;
            for _ in 0..random.next_u64() % 4 {
                let _ = endpoint.poll();
            }
            for call in bytes.into_iter().filter(|_| random.next_u64().is_multiple_of(2)) {
                ends.add(call.wait(&mut endpoint));
            }
            for call in made_bytes.into_iter().filter(|_| random.next_u64().is_multiple_of(2)) {
                ends.add(call.wait(&mut endpoint));
            }
            for mut answers in streams {
                for _ in 0..random.next_u64() % 20 {
                    if let Some(Err(error)) = answers.wait_next(&mut endpoint) {
                        ends.add(Err::<(), _>(error));
                    }
                }
            }
            // Those that never answer are among them.
            for call in units.into_iter().filter(|call| call.is_ready()) {
                ends.add(call.wait(&mut endpoint));
            }
        }
        let total = endpoint.call(Rank(1), handles.add, &0).wait(&mut endpoint).unwrap();
        endpoint.call(Rank(1), handles.add, &(u64::MAX - total)).wait(&mut endpoint).unwrap();
        let caller = endpoint.caller();
        assert_eq!((caller.held(), caller.under_way(), endpoint.layer::<Calls<_>>().tasks()), (0, 0, 0));
        while !settled.load(Ordering::SeqCst) {
            let _ = endpoint.poll();
        }
        endpoint.leave();
        ends
    })
}

/// Adds up how the calls of some jobs have ended.
fn all_ends(jobs: impl IntoIterator<Item = Ends>) -> [u64; 6] {
    jobs.into_iter().fold([0; 6], |sum, ends| std::array::from_fn(|end| sum[end] + ends.each()[end]))
}

#[test]
fn nothing_is_left_of_ten_thousand_calls() {
    let ends = all_ends((0..5).map(|seed| job(seed, 2000)));
    assert!(ends.iter().all(|count| *count != 0), "all ends come: {ends:?}");
}

/// Memory of the process, in KiB.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// Calls of a job.
const CALLS: u64 = 20_000;

/// What the process holds after the first tenth of the jobs, it holds to the end, but for so many KiB.
const GROWTH: u64 = 4 << 10;

fn jobs(seeds: Range<u64>) {
    let (mut settled, mut all) = (None, Vec::new());
    let count = seeds.end - seeds.start;
    for (number, seed) in seeds.enumerate() {
        all.push(job(seed, CALLS));
        if number as u64 == count / 10 {
            settled = resident();
        }
        if let (Some(before), Some(now)) = (settled, resident()) {
            assert!(now < before + GROWTH, "seed {seed}: {now} KiB, after {before} KiB at the beginning");
        }
    }
    let (calls, now) = (count * CALLS, resident());
    println!("{calls} calls; KiB after a tenth of the jobs and at the end: {settled:?}, {now:?}");
    println!("answered, panicked, too large, timed out, refused, lost: {:?}", all_ends(all));
}

/// The jobs from `AM_LEAK_FIRST` on, as many as `AM_LEAK_JOBS` says, so that a run can be made in parts.
fn chosen(count: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.trim().parse::<u64>().expect("it is a number"));
    let first = number("AM_LEAK_FIRST").unwrap_or(0);
    first..first + number("AM_LEAK_JOBS").unwrap_or(count)
}

/// `cargo test --release -p active-messages-async --test it -- --ignored full_nothing_is_left_of_a_million`
#[test]
#[ignore = "a million calls take a minute"]
fn full_nothing_is_left_of_a_million_calls() {
    jobs(0..50);
}

/// `cargo test --release -p active-messages-async --test it -- --ignored full_nothing_is_left_of_ten --nocapture`
#[test]
#[ignore = "ten million calls take minutes"]
fn full_nothing_is_left_of_ten_million_calls() {
    jobs(chosen(500));
}

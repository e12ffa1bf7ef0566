//! What two processors could gain: runs of the other groups with their nodes taken as two halves, window by window
//! (`cargo bench --bench sim -- parallel`). These are measurements and no figures, so a full run leaves them out.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fabric_sim::{Processors, halves};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::measure::Bench;
use super::{many, traffic};
use lab::bench::command::Mode;
use lab_sim::figures::collectives::Site;

/// A run by its name.
type Run = (String, Box<dyn Fn()>);

/// How often each run is made; the one that other programs disturbed least counts.
const TIMES: usize = 3;

/// The runs, small ones if they are only tested.
fn runs(test: bool) -> Vec<Run> {
    let times = |times: u32| if test { 2 } else { times };
    let large = if test { [4, 4, 4] } else { [8, 8, 16] };
    let mut runs: Vec<Run> = Vec::new();
    for (ranks, dims, count) in [(64, [4, 4, 4], times(1000)), (1024, large, times(100))] {
        let play = move || drop(traffic::random(&traffic::machine(dims), count));
        runs.push((format!("packets without a conduit, {ranks} ranks"), Box::new(play)));
    }
    for (ranks, dims, count) in [(64, [4, 4, 4], times(200)), (1024, large, times(30))] {
        for (name, play) in many::runs(dims, count) {
            runs.push((format!("{name}, {ranks} ranks"), play));
        }
    }
    if !test {
        let (name, play) = many::runs([16, 32, 32], 4).swap_remove(0);
        runs.push((format!("{name}, 16384 ranks"), play));
    }
    for (machine, site) in [("gasnet", Site::extoll()), ("portals", Site::portals())] {
        let ranks = if test { 16 } else { 1024 };
        let play = move || {
            site.mixed(ranks, 2).expect("the operations end");
        };
        runs.push((format!("{machine}, collectives, {ranks} ranks"), Box::new(play)));
    }
    runs
}

/// All measurements.
pub(crate) fn measure(bench: &mut Bench<'_>) {
    let test = bench.mode() == Mode::Test;
    if bench.mode() == Mode::Full {
        return;
    }
    two_processors(bench, test);
    let wanted: Vec<Run> =
        runs(test).into_iter().filter(|(name, _)| bench.wants(&format!("parallel/{name}"))).collect();
    if wanted.is_empty() {
        return;
    }
    let (trip, merge) = (round_trip(test), merge(test));
    if !test {
        println!(
            "parallel: a cache line to the other processor and back {trip:.1?}, an event put in order {merge:.1?}"
        );
    }
    for (name, play) in wanted {
        let times = if test { 1 } else { TIMES };
        let ((), measured) = halves::measure(|| (0..times).for_each(|_| play()));
        let halves = measured.iter().min_by_key(|halves| halves.total()).expect("the runs have ended");
        if !test {
            println!(
                "parallel/{name}: {:.2} times as fast at most, {:.2} in the same order; {halves}",
                halves.bound(trip, merge),
                halves.bound_in_order(trip, merge),
            );
        }
    }
}

/// Runs in halves on one processor and on two, and in one piece, by turns: by the clock. The halves leave the same
/// behind on both each time.
fn two_processors(bench: &Bench<'_>, test: bool) {
    let (dims, count, times) = if test { ([4, 4, 4], 2, 1) } else { ([8, 8, 16], 100, 5) };
    for (name, play) in many::halved(dims, count) {
        let name = format!("parallel/two processors, {name}");
        if !bench.wants(&name) {
            continue;
        }
        let ways = [None, Some(Processors::One), Some(Processors::Two)];
        let (mut took, mut left) = ([const { Vec::new() }; 3], [(0, 0); 3]);
        for _ in 0..times {
            for (way, processors) in ways.into_iter().enumerate() {
                let begin = Instant::now();
                let now = play(processors);
                took[way].push(begin.elapsed());
                let before = std::mem::replace(&mut left[way], now);
                assert!(before == (0, 0) || before == now, "{name}: every run is the same");
            }
            assert_eq!(left[1], left[2], "{name}: two processors leave the same behind as one");
        }
        took.iter_mut().for_each(|took| took.sort_unstable());
        let [whole, one, two] = took.each_ref().map(|took| took[times / 2].as_secs_f64());
        let spread = |took: &[Duration]| took[times - 1].as_secs_f64() / took[0].as_secs_f64() - 1.0;
        let spread = took.iter().map(|took| 100.0 * spread(took)).fold(0.0, f64::max);
        if !test {
            println!(
                "{name}: in one piece {whole:.2} s, halves on one {one:.2} s, on two {two:.2} s: {:.2} times as fast \
                 as in one piece, {:.2} as on one, spread {spread:.0} %; {} events, hash {:016x}",
                whole / two,
                one / two,
                left[2].1,
                left[2].0,
            );
        }
    }
}

/// How long a cache line takes to the other processor and back: two meetings of both.
fn round_trip(test: bool) -> Duration {
    let (line, trips) = (AtomicU64::new(0), if test { 10 } else { 200_000 });
    let pin = |cpu| {
        let mut set = CpuSet::new();
        // With one processor, or another set of them, it is measured where it runs.
        let _ = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    };
    let turn = |from: u64| {
        for number in (from..2 * trips).step_by(2) {
            while line.load(Ordering::Acquire) != number {
                spin_loop();
            }
            line.store(number + 1, Ordering::Release);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            turn(1);
        });
        let first = scope.spawn(|| {
            pin(0);
            let begin = Instant::now();
            turn(0);
            begin.elapsed()
        });
        first.join().expect("it counts") / trips as u32
    })
}

/// How long an event takes, at the least, where the events of two halves are put into one order by time and
/// number, and hashed.
fn merge(test: bool) -> Duration {
    const WINDOW: usize = 500;
    let windows = if test { 2 } else { 2000 };
    let mut state = 1_u64;
    let mut half = || -> Vec<(u64, u64, u64)> {
        let mut time = 0;
        let event = |number: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            time += state % 3;
            (time, number as u64, state)
        };
        (0..WINDOW).map(event).collect()
    };
    let halves = [half(), half()];
    let begin = Instant::now();
    let mut hash = 0_u64;
    for _ in 0..windows {
        let [mut left, mut right] = [halves[0].as_slice(), halves[1].as_slice()];
        while let (Some(one), Some(two)) = (left.first(), right.first()) {
            let next = if (one.0, one.1) <= (two.0, two.1) { &mut left } else { &mut right };
            let (time, _, word) = next[0];
            *next = &next[1..];
            hash = (hash ^ time ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29);
        }
    }
    black_box(hash);
    begin.elapsed() / (windows * 2 * WINDOW as u32)
}

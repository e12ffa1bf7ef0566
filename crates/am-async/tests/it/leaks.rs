//! Nothing is left of calls, however they end: answered, dropped, timed out, refused, or with the death of a rank.

use crate::support::attach;
use am_async::{CallConfig, CallEndpoint, Calls};
use am_core::loopback::{LoopbackConfig, network};
use am_core::{Rank, Span};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::RngCore;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// A job of three ranks in which the first makes so many calls to the others, of which the last dies on the way,
/// sooner or later.
fn job(seed: u64, calls: u64) {
    let config = CallConfig::new().tasks(200).receive_bytes(30_000).stream_window(4);
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
            let death = Pcg64::new(seed.into(), 17).next_u64() % (calls / 16) + 1;
            endpoint.serve_until(|world| world.total >= death).unwrap();
            drop(endpoint);
        });
        let (mut endpoint, handles) = attach(first, config);
        attached.wait();
        let mut random = Pcg64::new(seed.into(), 16);
        let (mut made, mut ended) = (0, [0u64; 2]);
        while made < calls {
            // Some at a time, in whatever state they are when they are dropped.
            let batch = random.next_u64() % 40 + 1;
            let (mut made_bytes, mut bytes, mut units, mut streams) =
                (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for _ in 0..batch {
                let (kind, to) = (random.next_u64() % 8, Rank(1 + (random.next_u64() % 2) as u32));
                let caller = match random.next_u64() % 4 {
                    0 => endpoint.caller().timeout(Span::from_nanos(random.next_u64() % 200_000)),
                    _ => endpoint.caller(),
                };
                match kind {
                    0 => units.push(caller.call(to, handles.never, &())),
                    1 => streams.push(caller.stream(to, handles.count, &(random.next_u64() as u32 % 30))),
                    2 => made_bytes.push(caller.call(to, handles.make, &(random.next_u64() as u32 % 4000))),
                    3 => bytes.push(caller.call(to, handles.bytes, &vec![1; random.next_u64() as usize % 4000])),
                    5 => drop(caller.one_way(Rank(2), handles.add, &1)),
                    _ => units.push(caller.call(to, handles.nothing, &())),
                }
            }
            made += batch;
            for _ in 0..random.next_u64() % 4 {
                let _ = endpoint.poll();
            }
            for call in bytes.into_iter().filter(|_| random.next_u64().is_multiple_of(2)) {
                ended[usize::from(call.wait(&mut endpoint).is_ok())] += 1;
            }
            for call in made_bytes.into_iter().filter(|_| random.next_u64().is_multiple_of(2)) {
                ended[usize::from(call.wait(&mut endpoint).is_ok())] += 1;
            }
            for mut answers in streams {
                for _ in 0..random.next_u64() % 20 {
                    let _ = answers.wait_next(&mut endpoint);
                }
            }
        }
        assert!(ended.iter().all(|count| *count != 0) || calls < 1000, "all ends come: {ended:?}");
        let total = endpoint.call(Rank(1), handles.add, &0).wait(&mut endpoint).unwrap();
        endpoint.call(Rank(1), handles.add, &(u64::MAX - total)).wait(&mut endpoint).unwrap();
        let caller = endpoint.caller();
        assert_eq!((caller.held(), caller.under_way(), endpoint.layer::<Calls<_>>().tasks()), (0, 0, 0));
        while !settled.load(Ordering::SeqCst) {
            let _ = endpoint.poll();
        }
        endpoint.leave();
    });
}

#[test]
fn nothing_is_left_of_ten_thousand_calls() {
    (0..5).for_each(|seed| job(seed, 2000));
}

/// Memory of the process, in KiB.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// Jobs of 20,000 calls each: what the process holds after the first tenth of them, it holds to the end.
fn jobs(count: u64) {
    let mut settled = None;
    for seed in 0..count {
        job(seed, 20_000);
        if seed == count / 10 {
            settled = resident();
        }
        if let (Some(before), Some(now)) = (settled, resident()) {
            assert!(now < before + (16 << 10), "seed {seed}: {now} KiB, after {before} KiB at the beginning");
        }
    }
    println!("KiB after a tenth of {count} jobs and at the end: {settled:?}, {:?}", resident());
}

/// `cargo test --release -p active-messages-async --test it -- --ignored full_nothing_is_left_of_a_million`
#[test]
#[ignore = "a million calls take a minute"]
fn full_nothing_is_left_of_a_million_calls() {
    jobs(50);
}

/// `cargo test --release -p active-messages-async --test it -- --ignored full_nothing_is_left_of_ten`
#[test]
#[ignore = "ten million calls take minutes"]
fn full_nothing_is_left_of_ten_million_calls() {
    jobs(500);
}

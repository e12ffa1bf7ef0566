//! The sheet's times, through the interface.

use am_core::segment::Memory;
use am_core::{Instant, Span, WaitReason};
use fabric_sim::Topology;
use sci_sim::SciConfig;
use sci_sim::model::Parameters;
use sci_sim::nic::{Code, Flags, SegmentId, SequenceStatus, Sisci, Virtual};

/// A segment of each rank, seen by itself and by the other one.
struct Ends<'a> {
    nic: Virtual<'a>,
    descriptor: <Virtual<'a> as Sisci>::Descriptor,
    local: <Virtual<'a> as Sisci>::LocalSegment,
    mine: <Virtual<'a> as Sisci>::LocalMap,
    remote: <Virtual<'a> as Sisci>::RemoteSegment,
    map: <Virtual<'a> as Sisci>::RemoteMap,
}

const SIZE: usize = 1 << 20;

fn ends(nic: Virtual<'_>, other: u32) -> Result<Ends<'_>, Code> {
    let descriptor = nic.open()?;
    let local = nic.create_segment(&descriptor, SegmentId(1), SIZE, Flags::NONE)?;
    nic.prepare_segment(&local)?;
    let mine = nic.map_local(&local, 0, SIZE)?;
    nic.set_available(&local)?;
    let node = nic.nodes()[other as usize];
    let remote = loop {
        match nic.connect_segment(&descriptor, node, SegmentId(1), Span::from_millis(1), Flags::NONE) {
            Err(Code::NoSuchSegment | Code::ConnectionRefused) => {
                nic.idle(Some(nic.now() + Span::from_micros(5)), WaitReason::Message)
            }
            connected => break connected?,
        }
    };
    let map = nic.map_remote(&remote, 0, SIZE)?;
    Ok(Ends { nic, descriptor, local, mine, remote, map })
}

/// Waits until a time.
fn sleep(nic: &Virtual<'_>, until: Instant) {
    while nic.now() < until {
        nic.idle(Some(until), WaitReason::Message);
    }
}

/// Microseconds from `began` until the last of `bytes` has landed at another rank, which looks all the time.
fn one_way(config: &SciConfig, target: u32, bytes: usize, send: fn(&Ends<'_>, usize)) -> f64 {
    let report = sci_sim::run(config, move |nic| {
        let rank = nic.rank();
        if rank != 0 && rank != target {
            return Instant(0);
        }
        let ends = ends(nic, target - rank).unwrap();
        let start = Instant(1_000_000_000);
        if rank == 0 {
            sleep(&ends.nic, start);
            send(&ends, bytes);
            return start;
        }
        ends.nic.watch(&ends.mine, bytes - 1).unwrap();
        while ends.nic.flag(&ends.mine, bytes - 1) == 0 {
            ends.nic.idle(None, WaitReason::Message);
        }
        ends.nic.now()
    });
    let times = report.unwrap().results;
    times[target as usize].unwrap().since(times[0].unwrap()).0 as f64 / 1e6
}

fn pio(ends: &Ends<'_>, bytes: usize) {
    ends.nic.store(&ends.map, 0, &vec![1; bytes]).unwrap();
    ends.nic.flush();
}

fn dma(ends: &Ends<'_>, bytes: usize) {
    let Ends { nic, descriptor, local, mine, remote, .. } = ends;
    nic.memory(mine).store(0, &vec![1; bytes]);
    let mut queue = nic.create_dma_queue(descriptor, 1).unwrap();
    // Making the queue took time.
    sleep(nic, Instant(1_100_000_000));
    nic.enqueue(&mut queue, local, 0, remote, 0, bytes).unwrap();
    nic.post(&mut queue).unwrap();
    nic.wait_for_dma_queue(&mut queue, None).unwrap();
}

fn dma_time(config: &SciConfig, target: u32, bytes: usize) -> f64 {
    one_way(config, target, bytes, dma) - 100.0
}

#[test]
fn programmed_io_takes_what_the_sheet_says() {
    let config = SciConfig::pair();
    let measured = one_way(&config, 1, 80, pio);
    assert!((measured - 3.16).abs() <= 0.02, "{measured}");
    for bytes in [1, 4, 64, 65, 128, 944, 1024, 4096] {
        let (measured, formula) = (one_way(&config, 1, bytes, pio), 2.70 + 0.23 * bytes.div_ceil(64) as f64);
        assert!((measured - formula).abs() <= 0.002, "{bytes} bytes: {measured}, not {formula}");
    }
}

#[test]
fn stores_stream_at_278_mb_s() {
    let config = SciConfig::pair();
    let (small, large) = (one_way(&config, 1, 1 << 10, pio), one_way(&config, 1, 1 << 17, pio));
    let rate = ((1 << 17) - (1 << 10)) as f64 / (large - small);
    assert!((rate - 278.26).abs() < 1.0, "{rate} MB/s");
}

#[test]
fn each_hop_adds_its_latency() {
    let config = sci_sim::torus(8);
    // Rank 1 is the next of the ringlet, to 7 there are 3 + 1 hops and back to 0 as many as rings are left: 1 + 1.
    let (near, far) = (one_way(&config, 1, 80, pio), one_way(&config, 7, 80, pio));
    assert!((near - 3.16).abs() <= 0.002, "{near}");
    assert!((far - near - 3.0 * 0.07).abs() <= 0.002, "{near} {far}");
    let far = dma_time(&config, 7, 4096) - dma_time(&config, 1, 4096);
    assert!((far - 3.0 * 0.07).abs() <= 0.002, "{far}");
}

/// A packet goes round a ringlet one way and its answer the rest: a check takes as long wherever the target is on
/// it.
#[test]
fn checks_take_a_turn_of_each_ringlet() {
    let (config, pair) = (sci_sim::torus(8), alone(&SciConfig::pair(), check));
    for (target, hops) in [(1, 4.0), (2, 4.0), (3, 4.0), (4, 2.0), (5, 6.0), (7, 6.0)] {
        let later = towards(&config, target, check) - pair;
        assert!((later - (hops - 2.0) * 0.07).abs() <= 0.002, "rank {target}: {later}");
    }
}

/// Microseconds until ranks have stored so many bytes each to others.
fn streams(config: &SciConfig, bytes: usize, target: fn(u32) -> Option<u32>) -> f64 {
    let report = sci_sim::run(config, move |nic| {
        let rank = nic.rank();
        let ends = ends(nic, target(rank).unwrap_or(1)).unwrap();
        let start = Instant(1_000_000_000);
        sleep(&ends.nic, start);
        if target(rank).is_some() {
            ends.nic.store(&ends.map, 0, &vec![1; bytes]).unwrap();
            ends.nic.store_barrier();
        }
        ends.nic.now().since(start).0
    });
    let longest = report.unwrap().results.into_iter().flatten().max();
    longest.unwrap() as f64 / 1e6
}

/// Whoever sends to a node, its bus carries 528 MB/s of payload in both directions together.
#[test]
fn a_node_moves_what_its_bus_can() {
    const BYTES: usize = 1 << 17;
    let incast = SciConfig::new(7, Topology::Direct { nodes: 7 });
    let six = 6.0 * BYTES as f64 / streams(&incast, BYTES, |rank| (rank != 0).then_some(0));
    let both = 2.0 * BYTES as f64 / streams(&SciConfig::pair(), BYTES, |rank| Some(1 - rank));
    for rate in [six, both] {
        assert!((500.0..=528.0).contains(&rate), "{rate} MB/s");
    }
}

#[test]
fn dma_takes_the_published_time() {
    for (crossover, start) in [(2_048u32, 3.2), (4_096, 3.8), (8_192, 4.8), (16_384, 7.0)] {
        let mut config = SciConfig::pair();
        config.parameters.dma.crossover_bytes = crossover;
        let crossover = crossover as usize;
        for bytes in [64, crossover / 2, crossover, 65_536] {
            let (measured, formula) = (dma_time(&config, 1, bytes), start + bytes as f64 / 300.0);
            assert!((measured - formula).abs() <= 0.06, "{bytes} bytes: {measured}, not {formula}");
        }
        let gain = |bytes| one_way(&config, 1, bytes, pio) - dma_time(&config, 1, bytes);
        assert!(gain(crossover).abs() < 0.001, "{}", gain(crossover));
        assert!(gain(crossover - 64) < -0.01 && gain(crossover / 2) < -0.2);
        assert!(gain(crossover + 64) > 0.01 && gain(2 * crossover) > 0.2);
    }
}

/// Runs a program on rank 0, connected to another, and returns what it measured.
fn towards(config: &SciConfig, target: u32, program: fn(&Ends<'_>) -> f64) -> f64 {
    let report = sci_sim::run(config, move |nic| {
        let rank = nic.rank();
        if rank != 0 && rank != target {
            return 0.0;
        }
        let ends = ends(nic, target - rank).unwrap();
        sleep(&ends.nic, Instant(1_000_000_000));
        if rank == 0 { program(&ends) } else { 0.0 }
    });
    report.unwrap().results[0].unwrap()
}

fn alone(config: &SciConfig, program: fn(&Ends<'_>) -> f64) -> f64 {
    towards(config, 1, program)
}

/// Microseconds that a check of two lines takes.
fn check(ends: &Ends<'_>) -> f64 {
    let Ends { nic, map, .. } = ends;
    let mut sequence = nic.create_map_sequence(map).unwrap();
    assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::Ok);
    nic.store(map, 0, &[1; 80]).unwrap();
    nic.flush();
    let stored = nic.now();
    assert_eq!(nic.check_sequence(&mut sequence, Flags::NONE), Ok(SequenceStatus::Ok));
    let took = nic.now().since(stored).0 as f64 / 1e6;
    nic.remove_sequence(sequence);
    took
}

#[test]
fn a_read_costs_a_round_trip_and_is_counted() {
    let line = alone(&SciConfig::pair(), |ends| {
        let Ends { nic, map, .. } = ends;
        let began = nic.now();
        nic.read_remote(map, 0, &mut [0; 640]).unwrap();
        assert_eq!(nic.counters().remote_reads, 10);
        nic.now().since(began).0 as f64 / 10e6
    });
    assert!((line - 2.0 * 2.93).abs() < 0.01, "{line}");
    // The published ten times, of a size that is not told.
    let stored = |lines: f64| 2.70 + 0.23 * lines;
    assert!((8.0 * line / stored(8.0) - 10.0).abs() < 0.5, "{line}");
}

#[test]
fn a_check_takes_the_rest_of_the_short_message() {
    let check = alone(&SciConfig::pair(), check);
    let Parameters { pio, conduit, .. } = Parameters::paper();
    assert!((check - (pio.answer_ns + pio.check_ns) / 1e3).abs() < 0.002, "{check}");
    // Construct, two lines, check, two flags, the last on its way, poll.
    let micros = |nanos: f64| nanos / 1e3;
    let short = micros(conduit.construct_ns + 4.0 * pio.line_ns + pio.fixed_ns + conduit.poll_ns) + check;
    assert!((short - 5.00).abs() <= 0.02, "{short}");
}

#[test]
fn runs_repeat_to_the_last_event() {
    let hash = |seed| {
        let mut config = SciConfig::pair();
        config.faults.seed = seed;
        config.faults.corruption = 0.01;
        config.adversary.reorder_ns = 800.0;
        let report = sci_sim::run(&config, |nic| {
            let rank = nic.rank();
            let ends = ends(nic, 1 - rank).unwrap();
            for line in 0..200 {
                ends.nic.store(&ends.map, 64 * line, &[7; 64]).unwrap();
            }
            ends.nic.store_barrier();
            ends.nic.counters()
        });
        report.map(|report| (report.hash, report.results)).unwrap()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1).0, hash(2).0);
}

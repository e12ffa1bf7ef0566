//! One message at a time between neighbours.

use super::run;
use am_core::Span;
use exanet_sim::ExanetConfig;
use exanet_sim::mpi::{self, Counts, MpiConfig, Protocol, WORLD};
use fabric_sim::Topology;

fn ring() -> ExanetConfig {
    ExanetConfig::new(16, Topology::Ring { nodes: 16 })
}

/// What a message of `len` bytes from rank 0 to rank `to` takes until its receiver and its sender are done, in
/// microseconds, and what both have sent for it. The receive is posted `ahead` before the message is sent.
fn transfer(protocol: Protocol, eager: u32, to: u32, len: u64, ahead: bool) -> (f64, f64, Counts) {
    let config = MpiConfig { eager, ..MpiConfig::of(protocol) };
    let report = mpi::run(&ring(), &config, move |mpi| {
        let buffer = mpi.buffer(1 << 17);
        let before = mpi.counts();
        assert_eq!(before, Counts::default());
        let start = am_core::Instant(50_000_000);
        let until = |mpi: &mpi::Mpi<'_>| start.since(mpi.now());
        let mut took = 0;
        if mpi.rank() == 0 {
            // What has come before is out of the way.
            mpi.compute(Span::from_micros(25));
            while mpi.progress() {}
            mpi.compute(until(mpi));
            let began = if ahead { mpi.now() } else { start };
            mpi.send(WORLD, to, 3, &buffer, 0..len)?;
            took = mpi.now().since(began).0;
        } else if mpi.rank() == to {
            if !ahead {
                mpi.compute(until(mpi));
            }
            let request = mpi.receive_begin(WORLD, Some(0), Some(3), &buffer, 0..1 << 17)?;
            if ahead {
                mpi.compute(until(mpi));
            }
            mpi.wait(request)?;
            took = mpi.now().since(start).0;
        } else {
            mpi.compute(Span::from_millis(1));
        }
        // The sender answers what comes of its message after it is done.
        mpi.barrier()?;
        let mut counts = mpi.counts();
        counts.eager -= u64::from(mpi.ranks().ilog2());
        Ok((took, counts))
    });
    let results: Vec<_> = report.unwrap().results.into_iter().map(|result| result.unwrap().unwrap()).collect();
    let of = |rank: u32| results[rank as usize].0 as f64 * 1e-6;
    (of(to), of(0), results[0].1.and(&results[to as usize].1))
}

/// The published totals: a small message over one hop and five.
#[test]
fn small_messages_take_what_was_published() {
    for (hops, published) in [(1, 1.293), (5, 2.55)] {
        let took = transfer(Protocol::Elided, 2048, hops, 44, true).0;
        assert!((took - published).abs() < 0.001 + 0.02, "{took} us over {hops} hops");
    }
}

/// The sheet's table of derived times, within what the interface's own work on a read request is cheaper than the
/// software's on a control message.
#[test]
fn long_messages_take_what_was_derived() {
    let sizes = [256, 1024, 4096, 16_384, 65_536];
    let derived = |table: [f64; 5], protocol, ahead, slack: f64| {
        for (len, expected) in sizes.into_iter().zip(table) {
            let (receiver, sender, _) = transfer(protocol, 64, 1, len, ahead);
            let off = receiver - expected;
            assert!(off.abs() < slack, "{protocol:?}: {len} bytes take {receiver} us, and {expected} as derived");
            assert!(sender > receiver - 0.2, "{protocol:?}: the sender of {len} bytes is done after {sender} us");
        }
    };
    derived([3.44, 4.19, 7.18, 19.2, 67.1], Protocol::Read, false, 0.6);
    derived([3.44, 4.19, 7.18, 19.2, 67.1], Protocol::SenderInitiated, false, 0.6);
    derived([0.85, 1.60, 4.60, 16.6, 64.5], Protocol::Elided, true, 0.1);
}

/// Who is advertised is served in half the time of who reads, for messages that begin to be long.
#[test]
fn advertised_receives_save_half_at_two_kilobytes() {
    let read = transfer(Protocol::Read, 1024, 1, 2048, true).0;
    let advertised = transfer(Protocol::Elided, 1024, 1, 2048, true).0;
    let saved = 1.0 - advertised / read;
    assert!((0.4..0.6).contains(&saved), "{saved}");
}

/// Control messages per long transfer, counted: with the receive posted long before, and both at once.
#[test]
fn control_messages_are_as_the_protocol_says() {
    let counts = |protocol, ahead| {
        let (.., counts) = transfer(protocol, 64, 1, 8192, ahead);
        assert_eq!(counts.eager, 0);
        let Counts { rts, cts, rtr, fin, ack, reads, writes, .. } = counts;
        [rts, cts, rtr, fin, ack, reads, writes]
    };
    assert_eq!(counts(Protocol::Read, true), [1, 0, 0, 0, 1, 1, 0]);
    assert_eq!(counts(Protocol::SenderInitiated, true), [1, 1, 0, 1, 0, 0, 1]);
    assert_eq!(counts(Protocol::ReceiverInitiated, true), [0, 0, 1, 1, 0, 0, 1]);
    assert_eq!(counts(Protocol::EagerAware, true), [0, 0, 1, 1, 0, 0, 1]);
    assert_eq!(counts(Protocol::Elided, true), [0, 0, 1, 0, 0, 0, 1]);
    // Both announce themselves: the advertisement counts, and nobody answers the announcement.
    assert_eq!(counts(Protocol::Elided, false), [1, 0, 1, 0, 0, 0, 1]);
    assert_eq!(counts(Protocol::Read, false), [1, 0, 0, 0, 1, 1, 0]);
}

/// A short message into a long receive that was advertised: two messages more, and a round trip, before the fix.
#[test]
fn eager_messages_retire_advertisements_by_their_numbers() {
    let of = |protocol| transfer(protocol, 2048, 1, 64, true);
    let (baseline, _, _) = of(Protocol::SenderInitiated);
    let (before, _, counts_before) = of(Protocol::ReceiverInitiated);
    let (after, _, counts_after) = of(Protocol::EagerAware);
    assert_eq!((counts_before.revoke, counts_after.revoke), (2, 0));
    assert_eq!((counts_after.rtr, counts_after.retired_by_number), (1, 1));
    assert!(before > baseline + 2.0 * 1.2 && (after - baseline).abs() < 0.01, "{baseline} {before} {after}");
}

/// Messages of all sizes come as they were sent, to any offset, by every protocol.
#[test]
fn bytes_come_as_they_were_sent() {
    for protocol in Protocol::ALL {
        run(&ExanetConfig::pair(), protocol, move |mpi| {
            let buffer = mpi.buffer(1 << 16);
            for (number, len) in [0, 1, 43, 44, 45, 104, 105, 2048, 2049, 16_384, 30_001].into_iter().enumerate() {
                let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + number) as u8).collect();
                let range = 13..13 + len as u64;
                if mpi.rank() == 0 {
                    buffer.write(mpi, 13, &bytes);
                    mpi.send(WORLD, 1, number as u32, &buffer, range)?;
                } else {
                    let status = mpi.receive(WORLD, None, None, &buffer, 13..40_000)?;
                    assert_eq!((status.source, status.tag, status.len), (0, number as u32, len as u64));
                    assert_eq!(buffer.read(mpi, 13, len), bytes, "{protocol:?}: {len} bytes");
                }
            }
            Ok(())
        });
    }
}

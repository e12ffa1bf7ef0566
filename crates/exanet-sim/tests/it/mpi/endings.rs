//! What goes wrong: bad arguments, truncation, cancellation, losses, waits for nothing.

use super::run;
use am_core::Span;
use exanet_sim::ExanetConfig;
use exanet_sim::mpi::{self, MpiConfig, MpiError, Protocol, WORLD};
use fabric_sim::{FaultEvent, Faults, RunError, Scheduled, Topology};

#[test]
fn bad_arguments_are_refused() {
    let config = MpiConfig { receives: 1, ..MpiConfig::default() };
    let report = mpi::run(&ExanetConfig::pair(), &config, |mpi| {
        let buffer = mpi.buffer(10_000);
        let nobody = mpi.send_begin(WORLD, 2, 0, &buffer, 0..1).unwrap_err();
        assert_eq!(nobody.to_string(), "rank 2 is outside the job of 2 ranks");
        assert_eq!(
            mpi.receive_begin(WORLD, Some(7), None, &buffer, 0..1),
            Err(MpiError::NoRank { rank: 7, ranks: 2 })
        );
        let outside = mpi.receive_begin(WORLD, None, None, &buffer, 5000..10_001).unwrap_err();
        assert_eq!(outside.to_string(), "bytes 5000..10001 are outside a buffer of 10000 bytes");
        assert_eq!(mpi.broadcast(2, &buffer, 0..1), Err(MpiError::NoRank { rank: 2, ranks: 2 }));
        // One receive of a long message, and then another once that is over.
        let one = mpi.receive_begin(WORLD, Some(0), Some(9), &buffer, 0..5000)?;
        let two = mpi.receive_begin(WORLD, Some(0), Some(9), &buffer, 0..5000);
        assert_eq!(two, Err(MpiError::TooManyReceives { limit: 1 }));
        mpi.cancel(&one);
        assert_eq!(mpi.wait(one), Err(MpiError::Cancelled));
        let two = mpi.receive_begin(WORLD, Some(0), Some(9), &buffer, 0..5000)?;
        mpi.cancel(&two);
        assert_eq!(mpi.wait(two), Err(MpiError::Cancelled));
        Ok(())
    });
    assert!(report.unwrap().results.into_iter().all(|result| result == Some(Ok(()))));
    let refused = mpi::run(&ExanetConfig::pair(), &MpiConfig { receives: 0, ..config }, |_| Ok(())).unwrap_err();
    assert_eq!(refused.to_string(), "mpi.receives is 0, but must be from 1 to 1048576");
}

/// A message that is too long changes nothing of the receiver's memory, and its sender goes on.
#[test]
fn messages_that_are_too_long_are_named() {
    for protocol in Protocol::ALL {
        run(&ExanetConfig::pair(), protocol, |mpi| {
            let buffer = mpi.buffer(20_000);
            for (tag, (len, capacity)) in [(100, 50), (9000, 50), (9000, 5000)].into_iter().enumerate() {
                let tag = tag as u32;
                if mpi.rank() == 0 {
                    mpi.compute(Span::from_micros(20));
                    buffer.write(mpi, 0, &[7; 9000]);
                    mpi.send(WORLD, 1, tag, &buffer, 0..len)?;
                } else {
                    let error = mpi.receive(WORLD, Some(0), Some(tag), &buffer, 0..capacity).unwrap_err();
                    assert_eq!(error, MpiError::Truncated { rank: 0, tag, len, capacity });
                    assert!(error.to_string().contains(&format!("{len} bytes from rank 0 with tag {tag}")));
                    assert_eq!(buffer.read(mpi, 0, 20_000), vec![0; 20_000]);
                }
            }
            Ok(())
        });
    }
}

/// A receive whose message is on its way is not cancelled any more; one that has none is, and its buffer stays.
#[test]
fn cancels_meet_writes_under_way() {
    let mut ends = [0, 0];
    for after in (0..12_000).step_by(250) {
        let results = run(&ExanetConfig::pair(), Protocol::Elided, move |mpi| {
            let buffer = mpi.buffer(8192);
            if mpi.rank() == 0 {
                mpi.compute(Span::from_micros(4));
                buffer.write(mpi, 0, &[7; 8192]);
                mpi.send(WORLD, 1, 0, &buffer, 0..8192)?;
                return Ok(None);
            }
            let request = mpi.receive_begin(WORLD, Some(0), Some(0), &buffer, 0..8192)?;
            mpi.compute(Span::from_nanos(after));
            mpi.cancel(&request);
            let end = mpi.wait(request);
            let cancelled = end == Err(MpiError::Cancelled);
            let expected = if cancelled { 0 } else { 7 };
            assert_eq!(buffer.read(mpi, 0, 8192), vec![expected; 8192], "cancelled {after} ns on: {end:?}");
            if cancelled {
                mpi.receive(WORLD, Some(0), Some(0), &buffer, 0..8192)?;
            }
            Ok(Some(cancelled))
        });
        ends[usize::from(results[1].unwrap())] += 1;
    }
    assert!(ends[0] > 5 && ends[1] > 5, "{ends:?}");
}

/// A ring of blocking sends that are longer than an eager message waits for itself, as MPI permits, and is told
/// so.
#[test]
fn a_ring_of_long_blocking_sends_is_reported() {
    let ring = |len| {
        mpi::run(&exanet_sim::rack(3), &MpiConfig::default(), move |mpi| {
            let (me, buffer) = (mpi.rank(), mpi.buffer(10_000));
            mpi.send(WORLD, (me + 1) % 3, 0, &buffer, 0..len)?;
            mpi.receive(WORLD, Some((me + 2) % 3), Some(0), &buffer, 0..len)
        })
    };
    assert!(ring(2048).is_ok());
    let Err(RunError::Deadlock(report)) = ring(2049) else { panic!("the ring goes on") };
    assert_eq!(report.waiting.len(), 3);
    assert!(report.to_string().contains("a message to be sent"), "{report}");
    // Exchanges never do.
    run(&exanet_sim::rack(3), Protocol::Elided, |mpi| {
        let (me, buffer) = (mpi.rank(), mpi.buffer(20_000));
        mpi.exchange(WORLD, 0, ((me + 1) % 3, &buffer, 0..10_000), ((me + 2) % 3, &buffer, 10_000..20_000))
    });
}

/// An exchange that is refused leaves no receive that would take a later message.
#[test]
fn refused_exchanges_leave_nothing() {
    for protocol in Protocol::ALL {
        run(&ExanetConfig::pair(), protocol, |mpi| {
            let (other, buffer) = (1 - mpi.rank(), mpi.buffer(10_000));
            let nobody = mpi.exchange(WORLD, 3, (2, &buffer, 0..8), (other, &buffer, 0..5000));
            assert_eq!(nobody, Err(MpiError::NoRank { rank: 2, ranks: 2 }));
            let outside = mpi.exchange(WORLD, 3, (other, &buffer, 9999..10_001), (other, &buffer, 0..5000));
            assert_eq!(outside, Err(MpiError::OutsideBuffer { start: 9999, end: 10_001, len: 10_000 }));
            buffer.write(mpi, 5000, &[7; 8]);
            mpi.exchange(WORLD, 3, (other, &buffer, 5000..5008), (other, &buffer, 5008..5016))?;
            assert_eq!((buffer.read(mpi, 5008, 8), buffer.read(mpi, 0, 8)), (vec![7; 8], vec![0; 8]));
            Ok(())
        });
    }
}

/// A node stops at any time of a transfer: both that wait for it learn of it, and others go on.
#[test]
fn losses_end_what_waits_for_them() {
    for protocol in Protocol::ALL {
        for at_ns in [500.0, 2_000.0, 3_000.0, 5_000.0, 10_000.0, 40_000.0] {
            let schedule = vec![Scheduled { at_ns, event: FaultEvent::NodeStop { node: 1 } }];
            let faults = Faults { schedule, ..Faults::default() };
            let mut machine = ExanetConfig { faults, ..ExanetConfig::new(4, Topology::Crossbar { nodes: 4 }) };
            (machine.parameters.retry.timeout_ns, machine.parameters.retry.limit) = (10_000.0, 4);
            let report = mpi::run(&machine, &MpiConfig::of(protocol), move |mpi| {
                let buffer = mpi.buffer(1 << 16);
                match mpi.rank() {
                    0 => mpi.send(WORLD, 1, 0, &buffer, 0..1 << 16),
                    1 => {
                        mpi.receive(WORLD, Some(0), Some(0), &buffer, 0..1 << 16)?;
                        mpi.send(WORLD, 2, 0, &buffer, 0..1 << 16)
                    }
                    2 => {
                        let end = mpi.receive(WORLD, Some(1), Some(0), &buffer, 0..1 << 16);
                        mpi.send(WORLD, 3, 1, &buffer, 0..3000)?;
                        end.map(drop)
                    }
                    _ => mpi.receive(WORLD, Some(2), Some(1), &buffer, 0..3000).map(drop),
                }
            });
            let results = report.unwrap().results;
            let lost = Some(Err(MpiError::Lost { rank: 1 }));
            assert!(results[0] == lost || results[0] == Some(Ok(())), "{protocol:?} at {at_ns}: {results:?}");
            assert_eq!((results[2], results[3]), (lost, Some(Ok(()))), "{protocol:?} at {at_ns}");
        }
    }
}

/// A link that is down for longer than the interface tries takes both ranks from each other, and nothing comes
/// later.
#[test]
fn ranks_that_cannot_be_reached_are_lost() {
    for protocol in Protocol::ALL {
        let at = |at_ns, event| Scheduled { at_ns, event };
        let schedule = vec![
            at(8_000.0, FaultEvent::LinkDown { from: 0, to: 1 }),
            at(2e6, FaultEvent::LinkUp { from: 0, to: 1 }),
        ];
        let mut machine =
            ExanetConfig { faults: Faults { schedule, ..Faults::default() }, ..ExanetConfig::pair() };
        (machine.parameters.retry.timeout_ns, machine.parameters.retry.limit) = (10_000.0, 4);
        let report = mpi::run(&machine, &MpiConfig::of(protocol), move |mpi| {
            let buffer = mpi.buffer(1 << 16);
            if mpi.rank() == 0 {
                mpi.send(WORLD, 1, 0, &buffer, 0..1 << 16)?;
                mpi.receive(WORLD, Some(1), Some(1), &buffer, 0..0).map(drop)
            } else {
                let end = mpi.receive(WORLD, Some(0), Some(0), &buffer, 0..1 << 16).map(drop);
                mpi.receive(WORLD, Some(0), Some(1), &buffer, 0..0).and(end)
            }
        });
        let results = report.unwrap().results;
        let lost = |rank| Some(Err(MpiError::Lost { rank }));
        assert_eq!((results[0], results[1]), (lost(1), lost(0)), "{protocol:?}");
    }
}

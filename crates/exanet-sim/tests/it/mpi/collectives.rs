//! Collective operations by protocol.

use super::run;
use exanet_sim::mpi::Protocol;
use exanet_sim::rack;

#[test]
fn everybody_gets_what_all_have_given() {
    for protocol in Protocol::ALL {
        for ranks in [1, 2, 3, 5, 8, 13] {
            let results = run(&rack(ranks), protocol, move |mpi| {
                let me = mpi.rank();
                let mut sums = vec![0.0; 700];
                for (at, value) in sums.iter_mut().enumerate() {
                    *value = 1.0 / f64::from(me * 700 + at as u32 + 1);
                }
                mpi.all_reduce_sum(&mut sums)?;
                let len = 3000;
                let buffer = mpi.buffer(len * ranks as usize);
                buffer.write(mpi, len * me as usize, &vec![me as u8 + 1; len]);
                mpi.all_gather(&buffer, len as u64)?;
                let gathered = buffer.read(mpi, 0, len * ranks as usize);
                let right = gathered.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at / len + 1);
                let root = ranks - 1;
                buffer.write(mpi, 0, &vec![if me == root { 77 } else { 0 }; len]);
                mpi.broadcast(root, &buffer, 0..len as u64)?;
                mpi.barrier()?;
                Ok((sums, right && buffer.read(mpi, 0, len) == vec![77; len]))
            });
            for (rank, (sums, right)) in results.iter().enumerate() {
                assert!(right, "{protocol:?}: rank {rank} of {ranks}");
                assert_eq!(sums, &results[0].0, "the sums are the same to the last bit");
                let expected: f64 = (0..ranks).map(|rank| 1.0 / f64::from(rank * 700 + 1)).sum();
                assert!((sums[0] - expected).abs() < 1e-12);
            }
        }
    }
}

/// Nobody leaves a barrier before the last has come.
#[test]
fn barriers_wait_for_all() {
    let results = run(&rack(9), Protocol::Elided, |mpi| {
        let come = am_core::Span::from_micros(u64::from(mpi.rank()) * 10);
        mpi.compute(come);
        mpi.barrier()?;
        Ok(mpi.now().0)
    });
    assert!(results.iter().all(|left| *left >= 80_000_000), "{results:?}");
}

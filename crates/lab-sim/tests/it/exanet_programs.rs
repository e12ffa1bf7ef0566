//! The programs on ExaNet's two-sided messages compute what they must, by every protocol.

use exanet_sim::mpi::{MpiConfig, Protocol};
use lab_sim::figures::exanet::programs::{Program, Run, Shape};
use std::time::Instant;

#[test]
fn programs_compute_what_they_must() {
    for program in Program::ALL {
        for protocol in Protocol::ALL {
            // Faces of 288 bytes, long ones and eager ones; a box that is longer along one axis.
            for eager in [0, 2048] {
                let shape = Shape { ranks: [3, 2, 1], edge: 6, steps: 8 };
                let config = MpiConfig { eager, ..MpiConfig::of(protocol) };
                let Run { time_us, communication, wrong } =
                    program.run(&exanet_sim::rack(6), &config, shape).unwrap();
                assert_eq!(wrong, 0, "{program:?} by {protocol:?}, eager {eager}");
                // Eight steps of 216 points, of 10 ns each, and messages.
                assert!(time_us > 8.0 * 2.16 && (0.1..1.0).contains(&communication), "{time_us} {communication}");
            }
        }
    }
}

/// `cargo test --release -p lab-sim --test it -- --ignored full_conjugate_gradient_of_512_ranks --nocapture`
#[test]
#[ignore = "conjugate gradient on 512 ranks, a hundred steps by two protocols, takes a minute"]
fn full_conjugate_gradient_of_512_ranks() {
    on_512_ranks(Program::ConjugateGradient);
}

/// As above.
#[test]
#[ignore = "a stencil on 512 ranks, a hundred steps by two protocols, takes a minute"]
fn full_stencil_of_512_ranks() {
    on_512_ranks(Program::Stencil);
}

/// A hundred steps by reads and by writes, and what each run takes of this host's time.
fn on_512_ranks(program: Program) {
    let shape = Shape { ranks: [8; 3], edge: 17, steps: 100 };
    let run = |protocol: Protocol| {
        let start = Instant::now();
        let run = program.run(&exanet_sim::rack(512), &MpiConfig::of(protocol), shape).unwrap();
        println!("{program:?} on 512 ranks, {protocol:?}: {run:?}; simulated in {:.1?}", start.elapsed());
        run
    };
    let (read, written) = (run(Protocol::Read), run(Protocol::Elided));
    assert_eq!((read.wrong, written.wrong), (0, 0), "{program:?}");
    let saving = 100.0 * (1.0 - written.time_us / read.time_us);
    println!("{program:?} on 512 ranks: {saving:.1} % less time");
    assert!(saving > 0.0, "{program:?}");
}

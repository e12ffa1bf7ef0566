//! LogGOPSim itself on the same schedules, as the yardstick: when the last rank is done, as the program says it.
//!
//! Run with LogGOPSim of spcl/LogGOPSim, commit 76451de, built by its Makefile: `txt2bin -i s.goal -o s.bin` and
//! `LogGOPSim -f s.bin -b -L .. -o .. -g .. -G .. -O ..`, on the schedules of `goal::patterns` in GOAL's text
//! format.

use fabric_sim::Topology;
use machine_sim::goal::{self, Schedule, patterns};
use machine_sim::model::{Parameters, SizeClass};
use machine_sim::{MachineConfig, crossbar};

const RANKS: [u32; 5] = [2, 7, 16, 33, 64];
const BYTES: [u64; 3] = [1, 8, 4096];

/// L, o, g, G and O in nanoseconds; and when the last rank is done, by ranks and bytes: of a binomial broadcast, a
/// dissemination barrier, and a linear all-to-all.
struct Run {
    parameters: [f64; 5],
    ended: [[[u64; 3]; 5]; 3],
}

const RUNS: [Run; 3] = [
    Run {
        parameters: [2500.0, 1500.0, 1000.0, 6.0, 0.0],
        ended: [
            [
                [5500, 5542, 30_070],
                [12_500, 12_584, 85_710],
                [22_000, 22_168, 120_280],
                [27_500, 27_710, 157_920],
                [33_000, 33_252, 180_420],
            ],
            [
                [5500, 5542, 30_070],
                [16_500, 16_626, 90_210],
                [22_000, 22_168, 120_280],
                [33_000, 33_252, 180_420],
                [33_000, 33_252, 180_420],
            ],
            [
                [5500, 5542, 30_070],
                [18_000, 18_252, 180_420],
                [45_000, 45_630, 451_050],
                [96_000, 97_344, 962_240],
                [189_000, 191_646, 1_894_410],
            ],
        ],
    },
    Run {
        parameters: [700.0, 120.0, 900.0, 1.0, 0.0],
        ended: [
            [
                [940, 947, 5035],
                [2780, 2801, 15_065],
                [3760, 3788, 20_140],
                [5440, 5482, 30_010],
                [5640, 5682, 30_210],
            ],
            [
                [940, 947, 5035],
                [2820, 2841, 15_105],
                [3760, 3788, 20_140],
                [5640, 5682, 30_210],
                [5640, 5682, 30_210],
            ],
            [
                [940, 947, 5035],
                [5640, 5682, 30_210],
                [14_100, 14_205, 75_525],
                [30_080, 30_304, 161_120],
                [59_220, 59_661, 317_205],
            ],
        ],
    },
    Run {
        parameters: [1000.0, 300.0, 50.0, 1.0, 2.0],
        ended: [
            [
                [1600, 1614, 9790],
                [3500, 3542, 28_070],
                [6400, 6456, 39_160],
                [8000, 8070, 52_240],
                [9600, 9684, 58_740],
            ],
            [
                [1600, 1614, 16_980],
                [4800, 4842, 50_940],
                [6400, 6456, 67_920],
                [9600, 9684, 101_880],
                [9600, 9684, 101_880],
            ],
            [
                [1600, 1614, 16_980],
                [3600, 3768, 101_880],
                [9000, 9420, 254_700],
                [19_200, 20_096, 543_360],
                [37_800, 39_564, 1_069_740],
            ],
        ],
    },
];

type Pattern = fn(u32, u64) -> Schedule;

const PATTERNS: [(&str, Pattern); 3] = [
    ("broadcast", patterns::binomial_broadcast),
    ("barrier", patterns::dissemination_barrier),
    ("alltoall", patterns::linear_alltoall),
];

#[test]
fn collectives_take_as_long_as_on_loggopsim() {
    for Run { parameters: [latency, overhead, gap, gap_per_byte, copy], ended } in RUNS {
        let class = SizeClass {
            up_to: None,
            send_ns: overhead,
            receive_ns: overhead,
            gap_ns: gap,
            gap_per_byte_ns: gap_per_byte,
            overhead_per_byte_ns: copy,
        };
        let parameters = Parameters { sizes: vec![class], ..Parameters::loggp(latency, 0.0, 0.0, 0.0) };
        for ((name, pattern), by_ranks) in PATTERNS.into_iter().zip(ended) {
            for (ranks, by_bytes) in RANKS.into_iter().zip(by_ranks) {
                let topology = Topology::Crossbar { nodes: ranks };
                let machine = MachineConfig { topology, parameters: parameters.clone(), ..crossbar(1) };
                for (bytes, expected) in BYTES.into_iter().zip(by_bytes) {
                    let report = goal::run(&machine, &pattern(ranks, bytes)).unwrap();
                    let found = report.ended.into_iter().max().unwrap().0 as f64 / 1e3;
                    let apart = (found - expected as f64).abs() / expected as f64;
                    assert!(apart < 0.01, "{name} of {bytes} bytes on {ranks} ranks: {found}, not {expected} ns");
                }
            }
        }
    }
}

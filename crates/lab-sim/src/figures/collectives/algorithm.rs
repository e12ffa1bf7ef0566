//! The algorithms that are shown: their schedules, how they are chosen, and the operations that they do.

use active_messages::pgas::Team;
use active_messages::pgas::collectives::algorithms::{self, allreduce, alltoall, broadcast, gather, reduce, scan};
use active_messages::pgas::collectives::schedule::Schedule;
use active_messages::pgas::collectives::{
    Allgather, Allreduce, Alltoall, Broadcast, CollectiveError, Collectives, Gather, Ordered, Reduce,
    ReduceScatter, Row, Scan, Sum, Tuning,
};
use active_messages::{Endpoint, Transport};

/// An operation and how it is done. All but the two-level algorithms, which need ranks that share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Dissemination,
    BroadcastTree,
    BroadcastLinear,
    ReduceTree,
    Doubling,
    Scan,
    Knomial,
    Rabenseifner,
    Ring,
    AllgatherBruck,
    AlltoallBruck,
    ReduceLinear,
    ReduceOrdered,
    ScatterLinear,
    ScatterTree,
    GatherLinear,
    GatherTree,
    BroadcastChain,
    ScatterAllgather,
    ScatterGather,
    Pairwise,
    ThenScatter,
    ScanChain,
    AllgatherRing,
    AllgatherDoubling,
    AlltoallLinear,
    AlltoallPairwise,
}

use Algorithm as A;

/// Algorithms of one picture.
pub(super) struct Picture {
    /// The names of its files, of EXTOLL and of Portals.
    pub(super) names: [&'static str; 2],
    pub(super) subtitle: &'static str,
    pub(super) algorithms: &'static [Algorithm],
    /// The largest number of ranks as a power of two, in a quick run and otherwise.
    pub(super) most: [u32; 2],
}

/// All of them. A ring takes as many messages as the square of the ranks.
pub(super) const PICTURES: [Picture; 5] = [
    Picture {
        names: ["extoll", "portals"],
        subtitle: "8 bytes of each rank; ranks at one switch; from the common beginning to the last end",
        algorithms: &[A::Dissemination, A::BroadcastTree, A::BroadcastLinear, A::ReduceTree, A::Doubling, A::Scan],
        most: [6, 10],
    },
    Picture {
        names: ["extoll-larger", "portals-larger"],
        subtitle: "sizes that each is made for; ranks at one switch; from the common beginning to the last end",
        algorithms: &[A::Knomial, A::Rabenseifner, A::Ring, A::AllgatherBruck, A::AlltoallBruck],
        most: [5, 7],
    },
    Picture {
        names: ["extoll-rooted", "portals-rooted"],
        subtitle: "8 bytes of each rank, 16 of scatters and gathers; ranks at one switch",
        algorithms: &[
            A::ReduceLinear,
            A::ReduceOrdered,
            A::ScatterLinear,
            A::ScatterTree,
            A::GatherLinear,
            A::GatherTree,
        ],
        most: [5, 7],
    },
    Picture {
        names: ["extoll-vectors", "portals-vectors"],
        subtitle: "1 or 2 KiB, 16 bytes of each rank, or a word along a chain; ranks at one switch",
        algorithms: &[
            A::BroadcastChain,
            A::ScatterAllgather,
            A::ScatterGather,
            A::Pairwise,
            A::ThenScatter,
            A::ScanChain,
        ],
        most: [5, 7],
    },
    Picture {
        names: ["extoll-all", "portals-all"],
        subtitle: "16 bytes of each rank, to each other one in an alltoall; ranks at one switch",
        algorithms: &[A::AllgatherRing, A::AllgatherDoubling, A::AlltoallLinear, A::AlltoallPairwise],
        most: [5, 7],
    },
];

/// A name, and those of the curves that are called like that.
macro_rules! names {
    ($line:literal, $curve:literal) => {
        [$line, concat!($curve, ", simulated"), concat!($curve, ", PLogP")]
    };
}

/// Bytes of a segment of a chain.
const SEGMENT: usize = 512;

/// What a member does for the common beginning of operations.
pub(super) fn beginning(me: usize, size: usize) -> Schedule {
    allreduce::recursive_doubling(me, size, 1)
}

impl Algorithm {
    /// Its name, and those of its curves.
    pub(super) fn names(self) -> [&'static str; 3] {
        match self {
            A::Dissemination => names!("barrier, dissemination", "barrier"),
            A::BroadcastTree => names!("broadcast, binomial tree", "broadcast tree"),
            A::BroadcastLinear => names!("broadcast, linear", "linear broadcast"),
            A::ReduceTree => names!("reduce, binomial tree", "reduce tree"),
            A::Doubling => names!("allreduce, recursive doubling", "allreduce"),
            A::Scan => names!("scan, doubling", "scan"),
            A::Knomial => names!("broadcast of 512 B, 4-nomial tree", "4-nomial"),
            A::Rabenseifner => names!("allreduce of 1 KiB, Rabenseifner", "Rabenseifner"),
            A::Ring => names!("allreduce of 512 B for each rank, ring", "ring"),
            A::AllgatherBruck => names!("allgather of 16 B, Bruck", "Bruck's allgather"),
            A::AlltoallBruck => names!("alltoall of 16 B, Bruck", "Bruck's alltoall"),
            A::ReduceLinear => names!("reduce, linear", "linear reduce"),
            A::ReduceOrdered => names!("reduce, tree that keeps the order", "ordered reduce"),
            A::ScatterLinear => names!("scatter of 16 B, linear", "linear scatter"),
            A::ScatterTree => names!("scatter of 16 B, tree", "scatter tree"),
            A::GatherLinear => names!("gather of 16 B, linear", "linear gather"),
            A::GatherTree => names!("gather of 16 B, tree", "gather tree"),
            A::BroadcastChain => names!("broadcast of 2 KiB, chain of 512 B", "chain"),
            A::ScatterAllgather => {
                names!("broadcast of 16 B for each rank, scatter and allgather", "scatter-allgather")
            }
            A::ScatterGather => names!("reduce of 1 KiB, reduce-scatter and gather", "scatter-gather"),
            A::Pairwise => names!("reduce-scatter of 16 B, pairwise", "pairwise"),
            A::ThenScatter => names!("reduce-scatter of 8 B, reduce then scatter", "then scatter"),
            A::ScanChain => names!("scan, chain", "scan chain"),
            A::AllgatherRing => names!("allgather of 16 B, ring", "allgather ring"),
            A::AllgatherDoubling => names!("allgather of 16 B, recursive doubling", "allgather doubling"),
            A::AlltoallLinear => names!("alltoall of 16 B, linear", "linear alltoall"),
            A::AlltoallPairwise => names!("alltoall of 16 B, pairwise", "pairwise alltoall"),
        }
    }

    /// Whether it is for so many members.
    pub(super) fn fits(self, size: u32) -> bool {
        self != A::AllgatherDoubling || size.is_power_of_two()
    }

    /// Words of a member's vector, or of one part.
    fn count(self, size: usize) -> usize {
        match self {
            A::Knomial => 64,
            A::Rabenseifner | A::ScatterGather => 128,
            A::BroadcastChain => 256,
            A::Ring => 64 * size,
            A::ScatterAllgather => 2 * size,
            A::AllgatherBruck | A::AlltoallBruck | A::Pairwise => 2,
            A::ScatterLinear | A::ScatterTree | A::GatherLinear | A::GatherTree => 2,
            A::AllgatherRing | A::AllgatherDoubling | A::AlltoallLinear | A::AlltoallPairwise => 2,
            _ => 1,
        }
    }

    /// What a member does.
    pub(super) fn schedule(self, me: usize, size: usize) -> Schedule {
        let count = self.count(size);
        let each = vec![count; size];
        let counts = if me == 0 { gather::Counts::All(&each) } else { gather::Counts::Own(count) };
        match self {
            A::Dissemination => algorithms::dissemination(me, size, 1),
            A::BroadcastTree => broadcast::tree(me, size, 0, count, 2),
            A::BroadcastLinear => broadcast::linear(me, size, 0, count),
            A::ReduceTree => reduce::tree(me, size, 0, count, 2),
            A::Doubling => allreduce::recursive_doubling(me, size, count),
            A::Scan => scan::doubling(me, size, count, false),
            A::Knomial => broadcast::tree(me, size, 0, count, 4),
            A::Rabenseifner => allreduce::rabenseifner(me, size, count),
            A::Ring => allreduce::ring(me, size, count),
            A::AllgatherBruck => gather::bruck(me, size, count),
            A::AlltoallBruck => alltoall::bruck(me, size, count),
            A::ReduceLinear => reduce::linear(me, size, 0, count),
            A::ReduceOrdered => reduce::ordered_tree(me, size, 0, count, 2),
            A::ScatterLinear => gather::scatter_linear(me, 0, counts),
            A::ScatterTree => gather::scatter_tree(me, size, 0, count),
            A::GatherLinear => gather::gather_linear(me, 0, counts),
            A::GatherTree => gather::gather_tree(me, size, 0, count),
            A::BroadcastChain => broadcast::chain(me, size, 0, count, 8 * count / SEGMENT),
            A::ScatterAllgather => broadcast::scatter_allgather(me, size, 0, count),
            A::ScatterGather => reduce::scatter_gather(me, size, 0, count),
            A::Pairwise => reduce::pairwise(me, &each),
            A::ThenScatter => reduce::then_scatter(me, &each),
            A::ScanChain => scan::chain(me, size, count, false),
            A::AllgatherRing => gather::ring(me, &each),
            A::AllgatherDoubling => gather::doubling(me, size, count),
            A::AlltoallLinear => alltoall::linear(me, &each, &each),
            A::AlltoallPairwise => alltoall::pairwise(me, &each, &each),
        }
    }

    /// A tuning by which operations are done so.
    pub(super) fn tuning(self) -> Tuning {
        let mut tuning = Tuning::default();
        tuning.check = false;
        tuning.broadcast = vec![Row::any(match self {
            A::BroadcastLinear => Broadcast::Linear,
            A::Knomial => Broadcast::Tree { radix: 4 },
            A::BroadcastChain => Broadcast::Chain { segment: SEGMENT },
            A::ScatterAllgather => Broadcast::ScatterAllgather,
            _ => Broadcast::Tree { radix: 2 },
        })];
        tuning.reduce = vec![Row::any(match self {
            A::ReduceLinear => Reduce::Linear,
            A::ScatterGather => Reduce::ScatterGather,
            _ => Reduce::Tree { radix: 2 },
        })];
        // The common beginning is agreed on by a word.
        tuning.allreduce = vec![Row::new(usize::MAX, 8, Allreduce::RecursiveDoubling)];
        tuning.allreduce.push(Row::any(match self {
            A::Rabenseifner => Allreduce::Rabenseifner,
            _ => Allreduce::Ring,
        }));
        tuning.reduce_scatter = vec![Row::any(match self {
            A::ThenScatter => ReduceScatter::ThenScatter,
            _ => ReduceScatter::Pairwise,
        })];
        tuning.scan = vec![Row::any(if self == A::ScanChain { Scan::Chain } else { Scan::Doubling })];
        tuning.gather = vec![Row::any(match self {
            A::ScatterLinear | A::GatherLinear => Gather::Linear,
            _ => Gather::Tree,
        })];
        tuning.allgather = vec![Row::any(match self {
            A::AllgatherRing => Allgather::Ring,
            A::AllgatherDoubling => Allgather::Doubling,
            _ => Allgather::Bruck,
        })];
        tuning.alltoall = vec![Row::any(match self {
            A::AlltoallLinear => Alltoall::Linear,
            A::AlltoallPairwise => Alltoall::Pairwise,
            _ => Alltoall::Bruck,
        })];
        tuning
    }

    /// Does the operation once.
    pub(super) fn perform<T: Transport>(self, endpoint: &mut Endpoint<T, Collectives>, world: &Team) {
        let (size, is_root) = (world.size() as usize, world.me() == 0);
        let mut words = vec![u64::from(world.me()); self.count(size)];
        let done: Result<(), CollectiveError> = match self {
            A::Dissemination => world.barrier(endpoint),
            A::BroadcastTree | A::BroadcastLinear | A::Knomial | A::BroadcastChain | A::ScatterAllgather => {
                world.broadcast(endpoint, 0, &mut words)
            }
            A::ReduceTree | A::ReduceLinear | A::ScatterGather => world.reduce(endpoint, 0, &mut words, Sum),
            A::ReduceOrdered => world.reduce(endpoint, 0, &mut words, Ordered(Sum)),
            A::Doubling | A::Rabenseifner | A::Ring => world.allreduce(endpoint, &mut words, Sum),
            A::Scan | A::ScanChain => world.scan(endpoint, &mut words, Sum),
            A::Pairwise | A::ThenScatter => {
                let given = words.repeat(size);
                world.reduce_scatter(endpoint, &given, &mut words, Sum)
            }
            A::ScatterLinear | A::ScatterTree => {
                let given = if is_root { words.repeat(size) } else { Vec::new() };
                world.scatter(endpoint, 0, &given, &mut words)
            }
            A::GatherLinear | A::GatherTree => {
                let mut all = vec![0; if is_root { words.len() * size } else { 0 }];
                world.gather(endpoint, 0, &words, &mut all)
            }
            A::AllgatherBruck | A::AllgatherRing | A::AllgatherDoubling => {
                let mut all = vec![0; words.len() * size];
                world.allgather(endpoint, &words, &mut all)
            }
            A::AlltoallBruck | A::AlltoallLinear | A::AlltoallPairwise => {
                let (given, mut got) = (words.repeat(size), vec![0; words.len() * size]);
                world.alltoall(endpoint, &given, &mut got)
            }
        };
        done.expect("nobody is lost");
    }
}

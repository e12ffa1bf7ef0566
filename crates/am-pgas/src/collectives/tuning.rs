//! Which algorithm an operation uses: a table for each operation, by members and bytes, which programs may change.

use super::algorithms::{self, allreduce, alltoall, broadcast, gather, reduce, scan};
use super::schedule::Schedule;

/// One row of a table: an algorithm, and up to what it is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<A> {
    /// The largest team.
    pub members: usize,
    /// The most bytes: those of one member's vector; of one part for gather, allgather, scatter and alltoall.
    pub bytes: usize,
    /// The algorithm.
    pub algorithm: A,
}

impl<A> Row<A> {
    /// A row for teams of up to `members` and up to `bytes`.
    pub const fn new(members: usize, bytes: usize, algorithm: A) -> Self {
        Self { members, bytes, algorithm }
    }

    /// A row for everything.
    pub const fn any(algorithm: A) -> Self {
        Self::new(usize::MAX, usize::MAX, algorithm)
    }
}

/// Algorithms of [`broadcast`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broadcast {
    /// [`broadcast::tree`].
    Tree {
        /// Its radix, at least 2.
        radix: usize,
    },
    /// [`broadcast::linear`].
    Linear,
    /// [`broadcast::chain`].
    Chain {
        /// Bytes of a segment, at least 1.
        segment: usize,
    },
    /// [`broadcast::scatter_allgather`].
    ScatterAllgather,
    /// [`broadcast::two_level`], where there are several hosts and fewer of them than members.
    TwoLevel,
}

/// Algorithms of [`reduce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reduce {
    /// [`reduce::tree`], or [`reduce::ordered_tree`] for operators that do not commute.
    Tree {
        /// Its radix, at least 2.
        radix: usize,
    },
    /// [`reduce::linear`].
    Linear,
    /// [`reduce::scatter_gather`], for operators that commute.
    ScatterGather,
    /// [`reduce::two_level`], for operators that commute, as [`Broadcast::TwoLevel`].
    TwoLevel,
}

/// Algorithms of [`allreduce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Allreduce {
    /// [`allreduce::recursive_doubling`].
    RecursiveDoubling,
    /// [`allreduce::rabenseifner`], for operators that commute.
    Rabenseifner,
    /// [`allreduce::ring`], for operators that commute.
    Ring,
    /// [`allreduce::two_level`], for operators that commute, as [`Broadcast::TwoLevel`].
    TwoLevel,
}

/// Algorithms of reduce-scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReduceScatter {
    /// [`reduce::pairwise`], for operators that commute.
    Pairwise,
    /// [`reduce::then_scatter`].
    ThenScatter,
}

/// Algorithms of [`scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scan {
    /// [`scan::doubling`].
    Doubling,
    /// [`scan::chain`].
    Chain,
}

/// Algorithms of scatter and gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gather {
    /// [`gather::scatter_tree`], [`gather::gather_tree`].
    Tree,
    /// [`gather::scatter_linear`], [`gather::gather_linear`]: always where members' parts differ.
    Linear,
}

/// Algorithms of allgather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Allgather {
    /// [`gather::ring`]: always where members' parts differ.
    Ring,
    /// [`gather::bruck`].
    Bruck,
    /// [`gather::doubling`], for powers of two.
    Doubling,
}

/// Algorithms of [`alltoall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Alltoall {
    /// [`alltoall::linear`].
    Linear,
    /// [`alltoall::pairwise`].
    Pairwise,
    /// [`alltoall::bruck`], where all parts are the same size.
    Bruck,
}

/// How collective operations work. All ranks register the same: attaching fails otherwise.
///
/// Each table is read from its first row on; the first row whose limits hold and whose algorithm fits is chosen.
/// If none does, it is the algorithm that always fits. The choice depends on nothing that differs among the
/// members of a team.
///
/// | operation | default, by the first row that holds |
/// |---|---|
/// | barrier | always dissemination: it takes the fewest rounds of small messages, whatever the team |
/// | broadcast | 2 members: tree; several hosts: two-level; to 32 KiB: tree; to 8 members: chain; scatter and allgather |
/// | reduce | 2 members: tree; to 32 KiB: two-level for several hosts, tree; scatter and gather |
/// | allreduce | to 2 KiB: two-level for several hosts, recursive doubling; to 64 KiB: Rabenseifner; ring |
/// | reduce-scatter | pairwise |
/// | scan, exscan | doubling |
/// | scatter, gather | to 4 members: linear; to 2 KiB: tree; linear |
/// | allgather | to 2 KiB: doubling for powers of two, Bruck; ring |
/// | alltoall | to 4 members: linear; to 256 bytes: Bruck; to 32 KiB: linear; pairwise |
///
/// Operators that do not commute, and [`Ordered`](super::Ordered) ones, always take recursive doubling for
/// allreduce, the binomial tree for reduce, and for reduce-scatter a reduction whose result is scattered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// The largest message, in bytes, that is sent before its receiver has come to it. 4096 by default.
    pub eager: usize,
    /// Such messages from one member to another in one team that may wait for their receiver, at least 2. 8 by
    /// default.
    pub window: u32,
    /// Whether messages carry what their sender called, so that calls that differ are named: where debug
    /// assertions are on, by default.
    pub check: bool,
    /// The largest team whose members, if all of them share memory, do operations through that: barrier,
    /// broadcast, reduce, allreduce, scan, exscan, gather and allgather of up to 32 bytes of each member by lines
    /// of memory that each looks at, and larger ones of [`direct_bytes`](Self::direct_bytes). 64 by default, 0 for
    /// none.
    pub direct: usize,
    /// The least bytes of a broadcast, or of each member's part of an allgather, that are copied through shared
    /// memory by blocks. 8 KiB by default.
    pub direct_bytes: usize,
    /// The least bytes that a blocking allgather through shared memory takes out of the giver's own memory instead
    /// of blocks, where the system lets one process read another (`process_vm_readv`), in teams of at most 64; and
    /// a blocking broadcast, where the root has no processor to itself. Such a giver waits until all others have
    /// read. 64 KiB by default, `usize::MAX` for none.
    pub lent_bytes: usize,
    /// The most that a copy by the system may take, in percent of the time of a copy within the process, for a
    /// member with a processor to itself to lend what it gives to an allgather instead of filling blocks. 200 by
    /// default, as an allgather by blocks makes one copy more, and those of them that members make at the same
    /// time count half; 0 for always blocks, `u32::MAX` for never.
    ///
    /// Each endpoint measures it at its first such operation: four copies of each kind of 256 KiB, of which the
    /// fastest count, some 0.2 ms. If the system refuses, it tries again at the next two, and lends until it
    /// knows, since who cannot read asks for blocks. Each member chooses for what it gives by itself; the others
    /// read what its line tells.
    pub lent_cost: u32,
    /// For broadcast.
    pub broadcast: Vec<Row<Broadcast>>,
    /// For reduce.
    pub reduce: Vec<Row<Reduce>>,
    /// For allreduce.
    pub allreduce: Vec<Row<Allreduce>>,
    /// For reduce-scatter.
    pub reduce_scatter: Vec<Row<ReduceScatter>>,
    /// For scan and exscan.
    pub scan: Vec<Row<Scan>>,
    /// For scatter and gather.
    pub gather: Vec<Row<Gather>>,
    /// For allgather.
    pub allgather: Vec<Row<Allgather>>,
    /// For alltoall.
    pub alltoall: Vec<Row<Alltoall>>,
}

const KIB: usize = 1 << 10;
const ANY: usize = usize::MAX;

impl Default for Tuning {
    fn default() -> Self {
        Self {
            eager: 4 * KIB,
            window: 8,
            check: cfg!(debug_assertions),
            direct: 64,
            direct_bytes: 8 * KIB,
            lent_bytes: 64 * KIB,
            lent_cost: 200,
            broadcast: vec![
                Row::new(2, ANY, Broadcast::Tree { radix: 2 }),
                Row::any(Broadcast::TwoLevel),
                Row::new(ANY, 32 * KIB, Broadcast::Tree { radix: 2 }),
                Row::new(8, ANY, Broadcast::Chain { segment: 32 * KIB }),
                Row::any(Broadcast::ScatterAllgather),
            ],
            reduce: vec![
                Row::new(2, ANY, Reduce::Tree { radix: 2 }),
                Row::new(ANY, 32 * KIB, Reduce::TwoLevel),
                Row::new(ANY, 32 * KIB, Reduce::Tree { radix: 2 }),
                Row::any(Reduce::ScatterGather),
            ],
            allreduce: vec![
                Row::new(ANY, 2 * KIB, Allreduce::TwoLevel),
                Row::new(ANY, 2 * KIB, Allreduce::RecursiveDoubling),
                Row::new(ANY, 64 * KIB, Allreduce::Rabenseifner),
                Row::any(Allreduce::Ring),
            ],
            reduce_scatter: vec![Row::any(ReduceScatter::Pairwise)],
            scan: vec![Row::any(Scan::Doubling)],
            gather: vec![
                Row::new(4, ANY, Gather::Linear),
                Row::new(ANY, 2 * KIB, Gather::Tree),
                Row::any(Gather::Linear),
            ],
            allgather: vec![
                Row::new(ANY, 2 * KIB, Allgather::Doubling),
                Row::new(ANY, 2 * KIB, Allgather::Bruck),
                Row::any(Allgather::Ring),
            ],
            alltoall: vec![
                Row::new(4, ANY, Alltoall::Linear),
                Row::new(ANY, 256, Alltoall::Bruck),
                Row::new(ANY, 32 * KIB, Alltoall::Linear),
                Row::any(Alltoall::Pairwise),
            ],
        }
    }
}

/// The first algorithm whose row holds and which fits.
fn choose<A: Copy>(table: &[Row<A>], size: usize, bytes: usize, fits: impl Fn(A) -> bool) -> Option<A> {
    let holds = |row: &&Row<A>| size <= row.members && bytes <= row.bytes && fits(row.algorithm);
    table.iter().find(holds).map(|row| row.algorithm)
}

/// What an algorithm is chosen for: a member of a team.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat<'a> {
    pub(crate) me: usize,
    pub(crate) size: usize,
    /// For each member its host; empty unless there are several hosts, and fewer of them than members.
    pub(crate) hosts: &'a [u32],
}

impl Seat<'_> {
    fn has_levels(&self) -> bool {
        !self.hosts.is_empty()
    }
}

impl Tuning {
    /// A number that differs if anything does (FNV-1a of its text).
    pub(crate) fn fingerprint(&self) -> u64 {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        format!("{self:?}").bytes().fold(0xcbf2_9ce4_8422_2325, step)
    }

    /// Checks what no table can mean.
    pub(crate) fn validate(&self) {
        assert!(self.window >= 2, "a window has at least two messages");
        let fits = |broadcast: Broadcast| match broadcast {
            Broadcast::Tree { radix } => radix >= 2,
            Broadcast::Chain { segment } => segment >= 1,
            _ => true,
        };
        let broadcasts = self.broadcast.iter().all(|row| fits(row.algorithm));
        assert!(broadcasts, "a broadcast's tree has a radix of at least 2, and a chain's segment at least a byte");
        let fits = |reduce: Reduce| !matches!(reduce, Reduce::Tree { radix: 0 | 1 });
        assert!(self.reduce.iter().all(|row| fits(row.algorithm)), "a reduction's tree has a radix of at least 2");
    }

    pub(crate) fn broadcast(&self, seat: Seat<'_>, root: usize, count: usize, element: usize) -> Schedule {
        let Seat { me, size, hosts } = seat;
        let fits = |algorithm| algorithm != Broadcast::TwoLevel || seat.has_levels();
        match choose(&self.broadcast, size, count * element, fits) {
            Some(Broadcast::Tree { radix }) => broadcast::tree(me, size, root, count, radix),
            Some(Broadcast::Linear) => broadcast::linear(me, size, root, count),
            Some(Broadcast::Chain { segment }) => {
                let segments = (count * element).div_ceil(segment.max(element)).max(1);
                broadcast::chain(me, size, root, count, segments)
            }
            Some(Broadcast::ScatterAllgather) => broadcast::scatter_allgather(me, size, root, count),
            Some(Broadcast::TwoLevel) => broadcast::two_level(me, root, count, hosts),
            None => broadcast::tree(me, size, root, count, 2),
        }
    }

    pub(crate) fn reduce(
        &self,
        seat: Seat<'_>,
        root: usize,
        count: usize,
        element: usize,
        ordered: bool,
    ) -> Schedule {
        let Seat { me, size, hosts } = seat;
        if ordered {
            // Not by count: the association is the same however many elements there are.
            return reduce::ordered_tree(me, size, root, count, 2);
        }
        let fits = |algorithm| algorithm != Reduce::TwoLevel || seat.has_levels();
        match choose(&self.reduce, size, count * element, fits) {
            Some(Reduce::Tree { radix }) => reduce::tree(me, size, root, count, radix),
            Some(Reduce::Linear) => reduce::linear(me, size, root, count),
            Some(Reduce::ScatterGather) => reduce::scatter_gather(me, size, root, count),
            Some(Reduce::TwoLevel) => reduce::two_level(me, root, count, hosts),
            None => reduce::tree(me, size, root, count, 2),
        }
    }

    pub(crate) fn allreduce(&self, seat: Seat<'_>, count: usize, element: usize, ordered: bool) -> Schedule {
        let Seat { me, size, hosts } = seat;
        let fits = |algorithm| match algorithm {
            Allreduce::RecursiveDoubling => true,
            Allreduce::Rabenseifner | Allreduce::Ring => !ordered,
            Allreduce::TwoLevel => !ordered && seat.has_levels(),
        };
        let chosen = choose(&self.allreduce, size, count * element, fits).filter(|_| !ordered);
        match chosen.unwrap_or(Allreduce::RecursiveDoubling) {
            Allreduce::RecursiveDoubling => allreduce::recursive_doubling(me, size, count),
            Allreduce::Rabenseifner => allreduce::rabenseifner(me, size, count),
            Allreduce::Ring => allreduce::ring(me, size, count),
            Allreduce::TwoLevel => allreduce::two_level(me, count, hosts),
        }
    }

    pub(crate) fn reduce_scatter(
        &self,
        seat: Seat<'_>,
        counts: &[usize],
        element: usize,
        ordered: bool,
    ) -> Schedule {
        let bytes = counts.iter().sum::<usize>() * element;
        match choose(&self.reduce_scatter, seat.size, bytes, |algorithm| {
            algorithm != ReduceScatter::Pairwise || !ordered
        }) {
            Some(ReduceScatter::Pairwise) => reduce::pairwise(seat.me, counts),
            Some(ReduceScatter::ThenScatter) | None => reduce::then_scatter(seat.me, counts),
        }
    }

    pub(crate) fn scan(&self, seat: Seat<'_>, count: usize, element: usize, exclusive: bool) -> Schedule {
        match choose(&self.scan, seat.size, count * element, |_| true) {
            Some(Scan::Chain) => scan::chain(seat.me, seat.size, count, exclusive),
            Some(Scan::Doubling) | None => scan::doubling(seat.me, seat.size, count, exclusive),
        }
    }

    pub(crate) fn scatter(&self, seat: Seat<'_>, root: usize, count: usize, element: usize) -> Schedule {
        match choose(&self.gather, seat.size, count * element, |_| true) {
            Some(Gather::Linear) if seat.me == root => {
                gather::scatter_linear(seat.me, root, gather::Counts::All(&vec![count; seat.size]))
            }
            Some(Gather::Linear) => gather::scatter_linear(seat.me, root, gather::Counts::Own(count)),
            Some(Gather::Tree) | None => gather::scatter_tree(seat.me, seat.size, root, count),
        }
    }

    pub(crate) fn gather(&self, seat: Seat<'_>, root: usize, count: usize, element: usize) -> Schedule {
        match choose(&self.gather, seat.size, count * element, |_| true) {
            Some(Gather::Linear) if seat.me == root => {
                gather::gather_linear(seat.me, root, gather::Counts::All(&vec![count; seat.size]))
            }
            Some(Gather::Linear) => gather::gather_linear(seat.me, root, gather::Counts::Own(count)),
            Some(Gather::Tree) | None => gather::gather_tree(seat.me, seat.size, root, count),
        }
    }

    pub(crate) fn allgather(&self, seat: Seat<'_>, count: usize, element: usize) -> Schedule {
        let fits = |algorithm| algorithm != Allgather::Doubling || seat.size.is_power_of_two();
        match choose(&self.allgather, seat.size, count * element, fits) {
            Some(Allgather::Doubling) => gather::doubling(seat.me, seat.size, count),
            Some(Allgather::Bruck) => gather::bruck(seat.me, seat.size, count),
            Some(Allgather::Ring) | None => gather::ring(seat.me, &vec![count; seat.size]),
        }
    }

    pub(crate) fn alltoall(&self, seat: Seat<'_>, count: usize, element: usize) -> Schedule {
        let counts = || vec![count; seat.size];
        match choose(&self.alltoall, seat.size, count * element, |_| true) {
            Some(Alltoall::Bruck) => alltoall::bruck(seat.me, seat.size, count),
            Some(Alltoall::Pairwise) => alltoall::pairwise(seat.me, &counts(), &counts()),
            Some(Alltoall::Linear) | None => alltoall::linear(seat.me, &counts(), &counts()),
        }
    }

    /// Members give and get different counts, and know their own alone, so that the choice cannot depend on any.
    pub(crate) fn alltoallv(&self, seat: Seat<'_>, gives: &[usize], gets: &[usize]) -> Schedule {
        match choose(&self.alltoall, seat.size, ANY, |algorithm| algorithm != Alltoall::Bruck) {
            Some(Alltoall::Pairwise) => alltoall::pairwise(seat.me, gives, gets),
            _ => alltoall::linear(seat.me, gives, gets),
        }
    }

    pub(crate) fn barrier(seat: Seat<'_>, count: usize) -> Schedule {
        algorithms::dissemination(seat.me, seat.size, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_that_holds_and_fits_counts() {
        let table = [Row::new(4, 100, 'a'), Row::new(8, 50, 'b'), Row::any('c')];
        let choice = |size, bytes| choose(&table, size, bytes, |algorithm| algorithm != 'c');
        assert_eq!([choice(4, 100), choice(5, 50), choice(5, 51)], [Some('a'), Some('b'), None]);
        assert_eq!(choose(&table, 9, 0, |_| true), Some('c'));
    }

    #[test]
    fn operators_keep_their_order_at_every_size() {
        let tuning = Tuning::default();
        let hosts = [0, 1, 0, 1, 2];
        let seat = Seat { me: 3, size: 5, hosts: &hosts };
        assert!(seat.has_levels() && algorithms::has_levels(&hosts));
        assert!(!algorithms::has_levels(&[0, 1]) && !algorithms::has_levels(&[1, 1]));
        for count in [1, 100_000] {
            assert_eq!(tuning.allreduce(seat, count, 8, true), allreduce::recursive_doubling(3, 5, count));
            assert_eq!(tuning.reduce(seat, 1, count, 8, true), reduce::ordered_tree(3, 5, 1, count, 2));
        }
        assert_eq!(tuning.allreduce(seat, 1, 8, false), allreduce::two_level(3, 1, &hosts));
        assert_eq!(tuning.allreduce(seat, 100_000, 8, false), allreduce::ring(3, 5, 100_000));
    }

    #[test]
    fn tables_that_mean_nothing_are_refused() {
        let refused = |change: fn(&mut Tuning)| {
            let mut tuning = Tuning::default();
            change(&mut tuning);
            std::panic::catch_unwind(|| tuning.validate()).is_err()
        };
        assert!(refused(|tuning| tuning.window = 1));
        assert!(refused(|tuning| tuning.broadcast = vec![Row::any(Broadcast::Tree { radix: 1 })]));
        assert!(refused(|tuning| tuning.broadcast.push(Row::any(Broadcast::Chain { segment: 0 }))));
        assert!(refused(|tuning| tuning.reduce = vec![Row::any(Reduce::Tree { radix: 0 })]));
        assert!(!refused(|tuning| tuning.reduce = vec![Row::any(Reduce::Tree { radix: 2 })]));
    }

    #[test]
    fn fingerprints_tell_tunings_apart() {
        let (usual, mut other) = (Tuning::default(), Tuning::default());
        assert_eq!(usual.fingerprint(), other.fingerprint());
        other.scan = vec![Row::any(Scan::Chain)];
        assert_ne!(usual.fingerprint(), other.fingerprint());
    }
}

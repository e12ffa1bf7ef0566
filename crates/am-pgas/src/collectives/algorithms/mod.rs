//! The algorithms: pure functions from a member's position, the size of its team and the counts to its
//! [`Schedule`].
//!
//! | operation | algorithm | rounds | elements that a member sends | source |
//! |---|---|---|---|---|
//! | barrier | [`dissemination`] | ceil(log2 n) | none | Hensgen, Finkel and Manber (1988) |
//! | broadcast | [`broadcast::tree`] | log_k n | m at most (k - 1) log_k n times | binomial for k = 2 |
//! | | [`broadcast::scatter_allgather`] | log2 n + n - 1 | 2m | van de Geijn (1994) |
//! | | [`broadcast::chain`] | n - 2 + segments | m | pipelined |
//! | | [`broadcast::linear`] | 1 | m(n - 1) at the root | |
//! | reduce | [`reduce::tree`] | log_k n | m | |
//! | | [`reduce::scatter_gather`] | n | m | pairwise exchange, then gathered |
//! | | [`reduce::linear`] | 1 | m | |
//! | allreduce | [`allreduce::recursive_doubling`] | log2 n (+ 2) | m log2 n | Thakur, Rabenseifner and Gropp (2005) |
//! | | [`allreduce::rabenseifner`] | 2 log2 n (+ 2) | 2m | Rabenseifner (2004) |
//! | | [`allreduce::ring`] | 2(n - 1) | 2m | Patarasuk and Yuan (2009) |
//! | reduce, allreduce, broadcast | `two_level` | | | over hosts: among their first members, and within each |
//! | reduce-scatter | [`reduce::pairwise`] | n - 1 | m | |
//! | | [`reduce::then_scatter`] | log2 n + 1 | m | keeps the order of operands |
//! | scan, exscan | [`scan::doubling`] | log2 n | m log2 n | |
//! | | [`scan::chain`] | n - 1 | m | |
//! | scatter, gather | [`gather::scatter_tree`], [`gather::gather_tree`] | log2 n | | binomial |
//! | | [`gather::scatter_linear`], [`gather::gather_linear`] | 1 | | |
//! | allgather | [`gather::ring`] | n - 1 | m(n - 1) | |
//! | | [`gather::bruck`] | ceil(log2 n) | m(n - 1) | Bruck, Ho, Kipnis, Upfal and Weathersby (1997) |
//! | | [`gather::doubling`] | log2 n | m(n - 1) | powers of two |
//! | alltoall | [`alltoall::bruck`] | ceil(log2 n) | (m n / 2) log2 n | Bruck et al. (1997) |
//! | | [`alltoall::pairwise`] | n - 1 | m(n - 1) | |
//! | | [`alltoall::linear`] | 1 | m(n - 1) | |

pub mod allreduce;
pub mod alltoall;
pub mod broadcast;
pub mod gather;
pub mod reduce;
pub mod scan;

use super::schedule::{Builder, Part, Schedule, Side};

/// The parts of `counts` elements each, one behind the other from `start` on.
pub(crate) fn parts(start: usize, counts: &[usize]) -> Vec<Part> {
    let mut end = start;
    let part = |len: &usize| {
        end += len;
        Part::new(end - len, *len)
    };
    counts.iter().map(part).collect()
}

/// `count` elements in `blocks` parts of nearly the same length.
pub(crate) fn blocks(count: usize, blocks: usize) -> Vec<Part> {
    // The products of counts and positions fit: 128 bits are what a product of two 64-bit numbers takes.
    let bound = |index: usize| (count as u128 * index as u128 / blocks as u128) as usize;
    (0..blocks).map(|index| Part::new(bound(index), bound(index + 1) - bound(index))).collect()
}

/// What a member does in an operation without messages, on `data` elements of which the first `result` are its
/// result.
pub(crate) fn nothing(data: usize, result: usize) -> Schedule {
    Builder::new(data).result(Part::new(0, result)).finish()
}

/// The dissemination barrier, which also combines `count` elements by an operator for which `a op a` is `a`.
pub fn dissemination(me: usize, size: usize, count: usize) -> Schedule {
    let mut builder = Builder::new(count);
    let (all, other) = (Part::new(0, count), builder.scratch(count));
    let mut distance = 1;
    while distance < size {
        builder.send((me + distance) % size, distance, all);
        builder.receive((me + size - distance) % size, distance, Part::new(other, count));
        if count > 0 {
            builder.combine(Part::new(other, count), 0, Side::Right);
        }
        builder.end();
        distance *= 2;
    }
    builder.finish()
}

/// A member's place in the tree of radix `k` over `size` members whose root is 0.
pub(crate) struct Place {
    /// Its parent, none for the root.
    pub(crate) parent: Option<usize>,
    /// The levels below it, from its leaves up: the children at each.
    pub(crate) levels: Vec<Vec<usize>>,
}

/// The place of a member in the k-nomial tree: its parent has its lowest digit that is not zero replaced by zero.
pub(crate) fn place(me: usize, size: usize, radix: usize) -> Place {
    let (mut weight, mut levels) = (1, Vec::new());
    while weight < size {
        let digit = me / weight % radix;
        if digit != 0 {
            return Place { parent: Some(me - digit * weight), levels };
        }
        levels.push((1..radix).map(|digit| me + digit * weight).filter(|child| *child < size).collect());
        weight *= radix;
    }
    Place { parent: None, levels }
}

/// The members of a team by host, in the order of their first members. `hosts` has a number for each member, equal
/// for those of one host.
pub(crate) fn by_host(hosts: &[u32]) -> Vec<Vec<u32>> {
    let mut members: Vec<(u32, u32)> = hosts.iter().copied().zip(0..).collect();
    members.sort_unstable();
    let groups = members.chunk_by(|(one, _), (other, _)| one == other);
    let mut groups: Vec<Vec<u32>> =
        groups.map(|group| group.iter().map(|(_, member)| *member).collect()).collect();
    groups.sort_unstable_by_key(|group| group[0]);
    groups
}

/// Whether there are several hosts, and fewer than members.
pub(crate) fn has_levels(hosts: &[u32]) -> bool {
    let mut numbers = hosts.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    1 < numbers.len() && numbers.len() < hosts.len()
}

/// Where a member stands among the hosts of its team.
pub(crate) struct Hosts {
    /// The members of its own host.
    pub(crate) own: Vec<u32>,
    /// Its place among them.
    pub(crate) place: usize,
    /// The first member of each host.
    pub(crate) leaders: Vec<u32>,
    /// Its place among these, if it is one.
    pub(crate) leading: Option<usize>,
}

impl Hosts {
    /// With `root` as the leader of its host.
    pub(crate) fn new(me: usize, hosts: &[u32], root: usize) -> Self {
        let mut groups = by_host(hosts);
        for group in &mut groups {
            if let Some(at) = group.iter().position(|member| *member as usize == root) {
                group.swap(0, at);
            }
        }
        let leaders: Vec<u32> = groups.iter().map(|group| group[0]).collect();
        let place = |group: &Vec<u32>| group.iter().position(|member| *member as usize == me);
        let (own, place) = groups
            .iter()
            .find_map(|group| place(group).map(|place| (group.clone(), place)))
            .expect("every member has a host");
        let leading = leaders.iter().position(|leader| *leader as usize == me);
        Self { own, place, leaders, leading }
    }
}

//! Meshes and tori of any number of dimensions up to eight.

/// The most dimensions of a grid.
pub(crate) const MAX_DIMS: usize = 8;

/// The names of a grid's link classes, one per dimension.
pub(crate) const AXES: [&str; MAX_DIMS] = ["x", "y", "z", "w", "v", "u", "t", "s"];

/// A grid whose nodes are its switches. The links of a node are two per dimension, up and down.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    pub(crate) dims: Vec<u32>,
    strides: Vec<u32>,
    pub(crate) wraps: bool,
    /// Links go up only, round and round.
    pub(crate) one_way: bool,
    /// Where each node is: 16 bits for each dimension, so that no step of a packet divides.
    places: Vec<u128>,
}

/// The order in which dimensions are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    FirstToLast,
    LastToFirst,
}

impl Grid {
    /// Extents whose product fits a node's number, each at most 2^16.
    pub(crate) fn new(dims: &[u32], wraps: bool) -> Self {
        let strides: Vec<u32> = dims
            .iter()
            .scan(1, |stride, extent| {
                let this = *stride;
                *stride *= extent;
                Some(this)
            })
            .collect();
        let place = |node: u32| {
            let coordinates = strides.iter().zip(dims).map(|(stride, extent)| u128::from(node / stride % extent));
            coordinates.enumerate().map(|(dim, coordinate)| coordinate << (16 * dim)).sum()
        };
        let nodes: u32 = dims.iter().product();
        Self { places: (0..nodes).map(place).collect(), dims: dims.to_vec(), strides, wraps, one_way: false }
    }

    pub(crate) fn nodes(&self) -> u32 {
        self.places.len() as u32
    }

    /// Links of a node.
    pub(crate) fn ports(&self) -> u32 {
        2 * self.dims.len() as u32
    }

    fn coordinate(place: u128, dim: usize) -> u32 {
        (place >> (16 * dim)) as u32 & 0xffff
    }

    /// For each dimension whether a way of half its extent goes up: so that over all pairs both ways carry the
    /// same, and the packets of a pair stay on one.
    pub(crate) fn ties(&self, from: u32, to: u32) -> u32 {
        if !self.wraps {
            return 0;
        }
        let (here, there) = (self.places[from as usize], self.places[to as usize]);
        let sum = |place| (0..self.dims.len()).map(|dim| Self::coordinate(place, dim)).sum::<u32>();
        let all = sum(here).wrapping_add(sum(there));
        let up = |dim: usize| (all - Self::coordinate(there, dim)) & 1;
        (0..self.dims.len()).map(|dim| up(dim) << dim).sum()
    }

    /// The link out of a node towards another, and where it leads.
    #[inline]
    pub(crate) fn next(&self, at: u32, to: u32, ties: u32, order: Order) -> (u32, u32) {
        let (here, there) = (self.places[at as usize], self.places[to as usize]);
        let differ = here ^ there;
        let dim = match order {
            Order::FirstToLast => differ.trailing_zeros() as usize / 16,
            Order::LastToFirst => (127 - differ.leading_zeros() as usize) / 16,
        };
        let (x, goal) = (Self::coordinate(here, dim), Self::coordinate(there, dim));
        let (extent, stride) = (self.dims[dim], self.strides[dim]);
        let ahead = if goal > x { goal - x } else { goal + extent - x };
        let up = match (2 * ahead).cmp(&extent) {
            _ if self.one_way => true,
            _ if !self.wraps => goal > x,
            std::cmp::Ordering::Equal => ties >> dim & 1 != 0,
            other => other.is_lt(),
        };
        let around = (extent - 1) * stride;
        let next = match (up, x) {
            (true, x) if x + 1 == extent => at - around,
            (true, _) => at + stride,
            (false, 0) => at + around,
            (false, _) => at - stride,
        };
        (at * self.ports() + 2 * dim as u32 + u32::from(!up), next)
    }

    /// Where a link leads; none for those at a mesh's border.
    pub(crate) fn head(&self, link: u32) -> Option<u32> {
        let (at, port) = (link / self.ports(), link % self.ports());
        let (dim, down) = (port as usize / 2, port % 2 == 1);
        let x = Self::coordinate(self.places[at as usize], dim);
        let (extent, stride) = (self.dims[dim], self.strides[dim]);
        let last = if down { x == 0 } else { x + 1 == extent };
        match (last, down) {
            _ if extent == 1 || self.one_way && down => None,
            (true, _) if !self.wraps => None,
            (true, true) => Some(at + (extent - 1) * stride),
            (true, false) => Some(at - (extent - 1) * stride),
            (false, true) => Some(at - stride),
            (false, false) => Some(at + stride),
        }
    }

    /// Virtual channels that keep the links of a dimension's circle from waiting for each other: one more where a
    /// way can go over the circle's end and further.
    pub(crate) fn circles(&self) -> u32 {
        let least = if self.one_way { 3 } else { 4 };
        1 + u32::from(self.wraps && self.dims.iter().any(|extent| *extent >= least))
    }

    /// Whether a link closes the circle of its dimension.
    pub(crate) fn closes(&self, link: u32) -> bool {
        let (at, port) = (link / self.ports(), link % self.ports());
        let x = Self::coordinate(self.places[at as usize], port as usize / 2);
        if port % 2 == 1 { x == 0 } else { x + 1 == self.dims[port as usize / 2] }
    }

    /// Number of links on the shortest way.
    pub(crate) fn hops(&self, from: u32, to: u32) -> u32 {
        let (here, there) = (self.places[from as usize], self.places[to as usize]);
        if self.one_way {
            let ahead = |dim: usize| {
                let (x, goal, extent) =
                    (Self::coordinate(here, dim), Self::coordinate(there, dim), self.dims[dim]);
                if goal >= x { goal - x } else { goal + extent - x }
            };
            return (0..self.dims.len()).map(ahead).sum();
        }
        let apart = |dim: usize| Self::coordinate(here, dim).abs_diff(Self::coordinate(there, dim));
        let around = |dim: usize| if self.wraps { self.dims[dim] - apart(dim) } else { u32::MAX };
        (0..self.dims.len()).map(|dim| apart(dim).min(around(dim))).sum()
    }

    pub(crate) fn diameter(&self) -> u32 {
        let farthest = |extent: &u32| if self.wraps && !self.one_way { extent / 2 } else { extent - 1 };
        self.dims.iter().map(farthest).sum()
    }

    /// Cables between halves: cutting the longest dimension in the middle is best where its extent is even.
    pub(crate) fn bisection(&self) -> Option<u64> {
        let longest = *self.dims.iter().max()?;
        // Where links go one way, half of the circle's two places are crossed in each direction.
        let across = if self.wraps && !self.one_way { 2 } else { 1 };
        (longest % 2 == 0).then(|| across * u64::from(self.nodes() / longest))
    }

    pub(crate) fn name(&self, link: u32) -> String {
        let port = link % self.ports();
        format!("{} {}{}", link / self.ports(), ["+", "-"][port as usize % 2], AXES[port as usize / 2])
    }
}

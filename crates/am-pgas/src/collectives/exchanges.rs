//! The collective operations of a [`Team`] that move parts: scatter, gather, allgather and alltoall.

use super::algorithms::gather::{Counts, gather_linear, ring, scatter_linear};
use super::handle::Collective;
use super::operations::{Plan, call, length, place, plain};
use super::schedule::Schedule;
use super::tuning::Tuning;
use super::{CollectiveError, Collectives, Operation};
use crate::pointer::Element;
use crate::team::Team;
use am_core::zerocopy::IntoBytes;
use am_core::{Endpoint, HasLayer, Transport};

/// A vector of `len` elements that hold anything, with some in a place.
fn laid_out<E: Element>(len: usize, at: usize, elements: &[E]) -> Vec<E> {
    let mut vector = vec![E::new_zeroed(); len];
    vector[at..at + elements.len()].copy_from_slice(elements);
    vector
}

impl Team {
    /// Where this member's part begins.
    fn offset(&self, counts: &[usize]) -> usize {
        counts[..self.me() as usize].iter().sum()
    }

    fn scatter_plan<E: Element>(
        &self,
        root: u32,
        count: usize,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let at = self.root(root)?;
        let make = move |tuning: &Tuning| tuning.scatter(self.seat(), at, count, size_of::<E>());
        Ok(plain(call::<E>(Operation::Scatter, count, Some(root)), make))
    }

    /// Gives each member a part of the root's elements, of the length of `part`. `elements` is of use at the root
    /// alone. Blocks.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scatter<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        elements: &[E],
        part: &mut [E],
    ) -> Result<(), CollectiveError> {
        let (plan, is_root) = (self.scatter_plan::<E>(root, part.len())?, root == self.me());
        if is_root {
            length("the slice of all parts", elements.len(), part.len() * self.size() as usize)?;
        }
        let fill = |data: &mut [u8]| {
            if is_root {
                place(data, 0, elements);
            }
        };
        self.run(endpoint, plan, fill, |result| part.as_mut_bytes().copy_from_slice(result))
    }

    /// [`scatter`](Self::scatter) with a handle: of `count` elements for each member, which the root gives.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scatter_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        elements: Vec<E>,
        count: usize,
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let plan = self.scatter_plan::<E>(root, count)?;
        if root != self.me() {
            return self.launch(endpoint, plan, laid_out::<E>(count, 0, &[]));
        }
        length("the vector of all parts", elements.len(), count * self.size() as usize)?;
        self.launch(endpoint, plan, elements)
    }

    fn unequal<E: Element>(
        &self,
        operation: Operation,
        root: Option<u32>,
        make: impl FnOnce(&Tuning) -> Schedule,
    ) -> Plan<impl FnOnce(&Tuning) -> Schedule> {
        Plan { keeps: false, ..plain(call::<E>(operation, 0, root), make) }
    }

    fn scatterv_plan<E: Element>(
        &self,
        root: u32,
        counts: &[usize],
        count: usize,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let (at, me, counts) = (self.root(root)?, self.me() as usize, counts.to_vec());
        let make = move |_: &Tuning| {
            let counts = if me == at { Counts::All(&counts) } else { Counts::Own(count) };
            scatter_linear(me, at, counts)
        };
        Ok(self.unequal::<E>(Operation::Scatterv, Some(root), make))
    }

    /// [`scatter`](Self::scatter) with parts of different lengths, `counts` by position; `elements` and `counts`
    /// are of use at the root alone. Blocks; allocates.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scatterv<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        elements: &[E],
        counts: &[usize],
        part: &mut [E],
    ) -> Result<(), CollectiveError> {
        let is_root = root == self.me();
        if is_root {
            self.check_counts(counts)?;
            length("the slice of all parts", elements.len(), counts.iter().sum())?;
            length("the slice for this member's part", part.len(), counts[root as usize])?;
        }
        let plan = self.scatterv_plan::<E>(root, counts, part.len())?;
        let fill = |data: &mut [u8]| {
            if is_root {
                place(data, 0, elements);
            }
        };
        self.run(endpoint, plan, fill, |result| part.as_mut_bytes().copy_from_slice(result))
    }

    /// [`scatterv`](Self::scatterv) with a handle: this member's part has `count` elements.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scatterv_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        elements: Vec<E>,
        counts: &[usize],
        count: usize,
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        if root != self.me() {
            let plan = self.scatterv_plan::<E>(root, &[], count)?;
            return self.launch(endpoint, plan, laid_out::<E>(count, 0, &[]));
        }
        self.check_counts(counts)?;
        length("the vector of all parts", elements.len(), counts.iter().sum())?;
        length("this member's part", count, counts[root as usize])?;
        let plan = self.scatterv_plan::<E>(root, counts, count)?;
        self.launch(endpoint, plan, elements)
    }

    fn gather_plan<E: Element>(
        &self,
        root: u32,
        count: usize,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let at = self.root(root)?;
        let make = move |tuning: &Tuning| tuning.gather(self.seat(), at, count, size_of::<E>());
        Ok(plain(call::<E>(Operation::Gather, count, Some(root)), make))
    }

    /// Gives the root the parts of all members, which have the same length. `all` is of use at the root alone.
    /// Blocks.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn gather<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        part: &[E],
        all: &mut [E],
    ) -> Result<(), CollectiveError> {
        let (plan, is_root) = (self.gather_plan::<E>(root, part.len())?, root == self.me());
        if is_root {
            length("the slice for all parts", all.len(), part.len() * self.size() as usize)?;
        }
        let at = if is_root { root as usize * part.len() } else { 0 };
        self.run(
            endpoint,
            plan,
            |data| place(data, at, part),
            |result| {
                if is_root {
                    all.as_mut_bytes().copy_from_slice(result);
                }
            },
        )
    }

    /// [`gather`](Self::gather) with a handle, which yields all parts at the root, and nothing elsewhere.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn gather_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        part: Vec<E>,
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let (plan, count) = (self.gather_plan::<E>(root, part.len())?, part.len());
        if root != self.me() {
            return self.launch(endpoint, plan, part);
        }
        self.launch(endpoint, plan, laid_out(count * self.size() as usize, root as usize * count, &part))
    }

    fn gatherv_plan<E: Element>(
        &self,
        root: u32,
        counts: &[usize],
        count: usize,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let (at, me, counts) = (self.root(root)?, self.me() as usize, counts.to_vec());
        let make = move |_: &Tuning| {
            let counts = if me == at { Counts::All(&counts) } else { Counts::Own(count) };
            gather_linear(me, at, counts)
        };
        Ok(self.unequal::<E>(Operation::Gatherv, Some(root), make))
    }

    /// [`gather`](Self::gather) with parts of different lengths, `counts` by position; `counts` and `all` are of
    /// use at the root alone. Blocks; allocates.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn gatherv<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        part: &[E],
        counts: &[usize],
        all: &mut [E],
    ) -> Result<(), CollectiveError> {
        let (is_root, mut at) = (root == self.me(), 0);
        if is_root {
            self.check_counts(counts)?;
            length("the slice for all parts", all.len(), counts.iter().sum())?;
            length("the slice of this member's part", part.len(), counts[root as usize])?;
            at = self.offset(counts);
        }
        let plan = self.gatherv_plan::<E>(root, counts, part.len())?;
        self.run(
            endpoint,
            plan,
            |data| place(data, at, part),
            |result| {
                if is_root {
                    all.as_mut_bytes().copy_from_slice(result);
                }
            },
        )
    }

    /// [`gatherv`](Self::gatherv) with a handle, which yields all parts at the root, and nothing elsewhere.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn gatherv_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        part: Vec<E>,
        counts: &[usize],
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        if root != self.me() {
            let plan = self.gatherv_plan::<E>(root, &[], part.len())?;
            return self.launch(endpoint, plan, part);
        }
        self.check_counts(counts)?;
        length("this member's part", part.len(), counts[root as usize])?;
        let plan = self.gatherv_plan::<E>(root, counts, part.len())?;
        self.launch(endpoint, plan, laid_out(counts.iter().sum(), self.offset(counts), &part))
    }

    fn allgather_plan<E: Element>(&self, count: usize) -> Plan<impl FnOnce(&Tuning) -> Schedule> {
        let make = move |tuning: &Tuning| tuning.allgather(self.seat(), count, size_of::<E>());
        plain(call::<E>(Operation::Allgather, count, None), make)
    }

    /// Gives all members the parts of all, which have the same length. Blocks.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn allgather<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        part: &[E],
        all: &mut [E],
    ) -> Result<(), CollectiveError> {
        length("the slice for all parts", all.len(), part.len() * self.size() as usize)?;
        let (plan, at) = (self.allgather_plan::<E>(part.len()), self.me() as usize * part.len());
        let look = |result: &[u8]| all.as_mut_bytes().copy_from_slice(result);
        self.run(endpoint, plan, |data| place(data, at, part), look)
    }

    /// [`allgather`](Self::allgather) with a handle.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn allgather_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        part: &[E],
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let (plan, count) = (self.allgather_plan::<E>(part.len()), part.len());
        self.launch(endpoint, plan, laid_out(count * self.size() as usize, self.me() as usize * count, part))
    }

    fn allgatherv_plan<E: Element>(
        &self,
        counts: &[usize],
        count: usize,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        self.check_counts(counts)?;
        let (me, counts) = (self.me() as usize, counts.to_vec());
        length("this member's part", count, counts[me])?;
        Ok(self.unequal::<E>(Operation::Allgatherv, None, move |_: &Tuning| ring(me, &counts)))
    }

    /// [`allgather`](Self::allgather) with parts of different lengths, `counts` by position, known to all. Blocks;
    /// allocates.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn allgatherv<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        part: &[E],
        counts: &[usize],
        all: &mut [E],
    ) -> Result<(), CollectiveError> {
        let plan = self.allgatherv_plan::<E>(counts, part.len())?;
        length("the slice for all parts", all.len(), counts.iter().sum())?;
        let at = self.offset(counts);
        let look = |result: &[u8]| all.as_mut_bytes().copy_from_slice(result);
        self.run(endpoint, plan, |data| place(data, at, part), look)
    }

    /// [`allgatherv`](Self::allgatherv) with a handle.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn allgatherv_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        part: &[E],
        counts: &[usize],
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let plan = self.allgatherv_plan::<E>(counts, part.len())?;
        self.launch(endpoint, plan, laid_out(counts.iter().sum(), self.offset(counts), part))
    }

    fn alltoall_plan<E: Element>(
        &self,
        all: usize,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let (size, count) = (self.size() as usize, all / self.size() as usize);
        length("the elements for all members", all, count * size)?;
        let make = move |tuning: &Tuning| tuning.alltoall(self.seat(), count, size_of::<E>());
        Ok(plain(call::<E>(Operation::Alltoall, count, None), make))
    }

    /// Gives each member a part of the elements of each, all of the same length: `elements` has one for each
    /// member, and `all` gets one of each. Blocks.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn alltoall<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: &[E],
        all: &mut [E],
    ) -> Result<(), CollectiveError> {
        let plan = self.alltoall_plan::<E>(elements.len())?;
        length("the slice for all parts", all.len(), elements.len())?;
        let look = |result: &[u8]| all.as_mut_bytes().copy_from_slice(result);
        self.run(endpoint, plan, |data| place(data, 0, elements), look)
    }

    /// [`alltoall`](Self::alltoall) with a handle.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn alltoall_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        mut elements: Vec<E>,
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let plan = self.alltoall_plan::<E>(elements.len())?;
        elements.resize(2 * elements.len(), E::new_zeroed());
        self.launch(endpoint, plan, elements)
    }

    fn alltoallv_plan<E: Element>(
        &self,
        gives: &[usize],
        gets: &[usize],
        given: usize,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        self.check_counts(gives)?;
        self.check_counts(gets)?;
        length("the elements for all members", given, gives.iter().sum())?;
        let me = self.me() as usize;
        length("the part for this member itself", gets[me], gives[me])?;
        let (gives, gets) = (gives.to_vec(), gets.to_vec());
        let make = move |tuning: &Tuning| tuning.alltoallv(self.seat(), &gives, &gets);
        Ok(self.unequal::<E>(Operation::Alltoallv, None, make))
    }

    /// [`alltoall`](Self::alltoall) with parts of different lengths: `gives` for each member, and `gets` of each.
    /// Blocks; allocates.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn alltoallv<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: &[E],
        gives: &[usize],
        gets: &[usize],
        all: &mut [E],
    ) -> Result<(), CollectiveError> {
        let plan = self.alltoallv_plan::<E>(gives, gets, elements.len())?;
        length("the slice for all parts", all.len(), gets.iter().sum())?;
        let look = |result: &[u8]| all.as_mut_bytes().copy_from_slice(result);
        self.run(endpoint, plan, |data| place(data, 0, elements), look)
    }

    /// [`alltoallv`](Self::alltoallv) with a handle.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn alltoallv_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        mut elements: Vec<E>,
        gives: &[usize],
        gets: &[usize],
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let plan = self.alltoallv_plan::<E>(gives, gets, elements.len())?;
        elements.resize(elements.len() + gets.iter().sum::<usize>(), E::new_zeroed());
        self.launch(endpoint, plan, elements)
    }
}

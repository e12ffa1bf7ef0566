//! The collective operations of a [`Team`] that move parts: scatter, gather, allgather and alltoall.

use super::algorithms::gather::{Counts, gather_linear, ring, scatter_linear};
use super::engine::Buffers;
use super::handle::{Collective, wait, wait_with};
use super::operations::{Plan, call, length, place, plain, times, total};
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
        given: Option<usize>,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let at = self.root(root)?;
        let all = times::<E>("the elements of all parts", count, self.size())?;
        length("the elements of all parts", given.unwrap_or(all), all)?;
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
        let is_root = root == self.me();
        let plan = self.scatter_plan::<E>(root, part.len(), is_root.then_some(elements.len()));
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
        let is_root = root == self.me();
        let plan = self.scatter_plan::<E>(root, count, is_root.then_some(elements.len()));
        let vector = if is_root || plan.is_err() { elements } else { laid_out::<E>(count, 0, &[]) };
        self.launch(endpoint, plan, vector)
    }

    fn unequal<E: Element>(
        &self,
        operation: Operation,
        (count, root): (usize, Option<u32>),
        make: impl FnOnce(&Tuning) -> Schedule,
    ) -> Plan<impl FnOnce(&Tuning) -> Schedule> {
        Plan { keeps: false, ..plain(call::<E>(operation, count, root), make) }
    }

    fn scatterv_plan<E: Element>(
        &self,
        root: u32,
        counts: &[usize],
        count: usize,
        given: usize,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let (at, me) = (self.root(root)?, self.me() as usize);
        let counts = if me == at { counts.to_vec() } else { Vec::new() };
        if me == at {
            self.check_counts(&counts)?;
            length("the elements of all parts", given, total::<E>("the list of counts", &counts)?)?;
            length("this member's part", count, counts[me])?;
        }
        total::<E>("this member's part", &[count])?;
        let make = move |_: &Tuning| {
            let counts = if me == at { Counts::All(&counts) } else { Counts::Own(count) };
            scatter_linear(me, at, counts)
        };
        Ok(self.unequal::<E>(Operation::Scatterv, (0, Some(root)), make))
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
        let plan = self.scatterv_plan::<E>(root, counts, part.len(), elements.len());
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
        let plan = self.scatterv_plan::<E>(root, counts, count, elements.len());
        let own = root == self.me() || plan.is_err();
        let vector = if own { elements } else { laid_out::<E>(count, 0, &[]) };
        self.launch(endpoint, plan, vector)
    }

    fn gather_plan<E: Element>(
        &self,
        root: u32,
        count: usize,
        room: Option<usize>,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let at = self.root(root)?;
        let all = times::<E>("the elements of all parts", count, self.size())?;
        length("the slice for all parts", room.unwrap_or(all), all)?;
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
        let is_root = root == self.me();
        let plan = self.gather_plan::<E>(root, part.len(), is_root.then_some(all.len()));
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
        let (plan, count) = (self.gather_plan::<E>(root, part.len(), None), part.len());
        if root != self.me() || plan.is_err() {
            return self.launch(endpoint, plan, part);
        }
        self.launch(endpoint, plan, laid_out(count * self.size() as usize, root as usize * count, &part))
    }

    fn gatherv_plan<E: Element>(
        &self,
        root: u32,
        counts: &[usize],
        count: usize,
        room: Option<usize>,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let (at, me) = (self.root(root)?, self.me() as usize);
        let counts = if me == at { counts.to_vec() } else { Vec::new() };
        if me == at {
            self.check_counts(&counts)?;
            let all = total::<E>("the list of counts", &counts)?;
            length("the slice for all parts", room.unwrap_or(all), all)?;
            length("this member's part", count, counts[me])?;
        }
        let make = move |_: &Tuning| {
            let counts = if me == at { Counts::All(&counts) } else { Counts::Own(count) };
            gather_linear(me, at, counts)
        };
        Ok(self.unequal::<E>(Operation::Gatherv, (0, Some(root)), make))
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
        let is_root = root == self.me();
        let plan = self.gatherv_plan::<E>(root, counts, part.len(), is_root.then_some(all.len()));
        self.run(
            endpoint,
            plan,
            |data| place(data, if is_root { self.offset(counts) } else { 0 }, part),
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
        let plan = self.gatherv_plan::<E>(root, counts, part.len(), None);
        if root != self.me() || plan.is_err() {
            return self.launch(endpoint, plan, part);
        }
        self.launch(endpoint, plan, laid_out(counts.iter().sum(), self.offset(counts), &part))
    }

    fn allgather_plan<E: Element>(
        &self,
        count: usize,
        room: Option<usize>,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let all = times::<E>("the elements of all parts", count, self.size())?;
        length("the slice for all parts", room.unwrap_or(all), all)?;
        let make = move |tuning: &Tuning| tuning.allgather(self.seat(), count, size_of::<E>());
        Ok(plain(call::<E>(Operation::Allgather, count, None), make))
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
        let plan = self.allgather_plan::<E>(part.len(), Some(all.len()));
        let at = self.me() as usize * part.len();
        let loan = self.lend(endpoint, part.as_bytes());
        let id = self.begin_lending(endpoint, plan, loan.as_ref(), |data| place(data, at, part))?;
        if endpoint.layer_unscheduled::<Collectives>().engine().is_lent(id) {
            let buffers = Buffers::Apart { own: part.as_bytes(), all: all.as_mut_bytes() };
            wait_with(endpoint, id, buffers, loan)?;
            return endpoint.layer_unscheduled::<Collectives>().engine_mut().fetch(id, |_| ());
        }
        wait(endpoint, &self.members, id)?;
        let look = |result: &[u8]| all.as_mut_bytes().copy_from_slice(result);
        endpoint.layer_unscheduled::<Collectives>().engine_mut().fetch(id, look)
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
        let (plan, count) = (self.allgather_plan::<E>(part.len(), None), part.len());
        if plan.is_err() {
            return self.launch(endpoint, plan, Vec::new());
        }
        self.launch(endpoint, plan, laid_out(count * self.size() as usize, self.me() as usize * count, part))
    }

    /// The words of all members, who make teams.
    pub(crate) fn allgather_words<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        operation: Operation,
        words: [u32; 5],
    ) -> Result<Vec<[u32; 5]>, CollectiveError> {
        let mut all = vec![[0; 5]; self.size() as usize];
        let plan = self.allgather_plan::<[u32; 5]>(1, None);
        let plan = plan.map(|plan| Plan { call: call::<[u32; 5]>(operation, 1, None), ..plan });
        let look = |result: &[u8]| all.as_mut_bytes().copy_from_slice(result);
        self.run(endpoint, plan, |data| place(data, self.me() as usize, &[words]), look)?;
        Ok(all)
    }

    /// Begins [`allgather_words`](Self::allgather_words).
    #[cfg(test)]
    pub(super) fn begin_words<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        operation: Operation,
        words: [u32; 5],
    ) -> Result<Collective<Vec<[u32; 5]>>, CollectiveError> {
        let plan = self.allgather_plan::<[u32; 5]>(1, None);
        let plan = plan.map(|plan| Plan { call: call::<[u32; 5]>(operation, 1, None), ..plan });
        self.launch(endpoint, plan, laid_out(self.size() as usize, self.me() as usize, &[words]))
    }

    fn allgatherv_plan<E: Element>(
        &self,
        counts: &[usize],
        count: usize,
        room: Option<usize>,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        self.check_counts(counts)?;
        let all = total::<E>("the list of counts", counts)?;
        length("the slice for all parts", room.unwrap_or(all), all)?;
        let (me, counts) = (self.me() as usize, counts.to_vec());
        length("this member's part", count, counts[me])?;
        Ok(self.unequal::<E>(Operation::Allgatherv, (all, None), move |_: &Tuning| ring(me, &counts)))
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
        let plan = self.allgatherv_plan::<E>(counts, part.len(), Some(all.len()));
        let look = |result: &[u8]| all.as_mut_bytes().copy_from_slice(result);
        self.run(endpoint, plan, |data| place(data, self.offset(counts), part), look)
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
        let plan = self.allgatherv_plan::<E>(counts, part.len(), None);
        if plan.is_err() {
            return self.launch(endpoint, plan, Vec::new());
        }
        self.launch(endpoint, plan, laid_out(counts.iter().sum(), self.offset(counts), part))
    }

    fn alltoall_plan<E: Element>(
        &self,
        all: usize,
        room: usize,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let (size, count) = (self.size() as usize, all / self.size() as usize);
        length("the elements for all members", all, count * size)?;
        length("the slice for all parts", room, all)?;
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
        let plan = self.alltoall_plan::<E>(elements.len(), all.len());
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
        let plan = self.alltoall_plan::<E>(elements.len(), elements.len());
        elements.resize(2 * elements.len(), E::new_zeroed());
        self.launch(endpoint, plan, elements)
    }

    fn alltoallv_plan<E: Element>(
        &self,
        gives: &[usize],
        gets: &[usize],
        given: usize,
        room: Option<usize>,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        self.check_counts(gives)?;
        self.check_counts(gets)?;
        length("the elements for all members", given, total::<E>("the list of counts given", gives)?)?;
        let all = total::<E>("the list of counts got", gets)?;
        length("the slice for all parts", room.unwrap_or(all), all)?;
        total::<E>("the elements given and got", &[given, all])?;
        let me = self.me() as usize;
        length("the part for this member itself", gets[me], gives[me])?;
        let (gives, gets) = (gives.to_vec(), gets.to_vec());
        let make = move |tuning: &Tuning| tuning.alltoallv(self.seat(), &gives, &gets);
        Ok(self.unequal::<E>(Operation::Alltoallv, (0, None), make))
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
        let plan = self.alltoallv_plan::<E>(gives, gets, elements.len(), Some(all.len()));
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
        let plan = self.alltoallv_plan::<E>(gives, gets, elements.len(), None);
        if plan.is_ok() {
            elements.resize(elements.len() + gets.iter().sum::<usize>(), E::new_zeroed());
        }
        self.launch(endpoint, plan, elements)
    }
}

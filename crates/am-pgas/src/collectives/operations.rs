//! The collective operations of a [`Team`]: what they check, how their data are laid out, and the forms that they
//! come in.

use super::engine::Looks;
use super::engine::Quick;
use super::engine::directly;
use super::engine::{Buffers, Engine, Vector};
use super::handle::{Collective, Notified, agree, wait, wait_with};
use super::operator::{Fold, Operator, fold};
use super::schedule::Schedule;
use super::tuning::{Seat, Tuning};
use super::{Call, CollectiveError, Collectives, Name, Operation, with_engine, with_post};
use crate::pointer::Element;
use crate::team::Team;
use am_core::transport::Loan;
use am_core::zerocopy::IntoBytes;
use am_core::{Endpoint, HasLayer, Transport};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An operation that is about to begin.
pub(super) struct Plan<M> {
    pub(super) call: Call,
    /// Whether the call says all that the schedule depends on.
    pub(super) keeps: bool,
    pub(super) make: M,
    pub(super) fold: Option<Fold>,
}

pub(crate) fn call<E: Element>(operation: Operation, count: usize, root: Option<u32>) -> Call {
    const { assert!(size_of::<E>() > 0, "elements have a size") };
    let (element, of, count) = (size_of::<E>() as u32, Name::of_type::<E>(), count as u64);
    Call { operation, element, of, count, root, operator: None, ordered: false }
}

/// [`call`] of an operation that combines elements.
fn combining<E: Element>(
    operation: Operation,
    count: usize,
    root: Option<u32>,
    operator: &impl Operator<E>,
) -> Call {
    let named = Some(Name::of(operator.name()));
    Call { operator: named, ordered: !operator.commutes(), ..call::<E>(operation, count, root) }
}

pub(super) fn plain<M: FnOnce(&Tuning) -> Schedule>(call: Call, make: M) -> Plan<M> {
    Plan { call, keeps: true, make, fold: None }
}

/// The vector that an operation was given, cut down to the result.
fn fetch_vector<E: Element>(engine: &mut Engine, id: u64) -> Result<Vec<E>, CollectiveError> {
    let (vector, result) = engine.fetch_vector(id)?;
    let mut vector =
        *vector.into_any().downcast::<Vec<E>>().expect("the operation was given a vector of this type");
    vector.truncate(result.end);
    vector.drain(..result.start);
    Ok(vector)
}

/// The sum of counts of elements.
///
/// # Errors
/// [`CollectiveError::Length`] if no slice has so many elements.
pub(super) fn total<E: Element>(what: &'static str, counts: &[usize]) -> Result<usize, CollectiveError> {
    let (most, mut sum) = (isize::MAX as usize / size_of::<E>(), 0usize);
    for count in counts {
        sum = sum.saturating_add(*count);
    }
    if sum <= most { Ok(sum) } else { Err(CollectiveError::Length { what, given: sum, needed: most }) }
}

/// [`total`] of equal counts.
pub(super) fn times<E: Element>(what: &'static str, count: usize, by: u32) -> Result<usize, CollectiveError> {
    total::<E>(what, &[count.saturating_mul(by as usize)])
}

pub(super) fn length(what: &'static str, given: usize, needed: usize) -> Result<(), CollectiveError> {
    if given == needed { Ok(()) } else { Err(CollectiveError::Length { what, given, needed }) }
}

/// Looks at the lines of others before an operation is waited for as any other.
const LOOKS: Looks = Looks { spins: 200, yields: 0 };

/// The same where others may need this processor to come: members that share one come by turns, and a wait takes
/// several times as long as a turn.
const CROWDED: Looks = Looks { spins: 1, yields: YIELDS };

/// Turns that members on the same processor get.
pub(super) const YIELDS: u32 = 6;

/// Copies elements to a place among others.
pub(super) fn place<E: Element>(data: &mut [u8], at: usize, elements: &[E]) {
    let at = at * size_of::<E>();
    data[at..at + size_of_val(elements)].copy_from_slice(elements.as_bytes());
}

impl Team {
    pub(super) fn seat(&self) -> Seat<'_> {
        let members = &self.members;
        Seat { me: members.me as usize, size: members.ranks.len(), hosts: members.levels() }
    }

    pub(super) fn root(&self, root: u32) -> Result<usize, CollectiveError> {
        if root < self.size() {
            return Ok(root as usize);
        }
        Err(CollectiveError::NoSuchMember { member: root, size: self.size() })
    }

    /// Whether the team can be used with an endpoint.
    pub(crate) fn usable<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), CollectiveError> {
        if endpoint.layer_unscheduled::<Collectives>().engine().id != self.members.engine {
            return Err(CollectiveError::NotInTeam);
        }
        // Relaxed: the flag is set by the thread that uses the endpoint.
        if self.members.destroyed.load(Ordering::Relaxed) {
            return Err(CollectiveError::Destroyed);
        }
        Ok(())
    }

    /// Refuses a call whose arguments are wrong: the members stay in step, and those that go through with theirs
    /// learn of it.
    pub(crate) fn refuse<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        error: CollectiveError,
    ) -> CollectiveError {
        match self.usable(endpoint) {
            Ok(()) => with_engine(endpoint, |engine| engine.refuse(self.members.context)),
            Err(unusable) => return unusable,
        }
        error
    }

    /// Begins an operation and sends what may go, or refuses it.
    pub(super) fn begin<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        plan: Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError>,
        given: Option<Box<dyn Vector>>,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<u64, CollectiveError> {
        self.begin_with(endpoint, plan, (given, None), fill)
    }

    /// [`begin`](Self::begin) of an operation whose caller has the elements, and may lend what it gives.
    pub(super) fn begin_lending<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        plan: Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError>,
        loan: Option<&Loan>,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<u64, CollectiveError> {
        self.begin_with(endpoint, plan, (None, loan), fill)
    }

    fn begin_with<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        plan: Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError>,
        (given, loan): (Option<Box<dyn Vector>>, Option<&Loan>),
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<u64, CollectiveError> {
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => return Err(self.refuse(endpoint, error)),
        };
        self.usable(endpoint)?;
        super::handle::look_for_losses(endpoint);
        with_engine(endpoint, |engine| {
            let Plan { call, keeps, make, fold } = plan;
            let way = engine.way(self.members.context, call).filter(|_| keeps);
            let schedule = if keeps {
                engine.schedule(self.members.context, call, |tuning| match way {
                    Some(_) => directly(call, self.seat()),
                    None => make(tuning),
                })
            } else {
                Arc::new(make(&engine.tuning))
            };
            let id = engine.begin(&self.members, call, (schedule, way), fold, given, fill)?;
            if let Some(loan) = loan {
                engine.lend_to(id, loan.lent());
            }
            Ok(id)
        })
    }

    /// Lends what this member gives to the others of a team that share memory, if they can read it.
    pub(super) fn lend<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        bytes: &[u8],
    ) -> Option<Loan> {
        let number = self.members.context;
        let engine = endpoint.layer_unscheduled::<Collectives>().engine();
        if engine.id != self.members.engine || !engine.may_lend(number, bytes.len()) {
            return None;
        }
        // Whether the others can read this process is likely what this one can do with theirs.
        let other = self.members.address(u32::from(self.members.me == 0));
        let readable = endpoint.reads_lent(other);
        let engine = endpoint.layer_unscheduled::<Collectives>().engine_mut();
        if !readable {
            engine.lend_no_more(number);
            return None;
        }
        // Members that share processors wait longer for each other's blocks than any copy takes.
        if endpoint.transport().spins() && !Self::copies_cheaply(endpoint) {
            return None;
        }
        endpoint.layer_unscheduled::<Collectives>().engine_mut().lend(bytes)
    }

    /// Whether a copy by the system takes no longer than [`Tuning::lent_cost`] says, measured at the first call,
    /// or at the next ones if that fails.
    fn copies_cheaply<T: Transport, S: HasLayer<Collectives>>(endpoint: &mut Endpoint<T, S>) -> bool {
        let engine = endpoint.layer_unscheduled::<Collectives>().engine();
        let (most, known) = (engine.tuning.lent_cost, engine.lent_cost);
        match most {
            0 => return false,
            u32::MAX => return true,
            _ => {}
        }
        let mut cost = known;
        if known.is_open() {
            cost = known.after(endpoint.lent_cost());
            endpoint.layer_unscheduled::<Collectives>().engine_mut().lent_cost = cost;
        }
        // Where it could not be measured, members that cannot read ask for blocks.
        cost.percent().is_none_or(|percent| percent <= most)
    }

    /// Does a small operation through shared memory whose result takes the place of what this member gives.
    /// Whether it was one.
    #[inline]
    fn quickly<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (call, fold): (Call, &mut Option<Fold>),
        bytes: &mut [u8],
    ) -> Result<bool, CollectiveError> {
        if bytes.len() > 32 {
            return Ok(false);
        }
        self.usable(endpoint)?;
        super::handle::look_for_losses(endpoint);
        let looks = if endpoint.transport().spins() { LOOKS } else { CROWDED };
        let number = self.members.context;
        let outcome = with_post(endpoint, |engine, post| {
            engine.quickly(self.seat(), number, (call, fold), bytes, looks, post)
        });
        let id = match outcome {
            Quick::No => return Ok(false),
            Quick::Over => {
                if endpoint.layer_unscheduled::<Collectives>().engine_mut().is_time_to_serve() {
                    // A program of such operations alone serves its peers, too.
                    endpoint.serve_through();
                }
                if endpoint.layer_unscheduled::<Collectives>().engine().has_work() {
                    // The next poll carries it on.
                    let _ = endpoint.layer_mut::<Collectives>();
                }
                return Ok(true);
            }
            Quick::Begun(id) => id,
        };
        let _ = endpoint.layer_mut::<Collectives>();
        wait(endpoint, &self.members, id)?;
        let engine = endpoint.layer_unscheduled::<Collectives>().engine_mut();
        engine.fetch(id, |result| bytes.copy_from_slice(&result[..bytes.len()]))?;
        Ok(true)
    }

    /// The blocking form: over the layer's own memory.
    pub(super) fn run<T: Transport, S: HasLayer<Collectives>, R>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        plan: Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError>,
        fill: impl FnOnce(&mut [u8]),
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, CollectiveError> {
        let id = self.begin(endpoint, plan, None, fill)?;
        wait(endpoint, &self.members, id)?;
        endpoint.layer_unscheduled::<Collectives>().engine_mut().fetch(id, look)
    }

    /// The form with a handle: over a vector.
    pub(super) fn launch<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        plan: Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError>,
        vector: Vec<E>,
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let id = self.begin(endpoint, plan, Some(Box::new(vector)), |_| ())?;
        let engine = endpoint.layer_unscheduled::<Collectives>().engine();
        Ok(Collective::new(&self.members, engine, id, fetch_vector::<E>))
    }

    fn barrier_plan(&self) -> Plan<impl FnOnce(&Tuning) -> Schedule> {
        let widen = |[a, b]: [u32; 2], [c, d]: [u32; 2]| [a.min(c), b.max(d)];
        let plan = plain(call::<[u32; 2]>(Operation::Barrier, 1, None), |_| Tuning::barrier(self.seat(), 1));
        Plan { fold: Some(fold::<[u32; 2], _>(widen)), ..plan }
    }

    /// Waits until all members have come here. It is an anonymous barrier: it meets barriers of any name. Blocks.
    ///
    /// # Errors
    /// [`CollectiveError`], in particular [`CollectiveError::BarrierMismatch`] if others named it differently.
    pub fn barrier<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), CollectiveError> {
        let (mut names, mut plan) = ([u32::MAX, 0], self.barrier_plan());
        if self.quickly(endpoint, (plan.call, &mut plan.fold), names.as_mut_bytes())? {
            return agree(None, names);
        }
        let fill = |data: &mut [u8]| place(data, 0, &[names]);
        let names = self.run(endpoint, Ok(plan), fill, |names| {
            let word = |at: usize| u32::from_ne_bytes([names[at], names[at + 1], names[at + 2], names[at + 3]]);
            [word(0), word(4)]
        })?;
        agree(None, names)
    }

    /// The first phase of a barrier: tells the others that this member has come, and does not wait for them. The
    /// barrier has a name, or none (anonymous), in which case it meets any. Several may be under way. Allocates
    /// once.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn notify<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        name: Option<u32>,
    ) -> Result<Notified, CollectiveError> {
        let names = name.map_or([u32::MAX, 0], |name| [name, name]);
        let id = self.begin(endpoint, Ok(self.barrier_plan()), Some(Box::new(vec![names])), |_| ())?;
        let engine = endpoint.layer_unscheduled::<Collectives>().engine();
        let finish = |engine: &mut Engine, id| Ok(fetch_vector::<[u32; 2]>(engine, id)?[0]);
        Ok(Notified { barrier: Collective::new(&self.members, engine, id, finish), name })
    }

    fn broadcast_plan<E: Element>(
        &self,
        root: u32,
        count: usize,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let at = self.root(root)?;
        let make = move |tuning: &Tuning| tuning.broadcast(self.seat(), at, count, size_of::<E>());
        Ok(plain(call::<E>(Operation::Broadcast, count, Some(root)), make))
    }

    /// Gives all members the elements of the root. Blocks.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn broadcast<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        elements: &mut [E],
    ) -> Result<(), CollectiveError> {
        let plan = self.broadcast_plan::<E>(root, elements.len());
        if let Ok(plan) = &plan
            && self.quickly(endpoint, (plan.call, &mut None), elements.as_mut_bytes())?
        {
            return Ok(());
        }
        let is_root = root == self.me();
        let source = &*elements;
        // Where each member has a processor, the root and the others copy blocks at the same time, which takes
        // less time than one copy by the system; where they share one, one copy costs less.
        let lends = is_root && !endpoint.transport().spins();
        let loan = self.lend(endpoint, if lends { source.as_bytes() } else { &[] });
        let id = self.begin_lending(endpoint, plan, loan.as_ref(), |data| {
            if is_root {
                place(data, 0, source);
            }
        })?;
        if endpoint.layer_unscheduled::<Collectives>().engine().is_lent(id) {
            wait_with(endpoint, id, Buffers::All(elements.as_mut_bytes()), loan)?;
            return endpoint.layer_unscheduled::<Collectives>().engine_mut().fetch(id, |_| ());
        }
        wait(endpoint, &self.members, id)?;
        endpoint.layer_unscheduled::<Collectives>().engine_mut().fetch(id, |result| {
            if !is_root {
                elements.as_mut_bytes().copy_from_slice(result);
            }
        })
    }

    /// [`broadcast`](Self::broadcast) with a handle: all members give a vector of the same length.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn broadcast_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        elements: Vec<E>,
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let plan = self.broadcast_plan::<E>(root, elements.len());
        self.launch(endpoint, plan, elements)
    }

    fn reduce_plan<E: Element>(
        &self,
        root: u32,
        count: usize,
        operator: impl Operator<E>,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        let (at, ordered) = (self.root(root)?, !operator.commutes());
        let make = move |tuning: &Tuning| tuning.reduce(self.seat(), at, count, size_of::<E>(), ordered);
        let plan = plain(combining(Operation::Reduce, count, Some(root), &operator), make);
        Ok(Plan { fold: Some(fold(operator)), ..plan })
    }

    /// Combines the elements of all members, place by place; the root has the result in place of its own, the
    /// others keep theirs. Blocks.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn reduce<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        elements: &mut [E],
        operator: impl Operator<E>,
    ) -> Result<(), CollectiveError> {
        let mut plan = self.reduce_plan(root, elements.len(), operator);
        if let Ok(plan) = &mut plan
            && self.quickly(endpoint, (plan.call, &mut plan.fold), elements.as_mut_bytes())?
        {
            return Ok(());
        }
        let id = self.begin(endpoint, plan, None, |data| place(data, 0, elements))?;
        wait(endpoint, &self.members, id)?;
        let is_root = root == self.me();
        endpoint.layer_unscheduled::<Collectives>().engine_mut().fetch(id, |result| {
            if is_root {
                elements.as_mut_bytes().copy_from_slice(result);
            }
        })
    }

    /// [`reduce`](Self::reduce) with a handle; what others than the root get back is unspecified.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn reduce_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        elements: Vec<E>,
        operator: impl Operator<E>,
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let plan = self.reduce_plan(root, elements.len(), operator);
        self.launch(endpoint, plan, elements)
    }

    fn allreduce_plan<E: Element>(
        &self,
        count: usize,
        operator: impl Operator<E>,
    ) -> Plan<impl FnOnce(&Tuning) -> Schedule> {
        let ordered = !operator.commutes();
        let make = move |tuning: &Tuning| tuning.allreduce(self.seat(), count, size_of::<E>(), ordered);
        let plan = plain(combining(Operation::Allreduce, count, None, &operator), make);
        Plan { fold: Some(fold(operator)), ..plan }
    }

    /// Combines the elements of all members, place by place; all have the result in place of their own. Blocks.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn allreduce<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: &mut [E],
        operator: impl Operator<E>,
    ) -> Result<(), CollectiveError> {
        let mut plan = self.allreduce_plan(elements.len(), operator);
        if self.quickly(endpoint, (plan.call, &mut plan.fold), elements.as_mut_bytes())? {
            return Ok(());
        }
        self.in_place(endpoint, Ok(plan), elements)
    }

    /// [`allreduce`](Self::allreduce) of one element.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn allreduce_one<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        element: E,
        operator: impl Operator<E>,
    ) -> Result<E, CollectiveError> {
        let mut elements = [element];
        self.allreduce(endpoint, &mut elements, operator)?;
        Ok(elements[0])
    }

    /// [`allreduce`](Self::allreduce) with a handle.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn allreduce_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: Vec<E>,
        operator: impl Operator<E>,
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let plan = Ok(self.allreduce_plan(elements.len(), operator));
        self.launch(endpoint, plan, elements)
    }

    /// Runs an operation whose result takes the place of its operands.
    fn in_place<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        plan: Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError>,
        elements: &mut [E],
    ) -> Result<(), CollectiveError> {
        let id = self.begin(endpoint, plan, None, |data| place(data, 0, elements))?;
        wait(endpoint, &self.members, id)?;
        let engine = endpoint.layer_unscheduled::<Collectives>().engine_mut();
        engine.fetch(id, |result| elements.as_mut_bytes().copy_from_slice(result))
    }

    fn scan_plan<E: Element>(
        &self,
        count: usize,
        operator: impl Operator<E>,
        exclusive: bool,
    ) -> Plan<impl FnOnce(&Tuning) -> Schedule> {
        let operation = if exclusive { Operation::Exscan } else { Operation::Scan };
        let make = move |tuning: &Tuning| tuning.scan(self.seat(), count, size_of::<E>(), exclusive);
        let plan = plain(combining(operation, count, None, &operator), make);
        Plan { fold: Some(fold(operator)), ..plan }
    }

    /// Combines with the elements of each member those of all members before it, in their order. Blocks.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scan<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: &mut [E],
        operator: impl Operator<E>,
    ) -> Result<(), CollectiveError> {
        let plan = Ok(self.scan_plan(elements.len(), operator, false));
        self.in_place(endpoint, plan, elements)
    }

    /// [`scan`](Self::scan) with a handle.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scan_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: Vec<E>,
        operator: impl Operator<E>,
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let plan = Ok(self.scan_plan(elements.len(), operator, false));
        self.launch(endpoint, plan, elements)
    }

    /// Gives each member the combination of the elements of all members before it, in their order. The first
    /// member keeps its own. Blocks.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn exscan<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: &mut [E],
        operator: impl Operator<E>,
    ) -> Result<(), CollectiveError> {
        let plan = Ok(self.scan_plan(elements.len(), operator, true));
        self.in_place(endpoint, plan, elements)
    }

    /// [`exscan`](Self::exscan) with a handle.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn exscan_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: Vec<E>,
        operator: impl Operator<E>,
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let plan = Ok(self.scan_plan(elements.len(), operator, true));
        self.launch(endpoint, plan, elements)
    }

    fn reduce_scatter_plan<E: Element>(
        &self,
        counts: Vec<usize>,
        given: usize,
        operator: impl Operator<E>,
    ) -> Result<Plan<impl FnOnce(&Tuning) -> Schedule>, CollectiveError> {
        self.check_counts(&counts)?;
        let (ordered, total) = (!operator.commutes(), total::<E>("the list of counts", &counts)?);
        length("the elements of all parts", given, total)?;
        let make = move |tuning: &Tuning| tuning.reduce_scatter(self.seat(), &counts, size_of::<E>(), ordered);
        let plan = plain(combining(Operation::ReduceScatter, total, None, &operator), make);
        Ok(Plan { keeps: false, fold: Some(fold(operator)), ..plan })
    }

    /// Combines the elements of all members, place by place, and gives each member a part of the result, of the
    /// length of `part`; `elements` has as many for each member. Blocks; allocates.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn reduce_scatter<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: &[E],
        part: &mut [E],
        operator: impl Operator<E>,
    ) -> Result<(), CollectiveError> {
        let counts = vec![part.len(); self.size() as usize];
        self.reduce_scatterv(endpoint, elements, &counts, part, operator)
    }

    /// [`reduce_scatter`](Self::reduce_scatter) with parts of different lengths, `counts` by position. Blocks;
    /// allocates.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn reduce_scatterv<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: &[E],
        counts: &[usize],
        part: &mut [E],
        operator: impl Operator<E>,
    ) -> Result<(), CollectiveError> {
        let plan = self.reduce_scatter_plan(counts.to_vec(), elements.len(), operator);
        let plan = plan.and_then(|plan| {
            length("the slice for this member's part", part.len(), counts[self.me() as usize]).map(|()| plan)
        });
        let fill = |data: &mut [u8]| place(data, 0, elements);
        self.run(endpoint, plan, fill, |result| part.as_mut_bytes().copy_from_slice(result))
    }

    /// [`reduce_scatterv`](Self::reduce_scatterv) with a handle, which yields this member's part.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn reduce_scatter_nb<T: Transport, S: HasLayer<Collectives>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: Vec<E>,
        counts: &[usize],
        operator: impl Operator<E>,
    ) -> Result<Collective<Vec<E>>, CollectiveError> {
        let plan = self.reduce_scatter_plan(counts.to_vec(), elements.len(), operator);
        self.launch(endpoint, plan, elements)
    }

    pub(super) fn check_counts(&self, counts: &[usize]) -> Result<(), CollectiveError> {
        length("the list of counts", counts.len(), self.size() as usize)
    }
}

//! Waiting for operations: by their handles, for access regions, and for all that nobody else waits for.

use super::operation::{Operation, Output, State, Unfinished};
use super::{Failures, OneSided, OneSidedError};
use crate::address::{Address, Peer, Rank};
use crate::endpoint::Endpoint;
use crate::error::WaitError;
use crate::layer::HasLayer;
use crate::transport::{OperationFault, PeerStatus, Transport, WaitReason};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Steps of a wait between two looks at its target's status, once there were as many.
const LOOKS: u32 = 64;

/// Whether a wait looks at its target's status in its step with this number: asking may cost more than a step, and
/// a step may sleep for long.
fn looks(step: u32) -> bool {
    step.is_multiple_of(LOOKS) || step < LOOKS && step.is_power_of_two()
}

impl<T: Transport, S: HasLayer<OneSided>> Endpoint<T, S> {
    /// Waits until an operation is done, serving incoming messages meanwhile, and returns what it brings.
    ///
    /// # Errors
    /// [`Unfinished`] holds the operation, to be waited for again, and why this wait failed:
    /// [`OneSidedError::Gone`] if the target is gone, which no other wait will change; an operation of another
    /// endpoint; what [`Endpoint::wait_until`] fails with.
    #[inline]
    pub fn wait<R: Output>(&mut self, operation: Operation<R>) -> Result<R, Unfinished<R>> {
        self.wait_as(operation, Self::wait_pending)
    }

    /// [`Endpoint::wait`] that the loss of no other rank ends, acknowledged or not: for who has begun several
    /// operations and wants none of them under way when it fails. Losses, and errors of handlers and layers, are
    /// told by the next poll or wait.
    ///
    /// # Errors
    /// [`Unfinished`] holds the operation: its target is gone, it is another endpoint's, or the endpoint's
    /// time-out ran out.
    pub fn settle<R: Output>(&mut self, operation: Operation<R>) -> Result<R, Unfinished<R>> {
        self.wait_as(operation, Self::settle_pending)
    }

    #[inline]
    fn wait_as<R: Output>(
        &mut self,
        mut operation: Operation<R>,
        wait: impl FnOnce(&mut Self, u64) -> Result<Failures, WaitError>,
    ) -> Result<R, Unfinished<R>> {
        let id = match &mut operation.state {
            State::Done { value, bytes } => return Ok(R::take(*value, std::mem::take(bytes))),
            State::Failed(failures) => {
                let error = failures.clone().into_error().expect("an operation that failed says how");
                return Err(Unfinished { error, operation });
            }
            State::Pending { dropped, .. }
                if !Arc::ptr_eq(dropped, &self.layer::<OneSided>().operations.dropped) =>
            {
                return Err(Unfinished { error: OneSidedError::Foreign, operation });
            }
            State::Pending { id, .. } => *id,
        };
        let failed = match wait(self, id) {
            Ok(failed) => self.with_causes(failed),
            Err(error) => return Err(Unfinished { error: error.into(), operation }),
        };
        if !failed.is_empty() {
            self.leave_rest_to_quiet(id);
        }
        let (value, bytes) = self.layer_unscheduled::<OneSided>().operations.end(id);
        let Some(error) = failed.clone().into_error() else {
            operation.state = State::Done { value, bytes: Vec::new() };
            return Ok(R::take(value, bytes));
        };
        operation.state = State::Failed(failed);
        Err(Unfinished { error, operation })
    }

    /// Waits until an operation is done, or a target is found gone; what has failed until then.
    pub(super) fn wait_pending(&mut self, id: u64) -> Result<Failures, WaitError> {
        let (mut steps, mut losses) = (0u32, self.losses());
        self.wait_for(|endpoint| {
            endpoint.look_at(id, (&mut steps, &mut losses), |endpoint| {
                Ok::<_, WaitError>(endpoint.poll_until_empty()?)
            })
        })
    }

    /// [`Endpoint::wait_pending`] that no loss ends but the target's.
    fn settle_pending(&mut self, id: u64) -> Result<Failures, WaitError> {
        let (mut steps, mut losses) = (0u32, self.losses());
        let reason = match self.layer::<OneSided>().operations.target(id) {
            Some((target, false)) => self.shape().peer(target).map_or(WaitReason::Message, WaitReason::Collective),
            _ => WaitReason::Message,
        };
        self.wait_through(|endpoint| {
            let found = endpoint.look_at(id, (&mut steps, &mut losses), |endpoint| {
                endpoint.look_for_last_words();
                Ok::<_, WaitError>(())
            })?;
            Ok(found.map_or(ControlFlow::Continue(reason), ControlFlow::Break))
        })
    }

    /// What an operation failed of, once it is done or a target is found gone; `serve` serves what that sent.
    #[inline]
    fn look_at<E>(
        &mut self,
        id: u64,
        (steps, losses): (&mut u32, &mut u32),
        serve: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<Option<Failures>, E> {
        let operations = &mut self.layer_unscheduled::<OneSided>().operations;
        if operations.is_done(id) {
            return Ok(Some(operations.failures(id)));
        }
        *steps = steps.wrapping_add(1);
        if !looks(*steps) && self.losses() == *losses {
            return Ok(None);
        }
        *losses = self.losses();
        if self.stranded_by(id).is_none() {
            return Ok(None);
        }
        // What the target sent before it went has arrived.
        serve(self)?;
        let operations = &mut self.layer_unscheduled::<OneSided>().operations;
        let mut failed = operations.failures(id);
        if !operations.is_done(id) {
            self.add_stranded(id, &mut failed);
        }
        Ok(Some(failed))
    }

    /// Notes how those targets were lost that are gone.
    fn with_causes(&self, mut failed: Failures) -> Failures {
        failed.note_causes(|rank| match self.status(rank) {
            Some(PeerStatus::Lost(cause)) => Some(cause),
            _ => None,
        });
        failed
    }

    /// The error that tells of failures, if there are any.
    pub(super) fn fail(&self, failed: Failures) -> Result<(), OneSidedError> {
        self.with_causes(failed).into_error().map_or(Ok(()), Err)
    }

    /// The target of an operation, or one of those of a region, if it is gone.
    fn stranded_by(&mut self, id: u64) -> Option<Rank> {
        let gone = |endpoint: &Self, target: Address| endpoint.status(target) != Some(PeerStatus::Active);
        let (target, region) = self.layer_unscheduled::<OneSided>().operations.target(id)?;
        if !region {
            return gone(self, target).then_some(target.rank);
        }
        let mut at = 0;
        while let Some((target, next)) = self.layer::<OneSided>().operations.region_target(id, at) {
            if gone(self, target) {
                return Some(target.rank);
            }
            at = next;
        }
        None
    }

    /// Counts an operation whose target is gone, or those of a region.
    fn add_stranded(&self, id: u64, failed: &mut Failures) {
        let operations = &self.layer::<OneSided>().operations;
        let gone = |target: Address| self.status(target) != Some(PeerStatus::Active);
        let Some((target, region)) = operations.target(id) else { return };
        if !region {
            if failed.is_empty() {
                failed.add(target.rank, OperationFault::Gone);
            }
            return;
        }
        let mut at = 0;
        while let Some((target, next)) = operations.region_target(id, at) {
            if gone(target) {
                failed.add(target.rank, OperationFault::Gone);
            }
            at = next;
        }
    }

    /// Ends the operations of a region whose targets are gone; the next [`Endpoint::quiet`] waits for the others.
    fn leave_rest_to_quiet(&mut self, region: u64) {
        let mut at = 0;
        while let Some((target, next)) = self.layer_unscheduled::<OneSided>().operations.region_target(region, at)
        {
            let gone = self.status(target) != Some(PeerStatus::Active);
            self.layer_unscheduled::<OneSided>().operations.leave_to_quiet(next - 1, gone);
            at = next;
        }
    }

    /// Serves what has arrived and tells whether [`Endpoint::wait`] returns at once: the operation is done, or its
    /// target is gone.
    ///
    /// # Errors
    /// What [`Endpoint::poll`] fails with; an operation of another endpoint.
    pub fn test<R>(&mut self, operation: &Operation<R>) -> Result<bool, OneSidedError> {
        self.poll().map_err(WaitError::from)?;
        let State::Pending { id, dropped } = &operation.state else { return Ok(true) };
        let operations = &mut self.layer_unscheduled::<OneSided>().operations;
        if !Arc::ptr_eq(dropped, &operations.dropped) {
            return Err(OneSidedError::Foreign);
        }
        Ok(operations.is_done(*id) || self.stranded_by(*id).is_some())
    }

    /// Opens an access region: the operations of the `nbi` forms that are started before [`Endpoint::end_region`]
    /// belong to it instead of the next [`Endpoint::quiet`]. Regions do not nest.
    ///
    /// # Errors
    /// [`OneSidedError::RegionOpen`].
    pub fn begin_region(&mut self) -> Result<(), OneSidedError> {
        let me = self.address();
        let opened = self.layer_unscheduled::<OneSided>().operations.open_region(me);
        opened.ok_or(OneSidedError::RegionOpen)
    }

    /// Closes the access region. The operation is done when all that were started in the region are, and is waited
    /// for or tested like any other. A target that is gone fails the wait; the operations on others go on, and the
    /// next [`Endpoint::quiet`] waits for them.
    ///
    /// # Errors
    /// [`OneSidedError::NoRegion`].
    pub fn end_region(&mut self) -> Result<Operation<()>, OneSidedError> {
        let operations = &mut self.layer_unscheduled::<OneSided>().operations;
        let id = operations.close_region().ok_or(OneSidedError::NoRegion)?;
        Ok(Operation::pending(id, &operations.dropped))
    }

    /// Waits until all operations of the `nbi` forms outside access regions are done or have failed, and those
    /// whose handles were dropped, which a blocking form that fails does, too: none is under way then but those
    /// whose handles are held. Serves incoming messages meanwhile. To be called before [`Endpoint::barrier`] where
    /// other ranks are to see what they did. Nobody is told how operations without a handle fared that had one.
    /// Allocates only where something failed.
    ///
    /// # Errors
    /// [`OneSidedError::Gone`] names a target that is gone, and [`OneSidedError::Failed`] one that the network
    /// failed to reach; [`OneSidedError::Several`] names several, with how many operations of each failed. None is
    /// under way then. What [`Endpoint::wait_until`] fails with; what failed until then, the next call tells.
    pub fn quiet(&mut self) -> Result<(), OneSidedError> {
        let (mut steps, mut losses) = (0u32, self.losses());
        let failed = self.wait_for(|endpoint| {
            let operations = &mut endpoint.layer_unscheduled::<OneSided>().operations;
            if operations.is_quiet() {
                return Ok::<_, WaitError>(Some(operations.take_failed()));
            }
            steps = steps.wrapping_add(1);
            if looks(steps) || endpoint.losses() != losses {
                losses = endpoint.losses();
                endpoint.let_stranded_go(|endpoint| Ok::<_, WaitError>(endpoint.poll_until_empty()?))?;
            }
            let operations = &mut endpoint.layer_unscheduled::<OneSided>().operations;
            Ok(operations.is_quiet().then(|| operations.take_failed()))
        });
        self.fail(failed?)
    }

    /// How many one-sided operations of this endpoint have begun that travel as messages or by the network: a
    /// moment for [`Endpoint::settle_broken_off`].
    pub fn operations_begun(&self) -> u64 {
        self.layer::<OneSided>().operations.begun()
    }

    /// Waits until what operations had sent that could not be sent in full is done, or its targets gone: of
    /// operations that have begun since [`Endpoint::operations_begun`] returned `begun`. Nobody else tells of
    /// these before the next [`Endpoint::quiet`]. The loss of no other rank ends it, acknowledged or not. Losses,
    /// and errors of handlers and layers, are told by the next poll or wait.
    ///
    /// # Errors
    /// The endpoint's time-out ran out.
    pub fn settle_broken_off(&mut self, begun: u64) -> Result<(), WaitError> {
        let (mut steps, mut losses) = (0u32, self.losses());
        self.wait_through(|endpoint| {
            steps = steps.wrapping_add(1);
            let has = |endpoint: &Self| endpoint.layer::<OneSided>().operations.has_broken_off(begun);
            if has(endpoint) && (looks(steps) || endpoint.losses() != losses) {
                losses = endpoint.losses();
                endpoint.let_stranded_go(|endpoint| {
                    endpoint.look_for_last_words();
                    Ok::<_, WaitError>(())
                })?;
            }
            let more = has(endpoint);
            Ok(if more { ControlFlow::Continue(WaitReason::Message) } else { ControlFlow::Break(()) })
        })
    }

    /// Ends the operations that no handle waits for and whose targets are gone; `serve` serves what these sent.
    fn let_stranded_go<E>(&mut self, serve: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let shape = self.shape();
        let everyone = (0..shape.peers()).map(|peer| shape.address(Peer(peer)));
        let gone: Vec<Address> = everyone.filter(|peer| self.status(*peer) != Some(PeerStatus::Active)).collect();
        if gone.is_empty() {
            return Ok(());
        }
        // What the targets sent before they went has arrived.
        serve(self)?;
        let operations = &mut self.layer_unscheduled::<OneSided>().operations;
        while let Some(id) = operations.stranded(|target| gone.contains(&target)) {
            operations.strand(id);
        }
        Ok(())
    }
}

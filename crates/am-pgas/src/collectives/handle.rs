//! Operations under way as programs hold them, and how they are waited for.

use super::engine::{Buffers, Engine, Members};
use super::error::{CollectiveError, Failure};
use super::{Collectives, with_engine, with_post};
use am_core::transport::Loan;
use am_core::{Address, Endpoint, HasLayer, LossCause, PeerStatus, Transport, WaitError, WaitReason};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Steps of a wait between two looks at those that it waits for.
const LOOKS: u32 = 64;

/// Looks at shared memory between two polls of a wait.
const GLANCES: u32 = 16;

/// Fetches what an operation brings.
type Finish<R> = fn(&mut Engine, u64) -> Result<R, CollectiveError>;

/// A collective operation under way, which owns its elements. It goes on inside any wait and any poll of its
/// endpoint.
///
/// Dropped, it goes on by itself, as the other members need it, and its result is let go.
#[must_use = "a dropped operation goes on, and nobody learns what it brings"]
pub struct Collective<R> {
    members: Arc<Members>,
    id: u64,
    dropped: Arc<super::engine::Dropped>,
    finish: Finish<R>,
    fetched: bool,
}

impl<R> fmt::Debug for Collective<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collective({:#x} of team {})", self.id, self.members.context)
    }
}

impl<R> Collective<R> {
    pub(super) fn new(members: &Arc<Members>, engine: &Engine, id: u64, finish: Finish<R>) -> Self {
        let dropped = Arc::clone(&engine.dropped);
        Self { members: Arc::clone(members), id, dropped, finish, fetched: false }
    }

    /// Waits until the operation is done, serving incoming messages meanwhile, and returns what it brings. Blocks;
    /// does not allocate.
    ///
    /// # Errors
    /// [`CollectiveError`]; the operation is over for this member then, except after a time-out, when it goes on
    /// by itself.
    pub fn wait<T: Transport, S: HasLayer<Collectives>>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<R, CollectiveError> {
        self.belongs(endpoint)?;
        self.fetched = true;
        wait(endpoint, &self.members, self.id)?;
        (self.finish)(endpoint.layer_unscheduled::<Collectives>().engine_mut(), self.id)
    }

    /// Waits until the operation has ended, well or not, and leaves it to be fetched.
    pub(crate) fn wait_again<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), CollectiveError> {
        wait_on(endpoint, self.id)
    }

    /// Serves what has arrived and tells whether [`wait`](Self::wait) returns at once. Does not block.
    ///
    /// # Errors
    /// What [`Endpoint::poll`] fails with; an operation of another endpoint.
    pub fn test<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<bool, CollectiveError> {
        self.belongs(endpoint)?;
        let polled = endpoint.poll_through();
        with_engine(endpoint, |_| ());
        look_for_losses(endpoint);
        look_for_leavers(endpoint, self.id, usize::MAX);
        polled.map_err(WaitError::from)?;
        Ok(endpoint.layer_unscheduled::<Collectives>().engine().is_done(self.id))
    }

    fn belongs<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), CollectiveError> {
        let own = endpoint.layer_unscheduled::<Collectives>().engine().id == self.members.engine;
        if own { Ok(()) } else { Err(CollectiveError::NotInTeam) }
    }
}

impl<R> Drop for Collective<R> {
    fn drop(&mut self) {
        if !self.fetched {
            self.dropped.push(self.id);
        }
    }
}

/// The second phase of a barrier; see [`Team::notify`](crate::Team::notify).
#[derive(Debug)]
#[must_use = "the barrier is over for the others when this rank has come, and for this one when it has waited"]
pub struct Notified {
    pub(super) barrier: Collective<[u32; 2]>,
    pub(super) name: Option<u32>,
}

impl Notified {
    /// Waits until all members have notified. `name` is what [`Team::notify`](crate::Team::notify) was given.
    /// Blocks; does not allocate.
    ///
    /// # Errors
    /// [`CollectiveError::BarrierMismatch`] on every member if two members named the barrier differently, and on
    /// this one if the names of its phases differ; the barrier is over all the same. Otherwise as
    /// [`Collective::wait`].
    pub fn wait<T: Transport, S: HasLayer<Collectives>>(
        self,
        endpoint: &mut Endpoint<T, S>,
        name: Option<u32>,
    ) -> Result<(), CollectiveError> {
        let [mut lowest, mut highest] = self.barrier.wait(endpoint)?;
        if name != self.name {
            for name in [name, self.name].into_iter().flatten() {
                (lowest, highest) = (lowest.min(name), highest.max(name));
            }
            return Err(CollectiveError::BarrierMismatch { mine: name, lowest, highest });
        }
        agree(name, [lowest, highest])
    }

    /// As [`Collective::test`].
    ///
    /// # Errors
    /// As [`Collective::test`].
    pub fn test<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<bool, CollectiveError> {
        self.barrier.test(endpoint)
    }
}

/// Whether all names of a barrier are the same. Without any, the lowest is above the highest.
pub(super) fn agree(mine: Option<u32>, [lowest, highest]: [u32; 2]) -> Result<(), CollectiveError> {
    if lowest < highest { Err(CollectiveError::BarrierMismatch { mine, lowest, highest }) } else { Ok(()) }
}

/// Waits until an operation has ended; what it has come to is to be fetched. After a time-out it goes on by
/// itself.
pub(super) fn wait<T: Transport, S: HasLayer<Collectives>>(
    endpoint: &mut Endpoint<T, S>,
    members: &Members,
    id: u64,
) -> Result<(), CollectiveError> {
    debug_assert_eq!(endpoint.layer_unscheduled::<Collectives>().engine().id, members.engine);
    let waited = wait_on(endpoint, id);
    if waited.is_err() {
        endpoint.layer_unscheduled::<Collectives>().engine_mut().abandon(id);
    }
    waited
}

/// An operation under way whose elements its caller has.
struct Lending<'e, 'b, T: Transport, S: HasLayer<Collectives>> {
    endpoint: &'e mut Endpoint<T, S>,
    id: u64,
    buffers: Buffers<'b>,
    /// What the others may read of them, until nobody has them any more.
    _loan: Option<Loan>,
}

impl<T: Transport, S: HasLayer<Collectives>> Drop for Lending<'_, '_, T, S> {
    /// Also where a handler panics: others would wait for this member in vain.
    fn drop(&mut self) {
        self.endpoint.layer_unscheduled::<Collectives>().engine_mut().take_back(self.id, &self.buffers);
    }
}

/// Waits until an operation has ended whose elements its caller has. After a time-out it goes on with copies of
/// them.
pub(super) fn wait_with<T: Transport, S: HasLayer<Collectives>>(
    endpoint: &mut Endpoint<T, S>,
    id: u64,
    buffers: Buffers<'_>,
    loan: Option<Loan>,
) -> Result<(), CollectiveError> {
    let mut lending = Lending { endpoint, id, buffers, _loan: loan };
    let Lending { endpoint, buffers, .. } = &mut lending;
    wait_carrying(endpoint, id, |endpoint| {
        let looks = if endpoint.transport().spins() { GLANCES } else { 0 };
        with_post(endpoint, |engine, post| engine.pass_lent(id, buffers, looks, post));
        with_engine(endpoint, |_| ());
    })
}

/// As [`wait`], but the operation may be waited for again.
pub(crate) fn wait_on<T: Transport, S: HasLayer<Collectives>>(
    endpoint: &mut Endpoint<T, S>,
    id: u64,
) -> Result<(), CollectiveError> {
    if !endpoint.layer_unscheduled::<Collectives>().engine().is_direct(id) {
        return wait_carrying(endpoint, id, |_| ());
    }
    wait_carrying(endpoint, id, |endpoint| {
        // Whoever is not there within a few looks is waited for as everyone is.
        let looks = if endpoint.transport().spins() { GLANCES } else { 1 };
        for _ in 0..looks {
            if endpoint.layer_unscheduled::<Collectives>().engine().has_changed() {
                return with_engine(endpoint, |_| ());
            }
            std::hint::spin_loop();
        }
    })
}

/// Waits until an operation has ended, with `carry` called in each step.
fn wait_carrying<T: Transport, S: HasLayer<Collectives>>(
    endpoint: &mut Endpoint<T, S>,
    id: u64,
    mut carry: impl FnMut(&mut Endpoint<T, S>),
) -> Result<(), CollectiveError> {
    let (mut steps, mut idles) = (0u32, endpoint.idles());
    endpoint.wait_through(|endpoint| {
        if endpoint.layer_unscheduled::<Collectives>().engine().is_done(id) {
            return Ok::<_, CollectiveError>(ControlFlow::Break(()));
        }
        carry(endpoint);
        if endpoint.layer_unscheduled::<Collectives>().engine().is_done(id) {
            return Ok::<_, CollectiveError>(ControlFlow::Break(()));
        }
        look_for_losses(endpoint);
        steps = steps.wrapping_add(1);
        // Asking for the status of many peers may cost more than a step. If the one that is idled for has not
        // left, something comes of it.
        let (mut first, mut most) = (endpoint.layer::<Collectives>().engine().first_waited_for(id), 0);
        if steps.is_multiple_of(LOOKS) {
            most = usize::MAX;
        } else if std::mem::replace(&mut idles, endpoint.idles()) != idles {
            most = usize::from(first.is_some_and(|first| has_left(endpoint, first)));
        }
        if most != 0 {
            look_for_leavers(endpoint, id, most);
            first = endpoint.layer::<Collectives>().engine().first_waited_for(id);
        }
        // What was found may have ended the operation, and nothing else may come.
        if endpoint.layer_unscheduled::<Collectives>().engine().is_done(id) {
            return Ok(ControlFlow::Break(()));
        }
        let first = first.and_then(|first| endpoint.shape().peer(first));
        Ok(ControlFlow::Continue(first.map_or(WaitReason::Message, WaitReason::Collective)))
    })
}

/// Whether a member has left by itself.
fn has_left<T: Transport, S>(endpoint: &Endpoint<T, S>, member: Address) -> bool {
    endpoint.status(member) == Some(PeerStatus::Finished)
}

/// Lets teams fail whose members are newly lost.
pub(crate) fn look_for_losses<T: Transport, S: HasLayer<Collectives>>(endpoint: &mut Endpoint<T, S>) {
    let losses = endpoint.losses();
    if endpoint.layer_unscheduled::<Collectives>().engine().losses_seen == losses {
        return;
    }
    let shape = endpoint.shape();
    let lost: Vec<_> = endpoint
        .others()
        .filter_map(|peer| match endpoint.status(peer) {
            Some(PeerStatus::Lost(cause)) => Some((shape.peer(peer), cause)),
            _ => None,
        })
        .collect();
    with_engine(endpoint, |engine| {
        // Those that are counted before their status says so are looked for again.
        engine.losses_seen = losses.min(lost.len() as u32);
        engine.look_for_losses(|address| {
            let of = |(peer, cause): &(_, LossCause)| (*peer == shape.peer(address)).then_some(*cause);
            lost.iter().find_map(of)
        });
    });
}

/// Lets a team fail if one of the first `most` members that an operation waits for has left by itself: what that
/// sent before has arrived then.
fn look_for_leavers<T: Transport, S: HasLayer<Collectives>>(endpoint: &mut Endpoint<T, S>, id: u64, most: usize) {
    let mut served = false;
    loop {
        let Some((context, waited)) = endpoint.layer::<Collectives>().engine().waits_for(id) else { return };
        let Some(gone) = waited.take(most).find(|member| has_left(endpoint, *member)) else { return };
        if std::mem::replace(&mut served, true) {
            let failure = Failure::Lost { rank: gone.rank, cause: LossCause::Left };
            with_engine(endpoint, |engine| engine.fail_team(context, failure));
            return;
        }
        endpoint.serve_through();
        // What has come may be all that is needed for a round, and more is sent by polls.
        with_engine(endpoint, |_| ());
    }
}

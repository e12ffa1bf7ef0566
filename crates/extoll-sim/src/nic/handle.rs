//! A rank's handle to its node's interface and to virtual time.

use super::address::Address;
use super::device::{Counters, Extoll, Shared};
use super::rma::Rma;
use super::velo::Velo;
use super::velo::mailbox::Valid;
use crate::model::{Costs, Parameters};
use fabric_sim::{Context, Handle};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// What a rank's program gets from [`run`](crate::run): its interface and its time. Clones are handles to the same
/// rank.
///
/// [Idling](Handle::idle) ends for: messages in the mailbox, notifications, writes to the rank's memory that are
/// complete, room to send after a refusal.
#[derive(Clone)]
pub struct Nic<'a> {
    handle: Handle<'a, Extoll>,
    shared: Rc<Shared>,
    /// How many slots of its mailbox are valid.
    valid: Valid,
}

impl fmt::Debug for Nic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic").field("rank", &self.rank()).finish_non_exhaustive()
    }
}

impl<'a> Deref for Nic<'a> {
    type Target = Handle<'a, Extoll>;

    fn deref(&self) -> &Handle<'a, Extoll> {
        &self.handle
    }
}

impl<'a> Nic<'a> {
    pub(crate) fn new(context: Context<'a, Extoll>, shared: Rc<Shared>) -> Self {
        let address = shared.directory.of(context.rank());
        // The repair of losses may use what the rank's sending passes.
        let alone = !shared.lossy && shared.directory.processes(address.node.into()) == 1;
        let local = u32::from(address.vpid);
        let valid = context.local(|device, _| device.processes[local as usize].post.valid.clone());
        Self { handle: Handle::new(context, local, alone), shared, valid }
    }

    /// Where a rank is; `None` outside the job.
    pub fn address(&self, rank: u32) -> Option<Address> {
        self.shared.directory.address(rank)
    }

    /// The rank at an address, if there is one.
    pub fn rank_at(&self, address: Address) -> Option<u32> {
        self.shared.directory.rank(address)
    }

    /// The VELO unit.
    pub fn velo(&self) -> Velo<'a> {
        Velo { nic: self.clone() }
    }

    /// The RMA unit.
    pub fn rma(&self) -> Rma<'a> {
        Rma { nic: self.clone() }
    }

    /// The machine's parameter table.
    pub fn parameters(&self) -> &Parameters {
        &self.shared.parameters
    }

    /// What the interface of this rank's node has counted so far.
    pub fn counters(&self) -> Counters {
        self.context().device(|device, _| device.counters())
    }

    /// Whether there was something in the mailbox when the rank last looked at its interface.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.valid.get() != 0
    }

    pub(crate) fn costs(&self) -> &Costs {
        &self.shared.costs
    }
}

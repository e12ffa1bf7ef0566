//! The calls of Portals 4 on event queues and counting events.

use super::{Command, CtEvent, CtHandle, EqHandle, Event, P4, P4Error};
use am_core::Instant;
use fabric_sim::WaitFor;

impl P4<'_> {
    /// `PtlEQAlloc`: an event queue with room for `count` events. It takes memory only for those that come.
    ///
    /// # Errors
    /// [`P4Error::NoSpace`], [`P4Error::ArgInvalid`] for no events.
    pub fn eq_alloc(&self, count: u32) -> Result<EqHandle, P4Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p4(local).eq_alloc(count))
    }

    /// `PtlEQFree`: an event queue ends; descriptors that name it go on without events.
    ///
    /// # Errors
    /// [`P4Error::InUse`] while portal table entries use it, [`P4Error::ArgInvalid`].
    pub fn eq_free(&self, eq: EqHandle) -> Result<(), P4Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p4(local).eq_free(eq))
    }

    /// `PtlEQGet`: takes the oldest event of a queue.
    ///
    /// # Errors
    /// [`P4Error::EqEmpty`]; [`P4Error::EqDropped`] with an event if others have been written over;
    /// [`P4Error::ArgInvalid`].
    pub fn eq_get(&self, eq: EqHandle) -> Result<Event, P4Error> {
        self.look();
        let now = self.nic.now();
        self.nic.unit(|device, _, local| device.p4(local).eq_get(eq, now))
    }

    /// `PtlEQWait`: [`P4::eq_get`], but waits until there is an event or until a time.
    ///
    /// # Errors
    /// As [`P4::eq_get`]; [`P4Error::EqEmpty`] only at that time.
    pub fn eq_wait(&self, eq: EqHandle, until: Option<Instant>) -> Result<Event, P4Error> {
        self.eq_poll(&[eq], until).map(|(event, _)| event)
    }

    /// `PtlEQPoll`: takes an event from the first of some queues that has one; waits until there is one or until a
    /// time. Returns also which queue it was.
    ///
    /// # Errors
    /// As [`P4::eq_wait`].
    pub fn eq_poll(&self, queues: &[EqHandle], until: Option<Instant>) -> Result<(Event, usize), P4Error> {
        loop {
            for (which, eq) in queues.iter().enumerate() {
                match self.eq_get(*eq) {
                    Err(P4Error::EqEmpty) => {}
                    found => return found.map(|event| (event, which)),
                }
            }
            if until.is_some_and(|until| until <= self.nic.now()) {
                return Err(P4Error::EqEmpty);
            }
            self.idle(queues, until, WaitFor::Named("an event"))?;
        }
    }

    /// Suspends the rank until one of some queues has an event, something else concerns it, or `until`; `wanted`
    /// is for deadlock reports. Returns at once if an event is there. Something else is: an event in another
    /// queue, a peer's operation, a counter that has moved, a rank that is known to be lost. Costs no time of the
    /// processor.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn idle(
        &self,
        queues: &[EqHandle],
        until: Option<Instant>,
        wanted: impl Into<WaitFor>,
    ) -> Result<(), P4Error> {
        let next = self.nic.unit(|device, _, local| {
            let mut next = until;
            for eq in queues {
                let event = device.p4(local).eq_next(*eq)?;
                next = [next, event].into_iter().flatten().min();
            }
            Ok(next)
        })?;
        self.nic.idle(next, wanted);
        self.nic.notice_losses();
        Ok(())
    }

    // Counting events.

    /// `PtlCTAlloc`: a counting event, at zero.
    ///
    /// # Errors
    /// [`P4Error::NoSpace`].
    pub fn ct_alloc(&self) -> Result<CtHandle, P4Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p4(local).ct_alloc())
    }

    /// `PtlCTFree`: a counting event ends, with the commands that wait for it.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn ct_free(&self, ct: CtHandle) -> Result<(), P4Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p4(local).ct_free(ct))
    }

    /// `PtlCTCancelTriggered`: forgets the commands that wait for a counter; returns how many.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn ct_cancel_triggered(&self, ct: CtHandle) -> Result<u32, P4Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p4(local).ct_cancel(ct))
    }

    /// `PtlCTGet`: a counter's value.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn ct_get(&self, ct: CtHandle) -> Result<CtEvent, P4Error> {
        self.look();
        self.nic.unit(|device, _, local| device.p4(local).ct(ct).map(|counter| counter.value()))
    }

    /// `PtlCTWait`: waits until a counter's successes reach a number, or it has counted a failure.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn ct_wait(&self, ct: CtHandle, test: u64) -> Result<CtEvent, P4Error> {
        self.ct_poll(&[(ct, test)], None).map(|(value, _)| value)
    }

    /// `PtlCTPoll`: waits until the successes of one of some counters reach its number, or it has counted a
    /// failure, or until a time. Returns also which it was.
    ///
    /// # Errors
    /// [`P4Error::CtNoneReached`] at that time, [`P4Error::ArgInvalid`].
    pub fn ct_poll(
        &self,
        counters: &[(CtHandle, u64)],
        until: Option<Instant>,
    ) -> Result<(CtEvent, usize), P4Error> {
        loop {
            for (which, (ct, test)) in counters.iter().enumerate() {
                let value = self.ct_get(*ct)?;
                if value.success >= *test || value.failure != 0 {
                    return Ok((value, which));
                }
            }
            if until.is_some_and(|until| until <= self.nic.now()) {
                return Err(P4Error::CtNoneReached);
            }
            self.idle(&[], until, WaitFor::Named("a counter"))?;
        }
    }

    /// `PtlCTSet`: gives a counter a value.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn ct_set(&self, ct: CtHandle, value: CtEvent) -> Result<(), P4Error> {
        self.list();
        self.nic.unit(|device, port, local| device.p4_execute(local, &Command::CtSet(ct, value), port))
    }

    /// `PtlCTInc`: adds to a counter: successes or failures, not both.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn ct_inc(&self, ct: CtHandle, by: CtEvent) -> Result<(), P4Error> {
        if by.success != 0 && by.failure != 0 {
            let (what, value) = ("increment", by.failure);
            return Err(P4Error::ArgInvalid { what, value, limit: "of successes or of failures" });
        }
        self.list();
        self.nic.unit(|device, port, local| device.p4_execute(local, &Command::CtInc(ct, by), port))
    }
}

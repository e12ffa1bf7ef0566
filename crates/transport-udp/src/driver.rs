//! What a machine needs from the world: time, a wire, and a place to wait. Sockets are one such world, the
//! simulated fabric is another; [`MachineTransport`](crate::MachineTransport) makes a transport of either.

use crate::proto::{BorrowedPayload, Machine};
use am_core::arguments::Words;
use am_core::transport::{
    LossCause, Notify, PeerStatus, PendingKey, Refused, ReplyPath, RequestHeader, Sink, WaitReason,
};
use am_core::{Instant, Peer, Rank, Span};
use std::task::Waker;

/// The world around the machine of one endpoint.
pub trait Driver {
    /// Works on the machine at the present moment.
    fn with<R>(&mut self, work: impl FnOnce(&mut Machine, Instant) -> R) -> R;

    /// Why the endpoint can be used no more, if that is so. Then everybody counts as lost for this reason, and
    /// nothing else of the driver is called. Asked before every call, so it has to be cheap.
    #[inline]
    fn failure(&self) -> Option<LossCause> {
        None
    }

    /// Looks at the machine, without letting time pass.
    fn look<R>(&self, work: impl FnOnce(&Machine) -> R) -> R;

    /// The time now.
    fn now(&self) -> Instant;

    /// Accounts for computation.
    fn charge(&mut self, cost: Span) {
        let _ = cost;
    }

    /// Size in bytes of a rank's segment, as the job was told at its start.
    fn segment_len(&self, rank: Rank) -> u64;

    /// A message has been accepted. It need not leave at once, but must without further calls: small messages that
    /// are sent one after the other share datagrams.
    fn accepted(&mut self);

    /// Sends a Short request, as [`Machine::request`] does, and tells that it was [accepted](Driver::accepted). A
    /// driver that others share the machine with may keep messages that it is bound to take until the machine is
    /// used next, by whomever.
    fn short(&mut self, to: Peer, head: RequestHeader, args: &Words) -> Result<(), Refused> {
        let accepted = self.with(|machine, now| machine.request(now, to, head, args, None));
        // A refusal may have begun a handshake, which has to leave, too.
        self.accepted();
        accepted
    }

    /// Takes in what has arrived and lets time act on the machine. Does not block.
    fn take_in(&mut self);

    /// Sends what the machine wants to send at this moment, of a payload that is lent, too. Does not block.
    fn send_out(&mut self, lent: Option<BorrowedPayload<'_>>);

    /// Takes in, works, and sends out.
    fn round<R>(&mut self, lent: Option<BorrowedPayload<'_>>, work: impl FnOnce(&mut Machine, Instant) -> R) -> R {
        self.take_in();
        let result = self.with(work);
        self.send_out(lent);
        result
    }

    /// Takes in, delivers at most `budget` messages to the sink, and sends out; returns how many. Handlers run
    /// within: an implementation whose machine others drive, too, must hold nothing that they need meanwhile.
    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        self.round(None, |machine, now| machine.poll(now, budget, sink))
    }

    /// Opens the way back of a detached request, as [`Machine::answer`] does. Code of the program runs within, as
    /// in [`Driver::poll`].
    fn answer<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        self.with(|machine, now| machine.answer(now, key, reply))
    }

    /// Waits until something may have changed, or until `until`; at once if something has since the last call.
    fn idle(&mut self, until: Option<Instant>, reason: WaitReason);

    /// Whether the next idling of a wait that has just begun only spins.
    fn spins(&self) -> bool {
        false
    }

    /// Drives the machine without further calls, and calls `waker` once when something may have come for the
    /// program.
    fn notify(&mut self, waker: &Waker) -> Notify {
        let _ = waker;
        Notify::Never
    }

    /// What is known of a peer, from whatever source.
    fn status(&self, peer: Peer) -> PeerStatus {
        self.look(|machine| machine.status(peer))
    }

    /// How many peers have been lost. Called at every poll.
    fn losses(&self) -> u32 {
        self.look(Machine::losses)
    }

    /// The machine has been told to take leave. Sees to it that what it still has to send is sent, within reason.
    fn depart(&mut self);
}

//! What endpoints agree on among themselves: the barrier, and at attach that their handler tables are equal.
//!
//! Both run over control messages, which need no handler. The barrier is the dissemination barrier of Hensgen,
//! Finkel and Manber (1988): in round `k` everyone tells the endpoint `2^k` places on, so that `ceil(log2 n)`
//! rounds suffice. Each round carries two numbers whose minima over all endpoints come out at the end.

use super::Endpoint;
use crate::address::{Address, Peer, Shape};
use crate::arguments::{Words, encode};
use crate::error::{AttachError, PollError, WaitError};
use crate::handlers::first_difference;
use crate::payload::Payload;
use crate::transport::{LossCause, PeerStatus, Refused, Transport, WaitReason};
use std::collections::VecDeque;
use std::ops::ControlFlow;

const BARRIER: u32 = 1;
const TABLE: u32 = 2;
const ROUNDS: usize = 32;
/// The longest description of a table that is sent, and accepted from a peer. Tables that differ behind it alone
/// are known to differ, not where.
const MAX_DESCRIPTION: usize = 1 << 18;

/// Two numbers that a barrier reduces to their minima.
pub(crate) type Minima = [u64; 2];

/// What a barrier brings. What else has to be agreed on brings no 0 as its first number, so that both sides of a
/// mismatch see it.
const OF_BARRIER: Minima = [0, u64::MAX];

/// A barrier under way.
pub(crate) struct Dissemination {
    /// The minima so far.
    all: Minima,
    round: u32,
    /// Whether this round's message has been sent.
    sent: bool,
}

impl Dissemination {
    /// One that agrees on nothing.
    pub(crate) fn barrier() -> Self {
        Self::new(OF_BARRIER)
    }

    pub(crate) fn new(mine: Minima) -> Self {
        Self { all: mine, round: 0, sent: false }
    }
}

/// A description of a handler table, which arrives in parts and in any order.
struct Description {
    bytes: Vec<u8>,
    missing: usize,
}

/// What has arrived of the control messages.
pub(super) struct Control {
    rounds: u32,
    /// The barrier that is under way or comes next; its parity tells messages of neighbouring barriers apart.
    generation: u32,
    /// The round being waited for, while waiting.
    waiting: Option<u32>,
    arrived: [[Option<Minima>; ROUNDS]; 2],
    /// Descriptions sent by two ranks whose tables differ.
    descriptions: [Option<Description>; 2],
}

impl Control {
    pub(super) fn new(peers: u32) -> Self {
        Self {
            rounds: peers.next_power_of_two().trailing_zeros(),
            generation: 0,
            waiting: None,
            arrived: [[None; ROUNDS]; 2],
            descriptions: [None, None],
        }
    }

    /// Takes in a control message. Anything that makes no sense is ignored. Ranks trust each other: one that sends
    /// a round in another's name ends a barrier too early.
    pub(super) fn receive(&mut self, args: &Words, payload: Payload<'_>) {
        let word = |index| args.word(index).unwrap_or(0);
        let long = |index| u64::from(word(index)) | u64::from(word(index + 1)) << 32;
        match word(0) {
            BARRIER if args.len() == 7 => {
                if let Some(slot) = self.arrived[(word(1) & 1) as usize].get_mut(word(2) as usize) {
                    *slot = Some([long(3), long(5)]);
                }
            }
            TABLE if args.len() == 4 => {
                let (which, total, at) = ((word(1) & 1) as usize, word(2) as usize, word(3) as usize);
                if total > MAX_DESCRIPTION {
                    return;
                }
                let fresh = || Description { bytes: vec![0; total], missing: total };
                let Description { bytes, missing } = self.descriptions[which].get_or_insert_with(fresh);
                let part = at.checked_add(payload.len()).and_then(|end| bytes.get_mut(at..end));
                if let Some(part) = part {
                    part.copy_from_slice(&payload.to_vec());
                    *missing = missing.saturating_sub(payload.len());
                }
            }
            _ => {}
        }
    }

    fn description_complete(&self, which: usize) -> bool {
        self.descriptions[which].as_ref().is_some_and(|description| description.missing == 0)
    }

    /// Whose message a barrier under way waits for.
    pub(super) fn awaited(&self, me: Peer, shape: Shape) -> Option<(Address, String)> {
        let round = self.waiting?;
        let barrier = match self.generation {
            0 => "the comparison of handler tables at attach".into(),
            generation => format!("barrier {generation}"),
        };
        let what = format!("{barrier}, round {} of {}", round + 1, self.rounds);
        Some((shape.address(source(me, round, shape)), what))
    }
}

/// Whose message round `round` of a barrier brings.
fn source(me: Peer, round: u32, shape: Shape) -> Peer {
    let peers = u64::from(shape.peers());
    Peer(((u64::from(me.0) + peers - (1 << round) % peers) % peers) as u32)
}

impl<T: Transport, S> Endpoint<T, S> {
    /// Waits until every endpoint of the job has come here; serves incoming messages meanwhile. Requests sent
    /// before the barrier need not have been handled when it ends. Collective; blocks; does not allocate.
    ///
    /// # Errors
    /// A lost rank, even an acknowledged one, or one that has left by itself, since it cannot come any more;
    /// [`WaitError::OtherCall`]; a bad message; a time-out (its report names the endpoint that nothing was heard
    /// from). The barrier cannot be used afterwards. An error of a handler that ran meanwhile does not end the
    /// barrier: the next poll or wait returns it.
    pub fn barrier(&mut self) -> Result<(), WaitError> {
        let all = self.minima(OF_BARRIER)?;
        self.is_barrier(all)
    }

    /// Waits until no endpoint has a request under way or a layer with work left: what [`Endpoint::drain`] and
    /// then [`Endpoint::barrier`] tell where there are no layers, whose progress may send anew. Collective;
    /// blocks; does not allocate. It never ends while some layer goes on by itself.
    ///
    /// # Errors
    /// As [`Endpoint::drain`] and [`Endpoint::barrier`].
    pub fn quiesce(&mut self) -> Result<(), WaitError> {
        let mut last = None;
        loop {
            self.drain()?;
            let now = self.activity();
            // Nothing moved anywhere between two reductions, and all that was sent before each had been handled by
            // then.
            let still = u64::from(last == Some(now) && !self.schedule.work_left());
            last = Some(now);
            match self.minima([1 + still, 0])?[0] {
                0 => return Err(WaitError::OtherCall),
                1 => {}
                _ => {
                    self.count_barrier();
                    return Ok(());
                }
            }
        }
    }

    /// Messages sent and handled so far.
    fn activity(&self) -> (u64, u64, u64, u64) {
        let stats = &self.sender.stats;
        let replies = stats.replies_received.iter().map(|traffic| traffic.messages).sum();
        (stats.total_sent(), stats.total_received(), stats.replies_sent, replies)
    }

    /// Bounds the replies of handlers that allow the largest ones by what every endpoint's transport carries.
    pub(super) fn agree_on_bounds(&mut self) -> Result<(), AttachError> {
        let Some(largest) = self.sender.directory.largest() else { return Ok(()) };
        let [largest, _] = self.minima([largest.into(), u64::MAX])?;
        let bytes = u32::try_from(largest).unwrap_or(u32::MAX);
        self.sender.directory.bound_largest(bytes);
        for handler in self.sender.directory.with_largest() {
            self.table.requests[usize::from(*handler)].set_bound(bytes);
        }
        Ok(())
    }

    /// A barrier that finds the smallest of each of two numbers over all endpoints: what a layer needs to agree on
    /// sizes. The complement of a number yields its largest. An [`Endpoint::barrier`] that it meets brings 0 and
    /// `u64::MAX`, and fails with [`WaitError::OtherCall`] if other numbers come out. Collective; blocks; does not
    /// allocate.
    ///
    /// ```
    /// # use am_core::{Endpoint, Handlers, loopback};
    /// # let mut endpoint = Endpoint::attach(loopback::single(), Handlers::<()>::new(), ()).unwrap();
    /// let size = 40; let [smallest, largest] = endpoint.minima([size, !size])?;
    /// assert_eq!((smallest, !largest), (40, 40), "all endpoints say the same");
    /// # Ok::<(), am_core::WaitError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Endpoint::barrier`].
    pub fn minima(&mut self, mine: Minima) -> Result<Minima, WaitError> {
        let (mut barrier, mut deferred) = (Dissemination::new(mine), VecDeque::new());
        let outcome = loop {
            let step = match self.barrier_step(&mut barrier) {
                Ok(ControlFlow::Break(all)) => break Ok(all),
                Ok(ControlFlow::Continue(reason)) => self.wait_step(None, reason),
                Err(error) => Err(error),
            };
            if let Err(error) = step.or_else(|error| self.past_barrier(error, &barrier, &mut deferred)) {
                break Err(error);
            }
        };
        self.end_barrier(&outcome, deferred);
        outcome
    }

    /// Carries a barrier on as far as it goes without waiting: what comes out of it, or what it waits for.
    pub(crate) fn barrier_step(
        &mut self,
        barrier: &mut Dissemination,
    ) -> Result<ControlFlow<Minima, WaitReason>, WaitError> {
        let (parity, shape, me) = (self.control.generation & 1, self.sender.shape, self.transport.local_peer());
        while barrier.round < self.control.rounds {
            let round = barrier.round;
            let (from, index) = (source(me, round, shape), [parity as usize, round as usize]);
            if !barrier.sent {
                self.nobody_lost()?;
                let to = Peer(((u64::from(me.0) + (1 << round)) % u64::from(shape.peers())) as u32);
                let words = encode(&([BARRIER, parity, round], barrier.all[0], barrier.all[1]));
                match self.transport.control(to, &words, &[]) {
                    Ok(()) => {}
                    Err(Refused::Busy(resource)) => {
                        self.note_blocked(shape.address(to), resource);
                        return Ok(ControlFlow::Continue(WaitReason::Room(to, resource)));
                    }
                    Err(Refused::Gone(status)) => {
                        // Those who left because of a loss are not its cause.
                        self.nobody_lost()?;
                        // The transport may know of a loss that it has not counted yet.
                        let cause = if let PeerStatus::Lost(cause) = status { cause } else { LossCause::Left };
                        return Err(PollError::PeerLost { rank: shape.address(to).rank, cause }.into());
                    }
                }
                (barrier.sent, self.control.waiting) = (true, Some(round));
            }
            let Some(theirs) = self.control.arrived[index[0]][index[1]].take() else {
                self.nobody_lost()?;
                self.may_come(from, index)?;
                if self.control.arrived[index[0]][index[1]].is_none() {
                    return Ok(ControlFlow::Continue(WaitReason::Collective(from)));
                }
                continue;
            };
            barrier.all = [barrier.all[0].min(theirs[0]), barrier.all[1].min(theirs[1])];
            (barrier.round, barrier.sent) = (round + 1, false);
            self.end_wait();
        }
        Ok(ControlFlow::Break(barrier.all))
    }

    /// Whether a barrier goes on after an error that a step of it met. Errors that do not end it are `deferred`,
    /// the first of messages and the first of layers; the next poll tells again of a loss that does not.
    ///
    /// # Errors
    /// The error, if it ends the barrier.
    pub(crate) fn past_barrier(
        &mut self,
        error: WaitError,
        barrier: &Dissemination,
        deferred: &mut VecDeque<PollError>,
    ) -> Result<(), WaitError> {
        let parity = (self.control.generation & 1) as usize;
        let arrived = || self.control.arrived[parity].get(barrier.round as usize).is_some_and(Option::is_some);
        match error {
            // The other endpoints have come in vain if this one stops halfway.
            WaitError::Poll(error @ (PollError::Handler { .. } | PollError::Progress(_))) => error.keep(deferred),
            error if !barrier.sent || !arrived() => return Err(error),
            // What the lost rank sent before it went may have arrived together with the news.
            WaitError::Poll(PollError::PeerLost { .. }) => self.report_loss_again(),
            WaitError::TimedOut(_) | WaitError::OtherCall => {}
            WaitError::Poll(error) => error.keep(deferred),
        }
        Ok(())
    }

    /// Ends a barrier, so that the next one can begin if it came to its end.
    pub(crate) fn end_barrier(&mut self, outcome: &Result<Minima, WaitError>, deferred: VecDeque<PollError>) {
        self.control.waiting = None;
        self.end_wait();
        deferred.into_iter().for_each(|error| error.keep(&mut self.trouble));
        if outcome.is_ok() {
            self.control.generation = self.control.generation.wrapping_add(1);
        }
    }

    /// Counts a barrier that has come to its end, if it was one at all endpoints.
    pub(crate) fn is_barrier(&mut self, all: Minima) -> Result<(), WaitError> {
        if all != OF_BARRIER {
            return Err(WaitError::OtherCall);
        }
        self.count_barrier();
        Ok(())
    }

    fn count_barrier(&mut self) {
        self.sender.stats.barriers += 1;
    }

    /// Fails if any rank is lost, acknowledged or not.
    fn nobody_lost(&mut self) -> Result<(), WaitError> {
        if self.transport.losses() == 0 {
            return Ok(());
        }
        let Some((rank, cause)) = self.root_loss(|_| true) else { return Ok(()) };
        self.transport.loss_told = true;
        self.sender.tell_loss(rank);
        Err(PollError::PeerLost { rank, cause }.into())
    }

    /// Fails if a peer has left by itself. What it sent before has been served then.
    fn may_come(&mut self, peer: Peer, [parity, round]: [usize; 2]) -> Result<(), WaitError> {
        if self.transport.status(peer) != PeerStatus::Finished {
            return Ok(());
        }
        if self.control.arrived[parity][round].is_none() {
            self.poll_until_empty()?;
        }
        if self.control.arrived[parity][round].is_some() {
            return Ok(());
        }
        let rank = self.sender.shape.address(peer).rank;
        self.transport.loss_told = true;
        self.sender.tell_loss(rank);
        Err(PollError::PeerLost { rank, cause: LossCause::Left }.into())
    }

    /// Checks that all endpoints registered the same handlers; otherwise every endpoint gets an error that names
    /// the first difference between the lowest endpoint of each of two tables.
    pub(super) fn compare_tables(&mut self, fingerprint: u64, description: &str) -> Result<(), AttachError> {
        // The tables are equal exactly if the smallest fingerprint is also the largest.
        let [least, complement] = self.minima([fingerprint, !fingerprint])?;
        if least == !complement {
            return Ok(());
        }
        let me = self.transport.local_peer();
        let index = u64::from(me.0);
        let mine = if fingerprint == least { [index, u64::MAX] } else { [u64::MAX, index] };
        let speakers = self.minima(mine)?.map(|index| Peer(index as u32));
        for (which, speaker) in speakers.into_iter().enumerate() {
            if speaker == me {
                self.tell_table(which as u32, description)?;
            }
        }
        for which in 0..2 {
            self.wait_while(None, |_, control| !control.description_complete(which))?;
        }
        self.minima([u64::MAX; 2])?;
        let texts = [0, 1].map(|which: usize| {
            let bytes = self.control.descriptions[which].take().map(|description| description.bytes);
            String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
        });
        let (index, in_a, in_b) = first_difference(&texts[0], &texts[1]).unwrap_or_else(|| {
            let behind = || format!("something else behind the first {} KiB of its table", MAX_DESCRIPTION >> 10);
            (texts[0].lines().count(), behind(), behind())
        });
        let [a, b] = speakers.map(|peer| self.sender.shape.address(peer));
        Err(AttachError::TablesDiffer { a, b, index, in_a, in_b })
    }

    /// Sends this endpoint's description to every endpoint, itself included.
    fn tell_table(&mut self, which: u32, description: &str) -> Result<(), AttachError> {
        let bytes = &description.as_bytes()[..description.len().min(MAX_DESCRIPTION)];
        let words = |at: usize| encode(&[TABLE, which, bytes.len() as u32, at as u32]);
        for peer in (0..self.sender.shape.peers()).map(Peer) {
            let chunk = self.transport.limits(peer).medium_request.clamp(1, 1024);
            if bytes.is_empty() {
                self.control_request(peer, &words(0), &[])?;
            }
            for (index, part) in bytes.chunks(chunk).enumerate() {
                self.control_request(peer, &words(index * chunk), part)?;
            }
        }
        Ok(())
    }
}

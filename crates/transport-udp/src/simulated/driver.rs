//! A rank's way to its machine and into the fabric.

use super::SimUdp;
use super::ethernet::HostCosts;
use super::node::{Debt, Node, to_itself};
use crate::driver::Driver;
use crate::machine_transport::MachineTransport;
use crate::proto::{BorrowedPayload, Machine};
use am_core::transport::{Departure, LossCause, PeerStatus, WaitReason};
use am_core::{Instant, Peer, Rank, Span};
use fabric_sim::Context;
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes that are handed over before they are sent without being asked for.
const BATCH: u64 = 16 * 1400;

/// What is the same for all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) costs: HostCosts,
    pub(super) segment_bytes: u64,
    pub(super) flush_after: Span,
    pub(super) launcher: bool,
}

/// The driver of a simulated rank.
#[derive(Debug)]
pub struct SimDriver<'a> {
    context: Context<'a, Node>,
    machine: Rc<RefCell<Machine>>,
    rules: Rules,
    silence: Span,
    /// What the machine had accepted when it was last looked at, and when all of that was last sent.
    accepted: u64,
    sent: u64,
    flushing: bool,
    losses: u32,
    buffer: Vec<u8>,
}

impl<'a> SimDriver<'a> {
    /// The transport of a rank.
    pub(super) fn join(context: Context<'a, Node>, rules: Rules) -> SimUdp<'a> {
        let rank = context.rank();
        let (machine, segment) = context.device(|node, _| {
            let seat = node.seat(rank);
            (Rc::clone(&seat.machine), seat.segment.clone())
        });
        let config = machine.borrow().config().clone();
        let driver = Self {
            context,
            machine,
            rules,
            silence: config.silence,
            accepted: 0,
            sent: 0,
            flushing: false,
            losses: 0,
            buffer: vec![0; usize::from(config.datagram_limit)],
        };
        let mut transport = MachineTransport::new(driver, &config, segment);
        transport.driver_mut().meet_itself(config.me);
        transport
    }

    /// Opens the session with itself, which takes nothing but a few datagrams to and fro at once.
    fn meet_itself(&mut self, me: Peer) {
        self.with(|machine, now| machine.connect(now, me));
        self.send_out(None);
    }

    /// The rank's handle to the simulation.
    pub fn context(&self) -> &Context<'a, Node> {
        &self.context
    }

    /// Takes over what the job's launcher knows: ranks whose host has stopped, and ranks that left without having
    /// had a session with this one. The others tell it themselves, after everything that they had sent.
    fn note_departures(&mut self) {
        if !self.rules.launcher || self.context.losses() == self.losses {
            return;
        }
        self.losses = self.context.losses();
        let (now, mut machine) = (self.context.now(), self.machine.borrow_mut());
        for rank in 0..self.context.ranks() {
            let (peer, status) = (Peer(rank), self.context.known_status(rank));
            let told = status == PeerStatus::Lost(LossCause::Died) || !machine.is_connected(peer);
            if matches!(status, PeerStatus::Lost(_)) && told {
                machine.declare(now, peer, status);
            }
        }
    }
}

impl Driver for SimDriver<'_> {
    fn with<R>(&mut self, work: impl FnOnce(&mut Machine, Instant) -> R) -> R {
        self.context.sync();
        let now = self.context.now();
        work(&mut self.machine.borrow_mut(), now)
    }

    fn look<R>(&self, work: impl FnOnce(&Machine) -> R) -> R {
        work(&self.machine.borrow())
    }

    fn now(&self) -> Instant {
        self.context.now()
    }

    fn charge(&mut self, cost: Span) {
        self.context.charge(cost);
        // Others and this rank's own machine go on meanwhile, also for programs that compute and never poll.
        self.context.sync();
    }

    fn segment_len(&self, _: Rank) -> u64 {
        self.rules.segment_bytes
    }

    fn accepted(&mut self) {
        self.context.charge(self.rules.costs.message);
        let (accepted, ready) = self.look(|machine| (machine.accepted_bytes(), machine.has_ready()));
        // After a refusal nothing may happen before the program has looked at why, unless it began a handshake.
        if accepted == std::mem::replace(&mut self.accepted, accepted) && !ready {
            return;
        }
        if accepted - self.sent >= BATCH {
            self.send_out(None);
        } else if !self.flushing {
            self.flushing = true;
            let (rank, at) = (self.context.rank(), self.context.now() + self.rules.flush_after);
            self.context.device(|node, port| node.flush_by(rank, at, port));
        }
    }

    fn take_in(&mut self) {
        let rank = self.context.rank();
        let Debt { received, sent } = self.context.device(|node, _| std::mem::take(&mut node.seat(rank).debt));
        let costs = &self.rules.costs;
        let look = if received.0 == 0 { costs.empty } else { costs.row_of(costs.receive, received.0, received.1) };
        self.context.charge(look);
        self.context.charge(costs.row_of(costs.send, sent.0, sent.1));
        self.context.sync();
        self.note_departures();
    }

    fn send_out(&mut self, lent: Option<BorrowedPayload<'_>>) {
        let rank = self.context.rank();
        self.flushing = false;
        loop {
            self.context.sync();
            let now = self.context.now();
            let (mut row, mut bytes, mut to_self) = (Vec::new(), 0, false);
            {
                let mut machine = self.machine.borrow_mut();
                self.sent = machine.accepted_bytes();
                while row.len() < self.rules.costs.row as usize {
                    let Some((to, len)) = machine.transmit_lent(now, lent, &mut self.buffer) else { break };
                    bytes += len as u64;
                    if to.0 == rank {
                        to_itself(&mut machine, now, &mut self.buffer[..len]);
                        to_self = true;
                        continue;
                    }
                    row.push((to, self.buffer[..len].to_vec()));
                }
            }
            if bytes == 0 {
                break;
            }
            self.context.charge(self.rules.costs.row_of(self.rules.costs.send, row.len().max(1) as u64, bytes));
            self.context.device(|_, port| {
                if to_self {
                    port.wake(rank);
                }
                row.into_iter().for_each(|(to, bytes)| port.send(rank, to.0, bytes.len() as u32, bytes));
            });
        }
        self.context.device(|node, port| node.sent_out(rank, port));
    }

    fn idle(&mut self, until: Option<Instant>, reason: WaitReason) {
        self.context.idle(until, reason);
    }

    fn status(&self, peer: Peer) -> PeerStatus {
        let machine = self.machine.borrow();
        match machine.status(peer) {
            // There is no session by which it could have told.
            PeerStatus::Active if self.rules.launcher && !machine.is_connected(peer) => {
                match self.context.known_status(peer.0) {
                    PeerStatus::Finished => PeerStatus::Finished,
                    _ => PeerStatus::Active,
                }
            }
            known => known,
        }
    }

    fn depart(&mut self) {
        self.send_out(None);
        let status = match self.look(Machine::departing) {
            Some(Departure::Finished) => PeerStatus::Finished,
            Some(Departure::Panicked) => PeerStatus::Lost(LossCause::Panicked),
            Some(Departure::Left) | None => PeerStatus::Lost(LossCause::Left),
        };
        let (rank, until) = (self.context.rank(), self.context.now() + self.silence);
        self.context.device(|node, port| node.leave(rank, status, until, port));
    }
}

//! A network of nodes that embed the credit machines as a conduit would: one wire per ordered pair, a receive
//! space that the "hardware" fills before any software looks, handlers that take their time. Nothing happens by
//! itself: a scheduler picks one [`Action`] after the other, and after each of them all invariants are checked.

use am_core::Peer;
use portals_sim::credit::{Bank, Borrower, CreditReturn, CreditUse, LoanConfig, Revoke, Surrender};
use std::collections::VecDeque;

/// One request that some node wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) cost: u32,
}

/// One step of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// A node tries to send its oldest queued request to another.
    Send { from: usize, to: usize },
    /// The `nth` message of a wire arrives (always the first, unless the test allows overtaking).
    Deliver { from: usize, to: usize, nth: usize },
    /// A node polls: the oldest deposited request is accepted and its handler starts.
    Accept { at: usize },
    /// A handler ends, its receive space is free, and its request's answer leaves.
    Finish { at: usize, nth: usize },
    /// A node sends one revocation.
    Revoke { at: usize },
    /// A node stops for good.
    Kill { node: usize },
    /// A node learns that another has stopped.
    Detect { at: usize, dead: usize },
}

/// A deliberate mistake in the conduit or the machines, to show that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    None,
    /// The first grant on the wire is one credit more than the bank knows.
    GrantOneMore,
    /// The borrower keeps what it has surrendered.
    ForgetSurrender,
    /// Credits go back when the handler starts, while its request still occupies the space.
    ReleaseEarly,
    /// An answer loses the credits it should return.
    DropReturn,
    /// A node with a request that waits for credit does not serve its own arrivals.
    WaitWithoutServing,
    /// A lost peer's credits are lent again although its requests still occupy the space.
    ForgetOccupiedSpace,
}

/// Which invariants are checked; mutations switch some off to see what the others notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Checks {
    pub(crate) conservation: bool,
    pub(crate) space: bool,
    /// Whether an error value of the machines counts; if not, the message is dropped.
    pub(crate) errors: bool,
}

impl Checks {
    pub(crate) const ALL: Self = Self { conservation: true, space: true, errors: true };
    pub(crate) const SPACE: Self = Self { conservation: false, space: true, errors: false };
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Credits were made or lost.
    Conservation(String),
    /// More was deposited than the receive space holds.
    Overflow(String),
    /// A machine refused a message although everybody behaved.
    Refused(String),
    /// Credit was revoked from a peer that must be left alone.
    Policy(String),
    /// Nothing can happen any more and a request is still waiting.
    Deadlock(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    Request(CreditUse),
    CreditReturn(CreditReturn),
    Revoke(Revoke),
    Surrender(Surrender),
}

/// A request in a node's receive space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Arrival {
    pub(crate) from: usize,
    pub(crate) charge: CreditUse,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) bank: Bank,
    /// This node's loan from each node, itself included.
    pub(crate) borrowers: Vec<Borrower>,
    pub(crate) queues: Vec<VecDeque<Request>>,
    /// Deposited, not yet polled; and those whose handler runs.
    pub(crate) deposited: VecDeque<Arrival>,
    pub(crate) running: Vec<Arrival>,
    pub(crate) alive: bool,
    /// Which peers this node knows to be lost.
    pub(crate) lost: Vec<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Net {
    pub(crate) nodes: Vec<Node>,
    wires: Vec<VecDeque<Message>>,
    pub(crate) fault: Fault,
    pub(crate) checks: Checks,
    /// Whether messages of one wire may overtake each other.
    pub(crate) overtaking: bool,
    /// Nodes that a scheduler may still stop.
    pub(crate) mortal: Vec<usize>,
}

impl Net {
    /// `config.peers` nodes, each with a bank of this configuration and a queue of what it wants to send.
    pub(crate) fn new(config: &LoanConfig, requests: &[Request]) -> Self {
        let n = config.peers as usize;
        let node = |me: usize| {
            let config = LoanConfig::clone(config);
            let mut own = config.clone();
            own.me = Some(peer(me));
            let mut queues = vec![VecDeque::new(); n];
            for request in requests.iter().filter(|request| request.from == me) {
                queues[request.to].push_back(*request);
            }
            Node {
                bank: Bank::new(&own).expect("the test's configuration is valid"),
                borrowers: vec![Borrower::new(&config).expect("the test's configuration is valid"); n],
                queues,
                deposited: VecDeque::new(),
                running: Vec::new(),
                alive: true,
                lost: vec![false; n],
            }
        };
        Self {
            nodes: (0..n).map(node).collect(),
            wires: vec![VecDeque::new(); n * n],
            fault: Fault::None,
            checks: Checks::ALL,
            overtaking: false,
            mortal: Vec::new(),
        }
    }

    pub(crate) fn wire(&self, from: usize, to: usize) -> &VecDeque<Message> {
        &self.wires[from * self.nodes.len() + to]
    }

    /// Everything that may be tried now; some of it may turn out to do nothing.
    pub(crate) fn candidates(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        let n = self.nodes.len();
        for (at, node) in self.nodes.iter().enumerate() {
            for other in 0..n {
                let messages = self.wire(at, other).len();
                let choices = if self.overtaking { messages } else { messages.min(1) };
                actions.extend((0..choices).map(|nth| Action::Deliver { from: at, to: other, nth }));
            }
            if !node.alive {
                actions.extend(
                    (0..n)
                        .filter(|&a| self.nodes[a].alive && !self.nodes[a].lost[at])
                        .map(|a| Action::Detect { at: a, dead: at }),
                );
                continue;
            }
            let waiting = (0..n).filter(|&to| !node.queues[to].is_empty());
            actions.extend(waiting.map(|to| Action::Send { from: at, to }));
            if self.fault != Fault::WaitWithoutServing || node.queues.iter().all(VecDeque::is_empty) {
                if !node.deposited.is_empty() {
                    actions.push(Action::Accept { at });
                }
                actions.extend((0..node.running.len()).map(|nth| Action::Finish { at, nth }));
            }
            if (0..n).any(|p| node.bank.loan(peer(p)).is_some_and(|loan| loan.revoking > 0)) {
                actions.push(Action::Revoke { at });
            }
        }
        actions.extend(self.mortal.iter().map(|&node| Action::Kill { node }));
        actions
    }

    /// Performs one action and checks all invariants. Returns whether anything has changed.
    pub(crate) fn apply(&mut self, action: Action) -> Result<bool, Violation> {
        let changed = self.perform(action)?;
        self.check()?;
        Ok(changed)
    }

    /// Performs one action. Returns whether anything has changed.
    pub(crate) fn perform(&mut self, action: Action) -> Result<bool, Violation> {
        match action {
            Action::Send { from, to } => Ok(self.send(from, to)),
            Action::Deliver { from, to, nth } => self.deliver(from, to, nth),
            Action::Accept { at } => self.accept(at),
            Action::Finish { at, nth } => self.finish(at, nth),
            Action::Revoke { at } => self.revoke(at),
            Action::Kill { node } => {
                self.mortal.retain(|&mortal| mortal != node);
                self.nodes[node].alive = false;
                Ok(true)
            }
            Action::Detect { at, dead } => self.detect(at, dead),
        }
    }

    fn send(&mut self, from: usize, to: usize) -> bool {
        let node = &mut self.nodes[from];
        let Some(&request) = node.queues[to].front() else { return false };
        let borrower = &mut node.borrowers[to];
        let before = borrower.wanting();
        match borrower.take(request.cost) {
            Ok(charge) => {
                node.queues[to].pop_front();
                self.put(from, to, Message::Request(charge));
                true
            }
            // The shortage that was noted is the only possible change.
            Err(_) => node.borrowers[to].wanting() != before,
        }
    }

    fn deliver(&mut self, from: usize, to: usize, nth: usize) -> Result<bool, Violation> {
        let n = self.nodes.len();
        let Some(message) = self.wires[from * n + to].remove(nth) else { return Ok(false) };
        let errors = self.checks.errors;
        let forget = self.fault == Fault::ForgetSurrender;
        let node = &mut self.nodes[to];
        if !node.alive {
            return Ok(true);
        }
        if node.lost[from] {
            late(node, from, message)?;
            return Ok(true);
        }
        match message {
            // The receive space is filled by hardware: no machine is asked.
            Message::Request(charge) => node.deposited.push_back(Arrival { from, charge }),
            Message::CreditReturn(message) => refused(errors, node.borrowers[from].accept(message))?,
            Message::Surrender(message) => refused(errors, node.bank.surrendered(peer(from), message))?,
            Message::Revoke(message) => {
                let before = node.borrowers[from].clone();
                let answer = node.borrowers[from].honour(message);
                if forget {
                    node.borrowers[from] = before;
                }
                let answer = answer.expect("the target is not lost");
                self.put(to, from, Message::Surrender(answer));
            }
        }
        Ok(true)
    }

    fn accept(&mut self, at: usize) -> Result<bool, Violation> {
        let node = &mut self.nodes[at];
        let Some(arrival) = node.deposited.pop_front() else { return Ok(false) };
        let from = peer(arrival.from);
        let accepted = node.bank.arrive(from, arrival.charge);
        refused(self.checks.errors, accepted)?;
        if accepted.is_ok() && self.fault == Fault::ReleaseEarly {
            refused(self.checks.errors, node.bank.release(from, arrival.charge.cost))?;
        }
        if accepted.is_ok() {
            node.running.push(arrival);
        }
        Ok(true)
    }

    fn finish(&mut self, at: usize, nth: usize) -> Result<bool, Violation> {
        let node = &mut self.nodes[at];
        if nth >= node.running.len() {
            return Ok(false);
        }
        let Arrival { from, charge } = node.running.remove(nth);
        if self.fault != Fault::ReleaseEarly && !(self.fault == Fault::ForgetOccupiedSpace && node.lost[from]) {
            refused(self.checks.errors, node.bank.release(peer(from), charge.cost))?;
        }
        if !node.lost[from] {
            let mut message = node.bank.settle(peer(from)).expect("the peer is known and not lost");
            if self.fault == Fault::DropReturn {
                message.credits = 0;
            }
            let message = self.returned(message);
            self.put(at, from, message);
        }
        Ok(true)
    }

    fn revoke(&mut self, at: usize) -> Result<bool, Violation> {
        let bank = &mut self.nodes[at].bank;
        let before = bank.clone();
        let Some((to, message)) = bank.next_revocation() else { return Ok(*bank != before) };
        let victim = before.loan(to).expect("revocations go to known peers");
        let min = bank.config().min;
        let allowed = to != peer(at) && !victim.lost && victim.loan - message.limit >= min;
        if !allowed || message.limit == 0 {
            return Err(Violation::Policy(format!("node {at} revokes {} from {to:?}: {victim:?}", message.limit)));
        }
        self.put(at, to.index(), Message::Revoke(message));
        Ok(true)
    }

    /// What a conduit does about a lost peer: the hardware already refuses its messages; what had been deposited
    /// is accepted (every second time) or dropped; then the machines are told.
    fn detect(&mut self, at: usize, dead: usize) -> Result<bool, Violation> {
        let node = &mut self.nodes[at];
        let (theirs, others): (Vec<_>, Vec<_>) =
            node.deposited.drain(..).partition(|arrival| arrival.from == dead);
        node.deposited = others.into();
        for arrival in theirs.into_iter().step_by(2) {
            refused(self.checks.errors, node.bank.arrive(peer(dead), arrival.charge))?;
            node.running.push(arrival);
        }
        let before = (node.bank.banked(), node.bank.loan(peer(dead)).expect("known"));
        let reclaimed = node.bank.lose(peer(dead)).expect("known");
        let again = node.bank.lose(peer(dead)).expect("known");
        if again != 0 || reclaimed != before.1.loan - before.1.inside {
            return Err(Violation::Conservation(format!("{reclaimed}, then {again} came back of {before:?}")));
        }
        if self.fault == Fault::ForgetOccupiedSpace {
            for arrival in node.running.iter().filter(|arrival| arrival.from == dead) {
                refused(self.checks.errors, node.bank.release(peer(dead), arrival.charge.cost))?;
            }
        }
        node.borrowers[dead].lose();
        node.queues[dead].clear();
        node.lost[dead] = true;
        Ok(true)
    }

    fn put(&mut self, from: usize, to: usize, message: Message) {
        let n = self.nodes.len();
        self.wires[from * n + to].push_back(message);
    }

    /// A return as it goes onto the wire.
    fn returned(&mut self, mut message: CreditReturn) -> Message {
        if self.fault == Fault::GrantOneMore && message.granted > 0 {
            message.granted += 1;
            self.fault = Fault::None;
        }
        Message::CreditReturn(message)
    }
}

/// Passes a lost peer's late message to the machines, which must refuse it and stay as they are.
fn late(node: &mut Node, from: usize, message: Message) -> Result<(), Violation> {
    let before = (node.bank.clone(), node.borrowers[from].clone());
    let refused = match message {
        Message::Request(charge) => node.bank.arrive(peer(from), charge).is_err(),
        Message::CreditReturn(message) => node.borrowers[from].accept(message).is_err(),
        Message::Revoke(message) => node.borrowers[from].honour(message).is_err(),
        Message::Surrender(message) => node.bank.surrendered(peer(from), message).is_err(),
    };
    if refused && before == (node.bank.clone(), node.borrowers[from].clone()) {
        return Ok(());
    }
    Err(Violation::Conservation(format!("a late message of the lost node {from} had an effect")))
}

fn refused<E: std::error::Error>(counts: bool, result: Result<(), E>) -> Result<(), Violation> {
    match result {
        Err(error) if counts => Err(Violation::Refused(error.to_string())),
        _ => Ok(()),
    }
}

pub(crate) fn peer(index: usize) -> Peer {
    Peer(u32::try_from(index).expect("small networks only"))
}

//! What must hold after every step, computed from the whole network's state and not from the machines' own sums.

use super::net::{Message, Net, Violation, peer};

impl Net {
    /// Checks every invariant that this network is set to check.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        for target in 0..self.nodes.len() {
            if self.checks.space {
                self.space(target)?;
            }
            if self.checks.conservation {
                self.total(target)?;
                for sender in 0..self.nodes.len() {
                    self.pair(target, sender)?;
                }
            }
        }
        Ok(())
    }

    /// Receive space of a node that is occupied, polled or not.
    pub(crate) fn occupied(&self, target: usize) -> u32 {
        let node = &self.nodes[target];
        node.deposited.iter().chain(&node.running).map(|arrival| arrival.charge.cost).sum()
    }

    fn space(&self, target: usize) -> Result<(), Violation> {
        let (occupied, total) = (self.occupied(target), self.nodes[target].bank.config().total);
        if occupied > total {
            return Err(Violation::Overflow(format!("{occupied} of {total} at node {target}")));
        }
        Ok(())
    }

    /// Loans and bank make the total.
    fn total(&self, target: usize) -> Result<(), Violation> {
        let bank = &self.nodes[target].bank;
        let loans: u32 = (0..self.nodes.len()).map(|sender| bank.loan(peer(sender)).expect("known").loan).sum();
        if loans + bank.banked() != bank.config().total {
            return Err(Violation::Conservation(format!("node {target}: loans {loans}, bank {}", bank.banked())));
        }
        Ok(())
    }

    /// The loan of one sender is what it holds and what travels; and what it counts as outstanding can be found.
    fn pair(&self, target: usize, sender: usize) -> Result<(), Violation> {
        let bank = &self.nodes[target].bank;
        let loan = bank.loan(peer(sender)).expect("known");
        let borrower = &self.nodes[sender].borrowers[target];
        let broken = |what: &str| {
            let state = format!("{what}: node {sender}'s loan from {target}: {loan:?}, {borrower:?}");
            Err(Violation::Conservation(state))
        };
        if loan.lost {
            return if loan.loan == loan.inside { Ok(()) } else { broken("a lost peer holds credit") };
        }
        let (min, cap) = (bank.config().min, bank.config().loan_cap);
        if loan.loan < min || loan.loan > cap {
            return broken("outside the limits");
        }
        if !self.nodes[sender].alive || !self.nodes[target].alive || borrower.is_lost() {
            return Ok(()); // Messages vanish until the survivor learns of it.
        }
        let (mut requests, mut surrendered, mut returned, mut granted) = (0, 0, 0, 0);
        for message in self.wire(sender, target) {
            match message {
                Message::Request(charge) => requests += charge.cost,
                Message::Surrender(message) => surrendered += message.credits,
                Message::CreditReturn(_) | Message::Revoke(_) => {}
            }
        }
        for message in self.wire(target, sender) {
            if let Message::CreditReturn(message) = message {
                returned += message.credits;
                granted += message.granted;
            }
        }
        let deposited = &self.nodes[target].deposited;
        let unpolled: u32 = deposited.iter().filter(|arrival| arrival.from == sender).map(|a| a.charge.cost).sum();
        if loan.loan != borrower.held() + surrendered + granted + loan.granted {
            return broken("loan = held + surrendered in flight + granted in flight or waiting");
        }
        if borrower.outstanding() != requests + unpolled + loan.inside + loan.owed + returned {
            return broken("outstanding = requests in flight + in the space + owed + returning");
        }
        Ok(())
    }

    /// When nothing can happen any more, nothing may be left to do.
    pub(crate) fn check_end(&self) -> Result<(), Violation> {
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            let waiting: usize = node.queues.iter().map(|queue| queue.len()).sum();
            if waiting + node.deposited.len() + node.running.len() > 0 {
                return Err(Violation::Deadlock(format!("node {at} has {waiting} requests waiting for credit")));
            }
        }
        Ok(())
    }

    /// Then every credit must be where both sides think it is; grants that wait for an answer are still the
    /// bank's.
    pub(crate) fn check_settled(&self) -> Result<(), Violation> {
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            for (to, borrower) in node.borrowers.iter().enumerate().filter(|(_, borrower)| !borrower.is_lost()) {
                let loan = self.nodes[to].bank.loan(peer(at)).expect("known");
                if borrower.outstanding() != 0 || borrower.held() + loan.granted != loan.loan {
                    return Err(Violation::Conservation(format!(
                        "at the end node {at} has {borrower:?} of {loan:?} at {to}"
                    )));
                }
            }
        }
        Ok(())
    }
}

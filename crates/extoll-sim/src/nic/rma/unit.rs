//! What the RMA unit of a node does for its processes.

use super::atu::{Access, AtuFault, Nla, PageSize, Registered, Wish};
use super::command_queue::{CommandQueue, Job, Order, Work};
use super::notification::{Command, Event, Notification, Notify, Queue};
use super::wire::{Message, Part};
use super::{Connection, Failure, Refusal, Region, RmaError};
use crate::nic::address::Address;
use crate::nic::channel::{Channel, Frame, Size, Wire};
use crate::nic::device::{Extoll, Open, Process};
use crate::nic::memory::Registrable;
use crate::nic::mutation::Mutation;
use fabric_sim::DeviceContext;
use std::collections::{BTreeMap, VecDeque};

/// The RMA port of a process: its queue, its commands, its locks.
pub(crate) struct Engine {
    state: Open,
    queue: Queue,
    /// Notifications that found the queue full. While there are any, the process's part of the unit stands still.
    overflow: VecDeque<Event>,
    /// What has arrived meanwhile, with the numbers of the channels.
    held: VecDeque<(u32, Message)>,
    /// Commands, and answers.
    pub(crate) command_queues: [CommandQueue; 2],
    connections: Vec<Option<(u32, u32)>>,
    locks: BTreeMap<u32, i32>,
    /// Per channel: the operation whose remaining parts are dropped.
    failing: BTreeMap<u32, u32>,
    failure: Option<Failure>,
    /// Commands of this process that others refused.
    refusals: VecDeque<Refusal>,
    /// A command was refused for want of descriptors.
    refused: bool,
}

impl Engine {
    pub(crate) fn new(notifications: u32) -> Self {
        Self {
            state: Open::NotYet,
            queue: Queue::new(notifications),
            overflow: VecDeque::new(),
            held: VecDeque::new(),
            command_queues: Default::default(),
            connections: Vec::new(),
            locks: BTreeMap::new(),
            failing: BTreeMap::new(),
            failure: None,
            refusals: VecDeque::new(),
            refused: false,
        }
    }

    pub(crate) fn explain(&self) -> String {
        let Self { queue, overflow, held, command_queues: [commands, answers], .. } = self;
        let (commands, answers) = (commands.jobs.len(), answers.jobs.len());
        let stalled = overflow.len() + held.len();
        format!("rma: {} notifications, {stalled} stalled, {commands} commands, {answers} answers", queue.used())
    }

    fn connection(&self, connection: Connection) -> Result<(u32, u32), RmaError> {
        let found = self.connections.get(connection.0 as usize).copied().flatten();
        found.ok_or(RmaError::NoConnect { connection: connection.0 })
    }
}

impl Extoll {
    fn engine(&mut self, local: u32) -> &mut Engine {
        &mut self.processes[local as usize].engine
    }

    fn opened(&mut self, local: u32) -> Result<&mut Engine, RmaError> {
        let engine = self.engine(local);
        if engine.state == Open::Yes { Ok(engine) } else { Err(RmaError::InvPort) }
    }

    fn vpid(&self, local: u32) -> u8 {
        self.processes[local as usize].address.vpid
    }

    pub(crate) fn rma_open(
        &mut self,
        local: u32,
        port: &mut DeviceContext<'_, Wire>,
    ) -> Result<Address, RmaError> {
        let ports = self.shared.parameters.rma.ports;
        let used = self.processes.iter().filter(|process| process.engine.state == Open::Yes).count();
        if ports == 0 {
            return Err(RmaError::NoDevice);
        }
        let engine = self.engine(local);
        if engine.state == Open::Yes || used >= ports as usize {
            return Err(RmaError::PortsUsed { ports: used as u32 });
        }
        engine.state = Open::Yes;
        self.rma_resume(local, port);
        Ok(self.processes[local as usize].address)
    }

    pub(crate) fn rma_close(&mut self, local: u32, port: &mut DeviceContext<'_, Wire>) -> Result<(), RmaError> {
        let notifications = self.shared.parameters.rma.notifications;
        self.opened(local)?;
        let vpid = self.vpid(local);
        self.atu.clear(vpid);
        let engine = self.engine(local);
        let held = std::mem::take(&mut engine.held);
        // What is being executed comes to its end; only what it reads is gone.
        let command_queues = std::mem::take(&mut engine.command_queues);
        *engine = Engine { state: Open::NoMore, command_queues, ..Engine::new(notifications) };
        for (channel, message) in held {
            self.commit(channel, message.packets(&self.shared.pace), port);
        }
        Ok(())
    }

    pub(crate) fn rma_connect(&mut self, local: u32, to: Address) -> Result<Connection, RmaError> {
        self.opened(local)?;
        if self.shared.directory.processes(to.node.into()) == 0 {
            return Err(RmaError::NoRoute { node: to.node });
        }
        let found = self.shared.directory.rank(to);
        let rank = found.ok_or(RmaError::NoConnect { connection: to.vpid.into() })?;
        let channel = self.outbound(local, rank, Channel::Request);
        let connections = &mut self.engine(local).connections;
        connections.push(Some((rank, channel)));
        Ok(Connection(connections.len() as u32 - 1))
    }

    pub(crate) fn rma_disconnect(&mut self, local: u32, connection: Connection) -> Result<(), RmaError> {
        let engine = self.engine(local);
        engine.connection(connection)?;
        engine.connections[connection.0 as usize] = None;
        Ok(())
    }

    pub(crate) fn rma_register(
        &mut self,
        local: u32,
        memory: Registrable,
        (at, size): (u64, u64),
        access: Access,
        pages: PageSize,
    ) -> Result<Region, RmaError> {
        self.opened(local)?;
        let len = memory.len() as u64;
        if size == 0 || at.checked_add(size).is_none_or(|end| end > len) {
            return Err(RmaError::WrongArg {
                what: "size",
                value: size,
                limit: "at least 1 and inside the memory",
            });
        }
        let vpid = self.vpid(local);
        let registered = self.atu.register(memory, len, (at, size), pages, access, vpid);
        let Registered { region, base } =
            registered.map_err(|(wanted, used, limit)| RmaError::NoMem { pages: wanted, used, limit })?;
        Ok(Region { number: region, base, size })
    }

    pub(crate) fn rma_unregister(&mut self, local: u32, region: Region) -> Result<(), RmaError> {
        let vpid = self.vpid(local);
        let done = self.atu.unregister(region.number, vpid);
        if done { Ok(()) } else { Err(RmaError::InvHandle { region: region.number }) }
    }

    pub(crate) fn rma_protect(&mut self, local: u32, nla: Nla, access: Access) -> Result<(), RmaError> {
        let vpid = self.vpid(local);
        let done = self.atu.protect(nla, access, vpid);
        if done { Ok(()) } else { Err(AtuFault::BadNla { nla: nla.0, len: 1 }.into()) }
    }

    pub(crate) fn rma_failure(&mut self, local: u32) -> Option<Failure> {
        self.engine(local).failure
    }

    pub(crate) fn rma_take_refusal(&mut self, local: u32) -> Option<Refusal> {
        self.engine(local).refusals.pop_front()
    }

    pub(crate) fn rma_take(
        &mut self,
        local: u32,
        fits: &dyn Fn(&Event) -> bool,
    ) -> Result<Notification, RmaError> {
        let taken = self.opened(local)?.queue.take(fits);
        taken.map_err(|others| if others { RmaError::NoMatch } else { RmaError::NoNoti })
    }

    pub(crate) fn rma_free(
        &mut self,
        local: u32,
        notification: &Notification,
        port: &mut DeviceContext<'_, Wire>,
    ) -> Result<(), RmaError> {
        if self.opened(local)?.queue.free(notification) {
            self.rma_resume(local, port);
        }
        Ok(())
    }

    /// Room in the notification queue: what had to wait goes on.
    fn rma_resume(&mut self, local: u32, port: &mut DeviceContext<'_, Wire>) {
        let Process { rank, engine, .. } = &mut self.processes[local as usize];
        while !engine.queue.is_full() {
            let Some(event) = engine.overflow.pop_front() else { break };
            engine.queue.push(event);
            // The process may not look at the queue again before it sleeps.
            port.wake(*rank);
        }
        while let engine = self.engine(local)
            && engine.overflow.is_empty()
            && let Some((channel, message)) = engine.held.pop_front()
        {
            self.rma_handle(local, channel, message, port);
        }
        for which in 0..2 {
            self.run_commands(local, which, port);
        }
    }

    pub(crate) fn rma_post(
        &mut self,
        local: u32,
        connection: Connection,
        order: Order,
        port: &mut DeviceContext<'_, Wire>,
    ) -> Result<(), RmaError> {
        let (limit, vpid) = (self.shared.parameters.rma.descriptors, self.vpid(local));
        let engine = self.opened(local)?;
        let (to, _) = engine.connection(connection)?;
        let outstanding = engine.command_queues[0].jobs.len() as u32;
        if outstanding >= limit {
            engine.refused = true;
            return Err(RmaError::NoDescMem { outstanding });
        }
        if let Some(region) = order.region.filter(|region| !self.atu.owns(*region, vpid)) {
            return Err(RmaError::InvHandle { region });
        }
        self.order(local, 0, to, order, port);
        Ok(())
    }

    fn order(&mut self, local: u32, which: u32, to: u32, order: Order, port: &mut DeviceContext<'_, Wire>) {
        let jobs = &mut self.engine(local).command_queues[which as usize];
        jobs.push(to, order, port.now());
        if jobs.jobs.len() == 1 {
            self.run_commands(local, which, port);
        }
    }

    /// Executes the commands of a queue as far as time, room and the notification queue allow.
    pub(crate) fn run_commands(&mut self, local: u32, which: u32, port: &mut DeviceContext<'_, Wire>) {
        let channel = [Channel::Request, Channel::Response][which as usize];
        loop {
            let pace = self.shared.pace;
            let engine = self.engine(local);
            // Rule 8 of the sheet: commands of a process whose queue is full wait as well.
            let stalled = !engine.overflow.is_empty();
            let queue = &mut engine.command_queues[which as usize];
            let Some(job) = queue.jobs.front() else { return };
            if stalled || queue.timed {
                return;
            }
            if job.ready > port.now() {
                queue.timed = true;
                let at = job.ready;
                return self.time_commands(local, which, at, port);
            }
            let (to, count) = (job.to, pace.next_of(job) as u8);
            let number = self.outbound(local, to, channel);
            let outbound = self.outbound.at(number);
            let (broken, room) = (outbound.broken, outbound.sender.room(count));
            if !broken && room == 0 {
                return;
            }
            let engine = self.engine(local);
            let mut job = engine.command_queues[which as usize].jobs.pop_front().expect("a command was just seen");
            let error = if broken {
                Some(None)
            } else {
                self.step(local, number, &mut job, room.into(), port).err().map(Some)
            };
            if error.is_none() && job.sent < self.shared.pace.fragments(job.work.data()) {
                self.engine(local).command_queues[which as usize].jobs.push_front(job);
                continue;
            }
            self.executed(local, job, error, port);
        }
    }

    /// Sends the next packet of a command, of so many fragments at most.
    fn step(
        &mut self,
        local: u32,
        number: u32,
        job: &mut Job,
        most: u32,
        port: &mut DeviceContext<'_, Wire>,
    ) -> Result<(), AtuFault> {
        let pace = self.shared.pace;
        let Job { notify, operation, .. } = *job;
        let (fragments, message) = match &job.work {
            Work::Put { from, to, size, answer } => {
                let all = pace.fragments(*size);
                let tail_early = self.shared.defects.has(Mutation::TailEarly);
                let count = if tail_early { 1 } else { pace.next(job.sent, all).min(most) };
                let vpid = self.vpid(local);
                if job.sent == 0 {
                    self.atu.translate(*from, u64::from(*size), Wish::Read, vpid)?;
                }
                // Rule 4 of the sheet: fragments go in the order of their offsets, and the channel keeps that
                // order.
                let fragment = if tail_early { (job.sent + all - 1) % all } else { job.sent };
                let offset = fragment * pace.fragment;
                let len = (count * pace.fragment).min(*size - offset);
                let source = Nla(from.0 + u64::from(offset));
                let (memory, at) = self.atu.translate(source, u64::from(len), Wish::Read, vpid)?;
                let data = self.shared.pool.lend(len, |buffer| memory.load(at, buffer));
                let part = Part {
                    command: if *answer { Command::Get } else { Command::Put },
                    operation,
                    to: *to,
                    size: *size,
                    offset,
                    first: job.sent == 0,
                    last: job.sent + count == all,
                    notify,
                    data,
                };
                (count, Message::Part(part))
            }
            Work::Immediate { value, size, to } => {
                let data = self.shared.pool.lend_copy(&value.to_le_bytes()[..*size as usize]);
                let (command, to, size) = (Command::ImmediatePut, *to, *size);
                let part = Part { command, operation, to, size, offset: 0, first: true, last: true, notify, data };
                (1, Message::Part(part))
            }
            Work::Get { from, to, size } => (1, Message::Get { from: *from, size: *size, to: *to, notify }),
            Work::Lock { lock, compare, add } => {
                (1, Message::Lock { lock: *lock, compare: *compare, add: *add, notify })
            }
            Work::Notification { value, class } => (1, Message::Notification { value: *value, class: *class }),
            Work::Answer(message) => (1, message.clone()),
        };
        let size = Size {
            bytes: message.bytes(),
            header: self.shared.parameters.rma.fragment_header_bytes * fragments,
            fragments,
        };
        let served = self.dispatch(number, Frame::Rma(message), size, port);
        job.advance(fragments, served.enters, &pace);
        Ok(())
    }

    /// A command has been executed on this side, or could not be: `Some(None)` if its partner is out of reach.
    fn executed(
        &mut self,
        local: u32,
        job: Job,
        error: Option<Option<AtuFault>>,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let command = job.work.command();
        let (kind, value, size) = match &job.work {
            Work::Put { from, size, answer, .. } => {
                (if *answer { Notify::RESPONDER } else { Notify::REQUESTER }, from.0, *size)
            }
            Work::Get { to, size, .. } => (Notify::REQUESTER, to.0, *size),
            Work::Immediate { to, size, .. } => (Notify::REQUESTER, to.0, *size),
            Work::Lock { lock, .. } => (Notify::REQUESTER, u64::from(*lock), 4),
            Work::Notification { value, .. } => (Notify::REQUESTER, *value, 8),
            Work::Answer(Message::Locked { lock, .. }) => (Notify::RESPONDER, u64::from(*lock), 4),
            Work::Answer(_) => (Notify::NONE, 0, 0),
        };
        if let Some(Some(fault)) = error {
            self.fail(local, job.to, command, fault);
        }
        if job.notify.has(kind) {
            let partner = self.address(job.to);
            let class = 0;
            let event = Event { kind, command, partner, error: error.is_some(), class, size, value, hit: false };
            self.notify(local, event, port);
        }
        let engine = self.engine(local);
        if std::mem::take(&mut engine.refused) {
            let rank = self.processes[local as usize].rank;
            port.wake(rank);
        }
    }

    fn address(&self, rank: u32) -> Address {
        self.shared.directory.of(rank)
    }

    fn fail(&mut self, local: u32, partner: u32, command: Command, fault: AtuFault) {
        let partner = self.address(partner);
        let engine = self.engine(local);
        let count = engine.failure.map_or(0, |failure| failure.count) + 1;
        engine.failure = Some(Failure { command, partner, fault, count });
    }

    fn refused(&mut self, local: u32, refusal: Refusal) {
        let most = self.shared.parameters.rma.notifications as usize;
        let refusals = &mut self.engine(local).refusals;
        if refusals.len() == most {
            refusals.pop_front();
        }
        refusals.push_back(refusal);
    }

    /// Writes a notification; a full queue stalls the process's part of the unit.
    fn notify(&mut self, local: u32, event: Event, port: &mut DeviceContext<'_, Wire>) {
        let drops = self.shared.defects.has(Mutation::DropNotifications);
        let engine = self.engine(local);
        // Commands posted before the port was closed notify nobody.
        if engine.state != Open::Yes {
            return;
        }
        // Rule 8 of the sheet: what meets a full queue waits, in order.
        if !engine.queue.is_full() && engine.overflow.is_empty() {
            engine.queue.push(event);
            port.wake(self.processes[local as usize].rank);
        } else if !drops {
            engine.overflow.push_back(event);
        }
    }

    /// A message has come through the unit, on a channel.
    pub(crate) fn rma_deliver(
        &mut self,
        local: u32,
        channel: u32,
        message: Message,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let engine = self.engine(local);
        let waits = match engine.state {
            Open::NotYet => true,
            Open::Yes => !engine.overflow.is_empty() || !engine.held.is_empty(),
            // Nobody is there any more: it is dropped.
            Open::NoMore => return self.commit(channel, message.packets(&self.shared.pace), port),
        };
        if waits {
            engine.held.push_back((channel, message));
            self.counters.held += 1;
            return;
        }
        self.rma_handle(local, channel, message, port);
    }

    fn rma_handle(&mut self, local: u32, channel: u32, message: Message, port: &mut DeviceContext<'_, Wire>) {
        let (from, _) = self.sender(channel);
        let (partner, packets) = (self.address(from), message.packets(&self.shared.pace));
        let answer = |notify, work| Order { notify, work, region: None };
        match message {
            Message::Part(part) => self.part(local, channel, &part, port),
            Message::Get { from: source, size, to, notify } => {
                let vpid = self.vpid(local);
                let checked = self.atu.translate(source, size.into(), Wish::Read, vpid).map(drop);
                if let Err(fault) = checked {
                    self.fail(local, from, Command::Get, fault);
                    if notify.has(Notify::RESPONDER) {
                        let (kind, value) = (Notify::RESPONDER, source.0);
                        let (command, class) = (Command::Get, 0);
                        let event = Event { kind, command, partner, error: true, class, size, value, hit: false };
                        self.notify(local, event, port);
                    }
                    let failed = Message::Failed { command: Command::Get, fault, notify, size, value: to.0 };
                    self.order(local, 1, from, answer(Notify::NONE, Work::Answer(failed)), port);
                } else {
                    let work = Work::Put { from: source, to, size, answer: true };
                    self.order(local, 1, from, answer(notify, work), port);
                }
            }
            Message::Lock { lock, compare, add, notify } => {
                let value = self.engine(local).locks.entry(lock).or_insert(0);
                let (old, hit) = (*value, *value <= compare);
                if hit {
                    *value = value.wrapping_add(add);
                }
                let work = Work::Answer(Message::Locked { lock, old, hit, notify });
                self.order(local, 1, from, answer(notify, work), port);
            }
            Message::Locked { old, hit, notify, .. } => {
                if notify.has(Notify::COMPLETER) {
                    // The old value keeps its sign in 64 bits.
                    let (kind, command, value) = (Notify::COMPLETER, Command::Lock, i64::from(old) as u64);
                    let event = Event { kind, command, partner, error: false, class: 0, size: 4, value, hit };
                    self.notify(local, event, port);
                }
            }
            Message::Notification { value, class } => {
                let (kind, command) = (Notify::COMPLETER, Command::Notification);
                let event = Event { kind, command, partner, error: false, class, size: 8, value, hit: false };
                self.notify(local, event, port);
            }
            Message::Failed { command, fault, notify, size, value } => {
                self.fail(local, from, command, fault);
                if command != Command::Get {
                    self.refused(local, Refusal { partner, nla: Nla(value) });
                } else if notify.has(Notify::COMPLETER) {
                    let kind = Notify::COMPLETER;
                    let event = Event { kind, command, partner, error: true, class: 0, size, value, hit: false };
                    self.notify(local, event, port);
                }
                port.wake(self.processes[local as usize].rank);
            }
        }
        self.commit(channel, packets, port);
    }

    /// A part of a put or of the answer to a get: check, write, notify.
    fn part(&mut self, local: u32, channel: u32, part: &Part, port: &mut DeviceContext<'_, Wire>) {
        let (from, _) = self.sender(channel);
        let Part { command, operation, to, size, offset, first, last, notify, .. } = *part;
        let vpid = self.vpid(local);
        if first {
            self.engine(local).failing.remove(&channel);
        }
        let mut failing = self.engine(local).failing.get(&channel) == Some(&operation);
        if !failing {
            // The first part checks for all of them, so that a command that fails changes nothing.
            let whole =
                if first { self.atu.translate(to, size.into(), Wish::Write, vpid).map(drop) } else { Ok(()) };
            let here = Nla(to.0 + u64::from(offset));
            let place = whole.and_then(|()| self.atu.translate(here, part.data.len() as u64, Wish::Write, vpid));
            match place {
                Ok((memory, at)) => memory.store(at, &part.data),
                Err(fault) => {
                    failing = true;
                    self.engine(local).failing.insert(channel, operation);
                    self.fail(local, from, command, fault);
                    // Its initiator is told, unless that is this process.
                    if command != Command::Get {
                        let failed = Message::Failed { command, fault, notify, size, value: to.0 };
                        let order = Order { notify: Notify::NONE, work: Work::Answer(failed), region: None };
                        self.order(local, 1, from, order, port);
                    }
                }
            }
        }
        if last {
            if notify.has(Notify::COMPLETER) {
                let (kind, partner, value) = (Notify::COMPLETER, self.address(from), to.0);
                let event = Event { kind, command, partner, error: failing, class: 0, size, value, hit: false };
                self.notify(local, event, port);
            }
            port.wake(self.processes[local as usize].rank);
        }
    }
}

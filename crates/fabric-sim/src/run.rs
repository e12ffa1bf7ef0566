//! Running a program: each rank is a coroutine of one thread, resumed when it is its turn.

use crate::config::Config;
use crate::context::Context;
use crate::device::{Device, Mailbox};
use crate::error::RunError;
use crate::limits;
use crate::machine::{Core, Machine, Turn};
use crate::ranks::State;
use crate::stage::Server;
use crate::trace::{Histogram, LinkUse, StageUse, Trace};
use am_core::{Instant, Span};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// The entry to simulations.
#[derive(Clone, Copy, Debug)]
pub struct Sim;

/// What a run brought.
#[derive(Clone, Debug)]
pub struct Report<R> {
    /// What each rank returned; `None` for ranks whose node stopped.
    pub results: Vec<Option<R>>,
    /// When the last rank ended.
    pub ended: Instant,
    /// A hash over everything that happened: equal for equal runs, on every machine and in every build.
    pub hash: u64,
    /// Events executed.
    pub events: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets delivered, copies included.
    pub delivered: u64,
    /// Packets lost.
    pub lost: u64,
    /// Times that a packet was spoilt without repair.
    pub corrupted: u64,
    /// Copies made on links without repair.
    pub duplicated: u64,
    /// Time from sending to delivery, of delivered packets.
    pub latency: Histogram,
    /// Tries to cross a link that failed and were repeated.
    pub retries: u64,
    /// The links that carried anything, by number.
    pub links: Vec<LinkUse>,
    /// The stages of interfaces and devices that served anything and are not free, node by node.
    pub stages: Vec<StageUse>,
    /// All spans, if [`Config::trace`] asked for them.
    pub trace: Option<Trace>,
}

impl<R> fmt::Display for Report<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.ended.since(Instant(0));
        writeln!(
            f,
            "{took}, {} events, hash {:016x}; {} sent, {} lost",
            self.events, self.hash, self.sent, self.lost
        )?;
        write!(f, "{}", self.latency)?;
        if let Some(busiest) = self.links.iter().max_by(|a, b| a.utilisation.total_cmp(&b.utilisation)) {
            let mean = self.links.iter().map(|link| link.utilisation).sum::<f64>() / self.links.len() as f64;
            let [mean, most] = [mean, busiest.utilisation].map(|part| 100.0 * part);
            write!(
                f,
                "\n{} links used, {mean:.1} % of the time; most {}, {most:.1} %",
                self.links.len(),
                busiest.name
            )?;
        }
        Ok(())
    }
}

impl Sim {
    /// Runs a program on every rank, with mailboxes for packets that carry a `B`. Blocks until all ranks have returned.
    ///
    /// # Errors
    /// An impossible configuration, too little memory for stacks, a panic of a rank, a deadlock. All ranks are unwound then.
    pub fn run<B, R, F>(config: &Config, program: F) -> Result<Report<R>, RunError>
    where
        B: Clone + 'static,
        R: 'static,
        F: Fn(Context<'_, Mailbox<B>>) -> R + 'static,
    {
        Self::run_with(config, |_, ranks| Mailbox::new(ranks), program)
    }

    /// [`Sim::run`] with a device of one's own per node: `device` gets the node and its ranks.
    ///
    /// # Errors
    /// As [`Sim::run`].
    pub fn run_with<D, R, F>(
        config: &Config,
        mut device: impl FnMut(u32, &[u32]) -> D,
        program: F,
    ) -> Result<Report<R>, RunError>
    where
        D: Device,
        R: 'static,
        F: Fn(Context<'_, D>) -> R + 'static,
    {
        let plan = config.compile()?;
        limits::check(config.ranks)?;
        let mut ranks_of = vec![Vec::new(); plan.network.nodes as usize];
        for (rank, node) in plan.node_of.iter().enumerate() {
            ranks_of[*node as usize].push(rank as u32);
        }
        let devices: Vec<D> =
            ranks_of.iter().enumerate().map(|(node, ranks)| device(node as u32, ranks)).collect();
        let mut core = Core::new(plan, config.trace);
        for (node, device) in core.nodes.iter_mut().zip(&devices) {
            for (name, stage) in device.stages() {
                node.own.push((name, Server::new(stage.check(&format!("stage {name:?} of the device"))?)));
            }
        }
        let machine = Rc::new(RefCell::new(Machine { core, devices }));
        let program = Rc::new(program);
        let mut coroutines = Vec::with_capacity(config.ranks as usize);
        for rank in 0..config.ranks {
            let (ranks, bytes) = (config.ranks, config.stack_bytes);
            let stack =
                DefaultStack::new(bytes).map_err(|source| RunError::Stack { rank, ranks, bytes, source })?;
            let (machine, program) = (Rc::clone(&machine), Rc::clone(&program));
            coroutines.push(Coroutine::with_stack(stack, move |yielder, ()| {
                program(Context::new(rank, machine, yielder))
            }));
        }
        let mut results: Vec<Option<R>> = (0..config.ranks).map(|_| None).collect();
        let outcome = drive(&machine, &mut coroutines, &mut results);
        machine.borrow_mut().core.over = true;
        // Unwinds whoever is still suspended; must happen while nothing borrows the machine.
        drop(coroutines);
        outcome?;
        Ok(report(&mut machine.borrow_mut().core, results))
    }
}

type Ranks<R> = [Coroutine<(), (), R, DefaultStack>];

/// Resumes rank after rank until all have returned.
fn drive<D: Device, R>(
    machine: &RefCell<Machine<D>>,
    coroutines: &mut Ranks<R>,
    results: &mut [Option<R>],
) -> Result<(), RunError> {
    loop {
        let turn = machine.borrow_mut().next_turn();
        let rank = match turn {
            Turn::Of(rank) => rank,
            Turn::End if machine.borrow().core.remaining == 0 => return Ok(()),
            Turn::End => return Err(RunError::Deadlock(Box::new(machine.borrow().deadlock()))),
            Turn::Late => return Err(RunError::Late(Box::new(machine.borrow().late()))),
        };
        let resumed = catch_unwind(AssertUnwindSafe(|| coroutines[rank as usize].resume(())));
        match resumed {
            Ok(CoroutineResult::Yield(())) => {}
            Ok(CoroutineResult::Return(result)) => {
                results[rank as usize] = Some(result);
                let mut machine = machine.borrow_mut();
                let state = &mut machine.core.ranks[rank as usize].state;
                if *state != State::Stopped {
                    *state = State::Done;
                    machine.core.remaining -= 1;
                }
            }
            Err(panic) => {
                let at = Instant(machine.borrow().core.ranks[rank as usize].now);
                return Err(RunError::Panicked { rank, at, message: message(&*panic) });
            }
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// The stages that a node's interface has by itself, in the order of [`Core::nodes`](Core).
const OWN: [&str; 5] = ["nic_tx", "tx_translate", "nic_rx", "rx_match", "mem_write"];

fn report<B, R>(core: &mut Core<B>, results: Vec<Option<R>>) -> Report<R> {
    let ended = core.ranks.iter().filter(|rank| rank.state == State::Done).map(|rank| rank.now).max().unwrap_or(0);
    let links =
        core.links.iter().enumerate().filter(|(_, link)| link.packets != 0).map(|(number, link)| LinkUse {
            name: core.network.name(number as u32),
            packets: link.packets,
            bytes: link.bytes,
            retries: core.troubles[number].retries,
            busy: Span(link.busy),
            utilisation: link.busy as f64 / ended.max(1) as f64,
        });
    let stages = core.nodes.iter().enumerate().flat_map(|(node, stages)| {
        let interface = OWN.iter().zip(stages.tx.iter().chain(&stages.rx)).map(|(name, server)| (*name, server));
        let own = stages.own.iter().map(|(name, server)| (*name, server));
        interface.chain(own).filter(|(_, server)| server.packets != 0).map(move |(name, server)| StageUse {
            name,
            node: node as u32,
            packets: server.packets,
            bytes: server.bytes,
            busy: Span(server.busy),
            utilisation: server.busy as f64 / ended.max(1) as f64,
        })
    });
    let names = core.spans.is_some().then(|| (0..core.network.links() as u32).map(|link| core.network.name(link)));
    let names = names.into_iter().flatten().collect();
    Report {
        results,
        ended: Instant(ended),
        hash: core.hash.value(),
        events: core.counts.events,
        sent: core.counts.sent,
        delivered: core.counts.delivered,
        lost: core.counts.lost,
        corrupted: core.counts.corrupted,
        duplicated: core.counts.duplicated,
        retries: core.troubles.iter().map(|link| link.retries).sum(),
        links: links.collect(),
        stages: stages.collect(),
        latency: std::mem::take(&mut core.latency),
        trace: core.spans.take().map(|spans| Trace { spans, links: names }),
    }
}

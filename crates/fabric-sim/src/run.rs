//! Running a program: each rank is a coroutine of one thread, resumed when it is its turn.

use crate::buffered_run::BufferedRun;
use crate::config::{Config, Plan};
use crate::context::Context;
use crate::device::{Device, Mailbox};
use crate::engine::{Core, Engine, NextStep};
use crate::error::RunError;
use crate::halves::Meter;
use crate::limits;
use crate::ranks::State;
use crate::report::Report;
use crate::stage::Server;
use am_core::Instant;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// The entry to simulations.
#[derive(Clone, Copy, Debug)]
pub struct Sim;

impl Sim {
    /// Runs a program on every rank, with mailboxes for packets that carry a `B`. Blocks until all ranks have
    /// returned.
    ///
    /// # Errors
    /// An impossible configuration, too little memory for stacks, a panic of a rank, a deadlock. All ranks are
    /// unwound then.
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
    /// The [`Context`] belongs to the rank's coroutine: a transport may keep it, or clones of it, as long as the
    /// program runs, and use it while it is dropped, also when the run has failed. What ranks share besides the
    /// machine they may share by `Rc`: all of them are on one thread.
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
        let results: Rc<RefCell<Vec<Option<R>>>> = Rc::default();
        let returned = Rc::clone(&results);
        let program = move |context: Context<'_, D>| {
            let rank = context.rank() as usize;
            let result = program(context);
            let mut results = returned.borrow_mut();
            if results.len() <= rank {
                results.resize_with(rank + 1, || None);
            }
            results[rank] = Some(result);
        };
        let report = simulate(config, &mut device, Rc::new(program))?;
        let mut results = results.take();
        results.resize_with(config.ranks as usize, || None);
        Ok(report.with_results(results))
    }
}

/// A rank's part of a program that keeps its results itself.
pub(crate) type Program<D> = dyn Fn(Context<'_, D>);

/// [`Sim::run_with`] without the types of its program: compiled once for each kind of device instead of each
/// program.
fn simulate<D: Device>(
    config: &Config,
    device: &mut dyn FnMut(u32, &[u32]) -> D,
    program: Rc<Program<D>>,
) -> Result<Report<()>, RunError> {
    let plan = config.compile()?;
    limits::check(config.ranks, config.stack_bytes)?;
    let ranks_of = ranks_by_node(&plan);
    let devices: Vec<D> = ranks_of.iter().enumerate().map(|(node, ranks)| device(node as u32, ranks)).collect();
    let mut core = Core::new(plan, config.trace, |_| true);
    core.buffers = config.buffered_network()?.map(|network| BufferedRun::new(network, config));
    if core.buffers.is_some() {
        // They have the ports and the order of packets themselves.
        (core.ports, core.lane_order) = (None, None);
    }
    own_stages(&mut core, &devices)?;
    core.meter = Meter::wanted(&core.network, &core.links);
    let machine = Rc::new(RefCell::new(Engine::new(core, devices)));
    let mut coroutines = Vec::with_capacity(config.ranks as usize);
    for rank in 0..config.ranks {
        coroutines.push(coroutine(config, rank, &machine, &program)?);
    }
    if let Some(meter) = &mut machine.borrow_mut().core.meter {
        meter.begin();
    }
    let outcome = drive(&machine, &mut coroutines);
    if let Some(meter) = machine.borrow_mut().core.meter.take() {
        meter.finish(outcome.is_ok());
    }
    machine.borrow_mut().core.end();
    // Unwinds whoever is still suspended; must happen while nothing borrows the machine.
    drop(coroutines);
    outcome?;
    Ok(Report::new(&mut machine.borrow_mut().core))
}

/// The ranks of each node.
pub(crate) fn ranks_by_node(plan: &Plan) -> Vec<Vec<u32>> {
    let mut ranks_of = vec![Vec::new(); plan.network.nodes as usize];
    for (rank, node) in plan.node_of.iter().enumerate() {
        ranks_of[*node as usize].push(rank as u32);
    }
    ranks_of
}

/// Gives the nodes the stages of their devices.
pub(crate) fn own_stages<D: Device>(core: &mut Core<D::Body>, devices: &[D]) -> Result<(), RunError> {
    for (node, device) in core.nodes.iter_mut().zip(devices) {
        for (name, stage) in device.stages() {
            node.own.push((name, Server::new(stage.check(&format!("stage {name:?} of the device"))?)));
        }
    }
    Ok(())
}

/// A rank's coroutine.
pub(crate) type Rank = Coroutine<(), (), (), DefaultStack>;

/// A rank with its stack.
pub(crate) fn coroutine<D: Device>(
    config: &Config,
    rank: u32,
    machine: &Rc<RefCell<Engine<D>>>,
    program: &Rc<Program<D>>,
) -> Result<Rank, RunError> {
    let (ranks, bytes) = (config.ranks, config.stack_bytes);
    let stack = DefaultStack::new(bytes).map_err(|source| RunError::Stack { rank, ranks, bytes, source })?;
    let (machine, program) = (Rc::clone(machine), Rc::clone(program));
    Ok(Coroutine::with_stack(stack, move |yielder, ()| program(Context::new(rank, machine, yielder))))
}

/// Resumes rank after rank until all have returned.
fn drive<D: Device>(machine: &RefCell<Engine<D>>, coroutines: &mut [Rank]) -> Result<(), RunError> {
    loop {
        let turn = machine.borrow_mut().next_step();
        let rank = match turn {
            NextStep::Resume(rank) => rank,
            NextStep::End if machine.borrow().core.remaining == 0 => return Ok(()),
            NextStep::End => return Err(RunError::Deadlock(Box::new(machine.borrow().deadlock()))),
            NextStep::DeadlineMissed => {
                return Err(RunError::DeadlineMissed(Box::new(machine.borrow().deadline_missed())));
            }
        };
        resume(machine, &mut coroutines[rank as usize], rank)?;
    }
}

/// Lets a rank go on until it is suspended or ends.
#[inline(always)]
pub(crate) fn resume<D: Device>(
    machine: &RefCell<Engine<D>>,
    coroutine: &mut Rank,
    rank: u32,
) -> Result<(), RunError> {
    match catch_unwind(AssertUnwindSafe(|| coroutine.resume(()))) {
        Ok(CoroutineResult::Yield(())) => {}
        Ok(CoroutineResult::Return(())) => {
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
    Ok(())
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

//! What is to be measured: a case names a figure, its load, what it is compared with and what it should reach.

use std::time::Duration;

use super::am::AmTask;
use super::bells::BellTask;
use super::calls::CallTask;
use super::crew::Crew;
use super::far::FarTask;
use super::far_calls::FarCallTask;
#[cfg(feature = "p2p-udp")]
use super::far_p2p::FarP2pTask;
use super::p2p::P2pTask;
use super::pgas::PgasTask;
use super::placed::Places;
use super::raw::RawTask;
#[cfg(feature = "tarpc")]
use super::tarpc_calls::TarpcTask;
use super::tokio_calls::TokioTask;
use super::world::Task;
use lab::bench::summary::{Bar, Unit};

/// How a crew spends an iteration, and what of it counts.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// A task, and the time that rank 0 takes for it.
    Task(Task),
    /// A task, and the time that rank 1 reports.
    PeerTask(Task),
    /// A task of ranks over UDP, which are no ranks of the crew.
    Far(FarTask),
    /// The same with calls.
    FarCalls(FarCallTask),
    /// The same with two-sided messages.
    #[cfg(feature = "p2p-udp")]
    FarP2p(FarP2pTask),
    /// One whole run of the RandomAccess example with these arguments, from barrier to barrier.
    Example(Vec<String>),
}

impl Work {
    /// Lets `crew` do it.
    pub(crate) fn run(&self, crew: &mut Crew, iterations: u64) -> Duration {
        match self {
            Self::Task(task) => crew.run(task, iterations),
            Self::PeerTask(task) => {
                crew.run(task, iterations);
                crew.reports()[1].0
            }
            Self::Far(task) => task.run(iterations),
            Self::FarCalls(task) => task.run(iterations),
            #[cfg(feature = "p2p-udp")]
            Self::FarP2p(task) => task.run(iterations),
            Self::Example(arguments) => crew.run_random_access(arguments) * iterations as u32,
        }
    }
}

impl From<Task> for Work {
    fn from(task: Task) -> Self {
        Self::Task(task)
    }
}

impl From<RawTask> for Work {
    fn from(task: RawTask) -> Self {
        Self::Task(Task::Raw(task))
    }
}

impl From<PgasTask> for Work {
    fn from(task: PgasTask) -> Self {
        Self::Task(Task::Pgas(task))
    }
}

impl From<FarTask> for Work {
    fn from(task: FarTask) -> Self {
        Self::Far(task)
    }
}

impl From<FarCallTask> for Work {
    fn from(task: FarCallTask) -> Self {
        Self::FarCalls(task)
    }
}

#[cfg(feature = "p2p-udp")]
impl From<FarP2pTask> for Work {
    fn from(task: FarP2pTask) -> Self {
        Self::FarP2p(task)
    }
}

impl From<BellTask> for Work {
    fn from(task: BellTask) -> Self {
        Self::Task(Task::Bells(task))
    }
}

impl From<TokioTask> for Work {
    fn from(task: TokioTask) -> Self {
        Self::Task(Task::Tokio(task))
    }
}

#[cfg(feature = "tarpc")]
impl From<TarpcTask> for Work {
    fn from(task: TarpcTask) -> Self {
        Self::Task(Task::Tarpc(task))
    }
}

impl From<P2pTask> for Work {
    fn from(task: P2pTask) -> Self {
        Self::Task(Task::P2p(task))
    }
}

impl From<CallTask> for Work {
    fn from(task: CallTask) -> Self {
        Self::Task(Task::Calls(task))
    }
}

impl From<AmTask> for Work {
    fn from(task: AmTask) -> Self {
        Self::Task(Task::Am(task))
    }
}

/// Work with what one iteration of it counts for.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The work.
    pub(crate) work: Work,
    /// Messages, bytes, updates or round trips in one iteration of it.
    pub(crate) amount: f64,
}

/// What a figure is compared with.
#[derive(Clone, Debug)]
pub(crate) enum Reference {
    /// A load that is measured beside each sample, and its name.
    Beside(&'static str, Load),
    /// A figure of this name that was measured earlier in the run.
    Earlier(&'static str),
}

/// How samples are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sampling {
    /// Criterion chooses the iterations.
    Criterion,
    /// So many samples of so many iterations, for work that takes seconds.
    Fixed {
        /// Number of samples.
        samples: u32,
        /// Iterations of each.
        iterations: u64,
    },
}

/// One figure to measure.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its name, for criterion, the table and the filter.
    pub(crate) name: String,
    /// What its value counts.
    pub(crate) unit: Unit,
    /// What is measured.
    pub(crate) subject: Load,
    /// How.
    pub(crate) sampling: Sampling,
    /// What it is compared with.
    pub(crate) baseline: Option<Reference>,
    /// What it should reach.
    pub(crate) bar: Option<Bar>,
    /// Whether its ranks sleep, so that the system, or the case, places them anew at each wake-up.
    pub(crate) sleeps: bool,
}

impl Case {
    /// A figure of `work`, `amount` counted per iteration, without baseline and bar.
    pub(crate) fn new(name: impl Into<String>, unit: Unit, work: impl Into<Work>, amount: f64) -> Self {
        let subject = Load { work: work.into(), amount };
        let sampling = Sampling::Criterion;
        Self { name: name.into(), unit, subject, sampling, baseline: None, bar: None, sleeps: false }
    }

    /// The same with a fixed number of samples.
    pub(crate) fn sampled(self, samples: u32, iterations: u64) -> Self {
        Self { sampling: Sampling::Fixed { samples, iterations }, ..self }
    }

    /// The same beside a baseline.
    pub(crate) fn beside(self, name: &'static str, work: impl Into<Work>, amount: f64) -> Self {
        let load = Load { work: work.into(), amount };
        Self { baseline: Some(Reference::Beside(name, load)), ..self }
    }

    /// The same, and what it is beside, with the processes so placed.
    pub(crate) fn placed(mut self, places: Places) -> Self {
        let beside = match &mut self.baseline {
            Some(Reference::Beside(_, load)) => Some(load),
            _ => None,
        };
        for load in std::iter::once(&mut self.subject).chain(beside) {
            if let Work::Task(task) = &mut load.work {
                *task = Task::Placed(places, Box::new(task.clone()));
            }
        }
        self
    }

    /// The same compared with a figure that was measured earlier in the run.
    pub(crate) fn against(self, name: &'static str) -> Self {
        Self { baseline: Some(Reference::Earlier(name)), ..self }
    }

    /// The same of ranks that sleep.
    pub(crate) fn asleep(self) -> Self {
        Self { sleeps: true, ..self }
    }

    /// The same with a bar.
    pub(crate) fn bar(self, bar: Bar) -> Self {
        Self { bar: Some(bar), ..self }
    }
}

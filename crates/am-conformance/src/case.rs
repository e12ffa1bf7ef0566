//! The form of a case: what it is called, what it needs from a job, and the code that each rank runs.

use crate::erased::Local;
use crate::world::{Failure, Verdict, World};
use am_core::Transport;
use std::fmt;

/// How large the buffers of a job are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// The transport's defaults.
    Default,
    /// The smallest that the transport allows.
    Smallest,
}

/// What a case needs from its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The size of buffers.
    pub buffers: Buffers,
    /// Endpoints of every rank.
    pub endpoints: u16,
    /// The fewest ranks with which the case makes sense.
    pub ranks: u32,
    /// Whether a rank unwinds on purpose; whoever runs it must catch that and let the other ranks go on.
    pub unwinds: bool,
    /// Runs that take all combinations of the case's choices in turn: [`World::draw`] from 0 on. Runs over many
    /// seeds need only one for each.
    pub draws: u32,
}

impl Needs {
    /// One endpoint per rank, default buffers, any number of ranks.
    pub const PLAIN: Self = Self { buffers: Buffers::Default, endpoints: 1, ranks: 1, unwinds: false, draws: 1 };

    pub(crate) const fn smallest(self) -> Self {
        Self { buffers: Buffers::Smallest, ..self }
    }

    pub(crate) const fn endpoints(self, endpoints: u16) -> Self {
        Self { endpoints, ..self }
    }

    pub(crate) const fn ranks(self, ranks: u32) -> Self {
        Self { ranks, ..self }
    }

    pub(crate) const fn unwinds(self) -> Self {
        Self { unwinds: true, ..self }
    }

    pub(crate) const fn draws(self, draws: u32) -> Self {
        Self { draws, ..self }
    }
}

/// What a case is, whatever the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// The item of the conformance list that it belongs to.
    pub item: u8,
    /// Its name, unique in the suite.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// What it needs.
    pub needs: Needs,
}

/// The code of a case.
pub(crate) enum Code<T> {
    /// For a rank with one endpoint, whose transport is of any kind.
    Erased(fn(&World, Local<'_>) -> Verdict),
    /// For a rank with one endpoint.
    Single(fn(&World, T) -> Verdict),
    /// For a rank that gives its endpoints to threads.
    Several(fn(&World, Vec<T>) -> Verdict),
}

/// One case of the suite, for a transport `T`.
pub struct Case<T> {
    /// What it is.
    pub description: Description,
    code: Code<T>,
}

impl<T> fmt::Debug for Case<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.description).finish_non_exhaustive()
    }
}

impl<T: Transport> Case<T> {
    pub(crate) fn new(description: Description, code: Code<T>) -> Self {
        Self { description, code }
    }

    /// Runs one rank's part with the transports of its endpoints, in their order.
    ///
    /// # Errors
    /// [`Failure`] says what this rank found wrong.
    ///
    /// # Panics
    /// In a case that unwinds, on the rank that does so; see [`is_deliberate`].
    pub fn run(&self, world: &World, transports: Vec<T>) -> Verdict {
        let given = transports.len();
        let Description { name, needs, .. } = self.description;
        if given != usize::from(needs.endpoints) {
            let needed = needs.endpoints;
            return Err(Failure::Check(format!("{name} needs {needed} endpoint(s) per rank, got {given}")));
        }
        match self.code {
            Code::Erased(code) => {
                transports.into_iter().try_for_each(|transport| code(world, Local::new(transport)))
            }
            Code::Single(code) => transports.into_iter().try_for_each(|transport| code(world, transport)),
            Code::Several(code) => code(world, transports),
        }
    }
}

/// What a rank unwinds with when a case wants it to.
struct Deliberate;

/// Ends this rank by unwinding, as a panic does, without the message that a panic prints.
pub(crate) fn unwind() -> ! {
    std::panic::resume_unwind(Box::new(Deliberate))
}

/// What went wrong on a rank, told from how its part of a case ended; `None` if nothing did.
pub fn judge(
    description: &Description,
    outcome: Result<Verdict, Box<dyn std::any::Any + Send>>,
) -> Option<String> {
    match outcome {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure.to_string()),
        Err(panic) if is_deliberate(&*panic) => {
            (!description.needs.unwinds).then(|| "it unwound deliberately in a case that does not say so".into())
        }
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Some(format!("it panicked: {}", text.unwrap_or_else(|| "no message".into())))
        }
    }
}

/// Whether a caught panic was part of a case.
pub fn is_deliberate(panic: &(dyn std::any::Any + Send)) -> bool {
    panic.is::<Deliberate>()
}

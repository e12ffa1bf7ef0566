//! What a case gets from whoever runs it: the profile, the seed, patience; and how a case says what it found.

use crate::random::{Random, deviation, mix};
use am_core::arguments::TooManyWords;
use am_core::{
    AttachError, Endpoint, Handlers, Payload, PollError, RegisterError, SegmentError, SendError, Span, Transport,
    WaitError,
};
use am_pgas::aggregate::{AggregateError, AggregatorError};
use std::fmt::{Debug, Display};

/// How much a case does. Sizes and cases are the same in both profiles; only repetitions differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Few repetitions, for every run of the tests.
    #[default]
    Quick,
    /// The repetitions of the reference.
    Full,
}

impl Profile {
    /// The numbers of ranks that every case is played with unless the caller says which.
    pub fn ranks(self) -> Vec<u32> {
        match self {
            Self::Quick => vec![1, 2, 5],
            Self::Full => vec![1, 2, 3, 5, 8],
        }
    }
}

/// The surroundings of one case, the same for all of its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World {
    /// How much to do.
    pub profile: Profile,
    /// Where all randomness comes from.
    pub seed: u64,
    /// Which of several runs with this seed it is: a case that needs several takes the next combination of its
    /// choices in each.
    pub draw: u32,
    /// How long an endpoint waits before it reports a stall instead of hanging.
    pub patience: Span,
}

impl World {
    /// A world whose endpoints wait for two minutes (quick) or ten (full).
    pub const fn new(profile: Profile, seed: u64) -> Self {
        let patience = match profile {
            Profile::Quick => Span::from_secs(120),
            Profile::Full => Span::from_secs(600),
        };
        Self { profile, seed, draw: 0, patience }
    }

    /// The world of another run with the same seed.
    #[must_use]
    pub const fn drawn(self, draw: u32) -> Self {
        Self { draw, ..self }
    }

    /// One of two numbers of repetitions.
    pub(crate) const fn count(&self, quick: u32, full: u32) -> u32 {
        match self.profile {
            Profile::Quick => quick,
            Profile::Full => full,
        }
    }

    /// A generator; equal streams draw equal numbers on every rank.
    pub(crate) fn random(&self, stream: u64) -> Random {
        Random::new(self.seed, stream)
    }

    /// One of some combinations of choices: drawn by the seed, and the next one in each further run with it.
    pub(crate) fn combination(&self, stream: u64, of: u32) -> u32 {
        ((self.random(stream).number() % u64::from(of)) as u32 + self.draw) % of
    }

    /// The salt of a payload: a function of the seed and of what the payload belongs to.
    pub(crate) fn salt(&self, of: &[u64]) -> u64 {
        mix(&[self.seed, mix(of)])
    }

    /// Attaches with this world's patience.
    ///
    /// # Errors
    /// As [`Endpoint::attach`].
    pub(crate) fn attach<T: Transport, S>(
        &self,
        transport: T,
        handlers: Handlers<S>,
        state: S,
    ) -> Result<Endpoint<T, S>, AttachError> {
        Endpoint::builder(transport).timeout(Some(self.patience)).attach(handlers, state)
    }
}

/// Why a case failed on one rank.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Something came out differently than it must.
    #[error("{0}")]
    Check(String),
    /// A handler could not be registered.
    #[error("registering: {0}")]
    Register(#[from] RegisterError),
    /// The endpoint could not attach.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A request could not be sent.
    #[error("sending: {0}")]
    Send(#[from] SendError),
    /// Serving incoming messages failed.
    #[error("polling: {0}")]
    Poll(#[from] PollError),
    /// A wait failed.
    #[error("waiting: {0}")]
    Wait(#[from] WaitError),
    /// A segment could not be accessed.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// An aggregator could not be registered.
    #[error("registering: {0}")]
    Aggregator(#[from] AggregatorError),
    /// An aggregator failed.
    #[error("aggregating: {0}")]
    Aggregate(#[from] AggregateError),
    /// Argument words could not be built.
    #[error(transparent)]
    Words(#[from] TooManyWords),
}

/// What a case says on one rank.
pub type Verdict = Result<(), Failure>;

/// Fails with a text unless `ok`.
pub(crate) fn ensure(ok: bool, what: impl FnOnce() -> String) -> Verdict {
    if ok { Ok(()) } else { Err(Failure::Check(what())) }
}

/// Fails unless what was found is what was expected.
pub(crate) fn equal<V: PartialEq + Debug>(what: &str, found: V, expected: V) -> Verdict {
    ensure(found == expected, || format!("{what}: found {found:?}, expected {expected:?}"))
}

/// What handlers found wrong: they cannot return it, so it waits in the endpoint's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    first: Option<String>,
    more: u64,
}

impl Findings {
    pub(crate) fn add(&mut self, what: String) {
        if self.first.is_none() {
            self.first = Some(what);
        } else {
            self.more += 1;
        }
    }

    /// Notes a difference.
    pub(crate) fn equal<V: PartialEq + Debug>(&mut self, what: &str, found: V, expected: V) {
        if found != expected {
            self.add(format!("{what}: found {found:?}, expected {expected:?}"));
        }
    }

    /// Notes an error.
    pub(crate) fn ok<E: Display>(&mut self, what: &str, result: Result<(), E>) {
        if let Err(error) = result {
            self.add(format!("{what}: {error}"));
        }
    }

    /// Notes a payload that is not the pattern of a salt.
    pub(crate) fn payload(&mut self, what: &str, payload: &Payload<'_>, salt: u64) {
        if let Some(text) = deviation(payload, salt) {
            self.add(format!("{what}: {text}"));
        }
    }

    /// Fails with the first finding.
    pub(crate) fn verdict(self) -> Verdict {
        match self {
            Self { first: None, .. } => Ok(()),
            Self { first: Some(text), more: 0 } => Err(Failure::Check(text)),
            Self { first: Some(text), more } => Err(Failure::Check(format!("{text} (and {more} more)"))),
        }
    }
}

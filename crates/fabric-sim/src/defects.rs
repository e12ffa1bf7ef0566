//! Making a machine wrong on purpose, so that tests can show that they would notice.

/// What a run's interface does wrong, out of the mutations `M` that it knows; normally nothing. Nothing but a test
/// has a use for it.
///
/// ```
/// #[derive(Clone, Copy, PartialEq)]
/// enum Mutation { LoseEverything, SwapPackets }
///
/// let defects = fabric_sim::Defects::of(Mutation::SwapPackets);
/// assert!(defects.has(Mutation::SwapPackets) && !defects.has(Mutation::LoseEverything));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defects<M>(Option<M>);

impl<M> Defects<M> {
    /// One defect.
    pub const fn of(mutation: M) -> Self {
        Self(Some(mutation))
    }
}

impl<M: PartialEq> Defects<M> {
    /// Whether the interface has this defect.
    #[inline]
    pub fn has(&self, mutation: M) -> bool {
        self.0.as_ref() == Some(&mutation)
    }
}

impl<M> Default for Defects<M> {
    fn default() -> Self {
        Self(None)
    }
}

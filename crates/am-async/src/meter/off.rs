//! Nothing is counted.

use crate::meter::{End, Party};
use am_core::Instant;

/// When a call was first seen: nobody wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen(());

impl Seen {
    #[inline(always)]
    pub(crate) fn at(&mut self, _: Instant) {}
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(());

impl Meter {
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn waits(&self) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn settle(&self, _: Instant) {}

    #[inline(always)]
    pub(crate) fn begun(&self, _: Party, _: u16, _: usize) {}

    #[inline(always)]
    pub(crate) fn busy(&self, _: u16) {}

    #[inline(always)]
    pub(crate) fn answer_bytes(&self, _: Party, _: u16, _: u64) {}

    #[inline(always)]
    pub(crate) fn ended(&self, _: Party, _: u16, _: impl FnOnce() -> End, _: usize, _: Seen) {}
}

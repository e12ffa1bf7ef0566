//! Making the interface wrong on purpose, so that tests can show that they would notice.

/// A defect. With it the interface breaks one promise of its sheet; nothing but a test has a use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// The last match entry that accepts a message takes it, not the first.
    LastMatch,
    /// Ignored bits are compared.
    CompareIgnored,
    /// A locally managed offset moves by half of what has been written.
    HalfOffset,
    /// A memory descriptor stays active with less than `max_size` left.
    NoMaxSize,
    /// The unlink event comes before the end of the last operation.
    UnlinkEarly,
    /// Events tell the length that was asked for as the length that was moved.
    HideTruncation,
    /// Nobody is told of lost events.
    HideLostEvents,
    /// Portals 4 searches the overflow list first.
    OverflowFirst,
    /// Portals 4 forgets unexpected headers.
    ForgetUnexpected,
    /// A disabled portal table entry takes messages and refuses them.
    TakeAndRefuse,
    /// A disabled portal table entry says that it has taken messages.
    RefuseSilently,
    /// The messages that a full queue makes a portal table entry disable itself for are taken all the same.
    NeverDisable,
    /// Triggered operations fire in the order of their making.
    TriggerInOrderOfMaking,
    /// Triggered operations fire whenever their counter moves.
    TriggerAgain,
}

/// The defects of a run; normally none.
pub type Defects = fabric_sim::Defects<Mutation>;

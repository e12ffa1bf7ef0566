//! Making the interface wrong on purpose, so that tests can show that they would notice.

/// A defect. With it the interface breaks one promise of its sheet; nothing but a test has a use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// A full mailbox loses what comes, and says that it took it.
    DropWhenFull,
    /// Copies of a packet are taken for new ones.
    TakeCopies,
    /// The notification is written with the last byte of a transfer, whatever else is missing.
    NotifyAtTail,
    /// A block that met a page fault is taken for written.
    IgnorePageFaults,
    /// Blocks that were lost are not sent again.
    NoRetransmission,
    /// Memory is written whatever its rights are.
    SkipRights,
    /// Copies of blocks that were complete are written once more.
    WriteCopies,
}

/// The defects of a run; normally none.
pub type Defects = fabric_sim::Defects<Mutation>;

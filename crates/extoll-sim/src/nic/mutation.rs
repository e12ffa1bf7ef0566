//! Making the interface wrong on purpose, so that tests can show that they would notice.

/// A defect. With it the interface breaks one promise of its sheet; nothing but a test has a use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// VELO delivers the packets of a pair in a different order.
    SwapPackets,
    /// VELO writes to a mailbox without looking at its read pointer.
    IgnoreReadPointer,
    /// VELO writes the status of a slot before its data.
    StatusFirst,
    /// VELO marks every slot as the end of its message.
    EndEverywhere,
    /// RMA writes the last fragment of a put before the others.
    TailEarly,
    /// Lost packets are not sent again.
    NoReplay,
    /// A receiver takes packets whatever their sequence number is.
    AnySequence,
    /// VELO delivers spoilt packets, marked by the error bit, instead of having them sent again.
    TakeSpoilt,
    /// The committed count is compared without wrapping at 8 bits.
    PlainCompare,
    /// RMA accesses pages whatever their rights are.
    SkipRights,
    /// RMA accesses pages whoever they belong to.
    SkipVpid,
    /// RMA does not look whether an address is registered: it takes the first page of the node.
    SkipLookup,
    /// A full notification queue loses what comes.
    DropNotifications,
}

/// The defects of a run; normally none.
pub type Defects = fabric_sim::Defects<Mutation>;

//! Making the interface wrong on purpose, so that tests can show that they would notice.

/// A defect. With it the interface breaks one promise of its sheet; nothing but a test has a use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// A store barrier does not wait.
    HollowBarrier,
    /// A sequence check does not wait for answers.
    HastyCheck,
    /// A sequence check says Ok whatever happened.
    BlindCheck,
    /// A lasting failure is reported as a passing one.
    LastingAsPassing,
    /// A sequence that failed can be started at once, whatever the way is like.
    EasyStart,
    /// Stores into one line may overtake each other.
    MixLine,
    /// Lines land however late they come.
    TakeLate,
    /// Remote reads are not counted.
    UncountedReads,
    /// The receiver reads before earlier stores have landed.
    ReadAhead,
    /// More lines may be outstanding than the interface has room for.
    NoWindow,
    /// Segments of any size are made.
    AnySize,
    /// A segment can be removed while others are connected to it.
    RemoveConnected,
    /// A map can be undone while others are connected.
    UnmapConnected,
    /// Whoever asks is connected, whether or not the segment is available.
    ConnectAnyway,
    /// DMA moves whole lines: begins and ends of transfers are rounded outwards, alignment is not checked.
    RoundDma,
    /// An aborted queue goes on.
    IgnoreAbort,
    /// Nobody is told of a lost node.
    SilentLoss,
}

/// The defects of a run; normally none.
pub type Defects = fabric_sim::Defects<Mutation>;

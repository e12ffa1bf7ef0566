//! How messages travel: protocols and their sizes.

/// How messages travel that are too long to be sent eagerly. All ranks choose the same.
///
/// The names are those of the variants of "Design and Implementation of a Write Based version of the Exanet MPI";
/// each of the last three adds to the one before. An eager message is one active message in all of them. Counted
/// are the messages of a long transfer besides its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// The sender says that it has a message (RTS); the receiver reads it and says when it is done (ACK).
    Read,
    /// The sender says that it has a message (RTS), the receiver where it goes (CTS); the sender writes it and
    /// says when it is done (FIN).
    SenderInitiated,
    /// In addition, a posted receive of a long message with neither wildcard tells its sender where the message
    /// goes (RTR), which then writes at once. An eager message that meets such a receive costs two messages more.
    ReceiverInitiated,
    /// In addition, eager messages retire the RTR of a receive by their sequence numbers, without further
    /// messages.
    EagerAware,
    /// In addition, the end of a written message is told by its last byte, and its envelope comes with the first.
    /// Where a receiver can read the sender's memory, as processes of one host can where the system permits it,
    /// the message is announced instead (RTS). The receiver reads it there (ACK), by one copy into the buffer of
    /// the call that waits for the message, or says where it goes (CTS), whichever has been faster
    /// ([`MessageConfig::lent_cost`]).
    #[default]
    Elided,
}

impl Protocol {
    /// All of them, from the baseline on.
    pub const ALL: [Self; 5] =
        [Self::Read, Self::SenderInitiated, Self::ReceiverInitiated, Self::EagerAware, Self::Elided];

    /// Its name in options and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::SenderInitiated => "sender-initiated",
            Self::ReceiverInitiated => "receiver-initiated",
            Self::EagerAware => "eager-aware",
            Self::Elided => "elided",
        }
    }

    /// The protocol of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    pub(crate) fn advertises(self) -> bool {
        self >= Self::ReceiverInitiated
    }
}

/// The settings of messages, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageConfig {
    /// How long messages travel.
    pub protocol: Protocol,
    /// The largest message in bytes that is sent eagerly; the transport's Medium messages limit it further.
    pub eager: usize,
    /// Bytes for messages that come before they are asked for, of all peers together. A sender takes an equal part
    /// of it, at least 512 bytes, and 64 bytes for each message beside its own; without room it announces
    /// messages, and then waits. A quarter of the part in units of 64 bytes, at least 4 and at most 4096, is how
    /// many messages of a peer may wait.
    pub unexpected: u64,
    /// Bytes of the segment that long messages are written to. At most a quarter of the segment is taken; what
    /// does not fit there travels in Medium messages.
    pub staging: u64,
    /// The most that a long message may take by [`Protocol::Elided`] that is read where its sender lends it, in
    /// percent of one that is written to the receiver's segment and copied out of it, for a receiver with a
    /// processor to itself to read it. 0 for messages that are written wherever there is room for them in the
    /// segment, `u32::MAX` for ones that are always read. With other values each rank times both ways with the
    /// messages that it receives: four of each at first, and again four of the slower one after 512 messages or
    /// more, the rarer the slower it is; below 128 KiB, below 512 KiB, and from there on. The shortest of the last
    /// four times of a way counts.
    pub lent_cost: u32,
}

impl Default for MessageConfig {
    /// The protocol [`Protocol::Elided`], 8 KiB eagerly, 16 MiB unexpected, 8 MiB of the segment, and messages
    /// read that take at most 120 % of the time of those that are written: reading keeps one processor busy, not
    /// two.
    fn default() -> Self {
        let (eager, unexpected, staging) = (8 << 10, 16 << 20, 8 << 20);
        Self { protocol: Protocol::default(), eager, unexpected, staging, lent_cost: 120 }
    }
}

impl MessageConfig {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long messages travel.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Sets the largest message in bytes that is sent eagerly.
    pub fn eager(mut self, bytes: usize) -> Self {
        self.eager = bytes;
        self
    }

    /// Sets the bytes for messages that come before they are asked for.
    pub fn unexpected(mut self, bytes: u64) -> Self {
        self.unexpected = bytes;
        self
    }

    /// Sets the bytes of the segment that long messages are written to.
    pub fn staging(mut self, bytes: u64) -> Self {
        self.staging = bytes;
        self
    }

    /// Sets the most that a message may take that is read, in percent of one that is written and copied out.
    pub fn lent_cost(mut self, percent: u32) -> Self {
        self.lent_cost = percent;
        self
    }
}

/// Messages by how they travelled, whatever their protocols' control messages. What all ranks have sent so, others
/// have received so, but for eager messages that nobody has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ByProtocol {
    /// In one message.
    pub eager: u64,
    /// Announced, then read by the receiver.
    pub read: u64,
    /// Announced, then written where the receiver said.
    pub sender_initiated: u64,
    /// Written to a receive that had been advertised.
    pub receiver_initiated: u64,
    /// Announced, then written to a receive whose advertisement crossed the announcement.
    pub crossing: u64,
    /// Announced, then read by the receiver in the sender's memory.
    pub lent: u64,
}

impl ByProtocol {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.eager + self.read + self.sender_initiated + self.receiver_initiated + self.crossing + self.lent
    }
}

/// Messages counted by how they travelled, and the messages that this took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Sent in one message.
    pub eager: u64,
    /// Announced, then read by the receiver.
    pub read: u64,
    /// Announced, then written where the receiver said.
    pub sender_initiated: u64,
    /// Written to a receive that had been advertised.
    pub receiver_initiated: u64,
    /// Announced, then written to a receive whose advertisement crossed the announcement.
    pub crossing: u64,
    /// Announced, then read by the receiver in this rank's memory.
    pub lent: u64,
    /// Messages that have met their receives, by whatever protocol, and whether they could be received.
    pub received: u64,
    /// Of those, how they travel or have come: read ones and lent ones are counted once they are here. A long
    /// message that does not fit its receive is let go at its sender and counted nowhere.
    pub received_by: ByProtocol,
    /// Of those received, such as had come before they were asked for.
    pub unexpected: u64,
    /// Messages that waited for the receiver's credit.
    pub stalled: u64,
    /// Messages that came before an earlier one of the same sender, and were held back.
    pub held: u64,
    /// Control messages sent: RTS.
    pub rts: u64,
    /// CTS.
    pub cts: u64,
    /// RTR.
    pub rtr: u64,
    /// REVOKE and what answers it.
    pub revocations: u64,
    /// FIN, with or without an envelope.
    pub fin: u64,
    /// ACK.
    pub ack: u64,
    /// Messages that brought nothing but credit.
    pub credit: u64,
    /// What a peer sent that belongs to no message, and was ignored.
    pub ignored: u64,
}

impl Counts {
    /// Control messages sent.
    pub fn control(&self) -> u64 {
        self.rts + self.cts + self.rtr + self.revocations + self.fin + self.ack + self.credit
    }

    /// Messages sent, by whatever protocol.
    pub fn sent(&self) -> u64 {
        self.sent_by().total()
    }

    /// How the messages that were sent travelled.
    pub fn sent_by(&self) -> ByProtocol {
        let Self { eager, read, sender_initiated, receiver_initiated, crossing, lent, .. } = *self;
        ByProtocol { eager, read, sender_initiated, receiver_initiated, crossing, lent }
    }
}

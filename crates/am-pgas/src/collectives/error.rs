//! What collective operations fail with.

use super::operator;
use am_core::{LossCause, Rank, SendError, WaitError};
use std::fmt;

/// The name of a type or an operator in a [`Call`]: 15 bits of a hash, so that two names in about 33,000 are taken
/// for one. It shows the names of numbers and of this module's operators, and a number for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(u16);

impl Name {
    /// The bits of a name.
    const MASK: u32 = 0x7fff;

    /// The hash of a name, never 0. Folded by the compiler for names that it knows.
    #[inline]
    pub fn of(name: &str) -> Self {
        let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let (words, rest) = name.as_bytes().as_chunks::<8>();
        let rest = rest.iter().fold(name.len() as u64, |word, byte| word << 8 | u64::from(*byte));
        let hash = words.iter().fold(0, |hash, word| step(hash, u64::from_le_bytes(*word)));
        Self((step(hash, rest) >> 40) as u16 % Self::MASK as u16 + 1)
    }

    /// The name of a type, as the compiler gives it.
    #[inline]
    pub fn of_type<T>() -> Self {
        Self::of(std::any::type_name::<T>())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NUMBERS: [&str; 14] =
            ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "u128", "i128", "usize", "isize", "f32", "f64"];
        match NUMBERS.iter().chain(&operator::NAMES).find(|name| Self::of(name) == *self) {
            Some(name) => f.write_str(name),
            None => write!(f, "#{:04x}", self.0),
        }
    }
}

/// What a member of a team called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The operation.
    pub operation: Operation,
    /// Size of an element in bytes.
    pub element: u32,
    /// The type of an element.
    pub of: Name,
    /// Elements of each member; of all of them for allgatherv and reduce_scatter; 0 where members may differ.
    pub count: u64,
    /// The root's position in the team, where there is one.
    pub root: Option<u32>,
    /// The [operator](super::Operator::name), where elements are combined.
    pub operator: Option<Name>,
    /// Whether operands keep the order of positions.
    pub ordered: bool,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, element, of, count, root, operator, ordered } = self;
        if *operation == Operation::Barrier {
            // What it carries is its own.
            return write!(f, "{operation}");
        }
        write!(f, "{operation} of {count} element(s) of {element} byte(s), {of}")?;
        if let Some(operator) = operator {
            write!(f, ", by {}{operator}", if *ordered { "ordered " } else { "" })?;
        }
        root.map_or(Ok(()), |root| write!(f, ", root {root}"))
    }
}

macro_rules! operations {
    ($($name:ident $text:literal,)*) => {
        /// A collective operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Operation {
            $(#[doc = concat!("The operation `", $text, "`.")] $name,)*
        }

        impl Operation {
            const ALL: &[Self] = &[$(Self::$name),*];

            pub(crate) fn decode(word: u32) -> Option<Self> {
                Self::ALL.get(word as usize).copied()
            }
        }

        impl fmt::Display for Operation {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)* })
            }
        }
    };
}

operations! {
    Barrier "barrier", Broadcast "broadcast", Reduce "reduce", Allreduce "allreduce", ReduceScatter "reduce_scatter",
    Scan "scan", Exscan "exscan", Scatter "scatter", Scatterv "scatterv", Gather "gather", Gatherv "gatherv",
    Allgather "allgather", Allgatherv "allgatherv", Alltoall "alltoall", Alltoallv "alltoallv",
    Split "split", Duplicate "duplicate", Select "select",
}

/// A call as argument words.
pub(crate) type CallWords = [u32; 6];

/// A failure as argument words.
pub(crate) type FailureWords = [u32; 15];

impl Call {
    /// As argument words.
    #[inline]
    pub(crate) fn encode(self) -> CallWords {
        let root = self.root.map_or(0, |root| root + 1);
        let operator = self.operator.map_or(0, |Name(name)| u32::from(name));
        let names = u32::from(self.of.0) | operator << 15 | u32::from(self.ordered) << 30;
        [self.operation as u32, self.element, self.count as u32, (self.count >> 32) as u32, root, names]
    }

    /// As three words.
    #[inline]
    pub(crate) fn head(self) -> [u64; 3] {
        let [a, b, c, d, e, g] = self.encode().map(u64::from);
        [a | b << 32, c | d << 32, e | g << 32]
    }

    pub(crate) fn decode(words: CallWords) -> Option<Self> {
        let [operation, element, low, high, root, names] = words;
        let name = |bits: u32| Name((bits & Name::MASK) as u16);
        Some(Self {
            operation: Operation::decode(operation)?,
            element,
            of: name(names),
            count: u64::from(high) << 32 | u64::from(low),
            root: root.checked_sub(1),
            operator: Some(name(names >> 15)).filter(|Name(name)| *name != 0),
            ordered: names >> 30 & 1 == 1,
        })
    }
}

/// A collective operation failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// A member of the team was lost. The team fails from now on, at all of its members;
    /// [`Team::shrink`](super::Team::shrink) makes one of the survivors.
    #[error("rank {rank} of the team is lost: {cause}")]
    Lost {
        /// The lost rank.
        rank: Rank,
        /// How it was lost, as the first that noticed found.
        cause: LossCause,
    },
    /// Two members called different operations, or the same with different arguments. Found
    /// where [`Tuning::check`](super::Tuning::check) is set; without it once a message goes with one of the calls
    /// only or an operation stands still, unless no more than names differ. The team fails from now on, at all of
    /// its members.
    #[error("rank {first} called {first_call}, rank {second} called {second_call}")]
    Mismatch {
        /// A rank.
        first: Rank,
        /// Its call.
        first_call: Call,
        /// Another one.
        second: Rank,
        /// Its call.
        second_call: Call,
    },
    /// A message has another size than its receiver expects, so that the two members called different operations.
    /// The team fails from now on, at all of its members.
    #[error("rank {from} sent {sent} bytes to rank {to}, which expected {expected}: their calls differ")]
    Size {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
        /// Bytes of the message.
        sent: u64,
        /// Bytes that the receiver's call expects.
        expected: u64,
    },
    /// A member sent a message that the other's calls do not await, or awaits one that they do not send: the two
    /// called different operations, of which one is not known any more, or with lengths of parts that are no part
    /// of a call. The team fails from now on, at all of its members.
    #[error("a message from rank {from} to rank {to} is part of the call of one of them only")]
    Unmatched {
        /// The rank that sent, or was to send.
        from: Rank,
        /// The rank that awaited it, or did not.
        to: Rank,
    },
    /// A member's call was refused at that member for its arguments, while others went through with theirs. The
    /// team fails from now on, at all of its members.
    #[error("a call of rank {rank} was refused for its arguments")]
    Refused {
        /// The rank.
        rank: Rank,
    },
    /// A member's operator panicked. The team fails from now on, at all of its members.
    #[error("the operator of a reduction panicked at rank {rank}")]
    OperatorPanicked {
        /// The rank.
        rank: Rank,
    },
    /// Members named a barrier differently, or a barrier's two phases did. The barrier is over everywhere, and the
    /// team goes on.
    #[error("{} of this rank met barriers named {lowest} to {highest}", named(*mine))]
    BarrierMismatch {
        /// This rank's name of it, if any.
        mine: Option<u32>,
        /// The lowest name.
        lowest: u32,
        /// The highest name.
        highest: u32,
    },
    /// The team has no such member.
    #[error("no member {member} in a team of {size} (from 0)")]
    NoSuchMember {
        /// The position asked for.
        member: u32,
        /// Members of the team.
        size: u32,
    },
    /// A slice or vector does not have the length that the operation needs.
    #[error("{what} has {given} element(s) instead of {needed}")]
    Length {
        /// Which one.
        what: &'static str,
        /// Its length.
        given: usize,
        /// The length that it needs.
        needed: usize,
    },
    /// Two members gave different lists of members for a new team.
    #[error(
        "rank {first} gave a list of {first_members} member(s), rank {second} another one of {second_members}: all have \
         to give the same, in the same order"
    )]
    ListsDiffer {
        /// A rank.
        first: Rank,
        /// Members in its list.
        first_members: u32,
        /// Another one.
        second: Rank,
        /// Members in its list.
        second_members: u32,
    },
    /// No number is left for another team.
    #[error("no number is left for another team of {members} member(s)")]
    TooManyTeams {
        /// Members of the team that the new one would be made from.
        members: u32,
    },
    /// The team belongs to another endpoint, so that this one is not in it.
    #[error("this endpoint is not in the team: the team belongs to another endpoint")]
    NotInTeam,
    /// The team was destroyed.
    #[error("the team was destroyed")]
    Destroyed,
    /// The other survivors agreed on a team without this rank, which they took for lost.
    #[error("the other members took rank {rank} for lost")]
    Excluded {
        /// This rank.
        rank: Rank,
    },
    /// A request could not be sent. The operation does not end; the team is of no use any more.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The wait failed: the endpoint's time-out ran out. The operation goes on by itself, and its result is let
    /// go.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

/// A barrier as errors say it.
fn named(name: Option<u32>) -> String {
    name.map_or("an anonymous barrier".into(), |name| format!("barrier {name}"))
}

impl CollectiveError {
    /// The rank whose loss made the operation fail and how it was lost, if one did.
    pub fn loss(&self) -> Option<(Rank, LossCause)> {
        match self {
            Self::Lost { rank, cause } => Some((*rank, *cause)),
            Self::Send(error) => error.loss(),
            Self::Wait(error) => error.loss(),
            _ => None,
        }
    }

    /// The rank whose loss made the operation fail, if one did.
    pub fn lost_rank(&self) -> Option<Rank> {
        self.loss().map(|(rank, _)| rank)
    }
}

/// Why a team fails, as it is told among its members.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Failure {
    Lost { rank: Rank, cause: LossCause },
    Mismatch { first: Rank, first_call: Call, second: Rank, second_call: Call },
    Size { from: Rank, to: Rank, sent: u64, expected: u64 },
    Unmatched { from: Rank, to: Rank },
    Arguments { rank: Rank },
    Operator { rank: Rank },
}

impl Failure {
    /// As argument words.
    pub(crate) fn encode(self) -> FailureWords {
        let mut words = [0; 15];
        match self {
            Self::Lost { rank, cause } => {
                words[..3].copy_from_slice(&[0, rank.0, cause.code().into()]);
            }
            Self::Mismatch { first, first_call, second, second_call } => {
                words[..3].copy_from_slice(&[1, first.0, second.0]);
                words[3..9].copy_from_slice(&first_call.encode());
                words[9..].copy_from_slice(&second_call.encode());
            }
            Self::Size { from, to, sent, expected } => {
                words[..3].copy_from_slice(&[2, from.0, to.0]);
                words[3..7].copy_from_slice(&[
                    sent as u32,
                    (sent >> 32) as u32,
                    expected as u32,
                    (expected >> 32) as u32,
                ]);
            }
            Self::Unmatched { from, to } => words[..3].copy_from_slice(&[3, from.0, to.0]),
            Self::Arguments { rank } => words[..2].copy_from_slice(&[4, rank.0]),
            Self::Operator { rank } => words[..2].copy_from_slice(&[5, rank.0]),
        }
        words
    }

    pub(crate) fn decode(words: FailureWords) -> Option<Self> {
        let long = |at: usize| u64::from(words[at]) | u64::from(words[at + 1]) << 32;
        let call = |at: usize| Call::decode(words[at..at + 6].try_into().ok()?);
        let (first, second) = (Rank(words[1]), Rank(words[2]));
        Some(match words[0] {
            0 => Self::Lost { rank: first, cause: LossCause::from_code(words[2].try_into().ok()?)? },
            1 => Self::Mismatch { first, first_call: call(3)?, second, second_call: call(9)? },
            2 => Self::Size { from: first, to: second, sent: long(3), expected: long(5) },
            3 => Self::Unmatched { from: first, to: second },
            4 => Self::Arguments { rank: first },
            5 => Self::Operator { rank: first },
            _ => return None,
        })
    }
}

impl From<Failure> for CollectiveError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lost { rank, cause } => Self::Lost { rank, cause },
            Failure::Mismatch { first, first_call, second, second_call } => {
                Self::Mismatch { first, first_call, second, second_call }
            }
            Failure::Size { from, to, sent, expected } => Self::Size { from, to, sent, expected },
            Failure::Unmatched { from, to } => Self::Unmatched { from, to },
            Failure::Arguments { rank } => Self::Refused { rank },
            Failure::Operator { rank } => Self::OperatorPanicked { rank },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_survive_the_way() {
        let call = Call {
            operation: Operation::Alltoallv,
            element: 9,
            of: Name::of_type::<[u8; 9]>(),
            count: u64::MAX - 3,
            root: Some(0),
            operator: None,
            ordered: false,
        };
        let (of, operator) = (Name::of_type::<f64>(), Some(Name::of("Sum")));
        let other = Call { operation: Operation::Scan, count: 1, of, root: None, operator, ordered: true, ..call };
        assert_eq!(Call { operation: Operation::Barrier, ..other }.to_string(), "barrier");
        let (a, b) = (Rank(3), Rank(u32::MAX));
        for failure in [
            Failure::Lost { rank: a, cause: LossCause::Forked },
            Failure::Mismatch { first: a, first_call: call, second: b, second_call: other },
            Failure::Size { from: b, to: a, sent: 1 << 40, expected: 7 },
            Failure::Unmatched { from: b, to: a },
            Failure::Arguments { rank: b },
            Failure::Operator { rank: a },
        ] {
            assert_eq!(Failure::decode(failure.encode()), Some(failure));
        }
        assert_eq!(Failure::decode([9; 15]), None);
        let text =
            CollectiveError::from(Failure::Mismatch { first: a, first_call: call, second: b, second_call: other });
        let text = text.to_string();
        assert!(text.contains("rank 3 called alltoallv of 18446744073709551612 element(s)"), "{text}");
        assert!(text.ends_with("scan of 1 element(s) of 9 byte(s), f64, by ordered Sum"), "{text}");
    }

    #[test]
    fn barriers_are_told_by_name() {
        let text = |mine| CollectiveError::BarrierMismatch { mine, lowest: 7, highest: 8 }.to_string();
        assert_eq!(text(Some(8)), "barrier 8 of this rank met barriers named 7 to 8");
        assert_eq!(text(None), "an anonymous barrier of this rank met barriers named 7 to 8");
    }

    #[test]
    fn known_names_are_shown() {
        let numbers = [Name::of_type::<u8>(), Name::of_type::<usize>(), Name::of_type::<f64>()];
        assert_eq!(numbers.map(|name| name.to_string()), ["u8", "usize", "f64"]);
        for name in operator::NAMES {
            assert_eq!(Name::of(name).to_string(), name, "taken for another");
        }
        assert!(Name::of_type::<[u8; 9]>().to_string().starts_with('#'));
        assert_ne!(Name::of_type::<[u8; 9]>(), Name::of_type::<[u8; 8]>());
    }
}

//! What a frame is, and its code in headers.

use am_core::Category;
use am_core::transport::ReplyBound;

/// What a frame of a conduit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request whose handler may reply.
    Request(Category),
    /// A request whose handler cannot.
    OneWay(Category),
    /// A reply.
    Reply(Category),
    /// A message between cores.
    Control,
    /// Credits and nothing else.
    Credit,
}

impl Kind {
    /// How many codes there are: [`code`](Self::code) is below.
    pub const CODES: u8 = 11;

    /// Of a request with the bound of its reply.
    pub const fn of_request(category: Category, reply: ReplyBound) -> Self {
        match reply {
            ReplyBound::None => Self::OneWay(category),
            ReplyBound::UpTo(_) => Self::Request(category),
        }
    }

    /// The kind as a number for headers.
    pub const fn code(self) -> u8 {
        match self {
            Self::Request(category) => category as u8,
            Self::OneWay(category) => 3 + category as u8,
            Self::Reply(category) => 6 + category as u8,
            Self::Control => 9,
            Self::Credit => 10,
        }
    }

    /// The kind with this code; `None` if there is none.
    pub fn from_code(code: u8) -> Option<Self> {
        let category = Category::ALL[usize::from(code % 3)];
        Some(match code {
            0..3 => Self::Request(category),
            3..6 => Self::OneWay(category),
            6..9 => Self::Reply(category),
            9 => Self::Control,
            10 => Self::Credit,
            _ => return None,
        })
    }

    /// The category of a message for a handler; `None` for what is between transports.
    pub const fn category(self) -> Option<Category> {
        match self {
            Self::Request(category) | Self::OneWay(category) | Self::Reply(category) => Some(category),
            Self::Control | Self::Credit => None,
        }
    }

    /// Whether the payload is placed in the receiver's segment.
    pub const fn is_long(self) -> bool {
        matches!(self.category(), Some(Category::Long))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_written() {
        for code in 0..=u8::MAX {
            let kind = Kind::from_code(code);
            assert_eq!(kind.map(Kind::code), (code < Kind::CODES).then_some(code));
        }
        let long = [2, 5, 8].map(|code| Kind::from_code(code).unwrap());
        assert_eq!(long, [Kind::Request, Kind::OneWay, Kind::Reply].map(|kind| kind(Category::Long)));
        let all = (0..Kind::CODES).filter_map(Kind::from_code);
        assert_eq!(all.filter(|kind| kind.is_long()).collect::<Vec<_>>(), long);
    }
}

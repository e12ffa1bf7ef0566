//! What a handler may return: nothing, or a `Result` whose error is told to the endpoint that ran it.

use crate::address::Address;
use crate::error::{Rejected, ReplyError};
use crate::token::Token;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// What a handler that can fail returns.
///
/// ```
/// use am_core::{HandlerResult, Handlers};
///
/// let mut handlers = Handlers::<u64>::new();
/// let sum = handlers.reply("sum", |total: &mut u64, _, value: u64, _| *total += value)?;
/// handlers.request("add", move |_, token, (a, b): (u64, u64), _| -> HandlerResult {
///     token.reply(sum, a.checked_add(b).ok_or_else(|| am_core::HandlerError::new("the sum is too large"))?)?;
///     Ok(())
/// })?;
/// # Ok::<(), am_core::RegisterError>(())
/// ```
pub type HandlerResult = Result<(), HandlerError>;

/// An error that a handler returned. `?` makes one of a refused reply and of every error that is [`Send`],
/// [`Sync`] and `'static`.
///
/// That the requester is gone is not the handler's failure: such an error ([`HandlerError::is_gone`]) is dropped
/// quietly. Any other ends the poll or wait under way with [`PollError::Handler`](crate::PollError::Handler); the
/// endpoint can be used afterwards.
#[derive(Clone)]
pub struct HandlerError(Repr);

#[derive(Clone)]
enum Repr {
    Reply(ReplyError),
    Other(Arc<dyn Error + Send + Sync>),
}

impl HandlerError {
    /// An error of a text, or of another error.
    ///
    /// A [`ReplyError`] stays one, so that [`is_gone`](Self::is_gone) knows it.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(match error.into().downcast::<ReplyError>() {
            Ok(reply) => Repr::Reply(*reply),
            Err(other) => Repr::Other(other.into()),
        })
    }

    /// Whether this says that a reply was refused because its requester is lost or has finished.
    pub fn is_gone(&self) -> bool {
        matches!(self.0, Repr::Reply(ReplyError::Gone { .. }))
    }

    /// The error as the handler had it; a refused reply is a [`ReplyError`].
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        match &self.0 {
            Repr::Reply(error) => error,
            Repr::Other(error) => &**error,
        }
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlerError").field(&self.error()).finish()
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.error(), f)
    }
}

/// Two errors are equal if they read the same.
impl PartialEq for HandlerError {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Repr::Reply(a), Repr::Reply(b)) => a == b,
            _ => self.to_string() == other.to_string(),
        }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

impl From<Rejected<Token<'_>>> for HandlerError {
    fn from(rejected: Rejected<Token<'_>>) -> Self {
        Self(Repr::Reply(rejected.error))
    }
}

/// An error that a handler returned, with the message that it handled.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HandlerFailure {
    /// Name of the handler.
    pub handler: String,
    /// Who sent the message.
    pub from: Address,
    /// What the handler returned.
    pub error: HandlerError,
}

impl fmt::Display for HandlerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handler '{}' failed on a message from rank {}: {}", self.handler, self.from, self.error)
    }
}

/// What a handler may return: `()`, or a `Result<(), E>` of [`HandlerError`] or any error that converts to it.
#[diagnostic::on_unimplemented(
    message = "a handler returns nothing or a `Result<(), E>`, not `{Self}`",
    note = "end the handler's last line with `;`, or return `HandlerResult` and end with `Ok(())`"
)]
pub trait HandlerOutcome {
    /// The error to tell, if the handler failed; none if the requester is gone.
    fn failure(self) -> Option<HandlerError>;
}

impl HandlerOutcome for () {
    #[inline(always)]
    fn failure(self) -> Option<HandlerError> {
        None
    }
}

impl<E: Into<HandlerError>> HandlerOutcome for Result<(), E> {
    #[inline]
    fn failure(self) -> Option<HandlerError> {
        self.err().map(E::into).filter(|error| !error.is_gone())
    }
}

/// Handlers that only panic return nothing at all.
impl HandlerOutcome for Never {
    fn failure(self) -> Option<HandlerError> {
        self
    }
}

/// The type `!`, which stable Rust cannot name otherwise.
type Never = <fn() -> ! as never::Returns>::Value;

mod never {
    /// The type that a function returns.
    pub trait Returns {
        type Value;
    }

    impl<R> Returns for fn() -> R {
        type Value = R;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::single;
    use crate::{Endpoint, Handlers, PollError, Rank, WaitError};
    use std::io;

    #[test]
    fn handlers_return_what_they_like() {
        let mut handlers = Handlers::<u32>::new();
        handlers.one_way("nothing", |count, _, (), _| *count += 1).unwrap();
        handlers.one_way("own error", |_, _, (), _| -> Result<(), io::Error> { Ok(()) }).unwrap();
        handlers.one_way("never", |_, _, (), _| panic!("not sent")).unwrap();
        let done = handlers.reply("done", |_, _, (), _| -> HandlerResult { Ok(()) }).unwrap();
        let ask = move |_: &mut u32, token: Token<'_>, (): (), _: crate::Payload<'_>| -> HandlerResult {
            token.reply(done, ())?;
            Err(io::Error::other("disk"))?;
            Ok(())
        };
        handlers.request("both errors", ask).unwrap();
        assert_eq!(handlers.len(), 5);
    }

    #[test]
    fn a_failed_handler_ends_the_wait_and_nothing_else() {
        let mut handlers = Handlers::<u32>::new();
        let answer = handlers.reply("answer", |count: &mut u32, _, (), _| *count += 1).unwrap();
        let ask = handlers.request("ask", move |_, token, text: u32, _| -> HandlerResult {
            if text > 0 {
                return Err(HandlerError::new(format!("no {text}")));
            }
            token.reply(answer, ())?;
            Ok(())
        });
        let ask = ask.unwrap();
        let mut endpoint = Endpoint::attach(single(), handlers, 0).unwrap();
        for text in [0, 7, 8, 0] {
            endpoint.request(Rank(0), ask, text).unwrap();
        }
        let Err(WaitError::Poll(PollError::Handler(failure))) = endpoint.wait_until(|count| *count == 2) else {
            panic!("the second request fails");
        };
        assert_eq!(failure.to_string(), "handler 'ask' failed on a message from rank 0: no 7");
        endpoint.wait_until(|count| *count == 2).unwrap();
        assert_eq!(endpoint.statistics().failed, 2);
        assert_eq!(endpoint.finish().unwrap(), 2);
    }

    #[test]
    fn a_reply_that_is_too_large_is_told_by_its_handler() {
        let mut handlers = Handlers::<()>::new();
        let answer = handlers.reply("answer", |(), _, (), _| ()).unwrap();
        let ask = handlers.request_bounded("ask", 8, move |(), token, (), _| -> HandlerResult {
            Ok(token.reply_medium(answer, (), &[0; 9])?)
        });
        let ask = ask.unwrap();
        let mut endpoint = Endpoint::attach(single(), handlers, ()).unwrap();
        endpoint.request(Rank(0), ask, ()).unwrap();
        let Err(PollError::Handler(failure)) = endpoint.poll() else { panic!("the reply is too large") };
        let error = failure.error.error().downcast_ref::<ReplyError>();
        assert_eq!(error, Some(&ReplyError::PayloadTooLarge { len: 9, bound: 8 }));
        endpoint.finish().unwrap();
    }

    #[test]
    fn a_requester_that_is_gone_is_no_failure() {
        let to = Address::from(Rank(3));
        let gone = HandlerError(Repr::Reply(ReplyError::Gone { to }));
        assert!(gone.is_gone());
        assert_eq!(Err::<(), _>(gone).failure(), None);
        assert!(
            HandlerError::new(ReplyError::Gone { to }).is_gone()
                && HandlerError::from(ReplyError::Gone { to }).is_gone()
        );
        assert_eq!(Err::<(), _>(HandlerError::new("x")).failure(), Some(HandlerError::new("x")));
        assert_eq!(HandlerResult::Ok(()).failure(), None);
    }
}

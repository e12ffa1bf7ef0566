//! Messages from memory that a program gives away until they are over: immediate sends without a copy.

use crate::communicator::Communicator;
use crate::error::{AskedBytes, MessageError};
use crate::kind::ElementType;
use crate::layer::{self, Awaited, Messages};
use crate::machine::{Given, Mode};
use crate::messages::Begun;
use crate::request::sealed::Sealed;
use crate::request::{Pending, SendRequest, check, serve_for};
use am_core::zerocopy::IntoBytes;
use am_core::{Endpoint, HasLayer, Rank, Transport};
use am_pgas::pointer::Element;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

mod known {
    pub trait Known {}
}

/// Values that a message can own: a `Vec`, a boxed slice, a share of either by [`Arc`], or a slice that lives for
/// ever.
pub trait OwnedValues: known::Known + Send + 'static {
    /// Their type.
    type Value: Element;

    /// The values.
    fn values(&self) -> &[Self::Value];
}

macro_rules! owned_values {
    ($($memory:ty),*) => {$(
        impl<V: Element + Sync> known::Known for $memory {}

        impl<V: Element + Sync> OwnedValues for $memory {
            type Value = V;

            fn values(&self) -> &[V] {
                self
            }
        }
    )*};
}

owned_values!(Vec<V>, Box<[V]>, Arc<[V]>, Arc<Vec<V>>, &'static [V]);

/// The memory of a message, where the protocols find it.
struct Holder<A>(A);

impl<A: OwnedValues> Given for Holder<A> {
    fn bytes(&self) -> &[u8] {
        self.0.values().as_bytes()
    }
}

/// A message that is being sent from memory that it owns: dropped, it goes on by itself, and the memory with it.
#[must_use = "whether a message was sent is known by waiting for it"]
pub struct OwnedSend<A> {
    request: SendRequest,
    /// Its memory, where the message does not have it.
    memory: Option<A>,
}

impl<A> fmt::Debug for OwnedSend<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedSend").field(&self.request).finish()
    }
}

impl<A> Sealed for OwnedSend<A> {
    fn over(&self, messages: &Messages) -> bool {
        self.request.over(messages)
    }

    fn is_unmet(&self, _: &Messages) -> bool {
        false
    }

    fn layer(&self) -> u64 {
        self.request.layer()
    }

    fn peer(&self) -> Option<Rank> {
        self.request.peer()
    }

    fn communicator(&self) -> Option<&Communicator> {
        None
    }
}

impl<A> Pending for OwnedSend<A> {}

impl<A: OwnedValues> OwnedSend<A> {
    /// What the message has come to, and its memory, if it is over.
    fn outcome<T: Transport, S: HasLayer<Messages>>(
        &mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Option<Result<A, MessageError>> {
        if let Some((key, _)) = &self.request.under_way
            && let Some(given) = endpoint.layer_unscheduled::<Messages>().machine.take_given(*key)
        {
            let given: Box<dyn Any> = given;
            self.memory = given.downcast::<Holder<A>>().ok().map(|holder| holder.0);
        }
        let sent = self.request.outcome(endpoint)?;
        Some(sent.map(|()| self.memory.take().expect("a message that is over gives its memory back")))
    }

    /// Waits until the message has been sent, as [`SendRequest::wait`] does; the memory. Blocks.
    ///
    /// # Errors
    /// As [`SendRequest::wait`]. After a time-out the message goes on by itself, with its memory.
    pub fn wait<T: Transport, S: HasLayer<Messages>>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<A, MessageError> {
        check(endpoint, self.layer())?;
        let to = self.peer().expect("a message is sent to a rank");
        layer::wait(endpoint, Awaited::One(to), |endpoint| Ok(self.outcome(endpoint)))?
    }

    /// Serves what has arrived; what the message has come to, or the request if it is still under way. Does not
    /// block.
    ///
    /// # Errors
    /// The request, while the message is under way.
    pub fn test<T: Transport, S: HasLayer<Messages>>(
        mut self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Result<A, MessageError>, Self> {
        if let Err(error) = check(endpoint, self.layer()) {
            return Ok(Err(error));
        }
        serve_for(endpoint, &[&self]);
        self.outcome(endpoint).ok_or(self)
    }
}

impl Communicator {
    /// Begins to send values that the request owns, without a copy of a long message, and gives them back when it
    /// is waited for. Does not block. Several messages can share values by an [`Arc`].
    ///
    /// # Errors
    /// As [`immediate_send`](Self::immediate_send); the memory goes.
    pub fn immediate_send_owned<T: Transport, S: HasLayer<Messages>, A: OwnedValues>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        values: A,
    ) -> Result<OwnedSend<A>, MessageError> {
        self.begin_owned(endpoint, (to, tag), values, Mode::Standard)
    }

    /// As [`immediate_send_owned`](Self::immediate_send_owned); the request is over when the message has met its
    /// receive.
    ///
    /// # Errors
    /// As [`immediate_send_owned`](Self::immediate_send_owned).
    pub fn immediate_synchronous_send_owned<T: Transport, S: HasLayer<Messages>, A: OwnedValues>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        values: A,
    ) -> Result<OwnedSend<A>, MessageError> {
        self.begin_owned(endpoint, (to, tag), values, Mode::Synchronous)
    }

    fn begin_owned<T: Transport, S: HasLayer<Messages>, A: OwnedValues>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (to, tag): (u32, i32),
        values: A,
        mode: Mode,
    ) -> Result<OwnedSend<A>, MessageError> {
        let outgoing = self.outgoing(endpoint, (to, tag), ElementType::of::<A::Value>(), mode)?;
        let len = size_of_val(values.values()) as u64;
        let machine = &mut endpoint.layer_unscheduled::<Messages>().machine;
        if !machine.is_long(len) {
            let begun = Self::begin(endpoint, outgoing, values.values().as_bytes(), false)?;
            let request = SendRequest::new(endpoint, begun, outgoing, len);
            return Ok(OwnedSend { request, memory: Some(values) });
        }
        let (to, envelope) = (outgoing.to.0, outgoing.envelope);
        if machine.is_closed(envelope.context) {
            return Err(MessageError::freed(to, envelope.tag, AskedBytes::Are(len)));
        }
        Self::ask_for_access(endpoint, to);
        let machine = &mut endpoint.layer_mut::<Messages>().machine;
        let key = machine.begin_given(to, envelope, mode, Box::new(Holder(values)));
        let request = SendRequest::new(endpoint, Begun::UnderWay(key, None), outgoing, len);
        Ok(OwnedSend { request, memory: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Protocol;
    use crate::request::wait_all;
    use crate::tests::everywhere;

    fn values(len: usize, salt: u32) -> Vec<u32> {
        (0..len as u32).map(|place| place.wrapping_mul(salt + 7)).collect()
    }

    /// The memory that a message is sent from is the program's, which has it back.
    #[test]
    fn memory_comes_back_as_it_was() {
        everywhere(2, |endpoint, world| {
            let (me, other) = (world.rank(), 1 - world.rank());
            for protocol in Protocol::ALL {
                world.choose(endpoint, protocol, 1000).unwrap();
                for len in [0, 100, 250, 251, 50_000] {
                    let (vector, boxed) = (values(len, me), values(len, me + 2).into_boxed_slice());
                    let places = (vector.as_ptr(), boxed.as_ptr());
                    let receives = [1, 2, 3].map(|tag| {
                        world.immediate_receive::<_, _, u32>(endpoint, other, tag, len).expect("it is a member")
                    });
                    let first = world.immediate_send_owned(endpoint, other, 1, vector).unwrap();
                    let second = world.immediate_synchronous_send_owned(endpoint, other, 2, boxed).unwrap();
                    let fixed: &'static [u32] = &[5; 300];
                    let third = world.immediate_send_owned(endpoint, other, 3, &fixed[..len.min(300)]).unwrap();
                    let expected = [values(len, other), values(len, other + 2), vec![5; len.min(300)]];
                    for (receive, expected) in receives.into_iter().zip(expected) {
                        assert_eq!(receive.wait(endpoint).unwrap().0, expected);
                    }
                    wait_all(endpoint, &[&first, &second, &third]).unwrap();
                    let first = first.test(endpoint).expect("it is over").unwrap();
                    assert_eq!((first.as_ptr(), first), (places.0, values(len, me)));
                    let second = second.wait(endpoint).unwrap();
                    assert_eq!((second.as_ptr(), &second[..]), (places.1, &values(len, me + 2)[..]));
                    third.wait(endpoint).unwrap();
                }
            }
        });
    }

    /// Many messages share values, and nobody has a share when they are over, waited for or not.
    #[test]
    fn shares_end_with_their_messages() {
        everywhere(2, |endpoint, world| {
            let other = 1 - world.rank();
            let shared: Arc<[u32]> = values(5000, world.rank()).into();
            let again = Arc::new(values(5000, world.rank()));
            let (mut sends, mut others) = (Vec::new(), Vec::new());
            for _ in 0..70 {
                sends.push(world.immediate_send_owned(endpoint, other, 1, Arc::clone(&shared)).unwrap());
                others.push(world.immediate_send_owned(endpoint, other, 1, Arc::clone(&again)).unwrap());
            }
            assert_eq!((Arc::strong_count(&shared), Arc::strong_count(&again)), (71, 71));
            drop(others);
            for _ in 0..140 {
                let (got, _) = world.receive_vec::<_, _, u32>(endpoint, other, 1).unwrap();
                assert_eq!(got, values(5000, other));
            }
            sends.into_iter().for_each(|send| drop(send.wait(endpoint).unwrap()));
            // What the other has received is over here once it says so.
            world.team().barrier(endpoint).unwrap();
            while Arc::strong_count(&again) != 1 {
                endpoint.poll().unwrap();
            }
            assert_eq!(Arc::strong_count(&shared), 1);
            // Of a message that is not sent, too.
            let error = world.immediate_send_owned(endpoint, 9, 1, Arc::clone(&shared)).map(drop).unwrap_err();
            assert!(matches!(error, MessageError::NoSuchMember { .. }), "{error}");
            let copy = world.duplicate(endpoint).unwrap();
            let (freed, gone) = (copy.clone(), Arc::clone(&shared));
            copy.free(endpoint).unwrap();
            let error = freed.immediate_send_owned(endpoint, other, 1, gone).map(drop).unwrap_err();
            assert!(matches!(error, MessageError::Freed { .. }), "{error}");
            assert_eq!(Arc::strong_count(&shared), 1);
        });
    }
}

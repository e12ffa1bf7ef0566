//! Methods as callers name them: handles that carry the types, and how values become bytes.

use am_core::zerocopy::{FromBytes, Immutable, IntoBytes};
use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;

use crate::error::Failure;

/// Which method of which table, without its types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodId {
    /// Place in the table.
    pub(crate) index: u16,
    /// Tells the method's name and types from others: a handle of another table, or a message that means another
    /// method, is found out.
    pub(crate) digest: u32,
}

/// Bytes that are no value of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

mod sealed {
    pub trait Sealed {}
}
pub(crate) use sealed::Sealed;

/// A method that can be called: [`Method`], [`SliceMethod`], and either of them as [`Idempotent`].
pub trait Callable: Copy + Send + Sealed + 'static {
    /// What a call brings.
    type Request: ?Sized;
    /// What it answers.
    type Response;
    /// What it fails with.
    type Error;

    /// Which method it is.
    fn id(&self) -> MethodId;

    /// Appends a request's bytes.
    ///
    /// # Errors
    /// What the serialiser says.
    fn encode(request: &Self::Request, into: &mut Vec<u8>) -> Result<(), String>;

    /// A request's bytes, if they lie in memory as they travel.
    fn bytes(request: &Self::Request) -> Option<&[u8]> {
        let _ = request;
        None
    }

    /// The answer of some bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    fn decode(bytes: &[u8]) -> Result<Self::Response, Malformed>;

    /// The error of some bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    fn decode_error(bytes: &[u8]) -> Result<Self::Error, Malformed>;
}

/// A method with requests `Q`, answers `R` and errors `E`, all of which serde knows. [`Methods`](crate::Methods)
/// makes them; every rank has the same.
pub struct Method<Q, R, E = Failure> {
    pub(crate) id: MethodId,
    types: PhantomData<fn(Q) -> Result<R, E>>,
}

/// A method whose requests and answers are slices of plain values, `[A]` and `[B]`, which travel as they lie in
/// memory.
pub struct SliceMethod<A, B, E = Failure> {
    pub(crate) id: MethodId,
    types: PhantomData<fn(A) -> Result<B, E>>,
}

/// A method that answers a request `Q` with any number of `R`.
pub struct StreamMethod<Q, R, E = Failure> {
    pub(crate) id: MethodId,
    types: PhantomData<fn(Q) -> Result<R, E>>,
}

macro_rules! handle {
    ($($name:ident)*) => {$(
        impl<A, B, E> $name<A, B, E> {
            pub(crate) const fn new(id: MethodId) -> Self {
                Self { id, types: PhantomData }
            }
        }

        impl<A, B, E> Clone for $name<A, B, E> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<A, B, E> Copy for $name<A, B, E> {}

        impl<A, B, E> fmt::Debug for $name<A, B, E> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.id.index).finish()
            }
        }

        impl<A, B, E> Sealed for $name<A, B, E> {}
    )*};
}

handle!(Method SliceMethod StreamMethod);

/// A method of which a repeated request does no harm, so that calls may be
/// [retried](crate::Caller::call_retrying). [`Methods::idempotent`](crate::Methods::idempotent) declares it.
#[derive(Clone, Copy, Debug)]
pub struct Idempotent<M>(pub(crate) M);

impl<M> Sealed for Idempotent<M> {}

/// Where a serialiser appends its bytes: texts and the like as a whole.
struct Appended<'a>(&'a mut Vec<u8>);

impl Flavor for Appended<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        match *bytes {
            // Most numbers; a call of `memcpy` takes longer.
            [byte] => self.0.push(byte),
            [first, second] => self.0.extend_from_slice(&[first, second]),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends a value; after an error, maybe a part of it.
pub(crate) fn encode(value: &(impl Serialize + ?Sized), into: &mut Vec<u8>) -> Result<(), String> {
    postcard::serialize_with_flavor(value, Appended(into)).map_err(|error| error.to_string())
}

pub(crate) fn decode<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, Malformed> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        // Too short, too long, or something else.
        Ok(_) | Err(_) => Err(Malformed),
    }
}

impl<Q, R, E> Callable for Method<Q, R, E>
where
    Q: Serialize + 'static,
    R: DeserializeOwned + 'static,
    E: DeserializeOwned + 'static,
{
    type Request = Q;
    type Response = R;
    type Error = E;

    #[inline]
    fn id(&self) -> MethodId {
        self.id
    }

    #[inline]
    fn encode(request: &Q, into: &mut Vec<u8>) -> Result<(), String> {
        encode(request, into)
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<R, Malformed> {
        decode(bytes)
    }

    fn decode_error(bytes: &[u8]) -> Result<E, Malformed> {
        decode(bytes)
    }
}

/// Plain values: those of which any bytes are one, without padding or references. Of the crate
/// [`zerocopy`](am_core::zerocopy), which derives the traits.
pub trait PlainValue: FromBytes + IntoBytes + Immutable + Copy + Send + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + 'static> PlainValue for T {}

impl<A: PlainValue, B: PlainValue, E: DeserializeOwned + 'static> Callable for SliceMethod<A, B, E> {
    type Request = [A];
    type Response = Vec<B>;
    type Error = E;

    #[inline]
    fn id(&self) -> MethodId {
        self.id
    }

    #[inline]
    fn encode(request: &[A], into: &mut Vec<u8>) -> Result<(), String> {
        into.extend_from_slice(request.as_bytes());
        Ok(())
    }

    #[inline]
    fn bytes(request: &[A]) -> Option<&[u8]> {
        Some(request.as_bytes())
    }

    fn decode(bytes: &[u8]) -> Result<Vec<B>, Malformed> {
        const { assert!(size_of::<B>() != 0, "values of no bytes do not travel as slices") };
        if !bytes.len().is_multiple_of(size_of::<B>()) {
            return Err(Malformed);
        }
        // Long ones mostly lie as they have to.
        if let Ok(values) = <[B]>::ref_from_bytes(bytes) {
            return Ok(values.to_vec());
        }
        let mut values = vec![B::new_zeroed(); bytes.len() / size_of::<B>()];
        values.as_mut_slice().as_mut_bytes().copy_from_slice(bytes);
        Ok(values)
    }

    fn decode_error(bytes: &[u8]) -> Result<E, Malformed> {
        decode(bytes)
    }
}

impl<M: Callable> Callable for Idempotent<M> {
    type Request = M::Request;
    type Response = M::Response;
    type Error = M::Error;

    fn id(&self) -> MethodId {
        self.0.id()
    }

    fn encode(request: &M::Request, into: &mut Vec<u8>) -> Result<(), String> {
        M::encode(request, into)
    }

    fn bytes(request: &M::Request) -> Option<&[u8]> {
        M::bytes(request)
    }

    fn decode(bytes: &[u8]) -> Result<M::Response, Malformed> {
        M::decode(bytes)
    }

    fn decode_error(bytes: &[u8]) -> Result<M::Error, Malformed> {
        M::decode_error(bytes)
    }
}

/// Bytes of a message in memory that plain values of any alignment up to 16 can be seen in.
#[derive(Debug, Default)]
pub(crate) struct Aligned {
    words: Vec<u128>,
    len: usize,
}

impl Aligned {
    /// Makes room for a message and lets `fill` write it. Allocates if it is longer than all before.
    pub(crate) fn fill(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> &[u8] {
        let words = len.div_ceil(16);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        self.len = len;
        let bytes = &mut self.words.as_mut_slice().as_mut_bytes()[..len];
        fill(bytes);
        bytes
    }

    /// Gives memory of a long message back.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        if self.words.len() > bytes.div_ceil(16) {
            self.words.truncate(0);
            self.words.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_and_longer_values_are_no_values() {
        let mut bytes = Vec::new();
        encode(&(7u32, "text".to_owned()), &mut bytes).unwrap();
        assert_eq!(decode::<(u32, String)>(&bytes), Ok((7, "text".into())));
        for len in 0..bytes.len() {
            assert_eq!(decode::<(u32, String)>(&bytes[..len]), Err(Malformed));
        }
        bytes.push(0);
        assert_eq!(decode::<(u32, String)>(&bytes), Err(Malformed));
        type Slices = SliceMethod<u32, u64>;
        assert_eq!(Slices::decode(&[0; 12]), Err(Malformed));
        assert_eq!(Slices::decode(&[1, 0, 0, 0, 0, 0, 0, 0]), Ok(vec![1]));
    }

    #[test]
    fn any_alignment_is_kept() {
        let mut aligned = Aligned::default();
        let bytes = aligned.fill(20, |bytes| bytes.fill(3));
        assert_eq!((bytes.len(), bytes.as_ptr() as usize % 16), (20, 0));
        assert_eq!(<[u32]>::ref_from_bytes(bytes).unwrap(), [0x0303_0303; 5]);
        aligned.shrink(16);
        assert!(aligned.fill(0, |_| ()).is_empty());
    }
}

//! Memory that messages are read into while no call waits for them that has some: values of the receive's type, so
//! that they are handed out as they are.

use super::zeroes;
use am_core::zerocopy::IntoBytes;
use am_pgas::pointer::Element;
use std::any::Any;
use std::fmt;

/// Values of a type that the protocols do not know.
pub(crate) trait Place: Any + Send {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl<V: Element> Place for Vec<V> {
    fn bytes(&self) -> &[u8] {
        self.as_slice().as_bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice().as_mut_bytes()
    }
}

impl fmt::Debug for dyn Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("bytes", &self.bytes().len()).finish()
    }
}

/// Makes a place of some bytes; `None` if no whole number of values takes so many, or there is no memory for them.
pub(crate) type MakePlace = fn(usize) -> Option<Box<dyn Place>>;

/// A place of values of a type. Allocates.
pub(crate) fn place_of<V: Element>(bytes: usize) -> Option<Box<dyn Place>> {
    let count = bytes / size_of::<V>().max(1);
    let values = zeroes(V::new_zeroed(), count).filter(|values| size_of_val(values.as_slice()) == bytes)?;
    Some(Box::new(values))
}

/// The values of a place, if they are of this type.
pub(crate) fn values_in<V: Element>(place: Box<dyn Place>) -> Result<Vec<V>, Box<dyn Place>> {
    if (&*place as &dyn Any).is::<Vec<V>>() {
        let values: Box<dyn Any> = place;
        return Ok(*values.downcast().expect("it is of this type"));
    }
    Err(place)
}

//! Calls that send and receive at once.

use super::{ANY_TAG, Asked, Buffer, BufferMut, Element, Process, State, Status, Tag, Transport, well};

fn exchange<B: Buffer + ?Sized, R: BufferMut + ?Sized, T: Transport, S: State>(
    (message, destination, send_tag): (&B, &Process<'_, T, S>, Tag),
    (buffer, source, receive_tag): (&mut R, &Process<'_, T, S>, Asked),
) -> Status {
    let (to, from) = ((destination.member(), send_tag), (source.source, receive_tag));
    let mut endpoint = destination.endpoint();
    let team = destination.team();
    Status(well(team.send_receive_into(&mut endpoint, to, message.values(), from, buffer.values_mut())))
}

fn replace<R: BufferMut + ?Sized, T: Transport, S: State>(
    buffer: &mut R,
    (destination, send_tag): (&Process<'_, T, S>, Tag),
    (source, receive_tag): (&Process<'_, T, S>, Asked),
) -> Status {
    let (to, from) = ((destination.member(), send_tag), (source.source, receive_tag));
    let mut endpoint = destination.endpoint();
    Status(well(destination.team().send_receive_replace(&mut endpoint, to, from, buffer.values_mut())))
}

/// Sends a value with tag 0 and receives one with any tag.
///
/// # Panics
/// If a process is lost.
pub fn send_receive<R: Element, B: Buffer + ?Sized, T: Transport, S: State>(
    message: &B,
    destination: &Process<'_, T, S>,
    source: &Process<'_, T, S>,
) -> (R, Status) {
    let mut value = [R::new_zeroed()];
    let status = send_receive_into(message, destination, &mut value[..], source);
    (value[0], status)
}

/// Sends a value and receives one.
///
/// # Panics
/// If a process is lost.
pub fn send_receive_with_tags<R: Element, B: Buffer + ?Sized, T: Transport, S: State>(
    message: &B,
    destination: &Process<'_, T, S>,
    send_tag: Tag,
    source: &Process<'_, T, S>,
    receive_tag: Tag,
) -> (R, Status) {
    let mut value = [R::new_zeroed()];
    let status = send_receive_into_with_tags(message, destination, send_tag, &mut value[..], source, receive_tag);
    (value[0], status)
}

/// Sends values with tag 0 and receives others with any tag into a buffer.
///
/// # Panics
/// If a process is lost, or the buffer is too short.
pub fn send_receive_into<B: Buffer + ?Sized, R: BufferMut + ?Sized, T: Transport, S: State>(
    message: &B,
    destination: &Process<'_, T, S>,
    buffer: &mut R,
    source: &Process<'_, T, S>,
) -> Status {
    exchange((message, destination, 0), (buffer, source, ANY_TAG))
}

/// Sends values and receives others into a buffer.
///
/// # Panics
/// If a process is lost, or the buffer is too short.
pub fn send_receive_into_with_tags<B: Buffer + ?Sized, R: BufferMut + ?Sized, T: Transport, S: State>(
    message: &B,
    destination: &Process<'_, T, S>,
    send_tag: Tag,
    buffer: &mut R,
    source: &Process<'_, T, S>,
    receive_tag: Tag,
) -> Status {
    exchange((message, destination, send_tag), (buffer, source, receive_tag.into()))
}

/// Sends a buffer with tag 0 and replaces it by what comes with any tag.
///
/// # Panics
/// If a process is lost, or the buffer is too short.
pub fn send_receive_replace_into<R: BufferMut + ?Sized, T: Transport, S: State>(
    buffer: &mut R,
    destination: &Process<'_, T, S>,
    source: &Process<'_, T, S>,
) -> Status {
    replace(buffer, (destination, 0), (source, ANY_TAG))
}

/// Sends a buffer and replaces it.
///
/// # Panics
/// If a process is lost, or the buffer is too short.
pub fn send_receive_replace_into_with_tags<R: BufferMut + ?Sized, T: Transport, S: State>(
    buffer: &mut R,
    destination: &Process<'_, T, S>,
    send_tag: Tag,
    source: &Process<'_, T, S>,
    receive_tag: Tag,
) -> Status {
    replace(buffer, (destination, send_tag), (source, receive_tag.into()))
}

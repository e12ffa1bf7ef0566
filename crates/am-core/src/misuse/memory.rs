//! Memory that peers write is never a slice, and a payload ends with its handler.

/// A payload is never a slice: the sender may still write it.
///
/// ```compile_fail,E0308
/// use am_core::*;
///
/// pub fn misuse(payload: Payload<'_>) {
///     let _bytes: &[u8] = &payload; //~ E0308
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(payload: Payload<'_>) {
/// }
/// ```
mod payload_as_slice {}

/// A payload does not dereference to a slice.
///
/// ```compile_fail,E0608
/// use am_core::*;
///
/// pub fn misuse(payload: Payload<'_>) {
///     let _bytes = &payload[..]; //~ E0608
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(payload: Payload<'_>) {
/// }
/// ```
mod payload_dereferenced {}

/// A payload cannot stay behind in the state.
///
/// ```compile_fail,E0521
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<Option<Payload<'static>>>) {
///     type Kept = Option<Payload<'static>>;
///     let _ = handlers.one_way("note", |kept: &mut Kept, _: Address, (): (), payload: Payload<'_>| {
///         *kept = Some(payload); //~ E0521
///     });
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<Option<Payload<'static>>>) {
///     type Kept = Option<Payload<'static>>;
///     let _ = handlers.one_way("note", |kept: &mut Kept, _: Address, (): (), payload: Payload<'_>| {
///     });
/// }
/// ```
mod payload_kept_in_state {}

/// A segment is never a slice: peers may write it.
///
/// ```compile_fail,E0308
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &Endpoint<Loopback, ()>) {
///     let _bytes: &[u8] = endpoint.segment(); //~ E0308
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &Endpoint<Loopback, ()>) {
/// }
/// ```
mod segment_as_slice {}

/// The words of a segment are atomics, not numbers.
///
/// ```compile_fail,E0308
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &Endpoint<Loopback, ()>) {
///     let _words: &[u64] = endpoint.segment().words(); //~ E0308
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &Endpoint<Loopback, ()>) {
/// }
/// ```
mod segment_words_as_slice {}

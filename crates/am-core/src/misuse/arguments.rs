//! Arguments and handles are those of the handler that was registered.

/// A request handler is no target of replies.
///
/// ```compile_fail,E0308
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, request: Request<()>) {
///     let _ = token.reply(request, ()); //~ E0308
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, request: Request<()>) {
/// }
/// ```
mod request_as_reply_target {}

/// Arguments of more than sixteen words do not compile.
///
/// ```compile_fail,E0080
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, sixteen: Request<[u32; 16]>, more: Request<[u32; 17]>) {
///     let _ = endpoint.request(Rank(0), sixteen, [0; 16]);
///     let _ = endpoint.request(Rank(0), more, [0; 17]); //~ E0080
/// }
///
/// fn main() {
///     std::hint::black_box(misuse as *const ());
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, sixteen: Request<[u32; 16]>, more: Request<[u32; 17]>) {
///     let _ = endpoint.request(Rank(0), sixteen, [0; 16]);
/// }
/// ```
mod too_many_words {}

/// A handler for so many does not register.
///
/// ```compile_fail,E0080
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>) {
///     let _ = handlers.one_way("sixteen", |(), _, _: [u32; 16], _| ());
///     let _ = handlers.one_way("more", |(), _, _: [u32; 17], _| ()); //~ E0080
/// }
///
/// fn main() {
///     std::hint::black_box(misuse as *const ());
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>) {
///     let _ = handlers.one_way("sixteen", |(), _, _: [u32; 16], _| ());
/// }
/// ```
mod too_many_words_registered {}

/// Text is no argument: it travels as payload.
///
/// ```compile_fail,E0277
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>) {
///     let _ = handlers.one_way("text", |(), _, _: String, _| ()); //~ E0277
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>) {
/// }
/// ```
mod text_as_argument {}

/// A number is no address: a rank is written `Rank(0)`.
///
/// ```compile_fail,E0277
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, note: Request<()>) {
///     let _ = endpoint.request(0, note, ()); //~ E0277
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, note: Request<()>) {
/// }
/// ```
mod number_as_address {}

/// A handler returns nothing or a result.
///
/// ```compile_fail,E0277
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<u64>) {
///     let _ = handlers.one_way("value", |sum, _, value: u64, _| *sum + value); //~ E0277
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<u64>) {
/// }
/// ```
mod value_from_handler {}

/// Nor do several arguments that are more than sixteen words together.
///
/// ```compile_fail,E0080
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, more: Reply<([u32; 15], u64)>) {
///     let _ = token.reply(more, ([0; 15], 1)); //~ E0080
/// }
///
/// fn main() {
///     std::hint::black_box(misuse as *const ());
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, more: Reply<([u32; 15], u64)>) {
/// }
/// ```
mod too_many_words_together {}

/// A dynamic number of words cannot be part of a tuple.
///
/// ```compile_fail,E0080
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, both: Request<(u32, Words)>) {
///     let _ = endpoint.request(Rank(0), both, (1, Words::EMPTY)); //~ E0080
/// }
///
/// fn main() {
///     std::hint::black_box(misuse as *const ());
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, both: Request<(u32, Words)>) {
/// }
/// ```
mod words_in_tuple {}

/// Handlers take plain data alone.
///
/// ```compile_fail,E0277
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>) {
///     let _ = handlers.one_way("text", |_: &mut (), _: Address, _: String, _: Payload<'_>| {}); //~ E0277
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>) {
/// }
/// ```
mod wrong_handler_arguments {}

/// A reply takes the arguments of its handler.
///
/// ```compile_fail,E0308
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, sum: Reply<u64>) {
///     let _ = token.reply(sum, 1u32); //~ E0308
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, sum: Reply<u64>) {
/// }
/// ```
mod wrong_reply_arguments {}

/// A request takes the arguments of its handler.
///
/// ```compile_fail,E0308
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, add: Request<(u64, u64)>) {
///     let _ = endpoint.request(Rank(0), add, (1u64, 2u32)); //~ E0308
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, add: Request<(u64, u64)>) {
/// }
/// ```
mod wrong_request_arguments {}

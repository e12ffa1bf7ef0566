//! Tokens and pending replies are used once, and reply to what they came with.

/// A pending reply is answered through the endpoint, so not from a handler.
///
/// ```compile_fail,E0599
/// use am_core::*;
///
/// pub fn misuse(pending: PendingReply, reply: Reply<()>) {
///     let _ = pending.reply(reply, ()); //~ E0599
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(pending: PendingReply, reply: Reply<()>) {
/// }
/// ```
mod pending_answered_in_handler {}

/// A pending reply cannot be cloned.
///
/// ```compile_fail,E0599
/// use am_core::*;
///
/// pub fn misuse(pending: PendingReply) {
///     let _second = pending.clone(); //~ E0599
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(pending: PendingReply) {
/// }
/// ```
mod pending_cloned {}

/// A pending reply is used up by its answer.
///
/// ```compile_fail,E0382
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, pending: PendingReply, reply: Reply<()>) {
///     let _ = endpoint.answer(pending, reply, ());
///     let _ = endpoint.answer(pending, reply, ()); //~ E0382
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, pending: PendingReply, reply: Reply<()>) {
///     let _ = endpoint.answer(pending, reply, ());
/// }
/// ```
mod pending_used_twice {}

/// A reply handler is no target of requests.
///
/// ```compile_fail,E0308
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, reply: Reply<()>) {
///     let _ = endpoint.request(Rank(0), reply, ()); //~ E0308
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, reply: Reply<()>) {
/// }
/// ```
mod reply_as_request_target {}

/// A one-way handler cannot reply.
///
/// ```compile_fail,E0599
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>, reply: Reply<()>) {
///     let _ = handlers.one_way("note", move |_: &mut (), from: Address, (): (), _: Payload<'_>| {
///         let _ = from.reply(reply, ()); //~ E0599
///     });
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>, reply: Reply<()>) {
///     let _ = handlers.one_way("note", move |_: &mut (), from: Address, (): (), _: Payload<'_>| {
///     });
/// }
/// ```
mod reply_from_one_way_handler {}

/// A reply handler cannot reply: it learns an address and nothing more.
///
/// ```compile_fail,E0599
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>, reply: Reply<()>) {
///     let _ = handlers.reply("reply", move |_: &mut (), from: Address, (): (), _: Payload<'_>| {
///         let _ = from.reply(reply, ()); //~ E0599
///     });
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>, reply: Reply<()>) {
///     let _ = handlers.reply("reply", move |_: &mut (), from: Address, (): (), _: Payload<'_>| {
///     });
/// }
/// ```
mod reply_from_reply_handler {}

/// A token permits a reply, not a request.
///
/// ```compile_fail,E0599
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, note: Request<()>) {
///     let _ = token.request(Rank(0), note, ()); //~ E0599
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, note: Request<()>) {
/// }
/// ```
mod request_with_token {}

/// A token cannot be cloned.
///
/// ```compile_fail,E0599
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>) {
///     let _second = token.clone(); //~ E0599
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>) {
/// }
/// ```
mod token_cloned {}

/// A one-way handler cannot ask for a token.
///
/// ```compile_fail,E0631
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>) {
///     fn code(_: &mut (), _: Token<'_>, (): (), _: Payload<'_>) {}
///     let _ = handlers.request("request", code);
///     let _ = handlers.one_way("note", code); //~ E0631
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>) {
///     fn code(_: &mut (), _: Token<'_>, (): (), _: Payload<'_>) {}
///     let _ = handlers.request("request", code);
/// }
/// ```
mod token_in_one_way_handler {}

/// A reply handler cannot ask for a token.
///
/// ```compile_fail,E0631
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>) {
///     fn code(_: &mut (), _: Token<'_>, (): (), _: Payload<'_>) {}
///     let _ = handlers.request("request", code);
///     let _ = handlers.reply("reply", code); //~ E0631
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<()>) {
///     fn code(_: &mut (), _: Token<'_>, (): (), _: Payload<'_>) {}
///     let _ = handlers.request("request", code);
/// }
/// ```
mod token_in_reply_handler {}

/// A token cannot stay behind in the state that handlers work on.
///
/// ```compile_fail,E0521
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<Option<Token<'static>>>) {
///     type Kept = Option<Token<'static>>;
///     let _ = handlers.request("ask", |kept: &mut Kept, token: Token<'_>, (): (), _: Payload<'_>| {
///         *kept = Some(token); //~ E0521
///     });
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<Option<Token<'static>>>) {
///     type Kept = Option<Token<'static>>;
///     let _ = handlers.request("ask", |kept: &mut Kept, token: Token<'_>, (): (), _: Payload<'_>| {
///     });
/// }
/// ```
mod token_kept_in_state {}

/// A token cannot leave its handler through a channel.
///
/// ```compile_fail,E0521
/// use am_core::*;
/// use std::sync::mpsc::Sender;
///
/// pub fn misuse(handlers: &mut Handlers<Sender<Token<'static>>>) {
///     type Out = Sender<Token<'static>>;
///     let _ = handlers.request("ask", |out: &mut Out, token: Token<'_>, (): (), _: Payload<'_>| {
///         let _ = out.send(token); //~ E0521
///     });
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
/// use std::sync::mpsc::Sender;
///
/// pub fn misuse(handlers: &mut Handlers<Sender<Token<'static>>>) {
///     type Out = Sender<Token<'static>>;
///     let _ = handlers.request("ask", |out: &mut Out, token: Token<'_>, (): (), _: Payload<'_>| {
///     });
/// }
/// ```
mod token_sent_out_of_handler {}

/// A token cannot go to another thread, not even for a while.
///
/// ```compile_fail,E0277
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, reply: Reply<()>) {
///     std::thread::scope(|scope| {
///         scope.spawn(move || token.reply(reply, ()).is_ok()); //~ E0277
///     });
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, reply: Reply<()>) {
///     std::thread::scope(|scope| {
///     });
/// }
/// ```
mod token_sent_to_thread {}

/// A detached token is gone.
///
/// ```compile_fail,E0382
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, reply: Reply<()>) {
///     let _pending = token.detach();
///     let _ = token.reply(reply, ()); //~ E0382
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, reply: Reply<()>) {
///     let _pending = token.detach();
/// }
/// ```
mod token_used_after_detach {}

/// A token is used up by its reply.
///
/// ```compile_fail,E0382
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, reply: Reply<()>) {
///     let _ = token.reply(reply, ());
///     let _ = token.reply(reply, ()); //~ E0382
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(token: Token<'_>, reply: Reply<()>) {
///     let _ = token.reply(reply, ());
/// }
/// ```
mod token_used_twice {}

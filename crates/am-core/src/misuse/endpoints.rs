//! Who holds an endpoint, a reservation or the state holds it alone, and handlers cannot send requests or poll.

/// An endpoint that has finished is gone.
///
/// ```compile_fail,E0382
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(mut endpoint: Endpoint<Loopback, ()>) {
///     let _ = endpoint.finish();
///     let _ = endpoint.poll(); //~ E0382
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(mut endpoint: Endpoint<Loopback, ()>) {
///     let _ = endpoint.finish();
/// }
/// ```
mod endpoint_used_after_finish {}

/// An endpoint that has left is gone.
///
/// ```compile_fail,E0382
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(mut endpoint: Endpoint<Loopback, ()>) {
///     endpoint.leave();
///     let _ = endpoint.barrier(); //~ E0382
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(mut endpoint: Endpoint<Loopback, ()>) {
///     endpoint.leave();
/// }
/// ```
mod endpoint_used_after_leave {}

/// A handler cannot poll: an endpoint that is counted and checked at run time is not allowed in one.
///
/// ```compile_fail,E0277
/// use am_core::loopback::Loopback;
/// use am_core::*;
/// use std::cell::RefCell;
/// use std::rc::Rc;
///
/// pub fn misuse(endpoint: Rc<RefCell<Endpoint<Loopback, ()>>>, handlers: &mut Handlers<()>) {
///     let _ = handlers.one_way("poll", move |_: &mut (), _: Address, (): (), _: Payload<'_>| { //~ E0277
///         let _ = endpoint.borrow_mut().poll();
///     });
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
/// use std::cell::RefCell;
/// use std::rc::Rc;
///
/// pub fn misuse(endpoint: Rc<RefCell<Endpoint<Loopback, ()>>>, handlers: &mut Handlers<()>) {
///     let _ = handlers.one_way("poll", move |_: &mut (), _: Address, (): (), _: Payload<'_>| { //~ E0277
///     });
/// }
/// ```
mod poll_from_handler {}

/// Nothing is served while a reservation is open.
///
/// ```compile_fail,E0499
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, note: Request<()>) {
///     if let Ok(room) = endpoint.reserve_medium(Rank(0), note, (), 8) {
///         let _ = endpoint.poll(); //~ E0499
///         room.commit();
///     }
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
///     if let Ok(room) = endpoint.reserve_medium(Rank(0), note, (), 8) {
///         room.commit();
///     }
/// }
/// ```
mod poll_while_reserved {}

/// A handler cannot send a request: it cannot borrow an endpoint.
///
/// ```compile_fail,E0521
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, handlers: &mut Handlers<()>, note: Request<()>) {
///     let _ = handlers.one_way("forward", move |_: &mut (), _: Address, (): (), _: Payload<'_>| { //~ E0521
///         let _ = endpoint.request(Rank(0), note, ());
///     });
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, handlers: &mut Handlers<()>, note: Request<()>) {
///     let _ = handlers.one_way("forward", move |_: &mut (), _: Address, (): (), _: Payload<'_>| { //~ E0521
///     });
/// }
/// ```
mod request_from_handler {}

/// A handler cannot send a request: its state is inside the endpoint, not the reverse.
///
/// ```compile_fail,E0599
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<u64>, note: Request<()>) {
///     let _ = handlers.one_way("forward", move |state: &mut u64, _: Address, (): (), _: Payload<'_>| {
///         let _ = state.request(Rank(0), note, ()); //~ E0599
///     });
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub fn misuse(handlers: &mut Handlers<u64>, note: Request<()>) {
///     let _ = handlers.one_way("forward", move |state: &mut u64, _: Address, (): (), _: Payload<'_>| {
///     });
/// }
/// ```
mod request_from_state {}

/// Nothing else is sent while a reservation is open.
///
/// ```compile_fail,E0499
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, note: Request<()>) {
///     if let Ok(room) = endpoint.reserve_medium(Rank(0), note, (), 8) {
///         let _ = endpoint.request(Rank(0), note, ()); //~ E0499
///         room.commit();
///     }
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
///     if let Ok(room) = endpoint.reserve_medium(Rank(0), note, (), 8) {
///         room.commit();
///     }
/// }
/// ```
mod request_while_reserved {}

/// A reservation is used up by its commit.
///
/// ```compile_fail,E0382
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, note: Request<()>) {
///     if let Ok(room) = endpoint.reserve_medium(Rank(0), note, (), 8) {
///         room.commit();
///         room.commit(); //~ E0382
///     }
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
///     if let Ok(room) = endpoint.reserve_medium(Rank(0), note, (), 8) {
///         room.commit();
///     }
/// }
/// ```
mod reservation_committed_twice {}

/// A committed reservation cannot be written any more.
///
/// ```compile_fail,E0382
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, note: Request<()>) {
///     if let Ok(mut room) = endpoint.reserve_medium(Rank(0), note, (), 8) {
///         room.commit();
///         room.write_u64(0, 1); //~ E0382
///     }
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
///     if let Ok(mut room) = endpoint.reserve_medium(Rank(0), note, (), 8) {
///         room.commit();
///     }
/// }
/// ```
mod reservation_written_after_commit {}

/// The state is not seen while handlers may change it.
///
/// ```compile_fail,E0502
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, u64>) -> u64 {
///     let state = endpoint.state();
///     let _ = endpoint.poll(); //~ E0502
///     *state
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::*;
///
/// pub fn misuse(endpoint: &mut Endpoint<Loopback, u64>) -> u64 {
///     let state = endpoint.state();
///     *state
/// }
/// ```
mod state_held_while_polling {}

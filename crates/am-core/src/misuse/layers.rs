//! Layers on one endpoint do not reach into each other, and send from their progress functions alone.

/// A layer's handler does not see another layer's state.
///
/// ```compile_fail,E0631
/// use am_core::*;
/// use am_core::layer::HasLayer;
///
/// pub struct Mine;
/// pub struct Other;
///
/// pub fn misuse<S: HasLayer<Mine> + HasLayer<Other>>(handlers: &mut Handlers<S>) -> Result<(), RegisterError> {
///     let mut layer = handlers.layer::<Mine>("mine")?;
///     layer.one_way("note", |_: &mut Other, _, (), _| ())?; //~ E0631
///     Ok(())
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
/// use am_core::layer::HasLayer;
///
/// pub struct Mine;
/// pub struct Other;
///
/// pub fn misuse<S: HasLayer<Mine> + HasLayer<Other>>(handlers: &mut Handlers<S>) -> Result<(), RegisterError> {
///     let mut layer = handlers.layer::<Mine>("mine")?;
///     Ok(())
/// }
/// ```
mod state_of_another_layer_in_handler {}

/// A layer's progress function does not see another layer's state.
///
/// ```compile_fail,E0631
/// use am_core::*;
/// use am_core::layer::{HasLayer, Progress};
///
/// pub struct Mine;
/// pub struct Other;
///
/// pub fn misuse<S: HasLayer<Mine> + HasLayer<Other>>(handlers: &mut Handlers<S>) -> Result<(), RegisterError> {
///     let mut layer = handlers.layer::<Mine>("mine")?;
///     layer.progress(|_: &mut Other, _| Ok(Progress::Idle)); //~ E0631
///     Ok(())
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
/// use am_core::layer::{HasLayer, Progress};
///
/// pub struct Mine;
/// pub struct Other;
///
/// pub fn misuse<S: HasLayer<Mine> + HasLayer<Other>>(handlers: &mut Handlers<S>) -> Result<(), RegisterError> {
///     let mut layer = handlers.layer::<Mine>("mine")?;
///     Ok(())
/// }
/// ```
mod state_of_another_layer_in_progress {}

/// A layer that the endpoint's state does not own cannot be registered.
///
/// ```compile_fail,E0277
/// use am_core::*;
///
/// pub struct Mine;
///
/// pub fn misuse(handlers: &mut Handlers<u64>) {
///     let _ = handlers.layer::<Mine>("mine"); //~ E0277
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
///
/// pub struct Mine;
///
/// pub fn misuse(handlers: &mut Handlers<u64>) {
/// }
/// ```
mod layer_without_state {}

/// Two layers are not registered in each other's midst: one is done before the next begins.
///
/// ```compile_fail,E0499
/// use am_core::*;
/// use am_core::layer::HasLayer;
///
/// pub struct Mine;
/// pub struct Other;
///
/// pub fn misuse<S: HasLayer<Mine> + HasLayer<Other>>(handlers: &mut Handlers<S>) -> Result<(), RegisterError> {
///     let mut mine = handlers.layer::<Mine>("mine")?;
///     let _other = handlers.layer::<Other>("other")?; //~ E0499
///     mine.one_way("note", |_, _, (), _| ())?;
///     Ok(())
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
/// use am_core::layer::HasLayer;
///
/// pub struct Mine;
/// pub struct Other;
///
/// pub fn misuse<S: HasLayer<Mine> + HasLayer<Other>>(handlers: &mut Handlers<S>) -> Result<(), RegisterError> {
///     let mut mine = handlers.layer::<Mine>("mine")?;
///     mine.one_way("note", |_, _, (), _| ())?;
///     Ok(())
/// }
/// ```
mod layers_registered_at_once {}

/// A layer sends while its progress function runs, and cannot keep the way to do so.
///
/// ```compile_fail,E0521
/// use am_core::*;
/// use am_core::layer::{Outbox, Progress};
///
/// #[derive(Default)]
/// pub struct Mine {
///     kept: Option<&'static mut Outbox<'static>>,
/// }
///
/// pub fn misuse(handlers: &mut Handlers<Mine>) -> Result<(), RegisterError> {
///     let mut layer = handlers.layer::<Mine>("mine")?;
///     layer.progress(|mine, outbox| {
///         mine.kept = Some(outbox); //~ E0521
///         Ok(Progress::Idle)
///     });
///     Ok(())
/// }
/// ```
///
/// Without it:
///
/// ```
/// use am_core::*;
/// use am_core::layer::{Outbox, Progress};
///
/// #[derive(Default)]
/// pub struct Mine {
///     kept: Option<&'static mut Outbox<'static>>,
/// }
///
/// pub fn misuse(handlers: &mut Handlers<Mine>) -> Result<(), RegisterError> {
///     let mut layer = handlers.layer::<Mine>("mine")?;
///     layer.progress(|mine, outbox| {
///         Ok(Progress::Idle)
///     });
///     Ok(())
/// }
/// ```
mod outbox_kept {}

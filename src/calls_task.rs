//! Calls of a rank whose program runs on tokio, or on another executor: from the job to a caller and the task that
//! serves it.

use crate::job::{JobAttachError, JobTransport, RankJob};
use am_async::{CallConfig, Caller, Calls, Driver, Methods, drive};
use am_core::{AttachError, Endpoint, Handlers, RegisterError};
use transport_shm::JoinOptions;

/// The task that serves a rank's endpoint; see [`RankJob::attach_tokio`].
pub type JobDriver<W> = Driver<JobTransport, Calls<W>, W>;

/// Why a rank can't attach for calls.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallsAttachError {
    /// The job's transports can't be had.
    #[error(transparent)]
    Job(#[from] JobAttachError),
    /// The methods can't be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The endpoint can't attach: ranks have other methods, for instance.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl RankJob {
    /// Attaches for calls alone, from a program on tokio: a [`Caller`] that any task calls through, and the task
    /// that serves the endpoint, which is to be spawned. `world` is the state that methods work on. A
    /// [driver that blocks](Driver::block) in `spawn_blocking` serves it without the runtime. The driver
    /// needs neither timers nor input and output of the runtime, and any other executor will do as well. With the
    /// feature `tokio`, and in a runtime with input and output, `driver.on_tokio()` has tokio's event loop wake
    /// it.
    ///
    /// Collective as [`RankJob::attach`], and blocks like that: call it before the runtime runs, or in
    /// `spawn_blocking`.
    ///
    /// ```no_run
    /// use active_messages::calls::{Failure, Methods};
    /// use active_messages::prelude::*;
    /// use std::error::Error;
    ///
    /// fn rank(job: RankJob) -> Result<(), Box<dyn Error + Send + Sync>> {
    ///     let mut methods = Methods::<u64>::new();
    ///     let add = methods.function("add", |total: &mut u64, _, number: u64| {
    ///         *total += number;
    ///         Ok::<_, Failure>(*total)
    ///     })?;
    ///     let (caller, driver) = job.attach_tokio(JoinOptions::default(), methods, 0)?;
    ///     let stop_handle = driver.stop_handle();
    ///     let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    ///     let driven = runtime.block_on(async {
    ///         let driver = tokio::spawn(driver);
    ///         let call = tokio::spawn(async move { caller.call(Rank(0), add, &5).await });
    ///         println!("{}", call.await??);
    ///         stop_handle.stop();
    ///         Ok::<_, Box<dyn Error + Send + Sync>>(driver.await?)
    ///     })?;
    ///     // Serves the others until all are done.
    ///     driven.endpoint.finish()?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`CallsAttachError`].
    pub fn attach_tokio<W: Send + 'static>(
        &self,
        options: JoinOptions,
        methods: Methods<W>,
        world: W,
    ) -> Result<(Caller, JobDriver<W>), CallsAttachError> {
        self.attach_tokio_with(options, methods, world, CallConfig::default())
    }

    /// As [`RankJob::attach_tokio`], with other settings.
    ///
    /// # Errors
    /// [`CallsAttachError`].
    pub fn attach_tokio_with<W: Send + 'static>(
        &self,
        options: JoinOptions,
        methods: Methods<W>,
        world: W,
        config: CallConfig,
    ) -> Result<(Caller, JobDriver<W>), CallsAttachError> {
        let mut handlers = Handlers::new();
        let calls = Calls::register_with(&mut handlers, methods, world, config)?;
        Ok(drive(Endpoint::attach(self.attach(options)?, handlers, calls)?))
    }
}

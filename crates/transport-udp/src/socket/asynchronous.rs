//! The tokio mode: a task in place of the helper thread, and an endpoint whose waits are `await`.
//!
//! The task drives the same machine under the same lock as the thread would. It waits for the socket through
//! tokio's reactor and for deadlines through tokio's timer; the program's own task is woken when it has taken
//! something in.

use super::service::Shared;
use super::{Udp, UdpConfig, UdpError, peers::Peers};
use crate::machine_transport::OwnMemory;
use am_core::transport::Membership;
use am_core::{
    Address, Arguments, AttachError, Endpoint, Handlers, Instant, PollError, Request, Segment, SendError,
    WaitError,
};
use std::future::poll_fn;
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::task::Poll;
use std::time::Duration;
use tokio::io::Interest;
use tokio::task::JoinHandle;

/// Visits to the socket in one turn of the task, so that a peer that never stops sending keeps neither the task
/// nor the lock.
const VISITS: usize = 4;

/// The longest sleep of the task: how late it may notice that a program has sent something and then blocked its
/// thread.
const LONGEST: Duration = Duration::from_millis(50);

/// The longest sleep of an endpoint's wait: how late it may notice that its stall report is requested.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The task that serves an endpoint; ends when dropped.
#[derive(Debug)]
pub(super) struct ServiceTask {
    task: JoinHandle<()>,
}

impl ServiceTask {
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let socket = tokio::net::UdpSocket::from_std(shared.socket.try_clone()?)?;
        Ok(Self { task: tokio::spawn(service_task(Arc::clone(shared), socket)) })
    }
}

impl Drop for ServiceTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes in what arrives and does what is due, unless the program's thread is asleep in `idle` and does so itself.
async fn service_task(shared: Arc<Shared>, socket: tokio::net::UdpSocket) {
    loop {
        let mut pause = None;
        // Emptying the socket takes its readiness back, unless more comes meanwhile. Unless it is ready, this does
        // nothing.
        let _ = socket.try_io(Interest::READABLE, || {
            let worked = pause.insert(shared.guarded(|| work(&shared)));
            if *worked == Some(Duration::ZERO) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        });
        let pause = pause.unwrap_or_else(|| shared.guarded(|| work(&shared)));
        let Some(pause) = pause else { return };
        tokio::select! {
            // An error says that the runtime is shutting down.
            ready = socket.readable() => if ready.is_err() { return },
            () = tokio::time::sleep(pause) => {}
            () = shared.task_wake.notified() => {}
        }
    }
}

/// One turn of the task; returns how long nothing is due. No time at all says that there is, or may be, more in
/// the socket.
pub(super) fn work(shared: &Shared) -> Duration {
    // Otherwise the program is at it.
    let Some(mut engine) = shared.try_engine() else { return Duration::from_millis(1) };
    #[cfg(test)]
    shared.sabotaged();
    if shared.is_parked() {
        return LONGEST;
    }
    let mut now = shared.clock.now();
    let losses = engine.machine.losses();
    shared.take_in_notices(now, &mut engine);
    let (told, mut news) = (engine.news, false);
    for _ in 0..VISITS {
        news |= engine.take_in(&mut now, || shared.clock.now(), &mut []);
        if !engine.is_flowing() {
            break;
        }
    }
    let more = engine.is_flowing();
    engine.send_out(now, None);
    engine.news += u64::from(news || engine.machine.losses() != losses);
    if engine.news != told {
        shared.unseen.store(true, Release);
        if let Some(watcher) = engine.watcher.take() {
            watcher.wake();
        }
    }
    if more {
        return Duration::ZERO;
    }
    engine.deadline.map_or(LONGEST, |at| LONGEST.min(at.since(now).into()))
}

/// An endpoint over UDP for programs on tokio: what waits in [`Endpoint`] is `await` here.
///
/// Messages are delivered, and handlers run, while one of its methods is awaited or [`AsyncEndpoint::poll`] is
/// called. All its methods may be cancelled: what was accepted stays accepted, what was not is not. Waits have the
/// endpoint's [time-out](Endpoint::set_timeout), and print [stall reports](am_core::stall::request) that are
/// requested within a second, as those of [`Endpoint`] do.
///
/// ```
/// use am_core::{HandlerResult, Handlers, Rank};
/// use transport_udp::{AsyncEndpoint, LocalJob};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let job = std::sync::Arc::new(LocalJob::new(2)?);
/// let rank = |rank: u32, job: std::sync::Arc<LocalJob>| async move {
///     let mut handlers = Handlers::<u64>::new();
///     let sum = handlers.reply("sum", |total, _, value: u64, _| *total += value)?;
///     let add = handlers.request("add", move |_, token, (a, b): (u64, u64), _| -> HandlerResult {
///         token.reply(sum, a + b)?;
///         Ok(())
///     })?;
///     let mut endpoint = AsyncEndpoint::attach(job.join_tokio(rank)?, handlers, 0)?;
///     endpoint.request(Rank(1 - rank), add, (20, 22)).await?;
///     endpoint.wait_until(|total| *total == 42).await?;
///     endpoint.finish()?;
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// };
/// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
/// runtime.block_on(async {
///     let (a, b) = (tokio::spawn(rank(0, job.clone())), tokio::spawn(rank(1, job.clone())));
///     a.await.unwrap().unwrap();
///     b.await.unwrap().unwrap();
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncEndpoint<S> {
    endpoint: Endpoint<Udp, S>,
    shared: Arc<Shared>,
    /// What the task had taken in when this side last looked.
    news: u64,
    /// The last poll found nothing: what is there waits, for room for a reply for instance.
    fruitless: bool,
}

impl<S> AsyncEndpoint<S> {
    /// Attaches handlers to a transport that was joined with [`Udp::join_tokio`]. Waits for all ranks, as
    /// [`Endpoint::attach`] does, by blocking; a runtime of several threads moves its other tasks elsewhere
    /// meanwhile. On a runtime of one thread nothing else runs in it until all ranks are there, so they must be in
    /// other processes or threads.
    ///
    /// # Errors
    /// As [`Endpoint::attach`].
    pub fn attach(transport: Udp, handlers: Handlers<S>, state: S) -> Result<Self, AttachError> {
        let shared = Arc::clone(transport.driver().shared());
        let endpoint = blocking(|| Endpoint::attach(transport, handlers, state))?;
        Ok(Self { endpoint, shared, news: 0, fruitless: false })
    }

    /// The endpoint, for everything that does not wait.
    pub fn endpoint(&mut self) -> &mut Endpoint<Udp, S> {
        // What the program does with it may take something in.
        self.fruitless = false;
        &mut self.endpoint
    }

    /// What the program keeps.
    pub fn state(&self) -> &S {
        self.endpoint.state()
    }

    /// What the program keeps.
    pub fn state_mut(&mut self) -> &mut S {
        self.endpoint.state_mut()
    }

    /// Serves what has arrived, without waiting.
    ///
    /// # Errors
    /// As [`Endpoint::poll`].
    pub fn poll(&mut self) -> Result<usize, PollError> {
        let polled = self.endpoint.poll();
        self.fruitless = matches!(polled, Ok(0));
        polled
    }

    /// Waits until something may have come, or a layer wants to be called, for a second at most. May end early.
    /// Prints a [stall report](am_core::stall::request) that is requested meanwhile.
    pub async fn idle(&mut self) {
        self.endpoint.tell_if_asked(None);
        self.idle_for(LONGEST_WAIT).await;
        self.endpoint.tell_if_asked(None);
    }

    /// [`AsyncEndpoint::idle`], for at most `longest`.
    async fn idle_for(&mut self, longest: Duration) {
        self.endpoint.flush();
        if self.shared.failure().is_some() {
            return;
        }
        let wake = self.endpoint.wake_time().map(|at| Duration::from(at.since(self.endpoint.now())));
        let longest = wake.map_or(longest, |wake| wake.min(longest));
        let Self { shared, news, fruitless, .. } = self;
        let (mut asked, more) = (false, !std::mem::take(fruitless));
        let news = poll_fn(|context| {
            let mut engine = shared.engine();
            if shared.failure().is_some() {
                return Poll::Ready(());
            }
            let current = engine.news;
            let there = more && engine.machine.has_arrived();
            if current != std::mem::replace(news, current) || there || asked {
                return Poll::Ready(());
            }
            asked = true;
            engine.watcher = Some(context.waker().clone());
            drop(engine);
            // What was sent since it last looked has deadlines that the task does not know of.
            shared.task_wake.notify_one();
            Poll::Pending
        });
        let _ = tokio::time::timeout(longest, news).await;
        // Others had better have their turn, too, if this was ready at once.
        tokio::task::yield_now().await;
    }

    /// One step of a wait that has not found what it waits for; the first says when the wait `began`.
    async fn step(&mut self, began: &mut Option<Instant>) -> Result<(), WaitError> {
        // Before the poll: steady traffic does not keep a wait from its time-out.
        let began = *began.get_or_insert(self.endpoint.now());
        self.endpoint.look_after_wait(began)?;
        if self.poll()? != 0 {
            return Ok(());
        }
        // A loss that a poll has told of, in a barrier for instance, still ends every wait.
        if self.endpoint.transport().losses() != 0
            && let Some((rank, cause)) = self.endpoint.unacknowledged_loss()
        {
            return Err(PollError::PeerLost { rank, cause }.into());
        }
        if !self.endpoint.progress_layers()? {
            let now = self.endpoint.now();
            let left = self.endpoint.timeout().map(|timeout| Duration::from((began + timeout).since(now)));
            self.idle_for(left.map_or(LONGEST_WAIT, |left| left.min(LONGEST_WAIT))).await;
        }
        Ok(())
    }

    /// Serves incoming messages until `done` holds.
    ///
    /// # Errors
    /// As [`Endpoint::wait_until`].
    pub async fn wait_until(&mut self, mut done: impl FnMut(&S) -> bool) -> Result<(), WaitError> {
        let mut began = None;
        while !done(self.endpoint.state()) {
            match self.step(&mut began).await {
                Ok(()) => {}
                // It may have come with the loss.
                Err(WaitError::Poll(PollError::PeerLost { .. })) if done(self.endpoint.state()) => {
                    self.endpoint.report_loss_again()
                }
                Err(error) => return Err(error),
            }
        }
        self.endpoint.flush();
        Ok(())
    }

    /// Sends a Short request, serving incoming messages while there is no room for it.
    ///
    /// # Errors
    /// As [`Endpoint::request`].
    pub async fn request<A: Arguments + Clone>(
        &mut self,
        to: impl Into<Address>,
        handler: Request<A>,
        args: A,
    ) -> Result<(), SendError> {
        let (to, mut began) = (to.into(), None);
        self.fruitless = false;
        loop {
            match self.endpoint.try_request(to, handler, args.clone()) {
                Err(SendError::WouldBlock { .. }) => self.step(&mut began).await?,
                other => return other,
            }
        }
    }

    /// Sends a Medium request, serving incoming messages while there is no room for it.
    ///
    /// # Errors
    /// As [`Endpoint::request_medium`].
    pub async fn request_medium<A: Arguments + Clone>(
        &mut self,
        to: impl Into<Address>,
        handler: Request<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let (to, mut began) = (to.into(), None);
        self.fruitless = false;
        loop {
            match self.endpoint.try_request_medium(to, handler, args.clone(), payload) {
                Err(SendError::WouldBlock { .. }) => self.step(&mut began).await?,
                other => return other,
            }
        }
    }

    /// Sends a Long request, serving incoming messages while there is no room for it. A payload larger than
    /// [`ProtocolConfig::bulk_queue`](crate::proto::ProtocolConfig::bulk_queue) blocks the thread for as long as
    /// the network takes to carry what exceeds it.
    ///
    /// # Errors
    /// As [`Endpoint::request_long`].
    pub async fn request_long<A: Arguments + Clone>(
        &mut self,
        to: impl Into<Address>,
        handler: Request<A>,
        args: A,
        payload: &[u8],
        offset: u64,
    ) -> Result<(), SendError> {
        let (to, mut began) = (to.into(), None);
        self.fruitless = false;
        loop {
            match self.endpoint.try_request_long(to, handler, args.clone(), payload, offset) {
                Err(SendError::WouldBlock { .. }) => self.step(&mut began).await?,
                other => return other,
            }
        }
    }

    /// Ends the endpoint together with all others, by blocking, as [`AsyncEndpoint::attach`].
    ///
    /// # Errors
    /// As [`Endpoint::finish`].
    pub fn finish(self) -> Result<S, WaitError> {
        blocking(|| self.endpoint.finish())
    }
}

/// Blocks this thread, after the runtime's other tasks were moved away from it if it can do that.
fn blocking<R>(work: impl FnOnce() -> R) -> R {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

impl Udp {
    /// [`Udp::join`] with a task of the current tokio runtime in place of the helper thread.
    ///
    /// # Errors
    /// As [`Udp::join`].
    ///
    /// # Panics
    /// Outside a tokio runtime, or in one without time or I/O.
    pub fn join_tokio(
        config: &UdpConfig,
        peers: &Arc<Peers>,
        me: Address,
        socket: UdpSocket,
        segment: Segment<OwnMemory>,
    ) -> Result<Self, UdpError> {
        Self::assemble(config, peers, me, socket, segment, |shared| {
            ServiceTask::start(shared).map(super::Helper::Task)
        })
    }
}

//! The same calls by `tarpc` over a Unix socket between the processes of a crew, for comparison.

// What the macro makes of the service is public.
#![allow(missing_docs, unreachable_pub, reason = "of a macro")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tarpc::client::Config;
use tarpc::context::{self, Context};
use tarpc::server::{BaseChannel, Channel};
use tarpc::tokio_serde::formats::Bincode;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::tokio_calls::{CALLERS, part, runtime};

/// What is measured between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TarpcTask {
    /// Calls without values one after the other.
    Awaited,
    /// Calls without values of many tasks at once.
    Busy,
}

#[tarpc::service]
trait Service {
    async fn empty();
    async fn over();
}

#[derive(Clone)]
struct Server {
    ended: watch::Sender<u64>,
}

impl Service for Server {
    async fn empty(self, _: Context) {}

    async fn over(self, _: Context) {
        self.ended.send_modify(|ended| *ended += 1);
    }
}

/// One of two processes.
pub(crate) struct TarpcRank {
    runtime: Runtime,
    role: Role,
    tasks: u64,
}

enum Role {
    Caller(ServiceClient),
    Callee(watch::Receiver<u64>),
}

impl TarpcRank {
    /// Rank 1 listens, rank 0 connects; `owner` tells crews apart.
    pub(crate) fn join(owner: u32, rank: usize) -> Self {
        let runtime = runtime();
        let path = std::env::temp_dir().join(format!("active-messages-bench-{owner}.sock"));
        let role = runtime.block_on(async { if rank == 0 { connect(path).await } else { listen(path).await } });
        Self { runtime, role, tasks: 0 }
    }

    /// Does this rank's part of `task`; the time from the common start to the common end.
    pub(crate) fn perform(&mut self, task: TarpcTask, iterations: u64) -> Duration {
        let Self { runtime, role, tasks } = self;
        *tasks += 1;
        let start = Instant::now();
        match role {
            Role::Callee(ended) => {
                runtime.block_on(ended.wait_for(|ended| *ended == *tasks)).expect("the server runs");
                start.elapsed()
            }
            Role::Caller(client) => runtime.block_on(async {
                let calls = |client: ServiceClient, count: u64| async move {
                    for _ in 0..count {
                        client.empty(context::current()).await.expect("the other serves");
                    }
                };
                match task {
                    TarpcTask::Awaited => calls(client.clone(), iterations).await,
                    TarpcTask::Busy => {
                        let callers =
                            (0..CALLERS).map(|place| tokio::spawn(calls(client.clone(), part(iterations, place))));
                        for caller in callers.collect::<Vec<_>>() {
                            caller.await.expect("the other serves");
                        }
                    }
                }
                let took = start.elapsed();
                client.over(context::current()).await.expect("the other serves");
                took
            }),
        }
    }
}

async fn connect(path: PathBuf) -> Role {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match tarpc::serde_transport::unix::connect(&path, Bincode::default).await {
            Ok(transport) => {
                // Both have it open.
                let _ = std::fs::remove_file(&path);
                return Role::Caller(ServiceClient::new(Config::default(), transport).spawn());
            }
            Err(error) => assert!(Instant::now() < deadline, "rank 1 does not listen: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn listen(path: PathBuf) -> Role {
    use futures::StreamExt;
    let _ = std::fs::remove_file(&path);
    let listener = tarpc::serde_transport::unix::listen(&path, Bincode::default).await;
    let mut listener = listener.expect("the directory for temporary files is there");
    let (sender, ended) = watch::channel(0);
    tokio::spawn(async move {
        if let Some(Ok(transport)) = listener.next().await {
            let requests = BaseChannel::with_defaults(transport).execute(Server { ended: sender }.serve());
            requests
                .for_each(|response| async {
                    tokio::spawn(response);
                })
                .await;
        }
    });
    Role::Callee(ended)
}

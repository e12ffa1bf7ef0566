//! ParaStation-style communication: connections over plugins, point-to-point messages above them, and active
//! messages above those, which is the two-sided baseline that the conduit paper compares with.
//!
//! [Order](am_core::Endpoint#order): requests of one rank to another are handled as they were sent, and replies
//! likewise.
//!
//! | module | owns |
//! |---|---|
//! | `messenger` | [`Messenger`]: send and receive with tag and rank matching |
//! | `config` | [`PscomConfig`]: plugins, the ring, sizes |
//! | `engine` | connections made on first use, their queues, progress, rendezvous |
//! | `ring` | the RMA plugin: rings of buffers written by puts |
//! | `tokens` | the ring's flow control, a state machine: [`Tokens`] |
//! | `tail` | the form of a ring slot |
//! | `header`, `stream` | the twenty bytes in front of each message; messages as chunks |
//! | `matching` | posted receives and unexpected messages |
//! | `transport`, `reply_path` | [`Pscom`]: the [`Transport`](am_core::Transport); the way back of a request |
//! | `frame`, `account` | the form and the flow control of active messages |
//! | `imb` | PingPong and SendRecv as the IMB suite measures them |

mod account;
mod config;
mod engine;
mod frame;
mod header;
pub mod imb;
mod matching;
mod messenger;
mod pinned;
mod reply_path;
mod ring;
mod stream;
mod tail;
mod tokens;
mod transport;

pub use config::{AmConfig, PairOverride, Plugin, PscomConfig, RingConfig, UnknownPlugin};
pub use engine::{LinkError, PluginCounts};
pub use header::{Envelope, HEADER_BYTES, HeaderError};
pub use messenger::{MAX_MESSAGE, Messenger, PscomError, ReceiveRequest, Received, SendRequest};
pub use ring::RingError;
pub use stream::StreamError;
pub use tail::{Padding, TailError};
pub use tokens::{TokenError, TokenRules, Tokens};
pub use transport::{MEMORY, Pscom, PscomSlot, run, run_halves};

//! ParaStation-style communication: connections over plugins, point-to-point messages above them, and active
//! messages above those, which is the two-sided baseline that the conduit paper compares with.
//!
//! [Order](am_core::Endpoint#order): requests of one rank to another are handled as they were sent, and replies
//! likewise.
//!
//! # Messages of their own
//!
//! Two-sided messages for programs are those of the crate `am-p2p`, over [`Pscom`] as over any transport; it has
//! all that [`Messenger`] has, and communicators, probes, cancels and bounded memory besides. The messenger
//! stays as what was published: the message layer below the active messages, whose eager messages are chunks of
//! a stream behind twenty bytes of header and whose long ones are fetched by a get. [`imb`] compares its times
//! with the published ones, and parameters are fitted to these. It cannot stand on `am-p2p`, which stands on
//! active messages, which stand on this engine: by that way a message of 32 bytes takes 3.50 us on VELO instead
//! of 2.79 (2.8 were published) and 4.60 instead of 4.30 on RMA, since it takes a packet or more bytes of a slot
//! besides; one of 16 KiB takes 3 and 9 % longer; from 64 to 1024 bytes there is no difference
//! (`pscom_two_sided` among the tests). Both share the engine; the messenger has nothing of its own but two
//! queues to match messages.
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

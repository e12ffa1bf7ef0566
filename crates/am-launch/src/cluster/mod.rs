//! Jobs on several hosts: who is listed, who goes where, how an agent gets to each host and what it does there, and how
//! ranks that nobody's agent started find each other.
//!
//! | file | owns |
//! |---|---|
//! | `list`, `place`, `remote`, `options` | what the user says: hosts, placement, the remote command |
//! | `interface`, `doors` | addresses of this host, and which of them others can reach |
//! | `channel`, `door`, `message` | authenticated conversations, the rendezvous address, what is said |
//! | `site`, `gather`, `watch` | the launcher: one host, the start of all, their supervision |
//! | `agent` | the agent on each host |
//! | `rendezvous`, `circle` | ranks that meet at rank 0, until they have attached |

pub(crate) mod agent;
pub(crate) mod channel;
pub(crate) mod circle;
pub(crate) mod door;
pub(crate) mod doors;
pub(crate) mod gather;
pub(crate) mod interface;
pub(crate) mod list;
pub(crate) mod message;
pub(crate) mod options;
pub(crate) mod place;
pub(crate) mod remote;
pub(crate) mod rendezvous;
pub(crate) mod site;
pub(crate) mod watch;

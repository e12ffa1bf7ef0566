//! Jobs on several hosts: who is listed, who goes where, how an agent gets to each host and what it does there,
//! and how ranks that nobody's agent started find each other.
//!
//! | file | owns |
//! |---|---|
//! | `list`, `place`, `remote`, `options` | what the user says: hosts, placement, the remote command |
//! | `launcher_addresses` | which addresses of the launcher's host others can reach |
//! | `channel`, `listener`, `message` | authenticated conversations, the rendezvous address, what is said |
//! | `host_state`, `start`, `monitor` | the launcher: one host, the start of all, their supervision |
//! | `agent` | the agent on each host |
//! | `rendezvous` | ranks that meet at rank 0 |

pub(crate) mod agent;
pub(crate) mod channel;
pub(crate) mod host_state;
pub(crate) mod launcher_addresses;
pub(crate) mod list;
pub(crate) mod listener;
pub(crate) mod message;
pub(crate) mod monitor;
pub(crate) mod options;
pub(crate) mod place;
pub(crate) mod remote;
pub(crate) mod rendezvous;
pub(crate) mod start;

//! Active messages on the SISCI interface.

#[cfg(not(am_loom))]
mod bootstrap;
#[cfg(not(am_loom))]
mod config;
mod flags;
#[cfg(not(am_loom))]
mod header;
#[cfg(not(am_loom))]
mod layout;
#[cfg(all(test, am_loom))]
mod loom_flags;
#[cfg(not(am_loom))]
mod net;
#[cfg(not(am_loom))]
mod port;
#[cfg(not(am_loom))]
mod receive;
#[cfg(not(am_loom))]
mod send;
#[cfg(not(am_loom))]
mod status;
#[cfg(not(am_loom))]
mod transport;
#[cfg(not(am_loom))]
mod work;

#[cfg(not(am_loom))]
pub use {
    bootstrap::{BootstrapError, File, MAX_RANKS, NodeMap},
    config::{ConduitConfig, ConduitConfigError, FlagStores, MediumMethod},
    net::OpenError,
    transport::{Conduit, ConduitSlot, Counts},
};

#[cfg(not(am_loom))]
#[doc(hidden)]
pub use config::Mutation;

//! libfabric: its C interface, the library loaded at run time, and the objects of one endpoint. `unsafe` stands
//! here.
//!
//! | module | owns |
//! |---|---|
//! | `abi` | structs, tables of functions, constants |
//! | `environment` | settings of providers that only the environment can make |
//! | `fills` | which slots that take several messages are the program's again |
//! | `handlers` | keeping handlers of signals as they were |
//! | `library` | the library: where it is searched, and its few symbols |
//! | `info` | what providers offer |
//! | `neighbour` | writing to the segment of a peer on the same host through the system |
//! | `objects` | the objects that an endpoint consists of |
//! | `port` | an endpoint with all it needs: the [`Wire`](crate::wire::Wire) of libfabric |

mod abi;
#[cfg(test)]
mod abi_tests;
mod environment;
mod fills;
mod handlers;
mod info;
mod library;
mod neighbour;
#[cfg(test)]
mod network_tests;
mod objects;
mod port;
#[cfg(test)]
mod port_tests;

pub use environment::limit_provider_buffers;
pub(crate) use info::{Infos, Query};
pub(crate) use library::Library;
pub(crate) use neighbour::Neighbour;
pub use port::Port;
pub(crate) use port::{LOCAL, LONGEST_NAME, Opening, Remote, SETOPT};

//! SISCI between the processes of one host: segments are mapped files in a job's directory.
//!
//! * `config` says what a process needs to take part, and why it may not;
//! * `library` has [`Mapped`] and what it keeps; `handle` is the interface itself, `objects` what programs hold of
//!   it, `dma` its queues;
//! * `node` is a node's own file: life, departure, wake-ups, interrupts; `segment` a segment's file;
//! * `region` is mapped memory, and all `unsafe` of the crate.
//!
//! # What is in the directory
//!
//! | file | what |
//! |---|---|
//! | `claim-N` | locked by the process that has node N |
//! | `node-N` | N's page: its incarnation, how it departed, whether it sleeps, its interrupts. Locked as long as it lives |
//! | `wake-N` | a FIFO that wakes N |
//! | `segment-N-ID` | a page about the segment (who may connect, who has), then its memory |
//!
//! Processes that die leave files without locks. Nobody takes them for those of a living process, because a
//! segment's file carries the incarnation of its process; the node's next process removes them.

mod config;
mod dma;
mod handle;
mod library;
mod node;
mod objects;
#[expect(unsafe_code, reason = "mapping files, and reading what other processes write, is all here")]
mod region;
mod segment;

pub use config::{MappedConfig, MappedError};
pub use dma::DmaQueue;
pub use library::Mapped;
pub use objects::{
    Descriptor, Interrupt, LocalMap, LocalSegment, RemoteInterrupt, RemoteMap, RemoteSegment, Sequence,
};
pub use region::View;

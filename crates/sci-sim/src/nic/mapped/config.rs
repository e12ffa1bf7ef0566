//! What a process needs to take part in a mapped job, and why it may not.

use crate::nic::errors::TransferErrors;
use crate::nic::kinds::NodeId;
use crate::nic::mutation::Defects;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A node of a job whose segments are mapped files.
#[derive(Clone, Debug)]
pub struct MappedConfig {
    /// The job's directory, the same for all; best on a file system in memory (`/dev/shm`). It is made if it is
    /// missing, with access for its owner alone.
    pub directory: PathBuf,
    /// This node.
    pub node: NodeId,
    /// All nodes of the job, this one among them.
    pub nodes: Vec<NodeId>,
    /// The largest segment in bytes; 1 MB unless given.
    pub segment_bytes: usize,
    /// Memory for all segments of this node in bytes; 512 MB unless given.
    pub memory_bytes: usize,
    /// Offsets and sizes of DMA transfers are multiples of so many bytes: 64, or 4 to 32, a power of two.
    pub dma_alignment: usize,
    /// Lines that fail on purpose.
    pub errors: TransferErrors,
    /// Makes the interface wrong on purpose.
    #[doc(hidden)]
    pub defects: Defects,
}

impl MappedConfig {
    /// A node of a job.
    pub fn new(directory: impl Into<PathBuf>, node: NodeId, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        Self {
            directory: directory.into(),
            node,
            nodes: nodes.into_iter().collect(),
            segment_bytes: 1 << 20,
            memory_bytes: 512 << 20,
            dma_alignment: 64,
            errors: TransferErrors::default(),
            defects: Defects::default(),
        }
    }

    /// Checks sizes, nodes and probabilities.
    ///
    /// # Errors
    /// [`MappedError::OutOfRange`] names the first field that is not possible and its limit.
    pub fn check(&self) -> Result<(), MappedError> {
        let range = |field: &str, value: String, limit: &str| {
            Err(MappedError::OutOfRange { field: field.into(), value, limit: limit.into() })
        };
        if !self.nodes.contains(&self.node) {
            return range("node", self.node.to_string(), "one of the job's nodes");
        }
        let mut sorted = self.nodes.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return range("nodes", twice[0].to_string(), "named once");
        }
        if !(4..=1 << 40).contains(&self.segment_bytes) || !self.segment_bytes.is_multiple_of(4) {
            return range("segment_bytes", self.segment_bytes.to_string(), "from 4 to 2^40, a multiple of 4");
        }
        if !(4..=64).contains(&self.dma_alignment) || !self.dma_alignment.is_power_of_two() {
            return range("dma_alignment", self.dma_alignment.to_string(), "4, 8, 16, 32 or 64");
        }
        self.errors.check(|field, value, limit| MappedError::OutOfRange {
            field: field.into(),
            value: value.to_string(),
            limit: limit.into(),
        })
    }
}

/// Why a process cannot take part in a mapped job.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MappedError {
    /// A value outside its limits.
    #[error("{field} is {value}, but must be {limit}")]
    OutOfRange {
        /// The field.
        field: String,
        /// The value found.
        value: String,
        /// What is allowed.
        limit: String,
    },
    /// Another process that is still there has this node.
    #[error("{node} of the job in {directory} is taken by a process that still runs")]
    Taken {
        /// The node.
        node: NodeId,
        /// The job's directory.
        directory: PathBuf,
    },
    /// A file of the job could not be made, mapped or locked.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

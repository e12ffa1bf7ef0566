//! The ranks of one host: their start, their supervision and their output. A launcher and the agents of other
//! hosts use the same.
//!
//! | file | owns |
//! |---|---|
//! | `local_ranks`, `spawn`, `lifeline`, `limits` | the start of ranks, and what they inherit |
//! | `supervise`, `policy`, `signals`, `subreaper` | the ranks while they run, and what happens when one fails |
//! | `output` | their output |

pub(crate) mod lifeline;
pub(crate) mod limits;
pub(crate) mod local_ranks;
pub(crate) mod output;
pub(crate) mod policy;
pub(crate) mod signals;
pub(crate) mod spawn;
pub(crate) mod subreaper;
pub(crate) mod supervise;

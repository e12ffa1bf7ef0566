//! The command line.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Published figures beside simulated ones, each with its residual and tolerance.
///
/// Prints a line for every figure: a number that a document states (published), a sentence of it and the
/// inequality that it is read as (claim), arithmetic on its numbers (derived), or this project's own (model).
/// Writes plots (SVG), their points (CSV) and all lines (JSON). Lines marked "held out" had no part in fitting the
/// machine's parameters. Exits with 0 when every line is within its tolerance, with 1 when one is not or a
/// simulation fails, and with 2 when the command line is wrong.
#[derive(Clone, Debug, Parser)]
#[command(name = "figures", max_term_width = 100)]
pub(crate) struct Cli {
    /// Whose figures, or whose fit
    #[command(subcommand)]
    pub(crate) task: Task,

    /// Folder for plots, points and lines
    #[arg(long, global = true, value_name = "DIR", default_value = "target/figures")]
    pub(crate) out: PathBuf,

    /// The same lines from fewer points of the curves and fewer updates
    #[arg(long, global = true)]
    pub(crate) quick: bool,

    /// Only this part of the figures; may be repeated
    #[arg(long, global = true, value_name = "PART")]
    pub(crate) only: Vec<String>,

    /// Also write the pictures to docs/, in the current folder
    #[arg(long, global = true, conflicts_with_all = ["quick", "only"])]
    pub(crate) docs: bool,

    /// Parameters that replace the published machine's, as a TOML file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) parameters: Option<PathBuf>,

    /// One parameter that replaces the published machine's, such as velo.send_ns=200; may be repeated
    #[arg(long, global = true, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Task {
    #[command(flatten)]
    Reproduce(Machine),
    /// Computes the fitted parameters of a machine from its training set, and compares its table with them
    Fit {
        /// Whose parameters
        #[command(subcommand)]
        machine: Machine,
    },
}

/// The machines with published figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Machine {
    /// ExaNet: control packets and writes of the ExaNeSt prototype, active messages on them
    Exanet,
    /// EXTOLL: VELO and RMA, messages on them, active messages and RandomAccess on a cluster
    Extoll,
    /// SCI: stores, DMA and reads through SISCI, active messages on them and beside MPI
    Sci,
    /// Portals: puts and active messages beside MPI, static and lent credits on up to 4096 nodes
    Portals,
    /// Collective operations on EXTOLL and Portals, beside what PLogP says of their algorithms
    Collectives,
    /// Networks with finite buffers: an incast and what it crosses, senders on a line
    Network,
}

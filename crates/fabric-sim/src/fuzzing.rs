//! What fuzzers and ordinary tests call alike: files that users write.

use crate::topology::graph::{Graph, Ways};

/// The text of a graph's file: returns whether it is one, for both rules of its ways alike unless one of them
/// finds no way.
///
/// # Panics
/// If a graph has no node.
pub fn graph(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let graphs = [Ways::Shortest, Ways::UpDown].map(|ways| Graph::parse(text, ways));
    assert!(graphs.iter().flatten().all(|graph| graph.nodes > 0));
    graphs.iter().any(Result::is_ok)
}

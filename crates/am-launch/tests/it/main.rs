//! The integration tests of am-launch that need no program of ranks; `jobs` has those that do.

mod fuzz;

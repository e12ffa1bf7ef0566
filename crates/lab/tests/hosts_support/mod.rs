//! What the tests of jobs on several hosts share: hosts made of network namespaces, and the parts that ranks play.

pub(crate) mod netns;
pub(crate) mod ranks;
pub(crate) mod tasks;

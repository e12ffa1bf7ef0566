//! What every bench of the project does alike: figures beside their baselines, a table, a JSON file and a picture.

pub(crate) mod chart;
pub(crate) mod command;
pub(crate) mod load;
pub(crate) mod publish;
pub(crate) mod rows;
pub(crate) mod summary;
pub(crate) mod svg;

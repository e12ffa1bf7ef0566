//! What every bench of the project does alike: figures beside their baselines, a table, a JSON file and a picture.

pub mod chart;
pub mod command;
pub mod load;
pub mod publish;
pub mod rows;
pub mod summary;
pub mod svg;

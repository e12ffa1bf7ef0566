//! Everything behind the shared-memory bench: the processes, the raw baselines and the active-message tasks.

pub(crate) mod am;
pub(crate) mod case;
pub(crate) mod cases;
pub(crate) mod crew;
pub(crate) mod mapping;
pub(crate) mod measure;
pub(crate) mod picture;
pub(crate) mod placement;
pub(crate) mod random_access;
pub(crate) mod raw;
pub(crate) mod ring;
pub(crate) mod table;
pub(crate) mod world;

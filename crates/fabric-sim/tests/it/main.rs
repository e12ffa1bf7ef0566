//! The integration tests of fabric-sim, one program: each module is a subject.

mod devices;
mod endpoints;
mod engine;
mod faults;
mod machine_files;

//! The integration tests of fabric-sim, one program: each module is a subject.

mod bounds;
mod buffers;
mod devices;
mod endpoints;
mod engine;
mod faults;
mod halves;
mod machine_files;
mod networks;
mod two_halves;

/// Held by tests of so many ranks that two of them at a time would need more memory mappings than a process may
/// have.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

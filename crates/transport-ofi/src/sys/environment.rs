//! The one setting of a provider that the library takes from the environment alone.

use std::ffi::OsStr;

/// Receive buffers that `tcp;ofi_rxm` keeps for each endpoint.
const BUFFERS: &str = "FI_OFI_RXM_MSG_RX_SIZE";
/// As many as it keeps for a connection where connections do not share them. The default for an endpoint, whose
/// connections do, is 4096 of 16 KiB.
const ENOUGH: &str = "128";

/// Has libfabric's provider `ofi_rxm` keep 2 MB of receive buffers for each endpoint instead of 64 MB, in this
/// process and in those that it starts, by the variable `FI_OFI_RXM_MSG_RX_SIZE`. Does nothing where the variable
/// is set, or where the process has a second thread, which might be reading the environment; then the variable has
/// to be set before the program starts. Has to be called before anything else of this crate, since the library
/// reads its settings when it is first asked.
///
/// Whether the variable is set now.
pub fn limit_provider_buffers() -> bool {
    limit(&|| std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1))
}

fn limit(alone: &dyn Fn() -> bool) -> bool {
    if std::env::var_os(BUFFERS).is_some() {
        return true;
    }
    if !alone() {
        return false;
    }
    // SAFETY: this is the process's only thread, so nobody reads the environment meanwhile.
    unsafe { std::env::set_var(BUFFERS, OsStr::new(ENOUGH)) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "AM_OFI_TEST_LIMIT";

    /// Run by the test below in a process of its own, whose other threads are the harness's and rest; without its
    /// variable it is nothing.
    #[test]
    fn child() {
        let Ok(expected) = std::env::var(CHILD) else { return };
        assert!(limit(&|| true));
        assert_eq!(std::env::var(BUFFERS).unwrap(), expected);
        println!("LIMITED");
    }

    #[test]
    fn a_value_of_the_users_stays() {
        for (given, expected) in [(None, ENOUGH), (Some("4096"), "4096")] {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "sys::environment::tests::child", "--nocapture", "--test-threads", "1"]);
            child.env_remove(BUFFERS).envs(given.map(|given| (BUFFERS, given))).env(CHILD, expected);
            let output = child.output().unwrap();
            assert!(String::from_utf8_lossy(&output.stdout).contains("LIMITED"), "{output:?}");
        }
    }

    /// The harness has threads: what is not this test's to change stays.
    #[test]
    fn processes_with_threads_are_left_alone() {
        let before = std::env::var_os(BUFFERS);
        assert_eq!(limit(&|| false), before.is_some());
        assert_eq!(std::env::var_os(BUFFERS), before);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(limit_provider_buffers(), before.is_some()));
        });
        assert_eq!(std::env::var_os(BUFFERS), before);
    }
}

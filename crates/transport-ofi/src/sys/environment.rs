//! The settings of providers that the library takes from the environment alone.

/// A variable of libfabric, and its value where the user says nothing.
type Setting = (&'static str, &'static str);

/// Receive buffers that `tcp;ofi_rxm` keeps for each endpoint: as many as it keeps for a connection where
/// connections do not share them. The default for an endpoint, whose connections do, is 4096 of 16 KiB.
const BUFFERS: Setting = ("FI_OFI_RXM_MSG_RX_SIZE", "128");
/// Packets that `udp;ofi_rxd` has under way to a peer, all of which it sends again when it is not answered within
/// a millisecond. Before libfabric 2.4 the provider below overwrites completions when there are more of packets
/// than its queue holds (2048; libfabric's pull request 11501), and the endpoint stands still from then on. Two
/// ranks on a busy host reached that with the default of 128, and 166 with this.
const PACKETS: Setting = ("FI_OFI_RXD_MAX_UNACKED", "16");

/// Sets what libfabric's providers take from the environment alone, in this process and in those that it starts:
/// `tcp;ofi_rxm` keeps 2 MB of receive buffers for each endpoint instead of 64 MB (`FI_OFI_RXM_MSG_RX_SIZE`), and
/// `udp;ofi_rxd` has so few packets under way (`FI_OFI_RXD_MAX_UNACKED`) that a defect of libfabric before 2.4
/// does not show, by which an endpoint stands still for ever. A variable that is set stays as it is.
///
/// Does nothing where the process has a second thread, which might be reading the environment; then the variables
/// have to be set before the program starts. Has to be called before anything else of this crate, since the
/// library reads its settings when it is first asked.
///
/// Whether the variables are set now.
pub fn limit_provider_buffers() -> bool {
    limit(&|| std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1))
}

fn limit(alone: &dyn Fn() -> bool) -> bool {
    let missing = || [BUFFERS, PACKETS].into_iter().filter(|(name, _)| std::env::var_os(name).is_none());
    if missing().next().is_some() && !alone() {
        return false;
    }
    for (name, value) in missing() {
        // SAFETY: this is the process's only thread, so nobody reads the environment meanwhile.
        unsafe { std::env::set_var(name, value) };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "AM_OFI_TEST_LIMIT";

    fn values() -> [Option<std::ffi::OsString>; 2] {
        [BUFFERS, PACKETS].map(|(name, _)| std::env::var_os(name))
    }

    /// Run by the test below in a process of its own, whose other threads are the harness's and rest; without its
    /// variable it is nothing.
    #[test]
    fn child() {
        let Ok(expected) = std::env::var(CHILD) else { return };
        assert!(limit(&|| true));
        let values = values().map(|value| value.unwrap().into_string().unwrap());
        assert_eq!(values.join(" "), expected);
        println!("LIMITED");
    }

    #[test]
    fn a_value_of_the_users_stays() {
        for (given, expected) in
            [(None, "128 16"), (Some((BUFFERS.0, "4096")), "4096 16"), (Some((PACKETS.0, "64")), "128 64")]
        {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "sys::environment::tests::child", "--nocapture", "--test-threads", "1"]);
            child.env_remove(BUFFERS.0).env_remove(PACKETS.0).envs(given).env(CHILD, expected);
            let output = child.output().unwrap();
            assert!(String::from_utf8_lossy(&output.stdout).contains("LIMITED"), "{output:?}");
        }
    }

    /// The harness has threads: what is not this test's to change stays.
    #[test]
    fn processes_with_threads_are_left_alone() {
        let before = values();
        let set = before.iter().all(Option::is_some);
        assert_eq!(limit(&|| false), set);
        assert_eq!(values(), before);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(limit_provider_buffers(), set));
        });
        assert_eq!(values(), before);
    }
}

//! What fuzzers and ordinary tests call alike: each target turns bytes into what others say or users write, and
//! panics if that is taken for what it is not.

mod drawn;

use std::path::Path;

pub use crate::cluster::channel::fuzzing::{message, stranger};
use crate::cluster::list::{HostSpec, host_file, parse_hosts};
pub use crate::control_links::control;
pub use crate::manifest::manifest;
pub use crate::notices::notices;
pub use crate::rank::kvs::pmi::conversation as pmi;
pub use crate::rank::meet::greeting;
pub use drawn::drawn;

/// A list of hosts and a host file: what is taken can be used as hosts. Returns whether either is.
///
/// # Panics
/// If a name could be an option of the remote command, or is there twice, or a host file is refused in several
/// lines.
pub fn hosts(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let mut taken = parse_hosts(text).is_ok_and(|hosts| usable(&hosts));
    match host_file(text, Path::new("hosts")) {
        Ok(hosts) => taken |= usable(&hosts),
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
    taken
}

fn usable(hosts: &[HostSpec]) -> bool {
    let mut names: Vec<&str> = hosts.iter().map(|host| &*host.name).collect();
    for name in &names {
        assert!(!name.is_empty() && !name.starts_with('-') && !name.contains(char::is_whitespace), "{name:?}");
    }
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    assert!(hosts.iter().all(|host| host.slots != Some(0)));
    !hosts.is_empty()
}

//! The job's secret: made for one job or read from a file, and never shown.
//!
//! It reaches the ranks of `amrun` by inheritance, in a memory file, and the hosts of a job through the standard
//! input of the remote command; neither is visible to other users, as arguments (in every process list) would be.
//! An environment is hidden from other users, too, but it leaks by habit: programs print it, logs and crash
//! reports keep it. So where ranks are started by hand or by another launcher, the environment carries only the
//! *name* of a file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use am_core::private::Bytes;
use nix::libc;
use nix::unistd::geteuid;
use zeroize::{Zeroize, Zeroizing};

use crate::codec::Wire;
use crate::env;

/// The fewest bytes of a secret.
const LEAST: usize = 16;
/// The most bytes of a secret's file.
const MOST: u64 = 4096;

/// What the ranks of a job know and nobody else does. Its `Debug` form doesn't show it, it is wiped when dropped,
/// and core dumps of the process leave it out.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Bytes);

impl Secret {
    /// A fresh secret of 32 bytes from the operating system's random source.
    pub(crate) fn random() -> io::Result<Self> {
        let mut bytes = Bytes::zeroed(32);
        getrandom::fill(&mut bytes).map_err(|_| io::Error::other("no random bytes from the system"))?;
        Ok(Self(bytes))
    }

    /// The secret of one run of a job whose ranks share this one: it also comes from a value that is new in every
    /// run, so what was recorded in one run means nothing in another, however long the file with this secret is
    /// used.
    pub(crate) fn of_run(&self, run: &[u8; 32]) -> Self {
        let mut hash = blake3::Hasher::new_derive_key("active-messages launch 2026-11 run");
        hash.update(run).update(&self.0);
        let mut secret = Self(Bytes::zeroed(32));
        hash.finalize_xof().fill(&mut secret.0);
        hash.zeroize();
        secret
    }

    /// No secret, for what is told to those who have it.
    pub(crate) fn none() -> Self {
        Self(Bytes::zeroed(0))
    }

    /// Reads a secret from a regular file of at most 4096 bytes that belongs to this process's user and that
    /// nobody else can read or write. White space at its end doesn't count, so that a line of text will do.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
        // Without waiting, should it be a pipe that nobody writes to.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        if !meta.is_file() {
            return Err(SecretError::NoFile { path: path.to_owned() });
        }
        let (owner, user) = (meta.uid(), geteuid().as_raw());
        if owner != user {
            return Err(SecretError::Foreign { path: path.to_owned(), owner, user });
        }
        let mode = meta.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(SecretError::Open { path: path.to_owned(), mode });
        }
        if meta.len() > MOST {
            return Err(SecretError::Long { path: path.to_owned(), bytes: meta.len() });
        }
        // Room for all of it, so that no part is left behind in memory when it grows.
        let (mut all, mut length, mut file) = (Bytes::zeroed(MOST as usize), 0, file.take(MOST));
        loop {
            match file.read(&mut all[length..]) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
        let secret = Self(all[..length].trim_ascii_end().into());
        if secret.0.len() < LEAST {
            return Err(SecretError::Short { path: path.to_owned(), bytes: secret.0.len() });
        }
        Ok(secret)
    }

    /// One that another rank has told, if it is long enough.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= LEAST).then(|| Self(bytes.into()))
    }

    /// The secret itself, at least 16 bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Wire for Secret {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        Zeroizing::new(self.0.to_vec()).put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        // Its bytes are those of the message, which wipes itself.
        let bytes = Zeroizing::new(Vec::<u8>::take(from)?);
        Some(Self(bytes[..].into()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why a file gives no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// It can't be read.
    #[error(
        "the job's secret can't be read from {}: {source}; {}=FILE names a file with the same {LEAST} or more \
         random bytes on every host",
        path.display(),
        env::SECRET_FILE
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Others may read it.
    #[error("the job's secret in {0} is open to other users (mode {mode:03o}): chmod 600 {0}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is no regular file.
    #[error(
        "the job's secret is read from a regular file, which {} is not: `head -c 32 /dev/urandom > FILE; chmod 600 FILE` \
         makes one",
        path.display()
    )]
    NoFile {
        /// What it is instead.
        path: PathBuf,
    },
    /// It belongs to somebody else, who can change it.
    #[error("the job's secret in {0} belongs to user {owner}, but this process runs as {user}: chown {user} {0}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// It is some other file.
    #[error("the job's secret in {} has {bytes} bytes, but at most {MOST} are read", path.display())]
    Long {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// It can be guessed.
    #[error("the job's secret in {} has {bytes} bytes, but needs at least {LEAST} random ones", path.display())]
    Short {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// No file is named.
    #[error(
        "{}={rendezvous} needs the job's secret: {}=FILE names a file with the same {LEAST} or more random bytes on \
         every host, readable by you alone",
        env::RENDEZVOUS,
        env::SECRET_FILE
    )]
    Missing {
        /// The rendezvous address that needs it.
        rendezvous: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secrets_are_left_out_of_core_dumps() {
        use am_core::private::is_left_out_of_dumps;
        let secret = Secret::random().unwrap();
        let received = crate::codec::decode::<Secret>(&crate::codec::encode(&secret)).unwrap();
        for secret in [&secret, &secret.clone(), &secret.of_run(&[1; 32]), &received] {
            assert!(is_left_out_of_dumps(secret.bytes()).unwrap());
        }
        assert_eq!(received, secret);
    }

    #[test]
    fn random_secrets_differ_and_do_not_show() {
        let (a, b) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert!(a != b && a.bytes().len() == 32);
        assert_eq!(format!("{a:?}"), "Secret(..)");
    }

    #[test]
    fn files_of_other_users_are_refused() {
        let other = Path::new("/etc/passwd");
        if fs::metadata(other).unwrap().uid() != geteuid().as_raw() {
            assert!(matches!(Secret::from_file(other), Err(SecretError::Foreign { owner: 0, .. })));
        } else if let Some(path) = given_away() {
            let error = Secret::from_file(&path).unwrap_err();
            fs::remove_file(&path).unwrap();
            assert!(error.to_string().ends_with(&format!(": chown 0 {}", path.display())), "{error}");
        }
    }

    /// A good file that the superuser has given to somebody else, if this process may do so.
    fn given_away() -> Option<PathBuf> {
        let path = std::env::temp_dir().join(format!("am-secret-foreign-{}", std::process::id()));
        fs::write(&path, "0123456789abcdef").ok()?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).ok()?;
        std::os::unix::fs::chown(&path, Some(12_345), None).ok()?;
        Some(path)
    }

    #[test]
    fn every_run_has_a_secret_of_its_own() {
        let (a, b) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_eq!(a.of_run(&[1; 32]), a.of_run(&[1; 32]));
        assert!(a.of_run(&[1; 32]) != a.of_run(&[2; 32]) && a.of_run(&[1; 32]) != b.of_run(&[1; 32]));
        assert!(a.of_run(&[1; 32]) != a && a.of_run(&[1; 32]).bytes().len() == 32);
    }

    #[test]
    fn files_are_checked() {
        let path = std::env::temp_dir().join(format!("am-secret-{}", std::process::id()));
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Secret::from_file(&path)
        };
        assert_eq!(write("0123456789abcdef\n", 0o600).unwrap().bytes(), b"0123456789abcdef");
        assert!(matches!(write("0123456789abcde\n \n", 0o600), Err(SecretError::Short { bytes: 15, .. })));
        let open = write("0123456789abcdef", 0o640).unwrap_err();
        assert!(open.to_string().contains("(mode 640): chmod 600 "), "{open}");
        let long = write(&"x".repeat(4097), 0o600);
        assert!(matches!(long, Err(SecretError::Long { bytes: 4097, .. })), "{long:?}");
        for other in ["/dev/zero", "/proc/self/fd"] {
            assert!(matches!(Secret::from_file(Path::new(other)), Err(SecretError::NoFile { .. })));
        }
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(Secret::from_file(&path), Err(SecretError::NoFile { .. })), "nobody waits for a writer");
        fs::remove_file(&path).unwrap();
        assert!(matches!(Secret::from_file(&path), Err(SecretError::Unreadable { .. })));
    }
}

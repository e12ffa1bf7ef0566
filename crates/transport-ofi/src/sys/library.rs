//! The library: where it is searched, and its few symbols.

use super::abi::{DupInfo, FreeInfo, GetInfo, OpenFabric, StrError, Version};
use super::handlers;
use crate::error::OfiError;
use std::ffi::{CStr, CString, c_void};
use std::sync::OnceLock;

/// Names that are tried, in this order, by the rules of the system's dynamic linker.
const NAMES: [&str; 1] = ["libfabric.so.1"];
/// The variable that names a library in their place.
pub(crate) const VARIABLE: &str = "AM_OFI_LIBRARY";
/// The oldest version whose interface this crate speaks.
const OLDEST: (u32, u32) = (1, 14);

/// libfabric, loaded once for the process and never unloaded: its providers leave threads and handlers behind.
#[derive(Debug)]
pub(crate) struct Library {
    pub(super) getinfo: GetInfo,
    pub(super) freeinfo: FreeInfo,
    pub(super) dupinfo: DupInfo,
    pub(super) fabric: OpenFabric,
    strerror: StrError,
    version: (u32, u32),
}

impl Library {
    /// The library of this process. Blocks while it is loaded for the first time.
    ///
    /// # Errors
    /// What is missing, what was searched, and what to install.
    pub(crate) fn get() -> Result<&'static Self, OfiError> {
        static LOADED: OnceLock<Result<Library, OfiError>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| Self::load(std::env::var(VARIABLE).ok().as_deref()));
        loaded.as_ref().map_err(Clone::clone)
    }

    fn load(named: Option<&str>) -> Result<Self, OfiError> {
        let names = named.map_or_else(|| NAMES.to_vec(), |name| vec![name]);
        let mut searched = Vec::new();
        for name in names {
            match handlers::kept(|| open(name)) {
                Ok(handle) => return Self::of(handle, name),
                Err(reason) => searched.push(format!("{name} ({reason})")),
            }
        }
        Err(OfiError::NoLibrary { searched: searched.join(", ") })
    }

    fn of(handle: *mut c_void, name: &str) -> Result<Self, OfiError> {
        let symbol = |symbol: &'static CStr| {
            // SAFETY: `handle` is a library that is open for good, the name ends in a zero.
            let found = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
            let missing = || OfiError::NotLibfabric { name: name.into(), symbol: symbol.to_string_lossy().into() };
            if found.is_null() { Err(missing()) } else { Ok(found) }
        };
        let version = symbol(c"fi_version")?;
        // SAFETY: the symbol is a function of this type in every version of libfabric.
        let version = unsafe { std::mem::transmute::<*mut c_void, Version>(version) };
        // SAFETY: it takes nothing and touches nothing.
        let version = unsafe { version() };
        let version = (version >> 16, version & 0xffff);
        if version < OLDEST {
            return Err(OfiError::TooOld { name: name.into(), found: version, oldest: OLDEST });
        }
        let [getinfo, freeinfo] = [symbol(c"fi_getinfo")?, symbol(c"fi_freeinfo")?];
        let [dupinfo, fabric] = [symbol(c"fi_dupinfo")?, symbol(c"fi_fabric")?];
        let strerror = symbol(c"fi_strerror")?;
        Ok(Self {
            // SAFETY: these symbols are functions of these types in every version from `OLDEST` on.
            getinfo: unsafe { std::mem::transmute::<*mut c_void, GetInfo>(getinfo) },
            // SAFETY: as above.
            freeinfo: unsafe { std::mem::transmute::<*mut c_void, FreeInfo>(freeinfo) },
            // SAFETY: as above.
            dupinfo: unsafe { std::mem::transmute::<*mut c_void, DupInfo>(dupinfo) },
            // SAFETY: as above.
            fabric: unsafe { std::mem::transmute::<*mut c_void, OpenFabric>(fabric) },
            // SAFETY: as above.
            strerror: unsafe { std::mem::transmute::<*mut c_void, StrError>(strerror) },
            version,
        })
    }

    /// One made of these functions, for tests.
    #[cfg(test)]
    pub(super) fn fake(
        getinfo: GetInfo,
        freeinfo: FreeInfo,
        dupinfo: DupInfo,
        fabric: OpenFabric,
        strerror: StrError,
    ) -> Self {
        Self { getinfo, freeinfo, dupinfo, fabric, strerror, version: OLDEST }
    }

    /// Its version, major and minor.
    pub(crate) fn version(&self) -> (u32, u32) {
        self.version
    }

    /// What an error number means; the sign does not matter.
    pub(crate) fn explain(&self, code: i32) -> String {
        // SAFETY: it takes any number and returns text that stays.
        let text = unsafe { (self.strerror)(code.saturating_abs()) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: the text ends in a zero and is never changed.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({})", text.to_string_lossy(), code.saturating_abs())
    }
}

/// Opens a library by its name or path.
fn open(name: &str) -> Result<*mut c_void, String> {
    let path = CString::new(name).map_err(|_| "its name has a zero byte".to_owned())?;
    // SAFETY: the name ends in a zero. What the library does when it is loaded is its affair; it is the one that
    // the user installed.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: the text of the last error of this thread, or null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return Err("the linker gives no reason".into());
    }
    // SAFETY: text that ends in a zero and stays until the next call of this thread.
    let text = unsafe { CStr::from_ptr(text) };
    Err(text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_says_what_to_install() {
        let error = Library::load(Some("/nowhere/libfabric.so.1")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/libfabric.so.1 ("), "{error}");
        assert!(error.contains("apt-get install libfabric1"), "{error}");
    }

    #[test]
    fn another_library_is_refused() {
        let error = Library::load(Some("libc.so.6")).unwrap_err().to_string();
        assert!(error.starts_with("libc.so.6 is not libfabric: it has no fi_version"), "{error}");
        assert!(Library::load(Some("zero\0byte")).is_err());
    }

    /// Libraries that have nothing but a version, made by the C compiler that links this test, too.
    #[test]
    fn an_old_library_is_refused_with_its_version_and_the_oldest() {
        let loaded = |version: u32| {
            let stem = std::env::temp_dir().join(format!("am-ofi-{}-{version:x}", std::process::id()));
            let (file, library) = (stem.with_extension("c"), stem.with_extension("so"));
            std::fs::write(&file, format!("unsigned fi_version(void) {{ return {version}u; }}\n")).unwrap();
            let made =
                std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &file]).output();
            let made = made.expect("there is a C compiler");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            let error = Library::load(library.to_str()).unwrap_err();
            let _ = (std::fs::remove_file(&file), std::fs::remove_file(&library));
            error
        };
        let old = loaded(1 << 16 | 13);
        let said = old.to_string();
        assert!(matches!(old, OfiError::TooOld { found: (1, 13), oldest: (1, 14), .. }), "{said}");
        assert!(
            said.contains(".so is libfabric 1.13, but 1.14 or later is needed: install a newer one"),
            "{said}"
        );
        // These are new enough: what they lack is something else.
        for version in [1 << 16 | 14, 2 << 16] {
            let error = loaded(version);
            assert!(matches!(&error, OfiError::NotLibfabric { symbol, .. } if symbol == "fi_getinfo"), "{error}");
        }
    }
}

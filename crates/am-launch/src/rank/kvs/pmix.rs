//! PMIx' key-value space, by its library, which is loaded at run time: what is used of its interface is a handful
//! of functions and two structs, the same from version 2 on. ("PMIx Standard 4.1", chapters 3, 4 and 6.)

#![expect(unsafe_code, reason = "functions of a library that is loaded at run time")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use nix::libc;
use zeroize::{Zeroize as _, Zeroizing};

use super::KEY;

const LIBRARY: &CStr = c"libpmix.so.2";
/// Bytes of the name of a namespace, the zero at its end included.
const NAMESPACE: usize = 256;
/// A value that is a text.
const STRING: u16 = 3;
/// A value for the processes of all hosts.
const GLOBAL: u8 = 3;

/// `pmix_proc_t`.
#[repr(C)]
struct Process {
    namespace: [c_char; NAMESPACE],
    rank: u32,
}

/// `pmix_value_t`, whose second part is a union; of a text it is the address.
#[repr(C)]
struct Value {
    kind: u16,
    data: [*mut c_char; 3],
}

type Init = unsafe extern "C" fn(*mut Process, *const c_void, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Process, usize, *const c_void, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Process, *const c_char, *const c_void, usize, *mut *mut Value) -> c_int;
type Finalize = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// The functions of the library, which stays loaded.
struct Library {
    init: Init,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    finalize: Finalize,
    error_string: ErrorString,
}

/// Has every rank know the value that rank 0 gives. Blocks until all ranks take part. An error is for people.
pub(super) fn share(value: Option<&str>) -> Result<Zeroizing<String>, String> {
    let library = Library::load()?;
    let mut me = Process { namespace: [0; NAMESPACE], rank: 0 };
    // SAFETY: the struct is the library's, and written before the call returns; there is no further information.
    library.check("PMIx_Init", unsafe { (library.init)(&raw mut me, ptr::null(), 0) })?;
    let heard = library.exchange(&me, value);
    // SAFETY: the library was initialised.
    let code = unsafe { (library.finalize)(ptr::null(), 0) };
    let heard = heard?;
    library.check("PMIx_Finalize", code)?;
    Ok(heard)
}

impl Library {
    fn load() -> Result<Self, String> {
        // SAFETY: the name ends in a zero. What the library does when it is loaded is its affair: it is that of
        // the launcher.
        let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: the text of the last error of this thread, or null.
            let text = unsafe { libc::dlerror() };
            // SAFETY: text that ends in a zero and stays until the next call of this thread.
            let reason = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
            return Err(format!(
                "its library cannot be loaded: {} (Debian, Ubuntu: apt-get install libpmix2; or LD_LIBRARY_PATH)",
                reason.unwrap_or_else(|| LIBRARY.to_string_lossy().into_owned())
            ));
        }
        let symbol = |name: &'static CStr| {
            // SAFETY: the library stays open, and the name ends in a zero.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if found.is_null() { Err(format!("its library has no {}", name.to_string_lossy())) } else { Ok(found) }
        };
        let [init, put, commit] = [symbol(c"PMIx_Init")?, symbol(c"PMIx_Put")?, symbol(c"PMIx_Commit")?];
        let [fence, get, finalize] = [symbol(c"PMIx_Fence")?, symbol(c"PMIx_Get")?, symbol(c"PMIx_Finalize")?];
        let error_string = symbol(c"PMIx_Error_string")?;
        Ok(Self {
            // SAFETY: the symbol is a function of this type in every version with this library's name.
            init: unsafe { std::mem::transmute::<*mut c_void, Init>(init) },
            // SAFETY: as above.
            put: unsafe { std::mem::transmute::<*mut c_void, Put>(put) },
            // SAFETY: as above.
            commit: unsafe { std::mem::transmute::<*mut c_void, Commit>(commit) },
            // SAFETY: as above.
            fence: unsafe { std::mem::transmute::<*mut c_void, Fence>(fence) },
            // SAFETY: as above.
            get: unsafe { std::mem::transmute::<*mut c_void, Get>(get) },
            // SAFETY: as above.
            finalize: unsafe { std::mem::transmute::<*mut c_void, Finalize>(finalize) },
            // SAFETY: as above.
            error_string: unsafe { std::mem::transmute::<*mut c_void, ErrorString>(error_string) },
        })
    }

    fn check(&self, call: &str, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it takes any number and returns text that stays, or null.
        let text = unsafe { (self.error_string)(code) };
        // SAFETY: the text ends in a zero.
        let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy());
        Err(format!("{call} fails with {code}, {}", text.unwrap_or_default()))
    }

    /// The part between initialisation and its end.
    fn exchange(&self, me: &Process, value: Option<&str>) -> Result<Zeroizing<String>, String> {
        let key = CString::new(KEY).expect("a key has no zero");
        if let Some(value) = value {
            let mut text = Zeroizing::new(value.as_bytes().to_vec());
            text.push(0);
            let mut value = Value { kind: STRING, data: [ptr::null_mut(); 3] };
            value.data[0] = text.as_mut_ptr().cast();
            // SAFETY: key and text end in a zero; both are copied before the call returns.
            self.check("PMIx_Put", unsafe { (self.put)(GLOBAL, key.as_ptr(), &raw mut value) })?;
        }
        // SAFETY: the library is initialised.
        self.check("PMIx_Commit", unsafe { (self.commit)() })?;
        // SAFETY: as above; no list means all ranks of the job.
        self.check("PMIx_Fence", unsafe { (self.fence)(ptr::null(), 0, ptr::null(), 0) })?;
        let first = Process { namespace: me.namespace, rank: 0 };
        let mut found: *mut Value = ptr::null_mut();
        // SAFETY: as above; the place for the value lives through the call.
        let code = unsafe { (self.get)(&raw const first, key.as_ptr(), ptr::null(), 0, &raw mut found) };
        let heard = self.check("PMIx_Get", code).and_then(|()| {
            // SAFETY: a call that succeeds has left a value there, or null.
            let value = unsafe { found.as_mut() }.filter(|value| value.kind == STRING && !value.data[0].is_null());
            value.map(take).ok_or_else(|| "PMIx_Get gives no text".to_owned())
        });
        // Rank 0 stays until all have its value.
        // SAFETY: as above.
        self.check("PMIx_Fence", unsafe { (self.fence)(ptr::null(), 0, ptr::null(), 0) })?;
        heard
    }
}

/// The text of a value, which is wiped: nobody reads it again.
fn take(value: &mut Value) -> Zeroizing<String> {
    let text = value.data[0];
    // SAFETY: the text ends in a zero, and is the caller's of `PMIx_Get`.
    let length = unsafe { CStr::from_ptr(text) }.count_bytes();
    // SAFETY: so many bytes are this process's alone.
    let bytes = unsafe { std::slice::from_raw_parts_mut(text.cast::<u8>(), length) };
    let heard = Zeroizing::new(String::from_utf8_lossy(bytes).into_owned());
    bytes.zeroize();
    heard
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::Command;

    /// The structs beside the headers that are installed; skipped, and said so, without them.
    #[test]
    fn declarations_are_those_of_the_headers() {
        let source = "#include <pmix.h>\n#include <stddef.h>\n#include <stdio.h>\n\
                      int main(void) { printf(\"%zu %zu %zu %zu %d %d\\n\", \
                      sizeof(pmix_proc_t), sizeof(pmix_value_t), \
                      offsetof(pmix_proc_t, rank), offsetof(pmix_value_t, data), \
                      PMIX_STRING, PMIX_GLOBAL); return 0; }\n";
        let stem = std::env::temp_dir().join(format!("am-pmix-{}", std::process::id()));
        let (file, program) = (stem.with_extension("c"), stem.with_extension("out"));
        std::fs::write(&file, source).unwrap();
        let built = Command::new("cc")
            .args(["-w", "-I/usr/lib/x86_64-linux-gnu/pmix2/include", "-o"])
            .args([&program, &file])
            .output();
        let said = match built {
            Ok(output) if output.status.success() => Command::new(&program).output().unwrap().stdout,
            _ => Vec::new(),
        };
        let _ = (std::fs::remove_file(&file), std::fs::remove_file(&program));
        if said.is_empty() {
            // Past the test runner, which shows nothing of tests that pass.
            if let Ok(mut out) = std::fs::OpenOptions::new().append(true).open("/dev/stderr") {
                let _ = out
                    .write_all(b"SKIPPED: declarations beside PMIx' headers: there are none, or no C compiler\n");
            }
            return;
        }
        let ours = [
            size_of::<Process>(),
            size_of::<Value>(),
            std::mem::offset_of!(Process, rank),
            std::mem::offset_of!(Value, data),
            STRING.into(),
            GLOBAL.into(),
        ];
        assert_eq!(String::from_utf8(said).unwrap().trim(), ours.map(|number| number.to_string()).join(" "));
    }
}

//! Libraries that a program loads by name: `LoadLibrary`, `GetProcAddress`, `FreeLibrary`.
//!
//! ```text
//!   "C:\…\KernelTraceControl.dll", "tdh" … ──▶ this library, in place of the Windows library
//!   anything else ─────────────────────────▶ dlopen
//! ```
//!
//! `LoadLibraryEx` refuses flags that ask for data or resources only: `dlopen` would run the code of
//! the file, which the caller excludes.
//!
//! The names of the Windows libraries are those of `weir shims`. A file of such a name is not
//! loaded: it would be a program for Windows.

use std::ffi::{CStr, CString, OsStr, OsString, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use traceweir::Status;

use super::to_bool;
use crate::text::{self, MAX_PATH_UNITS, TextUnit};
use crate::{boundary, last_error, ptr};

/// The libraries of Windows that this library stands for.
const STANDS_FOR: [&str; 6] = ["advapi32", "kernel32", "kerneltracecontrol", "ntdll", "sechost", "tdh"];

/// The flags of `LoadLibraryEx` with which no code of the file may run: DONT_RESOLVE_DLL_REFERENCES,
/// LOAD_LIBRARY_AS_DATAFILE, LOAD_LIBRARY_AS_IMAGE_RESOURCE, LOAD_LIBRARY_AS_DATAFILE_EXCLUSIVE.
const WITHOUT_CODE: u32 = 0x1 | 0x2 | 0x20 | 0x40;

/// Returns whether a path names a library that this one stands for, whatever its folder.
fn is_stood_for(path: &OsStr) -> bool {
    let bytes = path.as_bytes();
    let name = bytes.rsplit(|byte| matches!(byte, b'/' | b'\\')).next().unwrap_or(bytes);
    let name = name.to_ascii_lowercase();
    let name = name.strip_suffix(b".dll").unwrap_or(&name);
    STANDS_FOR.iter().any(|library| library.as_bytes() == name)
}

/// Loads a library.
///
/// # Safety
///
/// `path` is NULL or has a terminator.
unsafe fn load<U: TextUnit>(path: *const U, flags: u32) -> *mut c_void {
    let loaded = boundary::catch_panic(Err(Status::ERROR_NOACCESS), || {
        if path.is_null() {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        // SAFETY: `path` is not NULL, so the caller guarantees a terminator.
        let units = unsafe { ptr::read_text(path, MAX_PATH_UNITS) }.ok_or(Status::ERROR_BUFFER_OVERFLOW)?;
        let path: OsString = U::decode(units).ok_or(Status::ERROR_INVALID_PARAMETER)?;
        if is_stood_for(&path) {
            return open_self().ok_or(Status::ERROR_MOD_NOT_FOUND);
        }
        if flags & WITHOUT_CODE != 0 {
            return Err(Status::ERROR_NOT_SUPPORTED);
        }
        let path = CString::new(path.into_vec()).map_err(|_| Status::ERROR_INVALID_PARAMETER)?;
        open(&path).ok_or(Status::ERROR_MOD_NOT_FOUND)
    });
    loaded.unwrap_or_else(|status| {
        last_error::set(status);
        std::ptr::null_mut()
    })
}

fn open(path: &CStr) -> Option<*mut c_void> {
    // SAFETY: the path has a terminator.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    (!handle.is_null()).then_some(handle)
}

/// Returns a handle of the file that contains this function: the shared library, or the program
/// into which the library is linked.
fn open_self() -> Option<*mut c_void> {
    // SAFETY: the structure consists of pointers that may be NULL.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let address: *const c_void = (open_self as fn() -> Option<*mut c_void>) as *const c_void;
    // SAFETY: both addresses are valid.
    let is_found = unsafe { libc::dladdr(address, &raw mut found) } != 0 && !found.dli_fname.is_null();
    // SAFETY: the loader's names have terminators.
    let library = is_found.then(|| open(unsafe { CStr::from_ptr(found.dli_fname) })).flatten();
    // A program cannot be loaded again under its name; NULL names it.
    // SAFETY: NULL is permitted.
    let program = || unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_NOW) };
    library.or_else(|| Some(program()).filter(|handle| !handle.is_null()))
}

/// Loads a library by its path or name.
///
/// # Safety
///
/// `path` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LoadLibraryW(path: *const u16) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; `load` requires no more.
    unsafe { load(path, 0) }
}

/// Like [`LoadLibraryW`], in UTF-8.
///
/// # Safety
///
/// As [`LoadLibraryW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LoadLibraryA(path: *const u8) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; `load` requires no more.
    unsafe { load(path, 0) }
}

/// Like [`LoadLibraryW`]. Flags that exclude the library's code are refused; the
/// others select folders that the loader of Linux does not have.
///
/// # Safety
///
/// As [`LoadLibraryW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LoadLibraryExW(path: *const u16, _file: *mut c_void, flags: u32) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; `load` requires no more.
    unsafe { load(path, flags) }
}

/// Like [`LoadLibraryExW`], in UTF-8.
///
/// # Safety
///
/// As [`LoadLibraryW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LoadLibraryExA(path: *const u8, _file: *mut c_void, flags: u32) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; `load` requires no more.
    unsafe { load(path, flags) }
}

/// Returns the address of a function of a library.
///
/// # Safety
///
/// `library` is NULL or a handle of `LoadLibrary`; `name` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GetProcAddress(library: *mut c_void, name: *const u8) -> *mut c_void {
    let found = boundary::catch_panic(Err(Status::ERROR_NOACCESS), || {
        // A number below 64 Ki instead of an address is an ordinal, which no library here has.
        if name.addr() <= usize::from(u16::MAX) {
            return Err(Status::ERROR_PROC_NOT_FOUND);
        }
        if library.is_null() {
            return Err(Status::ERROR_INVALID_HANDLE);
        }
        // SAFETY: the caller passes a text with a terminator as `name`.
        let name = unsafe { text::read_name(name) }?.unwrap_or_default();
        let name = CString::new(name).map_err(|_| Status::ERROR_PROC_NOT_FOUND)?;
        // SAFETY: the caller passes a handle of `LoadLibrary`; the name has a terminator.
        let address = unsafe { libc::dlsym(library, name.as_ptr()) };
        if address.is_null() { Err(Status::ERROR_PROC_NOT_FOUND) } else { Ok(address) }
    });
    found.unwrap_or_else(|status| {
        last_error::set(status);
        std::ptr::null_mut()
    })
}

/// Releases a library.
///
/// # Safety
///
/// `library` is NULL or a handle of `LoadLibrary` that was not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FreeLibrary(library: *mut c_void) -> i32 {
    to_bool(|| {
        // SAFETY: the caller passes a handle of `LoadLibrary`.
        let is_closed = !library.is_null() && unsafe { libc::dlclose(library) } == 0;
        if is_closed { Ok(()) } else { Err(Status::ERROR_INVALID_HANDLE) }
    })
}

/// Fails with ERROR_INVALID_FUNCTION, as in any process of 64 bits: there is no redirection.
///
/// # Safety
///
/// `state` is not read or written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Wow64DisableWow64FsRedirection(_state: *mut *mut c_void) -> i32 {
    to_bool(|| Err(Status::ERROR_INVALID_FUNCTION))
}

/// Fails as [`Wow64DisableWow64FsRedirection`].
///
/// # Safety
///
/// `state` is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Wow64RevertWow64FsRedirection(_state: *mut c_void) -> i32 {
    to_bool(|| Err(Status::ERROR_INVALID_FUNCTION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_windows_library_is_recognised_in_any_folder_and_case() {
        for name in
            ["tdh", "TDH.DLL", "/opt/app/amd64/KernelTraceControl.dll", r"C:\Windows\System32\ntdll.dll"]
        {
            assert!(is_stood_for(OsStr::new(name)), "{name}");
        }
        for name in ["", "tdh.so", "mytdh.dll", "tdh.dll/x", "libtdh.dll", "dbghelp.dll"] {
            assert!(!is_stood_for(OsStr::new(name)), "{name}");
        }
    }
}

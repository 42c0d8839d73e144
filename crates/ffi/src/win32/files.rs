//! Files that programs create, read and write: `CreateFile`, `ReadFile`, `WriteFile` and a few
//! others.
//!
//! Paths are those of Linux. Files are not shared or locked: the share mode has no effect. Reads
//! and writes always wait until they are done.

use std::collections::BTreeMap;
use std::ffi::{OsString, c_void};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use traceweir::Status;

use super::{new_handle, to_bool};
use crate::text::{MAX_PATH_UNITS, TextUnit};
use crate::{boundary, last_error, ptr};

// Rights.
const FILE_READ_DATA: u32 = 0x1;
const FILE_WRITE_DATA: u32 = 0x2;
const FILE_APPEND_DATA: u32 = 0x4;
const DELETE: u32 = 0x0001_0000;
const GENERIC_ALL: u32 = 0x1000_0000;
const GENERIC_WRITE: u32 = 0x4000_0000;
const GENERIC_READ: u32 = 0x8000_0000;

// Flags.
const FILE_FLAG_DELETE_ON_CLOSE: u32 = 0x0400_0000;
const FILE_FLAG_OVERLAPPED: u32 = 0x4000_0000;

// Dispositions.
const CREATE_NEW: u32 = 1;
const CREATE_ALWAYS: u32 = 2;
const OPEN_EXISTING: u32 = 3;
const OPEN_ALWAYS: u32 = 4;
const TRUNCATE_EXISTING: u32 = 5;

// Classes of SetFileInformationByHandle.
const FILE_DISPOSITION_INFO: u32 = 4;
const FILE_END_OF_FILE_INFO: u32 = 6;

/// INVALID_HANDLE_VALUE.
const INVALID_HANDLE: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

/// The published structure OVERLAPPED: the position of one read or write.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Overlapped {
    internal: usize,
    internal_high: usize,
    offset: u32,
    offset_high: u32,
    event: *mut c_void,
}

/// A file that a handle names.
#[derive(Debug)]
struct OpenFile {
    file: File,
    path: PathBuf,
    can_delete: bool,
    is_deleted_on_close: Mutex<bool>,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let is_deleted = *self.is_deleted_on_close.lock().unwrap_or_else(PoisonError::into_inner);
        if is_deleted && is_same_file(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns whether a path still names an open file, which another program may have replaced.
fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => open.dev() == named.dev() && open.ino() == named.ino(),
        _ => false,
    }
}

/// The open files by handle.
static HANDLES: Mutex<BTreeMap<usize, Arc<OpenFile>>> = Mutex::new(BTreeMap::new());

fn lock_handles() -> MutexGuard<'static, BTreeMap<usize, Arc<OpenFile>>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find_file(handle: *mut c_void) -> Result<Arc<OpenFile>, Status> {
    lock_handles().get(&handle.addr()).cloned().ok_or(Status::ERROR_INVALID_HANDLE)
}

fn insert_file(file: Arc<OpenFile>) -> *mut c_void {
    let handle = new_handle();
    lock_handles().insert(handle, file);
    std::ptr::without_provenance_mut(handle)
}

/// Closes a file. Returns `false` if the handle does not name a file.
pub(super) fn close_file(handle: *mut c_void) -> bool {
    let removed = lock_handles().remove(&handle.addr());
    removed.is_some()
}

/// Returns a second handle of a file, which is closed when both are. Returns `None` if the handle
/// does not name a file.
pub(super) fn duplicate_file(handle: *mut c_void) -> Option<*mut c_void> {
    find_file(handle).ok().map(insert_file)
}

/// Returns the Win32 code for an error of the system.
fn to_win32_status(error: &io::Error) -> Status {
    match error.raw_os_error() {
        Some(libc::ENOENT) => Status::ERROR_FILE_NOT_FOUND,
        Some(libc::ENOTDIR | libc::ELOOP) => Status::ERROR_PATH_NOT_FOUND,
        Some(libc::EACCES | libc::EPERM | libc::EISDIR | libc::EROFS | libc::ETXTBSY | libc::EBADF) => {
            Status::ERROR_ACCESS_DENIED
        }
        Some(libc::EEXIST) => Status::ERROR_FILE_EXISTS,
        Some(libc::ENAMETOOLONG) => Status::ERROR_FILENAME_EXCED_RANGE,
        Some(libc::EMFILE | libc::ENFILE) => Status::ERROR_TOO_MANY_OPEN_FILES,
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Status::ERROR_DISK_FULL,
        Some(libc::ENOMEM) => Status::ERROR_NOT_ENOUGH_MEMORY,
        Some(libc::EINVAL) => Status::ERROR_INVALID_PARAMETER,
        _ => Status::ERROR_IO_DEVICE,
    }
}

/// Like [`to_win32_status`], for the name of a file: distinguishes a missing file from a missing
/// folder.
fn to_path_status(error: &io::Error, path: &Path) -> Status {
    match (to_win32_status(error), path.parent()) {
        (Status::ERROR_FILE_NOT_FOUND, Some(folder))
            if !folder.as_os_str().is_empty() && !folder.exists() =>
        {
            Status::ERROR_PATH_NOT_FOUND
        }
        (status, _) => status,
    }
}

/// Reads a path.
///
/// # Safety
///
/// `path` is NULL or has a terminator.
unsafe fn read_path<U: TextUnit>(path: *const U) -> Result<PathBuf, Status> {
    if path.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    // SAFETY: `path` is not NULL, so the caller guarantees a terminator.
    let units = unsafe { ptr::read_text(path, MAX_PATH_UNITS) }.ok_or(Status::ERROR_FILENAME_EXCED_RANGE)?;
    let path: OsString = U::decode(units).ok_or(Status::ERROR_INVALID_NAME)?;
    if path.is_empty() { Err(Status::ERROR_PATH_NOT_FOUND) } else { Ok(path.into()) }
}

/// Opens or creates a file. On success the last error is ERROR_ALREADY_EXISTS if a file that may be
/// created existed before, and 0 otherwise.
fn open(path: PathBuf, access: u32, disposition: u32, flags: u32) -> Result<*mut c_void, Status> {
    let has_right = |rights: u32| access & (rights | GENERIC_ALL) != 0;
    let can_write = has_right(GENERIC_WRITE | FILE_WRITE_DATA | FILE_APPEND_DATA);
    let appends_only = access & FILE_APPEND_DATA != 0 && !has_right(GENERIC_WRITE | FILE_WRITE_DATA);
    let can_delete = has_right(DELETE);
    if flags & FILE_FLAG_OVERLAPPED != 0 {
        return Err(Status::ERROR_NOT_SUPPORTED);
    }
    if flags & FILE_FLAG_DELETE_ON_CLOSE != 0 && !can_delete {
        return Err(Status::ERROR_ACCESS_DENIED);
    }
    let mut options = OpenOptions::new();
    // A file that is opened for neither is opened to query it.
    options.read(has_right(GENERIC_READ | FILE_READ_DATA) || !can_write);
    options.write(can_write && !appends_only).append(appends_only);
    let existed = path.exists();
    let open_or_create = |options: &OpenOptions| match options.open(&path) {
        // Creating needs the right to write on Linux. The program gets the file without it.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && !can_write && !existed => {
            File::create_new(&path).and_then(|_| options.clone().create(false).create_new(false).open(&path))
        }
        opened => opened,
    };
    let opened = match disposition {
        CREATE_NEW => open_or_create(options.create_new(true)),
        CREATE_ALWAYS | OPEN_ALWAYS if existed => options.open(&path),
        CREATE_ALWAYS | OPEN_ALWAYS => open_or_create(options.create(true)),
        TRUNCATE_EXISTING if !can_write => return Err(Status::ERROR_INVALID_PARAMETER),
        OPEN_EXISTING | TRUNCATE_EXISTING => options.open(&path),
        _ => return Err(Status::ERROR_INVALID_PARAMETER),
    };
    let file = opened.map_err(|error| to_path_status(&error, &path))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(Status::ERROR_ACCESS_DENIED);
    }
    if matches!(disposition, CREATE_ALWAYS | TRUNCATE_EXISTING) && existed {
        let truncated = if can_write && !appends_only {
            file.set_len(0)
        } else {
            OpenOptions::new().write(true).truncate(true).open(&path).map(drop)
        };
        truncated.map_err(|error| to_win32_status(&error))?;
    }
    let may_create = matches!(disposition, CREATE_ALWAYS | OPEN_ALWAYS);
    let is_deleted_on_close = Mutex::new(flags & FILE_FLAG_DELETE_ON_CLOSE != 0);
    // The folder may change before the file is deleted.
    let path = std::path::absolute(&path).unwrap_or(path);
    let handle = insert_file(Arc::new(OpenFile { file, path, can_delete, is_deleted_on_close }));
    last_error::set(if may_create && existed { Status::ERROR_ALREADY_EXISTS } else { Status::ERROR_SUCCESS });
    Ok(handle)
}

/// Opens or creates a file. Returns INVALID_HANDLE_VALUE on failure, with the reason in the last
/// error. The share mode, the security attributes and the template file have no effect.
///
/// # Safety
///
/// `path` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateFileW(
    path: *const u16,
    access: u32,
    _share_mode: u32,
    _security: *mut c_void,
    disposition: u32,
    flags: u32,
    _template: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; `create_file` requires no more.
    unsafe { create_file(path, access, disposition, flags) }
}

/// Like [`CreateFileW`], in UTF-8.
///
/// # Safety
///
/// As [`CreateFileW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateFileA(
    path: *const u8,
    access: u32,
    _share_mode: u32,
    _security: *mut c_void,
    disposition: u32,
    flags: u32,
    _template: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; `create_file` requires no more.
    unsafe { create_file(path, access, disposition, flags) }
}

/// Opens or creates a file, or sets the last error.
///
/// # Safety
///
/// As [`CreateFileW`].
unsafe fn create_file<U: TextUnit>(path: *const U, access: u32, disposition: u32, flags: u32) -> *mut c_void {
    let opened = boundary::catch_panic(Err(Status::ERROR_NOACCESS), || {
        // SAFETY: the caller fulfils the `# Safety` section; `read_path` requires no more.
        let path = unsafe { read_path(path) }?;
        open(path, access, disposition, flags)
    });
    opened.unwrap_or_else(|status| {
        last_error::set(status);
        INVALID_HANDLE
    })
}

/// Returns the position that an OVERLAPPED structure gives.
///
/// # Safety
///
/// `overlapped` is NULL or can be read.
unsafe fn read_position(overlapped: *const Overlapped) -> Option<u64> {
    // SAFETY: the caller passes NULL or a readable `overlapped`.
    let Overlapped { offset, offset_high, .. } = unsafe { ptr::read_value(overlapped) }?;
    Some(u64::from(offset_high) << 32 | u64::from(offset))
}

/// Reads bytes of a file from its position, or from the position in `overlapped`. At the end of the
/// file it succeeds with fewer bytes; with `overlapped`, a read of none fails with ERROR_HANDLE_EOF.
///
/// # Safety
///
/// `buffer` is NULL or has `size` bytes; `bytes_read` is NULL or can be written; `overlapped` is
/// NULL or can be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ReadFile(
    handle: *mut c_void,
    buffer: *mut u8,
    size: u32,
    bytes_read: *mut u32,
    overlapped: *mut Overlapped,
) -> i32 {
    to_bool(|| {
        // SAFETY: the caller passes NULL or a writable `bytes_read`.
        unsafe { ptr::store(bytes_read, 0) };
        let open_file = find_file(handle)?;
        if buffer.is_null() && size != 0 {
            return Err(Status::ERROR_NOACCESS);
        }
        // SAFETY: the caller passes NULL or a readable `overlapped`.
        let mut position = unsafe { read_position(overlapped) };
        let mut bytes = vec![0_u8; size as usize];
        let mut length = 0_usize;
        while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
            let result = match position {
                Some(offset) => open_file.file.read_at(rest, offset),
                None => (&open_file.file).read(rest),
            };
            match result {
                Ok(0) => break,
                Ok(count) => {
                    length = length.saturating_add(count);
                    position = position.map(|offset| offset.saturating_add(count as u64));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(to_win32_status(&error)),
            }
        }
        let count = u32::try_from(length).unwrap_or(u32::MAX);
        // SAFETY: the buffer has `size` bytes, which is at least `length`; the caller passes NULL
        // or a writable `bytes_read`.
        unsafe {
            ptr::write_bytes(buffer, bytes.get(..length).unwrap_or_default());
            ptr::store(bytes_read, count);
        }
        if position.is_some() && size != 0 && length == 0 {
            return Err(Status::ERROR_HANDLE_EOF);
        }
        Ok(())
    })
}

/// Writes all bytes to a file at its position, or at the position in `overlapped`.
///
/// # Safety
///
/// `buffer` is NULL or has `size` bytes; `bytes_written` is NULL or can be written; `overlapped` is
/// NULL or can be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn WriteFile(
    handle: *mut c_void,
    buffer: *const u8,
    size: u32,
    bytes_written: *mut u32,
    overlapped: *mut Overlapped,
) -> i32 {
    to_bool(|| {
        // SAFETY: the caller passes NULL or a writable `bytes_written`.
        unsafe { ptr::store(bytes_written, 0) };
        let open_file = find_file(handle)?;
        // SAFETY: the caller passes NULL or `size` bytes.
        let bytes = unsafe { ptr::read_array(buffer, size as usize) }.ok_or(Status::ERROR_NOACCESS)?;
        // SAFETY: the caller passes NULL or a readable `overlapped`.
        let result = match unsafe { read_position(overlapped) } {
            Some(offset) => open_file.file.write_all_at(bytes, offset),
            None => (&open_file.file).write_all(bytes),
        };
        result.map_err(|error| to_win32_status(&error))?;
        // SAFETY: the caller passes NULL or a writable `bytes_written`.
        unsafe { ptr::store(bytes_written, size) };
        Ok(())
    })
}

/// Writes what the system has buffered for a file to the disk.
#[unsafe(no_mangle)]
pub extern "C" fn FlushFileBuffers(handle: *mut c_void) -> i32 {
    to_bool(|| find_file(handle)?.file.sync_all().map_err(|error| to_win32_status(&error)))
}

/// Moves the position of a file, and stores the new one. Method 0 counts from the start, 1 from the
/// position, 2 from the end.
///
/// # Safety
///
/// `new_position` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SetFilePointerEx(
    handle: *mut c_void,
    distance: i64,
    new_position: *mut i64,
    method: u32,
) -> i32 {
    to_bool(|| {
        let open_file = find_file(handle)?;
        let target = match method {
            0 => SeekFrom::Start(u64::try_from(distance).map_err(|_| Status::ERROR_NEGATIVE_SEEK)?),
            1 => SeekFrom::Current(distance),
            2 => SeekFrom::End(distance),
            _ => return Err(Status::ERROR_INVALID_PARAMETER),
        };
        let moved = (&open_file.file).seek(target).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => Status::ERROR_NEGATIVE_SEEK,
            _ => to_win32_status(&error),
        })?;
        // SAFETY: the caller passes NULL or a writable `new_position`.
        unsafe { ptr::store(new_position, moved.cast_signed()) };
        Ok(())
    })
}

/// Stores the size of a file.
///
/// # Safety
///
/// `size` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GetFileSizeEx(handle: *mut c_void, size: *mut i64) -> i32 {
    to_bool(|| {
        if size.is_null() {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        let metadata = find_file(handle)?.file.metadata().map_err(|error| to_win32_status(&error))?;
        // SAFETY: the caller passes NULL or a writable `size`.
        unsafe { ptr::store(size, metadata.len().cast_signed()) };
        Ok(())
    })
}

/// Makes a file end at its position.
#[unsafe(no_mangle)]
pub extern "C" fn SetEndOfFile(handle: *mut c_void) -> i32 {
    to_bool(|| {
        let open_file = find_file(handle)?;
        let position = (&open_file.file).stream_position();
        position.and_then(|end| open_file.file.set_len(end)).map_err(|error| to_win32_status(&error))
    })
}

/// Sets properties of a file. The classes are FileDispositionInfo, which deletes the file when the
/// handle is closed and needs the right DELETE, and FileEndOfFileInfo. Others fail with
/// ERROR_INVALID_PARAMETER.
///
/// # Safety
///
/// `information` is NULL or has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SetFileInformationByHandle(
    handle: *mut c_void,
    class: u32,
    information: *const c_void,
    size: u32,
) -> i32 {
    to_bool(|| {
        let open_file = find_file(handle)?;
        let needed = match class {
            FILE_DISPOSITION_INFO => size_of::<u8>(),
            FILE_END_OF_FILE_INFO => size_of::<i64>(),
            _ => return Err(Status::ERROR_INVALID_PARAMETER),
        };
        if (size as usize) < needed {
            return Err(Status::ERROR_BAD_LENGTH);
        }
        if class == FILE_DISPOSITION_INFO {
            // SAFETY: the caller passes NULL or at least one byte.
            let delete =
                unsafe { ptr::read_value(information.cast::<u8>()) }.ok_or(Status::ERROR_NOACCESS)?;
            if !open_file.can_delete {
                return Err(Status::ERROR_ACCESS_DENIED);
            }
            let mut is_deleted = open_file.is_deleted_on_close.lock().unwrap_or_else(PoisonError::into_inner);
            *is_deleted = delete != 0;
            return Ok(());
        }
        // SAFETY: the caller passes NULL or at least eight bytes.
        let end = unsafe { ptr::read_value(information.cast::<i64>()) }.ok_or(Status::ERROR_NOACCESS)?;
        let end = u64::try_from(end).map_err(|_| Status::ERROR_INVALID_PARAMETER)?;
        open_file.file.set_len(end).map_err(|error| to_win32_status(&error))
    })
}

/// Deletes a file.
///
/// # Safety
///
/// `path` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn DeleteFileW(path: *const u16) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `delete_file` requires no more.
    to_bool(|| unsafe { delete_file(path) })
}

/// Like [`DeleteFileW`], in UTF-8.
///
/// # Safety
///
/// As [`DeleteFileW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn DeleteFileA(path: *const u8) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `delete_file` requires no more.
    to_bool(|| unsafe { delete_file(path) })
}

/// Deletes a file.
///
/// # Safety
///
/// As [`DeleteFileW`].
unsafe fn delete_file<U: TextUnit>(path: *const U) -> Result<(), Status> {
    // SAFETY: the caller fulfils the `# Safety` section; `read_path` requires no more.
    let path = unsafe { read_path(path) }?;
    std::fs::remove_file(&path).map_err(|error| to_path_status(&error, &path))
}

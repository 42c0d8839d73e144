//! Payloads of file events.
//!
//! ```text
//!   operation   [Offset] │ IrpPtr │ FileObject │ FileKey │ [ExtraInfo] │ TTID │ more   version 3
//!   name        FileObject │ FileName                                                 version 2
//! ```

use traceweir_format::kernel::hook;
use traceweir_format::wire::Put;

use super::open_files::{ClosedFile, OpenFiles};
use crate::groups::{Group, Groups};
use crate::out::Out;

pub(super) const NAME: u16 = hook::FILE_NAME;
pub(super) const NAME_CREATE: u16 = hook::FILE_NAME_CREATE;
pub(super) const NAME_DELETE: u16 = hook::FILE_NAME_DELETE;
pub(super) const NAME_RUNDOWN: u16 = hook::FILE_NAME_RUNDOWN;
pub(super) const CREATE: u16 = hook::FILE_CREATE;
pub(super) const CLEANUP: u16 = hook::FILE_CLEANUP;
pub(super) const CLOSE: u16 = hook::FILE_CLOSE;
pub(super) const READ: u16 = hook::FILE_READ;
pub(super) const WRITE: u16 = hook::FILE_WRITE;
pub(super) const SET_INFO: u16 = hook::FILE_SET_INFO;
pub(super) const DELETE: u16 = hook::FILE_DELETE;
pub(super) const RENAME: u16 = hook::FILE_RENAME;
pub(super) const DIRECTORY: u16 = hook::FILE_DIR_ENUM;
pub(super) const FLUSH: u16 = hook::FILE_FLUSH;
pub(super) const QUERY_INFO: u16 = hook::FILE_QUERY_INFO;
pub(super) const END: u16 = hook::FILE_OPERATION_END;

const NAME_VERSION: u8 = 2;
const VERSION: u8 = 3;
const END_VERSION: u8 = 2;

/// A file offset that is unknown.
pub(super) const UNKNOWN_OFFSET: u64 = u64::MAX;

/// The fields common to operations: their number, the open file (0 for a path) and the thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) irp: u64,
    pub(super) key: u64,
    pub(super) thread: u32,
}

impl Operation {
    fn put<'a>(&self, payload: &'a mut Vec<u8>) -> &'a mut Vec<u8> {
        payload.put_u64(self.irp).put_u64(self.key).put_u64(self.key)
    }
}

pub(super) fn write_name(hook: u16, key: u64, name: &str, out: &mut Out<'_>) {
    let mut payload = out.payload();
    payload.put_u64(key).put_wide_z(name);
    out.perfinfo(hook, NAME_VERSION, payload);
}

/// Writes the names that are confirmed now that all records before `time` have been handled.
pub(super) fn write_confirmed_names(files: &mut OpenFiles, time: u64, out: &mut Out<'_>) {
    while let Some((key, name)) = files.confirm_next_name(time) {
        write_name(NAME_CREATE, key, name, out);
    }
}

/// Writes that the name of a closed file is no longer valid.
pub(super) fn write_name_delete(closed: &ClosedFile, out: &mut Out<'_>) {
    if let Some(name) = &closed.name {
        write_name(NAME_DELETE, closed.key, name, out);
    }
}

/// Writes the start of an open call. `flags`: those of the call, or `None` if they are unknown.
pub(super) fn write_create(operation: Operation, flags: Option<u32>, path: &str, out: &mut Out<'_>) {
    /// Linux never keeps other processes from reading, writing or deleting.
    const SHARE_ALL: u32 = 7;
    let mut payload = out.payload();
    payload.put_u64(operation.irp).put_u64(operation.key).put_u32(operation.thread);
    payload.put_u32(flags.map_or(0, create_options)).put_u32(0).put_u32(SHARE_ALL).put_wide_z(path);
    out.perfinfo(CREATE, VERSION, payload);
}

/// Returns the create disposition in the upper 8 bits, and the options below.
#[allow(clippy::cast_sign_loss)] // Flags are bits.
fn create_options(flags: u32) -> u32 {
    const OPEN: u32 = 1;
    const MUST_CREATE: u32 = 2;
    const OPEN_OR_CREATE: u32 = 3;
    const OVERWRITE: u32 = 4;
    const OVERWRITE_OR_CREATE: u32 = 5;
    const OPTIONS: [(i32, u32); 5] = [
        (libc::O_TMPFILE, 0x1000),     // FILE_DELETE_ON_CLOSE
        (libc::O_DIRECTORY, 0x1),      // FILE_DIRECTORY_FILE
        (libc::O_DSYNC, 0x2),          // FILE_WRITE_THROUGH
        (libc::O_DIRECT, 0x8),         // FILE_NO_INTERMEDIATE_BUFFERING
        (libc::O_NOFOLLOW, 0x20_0000), // FILE_OPEN_REPARSE_POINT
    ];
    let has = |flag: i32| flags & flag as u32 == flag as u32;
    let is_temporary = has(libc::O_TMPFILE);
    let disposition = match (has(libc::O_CREAT), has(libc::O_EXCL), has(libc::O_TRUNC)) {
        _ if is_temporary => MUST_CREATE,
        (true, true, _) => MUST_CREATE,
        (true, false, true) => OVERWRITE_OR_CREATE,
        (true, false, false) => OPEN_OR_CREATE,
        (false, _, true) => OVERWRITE,
        (false, _, false) => OPEN,
    };
    // `O_TMPFILE` includes `O_DIRECTORY`.
    let is_set = |flag: i32| has(flag) && !(is_temporary && flag == libc::O_DIRECTORY);
    let options = OPTIONS.iter().filter(|(flag, _)| is_set(*flag)).fold(0, |sum, (_, option)| sum | option);
    disposition << 24 | options
}

pub(super) fn write_transfer(hook: u16, operation: Operation, offset: u64, size: u32, out: &mut Out<'_>) {
    let mut payload = out.payload();
    payload.put_u64(offset);
    operation.put(&mut payload).put_u32(operation.thread).put_u32(size).put_u32(0);
    out.perfinfo(hook, VERSION, payload);
}

/// Writes the start of a cleanup, close or flush.
pub(super) fn write_simple(hook: u16, operation: Operation, out: &mut Out<'_>) {
    let mut payload = out.payload();
    operation.put(&mut payload).put_u32(operation.thread);
    out.perfinfo(hook, VERSION, payload);
}

/// Writes the start of both operations that close a file.
pub(super) fn write_close(groups: Groups, irps: &[u64; 2], key: u64, thread: u32, out: &mut Out<'_>) {
    if groups.has(Group::FILE_IO_INIT) {
        for (hook, irp) in [CLEANUP, CLOSE].into_iter().zip(irps) {
            write_simple(hook, Operation { irp: *irp, key, thread }, out);
        }
    }
}

/// Writes the start of a set, query, delete or rename.
pub(super) fn write_info(hook: u16, operation: Operation, extra: u64, class: u32, out: &mut Out<'_>) {
    let mut payload = out.payload();
    operation.put(&mut payload).put_u64(extra).put_u32(operation.thread).put_u32(class);
    out.perfinfo(hook, VERSION, payload);
}

/// Writes the start of a directory listing into a buffer of `length` bytes.
pub(super) fn write_directory(operation: Operation, length: u32, out: &mut Out<'_>) {
    /// The information class `FileDirectoryInformation`.
    const CLASS: u32 = 1;
    let mut payload = out.payload();
    operation.put(&mut payload).put_u32(operation.thread).put_u32(length).put_u32(CLASS);
    payload.put_u32(0).put_wide_z("");
    out.perfinfo(DIRECTORY, VERSION, payload);
}

/// Writes the end of an operation, with the number of bytes and the NTSTATUS.
pub(super) fn write_end(groups: Groups, irp: u64, bytes: u64, status: u32, out: &mut Out<'_>) {
    if groups.has(Group::FILE_IO) {
        let mut payload = out.payload();
        payload.put_u64(irp).put_u64(bytes).put_u32(status);
        out.perfinfo(END, END_VERSION, payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::testing::assert_written;

    #[test]
    fn payloads_have_the_documented_layout() {
        let operation = Operation { irp: 0x0111, key: 0x0222, thread: 0x0A11 };
        let groups = Groups::new(&[Group::FILE_IO, Group::FILE_IO_INIT]);
        let write = |out: &mut Out<'_>| {
            write_name(NAME_CREATE, 0x0222, "/ä", out);
            write_create(operation, Some(0), "/a", out);
            write_transfer(READ, operation, 0x0333, 0x0444, out);
            write_simple(FLUSH, operation, out);
            write_info(SET_INFO, operation, 0x0555, 20, out);
            write_directory(operation, 0x0666, out);
            write_end(groups, 0x0111, 0x0444, 0xC000_0022, out);
        };
        assert_written(
            write,
            &[
                "0420 02 2202000000000000 2f00e4000000",
                "0440 03 1101000000000000 2202000000000000 110a0000 00000001 00000000 07000000 \
                 2f0061000000",
                "0443 03 3303000000000000 1101000000000000 2202000000000000 2202000000000000 110a0000 \
                 44040000 00000000",
                "0449 03 1101000000000000 2202000000000000 2202000000000000 110a0000",
                "0445 03 1101000000000000 2202000000000000 2202000000000000 5505000000000000 110a0000 \
                 14000000",
                "0448 03 1101000000000000 2202000000000000 2202000000000000 110a0000 66060000 \
                 01000000 00000000 0000",
                "044c 02 1101000000000000 4404000000000000 220000c0",
            ],
        );
    }

    #[test]
    fn flags_become_disposition_and_options() {
        let options = |flags: i32| create_options(flags as u32);
        assert_eq!(options(libc::O_RDONLY | libc::O_CLOEXEC), 1 << 24);
        assert_eq!(options(libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY), 2 << 24);
        assert_eq!(options(libc::O_CREAT | libc::O_RDWR), 3 << 24);
        assert_eq!(options(libc::O_WRONLY | libc::O_TRUNC), 4 << 24);
        assert_eq!(options(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC), 5 << 24);
        assert_eq!(options(libc::O_DIRECTORY), 1 << 24 | 1);
        assert_eq!(options(libc::O_SYNC | libc::O_DIRECT), 1 << 24 | 0xA);
        assert_eq!(options(libc::O_TMPFILE | libc::O_RDWR), 2 << 24 | 0x1000);
    }
}

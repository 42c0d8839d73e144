//! Payloads of file events. Names and ends of operations have version 2, starts of operations
//! version 3.

use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;

use super::open_files::{ClosedFile, OpenFiles};
use crate::groups::{Group, Groups};
use crate::out::Out;

const NAME_LAYOUT: PayloadLayout = PayloadLayout::shared(
    &[hook::FILE_NAME, hook::FILE_NAME_CREATE, hook::FILE_NAME_DELETE, hook::FILE_NAME_RUNDOWN],
    2,
);
const CREATE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::FILE_CREATE, 3);
const TRANSFER_LAYOUT: PayloadLayout =
    PayloadLayout::shared(&[hook::FILE_READ, hook::FILE_WRITE], 3).truncate_before("ExtraFlags");
const SIMPLE_LAYOUT: PayloadLayout =
    PayloadLayout::shared(&[hook::FILE_CLEANUP, hook::FILE_CLOSE, hook::FILE_FLUSH], 3);
const INFO_LAYOUT: PayloadLayout = PayloadLayout::shared(
    &[hook::FILE_SET_INFO, hook::FILE_DELETE, hook::FILE_RENAME, hook::FILE_QUERY_INFO],
    3,
);
const DIRECTORY_LAYOUT: PayloadLayout = PayloadLayout::new(hook::FILE_DIR_ENUM, 3);
const END_LAYOUT: PayloadLayout = PayloadLayout::new(hook::FILE_OPERATION_END, 2);

/// A file offset that is unknown.
pub(super) const UNKNOWN_OFFSET: u64 = u64::MAX;

/// The fields common to operations: their number, the open file (0 for a path) and the thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) irp: u64,
    pub(super) key: u64,
    pub(super) thread: u32,
}

pub(super) fn write_name(hook: u16, key: u64, name: &str, out: &mut Out<'_>) {
    let mut payload = out.new_payload();
    put_kernel_event!(&mut payload, NAME_LAYOUT, { FileObject: key }, { FileName: name });
    out.write_perfinfo(hook, NAME_LAYOUT.version(), payload);
}

/// Writes the names that are confirmed now that all records before `time` have been handled.
pub(super) fn write_confirmed_names(files: &mut OpenFiles, time: u64, out: &mut Out<'_>) {
    while let Some((key, name)) = files.confirm_next_name(time) {
        write_name(hook::FILE_NAME_CREATE, key, name, out);
    }
}

/// Writes that the name of a closed file is no longer valid.
pub(super) fn write_name_delete(closed: &ClosedFile, out: &mut Out<'_>) {
    if let Some(name) = &closed.name {
        write_name(hook::FILE_NAME_DELETE, closed.key, name, out);
    }
}

/// Writes the start of an open call. `flags`: those of the call, or `None` if they are unknown.
pub(super) fn write_create(operation: Operation, flags: Option<u32>, path: &str, out: &mut Out<'_>) {
    /// Linux never keeps other processes from reading, writing or deleting.
    const SHARE_ALL: u32 = 7;
    let mut payload = out.new_payload();
    put_kernel_event!(
        &mut payload,
        CREATE_LAYOUT,
        {
            IrpPtr: operation.irp,
            FileObject: operation.key,
            TTID: operation.thread,
            CreateOptions: flags.map_or(0, create_options),
            ShareAccess: SHARE_ALL,
        },
        { OpenPath: path }
    );
    out.write_perfinfo(hook::FILE_CREATE, CREATE_LAYOUT.version(), payload);
}

/// Returns the create disposition in the upper 8 bits, and the options below.
#[allow(clippy::cast_sign_loss)] // Flags are bits.
fn create_options(flags: u32) -> u32 {
    const FILE_OPEN: u32 = 1;
    const FILE_CREATE: u32 = 2;
    const FILE_OPEN_IF: u32 = 3;
    const FILE_OVERWRITE: u32 = 4;
    const FILE_OVERWRITE_IF: u32 = 5;
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
        _ if is_temporary => FILE_CREATE,
        (true, true, _) => FILE_CREATE,
        (true, false, true) => FILE_OVERWRITE_IF,
        (true, false, false) => FILE_OPEN_IF,
        (false, _, true) => FILE_OVERWRITE,
        (false, _, false) => FILE_OPEN,
    };
    // `O_TMPFILE` includes `O_DIRECTORY`.
    let is_set = |flag: i32| has(flag) && !(is_temporary && flag == libc::O_DIRECTORY);
    let options = OPTIONS.iter().filter(|(flag, _)| is_set(*flag)).fold(0, |sum, (_, option)| sum | option);
    disposition << 24 | options
}

pub(super) fn write_transfer(hook: u16, operation: Operation, offset: u64, size: u32, out: &mut Out<'_>) {
    let mut payload = out.new_payload();
    put_kernel_event!(&mut payload, TRANSFER_LAYOUT, {
        Offset: offset,
        IrpPtr: operation.irp,
        FileObject: operation.key,
        FileKey: operation.key,
        TTID: operation.thread,
        IoSize: size,
    });
    out.write_perfinfo(hook, TRANSFER_LAYOUT.version(), payload);
}

/// Writes the start of a cleanup, close or flush.
pub(super) fn write_simple(hook: u16, operation: Operation, out: &mut Out<'_>) {
    let mut payload = out.new_payload();
    put_kernel_event!(&mut payload, SIMPLE_LAYOUT, {
        IrpPtr: operation.irp,
        FileObject: operation.key,
        FileKey: operation.key,
        TTID: operation.thread,
    });
    out.write_perfinfo(hook, SIMPLE_LAYOUT.version(), payload);
}

/// Writes the start of both operations that close a file.
pub(super) fn write_close(groups: Groups, irps: &[u64; 2], key: u64, thread: u32, out: &mut Out<'_>) {
    if groups.has(Group::FILE_IO_INIT) {
        for (hook, irp) in [hook::FILE_CLEANUP, hook::FILE_CLOSE].into_iter().zip(irps) {
            write_simple(hook, Operation { irp: *irp, key, thread }, out);
        }
    }
}

/// Writes the start of a set, query, delete or rename.
pub(super) fn write_info(hook: u16, operation: Operation, extra: u64, class: u32, out: &mut Out<'_>) {
    let mut payload = out.new_payload();
    put_kernel_event!(&mut payload, INFO_LAYOUT, {
        IrpPtr: operation.irp,
        FileObject: operation.key,
        FileKey: operation.key,
        ExtraInfo: extra,
        TTID: operation.thread,
        InfoClass: class,
    });
    out.write_perfinfo(hook, INFO_LAYOUT.version(), payload);
}

/// Writes the start of a directory listing into a buffer of `length` bytes.
pub(super) fn write_directory(operation: Operation, length: u32, out: &mut Out<'_>) {
    const FILE_DIRECTORY_INFORMATION: u32 = 1;
    let mut payload = out.new_payload();
    put_kernel_event!(
        &mut payload,
        DIRECTORY_LAYOUT,
        {
            IrpPtr: operation.irp,
            FileObject: operation.key,
            FileKey: operation.key,
            TTID: operation.thread,
            Length: length,
            InfoClass: FILE_DIRECTORY_INFORMATION,
        },
        { FileName: "" }
    );
    out.write_perfinfo(hook::FILE_DIR_ENUM, DIRECTORY_LAYOUT.version(), payload);
}

/// Writes the end of an operation, with the number of bytes and the NTSTATUS.
pub(super) fn write_end(groups: Groups, irp: u64, bytes: u64, status: u32, out: &mut Out<'_>) {
    if groups.has(Group::FILE_IO) {
        let mut payload = out.new_payload();
        put_kernel_event!(&mut payload, END_LAYOUT, { IrpPtr: irp, ExtraInfo: bytes, NtStatus: status });
        out.write_perfinfo(hook::FILE_OPERATION_END, END_LAYOUT.version(), payload);
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
            write_name(hook::FILE_NAME_CREATE, 0x0222, "/ä", out);
            write_create(operation, Some(0), "/a", out);
            write_transfer(hook::FILE_READ, operation, 0x0333, 0x0444, out);
            write_simple(hook::FILE_FLUSH, operation, out);
            write_info(hook::FILE_SET_INFO, operation, 0x0555, 20, out);
            write_directory(operation, 0x0666, out);
            write_end(groups, 0x0111, 0x0444, 0xC000_0022, out);
        };
        // Hook id, version, payload.
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

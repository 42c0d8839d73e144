//! Payloads of file events.
//!
//! ```text
//!   operation   [Offset] │ IrpPtr │ FileObject │ FileKey │ [ExtraInfo] │ TTID │ what the operation adds      version 3
//!   name        FileObject │ FileName                                                                        version 2
//! ```

use traceweir_format::wire::Put;

use super::openings::{Ended, Openings};
use crate::groups::{Group, Groups};
use crate::out::Out;

pub(super) const NAME: u16 = 0x0400;
pub(super) const NAME_CREATE: u16 = 0x0420;
pub(super) const NAME_DELETE: u16 = 0x0423;
pub(super) const NAME_RUNDOWN: u16 = 0x0424;
pub(super) const CREATE: u16 = 0x0440;
pub(super) const CLEANUP: u16 = 0x0441;
pub(super) const CLOSE: u16 = 0x0442;
pub(super) const READ: u16 = 0x0443;
pub(super) const WRITE: u16 = 0x0444;
pub(super) const SET_INFO: u16 = 0x0445;
pub(super) const DELETE: u16 = 0x0446;
pub(super) const RENAME: u16 = 0x0447;
pub(super) const DIRECTORY: u16 = 0x0448;
pub(super) const FLUSH: u16 = 0x0449;
pub(super) const QUERY_INFO: u16 = 0x044A;
pub(super) const END: u16 = 0x044C;

const NAME_VERSION: u8 = 2;
const VERSION: u8 = 3;
const END_VERSION: u8 = 2;

/// A place in a file that is not known.
pub(super) const NOWHERE: u64 = u64::MAX;

/// What an operation is about: its number, the opening (0: none, a path) and the thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) irp: u64,
    pub(super) key: u64,
    pub(super) thread: u32,
}

impl About {
    fn put<'a>(&self, payload: &'a mut Vec<u8>) -> &'a mut Vec<u8> {
        payload.put_u64(self.irp).put_u64(self.key).put_u64(self.key)
    }
}

pub(super) fn name(hook: u16, key: u64, name: &str, out: &mut Out<'_>) {
    let mut payload = out.payload();
    payload.put_u64(key).put_wide_z(name);
    out.perfinfo(hook, NAME_VERSION, payload);
}

/// Tells names that are sure now that everything before a moment has been handled.
pub(super) fn names(openings: &mut Openings, time: u64, out: &mut Out<'_>) {
    while let Some((key, text)) = openings.next_sure(time) {
        name(NAME_CREATE, key, text, out);
    }
}

/// An opening has ended: its name goes with it.
pub(super) fn name_deleted(ended: &Ended, out: &mut Out<'_>) {
    if let Some(text) = &ended.name {
        name(NAME_DELETE, ended.key, text, out);
    }
}

/// A file is to be opened with the flags of the call; `None`: they are not told.
pub(super) fn create(about: About, flags: Option<u32>, path: &str, out: &mut Out<'_>) {
    /// Linux never keeps others from reading, writing or deleting.
    const SHARE_ALL: u32 = 7;
    let mut payload = out.payload();
    payload.put_u64(about.irp).put_u64(about.key).put_u32(about.thread);
    payload.put_u32(flags.map_or(0, create_options)).put_u32(0).put_u32(SHARE_ALL).put_wide_z(path);
    out.perfinfo(CREATE, VERSION, payload);
}

/// What becomes of an existing file in the upper 8 bits, options below.
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
    // The flag of a temporary file has that of a folder in it.
    let is_meant = |flag: i32| has(flag) && !(is_temporary && flag == libc::O_DIRECTORY);
    let options = OPTIONS.iter().filter(|(flag, _)| is_meant(*flag)).fold(0, |sum, (_, it)| sum | it);
    disposition << 24 | options
}

pub(super) fn transfer(hook: u16, about: About, offset: u64, size: u32, out: &mut Out<'_>) {
    let mut payload = out.payload();
    payload.put_u64(offset);
    about.put(&mut payload).put_u32(about.thread).put_u32(size).put_u32(0);
    out.perfinfo(hook, VERSION, payload);
}

/// Cleanup, close and flush.
pub(super) fn simple(hook: u16, about: About, out: &mut Out<'_>) {
    let mut payload = out.payload();
    about.put(&mut payload).put_u32(about.thread);
    out.perfinfo(hook, VERSION, payload);
}

/// Both operations that end an opening.
pub(super) fn closing(groups: Groups, irps: &[u64; 2], key: u64, thread: u32, out: &mut Out<'_>) {
    if groups.has(Group::FILE_IO_INIT) {
        for (hook, irp) in [CLEANUP, CLOSE].into_iter().zip(irps) {
            simple(hook, About { irp: *irp, key, thread }, out);
        }
    }
}

/// Set, query, delete and rename.
pub(super) fn info(hook: u16, about: About, extra: u64, class: u32, out: &mut Out<'_>) {
    let mut payload = out.payload();
    about.put(&mut payload).put_u64(extra).put_u32(about.thread).put_u32(class);
    out.perfinfo(hook, VERSION, payload);
}

/// A folder is listed, into so many bytes.
pub(super) fn directory(about: About, length: u32, out: &mut Out<'_>) {
    /// FileDirectoryInformation.
    const CLASS: u32 = 1;
    let mut payload = out.payload();
    about.put(&mut payload).put_u32(about.thread).put_u32(length).put_u32(CLASS).put_u32(0).put_wide_z("");
    out.perfinfo(DIRECTORY, VERSION, payload);
}

/// An operation has ended, with so many bytes and a status.
pub(super) fn end(groups: Groups, irp: u64, bytes: u64, status: u32, out: &mut Out<'_>) {
    if groups.has(Group::FILE_IO) {
        let mut payload = out.payload();
        payload.put_u64(irp).put_u64(bytes).put_u32(status);
        out.perfinfo(END, END_VERSION, payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_disposition_and_options() {
        let of = |flags: i32| create_options(flags as u32);
        assert_eq!(of(libc::O_RDONLY | libc::O_CLOEXEC), 1 << 24);
        assert_eq!(of(libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY), 2 << 24);
        assert_eq!(of(libc::O_CREAT | libc::O_RDWR), 3 << 24);
        assert_eq!(of(libc::O_WRONLY | libc::O_TRUNC), 4 << 24);
        assert_eq!(of(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC), 5 << 24);
        assert_eq!(of(libc::O_DIRECTORY), 1 << 24 | 1);
        assert_eq!(of(libc::O_SYNC | libc::O_DIRECT), 1 << 24 | 0xA);
        assert_eq!(of(libc::O_TMPFILE | libc::O_RDWR), 2 << 24 | 0x1000);
    }
}

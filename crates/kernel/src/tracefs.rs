//! Tracepoint descriptions from tracefs: the id of a tracepoint and the offsets of its fields.
//!
//! ```text
//!   events/sched/sched_switch/format    ID: 314
//!                                       field:pid_t prev_pid;   offset:24;   size:4;   signed:1;
//! ```
//!
//! 1. Field offsets differ between kernels, so they are read from the running kernel, never
//!    assumed.
//! 2. A field `__data_loc T name` points to its data: offset in the low half, length in the high
//!    half of 32 bits.
//! 3. If tracefs is not mounted, a process with the right to mount creates a detached mount. It is
//!    attached to no directory, so no other process sees it, and it ends with its file descriptor.
//!    If that fails, the tracefs below debugfs is opened.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::error::{Error, Result};

/// The usual mount point of tracefs.
const MOUNT_POINT: &str = "/sys/kernel/tracing";
/// The mount point below debugfs. The first access makes the kernel mount tracefs there, for all
/// processes, so this path is tried last.
const DEBUGFS_MOUNT_POINT: &str = "/sys/kernel/debug/tracing";
/// Read limit for format files, which have a page or two.
const MAX_FORMAT_BYTES: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TracepointField {
    /// Offset in the raw data, in bytes.
    pub(crate) offset: u16,
    /// Size in bytes.
    pub(crate) size: u16,
    pub(crate) is_signed: bool,
    /// Whether the field contains the offset and length of its data.
    pub(crate) is_data_loc: bool,
}

/// The format description of a tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TracepointFormat {
    /// The id of the tracepoint for perf events.
    pub(crate) id: u64,
    fields: Vec<(String, TracepointField)>,
}

impl TracepointFormat {
    pub(crate) fn find_field(&self, name: &str) -> Option<TracepointField> {
        self.fields.iter().find(|(field_name, _)| field_name == name).map(|(_, field)| *field)
    }

    /// Parses the text of a `format` file.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut id = None;
        let mut fields = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if let Some(field) = line.strip_prefix("field:").and_then(parse_field) {
                fields.push(field);
            }
        }
        Some(Self { id: id?, fields })
    }
}

/// Parses a line such as `pid_t prev_pid;  offset:24;  size:4;  signed:1;`.
fn parse_field(line: &str) -> Option<(String, TracepointField)> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?;
    let mut field =
        TracepointField { is_data_loc: declaration.starts_with("__data_loc"), ..TracepointField::default() };
    for part in parts {
        match part.split_once(':') {
            Some(("offset", number)) => field.offset = number.trim().parse().ok()?,
            Some(("size", number)) => field.size = number.trim().parse().ok()?,
            Some(("signed", number)) => field.is_signed = number.trim() == "1",
            _ => {}
        }
    }
    // The name ends the declaration: `char comm[16]`, `__data_loc char[] filename`.
    let name = declaration.rsplit([' ', '*']).next()?;
    let name = name.split('[').next()?;
    (!name.is_empty()).then(|| (name.to_owned(), field))
}

/// An open tracefs. All files are opened relative to its root directory.
#[derive(Debug)]
pub(crate) struct Tracefs {
    root: OwnedFd,
}

impl Tracefs {
    /// Opens the mounted tracefs, else a detached mount of this process, else the tracefs below
    /// debugfs.
    pub(crate) fn open() -> Result<Self> {
        Self::open_mounted_or_detached(Path::new(MOUNT_POINT), Path::new(DEBUGFS_MOUNT_POINT))
    }

    fn open_mounted_or_detached(mount_point: &Path, debugfs_mount_point: &Path) -> Result<Self> {
        match Self::open_at(mount_point) {
            Ok(tracefs) => return Ok(tracefs),
            // tracefs is mounted. A mount of our own would have the same owner and mode.
            Err(error @ (Errno::ACCESS | Errno::PERM)) => {
                let what = format!("reading tracefs at {}", mount_point.display());
                return Err(Error::system(what, error.into()));
            }
            Err(_) => {}
        }
        let mount_error = match mount_detached() {
            Ok(root) => return Ok(Self { root }),
            Err(error) => error,
        };
        Self::open_at(debugfs_mount_point).map_err(|_| match mount_error {
            Errno::NODEV => Error::NotSupported { what: "tracefs".to_owned() },
            error => Error::NotMounted { source: error.into() },
        })
    }

    /// Opens the tracefs that is mounted at a directory.
    pub(crate) fn open_at(mount_point: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, mount_point, flags, Mode::empty())?;
        statat(&root, "events", AtFlags::empty())?;
        Ok(Self { root })
    }

    pub(crate) fn read_format(&self, system: &str, name: &str) -> Result<TracepointFormat> {
        let text = self.read_text(&format!("events/{system}/{name}/format"));
        let text = text.map_err(|error| Error::system(format!("tracepoint {system}:{name}"), error))?;
        TracepointFormat::parse(&text)
            .ok_or_else(|| Error::Format { name: format!("{system}:{name}"), field: "ID".into() })
    }

    fn read_text(&self, path: &str) -> io::Result<String> {
        let file = openat(&self.root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = String::new();
        File::from(file).take(MAX_FORMAT_BYTES).read_to_string(&mut text)?;
        Ok(text)
    }

    pub(crate) fn has_path(&self, path: &str) -> bool {
        statat(&self.root, path, AtFlags::empty()).is_ok()
    }

    /// Appends to an existing file.
    pub(crate) fn append(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        File::from(openat(&self.root, path, flags, Mode::empty())?).write_all(bytes)
    }
}

/// Mounts tracefs without attaching it to a directory.
fn mount_detached() -> Result<OwnedFd, Errno> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT_TEXT: &str = "name: sched_switch\nID: 314\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\tfield:__data_loc char[] filename;\toffset:28;\tsize:4;\tsigned:0;\n\tfield:const char * name;\toffset:32;\tsize:8;\tsigned:0;\n\nprint fmt: \"field:x y; offset:1;\"\n";

    #[test]
    fn fields_are_found_by_name() {
        let format = TracepointFormat::parse(FORMAT_TEXT).expect("invalid format");
        assert_eq!(format.id, 314);
        let field = |name| format.find_field(name).expect(name);
        assert_eq!(
            field("prev_pid"),
            TracepointField { offset: 24, size: 4, is_signed: true, is_data_loc: false }
        );
        assert_eq!((field("prev_comm").offset, field("prev_comm").size), (8, 16));
        assert!(field("filename").is_data_loc);
        assert_eq!(field("name").offset, 32);
        assert_eq!(format.find_field("nothing"), None);
    }

    #[test]
    fn format_without_an_id_is_rejected() {
        assert_eq!(TracepointFormat::parse("name: x\n"), None);
        assert_eq!(TracepointFormat::parse("ID: many\n"), None);
    }

    /// Runs a function on a thread without the capability to mount.
    fn run_without_mount_capability<T: Send>(run: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut sets = rustix::thread::capabilities(None).expect("cannot read the capabilities");
                sets.effective.remove(rustix::thread::CapabilitySet::SYS_ADMIN);
                rustix::thread::set_capabilities(None, sets).expect("cannot drop a capability");
                run()
            });
            thread.join().expect("the thread panicked")
        })
    }

    #[test]
    fn error_without_the_right_to_mount_names_the_mount_command() {
        let folder = tempfile::tempdir().expect("cannot create a folder");
        let empty = folder.path();
        let error = run_without_mount_capability(|| Tracefs::open_mounted_or_detached(empty, empty))
            .expect_err("tracefs was opened");
        assert_eq!(error.status(), traceweir_format::spec::status::Status::ERROR_PRIVILEGE_NOT_HELD);
        let text = error.to_string();
        assert!(text.contains("`mount -t tracefs tracefs /sys/kernel/tracing`"), "{text}");
        assert!(text.contains("as root"), "{text}");
    }

    #[test]
    fn mounted_tracefs_is_preferred_over_a_detached_mount() {
        let folder = tempfile::tempdir().expect("cannot create a folder");
        let tracepoint = folder.path().join("events/sched/sched_switch");
        std::fs::create_dir_all(&tracepoint).expect("cannot create a folder");
        std::fs::write(tracepoint.join("format"), FORMAT_TEXT).expect("cannot write the file");
        let tracefs = Tracefs::open_mounted_or_detached(folder.path(), folder.path())
            .expect("the mounted tracefs does not open");
        assert_eq!(tracefs.read_format("sched", "sched_switch").expect("invalid format").id, 314);
        let missing = tracefs.read_format("sched", "none").expect_err("the tracepoint exists");
        assert!(matches!(missing, Error::NotSupported { .. }), "{missing}");
        let debugfs =
            run_without_mount_capability(|| Tracefs::open_mounted_or_detached(&tracepoint, folder.path()));
        assert!(debugfs.expect("the tracefs below debugfs does not open").has_path("events/sched"));
    }
}

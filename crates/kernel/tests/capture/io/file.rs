//! Operations on files with known names and sizes.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use traceweir_format::kernel::hook::{
    FILE_CLEANUP, FILE_CLOSE, FILE_CREATE, FILE_DELETE, FILE_DIR_ENUM, FILE_FLUSH, FILE_NAME,
    FILE_NAME_CREATE, FILE_NAME_DELETE, FILE_NAME_RUNDOWN, FILE_OPERATION_END, FILE_READ, FILE_RENAME,
    FILE_SET_INFO, FILE_WRITE,
};
use traceweir_kernel::Group;

use super::support::{CapturedEvent, RunningCapture, this_thread_id};
use crate::retry::retry_alternately_with_busy_processors;

const FILE_GROUPS: [Group; 3] = [Group::DISK_FILE_IO, Group::FILE_IO, Group::FILE_IO_INIT];
const STATUS_OBJECT_NAME_NOT_FOUND: u64 = 0xC000_0034;
const UNKNOWN_OFFSET: u64 = u64::MAX;
// Documented values of `InfoClass` and `CreateOptions`.
const RENAME_INFO: u64 = 10;
const END_OF_FILE_INFO: u64 = 20;
const OVERWRITE_IF: u64 = 5 << 24;

/// The captured file events, with queries by hook, file object and name.
struct FileTrace(Vec<CapturedEvent>);

impl FileTrace {
    /// Returns the events of this thread with this hook.
    fn own_events(&self, hook: u16) -> Vec<&CapturedEvent> {
        self.0.iter().filter(|event| event.hook == hook && event.number("TTID") == this_thread_id()).collect()
    }

    /// Returns the events of an open file with this hook.
    fn events_of_file(&self, hook: u16, key: u64) -> Vec<&CapturedEvent> {
        self.0.iter().filter(|event| event.hook == hook && event.number("FileObject") == key).collect()
    }

    /// Returns the keys of the open files that events with this hook give this name.
    fn find_file_keys(&self, hook: u16, name: &Path) -> Vec<u64> {
        let name = name.to_str().expect("the text is not UTF-8");
        let has_name = |event: &&CapturedEvent| event.hook == hook && event.text("FileName") == name;
        self.0.iter().filter(has_name).map(|event| event.number("FileObject")).collect()
    }

    /// Returns the key of the open file that was given this name; there must be exactly one.
    fn find_only_file_key(&self, name: &Path) -> u64 {
        let keys = self.find_file_keys(FILE_NAME_CREATE, name);
        assert_eq!(keys.len(), 1, "{}", name.display());
        keys[0]
    }

    /// Returns bytes and status of an operation, which must have ended once.
    fn find_end(&self, start: &CapturedEvent) -> (u64, u64) {
        let irp = start.number("IrpPtr");
        let ends: Vec<&CapturedEvent> = self
            .0
            .iter()
            .filter(|event| event.hook == FILE_OPERATION_END && event.number("IrpPtr") == irp)
            .collect();
        assert_eq!(ends.len(), 1, "{start:?}");
        assert!(ends[0].stamp >= start.stamp);
        (ends[0].number("ExtraInfo"), ends[0].number("NtStatus"))
    }

    /// Returns offset, requested size and transferred bytes of each read or write of an open file.
    fn list_transfers(&self, hook: u16, key: u64) -> Vec<(u64, u64, u64)> {
        let transfer = |event: &&CapturedEvent| {
            let (bytes, status) = self.find_end(event);
            assert_eq!((status, event.number("FileKey")), (0, key));
            (event.number("Offset"), event.number("IoSize"), bytes)
        };
        self.events_of_file(hook, key).iter().map(transfer).collect()
    }
}

#[test]
fn file_writes_and_reads_are_recorded_with_names_offsets_and_sizes() {
    retry_alternately_with_busy_processors(5, || {
        const FILES: usize = 3;
        let folder = tempfile::tempdir().expect("no folder is created");
        let name = |nth: usize| folder.path().join(format!("file {nth} ä"));
        let Some(mut running) = RunningCapture::start(&FILE_GROUPS, &[FILE_WRITE]) else { return };
        for nth in 0..FILES {
            let mut file = File::create(name(nth)).expect("the file operation fails");
            running.poll();
            for size in [100, 4096, 1] {
                file.write_all(&vec![1; size]).expect("the write fails");
            }
            file.write_all_at(&[2; 50], 8192).expect("the write fails");
            file.sync_all().expect("the flush fails");
            file.set_len(4197).expect("the length is not set");
        }
        let trace = {
            let mut file = File::open(name(0)).expect("the file operation fails");
            running.poll();
            let mut buffer = [0; 3000];
            for _ in 0..3 {
                let _ = file.read(&mut buffer).expect("the read fails");
            }
            file.seek(SeekFrom::Start(7)).expect("the seek fails");
            file.read_exact(&mut buffer[..10]).expect("the read fails");
            drop(file);
            running.poll();
            FileTrace(running.end())
        };
        for nth in 0..FILES {
            let keys = trace.find_file_keys(FILE_NAME_CREATE, &name(nth));
            assert_eq!(keys.len(), if nth == 0 { 2 } else { 1 });
            let key = keys[0];
            let written = [(0, 100, 100), (100, 4096, 4096), (4196, 1, 1), (8192, 50, 50)];
            assert_eq!(trace.list_transfers(FILE_WRITE, key), written);
            let created = trace.events_of_file(FILE_CREATE, key);
            assert_eq!(created.len(), 1);
            // Share access 7: others may read, write and delete.
            assert_eq!(
                (created[0].number("CreateOptions"), created[0].number("ShareAccess")),
                (OVERWRITE_IF, 7)
            );
            let set = trace.events_of_file(FILE_SET_INFO, key);
            assert_eq!((set[0].number("InfoClass"), set[0].number("ExtraInfo")), (END_OF_FILE_INFO, 4197));
            for (hook, count) in [(FILE_FLUSH, 1), (FILE_CLEANUP, 1), (FILE_CLOSE, 1), (FILE_SET_INFO, 1)] {
                let events = trace.events_of_file(hook, key);
                assert_eq!(events.len(), count, "{hook:04x}");
                assert!(events.iter().all(|event| trace.find_end(event).1 == 0));
            }
            assert_eq!(
                trace.find_file_keys(FILE_NAME_DELETE, &name(nth)),
                keys,
                "a name was not deleted with its open file"
            );
        }
        let read_key = trace.find_file_keys(FILE_NAME_CREATE, &name(0))[1];
        let expected = [(0, 3000, 3000), (3000, 3000, 1197), (4197, 3000, 0), (7, 10, 10)];
        assert_eq!(trace.list_transfers(FILE_READ, read_key), expected);
        assert!(trace.0.iter().any(|event| event.is_stack), "no write has a stack");
    });
}

#[test]
fn rename_delete_list_and_failed_open_are_recorded() {
    retry_alternately_with_busy_processors(5, || {
        let folder = tempfile::tempdir().expect("no folder is created");
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, [1; 1000]).expect("the file operation fails");
        let Some(mut running) = RunningCapture::start(&FILE_GROUPS, &[]) else { return };
        fs::rename(&old, &new).expect("the file is not renamed");
        // Unusual flags distinguish this open from those of other missing files.
        let flags = libc::O_NOFOLLOW | libc::O_SYNC;
        OpenOptions::new().read(true).custom_flags(flags).open(&old).expect_err("the file exists");
        let mut entries = fs::read_dir(folder.path()).expect("the folder is not readable");
        running.poll();
        assert_eq!(entries.by_ref().count(), 1);
        drop(entries);
        fs::copy(&new, &old).expect("the copy fails");
        fs::remove_file(&new).expect("the file operation fails");
        fs::remove_file(&new).expect_err("the file exists");
        let trace = FileTrace(running.end());
        let renamed = trace.own_events(FILE_RENAME);
        assert_eq!(renamed.len(), 1);
        assert_eq!((trace.find_end(renamed[0]).1, renamed[0].number("InfoClass")), (0, RENAME_INFO));
        let deleted: Vec<u64> =
            trace.own_events(FILE_DELETE).iter().map(|event| trace.find_end(event).1).collect();
        assert_eq!(deleted, [0, STATUS_OBJECT_NAME_NOT_FOUND]);
        // FILE_OPEN with FILE_OPEN_REPARSE_POINT and FILE_WRITE_THROUGH.
        let has_flags = |event: &&&CapturedEvent| event.number("CreateOptions") == 1 << 24 | 0x20_0002;
        let not_found: Vec<u64> = trace
            .own_events(FILE_CREATE)
            .iter()
            .filter(has_flags)
            .map(|event| trace.find_end(event).1)
            .collect();
        assert_eq!(not_found, [STATUS_OBJECT_NAME_NOT_FOUND]);
        let listed = trace.events_of_file(FILE_DIR_ENUM, trace.find_only_file_key(folder.path()));
        assert_eq!(listed.len(), 2, "not one call for the entries and one for the end");
        // The copy reads as much as it writes, in one call or several.
        let transferred_bytes =
            |hook: u16| trace.own_events(hook).iter().map(|event| trace.find_end(event).0).sum::<u64>();
        assert!(transferred_bytes(FILE_WRITE) >= 1000 && transferred_bytes(FILE_READ) >= 1000);
    });
}

#[test]
fn duplicated_descriptors_share_their_offset_across_processes() {
    retry_alternately_with_busy_processors(5, || {
        let folder = tempfile::tempdir().expect("no folder is created");
        let name = folder.path().join("shared");
        fs::write(&name, [b'x'; 5000]).expect("the file operation fails");
        let Some(mut running) = RunningCapture::start(&FILE_GROUPS, &[]) else { return };
        let mut file = File::open(&name).expect("the file operation fails");
        running.poll();
        let mut copy = file.try_clone().expect("the copy fails");
        file.read_exact(&mut [0; 10]).expect("the read fails");
        copy.read_exact(&mut [0; 20]).expect("the read fails");
        drop(file);
        let mut child =
            Command::new("cat").stdin(copy).stdout(Stdio::piped()).spawn().expect("the start fails");
        let mut output = Vec::new();
        child
            .stdout
            .take()
            .expect("the output is not readable")
            .read_to_end(&mut output)
            .expect("the output is not readable");
        child.wait().expect("the process does not end");
        assert_eq!(output.len(), 4970);
        running.poll();
        let trace = FileTrace(running.end());
        let key = trace.find_only_file_key(&name);
        let reads = trace.list_transfers(FILE_READ, key);
        assert_eq!(reads[..2], [(0, 10, 10), (10, 20, 20)]);
        assert_eq!(reads[2].0, 30, "the child does not continue at our offset: {reads:?}");
        assert_eq!(reads[2..].iter().map(|read| read.2).sum::<u64>(), 4970);
        let child_reads = trace
            .events_of_file(FILE_READ, key)
            .iter()
            .filter(|event| event.number("TTID") == u64::from(child.id()))
            .count();
        assert_eq!(child_reads, reads.len() - 2);
        let closed = trace.events_of_file(FILE_CLOSE, key);
        assert_eq!(closed.len(), 1, "not closed exactly once");
        assert_eq!(trace.find_file_keys(FILE_NAME_DELETE, &name), [key]);
    });
}

#[test]
fn earlier_open_files_have_names_and_remaining_ones_are_in_the_end_rundown() {
    retry_alternately_with_busy_processors(5, || {
        let folder = tempfile::tempdir().expect("no folder is created");
        let (early, late) = (folder.path().join("early"), folder.path().join("late"));
        fs::write(&early, [1; 100]).expect("the file operation fails");
        let mut file = File::open(&early).expect("the file operation fails");
        let (mut socket, _peer) = std::os::unix::net::UnixStream::pair().expect("no socket pair");
        let Some(mut running) = RunningCapture::start(&FILE_GROUPS, &[]) else { return };
        file.read_exact(&mut [0; 10]).expect("the read fails");
        file.seek(SeekFrom::Current(5)).expect("the seek fails");
        file.read_exact(&mut [0; 10]).expect("the read fails");
        let mut log = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&late)
            .expect("the file operation fails");
        running.poll();
        log.write_all(&[1; 7]).expect("the write fails");
        socket.write_all(&[1; 777]).expect("the data is not transferred");
        let trace = FileTrace(running.end());
        let keys = trace.find_file_keys(FILE_NAME, &early);
        assert_eq!(keys.len(), 1);
        // The offset is known only after the seek, which returns it.
        assert_eq!(trace.list_transfers(FILE_READ, keys[0]), [(UNKNOWN_OFFSET, 10, 10), (15, 10, 10)]);
        assert_eq!(trace.find_file_keys(FILE_NAME_RUNDOWN, &early), keys);
        let log = trace.find_only_file_key(&late);
        assert_eq!(trace.list_transfers(FILE_WRITE, log), [(UNKNOWN_OFFSET, 7, 7)]);
        assert_eq!(trace.find_file_keys(FILE_NAME_RUNDOWN, &late), [log]);
        assert!(
            trace.own_events(FILE_WRITE).iter().all(|event| event.number("IoSize") != 777),
            "a socket was recorded as a file"
        );
        // The file was opened before the capture.
        assert!(trace.find_file_keys(FILE_NAME_CREATE, &early).is_empty());
    });
}

#[test]
fn short_lived_open_file_never_gets_another_name() {
    retry_alternately_with_busy_processors(5, || {
        let folder = tempfile::tempdir().expect("no folder is created");
        let names: Vec<_> = (0..200).map(|nth| folder.path().join(format!("{nth:03}"))).collect();
        for (size, name) in names.iter().enumerate() {
            fs::write(name, vec![1; size + 1]).expect("the file operation fails");
        }
        let Some(mut running) = RunningCapture::start(&FILE_GROUPS, &[]) else { return };
        let mut last = None;
        for name in &names {
            let mut file = File::open(name).expect("the file operation fails");
            let _ = file.read(&mut [0; 4096]).expect("the read fails");
            last = Some(file);
        }
        running.poll();
        drop(last);
        let trace = FileTrace(running.end());
        let mut named_count = 0;
        for (size, name) in names.iter().enumerate() {
            for key in trace.find_file_keys(FILE_NAME_CREATE, name) {
                named_count += 1;
                assert_eq!(trace.list_transfers(FILE_READ, key), [(0, 4096, size as u64 + 1)]);
            }
        }
        assert!(named_count >= 1, "the last file has no name");
        let read = trace.own_events(FILE_READ).iter().filter(|event| event.number("IoSize") == 4096).count();
        assert!(read >= names.len(), "not all files were read");
    });
}

#[test]
fn opening_a_file_wakes_the_capture() {
    retry_alternately_with_busy_processors(5, || {
        const NAME_GROUPS: [Group; 1] = [Group::DISK_FILE_IO];
        let folder = tempfile::tempdir().expect("no folder is created");
        let name = folder.path().join("awake");
        fs::write(&name, "x").expect("the file operation fails");
        let Some(mut running) = RunningCapture::start(&NAME_GROUPS, &[]) else { return };
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(File::open(&name).expect("the file operation fails"))
            .spawn()
            .expect("the start fails");
        assert!(running.wait_for_wake());
        running.poll();
        // The next event confirms the name.
        drop(File::open("/dev/null"));
        child.kill().expect("the process does not end");
        child.wait().expect("the process does not end");
        running.poll();
        let events = running.end();
        let name_hooks = [FILE_NAME, FILE_NAME_CREATE, FILE_NAME_DELETE, FILE_NAME_RUNDOWN];
        assert!(events.iter().all(|event| name_hooks.contains(&event.hook)), "not only names");
        let trace = FileTrace(events);
        assert_eq!(trace.find_file_keys(FILE_NAME_DELETE, &name), [trace.find_only_file_key(&name)]);
    });
}

/// Loses many events of one file and then reads another. Returns whether the second file has a
/// name, or `None` if its read was lost too or the capture does not start.
fn lose_events_and_continue(folder: &Path) -> Option<bool> {
    let (first, second) = (folder.join("first"), folder.join("second"));
    fs::write(&first, [1; 50_000]).expect("the file operation fails");
    fs::write(&second, [1; 100]).expect("the file operation fails");
    let mut running = RunningCapture::start_with_rings(&FILE_GROUPS, &[], 1 << 20)?;
    let mut file = File::open(&first).expect("the file operation fails");
    running.poll();
    // Far more than the rings hold: the close of this file and the open of the other are lost.
    for _ in 0..40_000 {
        file.read_exact(&mut [0; 1]).expect("the read fails");
    }
    drop(file);
    let mut file = File::open(&second).expect("the file operation fails");
    running.poll();
    file.read_exact(&mut [0; 9]).expect("the read fails");
    running.poll();
    drop(file);
    running.poll();
    let (events, lost) = running.end_with_losses();
    assert!(lost > 0);
    let trace = FileTrace(events);
    let read: Vec<&CapturedEvent> =
        trace.own_events(FILE_READ).into_iter().filter(|event| event.number("IoSize") == 9).collect();
    let key = read.first()?.number("FileObject");
    assert!(!trace.find_file_keys(FILE_NAME_CREATE, &first).contains(&key), "has the name of the first file");
    // If the thread moved to another processor, perhaps nothing was lost there.
    assert!([UNKNOWN_OFFSET, 0].contains(&read[0].number("Offset")), "a wrong offset");
    Some(trace.find_file_keys(FILE_NAME_CREATE, &second) == [key])
}

#[test]
fn events_after_a_loss_are_correct() {
    retry_alternately_with_busy_processors(5, || {
        let folder = tempfile::tempdir().expect("no folder is created");
        if RunningCapture::start(&FILE_GROUPS, &[]).is_none() {
            return;
        }
        // A busy machine may lose more than this test intends.
        assert!((0..5).any(|_| lose_events_and_continue(folder.path()) == Some(true)));
    });
}

#[test]
fn close_in_a_child_with_shared_descriptors_is_recorded() {
    retry_alternately_with_busy_processors(5, || {
        let folder = tempfile::tempdir().expect("no folder is created");
        let name = folder.path().join("shared");
        let Some(mut running) = RunningCapture::start(&FILE_GROUPS, &[]) else { return };
        let file = File::create(&name).expect("the file operation fails");
        running.poll();
        let descriptor = file.into_raw_fd();
        let flags = libc::CLONE_FILES | libc::SIGCHLD;
        // SAFETY: the child has a copy of the memory, makes two system calls and exits.
        let child = unsafe {
            let child = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
            if child == 0 {
                libc::syscall(libc::SYS_close, descriptor);
                libc::syscall(libc::SYS_exit_group, 0);
            }
            child
        };
        assert!(child > 0, "{child}");
        // SAFETY: waits for a child; no memory is involved.
        assert_eq!(i64::from(unsafe { libc::waitpid(child as i32, std::ptr::null_mut(), 0) }), child);
        // SAFETY: reads the flags of a descriptor; no memory is involved.
        assert_eq!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) }, -1, "open in this process");
        running.poll();
        let trace = FileTrace(running.end());
        let closed = trace.events_of_file(FILE_CLOSE, trace.find_only_file_key(&name));
        assert_eq!(closed.iter().map(|event| event.number("TTID")).collect::<Vec<_>>(), [child as u64]);
    });
}

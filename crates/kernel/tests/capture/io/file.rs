//! Files of known names and sizes.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use traceweir_kernel::Group;

use super::support::{Running, Seen, thread_id};
use crate::again::again;

const ALL: [Group; 3] = [Group::DISK_FILE_IO, Group::FILE_IO, Group::FILE_IO_INIT];
const NOT_FOUND: u64 = 0xC000_0034;
const NOWHERE: u64 = u64::MAX;

/// What was captured, by names.
struct Story(Vec<Seen>);

impl Story {
    /// Events of a kind by this thread.
    fn mine(&self, hook: u16) -> Vec<&Seen> {
        self.0.iter().filter(|it| it.hook == hook && it.number("TTID") == thread_id()).collect()
    }

    /// Events of a kind about an opening.
    fn of(&self, hook: u16, key: u64) -> Vec<&Seen> {
        self.0.iter().filter(|it| it.hook == hook && it.number("FileObject") == key).collect()
    }

    /// The openings that have a name by an event of this kind.
    fn keys(&self, hook: u16, name: &Path) -> Vec<u64> {
        let name = name.to_str().expect("text");
        let is = |it: &&Seen| it.hook == hook && it.text("FileName") == name;
        self.0.iter().filter(is).map(|it| it.number("FileObject")).collect()
    }

    /// The one opening of a file.
    fn key(&self, name: &Path) -> u64 {
        let keys = self.keys(0x0420, name);
        assert_eq!(keys.len(), 1, "{}", name.display());
        keys[0]
    }

    /// Bytes and status of an operation, which has ended once.
    fn end(&self, start: &Seen) -> (u64, u64) {
        let irp = start.number("IrpPtr");
        let ends: Vec<&Seen> =
            self.0.iter().filter(|it| it.hook == 0x044C && it.number("IrpPtr") == irp).collect();
        assert_eq!(ends.len(), 1, "{start:?}");
        assert!(ends[0].raw >= start.raw);
        (ends[0].number("ExtraInfo"), ends[0].number("NtStatus"))
    }

    /// Offset, size, and bytes that were transferred, of each read or write of an opening.
    fn transfers(&self, hook: u16, key: u64) -> Vec<(u64, u64, u64)> {
        let one = |it: &&Seen| {
            let (bytes, status) = self.end(it);
            assert_eq!((status, it.number("FileKey")), (0, key));
            (it.number("Offset"), it.number("IoSize"), bytes)
        };
        self.of(hook, key).iter().map(one).collect()
    }
}

#[test]
fn files_that_are_written_and_read_are_told_with_names_places_and_sizes() {
    again(5, || {
        const FILES: usize = 3;
        let folder = tempfile::tempdir().expect("a folder");
        let name = |nth: usize| folder.path().join(format!("file {nth} ä"));
        let Some(mut running) = Running::start(&ALL, &[0x0444]) else { return };
        for nth in 0..FILES {
            let mut file = File::create(name(nth)).expect("a file");
            running.look();
            for size in [100, 4096, 1] {
                file.write_all(&vec![1; size]).expect("a write");
            }
            file.write_all_at(&[2; 50], 8192).expect("a write");
            file.sync_all().expect("a flush");
            file.set_len(4197).expect("a length");
        }
        let story = {
            let mut file = File::open(name(0)).expect("a file");
            running.look();
            let mut buffer = [0; 3000];
            for _ in 0..3 {
                let _ = file.read(&mut buffer).expect("a read");
            }
            file.seek(SeekFrom::Start(7)).expect("a place");
            file.read_exact(&mut buffer[..10]).expect("a read");
            drop(file);
            running.look();
            Story(running.end())
        };
        for nth in 0..FILES {
            let keys = story.keys(0x0420, &name(nth));
            assert_eq!(keys.len(), if nth == 0 { 2 } else { 1 });
            let key = keys[0];
            let written = [(0, 100, 100), (100, 4096, 4096), (4196, 1, 1), (8192, 50, 50)];
            assert_eq!(story.transfers(0x0444, key), written);
            let created = story.of(0x0440, key);
            assert_eq!(created.len(), 1);
            assert_eq!((created[0].number("CreateOptions"), created[0].number("ShareAccess")), (5 << 24, 7));
            let set = story.of(0x0445, key);
            assert_eq!((set[0].number("InfoClass"), set[0].number("ExtraInfo")), (20, 4197));
            for (hook, count) in [(0x0449, 1), (0x0441, 1), (0x0442, 1), (0x0445, 1)] {
                let found = story.of(hook, key);
                assert_eq!(found.len(), count, "{hook:04x}");
                assert!(found.iter().all(|it| story.end(it).1 == 0));
            }
            assert_eq!(story.keys(0x0423, &name(nth)), keys, "a name goes with its opening");
        }
        let read = story.keys(0x0420, &name(0))[1];
        let expected = [(0, 3000, 3000), (3000, 3000, 1197), (4197, 3000, 0), (7, 10, 10)];
        assert_eq!(story.transfers(0x0443, read), expected);
        assert!(story.0.iter().any(|it| it.is_stack), "a write has a stack");
    });
}

#[test]
fn names_are_changed_deleted_listed_and_not_found() {
    again(5, || {
        let folder = tempfile::tempdir().expect("a folder");
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, [1; 1000]).expect("a file");
        let Some(mut running) = Running::start(&ALL, &[]) else { return };
        fs::rename(&old, &new).expect("a name");
        // So that it is not taken for another file that is not there.
        let flags = libc::O_NOFOLLOW | libc::O_SYNC;
        OpenOptions::new().read(true).custom_flags(flags).open(&old).expect_err("no file");
        let mut entries = fs::read_dir(folder.path()).expect("a folder");
        running.look();
        assert_eq!(entries.by_ref().count(), 1);
        drop(entries);
        fs::copy(&new, &old).expect("a copy");
        fs::remove_file(&new).expect("a file");
        fs::remove_file(&new).expect_err("no file");
        let story = Story(running.end());
        let renamed = story.mine(0x0447);
        assert_eq!(renamed.len(), 1);
        assert_eq!((story.end(renamed[0]).1, renamed[0].number("InfoClass")), (0, 10));
        let deleted: Vec<u64> = story.mine(0x0446).iter().map(|it| story.end(it).1).collect();
        assert_eq!(deleted, [0, NOT_FOUND]);
        let is_it = |it: &&&Seen| it.number("CreateOptions") == 1 << 24 | 0x20_0002;
        let not_found: Vec<u64> = story.mine(0x0440).iter().filter(is_it).map(|it| story.end(it).1).collect();
        assert_eq!(not_found, [NOT_FOUND]);
        let listed = story.of(0x0448, story.key(folder.path()));
        assert_eq!(listed.len(), 2, "what is there, and the end");
        // The copy reads as much as it writes, by one call or several.
        let moved = |hook: u16| story.mine(hook).iter().map(|it| story.end(it).0).sum::<u64>();
        assert!(moved(0x0444) >= 1000 && moved(0x0443) >= 1000);
    });
}

#[test]
fn descriptors_of_one_opening_share_its_place_across_programs() {
    again(5, || {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("shared");
        fs::write(&name, [b'x'; 5000]).expect("a file");
        let Some(mut running) = Running::start(&ALL, &[]) else { return };
        let mut file = File::open(&name).expect("a file");
        running.look();
        let mut copy = file.try_clone().expect("a copy");
        file.read_exact(&mut [0; 10]).expect("a read");
        copy.read_exact(&mut [0; 20]).expect("a read");
        drop(file);
        let mut child = Command::new("cat").stdin(copy).stdout(Stdio::piped()).spawn().expect("a program");
        let mut rest = Vec::new();
        child.stdout.take().expect("output").read_to_end(&mut rest).expect("output");
        child.wait().expect("an end");
        assert_eq!(rest.len(), 4970);
        running.look();
        let story = Story(running.end());
        let key = story.key(&name);
        let reads = story.transfers(0x0443, key);
        assert_eq!(reads[..2], [(0, 10, 10), (10, 20, 20)]);
        assert_eq!(reads[2].0, 30, "the program goes on where we were: {reads:?}");
        assert_eq!(reads[2..].iter().map(|it| it.2).sum::<u64>(), 4970);
        let by_child =
            story.of(0x0443, key).iter().filter(|it| it.number("TTID") == u64::from(child.id())).count();
        assert_eq!(by_child, reads.len() - 2);
        let closed = story.of(0x0442, key);
        assert_eq!(closed.len(), 1, "it is closed once");
        assert_eq!(story.keys(0x0423, &name), [key]);
    });
}

#[test]
fn what_is_open_already_has_a_name_and_what_stays_open_is_told_at_the_end() {
    again(5, || {
        let folder = tempfile::tempdir().expect("a folder");
        let (early, late) = (folder.path().join("early"), folder.path().join("late"));
        fs::write(&early, [1; 100]).expect("a file");
        let mut file = File::open(&early).expect("a file");
        let (mut socket, _peer) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let Some(mut running) = Running::start(&ALL, &[]) else { return };
        file.read_exact(&mut [0; 10]).expect("a read");
        file.seek(SeekFrom::Current(5)).expect("a place");
        file.read_exact(&mut [0; 10]).expect("a read");
        let mut log = OpenOptions::new().append(true).create(true).mode(0o600).open(&late).expect("a file");
        running.look();
        log.write_all(&[1; 7]).expect("a write");
        socket.write_all(&[1; 777]).expect("data");
        let story = Story(running.end());
        let keys = story.keys(0x0400, &early);
        assert_eq!(keys.len(), 1);
        assert_eq!(story.transfers(0x0443, keys[0]), [(NOWHERE, 10, 10), (15, 10, 10)]);
        assert_eq!(story.keys(0x0424, &early), keys);
        let log = story.key(&late);
        assert_eq!(story.transfers(0x0444, log), [(NOWHERE, 7, 7)]);
        assert_eq!(story.keys(0x0424, &late), [log]);
        assert!(story.mine(0x0444).iter().all(|it| it.number("IoSize") != 777), "a socket is no file");
        // What is closed at once has no name, or its own.
        assert!(story.keys(0x0420, &early).is_empty());
    });
}

#[test]
fn files_that_are_closed_at_once_never_get_the_name_of_another() {
    again(5, || {
        let folder = tempfile::tempdir().expect("a folder");
        let names: Vec<_> = (0..200).map(|nth| folder.path().join(format!("{nth:03}"))).collect();
        for (size, name) in names.iter().enumerate() {
            fs::write(name, vec![1; size + 1]).expect("a file");
        }
        let Some(mut running) = Running::start(&ALL, &[]) else { return };
        let mut last = None;
        for name in &names {
            let mut file = File::open(name).expect("a file");
            let _ = file.read(&mut [0; 4096]).expect("a read");
            last = Some(file);
        }
        running.look();
        drop(last);
        let story = Story(running.end());
        let mut named = 0;
        for (size, name) in names.iter().enumerate() {
            for key in story.keys(0x0420, name) {
                named += 1;
                assert_eq!(story.transfers(0x0443, key), [(0, 4096, size as u64 + 1)]);
            }
        }
        assert!(named >= 1, "the last was there to be looked at");
        let read = story.mine(0x0443).iter().filter(|it| it.number("IoSize") == 4096).count();
        assert!(read >= names.len(), "all were read");
    });
}

#[test]
fn a_program_that_opens_a_file_wakes_who_captures_it() {
    again(5, || {
        const NAMES: [Group; 1] = [Group::DISK_FILE_IO];
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("awake");
        fs::write(&name, "x").expect("a file");
        let Some(mut running) = Running::start(&NAMES, &[]) else { return };
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(File::open(&name).expect("a file"))
            .spawn()
            .expect("a program");
        assert!(running.is_woken());
        running.look();
        // Whatever happens next makes the name sure.
        drop(File::open("/dev/null"));
        child.kill().expect("an end");
        child.wait().expect("an end");
        running.look();
        let seen = running.end();
        assert!(seen.iter().all(|it| [0x0400, 0x0420, 0x0423, 0x0424].contains(&it.hook)), "names alone");
        let story = Story(seen);
        assert_eq!(story.keys(0x0423, &name), [story.key(&name)]);
    });
}

/// Loses much of what happens to one file, and then reads another; whether it could be named.
fn lose_and_go_on(folder: &Path) -> Option<bool> {
    let (first, second) = (folder.join("first"), folder.join("second"));
    fs::write(&first, [1; 50_000]).expect("a file");
    fs::write(&second, [1; 100]).expect("a file");
    let mut running = Running::start_with_rings(&ALL, &[], 1 << 20)?;
    let mut file = File::open(&first).expect("a file");
    running.look();
    // Far more than the rings hold: the close, and the open of the other, are lost.
    for _ in 0..40_000 {
        file.read_exact(&mut [0; 1]).expect("a read");
    }
    drop(file);
    let mut file = File::open(&second).expect("a file");
    running.look();
    file.read_exact(&mut [0; 9]).expect("a read");
    running.look();
    drop(file);
    running.look();
    let (seen, lost) = running.end_with_losses();
    assert!(lost > 0);
    let story = Story(seen);
    let read: Vec<&Seen> = story.mine(0x0443).into_iter().filter(|it| it.number("IoSize") == 9).collect();
    let key = read.first()?.number("FileObject");
    assert!(!story.keys(0x0420, &first).contains(&key), "it has the name of another");
    // On another processor nothing may have been lost.
    assert!([NOWHERE, 0].contains(&read[0].number("Offset")), "where it is, or that nobody knows");
    Some(story.keys(0x0420, &second) == [key])
}

#[test]
fn what_is_told_behind_a_loss_is_right() {
    again(5, || {
        let folder = tempfile::tempdir().expect("a folder");
        if Running::start(&ALL, &[]).is_none() {
            return;
        }
        // On a busy machine more is lost than what this loses.
        assert!((0..5).any(|_| lose_and_go_on(folder.path()) == Some(true)));
    });
}

#[test]
fn what_a_child_with_the_same_descriptors_closes_is_closed() {
    again(5, || {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("shared");
        let Some(mut running) = Running::start(&ALL, &[]) else { return };
        let file = File::create(&name).expect("a file");
        running.look();
        let descriptor = file.into_raw_fd();
        let flags = libc::CLONE_FILES | libc::SIGCHLD;
        // SAFETY: the child has a copy of the memory, makes two system calls and is gone.
        let child = unsafe {
            let child = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
            if child == 0 {
                libc::syscall(libc::SYS_close, descriptor);
                libc::syscall(libc::SYS_exit_group, 0);
            }
            child
        };
        assert!(child > 0, "{child}");
        // SAFETY: waits for a child.
        assert_eq!(i64::from(unsafe { libc::waitpid(child as i32, std::ptr::null_mut(), 0) }), child);
        // SAFETY: asks a descriptor for its flags.
        assert_eq!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) }, -1, "it is closed here too");
        running.look();
        let story = Story(running.end());
        let closed = story.of(0x0442, story.key(&name));
        assert_eq!(closed.iter().map(|it| it.number("TTID")).collect::<Vec<_>>(), [child as u64]);
    });
}

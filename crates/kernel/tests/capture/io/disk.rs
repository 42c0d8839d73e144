//! Direct I/O of known size and place.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use traceweir_kernel::Group;

use super::support::{Running, Seen, thread_id};
use crate::again::again;
use crate::support::skip::skip;

const READ: u16 = 0x010A;
const WRITE: u16 = 0x010B;
const FLUSH: u16 = 0x010E;
/// Bytes of one request: not a size that others use.
const PIECE: usize = 7 * 4096;
/// So far apart that requests are not merged.
const STRIDE: usize = 16 * 4096;
const PIECES: usize = 16;

/// The number of the disk that a file is on: of the whole disk, where it is on a part.
fn disk_of(file: &File) -> Option<u64> {
    let dev = file.metadata().ok()?.dev();
    let folder = format!("/sys/dev/block/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let part = if Path::new(&folder).join("partition").exists() { "../dev" } else { "dev" };
    let text = std::fs::read_to_string(Path::new(&folder).join(part)).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(major.parse::<u64>().ok()? << 20 | minor.parse::<u64>().ok()?)
}

/// A file on a disk, written to it, and opened without a cache.
fn on_disk(folder: &Path) -> Option<(File, u64)> {
    let path = folder.join("direct");
    let file = File::create(&path).ok()?;
    file.write_all_at(&vec![1; PIECES * STRIDE], 0).ok()?;
    file.sync_all().ok()?;
    let disk = disk_of(&file)?;
    let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).ok()?;
    Some((direct, disk))
}

/// Memory that direct I/O takes: all of it but a page.
fn aligned(memory: &mut [u8]) -> &mut [u8] {
    let at = memory.as_ptr().align_offset(4096);
    let length = memory.len() - 4096;
    &mut memory[at..at + length]
}

#[test]
fn direct_reads_and_writes_are_told_with_their_sizes_and_places() {
    again(5, || {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let Some((file, disk)) = on_disk(folder.path()) else {
            return skip("disk", "no file on a disk that takes direct I/O");
        };
        let groups = [Group::DISK_IO, Group::DISK_IO_INIT, Group::SPLIT_IO];
        let Some(running) = Running::start(&groups, &[0x010D]) else { return };
        let mut memory = vec![7; PIECE + 4096];
        for piece in 0..PIECES {
            file.write_all_at(aligned(&mut memory), (piece * STRIDE) as u64).expect("a write");
        }
        for piece in 0..PIECES {
            file.read_exact_at(aligned(&mut memory), (piece * STRIDE) as u64).expect("a read");
        }
        file.sync_all().expect("a flush");
        let seen = running.end();
        let mine = |hook: u16| -> Vec<&Seen> {
            let size = |it: &Seen| it.number("TransferSize") == PIECE as u64;
            seen.iter().filter(|it| it.hook == hook && size(it)).collect()
        };
        let (reads, writes) = (mine(READ), mine(WRITE));
        let is_empty = |it: &&Seen| it.hook == WRITE && it.number("TransferSize") == 0;
        assert_eq!(seen.iter().filter(is_empty).count(), 0, "the end of a flush is no write");
        // Requests are begun by this thread. They end in interrupts, mostly of idle processors, and some kernels pass over all that happens there.
        let begun = |hook: u16| {
            seen.iter().filter(|it| it.hook == hook && it.number("IssuingThreadId") == thread_id()).count()
        };
        assert!(begun(0x010C) >= PIECES && begun(0x010D) >= PIECES, "{} {}", begun(0x010C), begun(0x010D));
        for (hook, end) in reads.iter().map(|it| (0x010C, it)).chain(writes.iter().map(|it| (0x010D, it))) {
            let start = seen
                .iter()
                .find(|it| it.hook == hook && it.number("Irp") == end.number("Irp"))
                .expect("the start of a request");
            assert_eq!(start.number("IssuingThreadId"), end.number("IssuingThreadId"));
            assert_eq!(end.raw - start.raw, end.number("HighResResponseTime"));
            assert_eq!(end.number("ByteOffset") % 512, 0);
            assert_eq!(end.number("DiskNumber"), disk);
            assert_eq!(end.number("IrpFlags") & 4, 4, "somebody waits for direct I/O");
        }
        if reads.len() < PIECES || writes.len() < PIECES {
            return;
        }
        // The same places are read that were written.
        let places = |of: &[&Seen]| of.iter().map(|it| it.number("ByteOffset")).collect::<Vec<_>>();
        assert_eq!(places(&reads), places(&writes));
        let by_me = writes.iter().filter(|it| it.number("IssuingThreadId") == thread_id()).count();
        assert!(by_me > 0, "the thread that wrote issued some of it itself");
        assert!(seen.iter().any(|it| it.is_stack), "a start has a stack");
        let flushes = || seen.iter().filter(|it| it.hook == FLUSH && it.number("Irp") != 0);
        let folder = format!("/sys/dev/block/{}:{}/queue/write_cache", disk >> 20, disk & 0xF_FFFF);
        let has_cache = std::fs::read_to_string(folder).is_ok_and(|text| text.trim() == "write back");
        assert!(!has_cache || flushes().any(|it| it.number("DiskNumber") == disk), "a cache is flushed");
        // This thread, or the journal for it; not the worker that hands it on.
        let is_asked = |it: &Seen| {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", it.number("IssuingThreadId")));
            name.is_ok_and(|name| !name.starts_with("kworker"))
        };
        assert!(!has_cache || flushes().any(is_asked), "who asked for it");
        for flush in flushes() {
            assert!(seen.iter().any(|it| it.hook == 0x010F && it.number("Irp") == flush.number("Irp")));
        }
    });
}

#[test]
fn a_request_that_is_too_large_is_split_into_requests_that_are_told() {
    again(5, || {
        const SIZE: usize = 8 << 20;
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let Some((file, disk)) = on_disk(folder.path()) else {
            return skip("disk", "no file on a disk that takes direct I/O");
        };
        let mut memory = vec![7; SIZE + 4096];
        // There are places for all of it before it is watched.
        file.write_all_at(aligned(&mut memory), 0).expect("a write");
        file.sync_all().expect("a flush");
        let groups = [Group::DISK_IO, Group::DISK_IO_INIT, Group::SPLIT_IO];
        let Some(running) = Running::start(&groups, &[]) else { return };
        file.write_all_at(aligned(&mut memory), 0).expect("a write");
        let seen = running.end();
        let writes = || seen.iter().filter(|it| it.hook == WRITE && it.number("DiskNumber") == disk);
        let written: u64 = writes().map(|it| it.number("TransferSize")).sum();
        assert!(seen.iter().any(|it| it.hook == 0x010D), "requests were begun");
        let split: Vec<&Seen> = seen.iter().filter(|it| it.hook == 0x1B20).collect();
        // Some disks take requests of any size, and some kernels pass over the ends of requests.
        if split.is_empty() || written < SIZE as u64 {
            return;
        }
        let is_issued = |irp: u64| seen.iter().any(|it| it.hook == 0x010D && it.number("Irp") == irp);
        assert!(split.iter().any(|it| is_issued(it.number("ChildIrp"))));
        assert!(split.iter().all(|it| it.number("ChildIrp") != it.number("ParentIrp")));
    });
}

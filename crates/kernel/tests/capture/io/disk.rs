//! Direct I/O of known size and offset.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use traceweir_format::kernel::hook::{
    DISK_FLUSH, DISK_FLUSH_INIT, DISK_READ, DISK_READ_INIT, DISK_WRITE, DISK_WRITE_INIT, SPLIT_IO,
};
use traceweir_kernel::Group;

use super::support::{CapturedEvent, RunningCapture, this_thread_id};
use crate::retry::retry_alternately_with_busy_processors;
use crate::support::skip::skip;

/// Bytes of one request: a size that other processes do not use.
const REQUEST_BYTES: usize = 7 * 4096;
/// Distance between requests, so large that they are not merged.
const STRIDE_BYTES: usize = 16 * 4096;
const REQUEST_COUNT: usize = 16;

/// Returns the number of the disk that a file is on; for a partition, that of the entire disk. The
/// number consists of the major number (from bit 20) and the minor number (20 bits).
fn find_disk_number(file: &File) -> Option<u64> {
    let dev = file.metadata().ok()?.dev();
    let folder = format!("/sys/dev/block/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let part = if Path::new(&folder).join("partition").exists() { "../dev" } else { "dev" };
    let text = std::fs::read_to_string(Path::new(&folder).join(part)).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(major.parse::<u64>().ok()? << 20 | minor.parse::<u64>().ok()?)
}

/// Creates a file, flushes it to disk and opens it for direct I/O. Returns it with the disk number.
fn create_direct_file(folder: &Path) -> Option<(File, u64)> {
    let path = folder.join("direct");
    let file = File::create(&path).ok()?;
    file.write_all_at(&vec![1; REQUEST_COUNT * STRIDE_BYTES], 0).ok()?;
    file.sync_all().ok()?;
    let disk = find_disk_number(&file)?;
    let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).ok()?;
    Some((direct, disk))
}

/// Returns the part of a buffer that is aligned for direct I/O: all of it except one page.
fn align_to_page(memory: &mut [u8]) -> &mut [u8] {
    let at = memory.as_ptr().align_offset(4096);
    let length = memory.len() - 4096;
    &mut memory[at..at + length]
}

#[test]
fn direct_reads_and_writes_are_recorded_with_size_and_offset() {
    retry_alternately_with_busy_processors(5, || {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("no folder is created");
        let Some((file, disk)) = create_direct_file(folder.path()) else {
            return skip("disk", "no file on a disk that supports direct I/O");
        };
        let groups = [Group::DISK_IO, Group::DISK_IO_INIT, Group::SPLIT_IO];
        let Some(running) = RunningCapture::start(&groups, &[DISK_WRITE_INIT]) else { return };
        let mut memory = vec![7; REQUEST_BYTES + 4096];
        for piece in 0..REQUEST_COUNT {
            file.write_all_at(align_to_page(&mut memory), (piece * STRIDE_BYTES) as u64)
                .expect("the write fails");
        }
        for piece in 0..REQUEST_COUNT {
            file.read_exact_at(align_to_page(&mut memory), (piece * STRIDE_BYTES) as u64)
                .expect("the read fails");
        }
        file.sync_all().expect("the flush fails");
        let events = running.end();
        let own_events = |hook: u16| -> Vec<&CapturedEvent> {
            let has_size = |event: &CapturedEvent| event.number("TransferSize") == REQUEST_BYTES as u64;
            events.iter().filter(|event| event.hook == hook && has_size(event)).collect()
        };
        let (reads, writes) = (own_events(DISK_READ), own_events(DISK_WRITE));
        let is_empty = |event: &&CapturedEvent| event.hook == DISK_WRITE && event.number("TransferSize") == 0;
        assert_eq!(events.iter().filter(is_empty).count(), 0, "the end of a flush was recorded as a write");
        // This thread starts the requests. They end in interrupts, mostly on idle processors, and
        // some kernels skip everything that happens there.
        let count_starts = |hook: u16| {
            events
                .iter()
                .filter(|event| event.hook == hook && event.number("IssuingThreadId") == this_thread_id())
                .count()
        };
        assert!(
            count_starts(DISK_READ_INIT) >= REQUEST_COUNT && count_starts(DISK_WRITE_INIT) >= REQUEST_COUNT,
            "{} {}",
            count_starts(DISK_READ_INIT),
            count_starts(DISK_WRITE_INIT)
        );
        for (hook, end) in reads
            .iter()
            .map(|event| (DISK_READ_INIT, event))
            .chain(writes.iter().map(|event| (DISK_WRITE_INIT, event)))
        {
            let start = events
                .iter()
                .find(|event| event.hook == hook && event.number("Irp") == end.number("Irp"))
                .expect("the request has no start event");
            assert_eq!(start.number("IssuingThreadId"), end.number("IssuingThreadId"));
            assert_eq!(end.stamp - start.stamp, end.number("HighResResponseTime"));
            assert_eq!(end.number("ByteOffset") % 512, 0);
            assert_eq!(end.number("DiskNumber"), disk);
            // The flag 4 marks synchronous requests.
            assert_eq!(end.number("IrpFlags") & 4, 4, "direct I/O is not synchronous");
        }
        if reads.len() < REQUEST_COUNT || writes.len() < REQUEST_COUNT {
            return;
        }
        // The reads use the offsets of the writes.
        let offsets =
            |ends: &[&CapturedEvent]| ends.iter().map(|event| event.number("ByteOffset")).collect::<Vec<_>>();
        assert_eq!(offsets(&reads), offsets(&writes));
        let own = writes.iter().filter(|event| event.number("IssuingThreadId") == this_thread_id()).count();
        assert!(own > 0, "the writing thread issued none of the requests");
        assert!(events.iter().any(|event| event.is_stack), "no start has a stack");
        let flushes = || events.iter().filter(|event| event.hook == DISK_FLUSH && event.number("Irp") != 0);
        let cache_mode = format!("/sys/dev/block/{}:{}/queue/write_cache", disk >> 20, disk & 0xF_FFFF);
        let has_cache = std::fs::read_to_string(cache_mode).is_ok_and(|text| text.trim() == "write back");
        assert!(
            !has_cache || flushes().any(|event| event.number("DiskNumber") == disk),
            "the cache was not flushed"
        );
        // The originator is this thread or the journal thread, not the kworker that issues the
        // flush.
        let has_originator = |event: &CapturedEvent| {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", event.number("IssuingThreadId")));
            name.is_ok_and(|name| !name.starts_with("kworker"))
        };
        assert!(!has_cache || flushes().any(has_originator), "no flush names its originator");
        for flush in flushes() {
            assert!(
                events
                    .iter()
                    .any(|event| event.hook == DISK_FLUSH_INIT && event.number("Irp") == flush.number("Irp"))
            );
        }
    });
}

#[test]
fn request_that_is_too_large_is_split() {
    retry_alternately_with_busy_processors(5, || {
        const FILE_BYTES: usize = 8 << 20;
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("no folder is created");
        let Some((file, disk)) = create_direct_file(folder.path()) else {
            return skip("disk", "no file on a disk that supports direct I/O");
        };
        let mut memory = vec![7; FILE_BYTES + 4096];
        // Allocates all blocks before the capture.
        file.write_all_at(align_to_page(&mut memory), 0).expect("the write fails");
        file.sync_all().expect("the flush fails");
        let groups = [Group::DISK_IO, Group::DISK_IO_INIT, Group::SPLIT_IO];
        let Some(running) = RunningCapture::start(&groups, &[]) else { return };
        file.write_all_at(align_to_page(&mut memory), 0).expect("the write fails");
        let events = running.end();
        let writes =
            || events.iter().filter(|event| event.hook == DISK_WRITE && event.number("DiskNumber") == disk);
        let written: u64 = writes().map(|event| event.number("TransferSize")).sum();
        assert!(events.iter().any(|event| event.hook == DISK_WRITE_INIT), "no request was issued");
        let split: Vec<&CapturedEvent> = events.iter().filter(|event| event.hook == SPLIT_IO).collect();
        // Some disks accept requests of any size, and some kernels skip the ends of requests.
        if split.is_empty() || written < FILE_BYTES as u64 {
            return;
        }
        let is_issued =
            |irp: u64| events.iter().any(|event| event.hook == DISK_WRITE_INIT && event.number("Irp") == irp);
        assert!(split.iter().any(|event| is_issued(event.number("ChildIrp"))));
        assert!(split.iter().all(|event| event.number("ChildIrp") != event.number("ParentIrp")));
    });
}

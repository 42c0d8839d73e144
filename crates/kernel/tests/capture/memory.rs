//! Page faults and allocations of a thread that makes a known number of them: an extra, which needs the right to open tracepoints.

use std::io::Write;
use std::os::fd::AsRawFd;

use traceweir_kernel::Group;

use crate::again::again;
use crate::support::{Fresh, PAGE, Seen, capture, of, skip, this_thread, wanting};

const DEMAND_ZERO: u16 = 0x020B;
const COPY_ON_WRITE: u16 = 0x020C;
const HARD_FAULT: u16 = 0x0220;
const ALLOC: u16 = 0x0262;
const FREE: u16 = 0x0263;

/// Addresses of faults of a kind in some memory, in time order.
fn faults_in(seen: &[Seen], hook: u16, memory: &Fresh) -> Vec<u64> {
    let all = of(seen, &[hook]);
    let addresses = all.iter().map(|it| {
        let fields = it.fields();
        assert_ne!(fields.number("ProgramCounter"), 0);
        fields.number("VirtualAddress")
    });
    addresses.filter(|address| memory.has(*address)).collect()
}

#[test]
fn fresh_pages_fault_once_each_and_once_more_when_they_are_written_to() {
    again(5, || {
        const PAGES: usize = 300;
        let (written, read) = (Fresh::pages(PAGES), Fresh::pages(PAGES));
        let work = || {
            written.write();
            written.write();
            read.read();
            read.write();
        };
        let Some((seen, capture)) = capture(&wanting(&[Group::PAGE_FAULTS]), work) else { return };
        assert_eq!(capture.lost(), 0);
        let pages = |memory: &Fresh| -> Vec<u64> {
            (0..PAGES as u64).map(|page| memory.start + page * PAGE as u64).collect()
        };
        assert_eq!(faults_in(&seen, DEMAND_ZERO, &written), pages(&written));
        assert_eq!(faults_in(&seen, COPY_ON_WRITE, &written), [0; 0]);
        assert_eq!(faults_in(&seen, DEMAND_ZERO, &read), pages(&read));
        assert_eq!(faults_in(&seen, COPY_ON_WRITE, &read), pages(&read), "of the page of zeros");
    });
}

/// Faults of this thread that a disk had to serve.
fn hard_faults() -> usize {
    // SAFETY: the call fills the structure.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usize::try_from(usage.ru_majflt).expect("a count")
    }
}

#[test]
fn pages_that_a_disk_has_to_serve_are_hard_faults() {
    again(5, || {
        const PAGES: usize = 64;
        let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
        file.write_all(&vec![7; PAGES * PAGE]).expect("room");
        file.sync_all().expect("a disk");
        let (length, fd) = (PAGES * PAGE, file.as_raw_fd());
        // SAFETY: a new mapping of a file that nobody shortens; advice changes nothing of what it holds.
        let start = unsafe {
            libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED);
            let start = libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0);
            assert_ne!(start, libc::MAP_FAILED);
            libc::madvise(start, length, libc::MADV_RANDOM);
            start as u64
        };
        let mapped = Fresh { start, length };
        let mut hard = 0;
        let work = || {
            let before = hard_faults();
            mapped.read();
            hard = hard_faults() - before;
        };
        let Some((seen, capture)) = capture(&wanting(&[Group::HARD_FAULTS, Group::PAGE_FAULTS]), work) else {
            return;
        };
        assert_eq!(capture.lost(), 0);
        if !skip::can(hard > 0, "kernel events", "the files here are in memory") {
            return;
        }
        let all = of(&seen, &[HARD_FAULT]);
        let mine: Vec<&&Seen> =
            all.iter().filter(|it| mapped.has(it.fields().number("VirtualAddress"))).collect();
        assert_eq!(mine.len(), hard);
        for event in mine {
            let fields = event.fields();
            assert_eq!(fields.number("TThreadId"), u64::from(this_thread()));
            assert_eq!((fields.number("ByteCount"), fields.number("FileObject")), (PAGE as u64, 0));
            let took = event.raw - fields.number("InitialTime");
            assert!(took > 0 && took < 10_000_000_000, "{took} ns");
        }
    });
}

#[test]
fn what_is_mapped_and_unmapped_is_allocated_and_released() {
    again(5, || {
        const PAGES: usize = 37;
        let mut range = (0, 0);
        let work = || {
            let fresh = Fresh::pages(PAGES);
            range = (fresh.start, fresh.length as u64);
        };
        let Some((seen, _)) = capture(&wanting(&[Group::VIRTUAL_ALLOC]), work) else { return };
        let pid = u64::from(std::process::id());
        let told = |hook| -> Vec<(u64, u64, u64)> {
            let all = of(&seen, &[hook]);
            let all = all.iter().map(|it| it.fields()).filter(|it| it.number("ProcessId") == pid);
            let all = all.filter(|it| it.number("BaseAddress") == range.0);
            all.map(|it| (it.number("BaseAddress"), it.number("RegionSize"), it.number("Flags"))).collect()
        };
        assert_eq!(told(ALLOC), [(range.0, range.1, 0x3000)]);
        assert_eq!(told(FREE), [(range.0, range.1, 0x8000)]);
    });
}

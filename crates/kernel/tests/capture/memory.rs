//! Page faults and allocations of a thread that makes a known number of them. These tests need
//! access to tracepoints.

use std::io::Write;
use std::os::fd::AsRawFd;

use traceweir_kernel::Group;

use crate::again::again;
use crate::support::{CapturedEvent, Fresh, PAGE, capture, settings_for, skip, this_thread, with_hooks};

const DEMAND_ZERO: u16 = 0x020B;
const COPY_ON_WRITE: u16 = 0x020C;
const HARD_FAULT: u16 = 0x0220;
const ALLOC: u16 = 0x0262;
const FREE: u16 = 0x0263;

/// Returns the addresses of faults with this hook in some memory, in time order.
fn faults_in(events: &[CapturedEvent], hook: u16, memory: &Fresh) -> Vec<u64> {
    let all = with_hooks(events, &[hook]);
    let addresses = all.iter().map(|event| {
        let fields = event.fields();
        assert_ne!(fields.number("ProgramCounter"), 0);
        fields.number("VirtualAddress")
    });
    addresses.filter(|address| memory.has(*address)).collect()
}

#[test]
fn fresh_page_faults_once_and_again_on_the_first_write() {
    again(5, || {
        const PAGES: usize = 300;
        let (written, read) = (Fresh::pages(PAGES), Fresh::pages(PAGES));
        let work = || {
            written.write();
            written.write();
            read.read();
            read.write();
        };
        let Some((events, capture)) = capture(&settings_for(&[Group::PAGE_FAULTS]), work) else { return };
        assert_eq!(capture.lost(), 0);
        let pages = |memory: &Fresh| -> Vec<u64> {
            (0..PAGES as u64).map(|page| memory.start + page * PAGE as u64).collect()
        };
        assert_eq!(faults_in(&events, DEMAND_ZERO, &written), pages(&written));
        assert_eq!(faults_in(&events, COPY_ON_WRITE, &written), [0; 0]);
        assert_eq!(faults_in(&events, DEMAND_ZERO, &read), pages(&read));
        assert_eq!(faults_in(&events, COPY_ON_WRITE, &read), pages(&read), "of the zero page");
    });
}

/// Returns the number of this thread's faults that required disk access.
fn hard_faults() -> usize {
    // SAFETY: the call fills the structure.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usize::try_from(usage.ru_majflt).expect("a count")
    }
}

#[test]
fn faults_that_require_disk_access_are_hard_faults() {
    again(5, || {
        const PAGES: usize = 64;
        let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
        file.write_all(&vec![7; PAGES * PAGE]).expect("room");
        file.sync_all().expect("a disk");
        let (length, fd) = (PAGES * PAGE, file.as_raw_fd());
        // SAFETY: creates a new mapping of a file that nothing truncates; advice does not change
        // its contents.
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
        let Some((events, capture)) = capture(&settings_for(&[Group::HARD_FAULTS, Group::PAGE_FAULTS]), work)
        else {
            return;
        };
        assert_eq!(capture.lost(), 0);
        if !skip::can(hard > 0, "kernel events", "the files here are in memory") {
            return;
        }
        let all = with_hooks(&events, &[HARD_FAULT]);
        let mine: Vec<&&CapturedEvent> =
            all.iter().filter(|event| mapped.has(event.fields().number("VirtualAddress"))).collect();
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
fn mapping_and_unmapping_are_recorded_as_alloc_and_free() {
    again(5, || {
        const PAGES: usize = 37;
        let mut range = (0, 0);
        let work = || {
            let fresh = Fresh::pages(PAGES);
            range = (fresh.start, fresh.length as u64);
        };
        let Some((events, _)) = capture(&settings_for(&[Group::VIRTUAL_ALLOC]), work) else { return };
        let pid = u64::from(std::process::id());
        let recorded = |hook| -> Vec<(u64, u64, u64)> {
            let all = with_hooks(&events, &[hook]);
            let all =
                all.iter().map(|event| event.fields()).filter(|fields| fields.number("ProcessId") == pid);
            let all = all.filter(|fields| fields.number("BaseAddress") == range.0);
            all.map(|fields| ["BaseAddress", "RegionSize", "Flags"].map(|name| fields.number(name)).into())
                .collect()
        };
        assert_eq!(recorded(ALLOC), [(range.0, range.1, 0x3000)]);
        assert_eq!(recorded(FREE), [(range.0, range.1, 0x8000)]);
    });
}

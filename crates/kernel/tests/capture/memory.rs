//! Page faults and allocations of a thread that makes a known number of them. These tests need
//! access to tracepoints.

use std::io::Write;
use std::os::fd::AsRawFd;

use traceweir_format::kernel::hook::{
    COPY_ON_WRITE, DEMAND_ZERO_FAULT, HARD_FAULT, VIRTUAL_ALLOC, VIRTUAL_FREE,
};
use traceweir_kernel::Group;

use crate::retry::retry_alternately_with_busy_processors;
use crate::support::{
    CapturedEvent, Fields, FreshMemory, PAGE_BYTES, capture, select_hooks, settings_for, skip, this_thread_id,
};

// Documented allocation types.
const MEM_COMMIT: u64 = 0x1000;
const MEM_RESERVE: u64 = 0x2000;
const MEM_RELEASE: u64 = 0x8000;

/// Returns the addresses of faults with this hook in some memory, in time order.
fn find_faults(events: &[CapturedEvent], hook: u16, memory: &FreshMemory) -> Vec<u64> {
    let faults = select_hooks(events, &[hook]);
    let addresses = faults.iter().map(|event| {
        let fields = event.fields();
        assert_ne!(fields.number("ProgramCounter"), 0);
        fields.number("VirtualAddress")
    });
    addresses.filter(|address| memory.contains(*address)).collect()
}

#[test]
fn page_faults_on_the_first_access_and_on_the_first_write_after_a_read() {
    retry_alternately_with_busy_processors(5, || {
        const PAGES: usize = 300;
        let (written, read) = (FreshMemory::map_pages(PAGES), FreshMemory::map_pages(PAGES));
        let work = || {
            written.write();
            written.write();
            read.read();
            read.write();
        };
        let Some((events, capture)) = capture(&settings_for(&[Group::PAGE_FAULTS]), work) else { return };
        assert_eq!(capture.lost(), 0);
        let pages = |memory: &FreshMemory| -> Vec<u64> {
            (0..PAGES as u64).map(|page| memory.start + page * PAGE_BYTES as u64).collect()
        };
        assert_eq!(find_faults(&events, DEMAND_ZERO_FAULT, &written), pages(&written));
        assert_eq!(find_faults(&events, COPY_ON_WRITE, &written), [0; 0]);
        assert_eq!(find_faults(&events, DEMAND_ZERO_FAULT, &read), pages(&read));
        assert_eq!(find_faults(&events, COPY_ON_WRITE, &read), pages(&read), "copies of the zero page");
    });
}

/// Returns the number of this thread's faults that required disk access.
fn count_hard_faults() -> usize {
    // SAFETY: zeros are a valid `rusage`, which the call fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usize::try_from(usage.ru_majflt).expect("the count is negative")
    }
}

#[test]
fn faults_that_require_disk_access_are_hard_faults() {
    retry_alternately_with_busy_processors(5, || {
        const PAGES: usize = 64;
        let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("the file operation fails");
        file.write_all(&vec![7; PAGES * PAGE_BYTES]).expect("the file is not written");
        file.sync_all().expect("the file does not reach the disk");
        let (length, fd) = (PAGES * PAGE_BYTES, file.as_raw_fd());
        // SAFETY: creates a new mapping of a file that nothing truncates; advice does not change
        // its contents.
        let start = unsafe {
            libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED);
            let start = libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0);
            assert_ne!(start, libc::MAP_FAILED);
            // Without readahead, each page causes a fault of its own.
            libc::madvise(start, length, libc::MADV_RANDOM);
            start as u64
        };
        let mapped = FreshMemory { start, length };
        let mut hard_faults = 0;
        let work = || {
            let before = count_hard_faults();
            mapped.read();
            hard_faults = count_hard_faults() - before;
        };
        let Some((events, capture)) = capture(&settings_for(&[Group::HARD_FAULTS, Group::PAGE_FAULTS]), work)
        else {
            return;
        };
        assert_eq!(capture.lost(), 0);
        if !skip::holds_or_skip(hard_faults > 0, "kernel events", "the files here are in memory") {
            return;
        }
        let faults = select_hooks(&events, &[HARD_FAULT]);
        let own_faults: Vec<&&CapturedEvent> =
            faults.iter().filter(|event| mapped.contains(event.fields().number("VirtualAddress"))).collect();
        assert_eq!(own_faults.len(), hard_faults);
        for event in own_faults {
            let fields = event.fields();
            assert_eq!(fields.number("TThreadId"), u64::from(this_thread_id()));
            assert_eq!((fields.number("ByteCount"), fields.number("FileObject")), (PAGE_BYTES as u64, 0));
            let duration_ns = event.stamp - fields.number("InitialTime");
            assert!(duration_ns > 0 && duration_ns < 10_000_000_000, "{duration_ns} ns");
        }
    });
}

#[test]
fn mapping_and_unmapping_are_recorded_as_alloc_and_free() {
    retry_alternately_with_busy_processors(5, || {
        const PAGES: usize = 37;
        let mut range = (0, 0);
        let work = || {
            let fresh = FreshMemory::map_pages(PAGES);
            range = (fresh.start, fresh.length as u64);
        };
        let Some((events, _)) = capture(&settings_for(&[Group::VIRTUAL_ALLOC]), work) else { return };
        let pid = u64::from(std::process::id());
        let recorded = |hook| -> Vec<(u64, u64, u64)> {
            let is_own = |fields: &Fields| {
                fields.number("ProcessId") == pid && fields.number("BaseAddress") == range.0
            };
            let changes = select_hooks(&events, &[hook]).into_iter().map(CapturedEvent::fields);
            let numbers = |fields: Fields| -> (u64, u64, u64) {
                ["BaseAddress", "RegionSize", "Flags"].map(|name| fields.number(name)).into()
            };
            changes.filter(is_own).map(numbers).collect()
        };
        assert_eq!(recorded(VIRTUAL_ALLOC), [(range.0, range.1, MEM_RESERVE | MEM_COMMIT)]);
        assert_eq!(recorded(VIRTUAL_FREE), [(range.0, range.1, MEM_RELEASE)]);
    });
}

//! Tests of a forked child and the region of its parent.

use traceweir_transport::ring::{RegionReader, RegionSource};

use crate::support::{self, RecordMark};

/// Runs `work` in a forked child. Returns the exit status of the child.
fn run_in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child of this multi-threaded process does only what a signal handler may, and
    // allocates memory, which the C library allows after a fork; it ends with `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let status = work();
            // SAFETY: ends the child without running exit handlers of its parent.
            unsafe { libc::_exit(status) }
        }
        child => {
            assert!(child > 0, "fork failed");
            let mut status = 0;
            // SAFETY: `status` outlives the call, and the child was forked above.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(libc::WIFEXITED(status), "the child was killed: {status:#x}");
            libc::WEXITSTATUS(status)
        }
    }
}

#[test]
fn forked_child_counts_losses_in_parents_region_and_forgets_it() {
    for clock in support::WRITER_CLOCKS {
        let outlet = support::leak_outlet();
        let params = support::region_params(clock, 1 << 16);
        let (mut reader, ticket) = support::open_region(outlet, &params);
        let (mut child_reader, memory) = RegionReader::create(&params).unwrap();
        let mut child_region = Some((memory, support::create_eventfd()));
        let status = run_in_child(|| {
            (0..30).for_each(|_| outlet.count_lost(ticket));
            outlet.forget();
            // Forgetting again does nothing, and the loss after it is not counted.
            outlet.forget();
            outlet.count_lost(ticket);
            // Each step that can fail has its own exit status.
            let Some((memory, wake)) = child_region.take() else { return 2 };
            let Ok(ticket) = outlet.open(RegionSource::File { memory, wake }, &params) else { return 3 };
            let written = (0..20)
                .filter(|number| RecordMark::new(1, *number, 200).write(outlet, ticket).is_ok())
                .count();
            i32::from(!(written == 20 && outlet.close()))
        });
        assert_eq!(status, 0);
        for number in 0..50 {
            RecordMark::new(0, number, 200).write(outlet, ticket).unwrap();
        }
        let (mut parent_records, mut child_records) = (0, 0);
        support::drain_region(&mut reader, &mut Vec::new(), |mark| {
            parent_records += u32::from(mark.writer == 0);
        });
        support::drain_region(&mut child_reader, &mut Vec::new(), |mark| {
            child_records += u32::from(mark.writer == 1);
        });
        assert_eq!((parent_records, child_records, reader.lost(), child_reader.lost()), (50, 20, 30, 0));
        assert!(outlet.close());
    }
}

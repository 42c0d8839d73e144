//! A session region in this process that a test reads itself.

use traceweir_transport::abi::{Layout, RegionParams};
use traceweir_transport::clock::Counter;
use traceweir_transport::cpu;
use traceweir_transport::ring::{RegionReader, Ticket};

use super::outlets;

/// The region of one outlet; each test uses its own outlets.
pub(crate) struct TestRegion {
    pub(crate) outlet: u8,
    pub(crate) ticket: Ticket,
    reader: RegionReader,
}

impl TestRegion {
    pub(crate) fn open(outlet: u8) -> Self {
        // Rings of 64 KiB. The test polls them, so the owner need not be woken before one is full.
        let params = RegionParams {
            layout: Layout::new(cpu::possible(), 1 << 16).unwrap(),
            clock: Counter::best(),
            wake_at: 1 << 16,
            max_record: 65_535,
        };
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let (ticket, reader) = outlets::get(outlet).open_private(&params, wake).unwrap();
        Self { outlet, ticket, reader }
    }

    pub(crate) fn lost_events(&mut self) -> u64 {
        self.reader.lost()
    }

    /// Returns the records that arrived since the last call, with their processors, and asserts
    /// that none were lost.
    pub(crate) fn take_records(&mut self) -> Vec<(u16, Vec<u8>)> {
        let mut records = Vec::new();
        for ring in self.reader.rings() {
            ring.poll().unwrap();
            while let Some(head) = ring.peek().unwrap() {
                let mut bytes = vec![0; head.length];
                ring.take(&mut bytes);
                records.push((head.cpu, bytes));
            }
            ring.release();
        }
        assert_eq!(self.reader.lost(), 0);
        records
    }
}

impl Drop for TestRegion {
    fn drop(&mut self) {
        assert!(outlets::get(self.outlet).close());
    }
}

//! Fuzzes a region of shared memory that its process fills with any bytes while the owner drains
//! the rings.
//!
//! The first byte chooses the number of CPUs and the ring size. Steps of eleven bytes follow:
//! operation in bits 0 to 2 and ring in bits 4 to 7 (1 byte), number of the word (2 bytes), value
//! of the word (8 bytes).
#![no_main]

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use libfuzzer_sys::fuzz_target;
use traceweir_transport::abi::{self, CONTROL_BYTES, Layout, PAGE, RegionParams};
use traceweir_transport::clock::Counter;
use traceweir_transport::map::Mapping;
use traceweir_transport::ring::{RegionReader, RingReader};

const MAX_RECORD_BYTES: u32 = 1000;

/// Drains a ring, and checks that the reader returns no more than a ring holds.
fn drain_ring(ring: &mut RingReader, layout: &Layout) {
    let mut out = [0; MAX_RECORD_BYTES as usize];
    let mut bytes = 0;
    let _ = ring.poll();
    while let Ok(Some(prefix)) = ring.peek() {
        assert!((1..=out.len()).contains(&prefix.length) && prefix.cpu < layout.cpus());
        bytes += abi::size_in_ring(prefix.length);
        assert!(bytes <= layout.ring_bytes() as usize, "the reader must not return more than a ring holds");
        ring.take(&mut out[..prefix.length]);
    }
    ring.release();
}

fuzz_target!(|data: &[u8]| {
    let Some((flags, steps)) = data.split_first() else { return };
    let ring_bytes = if flags & 2 == 0 { 4096 } else { 32768 };
    let layout = Layout::new(1 + u16::from(flags & 1), ring_bytes).expect("the layout is valid");
    let params = RegionParams { layout, clock: Counter::Cycles, wake_at: 1, max_record: MAX_RECORD_BYTES };
    let (mut reader, memory) = RegionReader::create(&params).expect("the region can be created");
    let map =
        Mapping::from_file(memory.as_fd(), layout.region_bytes(), true).expect("the region can be mapped");
    let mut lost = 0;
    for step in steps.chunks_exact(11) {
        let ring = usize::from(step[0] >> 4) % layout.rings();
        let word = usize::from(u16::from_le_bytes([step[1], step[2]])) * 8;
        let value = u64::from_le_bytes(step[3..].try_into().expect("the value has eight bytes"));
        let (control, data) = (layout.control_offset(ring), layout.data_offset(ring));
        let data_offset = word % ring_bytes as usize;
        let store = |at: usize| {
            map.word(at).expect("the word is inside of the region").store(value, Ordering::Relaxed)
        };
        match step[0] & 7 {
            0..=2 => store(data + data_offset),
            3 | 4 => store(control + word % CONTROL_BYTES),
            5 => map.give_back(data + data_offset / PAGE * PAGE, PAGE),
            6 => drain_ring(&mut reader.rings()[ring], &layout),
            _ => reader.measure_rates(),
        }
        let lost_now = reader.lost();
        assert!(lost_now >= lost, "the number of lost events must not fall");
        lost = lost_now;
    }
    reader.rings().iter_mut().for_each(|ring| drain_ring(ring, &layout));
});

//! Checks the example of `docs/spec/shm-abi.md` byte by byte.

use std::os::fd::AsFd;

use traceweir_transport::abi::{Layout, RegionParams};
use traceweir_transport::clock::Counter;
use traceweir_transport::map::Mapping;
use traceweir_transport::ring::{Gather, RegionReader, RegionSource};

use crate::support;

fn read_bytes<const N: usize>(map: &Mapping, offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    assert!(map.copy_out(offset, &mut bytes));
    bytes
}

#[test]
fn written_bytes_match_the_specification() {
    support::pin_to_cpu(0);
    let layout = Layout::new(2, 0x1000).unwrap();
    let params = RegionParams { layout, clock: Counter::Monotonic, wake_at: 0x1000, max_record: 2000 };
    let (mut reader, memory) = RegionReader::create(&params).unwrap();
    assert_eq!(layout.region_bytes(), 0x5000);
    let map = Mapping::from_file(memory.as_fd(), 0x5000, true).unwrap();
    let outlet = support::leak_outlet();
    let ticket =
        outlet.open(RegionSource::File { memory, wake: support::create_eventfd() }, &params).unwrap();
    let write = |record: &[u8]| {
        let mut staged = vec![0u64; 2 + record.len().div_ceil(8)];
        for (word, bytes) in staged[2..].iter_mut().zip(record.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(padded);
        }
        let (staged, staged_bytes) = (&mut staged[..], record.len());
        outlet.write(ticket, 1, &mut Gather { staged, staged_bytes, further_parts: &[], flags: 0 }).unwrap();
    };

    write(b"hello");
    // Ring `r` has its control block at 0x100 + r * 0x100 and its data at 0x1000 + r * 0x1000.
    // With two CPUs, rings 2 and 3 are those with locks.
    // The thread is pinned to the first CPU that this process may use. If that is not CPU 0, the
    // head of ring 2 (at 0x300) is still 0, and the record is in ring 3.
    let cpu = u8::from(read_bytes::<1>(&map, 0x300) == [0]);
    let (control, data) = (0x300 + usize::from(cpu) * 0x100, 0x3000 + usize::from(cpu) * 0x1000);
    // Prefix: u32 length, u16 CPU, u16 flags, u64 stamp.
    assert_eq!(read_bytes(&map, data), [5, 0, 0, 0, cpu, 0, 0, 0]);
    assert_ne!(u64::from_le_bytes(read_bytes(&map, data + 8)), 0);
    assert_eq!(&read_bytes::<5>(&map, data + 16), b"hello");
    // The head is the size of the record (16 + 5 bytes, padded to 0x18), and the lock is free.
    assert_eq!(read_bytes(&map, control), [0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

    let mut take_records = || {
        let ring = &mut reader.rings()[2 + usize::from(cpu)];
        assert!(support::discard_records(ring) > 0);
    };
    take_records();
    // The words `tail` and `read`.
    assert_eq!(read_bytes(&map, control + 0x80), [0x18, 0, 0, 0, 0, 0, 0, 0, 0x18, 0, 0, 0, 0, 0, 0, 0]);
    write(&[7; 1992]);
    write(&[8; 1992]);
    assert_eq!(read_bytes(&map, control), [0xC8, 0x0F]);
    write(b"hello");
    assert_eq!(read_bytes(&map, control), [0xE0, 0x0F]);
    take_records();
    // The record takes 0x78 bytes. Only 0x20 are left before the end of the ring, so the writer
    // stores a skip marker there and continues at the start: 0xFE0 + 0x20 + 0x78 = 0x1078.
    write(&[9; 100]);
    assert_eq!(read_bytes(&map, data + 0xFE0), [0xFF; 4]);
    assert_eq!(read_bytes(&map, data), [100, 0, 0, 0, cpu, 0, 0, 0]);
    assert_eq!(read_bytes(&map, control), [0x78, 0x10, 0, 0, 0, 0, 0, 0]);
    take_records();
    assert!(outlet.close());
}

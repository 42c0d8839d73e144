//! Tests of regions whose process breaks every rule. The drain reports the damage or reads valid
//! records, and reads at most as many bytes as a ring holds.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use traceweir_transport::abi::{self, Layout, PAGE, RegionParams, control};
use traceweir_transport::clock::Counter;
use traceweir_transport::map::Mapping;
use traceweir_transport::ring::{Damaged, RegionReader, RingReader};

use crate::support::Random;

const REGIONS: u64 = 60_000;
const MAX_RECORD: u32 = 1500;

fn create_region(cpus: u16, ring_bytes: u32) -> (RegionReader, Mapping) {
    let layout = Layout::new(cpus, ring_bytes).unwrap();
    let params = RegionParams { layout, clock: Counter::Cycles, wake_at: 1, max_record: MAX_RECORD };
    let (reader, memory) = RegionReader::create(&params).unwrap();
    let map = Mapping::from_file(memory.as_fd(), layout.region_bytes(), true).unwrap();
    (reader, map)
}

/// Drains a ring as far as possible. Fails if it is damaged; panics if the work is not bounded or a
/// value is impossible.
fn drain_ring(ring: &mut RingReader, cpus: u16, ring_bytes: u32) -> Result<(), Damaged> {
    let mut out = vec![0; MAX_RECORD as usize];
    let mut bytes = 0;
    ring.poll()?;
    while let Some(prefix) = ring.peek()? {
        assert!(prefix.length > 0 && prefix.length <= MAX_RECORD as usize);
        assert!(prefix.cpu < cpus);
        ring.take(&mut out);
        bytes += abi::size_in_ring(prefix.length);
        assert!(bytes <= ring_bytes as usize, "more was read than a ring holds");
    }
    ring.release();
    Ok(())
}

fn random_word(random: &mut Random, ring_bytes: u32) -> u64 {
    match random.below(8) {
        0 => 0,
        1 => u64::from(abi::SKIP),
        2 => random.next(),
        3 => random.below(u64::from(ring_bytes) * 2),
        4 => random.below(64) * 8,
        5 => abi::size_in_ring(random.below(2000) as usize) as u64,
        6 => u64::MAX - random.below(64),
        // A prefix: length, CPU and flags.
        _ => random.below(2000) | random.below(4) << 32 | random.below(4) << 48,
    }
}

/// Fills a ring with whole records or with random words. Then changes up to two words of its data,
/// sometimes a word of its control block, and sometimes replaces a page by zeros.
fn damage(random: &mut Random, map: &Mapping, layout: &Layout, ring: usize) {
    let ring_bytes = u64::from(layout.ring_bytes());
    let put = |offset: usize, value: u64| map.word(offset).unwrap().store(value, Ordering::Relaxed);
    let (control, data) = (layout.control_offset(ring), layout.data_offset(ring));
    let mut head = 0;
    if random.below(3) > 0 {
        let cpu = (ring % usize::from(layout.cpus())) as u64;
        loop {
            let length = 1 + random.below(u64::from(MAX_RECORD));
            let size = abi::size_in_ring(length as usize) as u64;
            if head + size > ring_bytes || random.below(20) == 0 {
                break;
            }
            put(data + head as usize, length | cpu << 32);
            head += size;
        }
    } else {
        for _ in 0..random.below(200) {
            put(data + random.below(ring_bytes / 8) as usize * 8, random_word(random, layout.ring_bytes()));
        }
        head = random_word(random, layout.ring_bytes());
    }
    put(control + control::HEAD, head);
    for _ in 0..random.below(3) {
        put(data + random.below(ring_bytes / 8) as usize * 8, random_word(random, layout.ring_bytes()));
    }
    if random.below(4) == 0 {
        let offsets =
            [control::HEAD, control::LOST, control::WOKEN, control::TAIL, control::READ, control::LOCK];
        put(control + offsets[random.below(6) as usize], random_word(random, layout.ring_bytes()));
    }
    if random.below(8) == 0 {
        map.give_back(data + random.below(ring_bytes / PAGE as u64) as usize * PAGE, PAGE);
    }
}

#[test]
fn damaged_rings_are_reported_or_read_validly() {
    let mut random = Random(0x5EED);
    let (mut valid, mut damaged) = (0, 0);
    for _ in 0..REGIONS {
        let ring_bytes = 4096 << random.below(2);
        let (mut reader, map) = create_region(1, ring_bytes);
        let layout = reader.params().layout;
        for step in 0..3 {
            let ring = (step % 2) as usize;
            damage(&mut random, &map, &layout, ring);
            match drain_ring(&mut reader.rings()[ring], 1, ring_bytes) {
                Ok(()) => valid += 1,
                Err(Damaged) => {
                    damaged += 1;
                    assert!(reader.is_damaged());
                    assert!(reader.rings().iter_mut().all(|ring| ring.poll() == Err(Damaged)));
                    break;
                }
            }
        }
        assert!(reader.lost() < 1 << 40, "an impossible number of losses was counted");
    }
    assert!(valid + damaged >= 100_000, "only {} rings", valid + damaged);
    assert!(valid > 1000 && damaged > 1000, "{valid} valid, {damaged} damaged");
}

#[test]
fn region_overwritten_during_reading_does_no_harm() {
    let stop = AtomicBool::new(false);
    for round in 0..150u64 {
        let ring_bytes = 1 << 14;
        let (mut reader, map) = create_region(2, ring_bytes);
        let layout = reader.params().layout;
        stop.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(round + 1);
                while !stop.load(Ordering::Relaxed) {
                    let ring = random.below(4) as usize;
                    damage(&mut random, &map, &layout, ring);
                }
            });
            for turn in 0..200 {
                let ring = turn % layout.rings();
                let _ = drain_ring(&mut reader.rings()[ring], layout.cpus(), ring_bytes);
                let _ = reader.lost();
                reader.measure_rates();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn jumping_loss_counter_does_not_corrupt_the_total() {
    let (mut reader, map) = create_region(1, 4096);
    let lost = map.word(reader.params().layout.control_offset(0) + control::LOST).unwrap();
    lost.store(5, Ordering::Relaxed);
    assert_eq!(reader.lost(), 5);
    lost.store(3, Ordering::Relaxed);
    assert_eq!(reader.lost(), 5);
    lost.store(u64::MAX, Ordering::Relaxed);
    let jumped = reader.lost();
    assert!((5..1 << 40).contains(&jumped), "{jumped} losses in less time than counting them takes");
    lost.store(0, Ordering::Relaxed);
    assert_eq!(reader.lost(), jumped);
}

/// Breaks the rules of heads and prefixes one at a time.
#[test]
fn each_broken_rule_is_detected() {
    // The prefix of a record of 24 bytes, which takes 40 bytes in the ring.
    let valid_word = 24u64;
    // Violation, head, words at the start of the ring's data. Rings have 4096 bytes.
    let cases: [(&str, u64, &[u64]); 11] = [
        ("a length of zero, as in a punched hole", 24, &[0]),
        ("a record longer than the session allows", 2048, &[1501]),
        ("a record longer than any record can be", 2048, &[70_000]),
        ("a record that ends after the head", 32, &[valid_word]),
        ("another processor", 40, &[valid_word | 1 << 32]),
        ("an unknown flag", 40, &[valid_word | u64::from(abi::FLAGS + 1) << 48]),
        ("a head that is not a multiple of eight", 44, &[valid_word]),
        ("a head too far", 4104, &[valid_word]),
        ("a marker at the start", 4096, &[u64::from(abi::SKIP)]),
        ("a marker with nothing after it", 4096, &[8, 0, 0, u64::from(abi::SKIP)]),
        ("a marker that points past the head", 64, &[8, 0, 0, u64::from(abi::SKIP)]),
    ];
    for (violation, head, words) in cases {
        let (mut reader, map) = create_region(1, 4096);
        let layout = reader.params().layout;
        for (at, word) in words.iter().enumerate() {
            map.word(layout.data_offset(0) + at * 8).unwrap().store(*word, Ordering::Relaxed);
        }
        map.word(layout.control_offset(0) + control::HEAD).unwrap().store(head, Ordering::Relaxed);
        assert_eq!(drain_ring(&mut reader.rings()[0], 1, 4096), Err(Damaged), "{violation}");
    }
    let (mut reader, map) = create_region(1, 4096);
    let layout = reader.params().layout;
    let head = map.word(layout.control_offset(0) + control::HEAD).unwrap();
    map.word(layout.data_offset(0)).unwrap().store(valid_word, Ordering::Relaxed);
    head.store(40, Ordering::Relaxed);
    assert_eq!(drain_ring(&mut reader.rings()[0], 1, 4096), Ok(()), "a valid record was rejected");
    head.store(32, Ordering::Relaxed);
    assert_eq!(drain_ring(&mut reader.rings()[0], 1, 4096), Err(Damaged), "a head went back unnoticed");
}

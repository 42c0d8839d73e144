//! Measures the processor time of one write and of one drained record. Run it manually; it asserts
//! no limits:
//!
//! ```text
//! cargo test --release -p traceweir-transport --test speed -- --ignored --nocapture
//! ```

use std::hint::black_box;

use rustix::event::EventfdFlags;
use rustix::time::{ClockId, clock_gettime};
use traceweir_transport::abi::{Layout, RegionParams};
use traceweir_transport::clock::Counter;
use traceweir_transport::cpu;
use traceweir_transport::ring::{Block, Gather, Outlet, RegionReader, RegionSource, Ticket};

const ROUNDS: u32 = 2000;
const EVENTS_PER_ROUND: u64 = 2000;

static OUTLET: Outlet = Outlet::new();

fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn open(ring_bytes: u32) -> (RegionReader, Ticket) {
    let layout = Layout::new(cpu::possible(), ring_bytes).unwrap();
    let params = RegionParams { layout, clock: Counter::best(), wake_at: ring_bytes, max_record: 60_000 };
    let (reader, memory) = RegionReader::create(&params).unwrap();
    let wake = rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let ticket = OUTLET.open(RegionSource::File { memory, wake }, &params).unwrap();
    (reader, ticket)
}

/// Drains all rings. Returns the number of records and the time in nanoseconds.
fn drain(reader: &mut RegionReader, out: &mut [u8]) -> (u64, u64) {
    let (before, mut records) = (thread_ns(), 0);
    for ring in reader.rings() {
        ring.poll().unwrap();
        while ring.peek().unwrap().is_some() {
            ring.take(out);
            records += 1;
        }
        ring.release();
    }
    (records, thread_ns() - before)
}

fn measure_write(name: &str, mut write: impl FnMut(Ticket, u64)) {
    let (mut reader, ticket) = open(1 << 20);
    let mut out = vec![0; 65536];
    let (mut best_ns, mut total_ns, mut records, mut total_drain_ns) = (u64::MAX, 0, 0, 0);
    for round in 0..ROUNDS {
        let before = thread_ns();
        for event in 0..EVENTS_PER_ROUND {
            write(ticket, event);
        }
        let elapsed_ns = thread_ns() - before;
        let (seen, drain_ns) = drain(&mut reader, &mut out);
        // The first quarter of the rounds warms up caches and clock rates.
        if round >= ROUNDS / 4 {
            best_ns = best_ns.min(elapsed_ns);
            total_ns += elapsed_ns;
            records += seen;
            total_drain_ns += drain_ns;
        }
    }
    assert_eq!(reader.lost(), 0);
    assert!(OUTLET.close());
    let events = (u64::from(ROUNDS - ROUNDS / 4) * EVENTS_PER_ROUND) as f64;
    println!(
        "{name:24} write {:6.1} ns (best round {:6.1}), drain {:6.1} ns",
        total_ns as f64 / events,
        best_ns as f64 / EVENTS_PER_ROUND as f64,
        total_drain_ns as f64 / records as f64
    );
}

fn measure_staged<const WORDS: usize>(template: &[u64; 40]) {
    measure_write(&format!("staged {}", WORDS * 8), |ticket, event| {
        let mut staged = [[0u64; WORDS], [0; WORDS]];
        let staged = staged.as_flattened_mut();
        // The first two words are for the prefix.
        staged[2..2 + WORDS].copy_from_slice(&template[..WORDS]);
        staged[4] = event;
        let (staged, staged_bytes) = (&mut staged[..2 + WORDS], WORDS * 8);
        let mut record = Gather { staged, staged_bytes, further_parts: &[], flags: 0 };
        OUTLET.write(ticket, 7, &mut record).unwrap();
    });
}

#[test]
#[ignore = "a measurement, to be run by hand"]
fn cost_of_one_write() {
    // The name of a measurement contains the bytes of its records. "92 + N in place" means that 92
    // bytes are staged and N bytes are copied from their own memory into the ring.
    let template = black_box([3u64; 40]);
    let text = black_box([b'x'; 4096]);
    measure_staged::<10>(&template);
    measure_staged::<15>(&template);
    measure_staged::<35>(&template);
    for part_bytes in [28, 188, 400usize] {
        measure_write(&format!("staged 92 + {part_bytes} in place"), |ticket, event| {
            let mut staged = [0u64; 16];
            staged[2..14].copy_from_slice(&template[..12]);
            staged[4] = event;
            let rest = [Block::new(&text[..part_bytes])];
            let mut record = Gather { staged: &mut staged, staged_bytes: 92, further_parts: &rest, flags: 0 };
            OUTLET.write(ticket, 7, &mut record).unwrap();
        });
    }
}

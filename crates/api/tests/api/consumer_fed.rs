//! Traces fed with buffers by the program: order, ends of buffers, refused buffers, and corrupt
//! bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use traceweir::Status;
use traceweir::consumer::{
    Buffer, Event, Feeder, Handler, Interest, Kind, Lent, Loss, Trace, Window, deliver,
};
use traceweir_format::buffer::{BufferHeader, HEADER_SIZE};
use traceweir_format::etl;
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::time::FileTime;

fn fixture_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/etl").join(name)
}

/// Returns the buffers of a file as its session wrote them, decompressed.
fn load_buffers(name: &str) -> Vec<Vec<u8>> {
    let trace = etl::Trace::open(File::open(fixture_path(name)).unwrap()).unwrap();
    let load = |buffer: &etl::BufferRef| {
        let mut bytes = Vec::new();
        trace.load(buffer, &mut bytes).unwrap();
        bytes
    };
    trace.buffers_as_written().iter().map(load).collect()
}

/// Records what the handler receives, in order.
#[derive(Default)]
struct RecordingHandler {
    interest: Interest,
    /// Index and processor count of each trace that has begun.
    begun: Vec<(usize, u32)>,
    /// Processor, time and payload length of each event.
    events: Vec<(u16, i64, usize)>,
    losses: u64,
    /// Number of events so far at the end of each buffer, with its processor and bytes.
    buffer_ends: Vec<(usize, u16, Vec<u8>)>,
    /// Number of buffer ends at which the handler breaks; 0 for never.
    max_ends: usize,
}

impl Handler for RecordingHandler {
    fn interest(&self, _: usize) -> Interest {
        self.interest
    }

    fn begins(&mut self, trace: usize, header: &LogFileHeader, _: u16) {
        assert!(self.events.is_empty());
        self.begun.push((trace, header.processors));
    }

    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        self.events.push((event.record.cpu(), event.time.0, event.record.payload().len()));
        ControlFlow::Continue(())
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.losses += loss.lost.events + loss.lost.buffers;
        ControlFlow::Continue(())
    }

    fn buffer(&mut self, buffer: Buffer<'_>) -> ControlFlow<()> {
        let mut bytes = Vec::new();
        buffer.copy_to(&mut bytes).unwrap();
        self.buffer_ends.push((self.events.len(), buffer.header.processor_index, bytes));
        if self.buffer_ends.len() == self.max_ends {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// A buffer that increments a counter when it is given back.
struct CountedBuffer(Vec<u8>, Arc<AtomicUsize>);

impl Lent for CountedBuffer {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn give_back(self: Box<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Feeds all buffers before processing begins. Returns the status of each, and the number of
/// accepted buffers.
fn feed_all(buffers: Vec<Vec<u8>>, received: &mut RecordingHandler) -> (Vec<Status>, usize) {
    let (trace, feeder) = Trace::from_buffers().unwrap();
    let given_back = Arc::new(AtomicUsize::new(0));
    let add = |bytes| match feeder.add(Box::new(CountedBuffer(bytes, Arc::clone(&given_back)))) {
        Ok(()) => Status::ERROR_SUCCESS,
        Err(error) => error.status(),
    };
    let statuses: Vec<Status> = buffers.into_iter().map(add).collect();
    trace.closer().end();
    deliver(vec![trace], &Window::default(), received).unwrap();
    assert_eq!(
        feeder.add(Box::new(Vec::new())).unwrap_err().status(),
        Status::ERROR_INVALID_PARAMETER,
        "a buffer without bytes was not refused"
    );
    let accepted = statuses.iter().filter(|status| **status == Status::ERROR_SUCCESS).count();
    assert_eq!(given_back.load(Ordering::Relaxed), accepted, "not all accepted buffers were given back");
    (statuses, accepted)
}

/// Reads a fixture as a file, instead of feeding its buffers.
fn read_fixture(name: &str, interest: Interest, window: &Window) -> RecordingHandler {
    let mut received = RecordingHandler { interest, ..RecordingHandler::default() };
    deliver(vec![Trace::open(fixture_path(name)).unwrap()], window, &mut received).unwrap();
    received
}

#[test]
fn fed_buffers_of_a_file_give_its_events() {
    for name in ["manifest.etl", "compressed.etl", "kernel.etl", "tracelogging.etl"] {
        let expected = read_fixture(name, Interest::Events, &Window::default());
        let mut received =
            RecordingHandler { interest: Interest::EventsAndBuffers, ..RecordingHandler::default() };
        let buffers = load_buffers(name);
        let (_, accepted) = feed_all(buffers.clone(), &mut received);
        assert_eq!(
            (accepted, received.buffer_ends.len(), received.losses),
            (buffers.len(), buffers.len(), 0),
            "{name}"
        );
        assert_eq!(received.begun, expected.begun, "{name}");
        let group_by_cpu = |events: &[(u16, i64, usize)]| {
            let mut by_cpu: BTreeMap<u16, Vec<(i64, usize)>> = BTreeMap::new();
            events
                .iter()
                .for_each(|(cpu, time, length)| by_cpu.entry(*cpu).or_default().push((*time, *length)));
            by_cpu
        };
        assert_eq!(
            group_by_cpu(&received.events),
            group_by_cpu(&expected.events),
            "{name}: the order of each processor"
        );
    }
}

#[test]
fn buffer_callback_follows_its_events_and_has_the_file_bytes() {
    for name in ["manifest.etl", "compressed.etl", "merged.etl", "narrow.etl"] {
        let received = read_fixture(name, Interest::EventsAndBuffers, &Window::default());
        let buffers_only = read_fixture(name, Interest::Buffers, &Window::default());
        assert!(buffers_only.events.is_empty() && !received.events.is_empty());
        let sorted_bytes = |received: &RecordingHandler| {
            let mut buffers: Vec<Vec<u8>> =
                received.buffer_ends.iter().map(|(.., bytes)| bytes.clone()).collect();
            buffers.sort();
            buffers
        };
        let mut expected = load_buffers(name);
        assert_eq!(
            buffers_only.buffer_ends.iter().map(|(.., bytes)| bytes).collect::<Vec<_>>(),
            expected.iter().collect::<Vec<_>>()
        );
        expected.sort();
        assert_eq!(sorted_bytes(&received), expected, "{name}");
        assert_eq!(
            received.buffer_ends.last().map(|(events_so_far, ..)| *events_so_far),
            Some(received.events.len()),
            "{name}: an event follows the end of the last buffer"
        );
        // By the end of a buffer with records, its processor has delivered an event.
        for (events_so_far, cpu, bytes) in &received.buffer_ends {
            let header = BufferHeader::parse(bytes.first_chunk().unwrap());
            assert!(header.offset as usize == bytes.len() && !header.is_compressed());
            let cpu_events =
                received.events[..*events_so_far].iter().filter(|(event_cpu, ..)| event_cpu == cpu).count();
            assert!(cpu_events > 0 || bytes.len() == HEADER_SIZE, "{name}");
        }
    }
}

#[test]
fn time_window_includes_both_ends() {
    let events = read_fixture("manifest.etl", Interest::Events, &Window::default()).events;
    let times: Vec<FileTime> = events.iter().map(|(_, time, _)| FileTime(*time)).collect();
    let (first, last) = (times[times.len() / 3], times[times.len() / 2]);
    for window in [
        Window::new(Some(first), Some(last)),
        Window::new(Some(first), None),
        Window::new(None, Some(last)),
        Window::new(Some(first), Some(first)),
    ] {
        let is_inside =
            |time| window.from.is_none_or(|from| time >= from.0) && window.to.is_none_or(|to| time <= to.0);
        let expected: Vec<_> = events.iter().copied().filter(|(_, time, _)| is_inside(*time)).collect();
        assert!(!expected.is_empty());
        assert_eq!(read_fixture("manifest.etl", Interest::Events, &window).events, expected);
    }
    let backwards = Window::new(Some(last), Some(FileTime(last.0 - 1)));
    let trace = Trace::open(fixture_path("manifest.etl")).unwrap();
    let error = deliver(vec![trace], &backwards, &mut RecordingHandler::default()).unwrap_err();
    assert_eq!(error.status(), Status::ERROR_INVALID_TIME);
}

#[test]
fn handler_can_break_at_the_end_of_a_buffer() {
    let mut received =
        RecordingHandler { interest: Interest::EventsAndBuffers, max_ends: 1, ..RecordingHandler::default() };
    let buffers = load_buffers("kernel.etl");
    let (_, accepted) = feed_all(buffers, &mut received);
    assert!(accepted > 1);
    assert_eq!(received.buffer_ends.len(), 1);
}

#[test]
fn invalid_and_foreign_buffers_are_refused() {
    const REFUSED: Status = Status::ERROR_INVALID_PARAMETER;
    const ACCEPTED: Status = Status::ERROR_SUCCESS;
    let good = load_buffers("kernel.etl");
    assert!(good.len() > 2, "{}", good.len());
    // Without the log-file header no buffer is accepted; after the header, others are.
    let (statuses, _) =
        feed_all(vec![good[1].clone(), good[0].clone(), good[1].clone()], &mut RecordingHandler::default());
    assert_eq!(statuses, [REFUSED, ACCEPTED, ACCEPTED]);
    // After the header come three bad buffers: one is shorter than a buffer header (72 bytes), one
    // is shorter than its count of valid bytes (at 0x30), and one has the count 0.
    let short = good[1][..good[1].len() - 8].to_vec();
    let mut without_records = good[1].clone();
    without_records[0x30..0x34].fill(0);
    let (statuses, _) = feed_all(
        vec![good[0].clone(), vec![0; 71], short, without_records],
        &mut RecordingHandler::default(),
    );
    assert_eq!(statuses, [ACCEPTED, REFUSED, REFUSED, REFUSED]);
    // The buffers of a processor must come in the order of their sequence numbers (at 0x18).
    let parse_header = |bytes: &Vec<u8>| BufferHeader::parse(bytes.first_chunk().unwrap());
    let mut later = good[1].clone();
    later[0x18..0x20].copy_from_slice(&(parse_header(&good[1]).sequence_number + 100).to_le_bytes());
    let mut earlier = good[1].clone();
    earlier[0x18..0x20].copy_from_slice(&(parse_header(&good[1]).sequence_number + 99).to_le_bytes());
    let (statuses, _) = feed_all(vec![good[0].clone(), later, earlier], &mut RecordingHandler::default());
    assert_eq!(statuses, [ACCEPTED, ACCEPTED, REFUSED]);
}

#[test]
fn fed_trace_cannot_be_combined_with_others() {
    let (trace, _feeder) = Trace::from_buffers().unwrap();
    assert_eq!((trace.kind(), trace.header().processors), (Kind::Buffers, 0));
    let file = Trace::open(fixture_path("manifest.etl")).unwrap();
    let error = deliver(vec![trace, file], &Window::default(), &mut RecordingHandler::default()).unwrap_err();
    assert_eq!(error.status(), Status::ERROR_INVALID_PARAMETER);
}

#[test]
fn feeder_can_wait_for_each_buffer_before_the_next() {
    fn feed_one_by_one(feeder: &Feeder, buffers: &[Vec<u8>], given_back: &Arc<AtomicUsize>) {
        for (n, bytes) in buffers.iter().enumerate() {
            feeder.add(Box::new(CountedBuffer(bytes.clone(), Arc::clone(given_back)))).unwrap();
            while given_back.load(Ordering::Relaxed) <= n {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    let buffers = load_buffers("manifest.etl");
    let (trace, feeder) = Trace::from_buffers().unwrap();
    let (closer, given_back) = (trace.closer(), Arc::new(AtomicUsize::new(0)));
    let mut received = RecordingHandler::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            feed_one_by_one(&feeder, &buffers, &given_back);
            closer.end();
        });
        deliver(vec![trace], &Window::default(), &mut received).unwrap();
    });
    assert_eq!(
        received.events.len(),
        read_fixture("manifest.etl", Interest::Events, &Window::default()).events.len()
    );
}

#[test]
fn corrupt_buffers_cause_no_panic() {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    for name in ["kernel.etl", "manifest.etl", "compressed.etl"] {
        let good = load_buffers(name);
        for _ in 0..60 {
            let mut buffers = good.clone();
            for _ in 0..=random(12) {
                let index = random(buffers.len());
                let bytes = &mut buffers[index];
                // Changes headers of buffers and records more often than other bytes.
                let reach = [0x48, 0x100, bytes.len()][random(3)].min(bytes.len());
                let at = random(reach);
                bytes[at] = [0, 0xFF, 0x40, u8::try_from(random(256)).unwrap()][random(4)];
            }
            let interest = [Interest::Events, Interest::EventsAndBuffers, Interest::Buffers][random(3)];
            feed_all(buffers, &mut RecordingHandler { interest, ..RecordingHandler::default() });
        }
    }
}

//! Tests that a capture of complete events runs beside another capture.

use super::captured::{FakeCapture, PendingEvent};
use super::*;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;

use rustix::event::{EventfdFlags, eventfd};
use traceweir_format::Guid;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::ExtType;
use traceweir_transport::clock::Anchor;

use crate::capture::{Capture, CaptureClock, CapturedRecord};

const PROVIDER: Guid = Guid::from_u128(0x1111);

/// A capture of complete events; the hook of a pending event becomes the process id.
struct CompleteCapture {
    inner: FakeCapture,
    has_ended: Arc<AtomicBool>,
    dropped: Sender<()>,
}

impl Capture for CompleteCapture {
    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.inner.wake_fd()
    }

    fn has_complete_events(&self) -> bool {
        true
    }

    fn is_finished(&self) -> bool {
        self.has_ended.load(Relaxed) && self.inner.queue.is_empty()
    }

    fn poll(&mut self, clock: &dyn CaptureClock, _: bool) {
        for (ns, hook, payload) in self.inner.pending.lock().unwrap().drain(..) {
            let items = [Item { kind: ExtType::STACK_TRACE64, data: &[0; 16] }];
            let (process_id, items) = (hook.into(), &items[..]);
            let header = EventHeader { provider: PROVIDER, process_id, items, ..EventHeader::default() };
            let mut record = Vec::new();
            header.encode(&payload, &mut record).unwrap();
            let length = usize::from(u16::from_le_bytes([record[0], record[1]]));
            record.truncate(length);
            self.inner.queue.push_back((clock.raw(ns), false, record));
        }
    }

    fn peek(&self, stream: u16) -> Option<CapturedRecord> {
        self.inner.peek(stream)
    }

    fn take(&mut self, stream: u16, out: &mut [u8]) {
        self.inner.take(stream, out);
    }

    fn lost(&self) -> u64 {
        self.inner.lost()
    }

    fn end(&mut self, clock: &dyn CaptureClock) {
        self.poll(clock, true);
    }
}

impl Drop for CompleteCapture {
    fn drop(&mut self) {
        let _ = self.dropped.send(());
    }
}

fn fake_capture(pending: &Arc<Mutex<VecDeque<PendingEvent>>>) -> FakeCapture {
    FakeCapture {
        pending: Arc::clone(pending),
        queue: VecDeque::new(),
        wake: eventfd(0, EventfdFlags::NONBLOCK).unwrap(),
        lost: Arc::default(),
        last_hook: None,
    }
}

#[test]
fn complete_events_come_between_events_and_their_stacks_without_harm() {
    let fixture = SessionFixture::with_file(session_config(0));
    let (classic, complete) = (Arc::default(), Arc::default());
    let (has_ended, (dropped, drops)) = (Arc::new(AtomicBool::new(false)), channel());
    let inner = fake_capture(&complete);
    let source = CompleteCapture { inner, has_ended: Arc::clone(&has_ended), dropped };
    fixture.session.capture(Box::new(source));
    fixture.session.capture(Box::new(fake_capture(&classic)));
    let now = || Anchor::now(traceweir_transport::clock::Counter::best()).monotonic_ns;
    let stack: Vec<u8> = [0_u64, 9, 8].iter().flat_map(|word| word.to_le_bytes()).collect();
    let start = now();
    for number in 0..100_u64 {
        let time = start + number * 1000;
        let events = [(time, hook::CONTEXT_SWITCH, vec![1; 8]), (time, hook::STACK_WALK, stack.clone())];
        classic.lock().unwrap().extend(events);
        // A complete event with the time of the classic event. Every tenth is too large for a
        // buffer.
        let size = if number % 10 == 9 { 60 << 10 } else { 5 };
        complete.lock().unwrap().push_back((time, 77, vec![number.to_le_bytes()[0]; size]));
    }
    std::thread::sleep(Duration::from_millis(1));
    has_ended.store(true, Relaxed);
    assert_eq!(drops.recv_timeout(Duration::from_secs(60)), Ok(()), "the finished capture is kept");
    assert_eq!(fixture.stop().events_lost, 10, "only the complete events that are too large are lost");
    let trace = Trace::open(File::open(fixture.log_path()).unwrap()).unwrap();
    let (mut events, mut last, mut numbers, mut stacks) = (trace.events(), 0, Vec::new(), 0);
    while let Some(event) = events.next().unwrap() {
        match event.hook() {
            Some(hook::CONTEXT_SWITCH) => last = event.time(),
            Some(hook::STACK_WALK) => {
                assert_eq!(i64::from_le_bytes(*event.payload().first_chunk().unwrap()), last);
                stacks += 1;
            }
            None if event.provider() == PROVIDER => {
                assert_eq!((event.process_id(), event.payload().len()), (77, 5));
                assert!(event.items().stack().is_some());
                numbers.push(u64::from(event.payload()[0]));
            }
            _ => {}
        }
    }
    assert_eq!(stacks, 100);
    assert_eq!(numbers, (0..100).filter(|number| number % 10 != 9).collect::<Vec<_>>());
}

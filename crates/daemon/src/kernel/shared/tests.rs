//! Tests of the hub with a capture that a test controls.

use super::source::{EventSource, SourceControl};
use super::*;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::kernel::providers::KERNEL_PROCESS;
use traceweir_format::wire::{Put, u32_at};
use traceweir_kernel::RecordOrigin;
use traceweir_transport::message::EnableParams;

/// Number of processes in a rundown.
const PROCESSES: u32 = 4;

/// What a test changes and reads of its capture.
#[derive(Default)]
pub(crate) struct TestSourceState {
    /// Number of opens and changes that are still to be refused.
    pub(crate) refusals: AtomicU32,
    /// The settings that the capture has reached, also by a refused change.
    reached: Mutex<Option<CaptureSettings>>,
    is_rundown_due: AtomicBool,
    loses_rundown_end: AtomicBool,
    rundowns: AtomicU32,
    /// Called when the second record of a poll is read.
    at_second_record: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl TestSourceState {
    /// Creates a hub whose capture has this state.
    pub(crate) fn create_hub(self: &Arc<Self>) -> EventHub {
        let state = Arc::clone(self);
        let open: Box<OpenSource> = Box::new(move |settings| {
            state.set(settings)?;
            let wake = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            let (records, read) = (VecDeque::new(), 0);
            let events = TestSource { state: Arc::clone(&state), records, read, wake };
            let control = TestControl(Arc::clone(&state));
            Ok(OpenedSource { events: Box::new(events), control: Box::new(control) })
        });
        EventHub::with_source(CaptureScope::Everything, open)
    }

    /// Returns the groups that the capture has reached, as EnableFlags.
    pub(crate) fn reached_flags(&self) -> Option<u32> {
        lock(&self.reached).as_ref().map(|settings| settings.groups.0[0])
    }

    fn set(&self, settings: &CaptureSettings) -> Result<()> {
        *lock(&self.reached) = Some(settings.clone());
        let take_one = |count: u32| count.checked_sub(1);
        match self.refusals.fetch_update(SeqCst, SeqCst, take_one) {
            Ok(_) => Err(Error::Capture {
                status: traceweir_format::spec::status::Status::ERROR_NO_SYSTEM_RESOURCES,
                reason: "refused by the test".to_owned(),
            }),
            Err(_) => Ok(()),
        }
    }
}

struct TestSource {
    state: Arc<TestSourceState>,
    records: VecDeque<Vec<u8>>,
    read: u32,
    wake: OwnedFd,
}

impl TestSource {
    fn push(&mut self, hook: u16, payload: &[u8]) {
        let header = PerfInfoHeader { pointer_size: 8, version: 4, hook, time: 0, counters: &[] };
        let mut record = Vec::new();
        header.encode(payload, &mut record).unwrap();
        self.records.push_back(record);
    }
}

impl EventSource for TestSource {
    /// Writes a rundown if one is due. The ids of its processes are 10 times its number and up.
    fn poll(&mut self, _includes_newer: bool) {
        self.read = 0;
        if self.state.is_rundown_due.swap(false, SeqCst) {
            let first = 10 * (self.state.rundowns.fetch_add(1, SeqCst) + 1);
            for pid in first..first + PROCESSES {
                let mut payload = Vec::new();
                payload.put_u64(0).put_u32(pid).put(&[0; 64]);
                self.push(hook::PROCESS_DC_START, &payload);
            }
            if !self.state.loses_rundown_end.load(SeqCst) {
                self.push(hook::RUNDOWN_COMPLETE, &[]);
            }
        }
    }

    fn peek(&self) -> Option<QueuedRecord> {
        let origin = RecordOrigin { cpu: 0, process_id: 1, thread_id: 1 };
        let length = self.records.front()?.len();
        Some(QueuedRecord { length, raw: 1, is_stack: false, origin })
    }

    fn pop_into(&mut self, out: &mut [u8]) {
        self.read += 1;
        if self.read == 2
            && let Some(call) = lock(&self.state.at_second_record).take()
        {
            call();
        }
        out.copy_from_slice(&self.records.pop_front().unwrap());
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn losses(&self) -> queue::Losses {
        queue::Losses::default()
    }
}

struct TestControl(Arc<TestSourceState>);

impl SourceControl for TestControl {
    fn set(&self, settings: &CaptureSettings) -> Result<()> {
        self.0.set(settings)
    }

    fn run_down(&self) {
        self.0.is_rundown_due.store(true, SeqCst);
    }

    fn missing_events(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A hub whose sessions 1 and 2 enable the process provider.
struct TwoSessions {
    hub: Arc<EventHub>,
    source: Arc<TestSourceState>,
    capture: Arc<SharedCapture>,
}

impl TwoSessions {
    fn new() -> Self {
        let source = Arc::new(TestSourceState::default());
        let hub = Arc::new(source.create_hub());
        let enables = ProviderEnables::from([(KERNEL_PROCESS, EnableParams::default())]);
        (1..=2).for_each(|id| hub.set_enables(id, enables.clone(), 0));
        hub.apply(None).unwrap();
        let mut state = lock(&hub.state);
        let capture = Arc::clone(state.capture.as_ref().unwrap());
        for id in 1..=2 {
            let queue = Arc::new(EventQueue::new(Selection::new(&enables)));
            capture.subscribe(Arc::clone(&queue)).unwrap();
            state.queues.insert(id, queue);
        }
        drop(state);
        Self { hub, source, capture }
    }

    /// Returns the ids of the processes that wait for a session.
    fn take_processes(&self, session: u64) -> Vec<u32> {
        let queue = Arc::clone(&lock(&self.hub.state).queues[&session]);
        queue.take_waiting().iter().map(|queued| u32_at(&queued.event.payload, 8)).collect()
    }
}

#[test]
fn rundown_of_one_session_does_not_end_that_of_another() {
    let test = TwoSessions::new();
    test.hub.run_down(1);
    let hub = Arc::clone(&test.hub);
    *lock(&test.source.at_second_record) = Some(Box::new(move || {
        // Session 2 requests a rundown while that of session 1 is being distributed.
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            hub.run_down(2);
            let _ = sender.send(());
        });
        let _ = receiver.recv_timeout(Duration::from_millis(200));
    }));
    test.capture.poll(false);
    while !test.source.is_rundown_due.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    test.capture.poll(false);
    assert_eq!(test.take_processes(1), [10, 11, 12, 13]);
    assert_eq!(test.take_processes(2), [20, 21, 22, 23]);
}

#[test]
fn rundown_ends_with_its_poll_if_its_last_event_is_lost() {
    let test = TwoSessions::new();
    test.source.loses_rundown_end.store(true, SeqCst);
    for session in 1..=2 {
        test.hub.run_down(session);
        test.capture.poll(false);
    }
    assert_eq!(test.take_processes(1), [10, 11, 12, 13]);
    assert_eq!(test.take_processes(2), [20, 21, 22, 23]);
}

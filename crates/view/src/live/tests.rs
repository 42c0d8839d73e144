//! Feeds the buffers of a trace as a session delivers them.

use std::path::Path;
use std::sync::Arc;

use traceweir::consumer::{Feeder, TraceFile};
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_decode::Decoder;
use traceweir_format::etl;

use super::*;
use crate::json::JsonWriter;
use crate::kernel_trace::KernelWriter;
use crate::query::{describe_event, describe_trace};
use crate::trace::TraceView;

/// The buffers of a fixture, as they are in the file.
fn read_buffers(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/etl").join(name);
    let bytes = std::fs::read(&path).unwrap();
    let trace = etl::Trace::open(TraceFile::from(std::fs::File::open(&path).unwrap())).unwrap();
    let buffers = trace.buffers_as_written();
    buffers.iter().map(|buffer| bytes[buffer.offset as usize..][..buffer.size as usize].to_vec()).collect()
}

/// A session that the test writes, and the view of it.
struct Session {
    feeder: Feeder,
    live: Arc<LiveTrace>,
    view: Arc<TraceView>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Session {
    fn start(first: Vec<u8>, max_bytes: u64) -> Self {
        let (trace, feeder) = Trace::from_buffers().unwrap();
        feeder.add(Box::new(first)).unwrap();
        let facts = SessionFacts {
            name: "App".to_owned(),
            clock: *trace.clock(),
            start: trace.clock().start,
            perf_freq: trace.header().perf_freq,
            closer: Some(trace.closer()),
        };
        let live = Arc::new(LiveTrace::with_limit(facts, max_bytes).unwrap());
        let view = TraceView::of_session(Arc::clone(&live), Decoder::new(), &SymbolOptions::default());
        let view = Arc::new(view.unwrap());
        let (receiver, builder) = (Arc::clone(&live), Arc::clone(&view));
        let threads = vec![
            std::thread::spawn(move || receiver.receive(trace)),
            std::thread::spawn(move || builder.build(&None, None)),
        ];
        Self { feeder, live, view, threads }
    }

    /// Ends the session after the buffers that were added, and waits for the view.
    fn end(mut self) -> Arc<TraceView> {
        self.live.closer.as_ref().unwrap().end();
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        self.view
    }

    fn wait_for_events(&self, count: u64) {
        while self.view.index().events.rows() < count {
            std::thread::yield_now();
        }
    }
}

fn describe(view: &TraceView) -> serde_json::Value {
    let mut json = JsonWriter::default();
    describe_trace(view, &mut json);
    serde_json::from_slice(&json.into_bytes()).unwrap()
}

#[test]
fn view_grows_with_the_session() {
    let mut buffers = read_buffers("kernel.etl").into_iter();
    let session = Session::start(buffers.next().unwrap(), MAX_SPOOL_BYTES);
    session.feeder.add(Box::new(buffers.next().unwrap())).unwrap();
    session.wait_for_events(1);
    let early = describe(&session.view);
    assert_eq!((&early["live"], &early["complete"]), (&true.into(), &false.into()), "{early}");
    for buffer in buffers {
        session.feeder.add(Box::new(buffer)).unwrap();
    }
    let view = session.end();
    let late = describe(&view);
    assert_eq!((&late["live"], &late["complete"]), (&false.into(), &true.into()), "{late}");
    assert_eq!((&late["problem"], &late["lost_buffers"]), (&serde_json::Value::Null, &0.into()), "{late}");
    assert_eq!(late["stopped"], false);
    let events = late["events"].as_u64().unwrap();
    assert!(events > early["events"].as_u64().unwrap() && late["bytes_read"] == late["bytes"], "{late}");
    for row in 0..events {
        let mut json = JsonWriter::default();
        assert!(describe_event(&view, row, &mut json), "event {row} cannot be read");
    }
}

#[test]
fn losses_of_the_session_are_shown() {
    let mut buffers = read_buffers("kernel.etl").into_iter();
    let session = Session::start(buffers.next().unwrap(), MAX_SPOOL_BYTES);
    let mut damaged = buffers.next().unwrap();
    session.feeder.add(Box::new(damaged.clone())).unwrap();
    let flags = u16::from_le_bytes([damaged[52], damaged[53]]);
    let compressed = flags | traceweir_format::spec::session::BUFFER_FLAG_COMPRESSED;
    damaged[52..54].copy_from_slice(&compressed.to_le_bytes());
    damaged[72..].fill(0xFF);
    session.feeder.add(Box::new(damaged)).unwrap();
    let view = session.end();
    assert_eq!(describe(&view)["lost_buffers"], 1);
    assert_eq!(view.index().loss_times.len(), 1);
}

/// Follows a file whose session has ended.
fn follow_ended_file(path: &Path) -> TraceView {
    let file = GrowingFile { path: path.to_owned(), is_running: Box::new(|| false) };
    let set = open_file(&file).unwrap();
    let live = Arc::new(LiveTrace::of_file("App".to_owned(), &set).unwrap());
    let view = TraceView::of_session(Arc::clone(&live), Decoder::new(), &SymbolOptions::default()).unwrap();
    live.receive_file(set, &file);
    view.build(&None, None);
    view
}

#[test]
fn stopped_view_neither_copies_nor_indexes_a_backlog() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backlog.etl");
    let mut writer = KernelWriter::create(&path, 1).unwrap();
    for time in 0..1000 {
        writer.put_ready(0, time, 7).unwrap();
    }
    writer.finish(1000, 0).unwrap();
    let file = GrowingFile { path, is_running: Box::new(|| false) };
    let open = || {
        let set = open_file(&file).unwrap();
        (Arc::new(LiveTrace::of_file("App".to_owned(), &set).unwrap()), set)
    };

    let (live, set) = open();
    live.stop();
    live.receive_file(set, &file);
    assert_eq!(live.bytes(), 0);

    let (live, set) = open();
    live.receive_file(set, &file);
    assert!(live.bytes() > 10_000);
    let view = TraceView::of_session(live, Decoder::new(), &SymbolOptions::default()).unwrap();
    view.stop();
    view.build(&None, None);
    assert_eq!(view.index().events.rows(), 0);
}

#[test]
fn losses_of_a_followed_file_are_shown_with_or_without_a_time() {
    let folder = tempfile::tempdir().unwrap();
    for has_flag in [false, true] {
        let path = folder.path().join("lost.etl");
        let mut writer = KernelWriter::create(&path, 1).unwrap();
        writer.put_process(4, "System", "").unwrap();
        if has_flag {
            writer.flag_loss(0).unwrap();
        }
        writer.put_ready(0, 500, 7).unwrap();
        writer.finish(1000, 7).unwrap();
        let view = follow_ended_file(&path);
        let state = describe(&view);
        assert_eq!(
            (&state["problem"], &state["complete"]),
            (&serde_json::Value::Null, &true.into()),
            "{state}"
        );
        assert_eq!((&state["lost_events"], &state["lost_buffers"]), (&7.into(), &0.into()), "{state}");
        assert_eq!(view.index().loss_times.len(), usize::from(has_flag));
    }
}

#[test]
fn full_file_ends_the_events_with_a_message() {
    let mut buffers = read_buffers("kernel.etl").into_iter();
    let session = Session::start(buffers.next().unwrap(), 1_000);
    for buffer in buffers {
        // The receiver refuses buffers after its end.
        let _ = session.feeder.add(Box::new(buffer));
    }
    let view = session.end();
    let state = describe(&view);
    assert!(state["problem"].as_str().unwrap().contains("later events are not shown"), "{state}");
    assert!(state["events"].as_u64().unwrap() > 2 && state["live"] == false, "{state}");
    assert_eq!(state["stopped"], true);
}

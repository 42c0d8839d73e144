//! Answers the questions of the page. Every answer has a limit that does not depend on the traces.

mod event;
mod fields;
mod filter;
mod flame;
mod links;
mod list;
mod loop_guard;
mod process_track;
mod statistics;
mod tables;
mod timeline;
mod tracks;
mod transfers;
mod waits;

pub(crate) use event::{describe_event, describe_event_within};
pub(crate) use filter::EventQuery;
pub(crate) use flame::{FlameKind, FlameQuery, draw_flame};
#[cfg(any(test, feature = "test-points"))]
pub(crate) use list::complete_list;
pub(crate) use list::{EventLists, list_events, list_events_within, locate_event, span_of};
pub(crate) use statistics::{FieldQuery, describe_field};
pub(crate) use tables::{TABLES, TableQuery, TableSort, fill_table};
pub(crate) use timeline::{TimelineQuery, draw_timeline, draw_timeline_within};
pub(crate) use tracks::{describe_part, describe_trace, list_tracks};

use self::loop_guard::LoopGuard;
use crate::index::Index;
use crate::index::threads::Thread;
pub(crate) use crate::limits::{CancelOnDrop, QueryLimits};

/// A time span in nanoseconds since the first trace began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeSpan {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// Returns the last part of a path, of Windows or of Linux.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// Returns the name of a process for people.
fn process_label(index: &Index, process: u32) -> String {
    let Some(process) = index.threads.processes.get(process as usize) else { return "?".to_owned() };
    let label = match (&process.name, process.pid) {
        (Some(name), pid) => format!("{} ({pid})", file_name(name)),
        (None, u32::MAX) => "(no process)".to_owned(),
        (None, pid) => format!("process {pid}"),
    };
    match index.machines.name(process.machine) {
        Some(machine) => format!("{label} · {machine}"),
        None => label,
    }
}

/// Returns the name of a thread for people.
fn thread_label(thread: &Thread) -> String {
    match (&thread.name, thread.tid) {
        (Some(name), 0 | u32::MAX) => name.to_string(),
        (Some(name), tid) => format!("{name} ({tid})"),
        (None, u32::MAX) => "(no thread)".to_owned(),
        (None, tid) => format!("thread {tid}"),
    }
}

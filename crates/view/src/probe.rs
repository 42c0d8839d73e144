//! Builds indexes and asks them every question, for tests and the fuzzer.

use std::fs::File;
use std::io::{Read, Seek, Write};

use anyhow::{Context, Result};
use traceweir::consumer::TraceFile;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_decode::Decoder;
use traceweir_format::etl::Trace;

use crate::index::Index;
use crate::index::store::seal_again;
use crate::json::JsonWriter;
use crate::query::{
    EventLists, EventQuery, FieldQuery, FlameKind, FlameQuery, QueryLimits, TABLES, TableQuery, TimeSpan,
    TimelineQuery, complete_list, describe_event, describe_field, describe_trace, draw_flame, draw_timeline,
    fill_table, list_events, list_tracks, locate_event,
};
use crate::trace::{NamedTrace, TraceView};

/// Identifies the traces of these indexes.
const IDENTITY: &[u8] = b"test";

fn open_traces(traces: Vec<File>) -> Result<Vec<NamedTrace>> {
    let open = |(number, file): (usize, File)| {
        let trace = Trace::open(TraceFile::from(file)).context("not a trace")?;
        Ok(NamedTrace { name: format!("trace-{number}.etl"), trace })
    };
    traces.into_iter().enumerate().map(open).collect()
}

/// Returns a view whose index is empty.
#[cfg(test)]
pub(crate) fn new_view(traces: Vec<File>) -> Result<TraceView> {
    new_view_with(traces, Index::new(tempfile::tempfile()?))
}

/// Returns a view with an index that is not built.
#[cfg(test)]
pub(crate) fn new_view_with(traces: Vec<File>, index: Index) -> Result<TraceView> {
    Ok(TraceView::new(open_traces(traces)?, Decoder::new(), &SymbolOptions::default(), index))
}

/// Returns a view with a complete index, and the bytes of the index.
pub(crate) fn build_view(traces: Vec<File>) -> Result<(TraceView, Vec<u8>)> {
    let mut file = tempfile::tempfile()?;
    let index = Index::new(file.try_clone()?);
    let view = TraceView::new(open_traces(traces)?, Decoder::new(), &SymbolOptions::default(), index);
    view.build(&Some(IDENTITY.to_vec()), None);
    if let Some(problem) = view.progress().problem {
        anyhow::bail!("{problem}");
    }
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok((view, bytes))
}

/// Opens a view with an index; `None` if the index is refused.
pub(crate) fn open_view(traces: Vec<File>, index: &[u8], identity: &[u8]) -> Result<Option<TraceView>> {
    let mut file = tempfile::tempfile()?;
    file.write_all(index)?;
    let Some(index) = Index::open(file, index.len() as u64, identity) else { return Ok(None) };
    let view = TraceView::new(open_traces(traces)?, Decoder::new(), &SymbolOptions::default(), index);
    view.build(&None, None);
    Ok(Some(view))
}

/// Returns the index of a trace, as the cache folder keeps it.
pub fn build_index(trace: File) -> Result<Vec<u8>> {
    Ok(build_view(vec![trace])?.1)
}

/// Asks every question with an index from outside, whose checksum is corrected. Returns the size of
/// the largest answer; `None` if the index is refused.
pub fn ask_index(trace: File, mut index: Vec<u8>) -> Result<Option<usize>> {
    seal_again(&mut index);
    let view = open_view(vec![trace], &index, IDENTITY)?;
    Ok(view.map(|view| ask_all(&view).iter().map(Vec::len).max().unwrap_or(0)))
}

/// Returns limits with which answers do not depend on the speed of the machine.
pub(crate) fn endless_limits() -> QueryLimits {
    QueryLimits::unlimited()
}

/// Asks every question, and returns the answers.
pub(crate) fn ask_all(view: &TraceView) -> Vec<Vec<u8>> {
    let end = view.index().end();
    let span = TimeSpan { from: end / 4, to: end / 2 };
    let whole = TimeSpan { from: 0, to: end };
    let limits = endless_limits();
    let lists = EventLists::default();
    let mut answers = Vec::new();
    let mut ask = |question: &dyn Fn(&mut JsonWriter)| {
        let mut json = JsonWriter::default();
        question(&mut json);
        answers.push(json.into_bytes());
    };
    for search in ["", "program-1", "101"] {
        ask(&|json| list_tracks(view, search, json));
    }
    let tracks =
        "c0,c1,c4095,t0,t1,t2,t3,t4,t5,s1,s2,s3,k0,k1,k2,k3,v0,v1,v2,n0,n1,p0,p1,p2,p3,p4294967295,x,t,c-1"
            .to_owned();
    for span in [span, whole, TimeSpan { from: i64::MIN, to: i64::MAX }, TimeSpan { from: end, to: end }] {
        for pixels in [0, 700, u32::MAX] {
            let query = TimelineQuery { span, pixels, tracks: tracks.clone(), overview: true };
            ask(&|json| draw_timeline(view, &query, json));
        }
    }
    for span in [span, whole] {
        for kind in [FlameKind::Cpu, FlameKind::Waits] {
            for (process, thread) in [(None, None), (Some(1), Some(2))] {
                ask(&|json| draw_flame(view, &FlameQuery { span, kind, process, thread }, &limits, json));
            }
        }
        for name in TABLES {
            for search in ["", "1"] {
                let query = TableQuery { name: name.to_owned(), span, search: search.to_owned(), sort: None };
                ask(&|json| {
                    fill_table(view, &query, &limits, json);
                });
            }
        }
        for kind in 0..12 {
            for field in ["FileName", "TransferSize"] {
                let query = FieldQuery { kind, field: field.to_owned(), span };
                ask(&|json| {
                    describe_field(view, &query, &limits, json);
                });
            }
        }
    }
    for filter in [
        "",
        "event:CSwitch cpu:1",
        "pid:101",
        "level:4",
        "file head:9",
        "thread:3 kind:2",
        "file:2 connection:0",
        "range:TransferSize=4096..1e9 field:IrpFlags=0x0",
    ] {
        let Ok(query) = EventQuery::parse(filter) else { continue };
        for span in [None, Some(span)] {
            complete_list(view, &lists, &query.clone().within(span));
        }
        ask(&|json| list_events(view, &lists, query.clone(), 5, 20, json));
        ask(&|json| list_events(view, &lists, query.clone().within(Some(span)), 0, u64::MAX, json));
        ask(&|json| locate_event(view, &lists, query.clone(), end / 2, json));
    }
    for row in [0, 1, 100, 2000, 5000, u64::MAX] {
        ask(&|json| {
            describe_event(view, row, json);
        });
    }
    ask(&|json| describe_trace(view, json));
    answers
}

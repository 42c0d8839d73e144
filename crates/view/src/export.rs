//! Writes a page that contains its data: one time span, at one resolution, with its first events.
//!
//! ```text
//!   page/*.js ──▶ import map of data: addresses        answers of the queries ──▶ one JSON text
//! ```
//!
//! The page needs no server and no network. Its Content-Security-Policy forbids connections. Names
//! and texts of the trace are in the JSON text only, in which `<` is escaped.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::json::JsonWriter;
use crate::query::{
    EventLists, EventQuery, FlameKind, FlameQuery, QueryLimits, TABLES, TableQuery, TimeSpan, TimelineQuery,
    describe_event, describe_part, draw_flame, draw_timeline, fill_table, list_events, list_tracks,
};
use crate::server::assets::{FILES, PAGE};
use crate::trace::TraceView;

/// The most events of a page, and how many of them have all details.
const MAX_EVENTS: u64 = 5000;
const MAX_DETAILS: u64 = 1000;
/// The resolution of the timeline.
const PIXELS: u32 = 4096;
/// Tracks in each question.
const TRACKS_AT_A_TIME: usize = 8;
/// The most tracks of a page.
const MAX_TRACKS: usize = 512;
/// How long a table or a graph may take.
const ANSWER_TIME: Duration = Duration::from_secs(60);
const EVENTS_AT_A_TIME: u64 = 200;
/// Sizes of the data, in bytes, above which no further tracks, events and details are added.
#[derive(Clone, Copy, Debug)]
struct DataLimits {
    tracks: usize,
    events: usize,
    details: usize,
}

const DATA_LIMITS: DataLimits = DataLimits { tracks: 16 << 20, events: 20 << 20, details: 28 << 20 };

const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' data:; \
     style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Fails if the output is one of the traces.
pub(crate) fn check_output(traces: &[PathBuf], output: &Path) -> Result<()> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let is_trace = identity(output).is_some_and(|id| traces.iter().any(|path| identity(path) == Some(id)));
    anyhow::ensure!(!is_trace, "cannot write {}: it is one of the traces", output.display());
    Ok(())
}

/// Writes the page of traces, which replaces an existing file.
pub(crate) fn write(view: &TraceView, span: TimeSpan, traces: &[PathBuf], output: &Path) -> Result<()> {
    let mut json = JsonWriter::default();
    write_data(view, span, DATA_LIMITS, &mut json)?;
    let data = String::from_utf8(json.into_bytes()).context("the data is not UTF-8")?.replace('<', "\\u003c");
    let page = to_page(&data)?;
    write_file(page.as_bytes(), traces, output).with_context(|| format!("cannot write {}", output.display()))
}

/// Writes a file that appears at its name when it is complete. Unless all users may read the traces,
/// only this user may read it.
fn write_file(content: &[u8], traces: &[PathBuf], output: &Path) -> Result<()> {
    let target = match fs::metadata(output) {
        // A device or a pipe is not replaced.
        Ok(existing) if !existing.is_file() => return Ok(fs::write(output, content)?),
        Ok(_) => fs::canonicalize(output)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => output.to_owned(),
        Err(error) => return Err(error.into()),
    };
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_public = |path: &PathBuf| fs::metadata(path).is_ok_and(|trace| trace.mode() & 0o044 == 0o044);
    let mode = if !traces.is_empty() && traces.iter().all(is_public) { 0o644 } else { 0o600 };
    let mut file = tempfile::Builder::new()
        .prefix(".weir-view-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(content)?;
    file.persist(&target)?;
    Ok(())
}

fn write_data(view: &TraceView, span: TimeSpan, limits: DataLimits, json: &mut JsonWriter) -> Result<()> {
    let tracks = track_ids(view);
    let mut rows = Vec::new();
    json.open(b'{');
    json.key("span");
    json.array(|json| {
        json.number(span.from);
        json.number(span.to);
    });
    json.key("trace");
    describe_part(view, span, json);
    json.key("tracks");
    list_tracks(view, "", json);
    json.key("timelines");
    json.array(|json| {
        for (number, ids) in tracks.chunks(TRACKS_AT_A_TIME).enumerate() {
            if json.len() > limits.tracks {
                break;
            }
            let query = TimelineQuery { span, pixels: PIXELS, tracks: ids.join(","), overview: number == 0 };
            draw_timeline(view, &query, json);
        }
    });
    json.key("event_parts");
    json.array(|json| {
        let lists = EventLists::default();
        for first in (0..MAX_EVENTS).step_by(EVENTS_AT_A_TIME as usize) {
            if json.len() > limits.events {
                break;
            }
            let query = EventQuery::default().within(Some(span));
            list_events(view, &lists, query, first, EVENTS_AT_A_TIME, json);
        }
        let index = view.index();
        let begin = index.events.find_time(span.from, &index.store);
        let end = index.events.find_time(span.to.saturating_add(1), &index.store);
        rows.extend(begin..end.min(begin.saturating_add(MAX_DETAILS)));
    });
    json.key("details");
    json.object(|json| {
        for row in rows {
            if json.len() > limits.details {
                break;
            }
            json.key(&row.to_string());
            if !describe_event(view, row, json) {
                json.raw("null");
            }
        }
    });
    json.key("tables");
    json.object(|json| {
        for name in TABLES {
            json.key(name);
            let query = TableQuery { name: name.to_owned(), span, search: String::new(), sort: None };
            fill_table(view, &query, &QueryLimits::new(ANSWER_TIME, Arc::default()), json);
        }
    });
    json.key("flames");
    json.object(|json| {
        for (name, kind) in [("cpu", FlameKind::Cpu), ("waits", FlameKind::Waits)] {
            json.key(name);
            let query = FlameQuery { span, kind, process: None, thread: None };
            draw_flame(view, &query, &QueryLimits::new(ANSWER_TIME, Arc::default()), json);
        }
    });
    json.close(b'}');
    Ok(())
}

/// Returns the tracks of the page: processors, counters and providers, then in turns the busiest
/// threads and the most frequent kinds of events. The page reports that it lacks the others.
fn track_ids(view: &TraceView) -> Vec<String> {
    let index = view.index();
    let mut ids: Vec<String> = Vec::new();
    let used = index.cpus.iter().enumerate().filter(|(_, cpu)| !cpu.runs.is_empty());
    ids.extend(used.map(|(cpu, _)| format!("c{cpu}")).take(64));
    ids.extend((0..index.counters.len()).map(|counter| format!("n{counter}")));
    let used_kinds = || index.kinds.kinds.iter().enumerate().filter(|(_, kind)| !kind.marks.is_empty());
    let mut providers: Vec<u32> = used_kinds().map(|(_, kind)| kind.provider).collect();
    providers.sort_unstable();
    providers.dedup();
    ids.extend(providers.iter().take(64).map(|provider| format!("v{provider}")));
    let processes = index.threads.processes.iter().enumerate().filter(|(_, process)| process.cpu_ns() > 0);
    ids.extend(processes.map(|(process, _)| format!("p{process}")).take(64));
    let mut threads: Vec<(u64, u64, usize)> = Vec::new();
    for (number, thread) in index.threads.threads.iter().enumerate() {
        if !thread.states.is_empty() || thread.shown_lanes().next().is_some() {
            threads.push((u64::MAX - thread.cpu_ns(), u64::MAX - thread.events, number));
        }
    }
    threads.sort_unstable();
    let mut kinds: Vec<(u64, usize)> =
        used_kinds().map(|(number, kind)| (u64::MAX - kind.marks.count(), number)).collect();
    kinds.sort_unstable();
    for turn in 0..threads.len().max(kinds.len()).min(MAX_TRACKS) {
        if let Some((.., number)) = threads.get(turn) {
            ids.extend([format!("t{number}"), format!("s{number}")]);
        }
        ids.extend(kinds.get(turn).map(|(_, number)| format!("k{number}")));
    }
    ids.truncate(MAX_TRACKS);
    ids
}

/// Puts scripts, style and data into the page.
fn to_page(data: &str) -> Result<String> {
    let file = |name: &str| FILES.iter().find(|(known, ..)| *known == name).map(|(.., content)| *content);
    let mut imports = JsonWriter::default();
    imports.object(|json| {
        json.key("imports");
        json.object(|json| {
            for (name, _, content) in FILES.iter().filter(|(name, ..)| name.ends_with(".js")) {
                // Relative addresses mean nothing in a data: address, so that names of the map replace them.
                let content = content.replace("from './", "from 'view/");
                json.key(&format!("view/{name}"));
                json.text(&format!("data:text/javascript;base64,{}", to_base64(content.as_bytes())));
            }
        });
    });
    let imports = String::from_utf8(imports.into_bytes()).context("the scripts are not UTF-8")?;
    let style = file("style.css").context("the page has no style")?;
    let policy =
        format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_SECURITY_POLICY}\">");
    let replacements = [
        ("<meta charset=\"utf-8\">", format!("<meta charset=\"utf-8\">\n{policy}")),
        ("<link rel=\"stylesheet\" href=\"style.css\">", format!("<style>\n{style}</style>")),
        (
            "<script type=\"module\" src=\"app.js\"></script>",
            format!(
                "<script type=\"importmap\">{imports}</script>\n<script type=\"application/json\" \
                 id=\"exported-data\">{data}</script>\n<script type=\"module\">import 'view/app.js';</script>"
            ),
        ),
    ];
    let mut page = PAGE.to_owned();
    for (part, replacement) in replacements {
        anyhow::ensure!(page.matches(part).count() == 1, "the page lacks {part}");
        page = page.replacen(part, &replacement, 1);
    }
    Ok(page)
}

fn to_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let is_padding = digit > chunk.len();
            let value = (word >> (18 - 6 * digit) & 63) as usize;
            text.push(if is_padding {
                '='
            } else {
                DIGITS.get(value).map_or('A', |digit| char::from(*digit))
            });
        }
    }
    text
}

#[cfg(test)]
mod tests;

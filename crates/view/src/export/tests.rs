//! Exports generated traces, and reads the pages.

use serde_json::Value;

use super::*;
use crate::kernel_trace::{self, KernelTraceLayout};
use crate::{OpenedTraces, ViewOptions, open};

/// Ends scripts and lines where they are not escaped.
const HOSTILE: &str = "</script><script>alert(1)</script><!--\u{2028}\u{2029}\"'&]]>";

fn open_view(folder: &Path, layout: KernelTraceLayout) -> TraceView {
    let trace = folder.join("kernel.etl");
    kernel_trace::write(&trace, layout).unwrap();
    let options = ViewOptions { paths: vec![trace], ..ViewOptions::default() };
    let OpenedTraces { view, .. } = open(&options).unwrap();
    view.build(&None, None);
    view
}

/// Exports the second quarter of a trace. Returns the page and the time span.
fn export_quarter(layout: KernelTraceLayout) -> (String, TimeSpan) {
    let folder = tempfile::tempdir().unwrap();
    let view = open_view(folder.path(), layout);
    let end = view.index().end();
    let span = TimeSpan { from: end / 4, to: end / 2 };
    let output = folder.path().join("page.html");
    write(&view, span, &[folder.path().join("kernel.etl")], &output).unwrap();
    // There is nothing besides the page and the trace.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    (fs::read_to_string(&output).unwrap(), span)
}

/// Returns the data in a page.
fn read_data(page: &str) -> Value {
    let (_, data) = page.split_once("id=\"exported-data\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn page_holds_only_the_chosen_time() {
    let layout = KernelTraceLayout { bytes: 512 << 10, cpus: 2, processes: 5, threads: 3, name_part: "" };
    let (page, span) = export_quarter(layout);
    let data = read_data(&page);
    assert_eq!((data["span"][0].as_i64(), data["span"][1].as_i64()), (Some(span.from), Some(span.to)));
    let is_inside = |time: &Value| (span.from..=span.to).contains(&time.as_i64().unwrap());
    let parts = data["event_parts"].as_array().unwrap();
    let rows: Vec<&Value> = parts.iter().flat_map(|part| part["rows"].as_array().unwrap()).collect();
    assert!(rows.len() > 100 && rows.iter().all(|row| is_inside(&row["time"])));
    let details = data["details"].as_object().unwrap();
    assert!(details.len() > 100 && details.values().all(|event| is_inside(&event["time"])));
    let mut segments = 0;
    for timeline in data["timelines"].as_array().unwrap() {
        for (id, track) in timeline["tracks"].as_object().unwrap() {
            if id.starts_with(['k', 'v']) {
                let starts = track.as_array().unwrap().chunks(4);
                segments += starts.inspect(|segment| assert!(is_inside(&segment[0]), "{id}")).count();
            }
        }
    }
    assert!(segments > 100, "{segments}");
    // The page shows the span as if there were nothing else.
    let trace = &data["trace"];
    assert_eq!((trace["begin"].as_i64(), trace["end"].as_i64()), (Some(span.from), Some(span.to)));
    assert_eq!(trace["events"], parts[0]["total"]);
}

#[test]
fn page_has_tracks_of_each_sort() {
    let folder = tempfile::tempdir().unwrap();
    let layout = KernelTraceLayout { bytes: 512 << 10, cpus: 2, processes: 5, threads: 3, name_part: "" };
    let view = open_view(folder.path(), layout);
    let ids = track_ids(&view);
    for sort in ["c", "n", "v", "p", "t", "k"] {
        assert!(ids.iter().any(|id| id.starts_with(sort)), "{sort}: {ids:?}");
    }
    let used = view.index().kinds.kinds.iter().filter(|kind| !kind.marks.is_empty()).count();
    assert_eq!(ids.iter().filter(|id| id.starts_with('k')).count(), used);
    assert!(ids.len() <= MAX_TRACKS);
}

#[test]
fn page_needs_nothing_else_and_names_stay_text() {
    let layout =
        KernelTraceLayout { bytes: 256 << 10, cpus: 2, processes: 5, threads: 3, name_part: HOSTILE };
    let (page, _) = export_quarter(layout);
    for part in
        ["http://", "https://", "src=", "url(", "@import", "\"./", "'./", "<base", "<iframe", "<object"]
    {
        let outside_of_data = page.replace("http://www.w3.org/", "");
        assert!(!outside_of_data.contains(part), "the page contains {part}");
    }
    assert_eq!(page.matches("<script").count(), 3, "import map, data, start");
    assert_eq!(page.matches("</script").count(), 3);
    assert!(page.contains("default-src 'none'") && !page.contains("connect-src"));
    let tracks = &read_data(&page)["tracks"];
    let paths = tracks["processes"].as_array().unwrap().iter().filter_map(|process| process["path"].as_str());
    assert!(paths.filter(|path| path.contains(HOSTILE)).count() > 0, "{tracks}");
}

#[test]
fn data_stops_at_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let layout = KernelTraceLayout { bytes: 128 << 10, cpus: 2, processes: 6, threads: 3, name_part: "" };
    let view = open_view(folder.path(), layout);
    let span = TimeSpan { from: 0, to: view.index().end() };
    let write = |limits| {
        let mut json = JsonWriter::default();
        write_data(&view, span, limits, &mut json).unwrap();
        let data: Value = serde_json::from_slice(&json.into_bytes()).unwrap();
        let count = |name: &str| {
            data[name].as_array().map_or_else(|| data[name].as_object().unwrap().len(), Vec::len)
        };
        ["timelines", "event_parts", "details"].map(count)
    };
    let whole = write(DATA_LIMITS);
    let limits = DataLimits { tracks: 0, events: 0, details: 0 };
    assert_eq!(write(limits), [0, 0, 0]);
    let some = [
        write(DataLimits { tracks: 20_000, ..limits })[0],
        write(DataLimits { events: 30_000, ..limits })[1],
        write(DataLimits { details: 60_000, ..limits })[2],
    ];
    assert!((0..3).all(|part| some[part] > 0 && some[part] < whole[part]), "{some:?} of {whole:?}");
}

#[test]
fn base64_has_padding() {
    for (bytes, expected) in [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foobar", "Zm9vYmFy"),
        ("\u{ff}~", "w79+"),
    ] {
        assert_eq!(to_base64(bytes.as_bytes()), expected);
    }
}

#[test]
fn page_contains_all_files_and_no_reference_to_others() {
    let page = to_page("{}").unwrap();
    assert!(!page.contains("src=\"") && !page.contains("href=\"style"), "a reference is left");
    for (name, ..) in FILES.iter().filter(|(name, ..)| name.ends_with(".js")) {
        assert!(page.contains(&format!("\"view/{name}\":\"data:text/javascript;base64,")), "{name}");
    }
}

#[test]
fn page_is_as_private_as_its_traces() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, other) = (folder.path().join("a.etl"), folder.path().join("b.etl"));
    let output = folder.path().join("page.html");
    for path in [&trace, &other] {
        fs::write(path, "").unwrap();
    }
    let mode_of_page = |trace_mode, other_mode| {
        fs::set_permissions(&trace, Permissions::from_mode(trace_mode)).unwrap();
        fs::set_permissions(&other, Permissions::from_mode(other_mode)).unwrap();
        write_file(b"page", &[trace.clone(), other.clone()], &output).unwrap();
        fs::metadata(&output).unwrap().mode() & 0o777
    };
    for (trace_mode, other_mode) in [(0o600, 0o600), (0o644, 0o600), (0o640, 0o644), (0o604, 0o644)] {
        assert_eq!(mode_of_page(trace_mode, other_mode), 0o600, "{trace_mode:o} {other_mode:o}");
    }
    // The umask may take more.
    let mode = mode_of_page(0o666, 0o644);
    assert!(mode & 0o600 == 0o600 && mode & !0o644 == 0, "{mode:o}");
    write_file(b"page", &[], &output).unwrap();
    assert_eq!(fs::metadata(&output).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn page_replaces_a_name_but_no_trace_and_no_other_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (trace, linked) = (path("a.etl"), path("linked.html"));
    fs::write(&trace, "trace").unwrap();
    fs::hard_link(&trace, &linked).unwrap();
    std::os::unix::fs::symlink(&trace, path("symbolic.html")).unwrap();
    let traces = [trace.clone()];
    for output in [&trace, &linked, &path("symbolic.html")] {
        assert!(check_output(&traces, output).is_err(), "{}", output.display());
    }
    assert!(check_output(&traces, &path("new.html")).is_ok());
    // A page that others have opened or linked keeps its content.
    fs::write(path("old.html"), "old").unwrap();
    fs::hard_link(path("old.html"), path("copy.html")).unwrap();
    write_file(b"page", &traces, &path("old.html")).unwrap();
    assert_eq!(fs::read_to_string(path("old.html")).unwrap(), "page");
    assert_eq!(fs::read_to_string(path("copy.html")).unwrap(), "old");
    assert_eq!(fs::read_to_string(&trace).unwrap(), "trace");
    write_file(b"page", &traces, Path::new("/dev/null")).unwrap();
    assert!(write_file(b"page", &traces, folder.path()).is_err());
    assert!(write_file(b"page", &traces, &path("none/page.html")).is_err());
}

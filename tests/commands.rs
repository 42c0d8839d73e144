//! Tests of the commands that read or write files, one behaviour per test.

mod cc;
mod completions;
mod convert;
mod error;
mod filters;
mod help;
mod inputs;
mod mark;
mod outputs;
mod profile;
mod relog;
mod repair;
mod reports;
mod shims;
mod symbols;
mod terminal;

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use traceweir_format::etl::Options;
use traceweir_format::tracelogging::MetadataBuilder;
use traceweir_format::wire::Put;

use crate::golden::{SelfDescribing, TraceMaker, session_options};
use crate::util::{Run, root, weir};

fn make_folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Returns the path of a trace in `fixtures/etl`.
fn fixture_path(name: &str) -> PathBuf {
    root().join("fixtures/etl").join(format!("{name}.etl"))
}

fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Writes bytes to a file in a folder.
fn write_file(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Writes five events, 100 µs apart, with varying values of all properties that filters compare.
///
/// ```text
///   µs   cpu  pid/tid  provider  event  level  keyword  says
///   100  0    10/11    Shop.A    Alpha  1      0x1      crème brûlée
///   200  1    10/12    Shop.A    Beta   3      0x2      two
///   300  0    20/21    Shop.B    Alpha  4      0x4      three
///   400  1    20/22    Shop.B    Gamma  5      0        FOUR
///   500  0    30/31    Shop.C    Delta  0      0x1      five
/// ```
fn write_five_events(maker: &mut TraceMaker) {
    for (provider, name, level, keyword, ids, cpu, value) in [
        ("Shop.A", "Alpha", 1, 1, (10, 11), 0, "crème brûlée"),
        ("Shop.A", "Beta", 3, 2, (10, 12), 1, "two"),
        ("Shop.B", "Alpha", 4, 4, (20, 21), 0, "three"),
        ("Shop.B", "Gamma", 5, 0, (20, 22), 1, "FOUR"),
        ("Shop.C", "Delta", 0, 1, (30, 31), 0, "five"),
    ] {
        let mut event = SelfDescribing::new(provider);
        (event.header.process_id, event.header.thread_id) = ids;
        (event.header.descriptor.level, event.header.descriptor.keyword) = (level, keyword);
        let mut payload = Vec::new();
        payload.put_ansi_z(value);
        // Input type 2 (8-bit string) with output type 35 (UTF-8).
        event.write(maker, cpu, MetadataBuilder::new(name, 0).add_field("says", 2, 35, 0), &payload, &[]);
    }
}

fn five_events_with(options: Options) -> Vec<u8> {
    let mut maker = TraceMaker::new(options);
    write_five_events(&mut maker);
    maker.finish()
}

fn five_events() -> Vec<u8> {
    five_events_with(session_options("five"))
}

/// Runs `weir dump --format jsonl` with these arguments.
fn dump_jsonl<'a>(path: &'a Path, arguments: &[&'a str]) -> Run {
    let mut command = vec!["dump", "--format", "jsonl", arg(path)];
    command.extend(arguments);
    weir(&command)
}

/// Returns the names of the events that a dump with these arguments prints.
fn dumped_event_names(path: &Path, arguments: &[&str]) -> Vec<String> {
    let events = dump_jsonl(path, arguments).expect(0).json();
    events.iter().map(|event| event["event"].as_str().unwrap_or("(none)").to_owned()).collect()
}

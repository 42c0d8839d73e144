//! KernelTraceControl.h and the group masks of winternl.h: the kernel logger with stacks, and
//! merged traces.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use traceweir_decode::Decoder;
use traceweir_format::etl::Trace;
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::event::class;
use traceweir_format::stack_walk::StackWalk;
use traceweir_format::wire::u32_at;

use crate::controllers::build_program;
use crate::support::{ProgramFolder, TestDaemon, checked_rows, crate_path, expect_success, skip};

fn open_trace(path: &Path) -> Trace<std::fs::File> {
    Trace::open(std::fs::File::open(path).unwrap()).unwrap()
}

/// Passes all records of a file to a function.
fn visit_records(path: &Path, mut visit: impl FnMut(&Record<'_>)) {
    let trace = open_trace(path);
    let mut events = trace.events();
    while let Some(record) = events.next().unwrap() {
        visit(&record);
    }
}

#[test]
fn kernel_logger_has_stacks_from_its_first_event_and_group_masks() {
    let (programs, daemon) = (ProgramFolder::new(), TestDaemon::new());
    let program = build_program(&programs, "gcc", "kernel_logger.c", &[]);
    let file = programs.path("kernel.etl");
    let output = expect_success(daemon.command(&program).arg(&file));
    if output.starts_with("unsupported") {
        return skip("kernel", "the machine gives no kernel events");
    }
    assert!(checked_rows(&output) > 30, "{output}");
    let children: Vec<u32> =
        output.lines().filter_map(|line| line.strip_prefix("child ")?.parse().ok()).collect();
    let (mut starts, mut stacks) = (Vec::new(), HashSet::new());
    visit_records(&file, |record| {
        // Type 1 is the start of a process.
        if record.provider() == class::PROCESS && record.descriptor().opcode == 1 {
            // The process id follows the unique key.
            starts.push((record.time(), u32_at(record.payload(), record.pointer_size())));
        }
        stacks.extend(StackWalk::parse(record).map(|walk| walk.event_time));
    });
    assert_eq!(children.len(), 5, "{output}");
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    for child in &children {
        let start = starts.iter().find(|(_, process)| process == child);
        let (time, _) = start.unwrap_or_else(|| panic!("no start of {child} in {starts:?}"));
        // Without privilege, the kernel reports starts in side-band records, which have no stacks.
        assert_eq!(stacks.contains(time), is_root, "stack of {child}");
    }
}

/// Merges fixtures with `merge.c`. The flags are those of EVENT_TRACE_MERGE_EXTENDED_DATA, as a
/// hexadecimal number: 10 adds the schemas of events (EVENT_METADATA), FFFFFFFF is ALL and also
/// compresses. Returns the path of the merged file.
fn merge_fixtures(programs: &ProgramFolder, name: &str, flags: &str, traces: &[&str]) -> PathBuf {
    let program = build_program(programs, "gcc", "merge.c", &[]);
    let (output, fixtures) = (programs.path(name), crate_path("../../fixtures"));
    let mut command = Command::new(program);
    command.arg(&output).arg(flags);
    command.args(traces.iter().map(|trace| fixtures.join("etl").join(trace)));
    expect_success(command.env("TRACEWEIR_MANIFESTS", fixtures.join("manifests")));
    output
}

/// Returns the numbers of events that are neither headers nor schemas, and of schemas.
fn count_events(path: &Path) -> (usize, usize) {
    let (mut events, mut schemas) = (0, 0);
    visit_records(path, |record| match record.provider() {
        class::EVENT_METADATA => schemas += 1,
        class::EVENT_TRACE => {}
        _ => events += 1,
    });
    (events, schemas)
}

#[test]
fn merged_trace_has_the_events_of_all_traces_in_order() {
    let programs = ProgramFolder::new();
    let merged = merge_fixtures(&programs, "both.etl", "0", &["manifest.etl", "tracelogging.etl"]);
    let fixture = |name: &str| count_events(&crate_path("../../fixtures/etl").join(name)).0;
    assert_eq!(count_events(&merged), (fixture("manifest.etl") + fixture("tracelogging.etl"), 0));
    assert!(!open_trace(&merged).is_compressed());
    let mut last = i64::MIN;
    visit_records(&merged, |record| {
        if record.provider() != class::EVENT_TRACE {
            assert!(record.time() >= last);
            last = record.time();
        }
    });
    let compressed = merge_fixtures(&programs, "small.etl", "FFFFFFFF", &["manifest.etl"]);
    assert!(open_trace(&compressed).is_compressed());
}

#[test]
fn merged_trace_decodes_without_the_manifests() {
    let programs = ProgramFolder::new();
    let source = crate_path("../../fixtures/etl/manifest.etl");
    let merged = merge_fixtures(&programs, "described.etl", "10", &["manifest.etl"]);
    let (events, schemas) = count_events(&merged);
    assert!(schemas > 0 && events == count_events(&source).0, "{events} events, {schemas} schemas");
    let mut with_manifest = Decoder::new();
    let manifest = std::fs::read(crate_path("../../fixtures/manifests/everything.man")).unwrap();
    with_manifest.add_manifest(&manifest).unwrap();
    let mut without_manifest = Decoder::new();
    let mut compared = 0;
    visit_records(&merged, |record| {
        without_manifest.observe(record);
        if record.family() != Family::Event {
            return;
        }
        let Ok(expected) = with_manifest.find(record) else { return };
        let found = without_manifest.find(record).unwrap();
        let names = |schema: &traceweir_decode::Schema| {
            let fields = schema.fields().iter().map(|field| field.name.to_string()).collect::<Vec<_>>();
            (schema.names.provider.clone(), fields)
        };
        assert_eq!(names(&found.prepared.schema), names(&expected.prepared.schema));
        compared += 1;
    });
    assert!(compared >= 5, "{compared} events were compared");
}

//! The page `docs/c-coverage.md`: it lists every function and macro of the published headers as
//! done or with the reason why it is missing, and the missing constants and structures.
//!
//! This test generates the page (`BLESS=1`) and compares it with the current headers. A name that
//! is missing without a reason is a failure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::names::{HEADERS, PublishedHeader};
use crate::support::{ProgramFolder, crate_path, library};
use crate::{constants, functions, headers, structures};

/// Functions, classes and macros that the headers do not have, with the reason.
const MISSING_NAMES: &[(&str, &str)] = &[
    ("TLG_METADATA_SEGMENT_BASE", SEGMENT_REASON),
    ("TLG_NONPAGED_SEGMENT", SEGMENT_REASON),
    ("TLG_PAGED_SEGMENT", SEGMENT_REASON),
];

const SEGMENT_REASON: &str = "no effect: it selects segments of PE files; sources that set it compile";

/// Functions and classes that a header defines, so that the library has no symbol for them.
const DEFINED_IN_HEADERS: &[&str] = &[
    "TraceLoggingActivity",
    "TraceLoggingThreadActivity",
    "TraceLoggingThreadActivityIdSetter",
    "TraceMessage",
    "TraceMessageVa",
];

/// Reasons why constants are not in the headers, each with the prefixes of their names.
const MISSING_CONSTANTS: &[(&str, &[&str])] = &[
    (
        "in `wmistr.h`, for WMI data blocks, which are not part of tracing",
        &["WMIREG_", "WMI_GUIDTYPE_", "WNODE_FLAG_"],
    ),
    ("in `relogger.h`, which is a COM interface", &["CLSID_TraceRelogger", "CTraceRelogger"]),
    (
        "of kernel event classes, which no Windows header defines",
        &[
            "ALPCGuid",
            "DiskIoGuid",
            "FileIoGuid",
            "ImageLoadGuid",
            "PageFaultGuid",
            "PerfInfoGuid",
            "ProcessGuid",
            "RegistryGuid",
            "SplitIoGuid",
            "TcpIpGuid",
            "ThreadGuid",
            "UdpIpGuid",
        ],
    ),
    ("for information class 15, which is reserved", &["EtwCompressionMode"]),
];

const PAGE_PROLOGUE: &str = "\
# Coverage of the published C headers

This page lists every function and macro of the published headers for tracing, and whether this
library has it. A test of `crates/ffi` generates the page
(`BLESS=1 cargo test -p traceweir-ffi --test published`). The test also compares sizes, offsets,
values and prototypes with those of Windows, as the windows-sys crate has them.
[C and C++](c-api.md) describes how to build and link.

\"Done\" means for a function or class: a header declares it and the library exports it, or a
header defines it. For a macro or inline function it means that a header defines it. \"No effect\" is
followed by the reason. The page makes no other claim.
";

const CONSTANTS_SECTION: &str = "
## Constants and structures

How many of the constants and structures that windows-sys lists for tracing are in the headers.
Missing names are listed with the reason.
";

/// Returns the state of a name on the page.
fn describe_state(name: &str, header: &PublishedHeader, available: &BTreeSet<String>) -> String {
    let reason = MISSING_NAMES.iter().find(|(missing, _)| *missing == name).map(|(_, reason)| *reason);
    match (available.contains(name), reason) {
        (true, None) => "done".to_owned(),
        (false, Some(reason)) => reason.to_owned(),
        (true, Some(_)) => panic!("{name} is in the headers: remove it from MISSING_NAMES"),
        (false, None) => {
            panic!("{name} of {} is missing, and there is no reason in MISSING_NAMES", header.name)
        }
    }
}

fn write_table(
    page: &mut String,
    title: &str,
    names: &[&str],
    header: &PublishedHeader,
    available: &BTreeSet<String>,
) {
    if names.is_empty() {
        return;
    }
    writeln!(page, "\n| {title} | |\n|---|---|").unwrap();
    for name in names {
        writeln!(page, "| `{name}` | {} |", describe_state(name, header, available)).unwrap();
    }
}

/// Writes how many names of windows-sys the headers have, and lists the missing names.
fn write_missing(page: &mut String, label: &str, names: Vec<&str>, available: &BTreeSet<String>) {
    let total = names.len();
    let mut missing: Vec<&str> = names.into_iter().filter(|name| !available.contains(*name)).collect();
    writeln!(page, "\n{label}: {} of {total}.", total - missing.len()).unwrap();
    for (reason, prefixes) in MISSING_CONSTANTS {
        let explained = missing.extract_if(.., |name| prefixes.iter().any(|prefix| name.starts_with(prefix)));
        write_names(page, reason, &explained.collect::<Vec<_>>());
    }
    write_names(page, "not yet", &missing);
}

fn write_names(page: &mut String, reason: &str, names: &[&str]) {
    if !names.is_empty() {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let mut line = format!("- {reason}:");
        for word in names.join(", ").split(' ') {
            if line.len() + 1 + word.len() > 100 {
                writeln!(page, "{line}").unwrap();
                line = " ".to_owned();
            }
            line = format!("{line} {word}");
        }
        writeln!(page, "{line}").unwrap();
    }
}

/// Returns the functions that are declared and exported, and those that a header defines.
fn available_functions(words: &BTreeSet<String>) -> BTreeSet<String> {
    let (declared, exported) =
        (library::declared_functions(), library::exported_functions(&ProgramFolder::new()));
    let mut available: BTreeSet<String> = declared.intersection(&exported).cloned().collect();
    available.extend(
        DEFINED_IN_HEADERS.iter().filter(|name| words.contains(**name)).map(|name| (*name).to_owned()),
    );
    available
}

fn generate_page() -> String {
    let available = headers::collect_words();
    let functions = available_functions(&available);
    let mut page = PAGE_PROLOGUE.to_owned();
    for header in &HEADERS {
        writeln!(page, "\n## {}", header.name).unwrap();
        write_table(&mut page, "Function or class", header.functions, header, &functions);
        write_table(&mut page, "Macro or inline function", header.macros, header, &available);
    }
    page.push_str(CONSTANTS_SECTION);
    write_missing(
        &mut page,
        "numeric constants",
        constants::numeric_constants().into_iter().map(|(name, _)| name).collect(),
        &available,
    );
    write_missing(
        &mut page,
        "GUIDs",
        constants::guid_constants().into_iter().map(|(name, _)| name).collect(),
        &available,
    );
    write_missing(
        &mut page,
        "structures",
        structures::list_layouts().into_iter().map(|layout| layout.name).collect(),
        &available,
    );
    page
}

#[test]
fn documented_table_matches_the_headers() {
    let (file, page) = (crate_path("../../docs/c-coverage.md"), generate_page());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = written.lines().zip(page.lines()).find(|(written, generated)| written != generated);
    assert!(
        written == page,
        "docs/c-coverage.md does not match the headers (BLESS=1 writes it): {differs:?}"
    );
}

#[test]
fn every_function_of_windows_is_in_the_table() {
    let listed: BTreeSet<&str> = HEADERS.iter().flat_map(|header| header.functions).copied().collect();
    for (name, _) in functions::list_functions() {
        assert!(listed.contains(name), "{name} is not in the table");
    }
}

#[test]
fn names_are_listed_once() {
    let mut seen = BTreeSet::new();
    for header in &HEADERS {
        for name in header.functions.iter().chain(header.macros) {
            assert!(seen.insert(*name), "{name} of {} is listed twice", header.name);
        }
    }
}

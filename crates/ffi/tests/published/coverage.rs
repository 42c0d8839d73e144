//! `docs/c-coverage.md`: every function and macro of the published headers, done or why not; and which constants and structures are missing.
//!
//! The page is made by this test (`BLESS=1`) and compared with what the headers have now. A name that is missing without a reason fails.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::names::{HEADERS, Header};
use crate::support::{Workshop, here, library};
use crate::{constants, functions, headers, structures};

/// Names that will not come, and why.
const NOT_HERE: &[(&str, &str)] = &[
    ("TLG_METADATA_SEGMENT_BASE", SEGMENTS),
    ("TLG_NONPAGED_SEGMENT", SEGMENTS),
    ("TLG_PAGED_SEGMENT", SEGMENTS),
];

const SEGMENTS: &str = "no effect: it chooses segments of PE files; a source that sets it compiles";

/// Functions and classes that are defined in a header, so that the library has no symbol of their names.
const IN_HEADERS: &[&str] = &[
    "TraceLoggingActivity",
    "TraceLoggingThreadActivity",
    "TraceLoggingThreadActivityIdSetter",
    "TraceMessage",
    "TraceMessageVa",
];

/// Constants that are not in the headers, by what their names begin with, and why.
const NOT_IN_HEADERS: &[(&str, &[&str])] = &[
    (
        "of `wmistr.h`, about data blocks of WMI, which is not tracing",
        &["WMIREG_", "WMI_GUIDTYPE_", "WNODE_FLAG_"],
    ),
    ("of `relogger.h`, which is COM", &["CLSID_TraceRelogger", "CTraceRelogger"]),
    (
        "classes of kernel events, which no header defines: programs do",
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
    ("of the information class 15, which is reserved", &["EtwCompressionMode"]),
];

const HEAD: &str = "\
# What is there of the published C headers

Every function and macro of the headers for tracing, and whether this library has it. The page is made from the headers by a test of `crates/ffi` (`BLESS=1 cargo test -p
traceweir-ffi --test published`), which also compares sizes, offsets, values and prototypes with those of Windows, as the windows-sys crate has them. How to build
and link is told in [C and C++](c-api.md).

\"Done\" is, of a function: a header declares it and the library exports it, or a header defines it; of a macro or inline function: it stands in a header. More is not
said by this page.
";

/// What the page says of a name.
fn state(name: &str, header: &Header, known: &BTreeSet<String>) -> String {
    let reason = NOT_HERE.iter().find(|(missing, _)| *missing == name).map(|(_, why)| *why);
    match (known.contains(name), reason) {
        (true, None) => "done".to_owned(),
        (false, Some(why)) => why.to_owned(),
        (true, Some(_)) => panic!("{name} is there: it needs no reason why not"),
        (false, None) => panic!("{name} of {} is missing, and there is no reason in NOT_HERE", header.name),
    }
}

fn table(page: &mut String, title: &str, names: &[&str], header: &Header, known: &BTreeSet<String>) {
    if names.is_empty() {
        return;
    }
    writeln!(page, "\n| {title} | |\n|---|---|").unwrap();
    for name in names {
        writeln!(page, "| `{name}` | {} |", state(name, header, known)).unwrap();
    }
}

/// A paragraph about what windows-sys has besides.
fn rest(page: &mut String, what: &str, names: Vec<&str>, known: &BTreeSet<String>) {
    let all = names.len();
    let mut missing: Vec<&str> = names.into_iter().filter(|name| !known.contains(*name)).collect();
    writeln!(page, "\n{what}: {} of {all}.", all - missing.len()).unwrap();
    for (why, beginnings) in NOT_IN_HEADERS {
        let of_these =
            missing.extract_if(.., |name| beginnings.iter().any(|begins| name.starts_with(begins)));
        list(page, why, &of_these.collect::<Vec<_>>());
    }
    list(page, "not yet", &missing);
}

fn list(page: &mut String, why: &str, names: &[&str]) {
    if !names.is_empty() {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        writeln!(page, "- {why}: {}", names.join(", ")).unwrap();
    }
}

/// The functions that are declared and exported, and those that a header defines.
fn functions_here(words: &BTreeSet<String>) -> BTreeSet<String> {
    let (declared, exported) = (library::declared(), library::exported(&Workshop::new()));
    let mut all: BTreeSet<String> = declared.intersection(&exported).cloned().collect();
    all.extend(IN_HEADERS.iter().filter(|name| words.contains(**name)).map(|name| (*name).to_owned()));
    all
}

fn page() -> String {
    let known = headers::words();
    let functions = functions_here(&known);
    let mut page = HEAD.to_owned();
    for header in &HEADERS {
        writeln!(page, "\n## {}", header.name).unwrap();
        table(&mut page, "Function", header.functions, header, &functions);
        table(&mut page, "Macro or inline function", header.macros, header, &known);
    }
    page.push_str("\n## Constants and structures\n\nOf those that the metadata of Windows lists for tracing, the headers have these many; those that are missing are listed with the reason.\n");
    rest(
        &mut page,
        "numeric constants",
        constants::numbers().into_iter().map(|(name, _)| name).collect(),
        &known,
    );
    rest(&mut page, "GUIDs", constants::guids().into_iter().map(|(name, _)| name).collect(), &known);
    rest(&mut page, "structures", structures::all().into_iter().map(|layout| layout.name).collect(), &known);
    page
}

#[test]
fn the_table_of_the_documentation_is_what_the_headers_have() {
    let (file, page) = (here("../../docs/c-coverage.md"), page());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = written.lines().zip(page.lines()).find(|(have, want)| have != want);
    assert!(
        written == page,
        "docs/c-coverage.md is not what the headers have (BLESS=1 writes it): {differs:?}"
    );
}

#[test]
fn every_function_of_windows_is_in_the_table() {
    let listed: BTreeSet<&str> = HEADERS.iter().flat_map(|header| header.functions).copied().collect();
    for (name, _) in functions::all() {
        assert!(listed.contains(name), "{name}");
    }
}

#[test]
fn names_are_listed_once() {
    let mut seen = BTreeSet::new();
    for header in &HEADERS {
        for name in header.functions.iter().chain(header.macros) {
            assert!(seen.insert(*name), "{name} of {}", header.name);
        }
    }
}

//! Writes the seeds of all fuzz targets: small inputs of different kinds, most of them valid.
//!
//! ```text
//! cargo run --example seeds              writes fuzz/seeds/<target>/<name>, removes obsolete seeds
//! cargo run --example seeds -- --check   fails if these files differ from the generated seeds
//! ```
//!
//! All seeds are made by the writers of this project or by hand; none comes from a recorded trace.

mod calls;
mod containers;
mod control;
mod convert;
mod dotnet;
mod filter;
mod records;
mod region;
mod security;
mod source;
mod symbols;
mod view;

use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::time::FileTime;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::Put;
use traceweir_format::{Guid, xpress};

const EVENT_SOURCE: &[u8] = include_bytes!("../../../fixtures/manifests/eventsource.man");
const EVERYTHING: &[u8] = include_bytes!("../../../fixtures/manifests/everything.man");
const TMF: &[u8] = include_bytes!("../../../fixtures/tmf/sample.tmf");

fn main() -> ExitCode {
    let is_check = std::env::args().any(|argument| argument == "--check");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let mut stale = Vec::new();
    for (target, seeds) in seeds_of_all_targets() {
        let folder = root.join(target);
        if is_check {
            stale.extend(find_stale_seeds(&folder, &seeds));
        } else {
            write_seeds(&folder, &seeds);
        }
    }
    for path in &stale {
        eprintln!("differs from the current seed: {}", path.display());
    }
    if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Replaces the content of a folder with these seeds.
fn write_seeds(folder: &Path, seeds: &Seeds) {
    // The folder may not exist yet.
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).expect("the folder of the seeds can be created");
    for (name, bytes) in seeds {
        std::fs::write(folder.join(name), bytes).expect("the seed can be written");
    }
}

/// Returns the files of a folder that are missing, different from the generated seeds, or obsolete.
fn find_stale_seeds(folder: &Path, seeds: &Seeds) -> Vec<PathBuf> {
    let is_same = |path: &Path, bytes: &[u8]| std::fs::read(path).is_ok_and(|stored| stored == bytes);
    let expected = seeds.iter().map(|(name, bytes)| (folder.join(name), bytes));
    let mut stale: Vec<_> =
        expected.filter(|(path, bytes)| !is_same(path, bytes)).map(|(path, _)| path).collect();
    let existing = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_expected = |entry: &DirEntry| seeds.iter().any(|(name, _)| entry.file_name() == *name);
    stale.extend(existing.filter(|entry| !is_expected(entry)).map(|entry| entry.path()));
    stale
}

/// Returns the seeds of all targets.
fn seeds_of_all_targets() -> Vec<(&'static str, Seeds)> {
    vec![
        ("file", file_seeds()),
        ("buffer", buffer_seeds()),
        ("xpress", xpress_seeds()),
        ("tracelogging", tracelogging_seeds()),
        (
            "manifest",
            vec![
                ("eventsource", EVENT_SOURCE.to_vec()),
                ("everything", EVERYTHING.to_vec()),
                ("small", small_manifest()),
            ],
        ),
        ("wevt", compiled_manifest_seeds()),
        ("tmf", vec![("sample", TMF.to_vec()), ("annotations", containers::build_pdb())]),
        ("payload", payload_seeds()),
        ("message", message_seeds()),
        ("control", control::control_seeds()),
        ("region", region::region_seeds()),
        ("security", security::security_seeds()),
        ("filter", filter::filter_seeds()),
        ("tdh", tracelogging_seeds()),
        ("library", calls::library_seeds(&small_manifest())),
        ("controller", calls::controller_seeds()),
        ("consumer", calls::consumer_seeds(file_seeds())),
        ("relog", calls::relog_seeds(file_seeds())),
        ("symbols", symbols::symbol_seeds()),
        ("dotnet", dotnet::dotnet_seeds()),
        ("view_index", view::view_index_seeds()),
        ("perf_data", convert::perf_data_seeds()),
        ("packets", convert::packet_seeds()),
    ]
}

type Seeds = Vec<(&'static str, Vec<u8>)>;

fn build_trace(compressed: bool, records: &[Vec<u8>], is_finished: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let options = Options {
        buffer_size: 2048,
        compressed,
        session_name: "seed".into(),
        processors: 2,
        start_time: FileTime(132_000_000_000_000_000),
        ..Options::default()
    };
    let mut writer = Writer::create(&mut file, options).expect("the writer accepts these options");
    for (cpu, record) in (0..).zip(records) {
        writer.write_record(cpu % 2, record).expect("the record fits into a buffer");
    }
    writer.flush().expect("writing to memory cannot fail");
    if is_finished {
        writer
            .finish(Summary { end_time: FileTime(132_000_001_000_000_000), ..Summary::default() })
            .expect("finishing a file in memory cannot fail");
    }
    file
}

fn file_seeds() -> Seeds {
    let records = records::all_records();
    vec![
        ("plain", build_trace(false, &records, true)),
        ("compressed", build_trace(true, &[&records[..], &records[..]].concat(), true)),
        ("unfinished", build_trace(false, &records, false)),
        ("empty", build_trace(false, &[], true)),
    ]
}

fn buffer_seeds() -> Seeds {
    let records = records::all_records();
    let buffer = |records: &[Vec<u8>]| [vec![0], records.concat()].concat();
    vec![("all", buffer(&records)), ("events", buffer(&records[..3])), ("kernel", buffer(&records[3..]))]
}

fn xpress_seeds() -> Seeds {
    let stream = |size: u16, prefix_size: u16, bytes: &[u8]| {
        let mut out = Vec::new();
        out.put_u16(size).put_u16(prefix_size).put(bytes);
        out
    };
    let text = b"the quick brown fox jumps over the lazy dog, the quick brown fox sleeps ".repeat(8);
    let mut packed = Vec::new();
    xpress::Compressor::new().compress(&text, &mut packed);
    let mut run = Vec::new();
    xpress::Compressor::new().compress(&[7; 40_000], &mut run);
    vec![
        ("text", stream(u16::try_from(text.len()).expect("the length fits"), 100, &packed)),
        ("run", stream(40_000, 39_000, &run)),
        ("plain", stream(600, 64, &text)),
        ("cut", stream(600, 600, &packed[..packed.len() / 2])),
    ]
}

fn tracelogging_seeds() -> Seeds {
    let event = |traits: &[u8], metadata: &[u8], payload: &[u8]| {
        let mut out = Vec::new();
        out.put_u8(u8::try_from(traits.len()).expect("the length fits"))
            .put_u16(u16::try_from(metadata.len()).expect("the length fits"));
        out.put(traits).put(metadata).put(payload);
        out
    };
    let mut traits = TraitsBuilder::new("Seed.Provider");
    let traits = traits
        .group(&Guid::from_u128(1))
        .decode_guid(&Guid::from_u128(2))
        .finish()
        .expect("the traits are short enough");
    let mut scalars = MetadataBuilder::new("Scalars", 0x0200_0000);
    // The payload below has one value for each of these types, in the same order.
    for (in_type, out_type) in [
        (1, 0),
        (2, 35),
        (4, 3),
        (6, 7),
        (8, 8),
        (10, 0),
        (12, 0),
        (15, 0),
        (17, 0),
        (19, 0),
        (22, 12),
        (25, 9),
    ] {
        scalars.add_field(&format!("f{in_type}"), in_type, out_type, 0);
    }
    let mut payload = Vec::new();
    payload
        .put_wide_z("wide")
        .put_ansi_z("narrow")
        .put_u8(1)
        .put_u16(0x5000)
        .put_u32(0x0100_007F)
        .put_u64(1 << 60);
    payload.put_u64(1.5_f64.to_bits()).put_guid(&Guid::from_u128(3)).put_i64(132_000_000_000_000_000);
    payload
        .put(&[1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0])
        .put_u16(4)
        .put(b"{\0}\0")
        .put_u16(16)
        .put(&[0x20; 16]);
    let mut nested = MetadataBuilder::new("Nested", 0);
    nested.add_struct_array("S", 2, 0).add_field("a", 8, 4, 1).add_struct("T", 1, 0).add_array("b", 6, 2, 0);
    nested.add_fixed_array("c", 4, 2, 0, 4).add_custom("d", 5, 0, b"schema");
    let mut inner = Vec::new();
    inner.put_u16(2);
    for n in 0..2 {
        inner.put_u32(n).put_u16(2).put(b"h\0i\0");
    }
    inner.put(b"abcd").put_u16(3).put(&[1, 2, 3]);
    vec![
        ("scalars", event(traits, scalars.finish().expect("the metadata is short enough"), &payload)),
        ("nested", event(&[], nested.finish().expect("the metadata is short enough"), &inner)),
    ]
}

fn small_manifest() -> Vec<u8> {
    let xml = r#"<instrumentationManifest xmlns="http://schemas.microsoft.com/win/2004/08/events"><instrumentation><events>
<provider name="P" guid="{00000000-0000-0000-0000-000000000001}" symbol="P"><keywords><keyword name="K" mask="0x1"/></keywords>
<maps><bitMap name="M"><map value="0x1" message="$(string.a)"/></bitMap></maps>
<templates><template tid="T"><data name="n" inType="win:UInt16"/><data name="v" inType="win:UInt8" count="n" map="M"/>
<data name="b" inType="win:Binary" length="n"/></template></templates>
<events><event value="1" version="2" template="T" keywords="K" message="$(string.a)"/></events></provider>
</events></instrumentation><localization><resources culture="en-US"><stringTable><string id="a" value="A %1"/></stringTable>
</resources></localization></instrumentationManifest>"#;
    xml.as_bytes().to_vec()
}

fn compiled_manifest_seeds() -> Seeds {
    let with_kind = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    vec![
        ("crim-5", with_kind(0, &source::compile_manifest(true))),
        ("crim-3", with_kind(0, &source::compile_manifest(false))),
        ("messages", with_kind(1, &source::encode_messages())),
        ("elf", with_kind(2, &containers::build_elf(&source::compile_manifest(true)))),
        ("pe", with_kind(2, &containers::build_pe(&source::compile_manifest(true)))),
        ("event-info", with_kind(3, &records::event_info())),
        ("event-map", with_kind(4, &records::event_map())),
    ]
}

fn payload_seeds() -> Seeds {
    // The first row is the number of fields, of top-level fields, and flags; a row for each field
    // follows (`fuzz/src/schema.rs`), and then the payload.
    //
    // The top-level fields: a number, an array with that count, a string with that length, an array
    // of two structures. The members of a structure: a number with a map, and a SID.
    let mixed = [
        [6, 4, 0].as_slice(),
        &[0, 6, 0, 0, 0, 0, 0, 0],
        &[0, 8, 18, 5, 0, 0, 0, 0],
        &[0, 1, 1, 0, 0, 3, 0, 0],
        &[3, 4, 2, 3, 2, 0, 0, 0],
        &[0, 4, 13, 0, 0, 0, 0, 1],
        &[0, 19, 0, 0, 0, 0, 0, 0],
        b"\x02\0\x01\0\0\0\x02\0\0\0h\0i\0\x01\x01\x01\0\0\0\0\0\x05\x12\0\0\0\0\x01\x01\0\0\0\0\0\x05\x12\0\0\0",
    ];
    // Two times, a pointer of four bytes, and an array to the end of IPv6 addresses.
    let times = [
        [4, 4, 1].as_slice(),
        &[0, 17, 38, 0, 0, 0, 0, 0],
        &[0, 18, 2, 0, 0, 0, 0, 0],
        &[0, 16, 0, 0, 0, 0, 0, 0],
        &[0, 14, 24, 7, 0, 2, 16, 0],
        &[0x80; 44],
    ];
    vec![("mixed", mixed.concat()), ("times", times.concat())]
}

fn message_seeds() -> Seeds {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("inserts", text("Task %3 of %1!08I64x! waits %2!-20.5s!%n%t%%100%. %10!c! é %99\r\n")),
        ("format", text("-0+ #200.100I64X")),
        ("end", text("%1%0 behind the end %! %b%r")),
    ]
}

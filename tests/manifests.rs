//! Tests of manifests from end to end: programs write events with the generated code, and the
//! recorded events are decoded with the schemas inside the program.
//!
//! ```text
//!   .man ──weir mc──▶ code ──compiler──▶ program ──weir record──▶ .etl
//!                                                                  │ path and build id
//!                    names, fields ◀── .etw_manifest of the program ◀┘
//! ```
//!
//! Each event of each manifest is written with typical, smallest and large values. Payloads must
//! have the bytes that the module `values` expects, and the schemas in the program must equal those
//! of the manifest.

mod overrides;
mod values;

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use traceweir_build::Manifest;
use traceweir_decode::Decoder;
use traceweir_decode::source::manifest::EventDefinition;
use traceweir_format::Guid;
use traceweir_format::etl;
use values::{Variant, build_call, provider_module};

use crate::util::{Daemon, c_library, eventually, nested_build, nested_target, root, sample, weir};

fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn workshop_manifest() -> PathBuf {
    root().join("fixtures/manifests/workshop.man")
}

/// Returns the manifest of the workshop, and a large manifest if the samples are available.
fn manifests() -> Vec<PathBuf> {
    [Some(workshop_manifest()), sample("MsQuicEtw.man")].into_iter().flatten().collect()
}

/// Returns the target folder of cargo. Tests build examples in this folder, so that nothing is
/// built twice.
pub(crate) fn target_folder() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

fn run_command(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}",
        stderr.lines().take(60).collect::<Vec<_>>().join("\n")
    );
}

/// Returns the symbol of an event in generated code.
fn event_symbol(event: &EventDefinition) -> String {
    let descriptor = &event.event.descriptor;
    let name = event.event.schema.names.event.as_deref();
    name.map_or(format!("Event{}_V{}", descriptor.id, descriptor.version), str::to_owned)
}

/// The payloads of each event, by provider, event id and version.
type PayloadsByEvent = HashMap<(Guid, u16, u8), Vec<Vec<u8>>>;

/// Records the program. Compares its schemas with those of the manifests, and the payloads of its
/// events with the expected payloads.
fn record_and_compare(daemon: &Daemon, program: &Path, manifests: &[Manifest], expected: &PayloadsByEvent) {
    let file = daemon.path("events.etl");
    let mut arguments = vec!["record".to_owned(), "-o".to_owned(), arg(&file).to_owned()];
    for provider in manifests.iter().flat_map(Manifest::providers) {
        arguments.extend(["-p".to_owned(), provider.id.to_string()]);
    }
    arguments.extend(["--".to_owned(), arg(program).to_owned()]);
    daemon.weir(arguments).expect(0);

    let dump = weir(["dump", "--format", "jsonl", arg(&file)]).expect(0);
    let named = dump.json().iter().filter(|event| event.get("event").is_some()).count();
    let total: usize = expected.values().map(Vec::len).sum();
    assert!(
        named >= total,
        "{named} of {total} events have names: {}",
        dump.text().lines().nth(3).unwrap_or_default()
    );
    let without_binaries = weir(["dump", "--no-binaries", "--format", "jsonl", arg(&file)]).expect(0);
    assert!(
        without_binaries.text().contains("no schema for this event"),
        "events are decoded without the program"
    );

    let trace = etl::Trace::open(std::fs::File::open(&file).unwrap()).unwrap();
    let mut decoder = Decoder::new();
    let mut recorded_payloads: PayloadsByEvent = HashMap::new();
    let mut events = trace.events();
    while let Some(record) = events.next().unwrap() {
        decoder.observe(&record);
        for tracked in decoder.take_tracked() {
            assert_eq!(Path::new(&tracked.path), program.canonicalize().unwrap());
            assert!(decoder.add_tracked(&tracked, std::fs::File::open(&tracked.path).unwrap()).unwrap() > 0);
        }
        let descriptor = record.descriptor();
        let key = (record.provider(), descriptor.id, descriptor.version);
        if expected.contains_key(&key) {
            let definition = find_definition(manifests, key);
            let found = decoder.find(&record).unwrap_or_else(|error| panic!("{key:?}: {error}"));
            let schema = &found.prepared.schema;
            assert_eq!(schema.fields(), definition.event.schema.fields());
            assert_eq!(schema.names.event, definition.event.schema.names.event);
            assert_eq!(descriptor, definition.event.descriptor);
            recorded_payloads.entry(key).or_default().push(record.payload().to_vec());
        }
    }
    for (key, payloads) in expected {
        assert_eq!(
            recorded_payloads.get(key),
            Some(payloads),
            "{key:?} {}",
            event_symbol(find_definition(manifests, *key))
        );
    }
}

fn find_definition(manifests: &[Manifest], (provider, id, version): (Guid, u16, u8)) -> &EventDefinition {
    let providers =
        manifests.iter().flat_map(Manifest::providers).filter(|candidate| candidate.id == provider);
    let mut events = providers.flat_map(|candidate| &candidate.events);
    events.find(|event| (event.event.descriptor.id, event.event.descriptor.version) == (id, version)).unwrap()
}

/// Builds a manifest whose names try to break out of comments and literals.
fn hostile_manifest() -> Manifest {
    let hostile = r#"     */ int x; /* &quot; \ ??/ %1 // &#10;#error &lt;b&gt; `x` \"#;
    let xml = format!(
        r#"<instrumentationManifest><provider name="{hostile}" guid="{{11223344-5566-7788-99aa-bbccddeeff00}}" symbol="int">
        <keywords><keyword name="{hostile}" mask="1"/><keyword name="K" mask="2" symbol="for"/></keywords><tasks><task name="{hostile}" value="1" message="{hostile}"/></tasks>
        <maps><valueMap name="{hostile}"><map value="1" message="{hostile}"/></valueMap></maps>
        <templates><template tid="{hostile}"><data name="{hostile}" inType="win:UInt8" map="{hostile}"/>
        <struct name="{hostile}S"><data name="while" inType="win:AnsiString"/></struct></template></templates>
        <events><event value="1" symbol="while" template="{hostile}" message="{hostile}"/><event value="2" message="{hostile}"/></events>
        </provider><provider name="{hostile}2" guid="{{11223344-5566-7788-99aa-bbccddeeff01}}">
        <maps><valueMap name="{hostile}"><map value="2" message="{hostile}"/><map value="3" message="{hostile}"/></valueMap></maps>
        <events><event value="2"/></events></provider></instrumentationManifest>"#
    );
    Manifest::parse("hostile \\.man", xml.as_bytes(), "en-US").unwrap()
}

#[test]
fn events_written_by_rust_are_decoded_with_schemas_of_their_program() {
    let daemon = Daemon::start();
    let folder = daemon.path("program");
    std::fs::create_dir_all(folder.join("src")).unwrap();
    let (mut modules, mut calls, mut expected) = (String::new(), String::new(), PayloadsByEvent::new());
    let manifests: Vec<_> = manifests().iter().map(|path| Manifest::open(path).unwrap()).collect();
    for manifest in &manifests {
        let [module, _] = manifest.write_rust(folder.join("src")).unwrap();
        let generated = std::fs::read_to_string(&module).unwrap();
        let name = manifest.stem();
        let _ = writeln!(modules, "#[allow(non_snake_case)] mod {name} {{ include!(\"{name}.rs\"); }}");
        for provider in manifest.providers() {
            let module = provider.name.as_deref().unwrap().to_lowercase().replace('-', "_");
            let module_text = generated.split(&format!("pub mod {module} {{")).nth(1).unwrap();
            let functions = module_text
                .lines()
                .filter_map(|line| line.trim().strip_prefix("pub fn ")?.split_once("_enabled(&self)"));
            let _ = writeln!(calls, "{{ use {name}::*; let p = {module}::Provider::register().unwrap();");
            for (event, (function, _)) in provider.events.iter().zip(functions) {
                for variant in Variant::ALL {
                    let generated_call = build_call(
                        &event.event.schema,
                        event.template.as_deref().unwrap_or_default(),
                        variant,
                    );
                    let _ = writeln!(
                        calls,
                        "assert!(p.{function}_enabled()); p.{function}({}).unwrap();",
                        generated_call.rust.join(", ")
                    );
                    let descriptor = &event.event.descriptor;
                    let key = (provider.id, descriptor.id, descriptor.version);
                    expected.entry(key).or_default().push(generated_call.bytes);
                }
            }
            assert_eq!(module, provider_module(&provider.events[0].event.schema));
            calls.push_str("}\n");
        }
    }
    let [hostile_module, _] = hostile_manifest().write_rust(folder.join("src")).unwrap();
    let _ = writeln!(modules, "mod hostile {{ include!({:?}); }}", hostile_module.file_name().unwrap());
    let main = format!("{modules}\n#[allow(unused_imports)]\nfn main() {{\n{calls}}}\n");
    std::fs::write(folder.join("src/main.rs"), main).unwrap();
    let package = format!(
        "[package]\nname = \"events\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\ntraceweir = {{ path = {:?} }}\n",
        root().join("crates/api")
    );
    std::fs::write(folder.join("Cargo.toml"), package).unwrap();
    std::fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run_command(
        Command::new(cargo).args(["build", "--offline", "--quiet"]).current_dir(&folder).envs(nested_build()),
    );
    let program = folder.join("events");
    std::fs::copy(nested_target().join("debug/events"), &program).unwrap();
    record_and_compare(&daemon, &program, &manifests, &expected);
}

#[test]
fn events_written_by_c_are_decoded_with_schemas_of_their_program() {
    let daemon = Daemon::start();
    let folder = daemon.folder();
    let (mut source, mut calls, mut expected) = (String::new(), String::new(), PayloadsByEvent::new());
    let mut resources = Vec::new();
    let manifests: Vec<_> = manifests().iter().map(|path| Manifest::open(path).unwrap()).collect();
    for manifest in &manifests {
        let [header, resource] = manifest.write_c(folder, &traceweir_build::COptions::default()).unwrap();
        let _ = writeln!(source, "#include {:?}", header.file_name().unwrap());
        resources.push(resource);
        for provider in manifest.providers() {
            let name = provider.name.as_deref().unwrap().replace('-', "_");
            let _ = writeln!(calls, "if (EventRegister{name}() != 0) return 1;");
            for event in &provider.events {
                for variant in Variant::ALL {
                    let generated_call = build_call(
                        &event.event.schema,
                        event.template.as_deref().unwrap_or_default(),
                        variant,
                    );
                    let symbol = event_symbol(event);
                    let _ = writeln!(calls, "if (!EventEnabled{symbol}()) return 2;");
                    let _ = writeln!(
                        calls,
                        "if (EventWrite{symbol}({}) != 0) return 3;",
                        generated_call.c.join(", ")
                    );
                    let descriptor = &event.event.descriptor;
                    let key = (provider.id, descriptor.id, descriptor.version);
                    expected.entry(key).or_default().push(generated_call.bytes);
                }
            }
            let _ = writeln!(calls, "if (EventUnregister{name}() != 0) return 4;");
        }
    }
    let main = daemon.path("main.c");
    std::fs::write(&main, format!("{source}\nint main(void) {{\n{calls}return 0;\n}}\n")).unwrap();
    let program = daemon.path("events");
    let mut compiler = Command::new("gcc");
    compiler.args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-Wl,--gc-sections",
        "-Wl,--build-id",
    ]);
    compiler.arg("-I").arg(root().join("crates/ffi/include")).arg(&main).args(&resources);
    compiler.arg("-o").arg(&program).arg(c_library()).args(["-lpthread", "-ldl", "-lm"]);
    run_command(&mut compiler);
    record_and_compare(&daemon, &program, &manifests, &expected);
}

#[test]
fn all_mistakes_are_listed_and_no_file_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.man");
    let wrong_manifest = std::fs::read_to_string(workshop_manifest())
        .unwrap()
        .replace("level=\"Chatty\"", "level=\"Loud\"")
        .replace("map=\"Guards\"", "map=\"Nails\"");
    std::fs::write(&file, wrong_manifest).unwrap();
    let run = weir(["mc", arg(&file), "--out", arg(folder.path())]).expect(1);
    assert!(
        run.stderr.contains("wrong.man:") && run.stderr.contains("level Loud is not defined"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("map Nails is not defined"), "{}", run.stderr);
    assert_eq!(folder.path().read_dir().unwrap().count(), 1, "a file was written");
    weir(["mc", "/no/such/file.man"]).expect(1);
}

#[test]
fn generated_code_matches_its_golden_files() {
    let folder = tempfile::tempdir().unwrap();
    weir(["mc", arg(&workshop_manifest()), "--out", arg(folder.path()), "--prefix", "Write"]).expect(0);
    for name in ["workshop.h", "workshop.rs"] {
        let generated = std::fs::read_to_string(folder.path().join(name)).unwrap();
        let expected = root().join("fixtures/mc").join(name);
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(expected.parent().unwrap()).unwrap();
            std::fs::write(&expected, &generated).unwrap();
        }
        assert_eq!(
            generated,
            std::fs::read_to_string(&expected).unwrap(),
            "{name} differs; BLESS=1 rewrites it"
        );
    }
    assert!(folder.path().join("workshop_etw.c").exists() && folder.path().join("workshop.etw").exists());
}

/// A manifest with arrays of texts, of a fixed length and of none, and a map with symbols, as in the
/// samples of Windows.
const ARRAY_MANIFEST: &str = r#"<instrumentationManifest xmlns="http://schemas.microsoft.com/win/2004/08/events">
 <instrumentation><events><provider name="Example-Arrays" guid="{a7a15000-0000-4000-8000-000000000017}" symbol="ARRAYS" resourceFileName="x" messageFileName="x">
  <maps><valueMap name="Kind" symbol="KIND"><map value="3" symbol="_LAST" message="$(string.last)"/></valueMap></maps>
  <templates><template tid="T"><data name="FilesCount" inType="win:UInt16"/>
   <data name="Files" inType="win:UnicodeString" length="4" count="FilesCount"/>
   <data name="Tags" inType="win:AnsiString" length="2" count="3"/>
   <data name="Names" inType="win:UnicodeString" count="2"/><data name="Kind" inType="win:UInt32" map="Kind"/></template></templates>
  <events><event symbol="Listed" value="1" version="0" level="win:Informational" template="T"/></events>
 </provider></events></instrumentation><localization><resources culture="en-US"><stringTable><string id="last" value="Last"/>
 </stringTable></resources></localization></instrumentationManifest>"#;

/// A program that writes one event of this manifest. Its argument for `Files` is the text
/// `twothree`, which is two texts of four characters. The program fails unless its callback sees
/// exactly one enable, with the context that the header declares.
const ARRAY_PROGRAM: &str = r#"#include <windows.h>
#include <evntprov.h>
static unsigned calls;
static void on_enable(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all, PEVENT_FILTER_DESCRIPTOR filter, PVOID context);
#define MCGEN_PRIVATE_ENABLE_CALLBACK_V2 on_enable
#include "renamed.h"
static void on_enable(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all, PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    (void)source, (void)level, (void)any, (void)all, (void)filter;
    calls += code == 1 && context == &ARRAYS_Context;
}
int main(void) {
    EventRegisterExample_Arrays();
    if (Example_ArraysHandle == 0)
        return 4;
    EventWriteListed(2, u"onetwothree" + 3, "aabbcc", 6, u"ab\0cd", KIND_LAST);
    EventUnregisterExample_Arrays();
    return calls == 1 ? 0 : 3;
}
"#;

#[test]
fn arrays_of_fixed_length_texts_take_one_argument_and_programs_see_enables() {
    let daemon = Daemon::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("arrays.man"), ARRAY_MANIFEST).unwrap();
    std::fs::write(path("program.c"), ARRAY_PROGRAM).unwrap();
    weir(["mc", arg(&path("arrays.man")), "--out", arg(folder.path()), "--c", "-z", "renamed"]).expect(0);
    let mut compile = Command::new("gcc");
    compile
        .args(["-Wall", "-Wextra", "-Werror", "-Wl,--build-id", "-I"])
        .arg(root().join("crates/ffi/include"));
    compile.arg(path("program.c")).arg(path("renamed_etw.c")).arg("-o").arg(path("program"));
    run_command(compile.arg(c_library()).args(["-lpthread", "-ldl", "-lm"]));
    let file = daemon.path("arrays.etl");
    let provider = "{a7a15000-0000-4000-8000-000000000017}";
    daemon.weir(["record", "-p", provider, "-o", arg(&file), "--", arg(&path("program"))]).expect(0);
    let dump = weir(["dump", "--event", "Listed", arg(&file)]).expect(0).text();
    assert!(dump.contains("Files=[twot hree]") && dump.contains("Tags=[aa bb cc]"), "{dump}");
    assert!(dump.contains("Names=[ab cd]") && dump.contains("Kind=Last"), "{dump}");
}

#[test]
fn example_is_recorded_by_name_and_decoded_without_its_manifest() {
    let daemon = Daemon::start();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let example = ["build", "--offline", "--quiet", "-p", "traceweir-example-manifest"];
    run_command(
        Command::new(cargo).args(example).current_dir(root()).envs([
            ("CARGO_TARGET_DIR", target_folder().into_os_string()),
            ("CARGO_INCREMENTAL", "0".into()),
        ]),
    );
    let (program, file) =
        (target_folder().join("debug/traceweir-example-manifest"), daemon.path("greenhouse.etl"));
    let id = "{0c5f9a8e-6a0e-4c0b-8f5e-1d6f0f3f5a11}";
    let by_name = ["record", "--manifest", arg(&program), "-p", "Example-Greenhouse:Climate|Water"];
    daemon.weir(by_name.iter().chain(&["-o", arg(&file), "--", arg(&program)])).expect(0);
    let dump = weir(["dump", arg(&file)]).expect(0).text();
    assert!(dump.contains("Example-Greenhouse/Measured"), "{dump}");
    let messages = weir(["dump", "--format", "jsonl", arg(&file)]).expect(0).text();
    assert!(messages.contains("Bed tomatoes got 12.5 litres, valve now open"), "{messages}");
    assert!(weir(["stats", arg(&file)]).expect(0).text().contains("Example-Greenhouse/Watered"));
    assert!(weir(["info", arg(&file)]).expect(0).text().contains("Example-Greenhouse"));

    // Without the program, or with another program at its path, the events have no schema.
    let copy = daemon.path("program");
    std::fs::copy(&program, &copy).unwrap();
    daemon.weir(["record", "-p", id, "-o", arg(&file), "--", arg(&copy)]).expect(0);
    assert!(weir(["dump", arg(&file)]).expect(0).text().contains("Example-Greenhouse/Measured"));
    std::fs::remove_file(&copy).unwrap();
    assert!(
        weir(["dump", arg(&file)]).expect(0).text().contains("no schema"),
        "schemas of a removed program were used"
    );
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), &copy).unwrap();
    assert!(
        weir(["dump", arg(&file)]).expect(0).text().contains("no schema"),
        "schemas of another program were used"
    );
}

#[test]
fn headers_compile_without_warnings_for_any_names() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = hostile_manifest();
    let manifests = manifests();
    let opened = manifests.iter().map(|path| Manifest::open(path).unwrap());
    for manifest in [hostile].into_iter().chain(opened) {
        let [header, resource] =
            manifest.write_c(folder.path(), &traceweir_build::COptions::default()).unwrap();
        let main = format!("#include {:?}\nint main(void) {{ return 0; }}\n", header.file_name().unwrap());
        for (compiler, ending, standard) in [
            ("gcc", "c", "c11"),
            ("gcc", "c", "c17"),
            ("clang", "c", "c11"),
            ("g++", "cc", "c++17"),
            ("g++", "cc", "c++20"),
            ("clang++", "cc", "c++17"),
        ] {
            if compiler != "gcc" && Command::new(compiler).arg("--version").output().is_err() {
                crate::util::skip(compiler, &format!("there is no {compiler}"));
                continue;
            }
            let source = folder.path().join(format!("main.{ending}"));
            std::fs::write(&source, &main).unwrap();
            let mut command = Command::new(compiler);
            command
                .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
                .arg(format!("-std={standard}"));
            command.arg("-I").arg(root().join("crates/ffi/include")).arg(&source);
            if ending == "c" {
                command.arg(&resource);
            }
            run_command(&mut command);
        }
    }
}

#[test]
fn live_events_are_decoded_with_schemas_of_their_program() {
    let daemon = Daemon::start();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let example = ["build", "--offline", "--quiet", "-p", "traceweir-example-manifest"];
    run_command(
        Command::new(cargo).args(example).current_dir(root()).envs([
            ("CARGO_TARGET_DIR", target_folder().into_os_string()),
            ("CARGO_INCREMENTAL", "0".into()),
        ]),
    );
    let id = "{0c5f9a8e-6a0e-4c0b-8f5e-1d6f0f3f5a11}";
    let mut watch =
        daemon.spawn_weir(["watch", "-p", id, "--head", "1", "--format", "jsonl", "--event", "Watered"]);
    eventually("the watched event arrives", || {
        let mut program = Command::new(target_folder().join("debug/traceweir-example-manifest"));
        run_command(program.env("TRACEWEIR_RUNTIME_DIR", daemon.folder()));
        (!watch.is_running()).then_some(())
    });
    let text = watch.finish().expect(0).text();
    assert!(text.contains("valve now open") && text.contains("Example-Greenhouse"), "{text}");
}

//! Tests that addresses are resolved to functions, in programs that the tests compile with and
//! without symbols and debug information.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use traceweir_format::Guid;
use traceweir_format::etl::Trace;
use traceweir_format::header::extended::Item;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::{ExtType, class};
use traceweir_format::tracelogging::MetadataBuilder;
use traceweir_format::wire::Put;

use super::{arg, make_folder, write_file};
use crate::golden::{SelfDescribing, TraceMaker, session_options};
use crate::util::{Daemon, Run, c_library, root, weir};

/// `place` is the return address of the last call of `here`. The first call is in `add`, which is
/// inlined into `sell`.
const SHOP: &str = r#"#include <stdio.h>
void *place;
__attribute__((noinline)) void here(void) { place = __builtin_return_address(0); }
static inline __attribute__((always_inline)) int add(int n) {
    here();
    return n + 1;
}
__attribute__((noinline)) int sell(int n) {
    return add(n) * 2;
}
#ifndef LIBRARY
__attribute__((noinline)) int mangled(int n) __asm__("_ZN4shop4Cart3addEib");
int mangled(int n) { here(); return n + 1; }
__attribute__((noinline)) int rusty(int n) __asm__("_ZN4shop4cart4sell17h0123456789abcdefE");
int rusty(int n) { here(); return n + 2; }
int main(void) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    int n = sell(1);
    printf("%p", place);
    n += mangled(1);
    printf(" %p", place);
    n += rusty(1);
    printf(" %p\n", place);
    while (fgets(line, sizeof line, maps)) fputs(line, stdout);
    return n == 0;
}
#else
void *where(void) { sell(1); return place; }
#endif
"#;

/// A program that calls the library.
const CALLER: &str = r#"#include <stdio.h>
void *where(void);
int main(void) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    printf("%p\n", where());
    while (fgets(line, sizeof line, maps)) fputs(line, stdout);
    return 0;
}
"#;

/// A program that prints addresses of its PLT stubs: of a function that it only calls, and of a
/// function whose address it also takes.
const STUBS: &str = r#"#include <stdio.h>
#include <stdlib.h>
void *volatile both;
int main(int count, char **words) {
    char line[4096], *called, *taken;
    FILE *maps = fopen("/proc/self/maps", "r");
    __asm__("lea atoi@PLT(%%rip), %0" : "=r"(called));
    __asm__("lea abs@PLT(%%rip), %0" : "=r"(taken));
    both = (void *)abs;
    printf("%p %p %p %p\n", called + 1, called + 16, called - 15, taken + 1);
    while (fgets(line, sizeof line, maps)) fputs(line, stdout);
    return count < 0 ? atoi(words[0]) + abs(count) : 0;
}
"#;

const BUILD_ID: &str = "00112233445566778899aabbccddeeff01020304";
const PROCESS: u32 = 4242;

fn build_id() -> Vec<u8> {
    (0..20).map(|index| u8::from_str_radix(&BUILD_ID[index * 2..index * 2 + 2], 16).unwrap()).collect()
}

#[track_caller]
fn run_command(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Compiles C source to a program of this name in the folder.
fn compile(folder: &TempDir, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let file = write_file(folder, &format!("{name}.c"), source.as_bytes());
    let program = folder.path().join(name);
    let id = format!("-Wl,--build-id=0x{BUILD_ID}");
    run_command(Command::new("gcc").args(["-O2", &id]).arg(&file).arg("-o").arg(&program).args(flags));
    program
}

/// Output of a program: code addresses, and the address range of an image.
struct ProgramOutput {
    addresses: Vec<u64>,
    base: u64,
    size: u64,
}

fn run_program(program: &Path, image: &Path) -> ProgramOutput {
    parse_output(&run_command(&mut Command::new(program)), image)
}

fn parse_output(out: &str, image: &Path) -> ProgramOutput {
    let (first, maps) = out.split_once('\n').unwrap();
    let parse_hex = |hex: &str| u64::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap();
    let image_maps: Vec<[u64; 3]> = maps
        .lines()
        .filter(|line| line.ends_with(image.to_str().unwrap()))
        .map(|line| {
            let (range, attributes) = line.split_once(' ').unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let offset = attributes.split(' ').nth(1).unwrap();
            [from, to, offset].map(parse_hex)
        })
        .collect();
    let base = image_maps[0][0] - image_maps[0][2];
    let size = image_maps.last().unwrap()[1] - base;
    ProgramOutput { addresses: first.split(' ').map(parse_hex).collect(), base, size }
}

/// Writes the rundown event of an image. If `id` is given, writes the `ImageID` event with the
/// build id before it.
fn write_image_rundown(
    maker: &mut TraceMaker,
    pid: u32,
    (base, size): (u64, u64),
    path: &str,
    id: Option<&[u8]>,
) {
    if let Some(id) = id {
        let mut payload = Vec::new();
        // Base, process, build id (in place of the GUID and age of a PDB file), path.
        payload.put_u64(base).put_u32(pid).put(&id[..20]).put(path.as_bytes()).put_u8(0);
        maker.write_classic(0, class::IMAGE_ID, 36, 2, &payload);
    }
    let mut payload = Vec::new();
    // Base, size, process, …, default base, …, name.
    payload.put_u64(base).put_u64(size).put_u32(pid).put(&[0; 12]).put_u64(0).put(&[0; 16]).put_wide_z(path);
    maker.write_system(0, hook::IMAGE_DC_START, 3, (pid, pid), &payload);
}

/// Builds a trace of one event whose stack has the addresses that a program printed, and then
/// 0x1000, which is in no image.
fn stack_trace_file(output: &ProgramOutput, path: &Path, id: Option<&[u8]>) -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("symbols"));
    write_image_rundown(&mut maker, PROCESS, (output.base, output.size), path.to_str().unwrap(), id);
    let mut event = SelfDescribing::new("Shop.Stack");
    (event.header.process_id, event.header.thread_id) = (PROCESS, PROCESS);
    let mut stack = Vec::new();
    // The match id: 0 means that the stack is complete.
    stack.put_u64(0);
    for address in &output.addresses {
        stack.put_u64(*address);
    }
    stack.put_u64(0x1000);
    let items = [Item { kind: ExtType::STACK_TRACE64, data: &stack }];
    event.write(&mut maker, 0, &mut MetadataBuilder::new("Sold", 0), &[], &items);
    maker.finish()
}

fn dump_symbols(trace: &Path, options: &[&str]) -> Run {
    let mut command = vec!["dump", arg(trace), "--event", "Sold", "--format", "jsonl", "--symbols"];
    command.extend(options);
    weir(command).expect(0)
}

/// Returns the frames of the only event.
fn frames(run: &Run) -> Vec<Value> {
    run.json()[0]["stack"].as_array().unwrap().clone()
}

/// Returns module and function of each frame.
fn modules_and_functions(run: &Run) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    frames(run).iter().map(|frame| (text(&frame["module"]), text(&frame["symbol"]))).collect()
}

fn owned_pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(module, symbol)| ((*module).to_owned(), (*symbol).to_owned())).collect()
}

const UNRESOLVED: (&str, &str) = ("-", "-");

#[test]
fn inlined_functions_sources_and_lines_are_resolved() {
    let folder = make_folder();
    for (name, flags) in [("shop", &["-g"][..]), ("older", &["-gdwarf-4"]), ("packed", &["-g", "-gz=zlib"])] {
        let program = compile(&folder, SHOP, name, flags);
        let output = run_program(&program, &program);
        let path = write_file(&folder, "shop.etl", &stack_trace_file(&output, &program, Some(&build_id())));
        let run = dump_symbols(&path, &[]);
        assert_eq!(run.stderr, "");
        let frames = frames(&run);
        assert_eq!(frames.len(), 5, "{frames:#?}");
        let source = folder.path().join(format!("{name}.c"));
        // The lines are those of `SHOP`.
        for (frame, symbol, line, is_inlined) in [
            (&frames[0], "add", 5, true),
            (&frames[1], "sell", 9, false),
            (&frames[2], "shop::Cart::add(int, bool)", 13, false),
        ] {
            assert_eq!(frame["symbol"], symbol, "{name}: {frame}");
            assert_eq!(frame["module"], name);
            assert_eq!(frame["line"], line, "{name}: {frame}");
            assert_eq!(frame["file"], arg(&source));
            assert_eq!(frame.get("inlined").is_some(), is_inlined, "{frame}");
        }
        assert_eq!(frames[3]["symbol"], "shop::cart::sell");
        assert_eq!(frames[0]["addr"], format!("{:#x}", output.addresses[0]));
        let unresolved =
            serde_json::json!({"addr": "0x1000", "module": null, "symbol": null, "offset": 0x1000});
        assert_eq!(frames[4], unresolved);
        let plain = dump_symbols(&path, &["--no-lines"]);
        assert_eq!(modules_and_functions(&plain)[0], (name.to_owned(), "sell".to_owned()));
    }
}

#[test]
fn text_has_a_line_for_each_function() {
    let folder = make_folder();
    let program = compile(&folder, SHOP, "shop", &["-g"]);
    let path = write_file(
        &folder,
        "shop.etl",
        &stack_trace_file(&run_program(&program, &program), &program, Some(&build_id())),
    );
    let source = folder.path().join("shop.c");
    let plain = weir(["dump", arg(&path), "--event", "Sold"]).expect(0).text();
    let named = weir(["dump", arg(&path), "--event", "Sold", "--symbols"]).expect(0).text();
    let lines: Vec<_> = named.strip_prefix(&plain).unwrap().lines().collect();
    assert_eq!(lines[0], format!("    shop!add (inlined)  {}:5", arg(&source)));
    assert!(lines[1].starts_with("    shop!sell+0x") && lines[1].ends_with("shop.c:9"), "{named}");
    assert_eq!((lines.len(), lines[4]), (5, "    0x1000"));
}

#[test]
fn functions_are_resolved_at_any_link_address() {
    let folder = make_folder();
    let functions =
        [("shop", "sell"), ("shop", "shop::Cart::add(int, bool)"), ("shop", "shop::cart::sell"), UNRESOLVED];
    for flags in [&[][..], &["-no-pie"], &["-static-pie"], &["-g", "-no-pie"], &["-Wl,-z,noseparate-code"]] {
        let program = compile(&folder, SHOP, "shop", flags);
        let path = write_file(
            &folder,
            "shop.etl",
            &stack_trace_file(&run_program(&program, &program), &program, Some(&build_id())),
        );
        let mut expected = owned_pairs(&functions);
        if flags.contains(&"-g") {
            expected.insert(0, ("shop".into(), "add".into()));
        }
        assert_eq!(modules_and_functions(&dump_symbols(&path, &[])), expected, "{flags:?}");
    }
}

#[test]
fn library_functions_are_resolved_by_exported_names() {
    let folder = make_folder();
    let library = compile(&folder, SHOP, "libshop.so", &["-shared", "-fPIC", "-DLIBRARY", "-s"]);
    let caller = compile(&folder, CALLER, "caller", &[arg(&library), "-Wl,-rpath,$ORIGIN"]);
    let path = write_file(
        &folder,
        "shop.etl",
        &stack_trace_file(&run_program(&caller, &library), &library, Some(&build_id())),
    );
    assert_eq!(
        modules_and_functions(&dump_symbols(&path, &[])),
        owned_pairs(&[("libshop.so", "sell"), UNRESOLVED])
    );
}

#[test]
#[cfg(target_arch = "x86_64")]
fn stubs_are_named_after_their_target_and_never_after_preceding_code() {
    let folder = make_folder();
    let ibt = &["-fcf-protection=full", "-Wl,-z,ibtplt"][..];
    for flags in [&[][..], &["-Wl,-z,lazy"], &["-no-pie", "-fno-pie"], &["-Wl,-z,now"], ibt] {
        for strip in [&[][..], &["-s"], &["-g"]] {
            let flags = [&["-fno-builtin"], flags, strip].concat();
            let program = compile(&folder, STUBS, "stubs", &flags);
            let output = run_program(&program, &program);
            let path =
                write_file(&folder, "stubs.etl", &stack_trace_file(&output, &program, Some(&build_id())));
            let names = modules_and_functions(&dump_symbols(&path, &[]));
            let functions: Vec<&str> = names.iter().map(|(_, function)| function.as_str()).collect();
            // Addresses are looked up as return addresses, one byte lower: in the first and the
            // last byte of one stub, in the stub before it, and in a stub of another section.
            assert_eq!((functions[0], functions[1]), ("atoi@plt", "atoi@plt"), "{flags:?}: {names:?}");
            assert!(functions[2] == "-" || functions[2].ends_with("@plt"), "{flags:?}: {names:?}");
            assert_eq!(functions[3], "abs@plt", "{flags:?}: {names:?}");
        }
    }
}

#[test]
fn stripped_program_gets_names_from_its_debug_file() {
    let folder = make_folder();
    let program = compile(&folder, SHOP, "shop", &["-g"]);
    let output = run_program(&program, &program);
    let debug = folder.path().join("shop.debug");
    run_command(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(&debug));
    run_command(Command::new("strip").arg(&program));
    let path = write_file(&folder, "shop.etl", &stack_trace_file(&output, &program, Some(&build_id())));
    let stripped = owned_pairs(&[("shop", "-"), ("shop", "-"), ("shop", "-"), UNRESOLVED]);
    let expected = owned_pairs(&[
        ("shop", "add"),
        ("shop", "sell"),
        ("shop", "shop::Cart::add(int, bool)"),
        ("shop", "shop::cart::sell"),
        UNRESOLVED,
    ]);
    let resolve_with = |options: &[&str]| modules_and_functions(&dump_symbols(&path, options));
    assert_eq!(resolve_with(&[]), stripped);
    let offset = output.addresses[0] - output.base;
    assert_eq!(frames(&dump_symbols(&path, &[]))[0]["offset"], offset);
    // The debug file is found by build id in the layouts of debug packages, of a plain tree and of
    // a cache.
    for layout in [
        format!("a/.build-id/00/{}.debug", &BUILD_ID[2..]),
        format!("b/00/{}.debug", &BUILD_ID[2..]),
        format!("c/{BUILD_ID}/debuginfo"),
    ] {
        let copy = folder.path().join(&layout);
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(&debug, &copy).unwrap();
        let root = folder.path().join(&layout[..1]);
        assert_eq!(resolve_with(&["--symbol-path", arg(&root)]), expected, "{layout}");
        // The debug file is found even if the program no longer exists.
        let gone = write_file(
            &folder,
            "gone.etl",
            &stack_trace_file(&output, Path::new("/gone/shop"), Some(&build_id())),
        );
        assert_eq!(
            modules_and_functions(&dump_symbols(&gone, &["--symbol-path", arg(&root)])),
            expected,
            "{layout}"
        );
    }
    // The debug file is found by the debug link, in the folder of the program and in its subfolder
    // `.debug`.
    run_command(
        Command::new("objcopy")
            .current_dir(folder.path())
            .arg("--add-gnu-debuglink=shop.debug")
            .arg(&program),
    );
    assert_eq!(resolve_with(&[]), expected);
    std::fs::create_dir(folder.path().join(".debug")).unwrap();
    std::fs::rename(&debug, folder.path().join(".debug/shop.debug")).unwrap();
    assert_eq!(resolve_with(&[]), expected);
    std::fs::write(folder.path().join(".debug/shop.debug"), "no ELF file").unwrap();
    assert_eq!(resolve_with(&[]), stripped);
}

#[test]
fn file_with_another_identity_is_not_used() {
    let folder = make_folder();
    let program = compile(&folder, SHOP, "shop", &[]);
    let output = run_program(&program, &program);
    let mut wrong_id = build_id();
    wrong_id[19] ^= 1;
    let path = write_file(&folder, "shop.etl", &stack_trace_file(&output, &program, Some(&wrong_id)));
    let run = dump_symbols(&path, &[]);
    assert_eq!(
        modules_and_functions(&run),
        owned_pairs(&[("shop", "-"), ("shop", "-"), ("shop", "-"), UNRESOLVED])
    );
    assert_eq!(run.stderr.matches("not the file that was traced").count(), 1, "{}", run.stderr);
    // Without an identity, a file at that path is used if it is large enough, with a warning.
    let path = write_file(&folder, "shop.etl", &stack_trace_file(&output, &program, None));
    let run = dump_symbols(&path, &[]);
    assert_eq!(modules_and_functions(&run)[0], ("shop".into(), "sell".into()));
    assert!(run.stderr.contains("does not contain the build id of"), "{}", run.stderr);
    let large = ProgramOutput { size: 1 << 30, ..output };
    let path = write_file(&folder, "shop.etl", &stack_trace_file(&large, &program, None));
    assert_eq!(modules_and_functions(&dump_symbols(&path, &[]))[0], ("shop".into(), "-".into()));
}

#[test]
fn samples_and_separate_stack_events_are_resolved() {
    let folder = make_folder();
    let program = compile(&folder, SHOP, "shop", &[]);
    let output = run_program(&program, &program);
    let mut maker = TraceMaker::new(session_options("walk"));
    write_image_rundown(&mut maker, PROCESS, (output.base, output.size), arg(&program), Some(&build_id()));
    // Thread 77 of the process, so that the sample is attributed to the process.
    let mut thread = Vec::new();
    thread.put_u32(PROCESS).put_u32(77).put(&[0; 64]);
    maker.write_system(0, hook::THREAD_DC_START, 3, (PROCESS, 77), &thread);
    let mut sample = Vec::new();
    sample.put_u64(output.addresses[0]).put_u32(77).put_u16(1).put(&[0, 0]);
    maker.write_perf(0, hook::SAMPLED_PROFILE, 2, &sample);
    let time = maker.last_time();
    let mut walk = Vec::new();
    walk.put_i64(time).put_u32(PROCESS).put_u32(77).put_u64(output.addresses[0]).put_u64(output.addresses[1]);
    maker.write_perf_at(0, hook::STACK_WALK, 2, time, &walk);
    // A stack with the key 9: first the event that refers to the key, then its definition.
    let mut reference = Vec::new();
    reference.put_i64(time).put_u32(PROCESS).put_u32(77).put_u64(9);
    maker.write_perf_at(0, hook::STACK_KEY_USER, 2, time, &reference);
    let mut definition = Vec::new();
    definition.put_u64(9).put_u64(output.addresses[2]);
    maker.write_perf_at(0, hook::STACK_KEY_RUNDOWN, 2, time, &definition);
    let path = write_file(&folder, "walk.etl", &maker.finish());
    let events = weir(["dump", arg(&path), "--format", "jsonl", "--symbols"]).expect(0).json();
    let symbols = |value: &Value| {
        let frames = value.as_array()?;
        Some(frames.iter().map(|frame| frame["symbol"].as_str().unwrap().to_owned()).collect::<Vec<String>>())
    };
    let code: Vec<_> =
        events.iter().filter_map(|event| symbols(&event["code"]["InstructionPointer"])).collect();
    assert_eq!(code, [["sell"]]);
    let stacks: Vec<_> = events.iter().filter_map(|event| symbols(&event["stack"])).collect();
    assert_eq!(stacks, [vec!["sell", "shop::Cart::add(int, bool)"], vec!["shop::cart::sell"]]);
    let lines = weir(["dump", arg(&path), "--symbols"]).expect(0).text();
    assert!(lines.contains("    InstructionPointer: shop!sell+0x"), "{lines}");
}

#[test]
fn functions_of_a_stripped_program_are_named_by_start_address() {
    let folder = make_folder();
    let program = compile(&folder, SHOP, "shop", &["-pie"]);
    let names = run_command(Command::new("nm").arg(&program));
    let sell = names.lines().find_map(|line| line.strip_suffix(" T sell")).unwrap();
    let sell = u64::from_str_radix(sell, 16).unwrap();
    run_command(Command::new("strip").arg(&program));
    let output = run_program(&program, &program);
    let path = write_file(&folder, "shop.etl", &stack_trace_file(&output, &program, Some(&build_id())));
    let lines = weir(["flame", arg(&path), "--event", "Sold", "--collapsed"]).expect(0).text();
    let innermost = lines.trim_end().rsplit_once(';').unwrap().1;
    assert_eq!(innermost, format!("shop+{sell:#x} 1"), "{lines}");
    // Without the program, function starts are unknown, and the offset is rounded down to 256
    // bytes.
    std::fs::remove_file(&program).unwrap();
    let gone = weir(["flame", arg(&path), "--event", "Sold", "--collapsed"]).expect(0);
    assert!(
        gone.text().contains(&format!("shop+{:#x} 1", (output.addresses[0] - 1 - output.base) & !0xFF)),
        "{}",
        gone.text()
    );
    assert!(gone.stderr.contains("shop cannot be opened"), "{}", gone.stderr);
}

/// A program that writes an event in an inlined function.
const WRITER: &str = r#"#include <evntprov.h>
#include <stdio.h>
static const GUID Provider = {0xC0FFEE07, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const EVENT_DESCRIPTOR Event = {1, 0, 0, 4, 0, 0, 1};
static REGHANDLE reg;
static inline __attribute__((always_inline)) ULONG note(void) {
    return EventWrite(reg, &Event, 0, NULL) + 1;
}
__attribute__((noinline, noipa)) ULONG sell(void) {
    return note() * 2;
}
__attribute__((noinline, noipa)) ULONG serve(void) {
    return sell() + 1;
}
int main(void) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    if (EventRegister(&Provider, NULL, NULL, &reg)) return 1;
    printf("%p\n", (void *)sell);
    if (serve() != 3) return 2;
    while (fgets(line, sizeof line, maps)) fputs(line, stdout);
    return EventUnregister(reg);
}
"#;

/// Records an event with its stack, and adds the image events that a kernel session would write.
#[test]
fn stack_of_a_recorded_event_names_its_writer() {
    let (folder, daemon) = (make_folder(), Daemon::start());
    let (headers, library) = (root().join("crates/ffi/include"), c_library());
    let flags = ["-g", "-std=gnu11", "-I", arg(&headers), arg(&library), "-lpthread", "-ldl", "-lm"];
    let program = compile(&folder, WRITER, "writer", &flags);
    let file = daemon.path("recorded.etl");
    let provider = "{c0ffee07-1111-2222-0102-030405060708}@stack";
    let recorded = daemon.weir(["record", "-p", provider, "-o", arg(&file), "--", arg(&program)]).expect(0);
    let output = parse_output(&recorded.text(), &program);

    let trace = Trace::open(std::fs::File::open(&file).unwrap()).unwrap();
    let mut events = trace.events();
    let mut maker = TraceMaker::new(session_options("recorded"));
    while let Some(record) = events.next().unwrap() {
        if record.provider() == Guid::from_u128(0xC0FFEE07_1111_2222_0102_030405060708) {
            write_image_rundown(
                &mut maker,
                record.process_id(),
                (output.base, output.size),
                arg(&program),
                Some(&build_id()),
            );
            maker.write_raw(0, record.bytes());
        }
    }
    let path = write_file(&folder, "named.etl", &maker.finish());
    let run = weir(["dump", arg(&path), "--format", "jsonl", "--symbols"]).expect(0);
    let stacks: Vec<_> = run.json().iter().filter_map(|event| event["stack"].as_array().cloned()).collect();
    assert_eq!(stacks.len(), 1, "not exactly one event has a stack: {stacks:?}");
    let frames: Vec<_> =
        stacks[0].iter().take(4).map(|frame| (frame["symbol"].as_str(), frame["line"].as_u64())).collect();
    let expected =
        [("note", 7), ("sell", 10), ("serve", 13), ("main", 20)].map(|(name, line)| (Some(name), Some(line)));
    assert_eq!(frames, expected);
}

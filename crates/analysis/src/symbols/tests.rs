//! Tests that resolve addresses of traces against the files of a machine below a root folder.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;
use traceweir_format::header::Record;
use traceweir_format::header::classic::ClassicHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::security::Sid;
use traceweir_format::spec::event::class;
use traceweir_format::wire::Put;

use super::*;

const KERNEL_BASE: u64 = 0xFFFF_FFFF_8100_0000;
const KERNEL_IMAGE: &str = "[kernel.kallsyms]";
/// Opcode of ImageID/DbgID_RSDS.
const DEBUG_ID_OPCODE: u8 = 36;
const LOAD: u16 = hook::IMAGE_LOAD;
const RUNDOWN: u16 = hook::IMAGE_DC_START;

/// Creates an empty root folder, and options that use it as the machine's root.
fn create_machine() -> (TempDir, SymbolOptions) {
    let folder = tempfile::tempdir().unwrap();
    let options = SymbolOptions { root: Some(folder.path().to_owned()), ..SymbolOptions::default() };
    (folder, options)
}

fn write(folder: &TempDir, path: &str, text: impl AsRef<[u8]>) {
    let path = folder.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn observe_system_event(symbols: &mut TraceSymbols, hook: u16, version: u8, time: i64, payload: &[u8]) {
    let mut bytes = Vec::new();
    SystemHeader { pointer_size: 8, version, hook, thread_id: 1, process_id: 1, time, cpu_times: None }
        .encode(payload, &mut bytes)
        .unwrap();
    symbols.observe(&Record::parse(&bytes, 0).unwrap());
}

fn observe_image(
    symbols: &mut TraceSymbols,
    hook: u16,
    (pid, base, size): (u32, u64, u64),
    path: &str,
    time: i64,
) {
    let mut payload = Vec::new();
    // Base, size, process, checksum, timestamp and signature level, default base, reserved, path.
    payload.put_u64(base).put_u64(size).put_u32(pid).put(&[0; 12]).put_u64(0).put(&[0; 16]).put_wide_z(path);
    observe_system_event(symbols, hook, 3, time, &payload);
}

fn observe_debug_id(symbols: &mut TraceSymbols, (pid, base): (u32, u64), id: [u8; 20], path: &str) {
    let (mut payload, mut bytes) = (Vec::new(), Vec::new());
    payload.put_u64(base).put_u32(pid).put(&id).put(path.as_bytes()).put_u8(0);
    ClassicHeader { opcode: DEBUG_ID_OPCODE, version: 2, class: class::IMAGE_ID, ..ClassicHeader::default() }
        .encode(&payload, &mut bytes)
        .unwrap();
    symbols.observe(&Record::parse(&bytes, 0).unwrap());
}

fn observe_process(
    symbols: &mut TraceSymbols,
    hook: u16,
    (pid, parent): (u32, u32),
    user: Option<u32>,
    time: i64,
) {
    let mut payload = Vec::new();
    // Key, process, parent, session, exit status, page table, flags; then the SID (after 16 bytes
    // of TOKEN_USER), program, command line, package, application.
    payload.put_u64(1).put_u32(pid).put_u32(parent).put_u32(0).put_u32(0).put_u64(0).put_u32(0);
    match user {
        Some(user) => payload.put_u64(1).put_u64(0).put(&Sid::user(user).to_bytes()),
        None => payload.put_u32(0),
    };
    payload.put_ansi_z("app").put_wide_z("app").put_wide_z("").put_wide_z("");
    observe_system_event(symbols, hook, 4, time, &payload);
}

/// Resolves an address to the module, function and offset of its only frame.
fn resolve(symbols: &mut TraceSymbols, process: u32, address: u64, time: i64) -> (String, String, u64) {
    let frames = symbols.resolve(process, address, time);
    assert_eq!(frames.len(), 1);
    let text_or_dash = |text: &Option<Arc<str>>| text.as_deref().unwrap_or("-").to_owned();
    (text_or_dash(&frames[0].module), text_or_dash(&frames[0].function), frames[0].offset)
}

fn frame(module: &str, function: &str, offset: u64) -> (String, String, u64) {
    (module.into(), function.into(), offset)
}

const KALLSYMS: &str = "ffffffff81000000 T _text\nffffffff81000100 T do_work\nffffffff81000200 t _RNvC4rust3foo\n\
                        ffffffffc0001000 t ext4_read\t[ext4]\n";

fn build_id_note(id: &[u8; 20]) -> Vec<u8> {
    let mut note = Vec::new();
    // Size of the name, size of the id, NT_GNU_BUILD_ID.
    note.put_u32(4).put_u32(20).put_u32(3).put(b"GNU\0").put(id);
    note
}

fn kernel_trace_symbols(options: &SymbolOptions, base: u64, id: Option<[u8; 20]>) -> TraceSymbols {
    let mut symbols = TraceSymbols::new(options.clone(), Arc::new(()));
    if let Some(id) = id {
        observe_debug_id(&mut symbols, (0, base), id, KERNEL_IMAGE);
    }
    observe_image(&mut symbols, RUNDOWN, (0, base, 0x10_0000), KERNEL_IMAGE, 1);
    observe_image(
        &mut symbols,
        RUNDOWN,
        (0, 0xFFFF_FFFF_C000_0000, 0x1_0000),
        "/lib/modules/6/ext4.ko.xz",
        1,
    );
    symbols
}

#[test]
fn running_kernel_resolves_trace_of_this_boot() {
    let (folder, options) = create_machine();
    write(&folder, "proc/kallsyms", KALLSYMS);
    write(&folder, "sys/kernel/notes", build_id_note(&[7; 20]));
    let mut symbols = kernel_trace_symbols(&options, KERNEL_BASE, Some([7; 20]));
    assert_eq!(resolve(&mut symbols, 5, KERNEL_BASE + 0x110, 9), frame(KERNEL_IMAGE, "do_work", 0x10));
    assert_eq!(resolve(&mut symbols, 5, KERNEL_BASE + 0x201, 9), frame(KERNEL_IMAGE, "rust::foo", 1));
    assert_eq!(resolve(&mut symbols, 5, 0xFFFF_FFFF_C000_1004, 9), frame("[ext4]", "ext4_read", 4));
    assert_eq!(resolve(&mut symbols, 5, 0xFFFF_FFFF_C000_0004, 9), frame("ext4.ko.xz", "-", 4));
    assert_eq!(resolve(&mut symbols, 5, 0xFFFF_FFFF_D000_0004, 9), frame("-", "-", 0xFFFF_FFFF_D000_0004));
}

#[test]
fn running_kernel_does_not_resolve_other_boots_and_builds() {
    let (folder, options) = create_machine();
    write(&folder, "proc/kallsyms", KALLSYMS);
    write(&folder, "sys/kernel/notes", build_id_note(&[7; 20]));
    // Another boot (the kernel has another base), another build, another boot without a build id.
    for (base, id) in [
        (KERNEL_BASE + 0x200_0000, Some([7; 20])),
        (KERNEL_BASE, Some([8; 20])),
        (KERNEL_BASE + 0x1000, None),
    ] {
        let mut symbols = kernel_trace_symbols(&options, base, id);
        assert_eq!(resolve(&mut symbols, 5, base + 0x110, 9), frame(KERNEL_IMAGE, "-", 0x110));
    }
    // Hidden addresses resolve nothing.
    write(&folder, "proc/kallsyms", "0000000000000000 T _text\n0000000000000000 T do_work\n");
    let mut symbols = kernel_trace_symbols(&options, KERNEL_BASE, None);
    assert_eq!(resolve(&mut symbols, 5, KERNEL_BASE + 0x110, 9), frame(KERNEL_IMAGE, "-", 0x110));
}

#[test]
fn kernel_of_this_machine_resolves_its_functions() {
    let list = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let find = |name: &str| {
        let line = list.lines().find(|line| line.split(' ').nth(2) == Some(name))?;
        u64::from_str_radix(line.split(' ').next()?, 16).ok().filter(|address| *address != 0)
    };
    let (Some(base), Some(fork)) = (find("_text").or(find("_stext")), find("kernel_clone")) else {
        return crate::skip::skip("kallsyms", "addresses of the kernel are hidden");
    };
    let mut symbols = TraceSymbols::new(SymbolOptions::default(), Arc::new(()));
    observe_image(&mut symbols, RUNDOWN, (0, base, 0x400_0000), KERNEL_IMAGE, 1);
    assert_eq!(resolve(&mut symbols, 5, fork + 4, 9), frame(KERNEL_IMAGE, "kernel_clone", 4));
}

#[test]
fn pdb_of_a_symbol_store_resolves_windows_image() {
    let (folder, mut options) = create_machine();
    let pdb = crate::pdb_file::functions(u16::MAX);
    // A store names the folder by the signature and the age, which is 3.
    write(&folder, "store/shop.pdb/3844DBB920174967BE7AA4A2C20430FA3/shop.pdb", &pdb);
    write(&folder, "flat/shop.pdb", &pdb);
    write(&folder, "broken/shop.pdb", &pdb[..5000]);
    let build_debug_id = |age: u32| {
        let mut id = [0; 20];
        id[..16].copy_from_slice(&crate::pdb_file::SIGNATURE.to_bytes());
        id[16..].copy_from_slice(&age.to_le_bytes());
        id
    };
    for (source, age, name) in [
        ("store", 3, "shop::sell"),
        ("flat", 3, "shop::sell"),
        ("flat", 4, "-"),
        ("broken", 3, "-"),
        ("none", 3, "-"),
    ] {
        options.paths = vec![folder.path().join(source)];
        let mut symbols = TraceSymbols::new(options.clone(), Arc::new(()));
        let base = 0x7FF6_0000_0000;
        observe_debug_id(&mut symbols, (1200, base), build_debug_id(age), "C:\\build\\shop.pdb");
        observe_image(&mut symbols, LOAD, (1200, base, 0x1_0000), "\\Device\\HarddiskVolume1\\shop.exe", 1);
        let offset = if name == "-" { 0x1110 } else { 0x10 };
        assert_eq!(
            resolve(&mut symbols, 1200, base + 0x1110, 2),
            frame("shop.exe", name, offset),
            "{source} {age}"
        );
        let other_name = if name == "-" { "-" } else { "shop::other" };
        assert_eq!(resolve(&mut symbols, 1200, base + 0x1201, 2).1, other_name, "{source} {age}");
    }
}

#[test]
fn named_system_map_is_relocated() {
    let (folder, mut options) = create_machine();
    write(&folder, "maps/System.map-6", "ffffffff81000000 T _text\nffffffff81000100 T do_work\n");
    let moved_base = KERNEL_BASE + 0x1E0_0000;
    for path in ["maps", "maps/System.map-6"] {
        options.paths = vec![folder.path().join(path)];
        let mut symbols = kernel_trace_symbols(&options, moved_base, Some([7; 20]));
        assert_eq!(
            resolve(&mut symbols, 5, moved_base + 0x110, 9),
            frame(KERNEL_IMAGE, "do_work", 0x10),
            "{path}"
        );
        assert_eq!(resolve(&mut symbols, 5, 0xFFFF_FFFF_C000_1004, 9), frame("ext4.ko.xz", "-", 0x1004));
    }
    // Two lists are ambiguous, so neither is used.
    write(&folder, "maps/System.map-7", "ffffffff81000000 T _text\nffffffff81000100 T other\n");
    options.paths = vec![folder.path().join("maps")];
    let mut symbols = kernel_trace_symbols(&options, moved_base, None);
    assert_eq!(resolve(&mut symbols, 5, moved_base + 0x110, 9), frame(KERNEL_IMAGE, "-", 0x110));
}

#[test]
fn generated_code_resolves_by_perf_map() {
    let (folder, options) = create_machine();
    let own_uid = rustix::process::geteuid().as_raw();
    write(
        &folder,
        "tmp/perf-50.map",
        "7f0000001000 100 LazyCompile:work app.js:3\n7f0000002000 10 _ZN3jit3runEv\n",
    );
    let mut symbols = TraceSymbols::new(options.clone(), Arc::new(()));
    observe_image(&mut symbols, LOAD, (50, 0x40_0000, 0x1000), "/usr/bin/node", 1);
    observe_process(&mut symbols, hook::PROCESS_DC_START, (50, 1), Some(own_uid), 2);
    let expected = frame("perf-50.map", "LazyCompile:work app.js:3", 0x20);
    assert_eq!(resolve(&mut symbols, 50, 0x7F00_0000_1020, 5), expected);
    assert_eq!(resolve(&mut symbols, 50, 0x7F00_0000_2001, 5), frame("perf-50.map", "jit::run()", 1));
    assert_eq!(resolve(&mut symbols, 51, 0x7F00_0000_1020, 5), frame("-", "-", 0x7F00_0000_1020));
    assert_eq!(resolve(&mut symbols, 50, 0x7F00_0000_3000, 5), frame("-", "-", 0x7F00_0000_3000));
    // Memory that is reported as an image may contain generated code too.
    observe_image(&mut symbols, LOAD, (50, 0x7F00_0000_2000, 0x2000), "/memfd:jit", 3);
    assert_eq!(resolve(&mut symbols, 50, 0x7F00_0000_2008, 5), frame("perf-50.map", "jit::run()", 8));
    assert_eq!(resolve(&mut symbols, 50, 0x7F00_0000_3008, 5), frame("memfd:jit", "-", 0x1008));
    // Symbolic links are not followed, and processes of Windows traces have no perf maps.
    std::fs::rename(folder.path().join("tmp/perf-50.map"), folder.path().join("tmp/list")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("tmp/list"), folder.path().join("tmp/perf-50.map"))
        .unwrap();
    let mut symbols = TraceSymbols::new(options.clone(), Arc::new(()));
    observe_image(&mut symbols, LOAD, (50, 0x40_0000, 0x1000), "/usr/bin/node", 1);
    assert_eq!(resolve(&mut symbols, 50, 0x7F00_0000_1020, 5).1, "-");
    std::fs::remove_file(folder.path().join("tmp/perf-50.map")).unwrap();
    std::fs::rename(folder.path().join("tmp/list"), folder.path().join("tmp/perf-50.map")).unwrap();
    let mut symbols = TraceSymbols::new(options, Arc::new(()));
    observe_image(&mut symbols, LOAD, (50, 0x40_0000, 0x1000), "\\Device\\node.exe", 1);
    assert_eq!(resolve(&mut symbols, 50, 0x7F00_0000_1020, 5).1, "-");
}

#[test]
fn perf_map_of_another_user_is_ignored() {
    if !rustix::process::geteuid().is_root() {
        return crate::skip::skip("root", "only root can give files away");
    }
    let (folder, options) = create_machine();
    write(&folder, "tmp/perf-50.map", "7f0000001000 100 made\n");
    let list = folder.path().join("tmp/perf-50.map");
    std::os::unix::fs::chown(&list, Some(4711), None).unwrap();
    std::fs::set_permissions(&list, std::fs::Permissions::from_mode(0o644)).unwrap();
    for (user, name) in [(Some(4711), "made"), (Some(4712), "-"), (None, "-")] {
        let mut symbols = TraceSymbols::new(options.clone(), Arc::new(()));
        observe_image(&mut symbols, LOAD, (50, 0x40_0000, 0x1000), "/usr/bin/node", 1);
        observe_process(&mut symbols, hook::PROCESS_DC_START, (50, 1), user, 2);
        assert_eq!(resolve(&mut symbols, 50, 0x7F00_0000_1020, 5).1, name, "{user:?}");
    }
}

#[test]
fn process_inherits_images_until_it_ends() {
    let (_folder, options) = create_machine();
    let mut symbols = TraceSymbols::new(options, Arc::new(()));
    observe_image(&mut symbols, LOAD, (10, 0x40_0000, 0x1000), "/bin/shell", 1);
    observe_process(&mut symbols, hook::PROCESS_START, (20, 10), None, 5);
    observe_image(&mut symbols, LOAD, (20, 0x50_0000, 0x1000), "/bin/tool", 6);
    observe_process(&mut symbols, hook::PROCESS_END, (20, 10), None, 10);
    // The pid is reused by another process.
    observe_process(&mut symbols, hook::PROCESS_START, (20, 30), None, 12);
    observe_image(&mut symbols, LOAD, (20, 0x60_0000, 0x1000), "/bin/other", 13);
    for (address, time, module) in [
        (0x40_0010, 7, "shell"),
        (0x50_0010, 7, "tool"),
        (0x50_0010, 14, "-"),
        (0x40_0010, 14, "-"),
        (0x60_0010, 14, "other"),
        (0x60_0010, 7, "-"),
    ] {
        assert_eq!(resolve(&mut symbols, 20, address, time).0, module, "{address:#x} at {time}");
    }
}

#[test]
fn cyclic_parents_do_not_loop() {
    let (_folder, options) = create_machine();
    let mut symbols = TraceSymbols::new(options, Arc::new(()));
    observe_process(&mut symbols, hook::PROCESS_START, (20, 21), None, 5);
    observe_process(&mut symbols, hook::PROCESS_START, (21, 20), None, 5);
    observe_process(&mut symbols, hook::PROCESS_START, (22, 22), None, 5);
    for pid in [20, 21, 22] {
        assert_eq!(resolve(&mut symbols, pid, 0x1000, 9), frame("-", "-", 0x1000));
    }
}

#[test]
fn paths_that_are_not_programs_resolve_nothing() {
    let (folder, options) = create_machine();
    write(&folder, "bin/text", "not a program");
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.path().join("bin/pipe"), rustix::fs::Mode::RUSR).unwrap();
    let mut symbols = TraceSymbols::new(options, Arc::new(()));
    let paths = ["/bin/text", "/bin/pipe", "/bin", "/none", "[vdso]", "//anon", "relative", "/../..", "/"];
    for (index, path) in paths.iter().enumerate() {
        let base = 0x10_0000 * (index as u64 + 1);
        observe_image(&mut symbols, LOAD, (9, base, 0x1000), path, 1);
        let name = Path::new(path).file_name().map_or("..", |name| name.to_str().unwrap());
        let resolved = resolve(&mut symbols, 9, base + 4, 2);
        match *path {
            "/" => assert_eq!(resolved, frame("-", "-", base + 4)),
            _ => assert_eq!(resolved, frame(name, "-", 4)),
        }
    }
}

#[test]
fn cached_answers_are_limited() {
    let (_folder, options) = create_machine();
    let mut symbols = TraceSymbols::new(options, Arc::new(()));
    for address in 0..200_000_u64 {
        symbols.resolve(1, address * 16, 0);
    }
    assert!(symbols.answer_bytes <= MAX_ANSWER_BYTES);
    assert!(symbols.answers.len() < 200_000);
}

#[test]
fn traces_that_are_read_together_share_the_limit_of_answers() {
    let (_folder, options) = create_machine();
    let mut symbols = TraceSymbols::new(options, Arc::new(()));
    symbols.share_limits(1024);
    for address in 0..1000_u64 {
        symbols.resolve(1, address * 16, 0);
    }
    assert!(symbols.answer_bytes <= MAX_ANSWER_BYTES / 1024, "{}", symbols.answer_bytes);
}

#[test]
fn vdso_resolves_only_with_matching_build_id() {
    let Some(vdso_bytes) = vdso::read_bytes() else {
        // A kernel may be configured without a vDSO.
        assert!(!std::fs::read_to_string("/proc/self/maps").unwrap().contains("[vdso]"));
        return;
    };
    let read_elf = |parts| {
        use traceweir_decode::symbols::Elf;
        Elf::read(std::io::Cursor::new(vdso_bytes.clone()), parts, |_| true).unwrap().unwrap()
    };
    let elf = read_elf(traceweir_decode::symbols::elf::ElfParts { symbols: true, dwarf: false });
    let mut id = [0; 20];
    id.iter_mut().zip(&elf.identity.build_id).for_each(|(to, from)| *to = *from);
    let (offset, name) = (0..vdso_bytes.len() as u64)
        .find_map(|offset| {
            Some((offset, elf.symbols.lookup(offset + elf.identity.base)?.text().into_owned()))
        })
        .unwrap();
    let (base, size) = (0x7FFF_0000_0000, vdso_bytes.len() as u64);
    let (_folder, options) = create_machine();
    let resolve_function = |id: Option<[u8; 20]>| {
        let mut symbols = TraceSymbols::new(options.clone(), Arc::new(()));
        if let Some(id) = id {
            observe_debug_id(&mut symbols, (7, base), id, "[vdso]");
        }
        observe_image(&mut symbols, LOAD, (7, base, size), "[vdso]", 1);
        let frames = symbols.resolve(7, base + offset, 2);
        assert_eq!(frames[0].module.as_deref(), Some("[vdso]"));
        frames[0].function.as_deref().map(str::to_owned)
    };
    assert_eq!(resolve_function(Some(id)).as_ref(), Some(&name));
    id[0] ^= 1;
    assert_eq!(
        (resolve_function(Some(id)), resolve_function(None)),
        (None, None),
        "neither another build nor a trace without build id may resolve"
    );
}

//! Images of programs with known behaviour, compared with what the programs and the kernel report.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use traceweir_format::kernel::hook::IMAGE_DC_START;
use traceweir_format::spec::event::class;
use traceweir_kernel::{CaptureSettings, Group, Groups};

use crate::decoded::{DecodedEvent, capture};
use crate::retry::retry_alternately_with_busy_processors;
use crate::support;

// Event types of the image class.
const UNLOAD: u8 = 2;
const RUNDOWN_START: u8 = 3;
const RUNDOWN_END: u8 = 4;
const LOAD: u8 = 10;
const KERNEL_BASE: u8 = 0x21;
// Event types of the `ImageID` class.
const ID_INFO: u8 = 0;
const ID_NONE: u8 = 32;
const ID_RSDS: u8 = 36;

/// A program that loads the library in its first argument, prints its process id, the address of
/// the library and its memory map, and waits for the end of its input. With `fork` as a second
/// argument, a child prints and waits; with `threads`, some threads wait too.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *wait_long(void *nothing) { pause(); return nothing; }
static void say(void) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) fputs(line, stdout);
    fclose(maps);
    puts("end");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {}
}
int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 1; }
    Dl_info info;
    dladdr(dlsym(library, "answer"), &info);
    pthread_t thread;
    for (int i = 0; argc > 2 && !strcmp(argv[2], "threads") && i < 3; i++) pthread_create(&thread, 0, wait_long, 0);
    pid_t child = argc > 2 && !strcmp(argv[2], "fork") ? fork() : 0;
    if (child) { int status; waitpid(child, &status, 0); return 0; }
    printf("%d %p\n", (int)getpid(), info.dli_fbase);
    say();
    return 0;
}
"#;

/// Builds the program and its library with these options in a temporary directory. Returns `None`
/// if there is no compiler.
fn build_program(program: &[&str], library: &[&str]) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().expect("no folder is created");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("program.c"), PROGRAM).unwrap();
    std::fs::write(at("library.c"), "int answer(void) { return 42; }\n").unwrap();
    let cc = |arguments: &[&str], to: &str| {
        let mut command = Command::new("cc");
        command.current_dir(folder.path()).args(["-g0", "-Wl,--build-id=sha1"]).args(arguments);
        command.args(["-o", to]).status().is_ok_and(|status| status.success())
    };
    let is_built = cc(&[library, &["-shared", "-fPIC", "library.c"]].concat(), "library.so")
        && cc(&[program, &["program.c", "-ldl", "-lpthread"]].concat(), "program");
    support::skip::holds_or_skip(is_built, "cc", "the C compiler or the requested linker is missing")
        .then_some(folder)
}

/// The test program while it runs.
struct RunningProgram {
    child: Child,
    pid: u32,
    /// The address of the library.
    library: u64,
    maps: Vec<String>,
}

impl RunningProgram {
    fn start(folder: &Path, more_arguments: &[&str]) -> Self {
        let mut command = Command::new(folder.join("program"));
        command.arg(folder.join("library.so")).args(more_arguments);
        Self::from_command(command).expect("the start fails")
    }

    fn from_command(mut command: Command) -> Option<Self> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the start fails");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let Some(first) = lines.next() else {
            drop(child.stdin.take());
            let _ = child.wait();
            return None;
        };
        let (pid, base) = first.split_once(" 0x").expect("the program does not print two words");
        let maps = lines.take_while(|line| line != "end").collect();
        let library = u64::from_str_radix(base, 16).unwrap();
        Some(Self { pid: pid.parse().unwrap(), library, maps, child })
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Consecutive mappings of one file.
struct MappedFile {
    name: String,
    base: u64,
    end: u64,
    has_code: bool,
}

/// Returns size and name of the images in a memory map by base. An image extends from the first
/// byte of a file to the end of its last mapping.
fn parse_images(maps: &[String]) -> BTreeMap<u64, (u64, String)> {
    let mut files: Vec<MappedFile> = Vec::new();
    for line in maps {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (range, rights, offset) = (words[0], words[1], words[2]);
        let name = words.get(5).copied().unwrap_or("//anon");
        let (start, end) = range.split_once('-').unwrap();
        let hex = |digits| u64::from_str_radix(digits, 16).unwrap();
        let (start, end, offset) = (hex(start), hex(end), hex(offset));
        let is_code = rights.contains('x');
        match files.last_mut() {
            Some(last) if last.name == name && name.starts_with('/') => {
                (last.end, last.has_code) = (end, last.has_code | is_code);
            }
            _ => {
                files.push(MappedFile { name: name.to_owned(), base: start - offset, end, has_code: is_code })
            }
        }
    }
    let images = files.into_iter().filter(|file| file.has_code && file.name != "[vsyscall]");
    images.map(|file| (file.base, (file.end - file.base, file.name))).collect()
}

/// Returns size and name of the images of a process in events with this opcode, by base.
fn find_images_in_events(events: &[DecodedEvent], opcode: u8, pid: u32) -> BTreeMap<u64, (u64, String)> {
    let is_match =
        |event: &&DecodedEvent| event.is_image(opcode) && event.number("ProcessId") == u64::from(pid);
    let image = |event: &DecodedEvent| {
        let size = event.number("ImageSize");
        (event.number("ImageBase"), (size, event.text("FileName").to_owned()))
    };
    let images: Vec<_> = events.iter().filter(is_match).map(image).collect();
    let by_base: BTreeMap<_, _> = images.iter().cloned().collect();
    assert_eq!(by_base.len(), images.len(), "an image occurs twice: {images:?}");
    by_base
}

/// Returns the build id that `readelf` prints.
fn read_build_id(file: &Path) -> Option<Vec<u8>> {
    let Ok(output) = Command::new("readelf").arg("-n").arg(file).output() else {
        support::skip::skip("readelf", "no readelf");
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let digits = text
        .split("Build ID: ")
        .nth(1)
        .expect("readelf prints no build id")
        .split_whitespace()
        .next()
        .unwrap();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    Some((0..digits.len()).step_by(2).map(byte).collect())
}

/// Asserts that each image event follows its id events.
fn assert_ids_precede_images(events: &[DecodedEvent]) {
    for (at, image) in events.iter().enumerate() {
        if ![UNLOAD, RUNDOWN_START, RUNDOWN_END, LOAD].iter().any(|opcode| image.is_image(*opcode)) {
            continue;
        }
        let (info, id) = (&events[at - 2], &events[at - 1]);
        for event in [info, id] {
            assert_eq!((event.class, event.cpu, event.stamp), (class::IMAGE_ID, image.cpu, image.stamp));
            assert_eq!(event.number("ImageBase"), image.number("ImageBase"));
            assert_eq!(event.number("ProcessId"), image.number("ProcessId"));
            assert_eq!(u64::from(event.header_ids.0), image.number("ProcessId"));
        }
        assert_eq!((info.opcode, info.number("ImageSize")), (ID_INFO, image.number("ImageSize")));
        let name = image.text("FileName");
        assert_eq!(info.text("OriginalFileName"), name.rsplit('/').next().unwrap());
        assert!(id.opcode == ID_NONE || id.opcode == ID_RSDS && id.text("PdbFileName") == name);
    }
}

fn settings() -> CaptureSettings {
    CaptureSettings {
        groups: Groups::new(&[Group::IMAGE_LOAD, Group::NO_SYSCONFIG]),
        ..CaptureSettings::default()
    }
}

fn canonical_path(path: &Path) -> PathBuf {
    path.canonicalize().expect("the path does not exist")
}

#[test]
fn library_is_loaded_where_the_program_reports_it_and_unloaded_with_the_program() {
    retry_alternately_with_busy_processors(5, || {
        let Some(folder) = build_program(&[], &[]) else { return };
        let mut running = None;
        let work = || {
            let program = RunningProgram::start(folder.path(), &[]);
            running = Some((program.pid, program.library, program.maps.clone()));
            program.end();
        };
        let Some(events) = capture(&settings(), work) else { return };
        let (pid, library, maps) = running.unwrap();
        assert_ids_precede_images(&events);
        let mut loads = last_loaded_images(&events, pid);
        loads.retain(|base, _| parse_images(&maps).contains_key(base));
        assert_eq!(loads, parse_images(&maps), "a mapped image was not loaded");
        assert!(loads[&library].1.ends_with("/library.so"));
        let is_of_library = |event: &&DecodedEvent| {
            event.fields.find("ImageBase") == Some(library) && event.header_ids.0 == pid
        };
        let opcodes: Vec<u8> = events.iter().filter(is_of_library).map(|event| event.opcode).collect();
        assert_eq!(
            opcodes,
            [ID_INFO, ID_RSDS, LOAD, ID_INFO, ID_RSDS, UNLOAD],
            "not one load and one unload, each after its ids"
        );
        assert!(
            !events
                .iter()
                .any(|event| event.is_image(RUNDOWN_END) && event.number("ProcessId") == u64::from(pid))
        );
        let id = events.iter().filter(is_of_library).find(|event| event.opcode == ID_RSDS).unwrap();
        if let Some(build_id) = read_build_id(&canonical_path(&folder.path().join("library.so"))) {
            // Signature and age follow base and process.
            assert_eq!(id.payload[12..32], build_id, "wrong signature or age");
        }
        let load = events.iter().filter(is_of_library).find(|event| event.opcode == LOAD).unwrap();
        assert_eq!((load.number("DefaultBase"), load.number("TimeDateStamp")), (0, 0));
    });
}

#[test]
fn library_with_addresses_unequal_to_file_offsets_is_reported_at_its_base() {
    // lld gives segments addresses that differ from their file offsets.
    retry_alternately_with_busy_processors(5, || {
        let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().map(|output| output.stdout);
        let sysroot = String::from_utf8(sysroot.unwrap_or_default()).unwrap();
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let linkers = format!("-B{}/lib/rustlib/{target}/bin/gcc-ld", sysroot.trim());
        let Some(folder) = build_program(&[], &[&linkers, "-fuse-ld=lld"]) else { return };
        let mut running = None;
        let work = || {
            let program = RunningProgram::start(folder.path(), &[]);
            running = Some((program.pid, program.library, program.maps.clone()));
            program.end();
        };
        let Some(events) = capture(&settings(), work) else { return };
        let (pid, library, maps) = running.unwrap();
        let load = last_loaded_images(&events, pid);
        assert!(load[&library].1.ends_with("/library.so"));
        assert_eq!(load[&library], parse_images(&maps)[&library]);
    });
}

/// Returns size and name of the image that was loaded last at each base: a process may run several
/// programs that use a base one after the other.
fn last_loaded_images(events: &[DecodedEvent], pid: u32) -> BTreeMap<u64, (u64, String)> {
    let is_load = |event: &&DecodedEvent| event.is_image(LOAD) && event.number("ProcessId") == u64::from(pid);
    let mut loads: Vec<&DecodedEvent> = events.iter().filter(is_load).collect();
    loads.sort_by_key(|event| event.stamp);
    let image = |event: &&DecodedEvent| {
        (event.number("ImageBase"), (event.number("ImageSize"), event.text("FileName").to_owned()))
    };
    loads.iter().map(image).collect()
}

#[test]
fn rundowns_contain_the_images_of_running_programs() {
    retry_alternately_with_busy_processors(5, || {
        let Some(folder) = build_program(&["-no-pie"], &[]) else { return };
        let running = RunningProgram::start(folder.path(), &[]);
        let (pid, maps) = (running.pid, running.maps.clone());
        let Some(events) = capture(&settings(), || {}) else { return };
        running.end();
        assert_ids_precede_images(&events);
        for opcode in [RUNDOWN_START, RUNDOWN_END] {
            assert_eq!(
                find_images_in_events(&events, opcode, pid),
                parse_images(&maps),
                "wrong images of the program"
            );
            let own = std::fs::read_to_string("/proc/self/maps").unwrap();
            let own: Vec<String> = own.lines().map(str::to_owned).collect();
            let own_images = find_images_in_events(&events, opcode, std::process::id());
            assert_eq!(own_images, parse_images(&own), "wrong images of this process");
        }
        assert!(
            !events.iter().any(|event| event.is_image(LOAD) && event.number("ProcessId") == u64::from(pid))
        );
        let program = canonical_path(&folder.path().join("program"));
        let is_program = |event: &&DecodedEvent| {
            event.is_image(RUNDOWN_START)
                && event.number("ProcessId") == u64::from(pid)
                && Path::new(event.text("FileName")) == program
        };
        let program = events.iter().find(is_program).expect("the program is not in the rundown");
        assert_eq!(program.number("DefaultBase"), program.number("ImageBase"), "wrong default base");
        assert_eq!(program.number("DefaultBase"), 0x40_0000);
        let first =
            events.iter().find(|event| event.is_image(RUNDOWN_START) && event.number("ProcessId") != 0);
        assert!(first.is_some_and(|event| event.hook == Some(IMAGE_DC_START)));
    });
}

#[test]
fn images_of_a_threaded_program_older_than_the_capture_are_unloaded_when_it_ends() {
    retry_alternately_with_busy_processors(5, || {
        let Some(folder) = build_program(&[], &[]) else { return };
        let running = RunningProgram::start(folder.path(), &["threads"]);
        let (pid, maps) = (running.pid, running.maps.clone());
        let Some(events) = capture(&settings(), || running.end()) else { return };
        assert_eq!(find_images_in_events(&events, UNLOAD, pid), parse_images(&maps));
        assert!(find_images_in_events(&events, LOAD, pid).is_empty());
        assert!(find_images_in_events(&events, RUNDOWN_END, pid).is_empty());
    });
}

#[test]
fn library_visible_only_to_its_process_has_a_build_id() {
    retry_alternately_with_busy_processors(5, || {
        let Some(folder) = build_program(&[], &[]) else { return };
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c"]).current_dir(folder.path()).stderr(Stdio::null());
        command.arg("mount -t tmpfs none inner && mv library.so inner && exec ./program ./inner/library.so");
        let running = Command::new("unshare")
            .arg("--version")
            .output()
            .ok()
            .and_then(|_| RunningProgram::from_command(command));
        let Some(running) = running else {
            return support::skip::skip("root", "no separate mount namespace");
        };
        assert!(!inner.join("library.so").exists());
        let (pid, library, maps) = (running.pid, running.library, running.maps.clone());
        let Some(events) = capture(&settings(), || {}) else { return };
        assert_eq!(find_images_in_events(&events, RUNDOWN_START, pid), parse_images(&maps));
        let is_id =
            |event: &&DecodedEvent| event.class == class::IMAGE_ID && event.number("ImageBase") == library;
        assert_eq!(
            events.iter().filter(is_id).nth(1).map(|event| event.opcode),
            Some(ID_RSDS),
            "the library has no build id"
        );
        running.end();
    });
}

#[test]
fn kernel_is_the_first_image() {
    retry_alternately_with_busy_processors(5, || {
        let Some(events) = capture(&settings(), || {}) else { return };
        let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let text = symbols.lines().find(|line| line.ends_with(" _text")).unwrap_or("0");
        let text = u64::from_str_radix(text.split(' ').next().unwrap(), 16).unwrap();
        if !support::skip::holds_or_skip(text != 0, "kallsyms", "addresses of the kernel are hidden") {
            return;
        }
        let base = events
            .iter()
            .find(|event| event.is_image(KERNEL_BASE))
            .expect("the base of the kernel is not captured");
        let image =
            events.iter().find(|event| event.is_image(RUNDOWN_START)).expect("no image event is captured");
        assert_eq!((base.number("ImageBase"), image.number("ImageBase")), (text, text));
        assert_eq!((image.text("FileName"), image.number("ProcessId")), ("[kernel.kallsyms]", 0));
        assert_eq!(image.header_ids.0, std::process::id(), "written by another process");
        let id = events
            .iter()
            .find(|event| event.opcode == ID_RSDS && event.class == class::IMAGE_ID)
            .expect("the build id of the kernel is not captured");
        let notes = std::fs::read("/sys/kernel/notes").unwrap();
        // The id follows base and process in the event, and the 16 bytes of header and name in the
        // note.
        assert_eq!(id.payload[12..32], notes[16..36]);
    });
}

#[test]
fn forked_child_has_the_images_of_its_parent() {
    retry_alternately_with_busy_processors(5, || {
        let Some(folder) = build_program(&[], &[]) else { return };
        let mut running = None;
        let work = || {
            let program = RunningProgram::start(folder.path(), &["fork"]);
            running = Some((program.pid, program.child.id(), program.maps.clone()));
            program.end();
        };
        let Some(events) = capture(&settings(), work) else { return };
        let (child, parent, maps) = running.unwrap();
        assert_ne!(child, parent);
        assert_eq!(find_images_in_events(&events, LOAD, child), parse_images(&maps));
        assert_eq!(find_images_in_events(&events, UNLOAD, child), parse_images(&maps));
    });
}

#[test]
fn deleted_library_and_generated_code_keep_their_names() {
    retry_alternately_with_busy_processors(5, || {
        const GENERATOR: &str = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        #include <sys/mman.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            void *library = dlopen(argv[1], RTLD_NOW);
            unlink(argv[1]);
            void *code = mmap(0, 65536, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            mprotect(code, 4096, PROT_READ | PROT_EXEC);
            mprotect(code, 65536, PROT_READ | PROT_WRITE | PROT_EXEC);
            printf("%p\n", code);
            fflush(stdout);
            getchar();
            return library == 0;
        }"#;
        let Some(folder) = build_program(&[], &[]) else { return };
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("generator.c"), GENERATOR).unwrap();
        let status =
            Command::new("cc").arg(at("generator.c")).arg("-ldl").arg("-o").arg(at("generator")).status();
        assert!(status.unwrap().success());
        let library = canonical_path(&at("library.so"));
        let build_id = read_build_id(&library);
        let (mut child, mut code) = (None, 0);
        let work = || {
            let mut command = Command::new(at("generator"));
            command.arg(&library).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut generator = command.spawn().unwrap();
            let mut line = String::new();
            BufReader::new(generator.stdout.take().unwrap()).read_line(&mut line).unwrap();
            code = u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).unwrap();
            child = Some(generator);
        };
        let Some(events) = capture(&settings(), work) else { return };
        let mut child = child.unwrap();
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success());
        for opcode in [LOAD, RUNDOWN_END] {
            let is_match = |event: &&DecodedEvent| {
                event.is_image(opcode) && event.number("ProcessId") == u64::from(child.id())
            };
            let code: Vec<_> =
                events.iter().filter(is_match).filter(|event| event.number("ImageBase") == code).collect();
            assert_eq!(code.len(), 1);
            assert_eq!((code[0].text("FileName"), code[0].number("ImageSize")), ("//anon", 65536));
            let name = library.to_str().unwrap();
            let at = events
                .iter()
                .position(|event| is_match(&event) && event.text("FileName") == name)
                .expect("no library event is captured");
            if let Some(build_id) = &build_id {
                assert_eq!(events[at - 1].payload[12..32], **build_id, "wrong id of a deleted file");
            }
        }
    });
}

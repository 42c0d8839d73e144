//! Images as real captures tell them: programs of known behaviour, compared with what they and the kernel say of themselves.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use traceweir_format::spec::event::class;
use traceweir_kernel::{Group, Wanted};

use crate::again::again;
use crate::support;
use crate::support::groups;
use crate::told::{Told, capture};

const UNLOAD: u8 = 2;
const RUNDOWN_START: u8 = 3;
const RUNDOWN_END: u8 = 4;
const LOAD: u8 = 10;

/// Loads the library that it is told, says where a function of it lies and what is mapped, and waits for the end of its input. `fork` as a second argument: a child does the waiting
/// instead, and its id is said in front; `threads`: some threads wait with it.
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

/// A folder with the program and its library, linked as told; `None` where there is no compiler.
fn built(program: &[&str], library: &[&str]) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().expect("a folder");
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
    support::skip::can(is_built, "cc", "no C compiler, or not this linker").then_some(folder)
}

/// The program, running.
struct Running {
    child: Child,
    pid: u32,
    library: u64,
    maps: Vec<String>,
}

impl Running {
    fn start(folder: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(folder.join("program"));
        command.arg(folder.join("library.so")).args(more);
        Self::of(command).expect("the program")
    }

    fn of(mut command: Command) -> Option<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let Some(first) = lines.next() else {
            drop(child.stdin.take());
            let _ = child.wait();
            return None;
        };
        let (pid, base) = first.split_once(" 0x").expect("two words");
        let maps = lines.take_while(|line| line != "end").collect();
        let library = u64::from_str_radix(base, 16).unwrap();
        Some(Self { pid: pid.parse().unwrap(), library, maps, child })
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Images by their base: where the first byte of a file is, up to the end of its last mapping.
fn images_in(maps: &[String]) -> BTreeMap<u64, (u64, String)> {
    let mut files: Vec<(String, u64, u64, bool)> = Vec::new();
    for line in maps {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (range, rights, offset) = (words[0], words[1], words[2]);
        let name = words.get(5).copied().unwrap_or("//anon");
        let (start, end) = range.split_once('-').unwrap();
        let hex = |digits| u64::from_str_radix(digits, 16).unwrap();
        let (start, end, offset) = (hex(start), hex(end), hex(offset));
        let is_code = rights.contains('x');
        match files.last_mut() {
            Some(last) if last.0 == name && name.starts_with('/') => {
                (last.2, last.3) = (end, last.3 | is_code);
            }
            _ => files.push((name.to_owned(), start - offset, end, is_code)),
        }
    }
    let code = files.into_iter().filter(|it| it.3 && it.0 != "[vsyscall]");
    code.map(|(name, start, end, _)| (start, (end - start, name))).collect()
}

fn images_told(told: &[Told], opcode: u8, pid: u32) -> BTreeMap<u64, (u64, String)> {
    let of_it = |it: &&Told| it.is_image(opcode) && it.number("ProcessId") == u64::from(pid);
    let image = |it: &Told| {
        let size = it.number("ImageSize");
        (it.number("ImageBase"), (size, it.text("FileName").to_owned()))
    };
    let all: Vec<_> = told.iter().filter(of_it).map(image).collect();
    let by_base: BTreeMap<_, _> = all.iter().cloned().collect();
    assert_eq!(by_base.len(), all.len(), "each once: {all:?}");
    by_base
}

/// What `readelf` says the build id is.
fn build_id(file: &Path) -> Option<Vec<u8>> {
    let Ok(output) = Command::new("readelf").arg("-n").arg(file).output() else {
        support::skip::skip("readelf", "no readelf");
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let digits = text.split("Build ID: ").nth(1).expect("a build id").split_whitespace().next().unwrap();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    Some((0..digits.len()).step_by(2).map(byte).collect())
}

/// Each image event has its ids in front of it.
fn check_ids(told: &[Told]) {
    for (at, image) in told.iter().enumerate() {
        if ![UNLOAD, RUNDOWN_START, RUNDOWN_END, LOAD].iter().any(|opcode| image.is_image(*opcode)) {
            continue;
        }
        let (info, id) = (&told[at - 2], &told[at - 1]);
        for it in [info, id] {
            assert_eq!((it.class, it.cpu, it.raw), (class::IMAGE_ID, image.cpu, image.raw));
            assert_eq!(it.number("ImageBase"), image.number("ImageBase"));
            assert_eq!(it.number("ProcessId"), image.number("ProcessId"));
            assert_eq!(u64::from(it.header.0), image.number("ProcessId"));
        }
        assert_eq!((info.opcode, info.number("ImageSize")), (0, image.number("ImageSize")));
        let name = image.text("FileName");
        assert_eq!(info.text("OriginalFileName"), name.rsplit('/').next().unwrap());
        assert!(id.opcode == 32 || id.opcode == 36 && id.text("PdbFileName") == name);
    }
}

fn wanted() -> Wanted {
    Wanted { groups: groups(&[Group::IMAGE_LOAD, Group::NO_SYSCONFIG]), ..Wanted::default() }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().expect("a path")
}

#[test]
fn a_library_is_loaded_where_the_program_says_and_unloaded_with_it() {
    again(5, || {
        let Some(folder) = built(&[], &[]) else { return };
        let mut running = None;
        let work = || {
            let it = Running::start(folder.path(), &[]);
            let (pid, library, maps) = (it.pid, it.library, it.maps.clone());
            it.end();
            running = Some((pid, library, maps));
        };
        let Some(told) = capture(&wanted(), work) else { return };
        let (pid, library, maps) = running.unwrap();
        check_ids(&told);
        let mut loads = images_told_last(&told, pid);
        loads.retain(|base, _| images_in(&maps).contains_key(base));
        assert_eq!(loads, images_in(&maps), "all that is mapped was loaded");
        assert!(loads[&library].1.ends_with("/library.so"));
        let of_library = |it: &&Told| it.fields.find("ImageBase") == Some(library) && it.header.0 == pid;
        let events: Vec<u8> = told.iter().filter(of_library).map(|it| it.opcode).collect();
        assert_eq!(events, [0, 36, LOAD, 0, 36, UNLOAD], "loaded once and unloaded once, its ids in front");
        assert!(!told.iter().any(|it| it.is_image(RUNDOWN_END) && it.number("ProcessId") == u64::from(pid)));
        let id = told.iter().filter(of_library).find(|it| it.opcode == 36).unwrap();
        if let Some(build_id) = build_id(&real(&folder.path().join("library.so"))) {
            assert_eq!(id.payload[12..32], build_id, "signature and age");
        }
        let load = told.iter().filter(of_library).find(|it| it.opcode == LOAD).unwrap();
        assert_eq!((load.number("DefaultBase"), load.number("TimeDateStamp")), (0, 0));
    });
}

#[test]
fn a_library_whose_addresses_are_not_its_offsets_is_loaded_where_it_begins() {
    again(5, || {
        let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().map(|it| it.stdout);
        let sysroot = String::from_utf8(sysroot.unwrap_or_default()).unwrap();
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let linkers = format!("-B{}/lib/rustlib/{target}/bin/gcc-ld", sysroot.trim());
        let Some(folder) = built(&[], &[&linkers, "-fuse-ld=lld"]) else { return };
        let mut running = None;
        let work = || {
            let it = Running::start(folder.path(), &[]);
            running = Some((it.pid, it.library, it.maps.clone()));
            it.end();
        };
        let Some(told) = capture(&wanted(), work) else { return };
        let (pid, library, maps) = running.unwrap();
        let load = images_told_last(&told, pid);
        assert!(load[&library].1.ends_with("/library.so"));
        assert_eq!(load[&library], images_in(&maps)[&library]);
    });
}

/// Images by their base as they were loaded last: a base may be used by one program after the other.
fn images_told_last(told: &[Told], pid: u32) -> BTreeMap<u64, (u64, String)> {
    let of_it = |it: &&Told| it.is_image(LOAD) && it.number("ProcessId") == u64::from(pid);
    let mut loads: Vec<&Told> = told.iter().filter(of_it).collect();
    loads.sort_by_key(|it| it.raw);
    let image =
        |it: &&Told| (it.number("ImageBase"), (it.number("ImageSize"), it.text("FileName").to_owned()));
    loads.iter().map(image).collect()
}

#[test]
fn rundowns_tell_what_is_mapped_in_a_living_program_and_in_this_one() {
    again(5, || {
        let Some(folder) = built(&["-no-pie"], &[]) else { return };
        let running = Running::start(folder.path(), &[]);
        let (pid, maps) = (running.pid, running.maps.clone());
        let Some(told) = capture(&wanted(), || {}) else { return };
        running.end();
        check_ids(&told);
        for opcode in [RUNDOWN_START, RUNDOWN_END] {
            assert_eq!(images_told(&told, opcode, pid), images_in(&maps), "of the program");
            let own = std::fs::read_to_string("/proc/self/maps").unwrap();
            let own: Vec<String> = own.lines().map(str::to_owned).collect();
            assert_eq!(images_told(&told, opcode, std::process::id()), images_in(&own), "of this process");
        }
        assert!(!told.iter().any(|it| it.is_image(LOAD) && it.number("ProcessId") == u64::from(pid)));
        let program = real(&folder.path().join("program"));
        let is_it = |it: &&Told| {
            it.is_image(RUNDOWN_START)
                && it.number("ProcessId") == u64::from(pid)
                && Path::new(it.text("FileName")) == program
        };
        let program = told.iter().find(is_it).expect("the program");
        assert_eq!(program.number("DefaultBase"), program.number("ImageBase"), "it was linked for its place");
        assert_eq!(program.number("DefaultBase"), 0x40_0000);
        let first = told.iter().find(|it| it.is_image(RUNDOWN_START) && it.number("ProcessId") != 0);
        assert!(first.is_some_and(|it| it.hook == Some(0x1403)));
    });
}

#[test]
fn a_program_with_threads_that_was_there_before_is_unloaded_when_it_ends() {
    again(5, || {
        let Some(folder) = built(&[], &[]) else { return };
        let running = Running::start(folder.path(), &["threads"]);
        let (pid, maps) = (running.pid, running.maps.clone());
        let Some(told) = capture(&wanted(), || running.end()) else { return };
        assert_eq!(images_told(&told, UNLOAD, pid), images_in(&maps));
        assert!(images_told(&told, LOAD, pid).is_empty() && images_told(&told, RUNDOWN_END, pid).is_empty());
    });
}

#[test]
fn a_library_that_only_its_process_can_see_is_identified() {
    again(5, || {
        let Some(folder) = built(&[], &[]) else { return };
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c"]).current_dir(folder.path()).stderr(Stdio::null());
        command.arg("mount -t tmpfs none inner && mv library.so inner && exec ./program ./inner/library.so");
        let running =
            Command::new("unshare").arg("--version").output().ok().and_then(|_| Running::of(command));
        let Some(running) = running else {
            return support::skip::skip("root", "no mount namespace of its own");
        };
        assert!(!inner.join("library.so").exists());
        let (pid, library, maps) = (running.pid, running.library, running.maps.clone());
        let Some(told) = capture(&wanted(), || {}) else { return };
        assert_eq!(images_told(&told, RUNDOWN_START, pid), images_in(&maps));
        let is_it = |it: &&Told| it.class == class::IMAGE_ID && it.number("ImageBase") == library;
        assert_eq!(told.iter().filter(is_it).nth(1).map(|it| it.opcode), Some(36), "its build id is known");
        running.end();
    });
}

#[test]
fn the_kernel_is_the_first_image() {
    again(5, || {
        let Some(told) = capture(&wanted(), || {}) else { return };
        let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let text = symbols.lines().find(|line| line.ends_with(" _text")).unwrap_or("0");
        let text = u64::from_str_radix(text.split(' ').next().unwrap(), 16).unwrap();
        if !support::skip::can(text != 0, "kallsyms", "addresses of the kernel are hidden") {
            return;
        }
        let base = told.iter().find(|it| it.is_image(0x21)).expect("the kernel's base");
        let image = told.iter().find(|it| it.is_image(RUNDOWN_START)).expect("an image");
        assert_eq!((base.number("ImageBase"), image.number("ImageBase")), (text, text));
        assert_eq!((image.text("FileName"), image.number("ProcessId")), ("[kernel.kallsyms]", 0));
        assert_eq!(image.header.0, std::process::id(), "told by this process");
        let id = told.iter().find(|it| it.opcode == 36 && it.class == class::IMAGE_ID).expect("its build id");
        let notes = std::fs::read("/sys/kernel/notes").unwrap();
        assert_eq!(id.payload[12..32], notes[16..36]);
    });
}

#[test]
fn a_forked_child_has_the_images_of_its_parent() {
    again(5, || {
        let Some(folder) = built(&[], &[]) else { return };
        let mut running = None;
        let work = || {
            let it = Running::start(folder.path(), &["fork"]);
            running = Some((it.pid, it.child.id(), it.maps.clone()));
            it.end();
        };
        let Some(told) = capture(&wanted(), work) else { return };
        let (child, parent, maps) = running.unwrap();
        assert_ne!(child, parent);
        assert_eq!(images_told(&told, LOAD, child), images_in(&maps));
        assert_eq!(images_told(&told, UNLOAD, child), images_in(&maps));
    });
}

#[test]
fn a_deleted_library_and_code_made_at_run_time_are_told_by_their_names() {
    again(5, || {
        const MAKER: &str = r#"
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
        let Some(folder) = built(&[], &[]) else { return };
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("maker.c"), MAKER).unwrap();
        let made = Command::new("cc").arg(at("maker.c")).arg("-ldl").arg("-o").arg(at("maker")).status();
        assert!(made.unwrap().success());
        let library = real(&at("library.so"));
        let build_id = build_id(&library);
        let (mut child, mut code) = (None, 0);
        let work = || {
            let mut command = Command::new(at("maker"));
            command.arg(&library).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut it = command.spawn().unwrap();
            let mut line = String::new();
            BufReader::new(it.stdout.take().unwrap()).read_line(&mut line).unwrap();
            code = u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).unwrap();
            child = Some(it);
        };
        let Some(told) = capture(&wanted(), work) else { return };
        let mut child = child.unwrap();
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success());
        for opcode in [LOAD, RUNDOWN_END] {
            let of_it = |it: &&Told| it.is_image(opcode) && it.number("ProcessId") == u64::from(child.id());
            let code: Vec<_> =
                told.iter().filter(of_it).filter(|it| it.number("ImageBase") == code).collect();
            assert_eq!(code.len(), 1);
            assert_eq!((code[0].text("FileName"), code[0].number("ImageSize")), ("//anon", 65536));
            let name = library.to_str().unwrap();
            let at =
                told.iter().position(|it| of_it(&it) && it.text("FileName") == name).expect("the library");
            if let Some(build_id) = &build_id {
                assert_eq!(
                    told[at - 1].payload[12..32],
                    **build_id,
                    "read from a file that has no name any more"
                );
            }
        }
    });
}

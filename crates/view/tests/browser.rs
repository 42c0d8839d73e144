//! Drives the page in a browser, where node, playwright-core and Chromium are installed.

#[path = "../../../tests/support/incident_trace.rs"]
mod incident_trace;
#[path = "../../../tests/support/kernel_trace.rs"]
mod kernel_trace;
#[path = "../../../tests/support/skip.rs"]
mod skip;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kernel_trace::{KernelTraceLayout, KernelWriter};
use traceweir_analysis::text::parse_moment;
use traceweir_view::{GrowingFile, SessionEvents, ViewOptions, export, show, show_session};

/// A name that would run a script if it became markup.
const MARKUP: &str = "<img src=x onerror=\"document.title='changed'\">";
/// A trace of Windows with events of the .NET runtime.
const DOTNET_SAMPLE: &str = "net.4.5.2.x64.etl.zip";

/// One browser at a time: several together exceed the memory of small machines.
static BROWSER: Mutex<()> = Mutex::new(());

/// Returns the path of a program.
fn find_program(names: &[&str]) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// Returns where node finds packages: `NODE_PATH`, or the folder of global packages.
fn node_path() -> Option<OsString> {
    if let Some(path) = std::env::var_os("NODE_PATH") {
        return Some(path);
    }
    let output = Command::new("npm").args(["root", "-g"]).output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().into())
}

struct Browser {
    program: PathBuf,
    node_path: OsString,
    /// Until the end of the test: a server ends when a minute has passed without a page.
    _alone: MutexGuard<'static, ()>,
}

impl Browser {
    fn find() -> Option<Self> {
        let has_node = find_program(&["node"]).is_some();
        let node_path = node_path().unwrap_or_default();
        let has_playwright = has_node
            && Command::new("node")
                .args(["-e", "require.resolve('playwright-core')"])
                .env("NODE_PATH", &node_path)
                .output()
                .is_ok_and(|output| output.status.success());
        let program =
            find_program(&["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]);
        let reason = "node, playwright-core (npm install -g playwright-core) or Chromium is missing";
        if !skip::holds_or_skip(has_playwright && program.is_some(), "browser", reason) {
            return None;
        }
        let _alone = BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Self { program: program?, node_path, _alone })
    }

    /// Runs a scenario of `browser.cjs` and fails with its output if it fails.
    fn run(&self, scenario: &str, url: &str) {
        self.run_with(scenario, &[url], &[]);
    }

    /// Runs a scenario on one or more pages, with environment variables.
    fn run_with(&self, scenario: &str, urls: &[&str], variables: &[(&str, &Path)]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser.cjs");
        let output = Command::new("node")
            .arg(script)
            .arg(scenario)
            .args(urls)
            .env("NODE_PATH", &self.node_path)
            .env("BROWSER_PROGRAM", &self.program)
            .envs(variables.iter().copied())
            .output()
            .expect("node did not run");
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{scenario}: {text}{errors}");
        println!("{scenario}: {text}");
    }
}

fn write_trace(folder: &Path, bytes: u64, name_part: &'static str) -> PathBuf {
    let path = folder.join("kernel.etl");
    let layout = KernelTraceLayout { bytes, cpus: 2, processes: 12, threads: 4, name_part };
    kernel_trace::write(&path, layout).expect("the trace is not written");
    path
}

/// Returns a sample, or records a skip.
fn find_sample(name: &str) -> Option<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("TRACEWEIR_SAMPLES").map_or(default, PathBuf::from);
    let path = folder.join(name);
    let reason = format!("sample {name} is not in {}", folder.display());
    skip::holds_or_skip(path.exists(), "samples", &reason).then_some(path)
}

/// Serves a trace while the test program lives, and returns the address.
fn serve(trace: PathBuf) -> String {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let options = ViewOptions { paths: vec![trace], ..ViewOptions::default() };
        show(&options, |url, _| sender.send(url.to_owned()).unwrap())
    });
    receiver.recv().expect("the server did not start")
}

#[test]
fn kernel_trace_is_explored_by_mouse_and_keyboard() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = serve(write_trace(folder.path(), 4 << 20, ""));
    for scenario in ["mouse", "keyboard", "details", "partial", "reload", "layout", "crowded"] {
        browser.run(scenario, &url);
    }
}

#[test]
fn dotnet_trace_of_windows_is_explored() {
    let Some(browser) = Browser::find() else { return };
    let Some(sample) = find_sample(DOTNET_SAMPLE) else { return };
    browser.run("dotnet", &serve(sample));
}

/// `TRACEWEIR_VIEW_MIB` is the size of the trace.
#[test]
fn large_trace_is_explored_while_it_is_read() {
    let Some(browser) = Browser::find() else { return };
    let mib = std::env::var("TRACEWEIR_VIEW_MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(24_u64);
    let folder = tempfile::tempdir().unwrap();
    browser.run("large", &serve(write_trace(folder.path(), mib << 20, "")));
}

/// Runs a scenario on a session that writes events until the file `END_FILE` exists. With
/// `waits`, the first event follows when the file `BEGIN_FILE` exists.
fn follow_session(scenario: &str, waits: bool) {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (path, end_file) = (folder.path().join("session.etl"), folder.path().join("end"));
    let begin_file = folder.path().join("begin");
    let mut writer = KernelWriter::create(&path, 1).unwrap();
    if !waits {
        std::fs::write(&begin_file, "").unwrap();
        writer.put_process(70, "app.exe", "").unwrap();
        writer.put_thread(70, 71).unwrap();
    }
    writer.flush().unwrap();
    let is_running = Arc::new(AtomicBool::new(true));
    let shared = Arc::clone(&is_running);
    let file = GrowingFile { path, is_running: Box::new(move || shared.load(Ordering::Acquire)) };
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (name, events) = ("App".to_owned(), SessionEvents::File(file));
        show_session(name, events, &ViewOptions::default(), |url, _| sender.send(url.to_owned()).unwrap())
    });
    let (begin, end) = (begin_file.clone(), end_file.clone());
    let session = std::thread::spawn(move || {
        let mut time = 0;
        while !begin.exists() && !end.exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        while !end.exists() {
            for _ in 0..200 {
                time += 10_000;
                writer.put_sample(0, time, 71, 0x7FF6_0000_1000).unwrap();
            }
            writer.flush().unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        writer.finish(time, 0).unwrap();
        is_running.store(false, Ordering::Release);
    });
    let url = receiver.recv().expect("the server did not start");
    browser.run_with(scenario, &[&url], &[("BEGIN_FILE", &begin_file), ("END_FILE", &end_file)]);
    session.join().unwrap();
}

#[test]
fn page_grows_with_a_session_until_its_end() {
    follow_session("live", false);
}

#[test]
fn page_waits_for_the_first_event_of_a_session() {
    follow_session("waiting", true);
}

#[test]
fn questions_about_an_incident_are_answered_with_the_page() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("incident.etl");
    incident_trace::write(&path).expect("the trace is not written");
    let url = serve(path);
    for scenario in ["blocked", "hot", "written", "lost", "crash"] {
        browser.run(scenario, &url);
    }
}

#[test]
fn names_with_markup_stay_text() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let trace = write_trace(folder.path(), 1 << 20, MARKUP);
    browser.run("markup", &serve(trace.clone()));
    let page = folder.path().join("page.html");
    let options = ViewOptions { paths: vec![trace], ..ViewOptions::default() };
    export(&options, None, None, &page).unwrap();
    browser.run("markup", &format!("file://{}", page.display()));
}

#[test]
fn million_processes_do_not_stall_the_page() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("processes.etl");
    let mut writer = KernelWriter::create(&path, 1).unwrap();
    for pid in 1..=1_000_000_u32 {
        writer.put_process(pid, if pid % 3 == 0 { MARKUP } else { "p.exe" }, "").unwrap();
    }
    for sample in 0..2_000_u32 {
        let (thread, time) = (sample % 500, i64::from(sample) * 10_000);
        writer.put_sample(0, time, thread, 0x7FF6_0000_1000).unwrap();
    }
    writer.finish(20_000_000, 0).unwrap();
    browser.run("million", &serve(path));
}

#[test]
fn times_of_a_long_trace_have_hours() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.etl");
    let mut writer = KernelWriter::create(&path, 1).unwrap();
    writer.put_process(70, "app.exe", "").unwrap();
    writer.put_thread(70, 71).unwrap();
    for time in [10_000, 295_196_680_112, 295_196_680_113] {
        writer.put_sample(0, time, 71, 0x7FF6_0000_1000).unwrap();
    }
    writer.finish(295_196_680_200, 0).unwrap();
    browser.run("long", &serve(path));
}

#[test]
fn exported_page_needs_no_server() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (trace, page) = (write_trace(folder.path(), 2 << 20, ""), folder.path().join("page.html"));
    let options = ViewOptions { paths: vec![trace], ..ViewOptions::default() };
    export(&options, None, None, &page).unwrap();
    browser.run("exported", &format!("file://{}", page.display()));
}

#[test]
fn exported_part_shows_what_the_server_shows_of_it() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (trace, page) = (write_trace(folder.path(), 2 << 20, ""), folder.path().join("page.html"));
    let options = ViewOptions { paths: vec![trace.clone()], ..ViewOptions::default() };
    // The page of the whole trace contains its length.
    let length = exported_length(&options, &page);
    let moment = |ns: i64| parse_moment(&format!("{}us", ns / 1000)).unwrap();
    export(&options, Some(moment(length / 4)), Some(moment(length / 2)), &page).unwrap();
    browser.run_with("part", &[&format!("file://{}", page.display()), &serve(trace)], &[]);
}

/// Exports a whole trace. Returns its length in nanoseconds.
fn exported_length(options: &ViewOptions, page: &Path) -> i64 {
    export(options, None, None, page).unwrap();
    let content = std::fs::read_to_string(page).unwrap();
    let (_, span) = content.split_once("{\"span\":[").unwrap();
    let (span, _) = span.split_once(']').unwrap();
    span.split_once(',').unwrap().1.parse().unwrap()
}

/// Runs in a process of its own, which has another `BROWSER`.
#[test]
#[ignore = "browser_gets_a_file_with_the_address starts it"]
fn shows_a_trace_in_the_browser() {
    let trace = PathBuf::from(std::env::var_os("VIEW_TRACE").expect("VIEW_TRACE is not set"));
    let options = ViewOptions { paths: vec![trace], opens_browser: true, ..ViewOptions::default() };
    show(&options, |url, is_opened| println!("opened {is_opened} {url}")).expect("the view failed");
}

#[test]
fn browser_gets_a_file_with_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let (program, argument) = (folder.path().join("browser"), folder.path().join("argument"));
    let script = "#!/bin/sh\ncd \"${0%/*}\" && printf %s \"$*\" > new && mv new argument\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut view = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shows_a_trace_in_the_browser", "--ignored", "--nocapture"])
        .env("VIEW_TRACE", write_trace(folder.path(), 1 << 20, ""))
        .env("BROWSER", &program)
        .env("XDG_RUNTIME_DIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the view did not start");
    let mut lines = BufReader::new(view.stdout.take().unwrap()).lines().map_while(Result::ok);
    let url = lines.find_map(|line| Some(line.split_once("opened true ")?.1.to_owned()));
    let url = url.expect("no browser was started");
    while !argument.exists() {
        std::thread::yield_now();
    }
    let page = std::fs::read_to_string(&argument).unwrap();
    assert!(Path::new(&page).is_file() && !page.contains(url.split('/').nth(3).unwrap()), "{page}");
    assert!(std::fs::read_to_string(&page).unwrap().contains(&url));
    if let Some(browser) = Browser::find() {
        browser.run("opened", &format!("file://{page}"));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&view), rustix::process::Signal::TERM)
        .unwrap();
    // The output is read to its end, so that the view can write it.
    lines.for_each(drop);
    assert!(view.wait().unwrap().success());
    assert!(!Path::new(&page).exists(), "the file with the address is left");
}

#[test]
fn types_of_the_page_are_right() {
    let program = find_program(&["tsc"]);
    let reason = "tsc (npm install -g typescript) is missing";
    if !skip::holds_or_skip(program.is_some(), "tsc", reason) {
        return;
    }
    let output = Command::new("tsc")
        .args(["--checkJs", "--noEmit", "--project"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tsconfig.json"))
        .output()
        .expect("tsc did not run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Scripts of the page that need no browser.
#[test]
fn scripts_of_the_page_work_alone() {
    let reason = "node is missing";
    if !skip::holds_or_skip(find_program(&["node"]).is_some(), "node", reason) {
        return;
    }
    let (sources, folder) = (Path::new(env!("CARGO_MANIFEST_DIR")), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("package.json"), "{\"type\":\"module\"}").unwrap();
    let mut checks = Vec::new();
    let read = |name: &str| std::fs::read_dir(sources.join(name)).unwrap();
    for entry in read("page").chain(read("tests/page")) {
        let source = entry.unwrap().path();
        let copy = folder.path().join(source.file_name().unwrap());
        std::fs::copy(&source, &copy).unwrap();
        if copy.extension().is_some_and(|extension| extension == "mjs") {
            checks.push(copy);
        }
    }
    assert!(!checks.is_empty());
    for check in checks {
        let output = Command::new("node").arg(&check).output().expect("node did not run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", check.display());
    }
}

//! `weir view` in a browser: a kernel trace is opened, zoomed and moved.
//!
//! ```text
//!   figure                 measured                                             limit
//!   view_first_ms          start of weir to the first picture, without an index  10 s
//!   view_zoom_p95_ms       key press to the drawn frame, 95th percentile        100 ms
//!   view_memory            peak memory of weir: indexing and all questions      512 MiB
//!   view_index_ms          start of weir to the complete index                  (report only)
//! ```
//!
//! The browser runs before weir starts, so that weir does not work while nothing is measured. A move
//! is measured in the page, from the time of the key event to the task after the frame that
//! drew all visible tracks of the new window. A move that is not drawn within 10 s fails the
//! measurement. After the moves, the page applies a text filter to all events, opens an event and the
//! statistics of a field, and shows each table and both flame graphs; then the peak memory is read.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::figure::{Direction, Figure, FigureUnit, Requirement, Rounds};
use crate::kernel_trace::{self, KernelTraceLayout};
use crate::machine::MeasuredMachine;
use crate::process;
use crate::record::OutputOptions;

const SCRIPT: &str = include_str!("view/browser.cjs");
const MAX_FIRST_MS: f64 = 10_000.0;
const MAX_ZOOM_MS: f64 = 100.0;
const MAX_MEMORY_MIB: f64 = 512.0;
/// Size of the trace in MiB, unless an option sets another.
const MIB: u64 = 1024;
const QUICK_MIB: u64 = 64;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct ViewOptions {
    #[command(flatten)]
    output: OutputOptions,
    /// Use a trace of 64 MiB, for a first impression.
    #[arg(long)]
    quick: bool,
    /// Use a trace of N MiB [default: 1024]. With --record, the file has the size in its name.
    #[arg(long, value_name = "N", conflicts_with = "quick", value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    mib: Option<u64>,
    /// The `weir` to measure, with the feature `view` [default: the one next to this program].
    #[arg(long, value_name = "PROGRAM")]
    weir: Option<PathBuf>,
    /// Directory for a temporary folder with the trace and its index [default: the system's].
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Writes the trace, measures, and prints the figures.
pub(crate) fn run(arguments: &ViewOptions) -> Result<()> {
    let machine = MeasuredMachine::describe();
    let Some(browser) = Browser::find() else {
        eprintln!(
            "view left out: node, playwright-core (npm install -g playwright-core) or Chromium is missing"
        );
        return Ok(());
    };
    let weir = match &arguments.weir {
        Some(weir) => weir.clone(),
        None => {
            std::env::current_exe().map_err(Error::file(Path::new("this program")))?.with_file_name("weir")
        }
    };
    let root = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::tempdir_in(&root).map_err(Error::file(&root))?;
    let mib = if arguments.quick { QUICK_MIB } else { arguments.mib.unwrap_or(MIB) };
    // The index is a bit smaller than the trace.
    let needed = (mib << 20).saturating_mul(2);
    let free = process::free_bytes(&root)?;
    if free < needed {
        eprintln!(
            "view left out: {} has {} MiB free, {} MiB are needed",
            root.display(),
            free >> 20,
            needed >> 20
        );
        return Ok(());
    }
    eprintln!("writing {mib} MiB");
    let trace = folder.path().join("kernel.etl");
    let layout = KernelTraceLayout { bytes: mib << 20, cpus: 4, processes: 40, threads: 8, name_part: "" };
    let events = kernel_trace::write(&trace, layout).map_err(Error::file(&trace))?;
    let measured = measure(&weir, &browser, folder.path(), &trace)?;
    let figure = |name, unit, ours, limit: Option<f64>| {
        let mut rounds = Rounds::default();
        rounds.add(Some(ours), Some(limit.unwrap_or(ours)));
        let requirement =
            limit.map_or(Requirement::report_only(Direction::Smaller), |_| Requirement::at_most(1.0));
        rounds.figure(name, unit, requirement)
    };
    let figures: Vec<Figure> = [
        figure("view_first_ms", FigureUnit::Milliseconds, measured.first_ms, Some(MAX_FIRST_MS)),
        figure("view_zoom_p95_ms", FigureUnit::Milliseconds, measured.zoom_p95_ms, Some(MAX_ZOOM_MS)),
        figure("view_memory", FigureUnit::Mebibytes, measured.peak_mib, Some(MAX_MEMORY_MIB)),
        figure("view_index_ms", FigureUnit::Milliseconds, measured.index_ms, None),
    ]
    .into_iter()
    .flatten()
    .collect();
    let circumstances =
        [("trace", format!("{mib} MiB")), ("events", events.to_string()), ("browser", browser.describe())];
    let command = match arguments.mib {
        Some(mib) if mib != MIB => format!("view_{mib}mib"),
        _ => "view".to_owned(),
    };
    arguments.output.report(&command, &machine, &circumstances, &figures)
}

/// The results of one run.
struct ViewTimes {
    first_ms: f64,
    zoom_p95_ms: f64,
    index_ms: f64,
    peak_mib: f64,
}

fn measure(weir: &Path, browser: &Browser, folder: &Path, trace: &Path) -> Result<ViewTimes> {
    let mut script = browser.start()?;
    let begin = Instant::now();
    let mut command = Command::new(weir);
    command.arg("view").arg(trace).env("XDG_CACHE_HOME", folder).stdin(Stdio::null()).stdout(Stdio::piped());
    // Without a desktop, no browser is opened.
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").env_remove("BROWSER").stderr(Stdio::null());
    let child = command.spawn().map_err(Error::file(weir))?;
    let mut server = Server(child);
    let url = server.read_url(&command)?;
    let before_ms = begin.elapsed().as_secs_f64() * 1000.0;
    let output = script.open(&url)?;
    let number = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        line.ok_or_else(|| process::program_error(&command, format!("no {name} in {output}")))
    };
    // Every question has been asked.
    number("done")?;
    let peak_mib = server.peak_mib();
    Ok(ViewTimes {
        first_ms: before_ms + number("first_ms")?,
        zoom_p95_ms: number("zoom_p95_ms")?,
        index_ms: before_ms + number("index_ms")?,
        peak_mib,
    })
}

/// A running `weir view`. Dropping this value ends it.
struct Server(Child);

impl Server {
    fn read_url(&mut self, command: &Command) -> Result<String> {
        let output = self.0.stdout.take();
        let lines =
            output.into_iter().flat_map(|output| BufReader::new(output).lines()).map_while(|line| line.ok());
        let url = lines
            .filter_map(|line| Some(line.get(line.find("http://127.0.0.1:")?..)?.to_owned()))
            .map(|url| url.split_whitespace().next().unwrap_or_default().to_owned())
            .next();
        url.ok_or_else(|| process::program_error(command, "no address; is the feature `view` on?".to_owned()))
    }

    /// Returns the peak resident memory so far.
    fn peak_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u32>().ok());
        kib.map_or(0.0, |kib| f64::from(kib) / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Node with playwright-core, and a Chromium.
struct Browser {
    program: PathBuf,
    node_path: String,
}

impl Browser {
    fn find() -> Option<Self> {
        let run = |command: &mut Command| {
            process::run(command, Stdio::piped()).ok().filter(|ended| ended.has_succeeded)
        };
        let node_path = match std::env::var("NODE_PATH") {
            Ok(path) => path,
            Err(_) => run(Command::new("npm").args(["root", "-g"]))?.stdout.trim().to_owned(),
        };
        let has_playwright = ["-e", "require.resolve('playwright-core')"];
        run(Command::new("node").args(has_playwright).env("NODE_PATH", &node_path))?;
        let names = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
        let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
        let mut programs = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        Some(Self { program: programs.find(|path| path.is_file())?, node_path })
    }

    fn describe(&self) -> String {
        let version = process::run(Command::new(&self.program).arg("--version"), Stdio::piped());
        version.map_or_else(|_| "unknown".to_owned(), |ended| ended.stdout.trim().to_owned())
    }

    /// Starts the browser and the script, which then waits for an address.
    fn start(&self) -> Result<Script> {
        let mut command = Command::new("node");
        command
            .args(["-e", SCRIPT])
            .env("NODE_PATH", &self.node_path)
            .env("BROWSER_PROGRAM", &self.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Error::file(Path::new("node")))?;
        let output = child.stdout.take().map(BufReader::new);
        let mut script = Script { child, output };
        let mut line = String::new();
        if let Some(output) = &mut script.output {
            output.read_line(&mut line).map_err(Error::file(Path::new("node")))?;
        }
        if line.trim() != "ready" {
            return Err(process::program_error(&command, "the browser did not start".to_owned()));
        }
        Ok(script)
    }
}

/// The running script. Its errors go to the standard error of this program.
struct Script {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
}

impl Script {
    /// Opens an address in the browser, and returns what the script prints until its end.
    fn open(&mut self, url: &str) -> Result<String> {
        let at_node = || Error::file(Path::new("node"));
        if let Some(mut input) = self.child.stdin.take() {
            writeln!(input, "{url}").map_err(at_node())?;
        }
        let mut text = String::new();
        if let Some(output) = &mut self.output {
            output.read_to_string(&mut text).map_err(at_node())?;
        }
        if !self.child.wait().map_err(at_node())?.success() {
            let reason = format!("the script failed after printing {text:?}");
            return Err(process::program_error(&Command::new("node"), reason));
        }
        Ok(text)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! `weir demo`: records a sample provider that runs in other processes.
//!
//! ```text
//!   weir demo ─┬─▶ weir daemon         in a temporary folder
//!              └─▶ weir demo --stage   records to file and screen, then sums up the file
//!                    ├─▶ weir demo-shop   orders 1, 2
//!                    └─▶ weir demo-shop   orders 3, 4
//! ```
//!
//! `TRACEWEIR_RUNTIME_DIR` passes the folder to all these processes. Therefore, the demo neither
//! needs nor disturbs another daemon, and leaves only its trace.

mod shop;

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anstream::eprintln;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process};
use traceweir::LogFileMode;
use traceweir::consumer::Trace;
use traceweir::controller::Controller;
use traceweir::session::SessionSummary;
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::live;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::traces::TraceSet;
use traceweir_analysis::user_folders::user_folder;
use traceweir_decode::format::Style;

pub(super) use shop::run_shop;
use shop::{EVENTS_PER_ORDER, PROVIDER};

use crate::cli::{DaemonChoice, DemoArgs, OutputFormat, ShownParts};
use crate::existing_output;
use crate::exit::CommandOutcome;
use crate::grammar::parse_provider;
use crate::own_command::own_command;
use crate::printer::EventPrinter;
use crate::progress::TerminalObserver;
use crate::screen::Screen;
use crate::sessions::{self, SessionEnd, SessionPlan, StartedSession};
use crate::signals;
use crate::text::{escape_path, quote_path_for_shell};

const RUNTIME_DIR_VARIABLE: &str = "TRACEWEIR_RUNTIME_DIR";
const SHOP_COUNT: u32 = 2;
const ORDERS_PER_SHOP: u32 = 2;
/// How long a new daemon may take to answer.
const DAEMON_START_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(options: &DemoArgs) -> Result<CommandOutcome> {
    if options.stage { run_stage(options) } else { run_processes(options) }
}

/// Starts the daemon and the recording process, and cleans up after them.
fn run_processes(options: &DemoArgs) -> Result<CommandOutcome> {
    let path = create_output(options)?;
    // Ctrl-C reaches all processes of the demo. This process ignores it to clean up afterwards.
    signals::handle_interrupts(|_| {})?;
    let folder = tempfile::Builder::new()
        .prefix("weir-demo-")
        .tempdir()
        .context("cannot create a temporary folder")?;
    let daemon = command_for_this_program()?
        .args(["daemon", "--idle-exit", "10", "--runtime-dir"])
        .arg(folder.path())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the daemon")?;
    let daemon = ChildProcess(daemon);
    let status = command_for_this_program()?
        .args(["demo", "--stage", "-o"])
        .arg(&path)
        .env(RUNTIME_DIR_VARIABLE, folder.path())
        .status()
        .context("cannot start the demo's session")?;
    drop(daemon);
    let code = status.code().and_then(|c| u8::try_from(c).ok());
    Ok(code.map_or(CommandOutcome::Status(signals::INTERRUPTED), CommandOutcome::Status))
}

/// Creates the trace file and returns its path. The file of the last demo is removed, never opened:
/// it may be a link.
fn create_output(options: &DemoArgs) -> Result<PathBuf> {
    let path = match &options.output {
        Some(path) => path.clone(),
        None => create_own_folder()?.join("weir-demo.etl"),
    };
    let path = std::path::absolute(path).context("cannot resolve the current directory")?;
    if options.output.is_some() {
        existing_output::make_room(&path, false)?.keep();
    }
    let created = match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => File::options().write(true).create_new(true).open(&path),
    };
    created.with_context(|| format!("cannot write {}; name another file with -o", escape_path(&path)))?;
    Ok(path)
}

/// Creates the folder of this user for the state of Traceweir, accessible to this user only. Without
/// a home folder, creates a temporary folder that remains.
fn create_own_folder() -> Result<PathBuf> {
    if let Some(state) = user_folder("XDG_STATE_HOME", ".local/state") {
        let folder = state.join("traceweir");
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        if created.is_ok() && access(&folder, Access::WRITE_OK).is_ok() {
            return Ok(folder);
        }
    }
    let folder = tempfile::Builder::new().prefix("weir-demo-").tempdir();
    Ok(folder.context("cannot create a temporary folder for the trace")?.keep())
}

fn command_for_this_program() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.stdin(Stdio::null());
    Ok(command)
}

/// A child process that is terminated and waited for on drop.
struct ChildProcess(Child);

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// Runs the session and shows its events.
fn run_stage(options: &DemoArgs) -> Result<CommandOutcome> {
    let Some(path) = &options.output else { bail!("--stage needs -o") };
    wait_for_daemon()?;
    let plan = SessionPlan {
        name: "weir-demo".to_owned(),
        mode: LogFileMode::SEQUENTIAL | LogFileMode::REAL_TIME,
        flush_timer: Duration::from_secs(1),
        log_file: Some(path.clone()),
        low_latency: true,
        ..SessionPlan::default()
    };
    let requests = [parse_provider(PROVIDER).map_err(anyhow::Error::msg)?];
    let (session, _) = StartedSession::start(DaemonChoice::default(), &plan, &requests)?;
    let trace = session.session().trace()?;
    session.enable(&requests)?;
    eprintln!("{SHOP_COUNT} processes write events of {PROVIDER}, which are recorded and shown live:\n");
    let recording = std::thread::spawn(move || -> Result<SessionEnd> {
        let shops_result = run_shops();
        let stopped = session.stop()?;
        shops_result.map(|()| stopped)
    });
    let live_count = print_live_events(trace)?;
    let stopped = recording.join().map_err(|_| anyhow::anyhow!("the demo's session failed"))??;
    let outcome = match &stopped {
        SessionEnd::ByUs(summary) | SessionEnd::BeforeStop(summary) => {
            print_file_summary(summary, live_count)?
        }
        SessionEnd::WithDaemon(_) => bail!("the demo's daemon has ended too early"),
    };
    let recorded = count_recorded_events(path)?;
    let expected = u64::from(SHOP_COUNT * ORDERS_PER_SHOP) * EVENTS_PER_ORDER;
    ensure!(
        recorded == expected && live_count == expected || outcome != CommandOutcome::Fine,
        "{expected} events were written, {live_count} shown live, {recorded} recorded"
    );
    print_next_commands(path);
    Ok(outcome)
}

/// Prints commands that can be pasted into a shell as they are.
fn print_next_commands(path: &Path) {
    let (weir, file) = (own_command(), quote_path_for_shell(path));
    eprintln!("\nNow try these on the file:");
    for verb in ["info", "dump --format jsonl", "stats", "check"] {
        eprintln!("  {weir} {verb} {file}");
    }
    eprintln!("and record the sample program yourself, or your own program and provider in its place:");
    eprintln!("  {weir} record -p {PROVIDER} -o shop.etl -- {weir} demo-shop");
}

fn wait_for_daemon() -> Result<()> {
    let start = Instant::now();
    while Controller::find(DaemonChoice::default().scope()).ok().flatten().is_none() {
        ensure!(start.elapsed() < DAEMON_START_TIMEOUT, "the demo's daemon does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Runs all shops in parallel and waits for their end.
fn run_shops() -> Result<()> {
    let mut shops = Vec::new();
    for shop in 0..SHOP_COUNT {
        let first = (shop * ORDERS_PER_SHOP + 1).to_string();
        let orders = ORDERS_PER_SHOP.to_string();
        let child =
            command_for_this_program()?.args(["demo-shop", "--first", &first, "--orders", &orders]).spawn();
        shops.push(child.context("cannot start a sample process")?);
    }
    for mut shop in shops {
        let status = shop.wait().context("cannot wait for a sample process")?;
        ensure!(status.success(), "a sample process failed ({status})");
    }
    Ok(())
}

/// Prints live events until the session ends and returns their number.
fn print_live_events(trace: Trace) -> Result<u64> {
    let screen = Screen::open()?;
    let filter = EventFilter::default();
    let mut printer = EventPrinter::new(
        &filter,
        OutputFormat::Text,
        Style::default(),
        ShownParts::default(),
        screen.is_colourful(),
    );
    let mut events = 0;
    let on_event = |event: &traceweir_analysis::event::DescribedEvent<'_>| {
        events += 1;
        screen.write_with(|out| printer.print_event(event, out))
    };
    live::read_events(
        trace,
        &SchemaFiles::default(),
        &*TerminalObserver::create(true),
        |_, _| true,
        on_event,
    )?;
    screen.flush()?;
    Ok(events)
}

fn print_file_summary(summary: &SessionSummary, live_count: u64) -> Result<CommandOutcome> {
    eprintln!("\n{live_count} events shown live, and in the file:");
    let outcome = sessions::print_summary(summary, true)?;
    if outcome == CommandOutcome::Fine {
        eprintln!("lost: nothing");
    }
    Ok(outcome)
}

/// Counts the events of the sample provider in the file; the session's own events have hook ids.
fn count_recorded_events(path: &PathBuf) -> Result<u64> {
    let mut traces =
        TraceSet::open(std::slice::from_ref(path), &SchemaFiles::default(), TerminalObserver::create(true))?;
    let mut events = 0;
    traces.read(
        |record, _| record.hook().is_none(),
        |_| {
            events += 1;
            Ok(ReadFlow::Continue)
        },
    )?;
    Ok(events)
}

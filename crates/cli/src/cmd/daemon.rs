//! `weir daemon`: runs the daemon that owns the sessions.
//!
//! A service manager may pass a listening socket (`LISTEN_FDS`) and wait for `READY=1`
//! (`NOTIFY_SOCKET`). With `--on-demand`, the process leaves the terminal and process group of the
//! process that started it, so that a Ctrl-C there does not end the daemon's sessions. It also
//! closes the inherited file descriptors.

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use listenfd::ListenFd;
use rustix::fs::FileType;
use rustix::net::{AddressFamily, SocketType};
use traceweir_daemon::settings::DaemonSettings;
use traceweir_daemon::{DaemonFolders, Options, RuntimeDir, Scope, Stopper, close_inherited, run_with_ready};

use crate::cli::DaemonArgs;
use crate::exit::CommandOutcome;

/// Seconds that a daemon started on demand stays without work.
const ON_DEMAND_IDLE_EXIT_SECONDS: u64 = 60;

pub(super) fn run(options: &DaemonArgs) -> Result<CommandOutcome> {
    if options.on_demand {
        // The daemon must not keep locks and pipes of the process that caused its start.
        close_inherited();
    }
    let runtime = find_runtime_dir(options)?;
    if options.on_demand && !detach()? {
        return Ok(CommandOutcome::Fine);
    }
    if options.on_demand && runtime.path().is_absolute() {
        // Do not keep a file system busy with the current directory.
        let _ = std::env::set_current_dir("/");
    }
    let settings = DaemonSettings::read(DaemonFolders::for_runtime(&runtime).as_ref());
    let idle_exit = options.idle_exit.or(settings.idle_exit.map(u64::from));
    let idle_exit = idle_exit.or(options.on_demand.then_some(ON_DEMAND_IDLE_EXIT_SECONDS));
    let folder = runtime.path().display().to_string();
    let listener = take_passed_listener()?;
    let defaults = Options::new(runtime);
    let options = Options {
        idle_exit: idle_exit.map(Duration::from_secs),
        listener,
        max_sessions: options.max_sessions.unwrap_or(settings.max_sessions) as usize,
        reserve_mb: settings.reserve_mb,
        ..defaults
    };
    let notify_ready = || notify_manager("READY=1");
    run_with_ready(options, &Stopper::new()?, notify_ready)
        .with_context(|| format!("the daemon at {folder} failed"))?;
    Ok(CommandOutcome::Fine)
}

fn find_runtime_dir(options: &DaemonArgs) -> Result<RuntimeDir> {
    if let Some(folder) = &options.runtime_dir {
        return Ok(RuntimeDir::from_path(&std::path::absolute(folder)?));
    }
    let scope = if options.system { Scope::System } else { Scope::User };
    RuntimeDir::resolve(scope).context("cannot find the daemon's folder")
}

/// Moves this process to a new process session (`setsid`) without a terminal, and redirects its
/// standard streams to `/dev/null`, except a standard error that is a regular file. Returns `false`
/// if a child process runs the daemon instead.
fn detach() -> Result<bool> {
    if rustix::process::setsid().is_err() {
        // `setsid` fails for a process group leader. A child is not a group leader.
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = Command::new(program);
        child.args(std::env::args_os().skip(1));
        child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        child.spawn().context("cannot start the daemon")?;
        return Ok(false);
    }
    // A process that reads this process's output to its end must not wait for the daemon. Output to
    // a log file is kept, because no process waits for the end of a file.
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").context("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    let stderr_stat = rustix::fs::fstat(rustix::stdio::stderr())?;
    if FileType::from_raw_mode(stderr_stat.st_mode) != FileType::RegularFile {
        rustix::stdio::dup2_stderr(&null)?;
    }
    Ok(true)
}

/// Returns the listening socket that the service manager passed.
fn take_passed_listener() -> Result<Option<OwnedFd>> {
    let (family, kind) = (i32::from(AddressFamily::UNIX.as_raw()), SocketType::SEQPACKET.as_raw());
    let kind = i32::try_from(kind).context("socket type")?;
    let mut passed = ListenFd::from_env();
    passed
        .take_custom(0, family, kind, "unix sequential-packet socket")
        .context("the service manager passed a socket of another kind (ListenSequentialPacket= is needed)")
}

/// Sends a state to the service manager, if there is one. Failures are ignored.
fn notify_manager(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) else { return };
    let _ = socket.send_to_addr(state.as_bytes(), &address);
}

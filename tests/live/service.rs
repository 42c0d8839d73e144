//! Tests of `weir daemon` as a service and on demand.

use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
use rustix::process::{Pid, Signal, kill_process};

use super::{EVENTS_PER_ORDER, SHOP, arg, run_shop, shop_events_in};
use crate::util::{Daemon, Process, eventually, skip};

#[test]
fn clean_stop_finalises_every_file() {
    let mut daemon = Daemon::start();
    let files = [daemon.path("1.etl"), daemon.path("2.etl")];
    for (name, file) in ["One", "Two"].iter().zip(&files) {
        daemon.weir(["start", name, "-o", arg(file), "-p", SHOP]).expect(0);
    }
    run_shop(&daemon, 2);
    daemon.stop();
    for file in &files {
        assert_eq!(shop_events_in(file).len(), 2 * EVENTS_PER_ORDER);
    }
    assert!(!daemon.is_answering());
}

/// Returns the process id of the daemon that serves this folder.
fn daemon_pid(daemon: &Daemon) -> Pid {
    let pid = std::fs::read_to_string(daemon.path("daemon.lock")).unwrap();
    Pid::from_raw(pid.trim().parse().unwrap()).unwrap()
}

#[test]
fn hangup_does_not_end_a_daemon_without_terminal() {
    let daemon = Daemon::not_started();
    let file = daemon.path("kept.etl");
    // This command starts a daemon in its own POSIX session.
    daemon.weir(["start", "Kept", "-o", arg(&file), "-p", SHOP]).expect(0);
    let pid = daemon_pid(&daemon);
    kill_process(pid, Signal::HUP).unwrap();
    run_shop(&daemon, 2);
    daemon.weir(["stop", "Kept"]).expect(0);
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER);
    kill_process(pid, Signal::TERM).unwrap();
    eventually("the end of the daemon", || (!daemon.path("control.sock").exists()).then_some(()));
}

#[test]
fn daemon_finalises_files_when_its_terminal_closes() {
    let daemon = Daemon::not_started();
    // The program `script` makes a terminal, which closes when `script` ends.
    let mut command = Command::new("script");
    command.args(["-qec", r#"exec "$WEIR" daemon"#, "/dev/null"]).env("SHELL", "/bin/sh");
    command.env("WEIR", env!("CARGO_BIN_EXE_weir")).env("TRACEWEIR_RUNTIME_DIR", daemon.folder());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Under `nohup`, the tests would inherit an ignored SIGHUP, and the daemon would ignore it,
    // too.
    // SAFETY: between fork and exec, `signal` is safe to call and touches no memory of this
    // program.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        })
    };
    let Ok(terminal) = command.spawn() else {
        return skip("script", "the program script, which makes a terminal, is not installed");
    };
    let terminal = Process::from(terminal);
    eventually("the daemon answers", || daemon.is_answering().then_some(()));
    let file = daemon.path("finalised.etl");
    daemon.weir(["start", "Finalised", "-o", arg(&file), "-p", SHOP]).expect(0);
    run_shop(&daemon, 2);
    terminal.signal(Signal::KILL);
    eventually("the end of the daemon", || (!daemon.path("control.sock").exists()).then_some(()));
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER);
}

#[test]
fn second_daemon_in_the_same_folder_is_refused() {
    let daemon = Daemon::start();
    let run = daemon.weir(["daemon"]).expect(1);
    assert!(run.stderr.contains("already running"), "{}", run.stderr);
    assert!(daemon.is_answering());
}

#[test]
fn socket_activation_works_and_readiness_is_notified() {
    let daemon = Daemon::not_started();
    let manager = UnixDatagram::bind(daemon.path("notify.sock")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(daemon.path("control.sock")).unwrap()).unwrap();
    listen(&listener, 16).unwrap();

    // The shell acts as the service manager: it passes the socket as the protocol requires.
    let script =
        format!("LISTEN_FDS=1 LISTEN_PID=$$ exec {} daemon 3<&0 </dev/null", env!("CARGO_BIN_EXE_weir"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::from(listener)).stderr(Stdio::null());
    command.env("TRACEWEIR_RUNTIME_DIR", daemon.folder()).env("NOTIFY_SOCKET", daemon.path("notify.sock"));
    let process = Process::start(&mut command);
    let mut notification = [0; 64];
    let length = manager.recv(&mut notification).unwrap();
    assert_eq!(&notification[..length], b"READY=1");
    eventually("the daemon answers", || daemon.is_answering().then_some(()));
    assert!(daemon.path("control.sock").exists());
    process.signal(Signal::TERM);
    process.finish().expect(0);
}

#[test]
fn daemon_starts_on_demand_from_the_leader_of_a_process_group() {
    let daemon = Daemon::not_started();
    // The idle timeout matters only if the test fails: it then ends the daemon.
    let mut command = daemon.command(["daemon", "--on-demand", "--idle-exit", "120"]);
    // The leader of a process group cannot start a POSIX session: it starts another process as the
    // daemon and returns.
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    Process::start(&mut command).finish().expect(0);
    eventually("the daemon answers", || daemon.is_answering().then_some(()));
    kill_process(daemon_pid(&daemon), Signal::TERM).unwrap();
    eventually("the end of the daemon", || (!daemon.path("control.sock").exists()).then_some(()));
}

#[test]
fn on_demand_daemon_keeps_no_descriptor_of_its_starter() {
    let daemon = Daemon::not_started();
    let (lock, fifo) = (daemon.path("lock"), daemon.path("pipe"));
    let lock_exclusively = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    let locked = std::fs::File::create(&lock).unwrap();
    rustix::fs::flock(&locked, lock_exclusively).unwrap();
    // Every program that the shell starts, directly or indirectly, inherits the shell's open
    // descriptors, including that of the locked file.
    let script = "exec 7<&0 </dev/null; mkfifo pipe; exec 8<>pipe 9>pipe; \"$1\" start Held --mode buffering";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_weir")]).current_dir(daemon.folder());
    command.stdin(Stdio::from(locked));
    command.env("TRACEWEIR_RUNTIME_DIR", daemon.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // `finish` returns only if the daemon does not hold the pipes of the command's output.
    Process::start(&mut command).finish().expect(0);
    // Until this drop, `command` keeps the locked file open.
    drop(command);
    assert!(daemon.is_answering());

    let file = std::fs::File::open(&lock).unwrap();
    // A child of another test holds copies of all descriptors between fork and exec.
    eventually("no process holds the lock", || rustix::fs::flock(&file, lock_exclusively).ok());
    // Opening the pipe for writing fails with NXIO if no process has it open for reading.
    let nonblocking = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let write_end = rustix::fs::open(&fifo, nonblocking, rustix::fs::Mode::empty());
    assert_eq!(write_end.err(), Some(rustix::io::Errno::NXIO), "a process reads the pipe");

    kill_process(daemon_pid(&daemon), Signal::TERM).unwrap();
    eventually("the end of the daemon", || (!daemon.path("control.sock").exists()).then_some(()));
}

//! Programs that close every descriptor, or have none left: the library touches none of the
//! program's descriptors and keeps working.
//!
//! Normally the library's threads have their own descriptor table, which they get with
//! `close_range` or, on older kernels, with `unshare`. In a sandbox that refuses both, they share
//! the program's table.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, socketpair};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use traceweir::controller::{EnableCode, EnableParams, SessionRef, Update};
use traceweir::{PrivateSession, Provider};
use traceweir_format::Guid;
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::BACKLOG;

use crate::daemon::{RealDaemon, find_socket};
use crate::sandbox::refuse;
use crate::{
    INFORMATION, PROVIDER, Scenario, ScenarioRunner, event, eventually, file_config, read_events, set_mark,
    until, wait_for_mark,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("close all descriptors", close_all),
    ("close all, old kernel", close_all_on_an_old_kernel),
    ("shared table", register_with_shared_table),
    ("close a pipe", close_a_pipe),
    ("close a pipe, old kernel", close_a_pipe_on_an_old_kernel),
    ("replace all in a sandbox", replace_all_in_a_sandbox),
    ("close all in a sandbox", close_all_in_a_sandbox),
    ("close all in a sandbox, twice", close_all_in_a_sandbox_twice),
    ("close one in a sandbox", close_one_in_a_sandbox),
    ("callback with a file", callback_with_file),
    ("no descriptor is free", register_without_free_descriptor),
    ("no descriptor at all", register_without_descriptors),
    ("too few descriptors", register_with_too_few_descriptors),
    ("close all under a private session", close_all_under_a_private_session),
    ("listening process", register_and_wait),
    ("fill queue", fill_queue_as_other_user),
];

const EVENTS: u64 = 200_000;
const FILE_CONTENT: &[u8] = b"the program's own";

/// Runs a scenario under a daemon whose session enables all events, and returns the number of
/// events in the file and of lost events.
fn record_scenario(
    scenario: &str,
    during: impl FnOnce(&ScenarioRunner, &mut RealDaemon, &SessionRef),
) -> (u64, u64) {
    let runner = ScenarioRunner::new();
    let mut daemon = RealDaemon::start(&runner.runtime());
    let (path, session) = (runner.path("log.etl"), SessionRef::Name("log".into()));
    daemon.controller.start(&file_config("log", path.clone())).unwrap();
    daemon.controller.enable(&session, PROVIDER, EnableCode::Enable, &EnableParams::default(), 0).unwrap();
    let child = runner.spawn(scenario);
    during(&runner, &mut daemon, &session);
    child.assert_success();
    daemon.controller.stop(&session).unwrap();
    let (events, lost) = read_events(&path);
    (events.len() as u64, lost)
}

#[test]
fn program_that_closes_all_descriptors_keeps_its_files_and_its_events() {
    for scenario in ["close all descriptors", "close all, old kernel"] {
        let (events, lost) = record_scenario(scenario, |runner, daemon, session| {
            runner.wait_for_mark("written");
            // The process is still connected: a change of the level reaches it.
            let level = EnableParams { level: 3, ..EnableParams::default() };
            daemon.controller.enable(session, PROVIDER, EnableCode::Enable, &level, 0).unwrap();
        });
        assert_eq!(events + lost, EVENTS, "{scenario}");
    }
}

/// Closes all descriptors except the standard streams.
pub(crate) fn close_all_above_stderr() {
    for number in 3..4096 {
        // SAFETY: the program itself uses none of these descriptors. The library checks its own
        // before each use, or has them in another table.
        unsafe { libc::close(number) };
    }
}

/// Like [`close_all`], on a kernel without `close_range`.
fn close_all_on_an_old_kernel(folder: &Path) {
    refuse(&[libc::SYS_close_range]);
    close_all(folder);
}

#[test]
fn process_is_traced_if_library_threads_share_its_descriptor_table() {
    assert_eq!(record_scenario("shared table", |_, _, _| {}), (1, 0));
}

fn register_with_shared_table(_: &Path) {
    refuse(&[libc::SYS_close_range, libc::SYS_unshare]);
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(INFORMATION, 0));
    provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
}

#[test]
fn library_does_not_touch_reused_descriptors_in_a_sandbox() {
    let (events, lost) = record_scenario("replace all in a sandbox", |_, _, _| {});
    assert!(events + lost <= EVENTS);
}

fn replace_all_in_a_sandbox(folder: &Path) {
    let (provider, opened) = register_in_a_sandbox();
    close_all_above_stderr();
    let replacements = ReplacementDescriptors::open(&opened);
    let program_descriptors = ProgramDescriptors::open(folder);
    for n in 0..EVENTS {
        let _ = provider.write(&event(1), &[&n.to_le_bytes()]);
    }
    // Gives the threads of the library time to act on the closed descriptors.
    std::thread::sleep(Duration::from_millis(300));
    program_descriptors.check();
    replacements.check();
}

#[test]
fn sandboxed_program_that_closes_all_descriptors_stays_traced() {
    for (scenario, rounds) in [("close all in a sandbox", 1), ("close all in a sandbox, twice", 2)] {
        check_recovery_in_sandbox(scenario, rounds);
    }
}

#[test]
fn sandboxed_program_that_closes_one_descriptor_stays_traced() {
    check_recovery_in_sandbox("close one in a sandbox", CLOSED_KINDS.len() as u64);
}

/// Runs a scenario that loses its descriptors `rounds` times. Each time the session counts the
/// process as one that missed events, and events written later are recorded or counted as lost.
fn check_recovery_in_sandbox(scenario: &str, rounds: u64) {
    let runner = ScenarioRunner::new();
    let mut daemon = RealDaemon::start(&runner.runtime());
    let (path, session) = (runner.path("log.etl"), SessionRef::Name("log".into()));
    daemon.controller.start(&file_config("log", path.clone())).unwrap();
    daemon.controller.enable(&session, PROVIDER, EnableCode::Enable, &EnableParams::default(), 0).unwrap();
    let child = runner.spawn(scenario);
    let mut query_uncounted = || u64::from(daemon.controller.query(&session).unwrap().uncounted_processes);
    for round in 1..=rounds {
        let before = query_uncounted();
        runner.set_mark(&format!("ready {round}"));
        runner.wait_for_mark(&format!("closed {round}"));
        until("the session counts a process that missed events", || query_uncounted() > before);
        runner.set_mark(&format!("counted {round}"));
    }
    runner.wait_for_mark("written");
    let level = EnableParams { level: 3, ..EnableParams::default() };
    daemon.controller.enable(&session, PROVIDER, EnableCode::Enable, &level, 0).unwrap();
    child.assert_success();
    let uncounted = u64::from(daemon.controller.stop(&session).unwrap().uncounted_processes);
    let (events, lost) = read_events(&path);
    let written = events.iter().filter(|event| event.id == 2).count() as u64;
    // The library may reopen a descriptor while the program is still closing all, and lose it
    // again. Then the session counts the process more often, and events may be missing.
    assert!(
        uncounted > rounds || written + lost >= rounds * EVENTS,
        "{scenario}: {written} events, {lost} lost, {uncounted} processes counted"
    );
    assert!(written > 0, "{scenario}");
}

/// Returns the descriptors of this process with their link targets in /proc.
fn list_descriptors() -> Vec<(i32, String)> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let descriptors = entries.filter_map(|entry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, target.to_str()?.to_owned()))
    });
    descriptors.collect()
}

/// Registers in a sandbox without `close_range` and `unshare`. Returns the provider and the
/// descriptors that the library has opened.
fn register_in_a_sandbox() -> (Provider, Vec<(i32, String)>) {
    refuse(&[libc::SYS_close_range, libc::SYS_unshare]);
    let before = list_descriptors();
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(INFORMATION, 0));
    let list_opened = || {
        let mut new = list_descriptors();
        new.retain(|(number, target)| !before.contains(&(*number, target.clone())));
        // Drops the standard streams, and the descriptor by which the listing read the folder.
        new.retain(|(number, _)| {
            *number > 2 && std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok()
        });
        new
    };
    (provider, list_opened())
}

/// Writes events while the library recovers from lost descriptors, then events that must be
/// recorded or counted as lost.
fn write_during_recovery(folder: &Path, provider: &Provider, round: u64) {
    for n in 0..1000_u64 {
        let _ = provider.write(&event(1), &[&n.to_le_bytes()]);
    }
    set_mark(folder, &format!("closed {round}"));
    wait_for_mark(folder, &format!("counted {round}"));
    until("the provider is enabled again", || provider.enabled(INFORMATION, 0));
    for n in 0..EVENTS {
        // The library counts a lost event.
        let _ = provider.write(&event(2), &[&n.to_le_bytes()]);
    }
}

/// Waits for a change that the daemon sends, and checks that idle threads use little processor
/// time.
fn wait_for_change_and_idle(folder: &Path, provider: &Provider) {
    set_mark(folder, "written");
    until("the new level is applied", || !provider.enabled(INFORMATION, 0));
    let before = library_cpu_time();
    std::thread::sleep(Duration::from_millis(300));
    let used = library_cpu_time() - before;
    assert!(used < Duration::from_millis(100), "idle threads of the library used {used:?}");
}

fn close_all_in_a_sandbox(folder: &Path) {
    let (provider, opened) = register_in_a_sandbox();
    wait_for_mark(folder, "ready 1");
    close_all_above_stderr();
    let replacements = ReplacementDescriptors::open(&opened);
    let program_descriptors = ProgramDescriptors::open(folder);
    write_during_recovery(folder, &provider, 1);
    wait_for_change_and_idle(folder, &provider);
    program_descriptors.check();
    replacements.check();
}

/// Closes the descriptors that the library reopened, too.
fn close_all_in_a_sandbox_twice(folder: &Path) {
    let (provider, _) = register_in_a_sandbox();
    wait_for_mark(folder, "ready 1");
    close_all_above_stderr();
    write_during_recovery(folder, &provider, 1);
    wait_for_mark(folder, "ready 2");
    let opened = list_descriptors();
    close_all_above_stderr();
    let opened: Vec<(i32, String)> = opened.into_iter().filter(|(number, _)| *number > 2).collect();
    let replacements = ReplacementDescriptors::open(&opened);
    let program_descriptors = ProgramDescriptors::open(folder);
    write_during_recovery(folder, &provider, 2);
    wait_for_change_and_idle(folder, &provider);
    program_descriptors.check();
    replacements.check();
}

/// The kinds of descriptors that `close_one_in_a_sandbox` closes, one at a time.
const CLOSED_KINDS: [&str; 2] = ["anon_inode:[eventfd]", "anon_inode:[eventpoll]"];

/// Closes one descriptor, and reuses its number for a descriptor of the same kind.
fn close_one_in_a_sandbox(folder: &Path) {
    let (provider, mut opened) = register_in_a_sandbox();
    let mut replacements = Vec::new();
    for (round, kind) in (1..).zip(CLOSED_KINDS) {
        let same_kind: Vec<(i32, String)> = opened.into_iter().filter(|(_, target)| target == kind).collect();
        assert!(!same_kind.is_empty(), "the library has no {kind}");
        wait_for_mark(folder, &format!("ready {round}"));
        replacements.push(ReplacementDescriptors::open(&same_kind[..1]));
        // The library notices the closed descriptor when it wakes the daemon.
        let is_counted = || folder.join(format!("counted {round}")).exists();
        set_mark(folder, &format!("closed {round}"));
        until("the loss is noticed", || {
            let _ = (0..10_000_u64).all(|n| provider.write(&event(1), &[&n.to_le_bytes()]).is_ok());
            is_counted()
        });
        write_during_recovery(folder, &provider, round);
        let replacement_numbers: Vec<i32> =
            replacements.iter().flat_map(ReplacementDescriptors::numbers).collect();
        opened = list_descriptors();
        opened.retain(|(number, _)| *number > 2 && !replacement_numbers.contains(number));
    }
    wait_for_change_and_idle(folder, &provider);
    replacements.into_iter().for_each(ReplacementDescriptors::check);
}

/// Descriptors of the program under the numbers that the library used, each of the same kind.
#[derive(Default)]
struct ReplacementDescriptors {
    counters: Vec<OwnedFd>,
    /// Socket pairs: the end under the library's number, which holds an unread byte, and the other
    /// end.
    sockets: Vec<(OwnedFd, OwnedFd)>,
    /// Epoll instances that each watch all counters.
    polls: Vec<OwnedFd>,
}

impl ReplacementDescriptors {
    fn open(opened: &[(i32, String)]) -> Self {
        let mut replacements = Self::default();
        let numbers_of_kind = |kind: &str| {
            let numbers = opened.iter().filter(|(_, target)| target.starts_with(kind)).map(|(n, _)| *n);
            numbers.collect::<Vec<i32>>()
        };
        for number in numbers_of_kind("anon_inode:[eventfd]") {
            let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
            replacements.counters.push(move_descriptor(counter, number));
        }
        for number in numbers_of_kind("socket:") {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
            // A number above those of the following descriptors.
            let far = rustix::io::fcntl_dupfd_cloexec(far, 400).unwrap();
            assert_eq!(rustix::io::write(&far, b"1"), Ok(1));
            replacements.sockets.push((move_descriptor(near, number), far));
        }
        for number in numbers_of_kind("anon_inode:[eventpoll]") {
            let poll = move_descriptor(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap(), number);
            for counter in &replacements.counters {
                let data = epoll::EventData::new_u64(7);
                epoll::add(&poll, counter, data, epoll::EventFlags::IN).unwrap();
            }
            replacements.polls.push(poll);
        }
        replacements
    }

    /// Returns the numbers of all descriptors.
    fn numbers(&self) -> Vec<i32> {
        let ends = self.sockets.iter().flat_map(|(near, far)| [near, far]);
        let descriptors = self.counters.iter().chain(ends).chain(&self.polls);
        descriptors.map(AsRawFd::as_raw_fd).collect()
    }

    /// Asserts that nothing was closed, read, written or changed.
    fn check(self) {
        let would_block = Err(rustix::io::Errno::AGAIN);
        let mut byte = [0; 8];
        for counter in &self.counters {
            assert_eq!(rustix::io::read(counter, &mut byte), would_block, "a counter was written");
        }
        for (near, far) in &self.sockets {
            assert_eq!(rustix::io::read(far, &mut byte), would_block, "a socket was written or closed");
            assert_eq!(rustix::io::read(near, &mut byte), Ok(1), "a socket was read");
        }
        for poll in &self.polls {
            for counter in &self.counters {
                assert_eq!(rustix::io::write(counter, &1_u64.to_ne_bytes()), Ok(8));
                let mut events = Vec::with_capacity(8);
                let no_wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
                epoll::wait(poll, rustix::buffer::spare_capacity(&mut events), Some(&no_wait)).unwrap();
                let is_reported = events.iter().any(|event| event.data.u64() == 7);
                assert!(is_reported, "a poll set of the program was changed");
                assert_eq!(rustix::io::read(counter, &mut byte), Ok(8));
            }
        }
    }
}

/// Moves a descriptor to a number, and closes the descriptor that had this number.
fn move_descriptor(descriptor: OwnedFd, number: i32) -> OwnedFd {
    if descriptor.as_raw_fd() == number {
        return descriptor;
    }
    // SAFETY: the test closes the library's descriptor under this number; the copy has no other
    // owner.
    unsafe {
        assert_eq!(libc::dup3(descriptor.as_raw_fd(), number, libc::O_CLOEXEC), number);
        OwnedFd::from_raw_fd(number)
    }
}

#[test]
fn pipe_closed_by_the_program_reaches_end_of_file() {
    for scenario in ["close a pipe", "close a pipe, old kernel"] {
        assert_eq!(record_scenario(scenario, |_, _, _| {}), (1, 0), "{scenario}");
    }
}

fn close_a_pipe(_: &Path) {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(INFORMATION, 0));
    drop(writer);
    rustix::io::ioctl_fionbio(&reader, true).unwrap();
    // The read would block if any copy of the other end were still open.
    assert_eq!(reader.read(&mut [0]).expect("a copy of the other end is open"), 0);
    provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
}

/// Like [`close_a_pipe`], on a kernel without `close_range`.
fn close_a_pipe_on_an_old_kernel(folder: &Path) {
    refuse(&[libc::SYS_close_range]);
    close_a_pipe(folder);
}

/// Files and counters that the program opened under the numbers that it had closed.
struct ProgramDescriptors {
    files: Vec<File>,
    counters: Vec<OwnedFd>,
}

impl ProgramDescriptors {
    /// Opens enough files and counters to cover every number that the library could have used.
    fn open(folder: &Path) -> Self {
        let create_file = |n: u32| {
            let path = folder.join(format!("file {n}"));
            let mut file =
                File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap();
            file.write_all(FILE_CONTENT).unwrap();
            file
        };
        let create_counter = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let (mut files, mut counters) = (Vec::new(), Vec::new());
        for n in 0..64 {
            files.push(create_file(n));
            counters.push(create_counter());
        }
        Self { files, counters }
    }

    /// Asserts that every file is open with its content and offset unchanged, and that no counter
    /// was written.
    fn check(mut self) {
        for file in &mut self.files {
            assert_eq!(file.stream_position().unwrap(), FILE_CONTENT.len() as u64);
            file.seek(SeekFrom::Start(0)).unwrap();
            let mut content = Vec::new();
            file.read_to_end(&mut content).unwrap();
            assert_eq!(content, FILE_CONTENT);
        }
        for counter in &self.counters {
            let read = rustix::io::read(counter, &mut [0; 8]);
            assert_eq!(read, Err(rustix::io::Errno::AGAIN), "a counter of the program was written");
        }
    }
}

fn close_all(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(INFORMATION, 0));
    close_all_above_stderr();
    let program_descriptors = ProgramDescriptors::open(folder);
    for n in 0..EVENTS {
        // The library counts a lost event.
        let _ = provider.write(&event(1), &[&n.to_le_bytes()]);
    }
    wait_for_change_and_idle(folder, &provider);
    program_descriptors.check();
}

#[test]
fn private_session_survives_closing_of_all_descriptors() {
    let runner = ScenarioRunner::new();
    runner.run("close all under a private session");
    let (events, lost) = read_events(&runner.path("first.etl"));
    let (later_events, lost_later) = read_events(&runner.path("second.etl"));
    assert_eq!(events.len() as u64 + later_events.len() as u64 + lost + lost_later, 2 * EVENTS);
    assert!(!events.is_empty() && !later_events.is_empty());
}

fn close_all_under_a_private_session(folder: &Path) {
    let session = PrivateSession::start(&file_config("own", folder.join("first.etl"))).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    session.enable(PROVIDER, &EnableParams::default()).unwrap();
    close_all_above_stderr();
    let program_descriptors = ProgramDescriptors::open(folder);
    let write = || {
        for n in 0..EVENTS {
            // The library counts a lost event.
            let _ = provider.write(&event(1), &[&n.to_le_bytes()]);
        }
    };
    write();
    let next = Update { log_file: Some(folder.join("second.etl")), ..Update::default() };
    session.update(&next).unwrap();
    write();
    session.flush(None).unwrap();
    session.stop().unwrap();
    program_descriptors.check();
}

/// Returns the processor time that the threads of the library have used.
fn library_cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let library_tasks = tasks.filter(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.starts_with("traceweir")
    });
    let used = library_tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}

#[test]
fn callback_sees_the_descriptors_of_the_program() {
    let (events, lost) = record_scenario("callback with a file", |runner, daemon, session| {
        runner.wait_for_mark("registered");
        let level = EnableParams { level: 3, ..EnableParams::default() };
        daemon.controller.enable(session, PROVIDER, EnableCode::Enable, &level, 60_000).unwrap();
        let written = std::fs::read_to_string(runner.path("by callback")).unwrap();
        assert_eq!(
            written, "0\n3\n",
            "the callback did not run once while registering and once for the change"
        );
        daemon.controller.enable(session, PROVIDER, EnableCode::CaptureState, &level, 60_000).unwrap();
        let written = std::fs::read_to_string(runner.path("by callback")).unwrap();
        assert_eq!(written, "0\n3\n3\n");
        runner.set_mark("done");
    });
    assert_eq!((events, lost), (0, 0));
}

fn callback_with_file(folder: &Path) {
    let file = Arc::new(File::create(folder.join("by callback")).unwrap());
    let callback = Box::new(move |notice: &traceweir::provider::EnableNotice<'_>| {
        assert!(file.as_raw_fd() > 2);
        writeln!(&*file, "{}", notice.level).unwrap();
    });
    let _provider = Provider::register(PROVIDER, Some(callback)).unwrap();
    set_mark(folder, "registered");
    wait_for_mark(folder, "done");
}

/// Limits the process to `limit` descriptors, and opens descriptors until no number is free.
fn fill_descriptor_table(limit: u64) -> Vec<OwnedFd> {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: hard }).unwrap();
    std::iter::from_fn(|| rustix::io::dup(std::io::stdout()).ok()).collect()
}

#[test]
fn process_without_a_free_descriptor_is_traced() {
    assert_eq!(record_scenario("no descriptor is free", |_, _, _| {}), (1, 0));
}

fn register_without_free_descriptor(_: &Path) {
    let fillers = fill_descriptor_table(64);
    assert!(!fillers.is_empty() && File::open("/dev/null").is_err());
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(INFORMATION, 0));
    provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
}

#[test]
fn process_that_cannot_open_files_is_traced_once_it_can() {
    assert_eq!(record_scenario("no descriptor at all", |_, _, _| {}), (2, 0));
}

fn register_without_descriptors(_: &Path) {
    let fillers = fill_descriptor_table(3);
    let first = Provider::register(PROVIDER, None).unwrap();
    assert!(!first.enabled(INFORMATION, 0));
    drop(fillers);
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    // A later registration of any provider tries again.
    let _second = Provider::register(Guid::from_u128(9), None).unwrap();
    until("the first provider is enabled", || first.enabled(INFORMATION, 0));
    first.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    first.write(&event(1), &[&2u64.to_le_bytes()]).unwrap();
}

#[test]
fn process_with_too_few_descriptors_is_traced_once_it_has_more() {
    assert_eq!(record_scenario("too few descriptors", |_, _, _| {}), (3, 0));
}

fn register_with_too_few_descriptors(_: &Path) {
    // Enough descriptors for the control thread to start, but not for a socket. No call follows:
    // the thread retries by itself.
    let fillers = fill_descriptor_table(4);
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(!provider.enabled(INFORMATION, 0));
    drop(fillers);
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    until("the provider is enabled", || provider.enabled(INFORMATION, 0));
    for n in 0..3_u64 {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
}

/// The most connections of another user that a process refuses within a second.
const MAX_REFUSALS_PER_SECOND: u64 = 32;

#[test]
fn connections_of_another_user_cost_little_and_do_not_block_the_daemon() {
    let is_root = rustix::process::geteuid().is_root();
    if !crate::skip::holds_or_skip(is_root, "root", "connecting as another user requires root") {
        return;
    }
    // The sockets that fill the queue, and 100 descriptors for everything else.
    let can_fill = getrlimit(Resource::Nofile).maximum.is_none_or(|limit| limit > queue_length() + 100);
    if !crate::skip::holds_or_skip(
        can_fill,
        "descriptors",
        "a process may not open enough sockets to fill a queue",
    ) {
        return;
    }
    let runner = ScenarioRunner::new();
    RuntimeDir::from_path(&runner.runtime()).ensure().unwrap();
    let child = runner.spawn("listening process");
    let socket = eventually("the process listens", || {
        find_socket(&RuntimeDir::from_path(&runner.runtime()), child.id())
    });
    // The system's runtime directory has the same mode.
    for folder in [runner.folder.path(), &runner.runtime(), &runner.runtime().join("providers")] {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).unwrap();
    std::fs::write(runner.path("socket"), socket.to_str().unwrap()).unwrap();
    let other_user = runner.spawn("fill queue");
    runner.wait_for_mark("queue is full");

    // A daemon that starts now cannot connect to the process, whose queue is full. So the process
    // connects to the daemon.
    let mut daemon = RealDaemon::start(&runner.runtime());
    let session = SessionRef::Name("log".into());
    daemon.controller.start(&file_config("log", runner.path("log.etl"))).unwrap();
    daemon.controller.enable(&session, PROVIDER, EnableCode::Enable, &EnableParams::default(), 0).unwrap();
    child.assert_success();
    runner.set_mark("daemon found");
    other_user.assert_success();
}

/// Returns how many connections to the socket of a process can wait to be accepted.
fn queue_length() -> u64 {
    let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    limit.trim().parse::<u64>().unwrap().min(BACKLOG as u64)
}

/// Fills the queue of a socket as another user, checks how many connections are refused, and keeps
/// all its sockets open. They are too many for the process that runs the tests.
fn fill_queue_as_other_user(folder: &Path) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let socket = std::fs::read_to_string(folder.join("socket")).unwrap();
    let start = Instant::now();
    let connector = std::thread::spawn(move || {
        // SAFETY: the raw call changes this thread only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
        let address = SocketAddrUnix::new(&*socket).unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let open_connection = || {
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
            connect(&socket, &address).is_ok().then_some(socket)
        };
        // Connects until the queue is full.
        std::iter::from_fn(open_connection).collect::<Vec<OwnedFd>>()
    });
    let connections = connector.join().unwrap();
    let count = connections.len() as u64;
    assert!(count >= queue_length(), "{count} could connect, the queue has room for {}", queue_length());
    let is_refused = |connection: &&OwnedFd| {
        rustix::net::recv(connection, &mut [0_u8; 1][..], rustix::net::RecvFlags::DONTWAIT).is_ok()
    };
    until("some connections are refused", || connections.iter().any(|connection| is_refused(&connection)));
    let refused = connections.iter().filter(is_refused).count() as u64;
    let max_refusals = (start.elapsed().as_secs() + 2) * MAX_REFUSALS_PER_SECOND;
    assert!(refused <= max_refusals, "{refused} of {count} were refused, more than {max_refusals}");
    set_mark(folder, "queue is full");
    wait_for_mark(folder, "daemon found");
}

fn register_and_wait(_: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    until("the provider is enabled", || provider.enabled(INFORMATION, 0));
}

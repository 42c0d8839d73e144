//! Tests of processes that write random words into their regions, and of clients that send random
//! bytes: the event counts of all other processes stay exact.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use traceweir_transport::message::{Message, Role, VERSIONS};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Connection;

use crate::fixture::{Daemon, TEST_TIMEOUT, WritePath, collect_reports, file_session_config};
use crate::roles::{PROVIDER, Writer, role_variable};
use crate::tally::{EventTally, assert_sound};

/// The child role, with the arguments `RUNTIME REGIONS SEED`: gets REGIONS regions, one after the
/// other, and corrupts each.
pub(crate) fn run_role(words: &[&str]) {
    let mut random_state: u64 = words[2].parse().expect("the seed is not a number");
    let mut random = move || {
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        random_state
    };
    for round in 0..words[1].parse::<u64>().expect("the argument is not a number") {
        corrupt_region(words[0].as_ref(), round, &mut random);
    }
}

/// Registers a provider without the library, and fills the region that it gets with random words
/// while the daemon reads.
fn corrupt_region(runtime: &Path, round: u64, random: &mut impl FnMut() -> u64) {
    let socket = RuntimeDir::from_path(runtime).control_socket();
    let connection =
        Connection::connect(&socket, TEST_TIMEOUT).expect("the daemon does not accept a connection");
    let send =
        |message: &Message| connection.send(1, message, &[], TEST_TIMEOUT).expect("the message was not sent");
    send(&Message::Hello {
        versions: VERSIONS,
        role: Role::Provider,
        instance: random(),
        program: "corrupter".to_owned(),
    });
    send(&Message::Register { registration: 1, provider: PROVIDER, traits: Vec::new(), classic: false });
    loop {
        let envelope = connection
            .receive(TEST_TIMEOUT)
            .expect("no message can be received")
            .expect("the answer timed out");
        match envelope.message {
            Message::Region { params, .. } => {
                let [memory, wake] = <[_; 2]>::try_from(envelope.descriptors).expect("not two descriptors");
                let bytes = params.layout.region_bytes();
                // SAFETY: a fresh mapping of a sealed memory file of that size, unmapped below.
                let base = unsafe {
                    rustix::mm::mmap(
                        std::ptr::null_mut(),
                        bytes,
                        rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                        rustix::mm::MapFlags::SHARED,
                        &memory,
                        0,
                    )
                }
                .expect("the region cannot be mapped");
                for _ in 0..40 {
                    for _ in 0..200 {
                        write_random_word(base.cast(), &params, round, random);
                    }
                    if random().is_multiple_of(4) {
                        let offset = (random() % bytes as u64) & !4095;
                        let flags =
                            rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                        let _ = rustix::fs::fallocate(memory.as_fd(), flags, offset, 4096 * 8);
                    }
                    let _ = rustix::io::write(&wake, &1_u64.to_ne_bytes());
                    std::thread::sleep(Duration::from_micros(random() % 300));
                }
                // SAFETY: mapped above, not used any more.
                unsafe { rustix::mm::munmap(base, bytes) }.expect("the region cannot be unmapped");
                return;
            }
            Message::Refused { .. } => return,
            _ => {}
        }
    }
}

/// Writes one random word, usually to a position that the owner reads.
fn write_random_word(
    base: *mut u64,
    params: &traceweir_transport::abi::RegionParams,
    round: u64,
    random: &mut impl FnMut() -> u64,
) {
    let layout = params.layout;
    let ring = random() as usize % layout.rings();
    let ring_bytes = layout.ring_bytes().max(8) as usize;
    // The array has the offsets of head, lock, lost, woken and tail in a control block.
    let offset = match random() % 4 {
        0 => layout.control_offset(ring) + [0x00, 0x08, 0x40, 0x48, 0x80][random() as usize % 5],
        1 => layout.data_offset(ring),
        2 => layout.data_offset(ring) + random() as usize % ring_bytes,
        _ => random() as usize % layout.region_bytes(),
    } & !7;
    let value = match random() % 6 {
        0 => random(),
        1 => random() % 0x20000,
        2 => (random() % 4096) * 8,
        3 => u64::MAX,
        4 => 1 << (random() % 64),
        _ => round,
    };
    if offset + 8 <= layout.region_bytes() {
        // SAFETY: the word lies inside the mapping, and this process has no reference to it; racing
        // with the daemon is the purpose.
        unsafe { base.cast::<u8>().add(offset).cast::<u64>().write_volatile(value) };
    }
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the daemon has ended");
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let line = line.expect("the status has no resident size");
    let size = line.split_whitespace().nth(1).and_then(|size| size.parse().ok());
    size.expect("the resident size is not a number")
}

#[test]
fn process_that_corrupts_its_region_damages_only_its_own_records() {
    let daemon = Daemon::start();
    let file = daemon.path("hostile.etl");
    let mut control = daemon.connect();
    let session = control.start(file_session_config("hostile", &file));
    let before_kib = resident_kib(daemon.pid());
    let mut corrupters: Vec<_> = (0..2_u64)
        .map(|n| {
            let words = format!("hostile {} 60 {}", daemon.runtime().display(), 0x9E37_79B9 + n);
            daemon.role_command(role_variable(&words)).spawn().expect("a corrupting process did not start")
        })
        .collect();
    let mut honest = Writer::new(3, 2, 6_000);
    (honest.burst_events, honest.pause_ms) = (200, 10);
    let report = collect_reports(vec![daemon.spawn_writer(&honest, WritePath::Sequence), {
        let mut second_honest = honest.clone();
        second_honest.number = 4;
        daemon.spawn_writer(&second_honest, WritePath::Lock)
    }]);
    for corrupter in &mut corrupters {
        assert!(corrupter.wait().expect("a corrupting process cannot be waited for").success());
    }
    let last = control.stop(session);
    assert_sound(&file);
    let honest_events = tally_honest_events(&file);
    let missing = honest_events.count_missing(3, 2, 6_000) + honest_events.count_missing(4, 2, 6_000);
    assert_eq!(missing, report.refused, "events of the honest writers are missing but not counted");
    assert!(last.damaged_regions > 0, "no damaged region was counted: {last:?}");
    let after_kib = resident_kib(daemon.pid());
    assert!(after_kib < before_kib + 64 * 1024, "the daemon grew from {before_kib} to {after_kib} KiB");
}

/// Reads the events of writers 3 and 4 only: records of corrupting processes have random contents.
fn tally_honest_events(path: &Path) -> EventTally {
    use traceweir_format::etl::Trace;
    use traceweir_format::wire::u32_at;
    let trace =
        Trace::open(std::fs::File::open(path).expect("cannot open")).expect("the file is not a trace");
    let mut tally = EventTally::default();
    let mut events = trace.events();
    while let Some(record) = events.next().expect("a record cannot be read") {
        if record.provider() == PROVIDER && matches!(u32_at(record.payload(), 0), 3 | 4) {
            tally.add_event(&record);
        }
    }
    tally
}

#[test]
fn invalid_messages_close_only_their_connection() {
    let daemon = Daemon::start();
    let file = daemon.path("invalid.etl");
    let mut control = daemon.connect();
    let session = control.start(file_session_config("invalid", &file));
    let socket = RuntimeDir::from_path(&daemon.runtime()).control_socket();
    let mut random_state = 88_172_645_463_325_252_u64;
    for length in 0..300_usize {
        let raw = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .expect("a socket cannot be made");
        let address = rustix::net::SocketAddrUnix::new(&socket).expect("the path is too long");
        rustix::net::connect(&raw, &address).expect("the daemon does not accept a connection");
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                random_state = random_state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random_state >> 56) as u8
            })
            .collect();
        let _ = rustix::net::send(&raw, &bytes, rustix::net::SendFlags::NOSIGNAL);
    }
    let report = collect_reports(vec![daemon.spawn_writer(&Writer::new(0, 1, 1_000), WritePath::Sequence)]);
    let last = control.stop(session);
    assert_eq!(EventTally::read(&file).count_missing(0, 1, 1_000), last.events_lost);
    assert_eq!(report.refused, last.events_lost);
}

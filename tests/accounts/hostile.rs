//! Processes that scribble over their own regions, and clients that send nonsense: the accounts of
//! all other processes stay exact.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use traceweir_transport::message::{Message, Role, VERSIONS};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Connection;

use crate::fixture::{Daemon, PATIENCE, WritePath, reports, to_file};
use crate::ledger::{Ledger, assert_sound};
use crate::roles::{PROVIDER, Writer, other_role};

/// The child role, with the arguments `RUNTIME REGIONS SEED`.
pub(crate) fn play(words: &[&str]) {
    let mut state: u64 = words[2].parse().expect("a seed");
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for turn in 0..words[1].parse::<u64>().expect("a number") {
        scribble(words[0].as_ref(), turn, &mut random);
    }
}

/// Registers by hand, maps the region and fills it with nonsense while the owner reads.
fn scribble(runtime: &Path, turn: u64, random: &mut impl FnMut() -> u64) {
    let socket = RuntimeDir::from_path(runtime).control_socket();
    let connection = Connection::connect(&socket, PATIENCE).expect("connected");
    let say = |message: &Message| connection.send(1, message, &[], PATIENCE).expect("sent");
    say(&Message::Hello {
        versions: VERSIONS,
        role: Role::Provider,
        instance: random(),
        program: "scribbler".to_owned(),
    });
    say(&Message::Register { registration: 1, provider: PROVIDER, traits: Vec::new(), classic: false });
    loop {
        let envelope = connection.receive(PATIENCE).expect("the daemon speaks").expect("in time");
        match envelope.message {
            Message::Region { params, .. } => {
                let [memory, wake] = <[_; 2]>::try_from(envelope.descriptors).expect("two descriptors");
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
                .expect("mapped");
                for _ in 0..40 {
                    for _ in 0..200 {
                        nonsense(base.cast(), &params, turn, random);
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
                unsafe { rustix::mm::munmap(base, bytes) }.expect("unmapped");
                return;
            }
            Message::Refused { .. } => return,
            _ => {}
        }
    }
}

/// Writes one word of nonsense, mostly where it does harm.
fn nonsense(
    base: *mut u64,
    params: &traceweir_transport::abi::RegionParams,
    turn: u64,
    random: &mut impl FnMut() -> u64,
) {
    let layout = params.layout;
    let ring = random() as usize % layout.rings();
    let ring_bytes = layout.ring_bytes().max(8) as usize;
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
        _ => turn,
    };
    if offset + 8 <= layout.region_bytes() {
        // SAFETY: inside the mapping; torn and racing words are the purpose.
        unsafe { base.cast::<u8>().add(offset).cast::<u64>().write_volatile(value) };
    }
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the daemon is there");
    let line = status.lines().find(|l| l.starts_with("VmRSS")).expect("a size");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn scribblers_spoil_their_own_records_and_nothing_else() {
    let daemon = Daemon::start();
    let file = daemon.path("hostile.etl");
    let mut control = daemon.control();
    let session = control.start(to_file("hostile", &file));
    let before = resident_kib(daemon.pid());
    let mut scribblers: Vec<_> = (0..2_u64)
        .map(|n| {
            let words = format!("hostile {} 60 {}", daemon.runtime().display(), 0x9E37_79B9 + n);
            daemon.child(other_role(&words)).spawn().expect("a scribbler starts")
        })
        .collect();
    let mut honest = Writer::new(3, 2, 6_000);
    (honest.burst, honest.pause_ms) = (200, 10);
    let report = reports(vec![daemon.writer(&honest, WritePath::Sequence), {
        let mut other = honest.clone();
        other.number = 4;
        daemon.writer(&other, WritePath::Lock)
    }]);
    for scribbler in &mut scribblers {
        assert!(scribbler.wait().expect("a scribbler ends").success());
    }
    let last = control.stop(session);
    assert_sound(&file);
    let trace = honest_ledger(&file);
    let missing = trace.missing(3, 2, 6_000) + trace.missing(4, 2, 6_000);
    assert_eq!(missing, report.refused, "the accounts of the others are exact");
    assert!(last.damaged_regions > 0, "{last:?}");
    let after = resident_kib(daemon.pid());
    assert!(after < before + 64 * 1024, "the daemon grew from {before} to {after} KiB");
}

/// Reads the ledger of writers 3 and 4 only: records of scribblers may hold anything.
fn honest_ledger(path: &Path) -> Ledger {
    use traceweir_format::etl::Trace;
    use traceweir_format::wire::u32_at;
    let trace = Trace::open(std::fs::File::open(path).expect("the file opens")).expect("a trace");
    let mut ledger = Ledger::default();
    let mut events = trace.events();
    while let Some(record) = events.next().expect("every record can be read") {
        if record.provider() == PROVIDER && matches!(u32_at(record.payload(), 0), 3 | 4) {
            ledger.add(&record);
        }
    }
    ledger
}

#[test]
fn invalid_messages_close_only_their_connection() {
    let daemon = Daemon::start();
    let file = daemon.path("nonsense.etl");
    let mut control = daemon.control();
    let session = control.start(to_file("nonsense", &file));
    let socket = RuntimeDir::from_path(&daemon.runtime()).control_socket();
    let mut state = 88_172_645_463_325_252_u64;
    for length in 0..300_usize {
        let raw = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .expect("a socket");
        let address = rustix::net::SocketAddrUnix::new(&socket).expect("an address");
        rustix::net::connect(&raw, &address).expect("connected");
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        let _ = rustix::net::send(&raw, &bytes, rustix::net::SendFlags::NOSIGNAL);
    }
    let report = reports(vec![daemon.writer(&Writer::new(0, 1, 1_000), WritePath::Sequence)]);
    let last = control.stop(session);
    assert_eq!(Ledger::read(&file).missing(0, 1, 1_000), last.events_lost);
    assert_eq!(report.refused, last.events_lost);
}

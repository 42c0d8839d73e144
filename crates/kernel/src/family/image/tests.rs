//! Image events for forged sequences of records.

use traceweir_format::header::Record;

use super::*;
use crate::clock::NanosecondClock;
use crate::family::testing::assert_written;
use crate::groups::Groups;
use crate::out::RecordQueue;
use crate::settings::EventExtras;

/// The image family of a capture that gets its records from the tests.
struct ImageFixture {
    images: ImageFamily,
    context: Context,
    queues: Vec<RecordQueue>,
    lost: u64,
    time: u64,
}

impl ImageFixture {
    fn new() -> Self {
        let context = Context { groups: Groups::new(&[Group::IMAGE_LOAD]), ..Context::default() };
        let mut images = ImageFamily::default();
        images.begin_poll(&context);
        Self { images, context, queues: vec![RecordQueue::default()], lost: 0, time: 1 }
    }

    /// Handles a record. Returns hook and process of each image event written.
    fn handle(&mut self, body: Sideband<'_>) -> Vec<(u16, u32)> {
        self.time += 1;
        let extras = EventExtras::default();
        let out = Out::new(&mut self.queues, &NanosecondClock, &extras, &mut self.lost);
        let mut out = Out { time: self.time, ..out };
        let record = SidebandRecord { time: self.time, pid: 0, tid: 0, body };
        self.images.unload_ended_program(&record, &self.context, &mut out);
        self.images.on_sideband(&record, &mut self.context, &mut out);
        self.take_written()
    }

    fn take_written(&mut self) -> Vec<(u16, u32)> {
        let mut written = Vec::new();
        while let Some(next) = self.queues[0].peek() {
            let mut bytes = vec![0; next.length];
            self.queues[0].pop_into(&mut bytes);
            let record = Record::parse(&bytes, 0).unwrap();
            written.extend(record.hook().map(|hook| (hook, record.process_id())));
        }
        written
    }
}

fn build_mapping(pid: u32, start: u64, name: &[u8]) -> Sideband<'_> {
    let identity = MappingIdentity::Inode(0);
    let protection = libc::PROT_EXEC.cast_unsigned();
    Sideband::Mmap(Mmap { pid, tid: pid, start, length: 0x1000, offset: 0, protection, identity, name })
}

/// A process id that no process has.
const FREE_PID: u32 = 0x7FFF_FF00;

#[test]
fn images_unload_with_the_last_thread_and_with_an_exec() {
    let mut fixture = ImageFixture::new();
    let (first, second) = (FREE_PID, FREE_PID + 1);
    let fork = |pid, ppid, tid| Sideband::Fork { pid, ppid, tid, ptid: ppid };
    let exit = |pid, tid| Sideband::Exit { pid, ppid: 1, tid };
    assert_eq!(fixture.handle(fork(first, 1, first)), []);
    assert_eq!(fixture.handle(build_mapping(first, 0x1000, b"//anon")), [(hook::IMAGE_LOAD, first)]);
    assert_eq!(fixture.handle(build_mapping(first, 0x1000, b"//anon")), [], "loaded twice");
    assert_eq!(fixture.handle(fork(first, first, first + 7)), [], "a thread loaded images");
    assert_eq!(
        fixture.handle(fork(second, first, second)),
        [(hook::IMAGE_LOAD, second)],
        "the child did not load the images of its parent"
    );
    assert_eq!(fixture.handle(exit(first, first)), [], "unloaded too early");
    assert_eq!(fixture.handle(exit(first, first + 7)), [(hook::IMAGE_UNLOAD, first)]);
    let exec = Sideband::Comm { pid: second, tid: second, name: b"new", is_exec: true };
    assert_eq!(fixture.handle(exec), [(hook::IMAGE_UNLOAD, second)]);
    assert_eq!(fixture.handle(build_mapping(second, 0x9000, b"[vdso]")), [(hook::IMAGE_LOAD, second)]);
    assert_eq!(
        fixture.handle(build_mapping(second, 0x9000, b"//anon")),
        [(hook::IMAGE_UNLOAD, second), (hook::IMAGE_LOAD, second)],
        "the mapping did not replace the vDSO"
    );
    assert_eq!(fixture.handle(Sideband::Comm { pid: second, tid: second, name: b"x", is_exec: false }), []);
    assert_eq!(fixture.handle(exit(second, second)), [(hook::IMAGE_UNLOAD, second)]);
    assert_eq!(fixture.handle(exit(second, second)), [], "unloaded twice");
    assert!(fixture.images.table.is_empty());
}

#[test]
fn records_older_than_a_rundown_are_ignored() {
    let mut fixture = ImageFixture::new();
    let own_pid = std::process::id();
    // A rundown reads the images of the process.
    fixture.images.read_process(own_pid);
    assert_eq!(fixture.handle(build_mapping(own_pid, 0x1000, b"//anon")), []);
    fixture.time = now_ns();
    assert_eq!(fixture.handle(build_mapping(own_pid, 0x1000, b"//anon")), [(hook::IMAGE_LOAD, own_pid)]);
}

#[test]
fn process_gone_before_a_rundown_is_unloaded_by_its_exit_record() {
    let mut fixture = ImageFixture::new();
    fixture.handle(build_mapping(FREE_PID, 0x1000, b"//anon"));
    assert_eq!(fixture.images.read_process(FREE_PID), []);
    let exit = Sideband::Exit { pid: FREE_PID, ppid: 1, tid: FREE_PID };
    assert_eq!(fixture.handle(exit), [(hook::IMAGE_UNLOAD, FREE_PID)]);
}

#[test]
fn forked_images_beyond_the_limit_of_a_poll_are_counted_as_lost() {
    let mut fixture = ImageFixture::new();
    let name = [b"/".as_slice(), &[b'x'; 4000]].concat();
    for at in 1..=2000 {
        fixture.handle(build_mapping(FREE_PID, at << 16, &name));
    }
    assert_eq!(fixture.lost, 0);
    let written: usize = (1..=4)
        .map(|child| {
            let pid = FREE_PID + child;
            fixture.handle(Sideband::Fork { pid, ppid: FREE_PID, tid: pid, ptid: FREE_PID }).len()
        })
        .sum();

    assert!((1000..5000).contains(&written), "{written} images written");
    // Each image has three events: two with its ids, and the image event, the only one with a hook.
    assert_eq!(fixture.lost, (4 * 2000 - written as u64) * 3);
    fixture.images.begin_poll(&fixture.context);
    assert_eq!(
        fixture.handle(build_mapping(FREE_PID + 1, 0x10, b"//anon")).len(),
        1,
        "the next poll wrote nothing"
    );
}

#[test]
fn own_code_address_is_found_in_own_program() {
    let mut images = ImageFamily::default();
    images.programs.allow_reads(1000);
    let here = own_code_address_is_found_in_own_program as fn() as usize as u64;
    let own_images = images.read_process(std::process::id());
    let image =
        own_images.iter().find(|image| image.contains(here)).expect("no image contains this test's code");
    assert_eq!(Path::new(&*image.name), std::env::current_exe().unwrap().canonicalize().unwrap());
    assert!(image.base < here && here < image.end());
    assert!(!own_images.iter().any(|image| image.contains(0x10)));
    assert_eq!(images.read_process(u32::MAX), []);
}

#[test]
fn images_are_not_tracked_without_a_group() {
    let mut fixture = ImageFixture::new();
    fixture.handle(build_mapping(FREE_PID, 0x1000, b"//anon"));
    fixture.context.groups = Groups::default();
    assert_eq!(fixture.handle(build_mapping(FREE_PID, 0x9000, b"//anon")), []);
    assert!(fixture.images.table.is_empty());
}

#[test]
fn payloads_have_the_documented_layout() {
    let (base, size, name) = (0x7F00_0000_1000, 0x2000, "/b/ä".into());
    let mut image = LoadedImage { base, size, default_base: 0x40_0000, code: 0..0, name, build_id: None };
    let write = |out: &mut Out<'_>| {
        write_image(ImageEvent::Load, TaskIds { pid: 0x0A11, tid: 0x0A12 }, &image, out);
        image.build_id = BuildId::new(&std::array::from_fn::<u8, 19, _>(|index| 0xA0 | index as u8));
        write_image(ImageEvent::RundownEnd, TaskIds { pid: 0x0A11, tid: NO_THREAD }, &image, out);
    };
    assert_written(
        write,
        // For each image: `ImageID/Info` and its debug id, by event type, then the image event, by
        // hook id. Version and payload follow. The first image has no build id (event type 0x20).
        // That of the second has 19 bytes and fills signature and age, with a zero at the end.
        &[
            "0000 02 00100000007f0000 0020000000000000 110a0000 00000000 e4000000",
            "0020 02 00100000007f0000 110a0000",
            "030a 03 00100000007f0000 0020000000000000 110a0000 00000000 00000000 00000000 \
             0000400000000000 00000000 00000000 00000000 00000000 2f0062002f00e4000000",
            "0000 02 00100000007f0000 0020000000000000 110a0000 00000000 e4000000",
            "0024 02 00100000007f0000 110a0000 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf b0b1b200 2f622fc3a400",
            "1404 03 00100000007f0000 0020000000000000 110a0000 00000000 00000000 00000000 \
             0000400000000000 00000000 00000000 00000000 00000000 2f0062002f00e4000000",
        ],
    );
}

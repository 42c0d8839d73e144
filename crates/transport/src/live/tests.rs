//! Tests of queues: order, losses, signals, and invalid words of either side.

use std::time::Duration;

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, ProtFlags};

use super::*;

fn create_queue(slots: u32, buffer_bytes: u32) -> (QueueWriter, QueueReader) {
    let (writer, ends) = QueueWriter::create(slots, buffer_bytes).unwrap();
    (writer, QueueReader::open(ends, slots, buffer_bytes).unwrap())
}

fn is_readable(reader: &QueueReader, max_wait: Duration) -> bool {
    let timeout = Timespec::try_from(max_wait).unwrap();
    poll(&mut [PollFd::from_borrowed_fd(reader.signal(), PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

/// Offset of the length of the buffer in the first slot.
const FIRST_LENGTH_OFFSET: usize = offset::ENTRIES + offset::LENGTH;

fn set_word(memory: &Mapping, offset: usize, value: u64) {
    memory.word(offset).unwrap().store(value, Ordering::SeqCst);
}

#[test]
fn buffers_come_out_as_they_went_in_until_the_end() {
    let (mut writer, mut reader) = create_queue(3, 5000);
    let mut out = vec![9; 7];
    assert_eq!(reader.pop(&mut out).unwrap(), Next::Empty);
    assert!(out.is_empty());
    assert!(writer.push(&[1; 5000]) && writer.push(&[2; 1]));
    assert_eq!((reader.pop(&mut out).unwrap(), &out), (Next::Buffer(5000), &vec![1; 5000]));
    assert_eq!((reader.pop(&mut out).unwrap(), &out), (Next::Buffer(1), &vec![2; 1]));
    assert!(writer.push(&[3; 10]));
    writer.end();
    assert_eq!((reader.pop(&mut out).unwrap(), &out), (Next::Buffer(10), &vec![3; 10]));
    assert_eq!(reader.pop(&mut out).unwrap(), Next::Ended);
    assert_eq!(reader.pop(&mut out).unwrap(), Next::Ended);
}

#[test]
fn completeness_stamp_takes_no_slot_and_wakes_the_consumer() {
    let (mut writer, mut reader) = create_queue(1, 64);
    assert_eq!(reader.complete(), 0);
    assert!(writer.push(b"one"));
    reader.pop(&mut Vec::new()).unwrap();
    assert_eq!(reader.pop(&mut Vec::new()).unwrap(), Next::Empty);
    assert!(!is_readable(&reader, Duration::ZERO));
    writer.set_complete(-5);
    assert!(is_readable(&reader, Duration::from_secs(10)) && writer.push(b"two"));
    assert_eq!(reader.complete(), -5);
}

#[test]
fn buffers_carry_the_completeness_stamp_before_them() {
    let (mut writer, mut reader) = create_queue(4, 64);
    assert!(writer.push(b"one"));
    writer.set_complete(5);
    assert!(writer.push(b"two"));
    writer.set_complete(7);
    let mut out = Vec::new();
    for (text, complete) in [("one", 0), ("two", 5)] {
        reader.pop(&mut out).unwrap();
        assert_eq!((out.as_slice(), reader.complete_before_last()), (text.as_bytes(), complete));
    }
    assert_eq!(reader.complete(), 7);
}

#[test]
fn consumer_that_does_not_read_loses_buffers_and_sees_the_count() {
    let (mut writer, mut reader) = create_queue(2, 64);
    assert!(writer.push(b"one") && writer.push(b"two") && !writer.push(b"three"));
    assert!(!writer.push(&[]) && !writer.push(&[0; 65]), "a buffer of an invalid size was accepted");
    writer.set_lost(1, 17);
    assert_eq!(reader.lost(), (1, 17));
    let mut out = Vec::new();
    reader.pop(&mut out).unwrap();
    assert!(writer.push(b"four"));
    for expected in ["two", "four"] {
        reader.pop(&mut out).unwrap();
        assert_eq!(out, expected.as_bytes());
    }
    assert_eq!(reader.pop(&mut out).unwrap(), Next::Empty);
}

#[test]
fn signal_is_readable_while_there_may_be_something_new() {
    let (mut writer, mut reader) = create_queue(4, 64);
    let mut out = Vec::new();
    assert!(!is_readable(&reader, Duration::ZERO));
    assert!(writer.push(b"x"));
    assert!(is_readable(&reader, Duration::ZERO));
    reader.pop(&mut out).unwrap();
    assert_eq!(reader.pop(&mut out).unwrap(), Next::Empty);
    assert!(!is_readable(&reader, Duration::ZERO));
    writer.end();
    assert!(is_readable(&reader, Duration::ZERO));
}

#[test]
fn session_whose_process_died_has_ended() {
    let (mut writer, mut reader) = create_queue(4, 64);
    assert!(writer.push(b"last"));
    drop(writer);
    let mut out = Vec::new();
    assert!(is_readable(&reader, Duration::ZERO));
    assert_eq!(reader.pop(&mut out).unwrap(), Next::Buffer(4));
    assert_eq!(reader.pop(&mut out).unwrap(), Next::Ended);
}

#[test]
fn consumer_cannot_write_the_queue_or_change_either_file() {
    let (_writer, ends) = QueueWriter::create(2, 64).unwrap();
    // SAFETY: a new mapping at an address of the kernel's choice; the kernel must refuse it.
    let mapped = unsafe {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        rustix::mm::mmap(std::ptr::null_mut(), PAGE, rights, MapFlags::SHARED, &ends.queue, 0)
    };
    assert_eq!(mapped, Err(Errno::PERM));
    assert_eq!(rustix::io::pwrite(&ends.queue, b"x", 0), Err(Errno::PERM));
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&ends.queue, punch, 0, PAGE as u64), Err(Errno::PERM));
    for file in [&ends.queue, &ends.cursor] {
        assert_eq!(rustix::fs::ftruncate(file, 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::fcntl_add_seals(file, SealFlags::WRITE), Err(Errno::PERM));
    }
}

#[test]
fn consumer_cannot_block_the_session_by_its_signal() {
    let (mut writer, reader) = create_queue(1, 64);
    rustix::io::ioctl_fionbio(&reader.signal, false).unwrap();
    for _ in 0..100_000 {
        writer.signal_consumer();
    }
    assert!(writer.push(b"x"));
    drop(reader);
    writer.end();
}

#[test]
fn cursor_is_trusted_only_between_last_value_and_head() {
    let (mut writer, reader) = create_queue(2, 64);
    assert!(writer.push(b"a") && writer.push(b"b"));
    set_word(&reader.cursor, offset::TAIL, u64::MAX);
    assert!(writer.push(b"c"), "the writer did not take a cursor beyond the head as the head");
    assert_eq!(writer.tail, 2);
    set_word(&reader.cursor, offset::TAIL, 0);
    assert!(writer.push(b"d") && !writer.push(b"e"), "the queue does not have exactly one free slot");
    assert_eq!((writer.tail, writer.head), (2, 4));
}

#[test]
fn invalid_queue_is_an_error() {
    let mut out = Vec::new();
    for (offset, value) in
        [(offset::HEAD, u64::MAX), (offset::HEAD, 3), (FIRST_LENGTH_OFFSET, 0), (FIRST_LENGTH_OFFSET, 65)]
    {
        let (mut writer, mut reader) = create_queue(2, 64);
        assert!(writer.push(b"a"));
        set_word(&writer.queue, offset, value);
        assert!(matches!(reader.pop(&mut out), Err(Error::Invalid(_))), "{offset:#x} {value:#x}");
    }
    let (mut writer, mut reader) = create_queue(2, 64);
    assert!(writer.push(b"a"));
    reader.pop(&mut out).unwrap();
    set_word(&writer.queue, offset::HEAD, 0);
    assert!(reader.pop(&mut out).is_err(), "a head that went back was accepted");
}

#[test]
fn sizes_and_descriptors_are_checked_before_they_are_used() {
    for (slots, bytes) in
        [(0, 64), (1, 0), (MAX_SLOTS + 1, 64), (1, MAX_BUFFER_BYTES + 1), (MAX_SLOTS, MAX_BUFFER_BYTES)]
    {
        assert!(QueueWriter::create(slots, bytes).is_err());
    }
    let ends = || QueueWriter::create(2, 64).unwrap().1;
    assert!(QueueReader::open(ends(), 3, 4096).is_err(), "a file that is too small was accepted");
    let unsealed = memory_file(c"test", 1 << 20).unwrap();
    assert!(QueueReader::open(ConsumerEnds { queue: unsealed, ..ends() }, 2, 64).is_err());
    let disk_file = std::fs::File::open("/proc/self/exe").unwrap().into();
    assert!(QueueReader::open(ConsumerEnds { cursor: disk_file, ..ends() }, 2, 64).is_err());
    let zeros = memory_file(c"test", 1 << 20).unwrap();
    seal(zeros.as_fd(), SealFlags::empty()).unwrap();
    let opened = QueueReader::open(ConsumerEnds { queue: zeros, ..ends() }, 2, 64);
    assert!(opened.is_err(), "a queue without a header was accepted");
}

#[test]
fn every_accepted_buffer_reaches_the_other_thread() {
    const OFFERED_BUFFERS: u64 = 20_000;
    let (mut writer, mut reader) = create_queue(4, 4096);
    let producer = std::thread::spawn(move || {
        let mut refused = 0;
        for n in 0..OFFERED_BUFFERS {
            let buffer = vec![n as u8; 1 + (n as usize * 37) % 4096];
            let buffer = [&n.to_le_bytes()[..], &buffer[..buffer.len().min(4088)]].concat();
            if !writer.push(&buffer) {
                refused += 1;
                writer.set_lost(refused, 0);
            }
        }
        writer.end();
        writer
    });
    let (mut accepted, mut last, mut out) = (0, None, Vec::new());
    loop {
        match reader.pop(&mut out).unwrap() {
            Next::Ended => break,
            Next::Empty => assert!(is_readable(&reader, Duration::from_secs(60))),
            Next::Buffer(length) => {
                assert_eq!(length, out.len());
                let n = u64::from_le_bytes(*out.first_chunk().unwrap());
                assert!(last < Some(n) && out[8..].iter().all(|byte| *byte == n as u8));
                (accepted, last) = (accepted + 1, Some(n));
            }
        }
    }
    assert_eq!(accepted + reader.lost().0, OFFERED_BUFFERS);
    drop(producer.join().unwrap());
}

proptest! {
    #[test]
    fn queue_behaves_like_a_bounded_list(slots in 1_u32..6, steps in proptest::collection::vec(any::<Option<u8>>(), 0..100)) {
        let (mut writer, mut reader) = create_queue(slots, 8);
        let mut model = std::collections::VecDeque::new();
        let mut out = Vec::new();
        for step in steps {
            if let Some(byte) = step {
                let buffer = vec![byte; 1 + usize::from(byte % 8)];
                prop_assert_eq!(writer.push(&buffer), model.len() < slots as usize);
                if model.len() < slots as usize {
                    model.push_back(buffer);
                }
            } else {
                let next = reader.pop(&mut out).unwrap();
                let expected = model.pop_front();
                prop_assert_eq!(next, expected.as_ref().map_or(Next::Empty, |buffer| Next::Buffer(buffer.len())));
                prop_assert_eq!(&out, &expected.unwrap_or_default());
            }
        }
    }
}

//! Tests of live consumers of whole sessions.

use super::*;
use traceweir_format::buffer::{BufferHeader, HEADER_SIZE, Records};

struct Reader {
    id: ConsumerId,
    queue: QueueReader,
    buffer: Vec<u8>,
}

impl Stage {
    fn consumer(&self) -> Result<Reader> {
        let OpenedConsumer { id, ends, slots, buffer_bytes, header } =
            answer(|done| self.session.open_consumer(done))?;
        assert!(Trace::open(header).is_ok(), "the header buffer is one");
        let queue = QueueReader::open(ends, slots, buffer_bytes)?;
        Ok(Reader { id, queue, buffer: Vec::new() })
    }
}

impl Reader {
    /// Reads all available numbers; `None` at the end.
    fn read(&mut self) -> Option<Vec<u64>> {
        let mut all = Vec::new();
        loop {
            match self.queue.pop(&mut self.buffer).expect("a queue") {
                Next::Buffer(_) => {
                    let head = BufferHeader::parse(self.buffer.first_chunk().expect("a header"));
                    let mut records = Records::new(&self.buffer, HEADER_SIZE, 0, head.processor_index, false);
                    while let Some(record) = records.next().expect("a record") {
                        all.push(u64::from_le_bytes(*record.payload().first_chunk().expect("a number")));
                    }
                }
                Next::Empty => return Some(all),
                Next::Ended => return if all.is_empty() { None } else { Some(all) },
            }
        }
    }

    /// Reads until `count` events came.
    fn read_count(&mut self, count: usize) -> Vec<u64> {
        let deadline = std::time::Instant::now() + TIMEOUT;
        let mut all = Vec::new();
        while all.len() < count {
            assert!(std::time::Instant::now() < deadline, "{} of {count} came", all.len());
            all.append(&mut self.read().expect("not the end"));
            std::thread::sleep(Duration::from_millis(1));
        }
        all
    }

    fn read_to_end(&mut self) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some(mut more) = self.read() {
            all.append(&mut more);
        }
        all
    }
}

#[test]
fn full_session_refuses_writes_until_a_consumer_opens() {
    let small = SessionConfig { buffer_size: 4, minimum_buffers: 2, maximum_buffers: 4, ..properties(0x100) };
    let stage = Stage::without_file(small);
    let pen = stage.pen(1);
    let (mut offered, mut refused_writes) = (0, 0);
    let mut write = |pen: &Pen| {
        let written = pen.write(offered, 900);
        offered += 1;
        refused_writes += u64::from(written.is_err());
        written
    };
    let deadline = std::time::Instant::now() + TIMEOUT;
    while write(&pen) != Err(Failure::OwnerFull) {
        assert!(std::time::Instant::now() < deadline, "never full");
        stage.flush();
    }
    // A process that attaches now finds the session full as well, once the collector knows it.
    let other = stage.pen(2);
    stage.flush();
    assert_eq!(write(&other), Err(Failure::OwnerFull));
    let mut reader = stage.consumer().unwrap();
    assert_eq!((write(&pen), write(&other)), (Ok(()), Ok(())));
    // The backlog has filled the queue; new buffers need room there.
    let mut got = reader.read().unwrap();
    let end = stage.stop();
    got.append(&mut reader.read_to_end());
    let got = set(&got);
    assert!(got.contains(&(offered - 1)) && got.contains(&0), "{got:?} of {offered}");
    assert_eq!(end.lost_by_cause.no_room, refused_writes);
    assert_eq!(got.len() as u64 + end.real_time_events_lost + refused_writes, offered);
}

#[test]
fn live_consumer_and_file_get_everything() {
    for low_latency in [false, true] {
        let stage = Stage::with_file(SessionConfig { low_latency, ..properties(0x101) });
        let pen = stage.pen(1);
        let mut reader = stage.consumer().unwrap();
        assert_eq!(stage.session.properties().consumers, 1);
        let mut got = Vec::new();
        for number in 0..500 {
            pen.write(number, 0).unwrap();
            got.append(&mut reader.read().unwrap());
        }
        got.append(&mut reader.read_count(500 - got.len()));
        for number in 500..600 {
            pen.write(number, 0).unwrap();
        }
        let after = stage.stop();
        got.append(&mut reader.read_to_end());
        assert_eq!(set(&got), (0..600).collect());
        assert_eq!(set(&numbers(&stage.log())), (0..600).collect());
        assert_eq!((after.real_time_buffers_lost, after.real_time_events_lost), (0, 0));
        assert_eq!(reader.queue.lost(), (0, 0));
    }
}

#[test]
fn first_consumer_gets_earlier_events() {
    let stage = Stage::without_file(properties(REAL_TIME));
    let pen = stage.pen(1);
    for number in 0..100 {
        pen.write(number, 0).unwrap();
    }
    stage.flush();
    let mut first = stage.consumer().unwrap();
    let mut second = stage.consumer().unwrap();
    for number in 100..150 {
        pen.write(number, 0).unwrap();
    }
    stage.stop();
    assert_eq!(set(&first.read_to_end()), (0..150).collect());
    assert_eq!(set(&second.read_to_end()), (100..150).collect());
}

#[test]
fn consumer_that_never_reads_delays_no_other_and_has_exact_losses() {
    let stage = Stage::with_file(properties(SEQUENTIAL | REAL_TIME));
    let pen = stage.pen(1);
    let mut lazy = stage.consumer().unwrap();
    let total = 20_000;
    let (mut taken, mut lost) = (0_u64, 0);
    for number in 0..total {
        match pen.write(number, 200) {
            Ok(()) => taken += 1,
            Err(_) => lost += 1,
        }
        if number % 200 == 0 {
            stage.flush();
        }
    }
    let after = stage.stop();
    assert_eq!(after.events_lost, lost);
    assert_eq!(numbers(&stage.log()).len() as u64, taken, "the file has all");
    let got = set(&lazy.read_to_end()).len() as u64;
    assert_eq!(got + after.real_time_events_lost, taken);
    assert!(after.real_time_events_lost > 0, "the queue was too small for this");
    let (buffers, events) = lazy.queue.lost();
    let counted = (u64::from(after.real_time_buffers_lost), after.real_time_events_lost);
    assert_eq!((buffers, events), counted);
}

#[test]
fn live_session_without_consumer_bounds_its_backlog() {
    let stage = Stage::without_file(SessionConfig { maximum_buffers: 1, ..properties(0x100) });
    let pen = stage.pen(1);
    let mut taken = 0;
    for number in 0..20_000 {
        taken += u64::from(pen.write(number, 200).is_ok());
        if number % 200 == 0 {
            stage.flush();
        }
    }
    let full = stage.flush();
    assert!(full.real_time_events_lost > 0, "the backlog is bounded");
    let mut late = stage.consumer().unwrap();
    let after = stage.stop();
    assert_eq!(set(&late.read_to_end()).len() as u64 + after.real_time_events_lost, taken);
    assert_eq!(after.events, taken);
}

#[test]
fn consumers_are_counted_and_limited() {
    let stage = Stage::without_file(properties(REAL_TIME));
    let mut readers: Vec<Reader> = (0..8).map(|_| stage.consumer().unwrap()).collect();
    let refused = answer(|done| stage.session.open_consumer(done)).unwrap_err();
    assert_eq!(refused.status(), Status::ERROR_NO_SYSTEM_RESOURCES);
    let mut closed = readers.pop().unwrap();
    stage.session.close_consumer(closed.id);
    assert_eq!(stage.flush().consumers, 7);
    assert_eq!(closed.read(), None, "its queue has ended");
    readers.push(stage.consumer().unwrap());
    stage.stop();
    assert!(readers.iter_mut().all(|r| r.read().is_none()));
    let silent = Stage::with_file(properties(SEQUENTIAL));
    let refused = answer(|done| silent.session.open_consumer(done)).unwrap_err();
    assert_eq!(refused.status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
}

#[test]
fn live_delivery_can_be_switched_on_and_off() {
    let stage = Stage::with_file(properties(SEQUENTIAL));
    let switch = |on| {
        let update = Update { real_time: Some(on), ..Update::default() };
        answer(|done| stage.session.update(update, None, done))
    };
    let on = switch(true).unwrap();
    assert_eq!((on.config.log_file_mode, on.config.flush_timer), (SEQUENTIAL | REAL_TIME, 1));
    let mut reader = stage.consumer().unwrap();
    let pen = stage.pen(1);
    pen.write(1, 0).unwrap();
    assert_eq!(reader.read_count(1), [1]);
    switch(false).unwrap();
    assert_eq!(reader.read(), None);
    pen.write(2, 0).unwrap();
    stage.stop();
    assert_eq!(numbers(&stage.log()), [1, 2]);
    let only_live = Stage::without_file(properties(REAL_TIME));
    let update = Update { real_time: Some(false), ..Update::default() };
    assert!(answer(|done| only_live.session.update(update, None, done)).is_err());
}

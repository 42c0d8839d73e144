//! Tests of live consumers of complete sessions.

use super::*;
use traceweir_format::buffer::{BufferHeader, HEADER_SIZE, Records};

struct LiveReader {
    id: ConsumerId,
    queue: QueueReader,
    buffer: Vec<u8>,
}

impl SessionFixture {
    fn open_reader(&self) -> Result<LiveReader> {
        let OpenedConsumer { id, ends, slots, buffer_bytes, header } =
            wait_for_reply(|done| self.session.open_consumer(done))?;
        assert!(Trace::open(header).is_ok(), "the header buffer is not a trace");
        let queue = QueueReader::open(ends, slots, buffer_bytes)?;
        Ok(LiveReader { id, queue, buffer: Vec::new() })
    }
}

impl LiveReader {
    /// Reads all available numbers; `None` at the end.
    fn read(&mut self) -> Option<Vec<u64>> {
        let mut events = Vec::new();
        loop {
            match self.queue.pop(&mut self.buffer).expect("the queue is damaged") {
                Next::Buffer(_) => {
                    let header =
                        BufferHeader::parse(self.buffer.first_chunk().expect("the buffer has no header"));
                    let mut records =
                        Records::new(&self.buffer, HEADER_SIZE, 0, header.processor_index, false);
                    while let Some(record) = records.next().expect("the record is invalid") {
                        events.push(u64::from_le_bytes(
                            *record.payload().first_chunk().expect("the payload is not a number"),
                        ));
                    }
                }
                Next::Empty => return Some(events),
                Next::Ended => return if events.is_empty() { None } else { Some(events) },
            }
        }
    }

    /// Reads until `count` events came.
    fn read_count(&mut self, count: usize) -> Vec<u64> {
        let deadline = std::time::Instant::now() + TIMEOUT;
        let mut events = Vec::new();
        while events.len() < count {
            assert!(std::time::Instant::now() < deadline, "{} of {count} events arrived", events.len());
            events.append(&mut self.read().expect("the queue has ended"));
            std::thread::sleep(Duration::from_millis(1));
        }
        events
    }

    fn read_to_end(&mut self) -> Vec<u64> {
        let mut events = Vec::new();
        while let Some(mut more) = self.read() {
            events.append(&mut more);
        }
        events
    }
}

#[test]
fn full_session_refuses_writes_until_a_consumer_opens() {
    let small =
        SessionConfig { buffer_size: 4, minimum_buffers: 2, maximum_buffers: 4, ..session_config(REAL_TIME) };
    let fixture = SessionFixture::without_file(small);
    let writer = fixture.attach_writer(1);
    let (mut offered, mut refused_writes) = (0, 0);
    let mut write = |writer: &TestWriter| {
        let result = writer.write(offered, 900);
        offered += 1;
        refused_writes += u64::from(result.is_err());
        result
    };
    let deadline = std::time::Instant::now() + TIMEOUT;
    while write(&writer) != Err(WriteFailure::OwnerFull) {
        assert!(std::time::Instant::now() < deadline, "the session never became full");
        fixture.flush();
    }
    // After the flush, the collector refuses writes of the newly attached process too.
    let other = fixture.attach_writer(2);
    fixture.flush();
    assert_eq!(write(&other), Err(WriteFailure::OwnerFull));
    let mut reader = fixture.open_reader().unwrap();
    assert_eq!((write(&writer), write(&other)), (Ok(()), Ok(())));
    // The backlog has filled the queue; reading makes room for new buffers.
    let mut received = reader.read().unwrap();
    let end = fixture.stop();
    received.append(&mut reader.read_to_end());
    let received = unique_numbers(&received);
    assert!(received.contains(&(offered - 1)) && received.contains(&0), "{received:?} of {offered}");
    assert_eq!(end.lost_by_cause.no_room, refused_writes);
    assert_eq!(received.len() as u64 + end.real_time_events_lost + refused_writes, offered);
}

#[test]
fn live_consumer_and_file_get_everything() {
    for low_latency in [false, true] {
        let fixture = SessionFixture::with_file(SessionConfig {
            low_latency,
            ..session_config(SEQUENTIAL | REAL_TIME)
        });
        let writer = fixture.attach_writer(1);
        let mut reader = fixture.open_reader().unwrap();
        assert_eq!(fixture.session.properties().consumers, 1);
        let mut received = Vec::new();
        for number in 0..500 {
            writer.write(number, 0).unwrap();
            received.append(&mut reader.read().unwrap());
        }
        received.append(&mut reader.read_count(500 - received.len()));
        for number in 500..600 {
            writer.write(number, 0).unwrap();
        }
        let after = fixture.stop();
        received.append(&mut reader.read_to_end());
        assert_eq!(unique_numbers(&received), (0..600).collect());
        assert_eq!(unique_numbers(&read_numbers(&fixture.log_path())), (0..600).collect());
        assert_eq!((after.real_time_buffers_lost, after.real_time_events_lost), (0, 0));
        assert_eq!(reader.queue.lost(), (0, 0));
    }
}

#[test]
fn first_consumer_gets_earlier_events() {
    let fixture = SessionFixture::without_file(session_config(REAL_TIME));
    let writer = fixture.attach_writer(1);
    for number in 0..100 {
        writer.write(number, 0).unwrap();
    }
    fixture.flush();
    let mut first = fixture.open_reader().unwrap();
    let mut second = fixture.open_reader().unwrap();
    for number in 100..150 {
        writer.write(number, 0).unwrap();
    }
    fixture.stop();
    assert_eq!(unique_numbers(&first.read_to_end()), (0..150).collect());
    assert_eq!(unique_numbers(&second.read_to_end()), (100..150).collect());
}

#[test]
fn consumer_that_never_reads_loses_a_known_number_of_events_and_the_file_none() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL | REAL_TIME));
    let writer = fixture.attach_writer(1);
    let mut idle = fixture.open_reader().unwrap();
    let total = 20_000;
    let (mut written, mut lost) = (0_u64, 0);
    for number in 0..total {
        match writer.write(number, 200) {
            Ok(()) => written += 1,
            Err(_) => lost += 1,
        }
        if number % 200 == 0 {
            fixture.flush();
        }
    }
    let after = fixture.stop();
    assert_eq!(after.events_lost, lost);
    assert_eq!(read_numbers(&fixture.log_path()).len() as u64, written, "the file lacks events");
    let received = unique_numbers(&idle.read_to_end()).len() as u64;
    assert_eq!(received + after.real_time_events_lost, written);
    assert!(after.real_time_events_lost > 0, "the queue lost no events");
    let (buffers, events) = idle.queue.lost();
    let counted = (u64::from(after.real_time_buffers_lost), after.real_time_events_lost);
    assert_eq!((buffers, events), counted);
}

#[test]
fn live_session_without_consumer_bounds_its_backlog() {
    let fixture =
        SessionFixture::without_file(SessionConfig { maximum_buffers: 1, ..session_config(REAL_TIME) });
    let writer = fixture.attach_writer(1);
    let mut written = 0;
    for number in 0..20_000 {
        written += u64::from(writer.write(number, 200).is_ok());
        if number % 200 == 0 {
            fixture.flush();
        }
    }
    let full = fixture.flush();
    assert!(full.real_time_events_lost > 0, "the backlog is not bounded");
    let mut late = fixture.open_reader().unwrap();
    let after = fixture.stop();
    assert_eq!(unique_numbers(&late.read_to_end()).len() as u64 + after.real_time_events_lost, written);
    assert_eq!(after.events, written);
}

#[test]
fn session_counts_its_consumers_and_refuses_the_ninth() {
    let fixture = SessionFixture::without_file(session_config(REAL_TIME));
    let mut readers: Vec<LiveReader> = (0..8).map(|_| fixture.open_reader().unwrap()).collect();
    let error = wait_for_reply(|done| fixture.session.open_consumer(done)).unwrap_err();
    assert_eq!(error.status(), Status::ERROR_NO_SYSTEM_RESOURCES);
    let mut closed = readers.pop().unwrap();
    fixture.session.close_consumer(closed.id);
    assert_eq!(fixture.flush().consumers, 7);
    assert_eq!(closed.read(), None, "the queue of the closed consumer has not ended");
    readers.push(fixture.open_reader().unwrap());
    fixture.stop();
    assert!(readers.iter_mut().all(|r| r.read().is_none()));
    let not_live = SessionFixture::with_file(session_config(SEQUENTIAL));
    let error = wait_for_reply(|done| not_live.session.open_consumer(done)).unwrap_err();
    assert_eq!(error.status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
}

#[test]
fn live_delivery_can_be_switched_on_and_off() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL));
    let switch = |on| {
        let update = Update { real_time: Some(on), ..Update::default() };
        wait_for_reply(|done| fixture.session.update(update, None, done))
    };
    let on = switch(true).unwrap();
    // Live delivery gives a session without a flush timer a timer of one second.
    assert_eq!((on.config.log_file_mode, on.config.flush_timer), (SEQUENTIAL | REAL_TIME, 1));
    let mut reader = fixture.open_reader().unwrap();
    let writer = fixture.attach_writer(1);
    writer.write(1, 0).unwrap();
    assert_eq!(reader.read_count(1), [1]);
    switch(false).unwrap();
    assert_eq!(reader.read(), None);
    writer.write(2, 0).unwrap();
    fixture.stop();
    assert_eq!(read_numbers(&fixture.log_path()), [1, 2]);
    // Without a file, the session would have no output left.
    let only_live = SessionFixture::without_file(session_config(REAL_TIME));
    let update = Update { real_time: Some(false), ..Update::default() };
    assert!(wait_for_reply(|done| only_live.session.update(update, None, done)).is_err());
}

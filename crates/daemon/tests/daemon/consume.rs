//! Live consumers.

use traceweir_format::spec::session::EVENT_TRACE_BUFFERING_MODE;
use traceweir_transport::live::{ConsumerEnds, Next, QueueReader};
use traceweir_transport::message::{Message, SessionConfig, SessionRef};

use crate::util::*;

fn open_queue(consumer: &mut Client, session: u64) -> QueueReader {
    consumer.send(&Message::OpenConsumer { session: SessionRef::Id(session) });
    let mut envelope = consumer.receive_envelope();
    let Message::Consumer { properties, slots, buffer_bytes, header } = envelope.message else {
        panic!("{:?}", envelope.message)
    };
    assert_eq!(properties.id, session);
    assert!(!header.is_empty());
    let signal = envelope.descriptors.pop().unwrap();
    let cursor = envelope.descriptors.pop().unwrap();
    let queue = envelope.descriptors.pop().unwrap();
    QueueReader::open(ConsumerEnds { queue, cursor, signal }, slots, buffer_bytes).unwrap()
}

#[test]
fn consumer_receives_events_and_the_end() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let id = controller.start(real_time_config("s")).id;
    controller.enable(id, PROVIDER);
    let mut consumer = daemon.consumer();
    let mut queue = open_queue(&mut consumer, id);
    assert_eq!(controller.query(id).consumers, 1);
    let mut provider = daemon.provider();
    provider.register(1, PROVIDER);
    let region = provider.receive_region(id);
    assert_eq!(write_events(region, 10), 0);
    assert_eq!(controller.stop(id).events, 10);
    let (mut buffers, mut bytes) = (0, Vec::new());
    until("the queue ends", || match queue.pop(&mut bytes).unwrap() {
        Next::Buffer(_) => {
            buffers += 1;
            false
        }
        Next::Empty => false,
        Next::Ended => true,
    });
    assert!(buffers > 0);
    let second_open = Message::OpenConsumer { session: SessionRef::Id(id) };
    assert_eq!(consumer.status(second_open), WMI_INSTANCE_NOT_FOUND);
}

#[test]
fn disconnected_consumer_is_removed() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let id = controller.start(real_time_config("s")).id;
    for _ in 0..20 {
        let mut consumer = daemon.consumer();
        let queue = open_queue(&mut consumer, id);
        drop(consumer);
        drop(queue);
        until("the consumer is removed", || controller.query(id).consumers == 0);
    }
    // The consumer disconnects before the reply comes.
    for _ in 0..20 {
        daemon.consumer().send(&Message::OpenConsumer { session: SessionRef::Name("S".into()) });
    }
    until("none is left", || controller.query(id).consumers == 0);
    open_queue(&mut daemon.consumer(), id);
}

#[test]
fn consumers_of_sessions_without_real_time_mode_are_refused() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let open = |session| Message::OpenConsumer { session: SessionRef::Id(session) };
    let recorder = controller
        .start(SessionConfig { log_file_mode: EVENT_TRACE_BUFFERING_MODE, ..real_time_config("recorder") })
        .id;
    let mut consumer = daemon.consumer();
    assert_eq!(consumer.status(open(recorder)), WMI_INSTANCE_NOT_FOUND);
    assert_eq!(consumer.status(open(12345)), WMI_INSTANCE_NOT_FOUND);
    let id = controller.start(real_time_config("s")).id;
    let _queue = open_queue(&mut consumer, id);
    assert_eq!(consumer.status(open(id)), INVALID_PARAMETER, "one session for each connection");
}

#[test]
fn ninth_consumer_of_a_session_is_refused() {
    let daemon = Daemon::start();
    let id = daemon.controller().start(real_time_config("s")).id;
    let mut consumers: Vec<Client> = (0..8).map(|_| daemon.consumer()).collect();
    let queues: Vec<QueueReader> = consumers.iter_mut().map(|consumer| open_queue(consumer, id)).collect();
    let mut ninth = daemon.consumer();
    assert_ne!(ninth.status(Message::OpenConsumer { session: SessionRef::Id(id) }), SUCCESS);
    drop(queues);
    drop(consumers);
    until("there is room again", || daemon.controller().query(id).consumers == 0);
    open_queue(&mut ninth, id);
}

//! Live consumers: one connection reads one session, for as long as it stays open.

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE};
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::session::EVENT_TRACE_REAL_TIME_MODE;
use traceweir_format::spec::status::Status;
use traceweir_session::Live;
use traceweir_transport::message::{Message, SessionRef};

use super::notice::{Notice, Promise};
use super::sessions::not_running;
use super::{Asker, Reads, Service};
use crate::error::Refusal;

impl Service {
    /// Asks the session for a queue; the answer follows when it is there.
    pub(super) fn open_consumer(&mut self, asker: Asker, session: &SessionRef) -> Result<(), Refusal> {
        self.refuse_when_leaving()?;
        let (id, session) = self.sessions.find_running(session)?;
        let config = session.properties().config;
        self.check_right(asker.link, config.guid, Rights::TRACELOG_ACCESS_REALTIME)?;
        self.check_sight(asker.link, &config)?;
        let Some(client) = self.clients.get_mut(&asker.link) else { return Ok(()) };
        if client.reads != Reads::Nothing {
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, "a connection reads one session"));
        }
        if config.log_file_mode & EVENT_TRACE_REAL_TIME_MODE == 0 {
            let why = "the session is not a real-time session";
            return Err(Refusal { reason: why.into(), ..not_running() });
        }
        client.reads = Reads::Opening;
        session.open_consumer(
            Promise::new(&self.post, move |outcome| Notice::Opened { id, asker, outcome }).done(),
        );
        Ok(())
    }

    /// The queue is there.
    pub(super) fn opened(&mut self, id: u64, asker: Asker, outcome: traceweir_session::Result<Live>) {
        let live = match outcome {
            Ok(live) => live,
            Err(e) => {
                if let Some(client) = self.clients.get_mut(&asker.link) {
                    client.reads = Reads::Nothing;
                }
                return self.refuse(asker, e.into());
            }
        };
        let reads = Reads::Session { session: id, consumer: live.id };
        let Some(client) = self.clients.get_mut(&asker.link) else {
            return self.stopped_reading(&reads);
        };
        let Some(session) = self.sessions.session(id) else {
            client.reads = Reads::Nothing;
            return self.refuse(asker, not_running());
        };
        client.reads = reads;
        let message = Message::Consumer {
            properties: Box::new(session.properties()),
            slots: live.slots,
            buffer_bytes: live.buffer_bytes,
            header: valid_part(live.header),
        };
        let ends = live.ends;
        self.send_with(asker.link, asker.request, message, vec![ends.queue, ends.cursor, ends.signal]);
    }

    /// A consumer is gone.
    pub(super) fn stopped_reading(&self, reads: &Reads) {
        if let Reads::Session { session, consumer } = reads
            && let Some(session) = self.sessions.session(*session)
        {
            session.close_consumer(*consumer);
        }
    }
}

/// The header buffer without its unused rest, which may be larger than a message.
fn valid_part(mut buffer: Vec<u8>) -> Vec<u8> {
    if let Some(head) = buffer.first_chunk::<HEADER_SIZE>() {
        buffer.truncate(BufferHeader::parse(head).valid_bytes(buffer.len()));
    }
    buffer
}

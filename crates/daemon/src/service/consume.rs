//! Live consumers: one connection reads one session while it stays open.

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE};
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::session::EVENT_TRACE_REAL_TIME_MODE;
use traceweir_format::spec::status::Status;
use traceweir_session::OpenedConsumer;
use traceweir_transport::message::{Message, SessionRef};

use super::notice::{Notice, Promise};
use super::sessions::not_running;
use super::{ConsumerState, ReplyTo, Service};
use crate::error::Refusal;

impl Service {
    /// Requests a queue from the session; the reply follows when the queue exists.
    pub(super) fn open_consumer(&mut self, reply_to: ReplyTo, session: &SessionRef) -> Result<(), Refusal> {
        self.refuse_when_leaving()?;
        let (id, session) = self.sessions.find_running(session)?;
        let config = session.properties().config;
        self.check_right(reply_to.link, config.guid, Rights::TRACELOG_ACCESS_REALTIME)?;
        self.check_kernel_access(reply_to.link, &config)?;
        let Some(client) = self.clients.get_mut(&reply_to.link) else { return Ok(()) };
        if client.consumer_state != ConsumerState::Nothing {
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, "a connection reads one session"));
        }
        if config.log_file_mode & EVENT_TRACE_REAL_TIME_MODE == 0 {
            let reason = "the session is not a real-time session";
            return Err(Refusal { reason: reason.into(), ..not_running() });
        }
        client.consumer_state = ConsumerState::Opening;
        session.open_consumer(
            Promise::new(&self.post, move |outcome| Notice::ConsumerOpened { id, reply_to, outcome })
                .into_callback(),
        );
        Ok(())
    }

    /// Sends a consumer its queue, or the reason why there is none.
    pub(super) fn consumer_opened(
        &mut self,
        id: u64,
        reply_to: ReplyTo,
        outcome: traceweir_session::Result<OpenedConsumer>,
    ) {
        let live = match outcome {
            Ok(live) => live,
            Err(e) => {
                if let Some(client) = self.clients.get_mut(&reply_to.link) {
                    client.consumer_state = ConsumerState::Nothing;
                }
                return self.refuse(reply_to, e.into());
            }
        };
        let consumer_state = ConsumerState::Session { session: id, consumer: live.id };
        let Some(client) = self.clients.get_mut(&reply_to.link) else {
            return self.close_consumer(&consumer_state);
        };
        let Some(session) = self.sessions.session(id) else {
            client.consumer_state = ConsumerState::Nothing;
            return self.refuse(reply_to, not_running());
        };
        client.consumer_state = consumer_state;
        let message = Message::Consumer {
            properties: Box::new(session.properties()),
            slots: live.slots,
            buffer_bytes: live.buffer_bytes,
            header: valid_part(live.header),
        };
        let ends = live.ends;
        self.send_with(reply_to.link, reply_to.request, message, vec![ends.queue, ends.cursor, ends.signal]);
    }

    /// Closes the queue of a consumer that has disconnected.
    pub(super) fn close_consumer(&self, consumer_state: &ConsumerState) {
        if let ConsumerState::Session { session, consumer } = consumer_state
            && let Some(session) = self.sessions.session(*session)
        {
            session.close_consumer(*consumer);
        }
    }
}

/// Cuts the unused rest off a header buffer, which could exceed the size of a message.
fn valid_part(mut buffer: Vec<u8>) -> Vec<u8> {
    if let Some(head) = buffer.first_chunk::<HEADER_SIZE>() {
        buffer.truncate(BufferHeader::parse(head).valid_bytes(buffer.len()));
    }
    buffer
}

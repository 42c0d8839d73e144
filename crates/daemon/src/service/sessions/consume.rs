//! Live consumers: a connection reads one session until the connection is closed.

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE};
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::session::EVENT_TRACE_REAL_TIME_MODE;
use traceweir_format::spec::status::Status;
use traceweir_session::OpenedConsumer;
use traceweir_transport::message::{Message, SessionRef};

use super::SessionTable;
use crate::error::Refusal;
use crate::ids::ReplyTo;
use crate::service::access::{AccessControl, ConsumerState};
use crate::service::notice::ThreadNotice;
use crate::service::turn::ServiceTurn;

impl SessionTable {
    /// Requests a queue from the session; the reply follows when the queue exists.
    pub(in crate::service) fn open_consumer(
        &self,
        turn: &ServiceTurn,
        access: &mut AccessControl,
        reply_to: ReplyTo,
        session: &SessionRef,
    ) -> Result<(), Refusal> {
        let (id, session) = self.find_running(session)?;
        let config = session.properties().config;
        access.check_right(reply_to.link, config.guid, Rights::TRACELOG_ACCESS_REALTIME)?;
        self.check_kernel_access(access, reply_to.link, id, &config)?;
        let Some(client) = access.client_mut(reply_to.link) else { return Ok(()) };
        if client.consumer_state != ConsumerState::Nothing {
            let reason = "this connection already reads a session";
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
        }
        if config.log_file_mode & EVENT_TRACE_REAL_TIME_MODE == 0 {
            let reason = "the session is not a real-time session";
            return Err(Refusal { reason: reason.into(), ..Refusal::not_running() });
        }
        client.consumer_state = ConsumerState::Opening;
        session.open_consumer(
            turn.promise(move |outcome| ThreadNotice::ConsumerOpened { id, reply_to, outcome })
                .into_callback(),
        );
        Ok(())
    }

    /// Sends a consumer its queue, or the reason why it gets no queue.
    pub(in crate::service) fn handle_opened_consumer(
        &self,
        turn: &mut ServiceTurn,
        access: &mut AccessControl,
        id: u64,
        reply_to: ReplyTo,
        outcome: traceweir_session::Result<OpenedConsumer>,
    ) {
        let live = match outcome {
            Ok(live) => live,
            Err(e) => {
                if let Some(client) = access.client_mut(reply_to.link) {
                    client.consumer_state = ConsumerState::Nothing;
                }
                return turn.refuse(reply_to, e.into());
            }
        };
        let consumer_state = ConsumerState::Session { session: id, consumer: live.id };
        let Some(client) = access.client_mut(reply_to.link) else {
            return self.close_consumer(&consumer_state);
        };
        let Some(session) = self.session(id) else {
            client.consumer_state = ConsumerState::Nothing;
            return turn.refuse(reply_to, Refusal::not_running());
        };
        let config = session.properties().config;
        client.consumer_state = ConsumerState::Nothing;
        // The session may have enabled kernel events since the request.
        if let Err(refusal) = self.check_kernel_access(access, reply_to.link, id, &config) {
            self.close_consumer(&consumer_state);
            return turn.refuse(reply_to, refusal);
        }
        if let Some(client) = access.client_mut(reply_to.link) {
            client.consumer_state = consumer_state;
        }
        let message = Message::Consumer {
            properties: Box::new(session.properties()),
            slots: live.slots,
            buffer_bytes: live.buffer_bytes,
            header: truncate_to_valid_bytes(live.header),
        };
        let ends = live.ends;
        turn.reply_with(reply_to, message, vec![ends.queue, ends.cursor, ends.signal]);
    }

    /// Closes the queue of a consumer that has disconnected.
    pub(in crate::service) fn close_consumer(&self, consumer_state: &ConsumerState) {
        if let ConsumerState::Session { session, consumer } = consumer_state
            && let Some(session) = self.session(*session)
        {
            session.close_consumer(*consumer);
        }
    }
}

/// Removes the unused end of a header buffer: the whole buffer could exceed the size of a message.
fn truncate_to_valid_bytes(mut buffer: Vec<u8>) -> Vec<u8> {
    if let Some(head) = buffer.first_chunk::<HEADER_SIZE>() {
        buffer.truncate(BufferHeader::parse(head).valid_bytes(buffer.len()));
    }
    buffer
}

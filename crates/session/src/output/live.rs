//! Adds and removes live consumers, and tracks whether events can still be stored.

use std::sync::atomic::Ordering::Relaxed;

use traceweir_format::spec::status::Status;
use traceweir_transport::live::QueueWriter;

use super::{LogTarget, Output};
use crate::error::{Result, refuse};
use crate::ids::ConsumerId;
use crate::messages::OpenedConsumer;
use crate::realtime::{MAX_CONSUMERS, Realtime};

/// Slots of a consumer's queue in low latency mode, in which a slot may hold only a few events.
const LOW_LATENCY_SLOTS: usize = 1024;
const MIN_SLOTS: usize = 8;
/// Largest address space of a queue, unless [`MIN_SLOTS`] or the backlog need more; only used pages
/// take memory.
const MAX_QUEUE_BYTES: usize = 256 << 20;

impl Output {
    pub(super) fn set_real_time(&mut self, on: bool) {
        let max_backlog = self.shared.maximum_buffers();
        let (bytes, logger_id) = (self.shared.pool.buffer_bytes(), self.facts.logger_id);
        match (&mut self.live, on) {
            (Some(live), true) => live.set_max_backlog(max_backlog),
            (None, true) => self.live = Some(Realtime::new(bytes, max_backlog, logger_id)),
            (Some(live), false) => {
                live.end(&self.shared.stats);
                self.live = None;
            }
            (None, false) => {}
        }
        self.publish_consumers();
    }

    pub(super) fn open_consumer(&mut self) -> Result<OpenedConsumer> {
        let Some(live) = &mut self.live else {
            let reason = "the session does not deliver events live";
            return refuse(Status::ERROR_WMI_INSTANCE_NOT_FOUND, reason);
        };
        if live.consumer_count() >= MAX_CONSUMERS {
            let reason = "a session has at most eight live consumers";
            return refuse(Status::ERROR_NO_SYSTEM_RESOURCES, reason);
        }
        let bytes = self.shared.pool.buffer_bytes();
        let slots =
            if self.facts.config.low_latency { LOW_LATENCY_SLOTS } else { self.shared.maximum_buffers() };
        let affordable = MAX_QUEUE_BYTES.checked_div(bytes).unwrap_or(0).max(MIN_SLOTS);
        let slots = slots.clamp(MIN_SLOTS, affordable).max(live.backlog_len());
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let buffer_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let options = self.facts.options(self.facts.config.log_file.as_deref(), self.facts.clock.anchor());
        let header = options.header_buffer()?;
        let (queue, ends) = QueueWriter::create(slots, buffer_bytes)?;
        let id = live.open(queue, &self.shared.stats);
        self.publish_consumers();
        Ok(OpenedConsumer { id, ends, slots, buffer_bytes, header })
    }

    pub(super) fn close_consumer(&mut self, id: ConsumerId) {
        if let Some(live) = &mut self.live {
            live.close(id);
        }
        self.publish_consumers();
    }

    pub(super) fn publish_consumers(&self) {
        let consumers = self.live.as_ref().map_or(0, Realtime::consumer_count);
        self.shared.stats.consumers.store(u32::try_from(consumers).unwrap_or(u32::MAX), Relaxed);
        self.publish_full();
    }

    /// Publishes whether the session can store no more events, so that the collector closes or
    /// opens the regions. A session with a log is never full: the log takes every event, or the
    /// session ends.
    pub(super) fn publish_full(&self) {
        let is_live_only = matches!(self.log, LogTarget::None);
        self.shared.set_full(is_live_only && self.live.as_ref().is_some_and(Realtime::is_full));
    }

    /// Ends the queues of all live consumers.
    pub(super) fn end_live(&mut self) {
        if let Some(live) = &mut self.live {
            live.end(&self.shared.stats);
        }
        self.live = None;
        self.publish_consumers();
    }
}

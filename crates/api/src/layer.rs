//! A layer for `tracing-subscriber`: events and spans of a program as TraceLogging events.
//!
//! ```text
//!   info!(user, "logged in")       event with the callsite's name, opcode 0, in the activity of
//!                                  the enclosing span
//!   info_span!("request", id)      start event (opcode 1): a new activity, related to the parent's
//!     span.record("status", 200)     stored
//!     span.follows_from(&other)      event (opcode 240, receive): this activity, related to the
//!                                    other one
//!   …the last handle is dropped    stop event (opcode 2): all fields with their last values
//!   log::warn!("…")                an event like any other, through `tracing_log::LogTracer`
//! ```
//!
//! | In `tracing` | In ETW |
//! |---|---|
//! | ERROR, WARN, INFO, DEBUG, TRACE | levels 2, 3, 4, 5, 6; a session with level 5 gets no TRACE |
//! | target | the layer's provider and default keyword, unless the builder set others for it |
//! | name of the callsite | name of the event: `event src/main.rs:12` unless `name:` is set |
//! | integers, floats, `bool` | int64, uint64, double, bool32 |
//! | `i128`, `u128`, `&[u8]` | binary; numbers with their lowest byte first |
//! | `&str`, errors, `?debug`, `%display`, the message | counted UTF-8 text |
//! | a field without a value | omitted |
//!
//! A span is an activity from its creation to the end of its last handle; entering and leaving it
//! any number of times, on any thread, writes nothing. Without a parent span, the start event
//! relates to the thread's activity ([`activity`]), if there is one. A span that began while no
//! session wanted it stays unknown to the layer: no stop event is written, and events in it carry
//! the activity of the closest known enclosing span, or the thread's.
//!
//! | File | Contents |
//! |---|---|
//! | `builder` | settings |
//! | `routes` | targets, providers, keywords, levels |
//! | `naming` | gives providers to targets that are first seen at run time |
//! | `interest` | the `Interest` that `tracing` caches in each callsite, and when it is rebuilt |
//! | `values`, `describe` | one event as payload and metadata |
//! | `span` | the state of a span |
//!
//! ```
//! use tracing_subscriber::prelude::*;
//! use traceweir::controller::{EnableParams, SessionConfig};
//! use traceweir::layer::LayerBuilder;
//! use traceweir::private::PrivateSession;
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("app.etl");
//! let layer = LayerBuilder::new("Example.Kitchen");
//! let provider = layer.get_provider_id();
//! tracing_subscriber::registry().with(layer.build()?).init();
//!
//! // Usually a session of a daemon: `weir record -p Example.Kitchen`.
//! let session = PrivateSession::start(&SessionConfig {
//!     name: "kitchen".to_owned(),
//!     log_file_mode: 1, // EVENT_TRACE_FILE_MODE_SEQUENTIAL
//!     log_file: Some(file),
//!     ..SessionConfig::default()
//! })?;
//! session.enable(provider, &EnableParams { level: 4, ..EnableParams::default() })?;
//!
//! let order = tracing::info_span!("order", table = 7);
//! order.in_scope(|| tracing::info!(dish = "soup", "served"));
//! drop(order);
//! tracing::debug!("no session has this level enabled");
//! assert_eq!(session.stop()?.events, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

mod builder;
mod describe;
mod interest;
mod naming;
mod routes;
mod span;
mod values;

use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Dispatch, Event, Metadata, Subscriber};
use tracing_log::NormalizeEvent;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::provider::activity;
pub use builder::{BuiltLayer, LayerBuilder};
use describe::{EventScratch, MetadataCache};
pub use interest::EtwFilter;
use interest::LayerDispatch;
pub use naming::MAX_TARGETS;
use routes::{LayerRoutes, TargetRoute, etw_level};
use values::EventValues;

// Opcodes as winmeta.h names them.
const OPCODE_INFO: u8 = 0;
const OPCODE_START: u8 = 1;
const OPCODE_STOP: u8 = 2;
const OPCODE_RECEIVE: u8 = 240;

/// A layer that writes events and spans; [`LayerBuilder`] creates it with its filter.
#[derive(Debug)]
pub struct EtwLayer {
    routes: Arc<LayerRoutes>,
    dispatch: Arc<LayerDispatch>,
    /// Number of the layer in the process. It separates the span states of several layers.
    number: u64,
}

/// The parts of an event other than its values.
struct EventParts<'a> {
    route: TargetRoute<'a>,
    callsite: &'static Metadata<'static>,
    opcode: u8,
    activity: Option<Guid>,
    related: Option<Guid>,
}

impl EventParts<'_> {
    /// Writes the event. A session without free buffer space counts the event as lost.
    fn write(&self, values: &EventValues, cache: &mut MetadataCache) {
        let Some(metadata) = cache.metadata(self.callsite, values.shape()) else { return };
        let descriptor = EventDescriptor {
            channel: CHANNEL_TRACELOGGING,
            level: etw_level(*self.callsite.level()),
            opcode: self.opcode,
            keyword: self.route.keyword,
            ..EventDescriptor::default()
        };
        let (activity, related) = (self.activity.as_ref(), self.related.as_ref());
        let event = self.route.provider.event(&descriptor).metadata(metadata);
        let _ = event.activity(activity).related(related).write(&[values.payload()]);
    }
}

impl EtwLayer {
    /// Returns the route of a target's events if any session may want those of this level.
    fn find_wanted_route(&self, callsite: &Metadata<'_>) -> Option<TargetRoute<'_>> {
        self.routes.find(callsite.target()).filter(|route| route.is_enabled(*callsite.level()))
    }
}

impl<S> Layer<S> for EtwLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        self.dispatch.set_dispatch(dispatch);
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let callsite = event.metadata();
        // A record of the `log` crate has its target and level in fields of the event.
        let log_metadata = event.normalized_metadata();
        let Some(route) = self.find_wanted_route(log_metadata.as_ref().unwrap_or(callsite)) else { return };
        let span = ctx.event_span(event);
        let activity = span.and_then(|span| span::closest_activity(&span, self.number));
        EventScratch::with(|scratch| {
            event.record(&mut scratch.values);
            let parts = EventParts { route, callsite, opcode: OPCODE_INFO, activity, related: None };
            parts.write(&scratch.values, &mut scratch.metadata_cache);
        });
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let callsite = attributes.metadata();
        let (Some(span), Some(route)) = (ctx.span(id), self.find_wanted_route(callsite)) else { return };
        let parent_activity = span.parent().and_then(|parent| span::closest_activity(&parent, self.number));
        let related = parent_activity.or_else(|| Some(activity::current()).filter(|id| !id.is_null()));
        EventScratch::with(|scratch| {
            attributes.record(&mut scratch.values);
            let activity = Some(span::begin_span(&span, self.number, related, scratch.values.to_compact()));
            EventParts { route, callsite, opcode: OPCODE_START, activity, related }
                .write(&scratch.values, &mut scratch.metadata_cache);
        });
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        EventScratch::with(|scratch| {
            record.record(&mut scratch.values);
            span::record_values(&span, self.number, &scratch.values);
        });
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, ctx: Context<'_, S>) {
        let (Some(span), Some(other)) = (ctx.span(id), ctx.span(follows)) else { return };
        let activity = span::span_activity(&span, self.number);
        let related = span::span_activity(&other, self.number);
        let callsite = span.metadata();
        let Some(route) =
            self.find_wanted_route(callsite).filter(|_| activity.is_some() && related.is_some())
        else {
            return;
        };
        EventScratch::with(|scratch| {
            EventParts { route, callsite, opcode: OPCODE_RECEIVE, activity, related }
                .write(&scratch.values, &mut scratch.metadata_cache);
        });
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(&id) else { return };
        let Some(state) = span::end_span(&span, self.number) else { return };
        let callsite = span.metadata();
        let Some(route) = self.find_wanted_route(callsite) else { return };
        let parts = EventParts {
            route,
            callsite,
            opcode: OPCODE_STOP,
            activity: Some(state.activity),
            related: state.related,
        };
        EventScratch::with(|scratch| parts.write(&state.values, &mut scratch.metadata_cache));
    }
}

//! The questions that the page asks, as `docs/spec/view-protocol.md` describes them.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use super::{App, empty_reply};
use crate::json::JsonWriter;
use crate::query::{
    EventQuery, FieldQuery, FlameKind, FlameQuery, QueryLimits, TableQuery, TableSort, TimeSpan,
    TimelineQuery, describe_event_within, describe_field, describe_trace, draw_flame, draw_timeline_within,
    fill_table, list_events_within, list_tracks, locate_event, span_of,
};

/// The most parameters of a query.
const MAX_PARAMETERS: usize = 32;

/// The parameters of a query.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).take(MAX_PARAMETERS);
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(k, v)| (k.to_owned(), decode(v)))
                .collect(),
        )
    }

    fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.text(name).parse().ok()
    }

    fn span(&self) -> TimeSpan {
        let from = self.number("from").unwrap_or(0_i64);
        TimeSpan { from, to: self.number("to").unwrap_or(i64::MAX).max(from) }
    }
}

/// Replaces `%XX`. What is no UTF-8 then is replaced by U+FFFD.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Answers a question.
pub(super) fn answer(app: &App, name: &str, query: &str, limits: &QueryLimits) -> Response {
    if limits.is_over() {
        return empty_reply(StatusCode::SERVICE_UNAVAILABLE);
    }
    let parameters = Parameters::parse(query);
    let mut json = JsonWriter::default();
    let view = &*app.view;
    let is_known = match name {
        "trace" => {
            describe_trace(view, &mut json);
            true
        }
        "tracks" => {
            list_tracks(view, parameters.text("search"), &mut json);
            true
        }
        "timeline" => {
            let query = TimelineQuery {
                span: parameters.span(),
                pixels: parameters.number("pixels").unwrap_or(1000),
                tracks: parameters.text("tracks").to_owned(),
                overview: parameters.text("overview") == "1",
            };
            draw_timeline_within(view, &query, limits, &mut json);
            true
        }
        "events" | "locate" => {
            let span = span_of(parameters.number("from"), parameters.number("to"));
            match EventQuery::parse(parameters.text("filter")) {
                Ok(query) if name == "events" => {
                    let (first, count) = (parameters.number("first"), parameters.number("count"));
                    let (first, count) = (first.unwrap_or(0), count.unwrap_or(100));
                    let query = query.within(span);
                    list_events_within(view, &app.lists, query, first, count, limits, &mut json);
                }
                Ok(query) => {
                    let time = parameters.number("time").unwrap_or(0);
                    locate_event(view, &app.lists, query.within(span), time, &mut json);
                }
                Err(reason) => json.object(|json| {
                    json.key("error");
                    json.text(&reason);
                }),
            }
            true
        }
        "event" => parameters.number("row").is_some_and(|row| {
            if !describe_event_within(view, row, limits, &mut json) {
                json.object(|json| {
                    json.key("problem");
                    json.text("This event cannot be read. The trace may have changed.");
                });
            }
            true
        }),
        "table" => {
            let query = TableQuery {
                name: parameters.text("name").to_owned(),
                span: parameters.span(),
                search: parameters.text("search").to_owned(),
                sort: TableSort::parse(parameters.text("sort")),
            };
            fill_table(view, &query, limits, &mut json)
        }
        "flame" => {
            let kind = if parameters.text("kind") == "waits" { FlameKind::Waits } else { FlameKind::Cpu };
            let query = FlameQuery {
                span: parameters.span(),
                kind,
                process: parameters.number("process"),
                thread: parameters.number("thread"),
            };
            draw_flame(view, &query, limits, &mut json);
            true
        }
        "field" => parameters.number("kind").is_some_and(|kind| {
            let field = parameters.text("name").to_owned();
            let query = FieldQuery { kind, field, span: parameters.span() };
            describe_field(view, &query, limits, &mut json)
        }),
        _ => false,
    };
    if !is_known {
        return empty_reply(StatusCode::NOT_FOUND);
    }
    let mut reply = Response::new(Body::from(json.into_bytes()));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

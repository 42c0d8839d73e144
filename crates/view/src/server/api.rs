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
/// The most characters of a value that an error shows.
const MAX_SHOWN_CHARS: usize = 60;

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

    /// Returns a number; `None` if the value is missing or empty.
    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, WrongParameter> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| WrongParameter::new(name, text, "a number in range"))
    }

    fn span(&self) -> Result<TimeSpan, WrongParameter> {
        let from = self.number("from")?.unwrap_or(0_i64);
        Ok(TimeSpan { from, to: self.number("to")?.unwrap_or(i64::MAX).max(from) })
    }

    /// Returns the meaning of a text, which must be one of the choices; `None` if it is missing
    /// or empty.
    fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>, WrongParameter> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let found = choices.iter().find(|(choice, _)| *choice == text);
        let names = || choices.iter().map(|(choice, _)| *choice).collect::<Vec<_>>().join(" or ");
        found.map(|(_, meaning)| Some(*meaning)).ok_or_else(|| WrongParameter::new(name, text, &names()))
    }

    fn sort(&self) -> Result<Option<TableSort>, WrongParameter> {
        let text = self.text("sort");
        let sort = TableSort::parse(text);
        if sort.is_none() && !text.is_empty() {
            return Err(WrongParameter::new("sort", text, "the number of a column"));
        }
        Ok(sort)
    }
}

/// Why a parameter is refused, as a sentence.
#[derive(Debug)]
struct WrongParameter(String);

impl WrongParameter {
    fn new(name: &str, value: &str, expected: &str) -> Self {
        let shown: String = value.chars().take(MAX_SHOWN_CHARS).filter(|c| !c.is_control()).collect();
        Self(format!("The parameter {name} is not {expected}: {shown}\n"))
    }

    fn to_reply(&self) -> Response {
        let mut reply = Response::new(Body::from(self.0.clone()));
        *reply.status_mut() = StatusCode::BAD_REQUEST;
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        reply.headers_mut().insert(header::CONTENT_TYPE, kind);
        reply
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
    let mut json = JsonWriter::default();
    match fill_answer(app, name, &Parameters::parse(query), limits, &mut json) {
        Err(wrong) => return wrong.to_reply(),
        Ok(false) => return empty_reply(StatusCode::NOT_FOUND),
        Ok(true) => {}
    }
    let mut reply = Response::new(Body::from(json.into_bytes()));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// Writes the answer to a question. Returns false if there is no such question.
fn fill_answer(
    app: &App,
    name: &str,
    parameters: &Parameters,
    limits: &QueryLimits,
    json: &mut JsonWriter,
) -> Result<bool, WrongParameter> {
    let view = &*app.view;
    let is_known = match name {
        "trace" => {
            describe_trace(view, json);
            true
        }
        "tracks" => {
            list_tracks(view, parameters.text("search"), json);
            true
        }
        "timeline" => {
            let query = TimelineQuery {
                span: parameters.span()?,
                pixels: parameters.number("pixels")?.unwrap_or(1000),
                tracks: parameters.text("tracks").to_owned(),
                overview: parameters.choice("overview", &[("0", false), ("1", true)])?.unwrap_or(false),
            };
            draw_timeline_within(view, &query, limits, json);
            true
        }
        "events" | "locate" => {
            let span = span_of(parameters.number("from")?, parameters.number("to")?);
            match EventQuery::parse(parameters.text("filter")) {
                Ok(query) if name == "events" => {
                    let (first, count) = (parameters.number("first")?, parameters.number("count")?);
                    let (first, count) = (first.unwrap_or(0), count.unwrap_or(100));
                    let query = query.within(span);
                    list_events_within(view, &app.lists, query, first, count, limits, json);
                }
                Ok(query) => {
                    let time = parameters.number("time")?.unwrap_or(0);
                    locate_event(view, &app.lists, query.within(span), time, json);
                }
                Err(reason) => json.object(|json| {
                    json.key("error");
                    json.text(&reason);
                }),
            }
            true
        }
        "event" => parameters.number("row")?.is_some_and(|row| {
            if !describe_event_within(view, row, limits, json) {
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
                span: parameters.span()?,
                search: parameters.text("search").to_owned(),
                sort: parameters.sort()?,
            };
            fill_table(view, &query, limits, json)
        }
        "flame" => {
            let kinds = [("cpu", FlameKind::Cpu), ("waits", FlameKind::Waits)];
            let query = FlameQuery {
                span: parameters.span()?,
                kind: parameters.choice("kind", &kinds)?.unwrap_or(FlameKind::Cpu),
                process: parameters.number("process")?,
                thread: parameters.number("thread")?,
            };
            draw_flame(view, &query, limits, json);
            true
        }
        "field" => {
            let (kind, span) = (parameters.number("kind")?, parameters.span()?);
            let field = parameters.text("name").to_owned();
            kind.is_some_and(|kind| describe_field(view, &FieldQuery { kind, field, span }, limits, json))
        }
        _ => false,
    };
    Ok(is_known)
}

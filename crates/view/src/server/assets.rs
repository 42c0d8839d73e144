//! The files of the page, which the program contains.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

/// The page, without its files.
pub(crate) const PAGE: &str = include_str!("../../page/index.html");

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Names, types and contents.
pub(crate) const FILES: &[(&str, &str, &str)] = &[
    ("style.css", "text/css; charset=utf-8", include_str!("../../page/style.css")),
    ("app.js", SCRIPT, include_str!("../../page/app.js")),
    ("embedded.js", SCRIPT, include_str!("../../page/embedded.js")),
    ("filter.js", SCRIPT, include_str!("../../page/filter.js")),
    ("live.js", SCRIPT, include_str!("../../page/live.js")),
    ("source.js", SCRIPT, include_str!("../../page/source.js")),
    ("state.js", SCRIPT, include_str!("../../page/state.js")),
    ("format.js", SCRIPT, include_str!("../../page/format.js")),
    ("dom.js", SCRIPT, include_str!("../../page/dom.js")),
    ("timeline.js", SCRIPT, include_str!("../../page/timeline.js")),
    ("rows.js", SCRIPT, include_str!("../../page/rows.js")),
    ("labels.js", SCRIPT, include_str!("../../page/labels.js")),
    ("window.js", SCRIPT, include_str!("../../page/window.js")),
    ("input.js", SCRIPT, include_str!("../../page/input.js")),
    ("tracks.js", SCRIPT, include_str!("../../page/tracks.js")),
    ("scale.js", SCRIPT, include_str!("../../page/scale.js")),
    ("ruler.js", SCRIPT, include_str!("../../page/ruler.js")),
    ("hits.js", SCRIPT, include_str!("../../page/hits.js")),
    ("losses.js", SCRIPT, include_str!("../../page/losses.js")),
    ("boxes.js", SCRIPT, include_str!("../../page/boxes.js")),
    ("draw.js", SCRIPT, include_str!("../../page/draw.js")),
    ("events.js", SCRIPT, include_str!("../../page/events.js")),
    ("details.js", SCRIPT, include_str!("../../page/details.js")),
    ("tables.js", SCRIPT, include_str!("../../page/tables.js")),
    ("flame.js", SCRIPT, include_str!("../../page/flame.js")),
];

pub(super) fn page() -> Response {
    to_reply("text/html; charset=utf-8", PAGE)
}

pub(super) fn find(name: &str) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, content)) => to_reply(kind, content),
        None => super::empty_reply(StatusCode::NOT_FOUND),
    }
}

fn to_reply(kind: &'static str, content: &'static str) -> Response {
    let mut reply = Response::new(Body::from(content));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

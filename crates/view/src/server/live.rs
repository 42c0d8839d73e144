//! The open event stream of a page: the state of the traces, and the sign that the page is open.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::Frame;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Interval, MissedTickBehavior};

use crate::json::JsonWriter;
use crate::query::describe_trace;
use crate::trace::TraceView;

const PERIOD: Duration = Duration::from_millis(500);
/// Without news, a line is sent every so many periods, so that a lost page is noticed.
const QUIET_PERIODS: u32 = 9;
/// The most pages that are open at the same time.
pub(super) const MAX_PAGES: usize = 16;

/// How many pages are open, and since when none.
#[derive(Debug, Default)]
pub(super) struct OpenPages(Mutex<PageCount>);

#[derive(Debug, Default)]
struct PageCount {
    open: usize,
    /// When the last page was closed; `None` before the first.
    closed_at: Option<Instant>,
}

impl OpenPages {
    fn open(&self) -> bool {
        let mut count = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = count.open < MAX_PAGES;
        count.open += usize::from(has_room);
        has_room
    }

    fn close(&self, now: Instant) {
        let mut count = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        count.open = count.open.saturating_sub(1);
        count.closed_at = Some(now);
    }

    /// Returns whether a page was open and none has been for a time.
    pub(super) fn were_closed_for(&self, time: Duration, now: Instant) -> bool {
        let count = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |closed_at: Instant| now.saturating_duration_since(closed_at) >= time;
        count.open == 0 && count.closed_at.is_some_and(is_over)
    }
}

/// A stream of server-sent events.
struct LiveBody {
    view: Arc<TraceView>,
    pages: Arc<OpenPages>,
    interval: Interval,
    /// The work on the next line. It can wait for the index, so it has a thread of its own.
    work: Option<JoinHandle<Vec<u8>>>,
    last: Vec<u8>,
    quiet_periods: u32,
}

impl Drop for LiveBody {
    fn drop(&mut self) {
        self.pages.close(Instant::now());
    }
}

impl HttpBody for LiveBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            let Some(work) = &mut self.work else {
                ready!(self.interval.poll_tick(context));
                let view = Arc::clone(&self.view);
                self.work = Some(spawn_blocking(move || describe(&view)));
                continue;
            };
            let result = ready!(Pin::new(work).poll(context));
            self.work = None;
            let Ok(state) = result else { return Poll::Ready(None) };
            if state == self.last && self.quiet_periods < QUIET_PERIODS {
                self.quiet_periods += 1;
                continue;
            }
            self.quiet_periods = 0;
            let line = [b"data: ".as_slice(), &state, b"\n\n"].concat();
            self.last = state;
            return Poll::Ready(Some(Ok(Frame::data(line.into()))));
        }
    }
}

fn describe(view: &TraceView) -> Vec<u8> {
    let mut json = JsonWriter::default();
    describe_trace(view, &mut json);
    json.into_bytes()
}

/// Opens the stream of a page.
pub(super) fn open(view: Arc<TraceView>, pages: Arc<OpenPages>) -> Response {
    if !pages.open() {
        return super::empty_reply(StatusCode::SERVICE_UNAVAILABLE);
    }
    let mut interval = tokio::time::interval(PERIOD);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let body = LiveBody { view, pages, interval, work: None, last: Vec::new(), quiet_periods: 0 };
    let mut reply = Response::new(Body::new(body));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_closed_after_the_last_one_for_a_time() {
        let (pages, start) = (OpenPages::default(), Instant::now());
        let minute = Duration::from_secs(60);
        let is_over = |seconds| pages.were_closed_for(minute, start + Duration::from_secs(seconds));
        assert!(!is_over(1_000_000), "no page has been open yet");
        assert!(pages.open() && pages.open());
        pages.close(start + Duration::from_secs(10));
        assert!(!is_over(1_000_000), "a page is open");
        pages.close(start + Duration::from_secs(20));
        assert!(!is_over(79) && is_over(80));
        // A page that is loaded again stops the time.
        assert!(pages.open());
        assert!(!is_over(80));
        pages.close(start + Duration::from_secs(90));
        assert!(!is_over(149) && is_over(150));
    }

    #[test]
    fn number_of_pages_is_limited() {
        let pages = OpenPages::default();
        assert!((0..MAX_PAGES).all(|_| pages.open()));
        assert!(!pages.open());
        pages.close(Instant::now());
        assert!(pages.open());
    }
}

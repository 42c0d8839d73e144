//! The local server: hands out the page and answers its questions.
//!
//! ```text
//!   connection ──▶ guard: Host, Origin, token ──▶ router ─┬─▶ page, script, style   (assets)
//!                  otherwise 403 or 404, empty            ├─▶ api/NAME ──▶ query, on a thread of its own
//!                                                         └─▶ live: a line when the state has changed
//! ```
//!
//! S1  Only loopback is bound, at a port that the system chooses.
//! S2  A request needs the token in its path, `Host` of this server and, if it has an `Origin` or
//!     `Sec-Fetch-Site`, those of its page. Everything else gets an empty reply.
//! S3  Connections, header sizes, times and replies are limited. A connection that has not shown the
//!     token has a short time for it, and makes room for newer ones. A refusal closes it.
//! S4  The server ends when no page has been open for [`TimeLimits::closed`] after the first one.

mod api;
pub(crate) mod assets;
mod guard;
mod live;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

use self::guard::{Guard, MAX_HEADER_BYTES};
use self::live::OpenPages;
use crate::query::{CancelOnDrop, EventLists, QueryLimits};
use crate::trace::TraceView;

/// The most connections at a time that have shown the token.
const MAX_CONNECTIONS: usize = 64;
/// The most connections at a time that have not shown the token yet.
const MAX_NEW_CONNECTIONS: usize = 64;
/// The most queries at a time.
const MAX_QUERIES: usize = 4;
/// Threads that describe the state of the traces for open pages.
const STATE_THREADS: usize = 2;
/// How long the work on a question may take before its answer is incomplete.
const QUERY_TIME: Duration = Duration::from_secs(2);
const MAX_HEADERS: usize = 64;

/// Times that end connections and the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimits {
    /// How long a connection may take to show the token.
    token: Duration,
    /// How long a later request header may take.
    header: Duration,
    /// How long no page may be open before the server ends.
    closed: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self {
            token: Duration::from_secs(2),
            header: Duration::from_secs(10),
            closed: Duration::from_secs(60),
        }
    }
}

/// What all requests share.
pub(crate) struct App {
    pub(crate) view: Arc<TraceView>,
    pub(crate) lists: EventLists,
    pages: Arc<OpenPages>,
    queries: Arc<Semaphore>,
}

/// Serves traces until the user interrupts it or closes the page. `on_ready` gets the URL.
pub(crate) fn serve(view: Arc<TraceView>, limits: TimeLimits, on_ready: impl FnOnce(&str)) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(MAX_QUERIES + STATE_THREADS)
        .thread_name("weir-view")
        .enable_all()
        .build()
        .context("cannot start the threads of the server")?;
    let result = runtime.block_on(run(view, limits, on_ready));
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}

async fn run(view: Arc<TraceView>, limits: TimeLimits, on_ready: impl FnOnce(&str)) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = TcpListener::bind(address).await.context("cannot listen on 127.0.0.1")?;
    let port = listener.local_addr().context("cannot listen on 127.0.0.1")?.port();
    let guard = Arc::new(Guard::new(port)?);
    let pages = Arc::new(OpenPages::default());
    let app = Arc::new(App {
        view,
        lists: EventLists::default(),
        pages: Arc::clone(&pages),
        queries: Arc::new(Semaphore::new(MAX_QUERIES)),
    });
    let end = Arc::new(Notify::new());
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut stream = signal(kind).context("cannot handle Ctrl-C")?;
        let interrupted = Arc::clone(&end);
        tokio::spawn(async move {
            stream.recv().await;
            interrupted.notify_one();
        });
    }
    let closed = Arc::clone(&end);
    tokio::spawn(async move {
        while !pages.were_closed_for(limits.closed, Instant::now()) {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        closed.notify_one();
    });
    on_ready(&guard.url());
    tokio::spawn(accept(listener, limits, guard, to_router(app)));
    end.notified().await;
    Ok(())
}

/// What a connection counts as. A connection without the token gives its permit back when it shows
/// the token, and gets one of [`MAX_CONNECTIONS`].
struct Admission {
    has_token: bool,
    _permit: OwnedSemaphorePermit,
}

impl Admission {
    /// Counts the connection among those with the token; returns `false` if there are too many.
    fn admit(&mut self, admitted: &Arc<Semaphore>) -> bool {
        if !self.has_token
            && let Ok(permit) = Arc::clone(admitted).try_acquire_owned()
        {
            *self = Self { has_token: true, _permit: permit };
        }
        self.has_token
    }
}

async fn accept(listener: TcpListener, limits: TimeLimits, guard: Arc<Guard>, router: Router) {
    let admitted = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let new_permits = Arc::new(Semaphore::new(MAX_NEW_CONNECTIONS));
    // The oldest first. A connection that has ended has closed its channel; one with the token
    // ignores the message.
    let mut new_connections: VecDeque<oneshot::Sender<()>> = VecDeque::new();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Too many open files: wait until connections have ended.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if !peer.ip().is_loopback() {
            continue;
        }
        new_connections.retain(|evict| !evict.is_closed());
        if new_connections.len() >= MAX_NEW_CONNECTIONS
            && let Some(oldest) = new_connections.pop_front()
        {
            let _ = oldest.send(());
        }
        let Ok(permit) = Arc::clone(&new_permits).acquire_owned().await else { return };
        let (evict, evicted) = oneshot::channel();
        new_connections.push_back(evict);
        let admission = Admission { has_token: false, _permit: permit };
        let connection = Connection {
            limits,
            guard: Arc::clone(&guard),
            admitted: Arc::clone(&admitted),
            admission: Mutex::new(admission),
        };
        tokio::spawn(connection.serve(stream, router.clone(), evicted));
    }
}

struct Connection {
    limits: TimeLimits,
    guard: Arc<Guard>,
    /// The permits of connections that have shown the token.
    admitted: Arc<Semaphore>,
    admission: Mutex<Admission>,
}

impl Connection {
    /// Returns the path after the token, or the status of a refusal.
    fn check(&self, request: &hyper::Request<Incoming>) -> Result<Uri, StatusCode> {
        let path = self.guard.check(request)?;
        let uri = path.parse::<Uri>().map_err(|_| StatusCode::NOT_FOUND)?;
        let is_admitted = self.lock().admit(&self.admitted);
        if is_admitted { Ok(uri) } else { Err(StatusCode::SERVICE_UNAVAILABLE) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Admission> {
        self.admission.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a connection until it ends, or until it is evicted or late without the token.
    async fn serve(self, stream: TcpStream, router: Router, evicted: oneshot::Receiver<()>) {
        let _ = stream.set_nodelay(true);
        let router = TowerToHyperService::new(router);
        let connection = &self;
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            let router = router.clone();
            let uri = connection.check(&request);
            async move {
                let reply = match uri {
                    Ok(uri) => {
                        *request.uri_mut() = uri;
                        match router.call(request).await {
                            Ok(reply) => reply,
                            Err(never) => match never {},
                        }
                    }
                    Err(status) => refuse(status),
                };
                Ok::<_, Infallible>(guard::with_headers(reply))
            }
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header)
            .max_buf_size(MAX_HEADER_BYTES)
            .max_headers(MAX_HEADERS)
            .half_close(false);
        let mut http = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut end_of_trial = pin!(tokio::time::timeout(self.limits.token, evicted));
        let has_ended = poll_fn(|context| {
            if http.as_mut().poll(context).is_ready() {
                return Poll::Ready(true);
            }
            end_of_trial.as_mut().poll(context).map(|_| false)
        });
        if !has_ended.await && self.lock().has_token {
            // A connection that ends early is no error of the server.
            let _ = http.await;
        }
    }
}

/// Returns a reply after which the connection is closed.
fn refuse(status: StatusCode) -> Response {
    let mut reply = empty_reply(status);
    reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    reply
}

fn to_router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(|| async { assets::page() }))
        .route("/live", get(open_live))
        .route("/api/{name}", get(answer))
        .route("/{name}", get(|Path(name): Path<String>| async move { assets::find(&name) }))
        .fallback(|| async { empty_reply(StatusCode::NOT_FOUND) })
        .with_state(app)
}

async fn open_live(State(app): State<Arc<App>>) -> Response {
    live::open(Arc::clone(&app.view), Arc::clone(&app.pages))
}

async fn answer(State(app): State<Arc<App>>, Path(name): Path<String>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let queries = Arc::clone(&app.queries);
    let reply = run_query(queries, move |limits| api::answer(&app, &name, &query, limits)).await;
    reply.unwrap_or_else(|| empty_reply(StatusCode::INTERNAL_SERVER_ERROR))
}

/// Runs the work on a question on a thread of its own. The work keeps its place among the
/// [`MAX_QUERIES`] until it ends, even if the client goes and this future is dropped.
async fn run_query<T: Send + 'static>(
    queries: Arc<Semaphore>,
    work: impl FnOnce(&QueryLimits) -> T + Send + 'static,
) -> Option<T> {
    let permit = queries.acquire_owned().await.ok()?;
    let guard = CancelOnDrop::default();
    let is_cancelled = guard.flag();
    let thread = tokio::task::spawn_blocking(move || {
        let result = work(&QueryLimits::new(QUERY_TIME, is_cancelled));
        drop(permit);
        result
    });
    thread.await.ok()
}

fn empty_reply(status: StatusCode) -> Response {
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = status;
    reply
}

#[cfg(test)]
mod tests;

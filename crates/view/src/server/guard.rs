//! Decides which requests are answered, and sets the headers of all replies.

use anyhow::{Context, Result};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;

/// Bytes of the token.
const TOKEN_BYTES: usize = 24;
/// The most bytes of all header names and values.
pub(super) const MAX_HEADER_BYTES: usize = 32 << 10;
/// The longest path with its query.
const MAX_PATH_BYTES: usize = 16 << 10;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Nothing but files of this server runs and loads; no form, frame or base address.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

/// Knows the address and the token of this server.
pub(super) struct Guard {
    token: String,
    /// `Host` of a request: by number and by name.
    hosts: [String; 2],
}

impl Guard {
    pub(super) fn new(port: u16) -> Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .context("cannot get random numbers")?;
        anyhow::ensure!(filled == TOKEN_BYTES, "cannot get random numbers");
        let token = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { token, hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")] })
    }

    /// Returns the URL of the page.
    pub(super) fn url(&self) -> String {
        let [host, _] = &self.hosts;
        format!("http://{host}/{}/", self.token)
    }

    /// Returns the path and query after the token, or the status of a refusal.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<String, StatusCode> {
        let headers = request.headers();
        // hyper limits only parts that it reads.
        let header_bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len());
        if header_bytes.sum::<usize>() > MAX_HEADER_BYTES {
            return Err(StatusCode::NOT_FOUND);
        }
        let host = single(headers, &header::HOST)?.ok_or(StatusCode::FORBIDDEN)?;
        if !self.hosts.iter().any(|known| known == host) {
            return Err(StatusCode::FORBIDDEN);
        }
        // A request with a whole URL as its target must name this server too; others do not.
        if request.uri().authority().is_some_and(|authority| authority.as_str() != host) {
            return Err(StatusCode::FORBIDDEN);
        }
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        let rest = self.strip_token(path).filter(|_| path.len() <= MAX_PATH_BYTES);
        // The page may be opened from a file, which has an origin of its own.
        let opens_page = rest == Some("/") && is_navigation(headers)?;
        if let Some(origin) = single(headers, &header::ORIGIN)?
            && origin.strip_prefix("http://") != Some(host)
            && !(opens_page && origin == "null")
        {
            return Err(StatusCode::FORBIDDEN);
        }
        if let Some(site) = single(headers, &SEC_FETCH_SITE)?
            && !matches!(site, "same-origin" | "none")
            && !(opens_page && site == "cross-site")
        {
            return Err(StatusCode::FORBIDDEN);
        }
        let has_body = headers.contains_key(header::TRANSFER_ENCODING)
            || headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
        if !matches!(*request.method(), Method::GET | Method::HEAD) || has_body {
            return Err(StatusCode::NOT_FOUND);
        }
        rest.map(str::to_owned).ok_or(StatusCode::NOT_FOUND)
    }

    /// Returns the path after the token, from its `/` on.
    fn strip_token<'p>(&self, path: &'p str) -> Option<&'p str> {
        let (token, rest) = path.strip_prefix('/')?.split_at_checked(self.token.len())?;
        (is_equal(token.as_bytes(), self.token.as_bytes()) && rest.starts_with('/')).then_some(rest)
    }
}

/// Returns whether a browser opens the address as a page of its own.
fn is_navigation(headers: &HeaderMap) -> Result<bool, StatusCode> {
    let is_navigation = single(headers, &SEC_FETCH_MODE)? == Some("navigate");
    Ok(is_navigation && single(headers, &SEC_FETCH_DEST)? == Some("document"))
}

/// Returns the value of a header that a request may have once.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, StatusCode> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| StatusCode::FORBIDDEN),
        _ => Err(StatusCode::FORBIDDEN),
    }
}

/// Compares in a time that does not depend on where the bytes differ.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let difference = a.iter().zip(b).fold(0_u8, |sum, (a, b)| std::hint::black_box(sum | (a ^ b)));
    std::hint::black_box(difference) == 0
}

/// Sets the headers of a reply that keep it to this page.
pub(super) fn with_headers(mut reply: Response) -> Response {
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

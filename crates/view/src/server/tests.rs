//! Sends requests of the page and of others to a server.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use axum::http::Request;

use super::guard::Guard;
use super::*;
use crate::{OpenedTraces, ViewOptions, open};

/// Starts a server for a fixture. Returns port and token, and the thread of the server.
fn start_with(name: &str, limits: TimeLimits) -> (u16, String, JoinHandle<Result<()>>) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/etl").join(name);
    let (sender, receiver) = channel();
    let server = std::thread::spawn(move || {
        let options = ViewOptions { paths: vec![fixture], ..ViewOptions::default() };
        let OpenedTraces { view, .. } = open(&options)?;
        view.build(&None, None);
        serve(Arc::new(view), limits, |url| sender.send(url.to_owned()).unwrap())
    });
    let url = receiver.recv().unwrap();
    let rest = url.strip_prefix("http://127.0.0.1:").unwrap();
    let (port, token) = rest.split_once('/').unwrap();
    (port.parse().unwrap(), token.trim_end_matches('/').to_owned(), server)
}

/// Starts a server that lives as long as the test program. Returns port and token.
fn start(name: &str) -> (u16, String) {
    // A loaded machine may delay a request.
    let limits = TimeLimits { token: Duration::from_secs(600), ..TimeLimits::default() };
    let (port, token, _) = start_with(name, limits);
    (port, token)
}

/// Sends the lines of a request head, and returns the whole reply.
fn send(port: u16, head: &[String]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("{}\r\nConnection: close\r\n\r\n", head.join("\r\n")).as_bytes()).unwrap();
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    reply
}

fn get(port: u16, path: &str, headers: &[&str]) -> String {
    let mut head = vec![format!("GET {path} HTTP/1.1")];
    if !headers.iter().any(|header| header.starts_with("Host:")) {
        head.push(format!("Host: 127.0.0.1:{port}"));
    }
    head.extend(headers.iter().map(|header| (*header).to_owned()));
    send(port, &head)
}

fn status_of(reply: &str) -> &str {
    reply.split(' ').nth(1).unwrap_or("none")
}

/// Returns whether a reply contains nothing but its status.
fn is_empty(reply: &str) -> bool {
    reply.split_once("\r\n\r\n").is_some_and(|(_, body)| body.is_empty() || body == "0\r\n\r\n")
}

#[test]
fn page_of_another_origin_and_wrong_token_get_nothing() {
    let (port, token) = start("kernel.etl");
    let good = format!("/{token}/api/trace");
    assert_eq!(status_of(&get(port, &good, &[])), "200");
    assert_eq!(status_of(&get(port, &good, &[&format!("Origin: http://127.0.0.1:{port}")])), "200");
    let mut wrong_token = token.clone();
    let last = if wrong_token.pop() == Some('0') { '1' } else { '0' };
    wrong_token.push(last);
    for path in [
        "/".to_owned(),
        "/api/trace".to_owned(),
        "/favicon.ico".to_owned(),
        format!("/{wrong_token}/api/trace"),
        format!("/{}/api/trace", &token[..token.len() - 1]),
        format!("/{token}0/api/trace"),
        format!("/{token}"),
        format!("//{token}/api/trace"),
        format!("/{}/api/trace", token.to_uppercase().replace(char::is_numeric, "A")),
    ] {
        let reply = get(port, &path, &[]);
        assert!(status_of(&reply) == "404" && is_empty(&reply), "{path}: {reply}");
    }
    for header in [
        "Origin: https://example.com".to_owned(),
        "Origin: null".to_owned(),
        format!("Origin: http://127.0.0.1:{}", port.wrapping_add(1)),
        format!("Origin: http://127.0.0.1:{port}.example.com"),
        "Sec-Fetch-Site: cross-site".to_owned(),
        "Sec-Fetch-Site: same-site".to_owned(),
        "Host: example.com".to_owned(),
        format!("Host: example.com:{port}"),
        "Host: 127.0.0.1".to_owned(),
        format!("Host: [::1]:{port}"),
    ] {
        let reply = get(port, &good, &[&header]);
        assert!(status_of(&reply) == "403" && is_empty(&reply), "{header}: {reply}");
    }
    let two_hosts = [&*format!("Host: 127.0.0.1:{port}"), "Host: example.com"];
    assert_eq!(status_of(&get(port, &good, &two_hosts)), "403");
    let without_host = send(port, &[format!("GET {good} HTTP/1.1")]);
    assert_eq!(status_of(&without_host), "403");
}

#[test]
fn only_reads_without_body_are_answered() {
    let (port, token) = start("kernel.etl");
    let ask_with = |method: &str| {
        let head = [format!("{method} /{token}/api/trace HTTP/1.1"), format!("Host: 127.0.0.1:{port}")];
        send(port, &head)
    };
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
        assert_eq!(status_of(&ask_with(method)), "404", "{method}");
    }
    // The target of this method is no path, so the parser may refuse it.
    let reply = ask_with("CONNECT");
    assert!(matches!(status_of(&reply), "400" | "404"), "{reply}");
    let reply = get(port, &format!("/{token}/api/trace"), &["Content-Length: 5"]);
    assert_eq!(status_of(&reply), "404");
    let long = format!("/{token}/api/tracks?search={}", "x".repeat(20_000));
    assert_eq!(status_of(&get(port, &long, &[])), "404");
    let many = ["X-Header: 1"; 100];
    assert_eq!(status_of(&get(port, &format!("/{token}/api/trace"), &many)), "431");
}

#[test]
fn replies_keep_the_page_to_itself() {
    let (port, token) = start("kernel.etl");
    for path in ["", "app.js", "style.css", "api/trace", "api/nosuch", "nosuch.js"] {
        let reply = get(port, &format!("/{token}/{path}"), &[]).to_lowercase();
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self';",
            "referrer-policy: no-referrer",
            "x-content-type-options: nosniff",
            "cross-origin-resource-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(reply.contains(header), "{path} lacks {header}");
        }
        assert!(!reply.contains("access-control-allow-origin"), "{path}");
    }
}

#[test]
fn strange_questions_get_an_answer_or_a_refusal() {
    let (port, token) = start("kernel.etl");
    for question in [
        "api/events?first=18446744073709551615&count=18446744073709551615",
        "api/events?filter=%22%22%20%FF%00%2",
        "api/events?filter=--pid",
        "api/events?filter=nosuchtext&from=5&to=1",
        "api/event?row=18446744073709551615",
        "api/event?row=-1",
        "api/timeline?from=-9223372036854775808&to=9223372036854775807&pixels=4294967295&tracks=c0,t1,k2,v1,s3,n0,é,c,x9,t99999999&overview=1",
        "api/timeline?from=0&to=0&pixels=0&tracks=c0&overview=1",
        "api/table?name=nosuch",
        "api/table?name=threads&from=-1&to=-5",
        "api/flame?from=-9223372036854775808&to=9223372036854775807&kind=waits&process=9999",
        "api/field?kind=65535&name=x",
        "api/field?kind=1&name=%00",
        "api/locate?time=-9223372036854775808",
        "api/tracks?search=%3Cscript%3E",
    ] {
        let status = get(port, &format!("/{token}/{question}"), &[]);
        let status = status_of(&status);
        assert!(matches!(status, "200" | "400" | "404"), "{question}: {status}");
    }
    assert_eq!(status_of(&get(port, &format!("/{token}/api/trace"), &[])), "200", "the server must live on");
}

#[test]
fn event_that_cannot_be_read_has_a_problem() {
    let (port, token) = start("kernel.etl");
    let reply = get(port, &format!("/{token}/api/event?row=18446744073709551615"), &[]);
    assert_eq!(status_of(&reply), "200");
    assert!(reply.contains("\"problem\":\"This event cannot be read."), "{reply}");
    assert_eq!(status_of(&get(port, &format!("/{token}/api/event"), &[])), "404");
}

#[test]
fn further_page_is_refused_but_gets_answers() {
    let (port, token) = start("kernel.etl");
    let pages: Vec<TcpStream> = (0..live::MAX_PAGES)
        .map(|_| {
            let mut page = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let head = format!("GET /{token}/live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
            page.write_all(head.as_bytes()).unwrap();
            assert!(page.read(&mut [0; 16]).unwrap() > 0);
            page
        })
        .collect();
    let refused = get(port, &format!("/{token}/live"), &[]);
    assert!(status_of(&refused) == "503" && is_empty(&refused), "{refused}");
    assert_eq!(status_of(&get(port, &format!("/{token}/api/trace"), &[])), "200");
    drop(pages);
}

#[test]
fn token_has_at_least_128_bits_and_differs() {
    let (a, b) = (Guard::new(1).unwrap(), Guard::new(1).unwrap());
    assert_ne!(a.url(), b.url());
    assert!(a.url().len() >= "http://127.0.0.1:1//".len() + 32);
    let request = |url: &str| Request::get(url).header("Host", "127.0.0.1:1").body(()).unwrap();
    let path = a.url().strip_prefix("http://127.0.0.1:1").unwrap().to_owned();
    assert_eq!(a.check(&request(&path)).unwrap(), "/");
    assert_eq!(b.check(&request(&path)), Err(StatusCode::NOT_FOUND));
}

#[test]
fn strange_heads_get_nothing() {
    let (port, token) = start("kernel.etl");
    let host = format!("Host: 127.0.0.1:{port}");
    let good = format!("/{token}/api/trace");
    let whole = format!("GET http://127.0.0.1:{port}{good} HTTP/1.1");
    assert_eq!(status_of(&send(port, &[whole.clone(), host.clone()])), "200");
    assert_eq!(status_of(&get(port, &good, &[&format!("Host: localhost:{port}")])), "200");
    let get_good = format!("GET {good} HTTP/1.1");
    let mut forbidden = vec![
        vec![format!("GET http://example.com{good} HTTP/1.1"), host.clone()],
        vec![format!("GET http://127.0.0.1:{port}@example.com{good} HTTP/1.1"), host.clone()],
        vec![format!("GET http://localhost:{port}{good} HTTP/1.1"), host.clone()],
        vec![whole.clone()],
        vec![whole, "Host: example.com".to_owned()],
        vec![format!("GET {good} HTTP/1.0")],
        vec![get_good.clone(), host.clone(), host.clone()],
        vec![get_good.clone(), host.clone(), "Host: example.com".to_owned()],
        vec![
            get_good.clone(),
            host.clone(),
            "Origin: http://a".to_owned(),
            format!("Origin: http://127.0.0.1:{port}"),
        ],
    ];
    for value in [
        "",
        "example.com",
        "127.0.0.1.example.com",
        "127.0.0.2",
        "0.0.0.0",
        "[::1]",
        "localhost.",
        "LOCALHOST",
        "user@127.0.0.1",
    ] {
        forbidden.push(vec![get_good.clone(), format!("Host: {value}:{port}")]);
    }
    for value in
        [format!("127.0.0.1:{port} example.com"), format!("127.0.0.1:{port}/"), format!("127.0.0.1:0{port}")]
    {
        forbidden.push(vec![get_good.clone(), format!("Host: {value}")]);
    }
    let chunked = vec![get_good.clone(), host.clone(), "Transfer-Encoding: chunked".to_owned()];
    // The HTTP parser refuses these. A connection that is closed with unread bytes may lose its reply.
    let malformed =
        [vec![format!("GET {good}")], vec!["PRI * HTTP/2.0".to_owned()], vec!["\u{16}\u{3}\u{1}".to_owned()]];
    let too_long = vec![get_good, host, format!("X-Long: {}", "x".repeat(40_000))];
    let mut expected: Vec<(Vec<String>, &[&str])> =
        vec![(chunked, &["404"]), (too_long, &["404", "431", "none"])];
    expected.extend(forbidden.into_iter().map(|head| (head, &["403"][..])));
    expected.extend(malformed.into_iter().map(|head| (head, &["400", "none"][..])));
    for (head, statuses) in expected {
        let reply = send(port, &head);
        let head = head.join(" | ");
        assert!(
            !reply.contains("kernel.etl") && statuses.contains(&status_of(&reply)),
            "{}: {}",
            head.get(..200).unwrap_or(&head),
            reply.get(..40).unwrap_or(&reply)
        );
    }
}

#[test]
fn paths_outside_of_the_page_get_nothing() {
    let (port, token) = start("kernel.etl");
    for path in [
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "/etc/passwd",
        "api/../../etc/passwd",
        "api/..%2ftrace",
        "api/",
        "api/trace/",
        "api//trace",
        ".",
        "..",
        "app.js/",
        "app.js%00",
        "App.js",
        "live/x",
        "Cargo.toml",
        "api/%74race%00",
        "\\etc\\passwd",
        "file:///etc/passwd",
        "app.js/../../x",
    ] {
        let reply = get(port, &format!("/{token}/{path}"), &[]);
        assert!(matches!(status_of(&reply), "400" | "404") && is_empty(&reply), "{path}: {reply}");
    }
}

#[test]
fn wrong_parameter_is_refused_with_a_sentence() {
    let (port, token) = start("kernel.etl");
    for (question, reason) in [
        ("flame?kind=xxx", "The parameter kind is not cpu or waits: xxx"),
        ("flame?process=4294967296", "The parameter process is not a number in range: 4294967296"),
        ("flame?thread=-1", "The parameter thread is not a number in range: -1"),
        ("timeline?from=1.5", "The parameter from is not a number in range: 1.5"),
        ("timeline?overview=yes", "The parameter overview is not 0 or 1: yes"),
        ("table?name=threads&sort=x", "The parameter sort is not the number of a column: x"),
        ("events?count=many", "The parameter count is not a number in range: many"),
        ("event?row=x", "The parameter row is not a number in range: x"),
        ("field?kind=65536&name=x", "The parameter kind is not a number in range: 65536"),
    ] {
        let reply = get(port, &format!("/{token}/api/{question}"), &[]);
        assert!(status_of(&reply) == "400" && reply.ends_with(&format!("{reason}\n")), "{question}: {reply}");
    }
    for question in ["flame?kind=", "flame?kind=waits&process=&thread=", "timeline?from=&to=", "trace?x=y"] {
        let reply = get(port, &format!("/{token}/api/{question}"), &[]);
        assert_eq!(status_of(&reply), "200", "{question}: {reply}");
    }
}

#[test]
fn next_request_of_a_connection_is_checked_too() {
    let (port, token) = start("kernel.etl");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let good = format!("GET /{token}/api/nosuch HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    let bad = format!("GET /{token}/api/trace HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
    stream.write_all(format!("{good}{bad}").as_bytes()).unwrap();
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    assert!(reply.contains("HTTP/1.1 404") && reply.contains("HTTP/1.1 403"), "{reply}");
    assert!(!reply.contains("kernel.etl"), "{reply}");
}

#[test]
fn slow_head_ends_its_connection() {
    let limits = TimeLimits { token: Duration::from_millis(50), ..TimeLimits::default() };
    let (port, token, _) = start_with("kernel.etl", limits);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("GET /{token}/api/trace HTTP/1.1\r\n").as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut reply = String::new();
    // Returns when the server has closed the connection.
    let result = stream.read_to_string(&mut reply);
    let is_open =
        result.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    assert!(!is_open, "the connection stays open");
    assert!(status_of(&reply) != "200", "{reply}");
}

#[test]
fn connections_are_limited_and_come_back() {
    let (port, token) = start("kernel.etl");
    let mut held: Vec<TcpStream> = (0..MAX_CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let head = format!("GET /{token}/api/nosuch HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            // The connection stays open after its reply.
            assert!(stream.read(&mut [0; 16]).unwrap() > 0);
            stream
        })
        .collect();
    let refused = get(port, &format!("/{token}/api/trace"), &[]);
    assert!(status_of(&refused) == "503" && is_empty(&refused), "{refused}");
    held.clear();
    while status_of(&get(port, &format!("/{token}/api/trace"), &[])) != "200" {
        std::thread::yield_now();
    }
}

#[test]
fn server_ends_after_the_last_page() {
    let limits = TimeLimits { closed: Duration::ZERO, ..TimeLimits::default() };
    let (port, token, server) = start_with("kernel.etl", limits);
    let mut page = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = format!("GET /{token}/live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    page.write_all(head.as_bytes()).unwrap();
    let mut received = String::new();
    let mut part = [0; 4096];
    while !received.contains("\"complete\":true") {
        let bytes = page.read(&mut part).unwrap();
        assert!(bytes > 0, "the server ended while a page is open: {received}");
        received.push_str(&String::from_utf8_lossy(&part[..bytes]));
    }
    assert!(!server.is_finished());
    drop(page);
    server.join().unwrap().unwrap();
}

#[test]
fn aborted_question_is_cancelled_and_keeps_its_place_until_it_ends() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let queries = Arc::new(Semaphore::new(1));
    let (started_sender, started) = channel();
    let (cancelled_sender, cancelled) = channel();
    let (finish, finish_receiver) = channel::<()>();
    let question = runtime.spawn(run_query(Arc::clone(&queries), move |limits| {
        let guard_is_held = !limits.is_cancelled();
        started_sender.send(guard_is_held).unwrap();
        while !limits.is_cancelled() {
            std::thread::yield_now();
        }
        cancelled_sender.send(()).unwrap();
        let _ = finish_receiver.recv();
    }));
    assert!(started.recv().unwrap(), "the question was cancelled before its client had gone");
    question.abort();
    cancelled.recv().unwrap();
    assert_eq!(queries.available_permits(), 0, "the place is free while the work goes on");
    finish.send(()).unwrap();
    runtime.block_on(async { drop(queries.acquire().await.unwrap()) });
}

#[test]
fn page_opens_from_a_file_but_nothing_else_does() {
    let (port, token) = start("kernel.etl");
    let from_file = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"];
    let with_origin = |origin| [&from_file[..], &[origin]].concat();
    let page = format!("/{token}/");
    assert_eq!(status_of(&get(port, &page, &from_file)), "200");
    assert_eq!(status_of(&get(port, &page, &with_origin("Origin: null"))), "200");
    assert_eq!(status_of(&get(port, &page, &with_origin("Origin: https://example.com"))), "403");
    for path in ["api/trace", "app.js", "live", "?x"] {
        let reply = get(port, &format!("{page}{path}"), &from_file);
        assert!(status_of(&reply) == "403" && is_empty(&reply), "{path}: {reply}");
    }
    for changed in ["Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: iframe"] {
        let name = changed.split(':').next().unwrap();
        let headers = from_file.map(|header| if header.starts_with(name) { changed } else { header });
        assert_eq!(status_of(&get(port, &page, &headers)), "403", "{changed}");
    }
    assert_eq!(status_of(&get(port, &page, &["Origin: null"])), "403");
    assert_eq!(status_of(&get(port, "/", &from_file)), "403");
}

#[test]
fn refusal_closes_the_connection() {
    let (port, token) = start("kernel.etl");
    let good = format!("GET /{token}/api/trace HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    let bad = format!("GET /x/api/trace HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("{bad}{good}").as_bytes()).unwrap();
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    assert!(!reply.contains("kernel.etl"), "{reply}");
}

#[test]
fn connections_without_token_do_not_shut_out_the_page() {
    let (port, token) = start("kernel.etl");
    // The connections send nothing, or requests that are refused.
    let mut silent = Vec::new();
    for number in 0..3 * MAX_NEW_CONNECTIONS {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n");
        }
        silent.push(stream);
        if number % 16 == 0 {
            assert_eq!(status_of(&get(port, &format!("/{token}/api/trace"), &[])), "200", "{number}");
        }
    }
    // The oldest made room for the newest.
    let _ = silent[0].read_to_string(&mut String::new());
    assert_eq!(status_of(&get(port, &format!("/{token}/api/trace"), &[])), "200");
}

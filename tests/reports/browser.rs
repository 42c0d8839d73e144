//! Tests the page of `weir flame` in a real browser: its nodes, and its reactions to clicks, keys
//! and searches.
//!
//! ```text
//!   test ──JSON, NUL──▶ pipe 3 ──▶ Chromium (headless) ──▶ pipe 4 ──▶ test     DevTools over pipes
//! ```
//!
//! The test is skipped without Chromium, which it searches under the names of its packages (Debian:
//! chromium, chromium-headless-shell).

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use super::flame::{HOSTILE, build_trace};
use crate::util::{skip, weir};

const PROGRAM_NAMES: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// The title of the page: the measure, and the file name of the trace.
const TITLE: &str = "Processor time by samples: kernel.etl";
/// Deadline for each answer of the browser.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

fn find_browser() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let mut candidates = PROGRAM_NAMES
        .iter()
        .flat_map(|name| std::env::split_paths(&folders).map(move |folder| folder.join(name)));
    candidates.find(|path| path.is_file())
}

/// A browser with one page.
struct Browser {
    child: Child,
    requests: File,
    answers: File,
    /// Bytes of answers that are not parsed yet.
    received: Vec<u8>,
    last_id: u64,
    /// Id of the DevTools session of the page; empty before the session is attached.
    session_id: String,
}

impl Browser {
    fn start(program: &Path, folder: &Path) -> Self {
        let (to, from) = (folder.join("to-browser"), folder.join("from-browser"));
        for pipe in [&to, &from] {
            mkfifoat(CWD, pipe, Mode::RWXU).unwrap();
        }
        // The test opens each FIFO for reading and writing, so that opening does not wait for the
        // browser. The browser exits when the test has closed the FIFOs.
        let open_both_ways = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
        let (to_browser, from_browser) = (open_both_ways(&to), open_both_ways(&from));
        // A shell assigns the pipes their descriptor numbers.
        let shell_command = "exec 3<\"$1\" 4>\"$2\"; shift 2; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", shell_command, "sh"]).args([&to, &from]).arg(program);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        command.args(["--remote-debugging-pipe", "--window-size=1200,900"]);
        command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
        // Packages start the browser by a script, and the browser starts further processes. All of
        // these processes form one process group, which drop kills.
        command.process_group(0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let (received, session_id) = (Vec::new(), String::new());
        let mut browser =
            Self { child, requests: to_browser, answers: from_browser, received, last_id: 0, session_id };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session_id =
            attached["sessionId"].as_str().expect("the browser does not return a session id").to_owned();
        browser
    }

    /// Calls a DevTools method and waits for its answer.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut request = json!({"id": self.last_id, "method": method, "params": parameters});
        if !self.session_id.is_empty() {
            request["sessionId"] = self.session_id.clone().into();
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).unwrap();
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let message = self.read_message(deadline);
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method} failed: {message}");
                return message["result"].clone();
            }
        }
    }

    /// Waits for the next message.
    fn read_message(&mut self, deadline: Instant) -> Value {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.received.drain(..=end).collect();
                return serde_json::from_slice(&message[..end]).expect("the browser does not send JSON");
            }
            assert!(Instant::now() < deadline, "the browser does not answer");
            let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            let mut ready = [rustix::event::PollFd::new(&self.answers, rustix::event::PollFlags::IN)];
            if rustix::event::poll(&mut ready, Some(&wait)).unwrap() > 0 {
                let mut buffer = [0; 1 << 16];
                let length = self.answers.read(&mut buffer).unwrap();
                self.received.extend_from_slice(&buffer[..length]);
            }
        }
    }

    /// Evaluates an expression on the page.
    fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression} failed: {answer}");
        answer["result"]["value"].clone()
    }

    fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let node_count = "document.readyState === 'complete' && document.querySelectorAll('.node').length";
        while self.evaluate(node_count).as_u64().unwrap_or(0) == 0 {
            assert!(Instant::now() < deadline, "the page is not drawn");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clicks the middle of the first node whose full label begins with `label`.
    fn click(&mut self, label: &str) {
        let position = self.evaluate(&format!(
            "(() => {{ const node = [...document.querySelectorAll('.node')].find((n) => n.title.startsWith({})); \
             const box = node.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(label)
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({"type": kind, "x": position[0], "y": position[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    fn press_key(&mut self, key: &str, text: Option<&str>) {
        let mut down = json!({"type": "keyDown", "key": key, "code": key});
        if let Some(text) = text {
            down["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key, "code": key}));
    }

    fn type_text(&mut self, text: &str) {
        text.chars().for_each(|key| self.press_key(&key.to_string(), Some(&key.to_string())));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Returns the two sums of samples that the page shows: for the zoomed node, and for the search
/// matches.
fn shown_samples(browser: &mut Browser) -> (u64, u64) {
    let parse = |value: Value| value.as_str().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
    let total = browser.evaluate("document.getElementById('graph').dataset.total");
    let matched = browser.evaluate("document.getElementById('matched').dataset.sum");
    (parse(total), parse(matched))
}

#[test]
fn browser_draws_zooms_and_searches() {
    let Some(program) = find_browser() else {
        return skip("browser", "there is no Chromium (Debian: apt install chromium-headless-shell)");
    };
    let mut trace = build_trace();
    let path = trace.write();
    let page = trace.folder().join("flame.html");
    weir(["flame", path.to_str().unwrap(), "-o", page.to_str().unwrap()]).expect(0);
    let mut browser = Browser::start(&program, trace.folder());
    let url = format!("file://{}", page.display());
    browser.open(&url);
    // As in `flame::build_trace`, there are 60 samples of `app` and 25 with hostile names. Of the
    // samples of `app`, 20 are in `lib.so`, and 10 are in the kernel, called by `lib.so`.
    assert_eq!(shown_samples(&mut browser), (85, 0));
    assert_eq!(browser.evaluate("document.getElementById('title').textContent"), TITLE);
    check_hostile_names_are_text(&mut browser);
    check_labels_fit(&mut browser);
    check_clicks_zoom(&mut browser);
    check_keys_move_focus(&mut browser);
    check_search_counts_samples(&mut browser);
    // The page shows the search that its URL encodes.
    browser.call("Page.navigate", json!({"url": "about:blank"}));
    browser.open(&format!("{url}#search=lib.so"));
    assert_eq!(shown_samples(&mut browser), (85, 30));
}

fn check_hostile_names_are_text(browser: &mut Browser) {
    assert_eq!(browser.evaluate("document.title"), TITLE, "a process name ran as a script");
    assert_eq!(browser.evaluate("document.images.length"), 0);
    assert_eq!(browser.evaluate("document.scripts.length"), 2);
    let drawn =
        browser.evaluate("[...document.querySelectorAll('.node')].map((n) => n.getAttribute('aria-label'))");
    let drawn: Vec<&str> = drawn.as_array().unwrap().iter().map(|label| label.as_str().unwrap()).collect();
    for (name, pid) in HOSTILE.iter().zip(500..) {
        let label = format!("{name} ({pid})");
        assert!(drawn.contains(&label.as_str()), "no {label} in {drawn:?}");
    }
    // The content policy keeps an inserted script element from running.
    browser.evaluate("(() => { const s = document.createElement('script'); s.textContent = \"document.title='owned'\"; document.body.append(s); s.remove(); })()");
    assert_eq!(browser.evaluate("document.title"), TITLE);
}

/// Checks that no label is wider than its box, and that wide boxes have labels.
fn check_labels_fit(browser: &mut Browser) {
    let too_wide = browser.evaluate(
        "[...document.querySelectorAll('.node')].filter((n) => n.scrollWidth > n.clientWidth + 1).map((n) => n.textContent)",
    );
    assert_eq!(too_wide, json!([]), "labels do not fit");
    let empty = browser.evaluate(
        "[...document.querySelectorAll('.node')].filter((n) => n.clientWidth > 100 && n.textContent === '').length",
    );
    assert_eq!(empty, 0, "wide boxes without a label");
}

fn check_clicks_zoom(browser: &mut Browser) {
    browser.click("lib.so+0x0");
    assert_eq!(shown_samples(browser), (30, 0));
    let hash = browser.evaluate("location.hash");
    assert!(hash.as_str().unwrap().starts_with("#zoom="), "{hash}");
    let tip = browser.evaluate("document.activeElement.title");
    assert_eq!(tip, "lib.so+0x0: 30 samples, own 20 samples, 35.29 % of all");
    browser.click("app (100)");
    assert_eq!(shown_samples(browser), (60, 0), "a click on a node above the zoomed node did not zoom out");
    browser.press_key("Escape", None);
    assert_eq!(shown_samples(browser), (85, 0));
}

fn check_keys_move_focus(browser: &mut Browser) {
    browser.evaluate("document.querySelector('.node[data-node=\"0\"]').focus()");
    let focused = "document.activeElement.getAttribute('aria-label')";
    browser.press_key("ArrowDown", None);
    let first = browser.evaluate(focused);
    browser.press_key("ArrowRight", None);
    assert_ne!(browser.evaluate(focused), first, "the right arrow key did not move the focus");
    browser.press_key("ArrowLeft", None);
    assert_eq!(browser.evaluate(focused), first);
    browser.press_key("ArrowUp", None);
    assert_eq!(browser.evaluate(focused), "all");
    browser.press_key("ArrowDown", None);
    browser.press_key("Enter", Some("\r"));
    assert_ne!(shown_samples(browser).0, 85);
    browser.press_key("Escape", None);
    assert_eq!(shown_samples(browser).0, 85);
}

fn check_search_counts_samples(browser: &mut Browser) {
    browser.press_key("/", Some("/"));
    browser.type_text("KERNEL+");
    assert_eq!(shown_samples(browser), (85, 10));
    let text = browser.evaluate("document.getElementById('matched').textContent");
    assert_eq!(text, "10 samples, 11.76 % of what is shown");
    assert_eq!(browser.evaluate("document.querySelectorAll('.matched').length"), 1);
    browser.press_key("Escape", None);
    assert_eq!(shown_samples(browser), (85, 0));
}

//! The page of `weir flame` in a real browser: what it draws, and what clicks, keys and searches
//! do.
//!
//! ```text
//!   test ──JSON, NUL──▶ pipe 3 ──▶ Chromium (headless) ──▶ pipe 4 ──▶ test     DevTools over pipes
//! ```
//!
//! Optional: Chromium is searched for under the names of its packages (Debian: chromium,
//! chromium-headless-shell).

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use super::flame::{HOSTILE, scene};
use crate::util::{skip, weir};

const NAMES: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// Deadline for each answer of the browser.
const PATIENCE: Duration = Duration::from_secs(60);

fn find() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let all =
        NAMES.iter().flat_map(|name| std::env::split_paths(&folders).map(move |folder| folder.join(name)));
    all.into_iter().find(|path| path.is_file())
}

/// A browser with one page.
struct Browser {
    child: Child,
    to: File,
    from: File,
    read: Vec<u8>,
    number: u64,
    session: String,
}

impl Browser {
    fn start(program: &Path, folder: &Path) -> Self {
        let (to, from) = (folder.join("to-browser"), folder.join("from-browser"));
        for pipe in [&to, &from] {
            mkfifoat(CWD, pipe, Mode::RWXU).unwrap();
        }
        // Each FIFO is opened for reading and writing, so that neither side waits for the other.
        // The browser has one end of each, and exits when ours are closed.
        let both = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
        let (to_browser, from_browser) = (both(&to), both(&from));
        // A shell assigns the pipes their descriptor numbers.
        let line = "exec 3<\"$1\" 4>\"$2\"; shift 2; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", line, "sh"]).args([&to, &from]).arg(program);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        command.args(["--remote-debugging-pipe", "--window-size=1200,900"]);
        command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
        // Packages start the browser by a script, and it starts further processes: all of them form
        // one process group.
        command.process_group(0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let (read, session) = (Vec::new(), String::new());
        let mut browser = Self { child, to: to_browser, from: from_browser, read, number: 0, session };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    /// Calls a DevTools method and waits for its answer.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut request = json!({"id": self.number, "method": method, "params": parameters});
        if !self.session.is_empty() {
            request["sessionId"] = self.session.clone().into();
        }
        self.to.write_all(format!("{request}\0").as_bytes()).unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let message = self.message(until);
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    /// Waits for the next message.
    fn message(&mut self, until: Instant) -> Value {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.read.drain(..=end).collect();
                return serde_json::from_slice(&message[..end]).expect("the browser speaks JSON");
            }
            assert!(Instant::now() < until, "the browser does not answer");
            let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            let mut ready = [rustix::event::PollFd::new(&self.from, rustix::event::PollFlags::IN)];
            if rustix::event::poll(&mut ready, Some(&wait)).unwrap() > 0 {
                let mut piece = [0; 1 << 16];
                let got = self.from.read(&mut piece).unwrap();
                self.read.extend_from_slice(&piece[..got]);
            }
        }
    }

    /// Evaluates an expression on the page.
    fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
        let until = Instant::now() + PATIENCE;
        let drawn = "document.readyState === 'complete' && document.querySelectorAll('.node').length";
        while self.value(drawn).as_u64().unwrap_or(0) == 0 {
            assert!(Instant::now() < until, "the page is not drawn");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clicks the middle of the first node whose text begins with `label`.
    fn click(&mut self, label: &str) {
        let position = self.value(&format!(
            "(() => {{ const node = [...document.querySelectorAll('.node')].find((n) => n.textContent.startsWith({})); \
             const box = node.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(label)
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({"type": kind, "x": position[0], "y": position[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    fn key(&mut self, key: &str, text: Option<&str>) {
        let mut down = json!({"type": "keyDown", "key": key, "code": key});
        if let Some(text) = text {
            down["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key, "code": key}));
    }

    fn type_text(&mut self, text: &str) {
        text.chars().for_each(|c| self.key(&c.to_string(), Some(&c.to_string())));
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

/// Returns the sample sums that the page shows: of the zoomed node, and of the search matches.
fn sums(browser: &mut Browser) -> (u64, u64) {
    let number = |value: Value| value.as_str().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
    let total = browser.value("document.getElementById('graph').dataset.total");
    let matched = browser.value("document.getElementById('matched').dataset.sum");
    (number(total), number(matched))
}

#[test]
fn browser_draws_zooms_and_searches() {
    let Some(program) = find() else {
        return skip("browser", "there is no Chromium (Debian: apt install chromium-headless-shell)");
    };
    let mut scene = scene();
    let path = scene.write();
    let out = scene.folder().join("flame.html");
    weir(["flame", path.to_str().unwrap(), "-o", out.to_str().unwrap()]).expect(0);
    let mut browser = Browser::start(&program, scene.folder());
    let url = format!("file://{}", out.display());
    browser.open(&url);
    assert_eq!(sums(&mut browser), (85, 0));
    assert_eq!(browser.value("document.getElementById('title').textContent"), "Processor time by samples");
    hostile_names_are_text(&mut browser);
    clicks_zoom(&mut browser);
    keys_walk(&mut browser);
    searches_count(&mut browser);
    // The page shows what its address encodes.
    browser.call("Page.navigate", json!({"url": "about:blank"}));
    browser.open(&format!("{url}#search=lib.so"));
    assert_eq!(sums(&mut browser), (85, 30));
}

fn hostile_names_are_text(browser: &mut Browser) {
    assert_eq!(browser.value("document.title"), "Processor time by samples", "no name ran as a script");
    assert_eq!(browser.value("document.images.length"), 0);
    assert_eq!(browser.value("document.scripts.length"), 2);
    let drawn = browser.value("[...document.querySelectorAll('.node')].map((n) => n.textContent)");
    let drawn: Vec<&str> = drawn.as_array().unwrap().iter().map(|label| label.as_str().unwrap()).collect();
    for (name, pid) in HOSTILE.iter().zip(500..) {
        let label = format!("{name} ({pid})");
        assert!(drawn.contains(&label.as_str()), "{label} in {drawn:?}");
    }
    // Content policy: a script smuggled in by a name must not run either.
    browser.value("(() => { const s = document.createElement('script'); s.textContent = \"document.title='owned'\"; document.body.append(s); s.remove(); })()");
    assert_eq!(browser.value("document.title"), "Processor time by samples");
}

fn clicks_zoom(browser: &mut Browser) {
    browser.click("lib.so+0x0");
    assert_eq!(sums(browser), (30, 0));
    let hash = browser.value("location.hash");
    assert!(hash.as_str().unwrap().starts_with("#zoom="), "{hash}");
    let tip = browser.value("document.activeElement.title");
    assert_eq!(tip, "lib.so+0x0: 30 samples, own 20 samples, 35.29 % of all");
    browser.click("app (100)");
    assert_eq!(sums(browser), (60, 0), "what is above is a way back");
    browser.key("Escape", None);
    assert_eq!(sums(browser), (85, 0));
}

fn keys_walk(browser: &mut Browser) {
    browser.value("document.querySelector('.node[data-node=\"0\"]').focus()");
    let focused = "document.activeElement.textContent";
    browser.key("ArrowDown", None);
    let first = browser.value(focused);
    browser.key("ArrowRight", None);
    assert_ne!(browser.value(focused), first, "the one beside it");
    browser.key("ArrowLeft", None);
    assert_eq!(browser.value(focused), first);
    browser.key("ArrowUp", None);
    assert_eq!(browser.value(focused), "all");
    browser.key("ArrowDown", None);
    browser.key("Enter", Some("\r"));
    assert_ne!(sums(browser).0, 85);
    browser.key("Escape", None);
    assert_eq!(sums(browser).0, 85);
}

fn searches_count(browser: &mut Browser) {
    browser.key("/", Some("/"));
    browser.type_text("KERNEL+");
    assert_eq!(sums(browser), (85, 10));
    let text = browser.value("document.getElementById('matched').textContent");
    assert_eq!(text, "10 samples, 11.76 % of what is shown");
    assert_eq!(browser.value("document.querySelectorAll('.matched').length"), 1);
    browser.key("Escape", None);
    assert_eq!(sums(browser), (85, 0));
}

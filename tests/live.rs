//! Tests of the session commands, with real daemons and real processes.

mod access;
mod answers;
mod ask;
mod autologger;
mod by_name;
mod container;
mod control;
mod doctor;
mod follow;
mod kernel;
mod modes;
mod private;
mod providers;
mod record;
mod record_scope;
mod root;
mod service;
mod terminal;
mod top;
mod update;
mod view;
mod watch;

use std::path::Path;

use serde_json::Value;

use crate::util::{Daemon, Process, eventually, root, weir};

/// The sample provider of `weir demo-shop`.
const SHOP: &str = "Traceweir.Demo.CoffeeShop";
/// Number of events that the sample provider writes for each coffee order.
const EVENTS_PER_ORDER: usize = 3;

fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs the sample program for this many coffee orders and waits for its end.
fn run_shop(daemon: &Daemon, orders: u32) {
    daemon.weir(["demo-shop", "--pause", "0", "--orders", &orders.to_string()]).expect(0);
}

/// Starts the sample program, which serves orders until it is killed.
fn start_shop(daemon: &Daemon) -> Process {
    daemon.spawn_weir(["demo-shop", "--pause", "1", "--orders", "1000000"])
}

/// Returns the sample program's events in a file. Fails unless `weir check` accepts the file.
fn shop_events_in(file: &Path) -> Vec<Value> {
    weir(["check", arg(file)]).expect(0);
    weir(["dump", "--format", "jsonl", "--provider", SHOP, arg(file)]).expect(0).json()
}

/// Fails if a `--json` object has a key that its chapter of `docs/cli-json.md` does not document.
fn check_documented(object: &Value, chapter: &str) {
    let documented = std::fs::read_to_string(root().join("docs/cli-json.md")).unwrap();
    let chapter =
        documented.split_once(chapter).unwrap_or_else(|| panic!("the page has no chapter {chapter}")).1;
    let chapter = chapter.split("\n## ").next().unwrap();
    for name in object.as_object().unwrap().keys() {
        assert!(chapter.contains(&format!("| `{name}` |")), "{name} is not documented");
    }
}

/// Returns the running sessions.
fn running_sessions(daemon: &Daemon) -> Vec<Value> {
    let mut all_sessions = daemon.weir(["list", "--json"]).expect(0).json();
    all_sessions.retain(|session| session["status"] == "running");
    all_sessions
}

/// Waits until a session whose name starts with `prefix` has collected events, and returns its
/// name.
fn wait_for_session_with_events(daemon: &Daemon, prefix: &str) -> String {
    eventually("a session has events", || {
        let all_sessions = running_sessions(daemon);
        let session = all_sessions.iter().find(|session| {
            session["name"].as_str().unwrap().starts_with(prefix) && session["events"].as_u64().unwrap() > 0
        })?;
        Some(session["name"].as_str().unwrap().to_owned())
    })
}

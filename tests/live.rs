//! What the verbs about sessions promise, with a real daemon and real processes, as any user.

mod access;
mod autologger;
mod control;
mod modes;
mod private;
mod providers;
mod record;
mod service;
mod update;
mod watch;

use std::path::Path;

use serde_json::Value;

use crate::util::{Daemon, Process, eventually, weir};

/// The sample provider of `weir demo-shop`; each order is three events.
const SHOP: &str = "Traceweir.Demo.CoffeeShop";
const EVENTS_PER_ORDER: usize = 3;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs the sample program to its end.
fn serve(daemon: &Daemon, orders: u32) {
    daemon.weir(["demo-shop", "--pause", "0", "--orders", &orders.to_string()]).expect(0);
}

/// The sample program, serving until it is killed.
fn open_shop(daemon: &Daemon) -> Process {
    daemon.begin(["demo-shop", "--pause", "1", "--orders", "1000000"])
}

/// The sample's events in a file that must be sound.
fn events_in(file: &Path) -> Vec<Value> {
    weir(["check", text(file)]).expect(0);
    weir(["dump", "--format", "jsonl", "--provider", SHOP, text(file)]).expect(0).json()
}

/// The sessions that run.
fn sessions(daemon: &Daemon) -> Vec<Value> {
    let mut all = daemon.weir(["list", "--json"]).expect(0).json();
    all.retain(|session| session["status"] == "running");
    all
}

/// Waits until a session whose name starts so has collected events, and gives its name.
fn session_with_events(daemon: &Daemon, prefix: &str) -> String {
    eventually("a session with events", || {
        let all = sessions(daemon);
        let found = all
            .iter()
            .find(|s| s["name"].as_str().unwrap().starts_with(prefix) && s["events"].as_u64().unwrap() > 0)?;
        Some(found["name"].as_str().unwrap().to_owned())
    })
}

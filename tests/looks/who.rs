//! Attribution of events without ids: they belong to the thread that runs on their processor.

use std::path::Path;
use traceweir_format::kernel::hook;

use serde_json::Value;

use super::scene::Scene;
use crate::util::weir;

const ENTER: u16 = hook::SYSCALL_ENTER;
const EXIT: u16 = hook::SYSCALL_EXIT;
const SHOP: u32 = 100;
const TILL: u32 = 200;

/// Builds a trace of two processes with a thread each on two processors, and system calls of both.
fn scene() -> Scene {
    let mut scene = Scene::new();
    for (pid, tid, name) in [(SHOP, 101, "shop"), (TILL, 201, "till")] {
        scene.process(pid, name);
        scene.thread(pid, tid);
    }
    let call = |scene: &mut Scene, time, cpu| scene.perf(time, cpu, ENTER, 2, &0x1000_u64.to_le_bytes());
    call(&mut scene, 10, 0);
    scene.switch(20, 0, (101, 201), 5, 6);
    call(&mut scene, 30, 0);
    call(&mut scene, 31, 1);
    scene.switch(40, 1, (0, 101), 0, 0);
    call(&mut scene, 50, 1);
    scene.perf(51, 1, EXIT, 2, &(-110_i32).to_le_bytes());
    scene.switch(60, 0, (201, 999), 5, 6);
    call(&mut scene, 70, 0);
    call(&mut scene, 71, 7);
    scene
}

fn dump(file: &Path, options: &[&str]) -> Vec<Value> {
    let mut args = vec!["dump", "--format", "jsonl", "--event", "SysCl*"];
    args.extend(options);
    args.push(file.to_str().unwrap());
    weir(args).expect(0).json()
}

fn ids(events: &[Value]) -> Vec<(i64, i64)> {
    let id = |event: &Value, key: &str| event["attributed"][key].as_i64().unwrap_or(-9);
    events.iter().map(|event| (id(event, "pid"), id(event, "tid"))).collect()
}

#[test]
fn event_without_ids_belongs_to_the_thread_running_on_its_processor() {
    let mut scene = scene();
    let file = scene.write();
    let all = dump(&file, &[]);
    let expected = [
        (100, 101),
        (200, 201),
        (0, 0),
        (100, 101),
        (100, 101),
        // A thread whose process is unknown, and a processor without switches.
        (-1, 999),
        (-9, -9),
    ];
    assert_eq!(ids(&all), expected);
    assert!(all.iter().all(|event| event["pid"] == -1 && event["tid"] == -1), "the header is what it is");
    assert_eq!(all[0]["process"], "shop");
    for (options, count) in [(["--pid", "100"], 3), (["--pid", "200"], 1), (["--tid", "999"], 1)] {
        assert_eq!(dump(&file, &options).len(), count, "{options:?}");
    }
    // Switches that a filter drops count too.
    assert_eq!(ids(&dump(&file, &["--from", "0.05ms"])), expected[3..]);
}

#[test]
fn stats_count_system_calls_by_calling_process() {
    let mut scene = scene();
    let file = scene.write();
    let args = ["stats", "--json", "--by", "process", "--event", "SysCl*", file.to_str().unwrap()];
    let rows = weir(args).expect(0).json();
    let events_of =
        |pid: i64| rows.iter().find(|row| row["pid"] == pid).map(|row| row["events"].as_u64().unwrap());
    assert_eq!(
        (events_of(100), events_of(200), events_of(0), events_of(-1)),
        (Some(3), Some(1), Some(1), Some(2))
    );
}

#[test]
fn process_after_exec_has_the_name_of_the_new_program() {
    let mut scene = Scene::new();
    scene.life(10, hook::PROCESS_START, SHOP, "weir");
    scene.life(20, hook::PROCESS_END, SHOP, "weir");
    scene.life(20, hook::PROCESS_START, SHOP, "shop");
    scene.life(30, hook::PROCESS_END, SHOP, "shop");
    let file = scene.write();
    let file = file.to_str().unwrap();
    let events = weir(["dump", "--format", "jsonl", "--pid", "100", file]).expect(0).json();
    let names: Vec<_> = events
        .iter()
        .map(|event| (event["process"].as_str(), event["fields"]["ImageFileName"].as_str()))
        .collect();
    let expected = ["weir", "weir", "shop", "shop"].map(|name| (Some(name), Some(name)));
    assert_eq!(names, expected);
    let rows = weir(["stats", "--json", "--by", "process", file]).expect(0).json();
    let row = rows.iter().find(|row| row["pid"] == SHOP).unwrap();
    assert_eq!((&row["name"], &row["events"]), (&Value::from("shop (100)"), &Value::from(4)));
}

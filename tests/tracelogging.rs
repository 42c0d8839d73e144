//! Tests of Rust programs that use TraceLogging: the examples of this repository, and the published
//! packages of Microsoft's crates, built against this project's replacements.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::util::{Daemon, nested_build, root, skip};

/// Returns the target folder of cargo.
fn target_folder() -> PathBuf {
    let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
    weir.ancestors().nth(2).unwrap().to_path_buf()
}

/// Records a program, and returns the decoded events of these providers.
fn record_and_decode(providers: &str, program: &Path) -> Vec<Value> {
    let daemon = Daemon::start();
    let trace = daemon.path("trace.etl");
    let file = trace.to_str().unwrap();
    daemon.weir(["record", "-p", providers, "-o", file, "--", program.to_str().unwrap()]).expect(0);
    let events = daemon.weir(["dump", "--format", "jsonl", file]).expect(0).json();
    // Events that the session writes about itself are left out.
    let is_requested =
        |name: &str| providers.split(',').any(|provider| provider.trim_start_matches('*') == name);
    events.into_iter().filter(|event| event["provider"].as_str().is_some_and(is_requested)).collect()
}

fn events_named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}

/// Builds an example and returns the path of its program.
fn build_example(package: &str) -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "-q", "-p", package])
        .current_dir(root())
        .env("CARGO_TARGET_DIR", target_folder())
        .env("CARGO_INCREMENTAL", "0")
        .status();
    assert!(built.unwrap().success(), "{package} does not compile");
    target_folder().join("debug").join(package)
}

#[test]
fn record_example_prints_its_own_events_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let program = build_example("traceweir-example-record");
    let output = Command::new(program).arg(folder.path().join("bakery.etl")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!((lines[0], lines.len()), ("3 events recorded, 0 lost", 4));
    assert!(lines[1].ends_with("Z Example.Bakery/Baked number=0 bread=rye"), "{}", lines[1]);
}

#[test]
fn rust_example_records_its_orders_and_their_activities() {
    let program = build_example("traceweir-example-rust");
    let events = record_and_decode("*Example.Kitchen,*Example.Kitchen.Specials", &program);
    assert_eq!(events.len(), 12, "expected: open, three events for each of three orders, specials, closed");
    let orders = events_named(&events, "Order");
    let first_order: Vec<_> =
        orders.iter().filter(|event| event["activity"] == orders[0]["activity"]).collect();
    let (start, stop) = (&first_order[0], &first_order[1]);
    assert_eq!((&start["opcode"], &start["fields"]), (&json!(1), &json!({"number": 1, "dish": "pie"})));
    assert_eq!((&stop["opcode"], &stop["fields"]), (&json!(2), &json!({"price": 12.5})));
    let cooked = events_named(&events, "Cooked");
    let fields = json!({"temperatures": [20], "plate": {"warm": true, "mark": 1}});
    assert_eq!((&cooked[0]["keywords"], &cooked[0]["fields"]), (&json!("0x2"), &fields));
    let specials = events_named(&events, "Specials");
    assert_eq!(specials[0]["fields"], json!({"soup of the day": 3, "leftovers": 1}));
    assert_eq!(events_named(&events, "Closed")[0]["fields"], json!({"orders": 3}));
}

/// Runs the tests of the packages with `compat/run.sh`, and then records a program that the script
/// builds.
#[test]
fn published_packages_compile_unchanged_and_record() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        Command::new(root().join("compat/run.sh")).arg(folder.path()).envs(nested_build()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The script exits with 77 if the packages cannot be fetched.
    if output.status.code() == Some(77) {
        return skip("registry", stderr.lines().last().unwrap_or("no registry"));
    }
    assert!(output.status.success(), "{}{stderr}", String::from_utf8_lossy(&output.stdout));
    let events = record_and_decode("*TestProvider", &folder.path().join("generate_events"));
    let normal = events_named(&events, "MyEventName")[0];
    for (field, value) in [
        ("id", json!(1)),
        ("level", json!(4)),
        ("task", json!(6)),
        ("keywords", json!("0x10")),
        ("activity", json!("de2e8889-5a42-5019-1b9e-90de76e49683")),
        ("related", json!("60ef88b3-fabb-5aaa-c9a2-de6c6ee75d7f")),
    ] {
        assert_eq!(normal[field], value, "{field}");
    }
    for (field, value) in [
        ("bool8_field", json!(true)),
        ("bin123", json!("010203")),
        ("u8_as_char", json!("A")),
        ("cstr8", json!("nul-terminated utf-8")),
        ("cstr16_xml", json!("<xml/>")),
        ("string", json!("Hello")),
        ("ipv4", json!("127.0.0.1")),
        ("ipv6", json!("102:304:506:708:900:102:304:506")),
        ("t32_100", json!("1970-01-01T00:01:40.0000000Z")),
        ("errno_slice", json!([1, 2])),
        ("sid", json!("S-1-0-1")),
        ("ft", json!("1970-01-01T00:00:00.0000000Z")),
        ("st_utc", json!("2022-08-22T05:06:07.0080000Z")),
    ] {
        assert_eq!(normal["fields"][field], value, "{field}");
    }
    assert_eq!(normal["fields"].as_object().unwrap().len(), 32);
    let nested = &normal["fields"]["MyStruct"]["NestedStruct"]["MoreGuids"];
    assert_eq!(nested[0], "de2e8889-5a42-5019-1b9e-90de76e49683");
    let raw = &events_named(&events, "Raw")[0]["fields"];
    let elements = json!([{"RawChar8": "0", "RawChar8s": "ABC"}, {"RawChar8": "1", "RawChar8s": "01"}]);
    assert_eq!(raw["RawStructSlice"], elements);
}

//! Tests of recording profiles of Windows (`weir record --profile FILE.wprp`).

use super::{arg, make_folder, write_file};
use crate::util::{Daemon, root, weir};

const SHOP: &str = "Traceweir.Demo.CoffeeShop";

fn shop_profile() -> String {
    arg(&root().join("fixtures/profiles/shop.wprp")).to_owned()
}

#[test]
fn profile_of_windows_is_explained() {
    let page = weir(["profiles", &shop_profile()]).expect(0).text();
    for line in [
        "Orders, with processor time",
        "  provider   Traceweir.Demo.CoffeeShop:0x21:4@stack",
        "  kernel     process,thread,image_load,profile,cswitch,dispatcher (left out where not permitted)",
        "  stacks     PerfInfo/SampleProf,Thread/CSwitch",
        "  buffers    1,024 KiB each, 20,480 KiB in total, written to the file",
        "  left out   keyword Registry: Linux has no registry",
    ] {
        assert!(page.contains(line), "no {line} in\n{page}");
    }
    let page = weir(["profiles", &format!("{}!Audit", shop_profile())]).expect(0).text();
    assert!(page.contains("in memory, written at the end") && page.contains("--flight 2048K"), "{page}");
}

#[test]
fn record_takes_providers_and_buffers_from_a_profile_of_windows() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let light = format!("{}!Shop.Light", shop_profile());
    let weir_path = env!("CARGO_BIN_EXE_weir");
    let shop = ["--", weir_path, "demo-shop", "--orders", "2", "--pause", "0"];
    daemon.weir([&["record", "--profile", &light, "-o", arg(&file)], &shop[..]].concat()).expect(0);
    // Keyword 1 and level 4 select all events of the shop.
    let events = weir(["dump", "--format", "jsonl", "--provider", SHOP, arg(&file)]).expect(0).json();
    assert_eq!(events.len(), 6);
    let info = weir(["info", "--json", arg(&file)]).expect(0).json();
    assert_eq!(info[0]["buffer_size"].as_u64(), Some(128 << 10), "{}", info[0]);
}

#[test]
fn profile_that_logs_to_memory_records_the_newest_events() {
    let daemon = Daemon::start();
    let (file, other) = (daemon.path("a.etl"), daemon.path("b.etl"));
    let audit = format!("{}!Audit", shop_profile());
    let run =
        daemon.weir(["record", "--profile", &audit, "-p", SHOP, "-o", arg(&file), "--", "true"]).expect(0);
    assert!(run.stderr.contains("HeapEventCollector: Linux has no such events"), "{}", run.stderr);
    let mode = |path| weir(["info", arg(path)]).expect(0).text();
    assert!(mode(&file).contains("BUFFERING"), "{}", mode(&file));
    daemon.weir(["record", "--profile", &audit, "--sequential", "-o", arg(&other), "--", "true"]).expect(0);
    assert!(mode(&other).contains("SEQUENTIAL"), "an option must replace the mode of the profile");
}

#[test]
fn mistakes_in_a_profile_of_windows_are_named_with_their_line() {
    let folder = make_folder();
    let path = write_file(&folder, "bad\u{1b}.wprp", b"<WindowsPerformanceRecorder>\n<Profiles>\n<Profile/>");
    let run = weir(["profiles", arg(&path)]).expect(1);
    assert!(run.stderr.contains(".wprp:3: ") && !run.stderr.contains('\u{1b}'), "{}", run.stderr);
    let large = write_file(&folder, "large.wprp", &vec![b' '; (1 << 20) + 1]);
    assert!(weir(["profiles", arg(&large)]).expect(1).stderr.contains("at most 1024 KiB"));
    assert!(weir(["profiles", "/dev/zero.wprp"]).expect(1).stderr.contains("cannot read"));
    assert!(weir(["profiles", arg(folder.path())]).expect(1).stderr.contains("there is no profile"));
}

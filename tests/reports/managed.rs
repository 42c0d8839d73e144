//! Tests that reports name the code that the .NET runtime generated.

use traceweir_format::dotnet;
use traceweir_format::kernel::hook;
use traceweir_format::wire::Put;

use super::trace_builder::TraceBuilder;
use super::{find_row, number, rows_by, run_report};
use crate::util::{sample, skip, weir};

const CODE: u64 = 0x7FF8_0000_1000;

/// Returns the payload of a verbose method event.
fn method_payload(method: u64, start: u64, size: u32, name: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_u64(method).put_u64(8).put_u64(start).put_u32(size).put_u32(0x0600_0001).put_u32(1);
    payload.put_wide_z("Shop.Cart").put_wide_z(name).put_wide_z("instance void  (class System.String,int32)");
    payload.put_u16(1);
    payload
}

/// Builds a trace of the .NET process 100. At the address [`CODE`], `Add` is loaded at 1500 and
/// replaced by `Remove` at 2500; `Main` is named by a rundown at the end. Process 200 has code at
/// the same addresses without names.
fn build_trace() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    for (pid, tid, name) in [(100, 101, "shop.exe"), (200, 201, "other")] {
        trace.add_process(pid, name);
        trace.add_thread(pid, tid);
    }
    let ids = (100, 101);
    trace.add_provider_event(1500, ids, (dotnet::RUNTIME, 143), &method_payload(1, CODE, 0x100, "Add"));
    trace.add_provider_event(2400, ids, (dotnet::RUNTIME, 144), &method_payload(1, CODE, 0x100, "Add"));
    trace.add_provider_event(2500, ids, (dotnet::RUNTIME, 143), &method_payload(2, CODE, 0x80, "Remove"));
    let rundown = method_payload(3, CODE + 0x1000, 0x40, "Main");
    trace.add_provider_event(9000, ids, (dotnet::RUNDOWN, 144), &rundown);
    let mut module = Vec::new();
    module.put_u64(8).put_u64(9).put_u32(0).put_u32(0).put_wide_z("C:\\shop\\cart.dll").put_wide_z("");
    trace.add_provider_event(9001, ids, (dotnet::RUNDOWN, 154), &module);
    // Hostile events: the code reaches beyond the address space, or is empty.
    trace.add_provider_event(
        1,
        ids,
        (dotnet::RUNTIME, 143),
        &method_payload(4, u64::MAX - 1, u32::MAX, "End"),
    );
    trace.add_provider_event(2, ids, (dotnet::RUNTIME, 143), &method_payload(5, CODE + 0x2000, 0, "Empty"));
    trace.add_provider_event(3, ids, (dotnet::RUNTIME, 143), &[0; 20]);
    for (time, ids, address) in [
        (1000, (100, 101), CODE + 0x10),
        (1600, (100, 101), CODE + 0x10),
        (1700, (100, 101), CODE + 0x90),
        (2600, (100, 101), CODE + 0x10),
        (2700, (100, 101), CODE + 0x90),
        (2800, (200, 201), CODE + 0x10),
        (2900, (100, 101), CODE + 0x2000),
    ] {
        trace.add_sample(time, 0, ids.1, address);
        trace.add_stack(time, 0, ids, &[address, CODE + 0x1010]);
    }
    trace
}

#[test]
fn generated_code_has_the_names_of_its_process_and_time() {
    let mut trace = build_trace();
    let path = trace.write();
    let report = run_report("cpu", &path, &[]);
    let samples = |name: &str| {
        let row = find_row(&report, "function", name);
        (number(row, "own"), number(row, "all"))
    };
    assert_eq!(samples("cart.dll!Shop.Cart.Add(String,int32)"), (2, 2));
    assert_eq!(samples("cart.dll!Shop.Cart.Remove(String,int32)"), (1, 1));
    assert_eq!(samples("cart.dll!Shop.Cart.Main(String,int32)"), (0, 6));
    // Before the load, after the end of the code, in another process, in empty code.
    assert_eq!(samples("?"), (4, 4));
    let collapsed = weir(["flame", path.to_str().unwrap(), "--collapsed"]).expect(0).text();
    let stack = "shop.exe (100);cart.dll!Shop.Cart.Main(String,int32);cart.dll!Shop.Cart.Add(String,int32) 2";
    assert!(collapsed.lines().any(|line| line == stack), "{collapsed}");
    let dump = weir(["dump", path.to_str().unwrap(), "--symbols"]).expect(0).text();
    assert!(dump.contains("cart.dll!Shop.Cart.Remove(String,int32)+0x10"), "{dump}");
}

#[test]
fn methods_of_an_ended_process_do_not_name_code_of_the_next() {
    let mut trace = build_trace();
    trace.add_process_event(3000, hook::PROCESS_END, 100, "shop.exe");
    trace.add_process_event(3100, hook::PROCESS_START, 100, "shop.exe");
    trace.add_sample(3200, 0, 101, CODE + 0x10);
    trace.add_stack(3200, 0, (100, 101), &[CODE + 0x10]);
    let report = run_report("cpu", &trace.write(), &["--from", "3.15ms"]);
    assert_eq!(number(find_row(&report, "function", "?"), "own"), 1);
}

#[test]
fn samples_of_a_windows_trace_have_method_names() {
    let Some(path) = sample("net.4.5.2.x64.etl.zip") else {
        return skip("windows-dotnet", "the sample net.4.5.2.x64.etl.zip is missing");
    };
    let report = run_report("cpu", &path, &["--process", "Test.x64.exe"]);
    let total = number(rows_by(&report, "summary")[0], "samples");
    let unknown = rows_by(&report, "function").into_iter().find(|row| row["name"] == "?");
    let unknown = unknown.map_or(0, |row| number(row, "own"));
    assert!(total > 1000 && unknown * 100 <= total * 3, "{unknown} of {total} samples have no name");
    let names = rows_by(&report, "function");
    assert!(names.iter().any(|row| row["name"].as_str().unwrap().contains("System.")), "{names:?}");
}

//! `weir ask` answers the information classes, with and without a daemon.

use serde_json::Value;

use super::{check_documented, running_sessions};
use crate::util::{Daemon, weir_command};

/// Returns the class number and the object of each answer.
fn classes_and_answers(objects: &[Value]) -> Vec<(u64, &Value)> {
    objects.iter().for_each(|object| check_documented(object, "## Answers of information classes"));
    objects.iter().map(|object| (object["class"].as_u64().unwrap(), &object["answer"])).collect()
}

#[test]
fn answers_without_a_daemon_describe_no_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |arguments: &[&str]| {
        let mut command = weir_command(["ask"].iter().chain(arguments));
        crate::golden::run_to_end(command.env("TRACEWEIR_RUNTIME_DIR", folder.path()))
    };
    let page = ask(&[]).expect(0).text();
    for words in
        ["19  TraceMaxLoggersQuery", "64 sessions", "0 Timer, every", "processor 0: ", "20 providers"]
    {
        assert!(page.contains(words), "no {words} in {page}");
    }
    let objects = ask(&["--json"]).expect(0).json();
    let (classes, answers): (Vec<_>, Vec<_>) = classes_and_answers(&objects).into_iter().unzip();
    // The classes that need no session. The answers compared below are those of the classes 5
    // (sampling intervals), 12 (groups) and 19 (maximum number of sessions).
    assert_eq!(classes, [5, 7, 11, 12, 17, 19, 22, 25, 27]);
    assert_eq!(answers[0][0]["name"], "Timer");
    assert_eq!((answers[3], answers[5]), (&Value::Array(Vec::new()), &64.into()));
    let named = ask(&["maxloggersquery", "TraceVersionInfo", "--json"]).expect(0).json();
    assert_eq!((named.len(), &named[0]["class"], &named[1]["class"]), (2, &19.into(), &11.into()));
    assert!(ask(&["18"]).expect(2).stderr.contains("TraceProviderBinaryTracking"));
    assert!(ask(&["23"]).expect(2).stderr.contains("--session"));
    assert!(ask(&["--session", "App"]).expect(1).stderr.contains("4201"));
    assert!(!folder.path().join("control.sock").exists(), "weir ask started a daemon");
}

#[test]
fn running_session_is_described() {
    let daemon = Daemon::start();
    let group = "5b6a4d5e-3c41-4a53-9c0b-1f2e3d4c5b6b";
    daemon.weir(["start", "App", "--no-per-processor", "-p", &format!("{{{group}}}@group")]).expect(0);
    assert_eq!(running_sessions(&daemon).len(), 1);
    let objects = daemon.weir(["ask", "--session", "App", "--json"]).expect(0).json();
    // Class 14 is the disallow list, and 23 the number of streams. The classes about kernel events
    // are missing: they are for system loggers.
    assert_eq!(classes_and_answers(&objects), [(14, &Value::Array(Vec::new())), (23, &1.into())]);
    assert!(daemon.weir(["ask", "-s", "App"]).expect(0).text().contains("1 stream\n"));
    let groups = daemon.weir(["ask", "12", "--json"]).expect(0).json();
    assert_eq!(groups[0]["answer"], Value::Array(vec![group.into()]));
    let run = daemon.weir(["ask", "3", "--session", "App"]).expect(1);
    assert!(run.stderr.contains("SYSTEM_LOGGER_MODE") && run.stderr.contains("87"), "{}", run.stderr);
    assert!(daemon.weir(["ask", "--session", "Other"]).expect(1).stderr.contains("4201"));
}

//! Tests of `weir view` with running sessions. Without the feature `view`, only its refusal exists.

#[cfg(not(feature = "view"))]
mod without_the_feature {
    use super::super::{SHOP, running_sessions};
    use crate::util::Daemon;

    #[test]
    fn view_is_refused_and_record_refuses_before_it_records() {
        let daemon = Daemon::start();
        let mut run = daemon.weir(["view", "App"]).expect(1);
        assert!(run.stderr.contains("--features view"), "{}", run.stderr);
        let file = daemon.path("app.etl");
        run = daemon.weir(["record", "--open", "-p", SHOP, "-o", file.to_str().unwrap(), "--duration", "1"]);
        assert!(run.code != 0 && run.stderr.contains("--features view"), "{}", run.stderr);
        assert!(!file.exists() && running_sessions(&daemon).is_empty(), "it recorded nevertheless");
    }
}

#[cfg(feature = "view")]
mod with_the_feature {
    use std::fs;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::process::Stdio;

    use rustix::process::Signal;
    use serde_json::Value;

    use super::super::{SHOP, arg, shop_events_in, start_shop};
    use crate::util::{Daemon, Process, Run, eventually};

    const WEIR: &str = env!("CARGO_BIN_EXE_weir");

    /// A running `weir view`.
    struct View {
        process: Process,
        /// Address and path of the page.
        host: String,
        path: String,
    }

    impl View {
        fn start(daemon: &Daemon, name: &str) -> Self {
            Self::run(daemon, &["view", name, "--no-browser"], Path::new(""))
        }

        /// Runs `weir`, which prints the address of the page.
        fn run(daemon: &Daemon, arguments: &[&str], browser: &Path) -> Self {
            let mut command = daemon.command(arguments);
            command.env("XDG_CACHE_HOME", cache_of(daemon)).env("BROWSER", browser);
            let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
            let mut lines = BufReader::new(process.stdout()).lines().map(Result::unwrap);
            let url = lines.find(|line| line.starts_with("http://")).expect("no address");
            let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
            let (host, path) = (host.to_owned(), format!("/{path}"));
            Self { process, host, path }
        }

        fn wait_until_complete(&self) -> Value {
            eventually("the index is complete", || {
                Some(self.ask("trace")).filter(|trace| trace["complete"] == true)
            })
        }

        fn ask(&self, question: &str) -> Value {
            let mut stream = TcpStream::connect(&*self.host).unwrap();
            let Self { host, path, .. } = self;
            let head =
                format!("GET {path}api/{question} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            let (head, body) = reply.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200"), "{question}: {head}");
            serde_json::from_str(body).unwrap()
        }

        fn events(&self) -> u64 {
            self.ask("trace")["events"].as_u64().unwrap()
        }

        /// Returns the list of the sample program's events, with the first one, when it is complete.
        fn list_shop_events(&self) -> Value {
            eventually("the list of events is complete", || {
                let list = self.ask(&format!("events?filter=provider:{SHOP}&count=1"));
                Some(list).filter(|list| list["done"] == true)
            })
        }

        /// Waits until the answers contain more events.
        fn wait_for_growth(&self) {
            let before = self.events();
            eventually("the view has more events", || (self.events() > before).then_some(()));
        }

        fn wait_for_end_of_session(&self) -> Value {
            eventually("the view reports the end of the session", || {
                Some(self.ask("trace")).filter(|trace| trace["live"] == false)
            })
        }

        fn end(self) {
            self.process.signal(Signal::INT);
            self.process.finish().expect(0);
        }
    }

    fn cache_of(daemon: &Daemon) -> PathBuf {
        daemon.path("cache")
    }

    /// Returns the names of the files in the cache folder of views.
    fn cached_names(daemon: &Daemon) -> Vec<String> {
        let entries = fs::read_dir(cache_of(daemon).join("traceweir")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Records some orders of the sample program.
    fn record_shop(daemon: &Daemon) -> PathBuf {
        let file = daemon.path("app.etl");
        let shop = [WEIR, "demo-shop", "--orders", "100", "--pause", "1"];
        daemon.weir([&["record", "-p", SHOP, "-o", arg(&file), "--"], &shop[..]].concat()).expect(0);
        file
    }

    #[test]
    fn view_of_a_file_shows_its_events_and_keeps_its_index() {
        let daemon = Daemon::start();
        let file = record_shop(&daemon);
        let recorded = shop_events_in(&file).len();
        for run in ["first", "from the cache"] {
            let view = View::start(&daemon, arg(&file));
            let trace = view.wait_until_complete();
            assert_eq!((&trace["live"], &trace["problem"]), (&false.into(), &Value::Null), "{run}: {trace}");
            let shown = view.list_shop_events();
            assert_eq!(shown["total"], recorded, "{run}: {shown}");
            let event = view.ask(&format!("event?row={}", shown["rows"][0]["row"]));
            assert_eq!(event["provider"], SHOP, "{run}: {event}");
            view.end();
            let names = cached_names(&daemon);
            assert!(matches!(&names[..], [name] if name.ends_with(".index")), "{run}: {names:?}");
        }
    }

    #[test]
    fn export_writes_the_chosen_time_and_replaces_a_page_only_with_force() {
        let daemon = Daemon::start();
        let file = record_shop(&daemon);
        let page = daemon.path("page.html");
        let export = |options: &[&str]| -> Run {
            let arguments = [&["view", arg(&file), "--export", arg(&page)], options].concat();
            let mut command = daemon.command(arguments);
            command.env("XDG_CACHE_HOME", cache_of(&daemon));
            Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).finish()
        };
        let read_data = || -> Value {
            let page = fs::read_to_string(&page).unwrap();
            let (_, data) = page.split_once("id=\"exported-data\">").unwrap();
            serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
        };

        let run = export(&["--from", "3s", "--to", "2s"]).expect(1);
        assert!(run.stderr.contains("--from is later than --to"), "{}", run.stderr);
        let run = export(&["--from", "1h"]).expect(1);
        assert!(run.stderr.contains("--from is after the last event"), "{}", run.stderr);
        assert!(!page.exists());

        assert_eq!(export(&[]).expect(0).text().trim(), arg(&page));
        let whole = read_data();
        assert_eq!(whole["span"][0], 0);
        let times = |data: &Value| -> Vec<i64> {
            let rows = data["event_parts"][0]["rows"].as_array().unwrap().iter();
            rows.map(|row| row["time"].as_i64().unwrap()).collect()
        };
        // Moments have a resolution of 100 ns.
        let all = times(&whole);
        let [from, to] = [all[all.len() / 3], all[all.len() / 2]].map(|time| time / 100 * 100);
        let span = [format!("{from}ns"), format!("{to}ns")];
        let options = ["--from", &span[0], "--to", &span[1]];

        let run = export(&options).expect(1);
        assert!(run.stderr.contains("--force"), "{}", run.stderr);
        assert_eq!(read_data()["span"], whole["span"]);
        export(&[&options[..], &["--force"]].concat()).expect(0);
        let part = read_data();
        assert_eq!(part["span"], serde_json::json!([from, to + 99]));
        let expected: Vec<i64> = all.into_iter().filter(|time| (from..=to + 99).contains(time)).collect();
        assert!(expected.len() > 2);
        assert_eq!(times(&part), expected);
    }

    #[test]
    fn record_opens_its_trace_in_the_browser() {
        let daemon = Daemon::start();
        let (file, browser, opened) =
            (daemon.path("app.etl"), daemon.path("browser"), daemon.path("opened.html"));
        // The file that the browser gets is removed when weir ends.
        fs::write(&browser, format!("#!/bin/sh\ncp \"$1\" {0}.new && mv {0}.new {0}\n", arg(&opened)))
            .unwrap();
        fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
        let shop = [WEIR, "demo-shop", "--orders", "5", "--pause", "0"];
        let arguments = [&["record", "--open", "-p", SHOP, "-o", arg(&file), "--"], &shop[..]].concat();
        let view = View::run(&daemon, &arguments, &browser);
        let start_page = eventually("the browser has read its page", || fs::read_to_string(&opened).ok());
        let url = format!("url=http://{}{}\"", view.host, view.path);
        assert!(start_page.contains(&url), "{start_page}");
        view.wait_until_complete();
        let shown = view.list_shop_events();
        assert_eq!(shown["total"], shop_events_in(&file).len(), "{shown}");
        view.end();
    }

    #[test]
    fn view_grows_with_its_session_and_stays_after_its_end() {
        let daemon = Daemon::start();
        daemon.weir(["start", "Live", "--mode", "real-time", "-p", SHOP]).expect(0);
        let shop = start_shop(&daemon);
        let view = View::start(&daemon, "live");
        view.wait_for_growth();
        view.wait_for_growth();
        let trace = view.ask("trace");
        assert_eq!((&trace["live"], &trace["complete"]), (&true.into(), &false.into()), "{trace}");
        assert_eq!((&trace["problem"], &trace["files"][0]), (&Value::Null, &"live".into()), "{trace}");
        eventually("the tracks name the process", || {
            let tracks = view.ask("tracks");
            let mut processes = tracks["processes"].as_array().unwrap().iter();
            let is_named = processes.any(|process| {
                process["pid"] == shop.id()
                    && process["name"].as_str().is_some_and(|name| name.contains("weir"))
            });
            (is_named && tracks["providers"][0]["name"] == SHOP).then_some(())
        });

        daemon.weir(["stop", "Live"]).expect(0);
        let trace = view.wait_for_end_of_session();
        assert_eq!((&trace["complete"], &trace["problem"]), (&true.into(), &Value::Null), "{trace}");
        let events = view.ask("events?filter=event:Brew&count=5");
        assert!(
            events["rows"].as_array().unwrap().len() == 5 && events.to_string().contains("grams"),
            "{events}"
        );
        let last = trace["events"].as_u64().unwrap() - 1;
        let event = view.ask(&format!("event?row={last}"));
        assert_eq!((&event["provider"], &event["file"]), (&SHOP.into(), &"live".into()), "{event}");
        view.end();
    }

    #[test]
    fn view_follows_the_file_of_a_session_that_only_writes_one() {
        let daemon = Daemon::start();
        let file = daemon.path("app.etl");
        daemon.weir(["start", "App", "-o", file.to_str().unwrap(), "-p", SHOP]).expect(0);
        let _shop = start_shop(&daemon);
        let view = View::start(&daemon, "App");
        view.wait_for_growth();
        view.wait_for_growth();
        assert_eq!(view.ask("trace")["live"], true);
        daemon.weir(["stop", "App"]).expect(0);
        let trace = view.wait_for_end_of_session();
        assert_eq!((&trace["complete"], &trace["problem"]), (&true.into(), &Value::Null), "{trace}");
        let recorded = daemon.weir(["dump", "--format", "jsonl", "--provider", SHOP, file.to_str().unwrap()]);
        let shown = view.list_shop_events();
        assert_eq!(shown["total"], recorded.expect(0).json().len(), "{shown}");
        view.end();
    }

    #[test]
    fn name_that_is_neither_file_nor_session_is_explained() {
        let daemon = Daemon::start();
        let run = daemon.weir(["view", "Missing", "--no-browser"]).expect(1);
        assert!(run.stderr.contains("neither a file nor a running session"), "{}", run.stderr);
        daemon.weir(["start", "Flight", "--buffering", "-p", SHOP]).expect(0);
        let run = daemon.weir(["view", "Flight", "--no-browser"]).expect(1);
        assert!(run.stderr.contains("flight recorder"), "{}", run.stderr);
        let run = daemon.weir(["view", "missing.etl", "--no-browser"]).expect(1);
        assert!(!run.stderr.contains("session"), "{}", run.stderr);
    }
}

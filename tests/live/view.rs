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
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;

    use rustix::process::Signal;
    use serde_json::Value;

    use super::super::{SHOP, start_shop};
    use crate::util::{Daemon, Process, eventually};

    /// A running `weir view`.
    struct View {
        process: Process,
        /// Address and path of the page.
        host: String,
        path: String,
    }

    impl View {
        fn start(daemon: &Daemon, name: &str) -> Self {
            let mut process = daemon.spawn_weir(["view", name, "--no-browser"]);
            let mut url = String::new();
            BufReader::new(process.stdout()).read_line(&mut url).unwrap();
            let (host, path) = url.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
            let (host, path) = (host.to_owned(), format!("/{path}"));
            Self { process, host, path }
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
        let shown = view.ask(&format!("events?filter=provider:{SHOP}&count=1"));
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

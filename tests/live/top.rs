//! Tests of `weir top` on a terminal, which tmux provides. Without the feature `top`, only its
//! refusal exists.

#[cfg(not(feature = "top"))]
#[test]
fn top_is_refused_without_the_feature() {
    let run = crate::util::weir(["top"]).expect(1);
    assert!(run.stderr.contains("--features top"), "{}", run.stderr);
}

#[cfg(feature = "top")]
mod with_the_feature {
    use std::fs;

    use rustix::process::{Pid, Signal, kill_process};

    use super::super::terminal::{SIZES, Terminal, WEIR, has_tmux};
    use super::super::{SHOP, running_sessions, shop_events_in, start_shop};
    use crate::util::{Daemon, eventually, weir};

    /// A terminal on which `weir top` runs. The line that it prints before shows that the screen
    /// comes back, and the settings of the terminal that it prints after show that they do.
    struct TopTerminal<'d> {
        terminal: Terminal,
        daemon: &'d Daemon,
    }

    impl<'d> TopTerminal<'d> {
        fn start(daemon: &'d Daemon, size: (usize, usize), arguments: &str) -> Self {
            let pid_file = daemon.path("top.pid");
            let command = format!(
                "echo before; stty -a > stty.before; \
                 sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec {WEIR} top {arguments}'; \
                 status=$?; stty -a > stty.after; (exit $status)",
                pid_file.display()
            );
            let terminal = Terminal::start(daemon, size, &command);
            let top = Self { terminal, daemon };
            eventually("the screen is drawn", || top.has_text("events/s").then_some(()));
            top
        }

        /// Returns the lines on the screen.
        fn lines(&self) -> Vec<String> {
            let text = self.terminal.output(&["capture-pane", "-p"]);
            text.lines().map(|line| line.trim_end().to_owned()).collect()
        }

        fn has_text(&self, text: &str) -> bool {
            self.lines().iter().any(|line| line.contains(text))
        }

        /// Waits until a line contains all words, and returns it.
        #[track_caller]
        fn wait_for_line(&self, words: &[&str]) -> String {
            eventually(&format!("a line contains {words:?}"), || {
                self.lines().into_iter().find(|line| words.iter().all(|word| line.contains(word)))
            })
        }

        fn press(&self, key: &str) {
            self.terminal.press(key);
        }

        /// Types a text and ends it with the Enter key.
        fn type_text(&self, text: &str) {
            self.terminal.output(&["send-keys", "-l", text]);
            self.press("Enter");
        }

        fn format(&self, format: &str) -> String {
            self.terminal.output(&["display-message", "-p", format]).trim().to_owned()
        }

        fn uses_second_screen(&self) -> bool {
            self.format("#{alternate_on}") == "1"
        }

        fn pid(&self) -> Pid {
            let pid = fs::read_to_string(self.daemon.path("top.pid")).unwrap();
            Pid::from_raw(pid.trim().parse().unwrap()).unwrap()
        }

        fn signal(&self, signal: Signal) {
            kill_process(self.pid(), signal).unwrap();
        }

        /// Returns the state of the process, as `/proc` names it.
        fn process_state(&self) -> Option<char> {
            let path = format!("/proc/{}/stat", self.pid().as_raw_nonzero());
            fs::read_to_string(path).ok()?.rsplit_once(") ")?.1.chars().next()
        }

        /// Waits for the end of weir, and fails unless the terminal is as it was before.
        #[track_caller]
        fn expect_exit(&self, status: i32) -> String {
            assert_eq!(self.terminal.wait_for_exit(), status, "{}", self.terminal.text());
            let settings = |name: &str| fs::read_to_string(self.daemon.path(name)).unwrap();
            assert_eq!(settings("stty.after"), settings("stty.before"));
            assert!(!self.uses_second_screen(), "the second screen is still shown");
            assert_eq!(self.format("#{cursor_flag}"), "1", "the cursor is hidden");
            let text = self.terminal.joined_text();
            let first_line = text.lines().next().map(str::trim_end);
            assert_eq!(first_line, Some("before"), "the first screen has not come back:\n{text}");
            text
        }
    }

    #[test]
    fn tabs_show_rates_latencies_and_processes_at_both_sizes() {
        if !has_tmux() {
            return;
        }
        for size in SIZES {
            let daemon = Daemon::start();
            let shop = start_shop(&daemon);
            let top = TopTerminal::start(&daemon, size, SHOP);
            assert!(top.uses_second_screen());
            top.wait_for_line(&[SHOP, " all ", "█"]);
            assert_eq!(top.lines().len(), size.1, "the screen does not fill the terminal");
            for line in top.lines() {
                assert!(line.chars().count() <= size.0, "{line}");
            }
            top.press("2");
            top.wait_for_line(&["CoffeeShop/Brew"]);
            top.press("3");
            top.wait_for_line(&["weir", &shop.id().to_string()]);
            top.press("4");
            top.wait_for_line(&["CoffeeShop/Order", " ms"]);
            top.press("?");
            top.wait_for_line(&["sort by the next column"]);
            top.press("q");
            top.wait_for_line(&["CoffeeShop/Order", " ms"]);
            top.press("q");
            top.expect_exit(0);
            assert!(running_sessions(&daemon).is_empty(), "the session still runs");
        }
    }

    #[test]
    fn every_way_to_end_restores_the_terminal() {
        if !has_tmux() {
            return;
        }
        let daemon = Daemon::start();
        for signal in [None, Some(Signal::INT), Some(Signal::TERM), Some(Signal::HUP)] {
            let top = TopTerminal::start(&daemon, SIZES[0], SHOP);
            match signal {
                Some(signal) => top.signal(signal),
                None => top.press("C-c"),
            }
            top.expect_exit(0);
        }
        assert!(running_sessions(&daemon).is_empty(), "a session still runs");
    }

    #[test]
    fn suspended_top_gives_the_terminal_back_until_it_continues() {
        if !has_tmux() {
            return;
        }
        let daemon = Daemon::start();
        let _shop = start_shop(&daemon);
        let top = TopTerminal::start(&daemon, SIZES[0], SHOP);
        for is_key in [true, false] {
            match is_key {
                true => top.press("C-z"),
                false => top.signal(Signal::TSTP),
            }
            eventually("weir is stopped", || (top.process_state() == Some('T')).then_some(()));
            assert!(!top.uses_second_screen());
            assert_eq!(top.format("#{cursor_flag}"), "1");
            top.signal(Signal::CONT);
            eventually("weir uses the screen again", || top.uses_second_screen().then_some(()));
            top.wait_for_line(&[SHOP, " all "]);
        }
        top.press("q");
        top.expect_exit(0);
    }

    #[test]
    fn screen_follows_the_size_of_the_terminal() {
        if !has_tmux() {
            return;
        }
        let daemon = Daemon::start();
        let _shop = start_shop(&daemon);
        let top = TopTerminal::start(&daemon, SIZES[0], SHOP);
        for (columns, lines) in [("132", "43"), ("20", "5"), ("80", "24")] {
            top.terminal.output(&["resize-window", "-x", columns, "-y", lines]);
            eventually("the last line has moved", || {
                let screen = top.lines();
                let is_last = screen.last().is_some_and(|line| line.starts_with("q quit"));
                (screen.len().to_string() == lines && is_last).then_some(())
            });
        }
        top.press("q");
        top.expect_exit(0);
    }

    #[test]
    fn provider_is_enabled_gets_another_level_and_is_filtered() {
        if !has_tmux() {
            return;
        }
        let daemon = Daemon::start();
        let _shop = start_shop(&daemon);
        let top = TopTerminal::start(&daemon, SIZES[0], "Some.Other");
        top.press("e");
        top.type_text(&format!("{SHOP}::info"));
        top.wait_for_line(&[SHOP, " info "]);
        top.press("l");
        top.type_text("critical");
        top.wait_for_line(&[SHOP, " critical ", " 0 "]);
        top.press("e");
        top.type_text("A:B:C:D");
        top.wait_for_line(&["colons"]);
        top.press("/");
        top.type_text("nothing");
        top.wait_for_line(&["no name matches the filter"]);
        top.press("Escape");
        top.wait_for_line(&[SHOP, " critical "]);
        top.press("q");
        top.expect_exit(0);
    }

    #[test]
    fn recording_contains_the_events_that_are_shown() {
        if !has_tmux() {
            return;
        }
        let daemon = Daemon::start();
        let _shop = start_shop(&daemon);
        let top = TopTerminal::start(&daemon, SIZES[1], SHOP);
        top.press("r");
        top.wait_for_line(&["recording ", " s weir-"]);
        top.press("r");
        top.wait_for_line(&["recording ended", "weir-"]);
        // A second recording ends with weir.
        top.press("r");
        top.wait_for_line(&["recording ", " s weir-"]);
        top.press("q");
        top.expect_exit(0);
        let entries = fs::read_dir(daemon.folder()).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "etl")).collect();
        assert_eq!(files.len(), 2, "{files:?}");
        for file in files {
            assert!(!shop_events_in(&file).is_empty());
        }
    }

    #[test]
    fn end_of_the_session_or_daemon_ends_top_with_the_reason() {
        if !has_tmux() {
            return;
        }
        let mut daemon = Daemon::start();
        let top = TopTerminal::start(&daemon, SIZES[0], SHOP);
        let sessions = running_sessions(&daemon);
        daemon.weir(["stop", sessions[0]["name"].as_str().unwrap()]).expect(0);
        let text = top.expect_exit(0);
        assert!(text.contains("stopped by another process"), "{text}");
        drop(top);
        let folder = daemon.folder().to_owned();
        let top = TopTerminal::start(&daemon, SIZES[0], SHOP);
        let pid = fs::read_to_string(folder.join("daemon.lock")).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let text = top.expect_exit(1);
        assert!(text.contains("has ended, and the session with it"), "{text}");
        drop(top);
        daemon.kill();
    }

    #[test]
    fn kernel_tab_shows_processes_by_processor_time() {
        if !has_tmux() {
            return;
        }
        let daemon = Daemon::start();
        let probe = daemon.weir(["watch", "--kernel", "cswitch,dispatcher,disk_io", "--duration", "10ms"]);
        if probe.code != 0 {
            return crate::util::skip("kernel events", "this machine does not allow kernel events");
        }
        let _shop = start_shop(&daemon);
        for (arguments, size) in [("kernel", SIZES[0]), (SHOP, SIZES[1])] {
            let top = TopTerminal::start(&daemon, size, arguments);
            top.press("5");
            top.wait_for_line(&["SWITCH/S"]);
            // The shop wakes for each event.
            eventually("a process has wake-up latencies", || {
                let is_row = |line: &String| {
                    let has_latency = [" µs", " ms"].iter().any(|unit| line.contains(unit));
                    line.starts_with("weir ") && !line.contains("events/s") && has_latency
                };
                top.lines().iter().any(is_row).then_some(())
            });
            top.press("q");
            top.expect_exit(0);
        }
        assert!(running_sessions(&daemon).is_empty(), "a session still runs");
    }

    #[test]
    fn top_needs_a_terminal_and_valid_providers() {
        let run = weir(["top", "Some.App"]).expect(1);
        assert!(run.stderr.contains("needs a terminal"), "{}", run.stderr);
        let run = weir(["top", "A:B:C:D"]).expect(2);
        assert!(run.stderr.contains("colons"), "{}", run.stderr);
    }
}

//! Rules for autologgers, sessions that the daemon starts by itself. `rule.rs` explains the rows.

use std::path::{Path, PathBuf};

use traceweir::controller::{Controller, Properties, SessionRef};
use traceweir::{EventDescriptor, Guid, Status};
use traceweir_daemon::DaemonFolders;
use traceweir_daemon::autologger::{AutologgerState, Autologgers};
use traceweir_format::spec::event::ExtType;
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_NEWFILE, EVENT_TRACE_FILE_MODE_SEQUENTIAL};
use traceweir_transport::runtime::RuntimeDir;

use super::daemon::{connect_to, make_folder_with};
use crate::helpers::{ACCESS_DENIED, Fixture, INSTANCE_NOT_FOUND, events_of, new_guid, status};
use crate::processes::{Daemon, OtherProcess};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 11 #Start", D, "Start 1: the session runs before the first client is answered",
        autologger_runs_before_the_first_client),
    rule!("controller 11 #Start", D, "Start 0, the default: the session is not started",
        autologger_without_start_does_not_run),
    rule!("controller 11 #Guid", D, "a definition without a GUID starts no session", autologger_needs_a_guid),
    rule!("controller 11", D, "defaults: sequential file of 100 MiB, clock 1 (performance counter), no flush timer, a file with the session's name in the folder of logs",
        autologger_has_defaults),
    rule!("controller 11", D, "buffers, clock, timer, mode and size are those of the definition",
        autologger_uses_the_values_of_its_definition),
    rule!("controller 11 #BufferSize", D, "a buffer size of 1 MiB or more is corrected to less",
        autologger_buffers_stay_below_a_mib),
    rule!("controller 11 #FileMax", D, "FileMax 2 to 16: each start writes to the next of FileMax files, whose names end in .0001, .0002, …",
        numbered_files_rotate),
    rule!("api 4", D, "a FileMax above 16 counts as 16", at_most_sixteen_numbered_files),
    rule!("controller 11 #FileCounter", D, "the daemon stores the number of the newest file", file_counter_is_maintained),
    rule!("controller 11 #Status", D, "the daemon stores the Win32 code of the last start", status_of_the_last_start_is_stored),
    rule!("controller 11 #LogFileMode", D, "new-file mode is corrected to a sequential file", autologger_has_no_file_sequence),
    rule!("controller 11 #Enabled", D, "Enabled 0, the default: the provider is not enabled",
        autologger_providers_are_disabled_by_default),
    rule!("controller 11 #EnableLevel, #MatchAnyKeyword, #MatchAllKeyword", D, "a provider is enabled with these values; they are 0 by default",
        autologger_enables_providers_with_their_values),
    rule!("controller 11 #MatchAllKeyword", D, "MatchAnyKeyword 0 matches every keyword, and MatchAllKeyword is then unused",
        autologger_ignores_match_all_without_match_any),
    rule!("controller 11 #EnableFlags", D, "the provider is enabled with these flags as MatchAnyKeyword", enable_flags_set_match_any),
    rule!("controller 11 #EnableProperty", D, "events get the extended data items of these properties", enable_property_adds_items),
    rule!("controller 11", D, "a value that cannot be honoured is corrected, and the session runs",
        autologger_corrects_invalid_values),
    rule!("controller 2 #0x40", D, "a stop of a non-stoppable autologger → 5",
        non_stoppable_autologger_cannot_be_stopped),
    rule!("controller 11", D, "WMI_GLOBAL_LOGGER_ID (1) with no global logger running → 4201",
        global_logger_is_not_running),
];

/// A daemon with an autologger called `Boot`.
struct AutologgerDaemon {
    daemon: Option<Daemon>,
    folder: PathBuf,
}

impl AutologgerDaemon {
    /// Starts a daemon whose autologger definition has `Start = 1`, a GUID and these lines.
    fn start_with(fixture: &Fixture, lines: &str) -> Self {
        Self::start_with_definition(fixture, &format!("Start = 1\nGuid = \"{}\"\n{lines}\n", new_guid()))
    }

    /// Starts a daemon whose autologger definition is `text`.
    fn start_with_definition(fixture: &Fixture, text: &str) -> Self {
        let folder = make_folder_with(fixture, "autologger.d/Boot.conf", text);
        let mut daemon = Self { daemon: None, folder };
        daemon.restart();
        daemon
    }

    fn restart(&mut self) {
        self.daemon = None;
        self.daemon = Some(Daemon::start(&self.folder));
        // Waits until the daemon answers.
        self.controller();
    }

    fn controller(&self) -> Controller {
        connect_to(&self.folder)
    }

    fn query(&self) -> Result<Properties, Status> {
        let boot = SessionRef::Name("Boot".to_owned());
        self.controller().query(&boot).map_err(|e| e.status())
    }

    /// Returns the stored state of the autologger.
    fn state(&self) -> AutologgerState {
        Autologgers::new(DaemonFolders::for_runtime(&RuntimeDir::from_path(&self.folder)).unwrap())
            .state("Boot")
    }

    /// Returns the level and the masks (any, all) with which the session enabled a provider.
    fn level_and_masks(&self, guid: Guid) -> Option<(u8, u64, u64)> {
        let entries = self.controller().provider_entries().unwrap();
        let entry = entries.into_iter().find(|entry| entry.provider == guid)?;
        entry.sessions.first().map(|session| (session.level, session.any, session.all))
    }

    /// Stops the session and returns the descriptors of the events in its file.
    fn stop(&self) -> Vec<EventDescriptor> {
        let end = self.controller().stop(&SessionRef::Name("Boot".to_owned())).unwrap();
        events_of(&end.config.log_file.unwrap()).iter().map(|seen| seen.descriptor).collect()
    }
}

/// Returns the definition lines of an enabled provider.
fn provider_lines(guid: Guid, lines: &str) -> String {
    format!("[{guid}]\nEnabled = 1\n{lines}\n")
}

fn autologger_runs_before_the_first_client(fixture: &Fixture) {
    let guid = new_guid();
    let autologger = AutologgerDaemon::start_with(fixture, &provider_lines(guid, ""));
    assert!(autologger.query().is_ok());
    let mut process = OtherProcess::start(guid, Some(&autologger.folder));
    process.write(1);
    assert_eq!(autologger.stop().len(), 1, "the first event of a later process was not recorded");
}

fn autologger_without_start_does_not_run(fixture: &Fixture) {
    for start in ["", "Start = 0\n"] {
        let autologger =
            AutologgerDaemon::start_with_definition(fixture, &format!("{start}Guid = \"{}\"\n", new_guid()));
        assert_eq!(autologger.query(), Err(INSTANCE_NOT_FOUND), "{start:?}");
    }
}

fn autologger_needs_a_guid(fixture: &Fixture) {
    let autologger = AutologgerDaemon::start_with_definition(fixture, "Start = 1\n");
    assert_eq!((autologger.query(), autologger.state().status), (Err(INSTANCE_NOT_FOUND), Some(87)));
}

fn autologger_has_defaults(fixture: &Fixture) {
    let autologger = AutologgerDaemon::start_with(fixture, "");
    let config = autologger.query().unwrap().config;
    assert_eq!(
        (config.log_file_mode, config.maximum_file_size, config.clock, config.flush_timer),
        (1, 100, 1, 0)
    );
    assert_eq!(config.log_file, Some(autologger.folder.join("log/Boot.etl")));
}

fn autologger_uses_the_values_of_its_definition(fixture: &Fixture) {
    let lines = "BufferSize = 128\nMinimumBuffers = 70\nMaximumBuffers = 90\nClockType = 2\nFlushTimer = 7\n\
                 LogFileMode = 2\nMaxFileSize = 33\n";
    let path = fixture.unique_path();
    let autologger =
        AutologgerDaemon::start_with(fixture, &format!("{lines}FileName = \"{}\"\n", path.display()));
    let config = autologger.query().unwrap().config;
    assert_eq!((config.buffer_size, config.minimum_buffers, config.maximum_buffers), (128, 70, 90));
    assert_eq!(
        (config.clock, config.flush_timer, config.log_file_mode, config.maximum_file_size),
        (2, 7, 2, 33)
    );
    assert_eq!(config.log_file, Some(path));
}

fn autologger_buffers_stay_below_a_mib(fixture: &Fixture) {
    let size =
        AutologgerDaemon::start_with(fixture, "BufferSize = 4096\n").query().unwrap().config.buffer_size;
    assert!(size < 1024, "the buffers have {size} KiB");
}

fn generation_path(path: &Path, number: u32) -> PathBuf {
    PathBuf::from(format!("{}.{number:04}", path.display()))
}

fn start_with_file_max(fixture: &Fixture, file_max: u32) -> (AutologgerDaemon, PathBuf) {
    let path = fixture.unique_path();
    let autologger = AutologgerDaemon::start_with(
        fixture,
        &format!("FileName = \"{}\"\nFileMax = {file_max}\n", path.display()),
    );
    (autologger, path)
}

fn numbered_files_rotate(fixture: &Fixture) {
    let (mut autologger, path) = start_with_file_max(fixture, 2);
    for number in [1, 2, 1] {
        assert_eq!(autologger.query().unwrap().config.log_file, Some(generation_path(&path, number)));
        autologger.restart();
    }
    assert!(!path.exists() && !generation_path(&path, 3).exists());
}

fn at_most_sixteen_numbered_files(fixture: &Fixture) {
    let (mut autologger, path) = start_with_file_max(fixture, 99);
    for number in (1..=16).chain([1]) {
        assert_eq!(autologger.query().unwrap().config.log_file, Some(generation_path(&path, number)));
        autologger.restart();
    }
}

fn file_counter_is_maintained(fixture: &Fixture) {
    let (mut autologger, _path) = start_with_file_max(fixture, 3);
    for number in [1, 2, 3, 1] {
        assert_eq!(autologger.state().file_counter, number);
        autologger.restart();
    }
}

fn status_of_the_last_start_is_stored(fixture: &Fixture) {
    assert_eq!(AutologgerDaemon::start_with(fixture, "").state().status, Some(0));
    let missing = fixture.folder().join("missing").join("x.etl");
    let autologger =
        AutologgerDaemon::start_with(fixture, &format!("FileName = \"{}\"\n", missing.display()));
    // ERROR_PATH_NOT_FOUND.
    assert_eq!((autologger.query(), autologger.state().status), (Err(INSTANCE_NOT_FOUND), Some(3)));
}

fn autologger_has_no_file_sequence(fixture: &Fixture) {
    let mode =
        AutologgerDaemon::start_with(fixture, "LogFileMode = 8\n").query().unwrap().config.log_file_mode;
    assert_eq!(
        mode & (EVENT_TRACE_FILE_MODE_NEWFILE | EVENT_TRACE_FILE_MODE_SEQUENTIAL),
        EVENT_TRACE_FILE_MODE_SEQUENTIAL
    );
}

fn autologger_providers_are_disabled_by_default(fixture: &Fixture) {
    let (by_default, explicitly) = (new_guid(), new_guid());
    let lines = format!("[{by_default}]\nEnableLevel = 5\n[{explicitly}]\nEnabled = 0\n");
    let autologger = AutologgerDaemon::start_with(fixture, &lines);
    assert_eq!(autologger.level_and_masks(by_default), None);
    assert_eq!(autologger.level_and_masks(explicitly), None);
}

fn autologger_enables_providers_with_their_values(fixture: &Fixture) {
    let (with_values, without_values) = (new_guid(), new_guid());
    let lines = "EnableLevel = 5\nMatchAnyKeyword = 0x300000007\nMatchAllKeyword = 4";
    let lines = provider_lines(with_values, lines) + &provider_lines(without_values, "");
    let autologger = AutologgerDaemon::start_with(fixture, &lines);
    assert_eq!(autologger.level_and_masks(with_values), Some((5, 0x3_0000_0007, 4)));
    assert_eq!(autologger.level_and_masks(without_values), Some((0, 0, 0)));
}

fn autologger_ignores_match_all_without_match_any(fixture: &Fixture) {
    let guid = new_guid();
    let autologger = AutologgerDaemon::start_with(fixture, &provider_lines(guid, "MatchAllKeyword = 0x80"));
    let mut process = OtherProcess::start(guid, Some(&autologger.folder));
    process.write(1);
    assert_eq!(autologger.stop().len(), 1, "MatchAllKeyword was applied without MatchAnyKeyword");
}

fn enable_flags_set_match_any(fixture: &Fixture) {
    let guid = new_guid();
    let autologger =
        AutologgerDaemon::start_with(fixture, &provider_lines(guid, "EnableFlags = 0x30\nEnableLevel = 2"));
    assert_eq!(autologger.level_and_masks(guid), Some((2, 0x30, 0)));
}

fn enable_property_adds_items(fixture: &Fixture) {
    let guid = new_guid();
    let autologger = AutologgerDaemon::start_with(fixture, &provider_lines(guid, "EnableProperty = 0x80"));
    let mut process = OtherProcess::start(guid, Some(&autologger.folder));
    process.write(1);
    let end = autologger.controller().stop(&SessionRef::Name("Boot".to_owned())).unwrap();
    let items = &events_of(&end.config.log_file.unwrap())[0].items;
    assert_eq!(
        items.iter().map(|(kind, _)| kind.0).collect::<Vec<_>>(),
        [ExtType::PROCESS_START_KEY.0],
        "the items of the event are not just the process start key"
    );
}

fn autologger_corrects_invalid_values(fixture: &Fixture) {
    // A circular file (mode 2) needs a size, clock 9 does not exist, and `FileMax` is at least 2.
    let autologger = AutologgerDaemon::start_with(
        fixture,
        "LogFileMode = 2\nMaxFileSize = 0\nClockType = 9\nFileMax = 1\n",
    );
    let config = autologger.query().unwrap().config;
    assert_eq!((config.log_file_mode, config.maximum_file_size, config.clock), (2, 100, 1));
}

fn non_stoppable_autologger_cannot_be_stopped(fixture: &Fixture) {
    // Sequential and non-stoppable.
    let autologger = AutologgerDaemon::start_with(fixture, "LogFileMode = 0x41\n");
    let stopped = autologger.controller().stop(&SessionRef::Name("Boot".to_owned()));
    assert_eq!(status(stopped), ACCESS_DENIED);
    assert!(autologger.query().is_ok());
}

fn global_logger_is_not_running(fixture: &Fixture) {
    assert_eq!(status(fixture.connect().query(&SessionRef::Id(1))), INSTANCE_NOT_FOUND);
}

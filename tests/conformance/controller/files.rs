//! Rules for appended files, file sequences and preallocated files, and for the disk space that log
//! files need. `rule.rs` explains the rows.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use traceweir::consumer::Trace;
use traceweir::controller::{EnableParams, SessionConfig};
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_FILE_MODE_CIRCULAR, EVENT_TRACE_REAL_TIME_MODE,
};

use super::daemon::{connect_to, start_with_settings};
use crate::helpers::{
    DISK_FULL, Fixture, INVALID_FUNCTION, INVALID_PARAMETER, SUCCESS, event, events_of, header_of, status,
    unique_number, until,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 2 #0x4", D, "append continues an existing file and keeps its events",
        a_file_is_continued),
    rule!("project", P, "append to a file with another clock or buffer size → 87, and the file is unchanged",
        append_needs_the_same_clock_and_buffer_size),
    rule!("controller 2 #0x4", D, "append to a file with another number of processors → 87",
        append_needs_the_same_number_of_processors),
    rule!("project", P, "append to a file that does not exist creates it", append_creates_a_missing_file),
    rule!("controller 2.2 #NEWFILE", P, "new-file: the file number starts at 1 and replaces %d; each file has its own header",
        file_sequence_is_numbered),
    rule!("project", P, "new-file sessions replace existing files", file_sequence_replaces_files),
    rule!("controller 2 #0x20", D, "preallocate: the file has its maximum size from the start; the stop truncates it",
        preallocated_file_has_its_maximum_size),
    rule!("controller 4 #INCREMENT_FILE", D, "a new-file session switches to its next file at once",
        increment_switches_to_the_next_file),
    rule!("controller 4", P, "INCREMENT_FILE without new-file mode → 1", increment_needs_new_file_mode),
    rule!("controller 4 #CONVERT_TO_REALTIME", D, "a file session becomes a real-time session; writing the file ends",
        file_session_becomes_real_time),
    rule!("controller 4", P, "CONVERT of a session that is not file-based → 1",
        conversion_needs_a_file_session),
    rule!("controller 3.2 #14", D, "less free space than the log may take → 112, and an existing file is unchanged",
        start_needs_enough_disk_space),
    rule!("controller 3.2 #14", P, "on the file system that contains /, a log must also leave reserve_mb free; with reserve_mb 0 it need not",
        reserve_of_the_system_disk_is_kept),
];

const SEQUENTIAL: u32 = 0x1;
const APPEND: u32 = 0x4;
const NEWFILE: u32 = 0x8;
const PREALLOCATE: u32 = 0x20;
const USE_KBYTES_FOR_SIZE: u32 = 0x2000;
const NO_PER_PROCESSOR_BUFFERING: u32 = 0x1000_0000;

/// Returns the configuration of an appending session, which must use the system time (clock 2).
fn append_config(fixture: &Fixture, path: &Path) -> SessionConfig {
    SessionConfig { log_file_mode: APPEND, clock: 2, log_file: Some(path.to_owned()), ..fixture.config() }
}

fn event_ids(path: &Path) -> Vec<u16> {
    events_of(path).iter().map(|seen| seen.descriptor.id).collect()
}

fn a_file_is_continued(fixture: &Fixture) {
    let path = fixture.unique_path();
    for id in 1..=3 {
        let (session, provider, _guid) =
            fixture.start_config_with_provider(&append_config(fixture, &path), &EnableParams::default());
        provider.write(&event(id), &[]).unwrap();
        fixture.stop(session);
        assert_eq!(event_ids(&path), (1..=id).collect::<Vec<_>>());
    }
}

fn append_needs_the_same_clock_and_buffer_size(fixture: &Fixture) {
    for (name, first) in [
        ("clock", SessionConfig { clock: 1, ..fixture.config() }),
        ("buffer size", SessionConfig { clock: 2, buffer_size: 128, ..fixture.config() }),
    ] {
        let path = first.log_file.clone().unwrap();
        fixture.stop(fixture.start(&first));
        let before = std::fs::read(&path).unwrap();
        assert_eq!(fixture.start_status(&append_config(fixture, &path)), INVALID_PARAMETER, "{name}");
        assert_eq!(std::fs::read(&path).unwrap(), before, "{name}");
    }
}

fn append_needs_the_same_number_of_processors(fixture: &Fixture) {
    let path = fixture.unique_path();
    let config = |mode| SessionConfig { log_file_mode: mode, ..append_config(fixture, &path) };
    fixture.stop(fixture.start(&config(SEQUENTIAL | NO_PER_PROCESSOR_BUFFERING)));
    assert_eq!(header_of(&path).processors, 1);
    let has_several_processors = traceweir_transport::cpu::possible() > 1;
    assert_eq!(
        fixture.start_status(&config(APPEND)),
        if has_several_processors { INVALID_PARAMETER } else { SUCCESS }
    );
    assert_eq!(fixture.start_status(&config(APPEND | NO_PER_PROCESSOR_BUFFERING)), SUCCESS);
}

fn append_creates_a_missing_file(fixture: &Fixture) {
    let path = fixture.unique_path();
    let (session, provider, _guid) =
        fixture.start_config_with_provider(&append_config(fixture, &path), &EnableParams::default());
    provider.write(&event(1), &[]).unwrap();
    fixture.stop(session);
    assert_eq!(event_ids(&path), [1]);
}

/// Returns the configuration of a file sequence with space for a few buffers in each file, and a
/// function that returns the path of the file with a number.
fn file_sequence_config(fixture: &Fixture) -> (SessionConfig, impl Fn(u32) -> PathBuf) {
    let (folder, number) = (fixture.folder().to_owned(), unique_number());
    let config = SessionConfig {
        log_file_mode: NEWFILE | USE_KBYTES_FOR_SIZE | NO_PER_PROCESSOR_BUFFERING,
        maximum_file_size: 64,
        buffer_size: 8,
        log_file: Some(folder.join(format!("sequence {number}-%d.etl"))),
        ..fixture.config()
    };
    (config, move |n| folder.join(format!("sequence {number}-{n}.etl")))
}

fn file_sequence_is_numbered(fixture: &Fixture) {
    let (config, path) = file_sequence_config(fixture);
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    assert_eq!(session.properties.config.log_file, Some(path(1)));
    let mut written = 0;
    until("the session writes the third file", || {
        for _ in 0..10 {
            written += u16::from(provider.write(&event(written), &[&[0; 500]]).is_ok());
        }
        fixture.query(&session).config.log_file == Some(path(3))
    });
    let end = fixture.stop(session).config.log_file.unwrap();
    let recorded = (1..).map(&path).take_while(|path| path.exists()).flat_map(|path| {
        assert!(std::fs::metadata(&path).unwrap().len() <= 64 << 10, "{} is too large", path.display());
        assert_eq!(header_of(&path).file_name, path.to_str().unwrap());
        assert_ne!(header_of(&path).end_time.0, 0);
        event_ids(&path)
    });
    let recorded: Vec<u16> = recorded.collect();
    assert_eq!(recorded, (0..written).collect::<Vec<_>>());
    // Events that were still in memory at the stop may need a fourth file.
    assert!(end == path(3) || end == path(4), "the last file is {}", end.display());
}

fn file_sequence_replaces_files(fixture: &Fixture) {
    let (config, path) = file_sequence_config(fixture);
    for n in 1..=2 {
        std::fs::write(path(n), vec![0xAA; 100_000]).unwrap();
    }
    let session = fixture.start(&config);
    fixture.connect().increment(&session.id).unwrap();
    fixture.stop(session);
    assert_eq!((events_of(&path(1)), events_of(&path(2))), (vec![], vec![]));
}

fn preallocated_file_has_its_maximum_size(fixture: &Fixture) {
    let mode = SEQUENTIAL | PREALLOCATE;
    let config = SessionConfig { log_file_mode: mode, maximum_file_size: 8, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    let path = config.log_file.unwrap();
    let reserved = std::fs::metadata(&path).unwrap();
    assert_eq!((reserved.len(), reserved.blocks() * 512 >= 8 << 20), (8 << 20, true));
    provider.write(&event(1), &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session).len(), 1);
    assert!(std::fs::metadata(&path).unwrap().len() < 1 << 20);
}

fn increment_switches_to_the_next_file(fixture: &Fixture) {
    let (config, path) = file_sequence_config(fixture);
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    provider.write(&event(1), &[]).unwrap();
    let next = fixture.connect().increment(&session.id).unwrap();
    assert_eq!(next.config.log_file, Some(path(2)));
    assert_eq!(event_ids(&path(1)), [1]);
    provider.write(&event(2), &[]).unwrap();
    fixture.stop(session);
    assert_eq!(event_ids(&path(2)), [2]);
}

fn increment_needs_new_file_mode(fixture: &Fixture) {
    let live =
        SessionConfig { log_file_mode: EVENT_TRACE_REAL_TIME_MODE, log_file: None, ..fixture.config() };
    for config in [fixture.config(), live] {
        let session = fixture.start(&config);
        assert_eq!(status(fixture.connect().increment(&session.id)), INVALID_FUNCTION);
    }
}

fn file_session_becomes_real_time(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let path = session.properties.config.log_file.clone().unwrap();
    provider.write(&event(1), &[]).unwrap();
    let converted = fixture.connect().convert_to_real_time(&session.id).unwrap();
    assert_eq!(
        (
            converted.config.log_file,
            converted.config.log_file_mode & (SEQUENTIAL | EVENT_TRACE_REAL_TIME_MODE)
        ),
        (None, EVENT_TRACE_REAL_TIME_MODE)
    );
    assert_eq!(event_ids(&path), [1]);
    assert_ne!(header_of(&path).end_time.0, 0);
    provider.write(&event(2), &[]).unwrap();
    assert_eq!(status(Trace::live(&session.properties.config.name)), SUCCESS);
    fixture.stop(session);
    assert_eq!(event_ids(&path), [1]);
}

fn conversion_needs_a_file_session(fixture: &Fixture) {
    for mode in [EVENT_TRACE_REAL_TIME_MODE, EVENT_TRACE_BUFFERING_MODE] {
        let config = SessionConfig { log_file_mode: mode, log_file: None, ..fixture.config() };
        let session = fixture.start(&config);
        assert_eq!(
            status(fixture.connect().convert_to_real_time(&session.id)),
            INVALID_FUNCTION,
            "mode {mode:#x}"
        );
    }
}

fn start_needs_enough_disk_space(fixture: &Fixture) {
    let path = fixture.unique_path();
    std::fs::write(&path, "precious").unwrap();
    let huge_config = |mode| SessionConfig {
        log_file_mode: mode,
        maximum_file_size: u32::MAX,
        log_file: Some(path.clone()),
        ..fixture.config()
    };
    for mode in [SEQUENTIAL, EVENT_TRACE_FILE_MODE_CIRCULAR, SEQUENTIAL | PREALLOCATE] {
        assert_eq!(fixture.start_status(&huge_config(mode)), DISK_FULL, "mode {mode:#x}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}

fn reserve_of_the_system_disk_is_kept(fixture: &Fixture) {
    let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
    let is_system_disk = device(fixture.folder()) == device(Path::new("/"));
    for (reserve, expected) in [(u32::MAX, if is_system_disk { DISK_FULL } else { SUCCESS }), (0, SUCCESS)] {
        let (folder, _daemon) = start_with_settings(fixture, &format!("reserve_mb = {reserve}\n"));
        let started = connect_to(&folder).start(&fixture.config());
        assert_eq!(status(started), expected, "reserve of {reserve} MB");
    }
}

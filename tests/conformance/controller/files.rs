//! Kinds of log files: appended, sequences of files, preallocated; and the disk space that they
//! need.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use traceweir::Provider;
use traceweir::consumer::Trace;
use traceweir::controller::{EnableParams, SessionConfig};

use super::daemon::{connected, with_settings};
use crate::rule::{Rule, rule};
use crate::stage::{Session, Stage, event, events_of, header_of, new_provider, status, unique, until};

pub(crate) const RULES: &[Rule] = &[
    rule!(
        "controller 2 #0x4",
        D,
        "append continues an existing file and keeps its events",
        a_file_is_continued
    ),
    rule!(
        "decision 6",
        P,
        "append to a file of another clock or buffer size → 87, and it is as it was",
        only_alike
    ),
    rule!(
        "controller 2 #0x4",
        D,
        "append to a file of another number of processors → 87",
        as_many_processors
    ),
    rule!("decision 6", P, "append to a file that does not exist creates it", appending_creates),
    rule!(
        "controller 2.2 #NEWFILE",
        P,
        "new-file: the counter starts at 1 and replaces %d; each file has its own header",
        file_sequence_is_numbered
    ),
    rule!("decision 36", P, "new-file sessions replace existing files", file_sequence_replaces_files),
    rule!(
        "controller 2 #0x20",
        D,
        "preallocate: the file has its size from the start and is cut at the stop",
        sizes_are_reserved
    ),
    rule!(
        "controller 4 #INCREMENT_FILE",
        D,
        "a new-file session switches to its next file at once",
        the_next_file
    ),
    rule!("controller 4", P, "INCREMENT_FILE without new-file mode → 1", no_next_file),
    rule!(
        "controller 4 #CONVERT_TO_REALTIME",
        D,
        "a file session becomes a real-time session; writing the file ends",
        a_file_becomes_live
    ),
    rule!("controller 4", P, "CONVERT of a session that is not file-based → 1", no_file_to_convert),
    rule!(
        "controller 3.2 #14",
        D,
        "less free space than the log may take → 112, and an old file is as it was",
        a_log_needs_room
    ),
    rule!(
        "controller 3.2 #14",
        P,
        "reserve_mb more must be free on the file system of /, and there only; 0 disables it",
        the_reserve
    ),
];

const SEQUENTIAL: u32 = 0x1;
const APPEND: u32 = 0x4;
const NEWFILE: u32 = 0x8;
const PREALLOCATE: u32 = 0x20;
const KBYTES: u32 = 0x2000;
const ONE_STREAM: u32 = 0x1000_0000;

fn appending(stage: &Stage, path: &Path) -> SessionConfig {
    SessionConfig { log_file_mode: APPEND, clock: 2, log_file: Some(path.to_owned()), ..stage.config() }
}

/// Starts a session with a new provider enabled.
fn listened(stage: &Stage, config: &SessionConfig) -> (Session, Provider) {
    let (guid, session) = (new_provider(), stage.start(config));
    let provider = Provider::register(guid, None).unwrap();
    stage.enable(&session, guid, &EnableParams::default());
    (session, provider)
}

fn ids(path: &Path) -> Vec<u16> {
    events_of(path).iter().map(|seen| seen.descriptor.id).collect()
}

fn a_file_is_continued(stage: &Stage) {
    let path = stage.path();
    for id in 1..=3 {
        let (session, provider) = listened(stage, &appending(stage, &path));
        provider.write(&event(id, 4, 1), &[]).unwrap();
        stage.end(session);
        assert_eq!(ids(&path), (1..=id).collect::<Vec<_>>());
    }
}

fn only_alike(stage: &Stage) {
    for (name, first) in [
        ("clock", SessionConfig { clock: 1, ..stage.config() }),
        ("buffer size", SessionConfig { clock: 2, buffer_size: 128, ..stage.config() }),
    ] {
        let path = first.log_file.clone().unwrap();
        stage.end(stage.start(&first));
        let before = std::fs::read(&path).unwrap();
        assert_eq!(stage.refused(&appending(stage, &path)), 87, "{name}");
        assert_eq!(std::fs::read(&path).unwrap(), before, "{name}");
    }
}

fn as_many_processors(stage: &Stage) {
    let path = stage.path();
    let one = |mode| SessionConfig { log_file_mode: mode, ..appending(stage, &path) };
    stage.end(stage.start(&one(SEQUENTIAL | ONE_STREAM)));
    assert_eq!(header_of(&path).processors, 1);
    let several = traceweir_transport::cpu::possible() > 1;
    assert_eq!(stage.refused(&one(APPEND)), if several { 87 } else { 0 });
    assert_eq!(stage.refused(&one(APPEND | ONE_STREAM)), 0);
}

fn appending_creates(stage: &Stage) {
    let path = stage.path();
    let (session, provider) = listened(stage, &appending(stage, &path));
    provider.write(&event(1, 4, 1), &[]).unwrap();
    stage.end(session);
    assert_eq!(ids(&path), [1]);
}

/// Returns the configuration of a file sequence with room for a few buffers in each file, and a
/// function from number to path.
fn row(stage: &Stage) -> (SessionConfig, impl Fn(u32) -> PathBuf) {
    let (folder, number) = (stage.folder().to_owned(), unique());
    let config = SessionConfig {
        log_file_mode: NEWFILE | KBYTES | ONE_STREAM,
        maximum_file_size: 64,
        buffer_size: 8,
        log_file: Some(folder.join(format!("row {number}-%d.etl"))),
        ..stage.config()
    };
    (config, move |n| folder.join(format!("row {number}-{n}.etl")))
}

fn file_sequence_is_numbered(stage: &Stage) {
    let (config, path) = row(stage);
    let (session, provider) = listened(stage, &config);
    assert_eq!(session.properties.config.log_file, Some(path(1)));
    let mut written = 0;
    until("the third file", || {
        for _ in 0..10 {
            written += u16::from(provider.write(&event(written, 4, 1), &[&[0; 500]]).is_ok());
        }
        stage.query(&session).config.log_file == Some(path(3))
    });
    let end = stage.end(session).config.log_file.unwrap();
    let all = (1..).map(&path).take_while(|path| path.exists()).flat_map(|path| {
        assert!(std::fs::metadata(&path).unwrap().len() <= 64 << 10, "{}", path.display());
        assert_eq!(header_of(&path).file_name, path.to_str().unwrap());
        assert_ne!(header_of(&path).end_time.0, 0);
        ids(&path)
    });
    let all: Vec<u16> = all.collect();
    assert_eq!(all, (0..written).collect::<Vec<_>>());
    assert!(end == path(3) || end == path(4), "{}", end.display());
}

fn file_sequence_replaces_files(stage: &Stage) {
    let (config, path) = row(stage);
    for n in 1..=2 {
        std::fs::write(path(n), vec![0xAA; 100_000]).unwrap();
    }
    let session = stage.start(&config);
    stage.controller().increment(&session.id).unwrap();
    stage.end(session);
    assert_eq!((events_of(&path(1)), events_of(&path(2))), (vec![], vec![]));
}

fn sizes_are_reserved(stage: &Stage) {
    let mode = SEQUENTIAL | PREALLOCATE;
    let config = SessionConfig { log_file_mode: mode, maximum_file_size: 8, ..stage.config() };
    let (session, provider) = listened(stage, &config);
    let path = config.log_file.unwrap();
    let reserved = std::fs::metadata(&path).unwrap();
    assert_eq!((reserved.len(), reserved.blocks() * 512 >= 8 << 20), (8 << 20, true));
    provider.write(&event(1, 4, 1), &[]).unwrap();
    assert_eq!(stage.stop(session).len(), 1);
    assert!(std::fs::metadata(&path).unwrap().len() < 1 << 20);
}

fn the_next_file(stage: &Stage) {
    let (config, path) = row(stage);
    let (session, provider) = listened(stage, &config);
    provider.write(&event(1, 4, 1), &[]).unwrap();
    let next = stage.controller().increment(&session.id).unwrap();
    assert_eq!(next.config.log_file, Some(path(2)));
    assert_eq!(ids(&path(1)), [1]);
    provider.write(&event(2, 4, 1), &[]).unwrap();
    stage.end(session);
    assert_eq!(ids(&path(2)), [2]);
}

fn no_next_file(stage: &Stage) {
    let live = SessionConfig { log_file_mode: 0x100, log_file: None, ..stage.config() };
    for config in [stage.config(), live] {
        let session = stage.start(&config);
        assert_eq!(status(stage.controller().increment(&session.id)), 1);
    }
}

fn a_file_becomes_live(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    let path = session.properties.config.log_file.clone().unwrap();
    provider.write(&event(1, 4, 1), &[]).unwrap();
    let now = stage.controller().convert_to_real_time(&session.id).unwrap();
    assert_eq!((now.config.log_file, now.config.log_file_mode & 0x101), (None, 0x100));
    assert_eq!(ids(&path), [1]);
    assert_ne!(header_of(&path).end_time.0, 0);
    provider.write(&event(2, 4, 1), &[]).unwrap();
    assert_eq!(status(Trace::live(&session.properties.config.name)), 0);
    stage.end(session);
    assert_eq!(ids(&path), [1]);
}

fn no_file_to_convert(stage: &Stage) {
    for mode in [0x100, 0x400] {
        let config = SessionConfig { log_file_mode: mode, log_file: None, ..stage.config() };
        let session = stage.start(&config);
        assert_eq!(status(stage.controller().convert_to_real_time(&session.id)), 1, "mode {mode:#x}");
    }
}

fn a_log_needs_room(stage: &Stage) {
    let path = stage.path();
    std::fs::write(&path, "precious").unwrap();
    let huge = |mode| SessionConfig {
        log_file_mode: mode,
        maximum_file_size: u32::MAX,
        log_file: Some(path.clone()),
        ..stage.config()
    };
    for mode in [SEQUENTIAL, 0x2, SEQUENTIAL | PREALLOCATE] {
        assert_eq!(stage.refused(&huge(mode)), 112, "mode {mode:#x}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}

fn the_reserve(stage: &Stage) {
    let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
    let of_system = device(stage.folder()) == device(Path::new("/"));
    for (reserve, refusal) in [(u32::MAX, if of_system { 112 } else { 0 }), (0, 0)] {
        let (folder, _daemon) = with_settings(stage, &format!("reserve_mb = {reserve}\n"));
        let started = connected(&folder).start(&stage.config());
        assert_eq!(status(started), refusal, "reserve of {reserve} MB");
    }
}

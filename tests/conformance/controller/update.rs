//! UPDATE: which properties change and which stay.

use traceweir::Provider;
use traceweir::controller::{EnableParams, Properties, SessionConfig, Update};

use crate::rule::{Rule, rule};
use crate::stage::{Session, Stage, event, events_of, new_provider, status};

pub(crate) const RULES: &[Rule] = &[
    rule!("controller 4.1 #FlushTimer", D, "a new timer is taken, 0 leaves it", the_timer_changes),
    rule!(
        "controller 4.1 #LogFileName",
        D,
        "the session continues in the new file; earlier events are in the old one",
        the_file_switches
    ),
    rule!("controller 4.1 #LogFileName", P, "the same name as now → 161", the_same_file_is_refused),
    rule!(
        "controller 4.1 #LogFileName",
        D,
        "the file of another session → 161",
        another_sessions_file_is_refused
    ),
    rule!(
        "controller 4.1 #LogFileName",
        D,
        "in buffering mode the snapshot is written there",
        a_recorder_writes_its_snapshot
    ),
    rule!("controller 4.1 #LogFileName", D, "nothing named: the file stays", the_file_stays),
    rule!("controller 4.1 #LogFileMode", D, "real-time is switched on and off", real_time_switches),
    rule!(
        "controller 4.1 #EnableFlags",
        D,
        "other than 0 on a session that receives no kernel events → 87",
        no_kernel_events
    ),
    rule!(
        "controller 4.1 #LogFileName",
        P,
        "the directory of the new file is missing → 3, and the session continues",
        a_missing_folder
    ),
    rule!("controller 4.1 #MaximumBuffers", D, "a new maximum is taken, 0 leaves it", the_maximum_changes),
    rule!(
        "controller 4.1 #MaximumBuffers",
        D,
        "in buffering mode it is ignored: the minimum is the memory",
        a_recorder_keeps_its_memory
    ),
];

#[track_caller]
fn update(stage: &Stage, session: &Session, update: Update) -> Properties {
    stage.controller().update(&session.id, &update).expect("the session changes")
}

fn the_timer_changes(stage: &Stage) {
    let session = stage.start(&SessionConfig { flush_timer: 9, ..stage.config() });
    let properties = update(stage, &session, Update { flush_timer: Some(4), ..Update::default() });
    assert_eq!(properties.config.flush_timer, 4);
    let properties = update(stage, &session, Update { flush_timer: Some(0), ..Update::default() });
    assert_eq!(properties.config.flush_timer, 4);
    assert_eq!(stage.query(&session).config.flush_timer, 4);
}

fn the_file_switches(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    let (old, new) = (session.properties.config.log_file.clone().unwrap(), stage.path());
    provider.write(&event(1, 4, 1), &[]).unwrap();
    let properties = update(stage, &session, Update { log_file: Some(new.clone()), ..Update::default() });
    assert_eq!(properties.config.log_file.as_ref(), Some(&new));
    provider.write(&event(2, 4, 1), &[]).unwrap();
    let ids = |seen: &[crate::stage::Seen]| seen.iter().map(|event| event.descriptor.id).collect::<Vec<_>>();
    assert_eq!(ids(&stage.stop(session)), [2]);
    assert_eq!(ids(&events_of(&old)), [1]);
}

fn the_same_file_is_refused(stage: &Stage) {
    let session = stage.start(&stage.config());
    let same = Update { log_file: session.properties.config.log_file.clone(), ..Update::default() };
    assert_eq!(status(stage.controller().update(&session.id, &same)), 161);
    assert_eq!(stage.stop(session), [], "and the log is as it was");
}

fn another_sessions_file_is_refused(stage: &Stage) {
    let (one, other) = (stage.start(&stage.config()), stage.start(&stage.config()));
    let taken = Update { log_file: other.properties.config.log_file.clone(), ..Update::default() };
    assert_eq!(status(stage.controller().update(&one.id, &taken)), 161);
    assert_eq!((stage.stop(one), stage.stop(other)), (vec![], vec![]));
}

fn a_recorder_writes_its_snapshot(stage: &Stage) {
    let config = SessionConfig { log_file_mode: 0x400, log_file: None, ..stage.config() };
    let (guid, session) = (new_provider(), stage.start(&config));
    let provider = Provider::register(guid, None).unwrap();
    stage.enable(&session, guid, &EnableParams::default());
    provider.write(&event(1, 4, 1), &[]).unwrap();
    let path = stage.path();
    update(stage, &session, Update { log_file: Some(path.clone()), ..Update::default() });
    assert_eq!(events_of(&path).len(), 1);
}

fn the_file_stays(stage: &Stage) {
    let session = stage.start(&stage.config());
    let properties = update(stage, &session, Update::default());
    assert_eq!(properties.config, session.properties.config);
}

fn real_time_switches(stage: &Stage) {
    use traceweir::consumer::Trace;
    let session = stage.start(&stage.config());
    assert_eq!(status(Trace::live(&session.properties.config.name)), 4201);
    let properties = update(stage, &session, Update { real_time: Some(true), ..Update::default() });
    assert_eq!((properties.config.log_file_mode & 0x100, properties.config.flush_timer), (0x100, 1));
    assert_eq!(status(Trace::live(&session.properties.config.name)), 0);
    let properties = update(stage, &session, Update { real_time: Some(false), ..Update::default() });
    assert_eq!(properties.config.log_file_mode & 0x100, 0);
    assert_eq!(status(Trace::live(&session.properties.config.name)), 4201);
}

fn the_maximum_changes(stage: &Stage) {
    let session = stage.start(&SessionConfig { maximum_buffers: 60, ..stage.config() });
    let properties = update(stage, &session, Update { maximum_buffers: Some(90), ..Update::default() });
    assert_eq!(properties.config.maximum_buffers, 90);
    let properties = update(stage, &session, Update { maximum_buffers: Some(0), ..Update::default() });
    assert_eq!(properties.config.maximum_buffers, 90);
}

fn a_recorder_keeps_its_memory(stage: &Stage) {
    let config =
        SessionConfig { log_file_mode: 0x400, minimum_buffers: 40, log_file: None, ..stage.config() };
    let session = stage.start(&config);
    for maximum in [1, 90] {
        let properties =
            update(stage, &session, Update { maximum_buffers: Some(maximum), ..Update::default() });
        assert_eq!((properties.config.minimum_buffers, properties.config.maximum_buffers), (40, 40));
    }
}

fn no_kernel_events(stage: &Stage) {
    let session = stage.start(&stage.config());
    let flags = |flags| Update { enable_flags: Some(flags), ..Update::default() };
    assert_eq!(status(stage.controller().update(&session.id, &flags(1))), 87);
    assert_eq!(status(stage.controller().update(&session.id, &flags(0))), 0);
}

fn a_missing_folder(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    let missing = Update { log_file: Some(stage.folder().join("missing/x.etl")), ..Update::default() };
    assert_eq!(status(stage.controller().update(&session.id, &missing)), 3);
    provider.write(&event(1, 4, 1), &[]).unwrap();
    assert_eq!(stage.stop(session).len(), 1);
}

//! Relogging that fails: each failure has a status, and leaves no new output file. Also cancelled
//! relogging, and inputs with losses, many processors or damage.

use super::*;
use traceweir::{Error, Status};

fn file_names(folder: &Path) -> Vec<String> {
    let mut file_names: Vec<String> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    file_names.sort();
    file_names
}

fn write_input(folder: &Path) -> PathBuf {
    let records: Vec<(u16, Vec<u8>)> =
        (0..2_000).map(|n| (u16::try_from(n % 3).unwrap(), encode_event(5_000 + n, 1, b"payload"))).collect();
    write_file(&folder.join("in.etl"), options(), &records, ended_after(9))
}

fn failure_status(relogger: Relogger) -> Status {
    relogger.process(keep_event).unwrap_err().status()
}

#[test]
fn relogging_needs_inputs_a_different_output_and_a_valid_buffer_size() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    let before = std::fs::read(&input).unwrap();
    let mut without_output = Relogger::new();
    without_output.add_file(&input).unwrap();
    assert_eq!(failure_status(without_output), Status::ERROR_INVALID_PARAMETER);
    let mut without_input = Relogger::new();
    without_input.set_output(&folder.path().join("out.etl"));
    assert_eq!(failure_status(without_input), Status::ERROR_INVALID_PARAMETER);
    let mut onto_itself = Relogger::new();
    onto_itself.add_file(&input).unwrap();
    onto_itself.set_output(&input);
    assert_eq!(failure_status(onto_itself), Status::ERROR_SHARING_VIOLATION);
    for size in [0, 1_000, 32 << 20] {
        let mut relogger = Relogger::new();
        relogger.add_file(&input).unwrap();
        relogger.set_output(&folder.path().join("out.etl"));
        relogger.set(Settings::default().buffer_bytes(size));
        assert_eq!(failure_status(relogger), Status::ERROR_INVALID_PARAMETER, "{size}");
    }
    assert_eq!(
        Relogger::new().add_file(Path::new("/none")).unwrap_err().status(),
        Status::ERROR_FILE_NOT_FOUND
    );
    assert_eq!(std::fs::read(&input).unwrap(), before);
    assert_eq!(file_names(folder.path()), ["in.etl"]);
}

#[test]
fn callback_error_or_panic_leaves_the_output_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    let out = folder.path().join("out.etl");
    std::fs::write(&out, "precious").unwrap();
    let new_relogger = || {
        let mut relogger = Relogger::new();
        relogger.add_file(&input).unwrap();
        relogger.set_output(&out);
        relogger
    };
    let mut count = 0;
    let fail_at_event_1000 = |event: &Event<'_>, output: &mut Output| {
        count += 1;
        output.keep(event)?;
        if count < 1_000 { Ok(()) } else { Err(Error::refused(Status::ERROR_BUSY, "enough")) }
    };
    assert_eq!(new_relogger().process(fail_at_event_1000).unwrap_err().status(), Status::ERROR_BUSY);
    assert_eq!(count, 1_000);
    let panicking = |_: &Event<'_>, _: &mut Output| -> traceweir::Result<()> { panic!("on purpose") };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| new_relogger().process(panicking)));
    assert!(caught.is_err());
    assert_eq!(file_names(folder.path()), ["in.etl", "out.etl"]);
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");
}

#[test]
fn cancelling_leaves_a_valid_file_of_the_events_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    let out = folder.path().join("out.etl");
    let mut relogger = Relogger::new();
    relogger.add_file(&input).unwrap();
    relogger.set_output(&out);
    let canceller = relogger.canceller();
    let mut count = 0;
    let summary = relogger.process(|event: &Event<'_>, output: &mut Output| {
        count += 1;
        if count == 700 {
            canceller.cancel();
        }
        output.keep(event)
    });
    // The log-file header counts as an event.
    assert_eq!(summary.unwrap().events, 701);
    assert_eq!(read_events(&out), read_events(&input)[..700]);
    assert_eq!(broken_rules(&out), Vec::<String>::new());
}

#[test]
fn record_larger_than_a_buffer_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut relogger = Relogger::new();
    relogger.add_file(&write_input(folder.path())).unwrap();
    relogger.set_output(&folder.path().join("out.etl"));
    let inject = |event: &Event<'_>, output: &mut Output| {
        let mut copy = traceweir::relog::TraceEvent::from_event(event)?;
        copy.set_payload(&[0; 5_000])?;
        output.inject(&copy)
    };
    assert_eq!(relogger.process(inject).unwrap_err().status(), Status::ERROR_MORE_DATA);
    assert_eq!(file_names(folder.path()), ["in.etl"]);
}

#[test]
fn loss_flag_of_a_buffer_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(Vec::new(), options()).unwrap();
    // BUFFER_FLAG_EVENTS_LOST.
    writer.flag_loss(1, 0x2).unwrap();
    writer.write_record(1, &encode_event(6_000, 1, b"x")).unwrap();
    writer.write_record(0, &encode_event(6_001, 1, b"x")).unwrap();
    let input = folder.path().join("in.etl");
    std::fs::write(&input, writer.finish(ended_after(9)).unwrap()).unwrap();
    let out = folder.path().join("out.etl");
    relog_all(std::slice::from_ref(&input), &out, Settings::default());
    assert_eq!(open_trace(&out).loss_flags(), 0x2);
}

#[test]
fn many_processors_get_smaller_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let records: Vec<(u16, Vec<u8>)> = (0..2_048).map(|cpu| (cpu, encode_event(6_000, 1, b"x"))).collect();
    let before = Options { buffer_size: 16 << 20, compressed: true, ..options() };
    let input = write_file(&folder.path().join("in.etl"), before, &records, ended_after(9));
    let out = folder.path().join("out.etl");
    relog_all(std::slice::from_ref(&input), &out, Settings::default());
    // 256 MiB for the buffers of all processors, divided by 2,048.
    assert_eq!(open_trace(&out).header().buffer_size, 128 << 10);
    assert_eq!(open_trace(&out).header().processors, 2_048);
    assert_eq!(read_events(&out), read_events(&input));
    assert_eq!(broken_rules(&out), Vec::<String>::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn damaged_files_are_rejected_or_relogged_without_damage(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..24),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
        is_in_headers in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let input = write_input(folder.path());
        let mut bytes = std::fs::read(&input).unwrap();
        // The first bytes are headers, where damage has the most effect.
        let end = if is_in_headers { 0x200 } else { bytes.len() };
        for (at, value) in &changes {
            let at = at.index(end);
            bytes[at] = *value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        std::fs::write(&input, &bytes).unwrap();
        let out = folder.path().join("out.etl");
        let mut relogger = Relogger::new();
        if relogger.add_file(&input).is_err() {
            return Ok(());
        }
        relogger.set_output(&out);
        match relogger.process(keep_event) {
            Ok(summary) => {
                let trace = open_trace(&out);
                let mut events = trace.events();
                let mut count = 0;
                while events.next().unwrap().is_some() {
                    count += 1;
                }
                prop_assert_eq!(count, summary.events);
                prop_assert_eq!(events.damage().count, 0);
            }
            Err(_) => prop_assert_eq!(file_names(folder.path()), ["in.etl"]),
        }
    }
}

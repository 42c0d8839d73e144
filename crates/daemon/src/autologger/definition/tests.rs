use super::*;
use traceweir_format::spec::enable::{EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_PID};
use traceweir_transport::message::{EnableParams, Filter};

const GUID: Guid = Guid::from_u128(0x1234);

fn parse(text: &str) -> Result<AutologgerDefinition, ConfigError> {
    AutologgerDefinition::parse("App", &format!("Guid = \"{GUID}\"\n{text}"))
}

#[test]
fn missing_values_have_the_documented_defaults() {
    let minimal = parse("").unwrap();
    assert_eq!(minimal, AutologgerDefinition { start: false, ..AutologgerDefinition::new("App", GUID) });
    assert_eq!(
        (minimal.log_file_mode, minimal.max_file_size, minimal.clock_type, minimal.file_max),
        (1, 100, 1, 0)
    );
    let provider = parse("[My.App]").unwrap().providers.remove(0);
    assert!(!provider.enabled);
    assert_eq!(provider.params(), EnableParams::default());
    assert_eq!(provider.guid, Guid::from_provider_name("My.App"));
}

#[test]
fn every_documented_value_is_read_and_written_back() {
    let text = format!(
        "Start = 1\nGuid = \"{GUID}\"\nLogFileMode = 0x2\nFileName = \"/x/\\\"a\\\".etl\"\nMaxFileSize = 5\nFileMax = 3\n\
         BufferSize = 128\nMinimumBuffers = 8\nMaximumBuffers = 16\nClockType = 2\nFlushTimer = 4\n\n[My.App]\nEnabled = 1\n\
         EnableLevel = 4\nMatchAnyKeyword = 0x10\nMatchAllKeyword = 0x8000000000000000\nEnableProperty = 0x1\n\
         EnableFlags = 0x7\nEventIds = [1, 2]\nExecutableNames = [\"app\"]\n\n[{GUID}]\nEnabled = 0\n"
    );
    let definition = AutologgerDefinition::parse("App", &text).unwrap();
    assert_eq!(definition.to_text(), text);
    assert_eq!(definition.file_name.as_deref(), Some(Path::new("/x/\"a\".etl")));
    let params = definition.providers[0].params();
    assert_eq!((params.level, params.match_any, params.match_all), (4, 0x10, 1 << 63));
    assert_eq!((params.property, params.filters.len()), (1, 2));
    assert_eq!(definition.providers[1].guid, GUID);
    assert!(parse("DisableRealtimePersistence = 1\nBoot = 1\nStatus = 5\nFileCounter = 2").is_ok());
    let classic = parse("[x]\nEnabled = 1\nEnableFlags = 6").unwrap();
    assert_eq!(classic.providers[0].params().match_any, 6);
}

#[test]
fn invalid_definition_is_refused_with_its_line() {
    // Line 1 is the GUID that `parse` adds.
    for (text, line, word) in [
        ("Colour = 1", 2, "not a value"),
        ("Start = 2", 2, "at most 1"),
        ("Start = \"1\"", 2, "number"),
        ("FileName = \"app.etl\"", 2, "absolute"),
        ("BufferSize = 4294967296", 2, "at most"),
        ("[{12}]", 2, "neither"),
        ("[00000000-0000-0000-0000-000000000000]", 2, "null"),
        ("[a]\n[A]", 3, "already"),
        ("[a]\nStart = 1", 3, "not a value"),
        ("[a]\nEventIds = 1\nNotEventIds = 2", 4, "contradicts"),
        ("[a]\nEventIds = [\"x\"]", 3, "numbers"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.reason.contains(word), "{text}: {error}");
    }
    assert!(AutologgerDefinition::parse("App", "Start = 1").unwrap_err().reason.contains("Guid"));
    assert_eq!(AutologgerDefinition::parse("App", "Guid = \"x\"").unwrap_err().line, 1);
}

#[test]
fn unusable_values_are_corrected_and_reported() {
    let mut valid = parse("LogFileMode = 0x100\nFileMax = 16\nBufferSize = 1020").unwrap();
    assert_eq!(valid.correct(), []);
    assert!(!valid.has_file());
    // The mode combines a file sequence (8), a private session (0x800) and kernel events
    // (0x2000000).
    let mut invalid = parse(
        "LogFileMode = 0x2000808\nFileMax = 17\nBufferSize = 1024\nClockType = 9\n[a]\nEnableLevel = 300",
    )
    .unwrap();
    let notes = invalid.correct();
    assert_eq!(notes.len(), 5, "{notes:?}");
    assert_eq!(
        (invalid.log_file_mode, invalid.file_max, invalid.buffer_size, invalid.clock_type),
        (1, 16, 1020, 1)
    );
    assert_eq!(invalid.providers[0].params().level, 255);
    assert_eq!(invalid.correct(), [], "the definition is already corrected");
    let mut circular = parse("LogFileMode = 2\nMaxFileSize = 0\nFileMax = 1").unwrap();
    assert_eq!(circular.correct().len(), 2);
    assert_eq!((circular.max_file_size, circular.file_max), (100, 0));
    let mut unlimited = parse("MaxFileSize = 0").unwrap();
    assert_eq!((unlimited.correct(), unlimited.max_file_size), (vec![], 0));
    let mut recorder = parse("LogFileMode = 0x400").unwrap();
    assert_eq!(recorder.correct(), []);
}

#[test]
fn enable_call_becomes_a_section_unless_it_names_processes() {
    let ids = Filter { kind: EVENT_FILTER_TYPE_EVENT_ID, data: vec![1, 0, 1, 0, 9, 0] };
    let params = EnableParams { level: 3, match_any: 1, filters: vec![ids], ..EnableParams::default() };
    let provider = AutologgerProvider::new("My.App").unwrap().with_params(&params).unwrap();
    assert_eq!(provider.params(), params);
    let pid = Filter { kind: EVENT_FILTER_TYPE_PID, data: vec![1, 0, 0, 0] };
    let params = EnableParams { filters: vec![pid], ..EnableParams::default() };
    assert!(
        AutologgerProvider::new("My.App")
            .unwrap()
            .with_params(&params)
            .unwrap_err()
            .contains("cannot have a filter")
    );
    assert!(AutologgerProvider::new("").is_err() && AutologgerProvider::new("a]b").is_err());
}

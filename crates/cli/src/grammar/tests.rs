use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use traceweir::session::Filter;
use traceweir_format::filter::encode;
use traceweir_format::spec::enable::*;

use super::filters::{EnableFilters, InclusionList};
use super::*;

/// The hash of the name "MyProvider".
const MY_PROVIDER: Guid = Guid::from_u128(0xb386_4c38_4273_58c5_545b_8b36_0834_3471);

#[test]
fn names_are_hashed_and_guids_are_used_directly() {
    for text in [
        "MyProvider",
        "*MyProvider",
        "myprovider",
        " MyProvider ",
        "\"MyProvider\"",
        "*\"MyProvider\"",
        "b3864c38-4273-58c5-545b-8b3608343471",
        "{B3864C38-4273-58C5-545B-8B3608343471}",
        "#b3864c38-4273-58c5-545b-8b3608343471",
        "#{b3864c38-4273-58c5-545b-8b3608343471}",
    ] {
        assert_eq!(parse_provider(text).unwrap().guid, MY_PROVIDER, "{text}");
    }
}

#[test]
fn name_of_several_words_ends_at_a_colon() {
    let guid = format!("{{{MY_PROVIDER}}}");
    for (text, name, keywords, level) in [
        ("Name With Space:1:4", "Name With Space", 1, 4),
        ("Two Words:: , Other", "Two Words", 0, 0),
        ("*Two Words:0x2", "Two Words", 2, 0),
        ("A 0x10 win:Error", "A", 0x10, 2),
        (&format!("{guid} 0x10 0x5 My Provider"), "My Provider", 0x10, 5),
        (&format!("{guid} 0x10 0x5 \"My: Provider\" + B"), "My: Provider", 0x10, 5),
    ] {
        let first =
            provider::parse_providers(text).unwrap().remove(0).resolve(&ManifestNames::default()).unwrap();
        assert_eq!((first.name.as_str(), first.keywords, first.level), (name, keywords, level), "{text}");
        assert_eq!(first.guid == MY_PROVIDER, text.starts_with('{'), "{text}");
    }
    for wrong in ["Name With Space", "A Net|Disk:4", "A 0x10:4", "A 0x10 5 Name"] {
        assert!(parse_provider(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn name_means_the_provider_that_the_session_enables() {
    let (one, two) = (Guid::from_u128(1), Guid::from_u128(2));
    let enabled = vec![("Shop".to_owned(), one), ("Bar".to_owned(), one), ("Bar".to_owned(), two)];
    let mut names = ManifestNames::default();
    names.enabled = enabled;
    let resolve = |text: &str| provider::parse_providers(text).unwrap()[0].resolve(&names);
    assert_eq!(resolve("shop").unwrap().guid, one);
    assert_eq!(resolve("*shop").unwrap().guid, Guid::from_provider_name("shop"));
    assert_eq!(resolve("Other").unwrap().guid, Guid::from_provider_name("Other"));
    assert!(
        resolve("bar").unwrap_err().to_string().contains(&two.to_string()),
        "an ambiguous name must be an error that lists the GUIDs"
    );
}

#[test]
fn keywords_and_level_are_optional() {
    for (text, keywords, level) in [
        ("A", 0, 0),
        ("A:", 0, 0),
        ("A::", 0, 0),
        ("A:0x1F", 0x1F, 0),
        ("A:0X1f:", 0x1F, 0),
        ("A:0x1|0x10|2", 0x13, 0),
        ("A:(0x1,0x10 , 2)", 0x13, 0),
        ("A:12:3", 12, 3),
        ("A:12:0x3", 12, 3),
        ("A::verbose", 0, 5),
        ("A::V", 0, 5),
        ("A::crit", 0, 1),
        ("A::e", 0, 2),
        ("A::warn", 0, 3),
        ("A::Information", 0, 4),
        ("A:AuditFailure:1", 1 << 52, 1),
        ("A:(win:AuditFailure,1)", 1 << 52 | 1, 0),
        ("A@any=win:AuditFailure|1", 1 << 52 | 1, 0),
        ("A@level=4@keywords=0x8", 8, 4),
        ("A::4@any=0x8", 8, 4),
        ("A @level=4", 0, 4),
        ("{b3864c38-4273-58c5-545b-8b3608343471}:0x8000000000000000:Warning", 1 << 63, 3),
        // The columns of logman: provider, keywords, level.
        ("A 0x10", 0x10, 0),
        ("A 0x10 5", 0x10, 5),
        ("A\t0x10\t0xff", 0x10, 255),
        ("\"A\" 0x10 error", 0x10, 2),
        ("A (0x10,0x1) 0x5", 0x11, 5),
        ("{b3864c38-4273-58c5-545b-8b3608343471} (AuditFailure, AuditSuccess) 0x5", 3 << 52, 5),
        ("{b3864c38-4273-58c5-545b-8b3608343471} 0xffffffff win:Error", 0xffff_ffff, 2),
        ("b3864c38-4273-58c5-545b-8b3608343471 0x1 0x5 @stack", 1, 5),
    ] {
        let request = parse_provider(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!((request.keywords, request.level), (keywords, level), "{text}");
    }
}

#[test]
fn options_set_properties_and_filters() {
    let ids = |includes, list: &[u16]| Some(InclusionList { includes, list: list.to_vec() });
    let names = |includes, list: &[&str]| {
        Some(InclusionList { includes, list: list.iter().map(ToString::to_string).collect() })
    };
    let no_filters = EnableFilters::default;
    let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    const STACK: u32 = EVENT_ENABLE_PROPERTY_STACK_TRACE;
    for (options, property, filters) in [
        ("@stack", STACK, no_filters()),
        ("@STACK", STACK, no_filters()),
        (
            "@sid@tsid@key",
            EVENT_ENABLE_PROPERTY_SID | EVENT_ENABLE_PROPERTY_TS_ID | EVENT_ENABLE_PROPERTY_PSM_KEY,
            no_filters(),
        ),
        (
            "@start-key@event-key@container",
            EVENT_ENABLE_PROPERTY_PROCESS_START_KEY
                | EVENT_ENABLE_PROPERTY_EVENT_KEY
                | EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING,
            no_filters(),
        ),
        (
            "@ignore-keyword-0@enable-keyword-0",
            EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 | EVENT_ENABLE_PROPERTY_ENABLE_KEYWORD_0,
            no_filters(),
        ),
        (
            "@group@exclude-inprivate@silos",
            EVENT_ENABLE_PROPERTY_PROVIDER_GROUP
                | EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE
                | EVENT_ENABLE_PROPERTY_ENABLE_SILOS,
            no_filters(),
        ),
        ("@ids=7", 0, EnableFilters { ids: ids(true, &[7]), ..no_filters() }),
        ("@ids=1,2-5,0x10", 0, EnableFilters { ids: ids(true, &[1, 2, 3, 4, 5, 16]), ..no_filters() }),
        ("@ids=\"5, 2-3\"", 0, EnableFilters { ids: ids(true, &[2, 3, 5]), ..no_filters() }),
        ("@ids=5@ids=5@ids=4", 0, EnableFilters { ids: ids(true, &[4, 5]), ..no_filters() }),
        ("@not-ids=9", 0, EnableFilters { ids: ids(false, &[9]), ..no_filters() }),
        ("@names=Start", 0, EnableFilters { names: names(true, &["Start"]), ..no_filters() }),
        (
            "@names=\"Start, Stop\"",
            0,
            EnableFilters { names: names(true, &["Start", "Stop"]), ..no_filters() },
        ),
        ("@names=a@names=b", 0, EnableFilters { names: names(true, &["a", "b"]), ..no_filters() }),
        ("@not-names=\"a\\,b\"", 0, EnableFilters { names: names(false, &["a,b"]), ..no_filters() }),
        ("@pid=12,7", 0, EnableFilters { pids: vec![7, 12], ..no_filters() }),
        ("@pid=5-7", 0, EnableFilters { pids: vec![5, 6, 7], ..no_filters() }),
        ("@exe=bash", 0, EnableFilters { exes: texts(&["bash"]), ..no_filters() }),
        ("@exe=\"a;b\"", 0, EnableFilters { exes: texts(&["a", "b"]), ..no_filters() }),
        (
            "@package=x.service@app=y",
            0,
            EnableFilters { packages: texts(&["x.service"]), apps: texts(&["y"]), ..no_filters() },
        ),
        (
            "@schematized=258.3:0aFF",
            0,
            EnableFilters { schematized: encode::schematized(258, 3, &[0x0A, 0xFF]), ..no_filters() },
        ),
        ("@container=abc", 0, EnableFilters { containers: texts(&["abc"]), ..no_filters() }),
        ("@stack-ids=1-2", STACK, EnableFilters { stack_ids: vec![1, 2], ..no_filters() }),
        ("@stack-names=Start", STACK, EnableFilters { stack_names: texts(&["Start"]), ..no_filters() }),
        ("@stack-level=error", STACK, EnableFilters { stack_level: Some(2), ..no_filters() }),
        (
            "@stack-level=2@stack-keywords=0x4",
            STACK,
            EnableFilters { stack_level: Some(2), stack_keywords: Some(4), ..no_filters() },
        ),
    ] {
        let text = format!("A{options}");
        let request = parse_provider(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!((request.property, request.filters), (property, filters), "{text}");
    }
    let source = parse_provider("A@all=0x6@source={b3864c38-4273-58c5-545b-8b3608343471}").unwrap();
    assert_eq!((source.all_keywords, source.source), (6, MY_PROVIDER));
}

#[test]
fn lists_accept_three_separators() {
    for (text, names) in [
        ("A+B,C;D", &["A", "B", "C", "D"][..]),
        ("A:1:2, B::3 + C", &["A", "B", "C"]),
        ("A@ids=1,2,B", &["A", "B"]),
        ("A@ids=1,22e0e3a4-0000-0000-0000-000000000000", &["A", "{22e0e3a4-0000-0000-0000-000000000000}"]),
        ("A@names=x+B", &["A", "B"]),
        ("\"A,B\",C", &["A,B", "C"]),
        ("A:(1,2),B", &["A", "B"]),
        ("A 0x1 5,B", &["A", "B"]),
    ] {
        let ProviderList(providers) = parse_providers(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let resolved_names: Vec<_> = providers
            .iter()
            .map(|provider| provider.resolve(&ManifestNames::default()).unwrap().name)
            .collect();
        assert_eq!(resolved_names, names, "{text}");
    }
}

#[test]
fn errors_explain_and_mark_the_mistake() {
    for (text, marked, message_part) in [
        ("", "", "name"),
        (":1", ":", "name"),
        ("A,", "", "name"),
        ("A,,B", ",", "name"),
        ("#12", "12", "GUID"),
        ("{12}", "{12}", "GUID"),
        ("{b3864c38-4273", "{b3864c38-4273", "GUID"),
        ("A:zz", "zz", "0x"),
        ("A:0xzz", "0xzz", "keyword"),
        ("A:1|", "", "keyword"),
        ("A:(1,2", "", "closing"),
        ("A:1:loud", "loud", "critical"),
        ("A:1:256", "256", "255"),
        ("A:1:2:3", ":", "too many colons"),
        ("A:1:2 x", "x", "separator"),
        ("My Provider", "Provider", "quoted"),
        ("\"A", "\"A", "not closed"),
        ("A@", "@", "unknown option"),
        ("A@stak", "@stak", "stack"),
        ("A@stak=1", "stak", "stack"),
        ("A@stack=1", "stack", "no value"),
        ("A@ids", "@ids", "needs a value"),
        ("A@ids=", "", "event ids"),
        ("A@ids=x", "x", "event ids"),
        ("A@ids=5-2", "5-2", "65535"),
        ("A@ids=70000", "70000", "65535"),
        ("A@ids=1-65", "@ids=1-65", "64"),
        ("A@ids=1@not-ids=2", "@not-ids=2", "one of each"),
        ("A@pid=1,2,3,4,5,6,7,8,9", "@pid=1,2,3,4,5,6,7,8,9", "8"),
        ("A@pid=1-4000000000", "@pid=1-4000000000", "8"),
        ("A@pid=9-1", "9-1", "expected the id of a process"),
        ("A@names=Start,Stop", ",", "quote"),
        ("A@names=", "", "name"),
        ("A::4@level=5", "@level=5", "twice"),
        ("A@source=12", "12", "GUID"),
        ("A@payload=5", "5", "EVENT: FIELD"),
        ("A@payload=5:Port==443", "5:Port==443", "--manifest"),
        ("A@payload=\"5: Port == 443\"@stack", "\"5: Port == 443\"", "--manifest"),
        ("A@payload=0x00", "@payload=0x00", "payload filter"),
        ("A@schematized=1:0", "1:0", "ID:HEX"),
        ("A@schematized=00", "@schematized=00", "schematized filter"),
        ("A@schematized=1:00@schematized=1:00", "@schematized=1:00", "twice"),
        ("A@stack-nothing=1", "@stack-nothing=", "unknown option"),
    ] {
        let error = parse_provider(text).expect_err(text);
        assert!(error.contains(message_part), "{text}: {error}");
        let mut lines = error.lines().rev();
        let (carets, shown) = (lines.next().unwrap(), lines.next().unwrap());
        assert_eq!(shown.trim_start(), text.trim_start(), "{error}");
        let column = carets.find('^').unwrap();
        let marked_text: String = shown.chars().skip(column).take(carets.trim().len()).collect();
        assert_eq!(marked_text, marked, "{text}: {error}");
    }
    let long = format!("A@exe={}", "x".repeat(513));
    assert!(parse_provider(&long).unwrap_err().contains("1024"));
    let long = format!("A@names={}", "x".repeat(4076));
    assert!(parse_provider(&long).unwrap_err().contains("4096"));
    assert!(parse_provider("A+B").unwrap_err().contains("one provider"));
}

#[test]
fn names_of_a_manifest_resolve() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.man");
    let manifest = br#"<instrumentationManifest xmlns="http://schemas.microsoft.com/win/2004/08/events"><instrumentation><events>
        <provider name="Net Company" guid="{b3864c38-4273-58c5-545b-8b3608343471}">
          <keywords><keyword name="Network" mask="0x10"/><keyword name="Disk" mask="0x4"/></keywords>
          <events><event value="7"/></events></provider></events></instrumentation></instrumentationManifest>"#;
    std::fs::write(&file, manifest).unwrap();
    let names = ManifestNames::load(&[file]).unwrap();
    let resolve = |text: &str| parse_providers(text).unwrap().0[0].resolve(&names);
    let request = resolve("\"net company\":network|disk:4@all=Disk@stack-keywords=(Network)").unwrap();
    assert_eq!((request.guid, request.keywords, request.all_keywords), (MY_PROVIDER, 0x14, 4));
    assert_eq!(request.filters.stack_keywords, Some(0x10));
    assert_ne!(resolve("*\"Net Company\"").unwrap().guid, MY_PROVIDER, "* must ignore the manifest");
    let unknown = resolve("{b3864c38-4273-58c5-545b-8b3608343471}:Nett").unwrap_err().to_string();
    assert!(unknown.contains("Network (0x10), Disk (0x4)"), "{unknown}");
}

#[test]
fn provider_file_has_one_provider_per_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("providers.txt");
    let read_text = |text: &str| {
        std::fs::write(&file, text).unwrap();
        read_provider_file(&file, &ManifestNames::default())
    };
    let text =
        "# ours\r\nA:0x1:4\r\n\r\n{b3864c38-4273-58c5-545b-8b3608343471} (0x1,0x2) 0x5 # theirs\r\nC+D\r\n";
    let names: Vec<_> = read_text(text).ok().unwrap().into_iter().map(|p| p.name).collect();
    assert_eq!(names, ["A", "{b3864c38-4273-58c5-545b-8b3608343471}", "C", "D"]);
    let Err(ProviderFileError::Invalid(reason)) = read_text("A\nB:zz\n") else {
        panic!("an unknown keyword must make the file invalid")
    };
    assert!(reason.contains("providers.txt:2: ") && reason.contains("      ^^"), "{reason}");
    assert!(matches!(
        read_provider_file(folder.path(), &ManifestNames::default()),
        Err(ProviderFileError::Unreadable(_))
    ));
}

#[test]
fn filters_encode_to_documented_bytes() {
    let to_filters = |text: &str| parse_provider(text).unwrap().encode_filters(&[]);
    let filter = |kind, data: &[u8]| Filter::from_parts(kind, data.to_vec());
    assert_eq!(to_filters("A"), []);
    // Include (1) or exclude (0), reserved, count, ids.
    assert_eq!(to_filters("A@ids=1,0x102"), [filter(EVENT_FILTER_TYPE_EVENT_ID, &[1, 0, 2, 0, 1, 0, 2, 1])]);
    assert_eq!(to_filters("A@not-ids=3"), [filter(EVENT_FILTER_TYPE_EVENT_ID, &[0, 0, 1, 0, 3, 0])]);
    // Two keyword masks, level, include (1) or exclude (0), count, names.
    let names = [&[0; 16][..], &[0, 1, 2, 0], b"ab\0c\0"].concat();
    assert_eq!(to_filters("A@names=\"ab,c\""), [filter(EVENT_FILTER_TYPE_EVENT_NAME, &names)]);
    let names = [&[0; 16][..], &[0, 0, 1, 0], b"ab\0"].concat();
    assert_eq!(to_filters("A@not-names=ab"), [filter(EVENT_FILTER_TYPE_EVENT_NAME, &names)]);
    let name_list = b"a\0;\0b\0";
    for (option, kind) in [
        ("exe", EVENT_FILTER_TYPE_EXECUTABLE_NAME),
        ("package", EVENT_FILTER_TYPE_PACKAGE_ID),
        ("app", EVENT_FILTER_TYPE_PACKAGE_APP_ID),
        ("container", EVENT_FILTER_TYPE_CONTAINER),
    ] {
        assert_eq!(to_filters(&format!("A@{option}=\"a,b\"")), [filter(kind, name_list)]);
    }
    assert_eq!(to_filters("A@stack-ids=9"), [filter(EVENT_FILTER_TYPE_STACKWALK, &[1, 0, 1, 0, 9, 0])]);
    // Any-mask 4, all-mask 0, level 2, include, padding.
    let level = [&[4, 0, 0, 0, 0, 0, 0, 0][..], &[0; 8], &[2, 1], &[0; 6]].concat();
    assert_eq!(
        to_filters("A@stack-level=2@stack-keywords=4"),
        [filter(EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, &level)]
    );
    let every_option =
        "A@pid=1@exe=a@package=b@app=c@container=d@ids=1@names=n@stack-ids=1@stack-names=n@stack-level=1";
    let kinds: std::collections::BTreeSet<u32> = to_filters(every_option).iter().map(Filter::kind).collect();
    assert_eq!(kinds.len(), 10, "each option must encode its own filter type");
}

#[test]
fn process_filter_contains_little_endian_ids() {
    let request = parse_provider("A:1:2").unwrap();
    assert_eq!((request.level, request.keywords), (2, 1));
    let pids = Filter::from_parts(EVENT_FILTER_TYPE_PID, vec![1, 0, 0, 0, 2, 1, 0, 0]);
    assert_eq!(request.encode_filters(&[0x102, 1]), [pids]);
}

fn any_texts() -> impl Strategy<Value = Vec<String>> {
    // Any text without the characters that no list of names can contain.
    btree_set("[^;\\x00]{1,12}", 0..4).prop_map(|set| set.into_iter().collect())
}

fn any_ids() -> impl Strategy<Value = Vec<u16>> {
    btree_set(any::<u16>(), 0..=64).prop_map(|set| set.into_iter().collect())
}

fn any_inclusion_list<T: std::fmt::Debug>(
    list: impl Strategy<Value = Vec<T>>,
) -> impl Strategy<Value = Option<InclusionList<T>>> {
    (any::<bool>(), list)
        .prop_map(|(includes, list)| (!list.is_empty()).then_some(InclusionList { includes, list }))
}

/// Encodes a payload filter that compares the first field with a number.
fn encode_number_filter(number: u64) -> Vec<u8> {
    use traceweir_format::filter::payload::{Builder, Event, Field, Operand, Shape, Type};
    let mut event = Event::new(1, 0, false);
    let field = event.add_field(Field::single(Shape::Fixed(8))).unwrap();
    let kind = Type::Integer { bytes: 8, signed: false };
    event.add_predicate(field, kind, PayloadOperator::EQ, Operand::Number(number.into())).unwrap();
    let mut builder = Builder::new();
    builder.add(&event, false).unwrap();
    builder.finish().unwrap()
}

prop_compose! {
    fn any_filters()(
        ids in any_inclusion_list(any_ids()), names in any_inclusion_list(any_texts()), pids in btree_set(any::<u32>(), 0..=8),
        name_lists in vec(any_texts(), 4), stack_ids in any_ids(), stack_names in any_texts(),
        stack_level in any::<Option<u8>>(), stack_keywords in any::<Option<u64>>(),
        payload in proptest::option::of(any::<u64>()), schematized in proptest::option::of((any::<u16>(), any::<u8>(), vec(any::<u8>(), 0..9))),
    ) -> EnableFilters {
        // A name of only blanks is invalid.
        let remove_blank_names = |list: Vec<String>| list.into_iter().filter(|name| !name.trim().is_empty()).collect();
        let mut name_lists = name_lists.into_iter().map(remove_blank_names);
        let mut next_list = || name_lists.next().unwrap_or_default();
        EnableFilters {
            ids, names, pids: pids.into_iter().collect(), trees: Vec::new(), exes: next_list(), packages: next_list(), apps: next_list(),
            containers: next_list(), stack_ids, stack_names, stack_level, stack_keywords,
            payload: payload.map(encode_number_filter).unwrap_or_default(),
            schematized: schematized.map(|(id, version, data)| encode::schematized(id, version, &data)).unwrap_or_default(),
        }
    }
}

prop_compose! {
    fn any_enable_request()(
        name in proptest::option::of(".{1,20}"), guid in any::<u128>(), keywords: u64, all: u64, level: u8,
        property in 0_u32..0x1000, source in any::<u128>(),
        filters in any_filters(),
    ) -> EnableRequest {
        let id = Guid::from_u128(guid);
        let name = name.filter(|name| !name.is_empty());
        let guid = name.as_deref().map_or(id, Guid::from_provider_name);
        let f = &filters;
        let has_stacks = !f.stack_ids.is_empty() || !f.stack_names.is_empty() || f.stack_level.is_some() || f.stack_keywords.is_some();
        let property = if has_stacks { property | EVENT_ENABLE_PROPERTY_STACK_TRACE } else { property };
        let name = name.unwrap_or_else(|| format!("{{{guid}}}"));
        EnableRequest { name, guid, keywords, all_keywords: all, level, property, source: Guid::from_u128(source), filters }
    }
}

proptest! {
    #[test]
    fn printed_request_parses_to_an_equal_request(request in any_enable_request()) {
        let text = request.to_string();
        prop_assert_eq!(parse_provider(&text).map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?, request);
    }

    #[test]
    fn no_input_panics(text in "[A-c:@,;+#*{}()|\"\\\\ =0-9é]{0,40}") {
        let _ = parse_providers(&text);
    }
}

//! Tests of recording profiles with fixtures/profiles/shop.wprp and hostile files.

use proptest::prelude::*;

use super::*;

const SHOP: &str = include_str!("../../../../../fixtures/profiles/shop.wprp");

fn read(name: &str, prefers_memory: bool) -> ProfileResult<Profile> {
    parse(SHOP, parse_name(name).unwrap(), prefers_memory)
}

#[test]
fn names_have_file_profile_and_detail() {
    let split = |text| parse_name(text).map(|name| (name.file.to_str().unwrap(), name.profile, name.detail));
    assert_eq!(split("a.wprp"), Some(("a.wprp", None, None)));
    assert_eq!(split("x/A!b.WPRP!CPU"), Some(("x/A!b.WPRP", Some("CPU"), None)));
    assert_eq!(split("a.wprp!My.App.light"), Some(("a.wprp", Some("My.App"), Some("light"))));
    for other in ["cpu", "", "wprp", "a.toml", "a!b", "é.wpr"] {
        assert_eq!(split(other), None, "{other}");
    }
}

#[test]
fn profile_has_the_lists_of_its_bases() {
    let profile = read("shop.wprp", false).unwrap();
    assert_eq!(profile.description, "Orders, with processor time");
    assert_eq!(
        profile.providers,
        [
            "Traceweir.Demo.CoffeeShop:0x21:4@stack",
            "{b3864c38-4273-58c5-545b-8b3608343471}@ids=1,7@exe=till@exe=printer",
            "Microsoft-Windows-Kernel-Power",
        ]
    );
    assert_eq!(profile.kernel, "process,thread,image_load,profile,cswitch,dispatcher");
    assert_eq!(profile.stacks, "PerfInfo/SampleProf,Thread/CSwitch");
    assert!(profile.is_kernel_optional);
    let buffers = BufferPlan { buffer_kib: 1024, total_kib: 16 * 1024 + 32 * 128, is_in_memory: false };
    assert_eq!(profile.buffers, Some(buffers));
    let notes = profile.notes.join("\n");
    for note in [
        "keyword Registry: Linux has no registry",
        "stack ThreadPoolCallbackStart: ",
        "PoolTags: ",
        "NonPagedMemory: ",
        "provider Microsoft-Windows-Kernel-Power: a part of Windows",
    ] {
        assert_eq!(notes.matches(note).count(), 1, "{note} in\n{notes}");
    }
    assert_eq!(profile.notes.len(), 5, "{notes}");
}

#[test]
fn variant_is_chosen_by_detail_and_destination() {
    let light = read("shop.wprp!Shop.Light", false).unwrap();
    assert_eq!((light.providers.len(), light.kernel.as_str()), (1, ""));
    let is_in_memory = |profile: Profile| profile.buffers.unwrap().is_in_memory;
    assert!(!is_in_memory(read("shop.wprp!shop", false).unwrap()));
    assert!(is_in_memory(read("shop.wprp!Shop", true).unwrap()));
    let audit = read("shop.wprp!Audit", false).unwrap();
    assert_eq!(audit.providers, ["*\"Contoso.Audit\\ \\\"A\\\"\":0x0:2"]);
    assert_eq!(audit.buffers, Some(BufferPlan { buffer_kib: 64, total_kib: 2048, is_in_memory: true }));
    assert_eq!(audit.notes, ["HeapEventCollector: Linux has no such events"]);
    for (name, expected) in
        [("shop.wprp!Nothing", "its profiles: Audit, Shop"), ("shop.wprp!Audit.Light", "no variant")]
    {
        let error = read(name, false).unwrap_err();
        assert!(error.reason.contains(expected), "{error:?}");
    }
    let undecided = SHOP.replace(" Default=\"true\"", "").replace("\n        Default=\"true\"", "");
    let error = parse(&undecided, parse_name("a.wprp").unwrap(), false).unwrap_err();
    assert!(error.reason.ends_with("add !NAME, one of Audit, Shop"), "{error:?}");
}

/// Returns a file with these definitions, and a profile with one system and one event provider.
fn file_with(definitions: &str, system: &str, events: &str) -> String {
    format!(
        "<WindowsPerformanceRecorder><Profiles><SystemCollector Id=\"S\"/><EventCollector Id=\"E\"/>\n{definitions}\n\
         <Profile Id=\"P\" Name=\"P\"><Collectors><SystemCollectorId Value=\"S\">{system}</SystemCollectorId>\
         <EventCollectorId Value=\"E\">{events}</EventCollectorId></Collectors></Profile></Profiles></WindowsPerformanceRecorder>"
    )
}

#[test]
fn mistakes_and_hostile_definitions_are_errors() {
    let circle = "<EventProvider Id='a' Name='A' Base='b'/><EventProvider Id='b' Name='B' Base='a'/>";
    let many: String =
        (0..=MAX_PROVIDERS).map(|n| format!("<EventProvider Id='i{n}' Name='N{n}'/>")).collect();
    for (text, expected) in [
        (file_with("", "<SystemProviderId Value='x'/>", ""), "the provider \"x\" is not in this file"),
        (file_with("", "", "<EventProviderId/>"), "no attribute Value"),
        (file_with("", "", "<EventProvider Id='a'/>"), "no Name"),
        (file_with("", "", "<EventProvider Id='a' Name='A' Level='256'/>"), "not a level"),
        (
            file_with(
                "",
                "",
                "<EventProvider Id='a' Name='A'><Keywords><Keyword Value='x'/></Keywords></EventProvider>",
            ),
            "not a keyword mask",
        ),
        (file_with("", "", "<EventProvider Id='a' Name='A' Base='z'/>"), "the base \"z\""),
        (file_with(circle, "", "<EventProviderId Value='a'/>"), "circle"),
        (file_with("<EventCollector Id='E'/>", "", ""), "already defined in line 1"),
        (file_with("", "", &many), "at most 256 providers"),
        (file_with("", "", ""), "records nothing on Linux"),
        ("<Other/>".to_owned(), "not a recording profile"),
    ] {
        let error = parse(&text, parse_name("a.wprp").unwrap(), false).unwrap_err();
        assert!(error.reason.contains(expected), "{text:.300}\n{error:?}");
    }
}

#[test]
fn names_cannot_break_out_of_the_syntax_of_providers() {
    for name in ["A,B", "A\"+*", "A@exe=x", "A:0xFF", "A\\", "*A*,B", "A&#10;B"] {
        let text =
            file_with("", "", &format!("<EventProvider Id='a' Name='{}'/>", name.replace('"', "&quot;")));
        let profile = parse(&text, parse_name("a.wprp").unwrap(), false).unwrap();
        let request = crate::grammar::parse_provider(&profile.providers[0]).unwrap();
        let expected = name.replace("&#10;", "\n");
        assert_eq!(request.name, expected.strip_prefix('*').unwrap_or(&expected), "{}", profile.providers[0]);
        assert_eq!((request.keywords, request.level, &request.filters.exes[..]), (0, 0, &[][..]));
    }
}

#[test]
fn memory_of_buffers_is_limited() {
    let sizes = "<BufferSize Value='4294967295'/><Buffers Value='4294967295'/>";
    let events = format!("{sizes}<EventProvider Id='a' Name='A'/>");
    let profile = parse(&file_with("", "", &events), parse_name("a.wprp").unwrap(), true).unwrap();
    assert_eq!(profile.buffers.unwrap().total_kib, MAX_TOTAL_KIB);
    let mut shape = crate::cli::ShapeArgs::default();
    profile.buffers.unwrap().fill_in(&mut shape);
    assert_eq!((shape.buffer_size, shape.max_buffers), (Some(16384), Some(32)));
}

#[test]
fn utf16_files_are_read() {
    let utf16: Vec<u8> = [0xFEFF].into_iter().chain(SHOP.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    assert_eq!(decode(&utf16).unwrap(), SHOP);
    assert!(decode(&utf16[..utf16.len() - 1]).is_err());
    assert!(decode(b"\xff\xff").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn changed_files_are_read_or_refused(at in 0..SHOP.len(), removed in 0_usize..200, inserted in "[<>/=\"' a-zA-Z&;!.0-9]{0,12}") {
        let mut bytes = SHOP.as_bytes().to_vec();
        let end = (at + removed).min(bytes.len());
        bytes.splice(at..end, inserted.bytes());
        if let Ok(text) = decode(&bytes) {
            let _ = parse(&text, parse_name("a.wprp").unwrap(), false);
        }
    }
}

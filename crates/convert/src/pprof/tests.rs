//! Reads the written profile with a reader of protocol buffers of its own.

use std::io::Read;

use flate2::read::GzDecoder;
use traceweir_analysis::text::Moment;
use traceweir_format::kernel::hook;

use super::tables::MAX_TEXTS;
use super::*;
use crate::activity::test_input::kernel_trace::Switch as TestSwitch;
use crate::activity::test_input::{FIXTURES, TestTrace, fixture, input, write_turns};
use crate::protobuf::reader::{messages, number};

/// A sample: functions innermost first, values, labels.
#[derive(Debug, PartialEq)]
struct ReadSample {
    functions: Vec<String>,
    values: Vec<u64>,
    labels: Vec<(String, String)>,
}

struct ReadProfile {
    types: Vec<String>,
    samples: Vec<ReadSample>,
    mappings: usize,
}

fn unpack(bytes: &[u8]) -> Vec<u64> {
    let mut values = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let mut field = vec![8];
        field.extend_from_slice(&rest[..end]);
        values.push(number(&field, 1).unwrap());
        rest = &rest[end..];
    }
    values
}

fn convert_to_profile(input: &ConvertInput) -> ReadProfile {
    let mut compressed = Vec::new();
    let conversion = convert(input, &mut compressed).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(&compressed[..]).read_to_end(&mut bytes).unwrap();
    let texts: Vec<String> = messages(&bytes, field::STRING_TABLE)
        .into_iter()
        .map(|text| String::from_utf8(text.to_vec()).unwrap())
        .collect();
    assert_eq!(texts[0], "");
    let text = |message: &[u8], field| texts[number(message, field).unwrap_or(0) as usize].clone();
    let functions: HashMap<u64, String> = messages(&bytes, field::FUNCTION)
        .into_iter()
        .map(|function| (number(function, field::ID).unwrap(), text(function, field::FUNCTION_NAME)))
        .collect();
    let mappings = messages(&bytes, field::MAPPING).len();
    let locations: HashMap<u64, Vec<String>> = messages(&bytes, field::LOCATION)
        .into_iter()
        .map(|location| {
            assert!(number(location, field::LOCATION_MAPPING).unwrap_or(0) <= mappings as u64);
            let lines = messages(location, field::LOCATION_LINE);
            let function = |line: &&[u8]| functions[&number(line, field::LINE_FUNCTION).unwrap()].clone();
            (number(location, field::ID).unwrap(), lines.iter().map(function).collect())
        })
        .collect();
    let read_sample = |sample: &[u8]| {
        let ids = messages(sample, field::SAMPLE_LOCATION_ID).into_iter().flat_map(unpack);
        let labels = messages(sample, field::SAMPLE_LABEL).into_iter().map(|label| {
            let value = match number(label, field::LABEL_NUMBER) {
                Some(value) => value.to_string(),
                None => text(label, field::LABEL_TEXT),
            };
            (text(label, field::LABEL_KEY), value)
        });
        ReadSample {
            functions: ids.flat_map(|id| locations[&id].clone()).collect(),
            values: messages(sample, field::SAMPLE_VALUE).into_iter().flat_map(unpack).collect(),
            labels: labels.collect(),
        }
    };
    let samples: Vec<ReadSample> = messages(&bytes, field::SAMPLE).into_iter().map(read_sample).collect();
    assert_eq!(samples.len() as u64, conversion.written);
    let types = messages(&bytes, field::SAMPLE_TYPE);
    let name = |kind: &&[u8]| format!("{}/{}", text(kind, field::VALUE_TYPE), text(kind, field::VALUE_UNIT));
    ReadProfile { types: types.iter().map(name).collect(), samples, mappings }
}

#[test]
fn kernel_trace_has_its_samples_with_labels() {
    let profile = convert_to_profile(&input(&[fixture("kernel")]));
    assert_eq!(profile.types, ["samples/count", "cpu/nanoseconds", "off-cpu/nanoseconds"]);
    let total = |index: usize| profile.samples.iter().map(|sample| sample.values[index]).sum::<u64>();
    // The sampling interval of the trace is 1 ms.
    assert_eq!((total(0), total(1)), (2, 2_000_000));
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let labels = [
        label("process", "child.exe"),
        label("thread", "renamed"),
        label("pid", "3000"),
        label("tid", "3004"),
    ];
    assert_eq!(profile.samples[0].labels, labels);
    assert!(profile.mappings > 0);
}

#[test]
fn waits_belong_to_the_stack_where_they_began() {
    let trace = TestTrace::write(0, |writer| {
        writer.put_process(70, "app.exe", "").unwrap();
        writer.put_thread(70, 71).unwrap();
        let switch = |new_tid, old_tid, old_state| TestSwitch { new_tid, old_tid, old_state, wait_reason: 6 };
        writer.put_switch(1, 100, switch(71, 0, 2)).unwrap();
        writer.put_switch(1, 250, switch(0, 71, 5)).unwrap();
        writer.put_stack(1, 250, 70, 71, &[0x1000, 0x2000]).unwrap();
        writer.put_switch(1, 300, switch(71, 0, 2)).unwrap();
        // A preemption is no wait.
        writer.put_switch(1, 400, switch(0, 71, 1)).unwrap();
        writer.put_switch(1, 900, switch(71, 0, 2)).unwrap();
    });
    let profile = convert_to_profile(&trace.input());
    assert_eq!(profile.types, ["off-cpu/nanoseconds"]);
    assert_eq!(profile.samples.len(), 1);
    assert_eq!((profile.samples[0].values.as_slice(), profile.samples[0].functions.len()), (&[5000][..], 2));
}

#[test]
fn all_fixtures_become_readable_profiles() {
    let mut empty = 0;
    for name in FIXTURES {
        let input = input(&[fixture(name)]);
        match convert(&input, &mut Vec::new()) {
            Ok(_) => assert!(!convert_to_profile(&input).samples.is_empty(), "{name}"),
            Err(error) => {
                assert!(error.to_string().contains("no samples"), "{name}: {error}");
                empty += 1;
            }
        }
    }
    assert!(empty < FIXTURES.len());
    let profile = convert_to_profile(&TestTrace::generate(1 << 20).input());
    assert!(profile.samples.iter().map(|sample| sample.values[0]).sum::<u64>() > 100);
    assert!(profile.samples.iter().any(|sample| sample.functions.len() > 2));
}

#[test]
fn number_of_rows_is_limited() {
    let mut profile = Profile::new();
    let values = Values { samples: 1, cpu_ns: 0, off_cpu_ns: 0 };
    for thread in 0..MAX_ROWS as u32 + 100 {
        profile.add_values(NodeIndex::ROOT, Some(ThreadIndex(thread)), values);
    }
    assert!(profile.rows.len() <= MAX_ROWS + 1 && profile.over_limit == 100);
    assert_eq!(profile.rows.values().map(|values| values.samples).sum::<u64>(), MAX_ROWS as u64 + 100);
}

#[test]
fn own_texts_and_the_other_location_are_those_of_no_trace() {
    let mut profile = Profile::new();
    for number in 0..MAX_TEXTS {
        profile.texts.find_or_add(&number.to_string().into());
    }
    assert_eq!(profile.texts.find_or_add(&"one more".into()), None);
    let own = profile.texts.find_or_add(&"off-cpu".into());
    assert!(own.is_some() && own == Some(profile.own.off_cpu));
    // The fields of the location that stands for others.
    let lines = vec![LineKey { name: profile.own.other, file: EMPTY, line: 0 }];
    let like_other = LocationKey { address: 0, mapping: None, lines };
    assert_ne!(profile.find_location(like_other), OTHER_ID);
    let mut out = Vec::new();
    let needed = NeededActivity { events: false, event_stacks: false };
    let summary = read_activity(&input(&[fixture("kernel")]), needed, |_, _| Ok(())).unwrap();
    profile.has_samples = true;
    profile.write(&summary.tables, 0, &mut out).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(&out[..]).read_to_end(&mut bytes).unwrap();
    let texts = messages(&bytes, field::STRING_TABLE);
    let kind = messages(&bytes, field::SAMPLE_TYPE)[0];
    assert_eq!(texts[number(kind, field::VALUE_TYPE).unwrap() as usize], b"samples");
    let ids: Vec<_> = messages(&bytes, field::FUNCTION).into_iter().map(|f| number(f, field::ID)).collect();
    assert_eq!(ids, [Some(1), Some(2)]);
}

#[test]
fn locations_with_many_functions_are_limited() {
    let mut profile = Profile::new();
    let lines = vec![LineKey { name: 0, file: 0, line: 0 }; 1 << 10];
    let mut find =
        |address| profile.find_location(LocationKey { address, mapping: None, lines: lines.clone() });
    let ids: Vec<u32> = (0..(MAX_LINES >> 10) as u64 + 5).map(&mut find).collect();
    assert_eq!(ids.iter().filter(|id| **id == OTHER_ID).count(), 5);
    assert_eq!(find(7), ids[7]);
}

#[test]
fn filters_select_whole_waits_of_threads() {
    let trace = write_turns();
    for (pid, off_cpu_ns) in [(70, 5000), (80, 15_000 + 10_000)] {
        let mut input = trace.input();
        input.criteria.pids = vec![pid];
        let profile = convert_to_profile(&input);
        let label = ("pid".to_owned(), pid.to_string());
        assert!(profile.samples.iter().all(|sample| sample.labels.contains(&label)), "{:?}", profile.samples);
        assert_eq!(profile.samples.iter().map(|sample| sample.values[0]).sum::<u64>(), off_cpu_ns, "{pid}");
    }
}

#[test]
fn waits_are_cut_at_the_start_of_the_time_span() {
    let trace = write_turns();
    let mut input = trace.input();
    input.criteria.from = Some(Moment::Offset(270));
    let profile = convert_to_profile(&input);
    let mut waits: Vec<u64> = profile.samples.iter().map(|sample| sample.values[0]).collect();
    waits.sort_unstable();
    assert_eq!(waits, [3000, 10_000]);
    input.criteria.from = Some(Moment::Offset(500));
    let error = convert(&input, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("no samples and no waits"), "{error}");
}

#[test]
fn end_of_a_thread_is_no_missing_switch() {
    let trace = TestTrace::write(0, |writer| {
        writer.put_process(70, "app.exe", "").unwrap();
        writer.put_thread(70, 71).unwrap();
        let payload = writer.payload.clone();
        let switch = |new_tid, old_tid| TestSwitch { new_tid, old_tid, old_state: 5, wait_reason: 6 };
        writer.put_switch(1, 100, switch(71, 0)).unwrap();
        writer.payload = payload;
        writer.put_system(hook::THREAD_END, 3, 1, 200).unwrap();
        // The switch away from the thread that ended is missing.
        writer.put_switch(1, 300, switch(81, 0)).unwrap();
        writer.put_switch(1, 400, switch(0, 81)).unwrap();
        writer.put_switch(1, 500, switch(81, 0)).unwrap();
    });
    let conversion = convert(&trace.input(), &mut Vec::new()).unwrap();
    assert!(conversion.notes.iter().all(|note| !note.contains("missing")), "{:?}", conversion.notes);
}

#[test]
fn process_of_an_undescribed_thread_is_that_of_its_stacks() {
    let trace = TestTrace::write(0, |writer| {
        writer.put_sample(0, 100, 71, 0x1000).unwrap();
        writer.put_stack(0, 100, 70, 71, &[0x1000, 0x2000]).unwrap();
        writer.put_sample(0, 200, 81, 0x1000).unwrap();
    });
    let mut input = trace.input();
    input.criteria.pids = vec![70];
    let profile = convert_to_profile(&input);
    assert_eq!(profile.samples.len(), 1);
    assert_eq!((profile.samples[0].values[0], profile.samples[0].functions.len()), (1, 2));
    assert!(profile.samples[0].labels.contains(&("pid".to_owned(), "70".to_owned())));
}

//! Reads the written packets with a reader of protocol buffers of its own.

use std::collections::{BTreeMap, HashMap};

use traceweir_analysis::text::Moment;

use super::fields::{annotation, clock, descriptor, ftrace, packet, perf_sample, sched};
use super::scheduling::{OTHER_TID, UNKNOWN_TID};
use super::writer::SEQUENCE;
use super::*;
use crate::activity::test_input::kernel_trace::{KernelWriter, Packet, Switch as TestSwitch, Transfer};
use crate::activity::test_input::{FIXTURES, TestTrace, fixture, input, write_turns};
use crate::perfetto::fields::interned;
use crate::protobuf::reader::{FieldBytes, messages, number, parse};

fn convert_to_bytes(input: &ConvertInput) -> (Vec<u8>, Conversion) {
    let mut bytes = Vec::new();
    let conversion = convert(input, &mut bytes).unwrap();
    (bytes, conversion)
}

fn texts(message: &[u8], field: u32) -> Vec<String> {
    messages(message, field).into_iter().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect()
}

/// What a reader of a trace knows after each packet, and counts of what it has seen.
#[derive(Default)]
struct Reader {
    event_names: HashMap<u64, String>,
    field_names: HashMap<u64, String>,
    functions: HashMap<u64, String>,
    mappings: HashMap<u64, u64>,
    frames: HashMap<u64, (u64, u64)>,
    stacks: HashMap<u64, Vec<u64>>,
    tracks: HashMap<u64, String>,
    open: BTreeMap<u64, Vec<String>>,
    names: Vec<String>,
    samples: u64,
    sample_stacks: Vec<Vec<String>>,
    switches: u64,
    wakes: u64,
    dropped: u64,
    clears: u64,
    counters: BTreeMap<String, f64>,
}

impl Reader {
    fn read(bytes: &[u8]) -> Self {
        let mut reader = Self::default();
        for packet_bytes in messages(bytes, packet::PACKET) {
            reader.add(packet_bytes);
        }
        reader
    }

    fn add(&mut self, bytes: &[u8]) {
        assert_eq!(number(bytes, packet::SEQUENCE_ID), Some(SEQUENCE));
        let flags = number(bytes, packet::SEQUENCE_FLAGS).unwrap_or(0);
        if flags & packet::INCREMENTAL_STATE_CLEARED != 0 {
            self.clears += 1;
            for ids in [&mut self.event_names, &mut self.field_names, &mut self.functions] {
                ids.clear();
            }
            self.frames.clear();
            self.stacks.clear();
            self.mappings.clear();
        }
        self.dropped += number(bytes, packet::PREVIOUS_PACKET_DROPPED).unwrap_or(0);
        for data in messages(bytes, packet::INTERNED_DATA) {
            assert!(flags & packet::NEEDS_INCREMENTAL_STATE != 0);
            self.add_interned(data);
        }
        for descriptor_bytes in messages(bytes, packet::TRACK_DESCRIPTOR) {
            let uuid = number(descriptor_bytes, descriptor::UUID).unwrap();
            let names = texts(descriptor_bytes, descriptor::NAME);
            assert!(self.tracks.insert(uuid, names.concat()).is_none(), "a track is described once");
        }
        for event_bytes in messages(bytes, packet::TRACK_EVENT) {
            self.add_event(event_bytes);
        }
        for sample in messages(bytes, packet::PERF_SAMPLE) {
            self.samples += number(sample, perf_sample::TIMEBASE_COUNT).unwrap();
            let stack = number(sample, perf_sample::CALLSTACK_IID).map_or(&[][..], |iid| &self.stacks[&iid]);
            let name = |frame: &u64| self.functions[&self.frames[frame].0].clone();
            self.sample_stacks.push(stack.iter().map(name).collect());
        }
        for bundle in messages(bytes, packet::FTRACE_EVENTS) {
            for ftrace_event in messages(bundle, ftrace::EVENT) {
                self.switches += messages(ftrace_event, ftrace::SCHED_SWITCH).len() as u64;
                self.wakes += messages(ftrace_event, ftrace::SCHED_WAKING).len() as u64;
            }
        }
    }

    fn add_interned(&mut self, data: &[u8]) {
        let lists = [
            (interned::EVENT_NAMES, &mut self.event_names),
            (interned::DEBUG_ANNOTATION_NAMES, &mut self.field_names),
            (interned::FUNCTION_NAMES, &mut self.functions),
        ];
        for (field, ids) in lists {
            for entry in messages(data, field) {
                let text = texts(entry, interned::TEXT).concat();
                let old = ids.insert(number(entry, interned::IID).unwrap(), text);
                assert!(old.is_none(), "an id is given once");
            }
        }
        for entry in messages(data, interned::MAPPINGS) {
            self.mappings.insert(number(entry, interned::IID).unwrap(), 0);
        }
        for entry in messages(data, interned::FRAMES) {
            let function = number(entry, interned::FRAME_FUNCTION).unwrap();
            let mapping = number(entry, interned::FRAME_MAPPING).unwrap();
            assert!(self.mappings.contains_key(&mapping));
            self.frames.insert(number(entry, interned::IID).unwrap(), (function, mapping));
        }
        for entry in messages(data, interned::CALLSTACKS) {
            let is_frame = |(field, value)| match value {
                FieldBytes::Number(iid) if field == interned::STACK_FRAME_IDS => Some(iid),
                _ => None,
            };
            let frames: Vec<u64> = parse(entry).unwrap().into_iter().filter_map(is_frame).collect();
            assert!(frames.iter().all(|frame| self.frames.contains_key(frame)));
            self.stacks.insert(number(entry, interned::IID).unwrap(), frames);
        }
    }

    fn add_event(&mut self, bytes: &[u8]) {
        let track = number(bytes, event::TRACK_UUID).unwrap();
        assert!(self.tracks.contains_key(&track), "a track is described before its first event");
        let name = number(bytes, event::NAME_IID).map(|iid| self.event_names[&iid].clone());
        for annotation_bytes in messages(bytes, event::DEBUG_ANNOTATIONS) {
            assert!(self.field_names.contains_key(&number(annotation_bytes, annotation::NAME_IID).unwrap()));
        }
        match number(bytes, event::TYPE).unwrap() {
            event::SLICE_BEGIN => {
                self.open.entry(track).or_default().push(name.clone().unwrap());
                self.names.extend(name);
            }
            event::SLICE_END => {
                assert!(self.open.get_mut(&track).unwrap().pop().is_some(), "a slice begins before it ends");
            }
            event::INSTANT => self.names.extend(name),
            event::COUNTER => {
                let is_value = |(field, value)| match value {
                    FieldBytes::Fixed(bits) if field == event::DOUBLE_COUNTER_VALUE => {
                        Some(f64::from_bits(bits))
                    }
                    _ => None,
                };
                let value = parse(bytes).unwrap().into_iter().find_map(is_value).unwrap();
                self.counters.insert(self.tracks[&track].clone(), value);
            }
            kind => panic!("an event of type {kind}"),
        }
    }
}

#[test]
fn kernel_trace_has_its_samples_switches_and_transfers() {
    let (bytes, conversion) = convert_to_bytes(&input(&[fixture("kernel")]));
    let reader = Reader::read(&bytes);
    assert_eq!((reader.samples, reader.switches, reader.wakes), (2, 2, 1));
    assert_eq!(reader.sample_stacks[0].len(), 3, "{:?}", reader.sample_stacks);
    assert_eq!(reader.counters["Disk 0 read bytes"], 4096.0);
    assert_eq!(conversion.written, messages(&bytes, packet::PACKET).len() as u64);
    let first = messages(&bytes, packet::PACKET)[0];
    let clocks = messages(messages(first, packet::CLOCK_SNAPSHOT)[0], clock::CLOCKS);
    let times: Vec<Option<u64>> = clocks.iter().map(|clock| number(clock, clock::CLOCK_TIMESTAMP)).collect();
    // An hour after boot, on 2024-05-01 at 10:00.
    let hour = 3600 * 1_000_000_000;
    assert_eq!(times, [Some(hour), Some(hour), Some(1_714_557_600 * 1_000_000_000)]);
}

#[test]
fn all_fixtures_become_readable_traces() {
    for name in FIXTURES {
        let (bytes, conversion) = convert_to_bytes(&input(&[fixture(name)]));
        let reader = Reader::read(&bytes);
        assert!(reader.open.values().all(Vec::is_empty), "{name}: every slice ends");
        assert!(conversion.events > 0, "{name}");
    }
}

#[test]
fn busy_trace_keeps_all_stacks() {
    let trace = TestTrace::generate(1 << 20);
    let reader = Reader::read(&convert_to_bytes(&trace.input()).0);
    assert!(reader.samples > 100 && reader.samples == reader.sample_stacks.len() as u64);
    assert!(reader.sample_stacks.iter().all(|stack| !stack.is_empty()));
    assert_eq!(reader.clears, 1);
}

#[test]
fn loss_drops_the_interned_state() {
    let write = |writer: &mut KernelWriter| {
        let packet = Packet { pid: 70, bytes: 5, local_port: 1, is_sent: true };
        writer.put_packet(1, 100, packet).unwrap();
        writer.flush().unwrap();
        writer.flag_loss(1).unwrap();
        writer.put_packet(1, 200, packet).unwrap();
    };
    let trace = TestTrace::write(3, write);
    let reader = Reader::read(&convert_to_bytes(&trace.input()).0);
    assert_eq!((reader.dropped, reader.clears), (2, 3));
    assert_eq!(reader.names, ["TCP send", "Lost events", "TCP send", "Lost events"]);
    assert_eq!(reader.counters["TCP send bytes"], 10.0);
}

#[test]
fn disk_operations_that_overlap_are_on_different_tracks() {
    let trace = TestTrace::write(0, |writer| {
        for (end, duration) in [(100, 90), (110, 90), (300, 10)] {
            let (tid, file, bytes, is_write) = (0, 0, 512, false);
            writer.put_transfer(0, end, Transfer { tid, file, bytes, is_write, duration }).unwrap();
        }
    });
    let reader = Reader::read(&convert_to_bytes(&trace.input()).0);
    let disks = reader.tracks.values().filter(|name| *name == "Disk 0").count();
    assert_eq!((disks, reader.names.len()), (2, 3));
}

#[test]
fn switch_to_an_unknown_thread_is_not_idle_time() {
    let trace = TestTrace::write(0, |writer| {
        let (new_tid, old_tid, old_state, wait_reason) = (u32::MAX, 71, 5, 6);
        writer.put_switch(0, 100, TestSwitch { new_tid, old_tid, old_state, wait_reason }).unwrap();
    });
    let (bytes, _) = convert_to_bytes(&trace.input());
    let bundles: Vec<&[u8]> = messages(&bytes, packet::PACKET)
        .into_iter()
        .flat_map(|p| messages(p, packet::FTRACE_EVENTS))
        .collect();
    let switch = messages(messages(bundles[0], ftrace::EVENT)[0], ftrace::SCHED_SWITCH)[0];
    assert_eq!(number(switch, sched::NEXT_PID), Some(UNKNOWN_TID.into()));
    assert_eq!(number(switch, sched::PREV_STATE), Some(sched::STATE_INTERRUPTIBLE));
}

/// Returns the time and the thread ids of each switch, in the order of the output.
fn read_switches(input: &ConvertInput) -> Vec<(u64, [u64; 2])> {
    let (bytes, _) = convert_to_bytes(input);
    let bundles: Vec<&[u8]> = messages(&bytes, packet::PACKET)
        .into_iter()
        .flat_map(|p| messages(p, packet::FTRACE_EVENTS))
        .collect();
    let switches = bundles.iter().flat_map(|bundle| messages(bundle, ftrace::EVENT));
    let read = |event: &[u8]| {
        let switch = *messages(event, ftrace::SCHED_SWITCH).first()?;
        let tids = [sched::PREV_PID, sched::NEXT_PID].map(|field| number(switch, field).unwrap());
        Some((number(event, ftrace::TIMESTAMP).unwrap(), tids))
    };
    switches.filter_map(read).collect()
}

#[test]
fn other_threads_have_no_names_in_a_filtered_trace() {
    let trace = write_turns();
    let mut input = trace.input();
    input.criteria.pids = vec![70];
    let other = u64::from(OTHER_TID);
    let tids: Vec<[u64; 2]> = read_switches(&input).into_iter().map(|(_, tids)| tids).collect();
    assert_eq!(tids, [[other, 71], [71, other], [other, 71], [71, other]]);
}

#[test]
fn threads_that_ran_before_the_time_span_run_from_its_start() {
    let trace = write_turns();
    let mut input = trace.input();
    let whole = read_switches(&input);
    let start = whole[0].0 - 10_000;
    input.criteria.from = Some(Moment::Offset(270));
    let cut = read_switches(&input);
    assert_eq!(cut, [(start + 27_000, [OTHER_TID.into(), 81]), whole[2], whole[3]]);
    // No event follows.
    input.criteria.from = Some(Moment::Offset(500));
    assert!(read_switches(&input).is_empty());
}

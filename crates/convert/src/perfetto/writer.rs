//! Writes packets with the interned data that they need.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use anyhow::Result;
use traceweir_analysis::text::format_count;

use super::fields::{defaults, packet};
use super::interning::Interning;
use super::tracks::{TrackUuid, Tracks};
use crate::activity::{ActivityTables, SliceId, StackFrame, Switch};
use crate::protobuf::Message;

/// The sequence of all packets.
pub(super) const SEQUENCE: u64 = 1;
/// Bytes of the output to collect before they are written.
const OUTPUT_BYTES: usize = 1 << 16;

/// Writes packets.
pub(super) struct PerfettoWriter<'o> {
    out: &'o mut dyn Write,
    output: Message,
    pub(super) packet: Message,
    pub(super) packets: u64,
    /// The time of the first trace's start in the trace, in nanoseconds.
    pub(super) start_ns: Option<u64>,
    pub(super) interning: Interning,
    /// Interned data that the next packet must contain.
    pub(super) new_interned: Message,
    is_cleared: bool,
    /// The sampling interval that the defaults of the sequence contain.
    pub(super) interval_ns: Option<u64>,
    pub(super) tracks: Tracks,
    /// The tracks of open slices.
    pub(super) open: HashMap<SliceId, TrackUuid>,
    /// Scheduling events of each processor.
    pub(super) bundles: BTreeMap<u32, Message>,
    pub(super) bundle_bytes: usize,
    /// Sums of the counters of transfers.
    pub(super) totals: BTreeMap<String, u64>,
    pub(super) idle_samples: u64,
    /// The last switch on each processor before the time span of the filters, with its time.
    pub(super) first_switches: BTreeMap<u32, (i64, Switch)>,
    /// The last switch on each processor: whether the filters select the run that it begins.
    pub(super) selected_runs: BTreeMap<u32, bool>,
}

impl<'o> PerfettoWriter<'o> {
    pub(super) fn new(out: &'o mut dyn Write) -> Self {
        Self {
            out,
            output: Message::default(),
            packet: Message::default(),
            packets: 0,
            start_ns: None,
            interning: Interning::default(),
            new_interned: Message::default(),
            is_cleared: true,
            interval_ns: None,
            tracks: Tracks::default(),
            open: HashMap::new(),
            bundles: BTreeMap::new(),
            bundle_bytes: 0,
            totals: BTreeMap::new(),
            idle_samples: 0,
            first_switches: BTreeMap::new(),
            selected_runs: BTreeMap::new(),
        }
    }

    pub(super) fn describe_missing(&self, notes: &mut Vec<String>) {
        if self.packets == 0 {
            notes.push("the traces contain nothing that a Perfetto trace shows".to_owned());
        }
        if self.idle_samples > 0 {
            notes.push(format!(
                "samples of idle processors left out: {}",
                format_count(self.idle_samples, "sample")
            ));
        }
        if self.tracks.is_full() {
            notes.push(
                "there are too many tracks; some slices and counters are on tracks of others".to_owned(),
            );
        }
    }

    pub(super) fn intern_stack(&mut self, tables: &ActivityTables, stack: &[StackFrame]) -> Option<u64> {
        if stack.is_empty() {
            return None;
        }
        // New entries must not be cleared before the packet that refers to them.
        if self.interning.is_full() {
            self.clear_interned();
        }
        Some(self.interning.intern_stack(&tables.stacks, stack, &mut self.new_interned))
    }

    /// Forgets all interned data: the next packet clears the state of the sequence.
    pub(super) fn clear_interned(&mut self) {
        self.interning = Interning::default();
        self.new_interned.clear();
        self.is_cleared = true;
    }

    /// Begins a packet that refers to interned data, with the data that earlier packets lack.
    pub(super) fn begin_interned_packet(&mut self, at: u64) {
        self.packet.put_u64(packet::TIMESTAMP, at);
        let cleared = if self.is_cleared { packet::INCREMENTAL_STATE_CLEARED } else { 0 };
        self.packet.put_u64(packet::SEQUENCE_FLAGS, packet::NEEDS_INCREMENTAL_STATE | cleared);
        if self.is_cleared {
            let interval_ns = self.interval_ns;
            self.packet.put_message(packet::TRACE_PACKET_DEFAULTS, |message| {
                message.put_message(defaults::PERF_SAMPLE_DEFAULTS, |message| {
                    message.put_message(defaults::TIMEBASE, |timebase| {
                        if let Some(interval_ns) = interval_ns {
                            timebase.put_u64(defaults::PERIOD, interval_ns);
                        }
                        timebase.put_u64(defaults::COUNTER, defaults::CPU_CLOCK);
                        timebase.put_text(defaults::NAME, "cpu-clock");
                    });
                });
            });
        }
        self.is_cleared = false;
        if !self.new_interned.is_empty() {
            self.packet.put_bytes(packet::INTERNED_DATA, self.new_interned.bytes());
            self.new_interned.clear();
        }
    }

    /// Adds the packet to the output.
    pub(super) fn end_packet(&mut self) -> Result<()> {
        self.packet.put_u64(packet::SEQUENCE_ID, SEQUENCE);
        self.output.put_bytes(packet::PACKET, self.packet.bytes());
        self.packet.clear();
        self.packets = self.packets.saturating_add(1);
        if self.output.bytes().len() >= OUTPUT_BYTES {
            self.flush()?;
        }
        if self.interning.is_full() {
            self.clear_interned();
        }
        Ok(())
    }

    /// Writes the packets that have been collected.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.out.write_all(self.output.bytes())?;
        self.output.clear();
        Ok(())
    }
}

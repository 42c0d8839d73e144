//! Converts captured packets to pcapng, the format of Wireshark.
//!
//! ```text
//!   traces ──first pass──▶ names of components, drops; an error if there are no packets
//!     └──second pass──▶ fragment ──join──▶ packet ─┐
//!                       frame of the monitor ──────┴──▶ interface (if new), packet with comment
//!                                                       at the end: statistics of each interface
//! ```
//!
//! 1. Packets come from two providers: Microsoft-Windows-NDIS-PacketCapture (`netsh trace`) and
//!    Microsoft-Windows-PktMon (`pktmon`). Events of TCP and UDP that the kernel writes hold no
//!    packets.
//! 2. The packet monitor reports a packet at each component that it passes. The packet is written
//!    once, as it was where it appeared first. If it was dropped at any component, the comment says
//!    where and why.
//! 3. The comment of a packet names the process and the thread that ran when it was captured, which
//!    often are not those that sent it.
//! 4. Frames of 802.11 were captured after their decryption, so the mark of encryption is cleared.
//! 5. A capture that truncates packets does not record their length. The length then comes from the
//!    IP header.
//! 6. Times have the resolution of a FILETIME, 100 ns.

mod block;
mod interfaces;
mod join;
mod packet;
mod survey;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::event::{DescribedEvent, ReadFlow};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::selection::EventSelection;
use traceweir_analysis::text::format_count;
use traceweir_analysis::traces::TraceSet;
use traceweir_format::header::NO_ID;

use self::block::{Direction, LinkType, PacketBlock, put_packet, put_section_header};
use self::interfaces::Interfaces;
use self::join::FragmentJoiner;
use self::packet::{CapturePoint, Fragment, MonitoredFrame, PacketEvent};
use self::survey::{FrameKey, PacketSurvey};
use crate::{Conversion, ConvertInput};

/// Output is written in parts of at least this many bytes.
const WRITE_BYTES: usize = 256 << 10;
/// The number of packets in which another appearance of a packet is recognised.
const MAX_RECENT_FRAMES: usize = 1 << 18;
/// The most adapters whose next packet has details of the wireless adapter.
const MAX_WIRELESS: usize = 1024;

/// Converts the packets of the traces.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    let survey = PacketSurvey::read(&traces)?;
    let filter = EventFilter::new(&input.criteria, traces.start());
    let mut selection = EventSelection::new(&filter);
    let mut capture = Capture::new(survey, traces.inputs.len() > 1);
    put_section_header(concat!("weir ", env!("CARGO_PKG_VERSION")), &mut capture.out);
    let reading = traces.read(
        |record, time| packet::is_packet_event(record) && filter.accepts_header(record, time),
        |event| {
            if !selection.accepts(event) {
                return Ok(ReadFlow::Continue);
            }
            capture.add_event(event);
            if capture.out.len() >= WRITE_BYTES {
                out.write_all(&capture.out)?;
                capture.out.clear();
            }
            Ok(selection.count(event))
        },
    )?;
    let lost = traces.inputs.iter().map(|input| u64::from(input.trace.header().events_lost)).sum();
    capture.finish(lost, &reading.losses.join("; "));
    out.write_all(&capture.out)?;
    let (events, written, notes) = (capture.events, capture.packets, capture.notes());
    Ok(Conversion { events, written, written_noun: "packet", notes, reading })
}

/// The packets that appeared last.
#[derive(Debug, Default)]
struct RecentFrames {
    keys: HashSet<FrameKey>,
    order: VecDeque<FrameKey>,
}

impl RecentFrames {
    /// Adds a packet. Returns false if it is a packet that appeared before.
    fn insert(&mut self, key: FrameKey) -> bool {
        if !self.keys.insert(key) {
            return false;
        }
        self.order.push_back(key);
        if self.order.len() > MAX_RECENT_FRAMES
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        true
    }
}

/// Builds the capture.
struct Capture {
    survey: PacketSurvey,
    interfaces: Interfaces,
    joiner: FragmentJoiner,
    recent: RecentFrames,
    /// What the wireless adapter says about the next packet at a capture point.
    wireless: HashMap<(usize, u16, u32), String>,
    out: Vec<u8>,
    packet: Vec<u8>,
    events: u64,
    packets: u64,
    repeated: u64,
    malformed: u64,
    /// Packets of interfaces beyond the limit.
    without_interface: u64,
}

impl Capture {
    fn new(survey: PacketSurvey, has_several_traces: bool) -> Self {
        Self {
            survey,
            interfaces: Interfaces::new(has_several_traces),
            joiner: FragmentJoiner::default(),
            recent: RecentFrames::default(),
            wireless: HashMap::new(),
            out: Vec::new(),
            packet: Vec::new(),
            events: 0,
            packets: 0,
            repeated: 0,
            malformed: 0,
            without_interface: 0,
        }
    }

    fn add_event(&mut self, event: &DescribedEvent<'_>) {
        self.events = self.events.saturating_add(1);
        match packet::parse(&event.record) {
            PacketEvent::Fragment(fragment) => self.add_fragment(event, &fragment),
            PacketEvent::Wireless { point, text } => {
                if let CapturePoint::Adapter { lower, .. } = point
                    && self.wireless.len() < MAX_WIRELESS
                {
                    self.wireless.insert((event.file, event.record.cpu(), lower), text);
                }
            }
            PacketEvent::Frame(frame) => self.add_frame(event, &frame),
            PacketEvent::Malformed => self.malformed = self.malformed.saturating_add(1),
        }
    }

    fn add_fragment(&mut self, event: &DescribedEvent<'_>, fragment: &Fragment<'_>) {
        let origin = (event.file, event.record.cpu());
        let mut packet = std::mem::take(&mut self.packet);
        packet.clear();
        if self.joiner.add(origin, fragment, &mut packet) {
            if fragment.link == LinkType::IEEE_802_11 {
                packet::clear_protection(&mut packet);
            }
            let mut comment = describe_thread(event);
            let wireless = match fragment.point {
                CapturePoint::Adapter { lower, .. } => self.wireless.remove(&(origin.0, origin.1, lower)),
                _ => None,
            };
            for details in [Some(&fragment.details), wireless.as_ref()].into_iter().flatten() {
                push_part(details, &mut comment);
            }
            let length = packet::length_by_header(fragment.link, &packet);
            let content = PacketContent {
                link: fragment.link,
                direction: fragment.direction,
                original_length: length,
                bytes: &packet,
            };
            self.write_packet(event, &fragment.point, &content, &comment);
        }
        self.packet = packet;
    }

    fn add_frame(&mut self, event: &DescribedEvent<'_>, frame: &MonitoredFrame<'_>) {
        let key = (event.file, frame.id.0, frame.id.1);
        // A group of 0 identifies nothing.
        if frame.id.0 != 0 && !self.recent.insert(key) {
            self.repeated = self.repeated.saturating_add(1);
            return;
        }
        let mut comment = describe_thread(event);
        push_part(&self.describe_component(event.file, frame.component), &mut comment);
        push_part(&format!("appearance {}", frame.appearance), &mut comment);
        if let Some(drop) = frame.drop.or_else(|| self.survey.drops.get(&key).copied()) {
            let reason = packet::drop_reason(drop.reason)
                .map_or_else(|| format!("reason {}", drop.reason), str::to_owned);
            let component = self.describe_component(event.file, drop.component);
            let text = format!("dropped at {component}: {reason} (location {:#010x})", drop.location);
            push_part(&text, &mut comment);
        }
        let content = PacketContent {
            link: frame.link,
            direction: frame.direction,
            original_length: frame.original_length.into(),
            bytes: frame.bytes,
        };
        self.write_packet(event, &CapturePoint::Component(frame.component), &content, &comment);
    }

    fn describe_component(&self, file: usize, id: u16) -> String {
        match self.survey.components.get(&(file, id)) {
            Some((name, _)) => format!("component {id} ({name})"),
            None => format!("component {id}"),
        }
    }

    fn write_packet(
        &mut self,
        event: &DescribedEvent<'_>,
        point: &CapturePoint,
        content: &PacketContent<'_>,
        comment: &str,
    ) {
        let PacketContent { link, direction, original_length, bytes } = *content;
        let context = (event.time, &self.survey);
        let Some(interface) = self.interfaces.find(event.file, point, link, context, &mut self.out) else {
            self.without_interface = self.without_interface.saturating_add(1);
            return;
        };
        self.packets = self.packets.saturating_add(1);
        let packet = PacketBlock { interface, time: event.time, bytes, original_length, direction, comment };
        put_packet(&packet, &mut self.out);
    }

    fn finish(&mut self, lost: u64, losses: &str) {
        self.joiner.finish();
        self.interfaces.put_statistics(lost, losses, &mut self.out);
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format_count(self.interfaces.len() as u64, "interface")];
        let mut add = |count: u64, noun: &str, rest: &str| {
            if count > 0 {
                notes.push(format!("{} {rest}", format_count(count, noun)));
            }
        };
        add(self.repeated, "event", "left out: the same packet at a later component");
        add(self.joiner.incomplete, "packet", "left out: a fragment is missing, or too large");
        add(self.malformed, "event", "left out: too short");
        add(self.without_interface, "packet", "left out: too many interfaces");
        notes
    }
}

/// The bytes of a packet and their meaning.
struct PacketContent<'p> {
    link: LinkType,
    direction: Direction,
    /// The length on the link, or 0.
    original_length: u32,
    bytes: &'p [u8],
}

/// Returns process and thread of an event.
fn describe_thread(event: &DescribedEvent<'_>) -> String {
    let (pid, tid) = (event.record.process_id(), event.record.thread_id());
    let mut text = String::new();
    // Writing to a string cannot fail.
    if pid != NO_ID {
        let _ = write!(text, "process {pid}");
        if let Some(name) = event.process {
            let _ = write!(text, " ({name})");
        }
    }
    if tid != NO_ID {
        push_part(&format!("thread {tid}"), &mut text);
    }
    text
}

/// Appends a part of a comment, unless it is empty.
fn push_part(part: &str, comment: &mut String) {
    if !part.is_empty() {
        if !comment.is_empty() {
            comment.push_str("; ");
        }
        comment.push_str(part);
    }
}

//! The stream files: packets of events.
//!
//! ```text
//!   packet   magic u32 │ uuid 16 │ stream class u32 │ begin u64 │ end u64 │ content bits u64 │
//!            packet bits u64 │ number u64 │ discarded events u64 │ cpu u32 │ events
//!   event    class u32 │ time u64 │ context │ fields
//! ```
//!
//! The buffers of all streams have a limit; a packet that is written frees its memory. A file is open
//! only while a packet is written, because a trace can have more processors than a process may have
//! open files.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use traceweir_analysis::text::escape_path;

use super::STREAM_PREFIX;

const PACKET_MAGIC: u32 = 0xC1FC_1FC1;
const PACKET_HEADER_BYTES: usize = 24 + 6 * 8 + 4;
/// A packet is written when it has this size.
const MAX_PACKET_BYTES: usize = 256 << 10;
/// The limit of the packets of all streams that are not yet written.
const MAX_BUFFERED_BYTES: usize = 48 << 20;
/// The largest number of streams. Further processors share streams.
const MAX_STREAMS: usize = 1024;
/// The largest number of streams of a processor, for events out of order.
const MAX_LANES: u8 = 8;
/// The processor number of packets with events of several processors.
const SHARED_CPU: u32 = u32::MAX;

/// An event to write.
pub(super) struct PacketEvent<'e> {
    /// Index of the trace.
    pub(super) file: usize,
    pub(super) cpu: u16,
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    pub(super) class: u32,
    /// The context and the fields.
    pub(super) bytes: &'e [u8],
}

/// Identifies a stream: the trace and the processor, or `None` for the shared streams, and the lane.
type StreamKey = (Option<(usize, u16)>, u8);

/// A stream, and its packet that is not yet written.
struct Stream {
    number: usize,
    cpu: u32,
    packet: Vec<u8>,
    /// Times of the first and of the last event of the packet.
    begin: u64,
    end: u64,
    packets_written: u64,
    events_discarded: u64,
}

/// All streams.
pub(super) struct StreamSet {
    folder: PathBuf,
    uuid: [u8; 16],
    streams: HashMap<StreamKey, Stream>,
    /// The key of the first stream of each trace.
    first_streams: HashMap<usize, StreamKey>,
    buffered_bytes: usize,
    /// Number of events whose time was changed.
    moved: u64,
}

impl StreamSet {
    pub(super) fn new(folder: &Path, uuid: [u8; 16]) -> Self {
        Self {
            folder: folder.to_owned(),
            uuid,
            streams: HashMap::new(),
            first_streams: HashMap::new(),
            buffered_bytes: 0,
            moved: 0,
        }
    }

    /// Adds an event to the first stream of its processor whose last event is not later.
    pub(super) fn add_event(&mut self, event: PacketEvent<'_>) -> Result<()> {
        let key = self.choose_stream(&event);
        let number = self.streams.len();
        let stream = self.streams.entry(key).or_insert_with(|| Stream {
            number,
            cpu: if key.0.is_some() { event.cpu.into() } else { SHARED_CPU },
            packet: Vec::new(),
            begin: 0,
            end: 0,
            packets_written: 0,
            events_discarded: 0,
        });
        self.first_streams.entry(event.file).or_insert(key);
        self.moved = self.moved.saturating_add(u64::from(event.time < stream.end));
        let time = event.time.max(stream.end);
        if stream.packet.is_empty() {
            stream.packet.resize(PACKET_HEADER_BYTES, 0);
            stream.begin = time;
            self.buffered_bytes = self.buffered_bytes.saturating_add(PACKET_HEADER_BYTES);
        }
        stream.end = time;
        stream.packet.extend_from_slice(&event.class.to_le_bytes());
        stream.packet.extend_from_slice(&time.to_le_bytes());
        stream.packet.extend_from_slice(event.bytes);
        self.buffered_bytes = self.buffered_bytes.saturating_add(event.bytes.len()).saturating_add(12);
        if stream.packet.len() >= MAX_PACKET_BYTES {
            self.buffered_bytes = self.buffered_bytes.saturating_sub(stream.packet.len());
            stream.write_packet(&self.folder, &self.uuid)?;
        } else if self.buffered_bytes > MAX_BUFFERED_BYTES {
            self.write_all()?;
        }
        Ok(())
    }

    /// Returns the stream for an event. If all streams of its processor are later, it is the last of
    /// these.
    fn choose_stream(&self, event: &PacketEvent<'_>) -> StreamKey {
        let own = Some((event.file, event.cpu));
        let has_room = self.streams.len() < MAX_STREAMS;
        let place = if has_room || self.streams.contains_key(&(own, 0)) { own } else { None };
        let last_lane = MAX_LANES.saturating_sub(1);
        for lane in 0..last_lane {
            match self.streams.get(&(place, lane)) {
                Some(stream) if stream.end > event.time => {}
                Some(_) => return (place, lane),
                None if has_room || place.is_none() => return (place, lane),
                None => return (place, lane.saturating_sub(1)),
            }
        }
        (place, last_lane)
    }

    fn write_all(&mut self) -> Result<()> {
        for stream in self.streams.values_mut() {
            if !stream.packet.is_empty() {
                stream.write_packet(&self.folder, &self.uuid)?;
            }
        }
        self.buffered_bytes = 0;
        Ok(())
    }

    /// Writes the last packets. `losses` are the numbers of events that each trace lost. It is not
    /// known when they were lost, so the last packet of the trace's first stream counts them. Returns
    /// the number of events whose time was changed.
    pub(super) fn finish(mut self, losses: impl Iterator<Item = u64>) -> Result<u64> {
        self.write_all()?;
        for (file, lost) in losses.enumerate().filter(|(_, lost)| *lost > 0) {
            let Some(key) = self.first_streams.get(&file) else { continue };
            if let Some(stream) = self.streams.get_mut(key) {
                stream.events_discarded = stream.events_discarded.saturating_add(lost);
                stream.packet.resize(PACKET_HEADER_BYTES, 0);
                stream.begin = stream.end;
                stream.write_packet(&self.folder, &self.uuid)?;
            }
        }
        Ok(self.moved)
    }
}

impl Stream {
    /// Writes the packet and empties it.
    fn write_packet(&mut self, folder: &Path, uuid: &[u8; 16]) -> Result<()> {
        let bits = (self.packet.len() as u64).saturating_mul(8);
        let mut header = Vec::with_capacity(PACKET_HEADER_BYTES);
        header.extend_from_slice(&PACKET_MAGIC.to_le_bytes());
        header.extend_from_slice(uuid);
        header.extend_from_slice(&0_u32.to_le_bytes());
        for number in [self.begin, self.end, bits, bits, self.packets_written, self.events_discarded] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(&self.cpu.to_le_bytes());
        if let Some(start) = self.packet.get_mut(..PACKET_HEADER_BYTES) {
            start.copy_from_slice(&header);
        }
        let path = folder.join(format!("{STREAM_PREFIX}{}", self.number));
        let mut options = OpenOptions::new();
        // The first packet creates the file, which must not exist.
        let opened = if self.packets_written == 0 {
            options.write(true).create_new(true).open(&path)
        } else {
            options.append(true).open(&path)
        };
        opened
            .and_then(|mut file| file.write_all(&self.packet))
            .with_context(|| format!("cannot write {}", escape_path(&path)))?;
        // Else each stream would keep the memory of its largest packet.
        self.packet = Vec::new();
        self.packets_written = self.packets_written.saturating_add(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_all_streams_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut streams = StreamSet::new(folder.path(), [0; 16]);
        let memory = |streams: &StreamSet| -> usize {
            streams.streams.values().map(|stream| stream.packet.capacity()).sum()
        };
        let bytes = vec![1; 1 << 20];
        for cpu in 0..100 {
            // A large event is written at once; a small one waits.
            for bytes in [&bytes[..], &bytes[..10]] {
                streams.add_event(PacketEvent { file: 0, cpu, time: 1, class: 1, bytes }).unwrap();
            }
        }
        assert!(memory(&streams) < 1 << 20, "{}", memory(&streams));
        // Packets that are not full yet.
        let bytes = vec![1; MAX_PACKET_BYTES / 2];
        for cpu in 100..MAX_STREAMS as u16 {
            streams.add_event(PacketEvent { file: 0, cpu, time: 1, class: 1, bytes: &bytes }).unwrap();
            assert!(streams.buffered_bytes <= MAX_BUFFERED_BYTES);
            assert!(memory(&streams) <= 2 * MAX_BUFFERED_BYTES);
        }
        assert_eq!(streams.finish(std::iter::empty()).unwrap(), 0);
    }
}

//! The first pass over a recording: what later records refer to.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Result, bail};
use traceweir_analysis::observer::{ReadObserver, ReadPass};
use traceweir_format::etl::ReadAt;
use traceweir_format::wire::{u32_at, u64_at};

use super::attr::{EventAttr, EventTable, part};
use super::features::{Features, bit, read_event_update};
use super::file::{FileHeader, RawRecord, RecordReader, Section, kind};
use super::period::PeriodHistogram;
use super::record::{Sample, parse_origin, parse_sample};
use super::tracepoint::{Tracepoint, read_formats};

/// The largest section of attributes, of ids, or of a feature, in bytes.
const MAX_SECTION_BYTES: u64 = 32 << 20;
/// Records between two reports of progress.
const RECORDS_PER_UPDATE: u64 = 4096;

/// Reports the progress of a pass.
pub(super) struct Progress {
    report: Option<Box<dyn FnMut(u64)>>,
    records: u64,
}

impl Progress {
    pub(super) fn begin(observer: &dyn ReadObserver, pass: ReadPass, total: u64) -> Self {
        Self { report: observer.begin_pass(pass, total), records: 0 }
    }

    pub(super) fn update(&mut self, position: u64) {
        self.records = self.records.wrapping_add(1);
        if self.records.is_multiple_of(RECORDS_PER_UPDATE)
            && let Some(report) = &mut self.report
        {
            report(position);
        }
    }
}

/// What the first pass finds.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) events: EventTable,
    pub(super) features: Features,
    /// Tracepoints by id.
    pub(super) tracepoints: HashMap<u64, Tracepoint>,
    /// Where the records are.
    pub(super) records: Range<u64>,
    /// The first and the last time of all records, if any has a time.
    pub(super) times: Option<(u64, u64)>,
    /// The periods of the sampled profile, if its samples were taken at a frequency.
    pub(super) periods: PeriodHistogram,
    pub(super) is_finished: bool,
    pub(super) is_damaged: bool,
}

impl Survey {
    /// Reads a recording once.
    pub(super) fn read<R: ReadAt + ?Sized>(source: &R, observer: &dyn ReadObserver) -> Result<Self> {
        let header = FileHeader::read(source)?;
        let mut survey =
            Self { records: header.records.clone(), is_finished: header.is_finished, ..Self::default() };
        survey.read_attrs(source, &header)?;
        for (feature, section) in header.features.iter().filter(|(feature, _)| Features::is_needed(*feature))
        {
            let Some(bytes) = section.read(source, MAX_SECTION_BYTES) else { continue };
            survey.read_feature(*feature, &bytes);
        }
        let mut progress = Progress::begin(observer, ReadPass::Survey, header.records.end);
        let mut reader = RecordReader::new(source, &header.records);
        loop {
            progress.update(reader.position());
            let Some(record) = reader.next()? else { break };
            survey.observe(source, &record)?;
        }
        survey.is_damaged = reader.is_damaged;
        survey.check()?;
        Ok(survey)
    }

    fn read_attrs<R: ReadAt + ?Sized>(&mut self, source: &R, header: &FileHeader) -> Result<()> {
        if header.is_pipe {
            return Ok(());
        }
        let size = usize::try_from(header.attr_size).ok().filter(|size| (80..=4096).contains(size));
        let (Some(size), Some(bytes)) = (size, header.attrs.read(source, MAX_SECTION_BYTES)) else {
            bail!("its list of events is damaged");
        };
        // Entries may name the same ids again and again.
        let mut bytes_left = MAX_SECTION_BYTES;
        for entry in bytes.chunks_exact(size) {
            let Some(ids_at) = size.checked_sub(16) else { continue };
            let Some(attr) = entry.get(..ids_at).and_then(EventAttr::parse) else { continue };
            let ids = Section::parse(entry, ids_at).read(source, bytes_left).unwrap_or_default();
            bytes_left = bytes_left.saturating_sub(ids.len() as u64);
            self.events.add(attr, ids.chunks_exact(8).map(|id| u64_at(id, 0)));
        }
        Ok(())
    }

    fn read_feature(&mut self, feature: u32, bytes: &[u8]) {
        if feature == bit::TRACING_DATA {
            self.tracepoints = read_formats(bytes);
        } else {
            self.features.read(feature, bytes, &mut self.events);
        }
    }

    fn observe<R: ReadAt + ?Sized>(&mut self, source: &R, record: &RawRecord<'_>) -> Result<()> {
        match record.kind {
            kind::COMPRESSED | kind::COMPRESSED2 => {
                bail!("its records are compressed (perf record -z); compressed recordings cannot be read")
            }
            kind::HEADER_ATTR => {
                let main = self.events.main();
                self.read_attr_record(record.body());
                if self.events.main() != main {
                    self.periods = PeriodHistogram::default();
                }
            }
            kind::HEADER_BUILD_ID => self.features.add_build_id(record.bytes),
            kind::HEADER_TRACING_DATA => {
                if let Some(bytes) = record.trailing.read(source, MAX_SECTION_BYTES) {
                    self.tracepoints = read_formats(&bytes);
                }
            }
            kind::HEADER_FEATURE => {
                let (feature, bytes) = (u64_at(record.body(), 0), record.body().get(8..));
                self.read_feature(u32::try_from(feature).unwrap_or(u32::MAX), bytes.unwrap_or_default());
            }
            kind::EVENT_UPDATE => read_event_update(record.body(), &mut self.events),
            kind::SAMPLE => {
                if let Some((index, sample)) = self.parse_sample(record) {
                    self.add_time(valid_time(sample.origin.time));
                    let main = self.events.main_event().filter(|_| self.events.main() == Some(index));
                    if main.is_some_and(|main| main.attr.has_frequency()) {
                        self.periods.add(sample.period);
                    }
                }
            }
            kind if kind < kind::FIRST_OF_PERF => self.add_time(self.time_of(record).unwrap_or(0)),
            _ => {}
        }
        Ok(())
    }

    /// Adds the time of a record; 0 stands for none.
    fn add_time(&mut self, time: u64) {
        if time != 0 {
            let (first, last) = self.times.unwrap_or((time, time));
            self.times = Some((first.min(time), last.max(time)));
        }
    }

    /// Parses a sample, and returns it with the index of its event.
    pub(super) fn parse_sample<'b>(&self, record: &RawRecord<'b>) -> Option<(usize, Sample<'b>)> {
        let index = self.events.find_for_sample(record.bytes)?;
        Some((index, parse_sample(record, &self.events.events.get(index)?.attr)?))
    }

    /// Reads a record with an attribute, which is followed by its ids.
    fn read_attr_record(&mut self, body: &[u8]) {
        let size = usize::try_from(u32_at(body, 4)).unwrap_or(usize::MAX);
        let Some((attr, ids)) = body.split_at_checked(size) else { return };
        if let Some(attr) = EventAttr::parse(attr) {
            self.events.add(attr, ids.chunks_exact(8).map(|id| u64_at(id, 0)));
        }
    }

    /// Returns the time of a record of the kernel: 0 if perf made it up; `None` if it cannot be
    /// parsed.
    pub(super) fn time_of(&self, record: &RawRecord<'_>) -> Option<u64> {
        if record.kind != kind::SAMPLE {
            let time = self.events.find_for_other(record.bytes).map(|attr| parse_origin(record, attr).time);
            return Some(valid_time(time.unwrap_or(0)));
        }
        Some(valid_time(self.parse_sample(record)?.1.origin.time))
    }

    /// Rejects recordings that cannot be converted.
    fn check(&self) -> Result<()> {
        if self.events.events.is_empty() {
            bail!("it has no events");
        }
        if self.events.events.iter().any(|event| !event.attr.has(part::TIME)) {
            bail!("its samples have no times; record with `perf record -T`");
        }
        if self.times.is_none() {
            bail!("it has no samples");
        }
        Ok(())
    }
}

/// Returns the time of a record, or 0 for the time that stands for none.
const fn valid_time(time: u64) -> u64 {
    if time == u64::MAX { 0 } else { time }
}

//! The second pass over a recording: converts its records in time order.

use anyhow::Result;
use traceweir_analysis::observer::{ReadObserver, ReadPass};
use traceweir_analysis::text::{escape, format_count};
use traceweir_analysis::traces::{ReadSummary, ReadWarning};
use traceweir_format::etl::{ReadAt, Summary, WriteAt, Writer};
use traceweir_format::header::NO_ID;
use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;
use traceweir_format::time::FileTime;

use super::events::TracepointEvents;
use super::file::{RawRecord, RecordReader, kind};
use super::images::Images;
use super::output::{Moment, TaskIds, TraceOutput};
use super::profile::Profile;
use super::record::{RecordOrigin, Sample, Sideband, parse_origin, parse_sideband};
use super::schedule::Schedule;
use super::sort::RecordSorter;
use super::stacks::CallStack;
use super::survey::{Progress, Survey};
use super::target::{RecordingFile, TraceProperties};
use super::tasks::Tasks;
use crate::Conversion;

const CPU_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_CPU, 3);
/// Memory for records that are sorted.
const MAX_SORT_BYTES: usize = 96 << 20;
/// The system of the tracepoints that become kernel events.
const SCHED: &str = "sched";
const NS_PER_UNIT: i64 = 100;

/// Numbers of records that an import counts.
#[derive(Debug, Default)]
struct Counts {
    read: u64,
    /// Records that are too short, or whose data does not fit their event, and samples of unknown
    /// events.
    malformed: u64,
    /// Tracepoints without a format.
    unknown_tracepoints: u64,
    lost: LossCounts,
    throttled: u64,
    /// Samples with a copy of the user stack.
    user_stacks: u64,
}

/// Numbers of lost records.
#[derive(Debug, Default)]
struct LossCounts {
    /// Records that did not fit into a ring, as the kernel reported when the ring had space again.
    at_rings: u64,
    /// Samples that did not fit into a ring, as perf counted at the end. They include those that the
    /// kernel reported before, and those after its last report.
    at_rings_in_the_end: u64,
    /// Samples that the processor lost.
    by_processor: u64,
}

impl LossCounts {
    fn total(&self) -> u64 {
        self.at_rings.max(self.at_rings_in_the_end).saturating_add(self.by_processor)
    }
}

/// The tracepoints of a recording that other records would repeat.
#[derive(Debug, Default)]
struct RecordedTracepoints {
    has_switch: bool,
    has_waking: bool,
}

impl RecordedTracepoints {
    fn new(survey: &Survey) -> Self {
        let events = survey.events.events.iter().filter(|event| event.attr.is_tracepoint());
        let formats = events.filter_map(|event| survey.tracepoints.get(&event.attr.config));
        let mut found = Self::default();
        for format in formats.filter(|format| format.system == SCHED) {
            found.has_switch |= format.name == "sched_switch";
            found.has_waking |= format.name == "sched_waking";
        }
        found
    }
}

/// Converts records.
pub(super) struct Importer<'r, R: ?Sized, W> {
    source: &'r R,
    survey: Survey,
    converter: Converter<W>,
    file_name: String,
    /// Stamp and wall time of the start.
    first_time: i64,
    start_time: FileTime,
    notes: Vec<String>,
}

impl<'r, R: ReadAt + ?Sized, W: WriteAt> Importer<'r, R, W> {
    pub(super) fn new(source: &'r R, mut survey: Survey, file: &RecordingFile, sink: W) -> Result<Self> {
        let properties = TraceProperties::new(&survey, file)?;
        let mut notes = Vec::new();
        if properties.is_wall_time_guessed {
            let end = match file.modified {
                Some(_) => "its file was last changed",
                None => "it was imported",
            };
            notes.push(format!("the recording has no wall time: it is taken to end when {end}"));
        }
        let (first_time, start_time) = (properties.first_time, properties.options.start_time);
        let writer = Writer::create(sink, properties.options)?;
        let build_ids = std::mem::take(&mut survey.features.build_ids);
        let converter = Converter {
            out: TraceOutput::new(writer, first_time),
            tasks: Tasks::default(),
            images: Images::new(build_ids),
            schedule: Schedule::default(),
            events: TracepointEvents::default(),
            profile: Profile::new(&survey),
            recorded: RecordedTracepoints::new(&survey),
            counts: Counts::default(),
            is_running: false,
        };
        Ok(Self { source, survey, converter, file_name: file.name.clone(), first_time, start_time, notes })
    }

    /// Converts all records and finishes the trace.
    pub(super) fn run(mut self, observer: &dyn ReadObserver) -> Result<Conversion> {
        let Self { source, survey, converter, .. } = &mut self;
        let mut progress = Progress::begin(observer, ReadPass::Events, survey.records.end);
        let mut reader = RecordReader::new(*source, &survey.records);
        let mut sorter = RecordSorter::new(MAX_SORT_BYTES);
        loop {
            progress.update(reader.position());
            let Some(record) = reader.next()? else { break };
            match record.kind {
                kind::FINISHED_ROUND => sorter.end_round(|bytes| converter.convert(bytes, survey))?,
                kind if kind >= kind::FIRST_OF_PERF => {}
                _ => match survey.time_of(&record) {
                    None => converter.counts.malformed = converter.counts.malformed.saturating_add(1),
                    // The state before the recording, in the order of the file.
                    Some(0) => converter.convert(record.bytes, survey)?,
                    Some(time) => sorter.add(time, record.bytes)?,
                },
            }
        }
        sorter.finish(|bytes| converter.convert(bytes, survey))?;
        drop(progress);
        self.finish()
    }

    fn finish(self) -> Result<Conversion> {
        let Self { survey, converter, file_name, first_time, start_time, mut notes, .. } = self;
        converter.add_notes(&survey, &mut notes);
        let Converter { out, counts, .. } = converter;
        let mut reading = ReadSummary::default();
        let input = escape(&file_name);
        let mut warn = |description: &str| {
            let (input, description) = (input.clone(), description.to_owned());
            reading.warnings.push(ReadWarning::Defect { input, description });
        };
        if survey.is_damaged {
            warn("the recording ends within a record");
        }
        if !survey.is_finished {
            warn("perf did not finish the recording: it has no names of the machine and no build ids");
        }
        reading.is_damaged = survey.is_damaged || !survey.is_finished;
        let lost_records = counts.lost.total();
        if lost_records > 0 {
            let lost = format_count(lost_records, "record");
            reading.losses.push(format!("{input}: the recording lost {lost}"));
        }
        let written = out.events;
        let duration = out.last_time.saturating_sub(first_time);
        out.into_writer().finish(Summary {
            end_time: FileTime(start_time.0.saturating_add(duration.div_euclid(NS_PER_UNIT))),
            events_lost: u32::try_from(lost_records).unwrap_or(u32::MAX),
            buffers_lost: 0,
        })?;
        Ok(Conversion { events: counts.read, written, written_noun: "event", notes, reading })
    }
}

/// Writes the events of records that come in time order.
struct Converter<W> {
    out: TraceOutput<W>,
    tasks: Tasks,
    images: Images,
    schedule: Schedule,
    events: TracepointEvents,
    profile: Profile,
    recorded: RecordedTracepoints,
    counts: Counts,
    /// Whether the first record with a time has come.
    is_running: bool,
}

impl<W: WriteAt> Converter<W> {
    /// Converts one record.
    fn convert(&mut self, bytes: &[u8], survey: &Survey) -> Result<()> {
        self.counts.read = self.counts.read.saturating_add(1);
        let record = RawRecord::parse(bytes);
        if record.kind == kind::SAMPLE {
            return match survey.parse_sample(&record) {
                Some((index, sample)) => self.convert_sample(index, &sample, survey),
                None => {
                    self.counts.malformed = self.counts.malformed.saturating_add(1);
                    Ok(())
                }
            };
        }
        let Some(sideband) = parse_sideband(&record) else { return Ok(()) };
        let attr = survey.events.find_for_other(bytes);
        let origin = attr.map(|attr| parse_origin(&record, attr)).unwrap_or_default();
        let at = self.begin_record(&origin, survey)?;
        self.convert_sideband(&sideband, &origin, at)
    }

    /// Returns when and where the events of a record happened. Before the first record with a time,
    /// writes the state before the recording.
    fn begin_record(&mut self, origin: &RecordOrigin, survey: &Survey) -> Result<Moment> {
        if !self.is_running && origin.time != 0 && origin.time != u64::MAX {
            self.is_running = true;
            let start = self.out.moment(0, 0);
            self.tasks.begin(start, &mut self.out)?;
            self.profile.begin(&survey.events.events, start, &mut self.out)?;
            self.write_machine(survey, start)?;
        }
        Ok(self.out.moment(origin.cpu, origin.time))
    }

    /// Writes the number of processors and the name of the machine.
    fn write_machine(&mut self, survey: &Survey, at: Moment) -> Result<()> {
        let features = &survey.features;
        let mut payload = Vec::new();
        put_kernel_event!(&mut payload, CPU_LAYOUT, {
            NumberOfProcessors: features.processors,
            ComputerName: features.host_name.as_str(),
        });
        self.out.write_system(at, (hook::CONFIG_CPU, CPU_LAYOUT.version()), TaskIds::default(), &payload)?;
        Ok(())
    }

    fn convert_sample(&mut self, index: usize, sample: &Sample<'_>, survey: &Survey) -> Result<()> {
        let RecordOrigin { pid, tid, .. } = sample.origin;
        let at = self.begin_record(&sample.origin, survey)?;
        self.tasks.ensure(TaskIds { pid, tid }, at, &mut self.out)?;
        let stack = CallStack::from_sample(sample);
        self.counts.user_stacks = self.counts.user_stacks.saturating_add(sample.has_user_stack.into());
        let Some(event) = survey.events.events.get(index) else { return Ok(()) };
        if !event.attr.is_tracepoint() {
            return Ok(self.profile.write(index, (sample, &stack), at, &mut self.out)?);
        }
        let id = event.attr.config;
        let Some(format) = survey.tracepoints.get(&id) else {
            self.counts.unknown_tracepoints = self.counts.unknown_tracepoints.saturating_add(1);
            return Ok(());
        };
        let (data, out) = (sample.raw, &mut self.out);
        let is_kernel_event = match format.name.as_str() {
            _ if format.system != SCHED => false,
            "sched_switch" => return self.convert_switch(id, sample, stack, survey, at),
            "sched_waking" => self.schedule.on_wakeup(format, data, false, at, out)?,
            "sched_wakeup" if !self.recorded.has_waking => {
                self.schedule.on_wakeup(format, data, false, at, out)?
            }
            "sched_wakeup_new" => self.schedule.on_wakeup(format, data, true, at, out)?,
            _ => false,
        };
        if is_kernel_event {
            return Ok(stack.write(tid, at, &mut Vec::new(), &mut self.out)?);
        }
        if !self.events.write((id, format), data, (TaskIds { pid, tid }, &stack), at, &mut self.out)? {
            self.counts.malformed = self.counts.malformed.saturating_add(1);
        }
        Ok(())
    }

    fn convert_switch(
        &mut self,
        id: u64,
        sample: &Sample<'_>,
        stack: CallStack,
        survey: &Survey,
        at: Moment,
    ) -> Result<()> {
        let Some(format) = survey.tracepoints.get(&id) else { return Ok(()) };
        if !self.schedule.on_switch(format, sample.raw, stack, at, &mut self.out)? {
            self.counts.malformed = self.counts.malformed.saturating_add(1);
        }
        Ok(())
    }

    fn convert_sideband(&mut self, sideband: &Sideband<'_>, origin: &RecordOrigin, at: Moment) -> Result<()> {
        let out = &mut self.out;
        match *sideband {
            Sideband::Mapping(mapping) => {
                self.images.on_mapping(&mapping, !self.is_running, at, out)?;
            }
            Sideband::Comm { pid, tid, name, is_exec } => {
                if is_exec {
                    self.images.forget_process(pid);
                }
                self.tasks.on_comm(TaskIds { pid, tid }, name, is_exec, at, out)?;
            }
            Sideband::Fork { pid, ppid, tid, ptid } => {
                let creator = TaskIds { pid: ppid, tid: ptid };
                self.tasks.on_fork(creator, TaskIds { pid, tid }, at, out)?;
            }
            Sideband::Exit { pid, tid } => {
                if self.tasks.on_exit(TaskIds { pid, tid }, at, out)? {
                    self.images.forget_process(pid);
                }
            }
            Sideband::LostSamples(count) if origin.time == 0 => {
                let lost = &mut self.counts.lost.at_rings_in_the_end;
                *lost = lost.saturating_add(count);
            }
            Sideband::Lost(count) | Sideband::LostSamples(count) => {
                let LossCounts { at_rings, by_processor, .. } = &mut self.counts.lost;
                let is_processor = matches!(sideband, Sideband::LostSamples(_));
                let lost = if is_processor { by_processor } else { at_rings };
                *lost = lost.saturating_add(count);
                self.schedule.forget_after_loss();
                out.flag_loss(at.cpu)?;
            }
            Sideband::Throttled => self.counts.throttled = self.counts.throttled.saturating_add(1),
            Sideband::Switch { is_out, is_preempted, other } => {
                if !self.recorded.has_switch && origin.tid != NO_ID {
                    self.tasks.ensure(TaskIds { pid: origin.pid, tid: origin.tid }, at, out)?;
                    let threads = (origin.tid, other);
                    self.schedule.on_switch_record(threads, (is_out, is_preempted), at, out)?;
                }
            }
        }
        Ok(())
    }

    /// Adds notes about what the trace holds and lacks.
    fn add_notes(&self, survey: &Survey, notes: &mut Vec<String>) {
        let Self { profile, schedule, counts, out, .. } = self;
        let mut add = |count: u64, noun: &str, rest: &str| {
            if count > 0 {
                notes.push(format!("{}{rest}", format_count(count, noun)));
            }
        };
        add(profile.samples, "sample", "");
        let short = " left out: their periods are short, so other samples stand for them";
        add(profile.short_samples, "sample", short);
        add(profile.counter_samples, "sample", " of other events, as PerfInfo/PmcCounterProf");
        add(schedule.switches, "context switch", "");
        add(self.events.written, "tracepoint", "");
        add(counts.malformed, "record", " left out: too short, or not as its event describes it");
        add(counts.unknown_tracepoints, "tracepoint", " left out: the recording has no format of them");
        add(out.oversized, "event", " left out: too large for a trace");
        add(out.late, "event", " came too late and got the time of the event before");
        add(counts.throttled, "time", " the kernel reduced the rate of samples");
        let copies =
            " with a copy of the user stack, which is not unwound: callers of user functions are missing";
        add(counts.user_stacks, "sample", copies);
        if survey.events.events.iter().any(|event| event.attr.is_limited_tracepoint()) {
            let text = "tracepoints were recorded at a limited rate (-F or -c), so some of them are missing";
            notes.push(text.to_owned());
        }
        if survey.events.events.iter().any(|event| event.attr.lacks_processor()) {
            let text = "the recording does not name the processor of each event: events without one are on processor 0; perf record --sample-cpu adds it";
            notes.push(text.to_owned());
        }
        if profile.lacks_interval(&survey.events) {
            let text =
                "the time between two samples is unknown: shares of samples hold, times of samples do not";
            notes.push(text.to_owned());
        }
    }
}

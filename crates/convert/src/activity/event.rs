//! The items of the activity stream.

use std::sync::{Arc, LazyLock};

use traceweir_analysis::report::{NetworkTransfer, Transfer};
use traceweir_format::Guid;
use traceweir_format::kernel::thread_state;

use super::fields::{FieldValue, Fields};
use super::lives::{ProcessIndex, ThreadIndex};
use super::stacks::StackFrame;

/// Something that happened at a time.
#[derive(Debug)]
pub struct ActivityEvent {
    /// Nanoseconds since the first trace began; never less than in the event before.
    pub time_ns: i64,
    /// Number of the machine.
    pub machine: u16,
    /// Number of the processor.
    pub cpu: u16,
    /// Whether the filters select the event. Switches, wakes and ends of threads are delivered even if
    /// they do not, also those before the time span: what the selected threads do follows from them.
    pub is_selected: bool,
    /// The call stack, innermost frame first; empty if the trace contains none.
    pub stack: Vec<StackFrame>,
    /// What happened.
    pub activity: Activity,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Activity {
    /// A process started.
    ProcessStart(ProcessIndex),
    /// A process ended.
    ProcessEnd(ProcessIndex),
    /// A thread started.
    ThreadStart(ThreadIndex),
    /// A thread ended.
    ThreadEnd(ThreadIndex),
    /// A processor switched from one thread to another.
    Switch(Switch),
    /// A thread became ready to run.
    Wake {
        /// The thread.
        thread: Option<ThreadIndex>,
        /// The thread that woke it, if known.
        waker: Option<ThreadIndex>,
    },
    /// A processor was executing a thread.
    Sample(Sample),
    /// An activity began.
    SliceBegin(Slice),
    /// An activity ended.
    SliceEnd {
        /// The activity.
        slice: Slice,
        /// The event that ended it, without what the start event has too; `None` if it did not end before
        /// the end of the traces, or if it ended with the activity around it.
        stop: Option<Arc<EventDetail>>,
    },
    /// Another event.
    Instant {
        /// The thread of the event, if known.
        thread: Option<ThreadIndex>,
        /// Names and fields.
        detail: Arc<EventDetail>,
    },
    /// An event whose numbers are values of counters.
    Counters {
        /// The process of the event, if known.
        process: Option<ProcessIndex>,
        /// Names and values.
        values: Vec<(Arc<str>, f64)>,
    },
    /// A disk operation completed. The event is at its end.
    Disk {
        /// The thread that issued the operation, if known.
        thread: Option<ThreadIndex>,
        /// The operation.
        transfer: Transfer,
    },
    /// An event of TCP or UDP.
    Network {
        /// The process, if known.
        process: Option<ProcessIndex>,
        /// The transfer.
        transfer: NetworkTransfer,
    },
    /// A session lost events.
    Loss(Loss),
}

/// A switch from one thread to another; `None` is a thread that the trace does not name.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    /// The thread that runs next.
    pub new: Option<ThreadIndex>,
    /// Priority of the thread that runs next.
    pub new_priority: i8,
    /// Whether the filters select the run that begins. A run that begins before the time span is
    /// selected as if it began with it.
    pub selects_new: bool,
    /// The thread that stops running.
    pub old: Option<ThreadIndex>,
    /// Whether the filters select the old thread.
    pub selects_old: bool,
    /// Priority of the thread that stops running.
    pub old_priority: i8,
    /// New state of the old thread, as in `OldThreadState`.
    pub state: u8,
    /// Wait reason of the old thread, as in `OldThreadWaitReason`.
    pub reason: u8,
    /// The thread that the stack belongs to, if it is the old or the new one.
    pub stack_thread: Option<ThreadIndex>,
}

/// States of a thread that stops running.
impl Switch {
    /// `OldThreadState` of a thread that has ended.
    pub const TERMINATED: u8 = thread_state::TERMINATED;
    /// `OldThreadState` of a thread that waits.
    pub const WAITING: u8 = thread_state::WAITING;
}

/// A CPU sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The thread, if known.
    pub thread: Option<ThreadIndex>,
    /// Number of samples that the event stands for.
    pub weight: u64,
    /// The sampling interval in nanoseconds, if the trace contains it.
    pub interval_ns: Option<u64>,
    /// Whether the innermost frame is in the kernel.
    pub is_kernel: bool,
    /// Whether the processor was idle.
    pub is_idle: bool,
}

/// Identifies a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceId(pub u64);

/// The track that a slice is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SliceTrack {
    /// The track of the thread, where slices nest.
    Thread,
    /// A track of the task, because its slices overlap. Slices of one lane do not overlap.
    Task {
        /// Number of the track among those of the task.
        lane: u32,
    },
}

/// The time between the start and the stop of an activity.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Identifies the slice.
    pub id: SliceId,
    /// The track.
    pub track: SliceTrack,
    /// When the activity began, in nanoseconds since the first trace began.
    pub begin_ns: i64,
    /// The thread on which it began, if known.
    pub thread: Option<ThreadIndex>,
    /// Name of the activity: that of the start event without the mark of the start.
    pub name: Arc<str>,
    /// Names and fields of the start event.
    pub detail: Arc<EventDetail>,
    /// Whether the filters select the start event. Other slices are not delivered.
    pub(super) is_selected: bool,
}

/// Names, attributes and fields of an event.
#[derive(Clone, Debug)]
pub struct EventDetail {
    /// Name of the provider, or its GUID.
    pub provider: Arc<str>,
    /// Name of the event, or its id.
    pub name: Arc<str>,
    /// Level.
    pub level: u8,
    /// Id of the event; the type of a kernel event.
    pub id: u16,
    /// Bits of the keyword.
    pub keyword: u64,
    /// Id of the activity, if the event has one.
    pub activity: Option<Guid>,
    /// Id of the related activity, if the event has one.
    pub related_activity: Option<Guid>,
    /// The fields.
    pub fields: Fields,
}

impl Default for EventDetail {
    fn default() -> Self {
        let (provider, name): (Arc<str>, Arc<str>) = ("".into(), "".into());
        let (activity, related_activity, fields) = (None, None, Fields::default());
        Self { provider, name, level: 0, id: 0, keyword: 0, activity, related_activity, fields }
    }
}

impl EventDetail {
    /// Returns what the event has besides its names and fields, with names.
    pub(crate) fn attributes(&self) -> Vec<(Arc<str>, FieldValue)> {
        static NAMES: LazyLock<[Arc<str>; 5]> = LazyLock::new(|| {
            ["activity id", "related activity id", "event id", "level", "keyword"].map(Arc::from)
        });
        let number = |number: u16| (number > 0).then_some(FieldValue::Unsigned(number.into()));
        let text = |text: String| FieldValue::Text(text.into());
        let values = [
            self.activity.map(|id| text(id.to_string())),
            self.related_activity.map(|id| text(id.to_string())),
            number(self.id),
            number(self.level.into()),
            (self.keyword > 0).then(|| text(format!("{:#x}", self.keyword))),
        ];
        NAMES.iter().zip(values).filter_map(|(name, value)| Some((Arc::clone(name), value?))).collect()
    }

    /// Returns the estimated memory of the detail, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let names = self.provider.len().saturating_add(self.name.len());
        size_of::<Self>().saturating_add(names).saturating_add(self.fields.memory_bytes())
    }

    /// Returns the detail without its fields.
    pub(super) fn without_fields(&self) -> Self {
        Self { fields: Fields::left_out(), ..self.clone() }
    }
}

/// A loss that a trace reports.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Name of the trace.
    pub trace: Arc<str>,
    /// The processor, if the loss is of one processor.
    pub cpu: Option<u16>,
    /// Number of lost events, if known.
    pub events: Option<u64>,
    /// Number of lost buffers, if known.
    pub buffers: Option<u64>,
}

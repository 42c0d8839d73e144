//! Event filters: criteria as users type them, and their evaluation.

use traceweir_format::Guid;
use traceweir_format::header::Record;
use traceweir_format::kernel;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::time::FileTime;

use crate::event::{DescribedEvent, EventIdentity};
use crate::text::{Moment, matches_pattern};

/// Criteria that an event must meet. An empty list and `None` accept all events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterCriteria {
    /// Providers: GUIDs, or names with the wildcards `*` and `?`, ignoring case.
    pub providers: Vec<String>,
    /// Events: ids (types of kernel events), or names (Task/Opcode or the last part) with the
    /// wildcards `*` and `?`, ignoring case.
    pub events: Vec<String>,
    /// The least severe level; events of level 0 always pass.
    pub level: Option<u8>,
    /// Keyword bits, one of which an event must have.
    pub keyword: Option<u64>,
    /// Processes that wrote the event or that the event is about.
    pub pids: Vec<u32>,
    /// Threads that wrote the event or that the event is about.
    pub tids: Vec<u32>,
    /// Processors.
    pub cpus: Vec<u16>,
    /// The first time.
    pub from: Option<Moment>,
    /// The last time.
    pub to: Option<Moment>,
    /// Number of events to accept before reading stops.
    pub head: Option<u64>,
    /// Text that names, values or the message must contain, ignoring case.
    pub text: Option<String>,
}

/// Parsed filters. Filters on the header are cheap, so callers apply them first.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    providers: Vec<NamePattern>,
    events: Vec<NamePattern>,
    level: Option<u8>,
    keyword: Option<u64>,
    pids: Vec<u32>,
    tids: Vec<u32>,
    cpus: Vec<u16>,
    from: Option<FileTime>,
    to: Option<FileTime>,
    /// Number of events to accept before reading stops.
    pub head: Option<u64>,
    /// Text that an event must contain, in lower case; [`Grep`](crate::grep::Grep) searches for it.
    pub text: Option<String>,
}

/// The provider of kernel events where space is short, in lower case.
const SHORT_KERNEL_NAME: &str = "kernel";

/// Names of the opcodes that begin and end an activity, in lower case.
const OPCODE_NAMES: [(u8, &str); 2] = [(1, "start"), (2, "stop")];

/// A provider by GUID or name, or an event by id or name; names may have wildcards.
#[derive(Clone, Debug)]
enum NamePattern {
    Guid(Guid),
    Id(u16),
    Pattern(String),
}

impl EventFilter {
    /// Parses criteria; time offsets count from `start`.
    pub fn new(criteria: &FilterCriteria, start: FileTime) -> Self {
        let to_provider = |text: &String| match text.parse() {
            Ok(guid) => NamePattern::Guid(guid),
            Err(_) => NamePattern::Pattern(text.to_lowercase()),
        };
        let to_event = |text: &String| match text.parse() {
            Ok(id) => NamePattern::Id(id),
            Err(_) => NamePattern::Pattern(text.to_lowercase()),
        };
        let to_wall_time = |moment: Option<Moment>| moment.map(|moment| moment.to_wall_time(start));
        Self {
            providers: criteria.providers.iter().map(to_provider).collect(),
            events: criteria.events.iter().map(to_event).collect(),
            level: criteria.level,
            keyword: criteria.keyword,
            pids: criteria.pids.clone(),
            tids: criteria.tids.clone(),
            cpus: criteria.cpus.clone(),
            from: to_wall_time(criteria.from),
            to: to_wall_time(criteria.to),
            head: criteria.head,
            text: criteria.text.as_ref().map(|text| text.to_lowercase()),
        }
    }

    /// Creates a filter on event names or ids only.
    pub fn for_events(names: &[String]) -> Self {
        let criteria = FilterCriteria { events: names.to_vec(), ..FilterCriteria::default() };
        Self::new(&criteria, FileTime::default())
    }

    /// Returns the filter without its processes and threads.
    #[must_use]
    pub fn without_ids(&self) -> Self {
        Self { pids: Vec::new(), tids: Vec::new(), ..self.clone() }
    }

    /// Returns whether the filter needs names or attribution in addition to headers.
    pub fn needs_description(&self) -> bool {
        let uses_text = !self.providers.is_empty() || !self.events.is_empty() || self.text.is_some();
        uses_text || !self.pids.is_empty() || !self.tids.is_empty()
    }

    /// Returns whether the provider of an event and the filters on its header alone decide whether it
    /// passes.
    pub fn needs_only_provider(&self) -> bool {
        self.events.is_empty() && self.text.is_none() && self.pids.is_empty() && self.tids.is_empty()
    }

    /// Returns whether the filter may reject events.
    pub fn is_restrictive(&self) -> bool {
        self.needs_description()
            || self.level.is_some()
            || self.keyword.is_some()
            || !self.cpus.is_empty()
            || self.from.is_some()
            || self.to.is_some()
    }

    /// Returns the first and last wall time that pass.
    pub fn time_span(&self) -> (Option<FileTime>, Option<FileTime>) {
        (self.from, self.to)
    }

    /// Returns whether the filter uses names or text that only a schema provides.
    pub fn uses_names(&self) -> bool {
        let has_pattern = |names: &[NamePattern]| names.iter().any(|n| matches!(n, NamePattern::Pattern(_)));
        has_pattern(&self.providers) || has_pattern(&self.events) || self.text.is_some()
    }

    /// Returns whether a time is in the time span.
    #[inline]
    pub fn accepts_time(&self, time: FileTime) -> bool {
        self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time <= to)
    }

    /// Returns whether a record passes the filters that need no decoding.
    #[inline]
    pub fn accepts_header(&self, record: &Record<'_>, time: FileTime) -> bool {
        if !self.accepts_time(time) {
            return false;
        }
        if !self.cpus.is_empty() && !self.cpus.contains(&record.cpu()) {
            return false;
        }
        if self.level.is_none() && self.keyword.is_none() {
            return true;
        }
        self.accepts_descriptor(&record.descriptor())
    }

    /// Returns whether level and keyword pass.
    #[inline]
    pub fn accepts_descriptor(&self, descriptor: &EventDescriptor) -> bool {
        // Level 0 means "always" and passes, as when recording. A keyword filter passes only events
        // with keywords.
        self.level.is_none_or(|max_level| descriptor.level <= max_level)
            && self.keyword.is_none_or(|mask| descriptor.keyword & mask != 0)
    }

    /// Returns whether an event passes the filters that need names or attribution, except
    /// the text.
    #[inline]
    pub fn accepts(&self, event: &DescribedEvent<'_>) -> bool {
        self.accepts_actor(event)
            && ((self.providers.is_empty() && self.events.is_empty())
                || self.accepts_identity(&event.identity()))
    }

    /// Returns whether a process and a thread pass.
    #[inline]
    pub fn accepts_ids(&self, pid: u32, tid: u32) -> bool {
        (self.pids.is_empty() || self.pids.contains(&pid))
            && (self.tids.is_empty() || self.tids.contains(&tid))
    }

    /// Returns whether provider and name or id of an event pass.
    pub fn accepts_identity(&self, event: &EventIdentity<'_>) -> bool {
        (self.providers.is_empty() || self.providers.iter().any(|p| p.matches_provider(event)))
            && (self.events.is_empty() || self.events.iter().any(|n| n.matches_event(event)))
    }

    /// Returns whether the filter selects providers.
    pub fn has_providers(&self) -> bool {
        !self.providers.is_empty()
    }

    /// Returns whether the filter selects events by name or id.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns whether the filter selects only events with names of kernel events, which need no
    /// schema.
    pub fn selects_kernel_names(&self) -> bool {
        let is_kernel_name = |event: &NamePattern| match event {
            NamePattern::Pattern(name) => !kernel::find_events(name).is_empty(),
            _ => false,
        };
        self.has_events() && self.events.iter().all(is_kernel_name)
    }

    /// Returns whether the filter selects levels above 0; events of level 0 pass it too.
    pub fn passes_level_0_by_rule(&self) -> bool {
        self.level.is_some_and(|max_level| max_level > 0)
    }

    /// Returns whether the provider of an event passes.
    #[inline]
    pub fn accepts_provider(&self, event: &DescribedEvent<'_>) -> bool {
        self.providers.is_empty() || {
            let identity = event.identity();
            self.providers.iter().any(|p| p.matches_provider(&identity))
        }
    }

    /// Returns the provider names of the filter, in lower case, with their wildcards.
    pub fn provider_patterns(&self) -> impl Iterator<Item = &str> {
        self.providers.iter().filter_map(|provider| match provider {
            NamePattern::Pattern(name) => Some(&**name),
            _ => None,
        })
    }

    /// Returns whether the process and thread that wrote an event, or those that it is about, pass.
    #[inline]
    pub fn accepts_actor(&self, event: &DescribedEvent<'_>) -> bool {
        let actor = event.actor;
        let has_pid =
            |pid: &u32| event.record.process_id() == *pid || actor.is_some_and(|actor| actor.pid == *pid);
        let has_tid =
            |tid: &u32| event.record.thread_id() == *tid || actor.is_some_and(|actor| actor.tid == *tid);
        (self.pids.is_empty() || self.pids.iter().any(has_pid))
            && (self.tids.is_empty() || self.tids.iter().any(has_tid))
    }
}

impl NamePattern {
    fn matches_provider(&self, event: &EventIdentity<'_>) -> bool {
        match self {
            Self::Guid(guid) => event.provider == *guid,
            Self::Pattern(pattern) => event.provider_name.is_some_and(|name| {
                let name = name.to_lowercase();
                // Kernel events share one provider name; other commands show them with their class.
                let class = || kernel::class_name(&event.provider).map(str::to_lowercase);
                matches_pattern(pattern, &name)
                    || (event.is_kernel && matches_pattern(pattern, SHORT_KERNEL_NAME))
                    || class().is_some_and(|c| matches_pattern(pattern, &format!("{name} ({c})")))
            }),
            Self::Id(_) => false,
        }
    }

    fn matches_event(&self, event: &EventIdentity<'_>) -> bool {
        match self {
            Self::Id(id) => {
                let EventDescriptor { id: event_id, opcode, .. } = event.descriptor;
                *id == if event.is_kernel { u16::from(opcode) } else { event_id }
            }
            Self::Pattern(pattern) => event.event_name.map(str::to_lowercase).is_some_and(|name| {
                let part = name.rsplit_once('/').map(|(_, part)| part);
                // As text output prints it.
                let with_provider =
                    || Some(format!("{}/{name}", event.provider_name.filter(|_| pattern.contains('/'))?));
                // As the list of `weir view` shows it.
                let with_kernel = || {
                    (event.is_kernel && pattern.contains('/')).then(|| format!("{SHORT_KERNEL_NAME}/{name}"))
                };
                // Other tools join the names of task and opcode.
                let joined = || part.map(|_| name.replace('/', ""));
                // As other tools show a TraceLogging event, which has no name of its opcode.
                let with_opcode = || {
                    let opcode = OPCODE_NAMES.iter().find(|(code, _)| *code == event.descriptor.opcode);
                    Some(format!("{name}/{}", opcode.filter(|_| pattern.contains('/') && part.is_none())?.1))
                };
                matches_pattern(pattern, &name)
                    || part.is_some_and(|part| matches_pattern(pattern, part))
                    || joined().is_some_and(|name| matches_pattern(pattern, &name))
                    || with_opcode().is_some_and(|name| matches_pattern(pattern, &name))
                    || with_kernel().is_some_and(|name| matches_pattern(pattern, &name))
                    || with_provider().is_some_and(|name| matches_pattern(pattern, &name.to_lowercase()))
            }),
            Self::Guid(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(pattern: &str, event_name: &str, opcode: u8) -> bool {
        let identity = EventIdentity {
            provider: Guid::NULL,
            provider_name: Some("Shop"),
            event_name: Some(event_name),
            descriptor: EventDescriptor { opcode, ..EventDescriptor::default() },
            is_kernel: false,
        };
        EventFilter::for_events(&[pattern.to_owned()]).accepts_identity(&identity)
    }

    #[test]
    fn activity_events_have_the_names_of_their_opcodes() {
        for (pattern, name, opcode, is_accepted) in [
            ("Order/Stop", "Order", 2, true),
            ("order/st*", "Order", 1, true),
            ("Order/Stop", "Order", 1, false),
            ("Order/Stop", "Order", 0, false),
            ("Order", "Order", 2, true),
            ("Stop", "Order", 2, false),
            ("Order/Stop", "Order/Stop", 2, true),
            ("Shop/Order", "Order", 2, true),
        ] {
            assert_eq!(accepts(pattern, name, opcode), is_accepted, "{pattern} {name} {opcode}");
        }
    }

    #[test]
    fn names_of_kernel_events_are_recognised() {
        let selects = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            EventFilter::for_events(&names).selects_kernel_names()
        };
        assert!(selects(&["CSwitch"]) && selects(&["Thread/CSwitch", "DiskIo"]));
        assert!(!selects(&[]) && !selects(&["CSwitch", "Order"]) && !selects(&["36"]));
    }
}

//! Event filters of the command line.

use traceweir_format::Guid;
use traceweir_format::header::Record;
use traceweir_format::kernel;
use traceweir_format::time::FileTime;

use crate::cli::{EventFilterArgs, FilterArgs, exit_with_conflict};
use crate::event::DescribedEvent;
use crate::text::{Moment, matches_pattern, suggest_names};

/// Parsed filters. Filters on the header are cheap, so callers apply them first.
#[derive(Debug, Default)]
pub(crate) struct EventFilter {
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
    pub(crate) head: Option<u64>,
    /// Text that an event must contain, in lower case.
    pub(crate) grep: Option<String>,
}

/// A provider by GUID or name, or an event by id or name; names may have wildcards.
#[derive(Debug)]
enum NamePattern {
    Guid(Guid),
    Id(u16),
    Pattern(String),
}

impl EventFilter {
    /// Creates the filter from arguments; time offsets count from `start`.
    pub(crate) fn new(typed: &FilterArgs, start: FileTime) -> Self {
        let to_provider = |text: &String| match text.parse() {
            Ok(guid) => NamePattern::Guid(guid),
            Err(_) => NamePattern::Pattern(text.to_lowercase()),
        };
        Self {
            providers: typed.provider.iter().map(to_provider).collect(),
            ..Self::for_all_providers(&typed.events, start)
        }
    }

    /// Creates a filter that accepts all providers.
    pub(crate) fn for_all_providers(typed: &EventFilterArgs, start: FileTime) -> Self {
        let to_event = |text: &String| match text.parse() {
            Ok(id) => NamePattern::Id(id),
            Err(_) => NamePattern::Pattern(text.to_lowercase()),
        };
        let to_wall_time = |moment: Option<Moment>| moment.map(|moment| moment.to_wall_time(start));
        let (from, to) = (to_wall_time(typed.from), to_wall_time(typed.to));
        Self {
            providers: Vec::new(),
            events: typed.event.iter().map(to_event).collect(),
            level: typed.level,
            keyword: typed.keyword,
            pids: typed.pid.clone(),
            tids: typed.tid.clone(),
            cpus: typed.cpu.clone(),
            from,
            to,
            head: typed.head,
            grep: typed.grep.as_ref().map(|t| t.to_lowercase()),
        }
    }

    /// Creates a filter on event names or ids only.
    pub(crate) fn for_events(names: &[String]) -> Self {
        Self::for_all_providers(
            &EventFilterArgs { event: names.to_vec(), ..EventFilterArgs::default() },
            FileTime::default(),
        )
    }

    /// Returns whether the filter needs names or attribution in addition to headers.
    pub(crate) fn needs_description(&self) -> bool {
        let uses_text = !self.providers.is_empty() || !self.events.is_empty() || self.grep.is_some();
        uses_text || !self.pids.is_empty() || !self.tids.is_empty()
    }

    /// Exits with a usage error if no time can pass.
    pub(crate) fn check_times(&self) {
        if self.from.zip(self.to).is_some_and(|(from, to)| from > to) {
            exit_with_conflict("--from is later than --to, so no event can match");
        }
    }

    /// Returns whether the filter may reject events.
    pub(crate) fn is_restrictive(&self) -> bool {
        self.needs_description()
            || self.level.is_some()
            || self.keyword.is_some()
            || !self.cpus.is_empty()
            || self.from.is_some()
            || self.to.is_some()
    }

    /// Returns the first and last wall time that pass.
    pub(crate) fn time_span(&self) -> (Option<FileTime>, Option<FileTime>) {
        (self.from, self.to)
    }

    /// Returns whether the filter uses names or text that only a schema provides.
    pub(crate) fn uses_names(&self) -> bool {
        let has_pattern = |names: &[NamePattern]| names.iter().any(|n| matches!(n, NamePattern::Pattern(_)));
        has_pattern(&self.providers) || has_pattern(&self.events) || self.grep.is_some()
    }

    /// Returns whether a record passes the filters that need no decoding.
    #[inline]
    pub(crate) fn accepts_header(&self, record: &Record<'_>, time: FileTime) -> bool {
        if self.from.is_some_and(|from| time < from) || self.to.is_some_and(|to| time > to) {
            return false;
        }
        if !self.cpus.is_empty() && !self.cpus.contains(&record.cpu()) {
            return false;
        }
        if self.level.is_none() && self.keyword.is_none() {
            return true;
        }
        let descriptor = record.descriptor();
        // Level 0 means "always" and passes, as when recording. A keyword filter passes only events
        // with keywords.
        self.level.is_none_or(|max_level| descriptor.level <= max_level)
            && self.keyword.is_none_or(|mask| descriptor.keyword & mask != 0)
    }

    /// Returns whether an event passes the filters that need names or attribution, except
    /// `--grep`.
    #[inline]
    pub(crate) fn accepts(&self, event: &DescribedEvent<'_>) -> bool {
        self.accepts_actor(event)
            && self.accepts_provider(event)
            && (self.events.is_empty() || self.events.iter().any(|n| n.matches_event(event)))
    }

    /// Returns whether the filter selects providers.
    pub(crate) fn has_providers(&self) -> bool {
        !self.providers.is_empty()
    }

    /// Explains what the filters take, to follow "no event matched".
    pub(crate) fn no_match_hint(&self) -> &'static str {
        let is_recording_form = |provider: &NamePattern| match provider {
            NamePattern::Pattern(name) => name.contains([':', ',', '@']),
            _ => false,
        };
        if self.providers.iter().any(is_recording_form) {
            "; --provider takes one name or GUID and may be repeated; --keyword and --level select further"
        } else if !self.events.is_empty() {
            "; weir stats lists the names of events"
        } else if self.from.is_some() || self.to.is_some() {
            "; weir info shows the times of the first and last event"
        } else {
            ""
        }
    }

    /// Returns whether `--level` selects levels above 0; events of level 0 pass it too.
    pub(crate) fn passes_level_0_by_rule(&self) -> bool {
        self.level.is_some_and(|max_level| max_level > 0)
    }

    /// Returns whether the provider of an event passes.
    #[inline]
    pub(crate) fn accepts_provider(&self, event: &DescribedEvent<'_>) -> bool {
        self.providers.is_empty() || self.providers.iter().any(|p| p.matches_provider(event))
    }

    /// Suggests names for providers that the filter selects by name, without wildcards.
    pub(crate) fn suggest_providers(&self, names: &[String]) -> Option<String> {
        self.providers.iter().find_map(|provider| match provider {
            NamePattern::Pattern(name) if !name.contains(['*', '?']) => suggest_names(name, names),
            _ => None,
        })
    }

    #[inline]
    fn accepts_actor(&self, event: &DescribedEvent<'_>) -> bool {
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
    fn matches_provider(&self, event: &DescribedEvent<'_>) -> bool {
        match self {
            Self::Guid(guid) => event.record.provider() == *guid,
            Self::Pattern(pattern) => event.provider.is_some_and(|name| {
                let name = name.to_lowercase();
                // Kernel events share one provider name; other commands show them with their class.
                let class = || kernel::class_name(&event.record.provider()).map(str::to_lowercase);
                matches_pattern(pattern, &name)
                    || class().is_some_and(|c| matches_pattern(pattern, &format!("{name} ({c})")))
            }),
            Self::Id(_) => false,
        }
    }

    fn matches_event(&self, event: &DescribedEvent<'_>) -> bool {
        match self {
            Self::Id(id) => {
                let descriptor = event.record.descriptor();
                *id == if event.record.hook().is_some() {
                    u16::from(descriptor.opcode)
                } else {
                    descriptor.id
                }
            }
            Self::Pattern(pattern) => {
                let name = event
                    .schema_match
                    .as_ref()
                    .ok()
                    .and_then(|schema_match| schema_match.prepared.event_name.as_deref());
                name.map(str::to_lowercase).is_some_and(|name| {
                    let part = name.rsplit_once('/').map(|(_, part)| part);
                    // As text output prints it.
                    let with_provider =
                        || Some(format!("{}/{name}", event.provider.filter(|_| pattern.contains('/'))?));
                    // Other tools join the names of task and opcode.
                    let joined = || part.map(|_| name.replace('/', ""));
                    matches_pattern(pattern, &name)
                        || part.is_some_and(|part| matches_pattern(pattern, part))
                        || joined().is_some_and(|name| matches_pattern(pattern, &name))
                        || with_provider().is_some_and(|name| matches_pattern(pattern, &name.to_lowercase()))
                })
            }
            Self::Guid(_) => false,
        }
    }
}

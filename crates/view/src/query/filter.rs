//! The filter of the event list: the filter options of `weir dump`, and text.
//!
//! ```text
//!   --provider NAME  --event NAME  --level N  --keyword MASK  --pid N  --tid N  --cpu N
//!   --from TIME  --to TIME  --head N  --grep TEXT
//!   provider:NAME    event:NAME …             the same, shorter
//!   words, "several words"                    text that the event contains
//!
//!   thread:ID  process:ID  process:NAME       threads, and all threads of processes; see `links`
//!
//!   of links of the page:
//!   kind:N                                    index of a kind of events
//!   file:N  connection:N                      transfers of a file or connection, and of others of its name
//!   field:NAME=TEXT                           the first field of this name has this text
//!   range:NAME=LOW..HIGH, LOW..=HIGH          … or a number from LOW to before, or to, HIGH
//!
//!   EventQuery ──▶ RowFilter: by the columns of the index ─┬─▶ accepted, rejected
//!                                                          └─▶ unknown: EventFilter reads the record
//! ```
//!
//! Without options of links, both accept the events that `weir dump` prints with the same options.

use traceweir_analysis::event::EventIdentity;
use traceweir_analysis::filter::{EventFilter, FilterCriteria};
use traceweir_analysis::text::{parse_level, parse_mask, parse_moment};
use traceweir_format::header::NO_ID;
use traceweir_format::time::FileTime;

use crate::index::Index;
use crate::index::kinds::Kind;
use crate::index::threads::{Thread, ThreadIndex};
use crate::query::TimeSpan;
use crate::query::fields::FieldText;
use crate::query::links::{LinkTarget, choose_threads};
use crate::query::transfers::{ChosenTransfers, TransferTarget};
use crate::trace::TraceView;

/// The longest filter in characters.
const MAX_CHARS: usize = 2000;
/// The most texts of a filter.
const MAX_TEXTS: usize = 32;

/// A parsed filter. Values of one option are alternatives.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EventQuery {
    pub(crate) criteria: FilterCriteria,
    /// Texts, all of which the event contains.
    pub(crate) texts: Vec<String>,
    /// Indices of kinds, which links of the page use.
    kinds: Vec<u16>,
    threads: Vec<LinkTarget>,
    processes: Vec<LinkTarget>,
    transfers: Vec<TransferTarget>,
    /// Conditions, all of which the fields of the event meet.
    pub(crate) fields: Vec<FieldCriterion>,
    pub(crate) span: Option<TimeSpan>,
}

/// A condition on the first field of a name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldCriterion {
    name: String,
    condition: FieldCondition,
}

#[derive(Clone, Debug, PartialEq)]
enum FieldCondition {
    Text(String),
    Range { low: f64, high: f64, includes_high: bool },
}

impl FieldCriterion {
    fn parse_text(value: &str) -> Option<Self> {
        let (name, text) = value.split_once('=')?;
        Some(Self { name: name.to_owned(), condition: FieldCondition::Text(text.to_owned()) })
    }

    fn parse_range(value: &str) -> Option<Self> {
        let (name, range) = value.split_once('=')?;
        let (low, high) = range.split_once("..")?;
        let (high, includes_high) = high.strip_prefix('=').map_or((high, false), |high| (high, true));
        let number = |text: &str| text.parse().ok().filter(|number: &f64| number.is_finite());
        let condition = FieldCondition::Range { low: number(low)?, high: number(high)?, includes_high };
        Some(Self { name: name.to_owned(), condition })
    }

    /// Returns whether the fields of an event meet the condition.
    pub(crate) fn accepts(&self, fields: &[FieldText]) -> bool {
        let Some(field) = fields.iter().find(|field| field.name == self.name) else { return false };
        match &self.condition {
            FieldCondition::Text(text) => field.value == *text,
            FieldCondition::Range { low, high, includes_high } => field.number.is_some_and(|number| {
                number >= *low && (number < *high || *includes_high && number <= *high)
            }),
        }
    }
}

/// Whether a filter accepts an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Reject,
    /// Only the record shows it.
    Unknown,
    Accept,
}

/// What rows a filter accepts by the columns of the index.
pub(crate) struct RowFilter {
    kinds: Vec<Verdict>,
    /// Which threads are named, themselves or by their processes; empty without such options.
    linked: Vec<bool>,
    /// By the ids of threads and processes; empty if the filter names none.
    threads: Vec<Verdict>,
    /// Kinds whose events may be about other processes than the one of their row; empty without a
    /// filter of processes or threads.
    about_others: Vec<bool>,
    /// Threads whose process the trace does not name: that of a kernel event is unknown.
    guessed: Vec<bool>,
    /// Which kinds are kernel events.
    kernel: Vec<bool>,
    cpus: Vec<u16>,
    /// `None` if the filter accepts events that are no transfers.
    transfers: Option<ChosenTransfers>,
}

impl EventQuery {
    /// Parses a filter. The error names the part that is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.chars().count() > MAX_CHARS {
            return Err("the filter is too long".to_owned());
        }
        let mut query = Self::default();
        let mut words = split_words(text).into_iter();
        while let Some(Word { text: word, is_quoted }) = words.next() {
            if is_quoted {
                query.texts.push(word);
                continue;
            }
            if let Some(option) = word.strip_prefix("--") {
                let (name, value) = match option.split_once('=') {
                    Some((name, value)) => (name.to_owned(), value.to_owned()),
                    None => {
                        let value = words.next().ok_or_else(|| format!("--{option} needs a value"))?;
                        (option.to_owned(), value.text)
                    }
                };
                if !query.set(&name, &value)? {
                    return Err(format!("unknown option --{name}"));
                }
                continue;
            }
            let is_option = match word.split_once(':') {
                Some((name, value)) if !value.is_empty() => query.set(name, value)?,
                _ => false,
            };
            if !is_option {
                query.texts.push(word);
            }
        }
        if query.texts.len() > MAX_TEXTS {
            return Err("the filter has too many words".to_owned());
        }
        Ok(query)
    }

    /// Sets an option. Returns false if there is no option of that name.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
            value.parse().map_err(|_| format!("{name}: {value} is not a number in range"))
        }
        let explain = |hint: String| format!("{name}: {hint}");
        let criteria = &mut self.criteria;
        match name {
            "provider" => criteria.providers.push(value.to_owned()),
            "event" => criteria.events.push(value.to_owned()),
            "level" => criteria.level = Some(parse_level(value).map_err(explain)?),
            "keyword" => criteria.keyword = Some(parse_mask(value).map_err(explain)?),
            "pid" => criteria.pids.push(number(name, value)?),
            "tid" => criteria.tids.push(number(name, value)?),
            "cpu" => criteria.cpus.push(number(name, value)?),
            "from" => criteria.from = Some(parse_moment(value).map_err(explain)?),
            "to" => criteria.to = Some(parse_moment(value).map_err(explain)?),
            "head" => criteria.head = Some(number(name, value)?),
            "grep" => self.texts.push(value.to_owned()),
            "kind" => self.kinds.push(number(name, value)?),
            "thread" | "process" => {
                let target = LinkTarget::parse(value);
                let target = target.ok_or_else(|| explain(format!("{value} is not a number in range")))?;
                if name == "thread" { &mut self.threads } else { &mut self.processes }.push(target);
            }
            "file" | "connection" => {
                let is_connection = name == "connection";
                self.transfers.push(TransferTarget { is_connection, file: number(name, value)? });
            }
            "field" => {
                let criterion = FieldCriterion::parse_text(value);
                self.fields.push(criterion.ok_or_else(|| explain("use NAME=TEXT".to_owned()))?);
            }
            "range" => {
                let criterion = FieldCriterion::parse_range(value);
                self.fields.push(criterion.ok_or_else(|| explain("use NAME=LOW..HIGH".to_owned()))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the same filter, limited to a time span.
    pub(crate) fn within(mut self, span: Option<TimeSpan>) -> Self {
        self.span = span;
        self
    }

    /// Returns the time span of the filter for traces that begin at a wall time; `None` for all.
    pub(crate) fn time_span(&self, start: FileTime) -> Option<TimeSpan> {
        let FilterCriteria { from, to, .. } = self.criteria;
        if from.is_none() && to.is_none() {
            return self.span;
        }
        let mut span = self.span.unwrap_or(TimeSpan { from: 0, to: i64::MAX });
        let to_ns = |wall: FileTime| wall.0.saturating_sub(start.0).saturating_mul(100);
        if let Some(from) = from {
            span.from = span.from.max(to_ns(from.to_wall_time(start)));
        }
        if let Some(to) = to {
            // A moment has a resolution of 100 ns.
            span.to = span.to.min(to_ns(to.to_wall_time(start)).saturating_add(99));
        }
        Some(span)
    }

    /// Returns whether the filter accepts all events of its time span.
    pub(crate) fn is_empty(&self) -> bool {
        let criteria =
            FilterCriteria { from: self.criteria.from, to: self.criteria.to, ..Default::default() };
        *self == Self { criteria, span: self.span, ..Self::default() }
    }

    /// Returns the parts of the filter that records are compared with, and one filter per text.
    pub(crate) fn to_event_filters(&self, start: FileTime) -> (EventFilter, Vec<EventFilter>) {
        // The rows of the time span are found by the index, whose times never decrease.
        let criteria = FilterCriteria { from: None, to: None, head: None, ..self.criteria.clone() };
        let with_text =
            |text: &String| FilterCriteria { text: Some(text.clone()), ..FilterCriteria::default() };
        let texts = self.texts.iter().map(|text| EventFilter::new(&with_text(text), start));
        (EventFilter::new(&criteria, start), texts.collect())
    }

    /// Prepares the filter for the kinds and threads of an index.
    pub(crate) fn to_row_filter(&self, filter: &EventFilter, view: &TraceView, index: &Index) -> RowFilter {
        let texts: Vec<String> = self.texts.iter().map(|text| text.to_lowercase()).collect();
        let kinds = index.kinds.kinds.iter().enumerate();
        let judge = |(number, kind): (usize, &Kind)| {
            let is_chosen = self.kinds.is_empty() || self.kinds.iter().any(|k| usize::from(*k) == number);
            let best = if self.fields.is_empty() { Verdict::Accept } else { Verdict::Unknown };
            if is_chosen { judge_kind(filter, &texts, index, kind).min(best) } else { Verdict::Reject }
        };
        let kinds = kinds.map(judge).collect();
        let FilterCriteria { pids, tids, cpus, .. } = &self.criteria;
        let names_ids = !pids.is_empty() || !tids.is_empty();
        let has_links = !self.threads.is_empty() || !self.processes.is_empty();
        let linked =
            if has_links { choose_threads(index, &self.threads, &self.processes) } else { Vec::new() };
        let threads = (0_u32..).zip(&index.threads.threads);
        let judge = |(number, thread): (u32, &Thread)| {
            let is_shared =
                ThreadIndex(number) == ThreadIndex::OTHER || [thread.pid, thread.tid].contains(&NO_ID);
            match () {
                () if is_shared => Verdict::Unknown,
                () if (pids.is_empty() || pids.contains(&thread.pid))
                    && (tids.is_empty() || tids.contains(&thread.tid)) =>
                {
                    Verdict::Accept
                }
                // Headers without a process or thread have this id.
                () if pids.contains(&NO_ID) || tids.contains(&NO_ID) => Verdict::Unknown,
                () => Verdict::Reject,
            }
        };
        let threads = threads.filter(|_| names_ids).map(judge).collect();
        let about_others =
            index.kinds.kinds.iter().filter(|_| names_ids).map(|kind| kind.is_about_others).collect();
        let kernel = index.kinds.kinds.iter().filter(|_| names_ids).map(|kind| kind.hook.is_some()).collect();
        let facts = view.facts();
        let is_guessed = |thread: &Thread| {
            let (file, stamp) = thread.last_stamp;
            let known = facts.files.get(file).and_then(|facts| facts.actors.process_of(thread.tid, stamp));
            known != Some(thread.pid)
        };
        let guessed = index.threads.threads.iter().filter(|_| names_ids).map(is_guessed).collect();
        let transfers = (!self.transfers.is_empty()).then(|| ChosenTransfers::new(&self.transfers, index));
        RowFilter { kinds, linked, threads, about_others, guessed, kernel, cpus: cpus.clone(), transfers }
    }
}

/// Returns whether the events of a kind pass, apart from their processes and values.
fn judge_kind(filter: &EventFilter, texts: &[String], index: &Index, kind: &Kind) -> Verdict {
    // Without a schema, an event may know less of its provider than other events.
    if kind.is_mixed || kind.name.is_none() {
        return Verdict::Unknown;
    }
    let provider = index.kinds.provider_of(kind);
    let identity = EventIdentity {
        provider: provider.map_or_else(Default::default, |provider| provider.guid),
        // The index adds the class to the name of the kernel.
        provider_name: match kind.hook {
            Some(_) => Some("Windows Kernel"),
            None => provider.filter(|provider| !provider.is_unnamed()).map(|provider| &*provider.name),
        },
        event_name: kind.name.as_deref(),
        descriptor: kind.descriptor,
        is_kernel: kind.hook.is_some(),
    };
    if !filter.accepts_descriptor(&kind.descriptor) || !filter.accepts_identity(&identity) {
        return Verdict::Reject;
    }
    let names = || {
        let provider = identity.provider_name.unwrap_or_default();
        format!("{provider}/{}", identity.event_name.unwrap_or_default()).to_lowercase()
    };
    if texts.is_empty() || {
        let names = names();
        texts.iter().all(|text| names.contains(text))
    } {
        return Verdict::Accept;
    }
    Verdict::Unknown
}

impl RowFilter {
    /// Returns the rows from `row` to before `end` that are transfers of the chosen files and
    /// connections, in their order; `None` if the filter has no such choice.
    pub(crate) fn find_transfers(&self, index: &Index, row: u64, end: u64) -> Option<Vec<u64>> {
        self.transfers.as_ref().map(|transfers| transfers.find_rows(index, row, end))
    }

    /// Returns whether a row is accepted by the values of its columns thread, kind and processor.
    #[inline]
    pub(crate) fn judge(&self, thread: u64, kind: u64, cpu: u64) -> Verdict {
        let find = |list: &[Verdict], number: u64| {
            usize::try_from(number)
                .ok()
                .and_then(|number| list.get(number))
                .copied()
                .unwrap_or(Verdict::Reject)
        };
        let has = |list: &[bool], number: u64| {
            usize::try_from(number).ok().and_then(|number| list.get(number)).copied().unwrap_or(false)
        };
        let by_kind = find(&self.kinds, kind);
        if by_kind == Verdict::Reject
            || (!self.linked.is_empty() && !has(&self.linked, thread))
            || (!self.cpus.is_empty() && !self.cpus.iter().any(|known| u64::from(*known) == cpu))
        {
            return Verdict::Reject;
        }
        if self.threads.is_empty() {
            return by_kind;
        }
        let by_thread = find(&self.threads, thread);
        match by_thread {
            Verdict::Reject if has(&self.about_others, kind) => Verdict::Unknown,
            Verdict::Accept if has(&self.guessed, thread) && has(&self.kernel, kind) => Verdict::Unknown,
            by_thread => by_thread.min(by_kind),
        }
    }
}

/// A part of a filter.
struct Word {
    text: String,
    is_quoted: bool,
}

/// Splits a filter at spaces. Quotes keep spaces.
fn split_words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut is_quoted, mut is_open) = (false, false);
    for c in text.chars() {
        match c {
            '"' => {
                is_open = !is_open;
                is_quoted |= word.is_empty();
            }
            c if c.is_whitespace() && !is_open => {
                if !word.is_empty() {
                    words.push(Word { text: std::mem::take(&mut word), is_quoted });
                }
                is_quoted = false;
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(Word { text: word, is_quoted });
    }
    words
}

#[cfg(test)]
mod tests {
    use traceweir_format::Guid;

    use super::*;
    use crate::query::{EventLists, complete_list, list_events};
    use crate::test_trace::{TestTrace, ask, view_of};

    #[test]
    fn filter_has_options_of_dump_and_words() {
        let query = EventQuery::parse("--provider Contoso.* event:Served pid:7 \"two words\" Soup").unwrap();
        assert_eq!(query.criteria.providers, ["Contoso.*"]);
        assert_eq!(query.criteria.events, ["Served"]);
        assert_eq!(query.criteria.pids, [7]);
        assert_eq!(query.texts, ["two words", "Soup"]);
        assert!(EventQuery::parse("").unwrap().is_empty());
        assert!(EventQuery::parse("--from 1s").unwrap().is_empty());
        assert!(EventQuery::parse("--pid x").is_err() && EventQuery::parse("--nosuch 1").is_err());
        assert_eq!(EventQuery::parse("http://x").unwrap().texts, ["http://x"]);
        assert_eq!(EventQuery::parse("level:error").unwrap().criteria.level, Some(2));
    }

    #[test]
    fn links_of_processes_accept_the_events_of_their_threads() {
        let mut trace = TestTrace::new(0);
        let provider = Guid::from_u128(0xAAAA);
        trace.add_process(1, 100, "a.exe");
        trace.add_process(2, 200, "b.exe");
        for (time, ids) in [(10, (100, 11)), (20, (100, 12)), (30, (200, 21)), (40, (100, 11))] {
            trace.add_event(time, provider, (1, 0), ids, &[]);
        }
        let view = view_of(vec![trace]);
        let count = |filter: &str| {
            let query = EventQuery::parse(&format!("provider:{provider} {filter}")).unwrap();
            let lists = EventLists::default();
            complete_list(&view, &lists, &query);
            ask(|json| list_events(&view, &lists, query.clone(), 0, 10, json))["total"].as_u64().unwrap()
        };
        assert_eq!(count("process:100"), 3);
        assert_eq!(count("process:A.exe"), 3);
        assert_eq!(count("process:?.exe"), 4);
        assert_eq!(count("process:\"a.exe (100)\""), 3);
        assert_eq!(count("process:200"), 1);
        assert_eq!(count("process:100 process:200"), 4);
        assert_eq!(count("process:100 thread:11"), 2);
        assert_eq!(count("process:200 thread:11"), 0);
        assert_eq!(count("process:100 pid:200"), 0);
        assert_eq!(count("process:4000000000"), 0);
        assert_eq!(count("process:nosuch"), 0);
        assert!(EventQuery::parse("process:4294967296").is_err());
        assert!(!EventQuery::parse("process:0").unwrap().is_empty());
    }

    #[test]
    fn threads_that_reuse_an_id_have_numbers() {
        let mut trace = TestTrace::new(0);
        let provider = Guid::from_u128(0xAAAA);
        for (time, ids) in [(10, (100, 11)), (20, (200, 11)), (30, (200, 11)), (40, (200, 12))] {
            trace.add_event(time, provider, (1, 0), ids, &[]);
        }
        let view = view_of(vec![trace]);
        let count = |filter: &str| {
            let (query, lists) = (EventQuery::parse(filter).unwrap(), EventLists::default());
            complete_list(&view, &lists, &query);
            ask(|json| list_events(&view, &lists, query.clone(), 0, 10, json))["total"].as_u64().unwrap()
        };
        let filters = ["thread:11", "thread:11@1", "thread:11@2", "thread:11@3", "thread:12@1"];
        assert_eq!(filters.map(count), [3, 1, 2, 0, 1]);
    }

    #[test]
    fn provider_of_kernel_events_is_found_as_the_list_shows_it() {
        let mut trace = TestTrace::new(0);
        trace.add_switch(10, 0, (0, 11), 2);
        trace.add_event(20, Guid::from_u128(0xAAAA), (1, 0), (100, 11), &[]);
        let view = view_of(vec![trace]);
        let count = |filter: &str| {
            let (query, lists) = (EventQuery::parse(filter).unwrap(), EventLists::default());
            complete_list(&view, &lists, &query);
            ask(|json| list_events(&view, &lists, query.clone(), 0, 10, json))["total"].as_u64().unwrap()
        };
        let filters = ["provider:Kernel", "provider:kern*", "event:Kernel/*", "provider:Kern"];
        assert_eq!(filters.map(count), [1, 1, 1, 0]);
    }

    #[test]
    fn conditions_on_fields_are_parsed_and_compared() {
        let query = EventQuery::parse("kind:5 field:\"File Name=a b=c\" range:Size=1.5..8 file:3").unwrap();
        assert!(!query.is_empty() && query.texts.is_empty() && query.fields.len() == 2);
        assert_eq!(query.transfers, [TransferTarget { is_connection: false, file: 3 }]);
        let field = |name: &str, value: &str, number| FieldText {
            name: name.to_owned(),
            value: value.to_owned(),
            number,
            ..FieldText::default()
        };
        let [text, range] = &query.fields[..] else { panic!("{query:?}") };
        assert!(text.accepts(&[field("File Name", "a b=c", None)]));
        assert!(!text.accepts(&[field("File Name", "a b=cd", None)]) && !text.accepts(&[]));
        let in_range = |criterion: &FieldCriterion, number| criterion.accepts(&[field("Size", "", number)]);
        assert!(in_range(range, Some(1.5)) && in_range(range, Some(7.9)));
        assert!(!in_range(range, Some(8.0)) && !in_range(range, Some(1.0)) && !in_range(range, None));
        let closed = FieldCriterion::parse_range("Size=-1e3..=8").unwrap();
        assert!(in_range(&closed, Some(8.0)) && in_range(&closed, Some(-1000.0)));
        // Only the first field of the name counts, as in statistics.
        assert!(!text.accepts(&[field("File Name", "x", None), field("File Name", "a b=c", None)]));
        for wrong in ["field:x", "range:x", "range:x=1", "range:x=a..b", "range:x=nan..1", "file:x"] {
            assert!(EventQuery::parse(wrong).is_err(), "{wrong}");
        }
    }
}

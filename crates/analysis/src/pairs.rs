//! Pairs of start and stop events: the one rule by which everything that shows or exports the time
//! between them finds them.
//!
//! ```text
//!   thread 7   Start A ──── Start B ── Stop B ──── Stop A     a stop ends the last start of its task
//!   thread 7   Start A, activity 1 ─┐
//!   thread 8                        └── Stop A, activity 1    an activity may change the thread
//! ```
//!
//! P1  An event with opcode 1 is a start, one with opcode 2 a stop, except the events of the kernel:
//!     theirs start and stop processes, threads and other objects, which do not nest.
//! P2  The task is the provider and the task of the event. Without a task, the id of the start
//!     identifies it; the id of the stop is the next one. The task of a classic event is its class.
//! P3  The activity is the activity id of the event. The garbage collections of .NET are activities
//!     by their number and process.
//! P4  A stop ends the last open start of its task on its thread. If both have an activity, it must
//!     be the same one. If there is none, a stop with an activity ends the last open start of its
//!     task and activity on any thread.
//! P5  A start is no second start if one of the same task and activity is open on its thread and has
//!     another id or version: some providers write two events at a start.
//! P6  A stop without a start is no pair. A start without a stop stays open, and the caller gets it at
//!     the end. Callers show it until the end of the traces if its task has stopped at least once;
//!     otherwise, the start is a single event.
//! P7  The numbers of open starts, of those of one thread, and of tasks are limited. On a thread with
//!     too many, the oldest start of a task that has never stopped gives way, preferably one of the
//!     same task. If there is none, or if all threads together have too many, the new start begins
//!     no pair.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use traceweir_format::header::{Family, Record};
use traceweir_format::kernel::hook::is_kernel_class;
use traceweir_format::{Guid, dotnet};

const START: u8 = 1;
const STOP: u8 = 2;
/// Ids of the events of the .NET runtime that begin and end a garbage collection. Their payload
/// begins with its number.
const GC_START: u16 = 1;
const GC_END: u16 = 2;
/// The most starts that are open at the same time.
pub const MAX_OPEN_PAIRS: usize = 1 << 16;
/// The most tasks to remember.
const MAX_TASKS: usize = 1 << 16;

/// Provider, task and, without a task, the id of the start (P2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairTask {
    provider: Guid,
    task: u16,
    id: u16,
}

impl PairTask {
    /// Returns a task that has a provider for itself.
    pub const fn of_provider(provider: Guid) -> Self {
        Self { provider, task: 0, id: 0 }
    }
}

/// Which of the activities of a task an event belongs to (P3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PairActivity {
    /// The event names none.
    None,
    /// An activity id.
    Id(Guid),
    /// The process and the number of a garbage collection.
    Collection(u32, u32),
}

/// An event that may begin or end a pair. The caller chooses how `K` identifies threads.
#[derive(Clone, Copy, Debug)]
pub struct PairEvent<K> {
    /// The thread.
    pub thread: K,
    /// The task.
    pub task: PairTask,
    /// The activity.
    pub activity: PairActivity,
    /// Whether the event is a start; otherwise it is a stop.
    pub is_start: bool,
    /// Id and version of the event.
    pub id_and_version: (u16, u8),
}

/// Returns whether an event is a start or a stop (P1).
pub fn is_pair_event(record: &Record<'_>) -> bool {
    if !matches!(record.descriptor().opcode, START | STOP) {
        return false;
    }
    match record.family() {
        Family::Event => true,
        Family::Full | Family::Instance => {
            !record.provider().is_null() && !is_kernel_class(&record.provider())
        }
        _ => false,
    }
}

/// Returns the name of a pair: that of its start event without the mark of the start.
pub fn pair_name(start_name: &str) -> &str {
    let base = ["/win:Start", "/Start", "_Start", "Start", "/Begin", "Begin"]
        .into_iter()
        .find_map(|end| start_name.strip_suffix(end))
        .filter(|base| !base.is_empty());
    base.unwrap_or(start_name)
}

impl<K> PairEvent<K> {
    /// Returns the start or stop that a record is; `None` for other records.
    pub fn from_record(record: &Record<'_>, thread: K) -> Option<Self> {
        if !is_pair_event(record) {
            return None;
        }
        let descriptor = record.descriptor();
        let is_start = descriptor.opcode == START;
        let start_id = descriptor.id.saturating_sub(u16::from(!is_start));
        let task = PairTask {
            provider: record.provider(),
            task: descriptor.task,
            id: if descriptor.task == 0 { start_id } else { 0 },
        };
        let activity = read_activity(record);
        Some(Self { thread, task, activity, is_start, id_and_version: (descriptor.id, descriptor.version) })
    }
}

fn read_activity(record: &Record<'_>) -> PairActivity {
    let is_collection =
        record.provider() == dotnet::RUNTIME && matches!(record.descriptor().id, GC_START | GC_END);
    if is_collection && let Some(number) = record.payload().first_chunk::<4>() {
        return PairActivity::Collection(record.process_id(), u32::from_le_bytes(*number));
    }
    record.activity().filter(|id| !id.is_null()).map_or(PairActivity::None, PairActivity::Id)
}

/// A start whose stop has not come.
#[derive(Debug)]
pub struct OpenPair<K, T> {
    /// Identifies the pair; later starts have higher ids.
    pub id: u64,
    /// The start.
    pub start: PairEvent<K>,
    /// The caller's data.
    pub data: T,
}

/// The result of [`OpenPairs::begin`].
#[derive(Debug)]
pub enum Begun<K, T> {
    /// The start is open.
    Open {
        /// Identifies the pair.
        id: u64,
        /// A start that gave way (P7).
        replaced: Option<OpenPair<K, T>>,
    },
    /// The start belongs to one that is already open (P5).
    Repeated,
    /// There are too many open starts (P7).
    Full,
}

/// The position of an open start.
#[derive(Clone, Copy, Debug)]
pub struct PairPosition<K> {
    /// The thread of the start.
    pub thread: K,
    /// The number of open starts that began before it on its thread.
    pub index: usize,
}

/// The open starts. `K` identifies threads, `T` is the caller's data.
#[derive(Debug)]
pub struct OpenPairs<K, T> {
    /// The open starts of each thread, the last one last.
    by_thread: HashMap<K, Vec<OpenPair<K, T>>>,
    /// The threads of the starts with an activity. Those of one task and activity are next to each
    /// other, in the order of their starts.
    by_activity: BTreeMap<(PairTask, PairActivity, u64), K>,
    /// The tasks that have stopped at least once.
    stopping: HashSet<PairTask>,
    max_per_thread: usize,
    count: usize,
    next_id: u64,
}

impl<K: Copy + Eq + Hash + Ord, T> OpenPairs<K, T> {
    /// Creates an empty table with a limit of open starts of one thread.
    pub fn with_max_per_thread(max_per_thread: usize) -> Self {
        Self {
            by_thread: HashMap::new(),
            by_activity: BTreeMap::new(),
            stopping: HashSet::new(),
            max_per_thread,
            count: 0,
            next_id: 1,
        }
    }

    /// Returns the number of open starts.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Returns whether no start is open.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether a task has stopped at least once.
    pub fn has_stopped(&self, task: PairTask) -> bool {
        self.stopping.contains(&task)
    }

    /// Returns the tasks that have stopped at least once.
    pub fn into_stopping(self) -> HashSet<PairTask> {
        self.stopping
    }

    /// Adds a task that stops.
    pub fn add_stopping(&mut self, task: PairTask) {
        if self.stopping.len() < MAX_TASKS {
            self.stopping.insert(task);
        }
    }

    /// Returns the open starts of a thread, the last one last.
    pub fn open_on(&self, thread: K) -> &[OpenPair<K, T>] {
        self.by_thread.get(&thread).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the threads with open starts, in ascending order.
    pub fn threads(&self) -> Vec<K> {
        let mut threads: Vec<K> = self.by_thread.keys().copied().collect();
        threads.sort_unstable();
        threads
    }

    /// Opens a start. `new_data` gets its id and the open starts of its thread.
    pub fn begin(
        &mut self,
        start: &PairEvent<K>,
        new_data: impl FnOnce(u64, &[OpenPair<K, T>]) -> T,
    ) -> Begun<K, T> {
        let open = self.by_thread.get(&start.thread).map(Vec::as_slice).unwrap_or_default();
        let is_same =
            |pair: &&OpenPair<K, T>| pair.start.task == start.task && pair.start.activity == start.activity;
        if open.iter().find(is_same).is_some_and(|pair| pair.start.id_and_version != start.id_and_version) {
            return Begun::Repeated;
        }
        let mut replaced = None;
        if open.len() >= self.max_per_thread {
            let never_stops = |pair: &OpenPair<K, T>| !self.stopping.contains(&pair.start.task);
            let same_task = open.iter().position(|pair| pair.start.task == start.task && never_stops(pair));
            let Some(index) = same_task.or_else(|| open.iter().position(never_stops)) else {
                return Begun::Full;
            };
            replaced = self.remove(PairPosition { thread: start.thread, index });
        }
        if self.count >= MAX_OPEN_PAIRS {
            return Begun::Full;
        }
        let id = self.next_id;
        self.next_id = id.saturating_add(1);
        self.count = self.count.saturating_add(1);
        if start.activity != PairActivity::None {
            self.by_activity.insert((start.task, start.activity, id), start.thread);
        }
        let open = self.by_thread.entry(start.thread).or_default();
        let data = new_data(id, open);
        open.push(OpenPair { id, start: *start, data });
        Begun::Open { id, replaced }
    }

    /// Returns the start that a stop ends (P4).
    pub fn find(&self, stop: &PairEvent<K>) -> Option<PairPosition<K>> {
        let is_match = |pair: &OpenPair<K, T>| {
            let is_any = [pair.start.activity, stop.activity].contains(&PairActivity::None);
            pair.start.task == stop.task && (is_any || pair.start.activity == stop.activity)
        };
        if let Some(index) = self.open_on(stop.thread).iter().rposition(is_match) {
            return Some(PairPosition { thread: stop.thread, index });
        }
        if stop.activity == PairActivity::None {
            return None;
        }
        let same = (stop.task, stop.activity, 0)..=(stop.task, stop.activity, u64::MAX);
        let ((.., id), thread) = self.by_activity.range(same).next_back()?;
        let index = self.open_on(*thread).iter().position(|pair| pair.id == *id)?;
        Some(PairPosition { thread: *thread, index })
    }

    /// Ends the start that a stop belongs to, and remembers that its task stops.
    pub fn end(&mut self, stop: &PairEvent<K>) -> Option<OpenPair<K, T>> {
        self.add_stopping(stop.task);
        self.remove(self.find(stop)?)
    }

    /// Removes an open start.
    pub fn remove(&mut self, position: PairPosition<K>) -> Option<OpenPair<K, T>> {
        let open = self.by_thread.get_mut(&position.thread)?;
        if position.index >= open.len() {
            return None;
        }
        let pair = open.remove(position.index);
        if open.is_empty() {
            self.by_thread.remove(&position.thread);
        }
        self.by_activity.remove(&(pair.start.task, pair.start.activity, pair.id));
        self.count = self.count.saturating_sub(1);
        Some(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event in a table: "thread start task activity", such as `7 + A` or `7 - A 1`.
    fn parse_event(text: &str) -> PairEvent<u32> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (task, version) = (u16::from(words[2].as_bytes()[0]), words[2].len() as u8);
        let id = |word: &&str| PairActivity::Id(Guid::from_u128(word.parse().unwrap()));
        PairEvent {
            thread: words[0].parse().unwrap(),
            task: PairTask { provider: Guid::from_u128(1), task, id: 0 },
            activity: words.get(3).map_or(PairActivity::None, id),
            is_start: words[1] == "+",
            id_and_version: (task, version),
        }
    }

    /// Returns the numbers of the events of each pair, and of those that stay open.
    fn pair(events: &[&str]) -> (Vec<(usize, usize)>, Vec<usize>) {
        let mut open = OpenPairs::with_max_per_thread(4);
        let mut pairs = Vec::new();
        for (number, event) in events.iter().map(|text| parse_event(text)).enumerate() {
            if event.is_start {
                open.begin(&event, |_, _| number);
            } else if let Some(start) = open.end(&event) {
                pairs.push((start.data, number));
            }
        }
        let mut left = Vec::new();
        for thread in open.threads() {
            while let Some(pair) = open.remove(PairPosition { thread, index: 0 }) {
                left.push(pair.data);
            }
        }
        assert!(open.is_empty() && open.by_thread.is_empty() && open.by_activity.is_empty());
        left.sort_unstable();
        (pairs, left)
    }

    #[test]
    fn starts_and_stops_pair_by_one_rule() {
        type Case = (&'static str, &'static [&'static str], &'static [(usize, usize)], &'static [usize]);
        let cases: &[Case] = &[
            ("pairs of a thread nest", &["7 + A", "7 + B", "7 - B", "7 - A"], &[(1, 2), (0, 3)], &[]),
            ("the last start of a task ends first", &["7 + A", "7 + A", "7 - A"], &[(1, 2)], &[0]),
            ("tasks may overlap", &["7 + A", "7 + B", "7 - A", "7 - B"], &[(0, 2), (1, 3)], &[]),
            ("threads do not mix", &["7 + A", "8 - A", "7 - A"], &[(0, 2)], &[]),
            ("activities of a thread do not mix", &["7 + A 1", "7 + A 2", "7 - A 1"], &[(0, 2)], &[1]),
            ("an activity changes the thread", &["7 + A 1", "8 - A 1"], &[(0, 1)], &[]),
            ("the last start of all threads", &["7 + A 1", "8 + A 1", "9 - A 1"], &[(1, 2)], &[0]),
            ("the own thread comes first", &["7 + A 1", "8 + A 1", "7 - A 1"], &[(0, 2)], &[1]),
            ("only the stop has an activity", &["7 + A", "7 - A 1"], &[(0, 1)], &[]),
            ("only the start has an activity", &["7 + A 1", "7 - A"], &[(0, 1)], &[]),
            ("without an activity, no other thread", &["7 + A 1", "8 - A"], &[], &[0]),
            ("a stop without a start", &["7 - A", "7 + A"], &[], &[1]),
            ("two versions of a start", &["7 + A", "7 + AA", "7 - A", "7 - A"], &[(0, 2)], &[]),
            ("the oldest gives way", &["7 + A", "7 + B", "7 + C", "7 + D", "7 + E"], &[], &[1, 2, 3, 4]),
            (
                "one of the same task first",
                &["7 + A", "7 + B", "7 + B", "7 + C", "7 + B"],
                &[],
                &[0, 2, 3, 4],
            ),
            (
                "tasks that stop do not give way",
                &["7 + A", "7 - A", "7 + A", "7 + A", "7 + A", "7 + A", "7 + B", "7 - A"],
                &[(0, 1), (5, 7)],
                &[2, 3, 4],
            ),
        ];
        for (name, events, pairs, left) in cases {
            assert_eq!(pair(events), (pairs.to_vec(), left.to_vec()), "{name}");
        }
    }

    #[test]
    fn number_of_open_starts_is_limited() {
        let mut open = OpenPairs::with_max_per_thread(256);
        let mut full = 0;
        for number in 0..MAX_OPEN_PAIRS as u32 + 10 {
            let event = PairEvent { thread: number, ..parse_event("7 + A 1") };
            full += u32::from(matches!(open.begin(&event, |_, _| ()), Begun::Full));
        }
        assert_eq!((open.len(), open.by_activity.len(), full), (MAX_OPEN_PAIRS, MAX_OPEN_PAIRS, 10));
        assert_eq!(open.by_thread.len(), MAX_OPEN_PAIRS, "refused starts must leave nothing");
    }
}

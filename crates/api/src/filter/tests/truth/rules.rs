//! The documented rules in plain form: parameters of a session, an event, and whether the session
//! gets the event. Independent of the implementation.

/// The id of the manifest events of the table.
pub(super) const ID: u16 = 7;
/// The name of the TraceLogging events of the table.
pub(super) const NAME: &str = "seven";

/// The parameters of a controller's enable, as the rules name them.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleParams {
    pub(super) level: u8,
    pub(super) any: u64,
    pub(super) all: u64,
    pub(super) ignore_keyword_0: bool,
    pub(super) ids: Option<Ids>,
    pub(super) names: Option<Names>,
    /// Payloads up to this number pass.
    pub(super) payload_up_to: Option<u64>,
    /// A filter for the callback, which does not affect events.
    pub(super) has_schematized: bool,
    /// Whether stacks are requested; the next fields select the events that get one.
    pub(super) wants_stacks: bool,
    pub(super) stack_ids: Option<Ids>,
    pub(super) stack_names: Option<Names>,
    /// A part of the events, and whether the events in this part or all others get a stack.
    pub(super) stack_part: Option<(Part, bool)>,
}

/// Listed ids, and whether these (`true`) or all others (`false`) pass.
pub(super) type Ids = (Vec<u16>, bool);
/// Listed names, whether these (`true`) or all others (`false`) pass, and the part of the events
/// that the filter applies to.
pub(super) type Names = (Vec<&'static str>, bool, Part);
/// A part of all events, given by any-mask, all-mask and level.
pub(super) type Part = (u64, u64, u8);

/// An event of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TestEvent {
    pub(super) level: u8,
    pub(super) keyword: u64,
    pub(super) is_tracelogging: bool,
    /// The payload of the event; never 0.
    pub(super) number: u64,
}

impl RuleParams {
    /// Returns whether the session gets an event: level, keyword and all filters must pass.
    pub(super) fn gets_event(&self, e: &TestEvent) -> bool {
        self.accepts(e)
            && passes_ids(self.ids.as_ref(), e)
            && passes_names(self.names.as_ref(), e)
            && self.passes_payload(e)
    }

    /// Returns whether the session gets the stack of an event: it must get the event and request
    /// stacks, and each stack filter must pass.
    pub(super) fn gets_stack(&self, e: &TestEvent) -> bool {
        self.gets_event(e)
            && self.wants_stacks
            && passes_ids(self.stack_ids.as_ref(), e)
            && passes_names(self.stack_names.as_ref(), e)
            && self.stack_part.is_none_or(|(part, filter_in)| is_in_part(part, e) == filter_in)
    }

    fn accepts(&self, e: &TestEvent) -> bool {
        let is_level_accepted = self.level == 0 || e.level <= self.level;
        let any = if self.any == 0 { u64::MAX } else { self.any };
        let is_keyword_accepted = if e.keyword == 0 {
            !self.ignore_keyword_0
        } else {
            (e.keyword & any) != 0 && (e.keyword & self.all) == self.all
        };
        is_level_accepted && is_keyword_accepted
    }

    fn passes_payload(&self, e: &TestEvent) -> bool {
        e.is_tracelogging || self.payload_up_to.is_none_or(|limit| e.number <= limit)
    }

    /// Returns whether filters decide about events: callback and stack filters do not.
    fn is_filtered(&self) -> bool {
        self.ids.is_some() || self.names.is_some() || self.payload_up_to.is_some()
    }
}

/// Returns whether an id filter passes an event: the listed ids pass or, with `false`, all others.
/// TraceLogging events always pass.
fn passes_ids(filter: Option<&Ids>, e: &TestEvent) -> bool {
    match filter {
        Some((ids, filter_in)) if !e.is_tracelogging => ids.contains(&ID) == *filter_in,
        _ => true,
    }
}

/// Returns whether a name filter passes an event: the listed names pass or, with `false`, all others.
/// Manifest events always pass, as do events outside the filter's level/keyword part.
fn passes_names(filter: Option<&Names>, e: &TestEvent) -> bool {
    match filter {
        Some((names, filter_in, part)) if e.is_tracelogging && is_in_part(*part, e) => {
            names.contains(&NAME) == *filter_in
        }
        _ => true,
    }
}

/// Returns whether an event is in a part. The all-mask is unused if the any-mask is 0.
fn is_in_part((any, all, level): Part, e: &TestEvent) -> bool {
    let is_level_accepted = level == 0 || e.level <= level;
    is_level_accepted && (any == 0 || e.keyword == 0 || (e.keyword & any != 0 && e.keyword & all == all))
}

/// The parameters of all sessions together: the highest level, the union of the any-masks and the
/// intersection of the all-masks, where a level or any-mask of 0 counts as everything. Keyword 0 is
/// rejected if every session has IGNORE_KEYWORD_0.
#[derive(Clone, Copy, Debug)]
pub(super) struct CombinedRules {
    level: Option<u8>,
    any: u64,
    all: u64,
    ignores_keyword_0: bool,
}

impl CombinedRules {
    pub(super) fn combine(sessions: &[&RuleParams]) -> Self {
        Self {
            level: sessions.iter().map(|s| if s.level == 0 { 255 } else { s.level }).max(),
            any: sessions.iter().fold(0, |any, s| any | if s.any == 0 { u64::MAX } else { s.any }),
            all: sessions.iter().fold(u64::MAX, |all, s| all & s.all),
            ignores_keyword_0: sessions.iter().all(|s| s.ignore_keyword_0),
        }
    }

    pub(super) fn is_enabled(&self, e: &TestEvent) -> bool {
        let is_keyword_accepted = match e.keyword {
            0 => !self.ignores_keyword_0,
            keyword => (keyword & self.any) != 0 && (keyword & self.all) == self.all,
        };
        self.level.is_some_and(|level| e.level <= level) && is_keyword_accepted
    }
}

/// Like [`CombinedRules::is_enabled`], but also checks id filters if every session has filters.
pub(super) fn is_event_enabled(sessions: &[&RuleParams], e: &TestEvent) -> bool {
    let passes_by_id = sessions.iter().any(|s| s.accepts(e) && passes_ids(s.ids.as_ref(), e));
    let all_are_filtered = sessions.iter().all(|s| s.is_filtered());
    CombinedRules::combine(sessions).is_enabled(e) && (!all_are_filtered || e.is_tracelogging || passes_by_id)
}

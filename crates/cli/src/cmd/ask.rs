//! `weir ask`: queries information classes about the system or a session.
//!
//! ```text
//!   class ──▶ one query, or one per source or processor ──▶ ClassAnswer ──▶ table │ JSON object
//! ```
//!
//! The command starts no daemon. If no daemon runs, it prints the answers that a daemon without
//! sessions and registrations would give.

use anyhow::{Context, Result, anyhow};
use traceweir::controller::Controller;
use traceweir::controller::info::{Answer, InfoClass, Query, query_system_without_daemon};
use traceweir::{Error, Guid, Session, Status};
use traceweir_format::spec::info::{RequiredSession, software_source};

use crate::cli::{AskArgs, exit_with_conflict};
use crate::exit::CommandOutcome;
use crate::output::print_text;
use crate::sessions;
use crate::text::{JsonObject, escape, format_count, format_number, format_table, json_array};

/// First id of profile sources that depend on the processor. Sources with smaller ids are the same
/// on every machine.
const FIRST_MACHINE_SPECIFIC_SOURCE: u32 = 0x1000;
/// Id of the timer among the profile sources.
const TIMER_SOURCE: u32 = 0;
/// Maximum number of processors to query.
const MAX_PROCESSORS: u32 = 4096;
const INTERVAL_UNITS_PER_MS: f64 = 10_000.0;

/// The answer for one information class.
struct ClassAnswer {
    lines: Vec<String>,
    json: String,
}

impl ClassAnswer {
    fn from_count(number: u32, noun: &str) -> Self {
        Self { lines: vec![format_count(number.into(), noun)], json: number.to_string() }
    }

    /// Returns an answer with several items, each given as text line and JSON value.
    fn from_list(items: impl IntoIterator<Item = (String, String)>) -> Self {
        let (lines, values): (Vec<_>, Vec<_>) = items.into_iter().unzip();
        Self { lines, json: json_array(values) }
    }

    fn from_guids(guids: &[Guid]) -> Self {
        Self::from_list(guids.iter().map(|guid| (format!("{{{guid}}}"), format!("\"{guid}\""))))
    }
}

pub(super) fn run(options: &AskArgs) -> Result<CommandOutcome> {
    let classes = classes_to_query(options);
    let (mut daemon, session) = match &options.session {
        Some(name) => {
            let (controller, session) = sessions::connect_to_session(options.daemon_choice, name)?;
            (Some(controller), Some(session))
        }
        None => (sessions::find_daemon(options.daemon_choice)?, None),
    };
    let mut answers = Vec::new();
    for class in classes {
        let queried_session = session.as_ref().filter(|_| is_about_session(class));
        match query_class(daemon.as_mut(), queried_session, class) {
            // If no class was named, classes for other kinds of sessions are left out.
            Err(e) if options.classes.is_empty() && is_about_session(class) && is_wrong_session_kind(&e) => {}
            result => {
                answers.push((class, result.map_err(|e| anyhow!(e)).with_context(|| format_context(class))?))
            }
        }
    }
    let text = if options.json { format_objects(&answers) } else { format_page(&answers) };
    print_text(&text)?;
    Ok(CommandOutcome::Fine)
}

/// Returns the classes named on the command line, or else all about the session or all about
/// the system.
fn classes_to_query(options: &AskArgs) -> Vec<InfoClass> {
    let has_session = options.session.is_some();
    if let Some(class) = options.classes.iter().find(|class| is_about_session(**class) && !has_session) {
        exit_with_conflict(&format!("{} is about a session: name one with --session", class.name()));
    }
    if !options.classes.is_empty() {
        return options.classes.clone();
    }
    // The list of groups has no query of its own; `query_groups` takes it from the providers.
    let can_query = |class: &InfoClass| class.rules().can_query || *class == InfoClass::TraceGroupQueryList;
    InfoClass::ALL
        .into_iter()
        .filter(|class| can_query(class) && is_about_session(*class) == has_session)
        .collect()
}

fn is_about_session(class: InfoClass) -> bool {
    class.rules().required_session == RequiredSession::Session
}

/// Returns whether a query failed because the session is of another kind: not a system logger, or
/// private.
fn is_wrong_session_kind(error: &Error) -> bool {
    matches!(error.status(), Status::ERROR_INVALID_PARAMETER | Status::ERROR_NOT_SUPPORTED)
}

fn format_context(class: InfoClass) -> String {
    format!("cannot query {} ({})", class.name(), class.number())
}

fn format_objects(answers: &[(InfoClass, ClassAnswer)]) -> String {
    let format_object = |(class, answer): &(InfoClass, ClassAnswer)| {
        let mut object = JsonObject::new();
        object.number("class", class.number()).text("name", class.name()).raw("answer", &answer.json);
        object.finish() + "\n"
    };
    answers.iter().map(format_object).collect()
}

fn format_page(answers: &[(InfoClass, ClassAnswer)]) -> String {
    let mut rows = vec![["Class", "Name", "Answer"].map(str::to_owned)];
    for (class, answer) in answers {
        let mut lines = answer.lines.iter().map(|line| escape(line));
        let first = lines.next().unwrap_or_else(|| "none".to_owned());
        rows.push([class.number().to_string(), class.name().to_owned(), first]);
        rows.extend(lines.map(|line| [String::new(), String::new(), line]));
    }
    format_table(&rows, &[true, false, false])
}

fn query_class(
    mut daemon: Option<&mut Controller>,
    session: Option<&Session>,
    class: InfoClass,
) -> Result<ClassAnswer, Error> {
    let mut send_query = |query| match (session, daemon.as_deref_mut()) {
        (Some(session), _) => session.query_information(query),
        (None, Some(daemon)) => daemon.query_system(query),
        (None, None) => query_system_without_daemon(query),
    };
    match class {
        InfoClass::TraceSampledProfileIntervalInfo => query_intervals(&mut send_query),
        InfoClass::TracePmcCounterOwners => query_counter_owners(&mut send_query),
        InfoClass::TraceGroupQueryList => query_groups(daemon),
        class => Ok(format_answer(send_query(Query::new(class.number(), 0)?)?)),
    }
}

fn format_answer(answer: Answer) -> ClassAnswer {
    match answer {
        Answer::Version(version) => {
            ClassAnswer { lines: vec![version.to_string()], json: version.to_string() }
        }
        Answer::MaxLoggers(number) => ClassAnswer::from_count(number, "session"),
        Answer::MaxPmcCounter(number) => ClassAnswer::from_count(number, "counter"),
        Answer::StreamCount(number) => ClassAnswer::from_count(number, "stream"),
        Answer::DisallowList(guids) => ClassAnswer::from_guids(&guids),
        Answer::PeriodicCaptureState { least_seconds, most_providers } => {
            let line = format!(
                "at most every {least_seconds} s, {}",
                format_count(most_providers.into(), "provider")
            );
            let mut object = JsonObject::new();
            object.number("least_seconds", least_seconds).number("most_providers", most_providers);
            ClassAnswer { lines: vec![line], json: object.finish() }
        }
        Answer::SystemTraceEnableFlags(mask) => {
            let words: Vec<String> = mask.iter().map(|word| format!("{word:#x}")).collect();
            let json = json_array(words.iter().map(|word| format!("\"{word}\"")));
            ClassAnswer { lines: vec![words.join(" ")], json }
        }
        Answer::StackTracing(events) => ClassAnswer::from_list(events.iter().map(|event| {
            let mut object = JsonObject::new();
            object.text("guid", &event.class.to_string()).number("opcode", event.opcode);
            (format!("{{{}}} {}", event.class, event.opcode), object.finish())
        })),
        Answer::ProfileSourceList(sources) => ClassAnswer::from_list(sources.iter().map(|source| {
            let mut object = JsonObject::new();
            object.number("source", source.source).text("name", &source.description);
            object.number("min_interval", source.min_interval).number("max_interval", source.max_interval);
            let (least, most) =
                (format_number(source.min_interval.into()), format_number(source.max_interval.into()));
            (format!("{} {}, every {least} to {most}", source.source, source.description), object.finish())
        })),
        Answer::SampledProfileInterval(sampled) => ClassAnswer {
            lines: vec![format_number(sampled.interval.into())],
            json: sampled.interval.to_string(),
        },
        Answer::PmcCounterOwners { owners, .. } => ClassAnswer::from_count(len_u32(&owners), "counter"),
        Answer::PmcSessions(sessions) => ClassAnswer::from_list(sessions.iter().map(|session| {
            let mut object = JsonObject::new();
            object.number("logger_id", session.logger_id);
            object.raw("sources", &json_array(session.sources.iter().map(ToString::to_string)));
            object.raw("hook_ids", &json_array(session.hook_ids.iter().map(ToString::to_string)));
            let (sources, events) = (len_u32(&session.sources), len_u32(&session.hook_ids));
            let (sources, events) =
                (format_count(sources.into(), "counter"), format_count(events.into(), "event"));
            (format!("logger {}: {sources} at {events}", session.logger_id), object.finish())
        })),
    }
}

fn len_u32<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}

type QueryFn<'a> = &'a mut dyn FnMut(Query) -> Result<Answer, Error>;

/// Queries the sampling interval of each source that is the same on every machine.
fn query_intervals(send_query: QueryFn<'_>) -> Result<ClassAnswer, Error> {
    let Answer::ProfileSourceList(sources) = send_query(Query::ProfileSourceList)? else {
        return Ok(ClassAnswer::from_list([]));
    };
    let mut intervals = Vec::new();
    for source in sources.iter().filter(|source| source.source < FIRST_MACHINE_SPECIFIC_SOURCE) {
        let Answer::SampledProfileInterval(sampled) =
            send_query(Query::SampledProfileInterval(source.source))?
        else {
            continue;
        };
        let interval_text = match sampled.source {
            TIMER_SOURCE | software_source::TASK_CLOCK => {
                format!(
                    "{} of 100 ns ({} ms)",
                    format_number(sampled.interval.into()),
                    f64::from(sampled.interval) / INTERVAL_UNITS_PER_MS
                )
            }
            _ => format!("{} counts", format_number(sampled.interval.into())),
        };
        let mut object = JsonObject::new();
        object
            .number("source", sampled.source)
            .text("name", &source.description)
            .number("interval", sampled.interval);
        intervals.push((
            format!("{} {}: every {interval_text}", sampled.source, source.description),
            object.finish(),
        ));
    }
    Ok(ClassAnswer::from_list(intervals))
}

/// Queries the counter owners of each processor, until a processor does not exist.
fn query_counter_owners(send_query: QueryFn<'_>) -> Result<ClassAnswer, Error> {
    let mut processors = Vec::new();
    for processor in 0..MAX_PROCESSORS {
        let owners = match send_query(Query::PmcCounterOwners(processor)) {
            Ok(Answer::PmcCounterOwners { owners, .. }) => owners,
            Ok(_) => break,
            Err(e) if processor > 0 && e.status() == Status::ERROR_INVALID_PARAMETER => break,
            Err(e) => return Err(e),
        };
        let words: Vec<&str> = owners
            .iter()
            .map(|owner| match owner.kind {
                // Values of ETW_PMC_COUNTER_OWNER_TYPE.
                0 => "free",
                1 => "taken",
                2 => "tagged",
                _ => "tagged with source",
            })
            .collect();
        let line = match words.as_slice() {
            [] => format!("processor {processor}: no counters"),
            words => format!("processor {processor}: {}", words.join(", ")),
        };
        let mut object = JsonObject::new();
        object.number("processor", processor);
        object.raw("owners", &json_array(words.iter().map(|word| format!("\"{word}\""))));
        processors.push((line, object.finish()));
    }
    Ok(ClassAnswer::from_list(processors))
}

/// Returns the provider groups that a provider has joined or a session has enabled.
fn query_groups(daemon: Option<&mut Controller>) -> Result<ClassAnswer, Error> {
    let providers = daemon.map_or(Ok(Vec::new()), Controller::providers)?;
    let groups: Vec<Guid> =
        providers.iter().filter(|provider| provider.is_group).map(|provider| provider.guid).collect();
    Ok(ClassAnswer::from_guids(&groups))
}

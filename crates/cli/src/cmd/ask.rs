//! `weir ask`: queries information classes about the system or a session.
//!
//! ```text
//!   class ──▶ one query, or one per source or processor ──▶ ClassAnswer ──▶ table │ JSON object
//! ```
//!
//! The command starts no daemon. Without one, it answers for an idle system; facts about the
//! machine need no daemon.

use anyhow::{Context, Result, anyhow};
use traceweir::controller::Controller;
use traceweir::controller::info::{Answer, InfoClass, Query, query_idle_system};
use traceweir::{Error, Guid, Session, Status};
use traceweir_format::spec::info::{About, software_source};

use crate::cli::{AskArgs, misuse};
use crate::exit::Outcome;
use crate::output::Output;
use crate::sessions;
use crate::text::{Object, array, counted, grouped, plain, table};

/// First id of sources that the processor names. Sources below have the same id on every machine;
/// those from here on are only listed.
const FIRST_NAMED: u32 = 0x1000;
/// Maximum number of processors to query.
const MAX_PROCESSORS: u32 = 4096;
/// Units of 100 ns per millisecond.
const UNITS_PER_MS: f64 = 10_000.0;

/// The answer for one information class.
struct ClassAnswer {
    lines: Vec<String>,
    json: String,
}

impl ClassAnswer {
    fn number(number: u32, what: &str) -> Self {
        Self { lines: vec![counted(number.into(), what)], json: number.to_string() }
    }

    /// Returns a list of items, each given as its text line and its JSON value.
    fn list(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let (lines, values): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        Self { lines, json: array(values) }
    }

    fn guids(guids: &[Guid]) -> Self {
        Self::list(guids.iter().map(|guid| (format!("{{{guid}}}"), format!("\"{guid}\""))))
    }
}

/// Runs `weir ask`.
pub(super) fn run(options: &AskArgs) -> Result<Outcome> {
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
        let about = session.as_ref().filter(|_| is_about_session(class));
        match query_class(daemon.as_mut(), about, class) {
            // When all classes are queried, those for other kinds of sessions are left out.
            Err(e) if options.classes.is_empty() && is_about_session(class) && is_for_other_sessions(&e) => {}
            other => {
                answers.push((class, other.map_err(|e| anyhow!(e)).with_context(|| failure_context(class))?))
            }
        }
    }
    let mut output = Output::open(None)?;
    let text = if options.json { objects(&answers) } else { page(&answers) };
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()?;
    Ok(Outcome::Fine)
}

/// Returns the classes named on the command line, else all about the session or all about the
/// system.
fn classes_to_query(options: &AskArgs) -> Vec<InfoClass> {
    let has_session = options.session.is_some();
    if let Some(class) = options.classes.iter().find(|class| is_about_session(**class) && !has_session) {
        misuse(&format!("{} is about a session: name one with --session", class.name()));
    }
    if !options.classes.is_empty() {
        return options.classes.clone();
    }
    let can_query = |class: &InfoClass| class.rules().queries || *class == InfoClass::TraceGroupQueryList;
    InfoClass::ALL
        .into_iter()
        .filter(|class| can_query(class) && is_about_session(*class) == has_session)
        .collect()
}

fn is_about_session(class: InfoClass) -> bool {
    class.rules().about == About::Session
}

/// Returns whether a query failed because the session is of another kind: not a system logger, or
/// private.
fn is_for_other_sessions(error: &Error) -> bool {
    matches!(error.status(), Status::ERROR_INVALID_PARAMETER | Status::ERROR_NOT_SUPPORTED)
}

fn failure_context(class: InfoClass) -> String {
    format!("cannot query {} ({})", class.name(), class.number())
}

fn objects(all: &[(InfoClass, ClassAnswer)]) -> String {
    let object = |(class, answer): &(InfoClass, ClassAnswer)| {
        let mut object = Object::new();
        object.number("class", class.number()).text("name", class.name()).raw("answer", &answer.json);
        object.finish() + "\n"
    };
    all.iter().map(object).collect()
}

fn page(all: &[(InfoClass, ClassAnswer)]) -> String {
    let mut rows = vec![["Class", "Name", "Answer"].map(str::to_owned)];
    for (class, answer) in all {
        let mut lines = answer.lines.iter().map(|line| plain(line));
        let first = lines.next().unwrap_or_else(|| "none".to_owned());
        rows.push([class.number().to_string(), class.name().to_owned(), first]);
        rows.extend(lines.map(|line| [String::new(), String::new(), line]));
    }
    table(&rows, &[true, false, false])
}

/// Queries a class.
fn query_class(
    mut daemon: Option<&mut Controller>,
    session: Option<&Session>,
    class: InfoClass,
) -> Result<ClassAnswer, Error> {
    let mut ask = |query| match (session, daemon.as_deref_mut()) {
        (Some(session), _) => session.query_information(query),
        (None, Some(daemon)) => daemon.query_system(query),
        (None, None) => query_idle_system(query),
    };
    match class {
        InfoClass::TraceSampledProfileIntervalInfo => intervals(&mut ask),
        InfoClass::TracePmcCounterOwners => owners(&mut ask),
        InfoClass::TraceGroupQueryList => groups(daemon),
        class => Ok(format_answer(ask(Query::new(class.number(), 0)?)?)),
    }
}

/// Formats one answer.
fn format_answer(answer: Answer) -> ClassAnswer {
    match answer {
        Answer::Version(version) => {
            ClassAnswer { lines: vec![version.to_string()], json: version.to_string() }
        }
        Answer::MaxLoggers(number) => ClassAnswer::number(number, "session"),
        Answer::MaxPmcCounter(number) => ClassAnswer::number(number, "counter"),
        Answer::StreamCount(number) => ClassAnswer::number(number, "stream"),
        Answer::DisallowList(guids) => ClassAnswer::guids(&guids),
        Answer::PeriodicCaptureState { least_seconds, most_providers } => {
            let line =
                format!("at most every {least_seconds} s, {}", counted(most_providers.into(), "provider"));
            let mut object = Object::new();
            object.number("least_seconds", least_seconds).number("most_providers", most_providers);
            ClassAnswer { lines: vec![line], json: object.finish() }
        }
        Answer::SystemTraceEnableFlags(mask) => {
            let words: Vec<String> = mask.iter().map(|word| format!("{word:#x}")).collect();
            let json = array(words.iter().map(|word| format!("\"{word}\"")));
            ClassAnswer { lines: vec![words.join(" ")], json }
        }
        Answer::StackTracing(events) => ClassAnswer::list(events.iter().map(|event| {
            let mut object = Object::new();
            object.text("guid", &event.class.to_string()).number("opcode", event.opcode);
            (format!("{{{}}} {}", event.class, event.opcode), object.finish())
        })),
        Answer::ProfileSourceList(sources) => ClassAnswer::list(sources.iter().map(|source| {
            let mut object = Object::new();
            object.number("source", source.source).text("name", &source.description);
            object.number("min_interval", source.min_interval).number("max_interval", source.max_interval);
            let (least, most) = (grouped(source.min_interval.into()), grouped(source.max_interval.into()));
            (format!("{} {}, every {least} to {most}", source.source, source.description), object.finish())
        })),
        Answer::SampledProfileInterval(sampled) => {
            ClassAnswer { lines: vec![grouped(sampled.interval.into())], json: sampled.interval.to_string() }
        }
        Answer::PmcCounterOwners { owners, .. } => ClassAnswer::number(count(&owners), "counter"),
        Answer::PmcSessions(sessions) => ClassAnswer::list(sessions.iter().map(|session| {
            let mut object = Object::new();
            object.number("logger_id", session.logger_id);
            object.raw("sources", &array(session.sources.iter().map(ToString::to_string)));
            object.raw("hook_ids", &array(session.hook_ids.iter().map(ToString::to_string)));
            let (sources, events) = (count(&session.sources), count(&session.hook_ids));
            let (sources, events) = (counted(sources.into(), "counter"), counted(events.into(), "event"));
            (format!("logger {}: {sources} at {events}", session.logger_id), object.finish())
        })),
    }
}

fn count<T>(all: &[T]) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

type QueryFn<'a> = &'a mut dyn FnMut(Query) -> Result<Answer, Error>;

/// Queries the sampling interval of each source that is the same on every machine.
fn intervals(ask: QueryFn<'_>) -> Result<ClassAnswer, Error> {
    let Answer::ProfileSourceList(sources) = ask(Query::ProfileSourceList)? else {
        return Ok(ClassAnswer::list([]));
    };
    let mut all = Vec::new();
    for source in sources.iter().filter(|source| source.source < FIRST_NAMED) {
        let Answer::SampledProfileInterval(sampled) = ask(Query::SampledProfileInterval(source.source))?
        else {
            continue;
        };
        let how_often = match sampled.source {
            0 | software_source::TASK_CLOCK => {
                format!(
                    "{} of 100 ns ({} ms)",
                    grouped(sampled.interval.into()),
                    f64::from(sampled.interval) / UNITS_PER_MS
                )
            }
            _ => format!("{} counts", grouped(sampled.interval.into())),
        };
        let mut object = Object::new();
        object
            .number("source", sampled.source)
            .text("name", &source.description)
            .number("interval", sampled.interval);
        all.push((format!("{} {}: every {how_often}", sampled.source, source.description), object.finish()));
    }
    Ok(ClassAnswer::list(all))
}

/// Queries the counter owners of each processor, until a processor does not exist.
fn owners(ask: QueryFn<'_>) -> Result<ClassAnswer, Error> {
    let mut all = Vec::new();
    for processor in 0..MAX_PROCESSORS {
        let owners = match ask(Query::PmcCounterOwners(processor)) {
            Ok(Answer::PmcCounterOwners { owners, .. }) => owners,
            Ok(_) => break,
            Err(e) if processor > 0 && e.status() == Status::ERROR_INVALID_PARAMETER => break,
            Err(e) => return Err(e),
        };
        let words: Vec<&str> = owners
            .iter()
            .map(|owner| match owner.kind {
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
        let mut object = Object::new();
        object.number("processor", processor);
        object.raw("owners", &array(words.iter().map(|word| format!("\"{word}\""))));
        all.push((line, object.finish()));
    }
    Ok(ClassAnswer::list(all))
}

/// Returns the provider groups that a provider has joined or a session has enabled.
fn groups(daemon: Option<&mut Controller>) -> Result<ClassAnswer, Error> {
    let all = daemon.map_or(Ok(Vec::new()), Controller::providers)?;
    let groups: Vec<Guid> =
        all.iter().filter(|provider| provider.is_group).map(|provider| provider.guid).collect();
    Ok(ClassAnswer::guids(&groups))
}

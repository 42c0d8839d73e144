//! `weir ask`: what the information classes tell, of the system or of a session.
//!
//! ```text
//!   class ──▶ one question, or one for each source or processor ──▶ Told ──▶ lines of a table │ an object
//! ```
//!
//! No daemon is started: without one an idle system answers, and what is about this machine is known without.

use anyhow::{Context, Result, anyhow};
use traceweir::controller::info::{self, Answer, InfoClass, NO_SESSION, Query};
use traceweir::controller::{Controller, SessionRef};
use traceweir::{Error, Guid, Status};
use traceweir_format::spec::info::{About, software_source};

use super::{counted, grouped};
use crate::cli::{Ask, misuse};
use crate::exit::Outcome;
use crate::export::{Object, array, plain};
use crate::output::Output;
use crate::sessions;
use crate::table::table;

/// Sources with an id below are the same on every machine; what a processor names itself is only listed.
const FIRST_NAMED: u32 = 0x1000;
/// Processors that are asked about at most.
const MAX_PROCESSORS: u32 = 4096;
/// In a millisecond, of 100 ns.
const TICKS: f64 = 10_000.0;

/// What is told of a class.
struct Told {
    /// For people.
    lines: Vec<String>,
    /// For programs.
    json: String,
}

impl Told {
    fn number(number: u32, what: &str) -> Self {
        Self { lines: vec![counted(number.into(), what)], json: number.to_string() }
    }

    /// Each with its line and its value.
    fn list(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let (lines, values): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        Self { lines, json: array(values) }
    }

    fn guids(guids: &[Guid]) -> Self {
        Self::list(guids.iter().map(|guid| (format!("{{{guid}}}"), format!("\"{guid}\""))))
    }
}

/// Runs the command.
pub(super) fn run(options: &Ask) -> Result<Outcome> {
    let session = options.session.clone().map_or(NO_SESSION, SessionRef::Name);
    let classes = wanted(options);
    let mut daemon = match &options.session {
        Some(name) => Some(sessions::controller_of(options.whose, name)?.0),
        None => sessions::find(options.whose)?,
    };
    let mut told = Vec::new();
    for class in classes {
        let about = if is_of_session(class) { &session } else { &NO_SESSION };
        match tell(daemon.as_mut(), about, class) {
            // Of all, those that are for other kinds of sessions are left out.
            Err(e) if options.classes.is_empty() && is_of_session(class) && is_of_others(&e) => {}
            other => told.push((class, other.map_err(|e| anyhow!(e)).with_context(|| about_what(class))?)),
        }
    }
    let mut output = Output::open(None)?;
    let text = if options.json { objects(&told) } else { page(&told) };
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()?;
    Ok(Outcome::Fine)
}

/// The classes that are meant: those that were named, else all about the system, or about the session.
fn wanted(options: &Ask) -> Vec<InfoClass> {
    let names_one = options.session.is_some();
    if let Some(class) = options.classes.iter().find(|class| is_of_session(**class) && !names_one) {
        misuse(&format!("{} is about a session: name one with --session", class.name()));
    }
    if !options.classes.is_empty() {
        return options.classes.clone();
    }
    let can = |class: &InfoClass| class.rules().queries || *class == InfoClass::TraceGroupQueryList;
    InfoClass::ALL.into_iter().filter(|class| can(class) && is_of_session(*class) == names_one).collect()
}

fn is_of_session(class: InfoClass) -> bool {
    class.rules().about == About::Session
}

/// Whether something is refused because the session is of another kind: not a system logger, or a private one.
fn is_of_others(error: &Error) -> bool {
    matches!(error.status(), Status::ERROR_INVALID_PARAMETER | Status::ERROR_NOT_SUPPORTED)
}

fn about_what(class: InfoClass) -> String {
    format!("{} ({}) cannot be told", class.name(), class.number())
}

fn objects(all: &[(InfoClass, Told)]) -> String {
    let object = |(class, told): &(InfoClass, Told)| {
        let mut object = Object::new();
        object.number("class", class.number()).text("name", class.name()).raw("answer", &told.json);
        object.finish() + "\n"
    };
    all.iter().map(object).collect()
}

fn page(all: &[(InfoClass, Told)]) -> String {
    let mut rows = vec![["Class", "Name", "Answer"].map(str::to_owned)];
    for (class, told) in all {
        let mut lines = told.lines.iter().map(|line| plain(line));
        let first = lines.next().unwrap_or_else(|| "none".to_owned());
        rows.push([class.number().to_string(), class.name().to_owned(), first]);
        rows.extend(lines.map(|line| [String::new(), String::new(), line]));
    }
    table(&rows, &[true, false, false])
}

/// What there is to say about a class.
fn tell(mut daemon: Option<&mut Controller>, session: &SessionRef, class: InfoClass) -> Result<Told, Error> {
    let mut ask = |query| info::ask(daemon.as_deref_mut(), session, query);
    match class {
        InfoClass::TraceSampledProfileIntervalInfo => intervals(&mut ask),
        InfoClass::TracePmcCounterOwners => owners(&mut ask),
        InfoClass::TraceGroupQueryList => groups(daemon),
        class => Ok(shown(ask(Query::new(class.number(), 0)?)?)),
    }
}

/// One answer.
fn shown(answer: Answer) -> Told {
    match answer {
        Answer::Version(version) => Told { lines: vec![version.to_string()], json: version.to_string() },
        Answer::MaxLoggers(number) => Told::number(number, "session"),
        Answer::MaxPmcCounter(number) => Told::number(number, "counter"),
        Answer::StreamCount(number) => Told::number(number, "stream"),
        Answer::DisallowList(guids) => Told::guids(&guids),
        Answer::PeriodicCaptureState { least_seconds, most_providers } => {
            let line =
                format!("at most every {least_seconds} s, {}", counted(most_providers.into(), "provider"));
            let mut object = Object::new();
            object.number("least_seconds", least_seconds).number("most_providers", most_providers);
            Told { lines: vec![line], json: object.finish() }
        }
        Answer::SystemTraceEnableFlags(mask) => {
            let words: Vec<String> = mask.iter().map(|word| format!("{word:#x}")).collect();
            let json = array(words.iter().map(|word| format!("\"{word}\"")));
            Told { lines: vec![words.join(" ")], json }
        }
        Answer::StackTracing(events) => Told::list(events.iter().map(|event| {
            let mut object = Object::new();
            object.text("guid", &event.class.to_string()).number("opcode", event.opcode);
            (format!("{{{}}} {}", event.class, event.opcode), object.finish())
        })),
        Answer::ProfileSourceList(sources) => Told::list(sources.iter().map(|it| {
            let mut object = Object::new();
            object.number("source", it.source).text("name", &it.description);
            object.number("min_interval", it.min_interval).number("max_interval", it.max_interval);
            let (least, most) = (grouped(it.min_interval.into()), grouped(it.max_interval.into()));
            (format!("{} {}, every {least} to {most}", it.source, it.description), object.finish())
        })),
        Answer::SampledProfileInterval(it) => {
            Told { lines: vec![grouped(it.interval.into())], json: it.interval.to_string() }
        }
        Answer::PmcCounterOwners { owners, .. } => Told::number(count(&owners), "counter"),
        Answer::PmcSessions(sessions) => Told::list(sessions.iter().map(|it| {
            let mut object = Object::new();
            object.number("logger_id", it.logger_id);
            object.raw("sources", &array(it.sources.iter().map(ToString::to_string)));
            object.raw("hook_ids", &array(it.hook_ids.iter().map(ToString::to_string)));
            let (sources, events) = (count(&it.sources), count(&it.hook_ids));
            let (sources, events) = (counted(sources.into(), "counter"), counted(events.into(), "event"));
            (format!("logger {}: {sources} at {events}", it.logger_id), object.finish())
        })),
    }
}

fn count<T>(all: &[T]) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

type Asking<'a> = &'a mut dyn FnMut(Query) -> Result<Answer, Error>;

/// How often each source samples that every machine may have.
fn intervals(ask: Asking<'_>) -> Result<Told, Error> {
    let Answer::ProfileSourceList(sources) = ask(Query::ProfileSourceList)? else {
        return Ok(Told::list([]));
    };
    let mut all = Vec::new();
    for source in sources.iter().filter(|it| it.source < FIRST_NAMED) {
        let Answer::SampledProfileInterval(it) = ask(Query::SampledProfileInterval(source.source))? else {
            continue;
        };
        let how_often = match it.source {
            0 | software_source::TASK_CLOCK => {
                format!("{} of 100 ns ({} ms)", grouped(it.interval.into()), f64::from(it.interval) / TICKS)
            }
            _ => format!("{} counts", grouped(it.interval.into())),
        };
        let mut object = Object::new();
        object.number("source", it.source).text("name", &source.description).number("interval", it.interval);
        all.push((format!("{} {}: every {how_often}", it.source, source.description), object.finish()));
    }
    Ok(Told::list(all))
}

/// Who uses the counters, processor by processor, until there are no more of them.
fn owners(ask: Asking<'_>) -> Result<Told, Error> {
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
            .map(|it| match it.kind {
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
    Ok(Told::list(all))
}

/// Groups that somebody has joined or enabled.
fn groups(daemon: Option<&mut Controller>) -> Result<Told, Error> {
    let all = daemon.map_or(Ok(Vec::new()), Controller::providers)?;
    let groups: Vec<Guid> = all.iter().filter(|it| it.is_group).map(|it| it.provider).collect();
    Ok(Told::guids(&groups))
}

//! `weir autologger`: manages sessions that start with the daemon.
//!
//! These commands read and write definition files, which a daemon applies when it starts. They
//! check a definition by the rules of the daemon before they write it.

use anstream::eprintln;
use anyhow::{Context, Result, anyhow, bail};
use traceweir::{Guid, LogFileMode, Status};
use traceweir_daemon::autologger::{
    AutologgerDefinition, AutologgerProvider, AutologgerState, Autologgers, EnableParams, Filter,
};
use traceweir_daemon::{DaemonFolders, RuntimeDir, Scope};
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_FILE_MODE_CIRCULAR, EVENT_TRACE_FILE_MODE_SEQUENTIAL,
    EVENT_TRACE_NONSTOPPABLE_MODE, EVENT_TRACE_REAL_TIME_MODE,
};

use crate::cli::{
    AddAutologger, AutologgerVerb, DaemonChoice, ListAutologgers, NamedAutologger, clamp_buffer_kib,
};
use crate::exit::CommandOutcome;
use crate::grammar::{EnableFilters, EnableRequest};
use crate::output::print_text;
use crate::sessions::{self, mode_names};
use crate::text::{
    JsonObject, escape, escape_path, format_table, join_lines, json_array, quote_for_shell, suggest_names,
};

pub(super) fn run(verb: &AutologgerVerb) -> Result<CommandOutcome> {
    match verb {
        AutologgerVerb::Add(options) => add(options),
        AutologgerVerb::Remove(options) => remove(options),
        AutologgerVerb::List(options) => list(options),
        AutologgerVerb::Show(options) => show(options),
    }?;
    Ok(CommandOutcome::Fine)
}

/// Returns the runtime folder of the requested daemon. The default is the system's daemon for root,
/// and the user's own for other users.
fn find_runtime_dir(daemon_choice: DaemonChoice) -> Result<RuntimeDir> {
    let default = if rustix::process::geteuid().is_root() { Scope::System } else { Scope::User };
    RuntimeDir::resolve(daemon_choice.scope().unwrap_or(default)).context("cannot find the daemon's folder")
}

fn open_autologgers(runtime: &RuntimeDir) -> Result<Autologgers> {
    let folders = DaemonFolders::for_runtime(runtime)
        .context("HOME is not set, so there is no folder for autologgers")?;
    Ok(Autologgers::new(folders))
}

fn add(options: &AddAutologger) -> Result<()> {
    let runtime = find_runtime_dir(options.daemon_choice)?;
    let autologgers = open_autologgers(&runtime)?;
    let definition = build_definition(options)?;
    let notes =
        autologgers.check(&definition).map_err(|e| anyhow!("autologger {}: {e}", escape(&options.name)))?;
    for note in notes {
        eprintln!("warning: {}", escape(&note.0));
    }
    let file = autologgers.file(&definition.name);
    if !options.force && file.symlink_metadata().is_ok() {
        bail!("autologger {} exists already: --force replaces it", escape(&options.name));
    }
    autologgers.put(&definition).with_context(|| format!("cannot write {}", escape_path(&file)))?;
    eprintln!("autologger {} is defined in {}", escape(&options.name), escape_path(&file));
    if options.off {
        eprintln!(
            "it is off: the daemon does not start it. Add it again with --force and without --off to turn it on"
        );
        return Ok(());
    }
    if let Some(log) = autologgers.log_file(&definition) {
        eprintln!("its next start writes {}", escape_path(&log));
    }
    eprintln!("{}", activation_hint(options.daemon_choice, &runtime));
    Ok(())
}

/// Returns how to make the definition take effect.
fn activation_hint(daemon_choice: DaemonChoice, runtime: &RuntimeDir) -> String {
    if runtime.scope == Scope::System {
        return "it starts when the system's daemon starts.\n\
                To restart the daemon now, which ends running sessions and finalises their files:\n  \
                systemctl restart traceweir\n\
                To start the daemon at each boot:\n  \
                systemctl enable traceweir"
            .to_owned();
    }
    let is_running = sessions::find_daemon(daemon_choice).ok().flatten().is_some();
    let pid = std::fs::read_to_string(runtime.lock_file()).unwrap_or_default();
    match pid.trim().parse::<u32>().ok().filter(|_| is_running) {
        Some(pid) => format!(
            "it starts the next time the daemon starts.\n\
             To end the running daemon, which ends its sessions and finalises their files:\n  \
             kill {pid}\n\
             To start the daemon again:\n  \
             weir daemon"
        ),
        None => {
            "it starts when the daemon starts: by the command `weir daemon`, or by any command that starts a \
                 session"
                .to_owned()
        }
    }
}

fn build_definition(options: &AddAutologger) -> Result<AutologgerDefinition> {
    // The GUID depends only on the name, so that it stays the same when a definition is replaced.
    let guid = Guid::from_provider_name(&format!("Traceweir.Autologger/{}", options.name));
    let mut definition = AutologgerDefinition::new(&options.name, guid);
    definition.start = !options.off;
    definition.log_file_mode = mode_bits(options);
    definition.file_name = options
        .output
        .as_deref()
        .map(std::path::absolute)
        .transpose()
        .context("cannot resolve the current directory")?;
    if definition.file_name.as_deref().is_some_and(|path| path.to_str().is_none()) {
        bail!("the path of the log file must be UTF-8");
    }
    definition.file_max = options.generations.unwrap_or(0);
    definition.max_file_size = options.max_size.unwrap_or(definition.max_file_size);
    definition.buffer_size = clamp_buffer_kib(options.buffer_size);
    definition.minimum_buffers = options.min_buffers.unwrap_or(0);
    definition.maximum_buffers = options.max_buffers.unwrap_or(0);
    definition.flush_timer = options.flush_timer.unwrap_or(0);
    definition.clock_type = options.clock.map_or(definition.clock_type, |clock| clock.clock_kind().number());
    let requests = options.providers.resolve(&options.manifest)?;
    if requests.is_empty() {
        bail!("name at least one provider: -p PROVIDER, or -pf FILE");
    }
    for request in &requests {
        check_filters(request, &options.name)?;
        // Uses the name if the daemon derives the same GUID from it, because people read the file.
        let named_provider = AutologgerProvider::new(request.name.trim_start_matches('*')).ok();
        let named_provider = named_provider.filter(|provider| provider.guid == request.guid).map(Ok);
        let provider = named_provider.unwrap_or_else(|| AutologgerProvider::new(&request.guid.to_string()));
        let provider = provider.and_then(|provider| provider.with_params(&enable_params(request)));
        definition.providers.push(provider.map_err(|reason| anyhow!("{}: {reason}", escape(&request.name)))?);
    }
    Ok(definition)
}

/// Returns the parameters of the enable as the daemon's definitions hold them.
fn enable_params(request: &EnableRequest) -> EnableParams {
    let filters = request.encode_filters(&[]).into_iter();
    EnableParams {
        level: request.level,
        match_any: request.keywords,
        match_all: request.all_keywords,
        property: request.property,
        source: request.source,
        filters: filters.map(|f| Filter { kind: f.kind(), data: f.data().to_vec() }).collect(),
    }
}

/// Rejects filters that a definition cannot express. The error contains what to do instead.
fn check_filters(request: &EnableRequest, name: &str) -> Result<()> {
    let EnableFilters { pids, payload, schematized, .. } = &request.filters;
    let lists =
        [("pid", pids.is_empty()), ("payload", payload.is_empty()), ("schematized", schematized.is_empty())];
    match lists.iter().find(|(_, is_empty)| !is_empty) {
        Some((option, _)) => bail!(
            "{}: an autologger definition cannot contain @{option}; leave it out, and apply it once the session runs \
             (weir enable {} PROVIDER@{option}=…)",
            escape(&request.name),
            quote_for_shell(name)
        ),
        None => Ok(()),
    }
}

/// Returns the LogFileMode bits of the options.
fn mode_bits(options: &AddAutologger) -> u32 {
    /// The bits that select how the file is written.
    const FILE_MODE_BITS: u32 = 0xF;
    let extra = options.mode.iter().fold(0, |all, bits| all | bits);
    let has_other_target = options.real_time || options.buffering;
    let has_file = !has_other_target
        || (options.real_time && (options.output.is_some() || options.generations.is_some()));
    let file = match (options.circular, has_file) {
        (true, _) => EVENT_TRACE_FILE_MODE_CIRCULAR,
        (false, true) if extra & FILE_MODE_BITS == 0 => EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        (false, _) => 0,
    };
    let bit_if = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
    extra
        | file
        | bit_if(options.real_time, EVENT_TRACE_REAL_TIME_MODE)
        | bit_if(options.buffering, EVENT_TRACE_BUFFERING_MODE)
        | bit_if(options.non_stoppable, EVENT_TRACE_NONSTOPPABLE_MODE)
}

fn remove(options: &NamedAutologger) -> Result<()> {
    let autologgers = open_autologgers(&find_runtime_dir(options.daemon_choice)?)?;
    let file = autologgers.file(&options.name);
    let mode = autologgers.get(&options.name).ok().flatten().map_or(0, |definition| definition.log_file_mode);
    let is_removed =
        autologgers.remove(&options.name).with_context(|| format!("cannot remove {}", escape_path(&file)))?;
    if !is_removed {
        return Err(not_found_error(&autologgers, &options.name));
    }
    let name = escape(&options.name);
    let how_it_ends = if mode & EVENT_TRACE_NONSTOPPABLE_MODE == 0 {
        format!("continues until you stop it: weir stop {}", quote_for_shell(&options.name))
    } else {
        "cannot be stopped and continues until its daemon ends".to_owned()
    };
    eprintln!("autologger {name} is removed. If its session runs, it {how_it_ends}");
    Ok(())
}

fn not_found_error(autologgers: &Autologgers, name: &str) -> anyhow::Error {
    let question = suggest_names(name, autologgers.names().unwrap_or_default());
    let question = question.map_or_else(String::new, |question| format!(". {question}"));
    anyhow!("there is no autologger {}{question} (weir autologger list shows them)", escape(name))
}

fn show(options: &NamedAutologger) -> Result<()> {
    let autologgers = open_autologgers(&find_runtime_dir(options.daemon_choice)?)?;
    let file = autologgers.file(&options.name);
    let definition =
        autologgers.get(&options.name).map_err(|error| anyhow!("{}: {error}", escape_path(&file)))?;
    let definition = definition.ok_or_else(|| not_found_error(&autologgers, &options.name))?;
    let state = autologgers.state(&options.name);
    let mut text = format!("# {}\n# last start: {}\n", escape_path(&file), format_last_start(&state));
    for (provider, status) in &state.refused {
        text.push_str(&format!("# {} was not enabled: {}\n", escape(provider), format_status(*status)));
    }
    if let Some(log) = autologgers.log_file(&definition) {
        text.push_str(&format!("# next log: {}\n", escape_path(&log)));
    }
    text.push_str(&definition.to_text());
    print_text(&text)
}

fn format_status(status: u32) -> String {
    format!("{} (status {status})", Status(status))
}

fn format_last_start(state: &AutologgerState) -> String {
    state.status.map_or_else(|| "never".to_owned(), format_status)
}

fn list(options: &ListAutologgers) -> Result<()> {
    let autologgers = open_autologgers(&find_runtime_dir(options.daemon_choice)?)?;
    let names = autologgers.names().map_err(|error| anyhow!("{error}"))?;
    if options.json {
        return print_text(&join_lines(names.iter().map(|name| format_json(&autologgers, name))));
    }
    if names.is_empty() {
        eprintln!(
            "no autologger in {} (weir autologger add creates one)",
            escape_path(&autologgers.folder())
        );
        return Ok(());
    }
    let mut rows =
        vec![["AUTOLOGGER", "START", "LAST START", "MODE", "NEXT LOG", "PROVIDERS"].map(str::to_owned)];
    for name in &names {
        let last_start = format_last_start(&autologgers.state(name));
        match autologgers.get(name) {
            Ok(Some(definition)) => {
                let definition = correct_definition(definition);
                let log =
                    autologgers.log_file(&definition).map_or_else(|| "-".to_owned(), |log| escape_path(&log));
                let providers: Vec<_> =
                    definition.providers.iter().map(|provider| escape(&provider.heading)).collect();
                let start = if definition.start { "yes" } else { "no" }.to_owned();
                rows.push([
                    escape(name),
                    start,
                    last_start,
                    mode_names(LogFileMode::new(definition.log_file_mode)),
                    log,
                    providers.join(" "),
                ]);
            }
            Ok(None) => {}
            Err(error) => {
                eprintln!(
                    "warning: {}: {}",
                    escape_path(&autologgers.file(name)),
                    escape(&error.to_string())
                );
                rows.push([
                    escape(name),
                    "invalid".to_owned(),
                    last_start,
                    "-".into(),
                    "-".into(),
                    "-".into(),
                ]);
            }
        }
    }
    print_text(&format_table(&rows, &[false; 6]))
}

/// Replaces unusable settings with usable ones, as the daemon does before it starts the session.
fn correct_definition(mut definition: AutologgerDefinition) -> AutologgerDefinition {
    definition.correct();
    definition
}

fn format_json(autologgers: &Autologgers, name: &str) -> String {
    let state = autologgers.state(name);
    let mut object = JsonObject::new();
    object.text("name", name).text("file", &autologgers.file(name).to_string_lossy());
    match state.status {
        Some(status) => object.number("status", status),
        None => object.raw("status", "null"),
    };
    object.number("file_counter", state.file_counter);
    match autologgers.get(name) {
        Ok(Some(definition)) => {
            put_definition(autologgers, &correct_definition(definition), &state, &mut object)
        }
        Ok(None) => {}
        Err(error) => drop(object.text("wrong", &error.to_string())),
    }
    object.finish()
}

fn put_definition(
    autologgers: &Autologgers,
    definition: &AutologgerDefinition,
    state: &AutologgerState,
    object: &mut JsonObject,
) {
    let providers = definition.providers.iter().map(|provider| {
        let refused = state.refused.iter().find(|(heading, _)| *heading == provider.heading);
        let mut object = JsonObject::new();
        object.text("name", &provider.heading).text("guid", &provider.guid.to_string());
        object.raw("enabled", &provider.enabled.to_string()).number("level", provider.level);
        object
            .mask("any", provider.match_any)
            .mask("all", provider.match_all)
            .mask("property", provider.property);
        object
            .number("filters", provider.filters.len() as u64)
            .number("status", refused.map_or(0, |refusal| refusal.1));
        object.finish()
    });
    let log = autologgers.log_file(definition).map(|log| log.to_string_lossy().into_owned());
    object
        .raw("start", &definition.start.to_string())
        .text("guid", &definition.guid.to_string())
        .mask("mode", definition.log_file_mode)
        .optional("next_log", log.as_deref())
        .number("generations", definition.file_max)
        .number("max_size_mib", definition.max_file_size)
        .number("flush_timer", definition.flush_timer)
        .raw("providers", &json_array(providers));
}

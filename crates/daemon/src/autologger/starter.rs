//! Starting autologgers: what the daemon asks of its own service, and what it makes of the answers.
//!
//! ```text
//!   own thread   prepare:  read ─▶ correct ─▶ open ──Prepared──▶ inbox
//!   the loop     Start ─▶ Properties ─▶ EnableProvider, for each provider ─▶ Done ─▶ state written
//!                     └─▶ Refused ─────────────────────────────────────────────────▶ state written
//! ```

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use traceweir_format::spec::status::Status;
use traceweir_transport::message::{EnableCode, Message, SessionRef};
use traceweir_transport::socket::Envelope;

use super::definition::Definition;
use super::{Autologgers, State, logs};
use crate::error::Refusal;
use crate::folders::{self, Folders};
use crate::log::{log_info, log_warning};

/// What the thread that prepares has got.
pub(crate) enum Prepared {
    /// A session can be started.
    Session(Box<Ready>),
    /// There are no more.
    All,
}

/// A session that can be started.
pub(crate) struct Ready {
    definition: Definition,
    state: State,
    generation: u32,
    log: Option<(PathBuf, OwnedFd)>,
}

/// Prepares all autologgers on a thread of its own: a folder may be on a disk that does not answer.
pub(crate) fn prepare(folders: Folders, post: Arc<dyn Fn(Prepared) + Send + Sync>) {
    let last = Last(Arc::clone(&post));
    let work = move || {
        let _last = last;
        let all = Autologgers::new(folders);
        let names = all.names().unwrap_or_else(|wrong| {
            log_warning!("no autologger is started: {wrong}");
            Vec::new()
        });
        for name in names {
            match ready(&all, &name) {
                Ok(Some(ready)) => post(Prepared::Session(Box::new(ready))),
                Ok(None) => {}
                Err(refusal) => failed(&all.folders, &name, all.state(&name), &refusal),
            }
        }
    };
    if let Err(e) = std::thread::Builder::new().name("weir-autologger".into()).spawn(work) {
        log_warning!("no autologger is started: {e}");
    }
}

/// Says that there are no more, whatever happens to the thread.
struct Last(Arc<dyn Fn(Prepared) + Send + Sync>);

impl Drop for Last {
    fn drop(&mut self) {
        (self.0)(Prepared::All);
    }
}

/// An autologger as it is to be started; `None` where it is not to be.
fn ready(all: &Autologgers, name: &str) -> Result<Option<Ready>, Refusal> {
    let file = all.file(name);
    let wrong = |wrong| Refusal::new(Status::ERROR_INVALID_PARAMETER, format!("{}: {wrong}", file.display()));
    let Some(mut definition) = all.get(name).map_err(wrong)?.filter(|definition| definition.start) else {
        return Ok(None);
    };
    for corrected in definition.correct() {
        log_info!("autologger {name:?}: {}", corrected.0);
    }
    let state = all.state(name);
    let generation = logs::next(&definition, state.file_counter);
    let log = definition.has_file().then(|| logs::path(&all.folders, &definition, generation));
    if log.is_some() && definition.file_name.is_none() {
        // Where it cannot be made the log cannot be opened, and that is what is told.
        let _ = folders::make(&all.folders.logs);
    }
    let log = log.map(|path| logs::open(&path).map(|file| (path, file))).transpose()?;
    Ok(Some(Ready { definition, state, generation, log }))
}

/// Tells that an autologger does not run, and why.
fn failed(folders: &Folders, name: &str, state: State, refusal: &Refusal) {
    log_warning!("autologger {name:?} is not started: {refusal} (status {})", refusal.status.0);
    remember(folders, name, &State { status: Some(refusal.status.0), refused: Vec::new(), ..state });
}

fn remember(folders: &Folders, name: &str, state: &State) {
    if let Err(e) = state.write(folders, name) {
        log_warning!("how autologger {name:?} started cannot be remembered: {e}");
    }
}

/// A request that is under way.
enum Asked {
    Start(Box<Ready>),
    /// A provider of a session, by its heading.
    Enable(String, String),
}

/// A session that runs and whose providers are being enabled.
struct Running {
    state: State,
    left: usize,
}

/// The autologgers that are being started.
pub(crate) struct Starter {
    folders: Option<Folders>,
    asked: BTreeMap<u32, Asked>,
    running: BTreeMap<String, Running>,
    last_request: u32,
    all_are_prepared: bool,
}

impl Starter {
    /// Nothing yet; `None` where there is nowhere to look for them.
    pub(crate) fn new(folders: Option<Folders>) -> Self {
        let all_are_prepared = folders.is_none();
        Self { folders, asked: BTreeMap::new(), running: BTreeMap::new(), last_request: 0, all_are_prepared }
    }

    /// Where they are looked for.
    pub(crate) fn folders(&self) -> Option<&Folders> {
        self.folders.as_ref()
    }

    /// Whether nothing is under way any more.
    pub(crate) fn is_done(&self) -> bool {
        self.all_are_prepared && self.asked.is_empty()
    }

    /// What to ask the service for next.
    pub(crate) fn prepared(&mut self, prepared: Prepared) -> Vec<Envelope> {
        let Prepared::Session(mut ready) = prepared else {
            self.all_are_prepared = true;
            return Vec::new();
        };
        let (path, file) = ready.log.take().unzip();
        let message = Message::Start(Box::new(ready.definition.config(path)));
        let request = self.request(Asked::Start(ready));
        vec![Envelope { request, message, descriptors: file.into_iter().collect() }]
    }

    fn request(&mut self, asked: Asked) -> u32 {
        self.last_request = self.last_request.saturating_add(1);
        self.asked.insert(self.last_request, asked);
        self.last_request
    }

    /// The service has answered; what to ask it for next.
    pub(crate) fn answered(&mut self, request: u32, message: Message) -> Vec<Envelope> {
        match (self.asked.remove(&request), message) {
            (Some(Asked::Start(ready)), Message::Properties(properties)) => {
                self.started(*ready, properties.id)
            }
            (Some(Asked::Start(ready)), Message::Refused { status, reason }) => {
                if let Some(folders) = &self.folders {
                    let refusal = Refusal::new(Status(status), reason);
                    failed(folders, &ready.definition.name, ready.state, &refusal);
                }
                Vec::new()
            }
            (Some(Asked::Enable(session, provider)), message) => {
                self.enabled(&session, provider, message);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn started(&mut self, ready: Ready, id: u64) -> Vec<Envelope> {
        let Ready { definition, mut state, generation, .. } = ready;
        state.status = Some(Status::ERROR_SUCCESS.0);
        state.file_counter = if generation == 0 { state.file_counter } else { generation };
        state.refused.clear();
        let providers: Vec<_> =
            definition.providers.into_iter().filter(|provider| provider.enabled).collect();
        self.running.insert(definition.name.clone(), Running { state, left: providers.len() });
        let requests = providers.into_iter().map(|provider| {
            let request = self.request(Asked::Enable(definition.name.clone(), provider.heading.clone()));
            let message = Message::EnableProvider {
                session: SessionRef::Id(id),
                provider: provider.guid,
                code: EnableCode::Enable,
                params: Box::new(provider.params()),
                name: provider.name(),
                timeout_ms: 0,
            };
            Envelope { request, message, descriptors: Vec::new() }
        });
        let requests: Vec<_> = requests.collect();
        self.settle(&definition.name);
        requests
    }

    /// A provider is enabled, or is not: the session runs in any case.
    fn enabled(&mut self, session: &str, provider: String, message: Message) {
        let Some(running) = self.running.get_mut(session) else { return };
        running.left = running.left.saturating_sub(1);
        if let Message::Refused { status, reason } = message {
            log_warning!("autologger {session:?}: {provider} is not enabled: {reason} (status {status})");
            running.state.refused.push((provider, status));
        }
        self.settle(session);
    }

    /// Remembers how it started once all is known.
    fn settle(&mut self, session: &str) {
        if self.running.get(session).is_none_or(|running| running.left > 0) {
            return;
        }
        if let (Some(running), Some(folders)) = (self.running.remove(session), &self.folders) {
            remember(folders, session, &running.state);
        }
    }
}

//! Starting autologgers: the daemon's requests to its own service, and the handling of the replies.
//!
//! ```text
//!   own thread   prepare_autologgers: read ─▶ correct ─▶ open ──PrepareReport──▶ inbox
//!   event loop   Start ─▶ Properties ─▶ EnableProvider, for each provider ─▶ Done ─▶ state written
//!                     └─▶ Refused ─────────────────────────────────────────────────▶ state written
//! ```

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use traceweir_format::spec::status::Status;
use traceweir_transport::message::{EnableCode, Message, SessionRef};
use traceweir_transport::socket::Envelope;

use super::definition::AutologgerDefinition;
use super::{AutologgerState, Autologgers, logs};
use crate::error::Refusal;
use crate::folders::{self, DaemonFolders};
use crate::log::{log_info, log_warning};

pub(crate) enum PrepareReport {
    /// A session is ready to start.
    Session(Box<ReadyAutologger>),
    /// The preparation has ended.
    Ended,
}

/// A session that is ready to start.
pub(crate) struct ReadyAutologger {
    definition: AutologgerDefinition,
    state: AutologgerState,
    /// The generation of the log; 0: it has no generations.
    generation: u32,
    log: Option<(PathBuf, OwnedFd)>,
}

/// Prepares all autologgers on a separate thread, because a folder may be on a disk that does not
/// answer.
pub(crate) fn prepare_autologgers(folders: DaemonFolders, post: Arc<dyn Fn(PrepareReport) + Send + Sync>) {
    let at_end = ReportEnd(Arc::clone(&post));
    let work = move || {
        let _at_end = at_end;
        let autologgers = Autologgers::new(folders);
        let names = autologgers.names().unwrap_or_else(|error| {
            log_warning!("no autologger is started: {error}");
            Vec::new()
        });
        for name in names {
            match prepare_autologger(&autologgers, &name) {
                Ok(Some(ready)) => post(PrepareReport::Session(Box::new(ready))),
                Ok(None) => {}
                Err(refusal) => {
                    record_failure(&autologgers.folders, &name, autologgers.state(&name), &refusal)
                }
            }
        }
    };
    if let Err(e) = std::thread::Builder::new().name("weir-autologger".into()).spawn(work) {
        log_warning!("no autologger is started: {e}");
    }
}

/// When dropped, reports that the preparation has ended, even if the thread did not start.
struct ReportEnd(Arc<dyn Fn(PrepareReport) + Send + Sync>);

impl Drop for ReportEnd {
    fn drop(&mut self) {
        (self.0)(PrepareReport::Ended);
    }
}

/// Prepares one autologger; `None` if its definition turns it off or does not exist any more.
fn prepare_autologger(autologgers: &Autologgers, name: &str) -> Result<Option<ReadyAutologger>, Refusal> {
    let file = autologgers.file(name);
    let to_refusal =
        |error| Refusal::new(Status::ERROR_INVALID_PARAMETER, format!("{}: {error}", file.display()));
    let Some(mut definition) =
        autologgers.get(name).map_err(to_refusal)?.filter(|definition| definition.start)
    else {
        return Ok(None);
    };
    for correction in definition.correct() {
        log_info!("autologger {name:?}: {}", correction.0);
    }
    let state = autologgers.state(name);
    let generation = logs::next_generation(&definition, state.file_counter);
    let log = definition.has_file().then(|| logs::log_path(&autologgers.folders, &definition, generation));
    if log.is_some() && definition.file_name.is_none() {
        // If the folder cannot be created, opening the log fails and reports it.
        let _ = folders::create_folder(&autologgers.folders.logs);
    }
    let log = log.map(|path| logs::open_log(&path).map(|file| (path, file))).transpose()?;
    Ok(Some(ReadyAutologger { definition, state, generation, log }))
}

/// Logs and stores that an autologger did not start.
fn record_failure(folders: &DaemonFolders, name: &str, state: AutologgerState, refusal: &Refusal) {
    log_warning!("autologger {name:?} is not started: {refusal} (status {})", refusal.status.0);
    store_state(
        folders,
        name,
        &AutologgerState { status: Some(refusal.status.0), refused: Vec::new(), ..state },
    );
}

fn store_state(folders: &DaemonFolders, name: &str, state: &AutologgerState) {
    if let Err(e) = state.write(folders, name) {
        log_warning!("the state of autologger {name:?} cannot be stored: {e}");
    }
}

/// A request to the service that is under way.
enum StarterRequest {
    Start(Box<ReadyAutologger>),
    /// The enable of a provider: session name and provider heading.
    Enable(String, String),
}

/// A session that runs and whose providers are being enabled.
struct EnablingSession {
    state: AutologgerState,
    enables_left: usize,
}

/// The autologgers that are being started.
pub(crate) struct AutologgerStarter {
    folders: Option<DaemonFolders>,
    requests: BTreeMap<u32, StarterRequest>,
    enabling: BTreeMap<String, EnablingSession>,
    last_request: u32,
    is_preparation_done: bool,
}

impl AutologgerStarter {
    /// Creates the starter; `folders` is `None` if there are no folders for autologgers.
    pub(crate) fn new(folders: Option<DaemonFolders>) -> Self {
        let is_preparation_done = folders.is_none();
        Self {
            folders,
            requests: BTreeMap::new(),
            enabling: BTreeMap::new(),
            last_request: 0,
            is_preparation_done,
        }
    }

    pub(crate) fn folders(&self) -> Option<&DaemonFolders> {
        self.folders.as_ref()
    }

    /// Returns whether all autologgers have started or failed.
    pub(crate) fn is_done(&self) -> bool {
        self.is_preparation_done && self.requests.is_empty()
    }

    /// Handles a report of the preparing thread; returns the requests to make next.
    pub(crate) fn handle_prepared(&mut self, prepared: PrepareReport) -> Vec<Envelope> {
        let PrepareReport::Session(mut ready) = prepared else {
            self.is_preparation_done = true;
            return Vec::new();
        };
        let (path, file) = ready.log.take().unzip();
        let message = Message::Start(Box::new(ready.definition.config(path)));
        let request = self.add_request(StarterRequest::Start(ready));
        vec![Envelope { request, message, descriptors: file.into_iter().collect() }]
    }

    fn add_request(&mut self, request: StarterRequest) -> u32 {
        self.last_request = self.last_request.saturating_add(1);
        self.requests.insert(self.last_request, request);
        self.last_request
    }

    /// Handles a reply of the service; returns the requests to make next.
    pub(crate) fn handle_reply(&mut self, request: u32, message: Message) -> Vec<Envelope> {
        match (self.requests.remove(&request), message) {
            (Some(StarterRequest::Start(ready)), Message::Properties(properties)) => {
                self.handle_started(*ready, properties.id)
            }
            (Some(StarterRequest::Start(ready)), Message::Refused { status, reason }) => {
                if let Some(folders) = &self.folders {
                    let refusal = Refusal::new(Status(status), reason);
                    record_failure(folders, &ready.definition.name, ready.state, &refusal);
                }
                Vec::new()
            }
            (Some(StarterRequest::Enable(session, provider)), message) => {
                self.handle_enabled(&session, provider, message);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn handle_started(&mut self, ready: ReadyAutologger, id: u64) -> Vec<Envelope> {
        let ReadyAutologger { definition, mut state, generation, .. } = ready;
        state.status = Some(Status::ERROR_SUCCESS.0);
        state.file_counter = if generation == 0 { state.file_counter } else { generation };
        state.refused.clear();
        let providers: Vec<_> =
            definition.providers.into_iter().filter(|provider| provider.enabled).collect();
        self.enabling
            .insert(definition.name.clone(), EnablingSession { state, enables_left: providers.len() });
        let requests = providers.into_iter().map(|provider| {
            let request =
                self.add_request(StarterRequest::Enable(definition.name.clone(), provider.heading.clone()));
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
        self.store_when_complete(&definition.name);
        requests
    }

    /// Records whether a provider was enabled; the session runs in any case.
    fn handle_enabled(&mut self, session: &str, provider: String, message: Message) {
        let Some(enabling) = self.enabling.get_mut(session) else { return };
        enabling.enables_left = enabling.enables_left.saturating_sub(1);
        if let Message::Refused { status, reason } = message {
            log_warning!("autologger {session:?}: {provider} is not enabled: {reason} (status {status})");
            enabling.state.refused.push((provider, status));
        }
        self.store_when_complete(session);
    }

    /// Stores the state of a session once all its enables have been answered.
    fn store_when_complete(&mut self, session: &str) {
        if self.enabling.get(session).is_none_or(|enabling| enabling.enables_left > 0) {
            return;
        }
        if let (Some(enabling), Some(folders)) = (self.enabling.remove(session), &self.folders) {
            store_state(folders, session, &enabling.state);
        }
    }
}

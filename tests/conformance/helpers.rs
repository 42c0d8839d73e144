//! Helpers for rules: the daemon, sessions and providers, and the recorded events.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use traceweir::controller::{Controller, EnableCode, EnableParams, Properties, SessionConfig, SessionRef};
use traceweir::provider::EnableCallback;
use traceweir::{Error, EventDescriptor, Guid, Provider, Status};
use traceweir_format::etl::Trace;
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::spec::event::ExtType;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;

pub(crate) use crate::wait::{TEST_TIMEOUT, eventually, until};

pub(crate) const ACCESS_DENIED: Status = Status::ERROR_ACCESS_DENIED;
pub(crate) const ACTIVE_CONNECTIONS: Status = Status::ERROR_ACTIVE_CONNECTIONS;
pub(crate) const ALREADY_EXISTS: Status = Status::ERROR_ALREADY_EXISTS;
pub(crate) const ARITHMETIC_OVERFLOW: Status = Status::ERROR_ARITHMETIC_OVERFLOW;
pub(crate) const BAD_PATHNAME: Status = Status::ERROR_BAD_PATHNAME;
pub(crate) const BUSY: Status = Status::ERROR_BUSY;
pub(crate) const DISK_FULL: Status = Status::ERROR_DISK_FULL;
pub(crate) const FILE_NOT_FOUND: Status = Status::ERROR_FILE_NOT_FOUND;
pub(crate) const INVALID_FLAGS: Status = Status::ERROR_INVALID_FLAGS;
pub(crate) const INVALID_FLAG_NUMBER: Status = Status::ERROR_INVALID_FLAG_NUMBER;
pub(crate) const INVALID_FUNCTION: Status = Status::ERROR_INVALID_FUNCTION;
pub(crate) const INVALID_HANDLE: Status = Status::ERROR_INVALID_HANDLE;
pub(crate) const INVALID_PARAMETER: Status = Status::ERROR_INVALID_PARAMETER;
pub(crate) const MORE_DATA: Status = Status::ERROR_MORE_DATA;
pub(crate) const NOT_ENOUGH_MEMORY: Status = Status::ERROR_NOT_ENOUGH_MEMORY;
pub(crate) const NOT_SUPPORTED: Status = Status::ERROR_NOT_SUPPORTED;
pub(crate) const NO_SYSTEM_RESOURCES: Status = Status::ERROR_NO_SYSTEM_RESOURCES;
pub(crate) const PATH_NOT_FOUND: Status = Status::ERROR_PATH_NOT_FOUND;
pub(crate) const PRIVILEGE_NOT_HELD: Status = Status::ERROR_PRIVILEGE_NOT_HELD;
pub(crate) const SUCCESS: Status = Status::ERROR_SUCCESS;
pub(crate) const TIMEOUT: Status = Status::ERROR_TIMEOUT;
pub(crate) const INSTANCE_NOT_FOUND: Status = Status::ERROR_WMI_INSTANCE_NOT_FOUND;
pub(crate) const E_FAIL: Status = Status::E_FAIL;
pub(crate) const LOG_FILE_FULL: Status = Status::STATUS_LOG_FILE_FULL;

/// Level (information) of events in rules that do not depend on the level.
pub(crate) const LEVEL: u8 = 4;
/// Keyword of events in rules that do not depend on the keyword.
pub(crate) const KEYWORD: u64 = 1;

/// Time that an enable waits for the callbacks of this process.
const ENABLE_TIMEOUT_MS: u32 = 120_000;

/// The temporary folder of this run, and methods that call the daemon selected by
/// `TRACEWEIR_RUNTIME_DIR`.
pub(crate) struct Fixture {
    folder: PathBuf,
}

/// A running session. Dropping this value stops the session.
pub(crate) struct Session {
    pub(crate) id: SessionRef,
    pub(crate) properties: Properties,
    is_stopped: bool,
}

/// An event as recorded in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedEvent {
    pub(crate) provider: Guid,
    pub(crate) descriptor: EventDescriptor,
    pub(crate) flags: u16,
    pub(crate) activity: Option<Guid>,
    pub(crate) process: u32,
    pub(crate) thread: u32,
    pub(crate) time: i64,
    pub(crate) payload: Vec<u8>,
    pub(crate) items: Vec<(ExtType, Vec<u8>)>,
}

impl Fixture {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Opens a new connection to the daemon.
    pub(crate) fn connect(&self) -> Controller {
        Controller::find(None).expect("the search for the daemon failed").expect("the daemon did not answer")
    }

    /// Returns a file name that is unique in this run.
    pub(crate) fn unique_path(&self) -> PathBuf {
        self.folder.join(format!("{}.etl", unique_number()))
    }

    /// Returns the folder of this run.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the configuration of a sequential session with its own file.
    pub(crate) fn config(&self) -> SessionConfig {
        SessionConfig {
            name: format!("rule {}", unique_number()),
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            log_file: Some(self.unique_path()),
            ..SessionConfig::default()
        }
    }

    /// Starts a session.
    #[track_caller]
    pub(crate) fn start(&self, config: &SessionConfig) -> Session {
        let properties = self.connect().start(config).expect("the session did not start");
        Session { id: SessionRef::Id(properties.id), properties, is_stopped: false }
    }

    /// Returns the status of a start. A session that starts is stopped at once.
    #[track_caller]
    pub(crate) fn start_status(&self, config: &SessionConfig) -> Status {
        match self.connect().start(config) {
            Ok(properties) => {
                let _ = self.connect().stop(&SessionRef::Id(properties.id));
                SUCCESS
            }
            Err(e) => e.status(),
        }
    }

    /// Enables a provider and waits for the callbacks of this process.
    #[track_caller]
    pub(crate) fn enable(&self, session: &Session, provider: Guid, params: &EnableParams) {
        self.try_enable(session, provider, params).expect("the provider cannot be enabled");
    }

    /// Like [`enable`](Self::enable), but returns errors.
    pub(crate) fn try_enable(
        &self,
        session: &Session,
        provider: Guid,
        params: &EnableParams,
    ) -> Result<(), Error> {
        self.connect().enable(&session.id, provider, EnableCode::Enable, params, ENABLE_TIMEOUT_MS)
    }

    /// Starts a sequential session, registers a new provider and enables it in the session.
    #[track_caller]
    pub(crate) fn start_with_provider(&self, params: &EnableParams) -> (Session, Provider, Guid) {
        self.start_config_with_provider(&self.config(), params)
    }

    /// Like [`start_with_provider`](Self::start_with_provider), with this configuration.
    #[track_caller]
    pub(crate) fn start_config_with_provider(
        &self,
        config: &SessionConfig,
        params: &EnableParams,
    ) -> (Session, Provider, Guid) {
        let (guid, session) = (new_guid(), self.start(config));
        let provider = Provider::register(guid, None).expect("the provider did not register");
        self.enable(&session, guid, params);
        (session, provider, guid)
    }

    /// Returns the current properties of a session.
    #[track_caller]
    pub(crate) fn query(&self, session: &Session) -> Properties {
        self.connect().query(&session.id).expect("the session cannot be queried")
    }

    /// Disables a provider.
    #[track_caller]
    pub(crate) fn disable(&self, session: &Session, provider: Guid) {
        let result = self.connect().enable(
            &session.id,
            provider,
            EnableCode::Disable,
            &EnableParams::default(),
            ENABLE_TIMEOUT_MS,
        );
        result.expect("the provider cannot be disabled");
    }

    /// Stops a session and returns the events in its file.
    #[track_caller]
    pub(crate) fn stop_and_read(&self, session: Session) -> Vec<RecordedEvent> {
        self.stop(session).config.log_file.as_deref().map(events_of).unwrap_or_default()
    }

    /// Stops a session and returns its final properties.
    #[track_caller]
    pub(crate) fn stop(&self, mut session: Session) -> Properties {
        let end = self.connect().stop(&session.id).expect("the session did not stop");
        session.is_stopped = true;
        end
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.is_stopped
            && let Ok(Some(mut controller)) = Controller::find(None)
        {
            // The rule may have stopped the session already.
            let _ = controller.stop(&self.id);
        }
    }
}

/// Returns the events of a file that have no hook id. So kernel events and events about the session
/// itself are left out. Fails if the file breaks a rule of the format.
#[track_caller]
pub(crate) fn events_of(path: &Path) -> Vec<RecordedEvent> {
    let file = std::fs::File::open(path).expect("the file cannot be opened");
    let trace = Trace::open(file).expect("the file is not a trace");
    let mut findings = Vec::new();
    traceweir_format::etl::check(&trace, &mut |finding| findings.push(format!("{finding:?}")))
        .expect("the file cannot be checked");
    assert!(findings.is_empty(), "{}: {findings:?}", path.display());
    let mut recorded = Vec::new();
    let mut events = trace.events();
    while let Some(record) = events.next().expect("a record cannot be read") {
        if record.hook().is_some() {
            continue;
        }
        recorded.push(RecordedEvent {
            provider: record.provider(),
            descriptor: record.descriptor(),
            flags: record.flags(),
            activity: record.activity(),
            process: record.process_id(),
            thread: record.thread_id(),
            time: record.time(),
            payload: record.payload().to_vec(),
            items: record.items().map(|item| (item.kind, item.data.to_vec())).collect(),
        });
    }
    recorded
}

/// Returns the header of a file.
#[track_caller]
pub(crate) fn header_of(path: &Path) -> LogFileHeader {
    let file = std::fs::File::open(path).expect("the file cannot be opened");
    Trace::open(file).expect("the file is not a trace").header().clone()
}

/// One call of an enable callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallbackCall {
    pub(crate) source: Guid,
    pub(crate) code: u32,
    pub(crate) level: u8,
    pub(crate) any: u64,
    pub(crate) all: u64,
    pub(crate) filter: Option<(u32, Vec<u8>)>,
    pub(crate) thread: ThreadId,
}

impl CallbackCall {
    /// Returns the code, the level, and the masks MatchAny and MatchAll.
    pub(crate) fn code_level_masks(&self) -> (u32, u8, u64, u64) {
        (self.code, self.level, self.any, self.all)
    }
}

/// The recorded calls of a callback, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallbackLog(Arc<Mutex<Vec<CallbackCall>>>);

impl CallbackLog {
    /// Returns a callback that records its calls.
    pub(crate) fn callback(&self) -> Option<EnableCallback> {
        let calls = Arc::clone(&self.0);
        Some(Box::new(move |notice| {
            calls.lock().expect("a callback panicked").push(CallbackCall {
                source: notice.source,
                code: notice.code,
                level: notice.level,
                any: notice.match_any,
                all: notice.match_all,
                filter: notice.filter.map(|(kind, data)| (kind, data.to_vec())),
                thread: std::thread::current().id(),
            });
        }))
    }

    pub(crate) fn all(&self) -> Vec<CallbackCall> {
        self.0.lock().expect("a callback panicked").clone()
    }

    /// Returns the last call. Fails if there was none.
    #[track_caller]
    pub(crate) fn last(&self) -> CallbackCall {
        self.all().pop().expect("the callback was not called")
    }
}

/// Returns enable parameters with this level and these masks.
pub(crate) fn enable_params(level: u8, match_any: u64, match_all: u64) -> EnableParams {
    EnableParams { level, match_any, match_all, ..EnableParams::default() }
}

/// Returns a number that is unique in this run.
pub(crate) fn unique_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns a provider GUID that is unique in this run.
pub(crate) fn new_guid() -> Guid {
    Guid::from_u128(0x7ace_3e1c_0000_4000_8000_0000_0000_0000 | u128::from(unique_number()))
}

/// Returns the status of the error, or [`SUCCESS`].
pub(crate) fn status<T>(result: Result<T, Error>) -> Status {
    result.err().map_or(SUCCESS, |e| e.status())
}

/// Returns the descriptor of an event with [`LEVEL`] and [`KEYWORD`].
pub(crate) fn event(id: u16) -> EventDescriptor {
    event_with(id, LEVEL, KEYWORD)
}

pub(crate) fn event_with(id: u16, level: u8, keyword: u64) -> EventDescriptor {
    EventDescriptor { id, level, keyword, ..EventDescriptor::default() }
}

//! Enables providers in a session.

use std::time::Duration;

use traceweir_format::Guid;
use traceweir_format::spec::enable::{ControlCode, EnableProperties};
use traceweir_format::spec::event::Keywords;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::EnableParams;

use super::{Filter, Session, SessionHost};
use crate::error::Result;
use crate::tracelogging::Level;

/// How long [`Enable::apply`] waits for processes if no timeout is set.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);

/// The provider that a call addresses: a GUID, or a name from which the GUID is computed.
///
/// The name is that of a TraceLogging provider, an event source or another provider whose GUID is
/// the hash of its name ([`Guid::from_provider_name`]). Providers of manifests usually have a GUID
/// that is not derived from the name, and are addressed by it. A GUID may also be given as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderId {
    guid: Guid,
    /// A readable name that is stored with the enable; empty if unknown.
    name: String,
}

impl ProviderId {
    /// Returns the GUID.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Adds a readable name to a GUID. A daemon lists it with the enable
    /// ([`ProviderEnable::name`](super::ProviderEnable::name)).
    ///
    /// An enable fails with `ERROR_INVALID_PARAMETER` if the name is longer than
    /// [`MAX_PROVIDER_NAME_UNITS`](super::MAX_PROVIDER_NAME_UNITS) UTF-16 units, or has control
    /// characters.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }
}

impl From<Guid> for ProviderId {
    fn from(guid: Guid) -> Self {
        Self { guid, name: String::new() }
    }
}

impl From<&str> for ProviderId {
    fn from(name: &str) -> Self {
        match name.parse() {
            Ok(guid) => Self { guid, name: String::new() },
            Err(_) => Self { guid: Guid::from_provider_name(name), name: name.to_owned() },
        }
    }
}

impl From<&String> for ProviderId {
    fn from(name: &String) -> Self {
        Self::from(name.as_str())
    }
}

impl From<String> for ProviderId {
    fn from(name: String) -> Self {
        Self::from(name.as_str())
    }
}

/// A request about a provider, usually to enable it; [`Session::enable`] and [`Session::request`]
/// create it.
///
/// Without further calls, an enable takes all events of the provider. A second enable of the same
/// provider replaces the first.
#[derive(Debug)]
#[must_use = "a provider is not enabled until the call is applied"]
pub struct Enable<'s> {
    session: &'s Session,
    provider: ProviderId,
    code: ControlCode,
    params: EnableParams,
    timeout: Option<Duration>,
}

impl<'s> Enable<'s> {
    pub(super) fn new(session: &'s Session, provider: ProviderId, code: ControlCode) -> Self {
        Self { session, provider, code, params: EnableParams::default(), timeout: None }
    }

    /// Takes events up to this level. [`Level::LogAlways`] takes all levels.
    pub fn level(mut self, level: Level) -> Self {
        self.params.level = level.into();
        self
    }

    /// Takes events that have one of these keywords, and events without keywords.
    pub fn keywords(mut self, any: Keywords) -> Self {
        self.params.match_any = any.bits();
        self
    }

    /// Takes, of the events with one of the [`keywords`](Self::keywords), those that have all of
    /// these.
    pub fn all_keywords(mut self, all: Keywords) -> Self {
        self.params.match_all = all.bits();
        self
    }

    /// Adds properties, such as [`EnableProperties::STACK_TRACE`].
    pub fn properties(mut self, properties: EnableProperties) -> Self {
        self.params.property |= properties.bits();
        self
    }

    /// Adds a call stack to each event.
    pub fn stack_traces(self) -> Self {
        self.properties(EnableProperties::STACK_TRACE)
    }

    /// Adds a filter. An enable has at most one filter of each kind.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.params.filters.push(filter.into_message());
        self
    }

    /// Sets the GUID that the provider's callback gets as the source of the call.
    pub fn source(mut self, source: Guid) -> Self {
        self.params.source = source;
        self
    }

    /// Sets how long [`apply`](Self::apply) waits for processes that have registered the provider,
    /// and makes it fail with `ERROR_TIMEOUT` if they take longer; the enable stays in effect.
    /// [`Duration::MAX`] waits without a limit. [`Duration::ZERO`] waits only for the providers of
    /// this process, and never fails with `ERROR_TIMEOUT`.
    ///
    /// Without this call, it waits for two seconds, and slow processes apply the enable later.
    /// Sessions in this process ignore the timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Enables the provider, or carries out another [request](Session::request).
    ///
    /// Fails with `ERROR_INVALID_PARAMETER` for filters that contradict each other or the session;
    /// with `ERROR_NO_SYSTEM_RESOURCES` if eight sessions enable the provider already.
    pub fn apply(self) -> Result<()> {
        let Self { session, provider: ProviderId { guid, name }, code, params, timeout } = self;
        match (&session.host, code) {
            (SessionHost::InProcess(session), ControlCode::Enable) => session.enable(guid, &params),
            (SessionHost::InProcess(session), ControlCode::Disable) => session.disable(guid),
            (SessionHost::InProcess(session), ControlCode::CaptureState) => {
                session.capture_state(guid, &params)
            }
            (SessionHost::Daemon { controller, session }, _) => {
                let wait = timeout.unwrap_or(DEFAULT_TIMEOUT);
                // The largest number waits without a limit.
                let ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
                match controller.clone().enable_named(session, guid, &name, code, &params, ms) {
                    Err(error) if timeout.is_none() && error.status() == Status::ERROR_TIMEOUT => Ok(()),
                    result => result,
                }
            }
        }
    }
}

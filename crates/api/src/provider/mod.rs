//! Skeleton: providers.

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::spec::status::Status;

use crate::error::Result;

pub mod activity;

/// What an enable callback is told.
#[derive(Clone, Debug)]
pub struct EnableNotice<'a> {
    /// The controller's source id, or null.
    pub source: Guid,
    /// 0 disabled, 1 enabled, 2 capture state.
    pub code: u32,
    /// Combined level.
    pub level: u8,
    /// Combined any-mask.
    pub match_any: u64,
    /// Combined all-mask.
    pub match_all: u64,
    /// Filter data for the provider, where there is any: type and bytes.
    pub filter: Option<(u32, &'a [u8])>,
}

/// Called when sessions enable, change, disable the provider or ask for its state.
pub type EnableCallback = Box<dyn Fn(&EnableNotice<'_>) + Send + Sync>;

/// Why a write did not reach every session that wants the event. The loss is counted in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The registration is gone.
    #[error("the registration is gone")]
    InvalidHandle,
    /// More than 128 blocks, or another wrong parameter.
    #[error("a parameter is wrong")]
    InvalidParameter,
    /// The event is larger than 64 KiB.
    #[error("the event is larger than 64 KiB")]
    TooLarge,
    /// The event does not fit into a session's buffer.
    #[error("the event does not fit into a session's buffer")]
    MoreData,
    /// No free room in a session; the event is lost there.
    #[error("no free room in a session")]
    NoRoom,
}

impl WriteError {
    /// The Win32 status that the published API returns.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::InvalidHandle => Status::ERROR_INVALID_HANDLE,
            Self::InvalidParameter => Status::ERROR_INVALID_PARAMETER,
            Self::TooLarge => Status::ERROR_ARITHMETIC_OVERFLOW,
            Self::MoreData => Status::ERROR_MORE_DATA,
            Self::NoRoom => Status::ERROR_NOT_ENOUGH_MEMORY,
        }
    }
}

/// A registered provider; unregistered on drop.
#[derive(Debug)]
pub struct Provider {
    _private: (),
}

impl Provider {
    /// Registers a provider.
    pub fn register(provider: Guid, callback: Option<EnableCallback>) -> Result<Self> {
        let _ = (provider, callback);
        todo!()
    }

    /// Registers a provider with traits (name, group), which every event of it carries.
    pub fn register_with_traits(provider: Guid, traits: &[u8], callback: Option<EnableCallback>) -> Result<Self> {
        let _ = (provider, traits, callback);
        todo!()
    }

    /// Whether any session may want an event of this level and keyword: one relaxed load and a compare when nobody listens.
    #[inline(always)]
    #[must_use]
    pub fn enabled(&self, level: u8, keyword: u64) -> bool {
        let _ = (level, keyword);
        todo!()
    }

    /// Writes an event whose payload is the blocks one after the other.
    #[inline]
    pub fn write(&self, descriptor: &EventDescriptor, data: &[&[u8]]) -> Result<(), WriteError> {
        let _ = (descriptor, data);
        todo!()
    }

    /// Writes an event with activity ids; `None` takes the thread's activity, and no related one.
    pub fn write_transfer(
        &self,
        descriptor: &EventDescriptor,
        activity: Option<&Guid>,
        related: Option<&Guid>,
        data: &[&[u8]],
    ) -> Result<(), WriteError> {
        let _ = (descriptor, activity, related, data);
        todo!()
    }

    /// Writes a TraceLogging event: `metadata` is the event's own (extended item 11).
    pub fn write_self_described(
        &self,
        descriptor: &EventDescriptor,
        metadata: &[u8],
        activity: Option<&Guid>,
        related: Option<&Guid>,
        data: &[&[u8]],
    ) -> Result<(), WriteError> {
        let _ = (descriptor, metadata, activity, related, data);
        todo!()
    }

    /// Writes a string with level and keyword.
    pub fn write_string(&self, level: u8, keyword: u64, text: &str) -> Result<(), WriteError> {
        let _ = (level, keyword, text);
        todo!()
    }
}

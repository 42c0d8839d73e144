//! The enable callback of a provider and its arguments.

use traceweir_format::Guid;

/// The arguments of an enable callback.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct EnableNotice<'a> {
    /// The source id that the controller gave, or the null GUID.
    pub source: Guid,
    /// 0 disabled, 1 enabled, 2 capture state.
    pub code: u32,
    /// The level of the only session, or the highest of several.
    pub level: u8,
    /// The any-mask of the only session, or the union of several.
    pub match_any: u64,
    /// The all-mask of the only session, or the intersection of several.
    pub match_all: u64,
    /// Type and bytes of one filter for the provider, if there is any: the schematized filters of
    /// all sessions in one chain (`traceweir_format::filter::Header::chain`), or else a filter
    /// whose type the provider defines.
    pub filter: Option<(u32, &'a [u8])>,
    /// The filters of all sessions that have types which the provider defines.
    pub own_filters: &'a [(u32, &'a [u8])],
}

/// A function that runs when sessions enable, change or disable the provider or request its state.
///
/// It usually runs on a thread of the library; the call during a registration runs on the
/// registering thread. Calls for one registration never overlap. It should be quick and make no
/// controller calls. It may write events and drop the [`Provider`](crate::Provider).
pub type EnableCallback = Box<dyn Fn(&EnableNotice<'_>) + Send + Sync>;

//! What a registration is made of: interned, never freed, and as events carry it.

use traceweir_format::Guid;
use traceweir_format::header::extended::ITEM_HEAD;
use traceweir_format::spec::event::ExtType;
use traceweir_format::tracelogging;

use super::guid_of;
use crate::provider::EnableCallback;
use crate::provider::write::item_head;

/// Traits of a provider, as every event carries them.
#[derive(Debug)]
pub(crate) struct Traits {
    bytes: Box<[u8]>,
    /// As an extended item in whole words: the last one of its event, and one that another follows.
    items: [Box<[u64]>; 2],
}

impl Traits {
    /// These bytes, which are not none.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let item = |another_follows| {
            let head = item_head(ExtType::PROV_TRAITS, bytes.len(), another_follows);
            let whole: Vec<u8> = head.iter().chain(bytes).copied().collect();
            let word = |chunk: &[u8]| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            };
            whole.chunks(8).map(word).collect()
        };
        Self { bytes: bytes.into(), items: [item(false), item(true)] }
    }

    /// As an item.
    #[inline(always)]
    pub(super) fn item(&self, another_follows: bool) -> &[u64] {
        let [last, followed] = &self.items;
        if another_follows { followed } else { last }
    }

    /// As they were given.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// What events say of a provider whose traits name another GUID to decode them by.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decoding {
    /// That GUID, as it stands in a header.
    pub(in crate::provider) provider: [u64; 2],
    /// The extended item that names the provider. It is the first one: traits follow.
    pub(in crate::provider) control: [u8; CONTROL_ITEM],
}

/// Bytes of the item that names the controlling GUID: head and GUID.
const CONTROL_ITEM: usize = ITEM_HEAD + 16;

impl Decoding {
    /// By the traits of a provider; `None` where events are decoded by its own GUID.
    pub(crate) fn by(traits: &[u8], provider: Guid) -> Option<Self> {
        let decode = tracelogging::Traits::parse(traits).ok()?.decode_guid()?;
        let mut control = [0; CONTROL_ITEM];
        control[..ITEM_HEAD].copy_from_slice(&item_head(ExtType::CONTROL_GUID, 16, true));
        control[ITEM_HEAD..].copy_from_slice(&provider.to_bytes());
        Some(Self { provider: decode.to_words(), control })
    }
}

impl Decoding {
    /// The GUID that events are decoded by.
    pub(in crate::provider) fn guid(&self) -> Guid {
        guid_of(self.provider)
    }
}

/// The classes of events that a classic provider writes.
#[derive(Debug)]
pub(crate) struct Classes(pub(crate) Box<[Guid]>);

/// What a registration is made of.
pub(crate) struct New {
    pub(crate) provider: Guid,
    pub(crate) traits: Option<&'static Traits>,
    pub(crate) decoding: Option<&'static Decoding>,
    /// Of a classic provider.
    pub(crate) classes: Option<&'static Classes>,
    pub(crate) callback: Option<EnableCallback>,
    /// An address in the module that the provider belongs to; 0: the one this code is in.
    pub(crate) origin: usize,
}

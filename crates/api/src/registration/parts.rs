//! The parts of a registration that are interned, never freed, and stored as events carry them.

use traceweir_format::Guid;
use traceweir_format::header::extended::ITEM_HEAD_BYTES;
use traceweir_format::spec::event::ExtType;
use traceweir_format::tracelogging;

use super::guid_from_words;
use crate::enable_notice::EnableCallback;
use crate::event::item_head;

/// The traits of a provider, as every event carries them.
#[derive(Debug)]
pub(crate) struct ProviderTraits {
    bytes: Box<[u8]>,
    /// The extended data item, padded to words: as the last item of an event, and as an item that
    /// another one follows.
    items: [Box<[u64]>; 2],
}

impl ProviderTraits {
    /// Stores these bytes, which must not be empty.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let make_item = |another_follows| {
            let head = item_head(ExtType::PROV_TRAITS, bytes.len(), another_follows).to_le_bytes();
            let item_bytes: Vec<u8> = head.iter().chain(bytes).copied().collect();
            let to_word = |chunk: &[u8]| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            };
            item_bytes.chunks(8).map(to_word).collect()
        };
        Self { bytes: bytes.into(), items: [make_item(false), make_item(true)] }
    }

    /// Returns the extended data item.
    #[inline(always)]
    pub(crate) fn item(&self, another_follows: bool) -> &[u64] {
        let [last, followed] = &self.items;
        if another_follows { followed } else { last }
    }

    /// Returns the bytes as the provider passed them.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The parts of an event that differ if the traits name a decode GUID: a GUID other than the
/// provider's under which events are decoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DecodeGuidWords {
    /// The decode GUID, which replaces the provider id in the event header, as words.
    pub(crate) header_guid: [u64; 2],
    /// The extended data item that contains the provider id. It precedes the traits.
    pub(crate) control_item: [u8; CONTROL_ITEM_BYTES],
}

/// Bytes of the extended data item CONTROL_GUID, which contains the provider id: head and GUID.
const CONTROL_ITEM_BYTES: usize = ITEM_HEAD_BYTES + 16;

impl DecodeGuidWords {
    /// Derives the words from the traits; `None` if events are decoded by the provider's own GUID.
    pub(crate) fn from_traits(traits: &[u8], provider: Guid) -> Option<Self> {
        let decode = tracelogging::Traits::parse(traits).ok()?.decode_guid()?;
        let mut control_item = [0; CONTROL_ITEM_BYTES];
        let head = item_head(ExtType::CONTROL_GUID, 16, true).to_le_bytes();
        control_item[..ITEM_HEAD_BYTES].copy_from_slice(&head);
        control_item[ITEM_HEAD_BYTES..].copy_from_slice(&provider.to_bytes());
        Some(Self { header_guid: decode.to_words(), control_item })
    }

    /// Returns the GUID that events are decoded by.
    pub(crate) fn guid(&self) -> Guid {
        guid_from_words(self.header_guid)
    }
}

/// The classes of events that a classic provider writes.
#[derive(Debug)]
pub(crate) struct Classes(pub(crate) Box<[Guid]>);

/// The contents of a new registration.
pub(crate) struct NewRegistration {
    pub(crate) provider: Guid,
    pub(crate) traits: Option<&'static ProviderTraits>,
    pub(crate) decoding: Option<&'static DecodeGuidWords>,
    /// The event classes of a classic provider.
    pub(crate) classes: Option<&'static Classes>,
    pub(crate) callback: Option<EnableCallback>,
    /// An address in the module that the provider belongs to; 0 for the module of this code.
    pub(crate) origin: usize,
}

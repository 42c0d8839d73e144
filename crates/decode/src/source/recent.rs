//! A table of recent lookups in front of a map that is keyed by values from the trace.
//!
//! The map uses the standard hasher, which costs more than the rest of a lookup. The table uses a
//! cheap hash and has a fixed size: events whose keys share a slot only cost the lookup in the map.

use traceweir_format::Guid;

/// Provider or class, event id or type, and version.
pub(super) type SchemaKey = (Guid, u16, u8);

const SLOT_COUNT: usize = 256;

/// The schemas of recent events, by key.
#[derive(Debug, Default)]
pub(super) struct RecentSchemas {
    /// Empty, or [`SLOT_COUNT`] slots.
    slots: Vec<Option<(SchemaKey, u32)>>,
}

impl RecentSchemas {
    #[inline]
    pub(super) fn find(&self, key: &SchemaKey) -> Option<u32> {
        let (slot_key, schema) = self.slots.get(slot_of(key))?.as_ref()?;
        (slot_key == key).then_some(*schema)
    }

    #[cold]
    pub(super) fn remember(&mut self, key: SchemaKey, schema: u32) {
        self.slots.resize(SLOT_COUNT, None);
        if let Some(slot) = self.slots.get_mut(slot_of(&key)) {
            *slot = Some((key, schema));
        }
    }

    /// Forgets all lookups. Must be called when a key may get another schema.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }
}

#[inline]
fn slot_of((guid, id, version): &SchemaKey) -> usize {
    let mixed = guid.data1 ^ u32::from(*id) ^ u32::from(*version).rotate_left(16);
    // The highest 8 bits of the product select one of `SLOT_COUNT` slots.
    usize::try_from(mixed.wrapping_mul(0x9E37_79B9) >> 24).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_share_a_slot_are_not_confused() {
        let mut recent = RecentSchemas::default();
        assert_eq!(recent.find(&(Guid::NULL, 0, 0)), None);
        for id in 0..4 * SLOT_COUNT as u16 {
            let key = (Guid::NULL, id, 1);
            recent.remember(key, u32::from(id));
            assert_eq!(recent.find(&key), Some(u32::from(id)));
            let others = (0..id).filter_map(|other| Some((other, recent.find(&(Guid::NULL, other, 1))?)));
            assert!(others.into_iter().all(|(other, schema)| u32::from(other) == schema));
        }
        recent.clear();
        assert_eq!(recent.find(&(Guid::NULL, 7, 1)), None);
    }
}

//! An entry of a property array, and the rules that its two encodings share.
//!
//! TEMP items of compiled manifests and EVENT_PROPERTY_INFO hold the same facts under different
//! flag bits. The readers of both forms translate the bits into [`Property`]; only this module has
//! the rules for counts and lengths.
//!
//! Sources: Documented ("EVENT_PROPERTY_INFO"), Observed (TEMP items).

use std::sync::Arc;

use traceweir_format::spec::types::InType;

use crate::schema::{Count, Field, FieldKind, Length, MAX_FIELDS};
use crate::{Error, Result};

/// The rule for reading the count or the length of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source) enum SizeRule {
    /// No flag is set; the number may still be a count or length.
    Implied,
    /// The number is the count or length.
    Fixed,
    /// The number is the index of the property that holds the count or length.
    Reference,
}

impl SizeRule {
    /// Returns the rule for two flag bits; a reference takes precedence over a number.
    pub(in crate::source) const fn new(is_fixed: bool, is_reference: bool) -> Self {
        match (is_fixed, is_reference) {
            (_, true) => Self::Reference,
            (true, false) => Self::Fixed,
            (false, false) => Self::Implied,
        }
    }
}

/// One property as its array holds it.
pub(in crate::source) struct Property {
    pub(in crate::source) name: Arc<str>,
    pub(in crate::source) kind: FieldKind,
    pub(in crate::source) count: (SizeRule, u16),
    pub(in crate::source) length: (SizeRule, u16),
    pub(in crate::source) tags: u32,
}

impl Property {
    /// Returns the field that the property describes.
    ///
    /// A count without a flag means an array if it is at least 2, because older systems do not
    /// write the flag for arrays; 0 or 1 then means a single value.
    pub(in crate::source) fn into_field(self) -> Field {
        let count = match self.count {
            (SizeRule::Reference, index) => Count::Field(index),
            (SizeRule::Implied, 0 | 1) => Count::One,
            (_, n) => Count::Fixed(n),
        };
        let length = match (self.length, &self.kind) {
            ((SizeRule::Reference, index), FieldKind::Value { .. }) => Length::Field(index),
            ((_, n @ 1..), FieldKind::Value { input, .. }) if has_explicit_length(*input) => Length::Fixed(n),
            // The length of a pointer is that of the machine that wrote the schema, not that of the
            // event.
            _ => Length::Natural,
        };
        let mut field = Field::new("", self.kind).with_count(count).with_length(length);
        (field.name, field.tags) = (self.name, self.tags);
        field
    }
}

/// Returns whether a type takes a length in bytes or characters; the other types define their own
/// size.
fn has_explicit_length(input: InType) -> bool {
    matches!(input, InType::UNICODESTRING | InType::ANSISTRING | InType::BINARY)
}

/// Refuses structures that share members.
///
/// In every sound schema each member belongs to one structure. Structures that share members
/// describe a tree that may be exponentially larger than its list.
pub(in crate::source) fn check_members(fields: &[Field]) -> Result<()> {
    let mut owned_members = vec![false; fields.len().min(MAX_FIELDS)];
    for field in fields {
        let FieldKind::Struct { first, members } = field.kind else { continue };
        for has_owner in owned_members.iter_mut().skip(usize::from(first)).take(usize::from(members)) {
            if std::mem::replace(has_owner, true) {
                return Err(Error::Schema("structures share members"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::spec::types::OutType;

    fn convert_property(input: InType, count: (SizeRule, u16), length: (SizeRule, u16)) -> (Count, Length) {
        let kind = FieldKind::Value { input, output: OutType::NULL, map: None };
        let f = Property { name: "f".into(), kind, count, length, tags: 0 }.into_field();
        (f.count, f.length)
    }

    #[test]
    fn counts_and_lengths_depend_on_flag_and_type() {
        use SizeRule::{Fixed, Implied, Reference};
        let (one, natural) = (Count::One, Length::Natural);
        assert_eq!(convert_property(InType::UINT32, (Implied, 1), (Implied, 4)), (one, natural));
        assert_eq!(convert_property(InType::POINTER, (Implied, 2), (Implied, 4)), (Count::Fixed(2), natural));
        assert_eq!(convert_property(InType::POINTER, (Fixed, 1), (Fixed, 4)), (Count::Fixed(1), natural));
        assert_eq!(convert_property(InType::UNICODESTRING, (Implied, 0), (Implied, 0)), (one, natural));
        assert_eq!(
            convert_property(InType::UNICODESTRING, (Implied, 1), (Fixed, 9)),
            (one, Length::Fixed(9))
        );
        assert_eq!(convert_property(InType::BINARY, (Implied, 1), (Reference, 0)), (one, Length::Field(0)));
        assert_eq!(
            convert_property(InType::COUNTEDSTRING, (Reference, 3), (Implied, 8)),
            (Count::Field(3), natural)
        );
    }

    #[test]
    fn structures_cannot_share_members() {
        let structure = |first, members| Field::new("s", FieldKind::Struct { first, members });
        let value = || Field::value("v", InType::UINT8, OutType::NULL);
        assert!(check_members(&[structure(2, 1), structure(3, 1), value(), value()]).is_ok());
        assert!(check_members(&[structure(2, 2), structure(3, 1), value(), value()]).is_err());
    }
}

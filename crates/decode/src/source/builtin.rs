//! Built-in schemas: for plain strings, for the chunks in which a .NET EventSource sends its
//! manifest, and for events without fields.

use traceweir_format::spec::types::{InType, OutType};

use super::prepared::PreparedSchema;
use crate::schema::{Field, Schema, SchemaNames, SchemaOrigin};

#[derive(Clone, Debug)]
pub(super) struct BuiltinSchemas {
    /// The payload is one string (EventWriteString).
    pub(super) string_only: PreparedSchema,
    /// The payload is a chunk of an EventSource's manifest.
    pub(super) manifest_chunk: PreparedSchema,
    /// A schema without fields.
    pub(super) empty: PreparedSchema,
}

impl Default for BuiltinSchemas {
    fn default() -> Self {
        let value = |name, input| Field::value(name, input, OutType::NULL);
        let string = [value("Message", InType::UNICODESTRING)];
        let chunk = [
            value("Format", InType::UINT8),
            value("MajorVersion", InType::UINT8),
            value("MinorVersion", InType::UINT8),
            value("Magic", InType::UINT8),
            value("TotalChunks", InType::UINT16),
            value("ChunkNumber", InType::UINT16),
            Field::value("Manifest", InType::NONNULLTERMINATEDANSISTRING, OutType::UTF8),
        ];
        Self {
            string_only: prepare("StringOnly", SchemaOrigin::StringOnly, &string),
            manifest_chunk: prepare("ManifestData", SchemaOrigin::Manifest, &chunk),
            empty: PreparedSchema::new(Schema::default()),
        }
    }
}

fn prepare(name: &str, origin: SchemaOrigin, fields: &[Field]) -> PreparedSchema {
    let mut schema = Schema::default();
    schema.origin = origin;
    schema.names = SchemaNames { event: Some(name.into()), ..SchemaNames::default() };
    // Sealing cannot fail: the fields are few, and none refers to another.
    PreparedSchema::new(schema.seal(fields.to_vec(), fields.len()).unwrap_or_default())
}

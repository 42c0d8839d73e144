//! The log-file header event: `LoggerName` and `LogFileName` become the session and file names.
//!
//! ```text
//!   … │ LoggerName │ LogFileName │ time zone … clock … │ SessionNameString │ LogFileNameString
//!         ╰──────────────────────────── shows ────────────────▲                    ▲
//!                      ╰────────────────── shows ──────────────────────────────────╯
//! ```
//!
//! In the payload the two fields are pointers of the process that wrote the file or, since Windows
//! 7, timer sources. Visitors get the names instead, as text. The schema and the bytes of a
//! property keep the pointers, because they describe the payload.

use traceweir_format::Guid;
use traceweir_format::kernel::hook::{self, type_of};
use traceweir_format::spec::event::class;
use traceweir_format::spec::types::{InType, OutType};

use super::{Visitor, Walker};
use crate::error::Undecoded;
use crate::schema::{Field, Schema};
use crate::value::Value;

/// The pointer fields, each with the field that holds its name.
const NAME_FIELDS: [(&str, &str); 2] =
    [("LoggerName", "SessionNameString"), ("LogFileName", "LogFileNameString")];
/// The field that holds the clock type of the file: 1, 2 or 3.
const CLOCK_FIELD: &str = "ReservedFlags";

/// Returns whether events of this class and opcode are log-file header events.
pub(crate) fn is_log_file_header(class: &Guid, opcode: u8) -> bool {
    (*class, opcode) == (class::EVENT_TRACE, type_of(hook::LOG_FILE_HEADER))
}

impl Walker {
    /// Walks the payload of a log-file header event: once for the names, once for the visitor.
    #[cold]
    pub(super) fn walk_header<'p, V: Visitor<'p>>(
        &mut self,
        schema: &Schema,
        payload: &'p [u8],
        pointer_size: usize,
        visitor: &mut V,
    ) -> Result<&'p [u8], Undecoded> {
        let mut header_names = HeaderNames::default();
        // A payload that ends early may lack names; the second walk reports the error.
        let _ = self.walk_bytes(schema, payload, pointer_size, &mut header_names);
        let mut substitution = NamesForPointers { visitor, names: header_names.names };
        self.walk_bytes(schema, payload, pointer_size, &mut substitution)
    }
}

/// Returns the name that the pointer at the start of `remaining` stands for. `remaining` is the
/// payload of a log-file header event from `LoggerName` or `LogFileName` to its end; `schema`
/// describes the event.
///
/// The clock field decides which of the two fields the pointer is: with the wrong guess, part of a
/// time or of the session's name is in the place of the clock. Returns `None` if neither guess
/// fits, or both do.
pub(crate) fn find_name_of_pointer<'p>(
    schema: &Schema,
    remaining: &'p [u8],
    pointer_size: usize,
) -> Option<Value<'p>> {
    let mut names = NAME_FIELDS.iter().enumerate().filter_map(|(position, (pointer, _))| {
        let first = schema.top().iter().position(|field| &*field.name == *pointer)?;
        let fields = schema.top().get(first..)?.to_vec();
        let top = fields.len();
        let from_pointer = Schema::default().seal(fields, top).ok()?;
        let mut header_names = HeaderNames::default();
        Walker::default().walk_bytes(&from_pointer, remaining, pointer_size, &mut header_names).ok()?;
        header_names
            .names
            .get(position)
            .copied()
            .flatten()
            .filter(|_| matches!(header_names.clock, Some(1..=3)))
    });
    let name = names.next()?;
    names.next().is_none().then_some(name)
}

/// The two names and the clock, as far as the payload holds them.
#[derive(Default)]
struct HeaderNames<'p> {
    names: [Option<Value<'p>>; 2],
    clock: Option<u64>,
}

impl<'p> Visitor<'p> for HeaderNames<'p> {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        for (name, (_, name_field)) in self.names.iter_mut().zip(NAME_FIELDS) {
            if &*field.name == name_field {
                *name = Some(value);
            }
        }
        if &*field.name == CLOCK_FIELD {
            self.clock = value.as_u64();
        }
    }
}

/// Passes fields to another visitor, with the names instead of the pointers.
struct NamesForPointers<'v, 'p, V> {
    visitor: &'v mut V,
    names: [Option<Value<'p>>; 2],
}

impl<'p, V: Visitor<'p>> Visitor<'p> for NamesForPointers<'_, 'p, V> {
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        let position = NAME_FIELDS.iter().position(|(pointer, _)| *pointer == &*field.name);
        match position.and_then(|position| self.names.get_mut(position)).and_then(Option::take) {
            Some(name) => {
                let field = Field::value(&field.name, InType::UNICODESTRING, OutType::NULL);
                self.visitor.value(index, &field, name);
            }
            None => self.visitor.value(index, field, value),
        }
    }
    fn begin_array(&mut self, index: usize, field: &Field, count: usize) {
        self.visitor.begin_array(index, field, count);
    }
    fn end_array(&mut self, index: usize, field: &Field) {
        self.visitor.end_array(index, field);
    }
    fn begin_struct(&mut self, index: usize, field: &Field) {
        self.visitor.begin_struct(index, field);
    }
    fn end_struct(&mut self, index: usize, field: &Field) {
        self.visitor.end_struct(index, field);
    }
    fn set_offset(&mut self, offset: usize) {
        self.visitor.set_offset(offset);
    }
    fn is_full(&self) -> bool {
        self.visitor.is_full()
    }
}

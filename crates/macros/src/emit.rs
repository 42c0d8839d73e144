//! The code that is emitted for one event.
//!
//! ```text
//!   {
//!       const level, keyword;
//!       if PROVIDER.enabled(level, keyword) {
//!           static descriptor, metadata;
//!           match (value, value, …) { (v0, v1, …) => write(&[block, bytes, block]) }
//!       } else { 0 }
//!   }
//! ```
//!
//! The values are in the scrutinee of a `match`, so that temporaries they borrow from live until
//! the event is written. Adjacent values of fixed size, and the counts of other values, are packed
//! into one block on the stack: the writer then copies a few blocks instead of many small ones.
//!
//! In this module, `tlg` is the path of the module `__tlg`, whose items the emitted code uses.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use crate::event::{Constant, EventCall, EventField};
use crate::fields::ValueEncoding;

/// A piece of the payload.
enum PayloadPiece {
    /// A value of fixed size.
    Fixed(TokenStream),
    /// An expression for bytes in memory.
    Bytes(TokenStream),
}

/// The values of all fields that have data.
#[derive(Default)]
struct FieldValues {
    expressions: Vec<TokenStream>,
    /// The variables that hold the values.
    names: Vec<Ident>,
    /// The pieces that are written.
    pieces: Vec<PayloadPiece>,
}

impl EventCall {
    /// Returns the code of the event: an expression of type `u32`.
    pub(crate) fn emit(&self) -> TokenStream {
        let (tlg, provider) = (&self.tlg, &self.provider);
        let level = self.emit_level();
        let keyword = self.emit_keyword();
        let statics = self.emit_statics();
        let FieldValues { expressions, names, pieces } = self.collect_values();
        let (blocks, data) = join_pieces(tlg, pieces);
        let activity = emit_optional_id(&self.activity, "activity");
        let related = emit_optional_id(&self.related, "related");
        let (activity_value, activity_name) = self.emit_id(&self.activity, "activity");
        let (related_value, related_name) = self.emit_id(&self.related, "related");
        quote! {{
            const __TLG_LEVEL: #tlg::Level = #level;
            const __TLG_KEYWORD: ::core::primitive::u64 = #keyword;
            if #provider.enabled(__TLG_LEVEL, __TLG_KEYWORD) {
                #statics
                match (#activity_value #related_value #(#expressions,)*) {
                    (#activity_name #related_name #(#names,)*) => {
                        #blocks
                        #tlg::write(&#provider, &__TLG_EVENT, &__TLG_METADATA, #activity, #related, &[#(#tlg::Block::new(#data)),*])
                    }
                }
            } else {
                0_u32
            }
        }}
    }

    fn emit_level(&self) -> TokenStream {
        let tlg = &self.tlg;
        self.level.as_ref().map_or_else(|| quote!(#tlg::Level::Verbose), |level| level.tokens.clone())
    }

    /// Returns all given keywords combined, or 1 if there are none.
    fn emit_keyword(&self) -> TokenStream {
        let keywords = self.keywords.iter().map(|k| emit_typed_number(k, "u64"));
        if self.keywords.is_empty() { quote!(1) } else { quote!(#(#keywords)|*) }
    }

    fn emit_statics(&self) -> TokenStream {
        let (tlg, name) = (&self.tlg, &self.name);
        let zero = || quote!(0);
        let id = self.id.as_ref().map_or_else(zero, |c| emit_typed_number(c, "u16"));
        let version = self.version.as_ref().map_or_else(zero, |c| emit_typed_number(c, "u8"));
        let task = self.task.as_ref().map_or_else(zero, |c| emit_typed_number(c, "u16"));
        let tag = self.emit_tag(&self.tag);
        let or_default = |c: &Option<Constant>, otherwise| c.as_ref().map_or(otherwise, |c| c.tokens.clone());
        let channel = or_default(&self.channel, quote!(#tlg::Channel::TraceLogging));
        let opcode = or_default(&self.opcode, quote!(#tlg::Opcode::Info));
        let fields = self.fields.iter().filter_map(|field| self.emit_metadata(field));
        quote! {
            static __TLG_EVENT: #tlg::EventDescriptor =
                #tlg::descriptor(#id, #version, #channel, __TLG_LEVEL, #opcode, #task, __TLG_KEYWORD);
            const __TLG_TAG: ::core::primitive::u32 = #tag;
            const __TLG_FIELDS: &[#tlg::FieldMetadata<'static>] = &[#(#fields),*];
            const __TLG_SIZE: ::core::primitive::usize =
                #tlg::checked_size(#tlg::metadata_size(#name, __TLG_TAG, __TLG_FIELDS));
            static __TLG_METADATA: [::core::primitive::u8; __TLG_SIZE] =
                #tlg::encode_metadata(#name, __TLG_TAG, __TLG_FIELDS);
        }
    }

    /// Returns the metadata of a field, or `None` for raw data, which has none.
    fn emit_metadata(&self, field: &EventField) -> Option<TokenStream> {
        let (tlg, at) = (&self.tlg, field.at);
        let name = field.name.as_ref()?;
        let constant = |kind: &str, value: &str| {
            let (kind, value) = (Ident::new(kind, at), Ident::new(value, at));
            quote_spanned!(at=> #tlg::#kind::#value)
        };
        let input = field.input.clone().unwrap_or_else(|| constant("InType", field.field_type.input));
        let out = field.out.clone().unwrap_or_else(|| constant("OutType", field.field_type.out));
        let tag = self.emit_tag(&field.tag);
        let shape = Ident::new(if field.field_type.kind.is_array() { "array" } else { "scalar" }, at);
        Some(quote! { #tlg::FieldMetadata::#shape(#name, #input.as_int(), #out.as_int(), #tag) })
    }

    fn emit_tag(&self, tag: &Option<Constant>) -> TokenStream {
        let tlg = &self.tlg;
        tag.as_ref().map_or_else(
            || quote!(0),
            |tag| {
                let value = &tag.tokens;
                quote_spanned!(tag.at=> #tlg::tag(#value))
            },
        )
    }

    /// Returns the expression of an activity id and the variable that holds it; both empty without
    /// an id.
    fn emit_id(&self, id: &Option<Constant>, name: &str) -> (TokenStream, TokenStream) {
        let tlg = &self.tlg;
        id.as_ref().map_or_else(Default::default, |id| {
            let (value, name) = (&id.tokens, local_ident(name));
            (quote_spanned!(id.at=> #tlg::activity(#value),), quote!(#name,))
        })
    }

    fn collect_values(&self) -> FieldValues {
        let mut values = FieldValues::default();
        for field in self.fields.iter().filter(|field| field.field_type.kind.blocks() != 0) {
            let name = local_ident(&format!("value{}", values.names.len()));
            values.expressions.push(field.field_type.convert(&self.tlg, &field.value, field.at));
            values.pieces.extend(self.make_pieces(field, &name));
            values.names.push(name);
        }
        values
    }

    fn make_pieces(&self, field: &EventField, value: &Ident) -> Vec<PayloadPiece> {
        let tlg = &self.tlg;
        match field.field_type.kind {
            ValueEncoding::Scalar => vec![PayloadPiece::Fixed(quote!(*#value))],
            ValueEncoding::Time(_) => vec![PayloadPiece::Fixed(quote!(#value))],
            ValueEncoding::CountedScalar => {
                vec![
                    PayloadPiece::Fixed(quote!(#tlg::counted_size(#value))),
                    PayloadPiece::Fixed(quote!(*#value)),
                ]
            }
            ValueEncoding::Counted => {
                vec![
                    PayloadPiece::Fixed(quote!(#tlg::counted_size(#value))),
                    PayloadPiece::Bytes(quote!(#tlg::counted(#value))),
                ]
            }
            ValueEncoding::Slice => {
                vec![
                    PayloadPiece::Fixed(quote!(#tlg::slice_count(#value))),
                    PayloadPiece::Bytes(quote!(#tlg::elements(#value))),
                ]
            }
            ValueEncoding::Terminated => {
                let unit = field.field_type.emit_value_type(tlg, Span::mixed_site());
                vec![
                    PayloadPiece::Bytes(quote!(#tlg::until_zero(#value))),
                    PayloadPiece::Fixed(quote!({ const ZERO: #unit = 0; ZERO })),
                ]
            }
            ValueEncoding::Sid => vec![PayloadPiece::Bytes(quote!(#tlg::sid(#value)))],
            ValueEncoding::RawField { .. } | ValueEncoding::RawData => {
                vec![PayloadPiece::Bytes(quote!(#tlg::counted(#value)))]
            }
            ValueEncoding::Struct | ValueEncoding::RawMeta { .. } | ValueEncoding::RawStruct { .. } => {
                Vec::new()
            }
        }
    }
}

/// Returns the blocks on the stack, and the expressions for all data in order.
fn join_pieces(tlg: &TokenStream, pieces: Vec<PayloadPiece>) -> (TokenStream, Vec<TokenStream>) {
    let (mut blocks, mut data) = (TokenStream::new(), Vec::new());
    let mut adjacent: Vec<TokenStream> = Vec::new();
    let mut close_block = |adjacent: &mut Vec<TokenStream>, data: &mut Vec<TokenStream>| {
        let Some(last) = adjacent.pop() else { return };
        let block =
            adjacent.drain(..).rev().fold(last, |packed, value| quote!(#tlg::Packed(#value, #packed)));
        let name = local_ident(&format!("block{}", data.len()));
        blocks.extend(quote!(let #name = #block;));
        data.push(quote!(#tlg::bytes(&#name)));
    };
    for piece in pieces {
        match piece {
            PayloadPiece::Fixed(value) => adjacent.push(value),
            PayloadPiece::Bytes(bytes) => {
                close_block(&mut adjacent, &mut data);
                data.push(bytes);
            }
        }
    }
    close_block(&mut adjacent, &mut data);
    (blocks, data)
}

/// Returns a number of the given type; errors about its type point to its option.
fn emit_typed_number(constant: &Constant, type_name: &str) -> TokenStream {
    let (value, primitive) = (&constant.tokens, Ident::new(type_name, constant.at));
    quote_spanned!(constant.at=> ::core::convert::identity::<::core::primitive::#primitive>(#value))
}

fn emit_optional_id(id: &Option<Constant>, name: &str) -> TokenStream {
    let name = local_ident(name);
    if id.is_some() {
        quote!(::core::option::Option::Some(&#name))
    } else {
        quote!(::core::option::Option::None)
    }
}

/// Returns an identifier that the caller's expressions cannot refer to.
fn local_ident(name: &str) -> Ident {
    format_ident!("{name}", span = Span::mixed_site())
}

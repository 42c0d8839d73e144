//! Constants that options accept by name: `level(Warning)` becomes
//! `level($crate::__tlg::Level::Warning)`, `level(3)` becomes
//! `level($crate::__tlg::Level::from_int(3))`; any other expression is passed on, and only its type
//! is checked.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::quote_spanned;

/// A type whose constants options accept by name.
pub(crate) struct NamedConstants {
    pub(crate) type_name: &'static str,
    /// The constants that can be given without the type.
    names: &'static [&'static str],
    /// The error text for a missing value.
    pub(crate) expected: &'static str,
}

pub(crate) const LEVEL: NamedConstants = NamedConstants {
    type_name: "Level",
    names: &["LogAlways", "Critical", "Error", "Warning", "Informational", "Verbose"],
    expected: "expected a level, such as level(Warning), level(Level::Warning) or level(3)",
};

pub(crate) const OPCODE: NamedConstants = NamedConstants {
    type_name: "Opcode",
    names: &[
        "Info",
        "ActivityStart",
        "ActivityStop",
        "CollectionStart",
        "CollectionStop",
        "Start",
        "Stop",
        "DC_Start",
        "DC_Stop",
        "Extension",
        "Reply",
        "Resume",
        "Suspend",
        "Send",
        "Receive",
    ],
    expected: "expected an opcode, such as opcode(Start), opcode(Opcode::Start) or opcode(1)",
};

pub(crate) const CHANNEL: NamedConstants = NamedConstants {
    type_name: "Channel",
    names: &["TraceClassic", "TraceLogging", "ProviderMetadata"],
    expected: "expected a channel, such as channel(TraceLogging), channel(Channel::TraceLogging) or channel(11)",
};

pub(crate) const IN_TYPE: NamedConstants = NamedConstants {
    type_name: "InType",
    names: &[
        "Invalid",
        "CStr16",
        "CStr8",
        "I8",
        "U8",
        "I16",
        "U16",
        "I32",
        "U32",
        "I64",
        "U64",
        "F32",
        "F64",
        "Bool32",
        "Binary",
        "Guid",
        "FileTime",
        "SystemTime",
        "Sid",
        "Hex32",
        "Hex64",
        "Str16",
        "Str8",
        "Struct",
        "BinaryC",
        "ISize",
        "USize",
        "HexSize",
    ],
    expected: "expected the type of the field, such as U32, InType::U32 or 8",
};

pub(crate) const OUT_TYPE: NamedConstants = NamedConstants {
    type_name: "OutType",
    names: &[
        "Default",
        "NoPrint",
        "String",
        "Boolean",
        "Hex",
        "Pid",
        "Tid",
        "Port",
        "IPv4",
        "IPv6",
        "SocketAddress",
        "Xml",
        "Json",
        "Win32Error",
        "NtStatus",
        "HResult",
        "DateTime",
        "Signed",
        "Unsigned",
        "DateTimeCultureInsensitive",
        "Utf8",
        "Pkcs7WithTypeInfo",
        "CodePointer",
        "DateTimeUtc",
    ],
    expected: "expected how the field is shown, such as format(Hex), format(OutType::Hex) or format(4)",
};

impl NamedConstants {
    /// Returns the value as an expression; errors about its type point to `at`.
    pub(crate) fn expand(&self, tlg: &TokenStream, tokens: TokenStream, at: Span) -> TokenStream {
        let kind = proc_macro2::Ident::new(self.type_name, at);
        let mut iter = tokens.clone().into_iter();
        match (iter.next(), iter.next()) {
            (Some(TokenTree::Ident(name)), None) if self.names.contains(&name.to_string().as_str()) => {
                quote_spanned!(at=> #tlg::#kind::#name)
            }
            (Some(TokenTree::Literal(_)), _) => quote_spanned!(at=> #tlg::#kind::from_int(#tokens)),
            _ => quote_spanned!(at=> ::core::convert::identity::<#tlg::#kind>(#tokens)),
        }
    }
}

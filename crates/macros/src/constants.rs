//! Values that have names: `level(Warning)` is `level($crate::__tlg::Level::Warning)`, `level(3)` is `level($crate::__tlg::Level::from_int(3))`, anything else is taken as it stands.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::quote_spanned;

/// A type of such values.
pub(crate) struct Named {
    /// The type.
    pub(crate) kind: &'static str,
    /// Names that may stand alone.
    names: &'static [&'static str],
    /// What to say to who gives none.
    pub(crate) expected: &'static str,
}

pub(crate) const LEVEL: Named = Named {
    kind: "Level",
    names: &["LogAlways", "Critical", "Error", "Warning", "Informational", "Verbose"],
    expected: "expected a level, such as level(Warning), level(Level::Warning) or level(3)",
};

pub(crate) const OPCODE: Named = Named {
    kind: "Opcode",
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

pub(crate) const CHANNEL: Named = Named {
    kind: "Channel",
    names: &["TraceClassic", "TraceLogging", "ProviderMetadata"],
    expected: "expected a channel, such as channel(TraceLogging), channel(Channel::TraceLogging) or channel(11)",
};

pub(crate) const IN_TYPE: Named = Named {
    kind: "InType",
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

pub(crate) const OUT_TYPE: Named = Named {
    kind: "OutType",
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

impl Named {
    /// The value as an expression; complaints about its type are made at `at`.
    pub(crate) fn value(&self, tlg: &TokenStream, tokens: TokenStream, at: Span) -> TokenStream {
        let kind = proc_macro2::Ident::new(self.kind, at);
        let mut each = tokens.clone().into_iter();
        match (each.next(), each.next()) {
            (Some(TokenTree::Ident(name)), None) if self.names.contains(&name.to_string().as_str()) => {
                quote_spanned!(at=> #tlg::#kind::#name)
            }
            (Some(TokenTree::Literal(_)), _) => quote_spanned!(at=> #tlg::#kind::from_int(#tokens)),
            _ => quote_spanned!(at=> ::core::convert::identity::<#tlg::#kind>(#tokens)),
        }
    }
}

//! Numbers of TraceLogging that have names.
//!
//! In types say how a value is laid out, out types how it is shown; the table of both is in `traceweir_format::tracelogging`. Names are those of
//! Microsoft's `tracelogging`, so that the same source says the same.

use std::fmt;

/// A number with names, made from any.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident up to $most:literal { $($(#[$of:meta])* $value:ident = $number:expr,)* }) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u8);

        #[allow(non_upper_case_globals)] // Names as published.
        impl $name {
            $($(#[$of])* pub const $value: Self = Self($number);)*

            /// The value of this number.
            ///
            /// # Panics
            ///
            #[doc = concat!("Above ", $most, ".")]
            #[inline(always)]
            #[must_use]
            #[allow(unused_comparisons, clippy::absurd_extreme_comparisons)] // Of those whose numbers fill a byte.
            pub const fn from_int(value: u8) -> Self {
                assert!(value <= $most, concat!("no ", stringify!($name), " is above ", $most));
                Self(value)
            }

            /// Its number.
            #[inline(always)]
            #[must_use]
            pub const fn as_int(self) -> u8 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<u8> for $name {
            fn from(value: u8) -> Self {
                Self(value)
            }
        }

        impl From<$name> for u8 {
            fn from(value: $name) -> Self {
                value.0
            }
        }
    };
}

numbers! {
    /// How severe an event is. A session takes events up to the level it was enabled with.
    Level up to 255 {
        /// Taken whatever the session's level.
        LogAlways = 0,
        /// The program ends, or cannot go on.
        Critical = 1,
        /// Something failed.
        Error = 2,
        /// Something may fail.
        Warning = 3,
        /// Something happened that is worth to know.
        Informational = 4,
        /// Details. What an event has that does not say.
        Verbose = 5,
    }
}

numbers! {
    /// What an event means for the activity that it belongs to.
    Opcode up to 255 {
        /// Nothing special.
        Info = 0,
        /// An activity begins; its related id is the activity it belongs to.
        ActivityStart = 1,
        /// The activity ends.
        ActivityStop = 2,
        /// State, as collection begins.
        CollectionStart = 3,
        /// State, as collection ends.
        CollectionStop = 4,
        /// An extension event.
        Extension = 5,
        /// An answer.
        Reply = 6,
        /// The activity goes on.
        Resume = 7,
        /// The activity waits.
        Suspend = 8,
        /// A message leaves.
        Send = 9,
        /// A message arrives.
        Receive = 240,
        /// Reserved.
        ReservedOpcode241 = 241,
        /// Reserved.
        ReservedOpcode242 = 242,
        /// Reserved.
        ReservedOpcode243 = 243,
        /// Reserved.
        ReservedOpcode244 = 244,
        /// Reserved.
        ReservedOpcode245 = 245,
        /// Reserved.
        ReservedOpcode246 = 246,
        /// Reserved.
        ReservedOpcode247 = 247,
        /// Reserved.
        ReservedOpcode248 = 248,
        /// Reserved.
        ReservedOpcode249 = 249,
        /// Reserved.
        ReservedOpcode250 = 250,
        /// Reserved.
        ReservedOpcode251 = 251,
        /// Reserved.
        ReservedOpcode252 = 252,
        /// Reserved.
        ReservedOpcode253 = 253,
        /// Reserved.
        ReservedOpcode254 = 254,
        /// Reserved.
        ReservedOpcode255 = 255,
        /// The same as [`ActivityStart`](Self::ActivityStart).
        Start = 1,
        /// The same as [`ActivityStop`](Self::ActivityStop).
        Stop = 2,
        /// The same as [`CollectionStart`](Self::CollectionStart).
        DC_Start = 3,
        /// The same as [`CollectionStop`](Self::CollectionStop).
        DC_Stop = 4,
    }
}

numbers! {
    /// Where an event belongs.
    Channel up to 255 {
        /// None.
        TraceClassic = 0,
        /// Events that describe themselves. What an event has that does not say.
        TraceLogging = 11,
        /// Manifests in traces.
        ProviderMetadata = 12,
    }
}

/// Pointer-size types have other numbers on narrow machines.
const fn by_width(narrow: u8, wide: u8) -> u8 {
    if size_of::<usize>() == 8 { wide } else { narrow }
}

numbers! {
    /// How a value is laid out.
    InType up to 127 {
        /// No value.
        Invalid = 0,
        /// UTF-16 up to a zero.
        CStr16 = 1,
        /// Bytes of text up to a zero.
        CStr8 = 2,
        /// 8 bits with a sign.
        I8 = 3,
        /// 8 bits.
        U8 = 4,
        /// 16 bits with a sign.
        I16 = 5,
        /// 16 bits.
        U16 = 6,
        /// 32 bits with a sign.
        I32 = 7,
        /// 32 bits.
        U32 = 8,
        /// 64 bits with a sign.
        I64 = 9,
        /// 64 bits.
        U64 = 10,
        /// 32 bits, floating point.
        F32 = 11,
        /// 64 bits, floating point.
        F64 = 12,
        /// 32 bits, of which any is true.
        Bool32 = 13,
        /// Bytes behind their 16-bit count.
        Binary = 14,
        /// A GUID.
        Guid = 15,
        /// A number as wide as the machine that wrote it: not used by events that describe themselves.
        _HexSize_PlatformSpecific = 16,
        /// Units of 100 ns since 1601.
        FileTime = 17,
        /// Eight 16-bit numbers: year, month, day of week, day, hour, minute, second, millisecond.
        SystemTime = 18,
        /// A security id.
        Sid = 19,
        /// 32 bits, hexadecimal.
        Hex32 = 20,
        /// 64 bits, hexadecimal.
        Hex64 = 21,
        /// UTF-16 behind its 16-bit count of bytes.
        Str16 = 22,
        /// Bytes of text behind their 16-bit count.
        Str8 = 23,
        /// Takes the fields that follow together.
        Struct = 24,
        /// As `Binary`, and older readers do not know it.
        BinaryC = 25,
        /// As wide as a pointer, with a sign.
        ISize = by_width(7, 9),
        /// As wide as a pointer.
        USize = by_width(8, 10),
        /// As wide as a pointer, hexadecimal.
        HexSize = by_width(20, 21),
    }
}

#[allow(non_upper_case_globals)] // Names as published.
impl InType {
    /// With a type: an array whose count the description has.
    pub const ConstantCountFlag: u8 = 0x20;
    /// With a type: an array whose count stands in front of its values.
    pub const VariableCountFlag: u8 = 0x40;
    /// With a number: an encoding of its own.
    pub const CustomFlag: u8 = 0x60;
    /// The bits of the type.
    pub const TypeMask: u8 = 0x1F;
    /// The bits of flags.
    pub const FlagMask: u8 = 0x60;
}

numbers! {
    /// How a value is shown.
    OutType up to 127 {
        /// As its in type is.
        Default = 0,
        /// Not at all.
        NoPrint = 1,
        /// As text.
        String = 2,
        /// As true or false.
        Boolean = 3,
        /// Hexadecimal.
        Hex = 4,
        /// As a process.
        Pid = 5,
        /// As a thread.
        Tid = 6,
        /// As a port in network order.
        Port = 7,
        /// As an address of IP version 4.
        IPv4 = 8,
        /// As an address of IP version 6.
        IPv6 = 9,
        /// As a socket address.
        SocketAddress = 10,
        /// As XML.
        Xml = 11,
        /// As JSON.
        Json = 12,
        /// As a Win32 error.
        Win32Error = 13,
        /// As an NTSTATUS.
        NtStatus = 14,
        /// As an HRESULT.
        HResult = 15,
        /// As date and time.
        DateTime = 16,
        /// With a sign.
        Signed = 17,
        /// Without a sign.
        Unsigned = 18,
        /// As date and time, the same for all languages.
        DateTimeCultureInsensitive = 33,
        /// As UTF-8.
        Utf8 = 35,
        /// As PKCS #7 with type information.
        Pkcs7WithTypeInfo = 36,
        /// As the address of code.
        CodePointer = 37,
        /// As date and time in UTC.
        DateTimeUtc = 38,
    }
}

#[allow(non_upper_case_globals)] // Names as published.
impl OutType {
    /// The bits of an out type.
    pub const TypeMask: u8 = 0x7F;
}

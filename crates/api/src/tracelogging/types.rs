//! Named numbers of TraceLogging.
//!
//! In types describe the layout of a value, out types its presentation; the table of both is in
//! `traceweir_format::tracelogging`. Names are those of Microsoft's `tracelogging`, so that the
//! same source compiles.

use std::fmt;

/// Defines a type of numbers, some of which have names.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident up to $most:literal { $($(#[$of:meta])* $value:ident = $number:expr,)* }) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u8);

        #[allow(non_upper_case_globals)] // Names of the original crate.
        impl $name {
            $($(#[$of])* pub const $value: Self = Self($number);)*

            /// Returns the value with this number.
            ///
            /// # Panics
            ///
            #[doc = concat!("Panics above ", $most, ".")]
            #[inline(always)]
            #[must_use]
            #[allow(unused_comparisons, clippy::absurd_extreme_comparisons)] // For types whose numbers fill a byte.
            pub const fn from_int(value: u8) -> Self {
                assert!(value <= $most, concat!("no ", stringify!($name), " is above ", $most));
                Self(value)
            }

            /// Returns the number of the value.
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
    /// Severity of an event. A session takes events up to its enabled level.
    Level up to 255 {
        /// Taken at every level of the session.
        LogAlways = 0,
        /// The program ends, or cannot continue.
        Critical = 1,
        /// An operation of the program failed.
        Error = 2,
        /// Something may fail.
        Warning = 3,
        /// Useful information about the program.
        Informational = 4,
        /// Details; the default of events.
        Verbose = 5,
    }
}

numbers! {
    /// Meaning of an event for its activity.
    Opcode up to 255 {
        /// No special meaning.
        Info = 0,
        /// An activity begins; its related id is the activity it belongs to.
        ActivityStart = 1,
        /// The activity ends.
        ActivityStop = 2,
        /// State at the start of collection.
        CollectionStart = 3,
        /// State at the end of collection.
        CollectionStop = 4,
        /// An extension event.
        Extension = 5,
        /// A reply to a message.
        Reply = 6,
        /// The activity continues after a suspension.
        Resume = 7,
        /// The activity is suspended.
        Suspend = 8,
        /// A message is sent.
        Send = 9,
        /// A message is received.
        Receive = 240,
        /// Reserved for opcodes of the system.
        ReservedOpcode241 = 241,
        /// Reserved for opcodes of the system.
        ReservedOpcode242 = 242,
        /// Reserved for opcodes of the system.
        ReservedOpcode243 = 243,
        /// Reserved for opcodes of the system.
        ReservedOpcode244 = 244,
        /// Reserved for opcodes of the system.
        ReservedOpcode245 = 245,
        /// Reserved for opcodes of the system.
        ReservedOpcode246 = 246,
        /// Reserved for opcodes of the system.
        ReservedOpcode247 = 247,
        /// Reserved for opcodes of the system.
        ReservedOpcode248 = 248,
        /// Reserved for opcodes of the system.
        ReservedOpcode249 = 249,
        /// Reserved for opcodes of the system.
        ReservedOpcode250 = 250,
        /// Reserved for opcodes of the system.
        ReservedOpcode251 = 251,
        /// Reserved for opcodes of the system.
        ReservedOpcode252 = 252,
        /// Reserved for opcodes of the system.
        ReservedOpcode253 = 253,
        /// Reserved for opcodes of the system.
        ReservedOpcode254 = 254,
        /// Reserved for opcodes of the system.
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
    /// Channel of an event.
    Channel up to 255 {
        /// No channel is set.
        TraceClassic = 0,
        /// Self-describing events; the default of events.
        TraceLogging = 11,
        /// Manifests in traces.
        ProviderMetadata = 12,
    }
}

/// Selects the number of a pointer-size type, which depends on the pointer size.
const fn by_width(narrow: u8, wide: u8) -> u8 {
    if size_of::<usize>() == 8 { wide } else { narrow }
}

numbers! {
    /// Layout of a value.
    InType up to 127 {
        /// A field without a value.
        Invalid = 0,
        /// UTF-16 text, zero-terminated.
        CStr16 = 1,
        /// 8-bit text, zero-terminated.
        CStr8 = 2,
        /// Signed 8-bit integer.
        I8 = 3,
        /// Unsigned 8-bit integer.
        U8 = 4,
        /// Signed 16-bit integer.
        I16 = 5,
        /// Unsigned 16-bit integer.
        U16 = 6,
        /// Signed 32-bit integer.
        I32 = 7,
        /// Unsigned 32-bit integer.
        U32 = 8,
        /// Signed 64-bit integer.
        I64 = 9,
        /// Unsigned 64-bit integer.
        U64 = 10,
        /// 32-bit floating-point number.
        F32 = 11,
        /// 64-bit floating-point number.
        F64 = 12,
        /// 32-bit boolean, true if any bit is set.
        Bool32 = 13,
        /// Bytes after their 16-bit count.
        Binary = 14,
        /// A GUID of 16 bytes.
        Guid = 15,
        /// A pointer-size number of the writing machine, not used by self-describing events.
        _HexSize_PlatformSpecific = 16,
        /// Units of 100 ns since 1601.
        FileTime = 17,
        /// Eight 16-bit numbers: year, month, day of week, day, hour, minute, second, millisecond.
        SystemTime = 18,
        /// A security identifier (SID).
        Sid = 19,
        /// 32-bit integer, shown as hexadecimal.
        Hex32 = 20,
        /// 64-bit integer, shown as hexadecimal.
        Hex64 = 21,
        /// UTF-16 text after its 16-bit count of bytes.
        Str16 = 22,
        /// 8-bit text after its 16-bit count.
        Str8 = 23,
        /// A structure of the fields that follow.
        Struct = 24,
        /// Like `Binary`, in a form that older readers do not know.
        BinaryC = 25,
        /// Signed pointer-size integer.
        ISize = by_width(7, 9),
        /// Unsigned pointer-size integer.
        USize = by_width(8, 10),
        /// Pointer-size integer, shown as hexadecimal.
        HexSize = by_width(20, 21),
    }
}

#[allow(non_upper_case_globals)] // Names of the original crate.
impl InType {
    /// Flag of an array whose count is in the metadata.
    pub const ConstantCountFlag: u8 = 0x20;
    /// Flag of an array whose count precedes its values.
    pub const VariableCountFlag: u8 = 0x40;
    /// Flag of a custom encoding.
    pub const CustomFlag: u8 = 0x60;
    /// Mask of the type bits.
    pub const TypeMask: u8 = 0x1F;
    /// Mask of the flag bits.
    pub const FlagMask: u8 = 0x60;
}

numbers! {
    /// Presentation of a value.
    OutType up to 127 {
        /// Default presentation of the in type.
        Default = 0,
        /// The value is not shown.
        NoPrint = 1,
        /// Shown as text.
        String = 2,
        /// Shown as true or false.
        Boolean = 3,
        /// Shown as hexadecimal.
        Hex = 4,
        /// Shown as a process id.
        Pid = 5,
        /// Shown as a thread id.
        Tid = 6,
        /// Shown as a port in network byte order.
        Port = 7,
        /// Shown as an IPv4 address.
        IPv4 = 8,
        /// Shown as an IPv6 address.
        IPv6 = 9,
        /// Shown as a socket address.
        SocketAddress = 10,
        /// Shown as XML.
        Xml = 11,
        /// Shown as JSON.
        Json = 12,
        /// Shown as a Win32 error.
        Win32Error = 13,
        /// Shown as an NTSTATUS.
        NtStatus = 14,
        /// Shown as an HRESULT.
        HResult = 15,
        /// Shown as date and time.
        DateTime = 16,
        /// Shown as a signed number.
        Signed = 17,
        /// Shown as an unsigned number.
        Unsigned = 18,
        /// Shown as date and time, independent of the locale.
        DateTimeCultureInsensitive = 33,
        /// Shown as UTF-8 text.
        Utf8 = 35,
        /// Shown as PKCS #7 with type information.
        Pkcs7WithTypeInfo = 36,
        /// Shown as a code address.
        CodePointer = 37,
        /// Shown as date and time in UTC.
        DateTimeUtc = 38,
    }
}

#[allow(non_upper_case_globals)] // Names of the original crate.
impl OutType {
    /// Mask of the out-type bits.
    pub const TypeMask: u8 = 0x7F;
}

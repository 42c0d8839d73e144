//! Status codes and messages as text, as in windows.h: FormatMessage for the codes that tracing
//! functions return and for texts of the caller, and LocalFree.
//!
//! | Request | Result |
//! |---|---|
//! | FORMAT_MESSAGE_FROM_SYSTEM, with or without FROM_HMODULE | the text of [`Status`] |
//! | FROM_STRING alone | the caller's text, with its inserts replaced |
//! | FROM_HMODULE alone | ERROR_NOT_SUPPORTED |
//! | FROM_STRING with another source, or no source | ERROR_INVALID_PARAMETER |
//! | a code that no tracing function returns | ERROR_MR_MID_NOT_FOUND |
//! | a language other than neutral, a default or English | ERROR_RESOURCE_LANG_NOT_FOUND |
//! | no width | the text and CR LF, with which all system messages of Windows end |
//! | a width of 1 to 254 | lines of at most that many characters, broken between words by CR LF |
//! | any width, also 255 (FORMAT_MESSAGE_MAX_WIDTH_MASK) | a space at the end instead of CR LF |
//!
//! Modules have no message tables here. FORMAT_MESSAGE_IGNORE_INSERTS and ARGUMENT_ARRAY only
//! concern the caller's text: texts of codes have no inserts. With a width, line breaks in the
//! caller's text become spaces, except those that `%n` makes.

mod inserts;

use std::ffi::{c_char, c_void};

use traceweir::Status;

use self::inserts::{ArgumentSource, Arguments};
use crate::held::HeldMemory;
use crate::text::TextUnit;
use crate::{boundary, last_error, ptr};

/// Texts that were allocated for programs and not freed yet.
pub(crate) static TEXTS: HeldMemory = HeldMemory::new();

/// The lowest byte of the flags is a width.
const FORMAT_MESSAGE_MAX_WIDTH_MASK: u32 = 0xFF;
const FORMAT_MESSAGE_ALLOCATE_BUFFER: u32 = 0x0100;
const FORMAT_MESSAGE_IGNORE_INSERTS: u32 = 0x0200;
const FORMAT_MESSAGE_FROM_STRING: u32 = 0x0400;
const FORMAT_MESSAGE_FROM_HMODULE: u32 = 0x0800;
const FORMAT_MESSAGE_FROM_SYSTEM: u32 = 0x1000;
const FORMAT_MESSAGE_ARGUMENT_ARRAY: u32 = 0x2000;
/// The most characters that a caller can request for an allocated buffer, as for the published
/// function.
const MAX_CHARACTERS: u32 = 64 << 10;
/// The language of the texts: the lower ten bits of a language identifier.
const LANG_ENGLISH: u32 = 9;

/// Formats a status code or a text of the caller as UTF-16 text.
///
/// # Safety
///
/// `buffer` is NULL, or has room for `size` characters, or with FORMAT_MESSAGE_ALLOCATE_BUFFER for
/// an address. With FORMAT_MESSAGE_FROM_STRING, `source` is NULL or a text with a terminator, and
/// `arguments` is NULL or has the arguments that the text names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FormatMessageW(
    flags: u32,
    source: *const c_void,
    code: u32,
    language: u32,
    buffer: *mut u16,
    size: u32,
    arguments: *mut c_void,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; the functions require no more.
    length_or_last_error(|| unsafe {
        let text = if is_from_string(flags) {
            format_string(flags, source.cast::<u16>(), arguments)?
        } else {
            format_status(flags, code, language)?
        };
        write_text(flags, &text.encode_utf16().collect::<Vec<u16>>(), buffer, size)
    })
}

/// Formats a status code or a text of the caller as UTF-8 text.
///
/// # Safety
///
/// As [`FormatMessageW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FormatMessageA(
    flags: u32,
    source: *const c_void,
    code: u32,
    language: u32,
    buffer: *mut c_char,
    size: u32,
    arguments: *mut c_void,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; the functions require no more.
    length_or_last_error(|| unsafe {
        let text = if is_from_string(flags) {
            format_string(flags, source.cast::<u8>(), arguments)?
        } else {
            format_status(flags, code, language)?
        };
        write_text(flags, text.as_bytes(), buffer.cast(), size)
    })
}

/// Returns whether the flags name the caller's text as the only source.
const fn is_from_string(flags: u32) -> bool {
    const SOURCES: u32 =
        FORMAT_MESSAGE_FROM_STRING | FORMAT_MESSAGE_FROM_HMODULE | FORMAT_MESSAGE_FROM_SYSTEM;
    flags & SOURCES == FORMAT_MESSAGE_FROM_STRING
}

/// Returns the caller's text with its inserts replaced, broken into lines of the requested width.
///
/// # Safety
///
/// As [`FormatMessageW`].
unsafe fn format_string<U: TextUnit>(
    flags: u32,
    source: *const U,
    arguments: *mut c_void,
) -> Result<String, Status> {
    // SAFETY: the caller passes NULL or a text with a terminator.
    let units = unsafe { ptr::read_text(source, MAX_CHARACTERS as usize) };
    let text = U::decode(units.ok_or(Status::ERROR_INVALID_PARAMETER)?);
    let mut text = text.ok_or(Status::ERROR_INVALID_PARAMETER)?.to_string_lossy().into_owned();
    let width = flags & FORMAT_MESSAGE_MAX_WIDTH_MASK;
    if width != 0 {
        text = text.replace("\r\n", " ").replace('\n', " ");
    }
    let source = if arguments.is_null() {
        ArgumentSource::None
    } else if flags & FORMAT_MESSAGE_ARGUMENT_ARRAY != 0 {
        ArgumentSource::Array(arguments.cast_const().cast())
    } else {
        ArgumentSource::List(arguments)
    };
    let is_wide = size_of::<U>() == size_of::<u16>();
    let arguments = (flags & FORMAT_MESSAGE_IGNORE_INSERTS == 0).then(|| Arguments::new(source, is_wide));
    // SAFETY: the caller fulfils the `# Safety` section; `expand` requires no more.
    let expanded = unsafe { inserts::expand(&text, arguments) }?;
    Ok(match width {
        0 | FORMAT_MESSAGE_MAX_WIDTH_MASK => expanded,
        width => {
            let lines = expanded.split("\r\n").map(|line| wrap_lines(line, width as usize));
            lines.collect::<Vec<_>>().join("\r\n")
        }
    })
}

/// Returns the text of a code, broken into lines of the requested width.
fn format_status(flags: u32, code: u32, language: u32) -> Result<String, Status> {
    let [string, module, system] =
        [FORMAT_MESSAGE_FROM_STRING, FORMAT_MESSAGE_FROM_HMODULE, FORMAT_MESSAGE_FROM_SYSTEM]
            .map(|flag| flags & flag != 0);
    match (string, module, system) {
        (false, true, false) => return Err(Status::ERROR_NOT_SUPPORTED),
        (true, _, _) | (false, false, false) => return Err(Status::ERROR_INVALID_PARAMETER),
        (false, _, true) => {}
    }
    // The primary language of neutral, and of the defaults of user and system, is 0.
    if !matches!(language & 0x3FF, 0 | LANG_ENGLISH) {
        return Err(Status::ERROR_RESOURCE_LANG_NOT_FOUND);
    }
    let text = Status(code).meaning().ok_or(Status::ERROR_MR_MID_NOT_FOUND)?;
    Ok(match flags & FORMAT_MESSAGE_MAX_WIDTH_MASK {
        0 => text.to_owned() + "\r\n",
        FORMAT_MESSAGE_MAX_WIDTH_MASK => text.to_owned() + " ",
        width => wrap_lines(text, width as usize) + " ",
    })
}

/// Breaks a text between words into lines of at most `width` characters. Longer words are not
/// broken.
fn wrap_lines(text: &str, width: usize) -> String {
    let mut lines = String::with_capacity(text.len());
    let mut line_chars: usize = 0;
    for word in text.split(' ') {
        let word_chars = word.chars().count();
        if line_chars == 0 {
            line_chars = word_chars;
        } else if line_chars.saturating_add(1).saturating_add(word_chars) <= width {
            lines.push(' ');
            line_chars = line_chars.saturating_add(1).saturating_add(word_chars);
        } else {
            lines.push_str("\r\n");
            line_chars = word_chars;
        }
        lines.push_str(word);
    }
    lines
}

/// Runs the body of a function that returns a length. On failure it returns 0 and sets the last
/// error.
fn length_or_last_error(body: impl FnOnce() -> Result<u32, Status>) -> u32 {
    let result = boundary::catch_panic(Err(Status::ERROR_NOACCESS), body);
    result.unwrap_or_else(|status| {
        last_error::set(status);
        0
    })
}

/// Writes a text and its terminator to the caller's buffer or to an allocated one. Writes nothing
/// if the text does not fit.
///
/// # Safety
///
/// As [`FormatMessageW`].
unsafe fn write_text<T: Copy + Default>(
    flags: u32,
    text: &[T],
    buffer: *mut T,
    size: u32,
) -> Result<u32, Status> {
    if buffer.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let length = u32::try_from(text.len()).map_err(|_| Status::ERROR_INSUFFICIENT_BUFFER)?;
    let (destination, capacity) = if flags & FORMAT_MESSAGE_ALLOCATE_BUFFER == 0 {
        (buffer, size)
    } else {
        let capacity = size.min(MAX_CHARACTERS).max(length.saturating_add(1));
        let allocated = TEXTS.allocate((capacity as usize).saturating_mul(size_of::<T>()));
        let allocated: *mut T = allocated.ok_or(Status::ERROR_NOT_ENOUGH_MEMORY)?.cast();
        // SAFETY: with this flag, the caller guarantees that an address can be written to `buffer`.
        unsafe { ptr::store(buffer.cast::<*mut T>(), allocated) };
        (allocated, capacity)
    };
    if length >= capacity {
        return Err(Status::ERROR_INSUFFICIENT_BUFFER);
    }
    for (index, character) in text.iter().chain(&[T::default()]).enumerate() {
        // SAFETY: the destination holds `capacity` characters, which is at least `length + 1`.
        unsafe { ptr::store(destination.wrapping_add(index), *character) };
    }
    Ok(length)
}

/// Frees a text that [`FormatMessageW`], [`FormatMessageA`] or a function of
/// [`win32`](crate::win32) allocated, and returns NULL. Any other address is returned; unless it is
/// NULL, the last error is ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub extern "C" fn LocalFree(memory: *mut c_void) -> *mut c_void {
    boundary::catch_panic(memory, || {
        if memory.is_null() || TEXTS.free(memory) {
            return std::ptr::null_mut();
        }
        last_error::set(Status::ERROR_INVALID_HANDLE);
        memory
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM_SYSTEM_WITH_INSERTS: u32 =
        FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS | FORMAT_MESSAGE_ARGUMENT_ARRAY;
    const USER_DEFAULT_LANGUAGE: u32 = 0x0400;
    const US_ENGLISH: u32 = 0x0409;
    const GERMAN: u32 = 0x0407;
    const E_POINTER: u32 = 0x8000_4003;

    #[test]
    fn text_depends_on_source_width_and_language() {
        let code = Status::ERROR_ACCESS_DENIED.0;
        let text = "permission refused\r\n";
        for (flags, language, expected) in [
            (FORMAT_MESSAGE_FROM_SYSTEM, 0, Ok(text)),
            (FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_FROM_HMODULE, 0, Ok(text)),
            (FROM_SYSTEM_WITH_INSERTS, 0, Ok(text)),
            (FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_MAX_WIDTH_MASK, 0, Ok("permission refused ")),
            (FORMAT_MESSAGE_FROM_SYSTEM | 10, 0, Ok("permission\r\nrefused ")),
            (FORMAT_MESSAGE_FROM_SYSTEM, USER_DEFAULT_LANGUAGE, Ok(text)),
            (FORMAT_MESSAGE_FROM_SYSTEM, US_ENGLISH, Ok(text)),
            (FORMAT_MESSAGE_FROM_SYSTEM, GERMAN, Err(Status::ERROR_RESOURCE_LANG_NOT_FOUND)),
            (0, 0, Err(Status::ERROR_INVALID_PARAMETER)),
            (FORMAT_MESSAGE_FROM_HMODULE, 0, Err(Status::ERROR_NOT_SUPPORTED)),
            (
                FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_FROM_STRING,
                0,
                Err(Status::ERROR_INVALID_PARAMETER),
            ),
            (
                FORMAT_MESSAGE_FROM_HMODULE | FORMAT_MESSAGE_FROM_STRING,
                0,
                Err(Status::ERROR_INVALID_PARAMETER),
            ),
        ] {
            assert_eq!(
                format_status(flags, code, language),
                expected.map(str::to_owned),
                "{flags:#x} {language:#x}"
            );
        }
    }

    #[test]
    fn text_of_the_caller_is_broken_into_lines() {
        let text = c"one two\nthree%nfour %1";
        let format = |flags: u32| {
            // SAFETY: the text has a terminator; without inserts no argument is read.
            unsafe {
                format_string(
                    flags | FORMAT_MESSAGE_IGNORE_INSERTS,
                    text.as_ptr().cast::<u8>(),
                    std::ptr::null_mut(),
                )
            }
        };
        assert_eq!(format(0).unwrap(), "one two\nthree\r\nfour %1");
        assert_eq!(format(FORMAT_MESSAGE_MAX_WIDTH_MASK).unwrap(), "one two three\r\nfour %1");
        assert_eq!(format(7).unwrap(), "one two\r\nthree\r\nfour %1");
    }

    #[test]
    fn code_without_text_is_not_found() {
        for code in [0xDEAD, 0x8007_DEAD, 0xC000_0005, u32::MAX] {
            let text = format_status(FORMAT_MESSAGE_FROM_SYSTEM, code, 0);
            assert_eq!(text, Err(Status::ERROR_MR_MID_NOT_FOUND), "{code:#x}");
        }
        let text = format_status(FORMAT_MESSAGE_FROM_SYSTEM, E_POINTER, 0);
        assert_eq!(text.as_deref(), Ok("pointer is missing\r\n"));
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(
            wrap_lines("out of memory or of trace buffers", 13),
            "out of memory\r\nor of trace\r\nbuffers"
        );
        assert_eq!(wrap_lines("permission refused", 1), "permission\r\nrefused", "no word is broken");
        assert_eq!(wrap_lines("permission refused", 18), "permission refused");
    }
}

//! Text of the caller with insert sequences (FORMAT_MESSAGE_FROM_STRING).
//!
//! | Sequence | Meaning |
//! |---|---|
//! | `%1` … `%99`, `%1!format!` | an argument; the format is that of printf, `s` without one |
//! | `%0` | the text ends here |
//! | `%n`, `%r`, `%t` | a line break, a carriage return, a tab |
//! | `%` and another character | this character: `%%`, `%.`, `%!`, `% ` |
//!
//! Source: Documented ("FormatMessage function").

use std::ffi::c_void;
use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

use traceweir::Status;

use crate::ptr;

/// Characters of the longest text of an argument.
const MAX_ARGUMENT_UNITS: usize = 1 << 20;
/// The largest width and precision.
const MAX_WIDTH: usize = 64 << 10;

/// Where the arguments of a message are.
#[derive(Clone, Copy)]
pub(super) enum ArgumentSource {
    None,
    /// An array of values of the size of a pointer.
    Array(*const usize),
    /// A `va_list` of C.
    List(*mut c_void),
}

/// The arguments of a message, by number from 0.
pub(super) struct Arguments {
    source: ArgumentSource,
    /// The values that were read from a list so far.
    values: Vec<usize>,
    /// Whether `%s` is UTF-16.
    is_wide: bool,
}

impl Arguments {
    pub(super) const fn new(source: ArgumentSource, is_wide: bool) -> Self {
        Self { source, values: Vec::new(), is_wide }
    }

    /// Returns an argument.
    ///
    /// # Safety
    ///
    /// The source has this argument and all before it.
    unsafe fn read(&mut self, index: usize) -> Result<usize, Status> {
        match self.source {
            ArgumentSource::None => Err(Status::ERROR_INVALID_PARAMETER),
            ArgumentSource::Array(at) => {
                // SAFETY: the caller guarantees that the array has the argument.
                let value = unsafe { ptr::read_value(at.wrapping_add(index)) };
                value.ok_or(Status::ERROR_INVALID_PARAMETER)
            }
            ArgumentSource::List(list) => {
                while self.values.len() <= index {
                    // SAFETY: the caller guarantees that the list has the argument.
                    self.values.push(unsafe { read_next(list) }?);
                }
                self.values.get(index).copied().ok_or(Status::ERROR_INVALID_PARAMETER)
            }
        }
    }

    /// Returns the text at an address, at most `limit` units of it.
    ///
    /// # Safety
    ///
    /// `address` is 0, or a text with a terminator or of `limit` units.
    unsafe fn read_text(address: usize, is_wide: bool, limit: usize) -> String {
        fn read_units<U: Copy + Default + PartialEq>(address: usize, limit: usize) -> Vec<U> {
            let at = std::ptr::with_exposed_provenance::<U>(address);
            let mut units = Vec::new();
            while units.len() < limit.min(MAX_ARGUMENT_UNITS) {
                // SAFETY: no unit so far was the terminator, so the caller guarantees one more.
                match unsafe { ptr::read_value(at.wrapping_add(units.len())) } {
                    Some(unit) if unit != U::default() => units.push(unit),
                    _ => break,
                }
            }
            units
        }
        if address == 0 {
            return "(null)".to_owned();
        }
        if is_wide {
            String::from_utf16_lossy(&read_units::<u16>(address, limit))
        } else {
            String::from_utf8_lossy(&read_units::<u8>(address, limit)).into_owned()
        }
    }
}

/// Reads the next argument of the size of a pointer from a `va_list`.
///
/// # Safety
///
/// `list` is NULL or a `va_list` that has another argument.
#[cfg(target_arch = "x86_64")]
unsafe fn read_next(list: *mut c_void) -> Result<usize, Status> {
    /// Bytes of the registers for integers in the area of registers.
    const REGISTER_BYTES: u32 = 48;
    /// The va_list of the System V ABI.
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct List {
        integer_offset: u32,
        float_offset: u32,
        stack: *const usize,
        registers: *const u8,
    }
    let list = list.cast::<List>();
    // SAFETY: the caller passes NULL or a `va_list`.
    let mut state = unsafe { ptr::read_value(list) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
    let at = if state.integer_offset < REGISTER_BYTES {
        let at = state.registers.wrapping_add(state.integer_offset as usize).cast();
        state.integer_offset = state.integer_offset.saturating_add(8);
        at
    } else {
        let at = state.stack;
        state.stack = at.wrapping_add(1);
        at
    };
    // SAFETY: `list` is not NULL; the caller guarantees another argument.
    unsafe {
        ptr::store(list, state);
        ptr::read_value(at).ok_or(Status::ERROR_INVALID_PARAMETER)
    }
}

/// Reads the next argument of the size of a pointer from a `va_list`.
///
/// # Safety
///
/// `list` is NULL or a `va_list` that has another argument.
#[cfg(target_arch = "aarch64")]
unsafe fn read_next(list: *mut c_void) -> Result<usize, Status> {
    /// The va_list of the Procedure Call Standard for 64 bits.
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct List {
        stack: *const usize,
        integers_end: *const u8,
        floats_end: *const u8,
        integers_offset: i32,
        floats_offset: i32,
    }
    let list = list.cast::<List>();
    // SAFETY: the caller passes NULL or a `va_list`.
    let mut state = unsafe { ptr::read_value(list) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
    let at = if state.integers_offset < 0 {
        let at = state.integers_end.wrapping_offset(state.integers_offset as isize).cast();
        state.integers_offset = state.integers_offset.saturating_add(8);
        at
    } else {
        let at = state.stack;
        state.stack = at.wrapping_add(1);
        at
    };
    // SAFETY: `list` is not NULL; the caller guarantees another argument.
    unsafe {
        ptr::store(list, state);
        ptr::read_value(at).ok_or(Status::ERROR_INVALID_PARAMETER)
    }
}

/// Fails: the layout of a `va_list` is not known here.
///
/// # Safety
///
/// `list` is not read.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn read_next(_list: *mut c_void) -> Result<usize, Status> {
    Err(Status::ERROR_NOT_SUPPORTED)
}

/// Replaces the sequences in a text. Without arguments (`None`), the sequences of arguments stay.
///
/// # Safety
///
/// The arguments have all values that the text uses, of the types that its formats name.
pub(super) unsafe fn expand(text: &str, mut arguments: Option<Arguments>) -> Result<String, Status> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        match rest.next() {
            None => return Err(Status::ERROR_INVALID_PARAMETER),
            Some('0') => break,
            Some('n') => out.push_str("\r\n"),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some(digit @ '1'..='9') => {
                let mut number = digit.to_string();
                number.extend(rest.next_if(char::is_ascii_digit));
                let format = read_format(&mut rest)?;
                match &mut arguments {
                    None => {
                        let _ = write!(out, "%{number}");
                        if let Some(format) = format {
                            let _ = write!(out, "!{format}!");
                        }
                    }
                    Some(arguments) => {
                        let number: usize = number.parse().map_err(|_| Status::ERROR_INVALID_PARAMETER)?;
                        let index = number.saturating_sub(1);
                        // SAFETY: the caller fulfils the `# Safety` section.
                        unsafe {
                            push_argument(arguments, index, format.as_deref().unwrap_or("s"), &mut out)
                        }?;
                    }
                }
            }
            Some(other) => out.push(other),
        }
    }
    Ok(out)
}

/// Reads the format between exclamation marks, if there is one.
fn read_format(rest: &mut Peekable<Chars<'_>>) -> Result<Option<String>, Status> {
    if rest.next_if_eq(&'!').is_none() {
        return Ok(None);
    }
    let mut format = String::new();
    loop {
        match rest.next() {
            Some('!') => return Ok(Some(format)),
            Some(character) => format.push(character),
            None => return Err(Status::ERROR_INVALID_PARAMETER),
        }
    }
}

/// Size of an integer, or width of the characters of a text, by the letters before the type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Default,
    Short,
    Byte,
    Long,
    Wide64,
}

/// Formats an argument. A `*` for width or precision takes an argument of its own before the value.
///
/// # Safety
///
/// As [`expand`].
unsafe fn push_argument(
    arguments: &mut Arguments,
    mut index: usize,
    format: &str,
    out: &mut String,
) -> Result<(), Status> {
    let mut rest = format.chars().peekable();
    let (mut is_left, mut has_zeros, mut has_prefix, mut sign) = (false, false, false, "");
    while let Some(flag) = rest.next_if(|character| "-0# +".contains(*character)) {
        match flag {
            '-' => is_left = true,
            '0' => has_zeros = true,
            '#' => has_prefix = true,
            '+' => sign = "+",
            _ if sign.is_empty() => sign = " ",
            _ => {}
        }
    }
    // SAFETY: the caller fulfils the `# Safety` section.
    let width = unsafe { read_number(&mut rest, arguments, &mut index) }?.unwrap_or(0);
    let mut precision = None;
    if rest.next_if_eq(&'.').is_some() {
        // SAFETY: as above.
        precision = Some(unsafe { read_number(&mut rest, arguments, &mut index) }?.unwrap_or(0));
    }
    let size = read_size(&mut rest);
    let kind = rest.next().ok_or(Status::ERROR_INVALID_PARAMETER)?;
    if rest.next().is_some() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    // SAFETY: as above.
    let value = unsafe { arguments.read(index) }? as u64;
    let unsigned = match size {
        Size::Wide64 => value,
        Size::Short => value & 0xFFFF,
        Size::Byte => value & 0xFF,
        Size::Default | Size::Long => value & 0xFFFF_FFFF,
    };
    let (prefix, digits) = match kind {
        'd' | 'i' => {
            let signed = match size {
                Size::Wide64 => value.cast_signed(),
                Size::Short => i64::from((value as u16).cast_signed()),
                Size::Byte => i64::from((value as u8).cast_signed()),
                Size::Default | Size::Long => i64::from((value as u32).cast_signed()),
            };
            (if signed < 0 { "-" } else { sign }, signed.unsigned_abs().to_string())
        }
        'u' => ("", unsigned.to_string()),
        'o' => ("", format!("{unsigned:o}")),
        'x' => (if has_prefix && unsigned != 0 { "0x" } else { "" }, format!("{unsigned:x}")),
        'X' => (if has_prefix && unsigned != 0 { "0X" } else { "" }, format!("{unsigned:X}")),
        'p' => ("", format!("{value:016X}")),
        'c' | 'C' => {
            let unit = [value as u16];
            push_padded(&String::from_utf16_lossy(&unit), width, is_left, out);
            return Ok(());
        }
        's' | 'S' => {
            let is_wide = match size {
                Size::Short => false,
                Size::Long => true,
                _ => arguments.is_wide == (kind == 's'),
            };
            // SAFETY: the format says that the value is the address of a text.
            let text =
                unsafe { Arguments::read_text(value as usize, is_wide, precision.unwrap_or(usize::MAX)) };
            push_padded(&text, width, is_left, out);
            return Ok(());
        }
        _ => return Err(Status::ERROR_INVALID_PARAMETER),
    };
    let mut number = digits;
    let least = match precision {
        Some(precision) => precision,
        None if has_zeros && !is_left => width.saturating_sub(prefix.len()),
        None => 0,
    };
    if number.len() < least {
        number.insert_str(0, &"0".repeat(least.saturating_sub(number.len())));
    }
    push_padded(&format!("{prefix}{number}"), width, is_left, out);
    Ok(())
}

/// Reads a width or precision; `*` takes it from an argument.
///
/// # Safety
///
/// As [`expand`].
unsafe fn read_number(
    rest: &mut Peekable<Chars<'_>>,
    arguments: &mut Arguments,
    index: &mut usize,
) -> Result<Option<usize>, Status> {
    if rest.next_if_eq(&'*').is_some() {
        // SAFETY: the caller fulfils the `# Safety` section.
        let value = unsafe { arguments.read(*index) }? & 0xFFFF_FFFF;
        *index = index.saturating_add(1);
        return Ok(Some(value.min(MAX_WIDTH)));
    }
    let mut digits = String::new();
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    if digits.is_empty() {
        return Ok(None);
    }
    Ok(Some(digits.parse().map_or(MAX_WIDTH, |number: usize| number.min(MAX_WIDTH))))
}

fn read_size(rest: &mut Peekable<Chars<'_>>) -> Size {
    let Some(letter) = rest.next_if(|character| "hlwIzjt".contains(*character)) else {
        return Size::Default;
    };
    match letter {
        'h' if rest.next_if_eq(&'h').is_some() => Size::Byte,
        'h' => Size::Short,
        'l' if rest.next_if_eq(&'l').is_some() => Size::Wide64,
        'l' | 'w' => Size::Long,
        'I' => match rest.next_if(|character| matches!(character, '3' | '6')) {
            Some('3') => {
                rest.next_if_eq(&'2');
                Size::Default
            }
            Some(_) => {
                rest.next_if_eq(&'4');
                Size::Wide64
            }
            None => Size::Wide64,
        },
        _ => Size::Wide64,
    }
}

fn push_padded(text: &str, width: usize, is_left: bool, out: &mut String) {
    let padding = " ".repeat(width.saturating_sub(text.chars().count()));
    if is_left {
        out.push_str(text);
        out.push_str(&padding);
    } else {
        out.push_str(&padding);
        out.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand_array(text: &str, values: &[usize], is_wide: bool) -> Result<String, Status> {
        let arguments = Arguments::new(ArgumentSource::Array(values.as_ptr()), is_wide);
        // SAFETY: the tests pass as many values as their formats use.
        unsafe { expand(text, Some(arguments)) }
    }

    #[test]
    fn sequences_are_replaced_as_documented() {
        let wide: Vec<u16> = "wide\0".encode_utf16().collect();
        let texts = [wide.as_ptr().expose_provenance(), c"narrow".as_ptr().expose_provenance()];
        assert_eq!(expand_array("%1 and %2!S!, %1", &texts, true).unwrap(), "wide and narrow, wide");
        assert_eq!(expand_array("%2|%1!ls!|%2!.3hs!", &texts, false).unwrap(), "narrow|wide|nar");
        let numbers = [7, usize::MAX, 0x1_0000_00FF];
        assert_eq!(expand_array("%1!5d!|%1!-5u!|%1!05i!|", &numbers, true).unwrap(), "    7|7    |00007|");
        assert_eq!(
            expand_array("%2!d! %3!x! %3!I64X! %3!#lx!", &numbers, true).unwrap(),
            "-1 ff 1000000FF 0xff"
        );
        assert_eq!(expand_array("%1!*x! %1!c!", &[4, 10], true).unwrap(), "   a \u{4}");
        assert_eq!(expand_array("100%% a%.b%!%n%tc%0 not here", &[], true).unwrap(), "100% a.b!\r\n\tc");
        for wrong in ["%", "%1!d", "%1!q!", "%1!dd!"] {
            assert_eq!(expand_array(wrong, &[0], true), Err(Status::ERROR_INVALID_PARAMETER), "{wrong}");
        }
    }

    #[test]
    fn sequences_of_arguments_stay_without_arguments() {
        // SAFETY: no argument is read.
        let kept = unsafe { expand("%1!d! %12 %n", None) };
        assert_eq!(kept.unwrap(), "%1!d! %12 \r\n");
        let none = Arguments::new(ArgumentSource::None, true);
        // SAFETY: as above.
        assert_eq!(unsafe { expand("%1", Some(none)) }, Err(Status::ERROR_INVALID_PARAMETER));
    }
}

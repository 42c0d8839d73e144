//! Command-line arguments of `weir error`.

use clap::Args;
use traceweir::Status;

const AFTER_HELP: &str = "\
Examples:
  weir error 4201
  weir error 0x80070005 0xC0000022 -2147024809
  weir error ERROR_WMI_INSTANCE_NOT_FOUND --json";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ErrorArgs {
    /// Codes to explain: Win32 (4201, 0x1069), HRESULT (0x80071069, -2147020695), NTSTATUS
    /// (0xC0000296), or a published name
    #[arg(required = true, value_name = "CODE|NAME", allow_negative_numbers = true, value_parser = parse_code)]
    pub(crate) codes: Vec<StatusCode>,
    /// Print one JSON object per code
    #[arg(long)]
    pub(crate) json: bool,
}

/// A status code from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusCode {
    pub(crate) typed: String,
    pub(crate) status: Status,
    /// The meaning of a name whose number alone means something else.
    pub(crate) named: Option<NamedStatus>,
}

/// A status whose number equals that of an unrelated Win32 code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamedStatus {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) advice: &'static str,
}

/// The number of `S_FALSE`. Without the name, it means `ERROR_INVALID_FUNCTION`.
const S_FALSE_NUMBER: Status = Status(1);
const S_FALSE: NamedStatus = NamedStatus {
    name: "S_FALSE",
    text: "completed, and the answer is no",
    advice: "This is success: SUCCEEDED(S_FALSE) is true. Compare with S_FALSE where the function gives it a meaning.",
};

/// Parses a code as programs print it: decimal (negative for HRESULTs), hexadecimal with 0x, or
/// eight hexadecimal digits without 0x.
fn parse_number(text: &str) -> Option<u32> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    if let Some(digits) = hexadecimal.filter(|digits| digits.starts_with(|c: char| c.is_ascii_hexdigit())) {
        return u32::from_str_radix(digits, 16).ok();
    }
    if text.len() == 8 && text.bytes().all(|c| c.is_ascii_hexdigit()) {
        return u32::from_str_radix(text, 16).ok();
    }
    text.parse().ok().or_else(|| text.parse::<i32>().ok().map(i32::cast_unsigned))
}

fn parse_code(text: &str) -> Result<StatusCode, String> {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let found = parse_number(text).map(Status).or_else(|| Status::from_name(text));
    let to_code = |status, named| StatusCode { typed: text.to_owned(), status, named };
    match found {
        Some(status) => Ok(to_code(status, None)),
        None if text.eq_ignore_ascii_case(S_FALSE.name) => Ok(to_code(S_FALSE_NUMBER, Some(S_FALSE))),
        None if is_number => Err("not a 32-bit number, decimal or with 0x".to_owned()),
        None => Err("neither a number nor the name of a status that tracing functions return".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_parse_as_programs_print_them() {
        for (text, expected) in [
            ("4201", Some(4201)),
            ("0x1069", Some(4201)),
            ("0X80071069", Some(0x8007_1069)),
            ("-2147020695", Some(0x8007_1069)),
            ("C0000296", Some(0xC000_0296)),
            ("80071069", Some(0x8007_1069)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("-2147483649", None),
            ("0x", None),
            ("0x+5", None),
            ("0x100000000", None),
            ("", None),
            ("error_disk_full", Some(112)),
            ("E_INVALIDARG", Some(0x8007_0057)),
            ("STATUS_SUCCESS", Some(0)),
            ("ERROR_NONSENSE", None),
            ("s_false", Some(1)),
        ] {
            assert_eq!(parse_code(text).ok().map(|code| code.status.0), expected, "{text:?}");
        }
    }
}

//! `weir error`: explains status codes.

use anyhow::{Result, anyhow};
use traceweir::Status;

use crate::advice::advice_for;
use crate::cli::{ErrorArgs, NamedStatus, StatusCode};
use crate::exit::{CommandOutcome, print_error};
use crate::output::BufferedOutput;
use crate::text::JsonObject;

/// Runs `weir error`. Unknown codes are errors; the others are still printed.
pub(super) fn run(options: &ErrorArgs) -> Result<CommandOutcome> {
    let mut output = BufferedOutput::open(None)?;
    let mut unknown = Vec::new();
    for code in &options.codes {
        match format_code_page(code, options.json) {
            Some(page) => output.buffer().extend_from_slice(page.as_bytes()),
            None => unknown.push(unknown_code_error(code)),
        }
    }
    output.flush()?;
    let last = unknown.pop();
    unknown.iter().for_each(print_error);
    last.map_or(Ok(CommandOutcome::Fine), Err)
}

fn unknown_code_error(StatusCode { typed, status, .. }: &StatusCode) -> anyhow::Error {
    anyhow!("{typed}: {status}: no tracing function returns this code, so weir cannot explain it")
}

/// Formats one code; returns `None` for a code without a text.
fn format_code_page(StatusCode { typed, status, named }: &StatusCode, as_json: bool) -> Option<String> {
    let win32 = status.win32();
    let (name, text, advice) = match named {
        Some(NamedStatus { name, text, advice }) => (*name, *text, Some(*advice)),
        None => (win32.name()?, status.meaning()?, advice_for(win32)),
    };
    if as_json {
        let mut object = JsonObject::new();
        object.text("given", typed).number("code", status.0).text("hex", &format!("0x{:08X}", status.0));
        object.optional("alias", status.alias()).number("status", win32.0);
        object.text("status_name", name).text("text", text).optional("advice", advice);
        return Some(object.finish() + "\n");
    }
    let head = format!("{} {name}: {text}\n", format_code(win32));
    let advice = advice.map(|advice| format!("  {advice}\n")).unwrap_or_default();
    Some(if win32 == *status {
        head + &advice
    } else {
        let alias = status.alias().map(|name| format!(" {name}")).unwrap_or_default();
        format!("{}{alias} is {head}{advice}", format_code(*status))
    })
}

/// Formats a Win32 code in decimal and hexadecimal, other codes only in hexadecimal.
fn format_code(status: Status) -> String {
    if status.0 < 0x1_0000 {
        format!("{} (0x{:X})", status.0, status.0)
    } else {
        format!("0x{:08X}", status.0)
    }
}

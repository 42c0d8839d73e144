//! Reads the arguments of `open` and `watch`.

use std::path::PathBuf;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyString};
use traceweir_analysis::text::{parse_level, parse_mask};

/// Reads one value or an iterable of values; `None` stands for no values. A text is one value.
fn list_of<'py, T>(
    value: Option<&Bound<'py, PyAny>>,
    read: impl Fn(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    if value.hasattr("readline")? {
        return Err(PyTypeError::new_err("file objects cannot be read; give the path of the file"));
    }
    let is_single = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.hasattr("__fspath__")?
        || value.hasattr("hex")?
        || value.extract::<i64>().is_ok();
    match value.try_iter() {
        Ok(values) if !is_single => values.map(|value| read(&value?)).collect(),
        _ => Ok(vec![read(value)?]),
    }
}

/// Reads a path or several.
pub(crate) fn paths(value: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<PathBuf>> {
    list_of(value, |value| value.extract::<PathBuf>())
}

/// Reads a name, a GUID (`str` or `uuid.UUID`) or several.
pub(crate) fn provider_names(value: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<String>> {
    list_of(value, |value| {
        let is_uuid = value.hasattr("bytes_le")?;
        if is_uuid { Ok(value.str()?.to_cow()?.into_owned()) } else { non_empty_text(value, "a provider") }
    })
}

/// Reads a name or id of events, or several.
pub(crate) fn event_names(value: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<String>> {
    list_of(value, |value| match value.extract::<u16>() {
        Ok(id) => Ok(id.to_string()),
        Err(_) => non_empty_text(value, "an event"),
    })
}

fn non_empty_text(value: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    let text = value.extract::<String>().map_err(|_| {
        let kind = value.get_type().name().map(|name| name.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!("{what} is given as str, not {kind}"))
    })?;
    if text.is_empty() { Err(PyValueError::new_err(format!("{what} has an empty name"))) } else { Ok(text) }
}

/// Reads a number or several.
pub(crate) fn numbers<'py, T>(value: Option<&Bound<'py, PyAny>>) -> PyResult<Vec<T>>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    list_of(value, |value| {
        value.extract::<T>().map_err(|_| {
            let text = value.repr().map(|text| text.to_string()).unwrap_or_default();
            PyValueError::new_err(format!("{text} is not a valid number here"))
        })
    })
}

/// Reads a level: a number, or a name such as "warning".
pub(crate) fn level(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u8>> {
    let Some(value) = value else { return Ok(None) };
    if let Ok(text) = value.extract::<String>() {
        let hint = |hint| PyValueError::new_err(format!("{text:?} is not a level: {hint}"));
        return parse_level(&text).map(Some).map_err(hint);
    }
    match value.extract::<u8>() {
        Ok(number) if !value.is_instance_of::<PyBool>() => Ok(Some(number)),
        _ => Err(PyValueError::new_err("a level is a number from 0 to 255 or a name such as \"warning\"")),
    }
}

/// Reads keyword bits: a number, or a text with a decimal or hexadecimal number.
pub(crate) fn keyword(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    let Some(value) = value else { return Ok(None) };
    if let Ok(text) = value.extract::<String>() {
        let hint = |hint| PyValueError::new_err(format!("{text:?} is not a keyword mask: {hint}"));
        return parse_mask(&text).map(Some).map_err(hint);
    }
    let number = value.extract::<u64>();
    number.map(Some).map_err(|_| PyValueError::new_err("a keyword mask is a number from 0 to 2**64 - 1"))
}

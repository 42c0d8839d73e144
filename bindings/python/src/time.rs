//! Conversion of times between traces and Python.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDateTime, PyDelta, PyTzInfo};
use traceweir_analysis::text::{Moment, parse_moment};
use traceweir_format::time::FileTime;

const UNITS_PER_MICROSECOND: u32 = 10;
const NS_PER_MICROSECOND: i128 = 1000;
const MICROSECONDS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// The first and the last year of `datetime.datetime`.
const DATETIME_YEARS: std::ops::RangeInclusive<i32> = 1..=9999;

/// Returns a time as an aware `datetime`, rounded down to microseconds; `None` if the year is out of
/// the range of `datetime`.
pub(crate) fn try_datetime(py: Python<'_>, time: FileTime) -> PyResult<Option<Bound<'_, PyDateTime>>> {
    let civil = time.civil();
    if !DATETIME_YEARS.contains(&civil.year) {
        return Ok(None);
    }
    let utc = PyTzInfo::utc(py)?;
    let microsecond = civil.units / UNITS_PER_MICROSECOND;
    PyDateTime::new(
        py,
        civil.year,
        civil.month,
        civil.day,
        civil.hour,
        civil.minute,
        civil.second,
        microsecond,
        Some(&utc),
    )
    .map(Some)
}

/// Like [`try_datetime`], with an exception for times out of range.
pub(crate) fn datetime(py: Python<'_>, time: FileTime) -> PyResult<Bound<'_, PyDateTime>> {
    let year = time.civil().year;
    try_datetime(py, time)?
        .ok_or_else(|| PyOverflowError::new_err(format!("datetime cannot represent the year {year}")))
}

/// Reads a point in time as Python programs give it.
pub(crate) fn extract_moment(value: &Bound<'_, PyAny>) -> PyResult<Moment> {
    let py = value.py();
    if let Ok(text) = value.extract::<String>() {
        return parse_moment(&text)
            .map_err(|hint| PyValueError::new_err(format!("{text:?} is not a time: {hint}")));
    }
    if let Ok(delta) = value.cast::<PyDelta>() {
        return Ok(Moment::Offset(delta_microseconds(delta)?.saturating_mul(UNITS_PER_MICROSECOND.into())));
    }
    if let Ok(time) = value.cast::<PyDateTime>() {
        if time.getattr("tzinfo")?.is_none() {
            return Err(PyValueError::new_err(
                "the datetime has no time zone; add one, for example tzinfo=datetime.timezone.utc",
            ));
        }
        let utc = PyTzInfo::utc(py)?;
        let epoch = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&utc))?;
        let since_epoch = time.sub(epoch)?;
        let ns = i128::from(delta_microseconds(&since_epoch)?).saturating_mul(NS_PER_MICROSECOND);
        return Ok(Moment::Utc(FileTime::from_unix_ns(ns)));
    }
    if let Ok(ns) = value.extract::<i64>() {
        return Ok(Moment::Utc(FileTime::from_unix_ns(ns.into())));
    }
    let kind = value.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "a time is a datetime, a timedelta since the start of the trace, nanoseconds since 1970 as int, or a str, not {kind}"
    )))
}

fn delta_microseconds(delta: &Bound<'_, PyAny>) -> PyResult<i64> {
    let read = |name: &str| delta.getattr(name)?.extract::<i64>();
    let (days, seconds, microseconds) = (read("days")?, read("seconds")?, read("microseconds")?);
    Ok(days
        .saturating_mul(SECONDS_PER_DAY)
        .saturating_add(seconds)
        .saturating_mul(MICROSECONDS_PER_SECOND)
        .saturating_add(microseconds))
}

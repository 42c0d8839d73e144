//! Events whose numbers are values of counters.

use std::sync::Arc;

use super::event::EventDetail;
use super::fields::FieldValue;

/// The most values of one event of counters.
const MAX_COUNTERS: usize = 64;

/// Returns whether the numbers of an event are values of counters, by its name.
pub(super) fn is_counter_event(is_kernel: bool, name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    if is_kernel {
        return name.starts_with("Process/PerfCtr") || last.starts_with("MemInfo");
    }
    last.ends_with("Counters") || last.ends_with("Counter") || last.starts_with("GCHeapStats")
}

/// Returns names and values of the counters in an event: the counter of an `EventCounters` event, or
/// all numbers that are not ids.
pub(super) fn counter_values(detail: &EventDetail) -> Vec<(Arc<str>, f64)> {
    let event = detail.name.rsplit('/').next().unwrap_or(&detail.name);
    let payload = match detail.fields.get("Payload") {
        Some(FieldValue::Struct(members)) => members.as_slice(),
        _ => &detail.fields.values,
    };
    let find = |name: &str| payload.iter().find(|(key, _)| **key == *name).map(|(_, value)| value);
    if let Some(FieldValue::Text(name)) = find("Name") {
        let value = ["Mean", "Increment", "Value"].into_iter().find_map(|name| to_number(find(name)?));
        return value
            .filter(|value| value.is_finite())
            .map(|value| (Arc::from(&**name), value))
            .into_iter()
            .collect();
    }
    let is_id = |name: &str| name.ends_with("Id") || name.ends_with("ID") || name == "Count";
    payload
        .iter()
        .filter(|(name, _)| !is_id(name))
        .filter_map(|(name, value)| {
            let value = to_number(value).filter(|value| value.is_finite())?;
            Some((format!("{event} {name}").into(), value))
        })
        .take(MAX_COUNTERS)
        .collect()
}

/// Returns the number of a field; hexadecimal integers are texts.
#[allow(clippy::cast_precision_loss)] // Counters are shown, not compared.
fn to_number(value: &FieldValue) -> Option<f64> {
    match value {
        FieldValue::Text(text) => {
            u64::from_str_radix(text.strip_prefix("0x")?, 16).ok().map(|number| number as f64)
        }
        _ => value.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::Fields;

    #[test]
    fn hexadecimal_integers_are_values_of_counters() {
        let text = |text: &str| FieldValue::Text(text.into());
        let values = [
            ("GenerationSize0", text("0x18")),
            ("GCHandleCount", FieldValue::Unsigned(34)),
            ("Reason", text("induced")),
            ("ClrInstanceID", FieldValue::Unsigned(9)),
        ];
        let detail = EventDetail {
            name: "GarbageCollection/GCHeapStats".into(),
            fields: Fields::from_values(values.map(|(name, value)| (name.into(), value)).into()),
            ..EventDetail::default()
        };
        let expected = [("GCHeapStats GenerationSize0", 24.0), ("GCHeapStats GCHandleCount", 34.0)];
        assert_eq!(counter_values(&detail), expected.map(|(name, value)| (Arc::from(name), value)));
    }
}

//! SQL functions for events: names of addresses, stacks, durations, fields of payloads.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampNanosecondType, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, StringArray};
use arrow_schema::{DataType, TimeUnit};
use datafusion::arrow::compute::{cast, take};
use datafusion::common::exec_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, create_udf,
};
use datafusion::prelude::SessionContext;
use traceweir_convert::ConvertInput;

use crate::symbols::SymbolTable;

/// Registers all functions. `traces` are the traces whose images have symbols.
pub(crate) fn register(context: &SessionContext, traces: Option<ConvertInput>) {
    for (name, divisor) in [("milliseconds", 1e6), ("seconds", 1e9)] {
        let convert = move |arguments: &[ColumnarValue]| {
            let arrays = ColumnarValue::values_to_arrays(arguments)?;
            let numbers = arrays[0].as_primitive::<Float64Type>();
            let result: Float64Array = numbers.iter().map(|number| Some(number? / divisor)).collect();
            Ok(ColumnarValue::Array(Arc::new(result)))
        };
        let types = vec![DataType::Float64];
        context.register_udf(create_udf(
            name,
            types,
            DataType::Float64,
            Volatility::Immutable,
            Arc::new(convert),
        ));
    }
    let duration = |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let numbers = arrays[0].as_primitive::<Float64Type>();
        let texts: StringArray = numbers.iter().map(|number| number.map(format_duration)).collect();
        Ok(ColumnarValue::Array(Arc::new(texts) as ArrayRef))
    };
    let types = vec![DataType::Float64];
    let immutable = Volatility::Immutable;
    context.register_udf(create_udf("duration", types, DataType::Utf8, immutable, Arc::new(duration)));
    let field = |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let (payloads, names) = (arrays[0].as_string::<i32>(), arrays[1].as_string::<i32>());
        let pairs = payloads.iter().zip(names.iter());
        let texts: StringArray = pairs.map(|(payload, name)| read_field(payload?, name?)).collect();
        Ok(ColumnarValue::Array(Arc::new(texts) as ArrayRef))
    };
    let types = vec![DataType::Utf8, DataType::Utf8];
    context.register_udf(create_udf("field", types, DataType::Utf8, immutable, Arc::new(field)));
    context.register_udf(ScalarUDF::from(StackContains { signature: Signature::any(2, immutable) }));
    context.register_udf(ScalarUDF::from(StackLeaf { signature: Signature::any(1, immutable) }));
    let arguments = |count| datafusion::logical_expr::TypeSignature::Any(count);
    let signature = Signature::one_of(vec![arguments(1), arguments(2), arguments(3)], Volatility::Stable);
    context.register_udf(ScalarUDF::from(Symbol { signature, traces, table: Arc::default() }));
}

/// Returns a duration with three digits and a unit.
fn format_duration(nanoseconds: f64) -> String {
    let size = nanoseconds.abs();
    let (divisor, unit) = match size {
        size if size >= 1e9 => (1e9, "s"),
        size if size >= 1e6 => (1e6, "ms"),
        size if size >= 1e3 => (1e3, "µs"),
        _ => return format!("{nanoseconds} ns"),
    };
    let value = nanoseconds / divisor;
    let digits = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

/// Returns a top-level field of a JSON object as text; texts without quotes.
fn read_field(payload: &str, name: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(payload).ok()?;
    match value.get(name)? {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// `stack_contains(list, value)`: whether a stack has an address, or a list of functions a name
/// that contains a text.
#[derive(Debug, PartialEq, Eq, Hash)]
struct StackContains {
    signature: Signature,
}

impl ScalarUDFImpl for StackContains {
    fn name(&self) -> &str {
        "stack_contains"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first() {
            Some(DataType::List(_)) => Ok(DataType::Boolean),
            _ => exec_err!(
                "stack_contains needs a list: stack_contains(functions, 'name') or stack_contains(stack, address)"
            ),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let lists = arrays[0].as_list::<i32>();
        let is_text = matches!(lists.value_type(), DataType::Utf8);
        let wanted_type = if is_text { DataType::Utf8 } else { DataType::UInt64 };
        let wanted = cast(&arrays[1], &wanted_type)?;
        let contains = |row: usize| {
            if lists.is_null(row) || wanted.is_null(row) {
                return None;
            }
            let items = lists.value(row);
            Some(if is_text {
                let wanted = wanted.as_string::<i32>().value(row);
                items.as_string::<i32>().iter().flatten().any(|name| name.contains(wanted))
            } else {
                let wanted = wanted.as_primitive::<UInt64Type>().value(row);
                items
                    .as_primitive_opt::<UInt64Type>()
                    .is_some_and(|items| items.iter().flatten().any(|item| item == wanted))
            })
        };
        let result: BooleanArray = (0..lists.len()).map(contains).collect();
        Ok(ColumnarValue::Array(Arc::new(result)))
    }
}

/// `stack_leaf(list)`: the first address or function, where the thread was executing.
#[derive(Debug, PartialEq, Eq, Hash)]
struct StackLeaf {
    signature: Signature,
}

impl ScalarUDFImpl for StackLeaf {
    fn name(&self) -> &str {
        "stack_leaf"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first() {
            Some(DataType::List(item)) => Ok(item.data_type().clone()),
            _ => exec_err!("stack_leaf needs a list: stack_leaf(stack) or stack_leaf(functions)"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let lists = arrays[0].as_list::<i32>();
        let first = |row: usize| {
            let has_items = !lists.is_null(row) && lists.value_length(row) > 0;
            has_items.then(|| lists.value_offsets()[row].cast_unsigned())
        };
        let indices: arrow_array::UInt32Array = (0..lists.len()).map(first).collect();
        Ok(ColumnarValue::Array(take(lists.values(), &indices, None)?))
    }
}

/// `symbol(address [, process_id [, time]])`: the function at an address.
struct Symbol {
    signature: Signature,
    traces: Option<ConvertInput>,
    /// Read when the first address is looked up.
    table: Arc<Mutex<Option<SymbolTable>>>,
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("symbol")
    }
}

impl PartialEq for Symbol {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
    }
}

impl Eq for Symbol {}

impl Hash for Symbol {
    fn hash<H: Hasher>(&self, state: &mut H) {
        "symbol".hash(state);
    }
}

impl ScalarUDFImpl for Symbol {
    fn name(&self) -> &str {
        "symbol"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let addresses = cast(&arrays[0], &DataType::UInt64)?;
        let addresses = addresses.as_primitive::<UInt64Type>();
        let processes = arrays.get(1).map(|array| cast(array, &DataType::UInt32)).transpose()?;
        let processes = processes.as_ref().map(|array| array.as_primitive::<UInt32Type>());
        let time_type = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let times = arrays.get(2).map(|array| cast(array, &time_type)).transpose()?;
        let times = times.as_ref().map(|array| array.as_primitive::<TimestampNanosecondType>());
        let Some(input) = &self.traces else {
            return exec_err!(
                "symbol() needs traces: a dataset has the names in the column functions if weir convert wrote them"
            );
        };
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.is_none() {
            let read = SymbolTable::read(input);
            *table = Some(read.map_err(|error| DataFusionError::External(error.into_boxed_dyn_error()))?);
        }
        let Some(table) = table.as_mut() else { return exec_err!("no symbols") };
        let name = |row: usize| {
            let address = (!addresses.is_null(row)).then(|| addresses.value(row))?;
            let process = processes.map_or(0, |ids| if ids.is_null(row) { 0 } else { ids.value(row) });
            let time = times.and_then(|times| (!times.is_null(row)).then(|| times.value(row)));
            Some(table.name(address, process, time).unwrap_or_else(|| format!("{address:#x}")))
        };
        let names: StringArray = (0..addresses.len()).map(name).collect();
        Ok(ColumnarValue::Array(Arc::new(names)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        assert_eq!(format_duration(999.0), "999 ns");
        assert_eq!(format_duration(1234.0), "1.23 µs");
        assert_eq!(format_duration(12_345_678.0), "12.3 ms");
        assert_eq!(format_duration(123_456_789_012.0), "123 s");
    }

    #[test]
    fn fields_of_payloads_are_text() {
        let payload = r#"{"a":1,"b":"x","c":null,"d":[1,2]}"#;
        assert_eq!(read_field(payload, "a").as_deref(), Some("1"));
        assert_eq!(read_field(payload, "b").as_deref(), Some("x"));
        assert_eq!(read_field(payload, "c"), None);
        assert_eq!(read_field(payload, "d").as_deref(), Some("[1,2]"));
        assert_eq!(read_field("not JSON", "a"), None);
    }
}

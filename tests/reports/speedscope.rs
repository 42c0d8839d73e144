//! The published schema of speedscope files, and a validator.

use serde_json::Value;

/// The schema of a value.
pub(super) enum SchemaRule {
    Text,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    Number,
    /// An integer, at least 0.
    Index,
    List(&'static SchemaRule),
    /// An object with these members. Each has a name, whether the member is required, and a schema.
    /// Other members are errors.
    Object(&'static [(&'static str, bool, SchemaRule)]),
}

const FRAME: SchemaRule = SchemaRule::Object(&[
    ("name", true, SchemaRule::Text),
    ("file", false, SchemaRule::Text),
    ("line", false, SchemaRule::Number),
    ("col", false, SchemaRule::Number),
]);

const UNITS: &[&str] = &["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"];

const SAMPLED: SchemaRule = SchemaRule::Object(&[
    ("type", true, SchemaRule::OneOf(&["sampled"])),
    ("name", true, SchemaRule::Text),
    ("unit", true, SchemaRule::OneOf(UNITS)),
    ("startValue", true, SchemaRule::Number),
    ("endValue", true, SchemaRule::Number),
    ("samples", true, SchemaRule::List(&SchemaRule::List(&SchemaRule::Index))),
    ("weights", true, SchemaRule::List(&SchemaRule::Number)),
]);

/// A file with sampled profiles.
pub(super) const FILE: SchemaRule = SchemaRule::Object(&[
    ("$schema", true, SchemaRule::OneOf(&["https://www.speedscope.app/file-format-schema.json"])),
    ("shared", true, SchemaRule::Object(&[("frames", true, SchemaRule::List(&FRAME))])),
    ("profiles", true, SchemaRule::List(&SAMPLED)),
    ("name", false, SchemaRule::Text),
    ("activeProfileIndex", false, SchemaRule::Index),
    ("exporter", false, SchemaRule::Text),
]);

/// Validates a value. The error names the path and the violated rule.
pub(super) fn validate(value: &Value, rule: &SchemaRule, path: &str) -> Result<(), String> {
    let check = |is_valid: bool, expected: &str| {
        if is_valid { Ok(()) } else { Err(format!("{path} is not {expected}: {value}")) }
    };
    match rule {
        SchemaRule::Text => check(value.is_string(), "a text"),
        SchemaRule::OneOf(texts) => {
            check(value.as_str().is_some_and(|text| texts.contains(&text)), "one of the allowed texts")
        }
        SchemaRule::Number => check(value.is_number(), "a number"),
        SchemaRule::Index => check(value.is_u64(), "an index"),
        SchemaRule::List(element) => {
            let list = value.as_array().ok_or_else(|| format!("{path} is not a list"))?;
            list.iter()
                .enumerate()
                .try_for_each(|(index, item)| validate(item, element, &format!("{path}[{index}]")))
        }
        SchemaRule::Object(members) => {
            let object = value.as_object().ok_or_else(|| format!("{path} is not an object"))?;
            if let Some(unknown) = object.keys().find(|key| !members.iter().any(|(name, ..)| name == key)) {
                return Err(format!("{path} has an unknown member {unknown}"));
            }
            members.iter().try_for_each(|(name, is_required, rule)| match object.get(*name) {
                Some(member) => validate(member, rule, &format!("{path}.{name}")),
                None if *is_required => Err(format!("{path} has no {name}")),
                None => Ok(()),
            })
        }
    }
}

#[test]
fn validator_accepts_valid_and_rejects_invalid_files() {
    let good = serde_json::json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": "a"}]},
        "profiles": [{"type": "sampled", "name": "p", "unit": "none", "startValue": 0, "endValue": 1, "samples": [[0]], "weights": [1]}],
    });
    assert_eq!(validate(&good, &FILE, "file"), Ok(()));
    for (pointer, wrong_value) in [
        ("/shared/frames/0/name", serde_json::json!(1)),
        ("/profiles/0/unit", serde_json::json!("hours")),
        ("/profiles/0/samples/0/0", serde_json::json!(-1)),
        ("/profiles/0/weights", serde_json::json!({})),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = wrong_value;
        assert!(validate(&bad, &FILE, "file").is_err(), "a wrong {pointer} was accepted");
    }
}

//! Shortens the signature of a method in the notation of IL.
//!
//! ```text
//!   instance void  (class [mscorlib]System.String,int32[],valuetype A.B`1<!0>&)
//!   ──▶ (String,int32[],B`1<!0>&)
//! ```
//!
//! The bounds of arrays are left out: `int32[0...,0...]` becomes `int32[,]`.

/// The longest list of parameters, in characters without the parentheses.
const MAX_PARAMETER_CHARS: usize = 80;

/// Returns the parameters of a signature with short type names, in parentheses; empty for a
/// signature without parameters in parentheses.
pub(super) fn shorten_parameters(signature: &str) -> String {
    // The runtime writes two spaces between the type of the result and the parameters.
    let parameters = match signature.rsplit_once("  (") {
        Some((_, parameters)) => parameters,
        None => match signature.split_once('(') {
            Some((_, parameters)) => parameters,
            None => return String::new(),
        },
    };
    let parameters = parameters.strip_suffix(')').unwrap_or(parameters);
    let mut short = String::new();
    let mut rest = parameters;
    while let Some(first) = rest.chars().next() {
        let after_first = rest.get(first.len_utf8()..).unwrap_or_default();
        if first == '['
            && let Some((assembly, after)) = after_first.split_once(']')
            && assembly.starts_with(|c: char| c.is_alphabetic() || c == '_')
        {
            rest = after;
        } else if is_name_char(first) {
            let end = rest.find(|c| !is_name_char(c)).unwrap_or(rest.len());
            let (name, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
            rest = after;
            let is_value_class = name == "value" && rest.trim_start().starts_with("class ");
            if is_value_class || matches!(name, "class" | "valuetype") {
                rest = rest.trim_start();
            } else {
                short.push_str(name.rsplit(['.', '/', '+']).next().unwrap_or(name));
            }
        } else {
            short.push(first);
            rest = after_first;
        }
    }
    match short.char_indices().nth(MAX_PARAMETER_CHARS) {
        Some((end, _)) => format!("({}…)", short.get(..end).unwrap_or_default()),
        None => format!("({short})"),
    }
}

/// Returns whether a character belongs to the name of a type.
fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '/' | '+' | '`' | '$')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_short_type_names() {
        for (signature, expected) in [
            ("instance void  (class System.String,int32)", "(String,int32)"),
            ("void  ()", "()"),
            ("bool  (value class System.DateTime,class A.B)", "(DateTime,B)"),
            (
                "class [mscorlib]System.Object  (class [mscorlib]System.String[],valuetype A.B`1<!0>&)",
                "(String[],B`1<!0>&)",
            ),
            ("instance unsigned int8[]  (int32[0...,0...],native int)", "(int32[,],native int)"),
            ("void(class A/Nested+Inner)", "(Inner)"),
            ("int32", ""),
            ("", ""),
            ("void  (class [unclosed", "([unclosed)"),
        ] {
            assert_eq!(shorten_parameters(signature), expected, "{signature}");
        }
    }

    #[test]
    fn long_parameters_are_cut() {
        let long = format!("void  ({})", ["é"; 200].join(","));
        let short = shorten_parameters(&long);
        assert_eq!(short.chars().count(), MAX_PARAMETER_CHARS + 3);
        assert!(short.ends_with("…)"));
    }
}

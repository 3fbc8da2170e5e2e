//! The canonical form of a sample: what the digest hashes.

use std::fmt::Write as _;

use xxhash_rust::xxh3::xxh3_64;

/// Appends a label value, escaped as the text exposition format wants it.
pub fn escape_label_value(out: &mut String, value: &str) {
    // Hardly any value has something to escape.
    if !value.bytes().any(|b| matches!(b, b'\\' | b'"' | b'\n')) {
        return out.push_str(value);
    }
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

/// Appends `{name="value",…}`: own labels sorted by name, values escaped.
pub fn write_labels(out: &mut String, labels: &[(&str, &str)]) {
    let mut write = |labels: &mut dyn Iterator<Item = &(&str, &str)>| {
        out.push('{');
        for (i, (name, value)) in labels.enumerate() {
            if i > 0 {
                out.push(',');
            }
            out.push_str(name);
            out.push_str("=\"");
            escape_label_value(out, value);
            out.push('"');
        }
        out.push('}');
    };
    if labels.is_sorted() {
        return write(&mut labels.iter());
    }
    let mut sorted: Vec<&(&str, &str)> = labels.iter().collect();
    sorted.sort_unstable();
    write(&mut sorted.into_iter());
}

/// A sample in canonical form: metric name, own labels in braces (empty braces when it has none), a
/// space, the value in decimal. Labels may be given in any order.
pub fn canonical(metric: &str, labels: &[(&str, &str)], value: u64) -> String {
    let mut out = String::with_capacity(192);
    write_canonical(&mut out, metric, labels, value);
    out
}

/// Appends a sample in [`canonical`] form.
pub fn write_canonical(out: &mut String, metric: &str, labels: &[(&str, &str)], value: u64) {
    out.push_str(metric);
    write_labels(out, labels);
    // Writing to a String cannot fail.
    let _ = write!(out, " {value}");
}

/// Hash of a canonical form: XXH3-64, seed 0.
pub fn hash_canonical(canonical: &[u8]) -> u64 {
    xxh3_64(canonical)
}

/// Hash of a sample: [`hash_canonical`] of its [`canonical`] form.
pub fn hash(metric: &str, labels: &[(&str, &str)], value: u64) -> u64 {
    hash_canonical(canonical(metric, labels, value).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_and_escaped() {
        let labels = [
            ("package_source", "flux-kustomization"),
            ("package", "a\\b\"c\nd"),
            ("package_namespace", "ns"),
        ];
        assert_eq!(
            canonical("statusbridge_package_health", &labels, 4),
            r#"statusbridge_package_health{package="a\\b\"c\nd",package_namespace="ns",package_source="flux-kustomization"} 4"#
        );
        assert_eq!(canonical("statusbridge_process_number", &[], 7), "statusbridge_process_number{} 7");
    }
}

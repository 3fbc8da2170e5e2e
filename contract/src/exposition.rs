//! Reads a text exposition: the way back from what an exporter writes. Strict, so that nothing that was
//! cut off or mixed up on the way passes for what was meant.
//!
//! Read are samples as exporters of this contract write them, be it as Prometheus' text format 0.0.4 or
//! as OpenMetrics: a name, labels, one value. Timestamps and exemplars are refused: an exporter sets
//! none, and a sample that bears one comes from somewhere else.

use std::borrow::Cow;

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample<'a, 't> {
    /// Its name.
    pub name: &'t str,
    /// Name and value of each label, in the order of the text, unescaped.
    pub labels: &'a [(&'t str, Cow<'t, str>)],
    /// Its value.
    pub value: f64,
}

/// Why a text is no exposition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ReadError {}

/// Hands every sample of a text to `each`, in order.
///
/// # Errors
/// When a line is neither a comment nor a sample, when the text breaks off in the middle of a line, or
/// goes on after `# EOF`.
pub fn read<'t>(text: &'t str, mut each: impl FnMut(Sample<'_, 't>)) -> Result<(), ReadError> {
    let mut labels = Vec::with_capacity(8);
    let mut ended = false;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let fails = |problem| ReadError { line: number + 1, problem };
        let line = line.strip_suffix('\n').ok_or(fails("it breaks off"))?;
        if ended {
            return Err(fails("there is something after `# EOF`"));
        }
        if line.is_empty() || line.starts_with('#') {
            ended = line == "# EOF";
            continue;
        }
        labels.clear();
        let (name, value) = sample(line, &mut labels).map_err(fails)?;
        each(Sample { name, labels: &labels, value });
    }
    Ok(())
}

/// Labels of a sample, at most: more than any exporter sets.
const MOST_LABELS: usize = 32;
/// Longest value of a label, in bytes, unescaped.
pub const LONGEST_VALUE: usize = 8 << 10;
/// Longest name of a metric or label, in bytes.
const LONGEST_NAME: usize = 1 << 10;

type Label<'t> = (&'t str, Cow<'t, str>);

fn sample<'t>(line: &'t str, labels: &mut Vec<Label<'t>>) -> Result<(&'t str, f64), &'static str> {
    let (name, rest) = name(line, b':')?;
    let rest = match rest.strip_prefix('{') {
        Some(inside) => self::labels(inside, labels)?,
        None => rest,
    };
    let value = rest.strip_prefix(' ').ok_or("there is no space before the value")?;
    Ok((name, number(value)?))
}

/// A name, and what comes after it. `more` may be in it besides letters, digits and `_`.
fn name(text: &str, more: u8) -> Result<(&str, &str), &'static str> {
    let part = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_' || *c == more;
    let end = text.bytes().position(|c| !part(&c)).unwrap_or(text.len());
    if end > LONGEST_NAME {
        return Err("a name is longer than 1024 bytes, which are as many as are read");
    }
    match text.as_bytes().first() {
        Some(first) if end > 0 && !first.is_ascii_digit() => Ok(text.split_at(end)),
        _ => Err("there is no name where one has to be"),
    }
}

/// Labels up to the closing brace, and what comes after it.
fn labels<'t>(mut text: &'t str, labels: &mut Vec<Label<'t>>) -> Result<&'t str, &'static str> {
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return Ok(rest);
        }
        let (name, rest) = name(text, b'_')?;
        let rest = rest.strip_prefix("=\"").ok_or("a label has no quoted value")?;
        let (value, rest) = quoted(rest)?;
        if labels.len() == MOST_LABELS {
            return Err("a sample has more than 32 labels, which are as many as are read");
        }
        if labels.iter().any(|(other, _)| *other == name) {
            return Err("a label comes twice");
        }
        labels.push((name, value));
        text = match rest.strip_prefix(',') {
            Some(rest) => rest,
            None if rest.starts_with('}') => rest,
            None => return Err("there is neither a comma nor a brace after a label"),
        };
    }
}

/// A value up to the closing quote, unescaped, and what comes after it.
fn quoted(text: &str) -> Result<(Cow<'_, str>, &str), &'static str> {
    const NO_END: &str = "a label's value has no end";
    const TOO_LONG: &str = "a label's value is longer than 8192 bytes, which are as many as are read";
    let (plain, rest) = text.find(['"', '\\']).and_then(|end| text.split_at_checked(end)).ok_or(NO_END)?;
    if plain.len() > LONGEST_VALUE {
        return Err(TOO_LONG);
    }
    if let Some(rest) = rest.strip_prefix('"') {
        return Ok((Cow::Borrowed(plain), rest));
    }
    let mut out = plain.to_owned();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Ok((Cow::Owned(out), chars.as_str())),
            '\\' => out.push(match chars.next() {
                Some('n') => '\n',
                Some(c @ ('\\' | '"')) => c,
                _ => return Err("there is an escape that does not exist"),
            }),
            c => out.push(c),
        }
        if out.len() > LONGEST_VALUE {
            return Err(TOO_LONG);
        }
    }
    Err(NO_END)
}

/// Whole numbers of up to so many digits are exact.
const DIGITS: usize = 15;

fn number(text: &str) -> Result<f64, &'static str> {
    if (1..=DIGITS).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit()) {
        let whole = text.bytes().fold(0_u64, |sum, c| 10 * sum + u64::from(c - b'0'));
        return Ok(whole as f64);
    }
    match text {
        "NaN" => Ok(f64::NAN),
        "+Inf" => Ok(f64::INFINITY),
        "-Inf" => Ok(f64::NEG_INFINITY),
        _ if text.contains(' ') => Err("there is something after the value"),
        // What Rust calls infinity and the like is no number here.
        _ if text.bytes().all(|c| c.is_ascii_digit() || b"+-.eE".contains(&c)) => {
            text.parse().map_err(|_| "the value is no number")
        }
        _ => Err("the value is no number"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::sample::canonical;

    type Read = Vec<(String, Vec<(String, String)>, f64)>;

    fn all(text: &str) -> Result<Read, ReadError> {
        let mut out = Read::new();
        read(text, |sample| {
            let labels = sample.labels.iter().map(|(n, v)| ((*n).to_owned(), v.to_string())).collect();
            out.push((sample.name.to_owned(), labels, sample.value));
        })?;
        Ok(out)
    }

    #[test]
    fn what_is_as_much_as_is_read_is_read() {
        let labels: String = (0..32).map(|n| format!("l{n}=\"\",")).collect();
        let (name, value) = ("n".repeat(1024), "v".repeat(8191));
        let text = format!("a{{{labels}}} 1\n{name}{{{name}=\"\\\\{value}\"}} 1\n");
        assert_eq!(all(&text).unwrap()[0].1.len(), 32);
    }

    #[test]
    fn samples_are_read_and_all_else_is_skipped() {
        let text = "# HELP a what\n# TYPE a gauge\na 1\n\nb{} 2.5\nc{x=\"1\",y=\"a\\\\b\\\"c\\nd},\"} 3e2\n\
                    d:e{le=\"+Inf\",} +Inf\n# EOF\n";
        let labels = |labels: &[(&str, &str)]| -> Vec<(String, String)> {
            labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
        };
        let expected = vec![
            ("a".to_owned(), vec![], 1.0),
            ("b".to_owned(), vec![], 2.5),
            ("c".to_owned(), labels(&[("x", "1"), ("y", "a\\b\"c\nd},")]), 300.0),
            ("d:e".to_owned(), labels(&[("le", "+Inf")]), f64::INFINITY),
        ];
        assert_eq!(all(text), Ok(expected));
        assert_eq!(all(""), Ok(vec![]));
    }

    #[rstest]
    #[case("a 1\nb 2", 2, "breaks off")]
    #[case("a 1\nb{x=\"1\n", 2, "has no end")]
    #[case("a{x=\"1\\\n", 1, "escape")]
    #[case("a{x=\"\\t\"} 1\n", 1, "escape")]
    #[case("a{x=\"1\"\n", 1, "neither a comma nor a brace")]
    #[case("a{x=\"1\";y=\"2\"} 1\n", 1, "neither a comma nor a brace")]
    #[case("a{x=1} 1\n", 1, "no quoted value")]
    #[case("a{x=\"1\",x=\"2\"} 1\n", 1, "twice")]
    #[case(&format!("a{{{}}} 1\n", (0..33).map(|n| format!("l{n}=\"\",")).collect::<String>()), 1, "more than 32 labels")]
    #[case(&format!("a{{x=\"{}\"}} 1\n", "v".repeat(8193)), 1, "longer than 8192 bytes")]
    #[case(&format!("a{{x=\"\\\\{}\"}} 1\n", "v".repeat(8192)), 1, "longer than 8192 bytes")]
    #[case(&format!("{} 1\n", "a".repeat(1025)), 1, "longer than 1024 bytes")]
    #[case(&format!("a{{{}=\"\"}} 1\n", "x".repeat(1025)), 1, "longer than 1024 bytes")]
    #[case("a{,} 1\n", 1, "no name")]
    #[case("a{x=\"1\"}1\n", 1, "no space")]
    #[case("a\n", 1, "no space")]
    #[case("9a 1\n", 1, "no name")]
    #[case("<html>\n", 1, "no name")]
    #[case(" a 1\n", 1, "no name")]
    #[case("a \n", 1, "no number")]
    #[case("a inf\n", 1, "no number")]
    #[case("a 1,5\n", 1, "no number")]
    #[case("a 1 1700000000\n", 1, "after the value")]
    #[case("a 1 # {trace=\"x\"} 1\n", 1, "after the value")]
    #[case("a 1\r\n", 1, "no number")]
    #[case("a 1\n# EOF\na 2\n", 3, "after `# EOF`")]
    fn what_is_not_meant_so_is_refused(#[case] text: &str, #[case] line: usize, #[case] problem: &str) {
        let error = all(text).unwrap_err();
        assert!(error.line == line && error.problem.contains(problem), "{error}");
    }

    fn written() -> impl Strategy<Value = (String, Vec<(String, String)>, u64)> {
        let labels = prop::collection::btree_map("[a-zA-Z_][a-zA-Z0-9_]{0,8}", any::<String>(), 0..5);
        ("[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", labels, any::<u64>())
            .prop_map(|(name, labels, value)| (name, labels.into_iter().collect(), value >> 11))
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(samples in prop::collection::vec(written(), 0..8)) {
            let mut text = String::new();
            for (name, labels, value) in &samples {
                let labels: Vec<(&str, &str)> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                text += &canonical(name, &labels, *value);
                text.push('\n');
            }
            let expected: Read = samples.into_iter().map(|(name, labels, v)| (name, labels, v as f64)).collect();
            prop_assert_eq!(all(&text), Ok(expected));
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = all(&text);
        }

        #[test]
        fn nothing_that_is_nearly_an_exposition_makes_it_panic(
            text in "([a-c_:{}=\",\\\\ 0-9.eE+#\\n]|é|# EOF\\n|a\\{b=\"c\"\\} 1\\n){0,60}",
        ) {
            let _ = all(&text);
        }

        #[test]
        fn what_was_cut_off_is_never_taken_for_the_whole(value in 10_u64..1 << 48, cut in 1_usize..60) {
            let text = canonical("statusbridge_package_health", &[("package", "é\"\n"), ("x", "y")], value) + "\n";
            let end = text.len().saturating_sub(cut);
            if let Some(part) = text.get(..end).filter(|part| !part.is_empty()) {
                prop_assert!(all(part).is_err());
            }
        }
    }
}

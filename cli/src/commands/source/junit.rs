//! What came of tests, as JUnit XML: the form that build servers read.

use std::fmt::Write as _;
use std::time::Duration;

use statusbridge_exporter::suite::Outcome;

/// The XML of a run.
pub(super) fn junit(outcomes: &[Outcome]) -> String {
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let _ = writeln!(xml, "<testsuites {}>", attributes(outcomes));
    let same = |a: &Outcome, b: &Outcome| (&a.suite, &a.source) == (&b.suite, &b.source);
    for suite in outcomes.chunk_by(same) {
        let Some(Outcome { suite: name, source, .. }) = suite.first() else { continue };
        let name = if name == source { name.clone() } else { format!("{name}, {source}") };
        let name = escaped(&name);
        let _ = writeln!(xml, "  <testsuite name=\"{name}\" {}>", attributes(suite));
        for Outcome { case, problems, took, .. } in suite {
            let (case, took) = (escaped(case), seconds(*took));
            let _ = write!(xml, "    <testcase classname=\"{name}\" name=\"{case}\" time=\"{took}\"");
            let Some(first) = problems.first() else {
                xml += "/>\n";
                continue;
            };
            let (first, all) = (escaped(first), escaped(&problems.join("\n")));
            let _ = writeln!(xml, ">\n      <failure message=\"{first}\">{all}</failure>\n    </testcase>");
        }
        xml += "  </testsuite>\n";
    }
    xml + "</testsuites>\n"
}

/// How many tests there are and have failed, and how long they took.
fn attributes(outcomes: &[Outcome]) -> String {
    let failed = outcomes.iter().filter(|outcome| !outcome.problems.is_empty()).count();
    let took = seconds(outcomes.iter().map(|outcome| outcome.took).sum());
    format!("tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"0\" time=\"{took}\"", outcomes.len())
}

fn seconds(took: Duration) -> String {
    format!("{:.3}", took.as_secs_f64())
}

/// A text as XML has it. Letters that XML has no form for become a replacement character.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' => escaped += "&#10;",
            '\t' => escaped += "&#9;",
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}');
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(suite: &str, source: &str, case: &str, problems: &[&str]) -> Outcome {
        Outcome {
            suite: suite.to_owned(),
            source: source.to_owned(),
            case: case.to_owned(),
            problems: problems.iter().map(ToString::to_string).collect(),
            took: Duration::from_millis(1_500),
        }
    }

    #[test]
    fn a_run_as_xml() {
        let outcomes = [
            outcome("widgets", "widgets", "samples[0]", &[]),
            outcome("rollout", "widgets", "a < b & \"c\"", &["apply  expected A, found B", "\u{1b}[1m"]),
            outcome("rollout", "widgets", "another", &[]),
            outcome("rollout", "doors", "another", &[]),
        ];
        insta::assert_snapshot!(junit(&outcomes), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites tests="4" failures="1" errors="0" skipped="0" time="6.000">
          <testsuite name="widgets" tests="1" failures="0" errors="0" skipped="0" time="1.500">
            <testcase classname="widgets" name="samples[0]" time="1.500"/>
          </testsuite>
          <testsuite name="rollout, widgets" tests="2" failures="1" errors="0" skipped="0" time="3.000">
            <testcase classname="rollout, widgets" name="a &lt; b &amp; &quot;c&quot;" time="1.500">
              <failure message="apply  expected A, found B">apply  expected A, found B&#10;�[1m</failure>
            </testcase>
            <testcase classname="rollout, widgets" name="another" time="1.500"/>
          </testsuite>
          <testsuite name="rollout, doors" tests="1" failures="0" errors="0" skipped="0" time="1.500">
            <testcase classname="rollout, doors" name="another" time="1.500"/>
          </testsuite>
        </testsuites>
        "#);
    }
}

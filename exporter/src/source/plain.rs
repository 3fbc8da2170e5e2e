//! Refuses YAML that means something else than it seems to, wherever an expression may stand.
//!
//! `whenExpression: !broken` is a tag on no value, and serde reads no value as a field that was left out: the
//! rule would always hold. Tags, anchors, aliases, merge keys, nulls and empty texts therefore are errors in
//! a source. Only `spec.samples` may hold them: these are objects as an API server gave them.

use std::{borrow::Cow, fmt::Display};

use granit_parser::{ErrorKind, Event, Marker, Options, Parser, ScalarStyle, ScanError, Span, Tag};
use statusbridge_expression::cut;

use super::error::SourceProblem;

/// The field of a source below which all YAML is allowed.
const SAMPLES: [&str; 2] = ["spec", "samples"];
/// The fields that an empty text says something in, or does no harm.
const MAY_BE_EMPTY: [&str; 2] = ["group", "description"];
/// Longest part of a file that a message repeats, in bytes.
const MAX_SHOWN: usize = 120;

/// Finds the first thing in a text that no source may hold, or that is no YAML.
///
/// Hostile texts are safe here: the parser bounds nesting and keeps it off the stack, and nothing
/// follows an alias, so the work is in proportion to the text.
pub(super) fn check(file: &str, text: &str) -> Result<(), SourceProblem> {
    let mut options = Options::default();
    options.emit_anchor_events = true;
    options.emit_unresolved_aliases = true;
    options.set_emit_comments(false);
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut walk = Walk { file, text, open: Vec::new() };
    while let Some(next) = parser.next() {
        let (event, span) = next.map_err(|error| walk.malformed(&error))?;
        if !walk.in_samples() {
            // Of a node with both, the tag is named.
            if event.is_node() && event.tag().is_none() && event.anchor_id().is_some() {
                // The parser says where the anchor is right after the node.
                let anchor = match parser.next() {
                    Some(Ok((Event::Anchor(..), anchor))) => anchor,
                    _ => span,
                };
                return Err(walk.anchor(&event, span, anchor));
            }
            walk.check(&event, span)?;
        }
        walk.follow(event, span);
    }
    Ok(())
}

/// The line of a field of the document at this place, or of what the field is in.
pub(super) fn line_of(text: &str, document: usize, field: &str) -> Option<usize> {
    let mut walk = Walk { file: "", text, open: Vec::new() };
    let (mut documents, mut found) = (0, None);
    for next in Parser::new_from_str(text) {
        let (event, span) = next.ok()?;
        documents += usize::from(walk.open.is_empty() && matches!(event, Event::MappingStart(..)));
        let at = match walk.open.last() {
            Some(Place::Value(_, key)) => Some(*key),
            Some(Place::Item(_)) => Some(span.start),
            _ => None,
        };
        if let Some(at) = at
            && event.is_node()
            && documents == document + 1
            && is_in(field, &walk.path())
        {
            found = Some(at.line());
        }
        walk.follow(event, span);
    }
    found
}

/// Whether a field is the one at a path or in it.
fn is_in(field: &str, path: &str) -> bool {
    field.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Where the next node of a list or a map stands.
enum Place<'t> {
    /// In a list, at this index.
    Item(usize),
    /// In a map, as a key.
    Key,
    /// In a map, as the value of this key, which stands at the marker.
    Value(Cow<'t, str>, Marker),
}

struct Walk<'t> {
    file: &'t str,
    text: &'t str,
    /// The lists and maps that the walk is in, the outermost first.
    open: Vec<Place<'t>>,
}

impl<'t> Walk<'t> {
    fn in_samples(&self) -> bool {
        SAMPLES
            .iter()
            .zip(self.open.iter().map(Some).chain([None; 2]))
            .all(|(wanted, place)| matches!(place, Some(Place::Value(key, _)) if key == wanted))
    }

    /// Moves on to the place of the node that comes after this event.
    fn follow(&mut self, event: Event<'t>, span: Span) {
        match event {
            Event::Scalar(text, ..) => self.advance(text, span.start),
            Event::Alias(_) | Event::UnresolvedAlias(_) => self.advance("*".into(), span.start),
            Event::SequenceStart(..) => self.open.push(Place::Item(0)),
            Event::MappingStart(..) => self.open.push(Place::Key),
            Event::SequenceEnd | Event::MappingEnd => {
                self.open.pop();
                self.advance("?".into(), span.start);
            }
            _ => {}
        }
    }

    fn advance(&mut self, node: Cow<'t, str>, at: Marker) {
        if let Some(place) = self.open.last_mut() {
            *place = match place {
                Place::Item(index) => Place::Item(*index + 1),
                Place::Key => Place::Value(node, at),
                Place::Value(..) => Place::Key,
            };
        }
    }

    fn check(&self, event: &Event<'_>, span: Span) -> Result<(), SourceProblem> {
        if let Some(tag) = event.tag() {
            return Err(self.tag(event, tag, span));
        }
        match event {
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                let found = self.shown(span);
                Err(self.refuse(
                    span.start,
                    format!("`{found}` is a YAML alias, which a source may not have: write the value itself"),
                ))
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) => self.check_plain(text, span),
            Event::Scalar(text, ..) if text.trim().is_empty() => self.check_empty(span),
            _ => Ok(()),
        }
    }

    fn check_plain(&self, text: &str, span: Span) -> Result<(), SourceProblem> {
        let is_null = text.is_empty() || text == "~" || text.eq_ignore_ascii_case("null");
        match self.open.last() {
            // A document that is empty holds no source.
            None => Ok(()),
            Some(Place::Key) if text == "<<" => Err(self.refuse(
                span.start,
                "`<<` is a YAML merge key, which a source may not have: write the fields themselves",
            )),
            Some(_) if !is_null => Ok(()),
            Some(Place::Key) => Err(self.refuse(span.start, "a field has no name: write one")),
            Some(place) => {
                let (written, at) = (span.slice(self.text).unwrap_or_default(), span.start);
                let (left_out, at) = match place {
                    // The parser puts a value that is not written where the next thing begins.
                    Place::Value(_, key) if written.is_empty() => ("field", *key),
                    Place::Value(..) => ("field", at),
                    _ => ("item", at),
                };
                let found = match written {
                    "" => "there is no value".to_owned(),
                    _ => format!("`{written}` is no value in YAML"),
                };
                Err(self.refuse(at, format!("{found}: write one, or leave the {left_out} out")))
            }
        }
    }

    /// Checks a text in quotes or a block that says nothing.
    fn check_empty(&self, span: Span) -> Result<(), SourceProblem> {
        let (left_out, at) = match self.open.last() {
            Some(Place::Value(key, _)) if MAY_BE_EMPTY.contains(&&**key) => return Ok(()),
            // A block begins on another line.
            Some(Place::Value(_, key)) => ("field", *key),
            Some(Place::Item(_)) => ("item", span.start),
            _ => ("field", span.start),
        };
        Err(self.refuse(at, format!("the text is empty: write one, or leave the {left_out} out")))
    }

    fn tag(&self, event: &Event<'_>, tag: &Tag, span: Span) -> SourceProblem {
        let written = span.tag_span().unwrap_or(span);
        let advice = match event {
            // `!!str` and the like are meant as tags, which `!broken` is not.
            _ if tag.core_suffix().is_some() => None,
            _ => self.quoted(event, written, span),
        };
        let advice = advice.unwrap_or_else(|| "leave the tag out".to_owned());
        let found = self.shown(written);
        self.refuse(
            written.start,
            format!("YAML reads `{found}` as a tag, not as part of the value: {advice}"),
        )
    }

    fn anchor(&self, event: &Event<'_>, span: Span, anchor: Span) -> SourceProblem {
        let advice = self.quoted(event, anchor, span).map(|quoted| format!("leave it out, or {quoted}"));
        let advice = advice.unwrap_or_else(|| "leave it out".to_owned());
        let found = self.shown(anchor);
        self.refuse(
            anchor.start,
            format!("YAML reads `{found}` as an anchor, not as part of the value: {advice}"),
        )
    }

    /// How to write a plain value with the property before it as one text, if it fits on a line.
    fn quoted(&self, event: &Event<'_>, property: Span, value: Span) -> Option<String> {
        if !matches!(event, Event::Scalar(_, ScalarStyle::Plain, ..)) {
            return None;
        }
        let start = property.start.byte_offset()?;
        // The parser puts a value that is not written where the next thing begins.
        let end = if value.is_empty() { property.end } else { value.end }.byte_offset()?;
        let key = match self.open.last()? {
            Place::Value(key, _) => format!("{key}: "),
            Place::Item(_) => String::new(),
            Place::Key => return None,
        };
        let whole = self.text.get(start..end)?;
        if whole.len() + key.len() > MAX_SHOWN || whole.contains('\n') || key.contains('\n') {
            return Some("quote the value".to_owned());
        }
        let quoted = if whole.contains(['"', '\\']) {
            format!("'{}'", whole.replace('\'', "''"))
        } else {
            format!("\"{whole}\"")
        };
        Some(format!("quote the value: {key}{quoted}"))
    }

    fn malformed(&self, error: &ScanError) -> SourceProblem {
        let at = *error.marker();
        if *error.kind() == ErrorKind::RecursionLimitExceeded {
            // The path would only say that it is deep.
            return self.error(at, "lists and maps are nested too deep");
        }
        let line = self.text.lines().nth(at.line().saturating_sub(1)).unwrap_or_default();
        let hidden = line.contains(": !") || line.contains("- !");
        let advice = if hidden { ": quote a value that begins with `!`" } else { "" };
        self.refuse(at, format!("{}{advice}", error.info()))
    }

    fn shown(&self, span: Span) -> String {
        cut(span.slice(self.text).unwrap_or_default().to_owned(), MAX_SHOWN)
    }

    /// An error that names the position, the field and `message`.
    fn refuse(&self, at: Marker, message: impl Display) -> SourceProblem {
        let field = self.field().map(|field| format!("{field}: ")).unwrap_or_default();
        self.error(at, format_args!("{field}{message}"))
    }

    fn error(&self, at: Marker, message: impl Display) -> SourceProblem {
        let (line, column) = (at.line(), at.col() + 1);
        SourceProblem::of_file(self.file, format!("line {line} column {column}: {message}"))
    }

    /// Path of the place where the walk is, such as `spec.health[1].state`, cut to what a message shows.
    fn field(&self) -> Option<String> {
        let path = self.path();
        (!path.is_empty()).then(|| cut(path, MAX_SHOWN))
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for place in &self.open {
            match place {
                Place::Item(index) => path += &format!("[{index}]"),
                Place::Key => {}
                Place::Value(key, _) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path += key;
                }
            }
        }
        path
    }
}

//! What is wrong with a source, in words for the person who wrote it.

use std::fmt;

/// Why a source cannot be used, or may not mean what it says: names the file and, where they are known, the
/// line, the source, the field in it and the expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct SourceProblem {
    /// The file as it was given.
    pub file: String,
    /// The line where it is.
    pub line: Option<u32>,
    /// Name of the source.
    pub source_name: Option<String>,
    /// The field, such as `spec.apply[2].whenExpression`.
    pub field: Option<String>,
    /// The expression in that field.
    pub expression: Option<Box<str>>,
    /// What is wrong.
    pub message: String,
}

impl SourceProblem {
    /// An error of a whole file.
    pub fn of_file(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            source_name: None,
            field: None,
            expression: None,
            message: message.into(),
        }
    }
}

impl fmt::Display for SourceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file)?;
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(name) = &self.source_name {
            write!(f, "source {name}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.expression {
            Some(expression) => write!(f, " in `{}`", expression.trim()),
            None => Ok(()),
        }
    }
}

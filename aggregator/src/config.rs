//! The configuration file: what is too rich for flags. All of it may be left out.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// What `--config` names.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: std::io::Error,
    },
    /// It is not what is expected; the message names the field.
    #[error("{}: {error}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        error: Box<serde_saphyr::Error>,
    },
}

impl Config {
    /// Reads a YAML file.
    ///
    /// # Errors
    /// When it cannot be read or has anything in it that is not known.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        Self::parse(&text)
            .map_err(|error| ConfigError::Format { path: path.to_owned(), error: Box::new(error) })
    }

    /// Reads YAML; nothing but white space and comments is the default.
    fn parse(text: &str) -> Result<Self, serde_saphyr::Error> {
        Ok(serde_saphyr::from_str::<Option<Self>>(text)?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_default() {
        for text in ["", "# nothing yet\n", "{}"] {
            assert_eq!(Config::parse(text).unwrap(), Config::default(), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_named_with_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "tennants: []\n").unwrap();
        let error = Config::read(file.path()).unwrap_err().to_string();
        assert!(error.contains("tennants") && error.contains(&file.path().display().to_string()), "{error}");
        let error = Config::read(Path::new("/nowhere/config.yaml")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/config.yaml: "), "{error}");
    }
}

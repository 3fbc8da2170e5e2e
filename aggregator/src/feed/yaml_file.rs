//! A file that is read again when it changes: what is wrong with a new version leaves the old one in force.

use std::path::PathBuf;

use anyhow::anyhow;
use serde::de::DeserializeOwned;
use serde_saphyr::options;

/// What a YAML file may say.
pub trait FromYaml: Default + PartialEq {
    /// Reads it.
    ///
    /// # Errors
    /// In words that name the place, but not the file.
    fn from_yaml(text: &str) -> Result<Self, String>;
}

/// Reads a text, of which no line is in an error: it may hold secrets. Nothing but white space and comments is the
/// default.
///
/// # Errors
/// In words that name the place.
pub(crate) fn read<T: Default + DeserializeOwned>(text: &str) -> Result<T, String> {
    let read = serde_saphyr::from_str_with_options::<Option<T>>(text, options! { with_snippet: false });
    Ok(read.map_err(|error| error.to_string())?.unwrap_or_default())
}

/// The file, and what it said when it could last be used.
#[derive(Debug, Default)]
pub struct YamlFile<T> {
    path: Option<PathBuf>,
    /// What was last found, whether or not it could be used.
    found: Option<Result<String, String>>,
    current: T,
}

impl<T: FromYaml> YamlFile<T> {
    /// Reads it for the first time; without a path everything is left out.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(path: Option<PathBuf>) -> anyhow::Result<Self> {
        let mut file = Self { path, found: None, current: T::default() };
        match file.reread() {
            Some(Err(error)) => Err(error),
            Some(Ok(_)) | None => Ok(file),
        }
    }

    /// What it said when it could last be used.
    pub fn current(&self) -> &T {
        &self.current
    }

    /// Reads it again. `None` when there is nothing that was not said before.
    ///
    /// # Errors
    /// When it cannot be used; then what it said before stays in force.
    pub fn reread(&mut self) -> Option<anyhow::Result<&T>> {
        let path = self.path.as_ref()?;
        let found = std::fs::read_to_string(path).map_err(|error| error.to_string());
        if self.found.as_ref() == Some(&found) {
            return None;
        }
        let read = found.as_deref().map_err(Clone::clone).and_then(T::from_yaml);
        self.found = Some(found);
        match read {
            Ok(read) if read == self.current => None,
            Ok(read) => {
                self.current = read;
                Some(Ok(&self.current))
            }
            Err(error) => Some(Err(anyhow!("{}: {error}", path.display()))),
        }
    }
}

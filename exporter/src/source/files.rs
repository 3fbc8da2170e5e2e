//! The files in a directory that hold objects.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// What is in each file, or why that cannot be told.
pub(crate) type FileTexts = Vec<(PathBuf, Result<String, String>)>;

/// Endings of the files in a directory that are read.
pub(crate) const ENDINGS: &[&str] = &["yaml", "yml", "json", "jsonl"];

/// The files in a directory that are read, in order of their names.
pub fn files_of(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let ending = path.extension().and_then(|e| e.to_str());
        if path.is_file() && ending.is_some_and(|e| ENDINGS.contains(&e)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// What is in files, and in the files of directories.
pub(crate) fn texts_of(paths: &[PathBuf]) -> FileTexts {
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    let text = |file: PathBuf| {
        let text = fs::read_to_string(&file).map_err(unreadable);
        (file, text)
    };
    let mut texts = Vec::new();
    for path in paths {
        let files = if path.is_dir() { files_of(path) } else { Ok(vec![path.clone()]) };
        match files {
            Ok(files) => texts.extend(files.into_iter().map(text)),
            Err(error) => texts.push((path.clone(), Err(unreadable(error)))),
        }
    }
    texts
}

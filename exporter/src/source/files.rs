//! The files in a directory that hold objects.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

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

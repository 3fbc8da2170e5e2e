//! The pages on writing and testing sources: what they show is written to files and run, in the order in which it
//! stands there, and has to print what the page says.
//!
//! A block whose info string is ```` ```yaml FILE ```` is a file. A block ```` ```console ```` has
//! commands, behind `$ `, each followed by all that it prints. `STATUSBRIDGE_UPDATE_DOCS=1` writes into
//! the pages what they print now.

#![allow(clippy::expect_used)] // in a test, what cannot be is a failure

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rstest::rstest;

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

/// What a command prints: to standard output, then to standard error.
fn run(command: &str, directory: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_statusbridge"));
    let mut path = program.parent().expect("a directory").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(directory)
        .env("PATH", path)
        .env_remove("STATUSBRIDGE_SOURCES")
        .env_remove("STATUSBRIDGE_PRESETS")
        .env_remove("STATUSBRIDGE_RESOURCE_HEALTH")
        .output()
        .expect("a shell");
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text")).concat()
}

/// The page with what its commands print now, and how many files and commands it has.
fn replay(page: &str, directory: &Path) -> (String, usize, usize) {
    let (mut replayed, mut files, mut commands) = (String::new(), 0, 0);
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        replayed.push_str(&format!("{line}\n"));
        let Some(info) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match info.split_once(' ') {
            Some(("yaml", file)) => {
                fs::write(directory.join(file), block.join("\n") + "\n").expect("a file");
                files += 1;
            }
            _ => assert_eq!(info, "console", "a block that nothing tries"),
        }
        for line in block {
            if info != "console" {
                replayed.push_str(&format!("{line}\n"));
            } else if let Some(command) = line.strip_prefix("$ ") {
                replayed.push_str(&format!("{line}\n{}", run(command, directory)));
                commands += 1;
            }
        }
        replayed.push_str("```\n");
    }
    (replayed, files, commands)
}

#[rstest]
#[case::writing_a_source("write-your-own-source.md")]
#[case::testing_a_source("source-tests.md")]
fn a_page_shows_what_happens(#[case] name: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let text = fs::read_to_string(page(name)).expect("the page");
    let (replayed, files, commands) = replay(&text, directory.path());
    if std::env::var_os("STATUSBRIDGE_UPDATE_DOCS").is_some() {
        return fs::write(page(name), &replayed).expect("the page can be written");
    }
    for (shown, is) in text.lines().zip(replayed.lines()) {
        assert_eq!(shown, is, "docs/{name} shows the first, the second is printed");
    }
    assert_eq!(text, replayed);
    assert!(files >= 4 && commands >= 4, "{files} files, {commands} commands");
}

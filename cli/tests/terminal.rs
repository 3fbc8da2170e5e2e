//! Colours: on a terminal, unless NO_COLOR forbids them, and nowhere else.

#![allow(clippy::expect_used)] // in a test, what cannot be is a failure

use std::process::Command;

const RED: &str = "\u{1b}[31m";
const PROGRAM: &str = env!("CARGO_BIN_EXE_statusbridge");

/// What is shown by a terminal, which `script` of util-linux is.
fn on_a_terminal(no_color: &str) -> String {
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &format!("{PROGRAM} source show nope"), "/dev/null"]);
    let out = command.env("NO_COLOR", no_color).env("TERM", "xterm").output().expect("script starts");
    assert_eq!(out.status.code(), Some(7), "{out:?}");
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn colours_are_for_terminals_that_may_have_them() {
    let coloured = on_a_terminal("");
    assert!(coloured.contains(&format!("{RED}error:\u{1b}[0m there is no preset `nope`")), "{coloured}");
    let plain = on_a_terminal("1");
    assert!(plain.starts_with("error: there is no preset `nope`") && !plain.contains('\u{1b}'), "{plain}");
    let piped = Command::new(PROGRAM).args(["source", "show", "nope"]).env_remove("NO_COLOR").output();
    let piped = String::from_utf8(piped.expect("the program starts").stderr).expect("text");
    assert!(piped.starts_with("error: there is no preset `nope`"), "{piped}");
}

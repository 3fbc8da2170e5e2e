//! What the reader sees: headings, plain sentences, commands with their output.

use anyhow::Result;
use std::io::{IsTerminal, Write};

/// Prints lines. Somebody who closed the pipe misses the rest and nothing else.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// Prints what is told, with an empty line after it.
pub(crate) fn paragraph(text: &str) {
    say(text);
    say("");
}

fn bold(text: &str) -> String {
    if std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        format!("\x1b[1m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// What this is, and what in it is not real.
pub(crate) fn title() {
    say(&format!(
        "\n{}\n\n\
         A hub and three workload clusters, with the real etcd, API servers, Prometheus and Flux. Flux delivers\n\
         the package `payments`, a Deployment, to every cluster. No node runs here, so there is nobody to run its\n\
         pods: the demo writes the Deployment's status in place of a node. Everything that reads that status, from\n\
         Flux to kubectl, is the real thing.\n",
        bold("Status Bridge: one package, three clusters, two waves")
    ));
}

/// A step's heading.
pub(crate) fn heading(number: usize, title: &str) {
    paragraph(&bold(&format!("{number}. {title}")));
}

/// A command as somebody in that cluster would type it.
pub(crate) fn command(cluster: &str, args: &[&str]) {
    let words: Vec<String> = args.iter().map(|a| quoted(a)).collect();
    say(&format!("  {cluster} $ {}", bold(&format!("kubectl {}", words.join(" ")))));
}

/// What a command printed, or a file holds: set apart from what is told.
pub(crate) fn output(text: &str) {
    for line in text.trim_end().lines() {
        say(format!("  {line}").trim_end());
    }
    say("");
}

/// The step that was not seen, and why.
pub(crate) fn failure(error: &anyhow::Error) {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    say(&format!("\n{} {}", bold("Not seen:"), causes.join("\n  because ")));
}

/// One step: its heading, and its name in whatever goes wrong.
pub(crate) async fn step<T>(number: usize, title: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    heading(number, title);
    work.await.map_err(|error| error.context(format!("step {number}, \"{title}\"")))
}

/// As a shell needs it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}

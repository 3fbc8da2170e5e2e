//! `notify` in the configuration file: who is told.

use std::collections::BTreeSet;
use std::path::PathBuf;

use reqwest::Url;
use serde::{Deserialize, Deserializer};
use statusbridge_api::LabelSelector;
use statusbridge_core::glob::Glob;
use statusbridge_serving::address::Address;

use super::message::{About, Message};
use crate::feed::TlsFiles;

/// Sinks there may be: their ledgers share one ConfigMap.
const MOST_SINKS: usize = 32;
/// Longest name of a sink, and of an environment.
const LONGEST_NAME: usize = 63;
const LONGEST_ENVIRONMENT: usize = 255;

/// All sinks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Settings(Vec<Sink>);

/// One who is told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sink {
    /// By which its ledger and its metrics go.
    pub(super) name: String,
    pub(super) target: Target,
    /// Namespaces of the hub.
    namespaces: Vec<Glob>,
    /// Labels of FleetPackages.
    pub(super) selector: Option<LabelSelector>,
    /// Of which kinds.
    kinds: Vec<About>,
    pub(super) tls: TlsFiles,
}

/// Where messages go.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Target {
    /// CloudEvents for anybody.
    Webhook {
        url: Address,
        /// Key of the signature.
        secret_file: Option<PathBuf>,
        token_file: Option<PathBuf>,
    },
    /// Deployments and commit statuses of a repository.
    GitHub(Forge),
    /// The same of a project.
    GitLab(Forge),
}

/// A forge, as far as GitHub and GitLab are alike.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Forge {
    /// Base of its API.
    pub(super) api: Address,
    /// `owner/name`, or the path of a project.
    pub(super) repository: String,
    pub(super) token_file: PathBuf,
    pub(super) deployments: bool,
    pub(super) commit_statuses: bool,
    /// Left out: that of each object.
    pub(super) environment: Option<String>,
}

impl Forge {
    /// The environment that a message is about.
    pub(super) fn environment(&self, message: &Message) -> String {
        self.environment.clone().unwrap_or_else(|| message.label())
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum To {
    Webhook,
    GitHub,
    GitLab,
}

/// A sink as it is written down.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    to: To,
    url: Option<Address>,
    secret_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    repository: Option<String>,
    deployments: Option<bool>,
    commit_statuses: Option<bool>,
    environment: Option<String>,
    #[serde(default, deserialize_with = "given")]
    namespaces: Option<Vec<Glob>>,
    #[serde(default, deserialize_with = "given")]
    selector: Option<LabelSelector>,
    #[serde(default = "everything")]
    kinds: Vec<About>,
    #[serde(default)]
    tls: TlsFiles,
}

fn everything() -> Vec<About> {
    vec![About::RolloutGate, About::FleetPackage, About::FleetRollout]
}

/// A field without a value is not one that is left out.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl Settings {
    /// All of them.
    pub(super) fn sinks(&self) -> &[Sink] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = Vec::<Entry>::deserialize(deserializer)?;
        read(entries).map_err(serde::de::Error::custom)
    }
}

fn read(entries: Vec<Entry>) -> Result<Settings, String> {
    if entries.len() > MOST_SINKS {
        return Err(format!("notify has {} entries, at most {MOST_SINKS} are possible", entries.len()));
    }
    let (mut sinks, mut names) = (Vec::new(), BTreeSet::new());
    for entry in entries {
        let name = entry.name.clone();
        let sink = sink(entry).map_err(|error| format!("notify, {name:?}: {error}"))?;
        if !names.insert(name.clone()) {
            return Err(format!("notify: two entries have the name {name:?}; each needs one of its own"));
        }
        sinks.push(sink);
    }
    Ok(Settings(sinks))
}

fn sink(entry: Entry) -> Result<Sink, String> {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if entry.name.is_empty() || entry.name.len() > LONGEST_NAME || !entry.name.bytes().all(is_name) {
        return Err(format!("name must have 1 to {LONGEST_NAME} letters a-z, digits and hyphens"));
    }
    let empty = [
        ("namespaces", entry.namespaces.as_ref().is_some_and(Vec::is_empty)),
        ("kinds", entry.kinds.is_empty()),
        ("selector", entry.selector == Some(LabelSelector::default())),
    ];
    if let Some((field, _)) = empty.iter().find(|(_, is_empty)| *is_empty) {
        return Err(format!("{field} is empty: leave it out if the sink is to be told of everything"));
    }
    if let Some(error) = entry.selector.as_ref().and_then(LabelSelector::error) {
        return Err(error);
    }
    let target = match entry.to {
        To::Webhook => webhook(&entry)?,
        To::GitHub => Target::GitHub(forge(&entry, "https://api.github.com")?),
        To::GitLab => Target::GitLab(forge(&entry, "https://gitlab.com/api/v4")?),
    };
    let Entry { name, namespaces, selector, kinds, tls, .. } = entry;
    // Whoever may write a gate says which commit it is about, so no forge believes every namespace unasked.
    let everywhere = || matches!(target, Target::Webhook { .. }).then(|| vec![Glob::from("*")]);
    let namespaces = namespaces.or_else(everywhere).ok_or(
        "namespaces is missing: it says whose gates may write to the repository; [\"*\"] if those of every namespace may",
    )?;
    Ok(Sink { name, target, namespaces, selector, kinds, tls })
}

fn webhook(entry: &Entry) -> Result<Target, String> {
    let of_a_forge = [
        ("repository", entry.repository.is_some()),
        ("deployments", entry.deployments.is_some()),
        ("commitStatuses", entry.commit_statuses.is_some()),
        ("environment", entry.environment.is_some()),
    ];
    if let Some((field, _)) = of_a_forge.iter().find(|(_, is_set)| *is_set) {
        return Err(format!("{field} means nothing to a webhook: leave it out"));
    }
    let url = entry.url.clone().ok_or("a webhook needs url")?;
    let parsed = check(&url)?;
    if entry.token_file.is_some() {
        is_private(&parsed)?;
    }
    Ok(Target::Webhook { url, secret_file: entry.secret_file.clone(), token_file: entry.token_file.clone() })
}

fn forge(entry: &Entry, api: &str) -> Result<Forge, String> {
    if entry.secret_file.is_some() {
        return Err("secretFile signs the messages of a webhook: here use tokenFile".to_owned());
    }
    let api = entry.url.clone().unwrap_or_else(|| Address::from(api));
    is_private(&check(&api)?)?;
    let repository = entry.repository.clone().ok_or("repository is missing: owner/name")?;
    let is_part = |part: &str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty() && part != "." && part != ".." && part.bytes().all(letter)
    };
    let parts = repository.split('/').count();
    let is_repository = match entry.to {
        To::GitHub => parts == 2,
        _ => (2..=20).contains(&parts),
    };
    if !is_repository || !repository.split('/').all(is_part) {
        return Err(format!("repository {repository:?} is no path such as owner/name"));
    }
    if entry.environment.as_ref().is_some_and(|it| it.is_empty() || it.len() > LONGEST_ENVIRONMENT) {
        return Err(format!("environment must have 1 to {LONGEST_ENVIRONMENT} bytes"));
    }
    let (deployments, commit_statuses) =
        (entry.deployments.unwrap_or(true), entry.commit_statuses.unwrap_or(true));
    if !deployments && !commit_statuses {
        return Err("deployments and commitStatuses are both false: nothing would be sent".to_owned());
    }
    Ok(Forge {
        api,
        repository,
        token_file: entry.token_file.clone().ok_or("tokenFile is missing")?,
        deployments,
        commit_statuses,
        environment: entry.environment.clone(),
    })
}

fn check(url: &Address) -> Result<Url, String> {
    let parsed: Url = url.url()?;
    match parsed.scheme() {
        "https" | "http" if parsed.has_host() => Ok(parsed),
        _ => Err(format!("url `{url}` must begin with https:// or http://")),
    }
}

/// A token is sent in the clear to nobody but this machine.
fn is_private(url: &Url) -> Result<(), String> {
    let is_here = url.host_str().is_some_and(|host| {
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        address.is_ok_and(|address| address.is_loopback())
    });
    if url.scheme() == "https" || is_here {
        Ok(())
    } else {
        Err("a token is sent over https only: url must begin with https://".to_owned())
    }
}

impl Sink {
    /// Whether a message may be for it, as far as that can be told without the labels of the FleetPackage.
    pub(super) fn is_for(&self, message: &Message) -> bool {
        self.namespaces.iter().any(|glob| glob.matches(&message.namespace))
            && self.kinds.contains(&message.about)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rstest::rstest;
    use statusbridge_core::decide::transition::Outcome;

    use super::super::message::tests::message;
    use super::*;

    /// The only sink of a configuration.
    pub(in crate::notify) fn sink(text: &str) -> Sink {
        serde_saphyr::from_str::<Settings>(text).unwrap().0.remove(0)
    }

    const GITHUB: &str = "repository: acme/fleet, tokenFile: /t, namespaces: [fleet]";

    #[rstest]
    #[case::a_webhook("{name: a, to: webhook, url: \"http://ci.example/hook\", secretFile: /s}")]
    #[case::github(&format!("{{name: a, to: github, {GITHUB}}}"))]
    #[case::an_enterprise(
        "{name: a, to: github, repository: a/b, tokenFile: /t, url: \"https://git.example/api/v3\", namespaces: [\"*\"]}"
    )]
    #[case::gitlab(
        "{name: a, to: gitlab, repository: group/sub/project, tokenFile: /t, environment: production, namespaces: [\"*\"]}"
    )]
    #[case::this_machine(
        "{name: a, to: gitlab, repository: a/b, tokenFile: /t, url: \"http://127.0.0.1:80\", namespaces: [\"*\"]}"
    )]
    fn what_can_be_told(#[case] entry: &str) {
        serde_saphyr::from_str::<Settings>(&format!("[{entry}]")).unwrap();
    }

    #[rstest]
    #[case::nobody("{name: a, to: pigeon}", "unknown variant")]
    #[case::a_typing_error("{name: a, to: webhook, urll: \"http://a\"}", "urll")]
    #[case::nowhere("{name: a, to: webhook}", "needs url")]
    #[case::no_url("{name: a, to: webhook, url: \"mailto:a@b\"}", "https://")]
    #[case::a_token_in_the_clear(
        "{name: a, to: webhook, url: \"http://ci.example\", tokenFile: /t}",
        "https only"
    )]
    #[case::a_token_in_the_clear_to_a_forge(
        "{name: a, to: github, repository: a/b, tokenFile: /t, url: \"http://git.example\"}",
        "https only"
    )]
    #[case::no_token("{name: a, to: github, repository: a/b}", "tokenFile")]
    #[case::nobody_in_particular(
        "{name: a, to: github, repository: a/b, tokenFile: /t}",
        "namespaces is missing"
    )]
    #[case::no_repository("{name: a, to: github, tokenFile: /t}", "repository")]
    #[case::another_path("{name: a, to: github, repository: a/../b, tokenFile: /t}", "owner/name")]
    #[case::up("{name: a, to: gitlab, repository: a/.., tokenFile: /t}", "owner/name")]
    #[case::a_query("{name: a, to: github, repository: \"a/b?c\", tokenFile: /t}", "owner/name")]
    #[case::nothing_to_send(
        "{name: a, to: github, repository: a/b, tokenFile: /t, deployments: false, commitStatuses: false}",
        "nothing would be sent"
    )]
    #[case::a_signature_for_a_forge("{name: a, to: github, repository: a/b, secretFile: /s}", "tokenFile")]
    #[case::a_repository_for_a_webhook(
        "{name: a, to: webhook, url: \"http://a\", repository: a/b}",
        "repository means nothing"
    )]
    #[case::no_namespaces("{name: a, to: webhook, url: \"http://a\", namespaces: []}", "leave it out")]
    #[case::no_kinds("{name: a, to: webhook, url: \"http://a\", kinds: []}", "leave it out")]
    #[case::a_bad_name("{name: \"A b\", to: webhook, url: \"http://a\"}", "name must")]
    #[case::a_bad_selector(
        "{name: a, to: webhook, url: \"http://a\", selector: {matchLabels: {\"a b\": c}}}",
        "label"
    )]
    #[case::twice(
        "{name: a, to: webhook, url: \"http://a\"}, {name: a, to: webhook, url: \"http://b\"}",
        "two entries"
    )]
    fn what_makes_no_sense_is_refused(#[case] entries: &str, #[case] expected: &str) {
        let error = serde_saphyr::from_str::<Settings>(&format!("[{entries}]")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[rstest]
    #[case::namespaces("namespaces")]
    #[case::kinds("kinds")]
    #[case::a_selector("selector")]
    fn a_field_without_a_value_is_told_nothing(#[case] field: &str) {
        let text = format!("[{{name: a, to: webhook, url: \"http://a\", {field}: }}]");
        let sinks = serde_saphyr::from_str::<Settings>(&text);
        assert!(sinks.is_err(), "{sinks:?}");
    }

    #[rstest]
    #[case::everything("", true)]
    #[case::the_namespace("namespaces: [\"flee*\"]", true)]
    #[case::another_namespace("namespaces: [team-a]", false)]
    #[case::the_kind("kinds: [RolloutGate]", true)]
    #[case::another_kind("kinds: [FleetPackage, FleetRollout]", false)]
    fn who_is_told_of_what(#[case] fields: &str, #[case] expected: bool) {
        let comma = if fields.is_empty() { "" } else { ", " };
        let sink = sink(&format!("[{{name: a, to: webhook, url: \"http://a\"{comma}{fields}}}]"));
        assert_eq!(sink.is_for(&message(Outcome::Started, 1)), expected);
    }
}

//! The feeds that the configuration file names.

use serde::Deserialize;

use super::backends::Backends;
use super::fields::FLAGS;
use super::{push, scrape};

/// By which ways evidence comes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Metrics backends, beside the one that flags name.
    pub backends: Backends,
    /// Exporters that are scraped from here.
    pub scrape: Option<scrape::Settings>,
    /// Exporters may push.
    pub push: Option<push::Settings>,
}

impl Settings {
    /// What the backend of the flags is called: nothing, unless it has to be told from others.
    pub(crate) fn name_of_flags(&self) -> &'static str {
        if self.backends.is_empty() { "" } else { FLAGS }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn what_can_be_written() {
        assert_eq!(read("{}"), Ok(Settings::default()));
        let settings = read(
            "scrape:\n  interval: 30s\n  targets:\n  - {cluster: eu-1, url: 'https://10.0.0.1:9477/metrics', \
             tls: {caFile: /ca, certFile: /c, keyFile: /k}}\n  clusterProfiles: {property: a.b/c}\n\
             push: {tokensFile: /tokens, certFile: /c, keyFile: /k, expectWithin: 2m}\n",
        )
        .unwrap();
        let scrape = settings.scrape.unwrap();
        assert_eq!((scrape.interval.as_secs(), scrape.timeout.as_secs()), (30, 10));
        assert_eq!(scrape.targets[0].cluster, "eu-1");
        let push = settings.push.unwrap();
        assert_eq!((push.expect_within.as_secs(), push.listen.port()), (120, 8443));
        assert!(scrape.check().is_ok() && push.check().is_ok());
    }

    #[rstest]
    #[case("scrape: {interval: 0s}", "more than 0s")]
    #[case("scrape: {intervall: 1s}", "intervall")]
    #[case("scrape: {}", "names neither targets nor clusterProfiles")]
    #[case("scrape: {targets: [{cluster: '', url: 'http://a/metrics'}]}", "targets[0]: cluster")]
    #[case("scrape: {targets: [{cluster: a, url: 'ftp://a/metrics'}]}", "targets[0]: url")]
    #[case("scrape: {targets: [{cluster: a, url: a}]}", "targets[0]: url")]
    #[case(
        "scrape: {targets: [{cluster: a, url: 'http://u:p@a/m'}]}",
        "targets[0]: url has a user or a password"
    )]
    #[case(
        "scrape: {targets: [{cluster: a, url: 'http://a/m'}, {cluster: a, url: 'http://a/m'}]}",
        "targets[1]: the same as"
    )]
    #[case(
        "scrape: {targets: [{cluster: a, url: 'http://a/m', tls: {certFile: /c}}]}",
        "certFile and keyFile"
    )]
    #[case("scrape: {clusterProfiles: {property: ''}}", "property")]
    #[case("push: {listen: '0.0.0.0:1', certFile: /c, keyFile: /k}", "tokensFile")]
    #[case("push: {tokensFile: /t}", "certFile and keyFile")]
    #[case("push: {tokensFile: /t, certFile: /c, keyFile: /k, insecure: true}", "insecure")]
    fn what_cannot(#[case] text: &str, #[case] expected: &str) {
        let checked = read(text).and_then(|settings| {
            let scrape = settings.scrape.map_or(Ok(()), |it| it.check());
            let push = settings.push.map_or(Ok(()), |it| it.check());
            scrape.and(push).map_err(|error| format!("{error:#}"))
        });
        let error = checked.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

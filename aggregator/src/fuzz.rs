//! Configuration files from arbitrary bytes. `cargo test` reads the corpora beside this file, and some bytes at random;
//! `make fuzz` looks for more.

use crate::feed::push::server::Tokens;
use crate::feed::yaml_file::FromYaml;
use crate::serve::config::Config;

/// What `read` makes of bytes: something, or an error of one readable message.
fn read_or_refused<T: FromYaml>(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(error) = T::from_yaml(text) {
        assert!(!error.is_empty() && error.len() <= 4096, "{error}");
    }
}

#[test]
fn a_configuration_is_read_or_refused() {
    // As a backend's address is tried by making a client.
    let _ = rustls::crypto::ring::default_provider().install_default();
    bolero::check!(name = "configuration").for_each(read_or_refused::<Config>);
}

#[test]
fn a_file_of_tokens_is_read_or_refused() {
    bolero::check!(name = "tokens").for_each(read_or_refused::<Tokens>);
}

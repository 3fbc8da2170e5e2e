//! Request paths.

use super::{fault::Fault, key::PackageKey};

/// Where the objects of a kind are, at one of its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Of the group and version: `/apis/apps/v1`.
    pub(super) prefix: String,
    /// Plural name of the resource.
    pub(super) resource: String,
}

impl Path {
    /// All objects, in all namespaces.
    pub(super) fn all(&self) -> String {
        format!("{}/{}", self.prefix, self.resource)
    }

    /// One object.
    pub(super) fn one(&self, key: &PackageKey) -> String {
        let Self { prefix, resource } = self;
        let name = encode(&key.name);
        match &key.namespace {
            Some(namespace) => format!("{prefix}/namespaces/{}/{resource}/{name}", encode(namespace)),
            None => format!("{prefix}/{resource}/{name}"),
        }
    }
}

/// A GET of what `accept` says, without compression: servers compress large answers for whoever accepts it, which costs
/// more time than the bytes do, and watches in several gzip members are read wrongly.
pub(super) fn request(uri: &str, accept: &str) -> Result<http::Request<Vec<u8>>, Fault> {
    http::Request::get(uri)
        .header(http::header::ACCEPT, accept)
        .header(http::header::ACCEPT_ENCODING, "identity")
        .body(Vec::new())
        .map_err(|error| Fault::Malformed(format!("request for {uri}: {error}")))
}

/// Percent-encodes a query value.
pub(super) fn encode(value: &str) -> String {
    value.bytes().fold(String::with_capacity(value.len()), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            other => out.push_str(&format!("%{other:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_in_their_namespace() {
        let path = Path { prefix: "/apis/apps/v1".to_owned(), resource: "deployments".to_owned() };
        assert_eq!(path.all(), "/apis/apps/v1/deployments");
        let key = PackageKey::new(Some("web"), "front");
        assert_eq!(path.one(&key), "/apis/apps/v1/namespaces/web/deployments/front");
        assert_eq!(path.one(&PackageKey::new(None, "a:b")), "/apis/apps/v1/deployments/a%3Ab");
    }

    #[test]
    fn tokens_survive_a_query() {
        assert_eq!(encode("eyJ2+/=&x"), "eyJ2%2B%2F%3D%26x");
    }
}

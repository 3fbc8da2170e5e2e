//! Whom a connection comes from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Request;

/// Bits of an IPv6 address that one host cannot choose for itself.
const IPV6_NETWORK: u32 = 64;

/// An address that stands for one client: an IPv4 address, or an IPv6 network of 64 bits, because a host of such a network
/// has as many addresses as it likes. Clients behind one proxy or one translated address are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    /// For requests that came over no connection.
    const NONE: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// Whom a request comes from.
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        request.extensions().get().copied().unwrap_or(Self::NONE)
    }
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> IPV6_NETWORK << IPV6_NETWORK)),
            v4 => v4,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_peer_whichever_of_its_addresses_it_uses() {
        let peer = |text: &str| Peer::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:1:2:3"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
    }
}

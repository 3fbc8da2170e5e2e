//! Names of discovered FleetPackages.

use statusbridge_api::PackageRef;
use statusbridge_api::names::{LONGEST_LABEL, hashed, is_subdomain};

/// `source.namespace.name`, or `source.name` for a cluster-scoped package: always the same for the same
/// package, and never for two. Where that is too long to be a label as well, no valid name, or could be
/// read in two ways, it is made valid and ends in a hash.
pub fn name(package: &PackageRef) -> String {
    let PackageRef { source, namespace, name } = package;
    let namespace = namespace.as_deref();
    let plain = match namespace {
        Some(namespace) => format!("{source}.{namespace}.{name}"),
        None => format!("{source}.{name}"),
    };
    // The dots that separate are the first ones, and a second one says that there is a namespace.
    let one_way = !source.contains('.') && !namespace.unwrap_or(name).contains('.');
    if one_way && plain.len() <= LONGEST_LABEL && is_subdomain(&plain) { plain } else { with_hash(package) }
}

/// A name that ends in a hash of the package's identity.
pub(super) fn with_hash(package: &PackageRef) -> String {
    let parts = [&*package.source, package.namespace.as_deref().unwrap_or_default(), &*package.name];
    let mut readable = String::new();
    for letter in parts.join("-").chars().map(|letter| letter.to_ascii_lowercase()) {
        if letter.is_ascii_lowercase() || letter.is_ascii_digit() {
            readable.push(letter);
        } else if !readable.is_empty() && !readable.ends_with('-') {
            readable.push('-');
        }
    }
    hashed(&readable, &parts.join("\0"), LONGEST_LABEL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn id(source: &str, namespace: &str, name: &str) -> PackageRef {
        let namespace = Some(namespace.to_owned()).filter(|it| !it.is_empty());
        PackageRef { source: source.into(), namespace, name: name.into() }
    }

    #[rstest]
    #[case(id("flux-kustomization", "flux-system", "payments"), "flux-kustomization.flux-system.payments")]
    #[case(id("olm", "", "payments"), "olm.payments")]
    #[case(id("flux-kustomization", "apps", "payments.v1"), "flux-kustomization.apps.payments.v1")]
    fn plain(#[case] package: PackageRef, #[case] expected: &str) {
        assert_eq!(name(&package), expected);
    }

    #[rstest]
    #[case::two_ways(id("olm", "", "apps.payments"), "olm-apps-payments-")]
    #[case::upper_case(id("KPT", "Apps", "Payments"), "kpt-apps-payments-")]
    #[case::odd(id("a", "b", "__x/y:z__"), "a-b-x-y-z-")]
    #[case::foreign(id("a", "b", "größe"), "a-b-gr-e-")]
    #[case::long(id("flux-kustomization", "flux-system", &"x".repeat(512)), "flux-kustomization-flux-system-xxx")]
    fn hashed_where_needed(#[case] package: PackageRef, #[case] beginning: &str) {
        let name = name(&package);
        assert!(name.starts_with(beginning), "{name}");
        let hash = name.rsplit('-').next().unwrap();
        assert!(hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    }

    #[test]
    fn nothing_readable_is_a_hash() {
        assert_eq!(name(&id("…", "", "…")).len(), 12);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn valid_and_different_for_different_packages(
            one in ("[ab.-]{1,3}", "[ab.-]{0,3}", "[aA_b.-]{1,4}"),
            two in ("[ab.-]{1,3}", "[ab.-]{0,3}", "[aA_b.-]{1,4}"),
        ) {
            let (one, two) = (id(&one.0, &one.1, &one.2), id(&two.0, &two.1, &two.2));
            let (first, second) = (name(&one), name(&two));
            prop_assert!(is_subdomain(&first) && first.len() <= 63, "{}", first);
            prop_assert_eq!(first == second, one == two);
        }

        #[test]
        fn valid_whatever_the_labels_say(source in "\\PC{1,80}", namespace in "\\PC{0,80}", package in "\\PC{1,600}") {
            prop_assert!(is_subdomain(&name(&id(&source, &namespace, &package))));
        }
    }
}

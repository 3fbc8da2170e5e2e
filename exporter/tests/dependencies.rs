//! What the exporter is built from.

#![allow(clippy::expect_used)] // in a test, what cannot be is a failure

use std::{collections::BTreeSet, process::Command};

/// Names of the crates that a package of this workspace and its build scripts are made from, on this platform.
fn dependencies(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal,build", "--prefix", "none"])
        .args(["--format", "{p}", "--package", package])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names are UTF-8");
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// gRPC, protocol buffers and HTTP/2 belong to the change-log sidecar.
#[test]
fn the_exporter_has_no_grpc() {
    let of_grpc = |package| -> Vec<String> {
        let grpc = ["grpc", "h2", "prost", "protobuf", "tonic"];
        let all = dependencies(package);
        assert!(all.contains("hyper"), "{package} is made from {all:?}");
        all.into_iter()
            .filter(|name| grpc.iter().any(|word| name.split('-').any(|part| part == *word)))
            .collect()
    };
    assert_eq!(of_grpc("statusbridge-exporter"), [""; 0]);
    assert_eq!(of_grpc("statusbridge-changelog"), ["h2", "prost", "prost-derive", "tonic"]);
}

//! A version is one number in one place: `version` in Cargo.toml.

use super::*;
use statusbridge_tests::{PROGRAMS, own_command};

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[tokio::test]
async fn programs_charts_images_and_changelog_have_one_version() -> Result<()> {
    for program in PROGRAMS {
        let out = own_command(program, &["--version"]).await?.output().await?;
        assert_eq!(String::from_utf8(out.stdout)?, format!("{program} {VERSION}\n"));
    }
    for chart in Chart::ALL {
        let text = std::fs::read_to_string(chart.dir().join("Chart.yaml"))?;
        let about: Value = serde_saphyr::from_str(&text)?;
        for field in ["version", "appVersion"] {
            ensure!(about[field] == VERSION, "{}: {field} is {}", chart.name(), about[field]);
        }
        for deployment in of_kind(&chart.render(NAMESPACE, &[]).await?, "Deployment") {
            let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
            ensure!(image.as_str().is_some_and(|it| it.ends_with(&format!(":{VERSION}"))), "{image}");
        }
    }
    let made = tokio::process::Command::new("make")
        .args(["--silent", "version"])
        .current_dir(repository(""))
        .output()
        .await?;
    assert_eq!(String::from_utf8(made.stdout)?, format!("{VERSION}\n"), "what `make image` tags images with");
    let changelog = std::fs::read_to_string(repository("CHANGELOG.md"))?;
    ensure!(changelog.contains(&format!("\n## {VERSION}")), "CHANGELOG.md says nothing about {VERSION}");
    Ok(())
}

#[test]
fn images_are_built_with_the_toolchain_of_the_repository() -> Result<()> {
    let toolchain = std::fs::read_to_string(repository("rust-toolchain.toml"))?;
    let channel =
        toolchain.lines().find_map(|line| line.strip_prefix("channel = \"")).context("no channel")?;
    let minor = channel.trim_end_matches('"').rsplit_once('.').context("no patch version")?.0;
    let containerfile = std::fs::read_to_string(repository("deploy/Containerfile"))?;
    let image = format!("ARG RUST=docker.io/library/rust:{minor}-");
    ensure!(containerfile.contains(&image), "deploy/Containerfile does not begin from {image}…");
    Ok(())
}

/// Pages and recipes that name a version of ours: `newTag: 1.2.3`, `ref=v1.2.3`, `--version 1.2.3`, an image.
#[test]
fn pages_name_the_version_that_there_is() -> Result<()> {
    let mut files = vec![repository("README.md"), repository("CONTRIBUTING.md"), repository("SECURITY.md")];
    for dir in ["docs", "deploy/recipes"] {
        for entry in std::fs::read_dir(repository(dir))? {
            files.push(entry?.path());
        }
    }
    let mut named = 0;
    for file in files.iter().filter(|file| file.is_file()) {
        let text = std::fs::read_to_string(file)?;
        let images = PROGRAMS.map(|program| format!("{program}:"));
        let images = images.iter().map(String::as_str);
        for before in ["newTag: ", "?ref=v", "TAG=", "--version "].into_iter().chain(images) {
            for rest in text.split(before).skip(1) {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !".-+".contains(c));
                let version = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
                if version.starts_with(|c: char| c.is_ascii_digit()) || version.starts_with('v') {
                    named += 1;
                    ensure!(version == VERSION, "{}: {before}{version}, not {VERSION}", file.display());
                }
            }
        }
    }
    ensure!(named >= 3, "only {named} versions");
    Ok(())
}

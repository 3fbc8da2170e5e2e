//! Which sources are used: the presets, and those in files.

use std::{path::PathBuf, sync::Arc};

use super::{
    error::SourceProblem,
    files::{FileTexts, texts_of},
    identity::ClusterNames,
    preset::{PRESETS, Preset},
    program::Source,
};

/// Which sources to use.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SourceArgs {
    /// A file with sources, or a directory of such files; may be given more than once. A source with
    /// the name of a preset takes its place.
    #[arg(long = "sources", value_name = "FILE|DIR", env = "STATUSBRIDGE_SOURCES", value_delimiter = ',')]
    pub files: Vec<PathBuf>,
    /// Use only these presets; an empty value for none. When left out: all of them but those of what
    /// other packages are made of (flux-source, olm-clustercatalog).
    #[arg(long, value_name = "NAME,…", env = "STATUSBRIDGE_PRESETS")]
    pub presets: Option<String>,
    /// Sources whose packages' objects are to be looked at, with kstatus, beside those that have it
    /// done anyway; with a dash before the name, not to be looked at.
    #[arg(long, value_name = "NAME,…", env = "STATUSBRIDGE_RESOURCE_HEALTH", allow_hyphen_values = true)]
    pub resource_health: Option<String>,
    /// How a cluster is called in the hub that a package system calls otherwise, such as by its address; may be
    /// given more than once. An empty name is the exporter's own cluster.
    #[arg(
        long = "cluster-name",
        value_name = "WORD=NAME",
        env = "STATUSBRIDGE_CLUSTER_NAMES",
        value_delimiter = ',',
        value_parser = cluster_name
    )]
    pub cluster_names: Vec<(String, String)>,
}

fn cluster_name(text: &str) -> Result<(String, String), String> {
    match text.rsplit_once('=') {
        Some((word, name)) if !word.is_empty() => Ok((word.to_owned(), name.to_owned())),
        _ => Err("it has to be WORD=NAME, such as https://10.0.0.1:6443=eu-1".to_owned()),
    }
}

impl SourceArgs {
    /// Compiles the sources, in order of their names.
    pub fn load(&self) -> Result<Vec<Source>, SourceProblem> {
        self.compile(&self.texts())
    }

    /// What is in the files now, or why that cannot be told.
    pub fn texts(&self) -> FileTexts {
        texts_of(&self.files)
    }

    /// Compiles the presets and these files.
    pub fn compile(&self, texts: &FileTexts) -> Result<Vec<Source>, SourceProblem> {
        let mut sources = Vec::new();
        for preset in self.presets()? {
            sources.push((true, preset.source()?));
        }
        for (file, text) in texts {
            let name = &file.display().to_string();
            let text = text.as_ref().map_err(|error| SourceProblem::of_file(name, error))?;
            for source in Source::parse(name, text)? {
                match sources.iter_mut().find(|(_, other)| other.name == source.name) {
                    Some(replaced @ (true, _)) => *replaced = (false, source),
                    Some(_) => {
                        let message = format!("there is already a source {} in these files", source.name);
                        return Err(SourceProblem::of_file(name, message));
                    }
                    None => sources.push((false, source)),
                }
            }
        }
        let mut sources: Vec<Source> = sources.into_iter().map(|(_, source)| source).collect();
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        let clusters = Arc::new(self.cluster_names()?);
        sources.iter_mut().for_each(|source| source.cluster_names = Arc::clone(&clusters));
        let names = self.resource_health.iter().flat_map(|names| names.split(',')).map(str::trim);
        for name in names.filter(|name| !name.is_empty()) {
            let (name, enabled) = name.strip_prefix('-').map_or((name, true), |name| (name, false));
            let Some(source) = sources.iter_mut().find(|s| s.name == name) else {
                let message = format!("there is no source `{name}`");
                return Err(SourceProblem::of_file("--resource-health", message));
            };
            if !source.watch_resources(enabled) {
                let message = format!("source `{name}` does not say what its packages consist of");
                return Err(SourceProblem::of_file("--resource-health", message));
            }
        }
        Ok(sources)
    }

    fn cluster_names(&self) -> Result<ClusterNames, SourceProblem> {
        let mut names = ClusterNames::new();
        for (word, name) in &self.cluster_names {
            match names.insert(word.clone(), name.clone()) {
                Some(other) if other != *name => {
                    let message =
                        format!("`{word}` is both `{other}` and `{name}`: a word stands for one cluster");
                    return Err(SourceProblem::of_file("--cluster-name", message));
                }
                _ => {}
            }
        }
        Ok(names)
    }

    fn presets(&self) -> Result<Vec<Preset>, SourceProblem> {
        let Some(names) = &self.presets else { return Ok(Preset::usual().collect()) };
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        names
            .map(|name| {
                let known = || PRESETS.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
                let message = || format!("there is no preset `{name}`; there are {}", known());
                Preset::find(name).ok_or_else(|| SourceProblem::of_file("--presets", message()))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(args: &SourceArgs) -> Result<Vec<String>, String> {
        Ok(args.load().map_err(|e| e.to_string())?.into_iter().map(|s| s.name).collect())
    }

    fn with(name: &str, from: &str) -> String {
        Preset::find(from).expect("a preset").yaml.replace(&format!("name: {from}"), &format!("name: {name}"))
    }

    #[test]
    fn presets_can_be_chosen_and_replaced() {
        let all: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
        let every = SourceArgs { presets: Some(all.join(",")), ..SourceArgs::default() };
        assert_eq!(names(&every), Ok(all.iter().map(ToString::to_string).collect()));
        let usual: Vec<String> = Preset::usual().map(|p| p.name.to_owned()).collect();
        assert!(usual.contains(&"flux-kustomization".into()) && !usual.contains(&"flux-source".into()));
        assert_eq!(names(&SourceArgs::default()), Ok(usual));
        let none = SourceArgs { presets: Some(String::new()), ..SourceArgs::default() };
        assert_eq!(names(&none), Ok(vec![]));
        let unknown = SourceArgs { presets: Some("flux-kustomisation".into()), ..SourceArgs::default() };
        let problem = format!("there is no preset `flux-kustomisation`; there are {}", all[0]);
        assert!(names(&unknown).is_err_and(|e| e.contains(&problem)));

        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("a file");
            path
        };
        let own = file("own.yaml", &with("another", "flux-kustomization"));
        file("ignored.txt", "nothing");
        let replacing = file("replacing.yml", &with("flux-kustomization", "configsync"));
        let args = SourceArgs {
            files: vec![directory.path().to_owned()],
            presets: Some("flux-kustomization".into()),
            ..SourceArgs::default()
        };
        assert_eq!(names(&args), Ok(vec!["another".into(), "flux-kustomization".into()]));
        let sources = args.load().expect("they compile");
        assert_eq!(
            sources[1].kinds.listed().first().map(|k| &*k.kind),
            Some("RootSync"),
            "the file's source took the preset's place"
        );
        let twice = SourceArgs { files: vec![own, replacing.clone(), replacing], ..SourceArgs::default() };
        assert!(names(&twice).is_err_and(|e| e.contains("there is already a source flux-kustomization")));
        let missing = SourceArgs { files: vec!["/nonexistent/x.yaml".into()], ..SourceArgs::default() };
        assert!(names(&missing).is_err_and(|e| e.contains("/nonexistent/x.yaml: cannot be read")));
    }

    #[test]
    fn clusters_are_called_as_the_hub_calls_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("own.yaml");
        let text = with("own", "flux-kustomization").replacen(
            "spec:\n",
            "spec:\n  identity: {clusterExpression: object.?metadata.?annotations.?cluster}\n",
            1,
        );
        fs::write(&file, text).expect("a file");
        let names = ["https://10.0.0.1:6443=eu-1", "in-cluster="].map(|text| cluster_name(text).expect(text));
        let args = SourceArgs {
            files: vec![file],
            presets: Some(String::new()),
            cluster_names: names.to_vec(),
            ..SourceArgs::default()
        };
        let source = args.load().expect("it compiles").remove(0);
        let cluster = |cluster: &str| {
            let object = serde_json::json!({"metadata": {"name": "a", "annotations": {"cluster": cluster}}});
            source.identity(&object).expect("an identity").cluster.map(|cluster| cluster.to_string())
        };
        assert_eq!(cluster("https://10.0.0.1:6443").as_deref(), Some("eu-1"));
        assert_eq!(cluster("eu-2").as_deref(), Some("eu-2"), "a name of its own");
        assert_eq!((cluster("in-cluster"), cluster("")), (None, None));
        assert!(cluster_name("eu-1").is_err() && cluster_name("=eu-1").is_err());
        let twice = [("a", "eu-1"), ("a", "eu-2")].map(|(word, name)| (word.to_owned(), name.to_owned()));
        let twice = SourceArgs { cluster_names: twice.to_vec(), ..args.clone() };
        assert!(twice.load().is_err_and(|e| e.to_string().contains("`a` is both `eu-1` and `eu-2`")));
        let unnamed = SourceArgs { cluster_names: Vec::new(), ..args };
        assert!(!unnamed.load().expect("it compiles")[0].same_as(&source), "other names are another source");
    }
}

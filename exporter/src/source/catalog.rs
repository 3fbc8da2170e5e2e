//! Which sources are used: the presets, and those in files.

use std::path::PathBuf;

use super::{
    error::SourceProblem,
    files::{FileTexts, texts_of},
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
}

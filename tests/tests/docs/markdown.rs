//! As much of Markdown as our pages use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A page in the repository.
pub(crate) struct Page {
    /// Where it is, from the repository's root.
    pub(crate) path: PathBuf,
    /// What stands in fences and what is indented.
    pub(crate) blocks: Vec<Block>,
    /// The lines outside of these, with their numbers.
    pub(crate) prose: Vec<(usize, String)>,
}

/// Code that is set off.
pub(crate) struct Block {
    /// What it is said to be, such as `yaml`; empty when nothing is said.
    pub(crate) language: String,
    /// Number of its first line.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// The repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// README, CONTRIBUTING and all of docs/.
pub(crate) fn pages() -> Vec<Page> {
    let root = repository();
    let mut files = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    collect(&root.join("docs"), &mut files);
    let pages: Vec<Page> = files.iter().map(|file| Page::read(&root, file)).collect();
    assert!(pages.len() > 25, "only {} pages", pages.len());
    pages
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
}

impl Page {
    fn read(root: &Path, file: &Path) -> Self {
        let path = file.strip_prefix(root).unwrap().to_owned();
        Self::parse(path, &std::fs::read_to_string(file).unwrap())
    }

    pub(crate) fn parse(path: PathBuf, text: &str) -> Self {
        let mut page = Self { path, blocks: Vec::new(), prose: Vec::new() };
        let mut fence: Option<Block> = None;
        let mut before_is_empty = true;
        let mut in_list = false;
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(info) = line.trim_start().strip_prefix("```") {
                match fence.take() {
                    Some(block) => page.blocks.push(block),
                    None => {
                        let language = info.split_whitespace().next().unwrap_or_default().to_owned();
                        fence = Some(Block { language, line: number + 1, text: String::new() });
                    }
                }
            } else if let Some(block) = &mut fence {
                block.text += &format!("{line}\n");
            } else {
                in_list = match line.chars().next() {
                    Some(' ') => in_list,
                    None => in_list,
                    Some(_) => line.starts_with("- ") || line.starts_with(|c: char| c.is_ascii_digit()),
                };
                // What is indented behind an empty line is code, but for what belongs to a list.
                let goes_on = page.blocks.last().is_some_and(|block| {
                    block.language.is_empty() && block.line + block.text.lines().count() == number
                });
                match line.strip_prefix("    ") {
                    Some(code) if !in_list && (before_is_empty || goes_on) => {
                        if goes_on {
                            page.blocks.last_mut().unwrap().text += &format!("{code}\n");
                        } else {
                            let text = format!("{code}\n");
                            page.blocks.push(Block { language: String::new(), line: number, text });
                        }
                    }
                    _ => page.prose.push((number, line.to_owned())),
                }
            }
            before_is_empty = line.trim().is_empty();
        }
        assert!(fence.is_none(), "{}: a fence does not end", page.path.display());
        page
    }

    /// Where a line is, for messages.
    pub(crate) fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }

    /// Code within sentences, with the number of the line that it begins in.
    pub(crate) fn inline_code(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for paragraph in self.paragraphs() {
            let text: Vec<&str> = paragraph.iter().map(|(_, line)| line.as_str()).collect();
            let text = text.join("\n");
            let mut line = paragraph[0].0;
            for (index, part) in text.split('`').enumerate() {
                if index % 2 == 1 {
                    let words: Vec<&str> = part.split_whitespace().collect();
                    found.push((line, words.join(" ").replace("\\|", "|")));
                }
                line += part.matches('\n').count();
            }
        }
        found
    }

    /// Runs of lines that are not empty; each row of a table is one.
    fn paragraphs(&self) -> Vec<Vec<(usize, String)>> {
        let mut all: Vec<Vec<(usize, String)>> = Vec::new();
        let mut last = None;
        for (number, line) in self.prose.iter().filter(|(_, line)| !line.trim().is_empty()) {
            if last.is_some_and(|last| *number == last + 1)
                && !line.starts_with('|')
                && !line.starts_with('#')
            {
                all.last_mut().unwrap().push((*number, line.clone()));
            } else {
                all.push(vec![(*number, line.clone())]);
            }
            last = Some(*number);
        }
        all
    }

    /// Where its links lead, with the numbers of their lines.
    pub(crate) fn links(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for paragraph in self.paragraphs() {
            for (number, line) in paragraph {
                let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
                for rest in text.split("](").skip(1) {
                    found.push((number, rest.split(')').next().unwrap_or_default().to_owned()));
                }
            }
        }
        found
    }

    /// What its headings can be linked to by.
    pub(crate) fn anchors(&self) -> BTreeSet<String> {
        let mut seen = BTreeMap::<String, usize>::new();
        let headings = self.prose.iter().filter_map(|(_, line)| {
            let text = line.trim_start_matches('#');
            (text.len() < line.len()).then(|| text.strip_prefix(' ')).flatten()
        });
        headings
            .map(|heading| {
                let slug = slug(heading);
                let count = seen.entry(slug.clone()).or_default();
                *count += 1;
                if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
            })
            .collect()
    }
}

/// As GitHub makes it of a heading.
fn slug(heading: &str) -> String {
    let lower = heading.trim().to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn code_links_and_headings_are_found() {
    let text = "# The `first`: part\n\nSee [it](other.md#there), `statusbridge source\nrbac`.\n\n    make test\n    \
                make demo\n\n- a list\n\n    that goes on\n\n```yaml\na: 1\n```\n## again\n## again\n";
    let page = Page::parse(PathBuf::from("p.md"), text);
    let blocks: Vec<_> = page.blocks.iter().map(|b| (b.language.as_str(), b.line, b.text.as_str())).collect();
    assert_eq!(blocks, [("", 6, "make test\nmake demo\n"), ("yaml", 14, "a: 1\n")]);
    assert_eq!(page.links(), [(3, "other.md#there".to_owned())]);
    let code: Vec<_> = page.inline_code().into_iter().map(|(_, code)| code).collect();
    assert_eq!(code, ["first", "statusbridge source rbac"]);
    let anchors: Vec<_> = page.anchors().into_iter().collect();
    assert_eq!(anchors, ["again", "again-1", "the-first-part"]);
}

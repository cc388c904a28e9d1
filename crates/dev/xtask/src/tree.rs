//! A source tree: a root directory and the files that belong to it.
//!
//! In a git repository these are the tracked files plus those that would be added (so that a gate speaks before
//! the commit); elsewhere everything below the root except build output.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};

use crate::exec;

const GIT_LIMIT: Duration = Duration::from_secs(60);
/// Never part of a tree, also where no `.gitignore` says so.
const SKIPPED_DIRS: [&str; 5] = [".git", "target", "node_modules", ".tools", ".run"];

pub struct Tree {
    root: PathBuf,
    files: OnceCell<Vec<String>>,
}

impl Tree {
    pub fn new(root: impl Into<PathBuf>) -> Tree {
        Tree { root: root.into(), files: OnceCell::new() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Paths relative to the root, with `/`, sorted.
    pub fn files(&self) -> anyhow::Result<&[String]> {
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        let mut found = if self.exists(".git") { self.list_git()? } else { self.list_walk()? };
        found.sort();
        found.dedup();
        Ok(self.files.get_or_init(|| found))
    }

    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    pub fn read(&self, path: &str) -> anyhow::Result<String> {
        self.text(path)?.ok_or_else(|| anyhow!("{path} is not UTF-8 text"))
    }

    /// The content, or `None` for a binary file.
    pub fn text(&self, path: &str) -> anyhow::Result<Option<String>> {
        let bytes = fs::read(self.root.join(path)).with_context(|| format!("read {path}"))?;
        Ok(if bytes.contains(&0) { None } else { String::from_utf8(bytes).ok() })
    }

    pub fn toml(&self, path: &str) -> anyhow::Result<toml::Table> {
        self.read(path)?.parse().with_context(|| format!("parse {path}"))
    }

    pub fn json(&self, path: &str) -> anyhow::Result<serde_json::Value> {
        serde_json::from_str(&self.read(path)?).with_context(|| format!("parse {path}"))
    }

    fn list_git(&self) -> anyhow::Result<Vec<String>> {
        let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let ran = exec::run(&self.root, "git", &args, GIT_LIMIT)?;
        if !ran.ok {
            bail!("git ls-files failed: {}", ran.stderr.trim());
        }
        // A file that is deleted but not yet committed is still listed; it has nothing to check. Neither has a
        // symbolic link to a directory.
        Ok(ran
            .stdout
            .split('\0')
            .filter(|path| !path.is_empty() && self.root.join(path).is_file())
            .map(str::to_owned)
            .collect())
    }

    fn list_walk(&self) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        let mut open = vec![self.root.clone()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))? {
                let entry = entry?;
                let kind = entry.file_type()?;
                let name = entry.file_name();
                if kind.is_dir() {
                    if !SKIPPED_DIRS.iter().any(|skipped| name == *skipped) {
                        open.push(entry.path());
                    }
                } else if kind.is_file()
                    && let Ok(relative) = entry.path().strip_prefix(&self.root)
                {
                    found.push(relative.to_string_lossy().into_owned());
                }
            }
        }
        Ok(found)
    }
}

/// Whether a path is test material: below a `tests` or `fixtures` directory, or a file of tests.
pub fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "fixtures" | "tests.rs"))
        || path.ends_with("_tests.rs")
}

/// A made-up tree for a test: path → content.
#[cfg(test)]
#[derive(Clone, Default)]
pub struct FixtureTree(std::collections::BTreeMap<String, String>);

#[cfg(test)]
impl FixtureTree {
    pub fn new(files: &[(&str, &str)]) -> FixtureTree {
        files.iter().fold(FixtureTree::default(), |tree, (path, text)| tree.with(path, *text))
    }

    /// The same tree with one file added or replaced.
    pub fn with(mut self, path: &str, text: impl Into<String>) -> FixtureTree {
        self.0.insert(path.to_owned(), text.into());
        self
    }

    /// The same tree with a part of one file replaced, which must be there.
    pub fn replaced(self, path: &str, from: &str, to: &str) -> FixtureTree {
        let text = self.0[path].clone();
        assert!(text.contains(from), "{path} has no {from:?}");
        self.with(path, text.replacen(from, to, 1))
    }

    pub fn without(mut self, path: &str) -> FixtureTree {
        self.0.remove(path);
        self
    }

    pub fn write(&self, root: &Path) {
        for (path, text) in &self.0 {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_decides_what_belongs_to_a_repository() {
        let dir = tempfile::tempdir().unwrap();
        FixtureTree::new(&[
            (".gitignore", "ignored.txt\n"),
            ("ignored.txt", ""),
            ("new.txt", ""),
            ("sub/a.rs", ""),
        ])
        .write(dir.path());
        assert!(exec::run(dir.path(), "git", &["init", "-q"], GIT_LIMIT).unwrap().ok);
        assert_eq!(Tree::new(dir.path()).files().unwrap(), [".gitignore", "new.txt", "sub/a.rs"]);
    }

    #[test]
    fn without_git_everything_but_build_output_belongs() {
        let dir = tempfile::tempdir().unwrap();
        FixtureTree::new(&[("a.rs", ""), ("target/b.rs", ""), ("web/node_modules/c.ts", "")])
            .write(dir.path());
        assert_eq!(Tree::new(dir.path()).files().unwrap(), ["a.rs"]);
    }
}

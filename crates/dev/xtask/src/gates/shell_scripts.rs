//! Shell scripts parse.

use std::time::Duration;

use super::{Finding, Gate};
use crate::exec;
use crate::tree::Tree;

const LIMIT: Duration = Duration::from_secs(10);

pub struct ShellScripts;

impl Gate for ShellScripts {
    fn name(&self) -> &'static str {
        "shell-scripts"
    }

    fn holds(&self) -> &'static str {
        "`bash -n` accepts every *.sh and .ci/run, and each stops at the first error"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        for path in tree.files()?.iter().filter(|path| path.ends_with(".sh") || *path == ".ci/run") {
            let ran = exec::run(tree.root(), "bash", &["-n", path], LIMIT)?;
            if !ran.ok {
                found.push(Finding::new(path, ran.stderr.trim()));
            }
            let text = tree.read(path)?;
            if !text.lines().any(|line| line.trim_start().starts_with("set -e")) {
                found.push(Finding::new(path, "must say `set -e` (better: set -euo pipefail)"));
            }
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let script = "#!/usr/bin/env bash\nset -euo pipefail\necho hello\n";
        super::tests::Examples::good(FixtureTree::new(&[("scripts/a.sh", script), (".ci/run", script)]))
            .bad("unfinished if", "scripts/a.sh", |tree| tree.with("scripts/a.sh", "set -e\nif true; then\n"))
            .bad("unfinished string in .ci/run", ".ci/run", |tree| tree.with(".ci/run", "set -e\necho 'a\n"))
            .bad("goes on after an error", "must say `set -e`", |tree| tree.with("scripts/a.sh", "echo a\n"))
    }
}

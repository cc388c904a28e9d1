//! Documents that the server program prints about itself: its API, events, errors, roles and lifecycles.

use std::time::Duration;

use anyhow::bail;

use crate::exec;
use crate::tree::Tree;

/// A cold build of the server program on a small machine fits.
const LIMIT: Duration = Duration::from_secs(45 * 60);

#[cfg(not(test))]
const PROGRAM: &[&str] = &["cargo", "run", "--quiet", "--locked", "--package", "gpuaasd", "--"];
/// The tests' trees have no server program but a script that prints like one.
#[cfg(test)]
pub const PROGRAM: &[&str] = &["sh", "document.sh"];

pub fn document(tree: &Tree, name: &str) -> anyhow::Result<String> {
    let [program, args @ ..] = PROGRAM else { bail!("no program prints documents") };
    let args: Vec<&str> = args.iter().copied().chain(["document", name]).collect();
    let ran = exec::run(tree.root(), program, &args, LIMIT)?;
    if !ran.ok {
        bail!("{program} {} failed: {}", args.join(" "), ran.stderr.trim());
    }
    if ran.stdout.trim().is_empty() {
        bail!("{program} {} printed nothing", args.join(" "));
    }
    Ok(format!("{}\n", ran.stdout.trim_end()))
}

//! The sections, one after the other. One that fails, panics or takes too long is reported, and the others go on.

use std::{future::Future, panic::AssertUnwindSafe, path::Path, pin::Pin, time::Duration};

use anyhow::anyhow;
use futures_util::FutureExt as _;
use tokio::time::Instant;

use crate::{document, progress::clock};

type Measuring<'a> = Pin<Box<dyn Future<Output = anyhow::Result<String>> + 'a>>;

pub struct Section<'a> {
    pub name: &'static str,
    pub measure: Measuring<'a>,
}

impl<'a> Section<'a> {
    pub fn new(name: &'static str, measure: impl Future<Output = anyhow::Result<String>> + 'a) -> Self {
        Self { name, measure: Box::pin(measure) }
    }
}

/// Runs all of them within `limit` together; the results of each are printed and written when it ends. Gives the names
/// of those that failed.
pub async fn run(
    sections: Vec<Section<'_>>,
    limit: Duration,
    out: Option<&Path>,
) -> anyhow::Result<Vec<&'static str>> {
    let (start, count) = (Instant::now(), sections.len());
    let (mut failed, mut rows) = (Vec::new(), Vec::new());
    for (index, section) in sections.into_iter().enumerate() {
        let name = section.name;
        eprintln!("\nsection {} of {count}: {name}, {} since the start", index + 1, clock(start.elapsed()));
        let begun = Instant::now();
        let outcome = measured(section.measure, limit.saturating_sub(start.elapsed())).await;
        let took = clock(begun.elapsed());
        match outcome {
            Ok(text) => {
                println!("{text}");
                out.map_or(Ok(()), |path| document::put(path, &text))?;
                rows.push(format!("{name}: measured in {took}"));
            }
            Err(error) => {
                eprintln!("section {name} FAILED after {took}: {error:#}");
                rows.push(format!("{name}: FAILED after {took}: {error:#}"));
                failed.push(name);
            }
        }
    }
    eprintln!("\n{}\nall: {}", rows.join("\n"), clock(start.elapsed()));
    Ok(failed)
}

/// What is dropped at the limit or by a panic stops the programs that it started.
async fn measured(measure: Measuring<'_>, limit: Duration) -> anyhow::Result<String> {
    match tokio::time::timeout(limit, AssertUnwindSafe(measure).catch_unwind()).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(anyhow!("it panicked; see above")),
        Err(_) => {
            Err(anyhow!("the time for all sections is over; allow more by --minutes, or measure it alone"))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a failure is a failed test")]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_section_that_fails_leaves_the_others_and_the_document_alone() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("benchmarks.md");
        document::put(&out, "## B\n\nearlier\n").unwrap();
        let sections = vec![
            Section::new("a", async { Ok("## A\n\n1\n".to_owned()) }),
            Section::new("b", async { Err(anyhow!("no database")) }),
            Section::new("c", async { panic!("refused") }),
            Section::new("d", async { Ok("## D\n\n4\n".to_owned()) }),
            Section::new("e", std::future::pending()),
            Section::new("f", async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok("## F\n".to_owned())
            }),
        ];
        let failed = run(sections, Duration::from_secs(60), Some(&out)).await.unwrap();
        assert_eq!(failed, ["b", "c", "e", "f"], "what comes after the limit is not measured");
        let text = std::fs::read_to_string(&out).unwrap();
        assert!(
            text.contains("## A\n\n1") && text.contains("## B\n\nearlier") && text.contains("## D\n\n4"),
            "{text}"
        );
    }
}

//! Links between documents resolve, and every document can be found.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Gate};
use crate::tree::Tree;

const ENTRANCES: [&str; 2] = ["README.md", "docs/README.md"];

pub struct DocsLinks;

impl Gate for DocsLinks {
    fn name(&self) -> &'static str {
        "docs-links"
    }

    fn holds(&self) -> &'static str {
        "every relative link and anchor in *.md resolves, and every file in docs/ is reachable from a README"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut pages = BTreeMap::new();
        for path in tree.files()?.iter().filter(|path| path.ends_with(".md")) {
            pages.insert(path.as_str(), Page::parse(&tree.read(path)?));
        }
        let mut found = Vec::new();
        let mut leads_to: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (path, page) in &pages {
            for (line, link) in &page.links {
                match resolve(tree, &pages, path, link) {
                    Ok(target) => drop(leads_to.entry(path).or_default().insert(target)),
                    Err(message) => {
                        found.push(Finding::at_line(path, *line, format!("link {link:?}: {message}")))
                    }
                }
            }
        }

        let mut reached: BTreeSet<String> = ENTRANCES.iter().map(|path| (*path).to_owned()).collect();
        let mut open: Vec<String> = reached.iter().cloned().collect();
        while let Some(path) = open.pop() {
            for target in leads_to.get(path.as_str()).into_iter().flatten() {
                // A link to a directory leads to its index.
                for target in [target.clone(), format!("{target}/README.md")] {
                    if reached.insert(target.clone()) {
                        open.push(target);
                    }
                }
            }
        }
        for path in tree.files()?.iter().filter(|path| path.starts_with("docs/") && !reached.contains(*path))
        {
            found.push(Finding::new(path, "no README leads here: link it from docs/README.md"));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let guide = "# The guide\n\n## How it's done: `make up`\n\n## Twice\n\n## Twice\n\n[up](../README.md#start-here) \
                     [root](/Makefile) [other][x] ![](picture.svg)\n\n[x]: <b.md>\n\n```\n[not](a-link.md)\n```\n\
                     and `[neither](this.md)`, nor https://example.com/x.md\n";
        let tree = FixtureTree::new(&[
            (
                "README.md",
                "# Product\n\n## Start here\n\n[a](docs/a.md#how-its-done-make-up) [b](docs/a.md#twice-1)\n",
            ),
            ("docs/a.md", guide),
            (
                "docs/b.md",
                "[web](https://example.com) [mail](mailto:a@example.com) [here](#there)\n\n# There\n",
            ),
            ("docs/picture.svg", "<svg/>"),
            ("Makefile", ""),
        ]);
        super::tests::Examples::good(tree)
            .bad("missing file", "docs/b.md:1: link \"c.md\"", |tree| tree.with("docs/b.md", "[c](c.md)\n"))
            .bad("missing anchor", "has no heading \"there\"", |tree| tree.with("docs/b.md", "[x](#there)\n"))
            .bad("missing anchor elsewhere", "has no heading \"nope\"", |tree| {
                tree.with("docs/b.md", "[x](a.md#nope)\n")
            })
            .bad("missing reference", "link \"gone.md\"", |tree| {
                tree.with("docs/b.md", "[x][y]\n\n[y]: gone.md\n")
            })
            .bad("out of the tree", "leaves the repository", |tree| {
                tree.with("docs/b.md", "[x](../../a.md)\n")
            })
            .bad("page nobody links to", "docs/c.md: no README leads here", |tree| {
                tree.with("docs/c.md", "# C\n")
            })
            .bad("image nobody links to", "docs/d.svg: no README leads here", |tree| {
                tree.with("docs/d.svg", "")
            })
    }
}

/// What links to headings of this page can name.
pub(super) fn anchors(text: &str) -> BTreeSet<String> {
    Page::parse(text).anchors
}

#[derive(Default)]
struct Page {
    /// Line and target of each link.
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let mut fence: Option<&str> = None;
        for (index, line) in text.lines().enumerate() {
            let trimmed = line.trim_start();
            let marker = ["```", "~~~"].into_iter().find(|marker| trimmed.starts_with(marker));
            if let Some(marker) = marker {
                match fence {
                    None => fence = Some(marker),
                    Some(open) if open == marker => fence = None,
                    Some(_) => {}
                }
                continue;
            }
            if fence.is_some() {
                continue;
            }
            let heading = trimmed.trim_start_matches('#');
            if heading.len() < trimmed.len() && heading.starts_with(' ') {
                page.add_anchor(&slug(heading.trim()));
            }
            for quote in ["id=\"", "name=\""] {
                let ids = trimmed.split(quote).skip(1).filter_map(|rest| rest.split('"').next());
                page.anchors.extend(ids.map(str::to_owned));
            }
            let plain = without_code_spans(line);
            page.links.extend(inline_links(&plain).into_iter().map(|link| (index + 1, link)));
            if let Some(target) = reference_target(&plain) {
                page.links.push((index + 1, target));
            }
        }
        page
    }

    /// A heading that is there already gets a number.
    fn add_anchor(&mut self, slug: &str) {
        let mut anchor = slug.to_owned();
        let mut number = 0;
        while !self.anchors.insert(anchor.clone()) {
            number += 1;
            anchor = format!("{slug}-{number}");
        }
    }
}

/// What a heading's anchor is called: lower case, spaces as dashes, punctuation gone.
fn slug(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    };
    heading.to_lowercase().chars().filter_map(kept).collect()
}

fn without_code_spans(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// `[text](target "title")`
fn inline_links(line: &str) -> Vec<String> {
    line.split("](").skip(1).filter_map(|rest| target_of(rest.split(')').next()?)).collect()
}

/// `[name]: target`
fn reference_target(line: &str) -> Option<String> {
    let (name, target) = line.trim_start().strip_prefix('[')?.split_once("]:")?;
    if name.contains(']') { None } else { target_of(target) }
}

fn target_of(text: &str) -> Option<String> {
    let target = text.split_whitespace().next()?.trim_matches(['<', '>']);
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    if target.is_empty() || elsewhere { None } else { Some(target.to_owned()) }
}

/// The path a link leads to, or what is wrong with it.
fn resolve(tree: &Tree, pages: &BTreeMap<&str, Page>, from: &str, link: &str) -> Result<String, String> {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let path = path.split('?').next().unwrap_or_default();
    let target = if path.is_empty() {
        from.to_owned()
    } else {
        let mut parts: Vec<&str> = match path.strip_prefix('/') {
            Some(_) => Vec::new(),
            None => from.split('/').collect(),
        };
        parts.pop();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop().ok_or("leaves the repository")?),
                part => parts.push(part),
            }
        }
        parts.join("/")
    };
    if !tree.exists(&target) {
        return Err(format!("there is no {target}"));
    }
    if let (Some(anchor), Some(page)) = (anchor, pages.get(target.as_str()))
        && !page.anchors.contains(anchor)
    {
        return Err(format!("{target} has no heading {anchor:?}"));
    }
    Ok(target)
}

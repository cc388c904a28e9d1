//! `docs/benchmarks.md`: one section per part; what was not measured this time stays.

use std::{fs, io, path::Path};

const HEAD: &str = "# Benchmarks\n\nWritten by `make bench`. Wall-clock rates swing with the machine; CPU per operation and ratios do not.\n";

/// Puts the section in the place of the one with the same heading, or at the end.
pub fn put(path: &Path, section: &str) -> anyhow::Result<()> {
    let before = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    fs::write(path, replaced(&before, section))?;
    Ok(())
}

fn heading(section: &str) -> &str {
    section.lines().next().unwrap_or_default()
}

fn replaced(document: &str, section: &str) -> String {
    let mut sections: Vec<String> =
        document.split("\n## ").skip(1).map(|part| format!("## {}\n", part.trim_end())).collect();
    match sections.iter_mut().find(|known| heading(known) == heading(section)) {
        Some(known) => section.clone_into(known),
        None => sections.push(section.to_owned()),
    }
    sections.iter().fold(HEAD.to_owned(), |all, section| all + "\n" + section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_takes_the_place_of_its_earlier_self_and_leaves_the_others() {
        let one = replaced("", "## A\n\n1\n");
        let two = replaced(&one, "## B\n\n2\n");
        assert_eq!(two, format!("{HEAD}\n## A\n\n1\n\n## B\n\n2\n"));
        assert_eq!(replaced(&two, "## A\n\n3\n"), format!("{HEAD}\n## A\n\n3\n\n## B\n\n2\n"));
        assert_eq!(replaced(&two, "## B\n\n2\n"), two);
    }
}

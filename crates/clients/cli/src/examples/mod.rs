//! Examples in the help of commands.
//!
//! One table, in the order of a story: `tests/it/examples.rs` runs every line of it against a real server, and a unit
//! test parses them.

pub mod lines;

use clap::Command;

pub use lines::EXAMPLES;

/// Adds the examples to the help of their commands.
pub fn attach(mut command: Command) -> Command {
    for (path, lines) in EXAMPLES {
        let words: Vec<&str> = path.split(' ').collect();
        let shown: String = lines.iter().map(|line| format!("  {}\n", for_people(line))).collect();
        command = at(command, &words, &format!("Examples:\n{}", shown.trim_end()));
    }
    command
}

fn at(command: Command, path: &[&str], text: &str) -> Command {
    match path.split_first() {
        Some((first, rest)) => command.mut_subcommand(*first, |sub| at(sub, rest, text)),
        None => command.after_help(text.to_owned()),
    }
}

/// `$NODE` and `$SKU` by what a reader would type.
fn for_people(line: &str) -> String {
    line.replace("$NODE", "gpu-01").replace("$SKU", "h200")
}

#[cfg(test)]
mod tests {
    use super::{lines::words, *};

    #[test]
    fn the_common_forty_commands_have_examples_that_are_command_lines() {
        assert!(EXAMPLES.len() >= 40, "{}", EXAMPLES.len());
        let command = crate::menu::command();
        for (path, lines) in EXAMPLES {
            let mut place = &command;
            for word in path.split(' ') {
                place = place.find_subcommand(word).unwrap_or_else(|| panic!("there is no command {path:?}"));
            }
            assert!(!lines.is_empty(), "{path}");
            for line in *lines {
                assert!(line.starts_with(&format!("gpuaas {path}")), "{line} does not show {path}");
                if let Err(error) = command.clone().try_get_matches_from(words(&for_people(line))) {
                    panic!("{line}: {error}");
                }
            }
        }
    }
}

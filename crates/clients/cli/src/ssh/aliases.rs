//! What people call machines in the command line of ssh: `NAME.gpuaas` where one machine has the name, and always
//! `NAME.PROJECT.gpuaas`. Where machines of several projects have the name, none of them gets the short one: ssh would take
//! the first that it finds, which may be the wrong machine.

use std::ops::Range;

/// Host names end in this: nothing in the world does.
const SUFFIX: &str = "gpuaas";
const BEGIN: &str = "# BEGIN gpuaas ";

pub fn short_alias(name: &str) -> String {
    format!("{name}.{SUFFIX}")
}

pub fn long_alias(name: &str, label: &str) -> String {
    format!("{name}.{label}.{SUFFIX}")
}

/// The first line of a section. The label is what the project is called in host names.
pub fn first_line(project: &str, label: &str) -> String {
    format!("{BEGIN}{project} {label} (written by `gpuaas ssh-config`; changes here are lost)")
}

/// How a section of the project begins, whatever its label is.
pub fn first_words(project: &str) -> String {
    format!("{BEGIN}{project} ")
}

pub fn last_line(project: &str) -> String {
    format!("# END gpuaas {project}")
}

/// A section that stands in a file, by its first and last line.
struct Standing {
    label: String,
    place: Range<usize>,
}

/// The whole sections in a part of a file. What has no end is nobody's.
fn sections(file: &[u8]) -> Vec<Standing> {
    let (mut found, mut open, mut at) = (Vec::new(), None::<(String, String, usize)>, 0);
    for line in file.split_inclusive(|byte| *byte == b'\n') {
        let text = str::from_utf8(line).unwrap_or_default().trim_end();
        if let Some(rest) = text.strip_prefix(BEGIN) {
            let mut words = rest.split(' ');
            let project = words.next().unwrap_or_default();
            // Earlier versions wrote no label.
            let label = words.next().filter(|word| !word.starts_with('(')).unwrap_or(project);
            open = Some((last_line(project), label.to_owned(), at));
        } else if let Some((_, label, start)) = open.take_if(|(last, ..)| text == last.as_str()) {
            found.push(Standing { label, place: start..at + line.len() });
        }
        at += line.len();
    }
    found
}

/// The names of a line `Host NAME NAME`, if it is one for certain machines.
fn host_names(line: &[u8]) -> Option<Vec<&str>> {
    let names = str::from_utf8(line).ok()?.trim_end().strip_prefix("Host ")?;
    Some(names.split(' ').collect()).filter(|names: &Vec<&str>| names != &["*"])
}

/// The sections of other projects in the same file.
pub struct Others<'a> {
    parts: [&'a [u8]; 2],
}

impl<'a> Others<'a> {
    /// What stands before and behind the own section.
    pub const fn new(before: &'a [u8], behind: &'a [u8]) -> Self {
        Self { parts: [before, behind] }
    }

    /// Whether a section has a machine of this name.
    pub fn have_name(&self, name: &str) -> bool {
        self.parts.iter().any(|part| {
            sections(part).into_iter().any(|section| {
                let taken = [short_alias(name), long_alias(name, &section.label)];
                let lines = part[section.place].split(|byte| *byte == b'\n');
                lines.filter_map(host_names).flatten().any(|host| taken.iter().any(|taken| taken == host))
            })
        })
    }

    /// Whether a section has this label.
    pub fn have_label(&self, label: &str) -> bool {
        self.parts.iter().any(|part| sections(part).iter().any(|section| section.label == label))
    }

    /// Both parts, without these short names in the sections.
    pub fn without_short(&self, names: &[&str]) -> [Vec<u8>; 2] {
        self.parts.map(|part| {
            let (mut text, mut at) = (Vec::with_capacity(part.len()), 0);
            for Standing { label, place } in sections(part) {
                text.extend_from_slice(&part[at..place.start]);
                at = place.end;
                for line in part[place].split_inclusive(|byte| *byte == b'\n') {
                    match host_names(line) {
                        Some(hosts) => text.extend(host_line(&hosts, names, &label).bytes()),
                        None => text.extend_from_slice(line),
                    }
                }
            }
            text.extend_from_slice(&part[at..]);
            text
        })
    }
}

/// The line without short names of `names`; a machine that has only that gets its long one.
fn host_line(hosts: &[&str], names: &[&str], label: &str) -> String {
    let mut kept: Vec<String> = Vec::new();
    for host in hosts {
        let shared = names.iter().find(|name| short_alias(name) == *host);
        let alias = shared.map_or_else(|| (*host).to_owned(), |name| long_alias(name, label));
        if !kept.contains(&alias) {
            kept.push(alias);
        }
    }
    format!("Host {}\n", kept.join(" "))
}

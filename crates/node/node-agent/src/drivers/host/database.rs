//! The machine's account files, read as they are. The agent is one static program, so it asks no name service:
//! what counts for these accounts is what is in the files.

use std::path::Path;

use crate::drivers::{Done, DriverError, files::read_bounded};

const FILE_BYTES: usize = 16 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passwd {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub gecos: String,
    pub home: String,
    pub shell: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    pub gid: u32,
}

fn lines(root: &Path, file: &str) -> Done<Vec<Vec<String>>> {
    let path = root.join("etc").join(file);
    let (bytes, more) = match read_bounded(&path, FILE_BYTES) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other
            .map_err(|error| DriverError::failed(format!("{} cannot be read: {error}", path.display())))?,
    };
    if more {
        return Err(DriverError::failed(format!("{} is larger than 16 MiB", path.display())));
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().map(|line| line.split(':').map(str::to_owned).collect()).collect())
}

/// A line that cannot be read is nobody's account.
pub fn accounts(root: &Path) -> Done<Vec<Passwd>> {
    let entry = |fields: Vec<String>| {
        let [name, _, uid, gid, gecos, home, shell]: [String; 7] = fields.try_into().ok()?;
        Some(Passwd { name, uid: uid.parse().ok()?, gid: gid.parse().ok()?, gecos, home, shell })
    };
    Ok(lines(root, "passwd")?.into_iter().filter_map(entry).collect())
}

pub fn groups(root: &Path) -> Done<Vec<Group>> {
    let entry = |fields: Vec<String>| {
        let [name, _, gid, _]: [String; 4] = fields.try_into().ok()?;
        Some(Group { name, gid: gid.parse().ok()? })
    };
    Ok(lines(root, "group")?.into_iter().filter_map(entry).collect())
}

/// Files of accounts in which `name` has a line.
pub fn mentions(root: &Path, name: &str) -> Done<Vec<&'static str>> {
    let mut found = Vec::new();
    for file in ["passwd", "shadow", "group", "gshadow", "subuid", "subgid"] {
        if lines(root, file)?.iter().any(|fields| fields.first().is_some_and(|first| first == name)) {
            found.push(file);
        }
    }
    Ok(found)
}

/// The ranges of ids that the account may use inside containers, unless somebody else may too.
pub fn subordinate_ids(root: &Path, name: &str) -> Done<Vec<(u32, u32)>> {
    let entry = |fields: &Vec<String>| {
        let [who, first, count] = fields.as_slice() else { return None };
        let (first, count) = (first.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
        Some((who.clone(), first, first.checked_add(count.checked_sub(1)?)?))
    };
    let all: Vec<_> = lines(root, "subuid")?.iter().filter_map(entry).collect();
    let clear = |first: u32, last: u32| {
        first >= super::check::FIRST_ID
            && !all.iter().any(|(who, from, to)| who != name && *from <= last && first <= *to)
    };
    let mine = all.iter().filter(|(who, first, last)| who == name && clear(*first, *last));
    Ok(mine.map(|(_, first, last)| (*first, *last)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_files_are_read_and_odd_lines_passed_over() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let write =
            |file: &str, text: &str| std::fs::write(root.path().join("etc").join(file), text).unwrap();
        write(
            "passwd",
            "root:x:0:0:root:/root:/bin/bash\n\n# odd\na:x:nan:1::/:/\nb:x:20001:20001:gpuaas al:/home/b:/bin/sh\n",
        );
        write("group", "root:x:0:\nb:x:20001:\nodd\n");
        write("subuid", "b:100000:65536\nc:165536:65536\nd:165600:10\n");
        let accounts = accounts(root.path()).unwrap();
        assert_eq!(accounts.len(), 2);
        assert_eq!(accounts[1].gecos, "gpuaas al");
        assert_eq!(groups(root.path()).unwrap().len(), 2);
        assert_eq!(mentions(root.path(), "b").unwrap(), ["passwd", "group", "subuid"]);
        assert_eq!(subordinate_ids(root.path(), "b").unwrap(), [(100_000, 165_535)]);
        assert!(subordinate_ids(root.path(), "c").unwrap().is_empty(), "shared with d");
    }
}

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

/// A range of ids, both ends included.
pub type Range = (u32, u32);

/// Whose ranges of ids there are for use inside containers.
fn ranges(root: &Path, file: &str) -> Done<Vec<(String, Range)>> {
    let entry = |fields: &Vec<String>| {
        let [who, first, count] = fields.as_slice() else { return None };
        let (first, count) = (first.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
        Some((who.clone(), (first, first.checked_add(count.checked_sub(1)?)?)))
    };
    Ok(lines(root, file)?.iter().filter_map(entry).collect())
}

fn within((first, last): Range, id: u32) -> bool {
    (first..=last).contains(&id)
}

/// The ranges of ids that the account may use inside containers, and those that are remembered of it; unless
/// somebody else may use them too by now, or has an account in them.
pub fn subordinate_ids(root: &Path, name: &str, remembered: &[Range]) -> Done<Vec<Range>> {
    let (all, accounts) = (ranges(root, "subuid")?, accounts(root)?);
    let clear = |range: Range| {
        range.0 >= super::check::FIRST_ID
            && !all.iter().any(|(who, other)| who != name && other.0 <= range.1 && range.0 <= other.1)
            && !accounts.iter().any(|account| account.name != name && within(range, account.uid))
    };
    let listed = all.iter().filter(|(who, _)| who == name).map(|(_, range)| *range);
    let mut mine: Vec<Range> =
        listed.chain(remembered.iter().copied()).filter(|range| clear(*range)).collect();
    mine.sort_unstable();
    mine.dedup();
    Ok(mine)
}

/// Who may use this uid or gid inside containers, other than the account itself.
pub fn mapped_by(root: &Path, name: &str, (uid, gid): (u32, u32)) -> Done<Option<String>> {
    for (file, id) in [("subuid", uid), ("subgid", gid)] {
        let other = ranges(root, file)?.into_iter().find(|(who, range)| who != name && within(*range, id));
        if let Some((who, _)) = other {
            return Ok(Some(who));
        }
    }
    Ok(None)
}

/// Ranges of the account's, by their file, in which others have accounts or groups: in its containers it would be
/// them.
pub fn ranges_over_others(root: &Path, name: &str) -> Done<Vec<(&'static str, Range)>> {
    let uids: Vec<u32> = accounts(root)?.iter().filter(|a| a.name != name).map(|a| a.uid).collect();
    let gids: Vec<u32> = groups(root)?.iter().filter(|g| g.name != name).map(|g| g.gid).collect();
    let mut found = Vec::new();
    for (file, ids) in [("subuid", uids), ("subgid", gids)] {
        let mine = ranges(root, file)?.into_iter().filter(|(who, _)| who == name).map(|(_, range)| range);
        found
            .extend(mine.filter(|range| ids.iter().any(|id| within(*range, *id))).map(|range| (file, range)));
    }
    Ok(found)
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
        assert_eq!(subordinate_ids(root.path(), "b", &[]).unwrap(), [(100_000, 165_535)]);
        assert!(subordinate_ids(root.path(), "c", &[]).unwrap().is_empty(), "shared with d");
    }

    #[test]
    fn ids_of_containers_and_of_accounts_are_kept_apart() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let write =
            |file: &str, text: &str| std::fs::write(root.path().join("etc").join(file), text).unwrap();
        write("passwd", "b:x:20001:20001::/home/b:/bin/sh\nc:x:100005:100005::/home/c:/bin/sh\n");
        write("group", "b:x:20001:\nc:x:100005:\n");
        write("subuid", "b:100000:65536\nc:165536:65536\n");
        write("subgid", "b:100000:65536\n");
        let root = root.path();
        // What is removed with b must not be c's.
        assert!(subordinate_ids(root, "b", &[]).unwrap().is_empty());
        assert_eq!(
            subordinate_ids(root, "a", &[(300_000, 300_009), (170_000, 170_009)]).unwrap(),
            [(300_000, 300_009)]
        );
        let over = (100_000, 165_535);
        assert_eq!(ranges_over_others(root, "b").unwrap(), [("subuid", over), ("subgid", over)]);
        assert!(ranges_over_others(root, "c").unwrap().is_empty());
        assert_eq!(mapped_by(root, "d", (100_006, 20_002)).unwrap().as_deref(), Some("b"));
        assert_eq!(mapped_by(root, "d", (20_002, 100_006)).unwrap().as_deref(), Some("b"));
        assert_eq!(mapped_by(root, "b", (100_006, 100_006)).unwrap(), None);
        assert_eq!(mapped_by(root, "d", (20_002, 20_002)).unwrap(), None);
    }
}

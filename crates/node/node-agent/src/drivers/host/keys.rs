//! The managed block in `~/.ssh/authorized_keys`.
//!
//! The directory is its user's, who may put anything there at any time. So no path is looked up twice: the home
//! is opened once, everything below it relative to what is open, and no link is followed. What is read must
//! belong to the user; what is written is a new file that takes the place of the old one.

use std::{io::Write as _, os::fd::AsFd};

use node_proto::contract::FailureCode;
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid},
    io::Errno,
};

use crate::drivers::{Done, DriverError};

const FILE: &str = "authorized_keys";
const TEMPORARY: &str = ".authorized_keys.gpuaas";
const FILE_BYTES: usize = 1024 * 1024;

/// Puts the keys into the managed block of the account whose home is open as `home`. True: something changed.
pub fn install(
    home: impl AsFd,
    (uid, gid): (u32, u32),
    owner: &str,
    keys: &[String],
    previous: &[String],
) -> Done<bool> {
    let failed = |what: &str, error: Errno| {
        let advice = match error {
            Errno::LOOP | Errno::NOTDIR => ": it must be a plain directory or file, not a link",
            _ => "",
        };
        DriverError::new(FailureCode::Driver, format!("{what}: {error}{advice}"))
    };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::openat(&home, ".ssh", flags, Mode::empty()) {
        Err(Errno::NOENT) if keys.is_empty() => return Ok(false),
        Err(Errno::NOENT) => {
            rustix::fs::mkdirat(&home, ".ssh", Mode::RWXU).map_err(|e| failed("~/.ssh cannot be made", e))?;
            rustix::fs::openat(&home, ".ssh", flags, Mode::empty())
                .map_err(|e| failed("~/.ssh cannot be opened", e))?
        }
        other => other.map_err(|e| failed("~/.ssh cannot be opened", e))?,
    };
    let stat = rustix::fs::fstat(&dir).map_err(|e| failed("~/.ssh", e))?;
    if stat.st_uid != uid && stat.st_uid != 0 {
        return Err(DriverError::failed("~/.ssh belongs to another user; remove it and try again"));
    }
    let old = read(&dir, uid)?;
    if stat.st_uid == 0 && old.is_none() {
        // Just made, or made before a crash.
        own(&dir, uid, gid).map_err(|e| failed("~/.ssh cannot be given to its user", e))?;
    }
    let new = merge(old.as_deref().unwrap_or_default(), owner, keys, previous);
    if new == old.as_deref().unwrap_or_default() {
        return Ok(false);
    }
    let _ = rustix::fs::unlinkat(&dir, TEMPORARY, AtFlags::empty());
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&dir, TEMPORARY, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|e| failed("the keys cannot be written", e))?;
    let mut file = std::fs::File::from(file);
    file.write_all(&new)
        .and_then(|()| Ok(own(&file, uid, gid)?))
        .and_then(|()| file.sync_all())
        .map_err(|error| DriverError::failed(format!("the keys cannot be written: {error}")))?;
    rustix::fs::renameat(&dir, TEMPORARY, &dir, FILE)
        .map_err(|e| failed("the keys cannot be put in place", e))?;
    rustix::fs::fsync(&dir).map_err(|e| failed("~/.ssh cannot be written", e))?;
    Ok(true)
}

/// Whether the owner's block is in the account's file. Only a plain file in a plain directory is opened: a user may
/// have put a link to a device there, and opening some of those has effects.
pub fn has_block(home: impl AsFd, owner: &str) -> bool {
    let mark = format!("# BEGIN gpuaas {owner}");
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(dir) = rustix::fs::openat(home, ".ssh", flags, Mode::empty()) else { return false };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(dir, FILE, flags, Mode::empty()) else { return false };
    let plain = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !rustix::fs::fstat(&file).is_ok_and(plain) {
        return false;
    }
    let limit = u64::try_from(FILE_BYTES).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let read =
        std::io::Read::read_to_end(&mut std::io::Read::take(std::fs::File::from(file), limit), &mut bytes);
    read.is_ok() && bytes.split(|byte| *byte == b'\n').any(|line| line.trim_ascii_end() == mark.as_bytes())
}

pub fn own(fd: impl AsFd, uid: u32, gid: u32) -> rustix::io::Result<()> {
    rustix::fs::fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

/// The file as it is, if there is one. A second name of somebody else's file is not read: its content would
/// end up in a file of the user's.
fn read(dir: impl AsFd, uid: u32) -> Done<Option<Vec<u8>>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, FILE, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => {
            return Err(DriverError::failed(
                "~/.ssh/authorized_keys is a link; its user must make it a plain file",
            ));
        }
        other => other.map_err(|error| {
            DriverError::failed(format!("~/.ssh/authorized_keys cannot be opened: {error}"))
        })?,
    };
    let odd = || {
        DriverError::failed(
            "~/.ssh/authorized_keys is not a plain file of its user's; remove it and try again",
        )
    };
    let stat = rustix::fs::fstat(&file).map_err(|_| odd())?;
    let theirs = stat.st_uid == uid || (stat.st_uid == 0 && stat.st_nlink == 1);
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || !theirs {
        return Err(odd());
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(FILE_BYTES).unwrap_or(u64::MAX);
    std::io::Read::read_to_end(&mut std::io::Read::take(std::fs::File::from(file), limit + 1), &mut bytes)
        .map_err(|error| DriverError::failed(format!("~/.ssh/authorized_keys cannot be read: {error}")))?;
    if bytes.len() > FILE_BYTES {
        return Err(DriverError::failed("~/.ssh/authorized_keys is larger than 1 MiB"));
    }
    Ok(Some(bytes))
}

/// The file's new content: other lines as they were, and the keys between two marks where they were before, or
/// at the end. When its user took away the closing mark, the block ends at the first line that was not in it.
fn merge(old: &[u8], owner: &str, keys: &[String], previous: &[String]) -> Vec<u8> {
    let (begin, end) = (format!("# BEGIN gpuaas {owner}"), format!("# END gpuaas {owner}"));
    let lines: Vec<&[u8]> = old.split_inclusive(|byte| *byte == b'\n').collect();
    let is = |line: &[u8], text: &str| line.trim_ascii_end() == text.as_bytes();
    let (mut kept, mut place): (Vec<&[u8]>, Option<usize>) = (Vec::new(), None);
    let mut rest = lines.as_slice();
    while let Some((line, after)) = rest.split_first() {
        rest = after;
        if is(line, &begin) {
            place.get_or_insert(kept.len());
            let marks = after.iter().position(|line| is(line, &begin) || is(line, &end));
            let inside = match marks {
                Some(at) if after.get(at).is_some_and(|line| is(line, &end)) => at + 1,
                _ => after.iter().take_while(|line| previous.iter().any(|key| is(line, key))).count(),
            };
            rest = after.get(inside..).unwrap_or_default();
        } else if !is(line, &end) {
            kept.push(line);
        }
    }
    if keys.is_empty() {
        return kept.concat();
    }
    let place = place.unwrap_or(kept.len()).min(kept.len());
    let (before, after) = kept.split_at(place);
    let mut new = before.concat();
    if new.last().is_some_and(|byte| *byte != b'\n') {
        new.push(b'\n');
    }
    for line in [&begin].into_iter().chain(keys).chain([&end]) {
        new.extend_from_slice(line.as_bytes());
        new.push(b'\n');
    }
    new.extend(after.concat());
    new
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn merged(old: &str, keys: &[&str], previous: &[&str]) -> String {
        let own = |keys: &[&str]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        String::from_utf8(merge(old.as_bytes(), "a1", &own(keys), &own(previous))).unwrap()
    }

    #[test]
    fn a_block_is_told_by_its_whole_line_in_a_plain_file() {
        let home = tempfile::tempdir().unwrap();
        let found = |owner: &str| has_block(std::fs::File::open(home.path()).unwrap(), owner);
        assert!(!found("a1"));
        let dir = home.path().join(".ssh");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("elsewhere"), "x\n# BEGIN gpuaas a12\n").unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.join(FILE)).unwrap();
        assert!(!found("a12"), "a link is not followed");
        std::fs::rename(dir.join("elsewhere"), dir.join(FILE)).unwrap();
        assert!(found("a12") && !found("a1"));
    }

    #[test]
    fn the_block_is_replaced_where_it_is_and_nothing_else_changes() {
        let old = "mine 1\n# BEGIN gpuaas a1\nk1\nk2\n# END gpuaas a1\nmine 2";
        assert_eq!(merged(old, &["k3"], &[]), "mine 1\n# BEGIN gpuaas a1\nk3\n# END gpuaas a1\nmine 2");
        assert_eq!(merged(old, &[], &[]), "mine 1\nmine 2");
        assert_eq!(merged("mine", &["k"], &[]), "mine\n# BEGIN gpuaas a1\nk\n# END gpuaas a1\n");
        assert_eq!(merged("", &[], &[]), "");
    }

    #[test]
    fn a_block_without_its_end_loses_only_what_was_in_it() {
        let old = "# BEGIN gpuaas a1\nk1\nk2\nmine\n";
        assert_eq!(merged(old, &["k3"], &["k1", "k2"]), "# BEGIN gpuaas a1\nk3\n# END gpuaas a1\nmine\n");
        assert_eq!(merged(old, &[], &["k1", "k2"]), "mine\n");
        let twice = "# BEGIN gpuaas a1\nk1\n# BEGIN gpuaas a1\nk1\n# END gpuaas a1\nmine\n# END gpuaas a1\n";
        assert_eq!(merged(twice, &[], &["k1"]), "mine\n");
        assert_eq!(
            merged("# BEGIN gpuaas b2\nk\n# END gpuaas b2\n", &[], &[]),
            "# BEGIN gpuaas b2\nk\n# END gpuaas b2\n"
        );
    }

    fn line() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("# BEGIN gpuaas a1".to_owned()),
            Just("# END gpuaas a1".to_owned()),
            Just("# BEGIN gpuaas b2".to_owned()),
            "[a-z ]{0,8}",
        ]
    }

    proptest! {
        #[test]
        fn doing_it_again_changes_nothing_and_undoing_it_leaves_the_others(
            lines in prop::collection::vec(line(), 0..12),
            keys in prop::collection::vec("key [A-Z]{4}", 1..4),
        ) {
            let old = lines.join("\n");
            let once = merge(old.as_bytes(), "a1", &keys, &[]);
            prop_assert_eq!(&merge(&once, "a1", &keys, &[]), &once);
            let empty = merge(&once, "a1", &[], &keys);
            let text = String::from_utf8(empty).unwrap();
            prop_assert!(!text.contains("gpuaas a1") && !text.contains("key "));
            // Only lines between two marks may be gone.
            let mut inside = false;
            let mut at = text.lines();
            for (n, line) in lines.iter().enumerate() {
                match line.as_str() {
                    "# BEGIN gpuaas a1" => {
                        let next = lines[n + 1..].iter().find(|line| line.ends_with("gpuaas a1"));
                        inside = next.is_some_and(|line| line.starts_with("# END"));
                    }
                    "# END gpuaas a1" => inside = false,
                    other if !inside => {
                        let found = at.next();
                        prop_assert!(found == Some(other) || (found.is_none() && other.is_empty()));
                    }
                    _ => {}
                }
            }
        }
    }
}

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use tempfile::TempDir;
use trust::signer::{CustodyError, FileCustody, KeyCustody, KeysetKey};

fn signed_by(key: &[u8], bytes: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(bytes, signature).is_ok()
}

fn fresh() -> (TempDir, FileCustody) {
    let home = tempfile::tempdir().unwrap();
    let custody = FileCustody::open(home.path().join("secrets/task-signing")).unwrap();
    (home, custody)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn signatures_verify_with_the_public_key_of_their_version_and_survive_a_restart() {
    let (home, custody) = fresh();
    let (first, second) = (custody.generate(1).unwrap(), custody.generate(2).unwrap());
    assert_ne!(first, second);
    assert_eq!(custody.generate(1).unwrap(), first, "making it again finds it");
    assert!(signed_by(&first, b"work", &custody.sign(1, b"work").unwrap()));
    assert!(!signed_by(&second, b"work", &custody.sign(1, b"work").unwrap()));
    let again = FileCustody::open(home.path().join("secrets/task-signing")).unwrap();
    assert!(signed_by(&second, b"work", &again.sign(2, b"work").unwrap()));
    assert_eq!(again.keyset_public(), custody.keyset_public());
    let list = again.sign_keyset(1, b"list").unwrap();
    assert!(signed_by(&custody.keyset_public(), b"list", &list));
}

#[test]
fn nobody_else_can_read_what_is_kept() {
    let (home, custody) = fresh();
    custody.generate(1).unwrap();
    custody.sign_keyset(3, b"list").unwrap();
    let directory = home.path().join("secrets/task-signing");
    assert_eq!(mode(&directory), 0o700);
    let mut names: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["keyset.pk8", "keyset.pub", "keyset.serial", "signer-1.pk8"], "no drafts are left");
    for name in ["keyset.pk8", "keyset.serial", "signer-1.pk8"] {
        assert_eq!(mode(&directory.join(name)), 0o600, "{name}");
    }
}

#[test]
fn wider_permissions_and_links_are_refused_with_what_to_run() {
    let (home, custody) = fresh();
    custody.generate(1).unwrap();
    let directory = home.path().join("secrets/task-signing");
    let refused = || FileCustody::open(&directory).err().unwrap();
    set_mode(&directory, 0o750);
    assert!(matches!(refused(), CustodyError::Permissions { wanted: 0o700, .. }));
    assert!(refused().to_string().contains(&format!("chmod 700 {}", directory.display())), "{}", refused());
    set_mode(&directory, 0o700);
    let key = directory.join("keyset.pk8");
    set_mode(&key, 0o640);
    assert!(matches!(refused(), CustodyError::Permissions { wanted: 0o600, .. }));
    set_mode(&key, 0o600);

    let signer = directory.join("signer-1.pk8");
    set_mode(&signer, 0o604);
    let opened = FileCustody::open(&directory).unwrap();
    assert!(matches!(opened.sign(1, b"work"), Err(CustodyError::Permissions { .. })));
    fs::rename(&signer, home.path().join("elsewhere")).unwrap();
    set_mode(&home.path().join("elsewhere"), 0o600);
    symlink(home.path().join("elsewhere"), &signer).unwrap();
    assert!(matches!(opened.sign(1, b"work"), Err(CustodyError::Io { .. })), "links are not followed");
}

#[test]
fn what_belongs_to_somebody_else_is_refused() {
    let refused = if nix::unistd::geteuid().is_root() {
        let (home, _) = fresh();
        let directory = home.path().join("secrets/task-signing");
        nix::unistd::chown(&directory, Some(12345.into()), None).unwrap();
        FileCustody::open(&directory).err().unwrap()
    } else {
        FileCustody::open("/").err().unwrap()
    };
    assert!(matches!(refused, CustodyError::Owner { .. }), "{refused}");
}

#[test]
fn a_destroyed_or_damaged_key_signs_nothing() {
    let (home, custody) = fresh();
    let before = custody.generate(1).unwrap();
    custody.destroy(1).unwrap();
    custody.destroy(1).unwrap();
    assert!(matches!(custody.sign(1, b"work"), Err(CustodyError::Missing(1))));
    assert_ne!(custody.generate(1).unwrap(), before);
    let path = home.path().join("secrets/task-signing/signer-2.pk8");
    fs::write(&path, b"not a key").unwrap();
    set_mode(&path, 0o600);
    assert!(matches!(custody.sign(2, b"work"), Err(CustodyError::Content { .. })));
    assert!(
        matches!(custody.generate(2), Err(CustodyError::Content { .. })),
        "it is not replaced in silence"
    );
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    assert!(matches!(custody.sign(2, b"work"), Err(CustodyError::Content { .. })));
}

#[test]
fn the_public_half_is_enough_for_whoever_only_checks() {
    let (home, custody) = fresh();
    let path = home.path().join("secrets/task-signing/keyset.pub");
    let copy = home.path().join("keyset.pub");
    fs::copy(&path, &copy).unwrap();
    let key = KeysetKey::load(&copy).unwrap();
    assert_eq!(key.bytes(), custody.keyset_public());
    assert_eq!(fs::read_to_string(&copy).unwrap().trim(), key.hex());
    assert_eq!(KeysetKey::from_custody(&custody), key);
    set_mode(&copy, 0o666);
    assert!(
        matches!(KeysetKey::load(&copy), Err(CustodyError::Permissions { .. })),
        "others could have written it"
    );
    set_mode(&copy, 0o644);
    for bad in ["", "zz", &"g".repeat(64), &"a".repeat(63), &"ü".repeat(32)] {
        fs::write(&copy, bad).unwrap();
        assert!(matches!(KeysetKey::load(&copy), Err(CustodyError::Content { .. })), "{bad}");
    }
    assert!(KeysetKey::load(home.path().join("none")).is_err());
    fs::write(&path, "0".repeat(64)).unwrap();
    let exchanged = FileCustody::open(home.path().join("secrets/task-signing")).err().unwrap();
    assert!(matches!(exchanged, CustodyError::Content { .. }), "{exchanged}");
}

#[test]
fn the_highest_serial_is_remembered() {
    let (home, custody) = fresh();
    assert_eq!(custody.highest_serial().unwrap(), 0);
    for (serial, highest) in [(1, 1), (5, 5), (3, 5)] {
        custody.sign_keyset(serial, b"list").unwrap();
        assert_eq!(custody.highest_serial().unwrap(), highest);
    }
    let again = FileCustody::open(home.path().join("secrets/task-signing")).unwrap();
    assert_eq!(again.highest_serial().unwrap(), 5);
}

#[test]
fn processes_that_start_together_agree_on_one_key() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("keys");
    let start = std::sync::Barrier::new(8);
    let keys: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let custody = FileCustody::open(&directory).unwrap();
                    (custody.keyset_public(), custody.generate(1).unwrap())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(keys.iter().all(|pair| *pair == keys[0]));
}

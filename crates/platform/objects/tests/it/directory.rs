//! Objects in a directory.

use std::os::unix::fs::PermissionsExt as _;

use objects::{ObjectError, Objects};

use crate::behaviour::{
    key, objects_are_written_once_read_listed_and_deleted, of_many_writers_of_one_key_one_succeeds,
    what_is_too_large_is_refused,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_behaves() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("data/objects");
    let objects = Objects::in_directory(root.clone());
    assert!(!root.exists());
    objects_are_written_once_read_listed_and_deleted(&objects).await;
    assert_eq!(std::fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
    of_many_writers_of_one_key_one_succeeds(&objects).await;
    what_is_too_large_is_refused(&objects).await;
    assert!(root.join("race/object").is_file());
}

#[tokio::test]
async fn a_directory_that_is_gone_is_an_error_and_not_an_absent_object() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = Objects::in_directory(file.join("below")).get(&key("a")).await;
    assert!(matches!(refused, Err(ObjectError::Directory(_))), "{refused:?}");
    let root = scratch.path().join("objects");
    let objects = Objects::in_directory(root.clone());
    assert_eq!(objects.get(&key("a")).await.unwrap(), None);
    std::fs::remove_dir(&root).unwrap();
    std::fs::write(&root, "").unwrap();
    let refused = objects.put_new(&key("a/b"), "x".into()).await;
    assert!(matches!(refused, Err(ObjectError::Failed(_))), "{refused:?}");
}

#[tokio::test]
async fn what_a_dead_process_was_writing_goes_with_the_objects_around_it() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("objects");
    let objects = Objects::in_directory(root.clone());
    for name in ["a/one/0", "a/two/0"] {
        objects.put_new(&key(name), "x".into()).await.unwrap();
        // As `object_store` names a file that is not an object yet.
        std::fs::write(root.join(format!("{name}#1")), "unfinished").unwrap();
    }
    objects.staged_remove(&key("a/one")).await.unwrap();
    assert!(!root.join("a/one/0#1").exists() && root.join("a/one/0").exists());
    objects.staged_remove(&key("a/none")).await.unwrap();
    std::fs::write(root.join("a/one/0#1"), "unfinished").unwrap();
    assert_eq!(objects.delete_below(&key("a/one")).await.unwrap(), 1);
    assert!(!root.join("a/one").exists());
    assert!(root.join("a/two/0#1").exists() && root.join("a/two/0").exists());
    // Nothing but such a file is left of it.
    std::fs::remove_file(root.join("a/two/0")).unwrap();
    assert_eq!(objects.delete_below(&key("a/two")).await.unwrap(), 0);
    assert!(!root.join("a/two").exists());
}

#[tokio::test]
async fn nobody_but_who_compares_it_uses_a_storage_that_is_held() {
    let scratch = tempfile::tempdir().unwrap();
    let objects = Objects::in_directory(scratch.path().join("objects"));
    let (one, other) = (key("a/one"), key("a/other"));
    objects.put_new(&one, "x".into()).await.unwrap();
    let same = objects.clone();
    objects.hold();
    assert!(matches!(same.put_new(&other, "x".into()).await, Err(ObjectError::Held)));
    // Absent would be another answer.
    assert!(matches!(same.get(&one).await, Err(ObjectError::Held)));
    assert!(matches!(same.exists(&other).await, Err(ObjectError::Held)));
    assert!(matches!(same.list(&key("a"), 1).await, Err(ObjectError::Held)));
    assert!(matches!(same.delete_below(&key("a")).await, Err(ObjectError::Held)));
    assert!(matches!(same.staged_remove(&key("a")).await, Err(ObjectError::Held)));
    assert!(objects.ignoring_hold().get(&one).await.unwrap().is_some());
    objects.release();
    same.put_new(&other, "x".into()).await.unwrap();
    assert!(same.get(&one).await.unwrap().is_some());
}

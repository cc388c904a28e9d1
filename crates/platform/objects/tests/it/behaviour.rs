//! What holds wherever objects are.

use bytes::Bytes;
use objects::{LARGEST, ObjectError, ObjectKey, Objects};

pub fn key(text: &str) -> ObjectKey {
    ObjectKey::new(text.split('/')).unwrap()
}

pub async fn objects_are_written_once_read_listed_and_deleted(objects: &Objects) {
    let (first, second) = (key("recordings/org_a/term_1/00000000"), key("recordings/org_a/term_1/00000001"));
    let other = key("recordings/org_a/term_10/00000000");
    assert_eq!(objects.get(&first).await.unwrap(), None);
    assert!(!objects.exists(&first).await.unwrap());
    for (key, content) in [(&first, "one"), (&second, "two"), (&other, "other")] {
        objects.put_new(key, Bytes::from(content)).await.unwrap();
    }
    assert_eq!(objects.get(&first).await.unwrap().as_deref(), Some(&b"one"[..]));
    assert!(objects.exists(&first).await.unwrap());

    // A repetition is no conflict; another content is one, and changes nothing.
    objects.put_new(&first, Bytes::from("one")).await.unwrap();
    let refused = objects.put_new(&first, Bytes::from("forged")).await;
    assert!(matches!(refused, Err(ObjectError::AlreadyExists)), "{refused:?}");
    assert_eq!(objects.get(&first).await.unwrap().as_deref(), Some(&b"one"[..]));

    let session = key("recordings/org_a/term_1");
    let mut listed: Vec<String> =
        objects.list(&session, 10).await.unwrap().iter().map(ToString::to_string).collect();
    listed.sort();
    assert_eq!(listed, [first.to_string(), second.to_string()]);
    assert_eq!(objects.list(&session, 1).await.unwrap().len(), 1);

    assert_eq!(objects.delete_below(&session).await.unwrap(), 2);
    assert_eq!(objects.delete_below(&session).await.unwrap(), 0);
    assert_eq!(objects.get(&first).await.unwrap(), None);
    // A name that only begins alike is not below it.
    assert_eq!(objects.get(&other).await.unwrap().as_deref(), Some(&b"other"[..]));
}

pub async fn of_many_writers_of_one_key_one_succeeds(objects: &Objects) {
    let raced = key("race/object");
    let writers = (0..16u8).map(|writer| {
        let (objects, raced) = (objects.clone(), raced.clone());
        tokio::spawn(async move { (writer, objects.put_new(&raced, Bytes::from(vec![writer; 1000])).await) })
    });
    let mut winners = Vec::new();
    for written in writers.collect::<Vec<_>>() {
        match written.await.unwrap() {
            (writer, Ok(())) => winners.push(writer),
            (_, Err(ObjectError::AlreadyExists)) => {}
            (writer, Err(error)) => panic!("writer {writer}: {error:?}"),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(objects.get(&raced).await.unwrap().as_deref(), Some(&[winners[0]; 1000][..]));
}

pub async fn what_is_too_large_is_refused(objects: &Objects) {
    let large = Bytes::from(vec![0; LARGEST + 1]);
    let refused = objects.put_new(&key("large"), large).await;
    assert!(matches!(refused, Err(ObjectError::TooLarge)), "{refused:?}");
}

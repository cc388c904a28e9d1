//! Waiting for a condition, with a deadline: the only way tests wait.
//!
//! Who gives up says what was waited for and the last thing that the test saw while it waited: the answer of a server,
//! or the value of a query. So a node that does not become active shows its state and its blockers.

use std::{cell::RefCell, future::Future, time::Duration};

thread_local! {
    /// Tests look on their own thread; many of them run at once in one process.
    static LAST_SEEN: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// More of it helps nobody.
const LONGEST: usize = 4000;

/// Keeps what a test saw, in case it waits in vain.
pub(crate) fn note_seen(seen: impl FnOnce() -> String) {
    let mut text = seen();
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    LAST_SEEN.with_borrow_mut(|last| *last = Some(text));
}

/// Polls until `check` gives a value; panics after 20 seconds with what was waited for and what was seen last.
pub async fn eventually<T, Fut: Future<Output = Option<T>>>(what: &str, check: impl FnMut() -> Fut) -> T {
    eventually_within(Duration::from_secs(20), what, check).await
}

pub async fn eventually_within<T, Fut: Future<Output = Option<T>>>(
    limit: Duration,
    what: &str,
    mut check: impl FnMut() -> Fut,
) -> T {
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        // What was seen before this look is about something else.
        LAST_SEEN.with_borrow_mut(|last| *last = None);
        if let Some(value) = check().await {
            return value;
        }
        if tokio::time::Instant::now() >= deadline {
            let seen = LAST_SEEN.with_borrow(Clone::clone);
            panic!("waited {limit:?} in vain: {what}; last seen: {}", seen.as_deref().unwrap_or("nothing"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[should_panic(expected = "in vain: the node is active; last seen: 200 {\"blockers\":[\"disk_full\"]}")]
    async fn who_gives_up_shows_what_was_seen_last() {
        let mut looks = 0;
        eventually_within(Duration::from_millis(30), "the node is active", || {
            looks += 1;
            async move {
                note_seen(|| {
                    if looks == 1 { "404".to_owned() } else { r#"200 {"blockers":["disk_full"]}"#.to_owned() }
                });
                None::<()>
            }
        })
        .await;
    }

    #[tokio::test]
    #[should_panic(expected = "last seen: nothing")]
    async fn what_was_seen_before_the_wait_is_not_shown() {
        note_seen(|| "something else".to_owned());
        eventually_within(Duration::ZERO, "it ends", || async { None::<()> }).await;
    }

    #[test]
    fn a_long_answer_is_cut() {
        note_seen(|| "ä".repeat(2 * LONGEST));
        let kept = LAST_SEEN.with_borrow(|last| last.as_ref().map(|text| text.chars().count()));
        assert_eq!(kept, Some(LONGEST + 1));
    }
}

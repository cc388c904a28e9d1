//! Waiting for a condition, with a deadline: the only way tests wait.

use std::{future::Future, time::Duration};

/// Polls until `check` gives a value; panics after 20 seconds with what was waited for.
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
        if let Some(value) = check().await {
            return value;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited {limit:?} in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

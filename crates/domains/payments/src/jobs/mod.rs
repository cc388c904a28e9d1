//! Periodic work. Any replica may run it, and several at once do no harm: work is taken under a lock or for a while, and
//! whatever is done twice has one effect.

use std::{future::Future, time::Duration};

use bus::periodic::every;
use kernel::Failure;
use pg::Wake;

use crate::{
    CHANNEL, Payments,
    service::{checkouts, processing, reconcile, sending},
};

/// Work whose notification was lost is found after this time; what was postponed, too.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// One piece of work; calls to the provider have their own, shorter limits.
const PATIENCE: Duration = Duration::from_secs(120);
const AFTER_TROUBLE: Duration = Duration::from_secs(1);
const PAST_DAYS_EVERY: Duration = Duration::from_secs(600);
const MEASURE_EVERY: Duration = Duration::from_secs(15);
/// Messages that are processed at once. Each holds a connection of the system role, and may need another for a policy.
const PROCESSORS: usize = 2;

/// All of it, until the task is aborted.
pub async fn run(payments: Payments, wake: Wake) {
    let processors = (0..PROCESSORS)
        .map(|_| drain(&wake, "messages of the payment provider", || processing::process_next(&payments)));
    tokio::join!(
        futures_util::future::join_all(processors),
        drain(&wake, "top-ups", || checkouts::advance_next(&payments)),
        drain(&wake, "refunds", || sending::send_next(&payments)),
        drain(&wake, "days to compare", || reconcile::compare_next(&payments)),
        every(PAST_DAYS_EVERY, "ask for past days", || async {
            reconcile::request_past(&payments).await.map(|_| 0)
        }),
        every(MEASURE_EVERY, "count messages", || async { processing::measure(&payments).await.map(|()| 0) }),
    );
}

/// One piece of work after the other while there is any, then again when woken.
async fn drain<F: Future<Output = Result<bool, Failure>>>(
    wake: &Wake,
    what: &'static str,
    mut turn: impl FnMut() -> F,
) {
    let mut notices = wake.subscribe();
    loop {
        match tokio::time::timeout(PATIENCE, turn()).await {
            Ok(Ok(true)) => continue,
            Ok(Ok(false)) => Wake::wait(&mut notices, CHANNEL, LOOK_AGAIN).await,
            Ok(Err(failure)) => {
                tracing::warn!(error = ?failure, "not done, trying again: {what}");
                tokio::time::sleep(AFTER_TROUBLE).await;
            }
            Err(_) => tracing::warn!("took too long, trying again: {what}"),
        }
    }
}

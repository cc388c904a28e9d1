//! Whether somebody who is connected may still be: asked every second, for every kind of connection.
//!
//! **When the database does not answer**, nobody can say. Two promises are kept then. Whoever was revoked sees and sends
//! nothing five seconds later: a decision counts for two seconds, and may rest on what the authenticator has remembered for
//! three; after that the connection is paused ([`Pause`]), and no byte passes in either direction. And a database that is away
//! for a moment drops nobody: as soon as it answers, the connection goes on where it was, or ends. After a minute it ends with
//! a code that says to come again; the session on the node goes on.

use std::time::Duration;

use endpoint::{Declaration, SignIn};
use kernel::{
    Code, CorrelationId, Failure,
    ids::{AllocationId, ProjectId},
    principal::PrincipalId,
};
use pg::{Origin, Permit};
use tokio::{sync::watch, time::Instant};

use super::Gateway;

const CHECK_EVERY: Duration = Duration::from_secs(1);
/// One check takes no longer, or has failed.
const CHECK_WITHIN: Duration = Duration::from_secs(1);
/// For so long a decision counts, from when it was asked for.
const DECISION_COUNTS: Duration = Duration::from_secs(2);
/// For so long a connection stays open without a decision.
const PAUSED_AT_MOST: Duration = Duration::from_secs(60);

/// Stops a connection while nobody can say whether it may go on.
pub struct Pause(watch::Sender<bool>);

impl Pause {
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    fn set(&self, is_paused: bool) {
        if self.0.send_if_modified(|paused| std::mem::replace(paused, is_paused) != is_paused) && is_paused {
            metrics::counter!("terminal_connections_paused_total").increment(1);
            tracing::warn!("a connection is paused: it cannot be decided whether it may go on");
        }
    }

    /// What `work` gives. It is not polled while this is paused: neither its reads nor its writes go on.
    pub fn gate<'a, T>(&'a self, work: impl Future<Output = T> + 'a) -> impl Future<Output = T> + 'a {
        let mut paused = self.0.subscribe();
        // Whoever waits for this does not become larger by it.
        let mut work = Box::pin(work);
        async move {
            loop {
                let is_paused = *paused.borrow_and_update();
                tokio::select! {
                    biased;
                    // Never an error: the sender is borrowed.
                    _ = paused.changed() => {}
                    done = &mut work, if !is_paused => return done,
                }
            }
        }
    }
}

/// Why a connection must end.
pub struct MustEnd {
    pub code: &'static str,
    pub message: String,
    /// The same may work in a moment, with a new token.
    pub retryable: bool,
    /// They may not enter any more, however they sign in.
    pub lost_access: bool,
}

impl MustEnd {
    /// For somebody who is not let in.
    pub fn refused(failure: &Failure) -> Self {
        let (code, retryable) = refusal_code(failure);
        Self { retryable, ..Self::new(code, in_words(failure)) }
    }

    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: false, lost_access: false }
    }
}

impl Gateway {
    /// Ends when the client must not be connected any longer; until then `pause` is set as long as that is not known. `allowed`
    /// says who is allowed now.
    pub async fn must_end<Checked>(
        &self,
        pause: &Pause,
        principal: PrincipalId,
        ends_at: Instant,
        allowed: impl Fn() -> Checked,
    ) -> MustEnd
    where
        Checked: Future<Output = Result<PrincipalId, Failure>>,
    {
        let must_end = tokio::select! {
            must_end = is_lost(pause, principal, allowed) => must_end,
            () = tokio::time::sleep_until(ends_at) => {
                MustEnd::new("expired", "the time to live of the session is over")
            }
            () = self.0.stop.cancelled() => {
                let must_end = MustEnd::new("gateway_restarting", "the gateway is being restarted");
                MustEnd { retryable: true, ..must_end }
            }
        };
        // The client is told.
        pause.set(false);
        must_end
    }

    /// Whether somebody may enter a machine now by the rule of the endpoint that gave the token, and who it is.
    pub async fn allowed(
        &self,
        endpoint: &Declaration,
        sign_in: SignIn,
        (project, allocation): (ProjectId, AllocationId),
    ) -> Result<PrincipalId, Failure> {
        let path = [("project_id".to_owned(), project.to_string())];
        let principal = self.0.services.still_allowed(endpoint, sign_in, &path).await?;
        let db = &self.0.terminals.db;
        let origin = Origin::internal(CorrelationId(db.ambient().uuid()));
        let mut read = db.read(&Permit::system("whether a terminal may stay open", origin)).await?;
        capacity::api::entry(read.conn(), project, allocation, principal).await?;
        Ok(principal)
    }
}

async fn is_lost<Checked>(pause: &Pause, principal: PrincipalId, allowed: impl Fn() -> Checked) -> MustEnd
where
    Checked: Future<Output = Result<PrincipalId, Failure>>,
{
    let mut decided_at = Instant::now();
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        let asked_at = Instant::now();
        pause.set(asked_at >= decided_at + DECISION_COUNTS);
        match tokio::time::timeout(CHECK_WITHIN, allowed()).await {
            Ok(Ok(found)) if found == principal => decided_at = asked_at,
            Ok(Ok(_)) => return MustEnd::new("revoked", "another principal"),
            Ok(Err(failure @ Failure::Problem(_))) => {
                let lost_access = has_lost_access(&failure);
                return MustEnd { lost_access, ..MustEnd::new("revoked", in_words(&failure)) };
            }
            Ok(Err(failure)) => {
                tracing::debug!(error = ?failure, "an open connection could not be checked; trying again")
            }
            Err(_) => tracing::debug!("an open connection was not checked in time; trying again"),
        }
        let undecided_for = decided_at.elapsed();
        if undecided_for >= PAUSED_AT_MOST {
            // Whoever may will be let in again as soon as that can be decided.
            return MustEnd { retryable: true, ..MustEnd::new(UNAVAILABLE, UNDECIDED) };
        }
        pause.set(undecided_for >= DECISION_COUNTS);
    }
}

/// It cannot be decided now.
const UNAVAILABLE: &str = "unavailable";
const UNDECIDED: &str = "it could not be decided whether you may";

/// Whether somebody may not enter any more, however they sign in. Who was signed out has not lost a right.
fn has_lost_access(failure: &Failure) -> bool {
    let Failure::Problem(problem) = failure else { return false };
    !matches!(problem.code, Code::TokenMissing | Code::TokenInvalid | Code::TokenExpired | Code::TokenRevoked)
}

/// What a client is told that is not let in: a code, and whether the same may work in a moment.
pub fn refusal_code(failure: &Failure) -> (&'static str, bool) {
    match failure {
        Failure::Problem(_) => ("not_allowed", false),
        Failure::Internal(_) | Failure::Bug(_) => (UNAVAILABLE, true),
    }
}

/// What the client is told of a refusal.
pub fn in_words(failure: &Failure) -> String {
    match failure {
        Failure::Problem(problem) if problem.code == Code::TokenRevoked => "you were signed out".to_owned(),
        Failure::Problem(problem) => problem.message.to_string(),
        Failure::Internal(_) | Failure::Bug(_) => UNDECIDED.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use kernel::Problem;
    use tokio::sync::mpsc;

    use super::*;

    const REVOKED_WITHIN: Duration = Duration::from_secs(5);
    /// What the authenticator remembers (`identity`, `authn/principal.rs`).
    const REMEMBERED_FOR: Duration = Duration::from_secs(3);

    fn ann() -> PrincipalId {
        PrincipalId::User(uuid::Uuid::from_u128(1).into())
    }

    /// Sends a number every 100 ms, for ever.
    async fn work(numbers: mpsc::UnboundedSender<u32>) {
        for number in 0.. {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let _ = numbers.send(number);
        }
    }

    /// Runs until it must end, or so long; gives why it must, and at which times something passed.
    async fn pass<Checked: Future<Output = Result<PrincipalId, Failure>>>(
        allowed: impl Fn() -> Checked,
        at_most: Duration,
    ) -> (Option<MustEnd>, Vec<Duration>) {
        let (pause, began) = (Pause::new(), Instant::now());
        let (passed, mut numbers) = mpsc::unbounded_channel();
        let mut times = Vec::new();
        let count = async {
            while numbers.recv().await.is_some() {
                times.push(began.elapsed());
            }
        };
        let why = tokio::select! {
            why = is_lost(&pause, ann(), allowed) => Some(why),
            () = pause.gate(work(passed)) => None,
            () = count => None,
            () = tokio::time::sleep(at_most) => None,
        };
        (why, times)
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_passes_while_nobody_can_say_and_all_goes_on_when_somebody_can() {
        let began = Instant::now();
        let is_away = move || (10.0..30.0).contains(&began.elapsed().as_secs_f64());
        let allowed = move || async move {
            if is_away() {
                std::future::pending::<()>().await;
            }
            Ok(ann())
        };
        let (why, times) = pass(allowed, Duration::from_secs(60)).await;
        assert!(why.is_none(), "nobody is dropped");
        let limit = Duration::from_secs(10) + REVOKED_WITHIN - REMEMBERED_FOR;
        let (hold_from, hold_to) = (limit + Duration::from_millis(100), Duration::from_secs(30));
        assert!(times.iter().all(|at| *at <= hold_from || *at >= hold_to), "{times:?}");
        assert!(times.iter().any(|at| *at > Duration::from_secs(9) && *at < hold_from));
        assert!(times.iter().filter(|at| **at >= Duration::from_secs(33)).count() > 200, "it goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hiccup_shorter_than_a_decision_counts_is_not_felt() {
        let calls = Arc::new(AtomicU32::new(0));
        let allowed = || {
            let fails = calls.fetch_add(1, Ordering::Relaxed) % 2 == 1;
            async move { if fails { Err(Failure::bug("no connection")) } else { Ok(ann()) } }
        };
        let (why, times) = pass(allowed, Duration::from_secs(20)).await;
        assert!(why.is_none());
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(longest <= Duration::from_millis(150), "{longest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_not_decided_about_for_a_minute_is_told_to_come_again() {
        let (why, _) = pass(std::future::pending, Duration::from_secs(600)).await;
        let why = why.unwrap();
        assert_eq!((why.code, why.retryable), ("unavailable", true));
        let (why, _) =
            pass(|| async { Err(Problem::from_code(Code::TokenRevoked).into()) }, REVOKED_WITHIN).await;
        let why = why.unwrap();
        assert_eq!((why.code, why.retryable), ("revoked", false));
    }
}

//! Whether somebody who is connected may still be: looked at every second, for every kind of connection.

use std::time::Duration;

use endpoint::{Declaration, SignIn};
use kernel::{
    Code, CorrelationId, Failure,
    ids::{AllocationId, ProjectId},
    principal::PrincipalId,
};
use pg::{Origin, Permit};
use tokio::time::Instant;

use super::Gateway;

/// Together with what is cached below the five seconds that revocation may take.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// One look takes no longer, or has failed.
const CHECK_WITHIN: Duration = Duration::from_secs(1);
/// So many looks in a row may fail. Nobody stays connected because nobody can say whether they may.
const MOST_FAILED: u32 = 2;

/// Why a connection must end.
pub struct MustEnd {
    pub code: &'static str,
    pub message: String,
    /// The same may work in a moment, with a new token.
    pub retryable: bool,
}

impl MustEnd {
    /// For somebody who is not let in.
    pub fn refused(failure: &Failure) -> Self {
        let (code, retryable) = refusal_code(failure);
        Self { retryable, ..Self::new(code, in_words(failure)) }
    }

    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: false }
    }
}

impl Gateway {
    /// Ends when the client must not be connected any longer. `allowed` says who is allowed now.
    pub async fn must_end<Checked>(
        &self,
        principal: PrincipalId,
        ends_at: Instant,
        allowed: impl Fn() -> Checked,
    ) -> MustEnd
    where
        Checked: Future<Output = Result<PrincipalId, Failure>>,
    {
        let lost = async {
            let mut failed = 0;
            loop {
                tokio::time::sleep(CHECK_EVERY).await;
                match tokio::time::timeout(CHECK_WITHIN, allowed()).await {
                    Ok(Ok(found)) if found == principal => failed = 0,
                    Ok(Ok(_)) => return MustEnd::new("revoked", "another principal"),
                    Ok(Err(failure @ Failure::Problem(_))) => {
                        return MustEnd::new("revoked", in_words(&failure));
                    }
                    Ok(Err(_)) | Err(_) if failed < MOST_FAILED => {
                        failed += 1;
                        tracing::debug!("an open connection could not be checked; trying again");
                    }
                    // Whoever may will be let in again as soon as that can be decided.
                    Ok(Err(_)) | Err(_) => {
                        return MustEnd { retryable: true, ..MustEnd::new(UNAVAILABLE, UNDECIDED) };
                    }
                }
            }
        };
        tokio::select! {
            must_end = lost => must_end,
            () = tokio::time::sleep_until(ends_at) => {
                MustEnd::new("expired", "the time to live of the session is over")
            }
            () = self.0.stop.cancelled() => {
                let must_end = MustEnd::new("gateway_restarting", "the gateway is being restarted");
                MustEnd { retryable: true, ..must_end }
            }
        }
    }

    /// Whether somebody may enter a machine now by the rule of the endpoint that gave the token, and who it is.
    pub async fn allowed(
        &self,
        endpoint: &Declaration,
        sign_in: SignIn,
        (project, allocation): (ProjectId, AllocationId),
    ) -> Result<PrincipalId, Failure> {
        let services = &self.0.services;
        let path = [("project_id".to_owned(), project.to_string())];
        services.still_allowed(endpoint, sign_in, &path).await?;
        let principal = services.authenticator.signed_in(sign_in).await?.principal();
        let db = &self.0.terminals.db;
        let origin = Origin::internal(CorrelationId(db.ambient().uuid()));
        let mut read = db.read(&Permit::system("whether a terminal may stay open", origin)).await?;
        capacity::api::entry(read.conn(), project, allocation, principal).await?;
        Ok(principal)
    }
}

/// It cannot be decided now.
const UNAVAILABLE: &str = "unavailable";
const UNDECIDED: &str = "it could not be decided whether you may";

/// Whether somebody may not enter any more, however they sign in. Who was signed out has not lost a right.
pub fn has_lost_access(failure: &Failure) -> bool {
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

//! Who asks and whether they may: decided when a request comes, and again while its answer lasts.
//!
//! An answer can last for minutes (events, exports, a question that waits for its answer). Sessions end, members
//! leave and roles change meanwhile; so every read that is not done after [`CHECK_INTERVAL`] is decided anew, from the
//! token that came with it, and broken off when the answer is no. The pipeline does this for every endpoint: none can
//! forget it. Looks hit the caches of the authenticator, which committed changes drop at once on every replica, and
//! which are three seconds old at most when a notification is lost: together below the five seconds that revocation
//! may take.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use http::{HeaderMap, header, request::Parts};
use kernel::{Code, Failure, Problem, principal::PrincipalId};
use pg::Scope;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    authorize::{self, Decision},
    caller::{Caller, ClientInfo, Services, SignIn},
    declare::Declaration,
};

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Nobody keeps a stream because nobody can say whether they may.
const MAX_FAILED_CHECKS: u32 = 3;
/// How long a question that waits may still wait when the process stops.
const WAITS_WHILE_STOPPING: Duration = Duration::from_secs(1);

/// In the extensions of a request: the process stops, and answers that wait must come to their end.
#[derive(Clone, Debug)]
pub struct Stopping(pub CancellationToken);

/// What a request was allowed on, to be decided again.
pub(crate) struct Reauthorization {
    services: Services,
    declaration: Declaration,
    bearer: String,
    client: ClientInfo,
    path: Vec<(String, String)>,
    principal: uuid::Uuid,
    stopping: Option<Stopping>,
}

/// The token of the `Authorization` header.
fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Err(Problem::from_code(Code::TokenMissing));
    };
    let bearer = value.to_str().ok().and_then(|v| v.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    bearer.map(|(_, token)| token.trim()).ok_or_else(|| Problem::from_code(Code::TokenInvalid))
}

impl Services {
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
        client: &ClientInfo,
    ) -> Result<Caller, Failure> {
        self.authenticator.authenticate(bearer(headers)?, client).await
    }

    /// Who signed in, if they may still do what an endpoint allows, at this path: for what outlives a request.
    pub async fn still_allowed(
        &self,
        declaration: &Declaration,
        sign_in: SignIn,
        path: &[(String, String)],
    ) -> Result<PrincipalId, Failure> {
        let caller = self.authenticator.signed_in(sign_in).await?;
        let decided = authorize::decide(declaration, &caller, path, self.directory.as_ref()).await;
        decided.map(|_| caller.principal()).map_err(|refusal| refusal.problem)
    }

    pub(crate) async fn authorize(
        &self,
        declaration: &Declaration,
        caller: &Caller,
        path: &[(String, String)],
        headers: &HeaderMap,
    ) -> Result<Decision, authorize::Refusal> {
        // The path is authoritative; a header that disagrees is a mistake worth stopping.
        if let (Some(header), Some((_, in_path))) =
            (headers.get("x-project-id"), path.iter().find(|(name, _)| name == "project_id"))
            && header.as_bytes() != in_path.as_bytes()
        {
            let problem =
                Problem::new(Code::InvalidRequest, "X-Project-ID names another project than the path.");
            return Err(authorize::Refusal { problem: problem.into(), scope: Scope::Platform });
        }
        authorize::decide(declaration, caller, path, self.directory.as_ref()).await
    }
}

impl Reauthorization {
    /// Of a request that was just allowed.
    pub fn new(
        services: &Services,
        declaration: &Declaration,
        caller: &Caller,
        client: ClientInfo,
        path: &[(String, String)],
        request: &Parts,
    ) -> Result<Self, Problem> {
        Ok(Self {
            services: services.clone(),
            declaration: declaration.clone(),
            bearer: bearer(&request.headers)?.to_owned(),
            client,
            path: path.to_vec(),
            principal: caller.id(),
            stopping: request.extensions.get().cloned(),
        })
    }

    async fn decide(&self) -> Result<(), Failure> {
        let caller = self.services.authenticator.authenticate(&self.bearer, &self.client).await?;
        if caller.id() != self.principal {
            return Err(Problem::from_code(Code::TokenInvalid).into());
        }
        let directory = self.services.directory.as_ref();
        let decided = authorize::decide(&self.declaration, &caller, &self.path, directory).await;
        decided.map(|_| ()).map_err(|refusal| refusal.problem)
    }

    /// `failed` counts the consecutive checks without a result.
    async fn check(&self, failed: &mut u32) -> Result<(), Failure> {
        match self.decide().await {
            Ok(()) => {
                *failed = 0;
                Ok(())
            }
            Err(Failure::Internal(error)) if *failed + 1 < MAX_FAILED_CHECKS => {
                *failed += 1;
                tracing::debug!(%error, "an open answer could not be authorized again; trying again");
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// What `work` answers, unless who waits for it may no longer have it, or the process stops.
    pub async fn while_held<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            done = work => done,
            lost = self.lost() => Err(lost),
        }
    }

    /// Ends when the answer must not be waited for any longer, and says why.
    async fn lost(&self) -> Failure {
        let stopping = async {
            match &self.stopping {
                Some(Stopping(token)) => token.cancelled().await,
                None => std::future::pending().await,
            }
            tokio::time::sleep(WAITS_WHILE_STOPPING).await;
        };
        let revoked = async {
            let mut failed = 0;
            loop {
                tokio::time::sleep(CHECK_INTERVAL).await;
                if let Err(failure) = self.check(&mut failed).await {
                    return failure;
                }
            }
        };
        tokio::select! {
            failure = revoked => failure,
            () = stopping => {
                let problem = Problem::new(Code::ServiceUnavailable, "The service is being restarted.");
                problem.retry_after(1).into()
            }
        }
    }

    /// The stream, as long as its reader may have it. A stream of events then ends, and its reader comes again and is
    /// told why; anything else fails, so that half of it is not taken for the whole.
    pub fn guard(
        self,
        stream: BoxStream<'static, Result<Bytes, Failure>>,
    ) -> BoxStream<'static, Result<Bytes, Failure>> {
        let ends_quietly = self.declaration.types.reply_content == "text/event-stream";
        let guarded =
            Guarded { stream, reauthorize: self, check_at: Instant::now() + CHECK_INTERVAL, failed: 0 };
        stream::unfold(Some(guarded), move |guarded| async move {
            let mut guarded = guarded?;
            match guarded.next().await {
                Some(Ok(item)) => Some((Ok(item), Some(guarded))),
                Some(Err(Failure::Problem(problem))) if ends_quietly => {
                    tracing::info!(error_code = problem.code.as_str(), "a stream of events was ended");
                    None
                }
                Some(Err(failure)) => Some((Err(failure), None)),
                None => None,
            }
        })
        .boxed()
    }
}

struct Guarded {
    stream: BoxStream<'static, Result<Bytes, Failure>>,
    reauthorize: Reauthorization,
    check_at: Instant,
    failed: u32,
}

impl Guarded {
    /// Nothing is given that was not allowed within the last second, also after a reader that paused.
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        loop {
            if self.check_at <= Instant::now() {
                if let Err(failure) = self.reauthorize.check(&mut self.failed).await {
                    return Some(Err(failure));
                }
                self.check_at = Instant::now() + CHECK_INTERVAL;
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.check_at) => {}
                item = self.stream.next() => return item,
            }
        }
    }
}

//! Which parts there are, and how they are wired.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::Request, middleware, response::IntoResponse as _, routing::get};
use capacity::{Capacity, workflow::reimage::NoProvisioner};
use endpoint::{Endpoint, Limits, Services};
use fleet::{
    Fleet,
    authority::{Signing, Trust, TrustSettings},
    gateway::Gateway,
};
use identity::{
    AuthInfo, Identity,
    api::InvitationLinks,
    authn::{Authn, Places, TrustedIssuer},
    issuer::{self, Argon2Params, Issuer, IssuerConfig},
};
use kernel::{Failure, Secret, text::Email};
use objects::Objects;
use pg::{Db, Wake};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    config::Config,
    money::Money,
    object_storage::{self, Beside},
    restore::NormalMode,
    roles::Role,
    simulated_fleet::SimulatedFleet,
    terminals::TerminalParts,
    upkeep::{forget_old_answers, forget_old_runs},
    web,
};

const HTTP_CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
const TIDY_EVERY: Duration = Duration::from_secs(300);
const CLOSE_REFUSALS_EVERY: Duration = Duration::from_secs(5);

/// One provider for all TLS in the process; the second call finds it installed.
pub fn install_crypto_provider() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// The parts that every role may need. Making it touches no database, so that documents can be made from it.
pub struct Platform {
    db: Db,
    identity: Identity,
    issuer: Issuer,
    fleet: Fleet,
    capacity: Capacity,
    money: Money,
    terminals: TerminalParts,
    objects: Objects,
    services: Services,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ComposeError(String);

/// A failure while starting, with its chain; there is no client to answer.
pub fn startup(what: &str, failure: Failure) -> ComposeError {
    ComposeError(match failure {
        Failure::Problem(problem) => format!("{what}: {problem}"),
        Failure::Internal(error) => {
            let mut text = format!("{what}: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                text += &format!(": {cause}");
                source = cause.source();
            }
            text
        }
        Failure::Bug(bug) => format!("{what}: {bug}"),
    })
}

impl Platform {
    pub fn new(
        config: &Config,
        db: Db,
        master_key: Secret<[u8; 32]>,
        signing: Signing,
    ) -> anyhow::Result<Self> {
        // The one HTTP client of the server: bounded, and it follows nobody.
        let http = reqwest::Client::builder()
            .timeout(HTTP_CLIENT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let public_url = config.server.public_url.as_str().trim_end_matches('/').to_owned();
        let mails_invitations = config.notify.smtp.is_some();
        let links = InvitationLinks::new(&master_key, &public_url, mails_invitations);
        let identity = Identity::new(db.clone(), auth_info(config, &public_url), links.clone());
        let policies = Arc::new(identity.policies().clone());
        let answers = trust::Sealer::for_purpose(&master_key, b"stored responses")?;
        let fleet = fleet(config, &db, &public_url, &master_key, signing, policies.clone())?;
        let money = Money::new(config, &db, &master_key, identity.policies().clone(), links, http.clone())?;
        let capacity = Capacity::new(capacity::Parts {
            db: db.clone(),
            fleet: fleet.clone(),
            policies: identity.policies().clone(),
            money: money.for_capacity(),
            reimager: Arc::new(NoProvisioner::new(db.clone())),
        });
        let signed_in = format!("{public_url}{}", web::SIGNED_IN_PATH);
        let recording_seed = trust::secret_for(&master_key, b"terminal recordings");
        let mut issuer_config = IssuerConfig::new(public_url, master_key);
        issuer_config.people = config.auth.builtin;
        issuer_config.self_signup = config.auth.self_signup;
        issuer_config.mails_invitations = mails_invitations;
        issuer_config.console_redirects = config.auth.console_redirects.clone();
        issuer_config.console_redirects.push(signed_in);
        issuer_config.argon2 = Argon2Params {
            memory_kib: config.auth.argon2_memory_kib,
            iterations: config.auth.argon2_iterations,
            parallelism: config.auth.argon2_parallelism,
        };
        let issuer = Issuer::new(db.clone(), issuer_config, policies.clone());
        let mut trusted = vec![issuer.trusted()];
        for external in &config.auth.issuers {
            let ambient = db.ambient().clone();
            trusted.push(TrustedIssuer::external(
                &external.issuer,
                &external.audience,
                http.clone(),
                ambient,
            ));
        }
        let services = Services {
            db: db.clone(),
            authenticator: Arc::new(Authn::with_first_admin(
                db.clone(),
                trusted,
                config.auth.external_admin.clone(),
            )),
            directory: Arc::new(Places::new(db.clone())),
            policies,
            answers: Arc::new(answers),
        };
        let objects = object_storage::open(&config.objects, http)?;
        let recordings = terminal::RecordingStorage::new(objects.clone(), &recording_seed)?;
        let terminals = TerminalParts::new(config, fleet.clone(), identity.policies().clone(), recordings);
        Ok(Self { db, identity, issuer, fleet, capacity, money, terminals, objects, services })
    }

    /// With the notifications of the database.
    pub fn listening(mut self, wake: &Wake) -> Self {
        self.fleet = self.fleet.listening(wake.clone());
        self.capacity = self.capacity.listening(wake.clone());
        self.money = self.money.listening(wake);
        self
    }

    /// Every endpoint of the product.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let mut all = identity::endpoints(self.identity.clone());
        all.extend(issuer::endpoints(&self.issuer));
        all.extend(bus::endpoints(self.db.clone()));
        all.extend(fleet::endpoints(self.fleet.clone()));
        all.extend(capacity::endpoints(&self.capacity));
        all.extend(saga::endpoints(self.db.clone()));
        all.extend(self.money.endpoints());
        all.extend(self.terminals.endpoints());
        all
    }

    /// The public listener: what the roles of this process serve there.
    pub fn router(&self, config: &Config, stop: &CancellationToken) -> Router {
        let roles = &config.roles;
        let mut router = self.terminals.router(config, &self.services, stop);
        if roles.contains(&Role::Api) {
            router = router.merge(self.api());
        }
        if roles.contains(&Role::WebhookWorker) {
            router = router.merge(self.money.webhooks());
        }
        let ambient = self.db.ambient().clone();
        router
            .layer(middleware::from_fn(move |request: Request, next: middleware::Next| {
                let refusal = endpoint::refuse_repeated_headers(&ambient, &request);
                async move {
                    match refusal {
                        Some(refusal) => refusal,
                        None => next.run(request).await,
                    }
                }
            }))
            .layer(CatchPanicLayer::custom(self.panic_answer()))
    }

    /// The API, its own document, and the built-in issuer.
    fn api(&self) -> Router {
        let endpoints = self.endpoints();
        let document: axum::body::Bytes = crate::documents::openapi(&endpoints).into();
        let serve_document = move || {
            let document = document.clone();
            async move { ([("content-type", "application/json")], document).into_response() }
        };
        endpoint::router(self.services.clone(), Limits::default(), endpoints)
            .route("/api/v1/openapi.json", get(serve_document))
            .merge(self.issuer.router())
            .merge(fleet::install::router(self.fleet.clone()))
            .merge(self.money.return_page())
    }

    /// A panic is a defect: it is logged by the panic hook, and the client gets the envelope.
    fn panic_answer(
        &self,
    ) -> impl tower_http::catch_panic::ResponseForPanic<ResponseBody = axum::body::Body> + use<> {
        let ambient = self.db.ambient().clone();
        move |_: Box<dyn std::any::Any + Send>| {
            let id = kernel::CorrelationId(ambient.uuid());
            tracing::error!(correlation_id = %id, "a request panicked");
            endpoint::problem_response(&kernel::Problem::from_code(kernel::Code::InternalError), id)
        }
    }

    /// What must be in the database before the first request: signing keys, and for the fleet an authority and a
    /// signer.
    pub async fn prepare(&self, roles: &[Role]) -> Result<(), ComposeError> {
        self.issuer
            .tidy()
            .await
            .map_err(|failure| startup("the issuer's keys cannot be prepared", failure))?;
        if !roles.iter().any(|role| role.trusts()) {
            return Ok(());
        }
        let ready = self.fleet.trust().ensure().await;
        ready.map_err(|failure| startup("the fleet's authority and signer cannot be prepared", failure))
    }

    /// Refuses an object storage in which recordings would not be safe, where this process uses it.
    pub async fn check_object_storage(&self, roles: &[Role], beside: Beside<'_>) -> anyhow::Result<()> {
        if roles.iter().any(|role| matches!(role, Role::Api | Role::TerminalGateway)) {
            object_storage::check(&self.objects, &self.db, beside).await?;
        }
        Ok(())
    }

    pub async fn has_admin(&self) -> Result<bool, ComposeError> {
        let answer = self.issuer.has_admin().await;
        answer.map_err(|failure| startup("the administrators cannot be read", failure))
    }

    /// `keep` must make the password safe before it returns; see [`Issuer::seed_admin`].
    pub async fn seed_admin(
        &self,
        email: &Email,
        keep: impl FnOnce(&Secret<String>) -> std::io::Result<()> + Send,
    ) -> Result<bool, ComposeError> {
        let seeded = self.issuer.seed_admin(email, keep).await;
        seeded.map_err(|failure| startup("the first administrator cannot be made", failure))
    }

    /// Upkeep of the issuer, beside the API.
    pub fn start_api_jobs(&self, tasks: &TaskTracker, cancel: &CancellationToken) {
        let (issuer, cancel) = (self.issuer.clone(), cancel.clone());
        tasks.spawn(cancel.run_until_cancelled_owned(async move {
            loop {
                tokio::time::sleep(TIDY_EVERY).await;
                if let Err(failure) = issuer.tidy().await {
                    tracing::warn!(error = ?failure, "upkeep of the issuer failed; trying again");
                }
            }
        }));
    }

    /// Nodes that do not exist, if the configuration asks for some.
    pub fn start_simulated_fleet(
        &self,
        config: &Config,
        tasks: &TaskTracker,
        cancel: &CancellationToken,
    ) -> Result<(), ComposeError> {
        let made = SimulatedFleet::new(config, self.fleet.clone());
        if let Some(simulated) = made.map_err(|problem| startup("fleet.simulated", problem.into()))? {
            tasks.spawn(cancel.clone().run_until_cancelled_owned(simulated.run()));
        }
        Ok(())
    }

    /// The node listener, when one of its roles is ours.
    pub async fn start_gateway(
        &self,
        config: &Config,
        max_connections: usize,
        wake: &Wake,
    ) -> anyhow::Result<Option<Gateway>> {
        let has = |role| config.roles.contains(&role);
        let (tasks, logs) = (has(Role::NodeGateway), has(Role::NodeLogGateway));
        if !tasks && !logs && self.terminals.tunnels().is_none() {
            return Ok(None);
        }
        let settings = fleet::gateway::Config {
            listen: config.node_gateway.listen,
            names: config.node_gateway.names.clone(),
            max_connections,
            patience: config.server.header_read_timeout,
            stall: config.server.stall_timeout,
            tasks,
            logs,
            tunnels: self.terminals.tunnels().cloned(),
        };
        Ok(Some(Gateway::start(self.fleet.clone(), wake, settings).await?))
    }

    /// Upkeep of terminals, where they are served.
    pub fn start_terminals(&self, wake: &Wake, tasks: &TaskTracker, cancel: &CancellationToken) {
        self.terminals.start(wake, tasks, cancel);
    }

    /// The consumers of every domain.
    pub fn registrations(&self) -> Vec<bus::Registration> {
        let (fleet, capacity) =
            (fleet::jobs::consumers(&self.fleet), capacity::jobs::consumers(&self.capacity));
        [identity::jobs::consumers(), fleet, capacity, notify::jobs::consumers(&self.money.notify)].concat()
    }

    /// How events reach consumers.
    pub fn bus(&self, wake: &Wake) -> bus::Bus {
        bus::Bus::on_postgres(self.db.clone(), wake.clone())
    }

    /// Follows the fleet and runs the workflows: sagas and periodic jobs.
    pub fn start_provisioning(&self, wake: &Wake, mode: &NormalMode<'_>) {
        let NormalMode { tasks, cancel, .. } = *mode;
        tasks.spawn(cancel.clone().run_until_cancelled_owned(fleet::jobs::run(self.fleet.clone())));
        tasks.spawn(cancel.clone().run_until_cancelled_owned(capacity::jobs::run(self.capacity.clone())));
        let sagas = capacity::workflow::sagas(&self.capacity);
        tasks.spawn(saga::Engine::new(self.db.clone(), wake.clone(), sagas).run(cancel.clone()));
        tasks.spawn(cancel.clone().run_until_cancelled_owned(forget_old_runs(self.db.clone())));
    }

    /// The workers of money, as the roles say.
    pub fn start_money(&self, roles: &[Role], wake: &Wake, mode: &NormalMode<'_>) {
        self.money.start(roles, wake, mode);
    }

    /// After a restore: the records are compared with what the nodes report, and nothing else is done.
    pub fn start_comparison(&self, tasks: &TaskTracker, cancel: &CancellationToken) {
        let compare = capacity::jobs::restore::run(self.capacity.clone());
        tasks.spawn(cancel.clone().run_until_cancelled_owned(compare));
    }

    /// The relay and the periodic jobs.
    pub fn start_workers(&self, wake: &Wake, mode: &NormalMode<'_>) {
        let NormalMode { tasks, cancel, .. } = *mode;
        tasks.spawn(self.bus(wake).relay().run(cancel.clone()));
        tasks.spawn(cancel.clone().run_until_cancelled_owned(identity::jobs::run(self.db.clone())));
        tasks.spawn(cancel.clone().run_until_cancelled_owned(forget_old_answers(self.services.clone())));
        let db = self.db.clone();
        let close_refusals =
            bus::periodic::every(CLOSE_REFUSALS_EVERY, "repeated refusals were recorded", move || {
                let db = db.clone();
                async move { Ok(pg::refusal_windows_close(&db).await?) }
            });
        tasks.spawn(cancel.clone().run_until_cancelled_owned(close_refusals));
    }
}

fn fleet(
    config: &Config,
    db: &Db,
    public_url: &str,
    master_key: &Secret<[u8; 32]>,
    signing: Signing,
    policies: Arc<dyn endpoint::PolicySource>,
) -> anyhow::Result<Fleet> {
    let trust_domain = config.node_gateway.trust_domain.clone();
    let trust =
        Trust::new(db.clone(), TrustSettings { trust_domain, master_key: master_key.clone(), signing })?;
    let settings = fleet::Settings {
        node_url: config.node_gateway.url.as_str().trim_end_matches('/').to_owned(),
        public_url: public_url.to_owned(),
        programs_dir: config.fleet.programs_dir.clone(),
        auto_approve_simulated: config.fleet.auto_approve_simulated,
    };
    let fleet = Fleet::new(db.clone(), trust, policies, settings, vec![capacity::workflow::completion()])
        .with_occupancy(capacity::occupancy());
    fleet.check_completions().map_err(anyhow::Error::msg)?;
    Ok(fleet)
}

/// What clients are told: the first external issuer when the built-in one is off.
fn auth_info(config: &Config, public_url: &str) -> AuthInfo {
    match config.auth.issuers.first() {
        Some(external) if !config.auth.builtin => AuthInfo {
            issuer: external.issuer.clone(),
            cli_client_id: external.client_id.clone(),
            audience: external.audience.clone(),
        },
        _ => AuthInfo {
            issuer: public_url.to_owned(),
            cli_client_id: "gpuaas-cli".to_owned(),
            audience: issuer::AUDIENCE.to_owned(),
        },
    }
}

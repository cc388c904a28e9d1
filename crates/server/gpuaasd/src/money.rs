//! Wires billing, payments and notifications.

use std::sync::Arc;

use crate::{
    config::{Config, PaymentProvider},
    restore::NormalMode,
    roles::Role,
    secret_file::{self, SecretFileError},
};
use axum::Router;
use billing::Billing;
use endpoint::{Endpoint, PolicySource};
use futures_util::future::BoxFuture;
use identity::api::{InvitationLinks, Policies};
use kernel::Secret;
use notify::{Notify, Relay, WebhookClient};
use payments::{Payments, Provider, provider, provider::StripeSettings};
use pg::{Db, Wake};

#[derive(Clone)]
pub struct Money {
    pub billing: Billing,
    pub payments: Payments,
    pub notify: Notify,
    webhook_client: WebhookClient,
    charges: bool,
}

impl Money {
    pub fn new(
        config: &Config,
        db: &Db,
        master_key: &Secret<[u8; 32]>,
        policies: Policies,
        invitation_links: InvitationLinks,
        http: reqwest::Client,
    ) -> anyhow::Result<Self> {
        let public_url = config.server.public_url.as_str().trim_end_matches('/').to_owned();
        let seed = trust::secret_for(master_key, b"ledger checkpoints");
        let currency = config.billing.currency.clone();
        let billing =
            Billing::new(db.clone(), policies.clone(), billing::Settings { currency, checkpoint_seed: seed })
                .with_seller(config.seller.seller.clone(), config.seller.tax.clone())
                .with_names(Arc::new(capacity::CapacityNames));
        let source: Arc<dyn PolicySource> = Arc::new(policies.clone());
        let settings = payments::Settings {
            webhook_secrets: secrets(&config.payments.webhook_secret_files)?,
            public_url: public_url.clone(),
        };
        let provider = provider(config, http.clone())?;
        let payments = Payments::new(db.clone(), billing.clone(), source, provider, settings);
        let smtp = config.notify.smtp.as_ref().map(|smtp| notify::Smtp {
            host: smtp.host.clone(),
            port: smtp.port,
            encryption: smtp.encryption.clone(),
            username: smtp.username.clone(),
            password: smtp.password.clone(),
            from: smtp.from.clone(),
        });
        let sealer = trust::Sealer::for_purpose(master_key, b"outgoing webhooks")?;
        let private_webhooks = config.notify.private_webhooks;
        let settings = notify::Settings { smtp, public_url, private_webhooks, sealer, invitation_links };
        let notify = Notify::new(db.clone(), policies, settings);
        let webhook_client = WebhookClient::new(private_webhooks)?;
        Ok(Self { billing, payments, notify, webhook_client, charges: config.billing.enabled })
    }

    /// What capacity is paid with.
    pub fn for_capacity(&self) -> Arc<dyn capacity::Money> {
        if self.charges {
            Arc::new(capacity::Billed(self.billing.clone()))
        } else {
            Arc::new(capacity::Unbilled)
        }
    }

    pub fn listening(mut self, wake: &Wake) -> Self {
        self.payments = self.payments.listening(wake.clone());
        self.notify = self.notify.listening(wake.clone());
        self
    }

    pub fn endpoints(&self) -> Vec<Endpoint> {
        let mut all = billing::endpoints(&self.billing);
        all.extend(payments::endpoints(&self.payments));
        all.extend(notify::endpoints(&self.notify));
        all
    }

    /// What the roles of this process do in the background.
    pub fn start(&self, roles: &[Role], wake: &Wake, mode: &NormalMode<'_>) {
        let NormalMode { tasks, cancel, .. } = *mode;
        let spawn = |work: BoxFuture<'static, ()>| {
            tasks.spawn(cancel.clone().run_until_cancelled_owned(work));
        };
        if roles.contains(&Role::BillingWorker) {
            spawn(Box::pin(billing::jobs::run(self.billing.clone(), wake.clone())));
            spawn(Box::pin(billing::jobs::checkpoints::run(self.billing.clone())));
            spawn(Box::pin(billing::jobs::statements::run(self.billing.clone())));
            // Without charges nothing that runs has a meter.
            let running = self.charges.then(|| Arc::new(capacity::ActiveAllocations) as Arc<_>);
            spawn(Box::pin(billing::jobs::reconcile::run(self.billing.clone(), running)));
        }
        if roles.contains(&Role::WebhookWorker) {
            spawn(Box::pin(payments::jobs::run(self.payments.clone(), wake.clone())));
        }
        if roles.contains(&Role::NotificationRelay) {
            let relay = Relay::new(self.notify.clone(), self.webhook_client.clone());
            tasks.spawn(notify::jobs::run(relay, cancel.clone()));
        }
    }

    /// Where people come back to after a checkout.
    pub fn return_page(&self) -> Router {
        payments::return_page::router(self.payments.clone())
    }

    /// The door for the payment provider's messages.
    pub fn webhooks(&self) -> Router {
        payments::webhook::router(self.payments.clone())
    }
}

fn provider(config: &Config, http: reqwest::Client) -> anyhow::Result<Arc<dyn Provider>> {
    let name = match config.payments.provider {
        PaymentProvider::Disabled => return Ok(Arc::new(provider::Disabled)),
        PaymentProvider::Simulated => "simulated",
        PaymentProvider::Stripe => "stripe",
    };
    let Some(file) = &config.payments.secret_key_file else {
        anyhow::bail!("payments.secret_key_file is needed")
    };
    let settings =
        StripeSettings { name, base: config.payments.api_url.clone(), key: secret_file::read_line(file)? };
    Ok(Arc::new(provider::Stripe::new(http, settings)))
}

fn secrets(files: &[std::path::PathBuf]) -> Result<Vec<Secret<String>>, SecretFileError> {
    files.iter().map(|file| secret_file::read_line(file)).collect()
}

//! Mail over SMTP. Every message is a connection of its own, so that a server which went away is noticed by the message
//! it concerns and by no other.

use std::{sync::OnceLock, time::Duration};

use kernel::ids::DeliveryId;
use lettre::{
    Address, AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor,
    message::{
        Mailbox, MultiPart,
        header::{HeaderName, HeaderValue},
    },
    transport::smtp::{
        self,
        authentication::Credentials,
        client::{Tls, TlsParameters},
        extension::ClientId,
    },
};
use url::Url;

use crate::{
    Settings, Smtp,
    model::{
        delivery::{LeasedDelivery, MailContent, Outcome},
        mail::{Rendered, render},
    },
};

/// For each step of the conversation, and for all of it.
const STEP_TIMEOUT: Duration = Duration::from_secs(15);
const TIMEOUT: Duration = Duration::from_secs(30);

type Transport = AsyncSmtpTransport<Tokio1Executor>;

/// Made when the first mail is sent. Cheap to make anew, so a mistake in the settings is found by each mail.
#[derive(Default)]
pub struct Mailer(OnceLock<Transport>);

#[derive(Debug, thiserror::Error)]
enum MailError {
    #[error("notify.smtp.from is not an address such as GPUaaS <no-reply@example.org>")]
    From(#[source] lettre::address::AddressError),
    #[error("the address of the recipient is not valid")]
    To(#[source] lettre::address::AddressError),
    #[error("the message could not be built")]
    Message(#[from] lettre::error::Error),
    #[error("encryption of mail could not be set up")]
    Tls(#[from] smtp::Error),
    #[error("the content of the message cannot be read")]
    Content(#[from] serde_json::Error),
}

impl Mailer {
    fn transport(&self, smtp: &Smtp) -> Result<&Transport, MailError> {
        if let Some(transport) = self.0.get() {
            return Ok(transport);
        }
        let tls = || TlsParameters::new(smtp.host.clone());
        let tls = match smtp.encryption.as_str() {
            "none" => Tls::None,
            "tls" => Tls::Wrapper(tls()?),
            // Required: a server that offers none is not written to.
            _ => Tls::Required(tls()?),
        };
        let mut builder = Transport::builder_dangerous(&smtp.host)
            .port(smtp.port)
            .tls(tls)
            .timeout(Some(STEP_TIMEOUT))
            .hello_name(ClientId::Domain("gpuaas".to_owned()));
        if let (Some(username), Some(password)) = (&smtp.username, &smtp.password) {
            builder = builder.credentials(Credentials::new(username.clone(), password.expose().clone()));
        }
        Ok(self.0.get_or_init(|| builder.build()))
    }

    /// One attempt to send a notification.
    pub async fn send(&self, settings: &Settings, taken: &LeasedDelivery) -> Outcome {
        match rendered(settings, taken) {
            Ok(mail) => self.send_rendered(settings, taken, mail).await,
            Err(error) => Outcome::Never(chain(&MailError::Content(error))),
        }
    }

    /// One attempt.
    pub async fn send_rendered(
        &self,
        settings: &Settings,
        taken: &LeasedDelivery,
        mail: Rendered,
    ) -> Outcome {
        let Some(smtp) = &settings.smtp else {
            return Outcome::NotNow("no mail server is configured (notify.smtp)".to_owned());
        };
        let message = match message(settings, smtp, taken, mail) {
            Ok(message) => message,
            Err(error @ (MailError::To(_) | MailError::Content(_))) => return Outcome::Never(chain(&error)),
            Err(error) => return Outcome::NotNow(chain(&error)),
        };
        let transport = match self.transport(smtp) {
            Ok(transport) => transport,
            Err(error) => return Outcome::NotNow(chain(&error)),
        };
        match tokio::time::timeout(TIMEOUT, transport.send(message)).await {
            Ok(Ok(_)) => Outcome::Arrived,
            Ok(Err(error)) if refused_for_good(&error) => Outcome::Never(chain(&error)),
            Ok(Err(error)) => Outcome::NotNow(chain(&error)),
            Err(_) => Outcome::NotNow("the mail server timed out".to_owned()),
        }
    }
}

/// The server will not take this message, today or tomorrow. What it says of us (who we are, what it understands) is
/// not about the message: that passes when somebody corrects the settings.
fn refused_for_good(error: &smtp::Error) -> bool {
    let status = error.status().map(u16::from);
    error.is_permanent() && !matches!(status, Some(500..=504 | 521 | 523 | 530 | 534 | 535 | 538))
}

/// An error with its causes, on one line and bounded.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    const MOST_CHARS: usize = 500;
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_CHARS).collect()
}

/// The same delivery is always the same message: a receiver that gets it twice can tell by its Message-ID.
pub fn message_id(public_url: &str, id: DeliveryId) -> String {
    let host = Url::parse(public_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    format!("<{id}@{}>", host.unwrap_or_else(|| "gpuaas.invalid".to_owned()))
}

fn rendered(settings: &Settings, taken: &LeasedDelivery) -> Result<Rendered, serde_json::Error> {
    let content: MailContent = serde_json::from_str(&taken.content)?;
    let url = settings.public_url.trim_end_matches('/');
    let link = format!("{url}{}", content.notice.target.path());
    Ok(render(&content, &link, &format!("{url}/me/notifications")))
}

fn message(
    settings: &Settings,
    smtp: &Smtp,
    taken: &LeasedDelivery,
    mail: Rendered,
) -> Result<Message, MailError> {
    let from: Mailbox = smtp.from.parse().map_err(MailError::From)?;
    let address: Address = taken.address.as_deref().unwrap_or_default().parse().map_err(MailError::To)?;
    let url = settings.public_url.trim_end_matches('/');
    Ok(Message::builder()
        .from(from)
        .to(Mailbox::new(None, address))
        .subject(mail.subject)
        .date(taken.created_at.into())
        .message_id(Some(message_id(url, taken.id)))
        // No machine answers it.
        .raw_header(HeaderValue::new(
            HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        ))
        .multipart(MultiPart::alternative_plain_html(mail.text, mail.html))?)
}

//! The settings of money: whether use is charged for, who takes payments, and how people are told.

use std::path::PathBuf;

use billing::model::particulars::{Seller, TaxRule};
use kernel::Secret;
use url::Url;

use super::Reader;

#[derive(Debug)]
pub struct Billing {
    /// Whether use is charged for. Without it launches need no balance, and nothing is metered.
    pub enabled: bool,
    /// ISO 4217; of new ledgers.
    pub currency: String,
}

/// Who sells and what is taxed, as statements say it.
#[derive(Debug, Default)]
pub struct SellerSettings {
    pub seller: Option<Seller>,
    pub tax: Option<TaxRule>,
}

#[derive(Debug)]
pub struct Payments {
    pub provider: PaymentProvider,
    pub api_url: Url,
    pub secret_key_file: Option<PathBuf>,
    /// Two while one secret is replaced by another.
    pub webhook_secret_files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentProvider {
    Disabled,
    /// `gpuaas-pay-sim`: no money moves.
    Simulated,
    Stripe,
}

#[derive(Debug)]
pub struct Notify {
    pub smtp: Option<Smtp>,
    /// Webhooks may go to private and loopback addresses.
    pub private_webhooks: bool,
}

#[derive(Debug)]
pub struct Smtp {
    pub host: String,
    pub port: u16,
    pub encryption: String,
    pub username: Option<String>,
    pub password: Option<Secret<String>>,
    pub from: String,
}

pub(super) fn billing(r: &mut Reader) -> Billing {
    let currency = r.get("billing.currency", "USD".to_owned());
    if currency.len() != 3 || !currency.bytes().all(|b| b.is_ascii_uppercase()) {
        r.problem("billing.currency: must be three capital letters of ISO 4217, such as USD");
    }
    Billing { enabled: r.get("billing.enabled", true), currency }
}

/// The longest line of a name or an address.
const MOST_LETTERS: usize = 200;
const MOST_ADDRESS_LINES: usize = 6;

pub(super) fn seller(r: &mut Reader) -> SellerSettings {
    let name = r.optional::<String>("seller.name");
    let address = r.list("seller.address", &[]);
    let tax_id = r.optional::<String>("seller.tax_id");
    let email = r.optional::<String>("seller.email");
    let tax_name = r.optional::<String>("seller.tax_name");
    let rate = r.optional::<String>("seller.tax_rate_percent");
    let included = r.get("seller.prices_include_tax", true);
    let texts = [("name", &name), ("tax_id", &tax_id), ("email", &email), ("tax_name", &tax_name)];
    let given = texts.iter().filter_map(|(key, text)| Some((*key, text.as_deref()?)));
    for (key, text) in given.chain(address.iter().map(|line| ("address", line.as_str()))) {
        if text.trim().is_empty() || text.chars().count() > MOST_LETTERS || text.chars().any(char::is_control)
        {
            r.problem(format!("seller.{key}: must be one line of 1 to {MOST_LETTERS} letters"));
        }
    }
    if address.len() > MOST_ADDRESS_LINES {
        r.problem(format!("seller.address: must be at most {MOST_ADDRESS_LINES} lines"));
    }
    if email.as_deref().is_some_and(|email| !email.contains('@')) {
        r.problem("seller.email: must be an address such as billing@example.org");
    }
    if name.is_none() && (!address.is_empty() || tax_id.is_some() || email.is_some() || rate.is_some()) {
        r.problem("seller.name: is needed when anything else of the seller is given");
    }
    if tax_name.is_some() != rate.is_some() {
        r.problem("seller: tax_name and tax_rate_percent must be given together");
    }
    let rate_basis_points = rate.as_deref().and_then(TaxRule::parse_rate);
    if rate.is_some() && rate_basis_points.is_none() {
        r.problem(
            "seller.tax_rate_percent: must be from 0 to 100 with at most two decimals, such as 19 or 7.7",
        );
    }
    let tax = tax_name.zip(rate_basis_points);
    SellerSettings {
        seller: name.map(|name| Seller { name, address, tax_id, email }),
        tax: tax.map(|(name, rate_basis_points)| TaxRule { name, rate_basis_points, included }),
    }
}

pub(super) fn payments(r: &mut Reader) -> Payments {
    let provider = match r.get("payments.provider", "disabled".to_owned()).as_str() {
        "disabled" => PaymentProvider::Disabled,
        "simulated" => PaymentProvider::Simulated,
        "stripe" => PaymentProvider::Stripe,
        other => {
            r.problem(format!(
                "payments.provider: there is no {other:?}; choose from disabled, simulated, stripe"
            ));
            PaymentProvider::Disabled
        }
    };
    let api_url = r.optional::<Url>("payments.api_url").or_else(|| Url::parse("https://api.stripe.com").ok());
    let api_url = match api_url {
        Some(url) => url,
        None => unreachable!("a constant URL parses"),
    };
    if api_url.scheme() != "https" && !super::is_loopback(&api_url) {
        r.problem("payments.api_url: plain http is allowed for loopback addresses only; use https");
    }
    let secret_key_file = r.path("payments.secret_key_file");
    let webhook_secret_files: Vec<PathBuf> =
        r.list("payments.webhook_secret_files", &[]).into_iter().map(PathBuf::from).collect();
    if provider != PaymentProvider::Disabled {
        if secret_key_file.is_none() {
            r.problem("payments.secret_key_file: the provider's API key is needed");
        }
        if webhook_secret_files.is_empty() {
            r.problem(
                "payments.webhook_secret_files: at least one is needed, or no payment is ever credited",
            );
        }
    }
    if provider == PaymentProvider::Simulated && !super::is_loopback(&api_url) {
        r.problem("payments.api_url: the simulated provider needs a loopback address");
    }
    Payments { provider, api_url, secret_key_file, webhook_secret_files }
}

pub(super) fn notify(r: &mut Reader) -> Notify {
    let host = r.optional::<String>("notify.smtp.host");
    let encryption = r.get("notify.smtp.encryption", "starttls".to_owned());
    if !matches!(encryption.as_str(), "none" | "starttls" | "tls") {
        r.problem("notify.smtp.encryption: choose from none, starttls, tls");
    }
    let port = r.number("notify.smtp.port", if encryption == "tls" { 465 } else { 587 }, 1, 65535);
    let (username, password) =
        (r.optional::<String>("notify.smtp.username"), r.secret("notify.smtp.password"));
    if username.is_some() != password.is_some() {
        r.problem("notify.smtp: username and password must be given together");
    }
    if password.is_some() && encryption == "none" {
        r.problem("notify.smtp.encryption: a password must not be sent unencrypted; choose starttls or tls");
    }
    let from = r.get("notify.smtp.from", "GPUaaS <no-reply@localhost>".to_owned());
    let smtp = host.map(|host| Smtp {
        host,
        port: u16::try_from(port).unwrap_or(u16::MAX),
        encryption,
        username,
        password,
        from,
    });
    Notify { smtp, private_webhooks: r.get("notify.private_webhooks", false) }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, ConfigError, Flags, PaymentProvider};

    fn read(text: &str) -> Result<Config, ConfigError> {
        Config::read(Some(("gpuaas.toml", text)), std::iter::empty(), Flags::default())
    }

    #[test]
    fn use_is_charged_for_and_nobody_can_pay_until_a_provider_is_named() {
        let config = read("").unwrap();
        assert!(config.billing.enabled && config.billing.currency == "USD");
        assert_eq!(config.payments.provider, PaymentProvider::Disabled);
        assert!(config.notify.smtp.is_none() && !config.notify.private_webhooks);
    }

    #[test]
    fn every_problem_of_money_is_reported_at_once() {
        let text = "[billing]\ncurrency = \"dollars\"\n[payments]\nprovider = \"simulated\"\napi_url = \"http://pay.example.org\"\n\
                    [notify.smtp]\nhost = \"mail.example.org\"\nencryption = \"none\"\nusername = \"me\"\npassword = \"hunter2\"\n";
        let all = read(text).unwrap_err().0.join("\n");
        for part in [
            "billing.currency: must be three",
            "payments.api_url: plain http",
            "payments.api_url: the simulated provider",
            "payments.secret_key_file: the provider's",
            "payments.webhook_secret_files: at least one",
            "notify.smtp.encryption: a password",
        ] {
            assert!(all.contains(part), "{part} is missing from:\n{all}");
        }
        assert!(!all.contains("hunter2"));
        assert!(read("[payments]\nprovider = \"paypal\"").unwrap_err().0[0].contains("choose from disabled"));
    }

    #[test]
    fn a_seller_is_named_with_its_tax_and_nothing_is_said_by_default() {
        let nothing = read("").unwrap().seller;
        assert!(nothing.seller.is_none() && nothing.tax.is_none());
        let text = "[seller]\nname = \"Köln GmbH\"\naddress = [\"Straße 1\", \"Köln\"]\ntax_id = \"DE1\"\n\
            tax_name = \"VAT\"\ntax_rate_percent = 7.7\nprices_include_tax = false\n";
        let settings = read(text).unwrap().seller;
        let seller = settings.seller.unwrap();
        assert_eq!((seller.name.as_str(), seller.address.len(), seller.email), ("Köln GmbH", 2, None));
        let tax = settings.tax.unwrap();
        assert_eq!((tax.rate_basis_points, tax.included), (770, false));
    }

    #[test]
    fn a_seller_that_cannot_be_is_refused_with_what_is_wrong() {
        let text = "[seller]\naddress = [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\"]\nemail = \"nobody\"\n\
            tax_rate_percent = 101\n";
        let refused = read(text).unwrap_err().to_string();
        for part in [
            "seller.address: must be at most 6 lines",
            "seller.email: must be",
            "seller.name: is needed",
            "tax_name and tax_rate_percent must be given together",
            "seller.tax_rate_percent: must be from 0 to 100",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
}

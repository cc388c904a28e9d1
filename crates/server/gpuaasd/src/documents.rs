//! Documents that are generated from the code. `cargo xtask generate` commits them; drift gates compare.

use anyhow::bail;
use endpoint::{Endpoint, openapi};
use events::asyncapi;
use kernel::{Ambient, Secret};
use lifecycle::Lifecycle;
use pg::{Connect, Db};

use crate::{
    compose::{Platform, install_crypto_provider},
    config::{Config, Flags},
    signing,
};

pub const NAMES: &[&str] =
    &["openapi", "openapi-node", "asyncapi", "errors", "roles", "lifecycles", "metrics", "policies"];

/// Makes one of the documents; needs a runtime and no database.
pub fn make(name: &str) -> anyhow::Result<String> {
    Ok(match name {
        "openapi" => {
            install_crypto_provider();
            openapi(&detached()?.endpoints())
        }
        "openapi-node" => pretty(&fleet::gateway::document()),
        "asyncapi" => pretty(&asyncapi::document(&events::published())),
        "errors" => kernel::problem::catalog_markdown(),
        "roles" => kernel::authz::matrix_markdown(),
        "lifecycles" => lifecycles(),
        "metrics" => telemetry::catalog::catalog_markdown(),
        "policies" => identity::model::policy_catalog::catalog_markdown(),
        other => bail!("there is no document {other:?}"),
    })
}

/// The OpenAPI document as it is committed and served.
pub fn openapi(endpoints: &[Endpoint]) -> String {
    let mut document = openapi::document("GPUaaS", env!("CARGO_PKG_VERSION"), endpoints);
    // Served by the issuer, beside the declared endpoints.
    let components = &mut document["components"];
    components["securitySchemes"]["service_account"] = identity::issuer::key_exchange_scheme();
    for (name, schema) in identity::issuer::key_exchange_schemas() {
        components["schemas"][name] = schema;
    }
    pretty(&document)
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

/// The parts, wired to nothing.
pub(crate) fn detached() -> anyhow::Result<Platform> {
    let config = Config::read(None, std::iter::empty(), Flags::default())?;
    let connect = Connect::builtin("/nowhere".as_ref(), 5432, "nobody", "nothing");
    let db = Db::new(connect, 1, 1, Ambient::system());
    Platform::new(&config, db, Secret::new([0; 32]), signing::none())
}

fn lifecycles() -> String {
    let mut out = String::from(
        "# Lifecycles\n\nGenerated from the tables in the code; do not edit. The database holds the same tables and refuses \
         anything else.\n",
    );
    let mut add = |name: &str, diagram: String| out += &format!("\n## {name}\n\n```mermaid\n{diagram}```\n");
    add("invitation", identity::model::invitation::InvitationLifecycle::diagram());
    add("sensitive_change", identity::model::sensitive_change::SensitiveChangeLifecycle::diagram());
    add("dead_letter", bus::dead_letter::DeadLetterLifecycle::diagram());
    add("node", fleet::model::node::NodeLifecycle::diagram());
    add("node_onboarding", fleet::model::onboarding::OnboardingLifecycle::diagram());
    add("slot", fleet::model::slot::SlotLifecycle::diagram());
    add("task", fleet::model::task::TaskLifecycle::diagram());
    add("health_finding", fleet::model::finding::FindingLifecycle::diagram());
    add("authority", fleet::authority::model::authority::AuthorityLifecycle::diagram());
    add("signer", fleet::authority::model::signer::SignerLifecycle::diagram());
    add("allocation", capacity::model::allocation::AllocationLifecycle::diagram());
    add("meter", billing::model::meter::MeterLifecycle::diagram());
    add("balance", billing::model::balance::BalanceLifecycle::diagram());
    add("ledger_adjustment", billing::model::adjustment::AdjustmentLifecycle::diagram());
    add("topup", payments::model::topup::TopupLifecycle::diagram());
    add("payment_message", payments::model::webhook::MessageLifecycle::diagram());
    add("refund", payments::model::refund::RefundLifecycle::diagram());
    add("dispute", payments::model::dispute::DisputeLifecycle::diagram());
    add("payment_day", payments::model::day::DayLifecycle::diagram());
    add("delivery", notify::model::delivery::DeliveryLifecycle::diagram());
    add("webhook", notify::model::webhook::WebhookLifecycle::diagram());
    add("saga_run", saga::RunLifecycle::diagram());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two types of one name would be `Thing` and `Thing2`, in an order that nobody chose.
    #[tokio::test]
    async fn every_schema_has_a_name_of_its_own() {
        for name in ["openapi", "openapi-node", "asyncapi"] {
            let document: serde_json::Value = serde_json::from_str(&make(name).unwrap()).unwrap();
            let schemas = document["components"]["schemas"].as_object().unwrap();
            let is_second = |name: &&String| {
                let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
                base != name.as_str() && schemas.contains_key(base)
            };
            let second: Vec<&String> = schemas.keys().filter(is_second).collect();
            assert!(
                second.is_empty(),
                "{name}: {second:?}: another type has the same name; rename one, or give it one with `as`"
            );
        }
    }
}

//! Messages of the payment provider: taken in through HTTP, beside the same statement from pgbench.

use std::{fmt::Write as _, path::PathBuf};

use anyhow::{Context as _, ensure};
use kernel::Ambient;
use payments::model::webhook;
use serde_json::json;
use sqlx::{Executor as _, PgConnection};
use testkit::{PaySim, WEBHOOK_PATH};

use super::Bench;
use crate::{
    load,
    product::Product,
    report::{Peer, median},
};

/// The least share of pgbench's rate that we mean to reach.
const AIM: f64 = 0.5;
/// Signs the messages of this benchmark, and nothing else.
const SECRET: &str = "whsec_of_the_bench"; // secret-scan: allow
/// Messages that are prepared for each second: more than are sent.
const PER_SECOND: u32 = 12_000;

/// As `payments` keeps a message. Ids go up with time, as ours do.
const KEEP: &str = "\\set n random(1, 4000000000000000000)
WITH kept AS (
    INSERT INTO payment_messages (id, provider, event_id, event_type, body, received_at, next_attempt_at)
    VALUES ((lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || substr(md5(:n::text), 1, 20))::uuid,
        :provider, 'evt_bench_' || :n::text, 'checkout.session.completed', :body::bytea, now(), now())
    ON CONFLICT (provider, event_id) DO NOTHING RETURNING id
)
SELECT pg_notify('gpuaas_webhooks', '') IS NOT NULL FROM kept;
";

/// As long as the provider's messages about a checkout are.
fn body(n: u32) -> String {
    json!({
        "id": format!("evt_bench_{n:012}"), "object": "event", "api_version": "2024-06-20", "created": 1_760_000_000,
        "type": "checkout.session.completed", "livemode": false, "pending_webhooks": 1,
        "request": { "id": null, "idempotency_key": null },
        "data": { "object": {
            "id": format!("cs_test_bench_{n:012}"), "object": "checkout.session", "amount_subtotal": 5000, "amount_total": 5000,
            "currency": "usd", "mode": "payment", "payment_status": "paid", "status": "complete",
            "client_reference_id": format!("topup_{n:032}"), "customer": format!("cus_bench_{n:012}"),
            "payment_intent": format!("pi_bench_{n:012}"), "expires_at": 1_760_086_400, "created": 1_760_000_000,
            "success_url": "https://gpuaas.example/billing?paid", "cancel_url": "https://gpuaas.example/billing",
            "automatic_tax": { "enabled": false, "liability": null, "status": null },
            "customer_details": { "address": { "city": null, "country": "DE", "line1": null, "postal_code": null },
                "email": format!("owner-{n}@example.com"), "name": "Example", "phone": null, "tax_exempt": "none", "tax_ids": [] },
            "custom_text": { "after_submit": null, "shipping_address": null, "submit": null, "terms_of_service_acceptance": null },
            "payment_method_options": { "card": { "request_three_d_secure": "automatic" } }, "payment_method_types": ["card"],
            "phone_number_collection": { "enabled": false }, "shipping_options": [], "submit_type": null, "subscription": null,
            "metadata": { "org_id": format!("org_{n:032}"), "topup_id": format!("topup_{n:032}") },
            "total_details": { "amount_discount": 0, "amount_shipping": 0, "amount_tax": 0 }, "ui_mode": "hosted", "url": null
        } }
    })
    .to_string()
}

fn lua(messages: &str) -> String {
    format!(
        "local signatures, bodies, n = {{}}, {{}}, 0
for line in io.lines('{messages}') do
  local tab = line:find('\\t', 1, true)
  n = n + 1
  signatures[n], bodies[n] = line:sub(1, tab - 1), line:sub(tab + 1)
end
local at = 0
request = function()
  at = at % n + 1
  local headers = {{ ['content-type'] = 'application/json', ['stripe-signature'] = signatures[at] }}
  return wrk.format('POST', '{WEBHOOK_PATH}', headers, bodies[at])
end
"
    )
}

/// Messages that were not sent before.
struct Messages {
    next: u32,
}

impl Messages {
    /// A script for wrk that sends them.
    fn prepare(&mut self, product: &Product, count: u32) -> anyhow::Result<PathBuf> {
        let now = Ambient::system().now().timestamp();
        let mut text = String::new();
        for n in self.next..self.next + count {
            let body = body(n);
            writeln!(text, "{}\t{body}", webhook::sign(SECRET, now, body.as_bytes()))?;
        }
        self.next += count;
        let messages = product.file("messages", &text)?;
        product.file("messages.lua", &lua(&messages.display().to_string()))
    }
}

impl Bench {
    pub async fn intake(&mut self) -> anyhow::Result<()> {
        let provider = PaySim::prepare();
        provider.set_secrets(&[SECRET]);
        let mut product = Product::prepare_with(&provider.options().config)?;
        product.start(&["--roles", "api,webhook-worker"]).await?;
        let mut db = product.database().await?;
        // What was kept stays there: it is taking in that is measured.
        db.execute("REVOKE UPDATE ON payment_messages FROM gpuaas_system").await?;
        let mut messages = Messages { next: 0 };
        let script = messages.prepare(&product, 1000)?;
        load::wrk(&product.base, &[], Some(&script), (1, 1)).await.context("the first messages")?;
        let name: String =
            sqlx::query_scalar("SELECT provider FROM payment_messages LIMIT 1").fetch_one(&mut db).await?;
        for clients in self.options.senders.clone() {
            self.report.step(&format!("messages, {clients} clients"));
            self.take_in(&product, &mut db, &mut messages, (clients, &name)).await?;
        }
        Ok(())
    }

    async fn take_in(
        &mut self,
        product: &Product,
        db: &mut PgConnection,
        messages: &mut Messages,
        (clients, provider): (u32, &str),
    ) -> anyhow::Result<()> {
        let (pgbench, socket) = (load::find_pgbench()?, product.socket_dir()?);
        let script = product.file("keep.sql", KEEP)?;
        let body = body(0);
        let (seconds, both) = (self.seconds, (clients, self.seconds));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..self.pairs {
            let prepared = PER_SECOND * seconds;
            let requests = messages.prepare(product, prepared)?;
            empty(db).await?;
            let work = load::wrk(&product.base, &[], Some(&requests), both);
            let sample = product.measure(seconds, product.pid(), work).await?;
            let kept: i64 =
                sqlx::query_scalar("SELECT count(*) FROM payment_messages").fetch_one(&mut *db).await?;
            ensure!(kept < i64::from(prepared), "all {prepared} messages were sent: prepare more");
            let sent = sample.per_second * f64::from(seconds);
            ensure!(kept as f64 > sent * 0.95, "of {sent:.0} messages only {kept} were kept");
            ours.push(sample);
            empty(db).await?;
            let variables = [("provider", provider), ("body", body.as_str())];
            let work = load::pgbench_as_system(&pgbench, &socket, &variables, &script, both);
            theirs.push(product.measure(seconds, 0, work).await?);
        }
        let operation =
            format!("POST message of the payment provider ({} bytes), {clients} clients", body.len());
        let peer = Peer { name: "pgbench, same SQL", sample: median(&theirs), aim: Some(AIM) };
        self.report.compare(&operation, median(&ours), &[peer]);
        Ok(())
    }
}

async fn empty(db: &mut PgConnection) -> anyhow::Result<()> {
    db.execute("TRUNCATE payment_messages").await?;
    db.execute("CHECKPOINT").await?;
    Ok(())
}

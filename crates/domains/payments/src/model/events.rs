//! What payments tell the rest of the product, on the stream PAYMENTS.

use bus::asyncapi::EventDoc;
use kernel::{
    Event, Stream,
    ids::{DisputeId, OrgId, PaymentId, RefundId},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! events {
    ($($name:ident = $type:literal, $summary:literal { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            #[doc = $summary]
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
            pub struct $name { $(pub $field: $kind),* }
            impl Event for $name {
                const TYPE: &'static str = $type;
                const STREAM: Stream = Stream::Payments;
                const SUMMARY: &'static str = $summary;
            }
        )*

        /// Every event as the document of events shows it.
        pub fn docs() -> Vec<EventDoc> {
            vec![$(EventDoc::of::<$name>()),*]
        }
    };
}

events! {
    BalanceCredited = "payments.balance_credited", "A payment arrived and is in the balance." {
        org_id: OrgId, payment_id: PaymentId, amount_minor: i64, currency: String }
    PaymentRefunded = "payments.refunded", "Money went back to the card, or became credit." {
        org_id: OrgId, payment_id: PaymentId, refund_id: RefundId, amount_minor: i64, currency: String, to_card: bool }
    PaymentDisputed = "payments.disputed", "The amount of a payment is frozen, gone, or free again." {
        org_id: OrgId, payment_id: PaymentId, dispute_id: DisputeId, amount_minor: i64, currency: String, state: String }
    ReconcileFailed = "payments.reconcile_failed", "The provider lists other payments than we do." {
        day: String, missing: i64, extra: i64, different: i64 }
}

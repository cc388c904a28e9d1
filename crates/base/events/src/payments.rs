//! What payments tell the rest of the product, on the stream PAYMENTS.

use kernel::ids::{DisputeId, OrgId, PaymentId, RefundId};

lifecycle::named_enum! {
    DisputeState = "dispute state" { Open = "open", Won = "won", Lost = "lost" }
}

lifecycle::named_columns! { DisputeState }

crate::declare::events! { Payments;
    BalanceCredited = "payments.balance_credited", "A payment arrived and is in the balance." {
        org_id: OrgId, payment_id: PaymentId, amount_minor: i64, currency: String }
    PaymentRefunded = "payments.refunded", "Money went back to the card, or became credit." {
        org_id: OrgId, payment_id: PaymentId, refund_id: RefundId, amount_minor: i64, currency: String, to_card: bool }
    PaymentDisputed = "payments.disputed", "The amount of a payment is frozen, gone, or free again." {
        org_id: OrgId, payment_id: PaymentId, dispute_id: DisputeId, amount_minor: i64, currency: String, state: DisputeState }
    ReconcileFailed = "payments.reconcile_failed", "The provider lists other payments than we do." {
        day: String, missing: i64, extra: i64, different: i64 }
}

//! What payments tell the rest of the product, on the stream PAYMENTS.

use kernel::ids::{DisputeId, OrgId, PaymentId, RefundId};

lifecycle::named_enum! {
    DisputeState = "dispute state" { Open = "open", Won = "won", Lost = "lost" }
}

lifecycle::named_columns! { DisputeState }

crate::declare::events! { Payments;
    BalanceCredited = "payments.balance_credited", "A payment was received and added to the balance." {
        org_id: OrgId, payment_id: PaymentId, amount_minor: i64, currency: String }
    PaymentRefunded = "payments.refunded", "A payment was refunded to the card, or converted to credit." {
        org_id: OrgId, payment_id: PaymentId, refund_id: RefundId, amount_minor: i64, currency: String, to_card: bool }
    PaymentDisputed = "payments.disputed", "A dispute about a payment was opened, won or lost." {
        org_id: OrgId, payment_id: PaymentId, dispute_id: DisputeId, amount_minor: i64, currency: String, state: DisputeState }
    ReconcileFailed = "payments.reconcile_failed", "The payments of a day at the provider differ from our records." {
        day: String, missing: i64, extra: i64, different: i64 }
}

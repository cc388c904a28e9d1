//! SQL: the only writer of this domain's tables.

pub mod days;
pub mod disputes;
pub mod payments;
pub mod refunds;
pub mod topups;
pub mod webhooks;

use crate::model::{
    day::DayState,
    refund::{RefundDestination, RefundSource, RefundState},
    topup::TopupState,
    webhook::MessageState,
};

pg::named_columns! {
    DayState, MessageState, RefundDestination, RefundSource, RefundState, TopupState,
}

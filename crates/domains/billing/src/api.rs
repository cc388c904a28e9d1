//! What other domains may use.

pub use crate::{
    Billing,
    model::{
        account::{Account, Balances, Line, Posted, Posting, PostingKind},
        launch_funds::{Depletion, FundsRefusal, LaunchCost, LaunchFunds},
        meter::{Launch, LaunchMeter, MeterUnit},
        rating::hour_cost,
    },
    service::{
        balance::balances_of,
        balance_checks::{budgets_overdue, is_depleted, is_metered, must_release_project, overdue},
        budgets::project_is_limited,
        credits::{Fault, Resumed, credit, credit_end},
        holds::{
            funds_check, funds_hold, funds_problem, launch_failed, launch_funds, meter_close, meter_open,
        },
        posting::post,
        provider_findings::{
            ProviderFinding, provider_finding, provider_finding_over, provider_findings_gone,
        },
        reconcile::RunningAllocations,
        resource_names::ResourceNames,
        spend_caps::{account_is_capped, must_release_account, spend_caps_overdue},
    },
};

/// What a [`Billing`] is made with.
pub use identity::api::Policies;

//! Charges in the shape of FOCUS 1.0, the open format for bills of clouds: one row for each window of each meter, and one
//! for each credit or correction besides. Their `BilledCost` is what the ledger gained as revenue, less what was given:
//! the rows of a month sum to exactly that. Money that is paid in is no charge, so top-ups are not in it.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use kernel::{
    ids::{AllocationId, OrgId, ProjectId},
    money::decimal,
};

use super::{
    account::PostingKind,
    meter::MeterUnit,
    report::{Month, UsageKind, UsageRecord, hours},
};

pub const COLUMNS: [&str; 43] = [
    "AvailabilityZone",
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "CommitmentDiscountCategory",
    "CommitmentDiscountId",
    "CommitmentDiscountName",
    "CommitmentDiscountStatus",
    "CommitmentDiscountType",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "SkuId",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
];

const PROVIDER: &str = "GPUaaS";

/// A credit or correction that belongs to no meter.
#[derive(Clone, Debug)]
pub struct Grant {
    pub seq: i64,
    pub line: i32,
    pub kind: PostingKind,
    pub reason: String,
    pub posted_at: DateTime<Utc>,
    /// What the platform's account gained: less than zero when the organization did.
    pub amount_minor: i64,
    pub currency: String,
    pub project: Option<ProjectId>,
    pub allocation: Option<AllocationId>,
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

const fn unit_name(unit: MeterUnit) -> &'static str {
    match unit {
        MeterUnit::GpuHour => "GPU-Hours",
        MeterUnit::NodeHour => "Node-Hours",
        MeterUnit::Request => "Requests",
        MeterUnit::JobHour => "Job-Hours",
        MeterUnit::RuntimeUptimeHour => "Hours",
    }
}

/// The columns that every row has.
fn common(org: OrgId, posted_at: DateTime<Utc>, cost_minor: i64, currency: &str) -> Row {
    let (period, cost) = (Month::containing(posted_at).span(), decimal(cost_minor, currency));
    let mut row = Row([const { String::new() }; 43]);
    row.set("BilledCost", cost.clone());
    row.set("EffectiveCost", cost.clone());
    row.set("ListCost", cost.clone());
    row.set("ContractedCost", cost);
    row.set("BillingAccountId", org.to_string());
    row.set("BillingCurrency", currency.to_owned());
    row.set("BillingPeriodStart", time(period.from));
    row.set("BillingPeriodEnd", time(period.to));
    for column in ["InvoiceIssuerName", "ProviderName", "PublisherName"] {
        row.set(column, PROVIDER.to_owned());
    }
    row.set("ServiceCategory", "Compute".to_owned());
    row.set("ServiceName", "GPU capacity".to_owned());
    row.set("Tags", "{}".to_owned());
    row
}

/// One row, by the order of [`COLUMNS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row(pub [String; 43]);

impl Row {
    fn set(&mut self, column: &str, value: String) {
        for (name, cell) in COLUMNS.iter().zip(self.0.iter_mut()) {
            if *name == column {
                *cell = value;
                return;
            }
        }
    }

    pub fn of_usage(org: OrgId, record: &UsageRecord) -> Self {
        let mut row = common(org, record.posted_at, record.amount_minor, &record.currency);
        let category = if record.kind == UsageKind::Credit { "Credit" } else { "Usage" };
        row.set("ChargeCategory", category.to_owned());
        if record.kind == UsageKind::Correction {
            row.set("ChargeClass", "Correction".to_owned());
        }
        let what = match record.kind {
            UsageKind::Credit => "Given back",
            UsageKind::Correction => "Corrected",
            UsageKind::Usage => "Used",
        };
        row.set("ChargeDescription", format!("{what}: {} × {}", record.units, record.sku));
        row.set("ChargeFrequency", "Usage-Based".to_owned());
        row.set("ChargePeriodStart", time(record.window_start));
        row.set("ChargePeriodEnd", time(record.window_end));
        let (quantity, unit) = (hours(record.unit_seconds), unit_name(record.unit).to_owned());
        row.set("ConsumedQuantity", quantity.clone());
        row.set("ConsumedUnit", unit.clone());
        row.set("PricingQuantity", quantity);
        row.set("PricingUnit", unit);
        row.set("PricingCategory", "Standard".to_owned());
        row.set("ListUnitPrice", decimal(record.unit_price_minor, &record.currency));
        row.set("ContractedUnitPrice", decimal(record.unit_price_minor, &record.currency));
        let resource = match (record.allocation_id, record.app_instance_id) {
            (Some(id), _) => Some((id.to_string(), "Allocation")),
            (None, Some(id)) => Some((id.to_string(), "App instance")),
            (None, None) => None,
        };
        if let Some((id, kind)) = resource {
            row.set("ResourceId", id);
            row.set("ResourceType", kind.to_owned());
        }
        row.set("SkuId", record.sku.clone());
        row.set("SkuPriceId", format!("{}/{}/{}", record.sku, record.unit, record.unit_price_minor));
        row.set("SubAccountId", record.project_id.to_string());
        row
    }

    pub fn of_grant(org: OrgId, grant: &Grant) -> Self {
        let mut row = common(org, grant.posted_at, grant.amount_minor, &grant.currency);
        if grant.kind == PostingKind::Correction {
            row.set("ChargeCategory", "Adjustment".to_owned());
            row.set("ChargeClass", "Correction".to_owned());
        } else {
            row.set("ChargeCategory", "Credit".to_owned());
        }
        row.set("ChargeDescription", grant.reason.clone());
        row.set("ChargeFrequency", "One-Time".to_owned());
        row.set("ChargePeriodStart", time(grant.posted_at));
        row.set("ChargePeriodEnd", time(grant.posted_at + TimeDelta::seconds(1)));
        if let Some(project) = grant.project {
            row.set("SubAccountId", project.to_string());
        }
        if let Some(allocation) = grant.allocation {
            row.set("ResourceId", allocation.to_string());
            row.set("ResourceType", "Allocation".to_owned());
        }
        row
    }
}

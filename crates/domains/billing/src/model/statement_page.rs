//! A statement as people read it: the same words and amounts on screen and on paper.

use kernel::money::decimal;

use super::{
    account::PostingKind,
    meter::MeterUnit,
    particulars::{Seller, Tax},
    statement::{Statement, StatementMovement, StatementUsage},
};

/// A heading with lines below it: what, and how much.
pub struct Section {
    pub heading: &'static str,
    pub lines: Vec<(String, String)>,
    /// What is shown last, and set apart.
    pub total: Option<(String, String)>,
}

/// The page: a title, who sells and who buys, what it is about, sections, and notes at the end.
#[derive(Default)]
pub struct StatementPage {
    pub title: String,
    pub seller: Vec<String>,
    pub buyer: Vec<String>,
    pub about: Vec<String>,
    pub sections: Vec<Section>,
    pub notes: Vec<String>,
}

/// A name that somebody chose, in a sentence of ours: whatever its direction, it does not turn what is beside it, and it
/// brings no marks of direction of its own.
fn name_in_text(name: &str) -> String {
    let is_mark =
        |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    format!("\u{2068}{}\u{2069}", name.replace(is_mark, ""))
}

impl StatementPage {
    pub fn from_statement(statement: &Statement) -> Self {
        let currency = &statement.currency;
        let title = match &statement.number {
            Some(number) => format!("Statement {} {number}", statement.month),
            None => format!("Statement {}", statement.month),
        };
        let mut notes = Vec::new();
        let mut sections = vec![summary(statement), usage(statement)];
        if let Some(tax) = &statement.tax {
            sections.push(tax_section(tax, currency));
            notes.push(tax_note(tax).to_owned());
        }
        sections.push(movements(statement));
        sections.push(closing(statement));
        Self {
            title,
            seller: statement.seller.as_ref().map(seller).unwrap_or_default(),
            buyer: vec![name_in_text(&statement.buyer.name), statement.org_id.to_string()],
            about: about(statement),
            sections,
            notes,
        }
    }
}

fn seller(seller: &Seller) -> Vec<String> {
    let mut lines = vec![name_in_text(&seller.name)];
    lines.extend(seller.address.iter().map(|line| name_in_text(line)));
    lines.extend(seller.tax_id.as_ref().map(|id| format!("Tax id {id}")));
    lines.extend(seller.email.clone());
    lines
}

fn about(statement: &Statement) -> Vec<String> {
    let span = statement.month.span();
    let last = span.to - chrono::TimeDelta::days(1);
    let mut about = vec![
        format!(
            "{} to {} (UTC), amounts in {}",
            span.from.date_naive(),
            last.date_naive(),
            statement.currency
        ),
        format!("Everything posted up to entry {} of the ledger", statement.through_seq),
    ];
    if let (Some(number), Some(at)) = (&statement.number, statement.issued_at) {
        about.insert(0, format!("Number {number}, issued {}", at.date_naive()));
    }
    if statement.provisional {
        about.push("Provisional: the month has not ended.".to_owned());
    }
    about
}

fn summary(statement: &Statement) -> Section {
    let amount = |minor: i64| decimal(minor, &statement.currency);
    let mut lines = vec![("Opening balance".to_owned(), amount(statement.opening_minor))];
    lines.extend(statement.changes.named().map(|(name, minor)| (name.to_owned(), amount(minor))));
    let total = Some(("Closing balance".to_owned(), amount(statement.closing_minor)));
    Section { heading: "Summary", lines, total }
}

fn usage(statement: &Statement) -> Section {
    let line = |used: &StatementUsage| {
        let project = used.project_name.as_deref().map_or_else(|| used.project_id.to_string(), name_in_text);
        let product = used.product_name.as_deref().map_or_else(|| used.sku.clone(), name_in_text);
        let what = format!("{project}, {product}, {}", quantity(used));
        (what, decimal(used.amount_minor, &statement.currency))
    };
    let charged: i64 = statement.usage.iter().map(|used| used.amount_minor).sum();
    Section {
        heading: "Usage by project and product",
        lines: statement.usage.iter().map(line).collect(),
        total: Some(("Total usage".to_owned(), decimal(charged, &statement.currency))),
    }
}

/// Rounded to hundredths; the JSON of a statement has the seconds.
fn quantity(used: &StatementUsage) -> String {
    let hundredths = (i128::from(used.unit_seconds) * 100 + 1_800) / 3_600;
    let unit = match used.unit {
        MeterUnit::GpuHour => "GPU hours",
        MeterUnit::NodeHour => "node hours",
        MeterUnit::RuntimeUptimeHour => "hours of uptime",
        MeterUnit::Request => "requests",
        MeterUnit::JobHour => "job hours",
    };
    format!("{}.{:02} {unit}", hundredths / 100, hundredths % 100)
}

/// As people call it.
const fn kind_name(kind: PostingKind) -> &'static str {
    match kind {
        PostingKind::Topup => "Top-up",
        PostingKind::Usage => "Usage",
        PostingKind::Hold => "Hold",
        PostingKind::HoldRelease => "Hold released",
        PostingKind::Refund => "Refund",
        PostingKind::Credit => "Credit",
        PostingKind::Promo => "Promotional credit",
        PostingKind::Correction => "Correction",
    }
}

fn tax_section(tax: &Tax, currency: &str) -> Section {
    let lines = vec![
        ("Usage, net".to_owned(), decimal(tax.net_minor, currency)),
        (format!("{} {} %", tax.name, tax.rate_percent), decimal(tax.tax_minor, currency)),
    ];
    let total = Some(("Usage, gross".to_owned(), decimal(tax.gross_minor, currency)));
    Section { heading: "Tax on usage", lines, total }
}

const fn tax_note(tax: &Tax) -> &'static str {
    if tax.included {
        "Prices include the tax. It is calculated once, on the usage of the month, and rounded half away from zero; the balance is \
         not changed by it."
    } else {
        "Prices do not include the tax. It is calculated once, on the usage of the month, and rounded half away from zero. The \
         balance was charged the net amount; the tax is not part of the balance."
    }
}

fn movements(statement: &Statement) -> Section {
    let line = |moved: &StatementMovement| {
        let day = moved.posted_at.date_naive();
        let mut what = format!("{day} {}: {}", kind_name(moved.kind), name_in_text(&moved.reason));
        match (&moved.allocation_name, moved.allocation_id) {
            (Some(name), _) => what += &format!(" (allocation {})", name_in_text(name)),
            (None, Some(id)) => what += &format!(" (allocation {id})"),
            (None, None) => {}
        }
        (what, decimal(moved.amount_minor, &statement.currency))
    };
    let mut lines: Vec<(String, String)> = statement.movements.iter().map(line).collect();
    if statement.movements_left_out > 0 {
        lines.push((format!("and {} more in the ledger", statement.movements_left_out), String::new()));
    }
    Section { heading: "Top-ups, credits, refunds and corrections", lines, total: None }
}

fn closing(statement: &Statement) -> Section {
    let amount = |minor: i64| decimal(minor, &statement.currency);
    let closing = statement.closing;
    Section {
        heading: "The closing balance consists of",
        lines: vec![
            ("Prepaid".to_owned(), amount(closing.prepaid_minor)),
            ("On hold for running allocations".to_owned(), amount(closing.held_minor)),
            ("Promotional credit".to_owned(), amount(closing.promo_minor)),
            ("Frozen by disputes".to_owned(), amount(closing.disputed_minor)),
        ],
        total: None,
    }
}

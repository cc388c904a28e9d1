//! Who sells, who buys and what is taxed, as a statement says it.
//!
//! **Tax.** A statement shows one tax on what was charged for use in the month. Prices include it or do not, as the
//! installation is configured; it is rounded once, on the sum of the month, half away from zero. The ledger knows nothing of
//! it: with prices that include the tax, the tax is a part of what the ledger charged; with prices that do not, the ledger
//! charged the net amount and the statement says what is to be paid besides.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A whole, in hundredths of a percent.
const WHOLE: i128 = 10_000;

/// Who sells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StatementSeller")]
pub struct Seller {
    pub name: String,
    #[serde(default)]
    pub address: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub tax_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub email: Option<String>,
}

/// Who buys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StatementBuyer")]
pub struct Buyer {
    pub name: String,
}

/// The tax of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaxRule {
    /// As people know it, such as VAT.
    pub name: String,
    /// In hundredths of a percent.
    pub rate_basis_points: u16,
    /// Prices include it.
    pub included: bool,
}

/// What was charged for use, with its tax.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "StatementTax")]
pub struct Tax {
    pub name: String,
    /// Such as `19` or `7.7`.
    pub rate_percent: String,
    /// The ledger charged the gross amount; otherwise the net amount, and the tax is to be paid besides.
    pub included: bool,
    pub net_minor: i64,
    pub tax_minor: i64,
    pub gross_minor: i64,
}

/// What a numbered statement keeps as it was when it was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Particulars {
    pub buyer: Buyer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seller: Option<Seller>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tax: Option<TaxRule>,
}

/// Half away from zero; `by` is not zero.
const fn divide_rounded(amount: i128, by: i128) -> i128 {
    let half = if amount.is_negative() { -by / 2 } else { by / 2 };
    (amount + half) / by
}

fn minor(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount.is_negative() { i64::MIN } else { i64::MAX })
}

impl TaxRule {
    /// A rate from text such as `19` or `7.7`: from 0 to 100 with at most two decimals.
    pub fn parse_rate(text: &str) -> Option<u16> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 2 {
            return None;
        }
        let hundredths = if part.len() == 1 { part.parse::<u16>().ok()? * 10 } else { part.parse().ok()? };
        let rate = whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(hundredths)?;
        (i128::from(rate) <= WHOLE).then_some(rate)
    }

    fn rate_percent(&self) -> String {
        let (whole, part) = (self.rate_basis_points / 100, self.rate_basis_points % 100);
        match part {
            0 => whole.to_string(),
            part if part % 10 == 0 => format!("{whole}.{}", part / 10),
            part => format!("{whole}.{part:02}"),
        }
    }

    /// The tax on what the ledger charged.
    pub fn tax(&self, charged_minor: i64) -> Tax {
        let (charged, rate) = (i128::from(charged_minor), i128::from(self.rate_basis_points));
        let (net, gross) = if self.included {
            (divide_rounded(charged * WHOLE, WHOLE + rate), charged)
        } else {
            (charged, charged + divide_rounded(charged * rate, WHOLE))
        };
        Tax {
            name: self.name.clone(),
            rate_percent: self.rate_percent(),
            included: self.included,
            net_minor: minor(net),
            tax_minor: minor(gross - net),
            gross_minor: minor(gross),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(rate_basis_points: u16, included: bool) -> TaxRule {
        TaxRule { name: "VAT".to_owned(), rate_basis_points, included }
    }

    #[test]
    fn rates_are_whole_or_have_two_decimals() {
        let rates = ["0", "19", "7.7", "7.07", "20.5", "100", "100.00"].map(TaxRule::parse_rate);
        assert_eq!(rates.map(Option::unwrap_or_default), [0, 1900, 770, 707, 2050, 10_000, 10_000]);
        for wrong in ["", ".", "1.", ".5", "19%", "-1", "+1", "100.01", "101", "7.777", "1e1", "7,7"] {
            assert_eq!(TaxRule::parse_rate(wrong), None, "{wrong}");
        }
        let shown = [1900, 770, 707, 0].map(|rate| rule(rate, true).rate_percent());
        assert_eq!(shown, ["19", "7.7", "7.07", "0"]);
    }

    #[test]
    fn a_tax_is_rounded_once_half_away_from_zero() {
        let parts = |rate, included, charged| {
            let tax = rule(rate, included).tax(charged);
            (tax.net_minor, tax.tax_minor, tax.gross_minor)
        };
        assert_eq!(parts(1900, true, 11_900), (10_000, 1_900, 11_900));
        assert_eq!(parts(1900, false, 10_000), (10_000, 1_900, 11_900));
        // 0.5 is 1, and minus 0.5 is minus 1.
        assert_eq!(parts(5000, false, 1), (1, 1, 2));
        assert_eq!(parts(5000, false, -1), (-1, -1, -2));
        assert_eq!(parts(2500, false, 1), (1, 0, 1));
        assert_eq!(parts(1900, true, 1), (1, 0, 1));
        assert_eq!(parts(0, true, 77), (77, 0, 77));
        assert_eq!(parts(10_000, false, i64::MAX).2, i64::MAX);
    }

    #[test]
    fn amounts_are_rounded_half_away_from_zero_and_bounded_on_both_sides() {
        let halves = [-5, -4, 0, 4, 5].map(|amount| divide_rounded(amount, 10));
        assert_eq!(halves, [-1, 0, 0, 0, 1]);
        let whole = i128::from(i64::MAX);
        assert_eq!([minor(whole), minor(whole + 1)], [i64::MAX; 2]);
        assert_eq!([minor(-whole - 1), minor(-whole - 2)], [i64::MIN; 2]);
        assert_eq!([minor(-3), minor(0), minor(3)], [-3, 0, 3]);
    }

    proptest! {
        #[test]
        fn net_and_tax_are_gross_and_the_tax_is_the_rate_to_less_than_a_minor_unit(
            rate in 0..=10_000u16, included in any::<bool>(), charged in -1_000_000_000_000i64..1_000_000_000_000) {
            let tax = rule(rate, included).tax(charged);
            prop_assert_eq!(tax.net_minor + tax.tax_minor, tax.gross_minor);
            prop_assert_eq!(if included { tax.gross_minor } else { tax.net_minor }, charged);
            let off = i128::from(tax.tax_minor) * WHOLE - i128::from(tax.net_minor) * i128::from(rate);
            // Half a minor unit of the tax, and what that changes of the net amount.
            prop_assert!(off.abs() <= WHOLE, "{off}");
        }
    }
}

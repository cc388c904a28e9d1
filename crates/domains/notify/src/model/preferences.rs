//! What a person wants to be told, and how.

use std::collections::BTreeMap;

use kernel::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::notice::{NoticeKind, Severity};

/// How somebody wants to hear of a kind of notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    pub in_app: bool,
    pub email: bool,
}

impl Choice {
    /// Without a choice: all of it in the product, and by mail what one would want to know when not signed in.
    pub fn default_of(kind: NoticeKind) -> Self {
        Self { in_app: true, email: !matches!(kind, NoticeKind::BalanceRestored) }
    }
}

/// Choices by kind, as they are stored: only those that differ from the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices(BTreeMap<NoticeKind, Choice>);

impl Choices {
    /// What is not understood (a kind of another version) counts as no choice.
    pub fn read(stored: &serde_json::Value) -> Self {
        let entries = stored.as_object().into_iter().flatten();
        Self(
            entries
                .filter_map(|(kind, choice)| Some((kind.parse().ok()?, Choice::deserialize(choice).ok()?)))
                .collect(),
        )
    }

    pub fn stored(&self) -> Result<serde_json::Value, serde_json::Error> {
        let entries: BTreeMap<&str, &Choice> =
            self.0.iter().map(|(kind, choice)| (kind.name(), choice)).collect();
        serde_json::to_value(entries)
    }

    pub fn choice_for(&self, kind: NoticeKind) -> Choice {
        let chosen = self.0.get(&kind).copied().unwrap_or_else(|| Choice::default_of(kind));
        Choice { in_app: chosen.in_app || kind.always_in_app(), ..chosen }
    }

    /// Changes what is named and keeps the rest.
    pub fn change(&mut self, changes: &[PreferenceChange]) -> Result<(), Problem> {
        for (place, change) in changes.iter().enumerate() {
            let kind = change.kind;
            if change.in_app == Some(false) && kind.always_in_app() {
                let text = format!("{} cannot be disabled in the product; its mail can", kind.name());
                return Err(Problem::field(format!("items[{place}].in_app"), text));
            }
            let now = self.choice_for(kind);
            let choice = Choice {
                in_app: change.in_app.unwrap_or(now.in_app),
                email: change.email.unwrap_or(now.email),
            };
            if choice == Choice::default_of(kind) {
                self.0.remove(&kind);
            } else {
                self.0.insert(kind, choice);
            }
        }
        Ok(())
    }

    pub fn view(&self, version: i64) -> NotificationPreferences {
        let item = |kind: NoticeKind| {
            let choice = self.choice_for(kind);
            NotificationPreference {
                kind,
                severity: kind.severity(),
                in_app: choice.in_app,
                in_app_fixed: kind.always_in_app(),
                email: choice.email,
            }
        };
        NotificationPreferences { items: NoticeKind::ALL.into_iter().map(item).collect(), version }
    }
}

/// How you are told of one kind of notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotificationPreference {
    pub kind: NoticeKind,
    pub severity: Severity,
    pub in_app: bool,
    /// It cannot be switched off in the product.
    pub in_app_fixed: bool,
    pub email: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotificationPreferences {
    pub items: Vec<NotificationPreference>,
    pub version: i64,
}

/// One choice to make.
#[derive(Clone, Copy, Debug)]
pub struct PreferenceChange {
    pub kind: NoticeKind,
    pub in_app: Option<bool>,
    pub email: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: NoticeKind, in_app: Option<bool>, email: Option<bool>) -> PreferenceChange {
        PreferenceChange { kind, in_app, email }
    }

    #[test]
    fn a_choice_is_kept_and_going_back_to_the_default_is_no_choice() {
        let mut choices = Choices::default();
        choices.change(&[change(NoticeKind::LowBalance, None, Some(false))]).unwrap();
        let kept = Choices::read(&choices.stored().unwrap());
        assert_eq!(kept.choice_for(NoticeKind::LowBalance), Choice { in_app: true, email: false });
        choices.change(&[change(NoticeKind::LowBalance, None, Some(true))]).unwrap();
        assert_eq!(choices, Choices::default());
    }

    #[test]
    fn depletion_is_always_shown_in_the_product_whatever_is_stored() {
        let mut choices = Choices::default();
        let refused = choices.change(&[change(NoticeKind::BalanceDepleted, Some(false), None)]).unwrap_err();
        assert_eq!(refused.details["fields"][0]["field"], "items[0].in_app");
        let stored =
            serde_json::json!({ "balance_depleted": { "in_app": false, "email": false }, "other": 3 });
        assert_eq!(
            Choices::read(&stored).choice_for(NoticeKind::BalanceDepleted),
            Choice { in_app: true, email: false }
        );
    }
}

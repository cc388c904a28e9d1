//! A refused launch, for people: why, and what to type instead.

use clap::Args as ClapArgs;
use serde_json::Value;

use crate::{app::App, failure::Failure};

/// The requested product and size.
#[derive(Clone, ClapArgs)]
pub struct What {
    /// Product; see `gpuaas catalog`.
    #[arg(value_name = "SKU", required_unless_present = "sku_option")]
    pub sku: Option<String>,
    /// Product, as an option.
    #[arg(long = "sku", value_name = "SKU", conflicts_with = "sku", hide = true)]
    pub sku_option: Option<String>,
    /// GPUs per machine; the smallest size when neither this nor --profile is given.
    #[arg(long, value_parser = clap::value_parser!(i32).range(0..=1024))]
    pub gpus: Option<i32>,
    /// Size of the product, by name.
    #[arg(long)]
    pub profile: Option<String>,
    /// Region; any by default.
    #[arg(long)]
    pub region: Option<String>,
}

impl What {
    pub fn sku(&self) -> &str {
        self.sku.as_deref().or(self.sku_option.as_deref()).unwrap_or_default()
    }
}

/// A launch as it was typed.
pub struct Typed<'a> {
    pub app: &'a App,
    /// Such as `groups create`.
    pub command: &'static str,
    pub what: &'a What,
    /// The flag of the number of machines, and its value.
    pub count: Option<(&'static str, u32)>,
    /// The other arguments.
    pub more: Vec<String>,
}

impl Typed<'_> {
    /// The command of an alternative that would succeed now.
    pub fn with(&self, change: &Value) -> Option<String> {
        let mut what = self.what.clone();
        let mut count = self.count;
        let number = |name: &str| change[name].as_u64().and_then(|n| u32::try_from(n).ok());
        let gpus = |what: &mut What| {
            what.gpus = i32::try_from(number("gpus")?).ok();
            what.profile = None;
            what.gpus
        };
        let region = |what: &mut What| {
            what.region = change["region"].as_str().map(str::to_owned);
            what.region.clone()
        };
        match change["change"].as_str()? {
            "region" => drop(region(&mut what)?),
            "gpus" => drop(gpus(&mut what)?),
            "gpus_and_region" => {
                gpus(&mut what)?;
                region(&mut what)?;
            }
            "count" => count = Some((count?.0, number("count")?)),
            _ => return None,
        }
        Some(self.line(&what, count))
    }

    fn line(&self, what: &What, count: Option<(&str, u32)>) -> String {
        let given = &self.app.given;
        let numbers = [("--gpus", what.gpus.map(|n| n.to_string()))];
        let texts = [
            ("--profile", &what.profile),
            ("--region", &what.region),
            ("--org", &given.org),
            ("--project", &given.project),
        ];
        let count = count.map(|(flag, n)| vec![flag.to_owned(), n.to_string()]);
        let texts = texts.into_iter().map(|(flag, text)| (flag, text.clone()));
        let flags = numbers
            .into_iter()
            .chain(texts)
            .filter_map(|(flag, text)| Some([flag.to_owned(), quoted(&text?)]));
        let mut words = vec!["gpuaas".to_owned(), self.command.to_owned(), quoted(what.sku())];
        words.extend(count.unwrap_or_default());
        words.extend(flags.flatten());
        words.extend(self.more.iter().map(|word| quoted(word)));
        words.join(" ")
    }

    /// Prints why a launch was refused and what to do about it. `key` is the idempotency key of the request.
    pub fn refused(&self, error: sdk::Error, key: &str) -> Failure {
        let sdk::Error::Api(api) = &error else {
            let lost = matches!(error, sdk::Error::Network(_) | sdk::Error::Protocol(_));
            let failure = Failure::from(error);
            if !lost {
                return failure;
            }
            // The server may have executed the request nevertheless.
            let hint =
                format!("To retry without launching twice, repeat the command with --idempotency-key {key}.");
            let before = failure.suggestion.clone().map(|text| format!("{text}\n  ")).unwrap_or_default();
            return failure.suggest(format!("{before}{hint}"));
        };
        let details = api.details.clone();
        let failure = Failure::from(error);
        // What to type says more than which request to send.
        let to_send = matches!(details["reason"].as_str(), Some("no_ssh_key" | "funds"));
        let mut lines: Vec<String> = failure.suggestion.clone().filter(|_| !to_send).into_iter().collect();
        lines.extend(self.remedies(&details));
        if lines.is_empty() { failure } else { failure.suggest(lines.join("\n  ")) }
    }

    /// Lines about a refusal: from the details of an error, or from an explanation.
    pub fn remedies(&self, details: &Value) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(reason) = details["reason"].as_str() {
            lines.push(format!("Reason: {reason}."));
        }
        let limit = match details["limit"].as_str() {
            Some("org") => Some("quota.gpus_per_org"),
            Some("project") => Some("quota.gpus_per_project"),
            Some("person") => Some("allocation.max_concurrent_per_user"),
            _ => None,
        };
        lines.extend(limit.map(|key| format!("See where the limit is set: gpuaas policy explain {key}")));
        lines.extend(remedy(details).map(str::to_owned));
        if let Some(line) = self.with(&details["smallest_change"]) {
            lines.push(format!("This would succeed now: {line}"));
        }
        lines
    }
}

/// What to type about a reason that no other size or place changes.
fn remedy(details: &Value) -> Option<&'static str> {
    match details["reason"].as_str()? {
        "no_ssh_key" => Some("Add your public key: gpuaas ssh-keys create ~/.ssh/id_ed25519.pub"),
        "funds" => Some("Top up: gpuaas billing topup AMOUNT"),
        "budget_blocked" => Some("See the budget: gpuaas billing budgets show"),
        "spend_cap" => {
            Some("Set or raise the cap: gpuaas service-accounts spend-cap set ACCOUNT --amount AMOUNT")
        }
        _ => None,
    }
}

/// An argument quoted for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn app(project: Option<&str>) -> App {
        let words = ["gpuaas", "catalog", "--server", "http://localhost"];
        let words = words.into_iter().chain(project.into_iter().flat_map(|project| ["--project", project]));
        let args = <crate::args::Args as clap::Parser>::parse_from(words);
        App::new(args.global).unwrap()
    }

    fn what() -> What {
        let profile = Some("large".to_owned());
        What { sku: Some("h200-slice".to_owned()), sku_option: None, gpus: None, profile, region: None }
    }

    #[test]
    fn the_smallest_change_becomes_a_command() {
        let (app, what) = (app(Some("lab")), what());
        let more = vec!["--name".to_owned(), "my run".to_owned()];
        let typed =
            Typed { app: &app, command: "groups create", what: &what, count: Some(("--members", 4)), more };
        let line = |change: Value| typed.with(&change);
        assert_eq!(
            line(json!({ "change": "region", "region": "eu-west" })).unwrap(),
            "gpuaas groups create h200-slice --members 4 --profile large --region eu-west --project lab \
             --name 'my run'"
        );
        assert_eq!(
            line(json!({ "change": "count", "count": 2 })).unwrap(),
            "gpuaas groups create h200-slice --members 2 --profile large --project lab --name 'my run'"
        );
        let smaller = line(json!({ "change": "gpus_and_region", "gpus": 2, "region": "r" })).unwrap();
        assert!(
            smaller.contains("--members 4 --gpus 2 --region r") && !smaller.contains("--profile"),
            "{smaller}"
        );
        for nothing in [Value::Null, json!({ "change": "gpus" }), json!({ "change": "paint" })] {
            assert_eq!(line(nothing), None);
        }
    }

    #[test]
    fn a_refusal_says_why_and_what_to_type() {
        let (app, what) = (app(None), what());
        let typed = Typed { app: &app, command: "launch", what: &what, count: None, more: vec![] };
        let change = json!({ "change": "gpus", "gpus": 4 });
        let lines = typed.remedies(&json!({ "reason": "no_single_node_fits", "smallest_change": change }));
        assert_eq!(
            lines,
            ["Reason: no_single_node_fits.", "This would succeed now: gpuaas launch h200-slice --gpus 4"]
        );
        let lines = typed.remedies(&json!({ "reason": "quota", "limit": "org" }));
        assert!(lines[1].ends_with("gpuaas policy explain quota.gpus_per_org"), "{lines:?}");
        for (reason, command) in [
            ("no_ssh_key", "gpuaas ssh-keys create ~/.ssh/id_ed25519.pub"),
            ("funds", "gpuaas billing topup AMOUNT"),
            ("budget_blocked", "gpuaas billing budgets show"),
            ("spend_cap", "gpuaas service-accounts spend-cap set ACCOUNT --amount AMOUNT"),
        ] {
            let lines = typed.remedies(&json!({ "reason": reason }));
            assert!(lines[1].ends_with(command), "{lines:?}");
        }
        // One machine cannot be fewer.
        assert_eq!(typed.with(&json!({ "change": "count", "count": 1 })), None);
    }

    #[test]
    fn words_are_quoted_for_a_shell_when_they_need_it() {
        assert_eq!(
            [quoted("a-1"), quoted("a b"), quoted("it's"), quoted("")],
            ["a-1", "'a b'", r"'it'\''s'", "''"]
        );
    }
}

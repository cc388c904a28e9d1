//! Launching, and the dry run of a launch.

use std::num::NonZeroU16;

use clap::Args as ClapArgs;
use sdk::types;
use serde_json::{Value, json};

use super::{
    Place, begun,
    follow::Goal,
    refusal::{Typed, What},
};
use crate::{
    args::{Once, Wait},
    commands::catalog::price,
    failure::{Result, local},
    output::{counted, money, note, span},
};

#[derive(ClapArgs)]
pub struct Create {
    #[command(flatten)]
    what: What,
    /// Name of the allocation.
    #[arg(long)]
    name: Option<String>,
    /// Image of a virtual machine.
    #[arg(long)]
    image: Option<String>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    once: Once,
}

/// The arguments besides product and size.
pub fn more(name: Option<&str>, image: Option<&str>, wait: &Wait) -> Vec<String> {
    let given = [("--name", name), ("--image", image)];
    let given = given.into_iter().filter_map(|(flag, text)| Some([flag.to_owned(), text?.to_owned()]));
    given.flatten().chain(wait.limit().map(|_| "--wait".to_owned())).collect()
}

pub async fn create(place: &Place<'_>, create: Create) -> Result {
    let Create { what, name, image, wait, once } = create;
    let typed = Typed {
        app: place.app,
        command: "launch",
        what: &what,
        count: None,
        more: more(name.as_deref(), image.as_deref(), &wait),
    };
    let body = types::AllocationCreate {
        sku: what.sku().to_owned(),
        gpus: what.gpus,
        profile: what.profile.clone(),
        region: what.region.clone(),
        name,
        image,
    };
    let key = once.key();
    let sent = Box::pin(place.client.allocation_create(&place.project, &key, &body)).await;
    let made = sent.map_err(|error| typed.refused(error.into(), &key))?.into_inner();
    warn(&made.warnings);
    begun(place, made, Goal::Launch, 0, &wait).await
}

/// Says what a launch that succeeded may still run into.
pub fn warn(warnings: &[types::LaunchWarning]) {
    for warning in warnings {
        note(&format!("warning: {}", warning.message));
    }
}

#[derive(ClapArgs)]
pub struct Explain {
    #[command(flatten)]
    what: What,
    /// Number of machines, launched together.
    #[arg(long, default_value = "1")]
    count: NonZeroU16,
}

pub async fn explain(place: &Place<'_>, explain: Explain) -> Result {
    let Explain { what, count } = explain;
    let gpus = what.gpus.map(u16::try_from).transpose().map_err(local("--gpus"))?;
    let (profile, region) = (what.profile.as_deref(), what.region.as_deref());
    let explained =
        place.client.allocation_explain(&place.project, Some(count), gpus, profile, region, what.sku());
    let answer = send!(explained);
    let several = count.get() > 1;
    let typed = Typed {
        app: place.app,
        command: if several { "groups create" } else { "launch" },
        what: &what,
        count: several.then_some(("--members", count.get().into())),
        more: Vec::new(),
    };
    let refusal = serde_json::to_value(&answer.refusal).map_err(local("the result cannot be printed"))?;
    let below: String = typed.remedies(&refusal).iter().map(|line| format!("{line}\n")).collect();
    let below = if below.is_empty() { below } else { format!("\n{below}") };
    place.app.out.page(&answer, &lines(&answer, &refusal), &below)
}

fn lines(answer: &types::AllocationExplanation, refusal: &Value) -> Vec<(&'static str, String)> {
    let held = |limited: &types::Limited| {
        let allowed = limited.allowed.map_or_else(|| "no limit".to_owned(), |n| format!("of at most {n}"));
        format!("{} held, {allowed}", limited.held)
    };
    let soon = refusal["after_cleaning"] == json!(true);
    let quoted = &answer.price;
    let fits = match (answer.fits, answer.may_launch) {
        (true, true) => "yes, currently",
        (true, false) => "yes, currently, for a member of the project; your role does not allow launches",
        (false, _) => "no",
    };
    let hold = answer.funds.as_ref().map(|funds| {
        let first = span(funds.hold_seconds);
        let [hold, available] =
            [funds.hold_minor, funds.available_minor].map(|minor| money(minor, &funds.currency));
        format!("{hold} for the first {first}; {available} available")
    });
    vec![
        ("fits", fits.to_owned()),
        ("why not", refusal["message"].as_str().unwrap_or_default().to_owned()),
        ("soon", if soon { "after the cleanup of released capacity" } else { "" }.to_owned()),
        ("sku", answer.sku.clone()),
        ("size", format!("{} ({})", answer.profile, counted(answer.gpus, "GPU"))),
        ("count", answer.count.to_string()),
        ("region", answer.region.clone().unwrap_or_default()),
        ("price", price(quoted.unit_price_minor, &quoted.currency, &quoted.unit.to_string())),
        ("total", format!("{} per hour", money(quoted.per_hour_minor, &quoted.currency))),
        ("hold", hold.unwrap_or_default()),
        ("warning", answer.warnings.iter().map(|one| one.message.clone()).collect::<Vec<_>>().join("\n")),
        ("organization", format!("{} (GPUs)", held(&answer.limits.org_gpus))),
        ("project", format!("{} (GPUs)", held(&answer.limits.project_gpus))),
        ("you", format!("{} (allocations)", held(&answer.limits.own_allocations))),
    ]
}

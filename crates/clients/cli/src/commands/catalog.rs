//! `gpuaas catalog`.

use clap::Args as ClapArgs;
use sdk::types;
use serde_json::{Value, json};

use crate::{
    app::App,
    args::Format,
    failure::Result,
    output::{Columns, counted, money},
};

/// Availability is a snapshot and not a reservation.
#[derive(ClapArgs)]
pub struct Command {
    /// Only products that are available in this region.
    #[arg(long)]
    region: Option<String>,
}

const COLUMNS: Columns = &[
    ("SKU", "sku"),
    ("PRICE", "price"),
    ("FREE", "free"),
    ("SIZES", "sizes"),
    ("NAME", "name"),
    ("KIND", "shape"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    let mut entries = send!(client.catalog_list()).items;
    if let Some(region) = &command.region {
        for entry in &mut entries {
            entry.regions.retain(|known| known.region == *region);
        }
        entries.retain(|entry| !entry.regions.is_empty());
    }
    match app.out.format {
        Format::Json | Format::Yaml => app.out.list(&entries, COLUMNS),
        Format::Table | Format::Csv => app.out.list(&entries.iter().map(row).collect::<Vec<_>>(), COLUMNS),
    }
}

/// `2.50 USD per GPU hour`.
pub fn price(minor: i64, currency: &str, unit: &str) -> String {
    let unit = match unit {
        "gpu_hour" => "GPU hour",
        "node_hour" => "machine hour",
        other => other,
    };
    format!("{} per {unit}", money(minor, currency))
}

fn row(entry: &types::CatalogEntry) -> Value {
    let there = entry.regions.iter().filter(|region| region.total > 0);
    let mut free: Vec<String> = there.map(|region| available(entry, region)).collect();
    if free.is_empty() {
        free.push("no hardware".to_owned());
    }
    json!({
        "sku": entry.sku,
        "name": entry.display_name,
        "shape": entry.shape,
        "sizes": sizes(entry),
        "price": price(entry.price.unit_price_minor, &entry.price.currency, &entry.price.unit.to_string()),
        "free": free.join("\n"),
    })
}

/// Sizes with a name, or numbers of GPUs.
fn sizes(entry: &types::CatalogEntry) -> String {
    if entry.profiles.is_empty() {
        if let [one] = entry.gpu_counts[..] {
            return counted(one, "GPU");
        }
        let counts: Vec<String> = entry.gpu_counts.iter().map(ToString::to_string).collect();
        return format!("{} GPUs", counts.join(", "));
    }
    let size = |profile: &types::SkuProfile| {
        let gpus =
            if profile.gpus > 0 { format!("{}, ", counted(profile.gpus, "GPU")) } else { String::new() };
        let vcpus = counted(profile.vcpus, "vCPU");
        format!("{} ({gpus}{vcpus}, {} GiB)", profile.name, profile.memory_mib / 1024)
    };
    entry.profiles.iter().map(size).collect::<Vec<_>>().join("\n")
}

fn available(entry: &types::CatalogEntry, region: &types::CatalogRegion) -> String {
    let types::CatalogRegion { region: name, total, free, largest, whole_machines, .. } = region;
    match entry.shape {
        types::SkuShape::Baremetal => format!("{name}: {}", counted(*whole_machines, "whole machine")),
        types::SkuShape::GpuSlice => {
            format!("{name}: {free} of {total} GPUs, at most {largest} in one machine")
        }
        types::SkuShape::CpuVm => format!("{name}: {free} of {total}"),
    }
}

//! `gpuaas skus`.

use std::num::NonZeroU32;

use chrono::{DateTime, Utc};
use clap::{Args as ClapArgs, Subcommand};
use sdk::{Client, types};
use serde_json::json;

use super::{catalog::price, field, optional};
use crate::{
    app::App,
    args::Confirm,
    failure::{Failure, Result},
    output::{Columns, counted, minor, note},
};

#[derive(Subcommand)]
pub enum Command {
    /// List products, including withdrawn ones.
    List,
    /// Show a product with its sizes and prices.
    #[command(alias = "get")]
    Show {
        /// Product, by its code.
        sku: String,
    },
    /// Create a product.
    Create(Create),
    /// Change a product's name, sizes, or whether it is sold. Existing allocations are not affected.
    Update(Update),
    /// Prices of a product. A price is never changed or removed; a new one replaces it.
    #[command(subcommand)]
    Prices(PricesCommand),
    /// Sizes of a product.
    #[command(subcommand)]
    Profiles(ProfilesCommand),
}

#[derive(ClapArgs)]
pub struct Price {
    /// Price of one unit, such as 2.50.
    #[arg(long)]
    price: String,
    /// Currency of the price, such as USD.
    #[arg(long, default_value = "USD")]
    currency: String,
    /// What the price is for: an hour of one GPU, or of the whole node.
    #[arg(long, default_value = "gpu_hour", value_parser = ["gpu_hour", "node_hour"])]
    unit: String,
}

impl Price {
    fn body(&self, valid_from: Option<DateTime<Utc>>) -> Result<types::SkuPriceCreate> {
        let unit_price_minor = minor(&self.price, &self.currency).ok_or_else(|| {
            Failure::client(format!("{:?} is not a price in {}", self.price, self.currency))
                .suggest("Use an amount such as 2.50.")
        })?;
        Ok(types::SkuPriceCreate {
            unit: field("unit", &self.unit)?,
            unit_price_minor,
            currency: self.currency.clone(),
            valid_from,
        })
    }
}

#[derive(ClapArgs)]
pub struct Create {
    /// Code of the product, unique: lower-case letters, digits and hyphens.
    sku: String,
    /// Vendor of the hardware, such as nvidia.
    #[arg(long)]
    vendor: String,
    /// Display name.
    #[arg(long)]
    name: String,
    /// What is sold: a whole machine, GPUs of a machine, or a virtual machine without GPUs.
    #[arg(long, value_parser = ["baremetal", "gpu_slice", "cpu_vm"])]
    shape: String,
    /// GPU model as nodes report it; omit for machines without GPUs.
    #[arg(long)]
    slot_model: Option<String>,
    /// Number of GPUs of a node.
    #[arg(long)]
    gpus_total: i32,
    /// GPU counts that can be launched.
    #[arg(long, value_delimiter = ',', required = true, value_name = "N,N")]
    gpu_counts: Vec<i32>,
    /// Create the product inactive: it is not sold yet.
    #[arg(long)]
    inactive: bool,
    #[command(flatten)]
    price: Price,
}

#[derive(ClapArgs)]
pub struct Update {
    /// Product, by its code.
    sku: String,
    /// New display name.
    #[arg(long)]
    name: Option<String>,
    /// Whether the product is sold; `false` withdraws it: no new launches.
    #[arg(long)]
    active: Option<bool>,
    /// GPU counts that can be launched; replaces the current list.
    #[arg(long, value_delimiter = ',', value_name = "N,N")]
    gpu_counts: Option<Vec<i32>>,
}

#[derive(Subcommand)]
pub enum PricesCommand {
    /// List prices, newest first, including future ones.
    List {
        /// Product, by its code.
        sku: String,
    },
    /// Set a price, effective now or later. Existing allocations keep their price.
    Set {
        /// Product, by its code.
        sku: String,
        #[command(flatten)]
        price: Price,
        /// Effective time, such as 2026-01-01T00:00:00Z; now by default.
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
    },
}

#[derive(Subcommand)]
pub enum ProfilesCommand {
    /// Create a size of a product.
    #[command(alias = "add")]
    Create {
        /// Product, by its code.
        sku: String,
        /// Name of the size: lower-case letters, digits and underscores.
        name: String,
        /// Number of GPUs.
        #[arg(long)]
        gpus: i32,
        /// Number of virtual CPUs.
        #[arg(long)]
        vcpus: NonZeroU32,
        /// Memory in MiB.
        #[arg(long)]
        memory_mib: i64,
        /// Use this size for launches with its GPU count that name no size.
        #[arg(long)]
        default: bool,
    },
    /// Delete a size of a product. Existing allocations are not affected.
    #[command(alias = "remove")]
    Delete {
        /// Product, by its code.
        sku: String,
        /// Name of the size.
        name: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const COLUMNS: Columns = &[
    ("SKU", "sku"),
    ("NAME", "display_name"),
    ("KIND", "capacity_shape"),
    ("SIZES", "allowed_gpu_counts"),
    ("SOLD", "active"),
    ("MODEL", "slot_model"),
    ("GPUS", "gpus_total"),
    ("VENDOR", "vendor"),
];
const PRICES: Columns = &[("PRICE", "unit_price"), ("UNIT", "unit"), ("FROM", "valid_from")];
const PROFILES: Columns = &[
    ("NAME", "name"),
    ("GPUS", "gpus"),
    ("VCPUS", "vcpus"),
    ("MEMORY MIB", "memory_mib"),
    ("DEFAULT", "is_default"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = &app.client().await?;
    match command {
        Command::List => app.out.list(&send!(client.sku_list()).items, COLUMNS),
        Command::Show { sku } => show(app, &send!(client.sku_get(&sku))),
        Command::Create(create) => {
            let body = types::SkuCreate {
                sku: create.sku,
                vendor: create.vendor,
                display_name: create.name,
                shape: field("shape", create.shape)?,
                slot_model: create.slot_model,
                gpus_total: create.gpus_total,
                allowed_gpu_counts: create.gpu_counts,
                active: Some(!create.inactive),
                price: create.price.body(None)?,
            };
            show(app, &send!(client.sku_create(&body)))
        }
        Command::Update(update) => change(app, client, update).await,
        Command::Prices(command) => prices(app, client, command).await,
        Command::Profiles(command) => profiles(app, client, command).await,
    }
}

async fn change(app: &App, client: &Client, update: Update) -> Result {
    let Update { sku, name, active, gpu_counts } = update;
    if name.is_none() && active.is_none() && gpu_counts.is_none() {
        return Err(Failure::client("nothing to change").suggest("Give --name, --active or --gpu-counts."));
    }
    let body =
        types::SkuUpdate { display_name: name, active, allowed_gpu_counts: gpu_counts.unwrap_or_default() };
    app.out.item(&send!(client.sku_update(&sku, &body)), COLUMNS)
}

async fn prices(app: &App, client: &Client, command: PricesCommand) -> Result {
    match command {
        PricesCommand::List { sku } => app.out.priced(&send!(client.sku_price_list(&sku)).items, PRICES),
        PricesCommand::Set { sku, price, from } => {
            let body = price.body(optional("--from", from)?)?;
            app.out.priced_item(&send!(client.sku_price_create(&sku, &body)), PRICES)
        }
    }
}

async fn profiles(app: &App, client: &Client, command: ProfilesCommand) -> Result {
    match command {
        ProfilesCommand::Create { sku, name, gpus, vcpus, memory_mib, default } => {
            let body = types::SkuProfileCreate { name, gpus, vcpus, memory_mib, is_default: Some(default) };
            app.out.item(&send!(client.sku_profile_create(&sku, &body)), PROFILES)
        }
        ProfilesCommand::Delete { sku, name, confirm } => {
            app.confirm(&confirm, &format!("Delete the size {name} of {sku}"))?;
            send!(client.sku_profile_delete(&sku, &name));
            note(&format!("Deleted {name} of {sku}."));
            Ok(())
        }
    }
}

fn show(app: &App, sku: &types::SkuDetail) -> Result {
    let profile = |one: &types::SkuProfile| {
        let default = if one.is_default { ", default" } else { "" };
        let [gpus, vcpus] = [counted(one.gpus, "GPU"), counted(one.vcpus, "vCPU")];
        format!("{}: {gpus}, {vcpus}, {} MiB{default}", one.name, one.memory_mib)
    };
    let cost = |one: &types::SkuPrice| {
        let from = one.valid_from.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
        format!("from {from}: {}", price(one.unit_price_minor, &one.currency, &one.unit.to_string()))
    };
    let counts: Vec<String> = sku.allowed_gpu_counts.iter().map(ToString::to_string).collect();
    let lines = [
        ("sku", sku.sku.clone()),
        ("name", sku.display_name.clone()),
        ("vendor", sku.vendor.clone()),
        ("kind", sku.capacity_shape.to_string()),
        ("model", sku.slot_model.clone()),
        ("gpus per node", sku.gpus_total.to_string()),
        ("gpu counts", counts.join(", ")),
        ("sold", json!(sku.active).to_string()),
        ("sizes", sku.profiles.iter().map(profile).collect::<Vec<_>>().join("\n")),
        ("prices", sku.prices.iter().map(cost).collect::<Vec<_>>().join("\n")),
    ];
    app.out.page(sku, &lines, "")
}

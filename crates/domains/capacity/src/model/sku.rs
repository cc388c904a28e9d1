//! Products, sizes and prices.

use chrono::{DateTime, Utc};
pub use fleet::api::SlotKind;
use kernel::{Code, Problem};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    allocation::{ProfileSnapshot, Shape},
    placement::Take,
};

/// What the size of a whole machine is called.
const WHOLE_MACHINE: &str = "whole_machine";

fn is_code(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=64).contains(&bytes.len())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
        && bytes[0] != b'-'
        && bytes[bytes.len() - 1] != b'-'
}

fn is_profile_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn is_model(text: &str) -> bool {
    text.len() <= 64
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b" ._-".contains(&b))
        && text.trim() == text
}

kernel::checked_text! {
    /// What a product is called in paths and commands.
    SkuCode, is_code, "must be 1 to 64 lower-case letters, digits or inner hyphens",
        { "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" };
    /// What a size of a product is called.
    ProfileName, is_profile_name, "must be 1 to 64 lower-case letters, digits or underscores",
        { "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[a-z0-9_]+$" };
    /// The model of a device as nodes report it; empty for slots without a device.
    SlotModel, is_model, "must be at most 64 letters, digits, blanks or . _ -",
        { "type": "string", "maxLength": 64, "pattern": "^[A-Za-z0-9 ._-]*$" };
    /// ISO 4217.
    Currency, |t| t.len() == 3 && t.bytes().all(|b| b.is_ascii_uppercase()), "must be three upper-case letters such as USD",
        { "type": "string", "pattern": "^[A-Z]{3}$" };
}

lifecycle::named_enum! {
    /// What a price is for.
    PriceUnit = "unit of a price" { GpuHour = "gpu_hour", NodeHour = "node_hour" }
}

impl PriceUnit {
    /// How many of it a machine with so many GPUs is.
    pub const fn units(self, gpus: i32) -> i32 {
        match self {
            Self::GpuHour => gpus,
            Self::NodeHour => 1,
        }
    }
}

lifecycle::named_enum! {
    ResourceClass = "resource class" {
        GpuBaremetal = "gpu_baremetal",
        GpuSlice = "gpu_slice",
        CpuVm = "cpu_vm",
    }
}

impl Shape {
    pub const fn resource_class(self) -> ResourceClass {
        match self {
            Self::Baremetal => ResourceClass::GpuBaremetal,
            Self::GpuSlice => ResourceClass::GpuSlice,
            Self::CpuVm => ResourceClass::CpuVm,
        }
    }

    /// Which slots products of this shape are made of.
    pub const fn slot_kind(self) -> SlotKind {
        match self {
            Self::Baremetal | Self::GpuSlice => SlotKind::Gpu,
            Self::CpuVm => SlotKind::Cpu,
        }
    }
}

/// A product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sku {
    pub sku: String,
    pub vendor: String,
    pub display_name: String,
    pub resource_class: ResourceClass,
    pub capacity_shape: Shape,
    /// Which slots it is made of: their kind, and the model as nodes report it.
    pub slot_kind: SlotKind,
    pub slot_model: String,
    /// Of one node.
    pub gpus_total: i32,
    pub allowed_gpu_counts: Vec<i32>,
    /// False: nothing new is launched; what runs goes on.
    pub active: bool,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// A size that a product comes in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "SkuProfile")]
pub struct Profile {
    pub name: String,
    pub gpus: i32,
    pub vcpus: i32,
    pub memory_mib: i64,
    /// What is taken for its number of GPUs when nobody names a size.
    pub is_default: bool,
}

/// What a product costs from a moment on. It never changes; a new price is another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "SkuPrice")]
pub struct Price {
    pub valid_from: DateTime<Utc>,
    pub unit: PriceUnit,
    pub unit_price_minor: i64,
    pub currency: String,
}

/// A product with its sizes, at the price that holds now.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    pub sku: Sku,
    /// By name.
    pub profiles: Vec<Profile>,
    pub price: Price,
}

impl Product {
    /// New allocations can be made of it.
    pub fn check_sold(&self) -> Result<(), Problem> {
        if self.sku.active {
            return Ok(());
        }
        let text = format!("{} is not sold currently.", self.sku.sku);
        Err(Problem::new(Code::SkuUnavailable, text).detail("reason", "not_sold"))
    }

    /// The size that a request means, by its number of GPUs, by name, by both or by neither: then the smallest.
    pub fn profile_for(&self, gpus: Option<i32>, profile: Option<&str>) -> Result<ProfileSnapshot, Problem> {
        self.check_sold()?;
        let named = profile.map(|name| self.named(name)).transpose()?;
        let gpus = match (gpus, &named) {
            (Some(gpus), Some(named)) if named.gpus != gpus => {
                let text = format!(
                    "{} has {} GPUs: give {}, or omit one of the two",
                    named.name, named.gpus, named.gpus
                );
                return Err(Problem::field("gpus", text));
            }
            (Some(gpus), _) => gpus,
            (None, Some(named)) => named.gpus,
            (None, None) => self.sku.allowed_gpu_counts.iter().copied().min().unwrap_or(self.sku.gpus_total),
        };
        if !self.sku.allowed_gpu_counts.contains(&gpus) {
            return Err(Problem::field(
                "gpus",
                format!("must be one of {}", listed(&self.sku.allowed_gpu_counts)),
            ));
        }
        match named {
            Some(named) => Ok(named),
            None => self.usual(gpus),
        }
    }

    fn named(&self, name: &str) -> Result<ProfileSnapshot, Problem> {
        if self.sku.capacity_shape == Shape::Baremetal && name == WHOLE_MACHINE {
            return self.usual(self.sku.gpus_total);
        }
        let found = self.profiles.iter().find(|profile| profile.name == name);
        found.map(snapshot).ok_or_else(|| {
            let names: Vec<&str> = match self.sku.capacity_shape {
                Shape::Baremetal => vec![WHOLE_MACHINE],
                Shape::GpuSlice | Shape::CpuVm => self.profiles.iter().map(|p| p.name.as_str()).collect(),
            };
            Problem::field("profile", format!("must be one of {}", listed(&names)))
        })
    }

    fn usual(&self, gpus: i32) -> Result<ProfileSnapshot, Problem> {
        if self.sku.capacity_shape == Shape::Baremetal {
            let name = WHOLE_MACHINE.to_owned();
            return Ok(ProfileSnapshot { name, gpus, vcpus: None, memory_mib: None, image: None });
        }
        let mut fitting = self.profiles.iter().filter(|profile| profile.gpus == gpus);
        let usual = fitting.clone().find(|profile| profile.is_default).or_else(|| fitting.next());
        usual.map(snapshot).ok_or_else(|| {
            let text = format!("{} has no size with {gpus} GPUs yet.", self.sku.sku);
            Problem::new(Code::SkuUnavailable, text)
                .detail("reason", "no_profile")
                .suggest("Choose another GPU count, or ask the operators to define the size.")
        })
    }

    /// What one machine of so many GPUs takes of a node.
    pub fn take(&self, gpus: i32) -> Take {
        let count = |n: i32| u32::try_from(n).unwrap_or(0).max(1);
        match self.sku.capacity_shape {
            Shape::Baremetal => Take::Whole { slots: count(self.sku.gpus_total) },
            Shape::GpuSlice => Take::Slots { slots: count(gpus) },
            Shape::CpuVm => Take::Slots { slots: 1 },
        }
    }

    /// The other numbers of GPUs that it comes in.
    pub fn other_sizes(&self, gpus: i32) -> Vec<u32> {
        if self.sku.capacity_shape != Shape::GpuSlice {
            return Vec::new();
        }
        let others = self.sku.allowed_gpu_counts.iter().filter(|count| **count != gpus);
        others.filter_map(|count| u32::try_from(*count).ok()).collect()
    }

    /// How many units of its price one machine is.
    pub fn units(&self, gpus: i32) -> i32 {
        self.price.unit.units(gpus)
    }
}

fn snapshot(profile: &Profile) -> ProfileSnapshot {
    ProfileSnapshot {
        name: profile.name.clone(),
        gpus: profile.gpus,
        vcpus: Some(profile.vcpus),
        memory_mib: Some(profile.memory_mib),
        image: None,
    }
}

pub(crate) fn listed<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// How much of a product one region has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "CatalogRegion")]
pub struct Availability {
    pub region: String,
    /// Slots that it could be made of: GPUs, or places for machines without.
    pub total: i64,
    /// Those that are free now.
    pub free: i64,
    /// The most of them that are free on one machine.
    pub largest: i64,
    /// Whole machines that are free now.
    pub whole_machines: i64,
    /// How many of its smallest size could be launched now, as far as this count tells.
    pub launchable: i64,
}

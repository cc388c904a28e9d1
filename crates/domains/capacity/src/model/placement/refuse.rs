//! Why nothing fits, and what would. From counts alone, so that an outlook over a few nodes is enough.

use std::collections::BTreeSet;

use super::{Change, NodeView, Refusal, RefusalReason, Request, Take};

/// The first of the wanted regions that takes all members now, going by the counts.
pub fn fitting_region<'a>(nodes: &[NodeView], request: &'a Request) -> Option<&'a str> {
    let outlook = Outlook { nodes, request };
    request
        .regions
        .iter()
        .map(String::as_str)
        .find(|region| outlook.fits(region, request.take, request.count))
}

/// Whether anything but capacity allows so many members of a size (in GPUs; none: of the wanted size).
pub type Allowed<'a> = &'a (dyn Fn(Option<u32>, u32) -> bool + Sync);

/// The reason that binds. To be asked only when nothing was placed.
pub fn refuse(nodes: &[NodeView], request: &Request) -> Refusal {
    let outlook = Outlook { nodes, request };
    let wanted = |is: &dyn Fn(&str) -> bool| request.regions.iter().any(|region| is(region));
    let (take, count) = (request.take, u64::from(request.count));
    let amount = u64::from(take.slots()) * count;
    let after_cleaning = wanted(&|region| outlook.members(region, take, NodeView::soon) >= count);
    let reason = if wanted(&|region| outlook.members(region, take, NodeView::unused) >= count) {
        RefusalReason::ReadinessBlocks
    } else if amount > 0 && wanted(&|region| outlook.amount(region) >= amount) {
        RefusalReason::NoSingleNodeFits
    } else {
        RefusalReason::NoCapacityInRegion
    };
    let message = message(request, reason, after_cleaning);
    Refusal { reason, message, smallest_change: outlook.smallest_change(&|_, _| true), after_cleaning }
}

/// The smallest change that is allowed and for which there is room.
pub fn smallest_change(nodes: &[NodeView], request: &Request, allowed: Allowed<'_>) -> Option<Change> {
    Outlook { nodes, request }.smallest_change(allowed)
}

impl NodeView {
    /// Could be sold now.
    fn now(&self) -> u32 {
        if self.placeable { self.free } else { 0 }
    }

    /// Could be sold when what is being cleaned is clean.
    fn soon(&self) -> u32 {
        if self.placeable { self.free.saturating_add(self.cleaning) } else { 0 }
    }

    /// Is used by nobody, whatever else stands in its way.
    fn unused(&self) -> u32 {
        self.free.saturating_add(self.cleaning).saturating_add(self.blocked)
    }
}

struct Outlook<'a> {
    nodes: &'a [NodeView],
    request: &'a Request,
}

impl Outlook<'_> {
    fn here<'a>(&'a self, region: &'a str) -> impl Iterator<Item = &'a NodeView> {
        self.nodes.iter().filter(move |node| node.region == region && self.request.accepts(node))
    }

    /// How many members the nodes of a region take, going by so many slots of each.
    fn members(&self, region: &str, take: Take, slots_of: impl Fn(&NodeView) -> u32) -> u64 {
        let of = |node: &NodeView| match take {
            Take::Whole { slots } => u64::from(node.total == slots && slots_of(node) == slots),
            Take::Slots { slots } => u64::from(slots_of(node) / slots.max(1)),
        };
        self.here(region).map(of).sum()
    }

    /// How many of them now. A node whose slots of this kind are all free may be used by slots of another kind.
    fn members_now(&self, region: &str, take: Take) -> u64 {
        match take {
            Take::Whole { .. } => self.members(region, take, |node| if node.whole { node.now() } else { 0 }),
            Take::Slots { .. } => self.members(region, take, NodeView::now),
        }
    }

    fn fits(&self, region: &str, take: Take, count: u32) -> bool {
        self.members_now(region, take) >= u64::from(count)
    }

    fn amount(&self, region: &str) -> u64 {
        self.here(region).map(|node| u64::from(node.now())).sum()
    }

    fn smallest_change(&self, allowed: Allowed<'_>) -> Option<Change> {
        let Request { take, count, regions, .. } = self.request;
        let elsewhere: BTreeSet<&String> =
            self.nodes.iter().map(|node| &node.region).filter(|region| !regions.contains(region)).collect();
        if allowed(None, *count)
            && let Some(region) = elsewhere.iter().find(|region| self.fits(region, *take, *count))
        {
            return Some(Change::Region { region: (*region).clone() });
        }
        let most = regions.iter().map(|region| self.members_now(region, *take)).max().unwrap_or(0);
        let fewer = u32::try_from(most).unwrap_or(u32::MAX).min(count.saturating_sub(1));
        if let Some(count) = (1..=fewer).rev().find(|count| allowed(None, *count)) {
            return Some(Change::Count { count });
        }
        let mut sizes = self.smaller_sizes();
        sizes.retain(|gpus| allowed(Some(*gpus), *count));
        let fit = |region: &str, gpus: u32| self.fits(region, Take::Slots { slots: gpus }, *count);
        if let Some(&gpus) = sizes.iter().find(|gpus| regions.iter().any(|region| fit(region, **gpus))) {
            return Some(Change::Gpus { gpus });
        }
        sizes.into_iter().find_map(|gpus| {
            let region = elsewhere.iter().find(|region| fit(region, gpus))?;
            Some(Change::GpusAndRegion { gpus, region: (*region).clone() })
        })
    }

    /// The biggest first. A whole machine comes in one size.
    fn smaller_sizes(&self) -> Vec<u32> {
        let Take::Slots { slots } = self.request.take else { return Vec::new() };
        let sizes: BTreeSet<u32> =
            self.request.other_sizes.iter().copied().filter(|size| (1..slots).contains(size)).collect();
        sizes.into_iter().rev().collect()
    }
}

/// In words that say nothing about single machines.
fn message(request: &Request, reason: RefusalReason, after_cleaning: bool) -> String {
    let place = match request.regions.as_slice() {
        [region] => format!("region {region}"),
        _ => "any region".to_owned(),
    };
    let what = if request.count == 1 { "it" } else { "all of them" };
    match reason {
        RefusalReason::ReadinessBlocks if after_cleaning => {
            format!(
                "Capacity for {what} in {place} exists, but is still being cleaned. Retry in some minutes."
            )
        }
        RefusalReason::ReadinessBlocks => format!(
            "Capacity for {what} in {place} exists, but is not ready: it is offline, cordoned or \
             quarantined, unhealthy, or its cleanup failed."
        ),
        RefusalReason::NoSingleNodeFits => {
            let missing = match (request.take, request.count) {
                (Take::Whole { .. }, 1) => "no whole machine is free",
                (Take::Whole { .. }, _) => "not enough whole machines are free",
                (Take::Slots { .. }, 1) => "no single machine has enough",
                (Take::Slots { .. }, _) => "not enough machines have enough",
            };
            format!("Enough capacity is available in {place} in total, but {missing}.")
        }
        _ => format!("Not enough capacity is available in {place}."),
    }
}

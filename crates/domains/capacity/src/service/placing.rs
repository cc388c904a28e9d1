//! Placement over what the database finds, in the transaction that reserves it.
//!
//! The database finds the best nodes and holds them; the pure function decides. Because both go by the same order, as
//! many nodes as there are members are enough. Nodes that another request holds are passed over first; only when
//! nothing else is left are they waited for, and only while no other is held, so that no two requests can wait for
//! each other. Whatever still fails is explained from an outlook over the counts.

use fleet::api::SlotKind;
use identity::api::Where;
use kernel::{
    Code, Failure, Problem,
    ids::SlotId,
    policy::{IsolationModel, keys},
};
use node_proto::catalog::SlotDevices;
use pg::{Connection, WriteTx};
use serde_json::{Value, json};

use crate::{
    Capacity,
    model::{
        allocation::Shape,
        placement::{
            self, Allowed, Change, Installs, NodeView, Packing, Placed, Refusal, RefusalReason, Request,
        },
    },
    store::candidates::{self, Candidate, Search, SlotsOf},
};

/// How often a request looks again when the counts say that it fits and others were quicker every time.
const ROUNDS: u32 = 3;
/// More nodes to look at, when slots of the best ones are held by something that is no placement.
const SPARE_NODES: u32 = 3;

/// So many machines that cannot be installed anew are passed over in the search for one that can.
const MOST_PASSED_OVER: u32 = 64;

/// Where one member goes, and what its node needs to know about the slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedMember {
    pub placed: Placed,
    pub ssh_host: String,
    pub ssh_port: i32,
    /// Of each slot, in the order of `placed.slots`.
    pub devices: Vec<(SlotId, SlotDevices)>,
}

/// All members, held until the transaction ends; or a problem that says why not. `kind` and `model` say which slots
/// the product is made of.
pub async fn place_in(
    tx: &mut WriteTx,
    kind: SlotKind,
    model: &str,
    request: &Request,
    packing: Packing,
) -> Result<Vec<PlacedMember>, Failure> {
    match place_of(tx, kind, model, request, packing, Installs::Every).await {
        Ok(members) => Ok(members),
        Err(NotPlaced::NoRoom(outlook)) => Err(refused(&outlook.refusal(request, &|_, _| true)).into()),
        Err(NotPlaced::Failed(failure)) => Err(failure),
    }
}

/// Why nothing was placed.
pub enum NotPlaced {
    /// The counts say that it does not fit.
    NoRoom(Outlook),
    Failed(Failure),
}

impl From<Failure> for NotPlaced {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The same, on machines that can be installed anew by whoever installs so many.
pub async fn place_of(
    tx: &mut WriteTx,
    kind: SlotKind,
    model: &str,
    request: &Request,
    packing: Packing,
    installs: Installs,
) -> Result<Vec<PlacedMember>, NotPlaced> {
    let of = SlotsOf { kind, model };
    for _ in 0..ROUNDS {
        if let Some(members) = members_place(tx.conn(), of, request, packing, installs).await? {
            return Ok(members);
        }
        let outlook = outlook(tx.conn(), of, request, installs).await?;
        if outlook.region.is_none() {
            return Err(NotPlaced::NoRoom(outlook));
        }
    }
    Err(Failure::from(too_busy()).into())
}

/// What a launch asks of whoever installs machines: nothing, unless its tenant may be root on a whole one.
pub(crate) fn needed(capacity: &Capacity, shape: Shape, isolation: IsolationModel) -> Installs {
    match (shape, isolation) {
        (Shape::Baremetal, IsolationModel::FullReimage) => capacity.reimager.installs(),
        (Shape::Baremetal, IsolationModel::UserRevoke) | (Shape::GpuSlice | Shape::CpuVm, _) => {
            Installs::Every
        }
    }
}

/// How machines are cleaned between tenants, for whoever asks there.
pub(crate) async fn isolation(capacity: &Capacity, place: Where) -> Result<IsolationModel, Failure> {
    capacity.policies.setting_at(keys::ALLOCATION_ISOLATION_MODEL, place).await
}

/// What the counts say about a request, as they are committed.
#[derive(Debug)]
pub struct Outlook {
    nodes: Vec<NodeView>,
    /// Those that can be installed anew, where that matters.
    installable: Option<Vec<NodeView>>,
    /// Where it fits now.
    pub region: Option<String>,
}

impl Outlook {
    /// Why it does not fit.
    pub fn refusal(&self, request: &Request, allowed: Allowed<'_>) -> Refusal {
        if placement::fitting_region(&self.nodes, request).is_some() {
            return not_reimageable();
        }
        let smallest_change = self.smallest_change(request, allowed);
        Refusal { smallest_change, ..placement::refuse(&self.nodes, request) }
    }

    /// What would fit and is allowed.
    pub fn smallest_change(&self, request: &Request, allowed: Allowed<'_>) -> Option<Change> {
        placement::smallest_change(self.installable.as_ref().unwrap_or(&self.nodes), request, allowed)
    }
}

/// Whether the request fits now. Reads only.
pub(crate) async fn outlook(
    conn: &mut Connection,
    of: SlotsOf<'_>,
    request: &Request,
    installs: Installs,
) -> Result<Outlook, Failure> {
    let nodes = candidates::outlook(conn, of, request).await?;
    let installable = match installs {
        Installs::Every => None,
        Installs::Simulated => {
            Some(candidates::installable(conn, nodes.clone(), |view| view.id, installs).await?)
        }
    };
    let region = placement::fitting_region(installable.as_ref().unwrap_or(&nodes), request);
    Ok(Outlook { region: region.map(str::to_owned), nodes, installable })
}

fn not_reimageable() -> Refusal {
    let message = "Capacity is available, but the policy allocation.isolation_model is full-reimage, and no \
                   provisioner can reinstall the available machines after a tenant with root.";
    Refusal {
        reason: RefusalReason::NotReimageable,
        message: message.to_owned(),
        smallest_change: None,
        after_cleaning: false,
    }
}

async fn members_place(
    conn: &mut Connection,
    of: SlotsOf<'_>,
    request: &Request,
    packing: Packing,
    installs: Installs,
) -> Result<Option<Vec<PlacedMember>>, Failure> {
    // Machines that cannot be installed anew may come first.
    let limit = match installs {
        Installs::Every => request.count,
        Installs::Simulated => request.count.saturating_add(MOST_PASSED_OVER),
    };
    for wait in [false, true] {
        for region in &request.regions {
            let search = Search { packing, limit, wait };
            let mut found = candidates::lock(conn, of, region, request, search).await?;
            found = candidates::installable(conn, found, |candidate| candidate.view.id, installs).await?;
            if found.is_empty() {
                continue;
            }
            if let Some(members) = decide(&found, request, region, packing) {
                return Ok(Some(members));
            }
            // These nodes are held and some of their slots are not ours: from here on nothing may be waited for.
            let search = Search { packing, limit: limit.saturating_add(SPARE_NODES), wait: false };
            found = candidates::lock(conn, of, region, request, search).await?;
            found = candidates::installable(conn, found, |candidate| candidate.view.id, installs).await?;
            return match decide(&found, request, region, packing) {
                Some(members) => Ok(Some(members)),
                None => Err(too_busy().into()),
            };
        }
    }
    Ok(None)
}

fn decide(
    found: &[Candidate],
    request: &Request,
    region: &str,
    packing: Packing,
) -> Option<Vec<PlacedMember>> {
    let nodes: Vec<NodeView> = found.iter().map(|candidate| candidate.view.clone()).collect();
    let placed = placement::choose(&nodes, request, region, packing)?;
    placed.into_iter().map(|placed| member(found, placed)).collect()
}

fn member(found: &[Candidate], placed: Placed) -> Option<PlacedMember> {
    let candidate = found.iter().find(|candidate| candidate.view.id == placed.node)?;
    let devices = placed.slots.iter().map(|slot| Some((*slot, candidate.devices.get(slot)?.clone())));
    Some(PlacedMember {
        devices: devices.collect::<Option<_>>()?,
        ssh_host: candidate.ssh_host.clone(),
        ssh_port: candidate.ssh_port,
        placed,
    })
}

/// The refusal as a client gets it.
pub fn refused(refusal: &Refusal) -> Problem {
    let problem = Problem::new(Code::SkuUnavailable, refusal.message.clone())
        .detail("reason", json!(refusal.reason))
        .detail("after_cleaning", refusal.after_cleaning)
        .detail(
            "smallest_change",
            refusal.smallest_change.as_ref().map_or(Value::Null, |change| json!(change)),
        );
    if refusal.reason == RefusalReason::NotReimageable {
        return problem.suggest(
            "Set the policy allocation.isolation_model to user-revoke, which gives tenants no root, or ask \
             an operator for machines that a provisioner can reinstall.",
        );
    }
    match &refusal.smallest_change {
        Some(change) => problem.suggest(advice(change)),
        None if refusal.after_cleaning => problem.suggest("Retry in some minutes."),
        None => problem.suggest("Choose another product, or retry later."),
    }
}

fn advice(change: &Change) -> String {
    match change {
        Change::Region { region } => format!("Region {region} has capacity for it now."),
        Change::Count { count } => format!("Capacity for {count} of them is available now."),
        Change::Gpus { gpus } => format!("Capacity for {gpus} GPUs each is available now."),
        Change::GpusAndRegion { gpus, region } => {
            format!("Capacity for {gpus} GPUs each is available in region {region} now.")
        }
    }
}

fn too_busy() -> Problem {
    Problem::new(Code::SkuUnavailable, "Concurrent launches are competing for the available capacity.")
        .detail("reason", "no_capacity_in_region")
        .detail("after_cleaning", false)
        .detail("smallest_change", Value::Null)
        .suggest("Retry in a few seconds.")
        .retry_after(1)
}

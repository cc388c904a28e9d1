//! Launching: product, keys, funds, place, order, reservation and the run of the workflow, in one transaction.

use chrono::{DateTime, TimeDelta, Utc};
use fleet::api::OrderedWork;
use kernel::{
    Code, Failure, Problem,
    ids::{AllocationId, GroupId, OrgId, ProjectId, UserId},
    policy::{IsolationModel, keys},
    principal::PrincipalId,
    text::Name,
};
use node_proto::catalog::{
    AccountLimits, AccountSpec, DeprovisionUser, DeprovisionUserInput, ProvisionUser, ProvisionUserInput,
    VmProvision, VmProvisionInput, VmRelease, VmReleaseInput,
};
use pg::WriteTx;

use identity::api::Where;

use crate::{
    Capacity,
    model::{
        allocation::{Allocation, AllocationState, ProfileSnapshot, Shape, default_name},
        events::AllocationRequested,
        launch_warning::LaunchWarning,
        placement::{Packing, Request},
        sku::Product,
    },
    service::{
        launch_checks::{
            Asker, LaunchChecks, check_spending_is_limited, depletion_warnings, limit_problem, no_ssh_key,
        },
        money::Meter,
        placing::{self, NotPlaced, PlacedMember},
    },
    store::{
        machine_keys,
        reserve::{Limits, Reserved, reserve},
    },
    workflow::{LaunchInput, provision_saga},
};

kernel::checked_text! {
    /// A name of the image catalog.
    ImageName, |t| (1..=128).contains(&t.len())
        && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:+-".contains(&b))
        && t.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric()),
        "must be 1 to 128 letters, digits or . _ : + -, beginning with a letter or digit",
        { "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9][A-Za-z0-9._:+-]*$" };
}

/// What virtual machines are made from when nobody says.
const DEFAULT_IMAGE: &str = "ubuntu-24.04";
const SHELL: &str = "/bin/bash";
/// How long keys and restarts that a request authorised may still be begun: whoever finds an old order can do nothing
/// with it.
pub(super) const BEGIN_WITHIN: TimeDelta = TimeDelta::days(1);

/// Who launches, and where.
#[derive(Clone, Copy, Debug)]
pub struct Creator {
    pub org: OrgId,
    pub project: ProjectId,
    pub principal: PrincipalId,
}

impl Creator {
    pub const fn user(org: OrgId, project: ProjectId, user: UserId) -> Self {
        Self { org, project, principal: PrincipalId::User(user) }
    }

    const fn asker(self) -> Asker {
        let Self { org, project, principal } = self;
        Asker { org, project, principal, may_launch: true, sees_money: true }
    }
}

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub sku: String,
    pub gpus: Option<i32>,
    pub profile: Option<String>,
    pub region: Option<String>,
    pub name: Option<Name>,
    pub image: Option<ImageName>,
}

/// Several of it, all or none.
#[derive(Clone, Debug)]
pub struct Together {
    pub id: GroupId,
    pub name: String,
    pub members: u32,
}

/// What was made, and what whoever launched it is warned of.
pub struct Launched<T> {
    pub made: T,
    pub warnings: Vec<LaunchWarning>,
}

/// Makes one allocation.
pub async fn launch(
    capacity: &Capacity,
    tx: &mut WriteTx,
    creator: Creator,
    wanted: Wanted,
) -> Result<Launched<Allocation>, Failure> {
    let Launched { made, warnings } = launch_all(capacity, tx, creator, wanted, None).await?;
    let nothing = || Failure::bug("a launch made nothing");
    Ok(Launched { made: made.into_iter().next().ok_or_else(nothing)?, warnings })
}

/// Makes one allocation, or all members of a group.
pub async fn launch_all(
    capacity: &Capacity,
    tx: &mut WriteTx,
    creator: Creator,
    wanted: Wanted,
    group: Option<&Together>,
) -> Result<Launched<Vec<Allocation>>, Failure> {
    let count = group.map_or(1, |group| group.members);
    let product = capacity.catalog.product(&wanted.sku).await?;
    let mut profile = product.profile_for(wanted.gpus, wanted.profile.as_deref())?;
    profile.image = image(&product, wanted.image.as_ref())?;
    let (limits, isolation, packing) = policies(capacity, creator).await?;
    let within = begin_within(capacity).await?;
    let keys = creator_keys(tx, creator).await?;
    let ids: Vec<AllocationId> = (0..count).map(|_| tx.db().ambient().id()).collect();

    let meters: Vec<Meter> = ids.iter().map(|id| meter(&product, &profile, creator, *id)).collect();
    check_spending_is_limited(capacity, tx, creator).await?;
    let depletion = capacity.money.check_funds(tx, &meters).await?;

    let asked_at = tx.db().ambient().now();
    let request = Request {
        take: product.take(profile.gpus),
        count,
        regions: capacity.regions.wanted(tx.conn(), wanted.region.as_deref(), asked_at).await?,
        pool: None,
        labels: std::collections::BTreeMap::new(),
        sku: product.sku.sku.clone(),
        other_sizes: product.other_sizes(profile.gpus),
    };
    let installs = placing::needed(capacity, product.sku.capacity_shape, isolation);
    let (kind, model) = (product.sku.slot_kind, &product.sku.slot_model);
    let placed = match placing::place_of(tx, kind, model, &request, packing, installs).await {
        Ok(placed) => placed,
        Err(NotPlaced::NoRoom(outlook)) => {
            let asker = creator.asker();
            let checks = LaunchChecks::load(capacity, tx.conn(), asker, &product, profile.gpus).await?;
            return Err(placing::refused(&outlook.refusal(&request, &checks.allowed())).into());
        }
        Err(NotPlaced::Failed(failure)) => return Err(failure),
    };
    let uids = capacity.uids.take(tx, ids.len()).await?;

    // After whatever was waited for.
    let now = tx.db().ambient().now();
    let mut made = Vec::with_capacity(ids.len());
    for (n, ((id, place), uid)) in ids.into_iter().zip(placed).zip(uids).enumerate() {
        let name = match (group, &wanted.name) {
            (Some(group), _) => format!("{}-{}", group.name, n + 1),
            (None, Some(name)) => name.as_str().to_owned(),
            (None, None) => default_name(&product.sku.sku, id.uuid()),
        };
        let mut new = allocation(creator, &product, &profile, isolation, (id, name, uid), &place, now);
        new.group_id = group.map(|group| group.id);
        let work = authorised(&new, &place, &keys, now + within)?;
        new.work_order = capacity.fleet.order_seal(tx, &new.subject(), new.node_id, work)?;
        made.push(new);
    }
    // Before the reservation, whose locks everybody else in the organization waits for.
    machine_keys::insert_first(tx, &made, &keys).await?;
    for new in &made {
        let input = LaunchInput { allocation_id: new.id };
        saga::start(tx, provision_saga(new.shape), &new.subject(), Some(creator.org), &input).await?;
        tx.emit(&AllocationRequested {
            allocation_id: new.id,
            project_id: new.project_id,
            group_id: new.group_id,
            sku: new.sku.clone(),
            region: new.region.clone(),
            gpus: new.gpus,
        })?;
    }
    let together = group.map(|group| (group.id, group.name.as_str()));
    match reserve(tx, &made, together, limits, now).await? {
        Reserved::Yes => {}
        Reserved::SlotTaken => return Err(taken().into()),
        Reserved::Over(limit) => return Err(limit_problem(tx, creator, &made, limit, limits).await?.into()),
    }
    // Last, because from here on everybody else waits who launches or posts for the organization.
    capacity.money.hold(tx, &meters).await?;
    metrics::counter!("allocations_requested_total", "shape" => product.sku.capacity_shape.name())
        .increment(u64::from(count));
    Ok(Launched { made, warnings: depletion_warnings(depletion) })
}

fn image(product: &Product, wanted: Option<&ImageName>) -> Result<Option<String>, Problem> {
    match (product.sku.capacity_shape, wanted) {
        (Shape::Baremetal, None) => Ok(None),
        (Shape::Baremetal, Some(_)) => {
            Err(Problem::field("image", "must be omitted: a whole machine has its own operating system"))
        }
        (Shape::GpuSlice | Shape::CpuVm, wanted) => {
            Ok(Some(wanted.map_or(DEFAULT_IMAGE, ImageName::as_str).to_owned()))
        }
    }
}

async fn policies(
    capacity: &Capacity,
    creator: Creator,
) -> Result<(Limits, IsolationModel, Packing), Failure> {
    let org = Where { org: Some(creator.org), ..Where::default() };
    let project = Where { project: Some(creator.project), ..org };
    let place = Where { user: creator.principal.user(), ..project };
    let policies = &capacity.policies;
    // What holds for everybody together does not depend on who asks.
    let limits = Limits {
        org_gpus: policies.setting_at(keys::QUOTA_GPUS_PER_ORG, org).await?.get(),
        project_gpus: policies.setting_at(keys::QUOTA_GPUS_PER_PROJECT, project).await?.get(),
        person_allocations: policies.setting_at(keys::ALLOCATION_MAX_CONCURRENT_PER_USER, place).await?.get(),
    };
    let isolation = placing::isolation(capacity, place).await?;
    let packing = policies.setting_at(keys::CAPACITY_PLACEMENT, place).await?;
    Ok((limits, isolation, packing))
}

/// How long a launch may still be begun on its node: as long as its attempts take, and not much longer, so that the
/// order of one that is over is worth nothing to whoever could put it back.
async fn begin_within(capacity: &Capacity) -> Result<TimeDelta, Failure> {
    const ATTEMPTS: i32 = 4;
    const AT_LEAST: TimeDelta = TimeDelta::minutes(10);
    let key = keys::CAPACITY_TASK_SECONDS;
    let task = TimeDelta::seconds(capacity.policies.setting_at(key, Where::default()).await?.get());
    Ok(AT_LEAST.max(task * ATTEMPTS))
}

async fn creator_keys(tx: &mut WriteTx, creator: Creator) -> Result<Vec<String>, Failure> {
    let principal = creator.principal;
    let found = identity::api::member_ssh_keys(tx.conn(), creator.project, &[principal.uuid()]).await?;
    let mut keys: Vec<String> = found.into_iter().map(|(_, key)| key).collect();
    keys.sort_unstable();
    keys.dedup();
    if keys.is_empty() {
        return Err(no_ssh_key(principal).into());
    }
    Ok(keys)
}

fn meter(product: &Product, profile: &ProfileSnapshot, creator: Creator, id: AllocationId) -> Meter {
    Meter {
        allocation: id,
        org: creator.org,
        project: creator.project,
        person: Some(creator.principal.uuid()),
        sku: product.sku.sku.clone(),
        price_unit: product.price.unit,
        units: product.units(profile.gpus),
        unit_price_minor: product.price.unit_price_minor,
        currency: product.price.currency.clone(),
    }
}

/// As it will be in the database.
fn allocation(
    creator: Creator,
    product: &Product,
    profile: &ProfileSnapshot,
    isolation_model: IsolationModel,
    (id, name, uid): (AllocationId, String, i32),
    place: &PlacedMember,
    now: DateTime<Utc>,
) -> Allocation {
    Allocation {
        id,
        org_id: creator.org,
        project_id: creator.project,
        group_id: None,
        name,
        creator_kind: creator.principal.kind(),
        creator_id: creator.principal.uuid(),
        sku: product.sku.sku.clone(),
        shape: product.sku.capacity_shape,
        region: place.placed.region.clone(),
        gpus: profile.gpus,
        profile: profile.clone(),
        price_unit: product.price.unit,
        unit_price_minor: product.price.unit_price_minor,
        currency: product.price.currency.clone(),
        isolation_model,
        node_id: place.placed.node,
        slot_ids: place.placed.slots.clone(),
        // The id is in it, so no two accounts on a machine are ever called the same.
        username: format!("gpu{uid}"),
        uid,
        ssh_host: place.ssh_host.clone(),
        ssh_port: place.ssh_port,
        ssh_host_keys: Vec::new(),
        work_order: Vec::new(),
        access_version: 1,
        installed_access: 0,
        access_order: None,
        restart_order: None,
        state: AllocationState::Requested,
        state_reason: String::new(),
        failure_code: None,
        state_changed_at: now,
        release_cause: None,
        active_at: None,
        meter_opened_at: None,
        meter_closed_at: None,
        finished_at: None,
        version: 1,
        created_at: now,
        updated_at: now,
    }
}

/// The work on the node that this launch authorises: making the machine soon, and taking it away at any time.
fn authorised(
    new: &Allocation,
    place: &PlacedMember,
    keys: &[String],
    until: DateTime<Utc>,
) -> Result<Vec<OrderedWork>, Failure> {
    let owner = new.subject();
    if new.shape == Shape::Baremetal {
        let id = u32::try_from(new.uid)?;
        let account = AccountSpec { username: new.username.clone(), uid: id, gid: id };
        let make = ProvisionUserInput {
            account: account.clone(),
            owner: owner.clone(),
            shell: SHELL.to_owned(),
            authorized_keys: keys.to_vec(),
            limits: AccountLimits::default(),
            isolation: new.isolation_model.into(),
        };
        let take = DeprovisionUserInput { account, owner };
        return Ok(vec![
            OrderedWork::from_input::<ProvisionUser>(&make)?.until(until),
            OrderedWork::from_input::<DeprovisionUser>(&take)?,
        ]);
    }
    let slots: Vec<_> = place.devices.iter().map(|(_, devices)| devices.clone()).collect();
    let make = VmProvisionInput {
        owner: owner.clone(),
        slots: slots.clone(),
        vcpus: u32::try_from(new.profile.vcpus.unwrap_or(0))?,
        memory_mib: u64::try_from(new.profile.memory_mib.unwrap_or(0))?,
        image: new.profile.image.clone().unwrap_or_default(),
        username: new.username.clone(),
        authorized_keys: keys.to_vec(),
    };
    let take = VmReleaseInput { owner, slots };
    Ok(vec![
        OrderedWork::from_input::<VmProvision>(&make)?.until(until),
        OrderedWork::from_input::<VmRelease>(&take)?,
    ])
}

/// The slots are held by this transaction, so this is a slot that changed before it was.
fn taken() -> Problem {
    Problem::new(Code::SkuUnavailable, "Another request reserved the last capacity first.")
        .detail("reason", "no_capacity_in_region")
        .suggest("Try again.")
        .retry_after(1)
}

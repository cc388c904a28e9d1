//! What the catalog says is free, while others reserve.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use capacity::service::catalog::{
    Catalog,
    showing::{CatalogEntry, catalog_list},
};
use kernel::{Permission, Role, ids::NodeId};
use pg::{Actor, ActorKind, Connect, Db, Permit, Roles, Scope};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::kit::{Kit, REGION};

/// Anybody who is signed in.
fn permit(kit: &Kit) -> Permit {
    let actor = Actor { kind: ActorKind::User, id: Some(kit.person.uuid()), role: Role::Person.name() };
    let granted = Role::Person.permissions().authorize(Permission::CatalogRead).unwrap();
    Permit::granted(actor, Scope::Person, kit.origin(), granted)
}

async fn shown(db: &Db, catalog: &Catalog, permit: &Permit, sku: &str) -> CatalogEntry {
    let mut read = db.read(permit).await.unwrap();
    let page = catalog_list(catalog, &mut read).await.unwrap();
    page.items.into_iter().find(|entry| entry.sku == sku).unwrap()
}

/// (total, free, largest, whole machines, launchable) of the only region.
fn counts(entry: &CatalogEntry) -> (i64, i64, i64, i64, i64) {
    let [region] = &entry.regions[..] else { panic!("{:?}", entry.regions) };
    assert_eq!(region.region, REGION);
    (region.total, region.free, region.largest, region.whole_machines, region.launchable)
}

#[tokio::test]
async fn each_product_shows_what_could_be_launched_of_it() {
    let kit = Kit::new().await;
    let (catalog, permit) = (Catalog::new(&kit.test.db), permit(&kit));
    let db = &kit.test.db;
    assert_eq!(shown(db, &catalog, &permit, "h200-sxm-slice").await.regions, []);
    kit.node("gpu-1", 8).await;
    kit.node("gpu-2", 4).await;
    assert_eq!(counts(&shown(db, &catalog, &permit, "h200-sxm-slice").await), (12, 12, 8, 2, 12));
    // Whole machines are sold with eight GPUs only.
    assert_eq!(counts(&shown(db, &catalog, &permit, "h200-sxm-baremetal-8g").await), (12, 12, 8, 2, 1));
    kit.sql("UPDATE nodes SET cordon_reason = 'x' WHERE hostname = 'gpu-2'").await;
    let big = kit.active("h200-sxm-slice", Some(2)).await.node_id;
    kit.sql("UPDATE nodes SET cordon_reason = NULL").await;
    assert_eq!(counts(&shown(db, &catalog, &permit, "h200-sxm-slice").await), (12, 10, 6, 1, 10));
    assert_eq!(counts(&shown(db, &catalog, &permit, "h200-sxm-baremetal-8g").await), (12, 10, 6, 1, 0));
    // Cordoned, sick, or kept for another product: there, and not to be had.
    kit.sql("UPDATE nodes SET cordon_reason = 'x' WHERE hostname = 'gpu-2'").await;
    let free = kit.free(big).await[0].uuid();
    kit.sql(&format!("UPDATE node_resource_slots SET health = 'failed' WHERE id = '{free}'")).await;
    assert_eq!(counts(&shown(db, &catalog, &permit, "h200-sxm-slice").await), (12, 5, 5, 0, 5));
    kit.sql("UPDATE nodes SET sku_eligibility = '{h200-sxm-slice}'").await;
    assert_eq!(counts(&shown(db, &catalog, &permit, "h200-sxm-slice").await), (12, 5, 5, 0, 5));
    assert_eq!(shown(db, &catalog, &permit, "h200-sxm-baremetal-8g").await.regions, []);
}

/// Reserves `need` slots in an open transaction, the way a launch does; answers how many it got.
async fn reserve(conn: &mut PgConnection, need: i32) -> Result<usize, sqlx::Error> {
    let rows: Vec<(Uuid, Uuid)> = sqlx::query_as(
        "SELECT node_id, slot_id FROM fleet_candidates(
             ROW('gpu', 'H200', $1, 'h200-sxm-slice', NULL, '{}', $2, false)::slot_request, 1, false, 1, false)",
    )
    .bind(REGION)
    .bind(need)
    .fetch_all(&mut *conn)
    .await?;
    let slots: Vec<Uuid> = rows.iter().map(|(_, slot)| *slot).take(usize::try_from(need).unwrap()).collect();
    let reserved: i32 =
        sqlx::query_scalar("SELECT fleet_slots_reserve($1, now())").bind(&slots).fetch_one(conn).await?;
    Ok(usize::try_from(reserved).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_reserved_and_rolled_back_is_never_missing() {
    const RESERVING: usize = 50;
    const ROUNDS: usize = 6;
    let kit = Kit::new().await;
    let mut nodes: Vec<NodeId> = Vec::new();
    for n in 0..8 {
        nodes.push(kit.node(&format!("gpu-{n}"), 8).await);
    }
    let (catalog, permit) = (Catalog::new(&kit.test.db), permit(&kit));
    let (done, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..RESERVING)
        .map(|n| tokio::spawn(reserving(kit.test.connect.clone(), n, ROUNDS, taken.clone())))
        .collect();
    let looking = async {
        let mut looks = 0;
        while !done.load(Ordering::SeqCst) {
            let entry = shown(&kit.test.db, &catalog, &permit, "h200-sxm-slice").await;
            assert_eq!(counts(&entry), (64, 64, 8, 8, 64), "nothing was ever committed");
            looks += 1;
        }
        looks
    };
    let reserving = async {
        for task in tasks {
            task.await.unwrap();
        }
        done.store(true, Ordering::SeqCst);
    };
    let (looks, ()) = tokio::join!(looking, reserving);
    assert!(looks > 0 && taken.load(Ordering::SeqCst) > 0, "{looks} looks, {taken:?} slots");

    // What is committed is missing at once.
    let mut conn = kit.test.conn(Roles::App).await;
    sqlx::raw_sql("SET default_transaction_read_only = off").execute(&mut conn).await.unwrap();
    assert_eq!(reserve(&mut conn, 2).await.unwrap(), 2);
    let entry = shown(&kit.test.db, &catalog, &permit, "h200-sxm-slice").await;
    assert_eq!(counts(&entry), (64, 62, 8, 7, 62));
}

async fn reserving(connect: Connect, n: usize, rounds: usize, taken: Arc<AtomicUsize>) {
    let mut conn = PgConnection::connect_with(&connect.options(Roles::App)).await.unwrap();
    for round in 0..rounds {
        sqlx::raw_sql("BEGIN READ WRITE").execute(&mut conn).await.unwrap();
        let need = i32::try_from((n + round) % 4 + 1).unwrap();
        taken.fetch_add(reserve(&mut conn, need).await.unwrap(), Ordering::SeqCst);
        tokio::task::yield_now().await;
        sqlx::raw_sql("ROLLBACK").execute(&mut conn).await.unwrap();
    }
}

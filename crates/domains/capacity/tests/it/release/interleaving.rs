//! Several want an allocation to end, and its workflow ends too: in every order, and all at once.

use std::sync::Arc;

use capacity::service::release::{allocation_release, force_release, release_for_depletion};
use kernel::{Code, Failure, ids::AllocationId, text::Reason};
use sqlx::Connection as _;

use super::world::{World, ended};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Actor {
    User,
    Admin,
    Depletion,
    /// The workflow that is under way succeeds: the machine became active, or was released.
    Success,
    /// It fails for good: the launch was taken back, or the release got stuck.
    NodeFailure,
}

async fn act(world: &World, actor: Actor, id: AllocationId) -> Result<(), Failure> {
    match actor {
        Actor::User => {
            let mut tx = world.as_user(world.creator).await;
            let result = allocation_release(&world.capacity, &mut tx, world.asked(id)).await;
            ended(tx, result).await.map(drop)
        }
        Actor::Admin => {
            let mut tx = world.as_operator().await;
            let reason = Reason::parse("wanted by the platform").unwrap();
            let result = force_release(&world.capacity, &mut tx, id, &reason, None).await;
            ended(tx, result).await.map(drop)
        }
        Actor::Depletion => {
            let mut tx = world.as_system().await;
            let result = release_for_depletion(&world.capacity, &mut tx, id).await;
            ended(tx, result).await.map(drop)
        }
        Actor::Success => {
            workflow_ends(world, id, true).await;
            Ok(())
        }
        Actor::NodeFailure => {
            workflow_ends(world, id, false).await;
            Ok(())
        }
    }
}

/// What the engine does when a run ends: the allocation first, then the run, and nothing when the run is not as it
/// must be. A success is refused when somebody cancelled.
async fn workflow_ends(world: &World, id: AllocationId, well: bool) {
    let mut upkeep = world.test.db.upkeep("a test ends a run").await.unwrap();
    let mut tx = upkeep.conn().begin().await.unwrap();
    let state: String = sqlx::query_scalar("SELECT state FROM allocations WHERE id = $1 FOR NO KEY UPDATE")
        .bind(id.uuid())
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    let (event, to, run) = match (state.as_str(), well) {
        ("provisioning", true) => ("activate", "active", "succeeded"),
        ("provisioning", false) => ("fail", "failed", "undone"),
        ("releasing", true) => ("released", "released", "succeeded"),
        ("releasing", false) => ("release_failed", "release_failed", "stuck"),
        _ => return tx.rollback().await.unwrap(),
    };
    let opened = if to == "active" { "now()" } else { "meter_opened_at" };
    let finished = if matches!(to, "released" | "failed") { "now()" } else { "NULL" };
    let sql = format!(
        "UPDATE allocations SET state = $2, version = version + 1, meter_opened_at = {opened}, finished_at = {finished}
         WHERE id = $1"
    );
    sqlx::query(sqlx::AssertSqlSafe(sql)).bind(id.uuid()).bind(to).execute(&mut *tx).await.unwrap();
    sqlx::query(
        "INSERT INTO allocation_events (allocation_id, org_id, at, kind, from_state, to_state, name, actor_kind,
             correlation_id)
         SELECT id, org_id, now(), 'state', $2, state, $3, 'system', gen_random_uuid() FROM allocations WHERE id = $1",
    )
    .bind(id.uuid())
    .bind(&state)
    .bind(event)
    .execute(&mut *tx)
    .await
    .unwrap();
    if to == "active" {
        sqlx::query("INSERT INTO test_meters VALUES ($1, 'open')")
            .bind(id.uuid())
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    let ended = sqlx::query(
        "UPDATE saga_runs SET state = $2, finished_at = now(),
             failure = CASE WHEN $2 = 'succeeded' THEN failure ELSE 'the node failed' END
         WHERE subject = $1 AND state = 'running' AND NOT ($2 = 'succeeded' AND cancel_reason IS NOT NULL)",
    )
    .bind(id.to_string())
    .bind(run)
    .execute(&mut *tx)
    .await
    .unwrap()
    .rows_affected();
    if ended == 1 {
        tx.commit().await.unwrap();
    } else {
        tx.rollback().await.unwrap();
    }
}

/// Of all allocations at once: how many break a rule. None may.
async fn check(world: &World) {
    let broken: Vec<(&str, &str)> = vec![
        (
            "one release takes effect, at most",
            "SELECT count(*) FROM (SELECT allocation_id FROM allocation_events WHERE name = 'release'
             GROUP BY allocation_id HAVING count(*) > 1) x",
        ),
        (
            "a meter is closed once, exactly when it was released",
            "SELECT count(*) FROM allocations a WHERE
                 (SELECT count(*) FROM test_meters m WHERE m.allocation = a.id AND m.what = 'close')
                 <> (SELECT count(*) FROM allocation_events e WHERE e.allocation_id = a.id AND e.name = 'release')",
        ),
        (
            "a meter that is closed was open, and what is over has no open meter",
            "SELECT count(*) FROM allocations a WHERE (a.meter_closed_at IS NOT NULL AND a.meter_opened_at IS NULL)
                 OR (a.state NOT IN ('active') AND a.meter_opened_at IS NOT NULL AND a.meter_closed_at IS NULL)",
        ),
        (
            "each release and each retry starts one run",
            "SELECT count(*) FROM allocations a WHERE
                 (SELECT count(*) FROM saga_runs r WHERE r.name LIKE 'release_%'
                     AND r.subject = 'alloc_' || replace(a.id::text, '-', ''))
                 <> (SELECT count(*) FROM allocation_events e WHERE e.allocation_id = a.id
                     AND e.name IN ('release', 'retry_release'))",
        ),
        (
            "what is on its way has a run, and nothing else has",
            "SELECT count(*) FROM allocations a WHERE
                 (a.state IN ('requested', 'provisioning', 'releasing')) <> EXISTS (SELECT FROM saga_runs r
                     WHERE r.subject = 'alloc_' || replace(a.id::text, '-', '') AND r.state IN ('running', 'undoing'))",
        ),
        (
            "one event of the end is told for each release",
            "SELECT abs((SELECT count(*) FROM outbox_events WHERE event_type = 'provisioning.releasing.requested')
                 - (SELECT count(*) FROM allocation_events WHERE name = 'release'))",
        ),
        (
            "the history of each is a path",
            "SELECT count(*) FROM (SELECT from_state, lag(to_state) OVER (PARTITION BY allocation_id ORDER BY seq) AS was
                 FROM allocation_events WHERE kind = 'state') h WHERE was IS NOT NULL AND was <> from_state",
        ),
    ];
    for (rule, sql) in broken {
        assert_eq!(world.count(sql).await, 0, "{rule}");
    }
}

/// A request may lose its race; nothing else may go wrong.
fn tolerable(result: Result<(), Failure>) {
    match result {
        Ok(()) => {}
        Err(Failure::Problem(problem)) if problem.code == Code::Conflict => {}
        Err(failure) => panic!("{failure:?}"),
    }
}

fn orders(actors: &[Actor]) -> Vec<Vec<Actor>> {
    if actors.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (n, first) in actors.iter().enumerate() {
        let mut rest = actors.to_vec();
        rest.remove(n);
        for mut order in orders(&rest) {
            order.insert(0, *first);
            all.push(order);
        }
    }
    all
}

const PEOPLE_AND_NODE: [Actor; 4] = [Actor::User, Actor::Admin, Actor::Depletion, Actor::NodeFailure];

#[tokio::test]
async fn in_every_order_one_release_takes_effect_and_the_others_find_it_done() {
    let world = World::new().await;
    for state in ["active", "provisioning"] {
        for order in orders(&PEOPLE_AND_NODE) {
            let id = world.allocation(state).await;
            for actor in &order {
                act(&world, *actor, id).await.unwrap_or_else(|failure| panic!("{order:?}: {failure:?}"));
            }
            let after = world.state(id).await;
            match state {
                "active" => {
                    assert!(matches!(after.as_str(), "releasing" | "release_failed"), "{order:?}: {after}")
                }
                _ => assert_eq!(after, "failed", "{order:?}"),
            }
        }
    }
    check(&world).await;
}

#[tokio::test]
async fn in_every_order_a_launch_that_succeeds_is_released_and_one_that_was_cancelled_does_not_succeed() {
    let world = World::new().await;
    let actors = [Actor::User, Actor::Depletion, Actor::Success, Actor::NodeFailure];
    for order in orders(&actors) {
        let id = world.allocation("provisioning").await;
        for actor in &order {
            act(&world, *actor, id).await.unwrap_or_else(|failure| panic!("{order:?}: {failure:?}"));
        }
        // Whatever came first: the end of what is under way is the end of all.
        workflow_ends(&world, id, true).await;
        workflow_ends(&world, id, false).await;
        let (after, opened) = (world.state(id).await, world.meters(id, "open").await);
        assert_eq!(world.meters(id, "close").await, opened, "{order:?}");
        let ends = if opened == 1 { ["released", "release_failed"] } else { ["failed", "failed"] };
        assert!(ends.contains(&after.as_str()), "{order:?}: {after}");
    }
    check(&world).await;
}

/// A small generator, so that a failure can be repeated by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

async fn all_at_once(state: &'static str, actors: &'static [Actor], rounds: usize, seed: u64) {
    const AT_ONCE: usize = 4;
    let world = World::new().await;
    let ids = world.allocations(state, "gpu_slice", rounds).await;
    let mut dice = Dice(seed);
    for batch in ids.chunks(AT_ONCE) {
        let mut tasks = tokio::task::JoinSet::new();
        for id in batch.iter().copied() {
            for actor in actors {
                let (world, actor, yields) = (Arc::clone(&world), *actor, dice.roll(40));
                tasks.spawn(async move {
                    for _ in 0..yields {
                        tokio::task::yield_now().await;
                    }
                    tolerable(act(&world, actor, id).await);
                });
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }
    check(&world).await;
    let ends = "SELECT count(DISTINCT (state, release_cause)) FROM allocations";
    assert!(world.count(ends).await > 1, "they did not always come in the same order");
    let undecided =
        format!("SELECT count(*) FROM allocations WHERE state = '{state}' AND release_cause IS NULL");
    assert_eq!(world.count(&undecided).await, 0, "everybody was heard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_times_at_once_an_active_allocation_is_released_once() {
    all_at_once("active", &PEOPLE_AND_NODE, 1000, 0x5eed_0001).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_times_at_once_a_launch_is_cancelled_or_released_and_never_both() {
    const ACTORS: [Actor; 4] = [Actor::User, Actor::Admin, Actor::Depletion, Actor::Success];
    all_at_once("provisioning", &ACTORS, 1000, 0x5eed_0002).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_times_at_once_a_launch_fails_while_others_cancel_it() {
    all_at_once("provisioning", &PEOPLE_AND_NODE, 1000, 0x5eed_0003).await;
}

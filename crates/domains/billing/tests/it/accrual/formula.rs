//! The formula of a cost stands once in the database and once in the program, and both are the same.

use billing::model::rating::{hour_cost, usage_cost, usage_cost_rounded_up};
use pg::Roles;
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use sqlx::PgConnection;
use testkit::TestDb;

const CASES: usize = 4_000;
const COST: &str = "SELECT amount, carry FROM usage_cost($1, $2, $3, $4)";
/// Written as statements use it: in the place of a table, of a column, and as the planner puts it there.
const COST_OF_A_ROW: &str =
    "SELECT c.amount, c.carry FROM (VALUES ($1::integer, $2::bigint, $3::integer, $4::bigint))
    AS m (carry, price, units, seconds), usage_cost(m.carry, m.price, m.units, m.seconds) AS c";
const OUT_OF_RANGE: &str = "22003";

/// What happens, what the columns of meters allow at most, and what 64 bits hold and do not hold.
fn numbers() -> impl Strategy<Value = (i32, i64, i32, i64)> {
    let usual = (0..3600i32, 0..100_000i64, 0..64i32, 0..100_000i64);
    let limits = (0..3600i32, 0..=1_000_000_000i64, 0..=100_000i32, -40_000_000..=40_000_000i64);
    let edges = (
        prop_oneof![Just(0), Just(3599), Just(i32::MIN), Just(i32::MAX)],
        prop_oneof![Just(0), Just(1), Just(-1), Just(i64::MIN), Just(i64::MAX), Just(i64::MAX / 3600)],
        prop_oneof![Just(0), Just(1), Just(-1), Just(i32::MIN), Just(i32::MAX)],
        prop_oneof![Just(0), Just(1), Just(-1), Just(3600), Just(i64::MIN), Just(i64::MAX)],
    );
    prop_oneof![usual, limits, edges, (any::<i32>(), any::<i64>(), any::<i32>(), any::<i64>())]
}

/// Nothing when it is out of range; any other error fails the test.
fn in_range<T>(answer: Result<T, sqlx::Error>) -> Option<T> {
    match answer {
        Ok(value) => Some(value),
        Err(error) => {
            let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
            assert_eq!(code, OUT_OF_RANGE, "{error}");
            None
        }
    }
}

async fn database_cost(
    conn: &mut PgConnection,
    sql: &'static str,
    (carry, price, units, seconds): (i32, i64, i32, i64),
) -> Option<(i64, i32)> {
    let query = sqlx::query_as(sql).bind(carry).bind(price).bind(units).bind(seconds);
    in_range(query.fetch_one(conn).await)
}

#[tokio::test]
async fn the_database_and_the_program_have_one_formula() {
    let test = TestDb::create().await;
    let mut conn = test.conn(Roles::App).await;
    let mut runner = TestRunner::deterministic();
    let (mut costs, mut overflows) = (0, 0);
    for _ in 0..CASES {
        let case = numbers().new_tree(&mut runner).unwrap().current();
        let (carry, price, units, seconds) = case;
        let ours = usage_cost(carry, price, units, seconds);
        for sql in [COST, COST_OF_A_ROW] {
            assert_eq!(database_cost(&mut conn, sql, case).await, ours, "{case:?}");
        }
        if ours.is_some() {
            costs += 1
        } else {
            overflows += 1
        }

        let rounded = sqlx::query_scalar("SELECT usage_cost_rounded_up($1, $2, $3)")
            .bind(price)
            .bind(units)
            .bind(seconds)
            .fetch_one(&mut conn)
            .await;
        assert_eq!(in_range::<i64>(rounded), usage_cost_rounded_up(price, units, seconds), "{case:?}");
        let hour = database_cost(&mut conn, COST, (0, price, units, 3600)).await;
        assert_eq!(hour.map(|(amount, _)| amount), hour_cost(price, units), "{case:?}");
    }
    assert!(costs > CASES / 4 && overflows > CASES / 10, "{costs} costs, {overflows} overflows");
}

#[tokio::test]
async fn promotional_credit_pays_first_and_never_more_than_there_is() {
    let test = TestDb::create().await;
    let mut conn = test.conn(Roles::App).await;
    let mut runner = TestRunner::deterministic();
    let any = (0..10_000i64, 0..10_000i64, 0..10_000i64);
    for _ in 0..500 {
        let (promo, first, second) = any.new_tree(&mut runner).unwrap().current();
        let (of_first, of_both, unused): (i64, i64, i64) = sqlx::query_as(
            "SELECT promo_part($1, $2), promo_part($1, $2 + $3), hold_promo_unused($2 + $3 + $1, $3 + $1, $1)",
        )
        .bind(promo)
        .bind(first)
        .bind(second)
        .fetch_one(&mut conn)
        .await
        .unwrap();
        assert_eq!(of_first, promo.min(first), "{promo} {first}");
        // However use is divided, the same credit is used.
        assert_eq!(of_both, of_first + (promo - of_first).min(second), "{promo} {first} {second}");
        assert_eq!(unused, promo - of_first, "{promo} {first} {second}");
    }
}

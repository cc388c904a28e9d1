//! What needs somebody's attention among the runs, as gauges: every worker reports the same numbers.

use pg::Db;
use telemetry::names;

pub(crate) async fn measure(db: &Db) -> Result<(), pg::Error> {
    let mut upkeep = db.upkeep("count workflow runs that need attention").await?;
    let counted = sqlx::query!(
        r#"SELECT
            (SELECT count(*) FROM saga_runs WHERE state IN ('running', 'undoing') AND end_attempts > 0) AS "ends_retried!",
            (SELECT count(*) FROM saga_runs WHERE state IN ('running', 'undoing')
                AND greatest(wake_at, lease_until) < $1::timestamptz - interval '1 minute') AS "overdue!",
            (SELECT count(*) FROM saga_runs s WHERE s.state = 'stuck'
                AND NOT EXISTS (SELECT FROM saga_runs later WHERE later.subject = s.subject AND later.id > s.id)) AS "stuck!""#,
        db.ambient().now()
    )
    .fetch_one(upkeep.conn())
    .await?;
    metrics::gauge!(names::SAGA_ENDS_RETRIED).set(counted.ends_retried as f64);
    metrics::gauge!(names::SAGA_RUNS_OVERDUE).set(counted.overdue as f64);
    metrics::gauge!(names::SAGA_RUNS_STUCK).set(counted.stuck as f64);
    Ok(())
}

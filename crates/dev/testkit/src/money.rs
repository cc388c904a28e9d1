//! What must hold of money at any moment, asked of the database behind everybody's back, in one snapshot.

use crate::{TestDb, invariants::broken_of};

const NEVER: &[(&str, &str)] = &[
    (
        "the books do not balance",
        "SELECT count(*) FROM (SELECT sum(amount_minor) AS total FROM ledger_lines) x WHERE total <> 0",
    ),
    (
        "the lines of a posting do not sum to zero, or are not as many as it says",
        "SELECT count(*) FROM ledger_postings p LEFT JOIN (SELECT org_id, seq, sum(amount_minor) AS total, count(*) AS lines
             FROM ledger_lines GROUP BY 1, 2) l USING (org_id, seq)
         WHERE l.total IS DISTINCT FROM 0 OR l.lines IS DISTINCT FROM p.lines",
    ),
    (
        "lines have no posting",
        "SELECT count(*) FROM ledger_lines l WHERE NOT EXISTS
             (SELECT FROM ledger_postings p WHERE p.org_id = l.org_id AND p.seq = l.seq AND p.posted_at = l.posted_at)",
    ),
    (
        "a balance is not the sum of what was posted",
        "SELECT count(*) FROM (
             SELECT p.org_id, p.seq, p.prepaid_after, p.held_after, p.promo_after, p.disputed_after,
                 sum(l.prepaid) OVER chain AS prepaid, sum(l.held) OVER chain AS held, sum(l.promo) OVER chain AS promo,
                 sum(l.disputed) OVER chain AS disputed
             FROM ledger_postings p JOIN (SELECT org_id, seq,
                     sum(amount_minor) FILTER (WHERE account = 'prepaid') AS prepaid,
                     sum(amount_minor) FILTER (WHERE account = 'held') AS held,
                     sum(amount_minor) FILTER (WHERE account = 'promo') AS promo,
                     sum(amount_minor) FILTER (WHERE account = 'disputed') AS disputed
                 FROM ledger_lines GROUP BY 1, 2) l USING (org_id, seq)
             WINDOW chain AS (PARTITION BY p.org_id ORDER BY p.seq)) x
         WHERE prepaid_after <> coalesce(prepaid, 0) OR held_after <> coalesce(held, 0)
             OR promo_after <> coalesce(promo, 0) OR disputed_after <> coalesce(disputed, 0)",
    ),
    (
        "a chain has a gap, a time that goes back, or a hash that does not follow",
        "SELECT count(*) FROM (SELECT p.*, p AS posting, row_number() OVER chain AS place, lag(p.hash) OVER chain AS before,
                 lag(p.posted_at) OVER chain AS earlier FROM ledger_postings p WINDOW chain AS (PARTITION BY org_id ORDER BY seq)) x
         WHERE place <> seq OR prev_hash <> coalesce(before, ledger_genesis(org_id)) OR hash <> ledger_hash(posting)
             OR posted_at < coalesce(earlier, '-infinity')",
    ),
    (
        "a digest is not that of the lines",
        "SELECT count(*) FROM ledger_postings p JOIN (SELECT org_id, seq, sha256(string_agg(ledger_leaf(ROW(line, account, amount_minor,
                 project_id, allocation_id, app_instance_id, meter_id, window_start, window_end, correlation_id)::ledger_line_content),
                 ''::bytea ORDER BY line)) AS digest
             FROM ledger_lines GROUP BY 1, 2) l USING (org_id, seq) WHERE l.digest <> p.lines_digest",
    ),
    (
        "a chain ends elsewhere than it says",
        "SELECT count(*) FROM ledger_chains c LEFT JOIN (SELECT DISTINCT ON (org_id) org_id, seq, hash, posted_at FROM ledger_postings
             ORDER BY org_id, seq DESC) p USING (org_id)
         WHERE c.seq <> coalesce(p.seq, 0) OR c.hash <> coalesce(p.hash, ledger_genesis(c.org_id)) OR c.posted_at <> coalesce(p.posted_at, '-infinity')",
    ),
    (
        "what is held is not what is set aside for meters",
        "SELECT count(*) FROM (SELECT org_id, sum(hold_remaining) AS held FROM meters GROUP BY 1) m
             LEFT JOIN ledger_chains c USING (org_id) LEFT JOIN ledger_postings p ON p.org_id = c.org_id AND p.seq = c.seq
         WHERE m.held <> coalesce(p.held_after, 0)",
    ),
    (
        "a second is charged twice, or taken back without having been charged",
        "SELECT count(*) FROM (
             SELECT meter_id, at, sum(sum(change)) OVER (PARTITION BY meter_id ORDER BY at) AS times FROM (
                 SELECT meter_id, window_start AS at, CASE kind WHEN 'usage' THEN 1 ELSE -1 END AS change FROM usage_records
                 UNION ALL SELECT meter_id, window_end, CASE kind WHEN 'usage' THEN -1 ELSE 1 END FROM usage_records) e
             GROUP BY meter_id, at) c
         WHERE times NOT IN (0, 1)",
    ),
    (
        "a meter was not charged for exactly the seconds that it ran",
        "SELECT count(*) FROM meters m LEFT JOIN (SELECT meter_id,
                 sum(extract(epoch FROM window_end - window_start) * CASE kind WHEN 'usage' THEN 1 ELSE -1 END) AS seconds
             FROM usage_records GROUP BY 1) u ON u.meter_id = m.id
         WHERE coalesce(u.seconds, 0) <> coalesce(extract(epoch FROM m.accrued_until - m.opened_at), 0) - coalesce((
             SELECT sum(greatest(extract(epoch FROM p.resumed_at - p.since), 0)) FROM meter_pauses p
             WHERE p.meter_id = m.id AND p.resumed_at IS NOT NULL AND p.since < m.accrued_until), 0)",
    ),
    (
        "what was posted of a meter is not the floor of its exact cost",
        "SELECT count(*) FROM meters m LEFT JOIN (SELECT meter_id, sum(amount_minor) AS amount,
                 sum(extract(epoch FROM window_end - window_start) * CASE kind WHEN 'usage' THEN 1 ELSE -1 END) AS seconds
             FROM usage_records GROUP BY 1) u ON u.meter_id = m.id
         WHERE m.posted_minor <> coalesce(u.amount, 0)
             OR m.posted_minor::numeric * 3600 + m.carry <> m.unit_price_minor::numeric * m.units * coalesce(u.seconds, 0)",
    ),
    (
        "what the ledger took for a meter is not what was posted of it",
        "SELECT count(*) FROM meters m LEFT JOIN (SELECT meter_id, -sum(amount_minor) AS amount FROM ledger_lines
             WHERE account IN ('prepaid', 'held', 'promo') AND window_start IS NOT NULL GROUP BY 1) l ON l.meter_id = m.id
         WHERE m.posted_minor <> coalesce(l.amount, 0)",
    ),
    (
        "the records of a posting are not what it took",
        "SELECT count(*) FROM (SELECT org_id, seq, sum(amount_minor) AS amount FROM usage_records WHERE seq IS NOT NULL GROUP BY 1, 2) u
             JOIN (SELECT org_id, seq, -sum(amount_minor) AS amount FROM ledger_lines
                 WHERE account IN ('prepaid', 'held', 'promo') AND window_start IS NOT NULL GROUP BY 1, 2) l USING (org_id, seq)
         WHERE u.amount <> l.amount",
    ),
    (
        "a window goes over the hour",
        "SELECT count(*) FROM usage_records WHERE kind = 'usage'
             AND window_end > date_bin('1 hour', window_start, '2000-01-01 00:00:00Z') + interval '1 hour'",
    ),
    (
        "a meter that ended is not settled where it ended",
        "SELECT count(*) FROM meters WHERE state = 'settled' AND (accrued_until <> closed_at OR hold_remaining <> 0)",
    ),
    (
        "a depleted organization has money, or one without is not known to be depleted",
        "SELECT count(*) FROM billing_accounts a JOIN ledger_chains c USING (org_id)
             JOIN ledger_postings p ON p.org_id = c.org_id AND p.seq = c.seq
         WHERE (a.state = 'depleted') <> (p.prepaid_after + p.promo_after + p.held_after <= 0)",
    ),
];

/// Says what does not hold.
pub async fn broken(db: &TestDb) -> Result<(), String> {
    broken_of(db, NEVER).await
}

pub async fn hold(db: &TestDb) {
    if let Err(broken) = broken(db).await {
        panic!("{broken}");
    }
}

-- Whether the budget of a project is used up in the month of `p_now` and blocks launches. It may have been raised since it
-- was crossed.
CREATE OR REPLACE FUNCTION budget_blocks(p_org uuid, p_project uuid, p_now timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM budgets b JOIN budget_progress g USING (project_id)
        WHERE b.project_id = p_project AND b.org_id = p_org
            AND b.action IN ('block', 'release') AND g.crossed_at IS NOT NULL
            AND (g.spent_minor + g.unposted_minor)::numeric * 100 >= b.amount_minor::numeric * b.threshold_percent
            AND g.month = date_trunc('month', p_now AT TIME ZONE 'UTC')::date)
$$;

-- Live allocations from before there was the rule: of those with one name, the oldest keeps it, the others get
-- a random number, which no tenant can have taken before.
UPDATE allocations AS a SET unique_name = true,
        name = CASE WHEN d.place = 1 THEN a.name ELSE left(a.name, 67) || '-' || right(gen_random_uuid()::text, 12) END
    FROM (SELECT id, row_number() OVER (PARTITION BY org_id, live_project_id, name ORDER BY id) AS place
        FROM allocations WHERE live_project_id IS NOT NULL) AS d
    WHERE d.id = a.id AND a.live_project_id IS NOT NULL;

-- Organizations whose balance and budgets are evaluated at once, because a meter opened, closed, paused or resumed. The
-- transaction that changes a meter cannot lock the chain, since a depletion locks the chain before the allocation: it
-- appends a row here, and the billing worker evaluates the organization and deletes the rows that it read.
--
-- A row is one change of a meter, and no change updates the row of another: they never wait for each other here. Ids do
-- not commit in their order, so a worker deletes the ids that it read and never "all up to".
CREATE TABLE balance_evaluations (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org_id    uuid NOT NULL,
    queued_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE balance_evaluations IS 'platform: changes of meters after which a balance is to be evaluated; written by balance_evaluation_queue only';
GRANT SELECT, DELETE ON balance_evaluations TO gpuaas_system;

-- What was used and not posted when the budget was last evaluated; it counts as spent.
ALTER TABLE budget_progress ADD COLUMN unposted_minor bigint NOT NULL DEFAULT 0;

-- The numbers of statements, one series for the seller. A statement gets its number when its month has ended, with the
-- names and taxes as they were then. That there is no gap is a foreign key: each number but the first needs the one before.
CREATE TABLE statement_numbers (
    number      bigint PRIMARY KEY CHECK (number > 0),
    previous    bigint GENERATED ALWAYS AS (nullif(number - 1, 0)) STORED REFERENCES statement_numbers (number),
    org_id      uuid NOT NULL,
    month       date NOT NULL CHECK (extract(day FROM month) = 1),
    issued_at   timestamptz NOT NULL,
    particulars jsonb NOT NULL
);
CREATE UNIQUE INDEX statement_numbers_by_org ON statement_numbers (org_id, month);
COMMENT ON TABLE statement_numbers IS 'tenant: append-only; number, seller, buyer and tax of each statement of an ended month; written by statement_numbers_issue only';
ALTER TABLE statement_numbers ENABLE ROW LEVEL SECURITY;
CREATE POLICY statement_numbers_tenant ON statement_numbers FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY statement_numbers_system ON statement_numbers FOR SELECT TO gpuaas_system USING (true);
GRANT SELECT ON statement_numbers TO gpuaas_app, gpuaas_system;

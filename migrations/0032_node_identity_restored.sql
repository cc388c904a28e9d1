-- Certificates of nodes: whose use is not known, and which were taken over after a restore. Nodes: when they were compared.

-- 0020 dated the first use of every certificate that existed with its creation. A node whose answer to a renewal was lost
-- just before that shows the certificate before, and was taken for a copy. Where the live certificate is from that time,
-- nobody knows whether it was used: it counts as unused until the node is heard with it, and those before it may ask for
-- it once more. A node that was asked for a new key is left as it is: a tenant may have the keys from before.
UPDATE node_certificates c SET first_used_at = NULL
    WHERE c.key_sha256 IS NULL AND c.first_used_at = c.created_at AND (c.revoked_at IS NULL OR c.superseded)
        AND EXISTS (SELECT FROM node_certificates live WHERE live.node_id = c.node_id AND live.revoked_at IS NULL
            AND live.key_sha256 IS NULL)
        AND EXISTS (SELECT FROM nodes n WHERE n.id = c.node_id AND n.rekey_since IS NULL);
UPDATE node_certificates c SET renewed_from = before.serial
    FROM (SELECT d.serial AS later, lag(d.serial) OVER (PARTITION BY d.node_id ORDER BY d.not_after, d.serial) AS serial
          FROM node_certificates d WHERE d.key_sha256 IS NULL AND (d.revoked_at IS NULL OR d.superseded)) AS before
    WHERE c.serial = before.later AND before.serial IS NOT NULL AND c.renewed_from IS NULL
        AND c.key_sha256 IS NULL AND c.first_used_at IS NULL;

-- A certificate that was given after the backup from which the database was restored, and was recorded when its node
-- showed it.
ALTER TABLE node_certificates ADD COLUMN adopted_at timestamptz;
COMMENT ON COLUMN node_certificates.adopted_at IS 'when it was recorded after a restore, because its node showed it';

-- When the last restore was noticed; kept after an operator has resumed.
ALTER TABLE installation ADD COLUMN last_restored_at timestamptz;

ALTER TABLE nodes ADD COLUMN compared_at timestamptz;
COMMENT ON COLUMN nodes.compared_at IS 'when a report of the node was first compared with the records after a restore';

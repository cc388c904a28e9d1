-- The public keys of a machine's SSH server, as its node reported them: clients accept no others.
ALTER TABLE allocations ADD COLUMN ssh_host_keys text[] NOT NULL DEFAULT '{}';

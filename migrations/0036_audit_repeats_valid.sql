-- In a transaction of its own: the rows are read without keeping anybody from writing.
ALTER TABLE audit_logs VALIDATE CONSTRAINT audit_logs_repeats;

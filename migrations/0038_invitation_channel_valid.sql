-- In a transaction of its own: the rows are read without keeping anybody from writing.
ALTER TABLE deliveries VALIDATE CONSTRAINT deliveries_channel_known;
ALTER TABLE deliveries VALIDATE CONSTRAINT deliveries_address_check;

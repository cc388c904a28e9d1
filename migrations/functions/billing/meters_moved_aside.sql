CREATE OR REPLACE FUNCTION meters_moved_aside() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a meter moved while it was accrued' USING ERRCODE = 'serialization_failure';
END $$;
REVOKE ALL ON FUNCTION meters_moved_aside FROM PUBLIC;

-- Ringfence: high-water marks of fencing tokens, schema version 1.
-- Run it as a role that may create a schema; running it again changes nothing.
-- Then: GRANT USAGE ON SCHEMA ringfence TO <the application's role>.
--
-- In the transaction that writes, before the write:
--   SELECT ringfence.check_fence(cluster, resource, slot or NULL, token, floor);
-- It locks the mark until the transaction ends, or it raises an error, which
-- aborts the transaction:
--   RF001  stale: the token is below the mark      RF002  floor above token
--   RF003  fence of another authority              RF004  malformed argument
--   RF005  the schema has another version than the caller speaks
-- 40001 (REPEATABLE READ, SERIALIZABLE): run the whole transaction again.
BEGIN;
SET LOCAL client_min_messages = warning;

DO $$
DECLARE
    v_found integer;
BEGIN
    -- One installation at a time: IF NOT EXISTS alone does not wait.
    PERFORM pg_advisory_xact_lock(hashtext('ringfence.schema'));
    IF to_regclass('ringfence.schema') IS NOT NULL THEN
        SELECT version INTO v_found FROM ringfence.schema;
        IF v_found > 1 THEN
            RAISE EXCEPTION 'ringfence: schema version % is newer than 1', v_found
                USING ERRCODE = 'RF005', DETAIL = format('found=%s known=1', v_found);
        END IF;
    END IF;
END $$;

CREATE SCHEMA IF NOT EXISTS ringfence;

CREATE TABLE IF NOT EXISTS ringfence.schema (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version integer NOT NULL
);
INSERT INTO ringfence.schema (version) VALUES (1) ON CONFLICT DO NOTHING;

-- Slot -1 stands for the resource itself. Room in the pages keeps updates cheap.
CREATE TABLE IF NOT EXISTS ringfence.marks (
    resource text COLLATE "C" NOT NULL CHECK (octet_length(resource) BETWEEN 1 AND 512),
    slot bigint NOT NULL DEFAULT -1 CHECK (slot BETWEEN -1 AND 4294967295),
    cluster uuid NOT NULL,
    mark bigint NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991),
    PRIMARY KEY (resource, slot)
) WITH (fillfactor = 50);

-- One mark: compares, raises and locks in one statement. A SELECT would read a
-- mark that a concurrent raise is just leaving behind, at any isolation level.
CREATE OR REPLACE FUNCTION ringfence.raise_mark(
    p_cluster uuid, p_resource text, p_slot bigint, p_token bigint, p_to bigint
) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_known record;
    v_slot text := CASE WHEN p_slot < 0 THEN 'none' ELSE p_slot::text END;
BEGIN
    INSERT INTO ringfence.marks AS m (resource, slot, cluster, mark)
    VALUES (p_resource, p_slot, p_cluster, p_to)
    ON CONFLICT (resource, slot) DO UPDATE SET mark = GREATEST(m.mark, EXCLUDED.mark)
    WHERE m.cluster = EXCLUDED.cluster AND m.mark <= p_token;
    IF FOUND THEN
        RETURN;
    END IF;
    -- The refused guard has locked the row, so this is the mark that refused.
    SELECT m.cluster, m.mark INTO STRICT v_known
    FROM ringfence.marks m WHERE m.resource = p_resource AND m.slot = p_slot;
    IF v_known.cluster <> p_cluster THEN
        RAISE EXCEPTION 'ringfence: the mark of % belongs to authority %, the token to %',
                p_resource, v_known.cluster, p_cluster
            USING ERRCODE = 'RF003', DETAIL = format('known=%s offered=%s resource=%s',
                v_known.cluster, p_cluster, p_resource),
            HINT = 'An administrator can call ringfence.adopt(from, to).';
    END IF;
    RAISE EXCEPTION 'ringfence: stale fence: token % is below the mark % of %',
            p_token, v_known.mark, p_resource
        USING ERRCODE = 'RF001', DETAIL = format('token=%s mark=%s slot=%s resource=%s',
            p_token, v_known.mark, v_slot, p_resource);
END $$;

-- The check. SECURITY DEFINER: the application needs no right on the table, so
-- no statement of its own can lower a mark.
CREATE OR REPLACE FUNCTION ringfence.check_fence(
    p_cluster uuid, p_resource text, p_slot bigint, p_token bigint, p_floor bigint,
    p_schema integer DEFAULT 1
) RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_found integer;
BEGIN
    SELECT version INTO v_found FROM ringfence.schema;
    IF v_found IS DISTINCT FROM p_schema THEN
        RAISE EXCEPTION 'ringfence: schema version %, the caller speaks %', v_found, p_schema
            USING ERRCODE = 'RF005', DETAIL = format('found=%s known=%s', v_found, p_schema);
    END IF;
    IF (p_cluster IS NOT NULL AND octet_length(p_resource) BETWEEN 1 AND 512
        AND (p_slot IS NULL OR p_slot BETWEEN 0 AND 4294967295)
        AND p_token BETWEEN 1 AND 9007199254740991 AND p_floor >= 1) IS NOT TRUE THEN
        RAISE EXCEPTION 'ringfence: cluster is a uuid, resource 1 to 512 bytes, slot 0 to 2^32 - 1 '
            'or NULL, token and floor 1 to 2^53 - 1' USING ERRCODE = 'RF004';
    END IF;
    IF p_floor > p_token THEN
        RAISE EXCEPTION 'ringfence: floor % is above token % for %', p_floor, p_token, p_resource
            USING ERRCODE = 'RF002', DETAIL = format('token=%s floor=%s resource=%s',
                p_token, p_floor, p_resource);
    END IF;
    -- A mark that was answered must not be lost with the power.
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM ringfence.raise_mark(p_cluster, p_resource, -1, p_token, p_floor);
    IF p_slot IS NOT NULL THEN
        PERFORM ringfence.raise_mark(p_cluster, p_resource, p_slot, p_token, p_token);
    END IF;
END $$;

-- The mark of a resource, or of one of its slots; NULL where nothing was written.
CREATE OR REPLACE FUNCTION ringfence.mark(p_resource text, p_slot bigint DEFAULT NULL)
RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT m.mark FROM ringfence.marks m
    WHERE m.resource = p_resource AND m.slot = COALESCE(p_slot, -1);
$$;

-- Takes the marks of one authority over for another, as after a restore.
CREATE OR REPLACE FUNCTION ringfence.adopt(p_from uuid, p_to uuid)
RETURNS bigint LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH taken AS (
        UPDATE ringfence.marks SET cluster = p_to WHERE cluster = p_from RETURNING 1
    )
    SELECT count(*) FROM taken;
$$;

REVOKE ALL ON FUNCTION ringfence.raise_mark(uuid, text, bigint, bigint, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION ringfence.adopt(uuid, uuid) FROM PUBLIC;
COMMIT;

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
--   RF006  a guarded table is written and no fence was checked for the row
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
    -- The transaction that raised it last: what a guarded table asks for.
    checked_in bigint NOT NULL DEFAULT txid_current(),
    PRIMARY KEY (resource, slot)
) WITH (fillfactor = 50);
DO $$
BEGIN
    -- Where it is there already, writers are not waited for.
    IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'ringfence.marks'::regclass
                   AND attname = 'checked_in' AND NOT attisdropped) THEN
        ALTER TABLE ringfence.marks
            ADD COLUMN checked_in bigint NOT NULL DEFAULT txid_current();
    END IF;
END $$;

-- One mark: compares, raises and locks in one statement. A SELECT would read a
-- mark that a concurrent raise is just leaving behind, at any isolation level.
CREATE OR REPLACE FUNCTION ringfence.raise_mark(
    p_cluster uuid, p_resource text, p_slot bigint, p_token bigint, p_to bigint
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_known record;
    v_slot text;
BEGIN
    -- Under the search_path of check_fence: setting it once more would cost as much as this.
    INSERT INTO ringfence.marks AS m (resource, slot, cluster, mark)
    VALUES (p_resource, p_slot, p_cluster, p_to)
    ON CONFLICT (resource, slot) DO UPDATE
    SET mark = GREATEST(m.mark, EXCLUDED.mark), checked_in = EXCLUDED.checked_in
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
    v_slot := CASE WHEN p_slot < 0 THEN 'none' ELSE p_slot::text END;
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

-- The mark of a resource whose fence was checked in this transaction, outside savepoints that
-- were rolled back; NULL where none was. The mark is locked since, so no other is in force.
-- The number alone could be one that a dump brought from another server: so the row must also
-- be one that is not committed yet. Whoever sees such a row has written it.
CREATE OR REPLACE FUNCTION ringfence.checked_mark(p_resource text)
RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT max(m.mark) FROM ringfence.marks m
    WHERE m.resource = p_resource AND m.checked_in = txid_current()
        AND txid_status((txid_current() & ~4294967295) | m.xmin::text::bigint) = 'in progress'
    HAVING bool_or(m.slot = -1);
$$;

-- What a guard's trigger says.
CREATE OR REPLACE FUNCTION ringfence.refuse_row(p_table text, p_resource text)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_resource IS NULL THEN
        RAISE EXCEPTION 'ringfence: % is guarded, and this row names no resource', p_table
            USING ERRCODE = 'RF006', HINT = 'Every column of the template must have a value.';
    END IF;
    RAISE EXCEPTION 'ringfence: % is guarded, and no fence of % was checked in this transaction',
            p_table, p_resource
        USING ERRCODE = 'RF006', DETAIL = format('resource=%s', p_resource),
        HINT = 'SELECT ringfence.check_fence(...) in the same transaction, before the write.';
END $$;

-- A column that can be part of a resource's name: it has its value before the write, and the
-- same text in every session.
CREATE OR REPLACE FUNCTION ringfence.naming_column(p_table regclass, p_column text)
RETURNS name LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_column record;
    v_type record;
BEGIN
    SELECT a.attname, a.attgenerated, a.atttypid INTO v_column FROM pg_attribute a
    WHERE a.attrelid = p_table AND a.attname = p_column AND a.attnum > 0 AND NOT a.attisdropped;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'ringfence: % has no column %', p_table, p_column
            USING ERRCODE = 'RF004';
    END IF;
    SELECT t.oid, t.typtype, t.typbasetype INTO v_type FROM pg_type t
    WHERE t.oid = v_column.atttypid;
    WHILE v_type.typtype = 'd' LOOP
        SELECT t.oid, t.typtype, t.typbasetype INTO v_type FROM pg_type t
        WHERE t.oid = v_type.typbasetype;
    END LOOP;
    IF v_column.attgenerated <> '' OR v_type.typtype <> 'e' AND v_type.oid <> ALL (ARRAY[
            'smallint', 'integer', 'bigint', 'numeric', 'oid', 'boolean', 'uuid', 'text',
            'character varying', 'character', 'name']::regtype[]) THEN
        RAISE EXCEPTION 'ringfence: column % of % cannot name a resource: it is generated, or its '
            'text depends on settings', p_column, p_table USING ERRCODE = 'RF004',
            HINT = 'Integers, numeric, boolean, uuid, text and enumerations can.';
    END IF;
    RETURN v_column.attname;
END $$;

-- The expression that makes a row's resource out of a template: text, and columns in braces,
-- as in job/{id}.
CREATE OR REPLACE FUNCTION ringfence.resource_of(p_table regclass, p_template text, p_row text)
RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_parts text[] := '{}';
    v_part text[];
BEGIN
    FOR v_part IN SELECT regexp_matches(p_template, '([^{}]+)|\{([^{}]+)\}|(.)', 'g') LOOP
        IF v_part[3] IS NOT NULL THEN
            RAISE EXCEPTION 'ringfence: the template % has a brace without its other',
                quote_literal(p_template) USING ERRCODE = 'RF004';
        ELSIF v_part[1] IS NOT NULL THEN
            v_parts := v_parts || quote_literal(v_part[1]);
        ELSE
            v_parts := v_parts
                || format('%s.%I::text', p_row, ringfence.naming_column(p_table, v_part[2]));
        END IF;
    END LOOP;
    IF v_parts = '{}' THEN
        RAISE EXCEPTION 'ringfence: the template of the resource is empty' USING ERRCODE = 'RF004';
    END IF;
    -- Compared byte by byte, whatever the columns' collations.
    RETURN format('(%s) COLLATE "C"', array_to_string(v_parts, ' || '));
END $$;

-- Adds the epoch column where it is missing.
CREATE OR REPLACE FUNCTION ringfence.epoch_column(p_table regclass, p_epoch name)
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS %I bigint', p_table, p_epoch);
    IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = p_table AND a.attname = p_epoch
                   AND a.atttypid = 'bigint'::regtype AND a.attgenerated = '') THEN
        RAISE EXCEPTION 'ringfence: the epoch column % of % is not a plain bigint',
            p_epoch, p_table USING ERRCODE = 'RF004';
    END IF;
END $$;

-- Guards a table: from now on no statement changes a row, buggy or stale, unless a fence of the
-- row's resource was checked in the same transaction. The epoch column, if one is named, always
-- holds the resource's mark, which is the token of an exclusive grant that was checked; it is
-- added where it is missing. For the owner of the table. Rows that are there already are left
-- as they are. After an upgrade of this schema, and when partitions were added, guard again.
CREATE OR REPLACE FUNCTION ringfence.guard_table(
    p_table regclass, p_resource text, p_epoch name DEFAULT NULL
) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_new text := ringfence.resource_of(p_table, p_resource, 'NEW');
    v_old text := ringfence.resource_of(p_table, p_resource, 'OLD');
    v_guard text := 'ringfence.guard_' || md5(random()::text || clock_timestamp()::text);
    v_epoch text := '';
    v_partition regclass;
BEGIN
    IF strpos(p_resource || COALESCE(p_epoch, ''), '$body$') > 0 THEN
        RAISE EXCEPTION 'ringfence: a name holds $body$' USING ERRCODE = 'RF004';
    END IF;
    IF EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
               WHERE i.inhparent = p_table AND NOT c.relispartition) THEN
        RAISE EXCEPTION 'ringfence: % has tables that inherit from it, which no trigger of it '
            'guards', p_table USING ERRCODE = 'RF004';
    END IF;
    IF p_epoch IS NOT NULL THEN
        PERFORM ringfence.epoch_column(p_table, p_epoch);
        v_epoch := format($sql$
            IF TG_OP = 'INSERT' OR NEW.%1$I IS DISTINCT FROM OLD.%1$I THEN
                IF NEW.%1$I NOT IN (0, v_mark) THEN
                    RAISE EXCEPTION 'ringfence: epoch %% is written to %%, and the fence that was '
                            'checked is %%', NEW.%1$I, v_resource, v_mark
                        USING ERRCODE = 'RF006', DETAIL = format('resource=%%s', v_resource);
                END IF;
            END IF;
            NEW.%1$I := v_mark;$sql$, p_epoch);
    END IF;
    EXECUTE format($sql$
        CREATE FUNCTION %1$s() RETURNS trigger LANGUAGE plpgsql
        SET search_path = pg_catalog, pg_temp AS $body$
        DECLARE
            v_resource text;
            v_mark bigint;
        BEGIN
            IF TG_OP = 'TRUNCATE' THEN
                RAISE EXCEPTION 'ringfence: a guarded table cannot be truncated'
                    USING ERRCODE = 'RF006', HINT = 'DELETE its rows, or unguard it first.';
            END IF;
            IF TG_OP <> 'INSERT' THEN
                v_resource := %3$s;
                v_mark := ringfence.checked_mark(v_resource);
                IF v_mark IS NULL THEN
                    PERFORM ringfence.refuse_row(TG_RELID::regclass::text, v_resource);
                END IF;
            END IF;
            IF TG_OP = 'DELETE' THEN
                RETURN OLD;
            END IF;
            IF TG_OP = 'INSERT' OR v_resource COLLATE "C" IS DISTINCT FROM %2$s THEN
                v_resource := %2$s;
                v_mark := ringfence.checked_mark(v_resource);
                IF v_mark IS NULL THEN
                    PERFORM ringfence.refuse_row(TG_RELID::regclass::text, v_resource);
                END IF;
            END IF;
            %4$s
            RETURN NEW;
        END $body$ $sql$, v_guard, v_new, v_old, v_epoch);
    PERFORM ringfence.unguard_table(p_table);
    -- Triggers fire in the order of their names: this one sees what the others leave.
    EXECUTE format('CREATE TRIGGER "~ringfence_guard" BEFORE INSERT OR UPDATE OR DELETE ON %s '
        'FOR EACH ROW EXECUTE FUNCTION %s()', p_table, v_guard);
    -- A partition takes over the triggers for rows, and not those for statements.
    FOR v_partition IN
        SELECT p_table UNION SELECT t.relid FROM pg_partition_tree(p_table) t
    LOOP
        EXECUTE format('CREATE TRIGGER "~ringfence_guard_truncate" BEFORE TRUNCATE ON %s '
            'FOR EACH STATEMENT EXECUTE FUNCTION %s()', v_partition, v_guard);
    END LOOP;
END $$;

-- Takes the guard off again. The epoch column stays.
CREATE OR REPLACE FUNCTION ringfence.unguard_table(p_table regclass)
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_partition regclass;
    v_guard regprocedure;
BEGIN
    SELECT t.tgfoid INTO v_guard FROM pg_trigger t
    WHERE t.tgrelid = p_table AND t.tgname = '~ringfence_guard';
    EXECUTE format('DROP TRIGGER IF EXISTS "~ringfence_guard" ON %s', p_table);
    FOR v_partition IN
        SELECT p_table UNION SELECT t.relid FROM pg_partition_tree(p_table) t
    LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS "~ringfence_guard_truncate" ON %s', v_partition);
    END LOOP;
    IF v_guard IS NOT NULL AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgfoid = v_guard) THEN
        EXECUTE format('DROP FUNCTION %s', v_guard);
    END IF;
END $$;

REVOKE ALL ON FUNCTION ringfence.raise_mark(uuid, text, bigint, bigint, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION ringfence.adopt(uuid, uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION ringfence.guard_table(regclass, text, name) FROM PUBLIC;
REVOKE ALL ON FUNCTION ringfence.unguard_table(regclass) FROM PUBLIC;
COMMIT;

-- Ringfence: high-water marks of fencing tokens, schema version 1, for MySQL
-- (8.0.29 and later) and MariaDB. Run it with the client `mysql` or `mariadb` in
-- the database of what is protected, as a user that may create tables and
-- procedures; running it again changes nothing. The tables stay that user's, and
-- the procedures run with its rights. Then, for the application:
--   GRANT EXECUTE ON PROCEDURE ringfence_ready TO app;
--   GRANT EXECUTE ON PROCEDURE ringfence_check_fence TO app;
--   GRANT EXECUTE ON PROCEDURE ringfence_commit TO app;
--   GRANT EXECUTE ON PROCEDURE ringfence_mark TO app;
--
-- Once on each connection:
--   SET autocommit = 0;                 -- nothing commits by itself
--   SET SESSION TRANSACTION READ ONLY;  -- nothing is written but after START ... READ WRITE
--   CALL ringfence_ready(1);
-- For each write:
--   START TRANSACTION READ WRITE;
--   CALL ringfence_check_fence(cluster, resource, slot or NULL, token, floor, 1);
--   ...                                 -- the write
--   CALL ringfence_commit();            -- commits what was checked, or rolls back: RF006
-- An error does not end a transaction here, so each of these steps sees to a caller
-- who goes on in spite of one. The check locks the mark until the transaction ends; or
-- it fails: then it has rolled back and made the session READ ONLY. SQLSTATE:
--   RF001  stale: the token is below the mark      RF002  floor above token
--   RF003  fence of another authority              RF004  malformed argument
--   RF005  the schema has another version than the caller speaks
--   RF006  there is no transaction                 RF007  a mark could be lost
-- Error 1205: somebody holds the mark. 1213, 1020: run the whole transaction again.
DELIMITER $$

SET @ringfence_sql_mode = @@SESSION.sql_mode $$

-- Procedures keep the mode that they are made in.
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION' $$

-- Slot -1 stands for the resource itself. A row with mark 0 is no mark: it is what a
-- first fence locks before it is accepted.
CREATE TABLE IF NOT EXISTS ringfence_marks (
    resource VARBINARY(512) NOT NULL CHECK (LENGTH(resource) > 0),
    slot BIGINT NOT NULL CHECK (slot BETWEEN -1 AND 4294967295),
    cluster BINARY(16) NOT NULL,
    mark BIGINT NOT NULL CHECK (mark BETWEEN 0 AND 9007199254740991),
    PRIMARY KEY (resource, slot)
) ENGINE = InnoDB $$

CREATE TABLE IF NOT EXISTS ringfence_schema (
    only_row TINYINT NOT NULL DEFAULT 1 PRIMARY KEY CHECK (only_row = 1),
    version INT NOT NULL
) ENGINE = InnoDB $$

-- Refuses another version, and settings under which a mark that was answered can be
-- lost with the power. With a binary log the commit is what is in that log: after a
-- crash, what is prepared and not in it is rolled back.
CREATE PROCEDURE IF NOT EXISTS ringfence_settled(IN p_schema INT)
READS SQL DATA SQL SECURITY DEFINER
BEGIN
    DECLARE v_version INT;
    DECLARE v_said VARCHAR(128);
    -- A locking read: a plain one would take the transaction's snapshot before the
    -- wait for the mark, and the owner would not see its predecessor's last write.
    SELECT version INTO v_version FROM ringfence_schema WHERE only_row = 1 LOCK IN SHARE MODE;
    IF NOT v_version <=> p_schema THEN
        SET v_said = CONCAT('ringfence: schema version: found=', COALESCE(v_version, 0),
            ' known=', COALESCE(p_schema, 0));
        SIGNAL SQLSTATE 'RF005' SET MESSAGE_TEXT = v_said;
    END IF;
    -- 3 is 1 with one sync more.
    IF @@GLOBAL.innodb_flush_log_at_trx_commit NOT IN (1, 3) THEN
        SET v_said = CONCAT('innodb_flush_log_at_trx_commit is ',
            @@GLOBAL.innodb_flush_log_at_trx_commit, '; it has to be 1');
        SIGNAL SQLSTATE 'RF007' SET MESSAGE_TEXT = v_said;
    END IF;
    IF @@GLOBAL.log_bin AND @@GLOBAL.sync_binlog <> 1 THEN
        SET v_said = CONCAT('log_bin is on and sync_binlog is ', @@GLOBAL.sync_binlog,
            '; it has to be 1');
        SIGNAL SQLSTATE 'RF007' SET MESSAGE_TEXT = v_said;
    END IF;
END $$

-- Whether marks hold here: for once on each connection, outside a transaction. Only
-- this asks for the table's engine.
CREATE PROCEDURE IF NOT EXISTS ringfence_ready(IN p_schema INT)
READS SQL DATA SQL SECURITY DEFINER
BEGIN
    DECLARE v_engine VARCHAR(64);
    DECLARE v_said VARCHAR(128);
    CALL ringfence_settled(p_schema);
    SELECT engine INTO v_engine FROM information_schema.tables
        WHERE table_schema = DATABASE() AND table_name = 'ringfence_marks';
    IF NOT v_engine <=> 'InnoDB' THEN
        SET v_said = CONCAT('the engine of ringfence_marks is ', COALESCE(v_engine, 'unknown'),
            '; it has to be InnoDB');
        SIGNAL SQLSTATE 'RF007' SET MESSAGE_TEXT = v_said;
    END IF;
END $$

-- One mark: locks, compares and raises. Its reads lock; a plain SELECT would read a
-- mark that a concurrent raise is just leaving behind.
CREATE PROCEDURE IF NOT EXISTS ringfence_raise_mark(
    IN p_cluster BINARY(16), IN p_resource VARBINARY(512), IN p_slot BIGINT,
    IN p_token BIGINT, IN p_to BIGINT
) MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
    DECLARE v_cluster BINARY(16);
    DECLARE v_mark BIGINT;
    DECLARE v_said VARCHAR(128);
    SELECT cluster, mark INTO v_cluster, v_mark FROM ringfence_marks
        WHERE resource = p_resource AND slot = p_slot FOR UPDATE;
    IF v_mark IS NULL THEN
        -- Makes the row, or locks it exclusively. INSERT IGNORE would lock it for sharing,
        -- and so would deadlock with its like.
        INSERT INTO ringfence_marks (resource, slot, cluster, mark)
            VALUES (p_resource, p_slot, p_cluster, 0)
            ON DUPLICATE KEY UPDATE mark = ringfence_marks.mark;
        SELECT cluster, mark INTO v_cluster, v_mark FROM ringfence_marks
            WHERE resource = p_resource AND slot = p_slot FOR UPDATE;
    END IF;
    IF v_mark > 0 AND v_cluster <> p_cluster THEN
        SET v_said = CONCAT('ringfence: another authority: known=', LOWER(HEX(v_cluster)),
            ' offered=', LOWER(HEX(p_cluster)));
        SIGNAL SQLSTATE 'RF003' SET MESSAGE_TEXT = v_said;
    END IF;
    IF v_mark > p_token THEN
        SET v_said = CONCAT('ringfence: stale fence: token=', p_token, ' mark=', v_mark,
            ' slot=', IF(p_slot < 0, 'none', p_slot));
        SIGNAL SQLSTATE 'RF001' SET MESSAGE_TEXT = v_said;
    END IF;
    IF v_mark < p_to THEN
        UPDATE ringfence_marks SET cluster = p_cluster, mark = p_to
            WHERE resource = p_resource AND slot = p_slot;
    END IF;
END $$

-- The check. SECURITY DEFINER: the application needs no right on the table, so no
-- statement of its own can lower a mark.
CREATE PROCEDURE IF NOT EXISTS ringfence_check_fence(
    IN p_cluster TEXT, IN p_resource TEXT CHARACTER SET utf8mb4, IN p_slot BIGINT,
    IN p_token BIGINT, IN p_floor BIGINT, IN p_schema INT
) MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
    DECLARE v_said VARCHAR(128);
    -- An error does not end a transaction here, as it does elsewhere: going on would
    -- commit the write. And a rollback alone would leave the rest to autocommit.
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        SET @ringfence_shut = NOT
            /*M! @@SESSION.tx_read_only */ /*!80000 @@SESSION.transaction_read_only */;
        SET SESSION TRANSACTION READ ONLY;
        RESIGNAL;
    END;
    -- In autocommit a savepoint is gone as soon as it is made.
    BEGIN
        DECLARE EXIT HANDLER FOR 1305
            SIGNAL SQLSTATE 'RF006' SET MESSAGE_TEXT = 'ringfence: a check outside a transaction';
        SAVEPOINT ringfence_checked;
        RELEASE SAVEPOINT ringfence_checked;
    END;
    CALL ringfence_settled(p_schema);
    IF (LOWER(p_cluster) REGEXP '^[0-9a-f]{32}$' AND LENGTH(p_resource) BETWEEN 1 AND 512
        AND (p_slot IS NULL OR p_slot BETWEEN 0 AND 4294967295)
        AND p_token BETWEEN 1 AND 9007199254740991 AND p_floor >= 1) IS NOT TRUE THEN
        SIGNAL SQLSTATE 'RF004' SET MESSAGE_TEXT =
            'ringfence: cluster: 32 hex digits; resource: 1 to 512 bytes; slot: 0 to 2^32-1; token, floor: 1 to 2^53-1';
    END IF;
    IF p_floor > p_token THEN
        SET v_said = CONCAT('ringfence: malformed: token=', p_token, ' floor=', p_floor);
        SIGNAL SQLSTATE 'RF002' SET MESSAGE_TEXT = v_said;
    END IF;
    CALL ringfence_raise_mark(UNHEX(p_cluster), p_resource, -1, p_token, p_floor);
    IF p_slot IS NOT NULL THEN
        CALL ringfence_raise_mark(UNHEX(p_cluster), p_resource, p_slot, p_token, p_token);
    END IF;
    SAVEPOINT ringfence_checked;
END $$

-- Commits the transaction that has passed the check, or rolls back. A deadlock, say, rolls
-- all of it back, and the statements after it are in another one, without a check.
CREATE PROCEDURE IF NOT EXISTS ringfence_commit()
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL SQLSTATE 'RF006'
            SET MESSAGE_TEXT = 'ringfence: the transaction that was checked is over';
    END;
    RELEASE SAVEPOINT ringfence_checked;
    COMMIT;
END $$

-- The mark of a resource, or of one of its slots; no row where there is none.
CREATE PROCEDURE IF NOT EXISTS ringfence_mark(
    IN p_resource TEXT CHARACTER SET utf8mb4, IN p_slot BIGINT
) READS SQL DATA SQL SECURITY DEFINER
BEGIN
    SELECT mark FROM ringfence_marks
        WHERE resource = CAST(p_resource AS BINARY) AND slot = COALESCE(p_slot, -1) AND mark > 0;
END $$

-- Takes the marks of one authority over for another, as after a restore.
CREATE PROCEDURE IF NOT EXISTS ringfence_adopt(IN p_from TEXT, IN p_to TEXT)
MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
    UPDATE ringfence_marks SET cluster = UNHEX(p_to) WHERE cluster = UNHEX(p_from) AND mark > 0;
    SELECT ROW_COUNT();
END $$

-- Last: a set-up that was cut off counts as none.
INSERT IGNORE INTO ringfence_schema (only_row, version) VALUES (1, 1) $$

SET SESSION sql_mode = @ringfence_sql_mode $$

DELIMITER ;

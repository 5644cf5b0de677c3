//! `ringfence fence`, on real stores.

use serde_json::json;

use crate::authority::Authority;
use crate::mariadb_server::Mariadb;
use crate::postgres_server::Postgres;
use crate::redis_server::Redis;
use crate::run::{Done, at, done, json, ringfence};

const CLUSTER: &str = "0123456789abcdef0123456789abcdef";

fn fence(arguments: &[&str]) -> Done {
    done(ringfence(&[&["fence"], arguments].concat()))
}

fn raise(store: &str, options: &[&str]) -> Done {
    fence(&[&["raise", store], options, &["--cluster", CLUSTER]].concat())
}

fn well(ended: &Done) {
    assert_eq!((ended.code, &*ended.out, &*ended.err), (0, "", ""));
}

/// What holds in every store.
fn is_installed_raised_and_shown(store: &str) {
    let missing = fence(&["show", store, "job/7"]);
    assert_eq!(missing.code, 77, "{missing:?}");
    assert!(missing.err.contains("install the fence schema"), "{missing:?}");
    assert_eq!(raise(store, &["job/7", "--token", "5"]).code, 77);
    well(&fence(&["install", store]));
    well(&fence(&["install", store]));
    assert_eq!(fence(&["show", store, "job/7"]).out, "job/7: none\n");

    well(&raise(store, &["job/7", "--token", "5"]));
    well(&raise(store, &["job/7", "--token", "5"]));
    well(&raise(store, &["job/7", "--token", "7", "--floor", "6", "--slot", "2"]));
    let stale = raise(store, &["job/7", "--token", "4"]);
    assert_eq!(stale.code, 1);
    assert_eq!(stale.err, "ringfence: stale fence: token 4 is below the mark 6 of job/7\n");
    assert_eq!(fence(&["show", store, "job/7"]).out, "job/7: 6\n");
    assert_eq!(fence(&["show", store, "job/7", "--slot", "2"]).out, "job/7 slot 2: 7\n");
    let shown = json(ringfence(&["fence", "show", store, "job/7", "--slot", "1", "-o", "json"]));
    assert_eq!(shown, json!({ "resource": "job/7", "slot": 1, "mark": null }));

    let other = "ffffffffffffffffffffffffffffffff";
    let foreign = fence(&["raise", store, "job/7", "--token", "900", "--cluster", other]);
    assert_eq!(foreign.code, 77, "{foreign:?}");
    assert!(foreign.err.contains(&format!("belongs to {CLUSTER}")), "{foreign:?}");
    for wrong in [
        &["--token", "0"][..],
        &["--token", "9007199254740992"],
        &["--token", "9", "--floor", "10"],
    ] {
        let refused = raise(store, &[&["job/7"], wrong].concat());
        assert_eq!(refused.code, 64, "{wrong:?}: {refused:?}");
    }
    assert_eq!(fence(&["show", store, "job/7"]).out, "job/7: 6\n", "nothing refused left a mark");
    a_set_is_raised_whole_or_not_at_all(store);
}

/// As under a `lock` of two names.
fn a_set_is_raised_whole_or_not_at_all(store: &str) {
    let of_grant = |token: u64| {
        let one = |name| json!({ "cluster": CLUSTER, "resource": name, "slot": null, "token": token, "floor": token });
        let mut command = ringfence(&["fence", "raise", store]);
        command.env("RINGFENCE_FENCES", json!([one("set/b"), one("set/a")]).to_string());
        done(command)
    };
    well(&raise(store, &["set/b", "--token", "10"]));
    assert_eq!(of_grant(9).code, 1);
    assert_eq!(fence(&["show", store, "set/a"]).out, "set/a: none\n");
    well(&of_grant(11));
    assert_eq!(fence(&["show", store, "set/a"]).out, "set/a: 11\n");
}

#[test]
fn marks_in_postgres_are_installed_raised_and_shown() {
    let server = Postgres::start();
    is_installed_raised_and_shown(&url(&server, "postgres"));
}

/// The address of a server's database, as a URL.
pub fn url(server: &Postgres, user: &str) -> String {
    let told = server.url("postgres");
    let of = |word: &str| told.split(' ').find_map(|pair| pair.strip_prefix(word)).unwrap();
    let (socket, port) = (of("host=").replace('/', "%2F"), of("port="));
    format!("postgres://{user}@{socket}:{port}/postgres")
}

#[test]
fn what_the_server_does_not_allow_is_a_refusal_in_its_own_words() {
    let server = Postgres::start();
    well(&fence(&["install", &url(&server, "postgres")]));
    server.psql("postgres", "CREATE ROLE nobody LOGIN").unwrap();
    let refused = raise(&url(&server, "nobody"), &["job/7", "--token", "5"]);
    assert_eq!(refused.code, 77, "{refused:?}");
    assert!(refused.err.contains("permission denied for schema ringfence"), "{refused:?}");
}

#[test]
fn a_guarded_table_refuses_statements_without_a_check() {
    let server = Postgres::start();
    let store = url(&server, "postgres");
    let psql = |sql: &str| server.psql("postgres", sql);
    psql("CREATE TABLE job (id int PRIMARY KEY, state text)").unwrap();
    let guard = ["guard-table", &store, "job", "--resource", "job/{id}", "--epoch", "epoch"];
    let missing = fence(&guard);
    assert_eq!(missing.code, 77, "{missing:?}");
    well(&fence(&["install", &store]));
    well(&fence(&guard));
    well(&fence(&guard));
    let refused = psql("INSERT INTO job VALUES (7, 'x')").unwrap_err();
    assert!(refused.contains("no fence of job/7 was checked in this transaction"), "{refused}");
    let check = format!("SELECT ringfence.check_fence('{CLUSTER}', 'job/7', NULL, 5, 5)");
    psql(&format!("BEGIN; {check}; INSERT INTO job VALUES (7, 'x'); COMMIT")).unwrap();
    assert_eq!(psql("SELECT epoch FROM job").unwrap().trim(), "5");
    let wrong = fence(&["guard-table", &store, "job", "--resource", "job/{number}"]);
    assert_eq!(wrong.code, 64);
    assert!(wrong.err.contains("public.job has no column number"), "{wrong:?}");
    let other = fence(&["guard-table", "redis://127.0.0.1:1", "job", "--resource", "x"]);
    assert_eq!(other.code, 64);
    assert!(other.err.contains("only tables of PostgreSQL"), "{other:?}");
    well(&fence(&["guard-table", &store, "job", "--off"]));
    psql("UPDATE job SET state = 'y'").unwrap();
}

#[test]
fn marks_in_mysql_are_installed_raised_and_shown() {
    let server = Mariadb::start();
    is_installed_raised_and_shown(&server.url(&server.create_database()));
    let named = server.url(&server.create_database()).replace("mysql://", "mariadb://");
    well(&fence(&["install", &named]));
    let printed = fence(&["sql", "--mysql"]).out;
    let database = server.create_database();
    server.client(&database, &printed);
    well(&raise(&server.url(&database), &["job/7", "--token", "5"]));
}

#[test]
fn marks_in_redis_are_installed_raised_and_shown() {
    let server = Redis::start();
    is_installed_raised_and_shown(&server.url());
    let tagged = fence(&["show", &server.url(), "job/7", "--tag", "orders"]);
    assert_eq!(tagged.code, 77, "another tag is another destination: {tagged:?}");
}

#[test]
fn marks_in_sqlite_are_installed_raised_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db");
    let store = format!("sqlite:{}", path.display());
    let absent = fence(&["install", &store]);
    assert_eq!(absent.code, 69, "a file that protects nothing is not made: {absent:?}");
    assert!(!path.exists());
    std::fs::write(&path, "").unwrap();
    is_installed_raised_and_shown(&store);
}

#[test]
fn a_redis_that_may_lose_marks_is_installed_with_a_warning() {
    let server = Redis::start_with(&["--appendonly", "no"]);
    let installed = fence(&["install", &server.url()]);
    assert_eq!(installed.code, 0);
    assert!(installed.err.contains("appendonly yes and appendfsync always"), "{installed:?}");
    let evicting = Redis::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let refused = fence(&["install", &evicting.url()]);
    assert_eq!(refused.code, 77);
    assert!(refused.err.contains("maxmemory-policy is allkeys-lru"), "{refused:?}");
}

#[test]
fn a_store_that_is_away_or_none_is_told_apart_from_a_refusal() {
    for away in [
        "postgres://127.0.0.1:1/x?user=u",
        "mysql://u@127.0.0.1:1/x",
        "redis://127.0.0.1:1",
        "sqlite:/nowhere/x.db",
    ] {
        let ended = raise(away, &["job/7", "--token", "5"]);
        assert_eq!(ended.code, 69, "{away}: {ended:?}");
        assert!(ended.err.contains("cannot be reached: "), "{ended:?}");
    }
    for none in ["oracle://x", "orders.db", ""] {
        assert_eq!(fence(&["show", none, "job/7"]).code, 64, "{none}");
    }
    for secret in ["postgres://u:hunter2@127.0.0.1:1/x", "mysql://u:hunter2@127.0.0.1:1/x"] {
        let secret = fence(&["show", secret, "job/7"]);
        assert!(secret.code == 69 && !secret.err.contains("hunter2"), "{secret:?}");
    }
}

#[test]
fn without_a_name_the_grant_of_the_lock_around_it_is_raised() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db");
    std::fs::write(&path, "").unwrap();
    let store = format!("sqlite:{}", path.display());
    well(&fence(&["install", &store]));
    let alone = fence(&["raise", &store]);
    assert_eq!(alone.code, 64, "{alone:?}");
    assert!(alone.err.contains("ringfence lock"), "{alone:?}");
    let authority = Authority::start();
    let raises = "\"$R\" fence raise \"$STORE\" && \"$R\" fence show \"$STORE\" job/7";
    let mut lock = at(&authority, &["lock", "job/7", "--", "sh", "-c", raises]);
    lock.env("R", env!("CARGO_BIN_EXE_ringfence")).env("STORE", &store);
    let ended = done(lock);
    assert_eq!((ended.code, &*ended.out), (0, "job/7: 1\n"), "{ended:?}");
}

//! Whatever is refused does not reach the handler, moves no mark, and is told why.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use ringfence::fence::hold::{MarkStore, MemoryStore, PostgresStore, SqliteStore};
use ringfence::fence::http::{
    CLUSTER, FENCES, FLOOR, FenceLayer, RESOURCE, SLOT, TOKEN, WELL_KNOWN, headers, insert,
};
use ringfence::fence::validation::{AskAuthority, Validator};
use ringfence::fence::{Fence, FenceError};
use ringfence::locks::{ClusterId, ResourceName, Token};
use ringfence::wire::v1;

use super::served::{Caller, Handler, Heard, Server, said};
use super::{BRIEFLY, Database, holding, scope, sqlite_store};
use crate::postgres_server::Postgres;
use crate::stories::{AUTHORITY, exclusive, shared};
use crate::vectors::PATIENCE;

/// A server whose handler counts how often it is called.
struct Counting {
    server: Server,
    calls: Arc<AtomicUsize>,
}

impl Counting {
    fn handler() -> (Handler, Arc<AtomicUsize>) {
        let calls = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&calls);
        let handler = Handler::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(said("written"))
        });
        (handler, calls)
    }

    fn over(store: impl MarkStore) -> Self {
        let (handler, calls) = Self::handler();
        Self { server: Server::start(holding(store, PATIENCE), handler), calls }
    }

    fn asking(authority: Scripted) -> Self {
        let (handler, calls) = Self::handler();
        let validator = Validator::new(authority, AUTHORITY, BRIEFLY);
        Self { server: Server::start(FenceLayer::asking(validator, scope), handler), calls }
    }

    async fn write(&self, path: &str, headers: HeaderMap) -> Heard {
        let mut caller = Caller::to(self.server.address).await;
        caller.call(Method::POST, path, headers, "").await.expect("it is served")
    }

    /// A write that is refused so, and the handler is not called.
    async fn refuses(&self, path: &str, headers: HeaderMap, status: u16, word: &str) -> Heard {
        let before = self.calls.load(Ordering::SeqCst);
        let heard = self.write(path, headers.clone()).await;
        assert_eq!((heard.status.as_u16(), &*heard.problem()), (status, word), "{headers:?}");
        assert_eq!(self.calls.load(Ordering::SeqCst), before, "{headers:?} reached the handler");
        assert_eq!(heard.json()["applied"], false);
        let again = heard.headers.contains_key("retry-after");
        assert_eq!(again, heard.status == StatusCode::SERVICE_UNAVAILABLE);
        heard
    }

    async fn accepts(&self, path: &str, headers: HeaderMap) {
        let before = self.calls.load(Ordering::SeqCst);
        let heard = self.write(path, headers).await;
        assert_eq!(heard.status, StatusCode::OK, "{:?}", heard.bytes);
        assert_eq!(self.calls.load(Ordering::SeqCst), before + 1);
    }

    async fn mark(&self, fence: &Fence) -> Option<u64> {
        let mut caller = Caller::to(self.server.address).await;
        let heard = caller.call(Method::GET, WELL_KNOWN, headers(fence), "").await;
        heard.expect("it is served").json()["mark"].as_u64()
    }
}

fn with(name: &HeaderName, value: &[u8]) -> HeaderMap {
    let fence = Fence { slot: Some(0), ..shared("job/7", 5, 4) };
    let mut headers = headers(&fence);
    headers.insert(name, HeaderValue::from_bytes(value).expect("a value"));
    headers
}

#[tokio::test]
async fn a_write_without_all_of_a_fence_does_not_reach_the_handler() {
    let counting = Counting::over(MemoryStore::new());
    let none = counting.refuses("/job/7", HeaderMap::new(), 428, "missing-fence").await;
    assert_eq!(none.json()["header"], "fencing-resource");
    for name in [RESOURCE, TOKEN, FLOOR, CLUSTER] {
        let mut headers = headers(&exclusive("job/7", 5));
        headers.remove(&name);
        let heard = counting.refuses("/job/7", headers, 428, "missing-fence").await;
        assert_eq!(heard.json()["header"], name.as_str());
    }
    assert_eq!(counting.mark(&exclusive("job/7", 1)).await, None);
    // What writes nothing needs none, and what does not exist takes none.
    counting.accepts("/open", HeaderMap::new()).await;
    let fence = headers(&exclusive("job/7", 5));
    counting.refuses("/other", fence, 404, "no-such-resource").await;
}

#[tokio::test]
async fn a_malformed_header_does_not_reach_the_handler() {
    let counting = Counting::over(MemoryStore::new());
    let numbers: &[&[u8]] = &[
        b"",
        b"0",
        b"-1",
        b"+5",
        b"05",
        b"5.0",
        b"5 5",
        b"5, 5",
        b"5e0",
        b"0x5",
        b"five",
        b"\"5\"",
        b"9007199254740992",
        b"18446744073709551616",
        b"\xd9\xa5",
        b"5;a=b",
    ];
    for number in numbers {
        for name in [&TOKEN, &FLOOR] {
            let heard =
                counting.refuses("/job/7", with(name, number), 400, "malformed-fence").await;
            assert_eq!(heard.json()["header"], name.as_str(), "{number:?}");
        }
    }
    for slot in [&b""[..], b"-1", b"00", b"+0", b"4294967296", b"none"] {
        counting.refuses("/job/7", with(&SLOT, slot), 400, "malformed-fence").await;
    }
    let upper = AUTHORITY.to_string().to_uppercase().replace('0', "A");
    for cluster in [b"", &b"7"[..], upper.as_bytes(), &[b'g'; 32], &[b'0'; 31], &[b'0'; 33]] {
        counting.refuses("/job/7", with(&CLUSTER, cluster), 400, "malformed-fence").await;
    }
    let long = "a".repeat(513);
    let names = [
        &b""[..],
        b"job 7",
        b"job%2",
        b"job%zz",
        b"%FF",
        b"%00",
        b"job%0A7",
        b"\xc3\xa9",
        b"job,7",
        long.as_bytes(),
    ];
    for name in names {
        counting.refuses("/job/7", with(&RESOURCE, name), 400, "malformed-fence").await;
    }
    counting.refuses("/job/7", with(&FLOOR, b"6"), 400, "malformed-fence").await;
    for name in [RESOURCE, TOKEN, FLOOR, SLOT, CLUSTER] {
        let mut twice = with(&SLOT, b"0");
        twice.append(&name, twice[&name].clone());
        counting.refuses("/job/7", twice, 400, "malformed-fence").await;
    }
    assert_eq!(counting.mark(&exclusive("job/7", 1)).await, None);
    counting.accepts("/job/7", with(&SLOT, b"0")).await;
}

#[tokio::test]
async fn a_malformed_list_of_fences_does_not_reach_the_handler() {
    let counting = Counting::over(MemoryStore::new());
    let good = format!(r#""job/7";token="5";floor="5";cluster="{AUTHORITY}""#);
    let bad = [
        String::new(),
        "\"job/7\"".to_owned(),
        good.replace("\"5\"", "5"),
        good.replace("token=\"5\"", "token=\"05\""),
        good.replace("floor=\"5\"", "floor=\"6\""),
        good.replace(";floor=\"5\"", ""),
        good.replace("\"job/7\"", "job/7"),
        good.replace("\"job/7\"", "\"job 7\""),
        good.replace("\"job/7\"", "\"job\\/7\""),
        format!("{good};token=\"5\""),
        format!("{good};more=\"5\""),
        format!("{good};slot"),
        format!("{good},"),
        format!(",{good}"),
        format!("{good}, {good}"),
        format!("({good})"),
        (0..65).map(|n| good.replace("job/7", &format!("job/{n}"))).collect::<Vec<_>>().join(","),
    ];
    let list = |value: &str| HeaderMap::from_iter([(FENCES, value.parse().expect("visible"))]);
    for value in &bad {
        counting.refuses("/job/7", list(value), 400, "malformed-fence").await;
    }
    let mut beside = list(&good);
    beside.extend(headers(&exclusive("job/7", 5)));
    counting.refuses("/job/7", beside, 400, "malformed-fence").await;
    let mut twice = list(&good);
    twice.append(FENCES, good.parse().expect("visible"));
    counting.refuses("/job/7", twice, 400, "malformed-fence").await;
    assert_eq!(counting.mark(&exclusive("job/7", 1)).await, None);
    counting.accepts("/job/7", list(&good)).await;
    counting.accepts("/job/7", list(&good.replace(";", "; "))).await;
}

#[tokio::test]
async fn a_fence_authorises_no_write_to_another_resource() {
    let counting = Counting::over(MemoryStore::new());
    let seven = headers(&exclusive("job/7", 5));
    let heard = counting.refuses("/job/8", seven.clone(), 403, "other-resource").await;
    assert_eq!(heard.json()["resource"], "job/8");
    // Nor does a set that names it among others, or a name that looks alike.
    let mut both = HeaderMap::new();
    insert(&mut both, &[exclusive("job/7", 5), exclusive("job/8", 5)]).expect("a set");
    let heard = counting.refuses("/job/7", both, 403, "other-resource").await;
    assert_eq!(heard.json()["resource"], "job/8");
    counting.refuses("/job/7/", seven.clone(), 403, "other-resource").await;
    for job in ["job/7", "job/8"] {
        assert_eq!(counting.mark(&exclusive(job, 1)).await, None, "no mark is made of it");
    }
    counting.accepts("/job/7", seven).await;
}

#[tokio::test]
async fn a_refusal_names_the_mark_and_the_authority() {
    let (_dir, store) = sqlite_store();
    let counting = Counting::over(store);
    let of_slot = |token, floor| headers(&Fence { slot: Some(2), ..shared("job/7", token, floor) });
    counting.accepts("/job/7", of_slot(7, 5)).await;
    let said = counting.refuses("/job/7", of_slot(6, 5), 412, "stale-fence").await.json();
    let names = ["resource", "token", "mark", "slot"].map(|name| said[name].clone());
    assert_eq!(names, [serde_json::json!("job/7"), 6.into(), 7.into(), 2.into()]);
    let heard = counting.refuses("/job/7", of_slot(4, 4), 412, "stale-fence").await;
    assert_eq!((&heard.json()["mark"], &heard.json()["slot"]), (&5.into(), &().into()));
    assert_eq!(heard.headers["cache-control"], "no-store");
    let other = Fence { cluster: ClusterId::new([8; 16]), ..exclusive("job/7", 9) };
    let heard = counting.refuses("/job/7", headers(&other), 409, "foreign-authority").await;
    assert_eq!(heard.json()["known"], AUTHORITY.to_string());
    assert_eq!(heard.json()["offered"], other.cluster.to_string());
}

#[tokio::test]
async fn a_store_of_another_version_or_without_marks_lets_nobody_through() {
    let fence = headers(&exclusive("job/7", 5));
    let (dir, store) = sqlite_store();
    let path = dir.path().join("marks.db");
    let file = rusqlite::Connection::open(&path).expect("it is there");
    let newer = "UPDATE ringfence_schema SET version = 2";
    file.execute(newer, []).expect("it is ours");
    let counting = Counting::over(store);
    let heard = counting.refuses("/job/7", fence.clone(), 500, "store-unfit").await;
    assert!(heard.json()["detail"].as_str().expect("text").contains("version 2"));
    let empty = SqliteStore::open(dir.path().join("empty.db")).expect("a file");
    Counting::over(empty).refuses("/job/7", fence.clone(), 500, "store-unfit").await;

    let database = Database::new().await;
    let counting = Counting::over(database.store());
    counting.accepts("/job/7", fence.clone()).await;
    let newer = "UPDATE ringfence.schema SET version = 2";
    database.client().await.batch_execute(newer).await.expect("it is ours");
    counting.refuses("/job/7", fence.clone(), 500, "store-unfit").await;
    let drop = "DROP SCHEMA ringfence CASCADE";
    database.client().await.batch_execute(drop).await.expect("it is ours");
    counting.refuses("/job/7", fence, 500, "store-unfit").await;
}

#[tokio::test]
async fn a_store_that_is_down_lets_nobody_through_and_one_that_is_back_does() {
    let mut server = Postgres::start();
    let url = server.url("postgres");
    let (client, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it runs");
    tokio::spawn(async move { drop(connection.await) });
    ringfence::fence::postgres::install(&client).await.expect("an empty database");
    let counting = Counting::over(PostgresStore::new(url.parse().expect("a URL"), 2));
    counting.accepts("/job/7", headers(&exclusive("job/7", 5))).await;
    server.kill();
    for _ in 0..3 {
        let fence = headers(&exclusive("job/7", 6));
        let heard = counting.refuses("/job/7", fence, 503, "store-failed").await;
        assert!(!heard.json().to_string().contains("socket"), "what failed is for the log");
    }
    server.restart();
    counting.accepts("/job/7", headers(&exclusive("job/7", 6))).await;
    counting.refuses("/job/7", headers(&exclusive("job/7", 5)), 412, "stale-fence").await;
}

#[tokio::test]
async fn a_mark_that_stays_held_is_busy_and_the_handler_is_not_called() {
    let (handler, calls) = Counting::handler();
    let (dir, store) = sqlite_store();
    let layer = FenceLayer::holding(store, PATIENCE, scope).wait(BRIEFLY);
    let counting = Counting { server: Server::start(layer, handler), calls };
    let other = rusqlite::Connection::open(dir.path().join("marks.db")).expect("it is there");
    other.execute_batch("BEGIN IMMEDIATE").expect("it is free");
    counting.refuses("/job/7", headers(&exclusive("job/7", 5)), 503, "busy").await;
    other.execute_batch("ROLLBACK").expect("it is ours");
    let patient = SqliteStore::open(dir.path().join("marks.db")).expect("it is there");
    Counting::over(patient).accepts("/job/7", headers(&exclusive("job/7", 5))).await;
}

/// What the authority says of every grant, if it says anything.
#[derive(Clone)]
struct Scripted(Option<Result<v1::CheckTokenResponse, &'static str>>);

impl AskAuthority for Scripted {
    async fn ask(
        &self,
        _: &ResourceName,
        _: Token,
    ) -> Result<v1::CheckTokenResponse, Box<dyn std::error::Error + Send + Sync>> {
        match self.0.clone() {
            Some(answer) => answer.map_err(Into::into),
            None => std::future::pending().await,
        }
    }
}

#[tokio::test]
async fn where_the_authority_is_asked_only_its_yes_lets_a_request_through() {
    let (fence, path) = (exclusive("job/7", 5), "/job/7");
    let phase = v1::Phase::Active.into();
    let grant = v1::Grant { token: 5, floor: 5, phase, ..v1::Grant::default() };
    let yes = v1::CheckTokenResponse { current: true, grant: Some(grant), index: 1 };
    let no = v1::CheckTokenResponse { current: false, grant: None, index: 1 };
    Counting::asking(Scripted(Some(Ok(yes.clone())))).accepts(path, headers(&fence)).await;
    let ended = Counting::asking(Scripted(Some(Ok(no))));
    let heard = ended.refuses(path, headers(&fence), 412, "not-current").await;
    assert_eq!((&heard.json()["resource"], &heard.json()["token"]), (&"job/7".into(), &5.into()));
    let yes = Counting::asking(Scripted(Some(Ok(yes))));
    let slot = Fence { slot: Some(0), ..fence.clone() };
    yes.refuses(path, headers(&slot), 412, "not-current").await;
    yes.refuses(path, headers(&shared("job/7", 5, 4)), 412, "not-current").await;
    let other = Fence { cluster: ClusterId::new([8; 16]), ..fence.clone() };
    yes.refuses(path, headers(&other), 409, "foreign-authority").await;
    yes.refuses("/job/8", headers(&fence), 403, "other-resource").await;
    yes.refuses(path, HeaderMap::new(), 428, "missing-fence").await;
    for silent in [Scripted(None), Scripted(Some(Err("no majority")))] {
        let counting = Counting::asking(silent);
        counting.refuses(path, headers(&fence), 503, "authority-silent").await;
    }
}

#[test]
fn a_set_is_put_into_headers_whole_or_not_at_all() {
    let mut headers = headers(&exclusive("job/7", 5));
    let before = headers.clone();
    let many: Vec<Fence> = (0..65).map(|n| exclusive(&format!("job/{n}"), 5)).collect();
    let twice = [exclusive("job/7", 5), exclusive("job/7", 6)];
    for bad in [&[][..], &twice, &many] {
        assert!(matches!(insert(&mut headers, bad), Err(FenceError::Set)));
        assert_eq!(headers, before);
    }
    insert(&mut headers, &many[..64]).expect("as many as a set has");
    assert_eq!(headers.len(), 1, "the single fence's are gone");
}

//! A raise waits for a request that is past its check, and a request for a raise.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use http::{HeaderMap, Method, Response, StatusCode};
use ringfence::fence::hold::{MarkStore, MemoryStore, PostgresStore};
use ringfence::fence::http::{FenceLayer, Fences, Scope, Target, WELL_KNOWN, headers};
use ringfence::fence::{FenceError, FenceTarget, postgres};
use ringfence::locks::Token;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::served::{Caller, Handler, Server, said};
use super::{
    BRIEFLY, Database, Slow, calling, holding, in_every_store, piecemeal, raise_briefly, raising,
};
use crate::stories::{exclusive, name, shared};
use crate::vectors::PATIENCE;

#[tokio::test]
async fn a_raise_waits_for_a_request_that_is_past_its_check() {
    let claim = async |server: Server, mut slow: Slow| {
        let old = calling(&server, exclusive("job/7", 5));
        slow.says("inside").await;
        let busy = raise_briefly(&server, exclusive("job/7", 6)).await;
        assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
        let raise = raising(&server, exclusive("job/7", 6), slow.notes.clone());
        slow.go.send_replace(true);
        slow.says("written").await;
        slow.says("raised").await;
        raise.await.expect("it ran").expect("raised");
        assert_eq!(old.await.expect("it ran").status, StatusCode::OK);
        let late = calling(&server, exclusive("job/7", 5)).await.expect("it ran");
        assert_eq!(late.problem(), "stale-fence");
        assert!(slow.said.try_recv().is_err(), "the late one did not reach the handler");
    };
    in_every_store(claim, PATIENCE).await;
}

#[tokio::test]
async fn a_slow_handler_is_dropped_at_the_bound_and_only_then_is_its_mark_let_go() {
    let claim = async |server: Server, mut slow: Slow| {
        let slow_one = calling(&server, exclusive("job/7", 5));
        slow.says("inside").await;
        let raise = raising(&server, exclusive("job/7", 6), slow.notes.clone());
        slow.says("dropped").await;
        slow.says("raised").await;
        raise.await.expect("it ran").expect("raised");
        let heard = slow_one.await.expect("it ran");
        assert_eq!((heard.status, &*heard.problem()), (StatusCode::GATEWAY_TIMEOUT, "cut-off"));
        let applied = heard.json().get("applied").cloned();
        assert_eq!(applied, None, "nobody knows whether it was applied");
    };
    in_every_store(claim, BRIEFLY).await;
}

/// Asks, when it is dropped, whether a raise would wait.
struct Asks(Arc<MemoryStore>, UnboundedSender<bool>);

impl Drop for Asks {
    fn drop(&mut self) {
        let later = [exclusive("job/7", 6)];
        let raise = std::pin::pin!(self.0.raise(&later, PATIENCE));
        let waits = raise.poll(&mut Context::from_waker(Waker::noop())).is_pending();
        self.1.send(waits).expect("the test listens");
    }
}

#[tokio::test]
async fn the_mark_is_still_held_while_a_handler_is_dropped() {
    for bound in [BRIEFLY, PATIENCE] {
        let store = Arc::new(MemoryStore::new());
        let (inside, mut entered) = unbounded_channel();
        let (send, mut waits) = unbounded_channel();
        let asked = Arc::clone(&store);
        let handler = Handler::new(move |_| {
            let (inside, asks) = (inside.clone(), Asks(Arc::clone(&asked), send.clone()));
            async move {
                inside.send(()).expect("the test listens");
                std::future::pending::<()>().await;
                drop(asks);
                said("")
            }
        });
        let server = Server::start(holding(store, bound), handler);
        let gone = calling(&server, exclusive("job/7", 5));
        entered.recv().await.expect("it is called");
        if bound == PATIENCE {
            gone.abort();
        }
        assert_eq!(waits.recv().await, Some(true), "bound {bound:?}");
    }
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_handler_and_its_hold_along() {
    let claim = async |server: Server, mut slow: Slow| {
        let gone = calling(&server, exclusive("job/7", 5));
        slow.says("inside").await;
        gone.abort();
        slow.says("dropped").await;
        let raise = raising(&server, exclusive("job/7", 6), slow.notes.clone());
        slow.says("raised").await;
        raise.await.expect("it ran").expect("raised");
    };
    in_every_store(claim, PATIENCE).await;
}

#[tokio::test]
async fn a_mark_is_held_until_the_last_byte_of_the_answer() {
    let (send, pieces) = unbounded_channel();
    let (inside, mut entered) = unbounded_channel();
    let pieces = std::sync::Mutex::new(Some(pieces));
    let handler = Handler::new(move |_| {
        let pieces = pieces.lock().expect("no panics").take().expect("it is called once");
        inside.send(()).expect("the test listens");
        std::future::ready(Response::new(piecemeal(pieces)))
    });
    let server = Server::start(holding(MemoryStore::new(), PATIENCE), handler);
    send.send("first").expect("the handler listens");
    let old = calling(&server, exclusive("job/7", 5));
    entered.recv().await.expect("it is called, and its handler is done at once");
    let target = Target::new(&server.url()).expect("a URL");
    let busy = raise_briefly(&server, exclusive("job/7", 6)).await;
    assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    send.send(" and last").expect("the answer is being sent");
    drop(send);
    assert_eq!(old.await.expect("it ran").bytes, "first and last");
    target.raise(&[exclusive("job/7", 6)], PATIENCE).await.expect("raised");
}

#[tokio::test]
async fn an_answer_without_an_end_is_cut_off_at_the_bound() {
    let (send, pieces) = unbounded_channel();
    let pieces = std::sync::Mutex::new(Some(pieces));
    let handler = Handler::new(move |_| {
        let pieces = pieces.lock().expect("no panics").take().expect("it is called once");
        std::future::ready(Response::new(piecemeal(pieces)))
    });
    let server = Server::start(holding(MemoryStore::new(), BRIEFLY), handler);
    send.send("first").expect("the handler listens");
    let mut headers = HeaderMap::new();
    ringfence::fence::http::insert(&mut headers, &[exclusive("job/7", 5)]).expect("a set");
    let mut caller = Caller::to(server.address).await;
    let cut = caller.call(Method::POST, "/job/7", headers, "").await;
    assert!(cut.is_err(), "an answer that is cut off does not look whole");
    assert!(send.is_closed(), "its body is dropped");
    let target = Target::new(&server.url()).expect("a URL");
    target.raise(&[exclusive("job/7", 6)], PATIENCE).await.expect("let go");
}

#[tokio::test]
async fn requests_for_other_resources_do_not_wait_and_those_for_one_pass_one_by_one() {
    let (database, mut slow) = (Database::new().await, Slow::new());
    let server = Server::start(holding(database.store(), PATIENCE), slow.handler.clone());
    let first = calling(&server, shared("job/7", 5, 5));
    slow.says("inside").await;
    let address = server.address;
    let other = tokio::spawn(async move {
        Caller::to(address).await.write("/job/8", &[exclusive("job/8", 1)]).await
    });
    slow.says("inside").await;
    // Through another server over the same marks, as in another process.
    let beside = Server::start(holding(database.store(), PATIENCE), slow.handler.clone());
    let second = calling(&beside, shared("job/7", 6, 5));
    until_blocked(&database, 1).await;
    assert!(slow.said.try_recv().is_err(), "a second holder of job/7 waits");
    slow.go.send_replace(true);
    for ran in [first, other, second] {
        assert_eq!(ran.await.expect("it ran").status, StatusCode::OK);
    }
}

#[tokio::test]
async fn raises_and_reads_of_marks_do_not_wait_for_a_connection_of_the_requests() {
    let (database, mut slow) = (Database::new().await, Slow::new());
    let config = database.server.url(&database.name).parse().expect("a URL");
    let store = Arc::new(PostgresStore::new(config, 1));
    let layer = holding(Arc::clone(&store), PATIENCE);
    let server = Server::start(layer, slow.handler.clone());
    let held = calling(&server, exclusive("job/7", 5));
    slow.says("inside").await;
    let address = server.address;
    let queued = tokio::spawn(async move {
        Caller::to(address).await.write("/job/8", &[exclusive("job/8", 1)]).await
    });
    let target = Target::new(&server.url()).expect("a URL");
    target.raise(&[exclusive("job/9", 2)], PATIENCE).await.expect("raised");
    let mark = store.mark(&name("job/7"), None, PATIENCE).await.expect("read");
    assert_eq!(mark.map(Token::get), Some(5), "it is durable before its write is");
    assert!(slow.said.try_recv().is_err(), "the only connection is taken");
    slow.go.send_replace(true);
    for ran in [held, queued] {
        assert_eq!(ran.await.expect("it ran").status, StatusCode::OK);
    }
}

/// Lets the second check of token 6 wait, before it looks at the row, for who holds the
/// advisory lock 1.
const BETWEEN: &str = "
    CREATE SEQUENCE public.checks;
    CREATE FUNCTION public.between() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.mark = 6 AND nextval('public.checks') = 2 THEN
            PERFORM pg_advisory_xact_lock(1);
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER between BEFORE INSERT ON ringfence.marks
        FOR EACH ROW EXECUTE FUNCTION public.between();
    SELECT pg_advisory_lock(1)";

#[tokio::test]
async fn an_owner_who_comes_between_the_raise_and_the_hold_is_noticed() {
    let database = Database::new().await;
    let mut later = database.client().await;
    later.batch_execute(BETWEEN).await.expect("it is ours");
    let store = database.store();
    let hold =
        tokio::spawn(async move { store.hold(&[exclusive("job/7", 6)], PATIENCE).await.map(drop) });
    until_blocked(&database, 1).await;
    let mark = postgres::mark(&later, &name("job/7"), None).await.expect("installed");
    assert_eq!(mark.map(Token::get), Some(6), "the raise of the hold is committed");
    postgres::raise(&mut later, &exclusive("job/7", 7), PATIENCE).await.expect("not locked yet");
    later.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("it is ours");
    let answer = hold.await.expect("it ran");
    let Err(FenceError::Stale { mark, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(mark.get(), 7);
}

/// Returns when so many sessions of this database wait for a lock.
async fn until_blocked(database: &Database, count: i64) {
    let observer = database.client().await;
    let sql = "SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let blocked = tokio::time::timeout(PATIENCE, async {
        loop {
            let row = observer.query_typed_one(sql, &[]).await.expect("connected");
            if row.get::<_, i64>(0) == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    blocked.await.expect("they come to wait");
}

#[tokio::test]
async fn marks_are_raised_and_read_at_the_well_known_place() {
    let handler = Handler::new(|_| std::future::ready(said("not this")));
    let server = Server::start(holding(MemoryStore::new(), PATIENCE), handler);
    let mut caller = Caller::to(server.address).await;
    let slot = ringfence::fence::Fence { slot: Some(3), ..shared("job/7 é", 9, 4) };
    let mut read = async |fence| {
        let heard = caller.call(Method::GET, WELL_KNOWN, headers(fence), "").await;
        let heard = heard.expect("served");
        assert_eq!(heard.status, StatusCode::OK);
        assert_eq!(heard.headers["cache-control"], "no-store");
        heard.json()
    };
    let nothing = serde_json::json!({ "resource": "job/7 é", "slot": 3, "mark": null });
    assert_eq!(read(&slot).await, nothing);
    let target = Target::new(&format!("{}/", server.url())).expect("a URL");
    assert_eq!(target.name(), server.url());
    target.raise(std::slice::from_ref(&slot), PATIENCE).await.expect("raised");
    assert_eq!(read(&slot).await["mark"], 9);
    assert_eq!(read(&shared("job/7 é", 1, 1)).await["mark"], 4);
    let stale = target.raise(&[shared("job/7 é", 3, 3)], PATIENCE).await;
    assert!(matches!(&stale, Err(FenceError::Stale { mark, .. }) if mark.get() == 4), "{stale:?}");
}

#[tokio::test]
async fn a_target_of_another_form_or_without_a_server_is_told() {
    for bad in ["", "job", "https://a:1", "http://a:1/path", "http://u:p@a:1", "ftp://a", "/x"] {
        assert!(Target::new(bad).is_err(), "{bad}");
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", free.local_addr().expect("bound"));
    drop(free);
    let target = Target::new(&url).expect("a URL");
    let down = target.raise(&[exclusive("job/7", 1)], PATIENCE).await;
    assert!(matches!(down, Err(FenceError::Store(_))), "{down:?}");
    // Somebody else's server: its answer is no proof of anything.
    let handler = Handler::new(|_| std::future::ready(said("fine")));
    for open in [Scope::Open, Scope::Unknown] {
        let parsing = FenceLayer::parsing(move |_: &http::request::Parts| open.clone());
        let server = Server::start(parsing, handler.clone());
        let target = Target::new(&server.url()).expect("a URL");
        let other = target.raise(&[exclusive("job/7", 1)], PATIENCE).await;
        assert!(matches!(other, Err(FenceError::Store(_))), "{other:?}");
    }
}

#[tokio::test]
async fn a_handler_gets_the_fence_of_what_it_writes_and_of_nothing_else() {
    let handler = Handler::new(|request| async move {
        let fences = request.extensions().get::<Fences>().expect("the layer's");
        let found = [name("job/7"), name("job/8")].map(|name| fences.of(&name).is_ok());
        assert_eq!(fences.of(&name("job/7")).expect("it is fenced").token.get(), 5);
        said(format!("{found:?}"))
    });
    let compares = |_: &http::request::Parts| Scope::HandlerCompares;
    let server = Server::start(FenceLayer::parsing(compares), handler);
    let mut caller = Caller::to(server.address).await;
    let heard = caller.write("/", &[exclusive("job/7", 5)]).await;
    assert_eq!(heard.bytes, "[true, false]");
}

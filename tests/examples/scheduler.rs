//! `examples/scheduler.rs`, with a paused worker and a killed leader.

use tokio_postgres::NoTls;

use crate::killed;
use crate::postgres::Postgres;

#[tokio::test]
async fn example_scheduler_a_late_result_is_refused_and_the_customer_is_charged_once() {
    let server = Postgres::shared();
    let url = server.url(&server.create_database());
    let told = killed::run("scheduler", ("DATABASE_URL", &url)).await;
    killed::in_order(
        &told,
        &[
            "ann     charged 1999 cents: receipt 1",
            "ann     (stopped)",
            "Kill the leader now",
            "ben     holds job/1 with token",
            "ben     was charged before: receipt 1",
            "ben     written, with epoch",
            "ann     (goes on)",
            "ann     refused: stale fence: token",
            "Charged so far: [\"job/1/charge: customer=carol&amount_cents=1999\"]",
        ],
    );
    let (database, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it runs");
    tokio::spawn(connection);
    let all = "SELECT job, epoch, worker, receipt, ringfence.mark('job/1') FROM scheduler.results";
    let rows = database.query(all, &[]).await.expect("the tables are there");
    let [row] = rows.as_slice() else { panic!("{} results", rows.len()) };
    let epoch: i64 = row.get(1);
    assert_eq!((row.get(0), row.get(2), row.get(3)), (1_i64, "ben", "receipt 1"));
    assert_eq!(row.get::<_, i64>(4), epoch, "the mark is that of the row");
    let tokens = |name: &str| {
        let line = format!("  {name:<8}holds job/1 with token ");
        let tokens = told.lines().filter_map(|said| said.strip_prefix(&line)?.parse().ok());
        tokens.collect::<Vec<i64>>()
    };
    let (ann, ben) = (tokens("ann"), tokens("ben"));
    let ([before], [after]) = (ann.as_slice(), ben.as_slice()) else {
        panic!("one grant each in\n{told}")
    };
    assert!(before < after && *after == epoch, "{before}, {after}, {epoch}");
}

//! `examples/scheduler.rs`, as docs/systems/job-scheduler.md tells it.

use tokio_postgres::NoTls;

use crate::postgres_server::Postgres;
use crate::stepwise::{around_the_kill, in_order, killing_the_leader_at};

#[tokio::test]
async fn scheduler_a_late_result_is_refused_and_the_customer_is_charged_once_through_a_failover() {
    let server = Postgres::shared();
    let url = server.url(&server.create_database());
    let told =
        killing_the_leader_at("Her lease ends", "scheduler", &[("DATABASE_URL", &url)]).await;
    let (before, after) = around_the_kill(&told);
    let first = [
        "ann     holds job/1 with token 1",
        "ann     charged 1999 cents: receipt 1",
        "ann     ready",
        "ann     (stopped)",
    ];
    in_order(before, &first);
    assert!(!before.contains("ben"), "{before}");
    let then = [
        "ben     holds job/1 with token 2",
        "ben     was charged before: receipt 1",
        "ben     written, with epoch 2",
        "ann     (goes on)",
        "ann     refused: stale fence: token 1 is below the mark 2 of job/1",
        "ann     was charged before: receipt 1",
        "Charged so far: [\"job/1/charge: customer=carol&amount_cents=1999\"]",
        "ann     charged 1999 cents: receipt 2",
        "ben     charged 1999 cents: receipt 3",
        "cem     finds it done, with epoch 2",
    ];
    in_order(after, &then);
    let (database, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it runs");
    tokio::spawn(connection);
    let all = "SELECT job, epoch, worker, receipt FROM scheduler.results";
    let rows = database.query(all, &[]).await.expect("the tables are there");
    let rows: Vec<(i64, i64, String, String)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
    assert_eq!(rows, [(1, 2, "ben".to_owned(), "receipt 1".to_owned())]);
    let mark = "SELECT ringfence.mark('job/1')";
    let mark: i64 = database.query_one(mark, &[]).await.expect("it was raised").get(0);
    assert_eq!(mark, 3, "the last one to come has raised the fence before it looked");
}

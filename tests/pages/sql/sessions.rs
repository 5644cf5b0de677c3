//! The sessions of one section, each with a connection of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence::fence::postgres;
use tokio::task::JoinHandle;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::page::{Answer, Step};

/// Longer than anything takes: nothing here is decided by it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a statement is seen waiting before it is said to wait where the page does not say
/// so. What the page says of it is not decided by this.
const LONG: Duration = Duration::from_secs(2);

/// One database, who speaks to it, and one who only looks.
pub struct Stage {
    direct: String,
    pooled: String,
    observer: Client,
    sessions: BTreeMap<String, Session>,
}

struct Session {
    client: Arc<Client>,
    /// Behind the pooler it is another one for each transaction, and nobody asks.
    backend: Option<i32>,
    waiting: Option<Statement>,
    in_transaction: bool,
    /// The transaction can only be rolled back.
    aborted: bool,
}

struct Statement {
    sql: String,
    said: JoinHandle<Said>,
}

/// What the server has said to one statement.
enum Said {
    Rows { rows: Vec<String>, count: u64 },
    Refused { code: String, text: String },
}

impl Stage {
    /// A database with the marks of `ringfence fence sql`, and nobody there yet.
    pub async fn open(direct: String, pooled: String) -> Self {
        let observer = connect(&direct).await;
        postgres::install(&observer).await.expect("an empty database");
        Self { direct, pooled, observer, sessions: BTreeMap::new() }
    }

    /// Runs the steps; what is not as the page says is the error.
    pub async fn play(mut self, steps: &[Step]) -> Result<(), String> {
        let mut speaks = "A".to_owned();
        for step in steps {
            match step {
                Step::Session { name } => speaks.clone_from(name),
                Step::Lost { name } => self.lose(name).await,
                Step::GoesOn { line, name, answer } => {
                    speaks.clone_from(name);
                    self.go_on(name, answer).await.map_err(|e| format!("line {line}: {e}"))?;
                }
                Step::Run { line, sql, answer } => {
                    let ran = self.run(&speaks, sql, answer).await;
                    ran.map_err(|e| format!("line {line}: {e}"))?;
                }
            }
        }
        self.end()
    }

    async fn run(&mut self, name: &str, sql: &str, answer: &Answer) -> Result<(), String> {
        self.enter(name).await;
        let session = self.sessions.get_mut(name).expect("it has entered");
        if session.waiting.is_some() {
            return Err(format!("session {name} waits and cannot speak"));
        }
        // PostgreSQL would answer COMMIT with ROLLBACK, which a reader takes for success.
        if session.aborted && sql != "ROLLBACK;" {
            return Err("a refused transaction is rolled back before anything else".into());
        }
        let mut statement = Statement::send(&session.client, sql);
        let long = if *answer == Answer::Waits { Duration::ZERO } else { LONG };
        tokio::select! {
            said = &mut statement.said => {
                session.heard(sql, &said.expect("it does not panic")).is(sql, answer)
            }
            () = until_blocked(&self.observer, session.backend, long) => {
                session.waiting = Some(statement);
                if *answer == Answer::Waits { Ok(()) } else { Err(format!("{sql} waits")) }
            }
        }
    }

    async fn go_on(&mut self, name: &str, answer: &Answer) -> Result<(), String> {
        self.enter(name).await;
        let session = self.sessions.get_mut(name).expect("it has entered");
        let waiting = session.waiting.take();
        let Statement { sql, said } = waiting.ok_or(format!("session {name} does not wait"))?;
        let said = tokio::time::timeout(PATIENCE, said).await;
        let said = said.map_err(|_| format!("{sql} waits still"))?.expect("it does not panic");
        session.heard(&sql, &said).is(&sql, answer)
    }

    async fn enter(&mut self, name: &str) {
        if self.sessions.contains_key(name) {
            return;
        }
        let pooled = name.ends_with("PgBouncer");
        let client = connect(if pooled { &self.pooled } else { &self.direct }).await;
        let backend = if pooled { None } else { Some(backend(&client).await) };
        let client = Arc::new(client);
        let (waiting, in_transaction, aborted) = (None, false, false);
        let session = Session { client, backend, waiting, in_transaction, aborted };
        self.sessions.insert(name.to_owned(), session);
    }

    /// Breaks a connection, and waits until the server has seen it.
    async fn lose(&mut self, name: &str) {
        let session = self.sessions.remove(name).expect("it has spoken");
        let backend = session.backend.expect("only what has a server process of its own");
        drop(session);
        let deadline = Instant::now() + PATIENCE;
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1";
        while count(&self.observer, sql, backend).await > 0 {
            assert!(Instant::now() < deadline, "the server never noticed that {name} is gone");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Nothing of the section is left half done.
    fn end(&self) -> Result<(), String> {
        for (name, session) in &self.sessions {
            if session.waiting.is_some() {
                return Err(format!("session {name} is left waiting"));
            }
            if session.in_transaction && !session.client.is_closed() {
                return Err(format!("session {name}: a transaction is left open"));
            }
        }
        Ok(())
    }
}

impl Session {
    fn heard<'a>(&mut self, sql: &str, said: &'a Said) -> &'a Said {
        match said {
            // A refused COMMIT is an end too.
            _ if ["COMMIT;", "ROLLBACK;"].contains(&sql) => {
                (self.in_transaction, self.aborted) = (false, false);
            }
            Said::Refused { .. } => self.aborted = self.in_transaction,
            Said::Rows { .. } => self.in_transaction |= sql.starts_with("BEGIN"),
        }
        said
    }
}

impl Statement {
    fn send(client: &Arc<Client>, sql: &str) -> Self {
        let (client, text) = (Arc::clone(client), sql.to_owned());
        let said = tokio::spawn(async move {
            match client.simple_query(&text).await {
                Ok(messages) => Said::rows(&messages),
                Err(error) => Said::Refused {
                    code: error.code().map(|code| code.code().to_owned()).unwrap_or_default(),
                    text: error.to_string(),
                },
            }
        });
        Self { sql: sql.to_owned(), said }
    }
}

impl Said {
    fn rows(messages: &[SimpleQueryMessage]) -> Self {
        let (mut rows, mut count) = (Vec::new(), 0);
        for message in messages {
            match message {
                SimpleQueryMessage::Row(row) => {
                    let columns = (0..row.len()).map(|at| row.get(at).unwrap_or("null"));
                    rows.push(columns.collect::<Vec<_>>().join(" | "));
                }
                SimpleQueryMessage::CommandComplete(rows) => count = *rows,
                // The kinds are not closed; a row's description is one more.
                _ => {}
            }
        }
        Self::Rows { rows, count }
    }

    /// Whether the page says the same.
    fn is(&self, sql: &str, answer: &Answer) -> Result<(), String> {
        match (self, answer) {
            (Self::Rows { .. }, Answer::Done) => Ok(()),
            (Self::Rows { count, .. }, Answer::Rows(rows)) if rows == count => Ok(()),
            (Self::Rows { rows, .. }, Answer::Rowset(all)) if *all == rows.join(", ") => Ok(()),
            (Self::Refused { code, text }, Answer::Refused(why))
                if code == why || text.contains(why.as_str()) =>
            {
                Ok(())
            }
            (Self::Rows { .. }, Answer::Waits) => Err(format!("{sql} does not wait")),
            (Self::Rows { rows, .. }, Answer::Rowset(_)) if !rows.is_empty() => {
                Err(format!("{sql} answers {}", rows.join(", ")))
            }
            (Self::Rows { count: 1, .. }, _) => Err(format!("{sql} has 1 row")),
            (Self::Rows { count, .. }, _) => Err(format!("{sql} has {count} rows")),
            (Self::Refused { code, text }, _) => Err(format!("{sql} is refused {code}: {text}")),
        }
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it runs");
    // It ends with its client or its server; what failed is seen by the client.
    tokio::spawn(async move { drop(connection.await) });
    client
}

async fn backend(client: &Client) -> i32 {
    client.query_typed_one("SELECT pg_backend_pid()", &[]).await.expect("one row").get(0)
}

async fn count(observer: &Client, sql: &str, backend: i32) -> i64 {
    let row = observer.query_typed_one(sql, &[(&backend, Type::INT4)]).await;
    row.expect("the observer is connected").get(0)
}

/// Returns when the server says that this backend has waited for a lock for so long.
async fn until_blocked(observer: &Client, backend: Option<i32>, long: Duration) {
    let Some(backend) = backend else { return tokio::time::sleep(PATIENCE).await };
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'";
    let mut since = None;
    loop {
        if count(observer, sql, backend).await == 0 {
            since = None;
        } else if since.get_or_insert_with(Instant::now).elapsed() >= long {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

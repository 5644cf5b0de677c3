//! Runs the SQL of `docs/do-you-need-a-lock.md` and compares what the page says with what
//! PostgreSQL answers.

mod page;
mod sessions;

use std::sync::Arc;

use page::{Section, Step};
use sessions::Stage;

use crate::postgres_server::{Pgbouncer, Postgres};

const PAGE: &str = include_str!("../../docs/do-you-need-a-lock.md");

/// Where the sections run.
struct Servers {
    bouncer: Pgbouncer,
    postgres: Arc<Postgres>,
}

impl Servers {
    fn start() -> Self {
        let postgres = Postgres::shared();
        Self { bouncer: postgres.pgbouncer(2), postgres }
    }

    /// Runs a page, every section on a database of its own that begins with the page's
    /// set-up. Returns a line for each section that does not answer as the page says.
    async fn run(&self, page: &str) -> Vec<String> {
        let sections = match page::read(page) {
            Ok(sections) => sections,
            Err(wrong) => return vec![wrong],
        };
        let mut wrong = Vec::new();
        for Section { title, steps, .. } in sections {
            let database = self.postgres.create_database();
            let (direct, pooled) = (self.postgres.url(&database), self.bouncer.url(&database));
            if let Err(found) = Stage::open(direct, pooled).await.play(&steps).await {
                wrong.push(format!("{title}: {found}"));
            }
        }
        wrong
    }
}

#[tokio::test]
async fn postgresql_answers_every_block_of_the_page_as_the_page_says() {
    let wrong = Servers::start().run(PAGE).await;
    assert!(wrong.is_empty(), "docs/do-you-need-a-lock.md:\n{}", wrong.join("\n"));
}

/// All of the page is read, and it has what it is about.
#[test]
fn no_block_of_the_page_is_left_out() {
    let sections = page::read(PAGE).expect("the page is well formed");
    let count = |of: fn(&Step) -> bool| {
        sections.iter().flat_map(|section| &section.steps).filter(|step| of(step)).count()
    };
    let statements = PAGE
        .split("```sql")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .flat_map(str::lines)
        .map(|line| line.split("-- ").next().unwrap_or_default().matches(';').count())
        .sum::<usize>();
    // Each section runs the set-up again.
    let setup = sections[0].setup;
    let run = count(|step| matches!(step, Step::Run { .. })) - setup * (sections.len() - 1);
    assert_eq!(run, statements, "statements that are run, and that are written");
    assert!(sections.len() >= 7, "{}", sections.len());
    assert!(count(Step::waits) >= 5, "races: the second waits");
    assert!(count(Step::is_refused) >= 5, "races: the second is refused");
}

/// Pages that are wrong, and what is said of them.
const PLANTED: &[(&str, &str)] = &[
    ("SELECT 1; -- answers 2", "line 3: SELECT 1; answers 1"),
    ("SELECT 1; -- 2 rows", "line 3: SELECT 1; has 1 row"),
    ("SELECT 1 WHERE false; -- answers 1", "line 3: SELECT 1 WHERE false; has 0 rows"),
    ("SELECT 1; -- refused 23505", "line 3: SELECT 1; has 1 row"),
    ("SELECT 1/0; -- answers 1", "line 3: SELECT 1/0; is refused 22012"),
    ("SELECT 1/0; -- refused 23505", "line 3: SELECT 1/0; is refused 22012"),
    ("SELECT 1; -- waits", "line 3: SELECT 1; does not wait"),
    ("SELECT 1;", "line 3: what does SELECT 1; answer?"),
    ("SELECT 1; -- anwsers 1", "line 3: \"anwsers 1\" says nothing"),
    ("SELECT 1 -- answers 1", "line 3: no statement ends here"),
    ("SELECT 1", "a statement without an end"),
    ("BEGIN;", "a transaction is left open"),
    ("BEGIN;\nSELECT 1/0; -- refused 22012\nCOMMIT;", "line 5: a refused transaction"),
    ("-- session A goes on: 1 row", "line 3: session A does not wait"),
    ("-- session A is tired", "line 3: \"session A is tired\" says nothing"),
    (
        "CREATE TABLE t (id int PRIMARY KEY);\nBEGIN;\nINSERT INTO t VALUES (1); -- 1 row\n\
         -- session B\nINSERT INTO t VALUES (1); -- 1 row",
        "line 7: INSERT INTO t VALUES (1); waits",
    ),
    (
        "CREATE TABLE t (id int PRIMARY KEY);\nBEGIN;\nINSERT INTO t VALUES (1); -- 1 row\n\
         -- session B\nINSERT INTO t VALUES (1); -- waits\n-- session A\nROLLBACK;",
        "session B is left waiting",
    ),
    (
        "CREATE TABLE t (id int PRIMARY KEY);\nBEGIN;\nINSERT INTO t VALUES (1); -- 1 row\n\
         -- session B\nINSERT INTO t VALUES (1); -- waits\n-- session A\nCOMMIT;\n\
         -- session B goes on: 1 row",
        "line 10: INSERT INTO t VALUES (1); is refused 23505",
    ),
];

#[tokio::test]
async fn a_page_that_says_something_else_is_convicted() {
    let servers = Servers::start();
    for (sql, expected) in PLANTED {
        let page = format!("## Planted\n```sql\n{sql}\n```\n");
        let wrong = servers.run(&page).await.join("\n");
        assert!(wrong.contains(expected), "{sql}\nwas said to be: {wrong}");
    }
}

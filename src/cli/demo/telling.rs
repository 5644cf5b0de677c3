//! How the story is told: a line a step, and a closing table.

use serde::Serialize;

use super::claims::Claim;
use crate::cli::output::{self, Format, NONE};
use crate::clock::Moment;
use crate::locks::Token;

/// Lines as they happen, for people; one document in the end, for programs.
#[derive(Debug)]
pub struct Telling {
    format: Format,
    began: Moment,
    steps: Vec<Step>,
}

#[derive(Debug, Serialize)]
struct Step {
    ms: u64,
    term: Option<u64>,
    token: Option<u64>,
    what: String,
}

#[derive(Debug, Serialize)]
struct Document {
    held: bool,
    claims: Vec<Claim>,
    steps: Vec<Step>,
}

impl Telling {
    /// Begins now.
    pub fn new(format: Format) -> Self {
        Self { format, began: Moment::now(), steps: Vec::new() }
    }

    /// Something has happened, in this term, under this token.
    pub fn step(&mut self, term: Option<u64>, token: Option<Token>, what: &str) {
        let since = Moment::now().since(self.began);
        let token = token.map(Token::get);
        if self.format == Format::Table {
            let shown = |number: Option<u64>| number.map_or(NONE.to_owned(), |n| n.to_string());
            let (term, token) = (shown(term), shown(token));
            let seconds = since.as_secs_f64();
            let line = format!("{seconds:6.2} s   term {term:<3} token {token:<3} {what}\n");
            // Who does not read along is told by the exit code.
            let _ = output::text(&line);
        }
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.steps.push(Step { ms, term, token, what: what.to_owned() });
    }

    /// The end.
    ///
    /// # Errors
    /// What stdout says.
    pub fn close(self, claims: Vec<Claim>) -> anyhow::Result<()> {
        let held = claims.iter().all(|claim| claim.ok);
        match self.format {
            Format::Json => Ok(output::json(&Document { held, claims, steps: self.steps })?),
            Format::Table => {
                let verdict = |ok| if ok { "ok" } else { "FAILED" }.to_owned();
                let rows = claims.into_iter().map(|c| vec![verdict(c.ok), c.claim.into(), c.seen]);
                let table = output::table(&["", "CLAIM", "SEEN"], rows);
                let end = if held { "every claim held" } else { "a claim FAILED" };
                Ok(output::text(&format!("\n{table}\n{end}\n"))?)
            }
        }
    }
}

//! Reads a page's SQL blocks into steps.
//!
//! The blocks of a section (`## …`) follow on each other; those marked `sql setup` come
//! first in every section. In a block, comments say who speaks and what the answer is; all
//! that follows a semicolon in such a comment is for readers, and so is any other comment on
//! a line of its own.
//!
//! ```text
//! -- session A                        what follows is sent on A's own connection
//! -- session A, through PgBouncer     … or on a client connection of the pooler
//! -- session A loses its connection   and the server has noticed
//! -- session A goes on: 1 row; …      what A's waiting statement has answered by now
//! SELECT …; -- answers 1 | x, 2 | y   columns and rows
//! UPDATE …; -- 1 row; …               so many rows are returned, or changed
//! UPDATE …; -- waits                  for a lock, as the server says
//! INSERT …; -- refused 23505; …       an SQLSTATE, or words of the error
//! ```

/// The steps under one heading.
pub struct Section {
    pub title: String,
    pub steps: Vec<Step>,
    /// How many of the steps are statements of the page's set-up.
    pub setup: usize,
}

/// One thing that happens, and the line of the page that it stands on.
#[derive(Debug, Clone)]
pub enum Step {
    /// From here on, this session speaks.
    Session { name: String },
    /// Its connection breaks.
    Lost { name: String },
    /// What was waiting has been answered.
    GoesOn { line: usize, name: String, answer: Answer },
    /// One statement.
    Run { line: usize, sql: String, answer: Answer },
}

/// What the page says of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It succeeds; there is nothing to see.
    Done,
    Rows(u64),
    Rowset(String),
    Waits,
    Refused(String),
}

impl Step {
    pub fn waits(&self) -> bool {
        matches!(self, Self::Run { answer: Answer::Waits, .. })
    }

    pub fn is_refused(&self) -> bool {
        let (Self::Run { answer, .. } | Self::GoesOn { answer, .. }) = self else { return false };
        matches!(answer, Answer::Refused(_) | Answer::Rows(0))
    }
}

/// The sections of a page that have SQL.
pub fn read(page: &str) -> Result<Vec<Section>, String> {
    let (mut sections, mut setup) = (Vec::<Section>::new(), Vec::new());
    let mut title = String::new();
    let mut lines = page.lines().zip(1..);
    while let Some((line, _)) = lines.next() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut title);
        }
        let Some(info) = line.strip_prefix("```sql") else { continue };
        let block = lines.by_ref().take_while(|(line, _)| *line != "```");
        let steps = block_of(block)?;
        if info.trim() == "setup" {
            setup.extend(steps);
            continue;
        }
        match sections.last_mut() {
            Some(section) if section.title == title => section.steps.extend(steps),
            Some(_) | None => {
                let steps = setup.iter().cloned().chain(steps).collect();
                sections.push(Section { title: title.clone(), steps, setup: setup.len() });
            }
        }
    }
    Ok(sections)
}

fn block_of<'a>(lines: impl Iterator<Item = (&'a str, usize)>) -> Result<Vec<Step>, String> {
    let (mut steps, mut sql) = (Vec::new(), String::new());
    for (text, line) in lines {
        let (code, comment) = text.split_once("-- ").map_or((text, None), |(a, b)| (a, Some(b)));
        let code = code.trim_end();
        if code.is_empty() {
            steps.extend(comment.map(|it| directive(it, line)).transpose()?.flatten());
            continue;
        }
        if !sql.is_empty() {
            sql.push('\n');
        }
        sql.push_str(code);
        match (code.ends_with(';'), comment) {
            (true, comment) => {
                let sql = std::mem::take(&mut sql);
                let answer = comment.map_or(Ok(Answer::Done), |it| answer(it, line))?;
                let tells = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"];
                if answer == Answer::Done && tells.iter().any(|word| sql.starts_with(word)) {
                    return Err(format!("line {line}: what does {sql} answer?"));
                }
                steps.push(Step::Run { line, sql, answer });
            }
            (false, Some(_)) => return Err(format!("line {line}: no statement ends here")),
            (false, None) => {}
        }
    }
    if sql.is_empty() { Ok(steps) } else { Err(format!("a statement without an end: {sql}")) }
}

/// A comment on a line of its own: who speaks, or words for readers.
fn directive(comment: &str, line: usize) -> Result<Option<Step>, String> {
    let Some(rest) = comment.strip_prefix("session ") else { return Ok(None) };
    let name = |name: &str| name.to_owned();
    if let Some((who, said)) = rest.split_once(" goes on: ") {
        return Ok(Some(Step::GoesOn { line, name: name(who), answer: answer(said, line)? }));
    }
    if let Some(who) = rest.strip_suffix(" loses its connection") {
        return Ok(Some(Step::Lost { name: name(who) }));
    }
    let who = rest.strip_suffix(", through PgBouncer").unwrap_or(rest);
    if who.contains(' ') {
        return Err(format!("line {line}: {comment:?} says nothing"));
    }
    Ok(Some(Step::Session { name: name(rest) }))
}

fn answer(comment: &str, line: usize) -> Result<Answer, String> {
    let said = comment.split(';').next().unwrap_or_default().trim_end();
    let rows = said.strip_suffix(" rows").or_else(|| said.strip_suffix(" row"));
    if let Some(rows) = rows.and_then(|rows| rows.parse().ok()) {
        return Ok(Answer::Rows(rows));
    }
    match said.split_once(' ') {
        Some(("answers", rows)) => Ok(Answer::Rowset(rows.to_owned())),
        Some(("refused", why)) => Ok(Answer::Refused(why.to_owned())),
        None if said == "waits" => Ok(Answer::Waits),
        Some(_) | None => Err(format!("line {line}: {said:?} says nothing")),
    }
}

//! Performs commands on a checked table and tells what came of them.

use std::collections::BTreeMap;

use ringfence::locks::{
    Bootstrap, ClusterId, Command, Done, Header, Limits, Millis, Overdue, RequestId, SessionId,
    Switches, Term, WaitId,
};

use crate::checked::Checked;
use crate::commands;
use crate::names::Names;
use crate::parse::{self, Line};
use crate::words;

/// A table and the names in a script.
pub struct Stage {
    table: Checked,
    names: Names,
    shows_facts: bool,
}

/// An entry to be: whom it speaks for, as the script calls it, and its command.
type Entry = (String, Option<Command>);

impl Stage {
    pub fn new() -> Self {
        Self {
            table: Checked::new(Switches::default()),
            names: Names::default(),
            shows_facts: false,
        }
    }

    /// Performs one line, and checks the whole table after it.
    pub fn perform(&mut self, text: &str) -> Result<Vec<String>, String> {
        let told = self.perform_unchecked(text)?;
        self.table.check()?;
        Ok(told)
    }

    fn perform_unchecked(&mut self, text: &str) -> Result<Vec<String>, String> {
        let mut line = Line::read(text)?;
        let told = match line.verb {
            "repeat" => return self.repeat(&mut line, text),
            "term" => {
                self.table.set_term(Term(parse::number(line.word("a number")?)?));
                Vec::new()
            }
            "restart" => {
                self.table.restart()?;
                vec![format!("restarted from {} rows", self.table.rows().len())]
            }
            "show" => self.show(&mut line)?,
            _ => {
                let (who, command) = self.entry(&mut line)?;
                line.end()?;
                return Ok(self.apply(&who, command));
            }
        };
        line.end()?;
        Ok(told)
    }

    /// Another table that applies the same log has the same hash. [I10]
    pub fn close(&self) -> Result<(), String> {
        if self.table.replayed() == self.table.table().state_hash() {
            return Ok(());
        }
        Err("[I10] a second table that applied the log has another hash".into())
    }

    fn repeat(&mut self, line: &mut Line<'_>, text: &str) -> Result<Vec<String>, String> {
        let times = line.word("how often")?;
        let again = text.split_once(times).map_or("", |(_, command)| command).trim();
        let mut last = Vec::new();
        for time in 1..=parse::number::<u32>(times)? {
            last = self.perform_unchecked(&again.replace('%', &time.to_string()))?;
        }
        Ok(last)
    }

    fn show(&mut self, line: &mut Line<'_>) -> Result<Vec<String>, String> {
        match line.word("what")? {
            "facts" => {
                self.shows_facts = true;
                Ok(Vec::new())
            }
            "all" => Ok(words::table(&self.names, self.table.table())),
            "requests" => {
                let session = self.names.actor(line.word("a session")?)?.session;
                Ok(words::requests(&self.names, session, self.table.rows()))
            }
            other => Err(format!("cannot show {other}")),
        }
    }

    fn apply(&mut self, who: &str, command: Option<Command>) -> Vec<String> {
        let effects = self.table.apply(command);
        if let Ok(Done::Opened { session, created: true, .. }) = effects.outcome {
            self.names.opened(who, session);
        }
        words::entry(&self.names, self.table.table(), who, &effects, self.shows_facts)
    }

    fn entry(&mut self, line: &mut Line<'_>) -> Result<Entry, String> {
        match line.verb {
            "blank" => Ok((String::new(), None)),
            "bootstrap" => bootstrap(line),
            "seen" => {
                let sessions = self.sessions(line)?;
                Ok((String::new(), Some(Command::MarkSeen { sessions })))
            }
            "expire" => self.expire(line),
            "expire-waits" => {
                let waits = line.rest().into_iter().map(|wait| self.wait_id(wait));
                let waits = waits.collect::<Result<_, _>>()?;
                Ok((String::new(), Some(Command::ExpireWaits { waits })))
            }
            "open" => {
                let who = line.word("an owner")?;
                let ttl = line.option("ttl", parse::millis)?.unwrap_or(Millis(10_000));
                let options = line.rest_of_options().into_iter();
                let labels = options.map(|(key, value)| (key.to_owned(), value.to_owned()));
                let (owner, labels) = (Names::owner(who), labels.collect());
                Ok((who.to_owned(), Some(Command::OpenSession { owner, ttl, labels })))
            }
            "close" => {
                let who = line.word("a session")?;
                let (owner, session) = (Self::owner(line, who)?, self.session(line, who)?);
                Ok((who.to_owned(), Some(Command::CloseSession { owner, session })))
            }
            "ttl" | "acquire" | "cancel" | "confirm" | "value" | "release" => self.request(line),
            _ => Ok((String::new(), Some(commands::without_session(line)?))),
        }
    }

    fn request(&mut self, line: &mut Line<'_>) -> Result<Entry, String> {
        let who = line.word("a session")?.to_owned();
        let header = self.header(line, &who)?;
        let told_as = format!("{who}/{}", header.id);
        let command = commands::of_session(line, header)?;
        Ok((told_as, Some(command)))
    }

    fn header(&mut self, line: &mut Line<'_>, who: &str) -> Result<Header, String> {
        let next = self.names.actor(who).map_or(RequestId::FIRST, |actor| actor.next);
        let (owner, session) = (Self::owner(line, who)?, self.session(line, who)?);
        let id = line.option("id", parse::request)?.unwrap_or(next);
        let oldest_outstanding = line.option("oldest", parse::request)?.unwrap_or(RequestId::FIRST);
        let answered = line.option("answered", parse::requests)?.unwrap_or_default();
        self.names.used(who, id);
        Ok(Header { owner, session, id, oldest_outstanding, answered })
    }

    fn expire(&self, line: &mut Line<'_>) -> Result<Entry, String> {
        let named = line.option("seen", parse::number)?;
        let sessions = self.sessions(line)?;
        let table = self.table.table();
        let overdue = sessions.into_iter().map(|session| {
            let last = table.session(session).map_or(table.position(), |s| s.row.seen);
            Overdue { session, seen: named.unwrap_or(last.index) }
        });
        Ok((String::new(), Some(Command::ExpireSessions { sessions: overdue.collect() })))
    }

    fn owner(line: &mut Line<'_>, who: &str) -> Result<ringfence::locks::OwnerId, String> {
        Ok(Names::owner(line.option("owner", Ok)?.unwrap_or(who)))
    }

    fn session(&self, line: &mut Line<'_>, who: &str) -> Result<SessionId, String> {
        match line.option("session", parse::number)? {
            Some(session) => Ok(SessionId(session)),
            None => Ok(self.names.actor(who)?.session),
        }
    }

    fn sessions(&self, line: &mut Line<'_>) -> Result<Vec<SessionId>, String> {
        line.rest().into_iter().map(|who| Ok(self.names.actor(who)?.session)).collect()
    }

    fn wait_id(&self, text: &str) -> Result<WaitId, String> {
        let (who, id) = text.split_once('/').ok_or_else(|| format!("not SESSION/ID: {text}"))?;
        Ok(WaitId { session: self.names.actor(who)?.session, request: parse::request(id)? })
    }
}

fn bootstrap(line: &mut Line<'_>) -> Result<Entry, String> {
    let mut limits = Limits::default();
    let token_floor = line.option("floor", parse::number)?.unwrap_or(0);
    let cluster = line.option("cluster", parse::number)?.unwrap_or(1_u8);
    let options: BTreeMap<_, _> = line.rest_of_options();
    for (key, value) in options {
        match key {
            "ttl_min" => limits.ttl_min = parse::millis(value)?,
            "ttl_max" => limits.ttl_max = parse::millis(value)?,
            "sessions_max" => limits.sessions_max = parse::number(value)?,
            "places_max" => limits.places_per_session_max = parse::number(value)?,
            "waiters_max" => limits.waiters_per_resource_max = parse::number(value)?,
            other => return Err(format!("no such limit: {other}")),
        }
    }
    let cluster = ClusterId::new([cluster; 16]);
    let bootstrap = Bootstrap { cluster, token_floor, limits };
    Ok((String::new(), Some(Command::Bootstrap(bootstrap))))
}

//! Lines made into commands: those of a session, and those that belong to none.

use ringfence::locks::{Command, Header, Millis};

use crate::parse::{self, Line};

/// A request of a session.
pub fn of_session(line: &mut Line<'_>, header: Header) -> Result<Command, String> {
    Ok(match line.verb {
        "ttl" => Command::SetTtl { header, ttl: parse::millis(line.word("a time")?)? },
        "acquire" => {
            let wait = line.wait()?;
            Command::Acquire { header, claim: line.claim()?, wait }
        }
        "cancel" => Command::Cancel { header, target: parse::request(line.word("a request id")?)? },
        "confirm" => {
            let (resource, token) = parse::held(line.word("NAME#TOKEN")?)?;
            Command::Confirm { header, resource, token }
        }
        "value" => {
            let (resource, token) = parse::held(line.word("NAME#TOKEN")?)?;
            let value = parse::value(line.rest().first().copied().unwrap_or_default())?;
            Command::SetValue { header, resource, token, value }
        }
        verb => {
            assert_eq!(verb, "release", "the stage sends six verbs here");
            let (resource, token) = parse::held(line.word("NAME#TOKEN")?)?;
            Command::Release { header, resource, token }
        }
    })
}

/// What an administrator does, and what the leader says of its timers.
pub fn without_session(line: &mut Line<'_>) -> Result<Command, String> {
    Ok(match line.verb {
        "revoke" => {
            let (resource, token) = parse::held(line.word("NAME#TOKEN")?)?;
            Command::Revoke { resource, token, note: line.note()? }
        }
        "freeze" => {
            let resource = parse::resource(line.word("a name")?)?;
            Command::Freeze { resource, note: line.note()? }
        }
        "thaw" => {
            let (resource, token) = parse::held(line.word("NAME#TOKEN")?)?;
            Command::Thaw { resource, token, note: line.note()? }
        }
        "resize" => {
            let resource = parse::resource(line.word("a name")?)?;
            let slots = parse::number(line.word("a number of slots")?)?;
            Command::Resize { resource, slots, note: line.note()? }
        }
        "ask" => {
            let (resource, token) = parse::held(line.word("NAME#TOKEN")?)?;
            let within = line.option("within", parse::millis)?.unwrap_or(Millis(5_000));
            Command::AskRelease { resource, token, within, note: line.note()? }
        }
        "expire-barriers" => Command::ExpireBarriers { tokens: tokens(line)? },
        "end-closures" => Command::EndClosures { tokens: tokens(line)? },
        "settle" => Command::Settle,
        verb => return Err(format!("no such command: {verb}")),
    })
}

fn tokens(line: &mut Line<'_>) -> Result<Vec<ringfence::locks::Token>, String> {
    line.rest().into_iter().map(parse::token).collect()
}

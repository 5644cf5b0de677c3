//! What `revoke`, `freeze`, `thaw`, `resize` and `ask` have in common: who does it and
//! why, and how their fences and refusals are told.

use super::exit::{Exit, Failure};
use super::output::{self, shown};
use super::view::{Fence, Resource};
use super::words::{self, quoted};
use crate::client::{Client, ClientError};
use crate::locks::Note;

/// Who does it, and why: kept with the event, for whoever comes after.
#[derive(Debug, Clone, clap::Args)]
pub struct Why {
    /// Why, in one sentence: up to 512 bytes
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who does it: up to 128 bytes [default: user@host]
    #[arg(long, value_name = "NAME", env = "RINGFENCE_ACTOR")]
    actor: Option<String>,
}

impl Why {
    /// Checks both.
    ///
    /// # Errors
    /// [`Exit::Usage`] for one that is too long, or empty.
    pub fn note(&self) -> Result<Note, Failure> {
        if self.reason.trim().is_empty() {
            return Err(Failure::new(Exit::Usage, "--reason must say why, in one sentence"));
        }
        let actor = self.actor.clone().unwrap_or_else(user_at_host);
        Ok(Note::new(&actor, &self.reason)?)
    }
}

/// Who is logged in on which machine, as the system has it.
fn user_at_host() -> String {
    let id = nix::unistd::getuid();
    let user = nix::unistd::User::from_uid(id).ok().flatten();
    let user = user.map_or_else(|| format!("uid {id}"), |user| user.name);
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    format!("{user}@{host}").chars().filter(|c| !c.is_control()).take(100).collect()
}

/// What shuts earlier holders out at destinations, and how it gets there.
pub fn fences_told(fences: &[Fence]) -> String {
    let rows = fences.iter().map(|fence| {
        let slot = fence.slot.map_or_else(|| output::NONE.to_owned(), |slot| slot.to_string());
        vec![fence.resource.clone(), slot, fence.token.to_string(), fence.floor.to_string()]
    });
    let mut text = output::table(&["RESOURCE", "SLOT", "TOKEN", "FLOOR"], rows);
    // A floor below the token lets the other holders write, and the former one with them.
    if fences.iter().any(|fence| fence.slot.is_none() && fence.floor < fence.token) {
        text += "Others still share it: one of them alone cannot be shut out. Revoke all for \
                 that, or freeze it.\n";
    } else if let Some(first) = fences.first() {
        text += &format!(
            "Destinations refuse what came before once they know this: raise it at each, or wait\n\
             for the next holder's first write. In PostgreSQL:\n  {}\n",
            raise_in_sql(first)
        );
    }
    text
}

/// The statement that raises a mark, as `ringfence fence sql` sets it up.
fn raise_in_sql(fence: &Fence) -> String {
    let text = |text: &str| format!("'{}'", shown(text).replace('\'', "''"));
    let slot = fence.slot.map_or_else(|| "NULL".to_owned(), |slot| slot.to_string());
    let (cluster, name) = (text(&fence.cluster), text(&fence.resource));
    let (token, floor) = (fence.token, fence.floor);
    format!("SELECT ringfence.check_fence({cluster}, {name}, {slot}, {token}, {floor});")
}

/// Why it was not done. If what was named is no more it says what is so now: nothing was
/// done to that.
pub async fn refused(client: &Client, name: &str, error: ClientError) -> Failure {
    let gone = matches!(error, ClientError::NotFound { .. });
    let unknown = matches!(error, ClientError::OutcomeUnknown { .. });
    let Failure { exit, message } = Failure::from(error).about(shown(name));
    if gone {
        return Failure::new(exit, format!("{message}. {}", now(client, name).await));
    }
    if unknown {
        let look = format!("ringfence explain {}", quoted(name));
        return Failure::new(exit, format!("{message}; to look: {look}"));
    }
    Failure { exit, message }
}

/// What is so at present, in a sentence.
async fn now(client: &Client, name: &str) -> String {
    let Ok(answer) = client.get(name).await else {
        return "What is so now was not to be had".to_owned();
    };
    let resource = Resource::from(answer.resource.unwrap_or_default());
    let state = words::obstacle(&resource).unwrap_or_else(|| "free".to_owned());
    format!("It is {state}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_actor_is_the_user_and_the_machine_if_nobody_is_named() {
        let actor = user_at_host();
        assert!(
            actor.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
        );
        let why = Why { reason: "it hangs".to_owned(), actor: None };
        assert_eq!(why.note().expect("both are short").actor, actor);
        let why = Why { reason: " ".to_owned(), actor: Some("alice".to_owned()) };
        assert_eq!(why.note().map_err(|failure| failure.exit), Err(Exit::Usage));
    }

    #[test]
    fn the_sql_quotes_what_it_is_given() {
        let fence = Fence {
            cluster: "ab".to_owned(),
            resource: "it's".to_owned(),
            slot: Some(2),
            token: 42,
            floor: 7,
        };
        let sql = "SELECT ringfence.check_fence('ab', 'it''s', 2, 42, 7);";
        assert_eq!(raise_in_sql(&fence), sql);
        assert!(fences_told(std::slice::from_ref(&fence)).contains(sql));
        let shared = fences_told(&[Fence { slot: None, ..fence }]);
        assert!(!shared.contains("SELECT") && shared.contains("\nOthers still share it"));
    }
}

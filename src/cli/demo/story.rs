//! The story, step by step.

use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::Signal;

use super::claims::{Claim, Evidence};
use super::role::{Answer, Order, Role};
use super::store::{Store, Table};
use super::telling::Telling;
use crate::cli::local::{Folder, Leader, Nodes, PATIENCE, POLL};
use crate::client::Client;
use crate::clock::Moment;
use crate::locks::{ResourceName, Token};

const JOB: &str = "job/7";
/// B's lease; B is never in a hurry.
const TTL_B: Duration = Duration::from_secs(10);

/// Everybody on the stage.
pub struct Story<'s> {
    telling: &'s mut Telling,
    nodes: &'s mut Nodes,
    destination: &'s mut dyn Store,
    client: Client,
    leader: Leader,
    term: u64,
    a: Role,
    b: Role,
}

/// A stands still, and so does its lease.
struct Paused {
    token: Token,
    looked: Moment,
    counted_on: Duration,
}

/// The job is B's.
struct Succeeded {
    new: Leader,
    elected_after: Duration,
    token: Token,
    granted_after: Duration,
}

impl<'s> Story<'s> {
    /// Waits for the cluster, and starts the workers.
    ///
    /// # Errors
    /// A node or a worker did not start.
    pub async fn begin(
        telling: &'s mut Telling,
        nodes: &'s mut Nodes,
        destination: &'s mut dyn Store,
        folder: &Folder,
        url: &str,
        ttl: Duration,
    ) -> anyhow::Result<Self> {
        let leader = nodes.leader_after(0).await?;
        telling.step(Some(leader.term), None, &format!("node {} leads", leader.node));
        let endpoints = nodes.endpoints();
        let client = Client::connect(&endpoints)?;
        let a = Role::start("A", &endpoints, url, ttl, folder.path())?;
        let b = Role::start("B", &endpoints, url, TTL_B, folder.path())?;
        let term = leader.term;
        Ok(Self { telling, nodes, destination, client, leader, term, a, b })
    }

    /// Plays it to its end, and judges.
    ///
    /// # Errors
    /// What kept it from being played; a claim that fails is none.
    pub async fn play(mut self) -> anyhow::Result<Vec<Claim>> {
        let token = self.first_owner().await?;
        self.next_in_line().await?;
        let paused = self.pause(token).await?;
        let succeeded = self.succession(&paused).await?;
        self.publish(succeeded.token).await?;
        let (late_write, guard) = self.late_write(paused.token).await?;
        let job = ResourceName::new(JOB)?;
        let evidence = Evidence {
            old: self.leader,
            new: succeeded.new,
            elected_after: succeeded.elected_after,
            token_a: paused.token,
            token_b: succeeded.token,
            a_counted_on: paused.counted_on,
            granted_after: succeeded.granted_after,
            late_write,
            guard,
            row: self.destination.row(Table::Guarded, JOB).await?,
            mark: self.destination.mark(&job).await?,
            unguarded: self.destination.row(Table::Unguarded, JOB).await?,
        };
        Ok(evidence.claims())
    }

    async fn first_owner(&mut self) -> anyhow::Result<Token> {
        let token = granted(self.a.ask(&Order::Take(JOB.to_owned())).await?)?;
        self.say(token, "A takes job/7");
        done(&self.a.ask(&Order::Raise).await?)?;
        self.say(token, "A raises the mark at the destination");
        done(&self.a.ask(&Order::Publish("half of it".to_owned())).await?)?;
        done(&self.a.ask(&Order::PublishUnguarded("half of it".to_owned())).await?)?;
        self.say(token, "A writes \"half of it\", with its fence (and to a copy without one)");
        Ok(token)
    }

    async fn next_in_line(&mut self) -> anyhow::Result<()> {
        self.b.tell(&Order::Take(JOB.to_owned())).await?;
        let until = Moment::now().plus(PATIENCE);
        while self.client.get(JOB).await?.resource.is_none_or(|r| r.waiters.is_empty()) {
            anyhow::ensure!(Moment::now() < until, "B does not come to stand in the queue");
            tokio::time::sleep(POLL).await;
        }
        self.telling.step(Some(self.term), None, "B asks for job/7, and waits in its queue");
        Ok(())
    }

    async fn pause(&mut self, token: Token) -> anyhow::Result<Paused> {
        let looked = Moment::now();
        let (state, counted_on) = guard(self.a.ask(&Order::Look).await?)?;
        let counted_on = Duration::from_millis(counted_on);
        self.say(token, &format!("A looks at its guard: {state}; it goes on to write"));
        self.a.signal(Signal::SIGSTOP)?;
        // What it would have done next: it does so when it is continued.
        self.a.tell(&Order::Publish("all of it, late".to_owned())).await?;
        self.say(token, "A is stopped in that moment: SIGSTOP");
        Ok(Paused { token, looked, counted_on })
    }

    async fn succession(&mut self, paused: &Paused) -> anyhow::Result<Succeeded> {
        let old = self.leader;
        let killed = Moment::now();
        self.nodes.kill(old.node);
        let what = format!("the leader, node {}, is killed: SIGKILL", old.node);
        self.telling.step(Some(old.term), None, &what);
        let new = self.nodes.leader_after(old.term).await?;
        let elected_after = Moment::now().since(killed);
        self.term = new.term;
        let what = format!("node {} leads, {} ms later", new.node, elected_after.as_millis());
        self.telling.step(Some(new.term), None, &what);
        let token = granted(self.b.answer().await?)?;
        let granted_after = Moment::now().since(paused.looked);
        let what = format!(
            "A's lease has run out: B gets job/7, {:.2} s after A looked",
            granted_after.as_secs_f64()
        );
        self.say(token, &what);
        Ok(Succeeded { new, elected_after, token, granted_after })
    }

    async fn publish(&mut self, token: Token) -> anyhow::Result<()> {
        done(&self.b.ask(&Order::Raise).await?)?;
        self.say(token, "B raises the mark at the destination");
        done(&self.b.ask(&Order::Publish("all of it".to_owned())).await?)?;
        done(&self.b.ask(&Order::PublishUnguarded("all of it".to_owned())).await?)?;
        self.say(token, "B publishes \"all of it\"");
        Ok(())
    }

    async fn late_write(
        &mut self,
        token: Token,
    ) -> anyhow::Result<((String, Option<u64>), (String, String))> {
        self.a.signal(Signal::SIGCONT)?;
        self.say(token, "A is continued, and writes");
        let answer = match self.a.answer().await? {
            Answer::Refused { message, mark } => (message, Some(mark)),
            answer => (format!("not refused: {answer:?}"), None),
        };
        self.say(token, &format!("the destination: {}", answer.0));
        let (at_once, _) = guard(self.a.ask(&Order::Look).await?)?;
        self.say(token, &format!("A's guard: {at_once}"));
        let (in_the_end, _) = guard(self.a.ask(&Order::AwaitLoss).await?)?;
        if in_the_end != at_once {
            self.say(token, &format!("A's guard: {in_the_end}"));
        }
        done(&self.a.ask(&Order::PublishUnguarded("all of it, late".to_owned())).await?)?;
        let what = "control: to the copy without a fence the same write goes through";
        self.say(token, what);
        Ok((answer, (at_once, in_the_end)))
    }

    fn say(&mut self, token: Token, what: &str) {
        self.telling.step(Some(self.term), Some(token), what);
    }
}

fn granted(answer: Answer) -> anyhow::Result<Token> {
    match answer {
        Answer::Granted(token) => Token::new(token).context("the worker's token"),
        other => Err(unexpected(&other)),
    }
}

fn done(answer: &Answer) -> anyhow::Result<()> {
    match answer {
        Answer::Done => Ok(()),
        other => Err(unexpected(other)),
    }
}

fn guard(answer: Answer) -> anyhow::Result<(String, u64)> {
    match answer {
        Answer::Guard { state, valid_for_ms } => Ok((state, valid_for_ms)),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(answer: &Answer) -> anyhow::Error {
    anyhow::anyhow!("a worker answered {answer:?}")
}

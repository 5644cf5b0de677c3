//! One client of the toy: opens, asks, waits, holds, writes, gives back; and fails in the ways
//! in which clients fail.

use anyhow::Result;
use serde_json::{Value, json};

use super::act::{Act, done, holders};
use super::authority::{Answer, Ask, Grant, TTL, word};
use super::mutant::Mutant;
use super::world::{Due, MS, World};
use crate::check::evidence::Mode;
use crate::history::{Completion, Kind};

/// Where it stands.
#[derive(Clone, Debug)]
enum Stage {
    /// Without a session.
    Outside,
    /// With one, and nothing else.
    Idle,
    /// It asked, and the answer is not settled.
    Asking(Ask),
    /// It has an unconfirmed grant.
    Barrier(Grant),
    /// It holds, for so many steps more.
    Holding(Grant, u64),
    /// All is proven.
    Done,
}

/// A client.
pub struct Client {
    number: usize,
    process: u32,
    cluster: u32,
    session: u64,
    request: u64,
    renewed: u64,
    stage: Stage,
    act: Option<Act>,
    end: Completion,
    /// A release that it will send once more, when it is long out of date.
    late: Option<(u64, String, u64)>,
    /// In the last phase: the resources that it proves.
    prove: Option<Vec<String>>,
}

impl Client {
    pub fn new(number: usize, world: &mut World) -> Client {
        world.next_process += 1;
        world.plan(u64::try_from(number).unwrap_or(0) * MS, Due::Think(number));
        Client {
            number,
            process: world.next_process - 1,
            cluster: 0,
            session: 0,
            request: 0,
            renewed: 0,
            stage: Stage::Outside,
            act: None,
            end: Completion::new(Kind::Info, Value::Null),
            late: None,
            prove: None,
        }
    }

    /// The last phase begins. The first client proves all resources, the others go.
    pub fn finish(&mut self, resources: &[String]) {
        self.prove = Some(if self.number == 0 { resources.to_vec() } else { Vec::new() });
    }

    pub fn done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Begins the next operation.
    pub fn think(&mut self, world: &mut World) -> Result<()> {
        world.settle()?;
        let Some(act) = self.next(world)? else {
            self.stage = Stage::Done;
            return Ok(());
        };
        world.operations += 1;
        match &act {
            Act::Open => self.cluster = world.authority.cluster,
            Act::Acquire(ask) => self.stage = Stage::Asking(ask.clone()),
            Act::Renew
            | Act::Close
            | Act::Confirm(_)
            | Act::Release { .. }
            | Act::Get(_)
            | Act::Check(_)
            | Act::Write { .. } => {}
        }
        let last = self.prove.is_some();
        let (f, value) = act.arguments(self.session, self.cluster, self.number, last);
        world.journal.invoke(world.now, self.process, f, value, Some("n1"))?;
        self.act = Some(act);
        let delay = MS / 2 + world.below(6 * MS);
        world.plan(delay, Due::Effect(self.number));
        Ok(())
    }

    fn next(&mut self, world: &mut World) -> Result<Option<Act>> {
        if let Some((time, resource, token)) = self.late.clone()
            && time <= world.now
        {
            self.late = None;
            return Ok(Some(Act::Release { resource, token, late: true }));
        }
        let waits = matches!(self.stage, Stage::Asking(_) | Stage::Holding(..));
        let due = world.now > self.renewed + TTL / 2 + world.below(TTL * 9 / 20);
        if waits && due && !world.chance(100) {
            return Ok(Some(Act::Renew));
        }
        Ok(match self.stage.clone() {
            Stage::Outside if self.prove.as_ref().is_some_and(Vec::is_empty) => None,
            Stage::Idle if self.prove.as_ref().is_some_and(Vec::is_empty) => Some(Act::Close),
            Stage::Outside => Some(Act::Open),
            Stage::Idle => Some(self.idle(world)),
            Stage::Asking(ask) => Some(Act::Acquire(ask)),
            Stage::Barrier(grant) => {
                if world.authority.mutant != Some(Mutant::HandoffWithoutRaise) {
                    let (_, _, line) = world.dest.ask(&grant, self.cluster, None);
                    world.book(&line)?;
                }
                Some(Act::Confirm(grant))
            }
            Stage::Holding(grant, left) => Some(self.hold(world, grant, left)?),
            Stage::Done => None,
        })
    }

    fn idle(&mut self, world: &mut World) -> Act {
        let drawn = usize::try_from(world.below(world.resources.len() as u64)).unwrap_or(0);
        let name = self.prove.as_ref().and_then(|left| left.last().cloned());
        // Back to what it will release once more.
        let again = self.late.as_ref().filter(|_| world.chance(500)).map(|late| late.1.clone());
        let name = name.or(again).unwrap_or_else(|| world.resources[drawn].clone());
        if self.prove.is_none() && world.chance(150) {
            return Act::Get(name);
        }
        let mode = match &name[..2] {
            "rw" if world.chance(700) => Mode::Shared,
            "sl" => Mode::Slots,
            _ => Mode::Exclusive,
        };
        self.request += 1;
        Act::Acquire(Ask {
            session: self.session,
            request: self.request,
            mode,
            slots: if mode == Mode::Slots { 2 } else { 0 },
            strict: name.starts_with("st"),
            resource: name,
        })
    }

    fn hold(&mut self, world: &mut World, grant: Grant, left: u64) -> Result<Act> {
        if left == 0 || self.prove.is_some() {
            let (resource, token) = (grant.ask.resource, grant.token);
            return Ok(Act::Release { resource, token, late: false });
        }
        self.stage = Stage::Holding(grant.clone(), left - 1);
        Ok(match world.below(4) {
            0 => Act::Get(grant.ask.resource),
            1 => Act::Check(grant),
            _ => {
                let late = world.authority.mutant == Some(Mutant::HandoffWithoutRaise);
                let mut read = 0;
                if !(late && grant.ask.strict) {
                    let (_, counter, line) = world.dest.ask(&grant, self.cluster, None);
                    world.book(&line)?;
                    read = counter;
                }
                world.next_element += 1;
                Act::Write { grant, element: format!("e{}", world.next_element), read }
            }
        })
    }

    /// The request arrives, perhaps where nobody leads any more; the answer may be lost.
    pub fn effect(&mut self, world: &mut World) -> Result<()> {
        world.settle()?;
        let act = self.act.clone().expect("an effect has an act");
        let elsewhere = !matches!(act, Act::Write { .. }) && world.old.is_some();
        // Some have no way to the new leader.
        let stale = elsewhere && (self.number.is_multiple_of(3) || world.chance(200));
        self.end = if stale { self.stale(&act, world) } else { self.apply(&act, world)? };
        world.settle()?;
        let wait = if world.chance(30) {
            self.end = Completion::new(Kind::Info, Value::Null);
            self.end.error = Some("timeout".into());
            200 * MS
        } else {
            MS / 2 + world.below(6 * MS)
        };
        world.plan(wait, Due::Return(self.number));
        Ok(())
    }

    /// A leader that is none any more.
    fn stale(&self, act: &Act, world: &mut World) -> Completion {
        let old = world.old.as_mut().expect("there is one");
        match (act, old.mutant) {
            (Act::Renew, Some(Mutant::RenewWithoutLeadership)) => {
                done(old.renew(world.now, self.session), json!({"ttl_ms": TTL / MS}))
            }
            (Act::Get(resource), Some(Mutant::ReadWithoutQuorum)) => {
                let mut end = Completion::new(Kind::Ok, holders(old, resource));
                end.log_index = Some(old.index);
                end
            }
            (_, _) => {
                let mut end = Completion::new(Kind::Info, Value::Null);
                end.error = Some("OUTCOME_UNKNOWN".into());
                end
            }
        }
    }

    fn apply(&self, act: &Act, world: &mut World) -> Result<Completion> {
        let (now, session) = (world.now, self.session);
        if self.cluster != world.authority.cluster
            && !matches!(act, Act::Get(_) | Act::Check(_) | Act::Write { .. })
        {
            return Ok(done(Err("SESSION_UNKNOWN"), Value::Null));
        }
        let authority = &mut world.authority;
        Ok(match act {
            Act::Open => {
                let session = authority.open(now);
                done(Ok(()), json!({"session": session, "ttl_ms": TTL / MS}))
            }
            Act::Renew => done(authority.renew(now, session), json!({"ttl_ms": TTL / MS})),
            Act::Close => done(authority.close(now, session), Value::Null),
            Act::Acquire(ask) => match authority.acquire(now, ask) {
                Answer::Granted(grant) => done(
                    Ok(()),
                    json!({"token": grant.token,
                    "floor": grant.floor, "slot": grant.slot}),
                ),
                Answer::Queued(ahead) => done(Ok(()), json!({"queued_ahead": ahead})),
                Answer::Refused(reason) => done(Err(reason), Value::Null),
            },
            Act::Confirm(grant) => {
                done(authority.confirm(session, &grant.ask.resource, grant.token), Value::Null)
            }
            Act::Release { resource, token, .. } => {
                done(authority.release(now, session, resource, *token), Value::Null)
            }
            Act::Get(resource) => {
                let mut end = Completion::new(Kind::Ok, holders(authority, resource));
                end.log_index = Some(authority.index);
                end
            }
            Act::Check(grant) => {
                let all = authority.holders(&grant.ask.resource);
                let shown = |g: &Grant| g.token == grant.token && g.active;
                let current = all.iter().any(shown);
                done(
                    Ok(()),
                    json!({"current": current, "mode": word(grant.ask.mode),
                    "slot": grant.slot}),
                )
            }
            Act::Write { grant, element, read } => {
                let (accepted, _, line) =
                    world.dest.ask(grant, self.cluster, Some((element, *read)));
                world.book(&line)?;
                done(if accepted { Ok(()) } else { Err("FENCED") }, Value::Null)
            }
        })
    }

    /// The answer arrives.
    pub fn answered(&mut self, world: &mut World) -> Result<()> {
        let end = self.end.clone();
        let event = world.journal.complete(world.now, self.process, end)?;
        let act = self.act.take().expect("an answer has an act");
        if event.kind == Kind::Info {
            self.process = world.next_process;
            world.next_process += 1;
        }
        self.go_on(act, &event, world);
        // Some stop for longer than their lease, before they go on as if nothing had been.
        let often = if matches!(self.stage, Stage::Holding(..)) { 80 } else { 10 };
        let long = self.prove.is_none() && world.chance(often);
        let short = match self.stage {
            Stage::Barrier(_) => 400,
            Stage::Asking(_) => 200,
            Stage::Outside | Stage::Idle | Stage::Holding(..) | Stage::Done => 60,
        };
        let pause = if long { TTL + world.below(TTL) } else { 2 * MS + world.below(short * MS) };
        if long {
            self.renewed = world.now + pause;
        }
        world.plan(pause, Due::Think(self.number));
        Ok(())
    }

    fn go_on(&mut self, act: Act, event: &crate::history::Op, world: &mut World) {
        let over = matches!(event.error.as_deref(), Some("SESSION_EXPIRED" | "SESSION_UNKNOWN"));
        let number = |name: &str| event.value.get(name).and_then(Value::as_u64);
        match (act, event.kind) {
            (Act::Open, Kind::Ok) => {
                self.session = number("session").unwrap_or(0);
                self.renewed = event.time;
                self.request = 0;
                self.stage = Stage::Idle;
                self.late = None;
            }
            (Act::Renew, Kind::Ok) => self.renewed = event.time,
            (Act::Close, _) => self.stage = Stage::Outside,
            (Act::Acquire(ask), Kind::Ok) => {
                if let Some(token) = number("token") {
                    if let Some(left) = &mut self.prove {
                        left.retain(|name| *name != ask.resource);
                    }
                    let holders = world.authority.holders(&ask.resource);
                    let grant = holders.into_iter().find(|grant| grant.token == token);
                    self.granted(grant, world);
                }
            }
            (Act::Acquire(_), Kind::Fail) => self.stage = Stage::Idle,
            (Act::Confirm(grant), Kind::Ok) => {
                self.stage = Stage::Holding(grant, 1 + world.below(4));
            }
            (Act::Confirm(_), Kind::Fail) => self.stage = Stage::Idle,
            (Act::Release { resource, token, late: false }, Kind::Ok | Kind::Fail) => {
                if world.chance(300) {
                    let time = world.now + world.below(1_500 * MS);
                    self.late = Some((time, resource, token));
                }
                self.stage = Stage::Idle;
            }
            (_, Kind::Invoke | Kind::Ok | Kind::Fail | Kind::Info) => {}
        }
        if over {
            self.stage = Stage::Outside;
        }
    }

    fn granted(&mut self, grant: Option<Grant>, world: &mut World) {
        self.stage = match grant {
            Some(grant) if grant.ask.strict && !grant.active => Stage::Barrier(grant),
            Some(grant) => Stage::Holding(grant, world.below(5)),
            None => Stage::Idle,
        };
        // A crash: nobody gives it back.
        if self.prove.is_none() && world.chance(40) {
            self.stage = Stage::Outside;
        }
    }
}

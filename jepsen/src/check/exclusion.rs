//! W1, W6, W7: who may hold a resource beside whom.
//!
//! Reads `acquire` (session, request, resource, more, mode, slots; token, slot), `release`,
//! `confirm`, `open`, `renew`, `close`, `revoke`, `freeze`, `thaw`, and the audit feed's grants.
//!
//! Of two grants that exclude each other, the one with the higher token must not have been
//! returned before the earliest legal end of the other: by tokens upwards, the highest such end
//! so far is all that must be remembered.

use std::collections::{BTreeMap, HashMap};

use super::evidence::{Hand, Mode, NEVER, Name};
use super::facts::Tenure;
use super::{Checker, Run, Verdict, ms, session};

/// W1: an exclusive grant, or a freeze, stands alone.
pub struct Exclusion;
/// W6: shared grants stand beside shared ones only, and no two modes together.
pub struct Sharing;
/// W7: at most so many holders as slots, each in one of its own.
pub struct Slots;

impl Checker for Exclusion {
    fn name(&self) -> &'static str {
        "exclusion"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        sweep(run, verdict, |before, after| before == Kind::Frozen || (before, after) == BOTH);
    }
}

impl Checker for Sharing {
    fn name(&self) -> &'static str {
        "sharing"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        sweep(run, verdict, |before, after| before != after && before != Kind::Frozen);
    }
}

impl Checker for Slots {
    fn name(&self) -> &'static str {
        "slots"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        sweep(run, verdict, |before, after| (before, after) == (Kind::Slots, Kind::Slots));
        for (resource, tenures) in run.facts.resources() {
            capacity(run, resource, tenures, verdict);
        }
    }
}

const BOTH: (Kind, Kind) = (Kind::Exclusive, Kind::Exclusive);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Exclusive,
    Shared,
    Slots,
    Frozen,
}

fn kind(mode: Mode) -> Kind {
    match mode {
        Mode::Exclusive => Kind::Exclusive,
        Mode::Shared => Kind::Shared,
        Mode::Slots => Kind::Slots,
    }
}

/// What stood longest so far: until when, its token, the index of its return.
#[derive(Clone, Copy)]
struct Standing {
    until: u64,
    token: u64,
    index: u64,
}

/// By tokens upwards over each resource; `wanted` says which pairs are this checker's.
fn sweep(run: &Run, verdict: &mut Verdict, wanted: impl Fn(Kind, Kind) -> bool) {
    let freezes = freezes(run);
    for (resource, tenures) in run.facts.resources() {
        let mut longest: HashMap<(Kind, Option<u32>), Standing> = HashMap::new();
        let mut frozen = freezes.get(&resource).map_or(&[][..], Vec::as_slice).iter().peekable();
        for tenure in tenures {
            while let Some(freeze) = frozen.next_if(|freeze| freeze.token < tenure.token) {
                stand(&mut longest, (Kind::Frozen, None), *freeze);
            }
            let own = kind(tenure.mode);
            for (key, before) in &longest {
                let excludes = match (key.0, own) {
                    (Kind::Shared, Kind::Shared) => false,
                    (Kind::Slots, Kind::Slots) => key.1.is_some() && key.1 == tenure.slot,
                    (Kind::Exclusive | Kind::Shared | Kind::Slots | Kind::Frozen, _) => true,
                };
                if excludes && wanted(key.0, own) && tenure.returned.0 < before.until {
                    convict(run, verdict, tenure, *before, key.0);
                }
            }
            if wanted(own, own) || wanted(Kind::Exclusive, own) {
                verdict.add("grants", 1);
            }
            let until = tenure.end;
            let standing = Standing { until, token: tenure.token, index: shown_by(run, tenure) };
            stand(&mut longest, (own, tenure.slot), standing);
        }
    }
}

fn stand(
    longest: &mut HashMap<(Kind, Option<u32>), Standing>,
    key: (Kind, Option<u32>),
    new: Standing,
) {
    let known = longest.entry(key).or_insert(new);
    if new.until > known.until {
        *known = new;
    }
}

/// The event that shows a grant: its return, or its request if the answer was lost.
fn shown_by(run: &Run, tenure: &Tenure) -> u64 {
    let sure = run.facts.lives.get(&tenure.session).map_or(0, |life| life.sure_by);
    if tenure.returned.0 == NEVER { sure } else { tenure.returned.1 }
}

fn convict(run: &Run, verdict: &mut Verdict, after: &Tenure, before: Standing, kind: Kind) {
    let what = if kind == Kind::Frozen { "the freeze with token" } else { "token" };
    let text = format!(
        "token {} was returned at {} to {} while {what} {} stood at least until {}",
        after.token,
        ms(after.returned.0),
        session(after.session),
        before.token,
        if before.until == NEVER { "its thaw".to_owned() } else { ms(before.until) },
    );
    verdict.convict(run.name(after.resource), &[before.index, after.returned.1], text);
}

/// The freezes that came back, by resource and token, each until its thaw was first invoked.
fn freezes(run: &Run) -> BTreeMap<Name, Vec<Standing>> {
    let mut thawed: HashMap<u64, u64> = HashMap::new();
    let admin = &run.evidence.admin;
    for thaw in admin.iter().filter(|a| a.hand == Hand::Thaw && a.at.maybe()) {
        let first = thawed.entry(thaw.token).or_insert(NEVER);
        *first = thaw.at.t_inv.min(*first);
    }
    let mut freezes: BTreeMap<Name, Vec<Standing>> = BTreeMap::new();
    for freeze in admin.iter().filter(|a| a.hand == Hand::Freeze) {
        let Some(token) = freeze.by else { continue };
        let until = thawed.get(&token).copied().unwrap_or(NEVER);
        let standing = Standing { until, token, index: freeze.at.ret };
        freezes.entry(freeze.resource).or_default().push(standing);
    }
    freezes.values_mut().for_each(|all| all.sort_by_key(|freeze| freeze.token));
    freezes
}

/// At no instant more holders that are sure than slots.
fn capacity(run: &Run, resource: Name, tenures: &[Tenure], verdict: &mut Verdict) {
    for tenure in tenures.iter().filter(|t| t.mode == Mode::Slots && t.slot >= Some(t.slots)) {
        let slot = tenure.slot.unwrap_or(0);
        let what = format!("token {} has slot {slot} of {}", tenure.token, tenure.slots);
        verdict.convict(run.name(resource), &[shown_by(run, tenure)], what);
    }
    let slotted = tenures.iter().filter(|t| t.mode == Mode::Slots && t.returned.0 < t.end);
    let mut edges: Vec<(u64, bool, u64, u32, u64)> = Vec::new();
    for tenure in slotted {
        edges.push((tenure.returned.0, true, tenure.returned.1, tenure.slots, tenure.token));
        edges.push((tenure.end, false, 0, tenure.slots, tenure.token));
    }
    // What ends at an instant ends before anything begins at it.
    edges.sort_unstable();
    let mut holders: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
    for (time, begins, index, slots, token) in edges {
        if !begins {
            holders.remove(&token);
            continue;
        }
        holders.insert(token, (slots, index));
        let most = holders.values().map(|holder| holder.0).max().unwrap_or(0);
        if holders.len() > most as usize {
            let ops: Vec<u64> = holders.values().map(|holder| holder.1).collect();
            let what = format!("{} holders of {most} slots at {}", holders.len(), ms(time));
            verdict.convict(run.name(resource), &ops, what);
            holders.remove(&token);
        }
    }
}

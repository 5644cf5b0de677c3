//! Hosts in namespaces of their own, all on one switch, and what the links between them do.

use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use super::Run;
use super::command::run_with;

mod namespace;
mod poll;
mod rule;
mod switch;
mod tap;

pub use namespace::Namespace;
pub use rule::{Counts, Rule};
pub use switch::FRAMES_MAX;

use switch::Switch;

/// How many hosts a network may have: their addresses end in their number.
pub const HOSTS_MAX: usize = 250;

/// One host: a namespace with one device on the switch.
#[derive(Debug)]
pub struct Host {
    /// Its name within the run, `n1` say.
    pub name: String,
    /// Its address; nobody outside the run's namespaces can reach it.
    pub address: Ipv4Addr,
    /// Where its processes run.
    pub namespace: Namespace,
}

/// The hosts of a run and the switch between them. Every host knows the addresses of all others
/// beforehand, so that no cut is prolonged by address resolution.
#[derive(Debug)]
pub struct Network {
    /// Stops before the namespaces go.
    switch: Switch,
    hosts: Vec<Host>,
}

impl Network {
    /// Makes a host per name. `seed` decides which frames the rules' chances hit.
    ///
    /// # Errors
    /// Two hosts of one name, or more than [`HOSTS_MAX`]; iproute2 or the kernel's TAP devices
    /// are missing.
    pub fn make(run: &Arc<Run>, names: &[&str], seed: u64) -> Result<Self> {
        ensure!(names.len() <= HOSTS_MAX, "a network has at most {HOSTS_MAX} hosts");
        let mut hosts: Vec<Host> = Vec::new();
        let mut ports = Vec::new();
        for (number, name) in (1u8..).zip(names) {
            ensure!(hosts.iter().all(|host| host.name != *name), "two hosts are named {name}");
            let namespace = Namespace::make(run, name)?;
            ports.push(tap::open(&namespace)?);
            set_up(&namespace, number, names.len())?;
            hosts.push(Host { name: (*name).into(), address: address(number), namespace });
        }
        Ok(Self { switch: Switch::start(ports, seed)?, hosts })
    }

    /// All hosts, in the order of their numbers.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn host(&self, name: &str) -> Result<&Host> {
        Ok(&self.hosts[self.place(name)?])
    }

    /// Puts a rule in force on the link from one host to another; the way back keeps its own.
    ///
    /// # Errors
    /// There is no such host.
    pub fn set(&self, from: &str, to: &str, rule: Rule) -> Result<()> {
        self.switch.set(self.place(from)?, self.place(to)?, rule);
        Ok(())
    }

    /// Puts a rule in force both ways between each host of one side and each of the other.
    ///
    /// # Errors
    /// There is no such host.
    pub fn set_between(&self, side: &[&str], other: &[&str], rule: Rule) -> Result<()> {
        for (one, two) in side.iter().flat_map(|one| other.iter().map(move |two| (one, two))) {
            if one != two {
                self.set(one, two, rule)?;
                self.set(two, one, rule)?;
            }
        }
        Ok(())
    }

    /// Takes all rules back. What is on its way still arrives at its time.
    pub fn heal(&self) {
        self.switch.heal();
    }

    /// The rule in force on a directed link.
    ///
    /// # Errors
    /// There is no such host.
    pub fn rule(&self, from: &str, to: &str) -> Result<Rule> {
        Ok(self.switch.rule(self.place(from)?, self.place(to)?))
    }

    /// What a directed link has done since the network was made.
    ///
    /// # Errors
    /// There is no such host.
    pub fn counts(&self, from: &str, to: &str) -> Result<Counts> {
        Ok(self.switch.counts(self.place(from)?, self.place(to)?))
    }

    fn place(&self, name: &str) -> Result<usize> {
        let place = self.hosts.iter().position(|host| host.name == name);
        place.with_context(|| format!("no host is named {name}"))
    }
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

/// The switch knows a host by the last byte.
fn hardware(number: u8) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

fn set_up(namespace: &Namespace, number: u8, hosts: usize) -> Result<()> {
    let device = tap::DEVICE;
    // Or the kernel would send frames of its own, and the counters would count them.
    let ipv6 = format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6");
    namespace
        .within(|| if Path::new(&ipv6).exists() { fs::write(&ipv6, "1") } else { Ok(()) })?
        .context("cannot turn IPv6 off in a namespace")?;
    let mut batch = format!(
        "link set {device} address {} up\naddress add {}/24 dev {device}\n",
        hardware(number),
        address(number)
    );
    let all = u8::try_from(hosts).expect("HOSTS_MAX fits a byte");
    for other in (1..=all).filter(|other| *other != number) {
        let (to, at) = (address(other), hardware(other));
        writeln!(batch, "neigh replace {to} lladdr {at} dev {device} nud permanent")
            .expect("a String takes all");
    }
    run_with("ip", &["-n", namespace.name(), "-batch", "-"], &batch).map(drop)
}

//! A node that loses its memory and comes back, and one that is sent a snapshot.

use ringfence::leases::Leases;
use ringfence::locks::{LockTable, Row};

use crate::counts::Count;
use crate::faults::ShellRule;
use crate::network::Snapshot;
use crate::node::Node;
use crate::properties::i10_same_state;
use crate::shell::Shell;
use crate::tell;
use crate::time::Micros;
use crate::world::{Event, World};

impl Node {
    /// Loses all that was in memory.
    pub fn crash(&mut self, world: &mut World, until: Micros) {
        if !self.up {
            return;
        }
        tell!(world, "n{} crashes", self.id);
        self.up = false;
        self.epoch += 1;
        self.leading = None;
        world.at(until, Event::Up { node: self.id });
    }

    /// Comes back with its log and with rows as they stood at some entry.
    pub fn restart(&mut self, world: &mut World) {
        let whole = world.setup.holds(ShellRule::RowsAreWhole);
        let rows = self.disk.rows().filter(|row| whole || !matches!(row, Row::Outcome(_)));
        let rows: Vec<_> = rows.collect();
        let table = LockTable::from_rows(rows).expect("rows of a table make a table");
        self.table = table.with_switches(world.setup.rules);
        self.up = true;
        self.paused_until = 0;
        (self.hint, self.apply_due) = (None, false);
        self.purposes.clear();
        let leases = Leases::restore(&self.table, self.clock.at(world.now));
        self.shell = Shell::new(leases, world.setup);
        self.committed = self.applied();
        tell!(world, "n{} restarts at {}", self.id, self.applied());
        world.counts.add(Count::Restarts);
        world.properties.late.restarted(self.id, world.now);
        let same = i10_same_state::loaded(self.id, &self.table, &world.log);
        world.check("I10", same);
    }

    /// Replaces its table by a snapshot that is ahead of it.
    pub fn install(&mut self, world: &mut World, snapshot: &Snapshot) {
        let table = LockTable::from_rows(snapshot.rows.iter().cloned());
        let table = table.expect("rows of a table make a table");
        let at = table.position().index as usize;
        if at <= self.applied() {
            return;
        }
        self.table = table.with_switches(world.setup.rules);
        self.disk = self.table.clone();
        self.shell.leases = self.shell.leases.installed(&self.table, self.clock.at(world.now));
        let continues = self.log.len() > at && self.log[at - 1].term == snapshot.log[at - 1].term;
        let rest = if continues { self.log.split_off(at) } else { Vec::new() };
        self.log = snapshot.log[..at].to_vec();
        self.log.extend(rest);
        self.committed = self.committed.max(at);
        tell!(world, "n{} installs a snapshot at {at}", self.id);
        world.counts.add(Count::Snapshots);
        world.properties.late.installed(self.id, world.now);
        let same = i10_same_state::loaded(self.id, &self.table, &world.log);
        world.check("I10", same);
    }
}

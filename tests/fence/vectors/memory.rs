//! The pure rule, in the memory of one process: nothing to crash.

use std::sync::{Arc, Mutex};

use ringfence::fence::{Fence, FenceError, MemoryMarks};
use ringfence::locks::{ClusterId, ResourceName, Token};

use super::{Client, Destination};

#[derive(Default)]
struct Memory(Arc<(MemoryMarks, Mutex<Vec<String>>)>);

struct Writer(Arc<(MemoryMarks, Mutex<Vec<String>>)>);

impl Destination for Memory {
    type Client = Writer;

    async fn client(&self) -> Writer {
        Writer(Arc::clone(&self.0))
    }
}

impl Client for Writer {
    async fn write(&mut self, fences: &[Fence], line: &str) -> Result<(), FenceError> {
        let (marks, ledger) = &*self.0;
        let write = || ledger.lock().expect("no writer panics").push(line.to_owned());
        match fences {
            [fence] => marks.guarded(fence, write),
            set => marks.guarded_set(set, write),
        }
    }

    async fn raise(&mut self, fences: &[Fence]) -> Result<(), FenceError> {
        match fences {
            [fence] => self.0.0.raise(fence),
            set => self.0.0.guarded_set(set, || ()),
        }
    }

    async fn mark(&mut self, resource: &ResourceName, slot: Option<u32>) -> Option<Token> {
        self.0.0.mark(resource, slot)
    }

    async fn adopt(&mut self, from: ClusterId, to: ClusterId) {
        self.0.0.adopt(from, to);
    }

    async fn ledger(&mut self) -> Vec<String> {
        self.0.1.lock().expect("no writer panics").clone()
    }
}

#[test]
fn memory_passes_every_vector() {
    super::tells_every_case(&Memory::default());
}

#[test]
fn sixteen_writers_never_take_memory_back() {
    super::sixteen_writers_never_take_it_back(&Memory::default());
}

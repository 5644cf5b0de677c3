//! An object in the memory store of the crate; the process that is killed is the writer, before
//! and after each of its calls. What the store has answered it keeps.

use std::sync::Arc;

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use ringfence::fence::{Fence, FenceError, object::Guarded};
use ringfence::locks::{ClusterId, ResourceName, Token};

use super::{Client, Destination, Op, Vectors};
use crate::object::{Faulty, Trouble};

struct Store(Arc<InMemory>);

struct Writer(Guarded);

fn location() -> Path {
    Path::from("jobs/ledger")
}

impl Store {
    fn new() -> Self {
        let store = Self(Arc::new(InMemory::new()));
        super::runtime().block_on(store.object().install()).expect("it keeps conditions");
        store
    }

    fn object(&self) -> Guarded {
        Guarded::new(self.0.clone(), location())
    }
}

impl Destination for Store {
    type Client = Writer;

    async fn client(&self) -> Writer {
        Writer(self.object())
    }
}

impl Client for Writer {
    async fn write(&mut self, fences: &[Fence], line: &str) -> Result<(), FenceError> {
        let append = |old: Option<&Bytes>| {
            let old = old.map_or(&[][..], |old| old);
            [old, line.as_bytes(), b"\n"].concat().into()
        };
        self.0.update(fences, append).await
    }

    async fn raise(&mut self, fences: &[Fence]) -> Result<(), FenceError> {
        self.0.raise(fences).await
    }

    async fn mark(&mut self, resource: &ResourceName, slot: Option<u32>) -> Option<Token> {
        self.0.mark(resource, slot).await.expect("installed")
    }

    async fn adopt(&mut self, from: ClusterId, to: ClusterId) {
        assert!(self.0.adopt(from, to).await.expect("installed") > 0);
    }

    async fn ledger(&mut self) -> Vec<String> {
        let lines = self.0.read().await.expect("installed").unwrap_or_default();
        let lines = String::from_utf8(lines.into()).expect("text");
        lines.lines().map(str::to_owned).collect()
    }
}

#[test]
fn objects_pass_every_vector() {
    super::tells_every_case(&Store::new());
}

#[test]
fn sixteen_writers_never_take_an_object_back() {
    super::sixteen_writers_never_take_it_back(&Store::new());
}

#[tokio::test]
async fn an_object_is_as_every_crash_may_leave_it_cut_off_at_every_call() {
    let mut cut = 0;
    for crash in Vectors::read().crash {
        for trouble in [Trouble::EndsBefore, Trouble::EndsAfter] {
            for call in 1.. {
                let store = Store(Arc::new(InMemory::new()));
                store.object().install().await.expect("it keeps conditions");
                super::before(&mut store.client().await, &crash).await;
                let faulty = Arc::new(Faulty::new(Arc::clone(&store.0), trouble, call));
                let mut writer = Writer(Guarded::new(faulty.clone(), location()));
                let fences = crash.last.offer.fences().expect("well-formed");
                let line = crash.line(crash.before.len());
                let offered = async {
                    match crash.last.op {
                        Op::Raise => writer.raise(&fences).await,
                        Op::Write | Op::ReadMark | Op::Adopt => writer.write(&fences, &line).await,
                    }
                };
                let answer = tokio::select! {
                    answer = offered => Some(answer),
                    () = faulty.ended() => None,
                };
                cut += usize::from(answer.is_none());
                if answer.is_some() || !crash.answered {
                    let mut next = store.client().await;
                    super::is_as_the_crash_may_leave_it(&mut next, &crash).await;
                }
                if let Some(answer) = answer {
                    let answered = matches!(answer, Ok(()) | Err(FenceError::Stale { .. }));
                    assert!(answered, "{}: {answer:?}", crash.name);
                    break;
                }
            }
        }
    }
    assert!(cut > 20, "cut off {cut} times only");
}

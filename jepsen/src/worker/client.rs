//! The harness's end of a client process: gives orders, stamps them, and reads what came of them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::sync::oneshot;

use super::order::{Answer, Order};
use crate::history::{Completion, Kind};
use crate::means::Run;
use crate::means::net::Network;
use crate::means::process::{Process, Spec};
use crate::run::book::Book;

/// A client process, over all its starts.
#[derive(Debug)]
pub struct Client {
    /// `c1`, and the name of its host.
    pub name: String,
    run: Arc<Run>,
    network: Arc<Network>,
    book: Arc<Book>,
    log: PathBuf,
    ids: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Process>,
    orders: Option<ChildStdin>,
    start: u64,
    pending: HashMap<u64, Pending>,
    /// What went wrong with the history itself.
    failure: Option<String>,
}

#[derive(Debug)]
struct Pending {
    process: u32,
    start: u64,
    answer: oneshot::Sender<Answer>,
}

/// A process of the history: one operation at a time, and a new number after `info`.
#[derive(Debug)]
pub struct Lane {
    process: u32,
}

impl Lane {
    /// A process of its own.
    #[must_use]
    pub fn new(book: &Book) -> Lane {
        Lane { process: book.process() }
    }
}

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Wish<'a> {
    /// The operation's name.
    pub f: &'a str,
    /// Its arguments.
    pub args: Value,
    /// What the history does not tell.
    pub aside: Value,
    /// The name of the node that is asked.
    pub node: Option<&'a str>,
    /// The address that is asked.
    pub address: &'a str,
    /// After so long without an answer the outcome is unknown.
    pub timeout_ms: u64,
}

impl Client {
    /// Starts a client process on the host of this name.
    ///
    /// # Errors
    /// There is no such host, or it cannot be started.
    pub fn start(
        run: &Arc<Run>,
        network: &Arc<Network>,
        book: &Arc<Book>,
        name: &str,
        logs: &Path,
    ) -> Result<Arc<Client>> {
        let client = Arc::new(Client {
            name: name.to_owned(),
            run: Arc::clone(run),
            network: Arc::clone(network),
            book: Arc::clone(book),
            log: logs.join(format!("{name}.log")),
            ids: AtomicU64::new(0),
            state: Mutex::default(),
        });
        client.restart()?;
        Ok(client)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it again after a kill.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn restart(self: &Arc<Self>) -> Result<()> {
        let program = std::env::current_exe()?;
        let host = self.network.host(&self.name)?;
        let spec = Spec {
            args: vec!["worker".into()],
            namespace: Some(&host.namespace),
            pipes: true,
            ..Spec::new(&self.name, &program, self.log.clone())
        };
        let mut process = Process::start(&self.run, spec)?;
        let (orders, answers) = process.take_pipes().context("a worker has pipes")?;
        let mut state = self.state();
        state.start += 1;
        let start = state.start;
        state.process = Some(process);
        state.orders = Some(orders);
        drop(state);
        let client = Arc::clone(self);
        std::thread::Builder::new()
            .name(format!("{} answers", self.name))
            .spawn(move || client.read(start, answers))?;
        Ok(())
    }

    /// Completes operations as their answers come; with the process all outstanding ones end.
    fn read(&self, start: u64, answers: ChildStdout) {
        for line in BufReader::new(answers).lines() {
            let Ok(answer) = line
                .map_err(anyhow::Error::from)
                .and_then(|line| Ok(serde_json::from_str::<Answer>(&line)?))
            else {
                break;
            };
            let pending = self.state().pending.remove(&answer.id);
            if let Some(pending) = pending {
                self.settle(pending, answer);
            }
        }
        let mut state = self.state();
        if state.start == start {
            state.orders = None;
        }
        let left = state.pending.extract_if(|_, pending| pending.start == start);
        let left: Vec<(u64, Pending)> = left.collect();
        drop(state);
        for (id, pending) in left {
            let error = Some("client-killed".to_owned());
            self.settle(pending, Answer::of(id, Kind::Info, Value::Null, error));
        }
    }

    fn settle(&self, pending: Pending, answer: Answer) {
        let completion = Completion {
            error: answer.error.clone(),
            log_index: answer.log_index,
            ..Completion::new(answer.kind, answer.value.clone())
        };
        if let Err(error) = self.book.complete(pending.process, completion) {
            self.state().failure = Some(format!("{error:#}"));
        }
        // Whoever ordered it may have gone.
        drop(pending.answer.send(answer));
    }

    /// Does one operation. None if the client process is down.
    pub async fn call(&self, lane: &mut Lane, wish: Wish<'_>) -> Option<Answer> {
        let received = {
            let mut state = self.state();
            let id = self.ids.fetch_add(1, Ordering::Relaxed) + 1;
            let start = state.start;
            let order = Order {
                id,
                f: wish.f.to_owned(),
                args: wish.args.clone(),
                aside: wish.aside,
                address: wish.address.to_owned(),
                timeout_ms: wish.timeout_ms,
            };
            let line = serde_json::to_string(&order).expect("an order is JSON");
            state.orders.as_ref()?;
            if let Err(error) = self.book.invoke(lane.process, wish.f, wish.args, wish.node) {
                state.failure = Some(format!("{error:#}"));
                return None;
            }
            let (answer, received) = oneshot::channel();
            state.pending.insert(id, Pending { process: lane.process, start, answer });
            let orders = state.orders.as_mut()?;
            // If it is dead already, the reader ends what is outstanding.
            drop(writeln!(orders, "{line}"));
            received
        };
        let answer = received.await.ok()?;
        if answer.kind == Kind::Info {
            *lane = Lane::new(&self.book);
        }
        Some(answer)
    }

    /// Waits until it can be ordered again.
    pub async fn alive(&self) {
        while self.state().orders.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Stops every thread of it.
    ///
    /// # Errors
    /// It is down.
    pub fn pause(&self) -> Result<()> {
        self.state().process.as_mut().context("it is down")?.pause()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// It is down.
    pub fn resume(&self) -> Result<()> {
        self.state().process.as_mut().context("it is down")?.resume()
    }

    /// How many operations are outstanding.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.state().pending.len()
    }

    /// Kills it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill(&self) -> Result<()> {
        let process = self.state().process.take();
        if let Some(mut process) = process {
            process.kill()?;
        }
        Ok(())
    }

    /// What went wrong with the history itself.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.state().failure.clone()
    }
}

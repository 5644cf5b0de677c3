//! All that a run acts on: network, nodes, clients, destination and who observes them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::book::Book;
use super::options::Options;
use crate::cluster::observe::Observed;
use crate::cluster::{self, Cluster, View};
use crate::means::Run;
use crate::means::net::Network;
use crate::means::process::{Process, Spec};
use crate::nemesis::Nemesis;
use crate::worker::client::Client;
use crate::workload::World;

/// How many client processes.
const CLIENTS: usize = 6;
/// The host that no fault touches.
const OBSERVER: &str = "obs";
/// The host of the destination.
const DESTINATION: &str = "d1";

/// The stage of a run. What it holds goes with it.
pub struct Stage {
    /// What workloads act in.
    pub world: Arc<World>,
    /// Client processes.
    pub clients: Vec<Arc<Client>>,
    cluster: Arc<Mutex<Cluster>>,
    nodes: usize,
    fed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    observers: Mutex<Vec<JoinHandle<Result<()>>>>,
    _dest: Process,
    run: Arc<Run>,
}

impl Stage {
    /// Makes and starts everything.
    ///
    /// # Errors
    /// A means does not work here.
    pub fn set(options: &Options, folder: &Path) -> Result<Stage> {
        let run = Run::start()?;
        let clients: Vec<String> = (1..=CLIENTS).map(|number| format!("c{number}")).collect();
        let nodes: Vec<String> = (1..=options.nodes).map(cluster::name).collect();
        let hosts = nodes.iter().chain(&clients).map(String::as_str);
        let hosts: Vec<&str> = hosts.chain([DESTINATION, OBSERVER]).collect();
        let network = Arc::new(Network::make(&run, &hosts, options.seed)?);
        let book = Arc::new(Book::begin(folder)?);
        let dest = format!("{}:9000", network.host(DESTINATION)?.address);
        let process = destination(&run, &network, &dest, folder, options)?;
        let settings = cluster::Settings {
            binary: options.binary.canonicalize()?,
            nodes: options.nodes,
            heartbeat_ms: 100,
            election_ms: 500,
            ttl_min_ms: 500,
            environment: options
                .mutant
                .iter()
                .map(|name| ("RINGFENCE_MUTANT".to_owned(), name.clone()))
                .collect(),
        };
        let cluster = Cluster::start(&run, Arc::clone(&network), settings, folder)?;
        let started = clients.iter().map(|name| Client::start(&run, &network, &book, name, folder));
        let clients = started.collect::<Result<Vec<_>>>()?;
        let view = Arc::new(View::default());
        let world = Arc::new(World {
            book,
            view,
            nodes: cluster.nodes.iter().map(|n| (n.name.clone(), n.address.clone())).collect(),
            dest,
            stop: AtomicBool::new(false),
            used: Mutex::default(),
            tokens: Mutex::default(),
            elements: AtomicU64::new(0),
        });
        let stage = Stage {
            world,
            clients,
            nodes: options.nodes,
            fed: Arc::default(),
            stop: Arc::default(),
            observers: Mutex::default(),
            cluster: Arc::new(Mutex::new(cluster)),
            _dest: process,
            run,
        };
        stage.observe(&network, folder)?;
        Ok(stage)
    }

    /// A thread on the observer's host that asks and follows the nodes.
    fn observe(&self, network: &Arc<Network>, folder: &Path) -> Result<()> {
        let cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let observed: Vec<Observed> = cluster
            .nodes
            .iter()
            .map(|node| Observed {
                name: node.name.clone(),
                address: node.address.clone(),
                starts: Arc::clone(&node.starts),
            })
            .collect();
        drop(cluster);
        let (network, folder) = (Arc::clone(network), folder.to_owned());
        let (world, fed, stop) =
            (Arc::clone(&self.world), Arc::clone(&self.fed), Arc::clone(&self.stop));
        let thread = std::thread::Builder::new().name("observer".into()).spawn(move || {
            let host = network.host(OBSERVER)?;
            host.namespace.within(|| watch_all(&observed, &folder, &world, &fed, &stop))?
        })?;
        self.observers.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Waits until the nodes agree.
    ///
    /// # Errors
    /// They do not.
    pub fn agreed(&self, patience: Duration) -> Result<()> {
        cluster::wait_agreed(&self.world.view, self.nodes, patience)
    }

    /// Waits until the feed has come as far as the nodes.
    ///
    /// # Errors
    /// It has not in time.
    pub fn feed_complete(&self, patience: Duration) -> Result<()> {
        let end = Instant::now() + patience;
        loop {
            // An entry without events may be the last one: what is left behind it says nothing.
            let fed = self.fed.load(Ordering::SeqCst);
            let applied = self.world.view.all().values().map(|told| told.applied).max();
            if fed + 4 >= applied.unwrap_or(u64::MAX) {
                // The events of its last entry are on their way together.
                std::thread::sleep(Duration::from_millis(500));
                return Ok(());
            }
            if Instant::now() > end {
                bail!("the audit feed has come to {fed} of {applied:?} only");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Who makes faults here.
    #[must_use]
    pub fn nemesis(&self, seed: u64) -> Nemesis {
        let world = &self.world;
        Nemesis::new(&self.run, &self.cluster, &self.clients, &world.view, &world.book, seed)
    }

    /// Takes everything back.
    ///
    /// # Errors
    /// Something cannot be.
    pub fn heal(&self) -> Result<()> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner).heal()
    }

    /// How far the run is.
    #[must_use]
    pub fn in_words(&self) -> String {
        let tally = self.world.book.tally();
        let all = self.world.view.all();
        let fresh = all.values().filter(|told| told.age() < Duration::from_secs(1));
        let leader = self.world.view.leader().unwrap_or_else(|| "nobody".into());
        format!(
            "{:>5.1} s: {} ok, {} refused, {} unknown; {} of {} nodes answer, {leader} leads, \
             term {}, {} applied, {} fed",
            self.world.book.now() as f64 / 1e9,
            tally.ok,
            tally.fail,
            tally.info,
            fresh.count(),
            self.nodes,
            all.values().map(|told| told.term).max().unwrap_or(0),
            all.values().map(|told| told.applied).max().unwrap_or(0),
            self.fed.load(Ordering::SeqCst),
        )
    }

    /// Ends everything, and waits until what was made is taken away: threads that read answers
    /// of clients hold on to the run until their client is dead.
    pub fn take_down(self) {
        for client in &self.clients {
            if let Err(error) = client.kill() {
                println!("  {}: {error:#}", client.name);
            }
        }
        let run = Arc::downgrade(&self.run);
        drop(self);
        let end = Instant::now() + Duration::from_secs(5);
        while run.strong_count() > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends those who observe.
    pub fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
        let observers =
            std::mem::take(&mut *self.observers.lock().unwrap_or_else(PoisonError::into_inner));
        for observer in observers {
            match observer.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => println!("  an observer failed: {error:#}"),
                Err(_) => println!("  an observer panicked"),
            }
        }
    }
}

fn watch_all(
    observed: &[Observed],
    folder: &Path,
    world: &World,
    fed: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let addresses: Vec<String> = observed.iter().map(|node| node.address.clone()).collect();
        let feed = cluster::follow(&addresses, folder, fed, stop);
        let mut statuses = Vec::new();
        for node in observed {
            let (book, view) = (&world.book, &world.view);
            let watch = cluster::watch_status(node.clone(), folder, book, view, stop);
            statuses.push(Box::pin(watch));
        }
        let all = async {
            for status in join(statuses).await {
                status?;
            }
            anyhow::Ok(())
        };
        let (feed, all) = tokio::join!(feed, all);
        feed.and(all)
    })
}

/// All of them at once, without another dependency.
async fn join<T>(futures: Vec<std::pin::Pin<Box<impl Future<Output = T>>>>) -> Vec<T> {
    let mut slots: Vec<_> = futures.into_iter().map(|future| (Some(future), None)).collect();
    std::future::poll_fn(move |context| {
        let mut waits = false;
        for (future, done) in &mut slots {
            if let Some(running) = future {
                match running.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => (*future, *done) = (None, Some(value)),
                    std::task::Poll::Pending => waits = true,
                }
            }
        }
        if waits {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(slots.iter_mut().filter_map(|(_, done)| done.take()).collect())
    })
    .await
}

fn destination(
    run: &Arc<Run>,
    network: &Network,
    listen: &str,
    folder: &Path,
    options: &Options,
) -> Result<Process> {
    let program = std::env::current_exe()?;
    let file: PathBuf = run.folder().join("dest.sqlite");
    let mut args = vec![
        "dest".into(),
        format!("--listen={listen}").into(),
        format!("--file={}", file.display()).into(),
        format!("--ledger={}", folder.join("dest-ledger.jsonl").display()).into(),
    ];
    if options.unchecked_destination {
        args.push("--unchecked".into());
    }
    let host = network.host(DESTINATION)?;
    let spec = Spec {
        args,
        namespace: Some(&host.namespace),
        ..Spec::new(DESTINATION, &program, folder.join("d1.log"))
    };
    Process::start(run, spec).context("cannot start the destination")
}

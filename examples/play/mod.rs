//! What the examples share: actors that are processes of their own. One can be stopped as
//! a long pause would stop it, in the middle of what it does.

use std::error::Error;
use std::process::Stdio;
use std::time::Duration;

use ringfence::client::Client;
use rusqlite::Connection;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin, stdin};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

pub type Told<T> = Result<T, Box<dyn Error>>;

/// No actor is silent for longer, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of the cluster in RINGFENCE_ENDPOINTS; that of `ringfence dev` if unset.
pub fn client() -> Told<Client> {
    let endpoints = std::env::var("RINGFENCE_ENDPOINTS").ok();
    let endpoints = endpoints.unwrap_or_else(|| "127.0.0.1:7411".to_owned());
    Ok(Client::connect(endpoints.split(','))?)
}

/// A database in a file, in which a mark survives a power loss.
pub fn database(path: &str) -> Told<Connection> {
    let database = Connection::open(path)?;
    database.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")?;
    database.busy_timeout(PATIENCE)?;
    Ok(database)
}

/// This program in another role, spoken to line by line.
pub struct Actor {
    name: &'static str,
    process: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl Actor {
    /// Starts a process that gets `name` and `arguments`.
    pub fn start(name: &'static str, arguments: &[&str]) -> Told<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(name)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let to = process.stdin.take().ok_or("no way to its stdin")?;
        let from = process.stdout.take().ok_or("no way to its stdout")?;
        Ok(Self { name, process, to, from: BufReader::new(from).lines() })
    }

    /// Gives it an order.
    pub async fn tell(&mut self, order: &str) -> Told<()> {
        self.to.write_all(format!("{order}\n").as_bytes()).await?;
        Ok(self.to.flush().await?)
    }

    /// What it says next.
    pub async fn hear(&mut self) -> Told<String> {
        let line = tokio::time::timeout(PATIENCE, self.from.next_line()).await;
        let line = line.map_err(|_| format!("{} says nothing", self.name))??;
        let line = line.ok_or_else(|| format!("{} has ended", self.name))?;
        println!("  {:<8}{line}", self.name);
        Ok(line)
    }

    /// Gives it an order and hears the answer, which must begin so.
    pub async fn ask(&mut self, order: &str, expected: &str) -> Told<String> {
        self.tell(order).await?;
        self.expect(expected).await
    }

    /// Hears what it says next, which must begin so.
    pub async fn expect(&mut self, expected: &str) -> Told<String> {
        let said = self.hear().await?;
        if said.starts_with(expected) {
            return Ok(said);
        }
        Err(format!("{} said {said:?} instead of {expected:?}", self.name).into())
    }

    /// Stops it where it stands (SIGSTOP): a long garbage collection, a frozen machine.
    pub async fn pause(&self) -> Told<()> {
        println!("  {:<8}(stopped)", self.name);
        self.signal("-STOP").await
    }

    /// Lets it go on, as if nothing had happened.
    pub async fn go_on(&self) -> Told<()> {
        println!("  {:<8}(goes on)", self.name);
        self.signal("-CONT").await
    }

    async fn signal(&self, signal: &str) -> Told<()> {
        let pid = self.process.id().ok_or("it has ended")?.to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().await?;
        if sent.success() { Ok(()) } else { Err("kill failed".into()) }
    }
}

/// The orders that this process is given.
pub fn orders() -> Lines<BufReader<Stdin>> {
    BufReader::new(stdin()).lines()
}

/// What a step of the story is about. With `STEP` set, it begins when a line is entered.
pub fn scene(text: &str) {
    println!("{text}");
    if std::env::var_os("STEP").is_some() {
        // Who has nothing more to enter is not waited for.
        let _entered = std::io::stdin().read_line(&mut String::new());
    }
}

//! Marks in the same Redis or Valkey as what they protect.
//!
//! One script checks the fences, raises the marks and runs the caller's own commands:
//! Redis runs one script at a time, so no raise comes between. `GET` and then `SET` is a
//! hole, and so is a check before a write of its own.
//!
//! - **A mark is only as durable as the server's settings make it.** Without
//!   `appendonly yes` and `appendfsync always` a crash or a power loss can take back what was
//!   answered, marks included. [`Marks::durability`] tells what the server says. A failover
//!   to a replica that lags drops marks whatever the settings are (`WAIT` narrows this, and
//!   does not close it): (I8) does not survive a failover of Redis.
//! - `maxmemory-policy` other than `noeviction`, and an expiry on a mark, are refused with
//!   [`FenceError::NotDurable`]. Nothing stops `DEL` and `FLUSHALL`; after the latter the
//!   version of the marks is gone too, so that writes are refused until [`Marks::install`].
//! - A script that fails half-way is not undone: what it wrote stays, and so do the marks,
//!   which are raised first.
//! - All keys of one script have to be in one hash slot of a cluster: the marks are, by the
//!   tag, and the caller's own have to hold the same tag (`orders:{jobs}:7`).

use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, Script, ServerErrorKind, ToRedisArgs};

use super::error::FenceError;
use super::rule::{Refusal, check_set};
use super::target::{FenceTarget, Raising, unreached};
use crate::locks::{ClusterId, Fence, Invalid, ResourceName, Token};

/// The version that [`Marks::install`] sets up.
pub const SCHEMA_VERSION: u32 = 1;

/// The check, for callers in other languages: put `local function write(KEYS, ARGV) …
/// end` before it. Its head says what it takes.
pub const CHECK_LUA: &str = include_str!("redis.lua");

const NOTHING: &str = "return 'OK'";

/// Runs commands given as: how many words, then the words.
const COMMANDS: &str = "local replies, at = {}, 1
    while at <= #ARGV do
        local words = tonumber(ARGV[at])
        replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, at + words))
        at = at + words + 1
    end
    return replies";

const ADOPT: &str = "local known = redis.call('HGET', KEYS[1], 'c')
    if known ~= ARGV[1] then return 0 end
    redis.call('HSET', KEYS[1], 'c', ARGV[2])
    return 1";

/// The marks that share one hash tag: those of one destination.
#[derive(Debug, Clone)]
pub struct Marks {
    tag: String,
    nothing: Write,
}

/// What is written if the fence passes: commands, or a piece of Lua.
#[derive(Debug, Clone)]
pub struct Write {
    script: Script,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

/// What the server says of its append-only file: how much of what it has answered a power
/// loss can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// `appendfsync always`: nothing. Replication can still: see the module's page.
    EveryWrite,
    /// `appendfsync everysec`, or `no`: the last seconds.
    Seconds,
    /// No append-only file: everything since the last snapshot.
    Snapshots,
    /// The server does not tell (`CONFIG` is often closed where Redis is rented).
    Unknown,
}

impl Write {
    /// Commands that are run one after another; the answer is an array of theirs. If one
    /// fails, those before it stay.
    pub fn commands(commands: &[Cmd]) -> Self {
        let mut arguments = Vec::new();
        for command in commands {
            let words: Vec<&[u8]> = command
                .args_iter()
                .map(|word| match word {
                    redis::Arg::Simple(word) => word,
                    // The other kind is a cursor, which starts at 0.
                    _ => b"0".as_slice(),
                })
                .collect();
            arguments.push(words.len().to_string().into_bytes());
            arguments.extend(words.into_iter().map(<[u8]>::to_vec));
        }
        Self { arguments, ..Self::script(COMMANDS) }
    }

    /// The body of a Lua function of `KEYS` and `ARGV`, which are those given here with
    /// [`Self::key`] and [`Self::argument`]; what it returns is the answer.
    pub fn script(body: &str) -> Self {
        let code = format!("local function write(KEYS, ARGV)\n{body}\nend\n{CHECK_LUA}");
        Self { script: Script::new(&code), keys: Vec::new(), arguments: Vec::new() }
    }

    /// One more key that is written or read. A cluster has to be told all of them.
    #[must_use]
    pub fn key(mut self, key: impl ToRedisArgs) -> Self {
        self.keys.extend(key.to_redis_args());
        self
    }

    /// One more argument of the script.
    #[must_use]
    pub fn argument(mut self, argument: impl ToRedisArgs) -> Self {
        self.arguments.extend(argument.to_redis_args());
        self
    }
}

impl Marks {
    /// The marks under a tag of 1 to 64 letters, digits, `-`, `_`, `.` or `:`. All that is
    /// written in one script has to have the same tag.
    ///
    /// # Errors
    /// A `tag` of another form.
    pub fn new(tag: &str) -> Result<Self, Invalid> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
        if tag.is_empty() || tag.len() > 64 || !tag.bytes().all(allowed) {
            let bound = "1 to 64 letters, digits, -, _, . or :";
            return Err(Invalid { field: "tag", bound });
        }
        Ok(Self { tag: tag.to_owned(), nothing: Write::script(NOTHING) })
    }

    /// Sets up the marks. Does nothing where they are already.
    ///
    /// # Errors
    /// [`FenceError::SchemaNewer`]; [`FenceError::NotDurable`] for an eviction policy; and
    /// what the server says.
    pub async fn install(&self, connection: &mut impl ConnectionLike) -> Result<(), FenceError> {
        let mut set = redis::cmd("SET");
        set.arg(self.version_key()).arg(SCHEMA_VERSION).arg("NX");
        let _: Option<String> = set.query_async(connection).await.map_err(from_redis)?;
        // No fence: asks for the version and the settings.
        self.run(connection, &[], &self.nothing).await
    }

    /// Checks the fences of one grant, raises the marks and runs `write`, in one step. The
    /// fences may be in any order, each of another resource; all are accepted, or none.
    ///
    /// # Errors
    /// [`FenceError::Set`], [`FenceError::Stale`], [`FenceError::FloorAboveToken`],
    /// [`FenceError::ForeignCluster`], [`FenceError::NotDurable`],
    /// [`FenceError::SchemaMissing`] and [`FenceError::SchemaNewer`]: nothing was written.
    /// [`FenceError::Busy`]: another script or a start holds up the server.
    /// [`FenceError::Store`]: `write` failed, which leaves what it did before; or nobody
    /// knows whether it was applied.
    pub async fn guarded<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        fences: &[Fence],
        write: &Write,
    ) -> Result<T, FenceError> {
        check_set(fences)?;
        let mut fences: Vec<&Fence> = fences.iter().collect();
        fences.sort_by(|one, other| one.resource.cmp(&other.resource));
        self.run(connection, &fences, write).await
    }

    /// Raises the marks without a write: from its return on, no earlier owner's guarded
    /// write is applied.
    ///
    /// # Errors
    /// As [`Self::guarded`].
    pub async fn raise(
        &self,
        connection: &mut impl ConnectionLike,
        fences: &[Fence],
    ) -> Result<(), FenceError> {
        self.guarded(connection, fences, &self.nothing).await
    }

    /// The mark of a resource, or of one of its slots.
    ///
    /// # Errors
    /// [`FenceError::SchemaMissing`] and [`FenceError::SchemaNewer`]; what the server says.
    pub async fn mark(
        &self,
        connection: &mut impl ConnectionLike,
        resource: &ResourceName,
        slot: Option<u32>,
    ) -> Result<Option<Token>, FenceError> {
        let field = slot.map_or_else(|| "r".to_owned(), |slot| format!("s{slot}"));
        let mut both = redis::pipe();
        both.atomic().get(self.version_key()).hget(self.key(resource), field);
        let (version, mark): (Option<String>, Option<u64>) =
            both.query_async(connection).await.map_err(from_redis)?;
        known_schema(version.as_deref().unwrap_or("none"))?;
        mark.map(Token::new).transpose().map_err(|invalid| FenceError::Store(Box::new(invalid)))
    }

    /// Takes the marks of authority `from` over for authority `to`, as after a restore;
    /// returns how many resources changed hands. No mark falls. Goes through the keys of
    /// this server: in a cluster, that which has the tag. Safe to repeat.
    ///
    /// # Errors
    /// What the server says; some may have been taken over.
    pub async fn adopt(
        &self,
        connection: &mut impl ConnectionLike,
        from: ClusterId,
        to: ClusterId,
    ) -> Result<usize, FenceError> {
        let script = Script::new(ADOPT);
        let (mut taken, mut cursor) = (0, 0_u64);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("{}:*", self.version_key()));
            let (next, keys): (u64, Vec<Vec<u8>>) =
                scan.arg("COUNT").arg(1000).query_async(connection).await.map_err(from_redis)?;
            for key in keys {
                let mut call = script.key(key);
                call.arg(from.to_string()).arg(to.to_string());
                let one: usize = call.invoke_async(connection).await.map_err(from_redis)?;
                taken += one;
            }
            cursor = next;
            if cursor == 0 {
                return Ok(taken);
            }
        }
    }

    /// What a power loss can take, as far as this server tells.
    ///
    /// # Errors
    /// What the server says, other than that it does not tell.
    pub async fn durability(
        &self,
        connection: &mut impl ConnectionLike,
    ) -> Result<Durability, FenceError> {
        let mut info = redis::cmd("INFO");
        let said: String =
            info.arg("persistence").query_async(connection).await.map_err(from_redis)?;
        if !said.lines().any(|line| line == "aof_enabled:1") {
            return Ok(Durability::Snapshots);
        }
        let mut config = redis::cmd("CONFIG");
        config.arg("GET").arg("appendfsync");
        match config.query_async::<Vec<String>>(connection).await {
            Ok(pair) if pair.get(1).is_some_and(|value| value == "always") => {
                Ok(Durability::EveryWrite)
            }
            Ok(pair) if pair.len() == 2 => Ok(Durability::Seconds),
            Ok(_) => Ok(Durability::Unknown),
            Err(error) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => {
                Ok(Durability::Unknown)
            }
            Err(error) => Err(from_redis(error)),
        }
    }

    /// These marks as strict handoff raises them: over a connection of its own each time.
    pub fn target(&self, client: redis::Client) -> Target {
        let address = client.get_connection_info().addr().to_string();
        Target { name: format!("redis {address}"), client, marks: self.clone() }
    }

    async fn run<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        fences: &[&Fence],
        write: &Write,
    ) -> Result<T, FenceError> {
        let mut call = write.script.key(self.version_key());
        for fence in fences {
            call.key(self.key(&fence.resource));
        }
        call.arg(fences.len());
        for fence in fences {
            let slot = fence.slot.map_or_else(String::new, |slot| slot.to_string());
            call.arg(fence.cluster.to_string()).arg(slot);
            call.arg(fence.token.get()).arg(fence.floor.get());
        }
        for key in &write.keys {
            call.key(key);
        }
        for argument in &write.arguments {
            call.arg(argument);
        }
        call.invoke_async(connection).await.map_err(|error| refused(fences, error))
    }

    fn version_key(&self) -> String {
        format!("ringfence:{{{}}}", self.tag)
    }

    fn key(&self, resource: &ResourceName) -> String {
        format!("{}:{resource}", self.version_key())
    }
}

/// See [`Marks::target`].
#[derive(Debug, Clone)]
pub struct Target {
    client: redis::Client,
    marks: Marks,
    name: String,
}

impl FenceTarget for Target {
    fn name(&self) -> &str {
        &self.name
    }

    fn raise<'a>(&'a self, fences: &'a [Fence], within: Duration) -> Raising<'a> {
        Box::pin(async move {
            // The driver's own bounds are shorter.
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(within))
                .set_response_timeout(Some(within));
            let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
            let mut connection = connected.map_err(|error| unreached(&error))?;
            self.marks.raise(&mut connection, fences).await
        })
    }
}

/// Reads the refusals of `redis.lua`.
fn refused(fences: &[&Fence], error: RedisError) -> FenceError {
    let detail = error.detail().unwrap_or_default();
    let word = |name: &str| {
        let mut words = detail.split(' ').filter_map(|word| word.split_once('='));
        words.find(|(found, _)| *found == name).map(|(_, value)| value)
    };
    let fence = || {
        let number: usize = word("fence")?.parse().ok()?;
        fences.get(number.checked_sub(1)?).copied()
    };
    let stale = || {
        let mark = Token::new(word("mark")?.parse().ok()?).ok()?;
        Some(Refusal::Stale { mark, slot: word("slot").and_then(|slot| slot.parse().ok()) })
    };
    let foreign = || {
        let known = ClusterId::from_hex(word("known")?).ok()?;
        Some(Refusal::ForeignCluster { known })
    };
    let refusal = match error.code() {
        Some("RFSTALE") => stale(),
        Some("RFFOREIGN") => foreign(),
        Some("RFFLOOR") => Some(Refusal::FloorAboveToken),
        Some("RFDURABLE") => return FenceError::NotDurable { setting: detail.to_owned() },
        Some("RFSCHEMA") => {
            let missing = known_schema(word("found").unwrap_or("none"));
            return missing.err().unwrap_or(FenceError::SchemaMissing);
        }
        Some(_) | None => None,
    };
    match fence().zip(refusal) {
        Some((fence, refusal)) => FenceError::refused(fence, refusal),
        None => from_redis(error),
    }
}

fn known_schema(found: &str) -> Result<(), FenceError> {
    match found.parse() {
        Ok(SCHEMA_VERSION) => Ok(()),
        Ok(found) if found > SCHEMA_VERSION => {
            Err(FenceError::SchemaNewer { found, known: SCHEMA_VERSION })
        }
        Ok(_) | Err(_) => Err(FenceError::SchemaMissing),
    }
}

/// `BUSY` is a script that has run for too long, `LOADING` a start.
fn from_redis(error: RedisError) -> FenceError {
    let loading = error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading);
    if loading || error.code() == Some("BUSY") {
        return FenceError::Busy(Box::new(error));
    }
    FenceError::Store(Box::new(error))
}

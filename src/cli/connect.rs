//! Which authority a command speaks to.

use std::time::Duration;

use crate::client::{Client, ClientError};

use super::exit::{Exit, Failure};

/// Where a node listens if nothing is said.
const ENDPOINT_DEFAULT: &str = "127.0.0.1:7411";
/// How long one node may take before another one is asked, at most.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// How long a connection may take, at most.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// Which authority, and how patiently.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// Nodes of the cluster; one that is up is enough, it names the others
    #[arg(long, global = true, env = "RINGFENCE_ENDPOINTS", value_delimiter = ',')]
    #[arg(value_name = "HOST:PORT,…", default_value = ENDPOINT_DEFAULT)]
    pub endpoints: Vec<String>,
    /// How long to try to get an answer from the authority
    #[arg(long, global = true, env = "RINGFENCE_TIMEOUT", default_value = "10s")]
    #[arg(value_name = "DURATION", value_parser = some_time)]
    pub timeout: Duration,
}

impl Connection {
    /// A client; it connects when it is first used.
    ///
    /// # Errors
    /// [`Exit::Usage`] for an endpoint that is none.
    pub fn client(&self) -> Result<Client, Failure> {
        let client = Client::builder()
            .call_timeout(self.timeout)
            .attempt_timeout(self.timeout.min(ATTEMPT_MAX))
            .connect_timeout(self.timeout.min(CONNECT_MAX))
            .connect(&self.endpoints);
        client.map_err(|error: ClientError| {
            let given = self.endpoints.join(",");
            Failure::new(Exit::Usage, format!("--endpoints {given}: {error}"))
        })
    }
}

/// Reads a duration, `1m30s` or `500ms`.
///
/// # Errors
/// What is wrong with it.
pub fn any_time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error} (say 500ms, 10s or 1m30s)"))
}

/// Reads a duration that is not zero.
///
/// # Errors
/// What is wrong with it.
pub fn some_time(text: &str) -> Result<Duration, String> {
    match any_time(text)? {
        Duration::ZERO => Err("must be more than nothing".to_owned()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_a_timeout_is_not_zero() {
        assert_eq!(any_time("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(any_time("0s"), Ok(Duration::ZERO));
        assert!(any_time("10").is_err_and(|error| error.contains("10s")));
        assert!(some_time("0s").is_err());
    }
}

//! What a node tells people while it runs, on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Says how much is told, in the form of [`EnvFilter`].
pub const FILTER_VARIABLE: &str = "RINGFENCE_LOG";
/// What is told if nothing is said. What openraft has to say is in the errors that are told.
const FILTER_DEFAULT: &str = "warn,ringfence=info,openraft=off";

/// Begins to tell; a second call does nothing.
pub fn start() {
    let filter = std::env::var(FILTER_VARIABLE).ok().and_then(|said| EnvFilter::try_new(said).ok());
    let told = tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|| EnvFilter::new(FILTER_DEFAULT)))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .try_init();
    // Whoever embeds a node may tell things in a way of their own.
    drop(told);
}

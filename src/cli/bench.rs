//! `ringfence bench`.

/// Not written yet
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// Always: it is not written yet.
pub async fn run(_args: Args) -> anyhow::Result<()> {
    std::future::ready(Err(anyhow::anyhow!("not written yet"))).await
}

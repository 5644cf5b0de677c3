//! `ringfence completions`.

use clap_complete::Shell;

use super::exit::{Exit, Failure};
use super::{command, output};

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence completions bash > /etc/bash_completion.d/ringfence
  ringfence completions zsh > \"${fpath[1]}/_ringfence\"
  ringfence completions fish > ~/.config/fish/completions/ringfence.fish")]
pub struct Args {
    /// Which shell
    shell: Shell,
}

/// Prints.
///
/// # Errors
/// What stdout says.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let whole = command();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    let mut shown =
        clap::Command::new("ringfence").args(whole.get_arguments()).subcommands(shown.cloned());
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut shown, "ringfence", &mut script);
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

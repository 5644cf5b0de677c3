//! The few programs of the system that the means call.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Which Debian package holds a program.
const PACKAGES: &[(&str, &str)] =
    &[("ip", "iproute2"), ("mkfs.ext4", "e2fsprogs"), ("losetup", "mount")];

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// It cannot be started (then says what to install), or fails (then repeats what it said).
pub fn run(program: &str, args: &[&str]) -> Result<String> {
    run_with(program, args, "")
}

/// Like [`run`], with text on standard input.
///
/// # Errors
/// As [`run`].
pub fn run_with(program: &str, args: &[&str], input: &str) -> Result<String> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}{}", install(program)))?;
    // A program that ends early closes its end; what it says on standard error is the reason.
    let unread = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().with_context(|| format!("waiting for {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {} ({})", args.join(" "), said.trim(), output.status);
    }
    unread.transpose().with_context(|| format!("{program} did not read its input"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn install(program: &str) -> String {
    PACKAGES
        .iter()
        .find(|(name, _)| *name == program)
        .map(|(_, package)| format!(": apt-get install {package}"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_in_the_error() {
        let error = run("sh", &["-c", "echo no such luck >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("no such luck") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        assert_eq!(install("mkfs.ext4"), ": apt-get install e2fsprogs");
        assert!(run("ringfence-no-such-program", &[]).unwrap_err().to_string().contains("no-such"));
    }

    #[test]
    fn input_reaches_the_program() {
        assert_eq!(run_with("cat", &[], "a line\n").unwrap(), "a line\n");
    }
}

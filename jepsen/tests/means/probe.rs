//! The probe, which finds out what this machine can do.

use std::path::Path;
use std::process::Command;

use ringfence_jepsen::means::probe::attempts;

use super::jepsen;

#[test]
fn every_means_works_here() {
    for attempt in attempts(jepsen()) {
        assert!(attempt.seen.is_ok(), "{}: {:#}", attempt.means, attempt.seen.unwrap_err());
    }
}

#[test]
fn what_needs_a_working_program_fails_without_one_and_says_so() {
    let failed: Vec<&str> = attempts(Path::new("/bin/false"))
        .iter()
        .filter(|attempt| attempt.seen.is_err())
        .map(|attempt| attempt.means)
        .collect();
    let expected =
        ["clocks of a process", "disk errors of a process", "pause and kill", "CPU starvation"];
    assert_eq!(failed, expected);
}

#[test]
fn a_missing_program_is_a_failure_that_names_its_package() {
    let output = Command::new(jepsen()).arg("probe").env("PATH", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("FAILS   power cut: cannot start mkfs.ext4: apt-get install"), "{said}");
    assert!(said.contains("apt-get install iproute2"), "{said}");
    assert!(said.contains("works   disk errors of a process"), "{said}");
    assert!(said.ends_with("4 of 10 means work here\n"), "{said}");
}

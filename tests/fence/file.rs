//! Marks beside files: several threads, several processes, SIGKILL and full disks.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;
use std::time::Duration;

use ringfence::fence::{Fence, FenceError, FenceTarget, file::Marks};
use ringfence::locks::{ClusterId, Token};
use tempfile::TempDir;

use crate::steps::{Another, Shim, role};
use crate::stories::{
    ATTEMPTS, assert_answer, assert_never_back, exclusive, mixed, name, shared, stories,
};

fn destination() -> (TempDir, Marks) {
    let directory = tempfile::tempdir().expect("the temporary folder is writable");
    let marks = Marks::new(directory.path()).within(Duration::from_secs(60));
    marks.install().expect("the folder is ours");
    (directory, marks)
}

fn write(marks: &Marks, number: u64) -> Result<(), FenceError> {
    marks.replace("job", &[exclusive("job/7", number)], format!("by {number}"))
}

fn job(directory: &TempDir) -> Option<String> {
    fs::read_to_string(directory.path().join("job")).ok()
}

fn job_mark(marks: &Marks) -> Option<u64> {
    marks.mark(&name("job/7"), None).expect("installed").map(Token::get)
}

#[test]
fn files_tell_every_story() {
    let (_directory, marks) = destination();
    for story in stories() {
        for step in story.steps() {
            let answer = marks.raise(std::slice::from_ref(&step.fence));
            assert_answer(story.resource, &step, answer);
        }
    }
}

#[test]
fn a_raise_waits_for_a_write_past_its_check_and_refuses_the_next() {
    let (directory, marks) = destination();
    std::thread::scope(|scope| {
        let (past, is_past) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let marks = &marks;
        let old = scope.spawn(move || {
            marks.replace_with("job", &[exclusive("job/7", 1)], |file| {
                past.send(()).expect("somebody listens");
                may_go.recv().expect("told to go on");
                file.write_all(b"by 1")
            })
        });
        is_past.recv().expect("it comes past its check");
        let busy = marks.clone().within(Duration::ZERO).raise(&[exclusive("job/7", 2)]);
        assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
        go.send(()).expect("it waits");
        old.join().expect("it ran to its end").expect("past its check");
    });
    assert_eq!(job(&directory).as_deref(), Some("by 1"));
    marks.raise(&[exclusive("job/7", 2)]).expect("nobody writes now");
    let stale = write(&marks, 1).expect_err("a later owner has been here");
    assert_eq!(stale.to_string(), "stale fence: token 1 is below the mark 2 of job/7");
    assert_eq!(job(&directory).as_deref(), Some("by 1"));
}

#[test]
fn a_frozen_process_holds_up_the_raise_and_its_death_frees_it() {
    if let Some((_, directory)) = role() {
        let _ = Marks::new(directory).replace_with("job", &[exclusive("job/7", 1)], |file| {
            file.write_all(b"by 1")?;
            println!("\n> past the check");
            // Frozen: nobody ever answers.
            io::stdin().read(&mut [0]).map(drop)
        });
        return;
    }
    let (directory, marks) = destination();
    let test = "file::a_frozen_process_holds_up_the_raise_and_its_death_frees_it";
    let mut frozen = Another::start(test, "frozen", directory.path(), None);
    assert_eq!(frozen.said().as_deref(), Some("past the check"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (target, fences) = (marks.target(), [exclusive("job/7", 2)]);
    let busy = runtime.block_on(target.raise(&fences, Duration::from_millis(50)));
    assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    frozen.kill();
    runtime.block_on(target.raise(&fences, Duration::from_secs(60))).expect("the dead hold none");
    assert_eq!((job(&directory), job_mark(&marks)), (None, Some(2)));
    assert_eq!(target.name(), format!("file:{}", directory.path().display()));
    let left = fs::read_dir(directory.path().join(".ringfence")).expect("it is there");
    let mut left: Vec<_> = left.map(|e| e.expect("an entry").file_name()).collect();
    left.sort();
    assert_eq!(left, ["lock", "marks", "version"], "what the dead staged is put away");
}

#[test]
fn sixteen_processes_of_mixed_tokens_never_take_the_accepted_sequence_back() {
    if let Some((writer, directory)) = role() {
        let marks = Marks::new(directory).within(Duration::from_secs(60));
        let mut attempt: u64 = writer.parse().expect("a number");
        while attempt < ATTEMPTS {
            let token = mixed(attempt);
            let answer = marks.guarded(&[exclusive("job/7", token)], |directory| {
                let mut ledger =
                    fs::File::options().append(true).create(true).open(directory.join("ledger"))?;
                writeln!(ledger, "{token}")
            });
            assert!(matches!(answer, Ok(()) | Err(FenceError::Stale { .. })), "{answer:?}");
            attempt += 16;
        }
        println!("\n> done");
        return;
    }
    let (directory, marks) = destination();
    let test = "file::sixteen_processes_of_mixed_tokens_never_take_the_accepted_sequence_back";
    let mut writers: Vec<_> = (0..16)
        .map(|writer: u64| Another::start(test, &writer.to_string(), directory.path(), None))
        .collect();
    for writer in &mut writers {
        assert_eq!(writer.said().as_deref(), Some("done"));
        writer.kill();
    }
    let ledger = fs::read_to_string(directory.path().join("ledger")).expect("they wrote");
    let accepted: Vec<u64> = ledger.lines().map(|line| line.parse().expect("a token")).collect();
    assert_never_back(&accepted);
    assert_eq!(job_mark(&marks), accepted.last().copied());
}

#[test]
fn no_mark_falls_when_writers_are_killed_at_any_moment() {
    if let Some((first, directory)) = role() {
        let marks = Marks::new(directory);
        for number in first.parse::<u64>().expect("a number").. {
            write(&marks, number).expect("the only writer");
            println!("\n> {number}");
        }
    }
    let (directory, marks) = destination();
    let test = "file::no_mark_falls_when_writers_are_killed_at_any_moment";
    let mut answered = 0;
    for round in 0..8 {
        let first = (answered + 1).to_string();
        let mut writer = Another::start(test, &first, directory.path(), None);
        for _ in 0..=round {
            writer.said().expect("it writes until it is killed");
        }
        writer.kill();
        while let Some(said) = writer.said() {
            answered = said.parse().expect("a number");
        }
        marks.install().expect("it finishes what is half done");
        let mark = job_mark(&marks).expect("it wrote");
        assert!(mark >= answered, "mark {mark} fell below {answered}");
        assert_eq!(job(&directory), Some(format!("by {mark}")), "a write and its mark are one");
        answered = mark;
    }
}

/// What must be on disk before what, in case the power fails: a step may be lost only with
/// all that follow it.
#[test]
fn every_name_is_given_to_what_is_on_disk() {
    if let Some((_, directory)) = role() {
        let marks = Marks::new(directory);
        let _ = fs::remove_file("kill-at/1000");
        write(&marks, 6).expect("a later owner");
        println!("\n> done");
        return;
    }
    let (directory, marks) = destination();
    write(&marks, 5).expect("the first owner");
    let shim = Shim::new();
    let test = "file::every_name_is_given_to_what_is_on_disk";
    let mut writer = Another::start(test, "writer", directory.path(), Some(&shim));
    assert_eq!(writer.said().as_deref(), Some("done"));
    writer.kill();
    let steps = shim.told();
    let top = directory.path().canonicalize().expect("it is there");
    let steps = steps.replace(&format!("{}", top.display()), "TOP");
    let steps = steps.replace(&format!("{}", directory.path().display()), "TOP");
    let staged = steps.split_once("new-").expect("one is staged").1;
    let steps = steps.replace(&staged[..16], "*");
    let folder = "TOP/.ringfence";
    let mark = format!("{folder}/marks/job%2f7.mark");
    let expected = [
        format!("write {folder}/new-*"),
        format!("sync {folder}/new-*"),
        format!("sync {folder}"),
        format!("write {folder}/commit.new"),
        format!("sync {folder}/commit.new"),
        format!("rename {folder}/commit.new {folder}/commit"),
        format!("sync {folder}"),
        format!("rename {folder}/new-* TOP/job"),
        "sync TOP".to_owned(),
        format!("write {folder}/mark.new"),
        format!("sync {folder}/mark.new"),
        format!("rename {folder}/mark.new {mark}"),
        format!("sync {folder}/marks"),
        format!("unlink {folder}/commit"),
    ];
    assert_eq!(steps.lines().collect::<Vec<_>>(), expected);
}

/// As between two file systems, or without the right to write there.
#[test]
fn a_name_that_cannot_be_given_takes_the_whole_step_back() {
    if let Some((_, directory)) = role() {
        let marks = Marks::new(directory);
        // The rename, in the order of the test above.
        let _ = fs::remove_file("fail-at/8");
        let refused = write(&marks, 6).expect_err("it fails");
        println!("\n> {refused}");
        return;
    }
    let (directory, marks) = destination();
    write(&marks, 5).expect("the first owner");
    let test = "file::a_name_that_cannot_be_given_takes_the_whole_step_back";
    let shim = Shim::new();
    let mut writer = Another::start(test, "writer", directory.path(), Some(&shim));
    let said = writer.said().expect("it is refused");
    assert!(said.starts_with("the store failed: No space left"), "{said}");
    writer.kill();
    marks.install().expect("nothing is left to finish");
    assert_eq!((job(&directory).as_deref(), job_mark(&marks)), (Some("by 5"), Some(5)));
}

#[test]
fn a_write_that_fails_leaves_no_mark_and_nothing_staged() {
    let (directory, marks) = destination();
    let failed = marks.replace_with("job", &[exclusive("job/7", 9)], |file| {
        file.write_all(b"half")?;
        Err(io::Error::other("the other half is missing"))
    });
    assert!(matches!(failed, Err(FenceError::Store(_))), "{failed:?}");
    assert_eq!((job(&directory), job_mark(&marks)), (None, None));
    assert_eq!(fs::read_dir(directory.path().join(".ringfence")).expect("there").count(), 3);
    // Not so for code that writes by itself: its marks are there first.
    let failed = marks.guarded(&[exclusive("job/7", 9)], |directory| {
        fs::write(directory.join("job"), "half")?;
        Err::<(), _>(io::Error::other("the other half is missing"))
    });
    assert!(matches!(failed, Err(FenceError::Store(_))), "{failed:?}");
    assert_eq!((job(&directory).as_deref(), job_mark(&marks)), (Some("half"), Some(9)));
}

#[test]
fn malformed_and_foreign_fences_are_refused_and_adoption_moves_no_mark() {
    let (directory, marks) = destination();
    let malformed = marks.replace("job", &[shared("job/7", 5, 6)], "");
    assert!(matches!(malformed, Err(FenceError::FloorAboveToken { .. })), "{malformed:?}");
    for set in [&[][..], &[exclusive("job/7", 5), exclusive("job/7", 6)]] {
        let refused = marks.replace("job", set, "");
        assert!(matches!(refused, Err(FenceError::Set)), "{refused:?}");
    }
    assert_eq!(job(&directory), None);
    write(&marks, 5).expect("the first authority");
    let (old, new) = (exclusive("job/7", 5).cluster, ClusterId::new([8; 16]));
    let restored = [Fence { cluster: new, ..exclusive("job/7", 900) }];
    let foreign = marks.replace("job", &restored, "foreign");
    assert!(
        matches!(foreign, Err(FenceError::ForeignCluster { known, offered, .. })
            if (known, offered) == (old, new)),
        "{foreign:?}"
    );
    assert_eq!(job(&directory).as_deref(), Some("by 5"));
    assert_eq!(marks.adopt(old, new).expect("installed"), 1);
    assert_eq!(job_mark(&marks), Some(5));
    marks.raise(&restored).expect("adopted");
}

#[test]
fn what_is_missing_newer_or_damaged_is_refused_and_nothing_written() {
    let (directory, marks) = destination();
    write(&marks, 5).expect("the first owner");
    let folder = directory.path().join(".ringfence");
    let refused = |file: &str, text: &[u8], expected: fn(&FenceError) -> bool| {
        let path = folder.join(file);
        let old = fs::read(&path).ok();
        fs::write(&path, text).expect("the folder is ours");
        for answer in [write(&marks, 6), marks.raise(&[exclusive("job/7", 6)])] {
            let error = answer.expect_err("nothing can be told");
            assert!(expected(&error), "{file}: {error:?}");
        }
        assert_eq!(job(&directory).as_deref(), Some("by 5"), "{file}");
        match old {
            Some(old) => fs::write(&path, old).expect("the folder is ours"),
            None => fs::remove_file(&path).expect("the folder is ours"),
        }
    };
    let store = |error: &FenceError| matches!(error, FenceError::Store(_));
    let newer =
        |error: &FenceError| matches!(error, FenceError::SchemaNewer { found: 2, known: 1 });
    refused("marks/job%2f7.mark", b"", store);
    refused("marks/job%2f7.mark", b"ringfence mark 1\nmark 6\n", store);
    refused("marks/job%2f7.mark", b"ringfence mark 2\nanything\n", newer);
    refused("version", b"ringfence marks 2\n", newer);
    refused("version", b"", store);
    refused("commit", b"half of a rec", store);
    refused("commit", b"ringfence commit 2\n", newer);
    // A mark that is another resource's, as after a copy by hand.
    marks.raise(&[exclusive("job/8", 1)]).expect("installed");
    let other = fs::read(folder.join("marks/job%2f8.mark")).expect("it was raised");
    refused("marks/job%2f7.mark", &other, store);
    write(&marks, 5).expect("all is as it was");
    marks.install().expect("installed already");
    assert_eq!(job_mark(&marks), Some(5));

    fs::write(folder.join("version"), "ringfence marks 2\n").expect("the folder is ours");
    assert!(matches!(marks.install(), Err(FenceError::SchemaNewer { found: 2, known: 1 })));
    assert!(matches!(
        marks.mark(&name("job/7"), None),
        Err(FenceError::SchemaNewer { found: 2, known: 1 })
    ));
    fs::remove_dir_all(&folder).expect("the folder is ours");
    assert!(matches!(write(&marks, 6), Err(FenceError::SchemaMissing)));
    assert!(matches!(marks.mark(&name("job/7"), None), Err(FenceError::SchemaMissing)));
    assert_eq!(job(&directory).as_deref(), Some("by 5"));
}

#[test]
fn a_path_that_these_marks_do_not_protect_is_refused_before_anything_is_written() {
    let (directory, marks) = destination();
    let (top, fences) = (directory.path(), [exclusive("job/7", 5)]);
    fs::create_dir_all(top.join("own/.ringfence")).expect("the folder is ours");
    fs::create_dir_all(top.join("deep/er")).expect("the folder is ours");
    std::os::unix::fs::symlink("/tmp", top.join("link")).expect("the folder is ours");
    let outside = top.join("job").display().to_string();
    for path in [
        "",
        ".",
        "..",
        "../job",
        "deep/../job",
        &outside,
        ".ringfence/version",
        "own/job",
        "link/job",
        "link",
        "deep",
        "missing/job",
    ] {
        let refused = marks.replace(path, &fences, "content");
        assert!(matches!(refused, Err(FenceError::Store(_))), "{path}: {refused:?}");
    }
    assert_eq!(job_mark(&marks), None);
    marks.replace("deep/er/job", &fences, "content").expect("a folder below");
    assert_eq!(fs::read_to_string(top.join("deep/er/job")).expect("written"), "content");
}

#[test]
fn a_replaced_file_keeps_its_permissions() {
    let (directory, marks) = destination();
    let path = directory.path().join("job");
    fs::write(&path, "old").expect("the folder is ours");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("it is ours");
    write(&marks, 5).expect("the first owner");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o640);
}

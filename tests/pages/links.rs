//! What the pages point to is there: files, headings, and the tests that they name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A Markdown file outside `docs/` and in it.
struct Page {
    path: PathBuf,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files with this extension in a folder and below it.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the checkout").flatten();
    let below = entries.flat_map(|entry| {
        let path = entry.path();
        if path.is_dir() { files(&path, extension) } else { vec![path] }
    });
    let right = |path: &PathBuf| path.extension().is_some_and(|found| found == extension);
    below.filter(right).collect()
}

fn pages() -> Vec<Page> {
    let top = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name));
    let all = top.into_iter().chain(files(&root().join("docs"), "md"));
    all.map(|path| Page { text: fs::read_to_string(&path).expect("text"), path }).collect()
}

/// The text without its blocks of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    let numbered = text.lines().zip(1..).map(|(line, number)| (number, line));
    numbered.filter(move |(_, line)| {
        let fence = line.starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// What stands in parentheses behind square brackets, on a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// What a heading is called in a link: lower case, blanks as dashes, and no punctuation.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|(_, line)| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then_some(heading.strip_prefix(' ')?)
    });
    let kept = |letter: char| letter.is_alphanumeric() || " -_".contains(letter);
    headings
        .map(|it| it.to_lowercase().replace(|letter| !kept(letter), "").replace(' ', "-"))
        .collect()
}

/// Why a link leads nowhere.
fn broken(page: &Page, target: &str) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(a, b)| (a, Some(b)));
    let folder = page.path.parent().expect("a file is in a folder");
    let path = if file.is_empty() { page.path.clone() } else { folder.join(file) };
    if !path.exists() {
        return Some("no such file".into());
    }
    let text = anchor.and_then(|_| fs::read_to_string(&path).ok());
    let anchors = text.as_deref().map(anchors).unwrap_or_default();
    let anchor = anchor.filter(|anchor| !anchors.contains(*anchor))?;
    Some(format!("no heading {anchor} among {anchors:?}"))
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in pages() {
        for (number, line) in prose(&page.text) {
            for target in targets(line) {
                seen += 1;
                let why = broken(&page, target);
                wrong.extend(
                    why.map(|why| format!("{}:{number}: {target}: {why}", page.path.display())),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 20, "{seen} links");
}

#[test]
fn a_link_that_leads_nowhere_is_convicted() {
    let page = Page { path: root().join("docs/planted.md"), text: "# One, two\n".to_owned() };
    for (target, leads) in [
        ("fences.md", true),
        ("../README.md", true),
        ("fences.md#the-rule", true),
        ("fences.md#no-such-heading", false),
        ("no-such-file.md", false),
        ("https://no.such.host/", true),
    ] {
        assert_eq!(broken(&page, target).is_none(), leads, "{target}");
    }
    assert_eq!(anchors(&page.text), BTreeSet::from(["one-two".to_owned()]));
}

/// The page on Redis names the test of every claim; a test that was renamed would be missed.
#[test]
fn every_test_that_the_page_on_redis_names_exists_and_none_is_left_out() {
    let page = fs::read_to_string(root().join("docs/redis-locks.md")).expect("the page");
    let words = prose(&page).flat_map(|(_, line)| line.split('`').skip(1).step_by(2));
    let name = |word: &&str| word.contains('_') && !word.contains(['.', '/', ' ']);
    let named: BTreeSet<&str> = words.filter(name).collect();
    let sources = files(&root().join("tests/pages/redis_locks"), "rs");
    let sources: String =
        sources.iter().map(|file| fs::read_to_string(file).expect("text")).collect();
    let tests = sources.split("#[tokio::test").skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once("async fn ")?;
        rest.split('(').next()
    });
    assert_eq!(named, tests.collect(), "what the page names, and what there is");
}

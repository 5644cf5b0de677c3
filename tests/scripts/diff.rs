//! What is the same in two texts and what is not, for a person to read.

use std::fmt::Write;

/// Lines with their numbers: ` ` in both, `-` only in the first, `+` only in the
/// second. Long runs of equal lines are left out.
pub fn lines(expected: &str, actual: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (expected.lines().collect(), actual.lines().collect());
    let common = common_after(&old, &new);
    let (mut i, mut j) = (0, 0);
    let mut told = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            told.push((i, ' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || common[i + 1][j] >= common[i][j + 1]) {
            told.push((i, '-', old[i]));
            i += 1;
        } else {
            told.push((j, '+', new[j]));
            j += 1;
        }
    }
    near_changes(&told)
}

/// `[i][j]`: how many lines the rest of the first text from i and that of the second
/// from j have in common, in order.
fn common_after(old: &[&str], new: &[&str]) -> Vec<Vec<usize>> {
    let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = if old[i] == new[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    common
}

fn near_changes(told: &[(usize, char, &str)]) -> String {
    const AROUND: usize = 4;
    let mut text = String::new();
    for (at, (line, mark, content)) in told.iter().enumerate() {
        let near = &told[at.saturating_sub(AROUND)..told.len().min(at + AROUND + 1)];
        if near.iter().any(|(_, mark, _)| *mark != ' ') {
            writeln!(text, "{:4} {mark} {content}", line + 1).expect("a String takes any text");
        }
    }
    text
}
